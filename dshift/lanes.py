"""Compiled loops for the medians of up to 64 neighbouring points at once, column by column.

Each point is a *lane*. How many of its members lie below a bound near the medians is known, and how
many have the very value of the bound: where data hold many equal values, such as zeros, that alone
settles most lanes of most columns. For the others, a row has a word that says which lanes it is a
member of. In the order of a column's values, the rows that are a member of any lane are listed
outwards from the bound, and one pass over the list counts for all lanes: a lane ends where the
members between the bound and the row are as many as its median needs. So a row is looked up once
for 64 points, and rows far from the medians never.

Where rows pull with weights, lanes walk along the list one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.batches import mark_rows
from dshift.columns import places_of
from dshift.few import medians_of_few, most_of_few, pull_of
from dshift.kernels import inner
from dshift.listing import (
    Listing,
    begin_list,
    clear_spots,
    has,
    list_more,
    make_listing,
    mark_spots,
)
from dshift.simd import LANES, lowest_bit, popcount, prefetch
from dshift.simd_counts import find_crossings

SPARSE = 2  # ranks are marked first if possible rows are fewer than this part of those looked at
LONG = 64  # rows of a run that a bound stays at as long as any median is there
CROSSED = 1024  # rows of a list that are counted at a time
FARTHEST = 60_000  # members that 16 bits count before they begin anew
ELSEWHERE = 1 << 62  # more members than any lane needs

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Lanes(NamedTuple):
    """Scratch for the points that are moved together."""

    size: Any  # (LANES, 2) int64: number of members, and their pull
    below: Any  # (2, p, LANES) int64: pull of the members below the bound, or at it too
    columns: Any  # (p + 1,) int64: those whose medians have to be looked for
    span: Any  # (1,) int64: places of a column that were looked at for the last points
    listing: Listing
    more: Any  # (2, LANES) int64: the members that a lane still needs, in each direction
    needed: Any  # (2, LANES) uint16: minus these, or as many as are counted at a time
    places: Any  # (CROSSED,) int64: where rows are listed with which lanes had what they need
    crossed: Any  # (CROSSED,) uint64: those lanes
    middles: Any  # (2, LANES) int64: pulls that the lower and the upper median have to reach
    at: Any  # (LANES,) int64: where the lower median is listed
    found: Any  # (2, LANES) int64: slots of the lower and the upper median
    sources: Any  # (2, 2, LANES) int64: rows of these, of one column and of the one before it
    before: Any  # (LANES,) int64: pull of the members before the lower median
    few: Any  # (3, most of few) int64: slots, values and pulls of members that are sorted


def make_lanes(n_rows: int, n_columns: int, n_ranks: int, places: Any) -> Lanes:
    """Return scratch; `places` are those of the batch."""
    return Lanes(
        size=np.zeros((LANES, 2), np.int64),
        below=np.zeros((2, n_columns, LANES), np.int64),
        columns=np.zeros(n_columns + 1, np.int64),
        span=np.zeros(1, np.int64),
        listing=make_listing(n_rows, n_columns, n_ranks, places),
        more=np.zeros((2, LANES), np.int64),
        needed=np.zeros((2, LANES), np.uint16),
        places=np.zeros(CROSSED, np.int64),
        crossed=np.zeros(CROSSED, np.uint64),
        middles=np.zeros((2, LANES), np.int64),
        at=np.zeros(LANES, np.int64),
        found=np.zeros((2, LANES), np.int64),
        sources=np.zeros((2, 2, LANES), np.int64),
        before=np.zeros(LANES, np.int64),
        few=np.zeros((3, most_of_few(n_rows)), np.int64),
    )


# ---------------------------------------------------------------- medians


@inner
def _begin_counting(more, needed, side, first, last):
    """Set what lanes count up to 0, of what they need more; 16 bits need not hold all of it."""
    for lane in range(first, last):
        needed[side, lane] = -min(more[side, lane], FARTHEST)


@inner
def _end_counting(more, needed, side, first, last):
    """Take off what lanes have counted."""
    for lane in range(first, last):
        begun = min(more[side, lane], FARTHEST)
        more[side, lane] -= (begun + np.int64(needed[side, lane])) & 0xFFFF


@inner
def _cross_lanes(held, lanes, k, side, pending, first, last):
    """lanes.at[lane] = where the row is listed with which a pending lane has what it needs."""
    listing, needed, places, crossed = lanes.listing, lanes.needed, lanes.places, lanes.crossed
    step, n_counted, at = 1 - 2 * side, 0, lanes.at
    i = end = listing.ends[side]  # where the list begins
    _begin_counting(lanes.more, needed, side, first, last)
    while pending != _NONE:
        if i == end:
            end = list_more(held, listing, k, side)
        stop = i + step * min(abs(end - i), CROSSED)
        n_found = find_crossings(listing.absent, i, stop, step, needed, side, places, crossed)
        n_counted += abs(stop - i)
        i = stop
        for j in range(n_found):
            now = crossed[j] & pending
            pending &= ~now
            while now != _NONE:
                at[lowest_bit(now)] = places[j]
                now &= now - _ONE
        if n_counted >= FARTHEST - CROSSED:
            _end_counting(lanes.more, needed, side, first, last)
            _begin_counting(lanes.more, needed, side, first, last)
            n_counted = 0


@inner
def _cross_lane(held, listing, k, side, lane, before, need):
    """Where the row is listed with which the pull of a lane's members reaches `need`.

    `before` is their pull before the list begins on that side. Returns the place, and the pull with
    that row.
    """
    bit, step = np.uint64(lane), 1 - 2 * side
    i = listing.listed.shape[0] // 2 + step
    while True:
        if i == listing.ends[side]:
            list_more(held, listing, k, side)
        if (listing.absent[i] >> bit) & _ONE == _NONE:
            pull = pull_of(held.pulls, listing.listed[i])
            if side == 0 and before + pull >= need:
                return i, before + pull
            if side == 1 and before - pull < need:
                return i, before
            before += step * pull
        i += step


@inner
def _all_settled(middles, below, first, last, k):
    """Whether both medians of every lane that walks are among the members at the bound."""
    n_open = 0
    for lane in range(first, last):
        n_open += np.int64(below[0, k, lane] >= middles[0, lane])
        n_open += np.int64(below[1, k, lane] < middles[1, lane])
    return n_open == 0


@inner
def _direct_lanes(more, middles, below, alone, first, last, k, walking):
    """Set what lanes need to come to their lower medians from where the list begins.

    Returns which of the lanes `walking` go up and which down, and the lanes with members at the
    bound.
    """
    upwards, downwards, here = _NONE, _NONE, _NONE
    for lane in range(first, last):
        lower, bit = middles[0, lane], np.uint64(lane)
        before = below[0, k, lane]
        behind = below[1, k, lane] if alone else before
        walks = (walking >> bit) & _ONE
        up, down = behind < lower, before >= lower
        upwards |= (walks * np.uint64(up)) << bit
        downwards |= (walks * np.uint64(down)) << bit
        here |= np.uint64(behind > before) << bit
        more[0, lane] = lower - behind if up else ELSEWHERE
        more[1, lane] = before - lower + 1 if down else ELSEWHERE
    return upwards, downwards, here


@inner
def _find_in_column(held, lanes, first, last, k, alone, walking):
    """Rows of the lower and the upper median in column k, of the lanes `walking`."""
    middles, below, at, found, listing = (
        lanes.middles,
        lanes.below,
        lanes.at,
        lanes.found,
        lanes.listing,
    )
    middle = listing.listed.shape[0] // 2
    upwards, downwards, here = _direct_lanes(
        lanes.more, middles, below, alone, first, last, k, walking
    )
    listing.absent[middle] = ~here
    together = held.pulls.shape[0] == 0
    if together:
        for side in range(2):  # one after the other in so many words would be compiled twice
            pending = downwards if side else upwards
            _cross_lanes(held, lanes, k, side, pending, first, last)
    for lane in range(first, last):
        bit = np.uint64(lane)
        if (walking >> bit) & _ONE == _NONE:
            continue
        lower, upper = middles[0, lane], middles[1, lane]
        side = np.int64((downwards >> bit) & _ONE)
        if ((upwards | downwards) >> bit) & _ONE == _NONE:
            at[lane], reached = middle, below[1, k, lane]
            lanes.before[lane] = below[0, k, lane]
        elif together:
            reached = lower
            lanes.before[lane] = reached - 1
        else:
            before = below[1 if side == 0 and alone else 0, k, lane]
            at[lane], reached = _cross_lane(held, listing, k, side, lane, before, lower)
            lanes.before[lane] = reached - pull_of(held.pulls, listing.listed[at[lane]])
        i = at[lane]
        found[0, lane] = listing.listed[i]
        while reached < upper:  # the next member, whatever it pulls
            i += 1
            if i == listing.ends[0]:
                list_more(held, listing, k, np.int64(0))
            reached += np.int64(~(listing.absent[i] >> bit) & _ONE)
        found[1, lane] = listing.listed[i]
    return walking & ~(upwards | downwards) != _NONE


@inner
def _take_value(value, first, last, k, walking, moved, start):
    """One value, for all lanes that walk."""
    for lane in range(first, last):
        if (walking >> np.uint64(lane)) & _ONE != _NONE:
            moved[start + lane, k] = value


@inner
def _fetch_values(held, found, sources, first, last, k):
    """Have the values of the medians found fetched, from rows all over the samples."""
    for side in range(2):
        for lane in range(first, last):
            row = held.rows[found[side, lane]]
            sources[side, lane] = row
            prefetch(held.coords, row * held.coords.shape[1] + k)


@inner
def _take_values(held, sources, first, last, k, walking, moved, start):
    """Midpoints of the medians of a column: while the next one's were found, they came."""
    for lane in range(first, last):
        if (walking >> np.uint64(lane)) & _ONE != _NONE:
            low, high = held.coords[sources[0, lane], k], held.coords[sources[1, lane], k]
            moved[start + lane, k] = (low + high) >> 1  # both are even


@inner
def _move_bound(held, chain, state, lanes, k, last):
    """Move the bound of column k to the lower median of the last lane, and count for that lane."""
    members, slot, before = chain.members[state], lanes.found[0, last], lanes.before[last]
    rank, within, passed = np.int64(held.ranks[slot, k]), 0, False
    begin, behind, alone = places_of(held, k, rank)
    for place in range(begin, behind):
        other = np.int64(held.order[k, place])
        passed |= other == slot
        if has(members, other) != 0:
            pull = pull_of(held.pulls, other)
            within += pull
            before -= 0 if passed else pull
    chain.bounds[state, k] = rank
    chain.counts[state, 0, k], chain.counts[state, 1, k] = before, before + within
    chain.runs[state, k] = behind - begin if alone else 0
    chain.values[state, k] = held.coords[held.rows[slot], k]


@inner
def _mark_possible(held, batch, listing, first, last, span):
    """Mark possible rows, and their ranks if they are rare: where lists looked at so many rows."""
    mark_rows(batch, first, last, listing.masks, listing.possible)
    n_possible = 0
    for tile in range(listing.possible.shape[0]):
        n_possible += np.int64(popcount(listing.possible[tile]))
    listing.marked[0] = SPARSE * n_possible < span
    if listing.marked[0]:
        mark_spots(held.ranks, listing.possible, listing.spots)


@inner
def _begin_lanes(held, batch, lanes, first, last, moved):
    """Set what medians have to reach, and return which lanes walk: few members are sorted."""
    walking = _NONE
    for lane in range(first, last):
        n_members, total = lanes.size[lane, 0], lanes.size[lane, 1]
        lanes.middles[0, lane], lanes.middles[1, lane] = total + 1, 0  # as if it were settled
        if n_members > lanes.few.shape[1]:
            walking |= _ONE << np.uint64(lane)
            lanes.middles[0, lane], lanes.middles[1, lane] = (total + 1) // 2, total // 2 + 1
        elif n_members > 0:
            result = moved[batch.start[0] + lane]
            medians_of_few(held, batch, lanes.few, lane, total, result)
    return walking


@inner
def _settle_columns(chain, state, lanes, first, last, walking, moved, start):
    """Take the value of the bound wherever it is the median of all lanes; how many are left.

    These columns are listed.
    """
    n = 0
    for k in range(moved.shape[1]):
        lanes.columns[n] = k  # stays if it is counted
        if chain.runs[state, k] > 0 and _all_settled(lanes.middles, lanes.below, first, last, k):
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
    walking = _begin_lanes(held, batch, lanes, first, last, moved)
    if walking == _NONE:
        return
    n_columns = _settle_columns(chain, state, lanes, first, last, walking, moved, start)
    if n_columns == 0:
        return
    _mark_possible(held, batch, listing, first, last, lanes.span[0])
    moves_bound = (walking >> np.uint64(at_last)) & _ONE != _NONE
    middle, n_looked = listing.listed.shape[0] // 2, 0
    for i in range(n_columns):
        k = lanes.columns[i]
        begin, end = begin_list(held, listing, k, np.int64(chain.bounds[state, k]))
        if end > begin:
            chain.runs[state, k] = end - begin
            chain.values[state, k] = held.coords[held.rows[held.order[k, begin]], k]
        n_looked += listing.edges[1] - listing.edges[0]
        some = _find_in_column(held, lanes, first, last, k, end > begin, walking)
        _fetch_values(held, lanes.found, lanes.sources[i & 1], first, last, k)
        if i > 0:
            before = lanes.columns[i - 1]
            _take_values(held, lanes.sources[~i & 1], first, last, before, walking, moved, start)
        n_looked += listing.edges[0] - listing.edges[1]
        stays = end - begin > LONG and some
        if moves_bound and lanes.at[at_last] != middle and not stays:
            _move_bound(held, chain, state, lanes, k, at_last)
    _take_values(held, lanes.sources[~n_columns & 1], first, last, k, walking, moved, start)
    lanes.span[0] = n_looked // moved.shape[1]
    if listing.marked[0]:
        lanes.span[0] <<= held.shift
        clear_spots(listing.spots)
