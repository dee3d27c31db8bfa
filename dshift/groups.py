"""One compiled function that moves many points by one step: groups, distances, medians.

Points come in an order that keeps neighbours together. For a group, one distance from its centre
settles every row nearer than its threshold minus the radius (inside for all points) or farther than
threshold plus radius (outside for all); the group is split in four until it is a batch, for whose
points the rest is decided. All of it runs without the interpreter, so that threads do not wait for
each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.batches import Batch, end_of_run, fill_batch, make_batch
from dshift.chains import Chain, choose_state, count_members, make_chain
from dshift.kernels import inlined, inner, jit
from dshift.lanes import Lanes, make_lanes, take_medians
from dshift.simd import LANES, QUERIES, whole_quads
from dshift.tiles import (
    Alike,
    Coded,
    are_near,
    classify,
    enclose,
    encode_points,
    make_alike,
    make_coded,
)

_NONE = np.uint64(0)


class Groups(NamedTuple):
    """Groups within groups: for each depth, its open rows and how they lie to its four parts."""

    which: Any  # (depths, tiles) int32: tiles with open rows
    words: Any  # (depths, tiles) uint64: those rows
    n_open: Any  # (depths,) int64: how many tiles
    bounds: Any  # (depths, 5) int64: points of the parts
    part: Any  # (depths,) int64: the part that is next
    inside: Any  # (depths, tiles, 4) uint64: inside for all points of a part
    unsure: Any  # (depths, tiles, 4) uint64: open for them
    common: Any  # (tiles,) uint64: members that all points of the group have
    points: Coded  # all that are moved
    radii: Any  # (depths, 4) uint16: of the parts
    centres: Coded  # 4, of parts
    corners: Any  # (2, p) uint16: of the box around a part
    alike: Alike  # no columns
    distances: Any  # (4, 64) uint16: of a tile's rows
    n_pairs: Any  # (1,) int64: distances evaluated


class Nest(NamedTuple):
    """Scratch of a thread, in four parts: what a function is passed, it has to be compiled for."""

    groups: Groups
    batch: Batch
    chain: Chain
    lanes: Lanes


def count_depths(n_points: int) -> int:
    """Return how deep groups of so many points are nested at most."""
    depths, n_batches = 1, -(-n_points // LANES)
    while n_batches > 1:
        n_batches = -(-n_batches // QUERIES)
        depths += 1
    return depths


def most_points(depths: int) -> int:
    """Return how many points are nested so deep at most."""
    return LANES * QUERIES ** (depths - 1)


def make_nest(n_rows: int, n_columns: int, n_points: int) -> Nest:
    """Return scratch for steps of up to `n_points` points."""
    depths, n_tiles = count_depths(n_points), -(-n_rows // LANES)
    groups = Groups(
        which=np.empty((depths, n_tiles), np.int32),
        words=np.empty((depths, n_tiles), np.uint64),
        n_open=np.zeros(depths, np.int64),
        bounds=np.zeros((depths, QUERIES + 1), np.int64),
        part=np.zeros(depths, np.int64),
        inside=np.empty((depths, n_tiles, QUERIES), np.uint64),
        unsure=np.empty((depths, n_tiles, QUERIES), np.uint64),
        common=np.zeros(n_tiles, np.uint64),
        points=make_coded(most_points(depths), n_columns),
        radii=np.zeros((depths, QUERIES), np.uint16),
        centres=make_coded(QUERIES, n_columns),
        corners=np.zeros((2, whole_quads(n_columns)), np.uint16),
        alike=make_alike(n_columns),
        distances=np.zeros((QUERIES, LANES), np.uint16),
        n_pairs=np.zeros(1, np.int64),
    )
    batch = make_batch(n_rows, n_columns, groups.common, groups.points)
    return Nest(
        groups=groups,
        batch=batch,
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


@inlined
def _radius(groups, depth):
    """The radius, from the centre that open rows were found by, of the points at a depth."""
    if depth == 0:  # all rows are open
        return np.uint16(65535)
    return groups.radii[depth - 1, groups.part[depth - 1] - 1]


@inner
def _divide(held, groups, depth, start, stop):
    """Cut points start..stop - 1 in four, by whole batches, and find how open rows lie to each."""
    n_batches = (stop - start + LANES - 1) // LANES
    for part in range(QUERIES + 1):
        bound = start + part * n_batches // QUERIES * LANES
        groups.bounds[depth, part] = min(bound, stop)
    groups.part[depth] = 0
    for part in range(QUERIES):
        first, last = groups.bounds[depth, part], groups.bounds[depth, part + 1]
        if first < last:
            enclose(groups.points, first, last, groups.centres, part, groups.corners)
        groups.radii[depth, part] = groups.centres.slack[part]
    near = are_near(held, _radius(groups, depth), groups.centres, 0, QUERIES)
    n_open = groups.n_open[depth]
    groups.n_pairs[0] += classify(
        held,
        groups.which[depth],
        groups.words[depth],
        n_open,
        groups.centres,
        near,
        groups.alike,
        groups.distances,
        groups.inside[depth],
        groups.unsure[depth],
    )


@inner
def _enter(groups, depth, part):
    """Make the rows that are open for a part those of the next depth."""
    n = 0
    for i in range(groups.n_open[depth]):
        tile = groups.which[depth, i]
        groups.common[tile] |= groups.inside[depth, i, part]
        word = groups.unsure[depth, i, part]
        if word != _NONE:
            groups.which[depth + 1, n] = tile
            groups.words[depth + 1, n] = word
            n += 1
    groups.n_open[depth + 1] = n


@inner
def _leave(groups, depth, part):
    """Take the members of a part away again."""
    for i in range(groups.n_open[depth]):
        groups.common[groups.which[depth, i]] &= ~groups.inside[depth, i, part]


@jit
def step_points(held, nest, sources, order, points):
    """Set points[i] to the next point of sources[order[i]].

    Points are moved in place: nobody looks at a batch that has moved.

    This one counts references to arrays, but only where it goes from batch to batch. What is done
    with a batch is written out: so all that is called for it is optimised at one level less, which
    was a twelfth of the first fit.
    """
    groups, batch, chain, lanes = nest.groups, nest.batch, nest.chain, nest.lanes
    for i in range(order.shape[0]):
        for k in range(points.shape[1]):
            points[i, k] = sources[order[i], k]
    encode_points(held, points, groups.points)
    depth, start, stop = np.int64(0), np.int64(0), points.shape[0]
    _open_all(held.rows.shape[0], groups)
    entered = True
    while depth >= 0:
        if entered and stop - start > LANES:
            _divide(held, groups, depth, start, stop)
        elif entered:
            which, words, n_open = groups.which[depth], groups.words[depth], groups.n_open[depth]
            outer = _radius(groups, depth)
            n_pairs = fill_batch(held, batch, points, start, stop, which, words, n_open, outer)
            groups.n_pairs[0] += n_pairs
            first, n_lanes = np.int64(0), stop - start
            while first < n_lanes:  # lanes that share much move together
                last = end_of_run(batch, first, n_lanes)
                state = choose_state(chain, batch, first)
                count_members(held, chain, state, batch, first, last, lanes.size, lanes.below)
                take_medians(held, chain, state, batch, lanes, first, last, points)
                first = last
            groups.part[depth] = QUERIES
        part = groups.part[depth]
        if part == QUERIES:
            depth -= 1
            if depth >= 0:
                _leave(groups, depth, groups.part[depth] - 1)
            entered = False
            continue
        groups.part[depth] += 1
        start, stop = groups.bounds[depth, part], groups.bounds[depth, part + 1]
        entered = start < stop
        if entered:
            _enter(groups, depth, part)
            depth += 1
