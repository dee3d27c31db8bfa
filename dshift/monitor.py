"""Progress of a run, for people who watch."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm.auto import tqdm

from dshift.threads import BlockDone


def wants_progress(progress: bool | None) -> bool:
    """Return whether to show a bar: as asked, else on a terminal or in a notebook."""
    return progress if progress is not None else sys.stderr.isatty() or "ipykernel" in sys.modules


class Progress:
    """One bar on stderr: seeds done, modes so far, time left. Silent unless `shown`."""

    def __init__(self, n_seeds: int, shown: bool) -> None:
        self._bar = tqdm(
            total=n_seeds, unit="seed", desc="dshift", disable=not shown, unit_scale=True
        )
        self._modes: set[int] = set()
        self._n_reused = 0

    def block_done(self, done: BlockDone) -> None:
        """Count a finished block."""
        self._modes.update(done.modes)
        self._n_reused += done.reused
        reused = {"reused blocks": self._n_reused} if self._n_reused else {}
        self._bar.set_postfix(modes=len(self._modes), **reused, refresh=False)
        self._bar.update(done.block.stop - done.block.start)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()
