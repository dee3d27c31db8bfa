"""A job from its first read to its clusters, on any executor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dshift.errors import PlanRefused
from dshift.labelling import Cut, Totals, record_modes, record_nearest, regions, total_share
from dshift.metrics import Float, Int, Points
from dshift.modes import Clustering, connect, order_clusters
from dshift.monitor import BlockDone
from dshift.planning import Forecast, Held, Holding, Plan, Room, cut_up, human_bytes
from dshift.shift import NO_MODE, Climbed
from dshift.sources import source_bytes
from dshift.stage import (
    Job,
    Places,
    Survey,
    climb_share,
    joints_share,
    measure_share,
    nearest_share,
)
from dshift.store import Store

log = logging.getLogger("dshift")
Outcome = TypeVar("Outcome")

# Runs of blocks whose modes are merged in one task.
MERGE_AT_ONCE = 8
# Seeds of the block that a forecast is made from.
SEEDS_TO_SAMPLE = 256


class Executor(Protocol):
    """Reads the samples somewhere, and has shares of the work done there."""

    @property
    def width(self) -> int:
        """Shares that are done side by side."""

    @property
    def keeps_labels(self) -> bool:
        """Whether labels stay in the store, where workers can read and write them."""

    def survey(self) -> Survey:
        """Say what is known of the samples."""

    def climb(
        self,
        blocks: Iterable[slice],
        place: Store | None,
        on_done: Callable[[BlockDone], None],
    ) -> Climbed:
        """Climb from all blocks of seeds, and merge."""

    def map(
        self, name: str, share: Callable[..., Outcome], items: Sequence[tuple[Any, ...]]
    ) -> list[Outcome]:
        """Return ``share(stage, *item)`` for each item, in order."""

    def report(self, clustering: Clustering) -> None:
        """Say to those who watch what came out."""

    def __enter__(self) -> Executor:
        """Start a job."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go of what was held for the job."""


def refuse_or_say_where(plan: Plan, rooms: Sequence[Room]) -> None:
    """Refuse a job that some process has no room for; log where points are not in memory."""
    held = [(room, plan.held_in(room)) for room in rooms]
    bare = [room for room, holding in held if not holding.indexed] if plan.indexed else []
    mapped = [room for room, holding in held if holding.where is Held.IN_FILE]
    short = [room for room in mapped if plan.process_bytes > room.memory_bytes]
    size = human_bytes(plan.matrix_bytes)
    if short:
        log.info(
            "the points (%s) are too large for the memory of %s: these map them from a file on "
            "their disk, and will be slower",
            size,
            _some(short, rooms),
        )
    elif mapped:
        log.info("the points (%s) are in one mapped file for the processes of a node", size)
    if bare:
        log.warning(
            "the index (%s) is too large for the memory of %s: these climb without it, to the same "
            "bits, and many times slower. Workers with %s of free memory would have room for it",
            human_bytes(plan.index_bytes),
            _some(bare, rooms),
            human_bytes(plan.process_bytes),
        )


def _some(short: Sequence[Room], rooms: Sequence[Room]) -> str:
    least = min(short, key=lambda room: room.memory_bytes)
    left = f"{human_bytes(least.memory_bytes)} left in {least.name}"
    return f"{len(short)} of {len(rooms)} processes ({left})"


def count_tasks(job: Job, plan: Plan, width: int, *, joined: bool, stored: bool) -> int:
    """Return how many tasks do the work of a fit, if no sample is masked and no task is lost.

    Parameters
    ----------
    width : int
        Threads that share it.
    joined, stored : bool
        Whether modes are joined (`valley`), and whether the result is written by the workers.
    """
    n_runs = len(plan.runs(plan.blocks(plan.n_seeds), width))
    n_merges = -(-(n_runs - 1) // (MERGE_AT_ONCE - 1))
    n_rest = plan.n_samples - (plan.n_seeds if job.seeds.rows is None else 0)
    n_parts = len(cut_up(n_rest, plan.part_size))
    # The survey; then the places of the seeds, or the totals and the regions of the result.
    n_single = 2 + (len(list(regions(job.samples.shape))) if stored else 0)
    return n_single + n_runs + n_merges + (2 if joined else 1) * width + n_parts


def foresee(job: Job, plan: Plan, rooms: Sequence[Room], n_threads: int, n_tasks: int) -> Forecast:
    """Return what can be said of a fit before anything is read."""
    refusal, held = None, []
    try:
        held = [plan.held_in(room) for room in rooms]
    except PlanRefused as error:
        refusal = str(error)
    return Forecast(
        n_samples=plan.n_samples,
        n_bins=job.samples.n_bins,
        n_seeds=plan.n_seeds,
        n_processes=len(rooms),
        n_threads=n_threads,
        held=_where(held),
        matrix_bytes=plan.matrix_bytes,
        working_bytes=plan.working_bytes,
        available_bytes=min((room.memory_bytes for room in rooms), default=None),
        n_blocks=plan.n_blocks,
        block_size=plan.block_size,
        n_tasks=n_tasks,
        read_bytes=source_bytes(job.samples),
        refusal=refusal,
        n_without_index=sum(not holding.indexed for holding in held) if plan.indexed else 0,
    )


def _where(held: Sequence[Holding]) -> str | None:
    if not held:
        return None
    in_file = any(holding.where is Held.IN_FILE for holding in held)
    return str(Held.IN_FILE if in_file else Held.IN_MEMORY)


def with_times(forecast: Forecast, executor: Executor) -> Forecast:
    """Return the forecast with an estimate of the time: one block from the middle is climbed."""
    started = time.perf_counter()
    n_seeds = executor.survey().n_seeds
    load_seconds = time.perf_counter() - started
    size = min(forecast.block_size, SEEDS_TO_SAMPLE, n_seeds)
    middle = (n_seeds - size) // 2
    # The first call of all may compile.
    executor.map("dshift-shift", climb_share, [(slice(middle, middle + 1),)])
    started = time.perf_counter()
    executor.map("dshift-shift", climb_share, [(slice(middle, middle + size),)])
    seed_seconds = (time.perf_counter() - started) / size
    climbing = seed_seconds * max(n_seeds / executor.width, size)
    return replace(forecast, load_seconds=load_seconds, seconds=load_seconds + climbing)


@dataclass(frozen=True)
class Examined:
    """What is known of the modes, in lexicographic order."""

    modes: Points
    densities: Float
    stationary: NDArray[np.bool_]
    group: Int  # (n_modes,): the first of the modes that each one is joined with

    def cluster(self, mode_of_sample: Int, weights: Float, min_cluster_size: float) -> Clustering:
        """Number modes and clusters, and give the samples to them."""
        return order_clusters(
            self.modes,
            self.densities,
            mode_of_sample,
            weights,
            self.group,
            min_cluster_size,
            self.stationary,
        )


def examine(executor: Executor, modes: Points, valley: float | None) -> Examined:
    """Measure the modes, and join those with no valley between them."""
    # As many shares as are done side by side, some of them empty where modes are few: so the
    # number of tasks is known before the modes are.
    parts = _even_parts(len(modes), executor.width)
    measured = executor.map("dshift-label", measure_share, [(modes[part],) for part in parts])
    densities = np.concatenate([np.empty(0), *(m.densities for m in measured)])
    stationary = np.concatenate([np.empty(0, dtype=bool), *(m.stationary for m in measured)])
    joints: list[tuple[int, int]] = []
    if valley is not None:
        items = [(modes, densities, valley, part) for part in parts]
        joints = list(chain.from_iterable(executor.map("dshift-label", joints_share, items)))
    return Examined(modes, densities, stationary, connect(len(modes), joints))


def _even_parts(count: int, n_parts: int) -> list[slice]:
    bounds = np.arange(n_parts + 1) * count // n_parts
    return [slice(int(a), int(b)) for a, b in pairwise(bounds)]


def gather_labels(
    executor: Executor, plan: Plan, places: Places, examined: Examined, climbed: Climbed
) -> Int:
    """Return the mode of each valid sample: that of the seed, else the nearest one."""
    mode_of_sample = np.full(int(places.valid.sum()), NO_MODE)
    if places.seed_index is not None:
        mode_of_sample[places.seed_index] = climbed.mode_of_seed
    rest = places.rest()
    if rest.size:
        parts = cut_up(rest.size, plan.part_size)
        items = [(examined.modes, examined.densities, part) for part in parts]
        nearest = executor.map("dshift-label", nearest_share, items)
        mode_of_sample[rest] = np.concatenate(nearest)
    return mode_of_sample


def total_stored(
    executor: Executor, plan: Plan, survey: Survey, examined: Examined, place: Store
) -> tuple[Cut, Totals]:
    """Have samples that are no seeds labelled into the store, and all samples of a mode counted."""
    n_rest = survey.n_valid - (0 if survey.own_seeds else survey.n_seeds)
    cut = Cut(place, survey.n_seeds, plan.block_size, n_rest, plan.part_size)
    record_modes(place, examined.modes, examined.densities)
    executor.map("dshift-label", record_nearest, [(place, part) for part in cut.parts])
    item = (cut, len(examined.modes))
    return cut, executor.map("dshift-label", total_share, [item])[0]
