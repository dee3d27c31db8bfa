"""Compiled loops for the medians of up to 64 neighbouring points at once, column by column.

Each point is a *lane*. How many of its members lie below a bound near the medians is known, and how
many have the very value of the bound: where data hold many equal values, such as zeros, that alone
settles most lanes of most columns. For the others, a row has a mask that says which lanes it is a
member of. In the order of a column's values, rows are looked at outwards from the bound, and one
pass over them counts for all lanes: a lane ends where the members between the bound and the row are
as many as its median needs. So a row is looked up once for 64 points, and rows far from the medians
never.

Where rows pull with weights, lanes walk along the rows one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.batches import mark_rows
from dshift.columns import places_of, slot_at
from dshift.crossing import BOTH, CROSSINGS, ONE, PASSED, find_together
from dshift.few import medians_of_few, most_of_few, pull_of
from dshift.heavy import find_heavy
from dshift.kernels import inlined, inner
from dshift.listing import Listing, begin_list, clear_spots, has, make_listing, mark_spots
from dshift.simd import LANES, popcount

SPARSE = 8  # ranks are marked first if possible rows are fewer than this part of those looked at
LONG = 64  # rows of a run that a bound stays at as long as any median is there
ASIDE = 1 << 40  # more members than there can be

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Lanes(NamedTuple):
    """Scratch for the points that are moved together."""

    size: Any  # (LANES, 2) int64: number of members, and their pull
    below: Any  # (LANES, 2, p) int64: pull of the members below the bound, or at it too
    unsettled: Any  # (p,) int64: medians that are not at the bound
    columns: Any  # (p + 1,) int64: those whose medians have to be looked for
    span: Any  # (1,) int64: places of a column that were looked at for the last points
    listing: Listing
    middles: Any  # (2, LANES) int64: pulls that the lower and the upper median have to reach
    aside: Any  # (LANES,) int64: ASIDE for lanes that do not walk, 0 for others
    halves: Any  # (LANES,) int64: 1 where one median is found for both, 0 where there are two
    ahead: Any  # (2, LANES) int64: members by which a lane is behind its medians, up and down
    counters: Any  # (2, LANES) uint16: the same, as far as it is counted at a time
    marks: Any  # (LANES,) uint8: which counts are medians
    crossed: Any  # (2 LANES,) uint64: by row of those counted at a time, the lanes that cross there
    notes: Any  # (CROSSINGS + 3, 2) uint64: rows that are medians, and of which lanes
    found: Any  # (1,) int64: the slot of the lower median of the last lane, or -1
    totals: Any  # (LANES,) int64: of the values of a lane's medians
    few: Any  # (3, most of few) int64: slots, values and pulls of members that are sorted


def make_lanes(n_rows: int, n_columns: int, n_ranks: int) -> Lanes:
    """Return scratch."""
    return Lanes(
        size=np.zeros((LANES, 2), np.int64),
        below=np.zeros((LANES, 2, n_columns), np.int64),
        unsettled=np.zeros(n_columns, np.int64),
        columns=np.zeros(n_columns + 1, np.int64),
        span=np.zeros(1, np.int64),
        listing=make_listing(n_rows, n_columns, n_ranks),
        middles=np.zeros((2, LANES), np.int64),
        aside=np.zeros(LANES, np.int64),
        halves=np.zeros(LANES, np.int64),
        ahead=np.zeros((2, LANES), np.int64),
        counters=np.zeros((2, LANES), np.uint16),
        marks=np.zeros(LANES, np.uint8),
        crossed=np.zeros(2 * LANES, np.uint64),
        notes=np.zeros((CROSSINGS + 3, 2), np.uint64),
        found=np.zeros(1, np.int64),
        totals=np.zeros(LANES, np.int64),
        few=np.zeros((3, most_of_few(n_rows)), np.int64),
    )


@inlined
def _count_unsettled(middles, below, unsettled, first, last):
    """How many medians of each column are not among the members at the bound."""
    for k in range(unsettled.shape[0]):
        unsettled[k] = 0
    for lane in range(first, last):
        lower, upper = middles[0, lane], middles[1, lane]
        for k in range(unsettled.shape[0]):
            unsettled[k] += np.int64(below[lane, 0, k] >= lower)
            unsettled[k] += np.int64(below[lane, 1, k] < upper)


@inlined
def _take_value(value, first, last, k, walking, moved, start):
    """One value, for all lanes that walk."""
    for lane in range(first, last):
        if (walking >> np.uint64(lane)) & _ONE != _NONE:
            moved[start + lane, k] = value


@inlined
def _take_values(totals, halves, first, last, k, walking, moved, start):
    """Midpoints of the medians of a column: sums of two, which are even, or one twice."""
    for lane in range(first, last):
        if (walking >> np.uint64(lane)) & _ONE != _NONE:
            moved[start + lane, k] = (totals[lane] << halves[lane]) >> 1


@inlined
def _move_bound(held, chain, state, k, slot, before):
    """Move the bound of column k to a row, and count members: `before` it is their pull."""
    members = chain.members[state]
    rank, within, passed = np.int64(held.ranks[slot, k]), 0, False
    begin, behind, alone = places_of(held.heads, held.shift, held.ranks.shape[0], k, rank)
    for place in range(begin, behind):
        other = slot_at(held.order, held.slot_bytes, k, place)
        passed |= other == slot
        if has(members, other) != 0:
            pull = pull_of(held.pulls, other)
            within += pull
            before -= 0 if passed else pull
    chain.bounds[state, k] = rank
    chain.counts[state, 0, k], chain.counts[state, 1, k] = before, before + within
    chain.runs[state, k] = behind - begin if alone else 0
    chain.values[state, k] = held.coords[held.rows[slot], k]


@inlined
def _mark_possible(held, batch, lanes, first, last, n_columns):
    """Mark possible rows, and their ranks if they are rare: where lists looked at so many rows."""
    listing = lanes.listing
    masks, shown, mixed = listing.masks, listing.shown, listing.mixed
    mark_rows(batch, first, last, masks, shown, mixed, listing.possible)
    n_possible = 0
    for tile in range(listing.possible.shape[0]):
        n_possible += np.int64(popcount(listing.possible[tile]))
    listing.marked[0] = SPARSE * n_possible < lanes.span[0]
    if listing.marked[0]:
        mark_spots(held.ranks, listing.possible, lanes.columns, n_columns, listing.spots)


@inlined
def _begin_lanes(held, batch, lanes, first, last, moved):
    """Set what medians have to reach, and return which lanes walk: few members are sorted.

    Also those whose two medians are found one by one.
    """
    walking, even = _NONE, _NONE
    for lane in range(LANES):
        lanes.ahead[0, lane] = lanes.ahead[1, lane] = PASSED
        lanes.marks[lane] = ONE
    for lane in range(first, last):
        n_members, total = lanes.size[lane, 0], lanes.size[lane, 1]
        lanes.middles[0, lane], lanes.middles[1, lane] = total + 1, 0  # as if it were settled
        lanes.aside[lane], lanes.halves[lane] = ASIDE, 0
        if n_members > lanes.few.shape[1]:
            walking |= _ONE << np.uint64(lane)
            lanes.middles[0, lane], lanes.middles[1, lane] = (total + 1) // 2, total // 2 + 1
            lanes.aside[lane] = 0
            if held.pulls.shape[0] == 0:
                lanes.halves[lane] = total & 1
                lanes.marks[lane] = ONE if total & 1 else BOTH  # of 0 alone, or of 0 and 1
                even |= np.uint64(~total & 1) << np.uint64(lane)
        elif n_members > 0:
            result = moved[batch.start[0] + lane]
            medians_of_few(held, batch, lanes.few, lane, total, result)
    return walking, even


@inlined
def _settle_columns(chain, state, lanes, first, last, walking, moved, start):
    """Take the value of the bound wherever it is the median of all lanes; how many are left.

    These columns are listed.
    """
    n = 0
    _count_unsettled(lanes.middles, lanes.below, lanes.unsettled, first, last)
    for k in range(moved.shape[1]):
        lanes.columns[n] = k  # stays if it is counted
        if chain.runs[state, k] > 0 and lanes.unsettled[k] == 0:
            _take_value(chain.values[state, k], first, last, k, walking, moved, start)
        else:
            n += 1
    return n


@inner
def take_medians(held, chain, state, batch, lanes, first, last, moved):
    """moved[start of the batch + lane] = the medians of the members of lanes first..last - 1.

    It stays where there are none. The bounds of the state, which all lanes were counted below, move
    to the medians of the last lane, and its counts become that lane's.
    """
    listing, start, at_last = lanes.listing, batch.start[0], last - 1
    walking, even = _begin_lanes(held, batch, lanes, first, last, moved)
    if walking == _NONE:
        return
    n_columns = _settle_columns(chain, state, lanes, first, last, walking, moved, start)
    if n_columns == 0:
        return
    _mark_possible(held, batch, lanes, first, last, n_columns)
    moves_bound, n_looked = (walking >> np.uint64(at_last)) & _ONE != _NONE, 0
    for i in range(n_columns):
        k = lanes.columns[i]
        begin, end = begin_list(held, listing, k, np.int64(chain.bounds[state, k]))
        alone, run = end > begin, slot_at(held.order, held.slot_bytes, k, begin)
        if alone:
            value = held.coords[held.rows[run], k]
            chain.runs[state, k], chain.values[state, k] = end - begin, value
        n_looked += listing.edges[1] - listing.edges[0]
        before = lanes.middles[0, at_last] - 1
        if held.pulls.shape[0] == 0:
            slot, some = find_together(held, lanes, first, last, k, alone, run, walking, even)
        else:
            slot, some, before = find_heavy(held, lanes, first, last, k, alone, begin, walking)
        _take_values(lanes.totals, lanes.halves, first, last, k, walking, moved, start)
        n_looked += listing.edges[0] - listing.edges[1]
        stays = end - begin > LONG and some
        if moves_bound and slot >= 0 and not stays:
            _move_bound(held, chain, state, k, slot, before)
    lanes.span[0] = n_looked // moved.shape[1]
    if listing.marked[0]:
        lanes.span[0] <<= held.shift
        clear_spots(lanes.columns, n_columns, listing.spots)
