"""Many seeds climb together against the index: pure, and the same bits as one by one.

Seeds that are near each other share most of what they need: rows that are inside, or outside, for
all of a group are found with one distance from its centre, and only the others are looked at for
each point. Walks that meet are walked once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dshift import tile_medians, tiles
from dshift.index import Index, aligned_empty, first_bits
from dshift.metrics import Int
from dshift.modes import unique_rows
from dshift.shift import Climbed
from dshift.simd import LANES, QUERIES
from dshift.visited import Memo, PointTable

SPLIT_WORK = 1 << 17  # points x open rows above which a group is worth splitting
SPLIT_POINTS = 96  # and the fewest points for it
PACK_SHARE = 0.75  # rows are packed anew when no more than this share of them is still open
ORDER_LEAF = 16


@dataclass
class Stats:
    """What a climb cost."""

    n_points: int = 0  # points stepped from
    n_pairs: int = 0  # distances evaluated, from points or from centres of groups


@dataclass(frozen=True)
class _Rows:
    """Rows whose membership is open for a group of points, in tiles."""

    codes: NDArray[np.uint16]
    ranks: NDArray[np.uint16]  # the very same array where codes are exact
    slots: Int
    reach_in: NDArray[np.uint16]
    reach_out: NDArray[np.uint16]
    words: NDArray[np.uint64]

    def keep(self, words: NDArray[np.uint64], n_kept: int) -> _Rows:
        """The rows of `words` only, packed if that saves passes over closed ones."""
        if n_kept > PACK_SHARE * LANES * self.words.shape[0]:
            return replace(self, words=words)
        shape = (-(-n_kept // LANES), self.codes.shape[1], LANES)
        places = np.zeros(shape[0] * LANES, np.int64)
        tiles.list_bits(words, places)
        codes = aligned_empty(shape, np.uint16)
        tiles.gather_tiles(self.codes, places, codes)
        ranks = codes
        if self.ranks is not self.codes:
            ranks = aligned_empty(shape, np.uint16)
            tiles.gather_tiles(self.ranks, places, ranks)
        return _Rows(
            codes,
            ranks,
            self.slots[places],
            self.reach_in.ravel()[places].reshape(-1, LANES),
            self.reach_out.ravel()[places].reshape(-1, LANES),
            first_bits(n_kept),
        )


@dataclass(frozen=True)
class _Shared:
    """Members that all points of a group have: as words over the index, and their pull."""

    counts: Int  # (p, buckets)
    members: NDArray[np.uint64]
    pull: int

    def plus(self, index: Index, rows: _Rows, words: NDArray[np.uint64]) -> _Shared:
        """With the rows of `words` too."""
        counts, members = self.counts.copy(), self.members.copy()
        pull = tiles.add_members(
            rows.ranks, rows.slots, words, index.pulls, index.shift, counts, members
        )
        return _Shared(counts, members, self.pull + pull)


@dataclass
class _Walk:
    """One step of many points: shared by the groups they are split into."""

    index: Index
    points: Int
    moved: Int
    stats: Stats = field(default_factory=Stats)


def climb_together(index: Index, points: Int, seeds: Int, memo: Memo | None = None) -> Climbed:
    """Walk from each point (n_seeds, n_coords) to where it stays; `seeds` are their numbers.

    The result depends on neither the memo nor on which seeds walk together.
    """
    stats = Stats()
    trail = PointTable(index.coords.shape[1], capacity=64 + 4 * points.shape[0])
    seed_ids = trail.add(points)
    following, hops = np.empty(0, np.int64), np.empty(0, np.int64)
    while following.shape[0] < trail.size:
        first, last = following.shape[0], trail.size
        fresh = trail.points[first:]
        ends, steps = _advance(index, fresh, memo if first else None, stats)
        ids = trail.add(ends)
        steps[ids == np.arange(first, last)] = 0
        following, hops = np.concatenate([following, ids]), np.concatenate([hops, steps])
    following, hops = _follow(following, hops)
    if memo is not None:
        n_seeds = seed_ids.max(initial=-1) + 1
        _teach(memo, trail.points, following, hops, n_seeds)
    ends, end_of_seed = np.unique(following[seed_ids], return_inverse=True)
    modes, place = unique_rows(trail.points[ends])
    n_iter = hops[seed_ids].astype(np.int32)
    return Climbed(modes, place[end_of_seed], n_iter, seeds, stats.n_points, stats.n_pairs)


def _advance(index: Index, points: Int, memo: Memo | None, stats: Stats) -> tuple[Int, Int]:
    """Return where each point goes, in one step, or in all of them where the memo knows the end."""
    ends, steps = np.empty_like(points), np.ones(points.shape[0], np.int64)
    known = np.zeros(points.shape[0], np.bool_)
    if memo is not None:
        known, ends_known, steps_known = memo.look_up(points)
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
    wanted = np.arange(n_seeds, points.shape[0])
    wanted = np.union1d(wanted, ends[wanted])
    place = np.searchsorted(wanted, ends[wanted])
    memo.learn(points[wanted], place, hops[wanted])


def step_together(index: Index, points: Int, stats: Stats | None = None) -> Int:
    """Return the next point of each of `points` (m, p)."""
    if points.shape[0] == 0 or index.coords.shape[0] == 0 or index.coords.shape[1] == 0:
        return points.copy()
    order = tiles.order_points(points, ORDER_LEAF)
    ordered = points[order]
    walk = _Walk(index, ordered, ordered.copy(), stats or Stats())
    everything = _Rows(
        index.codes, index.ranks, index.slots, index.reach_in, index.reach_out, index.open_words
    )
    nothing = _Shared(
        np.zeros((index.codes.shape[1], index.n_buckets), np.int64),
        np.zeros_like(index.open_words),
        0,
    )
    _visit(walk, np.array([0, points.shape[0]]), everything, nothing)
    walk.stats.n_points += points.shape[0]
    moved = np.empty_like(points)
    moved[order] = walk.moved
    return moved


def _visit(walk: _Walk, bounds: Int, rows: _Rows, shared: _Shared) -> None:
    """Settle, for each of up to four groups, the rows that are on one side of all its points."""
    index = walk.index
    n_tiles, n_columns = rows.codes.shape[:2]
    centres, slack = np.zeros((QUERIES, n_columns), np.uint16), np.zeros(QUERIES, np.uint16)
    tiles.enclose(walk.points, bounds, index.lows, index.unit, centres, slack)
    inside, unsure = (np.empty((QUERIES, n_tiles), np.uint64) for _ in range(2))
    tiles.classify(
        rows.codes, rows.reach_in, rows.reach_out, rows.words, centres, slack, inside, unsure
    )
    walk.stats.n_pairs += (bounds.shape[0] - 1) * n_tiles * LANES
    for group in range(bounds.shape[0] - 1):
        start, stop = bounds[group], bounds[group + 1]
        common = shared.plus(index, rows, inside[group])
        n_open = tiles.count_bits(unsure[group])
        still_open = rows.keep(unsure[group], n_open)
        if stop - start > SPLIT_POINTS and (stop - start) * n_open > SPLIT_WORK:
            _visit(walk, start + np.arange(5) * (stop - start) // 4, still_open, common)
        else:
            _settle(walk, slice(start, stop), still_open, common)


def _settle(walk: _Walk, group: slice, rows: _Rows, shared: _Shared) -> None:
    """Move the points of one group: decide every open row for every point, then take medians."""
    index, points = walk.index, walk.points[group]
    n_points, n_tiles = points.shape[0], rows.words.shape[0]
    padded = -(-n_points // QUERIES) * QUERIES
    codes, slack = np.zeros((padded, points.shape[1]), np.uint16), np.zeros(padded, np.uint16)
    tiles.encode_points(points, index.lows, index.unit, codes, slack)
    own, unsure = (np.empty((padded, n_tiles), np.uint64) for _ in range(2))
    tiles.classify(rows.codes, rows.reach_in, rows.reach_out, rows.words, codes, slack, own, unsure)
    tiles.resolve_unsure(
        points, index.coords, index.thresholds, index.rows, rows.slots, own, unsure
    )
    walk.stats.n_pairs += n_points * n_tiles * LANES
    own = np.ascontiguousarray(own[:n_points].T)
    totals = np.full(n_points, shared.pull)
    tile_medians.total_pulls(own, rows.slots, index.pulls, totals)
    _take_medians(index, rows, shared, own, totals, walk.moved[group])


def _take_medians(
    index: Index, rows: _Rows, shared: _Shared, own: NDArray[np.uint64], totals: Int, moved: Int
) -> None:
    """Write the medians of each point's members to `moved`; a point without members stays."""
    if not totals.any():
        return
    n_columns = moved.shape[1]
    found = np.empty((n_columns, 2, 2, moved.shape[0]), np.int64)
    wanted = np.empty((n_columns, 2), np.int64)
    tile_medians.locate(
        shared.counts,
        shared.pull,
        index.shift,
        rows.ranks,
        rows.slots,
        index.pulls,
        own,
        totals,
        found,
        wanted,
    )
    n_listed = np.full(n_columns, -1)
    listed = np.empty((n_columns, 0), np.int64)
    if index.ranks is not index.codes:
        listed = np.empty((n_columns, tiles.count_bits(shared.members)), np.int64)
        tile_medians.list_shared(index.ranks, shared.members, index.shift, wanted, listed, n_listed)
    by_row = np.empty((-(-moved.shape[0] // LANES), own.shape[0] * LANES), np.uint64)
    tile_medians.transpose_bits(own, by_row)
    tile_medians.refine(
        found,
        wanted,
        listed,
        n_listed,
        index.ranks,
        index.rows,
        index.pulls,
        index.coords,
        index.values_of,
        index.n_values,
        index.mixed,
        index.shift,
        rows.ranks,
        rows.slots,
        rows.words,
        by_row,
        index.needs(),
        totals,
        moved,
    )
