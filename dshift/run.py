"""A job from its first read to its clusters, on any executor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np

from dshift.metrics import Float
from dshift.modes import Clustering, connect, order_clusters
from dshift.shift import NO_MODE, Climbed
from dshift.stage import Survey, joints_share, measure_share, nearest_share
from dshift.store import Store
from dshift.threads import BlockDone

Outcome = TypeVar("Outcome")

# Shares of the labelling: enough to keep a cluster busy, each worth a task.
MODES_A_SHARE = 16
SAMPLES_A_SHARE = 16384


class Executor(Protocol):
    """Reads the samples somewhere, and has shares of the work done there."""

    width: int  # shares that are done side by side

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

    def close(self) -> None:
        """Let go of what was held for the job."""


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
        shares = [rest[part] for part in _parts(rest.size, SAMPLES_A_SHARE)]
        items_nearest = [(modes, densities, share) for share in shares]
        nearest = executor.map("dshift-label", nearest_share, items_nearest)
        mode_of_sample[rest] = np.concatenate(nearest)
    group = connect(len(modes), joints)
    return order_clusters(
        modes, densities, mode_of_sample, weights, group, min_cluster_size, stationary
    )


def _parts(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
