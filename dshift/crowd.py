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
from dshift.index import Index, neighbours_among, read_only
from dshift.metrics import Int
from dshift.modes import unique_rows
from dshift.shift import Climbed
from dshift.simd import LANES
from dshift.visited import POINTS_A_SEED, Memo, PointTable

FEW_BATCHES = 4  # points of so many are shared in halves of a batch


@dataclass
class Stats:
    """What a climb cost."""

    n_points: int = 0  # points stepped from
    n_pairs: int = 0  # distances evaluated, from points or from centres of groups


def climb_together(index: Index, points: Int, seeds: Int, memo: Memo | None = None) -> Climbed:
    """Walk from points[seeds], of all points that may be seeds (n, n_coords), to where they stay.

    The result depends on neither the memo nor on which seeds walk together.
    """
    stats, most = Stats(), 64 + (1 + POINTS_A_SEED) * len(seeds)
    with index.trail(most) as trail:
        np.take(points, seeds, axis=0, out=trail.room(len(seeds)))
        place = trail.keep(len(seeds))
        modes, mode_of_seed, n_iter = _climb(index, place, trail, most, memo, stats)
    return Climbed(modes, mode_of_seed, n_iter, seeds, stats.n_points, stats.n_pairs)


def _climb(
    index: Index, place: Int, trail: PointTable, most: int, memo: Memo | None, stats: Stats
) -> tuple[Int, Int, NDArray[np.int32]]:
    """Return the modes, the mode of each seed and its steps there; `place` is where it begins."""
    n_iter = np.zeros(len(place), np.int64)
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
    where the trail would be longer than `most` after that, if all that they reach is new.
    """
    following, hops = np.empty(0, np.int64), np.empty(0, np.int64)
    while following.shape[0] < trail.size:
        first, last = following.shape[0], trail.size
        if first and 2 * last - first > most:
            break
        ids, steps = _advance(index, trail, first, memo, stats)
        steps[ids == np.arange(first, last)] = 0
        following, hops = np.concatenate([following, ids]), np.concatenate([hops, steps])
    return following, hops


def _advance(
    index: Index, trail: PointTable, first: int, memo: Memo | None, stats: Stats
) -> tuple[Int, Int]:
    """Return where the points of a trail from `first` on go, and in how many steps.

    That is one, or all of them where the memo knows the end. Points are stepped from into the room
    behind the trail, which then keeps the new ones: waves are large, and copies of them would be
    most of what a block takes.
    """
    count = trail.size - first
    room = trail.room(count)
    points = trail.points[first:]
    ids, steps = np.empty(count, np.int64), np.ones(count, np.int64)
    new, known = np.arange(count), np.empty(0, np.int64)
    if memo is not None and memo.size:
        known, ends, hops = memo.look_up(points)
        new = np.delete(new, known)
        room[new.size :], steps[known] = ends, hops
    order = neighbours_among(points, new, index.hands)
    step_in_order(index, points, order, room[: new.size], stats)
    kept = trail.keep(count)
    ids[order], ids[known] = kept[: new.size], kept[new.size :]
    return ids, steps


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
    order = neighbours_among(points, np.arange(len(points)), index.hands)
    stepped, moved = np.empty_like(points), np.empty_like(points)
    step_in_order(index, points, order, stepped, stats)
    moved[order] = stepped
    return moved


def step_in_order(
    index: Index, points: Int, order: Int, moved: Int, stats: Stats | None = None
) -> None:
    """Set moved[i] to the next point of points[order[i]], with neighbours together in `order`."""
    if len(order) == 0 or index.n_rows == 0 or index.n_columns == 0:
        np.take(points, order, axis=0, out=moved)
        return
    n_pairs, sources = [], read_only(points)

    def step(part: slice) -> None:
        with index.scratch(part.stop - part.start) as nest:
            nest.groups.n_pairs[0] = 0
            groups.step_points(index.held, nest, sources, order[part], moved[part])
            n_pairs.append(int(nest.groups.n_pairs[0]))

    # The last walkers are few and apart: what they share is not worth waiting for.
    least = LANES if len(order) > FEW_BATCHES * LANES else LANES // 2
    index.hands.share(step, len(order), least)
    if stats is not None:
        stats.n_points += len(order)
        stats.n_pairs += sum(n_pairs)
