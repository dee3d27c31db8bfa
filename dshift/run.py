"""A job from its first read to its clusters, on any executor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np

from dshift.errors import PlanRefused
from dshift.metrics import Float
from dshift.modes import Clustering, connect, order_clusters
from dshift.monitor import BlockDone
from dshift.planning import ENTRY_BYTES, Forecast, Held, Plan, Room, human_bytes
from dshift.shift import NO_MODE, Climbed
from dshift.sources import source_bytes
from dshift.stage import Job, Survey, climb_share, joints_share, measure_share, nearest_share
from dshift.store import Store

log = logging.getLogger("dshift")
Outcome = TypeVar("Outcome")

# Blocks whose modes are merged in one task.
MERGE_AT_ONCE = 8
# Seeds of the block that a forecast is made from.
SEEDS_TO_SAMPLE = 256
# Shares of the labelling: enough to keep a cluster busy, each worth a task.
MODES_A_SHARE = 16
SAMPLES_A_SHARE = 16384
SHARE_BYTES = 8 * 2**20


class Executor(Protocol):
    """Reads the samples somewhere, and has shares of the work done there."""

    @property
    def width(self) -> int:
        """Shares that are done side by side."""

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
    held = [plan.held_in(room) for room in rooms]
    short = [room for room in rooms if plan.process_bytes > room.memory_bytes]
    size = human_bytes(plan.matrix_bytes)
    if short:
        least = min(short, key=lambda room: room.memory_bytes)
        log.info(
            "the points (%s) are too large for the memory of %d of %d processes (%s left in %s): "
            "these map them from a file on their disk, and will be slower",
            size,
            len(short),
            len(rooms),
            human_bytes(least.memory_bytes),
            least.name,
        )
    elif Held.IN_FILE in held:
        log.info("the points (%s) are in one mapped file for the processes of a node", size)


def foresee(job: Job, plan: Plan, rooms: Sequence[Room], n_threads: int) -> Forecast:
    """Return what can be said of a fit before anything is read."""
    refusal, held = None, set()
    try:
        held = {plan.held_in(room) for room in rooms}
    except PlanRefused as error:
        refusal = str(error)
    n_rest = plan.n_samples - plan.n_seeds if job.seeds.rows is None else plan.n_samples
    n_merges = -(-(plan.n_blocks - 1) // (MERGE_AT_ONCE - 1))
    return Forecast(
        n_samples=plan.n_samples,
        n_bins=job.samples.n_bins,
        n_seeds=plan.n_seeds,
        n_processes=len(rooms),
        n_threads=n_threads,
        held=str(max(held, key=lambda where: where is Held.IN_FILE)) if held else None,
        matrix_bytes=plan.matrix_bytes,
        working_bytes=plan.working_bytes,
        available_bytes=min((room.memory_bytes for room in rooms), default=None),
        n_blocks=plan.n_blocks,
        block_size=plan.block_size,
        n_tasks=1 + plan.n_blocks + n_merges + -(-n_rest // samples_a_share(plan.n_coords)),
        read_bytes=source_bytes(job.samples),
        refusal=refusal,
    )


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


def cluster(
    executor: Executor,
    survey: Survey,
    climbed: Climbed,
    weights: Float,
    valley: float | None,
    min_cluster_size: float,
) -> Clustering:
    """Make clusters of the modes, and give every valid sample to one.

    Parameters
    ----------
    climbed : Climbed
        All seeds, merged: its modes are in lexicographic order.
    weights : array (n_valid,)
    valley, min_cluster_size
        As in `fit`.
    """
    modes = climbed.modes
    parts = _parts(len(modes), MODES_A_SHARE)
    measured = executor.map("dshift-label", measure_share, [(modes[part],) for part in parts])
    densities = np.concatenate([np.empty(0), *(m.densities for m in measured)])
    stationary = np.concatenate([np.empty(0, dtype=bool), *(m.stationary for m in measured)])
    joints: list[tuple[int, int]] = []
    if valley is not None:
        # Few, since each share must find out for itself what is connected already.
        ranges = _parts(len(modes), -(-len(modes) // executor.width) or 1)
        items = [(modes, densities, valley, part) for part in ranges]
        joints = list(chain.from_iterable(executor.map("dshift-label", joints_share, items)))
    mode_of_sample = np.full(len(weights), NO_MODE)
    rest = np.arange(len(weights))
    if survey.seed_index is not None:
        mode_of_sample[survey.seed_index] = climbed.mode_of_seed
        rest = np.setdiff1d(rest, survey.seed_index, assume_unique=True)
    if rest.size:
        size = samples_a_share(modes.shape[1])
        shares = [rest[part] for part in _parts(rest.size, size)]
        items_nearest = [(modes, densities, share) for share in shares]
        nearest = executor.map("dshift-label", nearest_share, items_nearest)
        mode_of_sample[rest] = np.concatenate(nearest)
    group = connect(len(modes), joints)
    clustering = order_clusters(
        modes, densities, mode_of_sample, weights, group, min_cluster_size, stationary
    )
    executor.report(clustering)
    return clustering


def samples_a_share(n_coords: int) -> int:
    """Return how many samples are labelled at a time: a share copies their points."""
    return max(1, min(SAMPLES_A_SHARE, SHARE_BYTES // (max(n_coords, 1) * ENTRY_BYTES)))


def _parts(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
