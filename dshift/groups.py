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

from dshift.batches import Batch, begin_batch, end_of_run, fill_lanes, make_batch
from dshift.chains import Chain, choose_state, count_members, make_chain
from dshift.kernels import inner, jit
from dshift.lanes import Lanes, make_lanes, take_medians
from dshift.simd import LANES, QUERIES, popcount
from dshift.tiles import classify, decide, enclose, encode_points

SPLIT_WORK = 1 << 13  # points x open rows above which a group is worth splitting
SPLIT_POINTS = 8  # and the fewest points for it
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
    centres: Any  # (4, p) uint16: codes
    radii: Any  # (4,) uint16
    corners: Any  # (2, p) int64: of the box around a part
    distances: Any  # (4, 64) uint16: of a tile's rows
    codes: Any  # (LANES, p) uint16: of points
    slack: Any  # (LANES,) uint16
    n_pairs: Any  # (1,) int64: distances evaluated


class Nest(NamedTuple):
    """Scratch of a thread, in four parts: what a function is passed, it has to be compiled for."""

    groups: Groups
    batch: Batch
    chain: Chain
    lanes: Lanes


def count_depths(n_points: int) -> int:
    """Return how deep groups of so many points are nested at most."""
    depths = 2
    while n_points > SPLIT_POINTS and depths < DEEPEST:
        unit = LANES if n_points > LANES else 1
        n_points = unit * -(-n_points // (unit * QUERIES))
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
        centres=np.zeros((QUERIES, n_columns), np.uint16),
        radii=np.zeros(QUERIES, np.uint16),
        corners=np.zeros((2, n_columns), np.int64),
        distances=np.zeros((QUERIES, LANES), np.uint16),
        codes=np.zeros((LANES, n_columns), np.uint16),
        slack=np.zeros(LANES, np.uint16),
        n_pairs=np.zeros(1, np.int64),
    )
    batch = make_batch(n_rows, groups.common)
    return Nest(
        groups=groups,
        batch=batch,
        chain=make_chain(n_rows, n_columns),
        lanes=make_lanes(n_rows, n_columns, min(n_rows, 1 << 16), batch.places),
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
    """Cut points start..stop - 1 in four, and find out how the open rows lie to each part.

    Parts of more points than a batch has are whole batches.
    """
    unit = LANES if stop - start > LANES else 1
    n_units = (stop - start + unit - 1) // unit
    for part in range(QUERIES + 1):
        bound = start + part * n_units // QUERIES * unit
        groups.bounds[depth, part] = min(bound, stop)
    groups.part[depth] = 0
    low, high = groups.corners[0], groups.corners[1]
    enclose(held, points, groups.bounds[depth], low, high, groups.centres, groups.radii)
    n_open = groups.n_open[depth]
    classify(
        held,
        groups.which[depth],
        groups.words[depth],
        n_open,
        groups.centres,
        groups.radii,
        groups.distances,
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
def _decide(held, groups, batch, points, depth, depth_of_batch, start, stop):
    """Decide the open rows of a group for its points, start..stop - 1: lanes of the batch."""
    first = start - batch.start[0]
    fill_lanes(batch, groups.which[depth_of_batch], first, first + stop - start)
    encode_points(held, points, start, stop, groups.codes, groups.slack)
    decide(held, groups, batch, depth, points, start, stop)
    groups.n_pairs[0] += (stop - start) * groups.n_open[depth] * LANES
    groups.part[depth] = QUERIES


@inner
def _move(held, nest, stop, moved):
    """Move the points of the batch, of which the last is stop - 1."""
    batch, chain, lanes = nest.batch, nest.chain, nest.lanes
    first, n_lanes = np.int64(0), stop - batch.start[0]
    while first < n_lanes:
        last = end_of_run(batch, first, n_lanes)
        state = choose_state(chain, batch, first)
        count_members(held, chain, state, batch, first, last, lanes.size, lanes.below)
        take_medians(held, chain, state, batch, lanes, first, last, moved)
        first = last


@inner
def _step_points(held, nest, points, moved):
    """See `step_points`, which counts references to arrays."""
    groups, batch = nest.groups, nest.batch
    depth, depth_of_batch = np.int64(0), np.int64(-1)
    start, stop, n_rows = np.int64(0), points.shape[0], held.rows.shape[0]
    end_of_batch = stop
    _open_all(n_rows, groups)
    entered = True
    while depth >= 0:
        if entered:
            n_points = stop - start
            if depth_of_batch < 0 and n_points <= LANES:
                begin_batch(batch, groups.which[depth], groups.n_open[depth], start)
                depth_of_batch, end_of_batch = depth, stop
            few = n_points <= SPLIT_POINTS or n_points * n_rows <= SPLIT_WORK
            if depth_of_batch >= 0 and few:
                _decide(held, groups, batch, points, depth, depth_of_batch, start, stop)
            else:
                _divide(held, groups, points, depth, start, stop)
        part = groups.part[depth]
        if part == QUERIES:
            if depth == depth_of_batch:
                _move(held, nest, end_of_batch, moved)
                depth_of_batch = np.int64(-1)
            depth -= 1
            if depth >= 0:
                _leave(groups, depth, groups.part[depth] - 1)
            entered = False
            continue
        groups.part[depth] += 1
        start, stop = groups.bounds[depth, part], groups.bounds[depth, part + 1]
        entered = start < stop
        if entered:
            n_rows = _enter(groups, depth, part)
            depth += 1


@jit
def step_points(held, nest, points, moved):
    """moved[j] = the next point of points[j], for all of them; `moved` begins as a copy."""
    _step_points(held, nest, points, moved)
