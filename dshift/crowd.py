"""Many seeds climb together against the index: pure, and the same bits as one by one.

Seeds that are near each other share most of what they need: rows that are inside, or outside, for
all of a group are found with one distance from its centre, and only the others are looked at for
each point. Walks that meet are walked once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dshift import groups
from dshift.index import Index, neighbours_together
from dshift.metrics import Int
from dshift.modes import unique_rows
from dshift.shift import Climbed
from dshift.visited import POINTS_A_SEED, Memo, PointTable

ORDER_LEAF = 4  # points among which order does not matter


@dataclass
class Stats:
    """What a climb cost."""

    n_points: int = 0  # points stepped from
    n_pairs: int = 0  # distances evaluated, from points or from centres of groups


def climb_together(index: Index, points: Int, seeds: Int, memo: Memo | None = None) -> Climbed:
    """Walk from each point (n_seeds, n_coords) to where it stays; `seeds` are their numbers.

    The result depends on neither the memo nor on which seeds walk together.
    """
    stats, most = Stats(), POINTS_A_SEED * points.shape[0]
    with index.trail(64 + points.shape[0] + most) as trail:
        modes, mode_of_seed, n_iter = _climb(index, points, trail, most, memo, stats)
    return Climbed(modes, mode_of_seed, n_iter, seeds, stats.n_points, stats.n_pairs)


def _climb(
    index: Index, points: Int, trail: PointTable, most: int, memo: Memo | None, stats: Stats
) -> tuple[Int, Int, NDArray[np.int32]]:
    """Return the modes, the mode of each point and its steps there."""
    n_iter = np.zeros(points.shape[0], np.int64)
    place = trail.add(points)  # of each seed, in the trail
    n_seeds = trail.size
    while True:
        following, hops = _walk(index, trail, most, memo, stats)
        whole = following.shape[0] == trail.size
        following = np.concatenate([following, np.arange(following.shape[0], trail.size)])
        hops = np.concatenate([hops, np.zeros(trail.size - hops.shape[0], np.int64)])
        ends, lengths = _follow(following, hops)
        n_iter += lengths[place]
        place = ends[place]
        if whole:
            break
        front, place = np.unique(place, return_inverse=True)
        ahead = trail.points[front]
        trail.clear()
        place = trail.add(ahead)[place]
        n_seeds = 0
    if memo is not None:
        _teach(memo, trail.points, ends, lengths, n_seeds)
    ends, end_of_seed = np.unique(place, return_inverse=True)
    modes, place = unique_rows(trail.points[ends])
    return modes, place[end_of_seed], n_iter.astype(np.int32)


def _walk(
    index: Index, trail: PointTable, most: int, memo: Memo | None, stats: Stats
) -> tuple[Int, Int]:
    """Step from the points of a trail, and from those that are reached, until none is new.

    Returns where each one goes and in how many steps. The last points have not been stepped from
    where the trail came to be longer than `most`.
    """
    following, hops = np.empty(0, np.int64), np.empty(0, np.int64)
    while following.shape[0] < trail.size:
        first, last = following.shape[0], trail.size
        if first and last > most:
            break
        ends, steps = _advance(index, trail.points[first:], memo, stats)
        ids = trail.add(ends)
        steps[ids == np.arange(first, last)] = 0
        following, hops = np.concatenate([following, ids]), np.concatenate([hops, steps])
    return following, hops


def _advance(index: Index, points: Int, memo: Memo | None, stats: Stats) -> tuple[Int, Int]:
    """Return where each point goes, in one step, or in all of them where the memo knows the end."""
    steps = np.ones(points.shape[0], np.int64)
    if memo is None:
        return step_together(index, points, stats), steps
    known, ends_known, steps_known = memo.look_up(points)
    if not known.any():
        return step_together(index, points, stats), steps
    ends = np.empty_like(points)
    ends[known], steps[known] = ends_known, steps_known
    ends[~known] = step_together(index, points[~known], stats)
    return ends, steps


def _follow(following: Int, hops: Int) -> tuple[Int, Int]:
    """Return ends and lengths of all paths, by doubling."""
    while True:
        beyond = following[following]
        if np.array_equal(beyond, following):
            return following, hops
        following, hops = beyond, hops + hops[following]


def _teach(memo: Memo, points: Int, ends: Int, hops: Int, n_seeds: int) -> None:
    """Tell the memo all that seeds did not start from: a seed is seldom met again."""
    modes, place = np.unique(ends[n_seeds:], return_inverse=True)
    memo.learn(points[n_seeds:], points[modes], place, hops[n_seeds:])


def step_together(index: Index, points: Int, stats: Stats | None = None) -> Int:
    """Return the next point of each of `points` (m, p)."""
    if points.shape[0] == 0 or index.n_rows == 0 or index.n_columns == 0:
        return points.copy()
    order = neighbours_together(points, ORDER_LEAF)
    moved = np.empty_like(points)
    with index.scratch(len(points)) as (nest, pages):
        ordered, stepped = pages[:, : len(points)]
        np.take(points, order, axis=0, out=ordered)
        stepped[:] = ordered
        nest.groups.n_pairs[0] = 0
        groups.step_points(index.held, nest, ordered, stepped)
        moved[order] = stepped
        if stats is not None:
            stats.n_points += len(points)
            stats.n_pairs += int(nest.groups.n_pairs[0])
    return moved
