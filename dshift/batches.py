"""Compiled loops over the members of up to 64 neighbouring points, a *batch*: each point is a lane.

Rows that the batch as a whole has settled are the same for all its lanes: only the tiles with rows
that were open have a word for each lane, side by side. `places` says where; all other tiles share
the place behind the last one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.kernels import inlined, inner
from dshift.simd import LANES, QUERIES, popcount, transpose_words, whole_quads
from dshift.tiles import (
    MANY_DOUBTS,
    Alike,
    Coded,
    are_near,
    decide,
    enclose,
    find_alike,
    make_alike,
    make_coded,
)

APART = 3  # points move together if they share at least this part of their members

_NONE = np.uint64(0)


class Batch(NamedTuple):
    """Members of the points that are moved together."""

    start: Any  # (1,) int64: the first point
    n_lanes: Any  # (1,) int64: how many
    n_open: Any  # (1,) int64: tiles with words of their own
    places: Any  # (tiles,) int64: where these are
    common: Any  # (tiles,) uint64: members that all points have; all there are in other tiles
    members: Any  # (tiles, LANES) uint64: by place
    wanted: Any  # (tiles,) uint64: members of one lane
    points: Coded  # all that are moved, and what they lose to rounding
    sixteens: Coded  # 4 centres of sixteen points each, and their radii
    fours: Coded  # 16 of four points each
    corners: Any  # (2, p) uint16: of the box around some of them
    alike: Alike  # columns in which all points are
    distances: Any  # (4, 64) uint16: of a tile's rows
    doubts: Any  # (words,) uint64: rows of a tile that are in doubt for a lane
    doubtful: Any  # (words,) int64: place of the tile * LANES + lane
    doubt_slots: Any  # (rows,) int64: the same, row by row
    doubt_places: Any  # (rows,) int64
    inside: Any  # (3, 4) uint64: rows of a tile that are inside for a sixteen, a four, a point
    unsure: Any  # (3, 4) uint64
    sizes: Any  # (2, LANES) int64: how many members, and how many of them the first lane has


def make_batch(n_rows: int, n_columns: int, common: Any, points: Coded) -> Batch:
    """Return scratch; `common` and `points` are kept by the groups."""
    n_tiles, width = -(-n_rows // LANES), whole_quads(n_columns)
    return Batch(
        start=np.zeros(1, np.int64),
        n_lanes=np.zeros(1, np.int64),
        n_open=np.zeros(1, np.int64),
        places=np.zeros(n_tiles, np.int64),
        common=common,
        members=np.zeros((n_tiles, LANES), np.uint64),
        wanted=np.zeros(n_tiles, np.uint64),
        points=points,
        sixteens=make_coded(QUERIES, n_columns),
        fours=make_coded(LANES // QUERIES, n_columns),
        corners=np.zeros((2, width), np.uint16),
        alike=make_alike(n_columns),
        distances=np.zeros((QUERIES, LANES), np.uint16),
        doubts=np.zeros(MANY_DOUBTS + LANES + 1, np.uint64),
        doubtful=np.zeros(MANY_DOUBTS + LANES + 1, np.int64),
        doubt_slots=np.zeros(MANY_DOUBTS + LANES * LANES, np.int64),
        doubt_places=np.zeros(MANY_DOUBTS + LANES * LANES, np.int64),
        inside=np.zeros((3, QUERIES), np.uint64),
        unsure=np.zeros((3, QUERIES), np.uint64),
        sizes=np.zeros((2, LANES), np.int64),
    )


@inner
def _enclose_parts(batch, n_together, centres):
    """Codes of the centres of parts of so many lanes, and their radii; how many parts."""
    start, stop = batch.start[0], batch.start[0] + batch.n_lanes[0]
    n_parts = (stop - start + n_together - 1) // n_together
    for part in range(n_parts):
        first = start + part * n_together
        last = min(first + n_together, stop)
        enclose(batch.points, first, last, centres, part, batch.corners)
    return n_parts


@inner
def fill_batch(held, batch, points, start, stop, which, words, n_open, outer):
    """Find the members of points start..stop - 1; open rows are listed as for `classify`.

    These are within the reach, and `outer` units, of a point that is within `outer` of all points.
    Returns how many distances were evaluated.
    """
    batch.start[0], batch.n_lanes[0], batch.n_open[0] = start, stop - start, n_open
    for tile in range(batch.places.shape[0]):
        batch.places[tile] = n_open
    for i in range(n_open):
        batch.places[which[i]] = i
    n_sixteens = _enclose_parts(batch, LANES // QUERIES, batch.sixteens)
    n_fours = _enclose_parts(batch, QUERIES, batch.fours)
    find_alike(batch.alike, batch.points.codes, start, stop)
    near = are_near(held, outer, batch.points, start, stop)
    near &= are_near(held, outer, batch.sixteens, 0, n_sixteens)
    near &= are_near(held, outer, batch.fours, 0, n_fours)
    return decide(held, which, words, n_open, points, batch, near)


@inner
def end_of_run(batch, first, last):
    """The lane behind `first` and others that share enough with it, or `last`."""
    members, common, places, n_open = batch.members, batch.common, batch.places, batch.n_open[0]
    n_closed = 0
    for tile in range(places.shape[0]):
        n_closed += np.int64(popcount(common[tile])) * np.int64(places[tile] == n_open)
    for lane in range(first, last):
        batch.sizes[0, lane] = batch.sizes[1, lane] = n_closed
    for i in range(n_open):
        shared = members[i, first]
        for lane in range(first, last):
            batch.sizes[0, lane] += np.int64(popcount(members[i, lane]))
            batch.sizes[1, lane] += np.int64(popcount(members[i, lane] & shared))
    for lane in range(first + 1, last):
        if APART * batch.sizes[1, lane] < batch.sizes[0, lane]:
            return lane
    return last


@inlined
def _show(masks, tile, word):
    """Set the masks of a tile to all lanes for the rows of a word, and to none for the others."""
    for row in range(LANES):
        has_it = np.int64((word >> np.uint64(row)) & np.uint64(1))
        masks[tile * LANES + row] = np.uint64(-has_it)


@inlined
def mark_rows(batch, first, last, masks, shown, mixed, possible):
    """Fill possible rows of lanes first..last - 1, and by slot the lanes that have a row.

    What is marked of other lanes means nothing. Tiles that the batch has settled stay as they were
    for the last one, as a rule.
    """
    members, common, places, n_open = batch.members, batch.common, batch.places, batch.n_open[0]
    for tile in range(places.shape[0]):
        place = places[tile]
        if place == n_open:
            if mixed[tile] or shown[tile] != common[tile]:
                _show(masks, tile, common[tile])
                shown[tile], mixed[tile] = common[tile], False
            possible[tile] = common[tile]
            continue
        some = _NONE
        for lane in range(first, last):
            some |= members[place, lane]
        possible[tile], mixed[tile] = some, True
        transpose_words(members, place * LANES, masks, tile * LANES)
