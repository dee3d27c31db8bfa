"""One compiled function that moves many points by one step: groups, distances, medians.

Points come in an order that keeps neighbours together. For a group, one distance from its centre
settles every row nearer than its threshold minus the radius (inside for all points) or farther than
threshold plus radius (outside for all); the group is split in four until what is left open is worth
deciding row by row. All of it runs without the interpreter, so that threads do not wait for each
other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.chains import Chain, change_members, choose_state, count_changed, make_chain
from dshift.kernels import inner, jit
from dshift.lanes import Lanes, begin_lanes, full_or_apart, make_lanes, mark_members, take_medians
from dshift.simd import LANES, QUERIES, popcount
from dshift.tiles import classify, enclose, encode_points, nearer

SPLIT_WORK = 1 << 17  # points x open rows above which a group is worth splitting
SPLIT_POINTS = 16  # and the fewest points for it
DEEPEST = 16  # splits in four: more than any number of points in memory has

_NONE = np.uint64(0)


class Groups(NamedTuple):
    """Groups within groups: for each depth, its open rows and how they lie to its four parts."""

    which: Any  # (depths, tiles) int32: tiles with open rows
    words: Any  # (depths, tiles) uint64: those rows
    n_open: Any  # (depths,) int64: how many tiles
    bounds: Any  # (depths, 5) int64: points of the parts
    part: Any  # (depths,) int64: the part that is next
    inside: Any  # (depths, 4, tiles) uint64: inside for all points of a part
    unsure: Any  # (depths, 4, tiles) uint64: open for them
    common: Any  # (tiles,) uint64: members that all points of the group have
    codes: Any  # (4, p) uint16: of centres, or of points
    slack: Any  # (4,) uint16
    n_pairs: Any  # (1,) int64: distances evaluated


class Nest(NamedTuple):
    """Scratch of a thread, in three parts: what a function is passed, it has to be compiled for."""

    groups: Groups
    chain: Chain
    lanes: Lanes


def count_depths(n_points: int) -> int:
    """Return how deep groups of so many points are nested at most."""
    depths = 2
    while n_points > SPLIT_POINTS and depths < DEEPEST:
        n_points = -(-n_points // QUERIES)
        depths += 1
    return depths


def make_nest(n_rows: int, n_columns: int, n_points: int) -> Nest:
    """Return scratch for steps of up to `n_points` points."""
    depths, n_tiles = count_depths(n_points), -(-n_rows // LANES)
    groups = Groups(
        which=np.empty((depths, n_tiles), np.int32),
        words=np.empty((depths, n_tiles), np.uint64),
        n_open=np.zeros(depths, np.int64),
        bounds=np.zeros((depths, QUERIES + 1), np.int64),
        part=np.zeros(depths, np.int64),
        inside=np.empty((depths, QUERIES, n_tiles), np.uint64),
        unsure=np.empty((depths, QUERIES, n_tiles), np.uint64),
        common=np.zeros(n_tiles, np.uint64),
        codes=np.zeros((QUERIES, n_columns), np.uint16),
        slack=np.zeros(QUERIES, np.uint16),
        n_pairs=np.zeros(1, np.int64),
    )
    return Nest(
        groups=groups,
        chain=make_chain(n_rows, n_columns),
        lanes=make_lanes(n_rows, n_columns, min(n_rows, 1 << 16)),
    )


@inner
def _open_all(n_rows, groups):
    """At depth 0, every row is open."""
    n_tiles = groups.common.shape[0]
    for tile in range(n_tiles):
        groups.which[0, tile] = tile
        groups.words[0, tile] = ~_NONE
        groups.common[tile] = _NONE
    n_last = n_rows % LANES
    if n_last > 0:
        groups.words[0, n_tiles - 1] = (np.uint64(1) << np.uint64(n_last)) - np.uint64(1)
    groups.n_open[0] = n_tiles


@inner
def _divide(held, groups, points, depth, start, stop):
    """Cut points start..stop - 1 in four, and find out how the open rows lie to each part."""
    for part in range(QUERIES + 1):
        groups.bounds[depth, part] = start + part * (stop - start) // QUERIES
    groups.part[depth] = 0
    enclose(held, points, groups.bounds[depth], groups.codes, groups.slack)
    n_open = groups.n_open[depth]
    classify(
        held,
        groups.which[depth],
        groups.words[depth],
        n_open,
        groups.codes,
        groups.slack,
        groups.inside[depth],
        groups.unsure[depth],
    )
    groups.n_pairs[0] += QUERIES * n_open * LANES


@inner
def _enter(groups, depth, part):
    """Make the rows that are open for a part those of the next depth; how many."""
    n, n_rows = 0, 0
    for i in range(groups.n_open[depth]):
        tile = groups.which[depth, i]
        groups.common[tile] |= groups.inside[depth, part, i]
        word = groups.unsure[depth, part, i]
        if word != _NONE:
            groups.which[depth + 1, n] = tile
            groups.words[depth + 1, n] = word
            n += 1
            n_rows += np.int64(popcount(word))
    groups.n_open[depth + 1] = n
    return n_rows


@inner
def _leave(groups, depth, part):
    """Take the members of a part away again."""
    for i in range(groups.n_open[depth]):
        groups.common[groups.which[depth, i]] &= ~groups.inside[depth, part, i]


@inner
def _decide(held, groups, points, depth, first, last):
    """Decide the open rows of a group for up to four of its points, first..last - 1."""
    which, words, n_open = groups.which[depth], groups.words[depth], groups.n_open[depth]
    inside, unsure = groups.inside[depth], groups.unsure[depth]
    encode_points(held, points, first, last, groups.codes, groups.slack)
    classify(held, which, words, n_open, groups.codes, groups.slack, inside, unsure)
    groups.n_pairs[0] += (last - first) * n_open * LANES
    for j in range(first, last):
        for i in range(n_open):
            if unsure[j - first, i] != _NONE:
                tile = np.int64(which[i])
                inside[j - first, i] |= nearer(held, points[j], tile, unsure[j - first, i])


@inner
def _fill_lane(groups, members, depth, number):
    """Make the members of the point `number` of four those of a lane."""
    common, which = groups.common, groups.which[depth]
    for tile in range(common.shape[0]):
        members[tile] = common[tile]
    for i in range(groups.n_open[depth]):
        members[which[i]] |= groups.inside[depth, number, i]


@inner
def _count_lanes(held, chain, state, lanes, n_lanes):
    """Note sizes of lanes, and the pull of their members below the bounds, or at them too."""
    members, below, sizes = lanes.members, lanes.below, lanes.size
    for lane in range(n_lanes):
        change_members(chain.members[state], members[lane], chain.changed, chain.n_changed)
        count_changed(held, chain, state)
        sizes[lane, 0], sizes[lane, 1] = chain.size[state, 0], chain.size[state, 1]
        for k in range(below.shape[1]):
            below[0, k, lane] = chain.counts[state, 0, k]
            below[1, k, lane] = chain.counts[state, 1, k]


@inner
def _move(held, chain, lanes, moved, stop):
    """Move the points of the lanes that are filled: the last is stop - 1."""
    n_lanes = lanes.filled[0]
    if n_lanes == 0:
        return
    state = choose_state(chain, lanes.members[0])
    _count_lanes(held, chain, state, lanes, n_lanes)
    mark_members(lanes.members, n_lanes, lanes.listing.masks, lanes.listing.possible)
    bounds, counts = chain.bounds[state], chain.counts[state]
    take_medians(held, bounds, counts, lanes, n_lanes, moved, stop - n_lanes)
    begin_lanes(lanes.members, lanes.filled)


@jit
def step_points(held, nest, points, moved):
    """moved[j] = the next point of points[j], for all of them; `moved` begins as a copy."""
    groups, lanes = nest.groups, nest.lanes
    depth = np.int64(0)  # a plain 0 would have functions compiled for that very number
    _open_all(held.rows.shape[0], groups)
    _divide(held, groups, points, depth, depth, points.shape[0])
    while depth >= 0:
        part = groups.part[depth]
        if part == QUERIES:
            depth -= 1
            if depth >= 0:
                _leave(groups, depth, groups.part[depth] - 1)
            continue
        groups.part[depth] += 1
        start, stop = groups.bounds[depth, part], groups.bounds[depth, part + 1]
        if start == stop:
            continue
        n_rows = _enter(groups, depth, part)
        n_points = stop - start
        if n_points > SPLIT_POINTS and n_points * n_rows > SPLIT_WORK:
            depth += 1
            _divide(held, groups, points, depth, start, stop)
            continue
        for first in range(start, stop, QUERIES):
            last = min(first + QUERIES, stop)
            _decide(held, groups, points, depth + 1, first, last)
            for j in range(first, last):
                _fill_lane(groups, lanes.members[lanes.filled[0]], depth + 1, j - first)
                if full_or_apart(lanes.members, lanes.filled[0]):
                    _move(held, nest.chain, lanes, moved, j)
                lanes.filled[0] += 1
        _leave(groups, depth, part)
    _move(held, nest.chain, lanes, moved, points.shape[0])
