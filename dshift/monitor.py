"""Progress of a run, for people who watch."""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tqdm import TqdmWarning

with warnings.catch_warnings():
    # Without ipywidgets it says so in every notebook, and then draws with letters.
    warnings.simplefilter("ignore", TqdmWarning)
    from tqdm.auto import tqdm as tqdm

log = logging.getLogger("dshift")

# Hashes of modes that are kept to count them; up to so many modes the count is exact.
MOST_HASHES = 256
HASH_BITS = 64
# Lines of progress in the log are at least this far apart.
LOG_SECONDS = 30
# So are posts to the page on the dashboard: each is a question to a scheduler that has others.
POST_SECONDS = 0.25


@dataclass(frozen=True)
class BlockDone:
    """What is told of a finished block: enough to watch, never a row per seed."""

    block: slice
    modes: tuple[int, ...]  # hashes of modes, the least `MOST_HASHES` of them
    n_steps: int
    reused: bool  # taken from the store
    n_pairs: int = 0  # distances that were evaluated


class ModeCount:
    """Counts distinct modes in bounded memory, by the least of their hashes."""

    def __init__(self) -> None:
        self._least: list[int] = []

    def add(self, hashes: Iterable[int]) -> None:
        """Take in modes."""
        self._least = sorted({*self._least, *hashes})[:MOST_HASHES]

    @property
    def exact(self) -> bool:
        """Whether the count is no estimate."""
        return len(self._least) < MOST_HASHES

    def __int__(self) -> int:
        if self.exact:
            return len(self._least)
        # Evenly spread hashes reach the k-th least of them after this many.
        return math.ceil((MOST_HASHES - 1) * float(2**HASH_BITS) / self._least[-1])

    def __str__(self) -> str:
        return f"{'' if self.exact else '~'}{int(self)}"


def wants_progress(progress: bool | None) -> bool:
    """Return whether to show a bar: as asked, else on a terminal or in a notebook."""
    return progress if progress is not None else sys.stderr.isatty() or "ipykernel" in sys.modules


class Progress:
    """One bar on stderr: seeds done, modes so far, time left. Silent unless `shown`."""

    def __init__(self, n_seeds: int, shown: bool) -> None:
        self._bar = tqdm(
            total=n_seeds, unit="seed", desc="dshift", disable=not shown, unit_scale=True
        )
        self._modes = ModeCount()
        self.n_blocks = 0
        self.n_reused = 0
        self._n_seeds, self._n_done = n_seeds, 0
        self._logged = time.monotonic()

    def block_done(self, done: BlockDone) -> None:
        """Count a finished block."""
        self._n_done += done.block.stop - done.block.start
        self._modes.add(done.modes)
        self.n_blocks += 1
        self.n_reused += done.reused
        reused = {"reused blocks": self.n_reused} if self.n_reused else {}
        self._bar.set_postfix(modes=self._modes, **reused, refresh=False)
        self._bar.update(done.block.stop - done.block.start)
        if time.monotonic() - self._logged >= LOG_SECONDS:
            self._logged = time.monotonic()
            # As text: a handler that writes later would find a later count.
            n_modes = str(self._modes)
            log.info("%d of %d seeds done, %s modes", self._n_done, self._n_seeds, n_modes)

    def log_reuse(self) -> None:
        """Say in the log how much was there from an earlier run."""
        if self.n_reused:
            log.info("reused %d of %d blocks from the store", self.n_reused, self.n_blocks)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()


class Board:
    """Posts what a job does to the page `/dshift` of the scheduler's dashboard."""

    def __init__(self, client: Any, token: str, n_samples: int) -> None:
        self._client, self._token, self._n_samples = client, token, n_samples
        self._modes = ModeCount()
        self._unposted: list[BlockDone] = []
        self._posted = -math.inf
        self._shown = False

    def open(self, **about: Any) -> None:
        """Set the page up, if the scheduler can import dshift, and start a job there."""
        from dshift import dashboard

        try:
            self._client.register_plugin(dashboard.JobBoard())
        except Exception as error:
            log.info("no dashboard page (%s: %s)", type(error).__name__, error)
            return
        self._shown = True
        self._post("start_event", client=self._client.id, **about)

    def stage(self, name: str) -> None:
        """Post that the job enters a stage."""
        self._post_blocks()
        self._post("stage_event", name=name)

    def block_done(self, done: BlockDone) -> None:
        """Post a finished block, now or together with the next ones."""
        self._modes.add(done.modes)
        self._unposted.append(done)
        if time.monotonic() - self._posted >= POST_SECONDS:
            self._post_blocks()

    def _post_blocks(self) -> None:
        for reused in (True, False):
            blocks = [done for done in self._unposted if done.reused is reused]
            if not blocks:
                continue
            n_seeds = sum(done.block.stop - done.block.start for done in blocks)
            n_steps = sum(done.n_steps for done in blocks)
            # At the end of each walk, one more step shows that it stays there.
            scans = (n_steps + n_seeds) * self._n_samples
            self._post(
                "block_event",
                n_seeds=n_seeds,
                n_modes=int(self._modes),
                n_iter_sum=n_steps,
                share_evaluated=sum(done.n_pairs for done in blocks) / max(scans, 1),
                reused=reused,
            )
        self._unposted.clear()
        self._posted = time.monotonic()

    def close(self, state: str, **about: Any) -> None:
        """Post how the job ended; only the first time counts."""
        self._post_blocks()
        self._post("end_event", state=state, **about)
        self._shown = False

    def _post(self, event: str, **content: Any) -> None:
        from dshift import dashboard

        if self._shown and self._client.status == "running":
            message = getattr(dashboard, event)(self._token, **content)
            self._client.log_event(dashboard.TOPIC, message)
