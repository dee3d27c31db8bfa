"""Runs a plan: in-process threads over blocks of seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from dask.system import CPU_COUNT

from dshift.field import Field
from dshift.metrics import Int, Points
from dshift.modes import Clustering, join_across, merge, nearest_modes, order_clusters
from dshift.monitor import Progress
from dshift.plan import Plan
from dshift.shift import NO_MODE, Climbed, climb, density, distances, step

Item = TypeVar("Item")
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
    """Within this context, cut runs into blocks of `block_size` seeds and use `threads` threads."""
    token = _settings.set(Settings(block_size, threads or CPU_COUNT))
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


def climb_all(plan: Plan, field: Field, seeds: Points, progress: Progress) -> Climbed:
    """Climb from every seed; blocks run side by side, and merge in the order of their seeds."""
    seen: set[bytes] = set()

    def count(block: slice, climbed: Climbed) -> None:
        modes = {mode.tobytes() for mode in climbed.modes}
        progress.block_done(block.stop - block.start, len(modes - seen))
        seen.update(modes)

    parts = map_blocks(lambda block: climb(field, seeds[block]), plan.blocks(), plan.threads, count)
    return merge(parts)


def cluster(
    field: Field,
    climbed: Climbed,
    seed_index: Int | None,
    valley: float | None,
    min_cluster_size: float,
) -> Clustering:
    """Make clusters of the modes, and give every sample to one.

    Parameters
    ----------
    climbed : Climbed
        All seeds, merged: its modes are in lexicographic order.
    seed_index : array (n_seeds,) or None
        The sample that each seed is; None if the seeds are the caller's own.
    valley, min_cluster_size
        As in `fit`.
    """
    threads = current_settings().threads

    def separation(x: Points, points: Points) -> Points:
        return distances(field.embedding, x, points)

    peaks = climbed.modes
    densities = np.array(map_blocks(lambda x: density(field, x), iter(peaks), threads))
    stays = np.array(map_blocks(lambda x: _stays(field, x), iter(peaks), threads), dtype=bool)
    group = np.arange(len(peaks))
    if valley is not None:
        widest = float(field.embedding.reach(2 * field.bandwidth.max()))
        group = join_across(
            peaks,
            densities,
            valley,
            separation=separation,
            widest=widest,
            density=lambda x: density(field, x),
        )
    mode_of_sample = np.full(len(field.points), NO_MODE)
    if seed_index is not None:
        mode_of_sample[seed_index] = climbed.mode_of_seed
    rest = np.ones(len(field.points), dtype=bool)
    rest[seed_index if seed_index is not None else []] = False
    if rest.any():
        mode_of_sample[rest] = nearest_modes(field.points[rest], peaks, densities, separation)
    return order_clusters(
        peaks, densities, mode_of_sample, field.weights, group, min_cluster_size, stays
    )


def _stays(field: Field, x: Points) -> bool:
    """Return whether one more step from `x` gives `x`: the certificate of a mode."""
    onward = step(field, x)
    return onward is None or onward.tobytes() == x.tobytes()


def map_blocks(
    work: Callable[[Item], Outcome],
    items: Iterable[Item],
    threads: int,
    on_done: Callable[[Item, Outcome], None] = lambda item, outcome: None,
) -> list[Outcome]:
    """Apply `work` to each item on a pool of threads; outcomes come back in the items' order.

    The first error, or Ctrl-C, cancels what has not started and is raised.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="dshift") as pool:
        futures: dict[Future[Outcome], Item] = {pool.submit(work, item): item for item in items}
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    on_done(futures[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
