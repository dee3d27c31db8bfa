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

from dshift.columns import places_of
from dshift.kernels import inlined, inner
from dshift.listing import (
    Listing,
    begin_list,
    clear_spots,
    has,
    list_more,
    make_listing,
    mark_spots,
)
from dshift.simd import LANES, find_crossings, lowest_bit, popcount

FEW = 16  # members that are sorted rather than walked to
FEW_OF = 2048  # and one more for so many rows, since lists are longer where members are rare
SPARSE = 2  # ranks are marked first if possible rows are fewer than this part of those looked at
LONG = 64  # rows of a run that a bound stays at as long as any median is there
APART = 3  # points move together if they share at least this part of their members
CROSSED = 1024  # rows of a list that are counted at a time
FARTHEST = 60_000  # members between bound and median that 16 bits count

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Lanes(NamedTuple):
    """Scratch for the points that are moved together."""

    members: Any  # (LANES + 1, tiles) uint64: of each lane, and of the next point
    filled: Any  # (1,) int64: how many lanes have members
    size: Any  # (LANES, 2) int64: number of members, and their pull
    below: Any  # (2, p, LANES) int64: pull of the members below the bound, or at it too
    span: Any  # (1,) int64: places of a column that were looked at for the last points
    listing: Listing
    needed: Any  # (2, LANES) uint16: minus the members that a lane still needs, in each direction
    places: Any  # (CROSSED,) int64: where rows are listed with which lanes had what they need
    crossed: Any  # (CROSSED,) uint64: those lanes
    middles: Any  # (2, LANES) int64: pulls that the lower and the upper median have to reach
    at: Any  # (LANES,) int64: where the lower median is listed
    found: Any  # (2, LANES) int64: slots of the lower and the upper median
    before: Any  # (LANES,) int64: pull of the members before the lower median


def make_lanes(n_rows: int, n_columns: int, n_ranks: int) -> Lanes:
    """Return scratch."""
    return Lanes(
        members=np.zeros((LANES + 1, -(-n_rows // LANES)), np.uint64),
        filled=np.zeros(1, np.int64),
        size=np.zeros((LANES, 2), np.int64),
        below=np.zeros((2, n_columns, LANES), np.int64),
        span=np.zeros(1, np.int64),
        listing=make_listing(n_rows, n_columns, n_ranks),
        needed=np.zeros((2, LANES), np.uint16),
        places=np.zeros(CROSSED, np.int64),
        crossed=np.zeros(CROSSED, np.uint64),
        middles=np.zeros((2, LANES), np.int64),
        at=np.zeros(LANES, np.int64),
        found=np.zeros((2, LANES), np.int64),
        before=np.zeros(LANES, np.int64),
    )


# ---------------------------------------------------------------- members


@inner
def full_or_apart(members, n_lanes):
    """Whether the lane behind the last one has no place, or shares too little with the first."""
    if n_lanes == LANES:
        return True
    n_shared, n_new = 0, 0
    for tile in range(members.shape[1]):
        n_shared += np.int64(popcount(members[0, tile] & members[n_lanes, tile]))
        n_new += np.int64(popcount(members[n_lanes, tile]))
    return APART * n_shared < n_new


@inner
def begin_lanes(members, filled):
    """Begin anew with the members behind the last lane."""
    for tile in range(members.shape[1]):
        members[0, tile] = members[filled[0], tile]
    filled[0] = 0


@inner
def mark_members(members, n_lanes, masks, possible):
    """Fill masks and possible rows from the members of all lanes."""
    everyone = ~_NONE >> np.uint64(LANES - n_lanes)
    for tile in range(possible.shape[0]):
        shared, some = ~_NONE, _NONE
        for lane in range(n_lanes):
            shared &= members[lane, tile]
            some |= members[lane, tile]
        possible[tile] = some
        word = some
        while word != _NONE:
            lane = lowest_bit(word)
            masks[tile * LANES + lane] = everyone * ((shared >> np.uint64(lane)) & _ONE)
            word &= word - _ONE
        if some == shared:
            continue
        for lane in range(n_lanes):
            word, bit = members[lane, tile] & ~shared, _ONE << np.uint64(lane)
            while word != _NONE:
                masks[tile * LANES + lowest_bit(word)] |= bit
                word &= word - _ONE


@inlined
def _pull_of(pulls, slot):
    """Pull of a row; `pulls` are empty where every row pulls 1."""
    return pulls[slot] if pulls.shape[0] > 0 else 1


# ---------------------------------------------------------------- medians


@inner
def _cross_lanes(held, listing, k, side, pending, needed, places, crossed, at):
    """at[lane] = where the row is listed with which a pending lane has what it needs."""
    step = 1 - 2 * side
    i = end = listing.ends[side]  # where the list begins
    while pending != _NONE:
        if i == end:
            end = list_more(held, listing, k, side)
        stop = i + step * min(abs(end - i), CROSSED)
        n_found = find_crossings(listing.absent, i, stop, step, needed, side, places, crossed)
        i = stop
        for j in range(n_found):
            now = crossed[j] & pending
            pending &= ~now
            while now != _NONE:
                at[lowest_bit(now)] = places[j]
                now &= now - _ONE


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
            pull = _pull_of(held.pulls, listing.listed[i])
            if side == 0 and before + pull >= need:
                return i, before + pull
            if side == 1 and before - pull < need:
                return i, before
            before += step * pull
        i += step


@inner
def _medians_of_few(held, masks, possible, lane, n_members, total, result):
    """Medians of few members, by sorting their values."""
    slots = np.empty(n_members, np.int64)
    n = 0
    for tile in range(possible.shape[0]):
        word = possible[tile]
        while word != _NONE:
            slot = tile * LANES + lowest_bit(word)
            word &= word - _ONE
            if (masks[slot] >> np.uint64(lane)) & _ONE != _NONE:
                slots[n] = slot
                n += 1
    values, pulls = np.empty(n, np.int64), np.empty(n, np.int64)
    lower, upper = (total + 1) // 2, total // 2 + 1
    for k in range(result.shape[0]):
        for i in range(n):
            value = held.coords[held.rows[slots[i]], k]
            pull = _pull_of(held.pulls, slots[i])
            j = i
            while j > 0 and values[j - 1] > value:
                values[j], pulls[j] = values[j - 1], pulls[j - 1]
                j -= 1
            values[j], pulls[j] = value, pull
        reached, i = pulls[0], 0
        while reached < lower:
            i += 1
            reached += pulls[i]
        j = i
        while reached < upper:
            j += 1
            reached += pulls[j]
        result[k] = (values[i] + values[j]) >> 1


@inner
def _all_settled(middles, below, n_lanes, k):
    """Whether both medians of every lane that walks are among the members at the bound."""
    n_open = 0
    for lane in range(n_lanes):
        n_open += np.int64(below[0, k, lane] >= middles[0, lane])
        n_open += np.int64(below[1, k, lane] < middles[1, lane])
    return n_open == 0


@inner
def _direct_lanes(needed, middles, below, alone, n_lanes, k, walking):
    """Set what lanes need to come to their lower medians from where the list begins.

    Returns which of the lanes `walking` go up and which down, the lanes with members at the bound,
    and how many members the farthest needs.
    """
    farthest, upwards, downwards, here = 0, _NONE, _NONE, _NONE
    for lane in range(n_lanes):
        lower, bit = middles[0, lane], np.uint64(lane)
        before = below[0, k, lane]
        behind = below[1, k, lane] if alone else before
        walks = (walking >> bit) & _ONE
        up, down = behind < lower, before >= lower
        upwards |= (walks * np.uint64(up)) << bit
        downwards |= (walks * np.uint64(down)) << bit
        here |= np.uint64(behind > before) << bit
        more = max(lower - behind, before - lower + 1)  # below 1 for a lane that is there
        farthest = max(farthest, more * np.int64(walks))
        # Lanes that go the other way do not come to 0 within FARTHEST members.
        needed[0, lane] = -more if up else 1
        needed[1, lane] = -more if down else 1
    return upwards, downwards, here, farthest


@inner
def _find_in_column(held, lanes, n_lanes, k, alone, walking):
    """Rows of the lower and the upper median in column k, of the lanes `walking`."""
    middles, below, at, found, listing = (
        lanes.middles,
        lanes.below,
        lanes.at,
        lanes.found,
        lanes.listing,
    )
    middle = listing.listed.shape[0] // 2
    upwards, downwards, here, farthest = _direct_lanes(
        lanes.needed, middles, below, alone, n_lanes, k, walking
    )
    listing.absent[middle] = ~here
    together = held.pulls.shape[0] == 0 and farthest < FARTHEST
    if together:
        for side in range(2):  # one after the other in so many words would be compiled twice
            pending = downwards if side else upwards
            _cross_lanes(
                held, listing, k, side, pending, lanes.needed, lanes.places, lanes.crossed, at
            )
    for lane in range(n_lanes):
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
            lanes.before[lane] = reached - _pull_of(held.pulls, listing.listed[at[lane]])
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
def _take_value(held, slot, n_lanes, k, walking, moved, first):
    """The value of one row, for all lanes that walk."""
    value = held.coords[held.rows[slot], k]
    for lane in range(n_lanes):
        if (walking >> np.uint64(lane)) & _ONE != _NONE:
            moved[first + lane, k] = value


@inner
def _take_values(held, found, n_lanes, k, walking, moved, first):
    """Midpoints of the medians found; apart from the walks, so that cache misses overlap."""
    for lane in range(n_lanes):
        if (walking >> np.uint64(lane)) & _ONE != _NONE:
            low = held.coords[held.rows[found[0, lane]], k]
            high = held.coords[held.rows[found[1, lane]], k]
            moved[first + lane, k] = (low + high) >> 1  # both are even


@inner
def _move_bound(held, lanes, k, last, bounds, counts):
    """Move the bound of column k to the lower median of the last lane, and count for that lane."""
    members, slot, before = lanes.members[last], lanes.found[0, last], lanes.before[last]
    rank, within, passed = np.int64(held.ranks[slot, k]), 0, False
    first, behind, _ = places_of(held, k, rank)
    for place in range(first, behind):
        other = np.int64(held.order[k, place])
        passed |= other == slot
        if has(members, other) != 0:
            pull = _pull_of(held.pulls, other)
            within += pull
            before -= 0 if passed else pull
    bounds[k], counts[0, k], counts[1, k] = rank, before, before + within


@inner
def _mark_rare(ranks, listing, span):
    """Mark possible rows if they are rare: where lists looked at so many rows before."""
    n_possible = 0
    for tile in range(listing.possible.shape[0]):
        n_possible += np.int64(popcount(listing.possible[tile]))
    listing.marked[0] = SPARSE * n_possible < span
    if listing.marked[0]:
        mark_spots(ranks, listing.possible, listing.spots)


@inner
def take_medians(held, bounds, counts, lanes, n_lanes, moved, first):
    """moved[first + lane] = the medians of each lane's members; it stays where there are none.

    The bounds, which all lanes were counted below, move to the medians of the last lane, and
    `counts` become its own.
    """
    listing, walking = lanes.listing, _NONE
    for lane in range(n_lanes):
        n_members, total = lanes.size[lane, 0], lanes.size[lane, 1]
        lanes.middles[0, lane], lanes.middles[1, lane] = total + 1, 0  # as if it were settled
        if n_members > FEW + held.order.shape[1] // FEW_OF:
            walking |= _ONE << np.uint64(lane)
            lanes.middles[0, lane], lanes.middles[1, lane] = (total + 1) // 2, total // 2 + 1
        elif n_members > 0:
            result = moved[first + lane]
            _medians_of_few(held, listing.masks, listing.possible, lane, n_members, total, result)
    if walking == _NONE:
        return
    _mark_rare(held.ranks, listing, lanes.span[0])
    middle, last, n_looked = listing.listed.shape[0] // 2, n_lanes - 1, 0
    moves_bound = (walking >> np.uint64(last)) & _ONE != _NONE
    for k in range(counts.shape[1]):
        n_here = begin_list(held, listing, k, np.int64(bounds[k]))
        if n_here > 0 and _all_settled(lanes.middles, lanes.below, n_lanes, k):
            _take_value(held, listing.listed[middle], n_lanes, k, walking, moved, first)
            continue
        n_looked += listing.edges[1] - listing.edges[0]
        some = _find_in_column(held, lanes, n_lanes, k, n_here > 0, walking)
        _take_values(held, lanes.found, n_lanes, k, walking, moved, first)
        n_looked += listing.edges[0] - listing.edges[1]
        if moves_bound and lanes.at[last] != middle and not (n_here > LONG and some):
            _move_bound(held, lanes, k, last, bounds, counts)
    lanes.span[0] = n_looked // counts.shape[1]
    if listing.marked[0]:
        lanes.span[0] <<= held.shift
        clear_spots(listing.spots)
