"""Progress of a run, for people who watch."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm.auto import tqdm


def wants_progress(progress: bool | None) -> bool:
    """Return whether to show a bar: as asked, else on a terminal or in a notebook."""
    return progress if progress is not None else sys.stderr.isatty() or "ipykernel" in sys.modules


class Progress:
    """One bar on stderr: seeds done, modes so far, time left. Silent unless `shown`."""

    def __init__(self, n_seeds: int, shown: bool) -> None:
        self._bar = tqdm(
            total=n_seeds, unit="seed", desc="dshift", disable=not shown, unit_scale=True
        )
        self._n_modes = 0

    def block_done(self, n_seeds: int, n_new_modes: int) -> None:
        """Count a finished block; modes that several blocks found count once each."""
        self._n_modes += n_new_modes
        self._bar.set_postfix(modes=self._n_modes, refresh=False)
        self._bar.update(n_seeds)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
