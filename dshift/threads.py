"""The executor of this process: a pool of threads over blocks, and how a run is cut up."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from dask.system import CPU_COUNT

from dshift.compiling import compiled_beside
from dshift.errors import BlockFailed, DshiftError
from dshift.field import Loaded
from dshift.metrics import Int, Points
from dshift.modes import Clustering, merge, split
from dshift.monitor import HASH_BITS, MOST_HASHES, BlockDone
from dshift.planning import make_crews
from dshift.pool import map_threads
from dshift.shift import Climbed
from dshift.stage import Job, Survey, climb_share, seeds_share, set_stage, survey_share
from dshift.store import Store, read_block, write_block

# Of a block that failed.
NUMBERS_SHOWN = 5

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Settings:
    """How a run is cut up. No choice here changes a result."""

    block_size: int | None = None
    threads: int = CPU_COUNT


_DEFAULT = Settings()
_settings: ContextVar[Settings] = ContextVar("dshift_settings", default=_DEFAULT)


@contextmanager
def settings(*, block_size: int | None = None, threads: int | None = None) -> Iterator[None]:
    """Within this context, cut runs into blocks of `block_size` seeds and use `threads` threads.

    Blocks of a size that was chosen are climbed from, and recorded, one by one. What is not given
    stays as it is around the context.
    """
    around = current_settings()
    token = _settings.set(Settings(block_size or around.block_size, threads or around.threads))
    try:
        yield
    finally:
        _settings.reset(token)


def current_settings() -> Settings:
    """Return the settings of this context."""
    return _settings.get()


def memory_limit() -> int:
    """Return the bytes that this process may use: the machine's, or its container's if fewer."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = min(limit, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return limit


def run_blocks(
    climb_from: Callable[..., Climbed], blocks: Sequence[slice], place: Store | None
) -> list[tuple[Climbed, BlockDone]]:
    """Return blocks from the store if they are there, else climb from them together, and record."""
    stored = [None if place is None else read_block(place, block) for block in blocks]
    rest = [block for block, climbed in zip(blocks, stored, strict=True) if climbed is None]
    sizes = [block.stop - block.start for block in rest]
    climbed_now = iter(split(climb_from(*rest), sizes) if rest else [])
    done = []
    for block, known in zip(blocks, stored, strict=True):
        climbed = next(climbed_now) if known is None else known
        if known is None and place is not None:
            write_block(place, block, climbed)
        modes = sorted(_mode_hash(mode) for mode in climbed.modes)[:MOST_HASHES]
        steps, reused = int(climbed.n_iter.sum()), known is not None
        done.append((climbed, BlockDone(block, tuple(modes), steps, reused, climbed.n_pairs)))
    return done


def _mode_hash(mode: Points) -> int:
    # Not `hash`, which differs between processes.
    size = HASH_BITS // 8
    return int.from_bytes(hashlib.blake2b(mode.tobytes(), digest_size=size).digest())


def run_failed(
    what: str, place: Store | None, kind: type[BlockFailed] = BlockFailed
) -> BlockFailed:
    """Return the error that says what went wrong, and what is left to go on from."""
    kept = (
        "Nothing was stored; pass `store=` to keep finished blocks."
        if place is None
        else f"Finished blocks are in {place.name!r}: the same call continues from them."
    )
    return kind(f"{what}. {kept}")


def block_failed(seeds: str, error: BaseException, place: Store | None) -> BlockFailed:
    """Return the error that names the seeds of a block which could not be finished."""
    return run_failed(f"{seeds} failed with {type(error).__name__}: {error}", place)


def name_seeds(numbers: Int, *, own: bool) -> str:
    """Return what a message calls a block of seeds: by samples, or by rows of the caller's own."""
    numbers = np.sort(numbers)
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first == len(numbers) - 1:
        listed = f"{first}" if first == last else f"{first} to {last}"
    else:
        shown = ", ".join(str(int(number)) for number in numbers[:NUMBERS_SHOWN])
        listed = f"{shown}{', ...' if len(numbers) > NUMBERS_SHOWN else ''}"
    what = "rows of `seeds`" if own else "samples"
    return f"the block of {len(numbers):,} seeds ({what} {listed})"


class Threads:
    """Has the work done in this process."""

    # The points are in this process, so labels may as well be.
    keeps_labels = False

    def __init__(
        self,
        job: Job,
        threads: int,
        loaded: Loaded | None = None,
        *,
        indexed: bool = True,
        crewed: bool = False,
    ) -> None:
        with ExitStack() as stack:
            if indexed:
                stack.enter_context(compiled_beside(threads))
            self._stage = set_stage(job, loaded, indexed=indexed, threads=threads)
            self._ends = stack.pop_all()
        self._own_seeds = job.seeds.rows is not None
        self._crewed = crewed
        self.width = threads

    def survey(self) -> Survey:
        """Say what is known of the samples."""
        return survey_share(self._stage)

    def climb(
        self,
        blocks: Iterable[slice],
        place: Store | None,
        on_done: Callable[[BlockDone], None],
    ) -> Climbed:
        """Climb from all blocks of seeds, and merge."""

        def work(crew: list[slice]) -> list[tuple[Climbed, BlockDone]]:
            try:
                return run_blocks(partial(climb_share, self._stage), crew, place)
            except DshiftError:
                raise
            except Exception as error:
                named = name_seeds(seeds_share(self._stage, *crew), own=self._own_seeds)
                raise block_failed(named, error, place) from error

        def tell(done: list[tuple[Climbed, BlockDone]]) -> None:
            for _, block in done:
                on_done(block)

        index, crews = self._stage.index, [[block] for block in blocks]
        if index is not None and self._crewed:
            crews = make_crews([block for (block,) in crews], index.n_columns, self.width)
        hands = None if index is None else index.hands
        done = map_threads(work, crews, self.width, tell, hands)
        return merge([climbed for crew in done for climbed, _ in crew])

    def map(
        self, name: str, share: Callable[..., Outcome], items: Sequence[tuple[Any, ...]]
    ) -> list[Outcome]:
        """Return ``share(stage, *item)`` for each item, in order."""
        return map_threads(lambda item: share(self._stage, *item), items, self.width)

    def report(self, clustering: Clustering) -> None:
        """Nobody else watches a job of this process."""

    def __enter__(self) -> Threads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of the points."""
        self._ends.close()
        del self._stage
