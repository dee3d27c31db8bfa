"""Merge, join, order and label modes: pure functions on arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dshift.metrics import Float, Int, Points
from dshift.shift import NO_MODE, Climbed

NO_CLUSTER = -1
# Points looked at between two modes: tenths of the way.
STEPS_BETWEEN = 10
# Sizes up to this are counted without rounding.
LARGEST_WHOLE = 2.0**53


def unique_rows(rows: Points) -> tuple[Points, Int]:
    """Return the distinct rows in lexicographic order, and for each row its place among them."""
    if rows.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    return distinct, place.reshape(-1)


def merge(parts: Sequence[Climbed]) -> Climbed:
    """Join blocks of seeds; identical modes become one.

    Modes come out in lexicographic order and seeds by their numbers, so any tree of merges over the
    same blocks, in any order, gives the same bits.
    """
    modes, place = unique_rows(np.concatenate([part.modes for part in parts]))
    starts = np.cumsum([0] + [len(part.modes) for part in parts])
    ends = [
        np.where(part.mode_of_seed == NO_MODE, NO_MODE, np.append(place, 0)[part.mode_of_seed + at])
        for part, at in zip(parts, starts, strict=False)
    ]
    seeds = np.concatenate([part.seeds for part in parts])
    order = np.argsort(seeds, kind="stable")
    return Climbed(
        modes,
        np.concatenate(ends)[order],
        np.concatenate([part.n_iter for part in parts])[order],
        seeds[order],
        sum(part.n_points for part in parts),
        sum(part.n_pairs for part in parts),
    )


def split(climbed: Climbed, sizes: Sequence[int]) -> list[Climbed]:
    """Return the blocks, of so many seeds each, that were climbed from together.

    What that cost is told with the first of them.
    """
    parts: list[Climbed] = []
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        start += size
        ends = climbed.mode_of_seed[part]
        own, place = np.unique(ends, return_inverse=True)
        reached = own != NO_MODE
        parts.append(
            Climbed(
                climbed.modes[own[reached]],
                np.where(ends == NO_MODE, NO_MODE, place - int((~reached).sum())),
                climbed.n_iter[part],
                climbed.seeds[part],
                0 if parts else climbed.n_points,
                0 if parts else climbed.n_pairs,
            )
        )
    return parts


def find_joints(
    modes: Points,
    densities: Float,
    valley: float,
    part: slice,
    *,
    separation: Callable[[Points, Points], Points],
    widest: float,
    density: Callable[[Points], float],
) -> list[tuple[int, int]]:
    """Return pairs of modes, the first of them in `part`, with no deep valley between them.

    Two modes nearer than `widest` are joined when the density at every tenth of the straight way
    between them is at least ``1 - valley`` times the lower of the two peaks. Pairs that earlier
    pairs connect already are left out: what the joints connect is the same without them.

    Parameters
    ----------
    modes : array (n_modes, n_coords), in lexicographic order
    densities : array (n_modes,)
    valley : float in [0, 1)
    separation : callable
        ``separation(x, points) -> (n,)``, the distance.
    widest : float
        Twice the bandwidth: kernels of modes farther apart than that do not overlap.
    density : callable
        The density at a point.
    """
    group = np.arange(len(modes))
    joints = []
    for a in range(part.start, min(part.stop, len(modes) - 1)):
        others = np.arange(a + 1, len(modes))
        away = separation(modes[a], modes[others])
        near = np.flatnonzero(away < widest)
        for b in others[near[np.argsort(away[near], kind="stable")]]:
            if group[a] == group[b]:
                continue
            floor = (1 - valley) * min(densities[a], densities[b])
            if all(density(point) >= floor for point in _between(modes[a], modes[b])):
                joints.append((a, int(b)))
                group[group == group[b]] = group[a]
    return joints


def connect(n_modes: int, joints: Iterable[tuple[int, int]]) -> Int:
    """Return for each mode the first of the modes that the joints connect it to."""
    group = np.arange(n_modes)
    for a, b in joints:
        low, high = sorted((group[a], group[b]))
        group[group == high] = low
    return group


def _between(a: Points, b: Points) -> list[Points]:
    """Return the points between two modes, middle first: a valley is most often seen there."""
    tenths = sorted(range(1, STEPS_BETWEEN), key=lambda j: abs(2 * j - STEPS_BETWEEN))
    if np.issubdtype(a.dtype, np.integer):
        return [a + ((b - a) * j) // STEPS_BETWEEN for j in tenths]
    return [a + (b - a) * (j / STEPS_BETWEEN) for j in tenths]


def nearest_modes(
    points: Points,
    modes: Points,
    densities: Float,
    separation: Callable[[Points, Points], Points],
) -> Int:
    """Return for each point its nearest mode; ties go to the denser one, then the first."""
    if not len(modes):
        return np.full(len(points), NO_MODE)
    preference = np.lexsort((np.arange(len(modes)), -densities))
    best = np.full(len(points), preference[0])
    shortest = separation(modes[preference[0]], points)
    for mode in preference[1:]:
        away = separation(modes[mode], points)
        nearer = away < shortest
        best[nearer] = mode
        shortest = np.where(nearer, away, shortest)
    return best


@dataclass(frozen=True)
class Clustering:
    """Modes in their final order, and the clusters that they make."""

    modes: Points  # (n_modes, n_coords)
    densities: Float  # (n_modes,)
    sizes: NDArray[np.int64] | Float  # (n_modes,): total weight of the samples
    cluster_of_mode: NDArray[np.int32]  # (n_modes,)
    mode_of_sample: Int  # (n,): NO_MODE where there is none
    new_place: Int  # (n_modes,): old mode number -> number in this order
    stationary: NDArray[np.bool_]  # (n_modes,): whether one more step stays at the mode


def order_clusters(
    modes: Points,
    densities: Float,
    mode_of_sample: Int,
    weights: Float,
    group: Int,
    min_cluster_size: float,
    stationary: NDArray[np.bool_],
) -> Clustering:
    """Number modes and clusters by decreasing size, then density, then the mode's values.

    Parameters
    ----------
    modes : array (n_modes, n_coords), in lexicographic order
    densities, group, stationary : arrays (n_modes,)
    mode_of_sample, weights : arrays (n,)
    min_cluster_size : float
        Clusters of less total weight get NO_CLUSTER; 1 keeps all, those of light samples too.
    """
    reached = mode_of_sample != NO_MODE
    sizes = np.bincount(mode_of_sample[reached], weights[reached], minlength=len(modes))
    order = np.lexsort((np.arange(len(modes)), -densities, -sizes))
    new_place = np.empty(len(modes), dtype=np.int64)
    new_place[order] = np.arange(len(modes))

    # A cluster is known by its peak, the densest of its modes.
    by_density = np.lexsort((np.arange(len(modes)), -densities))
    _, first = np.unique(group[by_density], return_index=True)
    peaks = by_density[first]
    total = np.bincount(group, sizes, minlength=len(modes))[group[peaks]]
    kept = (total >= min_cluster_size) | (min_cluster_size <= 1)
    large, total = peaks[kept], total[kept]
    ranked = large[np.lexsort((large, -densities[large], -total))]
    label_of_group = np.full(len(modes), NO_CLUSTER, dtype=np.int32)
    label_of_group[group[ranked]] = np.arange(len(ranked))

    # Beyond this total a float64 skips whole numbers, and then an integer goes over its end.
    whole = bool((weights == np.rint(weights)).all() and weights.sum() <= LARGEST_WHOLE)
    return Clustering(
        modes=modes[order],
        densities=densities[order],
        sizes=sizes[order].astype(np.int64) if whole else sizes[order],
        cluster_of_mode=label_of_group[group[order]],
        mode_of_sample=np.where(reached, np.append(new_place, 0)[mode_of_sample], NO_MODE),
        new_place=new_place,
        stationary=stationary[order],
    )
