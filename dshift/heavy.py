"""Compiled loops for medians where rows pull with weights: lanes walk along rows one by one."""

from __future__ import annotations

import numpy as np

from dshift.columns import slot_at
from dshift.few import pull_of
from dshift.kernels import inlined, inner
from dshift.listing import list_more, rows_of

_ONE = np.uint64(1)
_NONE = np.uint64(0)


@inlined
def _slot_at(rows, place):
    return slot_at(rows.slots, rows.slot_bytes, rows.column, place)


@inlined
def _cross_lane(held, listing, k, side, lane, before, need):
    """The place of the row with which the pull of a lane's members reaches `need`.

    `before` is their pull before the first place on that side. Returns the place, and the pull with
    that row.
    """
    bit, step = np.uint64(lane), 1 - 2 * side
    rows, i = rows_of(held, listing, k), listing.starts[side]
    while True:
        if i == listing.ends[side]:
            list_more(held, listing, k, side)
        slot = _slot_at(rows, i)
        if (listing.masks[slot] >> bit) & _ONE != _NONE:
            pull = pull_of(held.pulls, slot)
            if side == 0 and before + pull >= need:
                return i, before + pull
            if side == 1 and before - pull < need:
                return i, before
            before += step * pull
        i += step


@inner
def find_heavy(held, lanes, first, last, k, alone, run, walking):
    """Add up the medians of column k of the lanes `walking`.

    `run` is the first place of the run that what is looked at begins around. Returns the slot of
    the lower median of the last lane, or -1 where it is of that run, whether any lane's is, and the
    pull of the last lane's members before it.
    """
    middles, below, listing = lanes.middles, lanes.below, lanes.listing
    marked, rows = listing.marked[0], rows_of(held, listing, k)
    # In a list one row stands for the run, for lanes that have members in it.
    middle = listing.starts[0] - 1 if marked else np.int64(-1)
    value_place = middle if marked else np.int64(run)
    some, slot, pull_before = False, np.int64(-1), np.int64(0)
    for lane in range(first, last):
        bit = np.uint64(lane)
        if (walking >> bit) & _ONE == _NONE:
            continue
        lower, upper = middles[0, lane], middles[1, lane]
        before = below[lane, 0, k]
        behind = below[lane, 1, k] if alone else before
        place, i, reached, slot = value_place, listing.starts[0] - 1, behind, np.int64(-1)
        if behind < lower or before >= lower:
            side = np.int64(before >= lower)
            counted = before if side else behind
            i, reached = _cross_lane(held, listing, k, side, lane, counted, lower)
            place, slot = i, _slot_at(rows, i)
            pull_before = reached - pull_of(held.pulls, slot)
        else:
            some = True
        total = held.coords[held.rows[_slot_at(rows, place)], k]
        while reached < upper:  # the next member, whatever it pulls
            i += 1
            if i == listing.ends[0]:
                list_more(held, listing, k, np.int64(0))
            if i == middle:
                reached += np.int64(behind > before)
            else:
                reached += np.int64((listing.masks[_slot_at(rows, i)] >> bit) & _ONE)
            place = i
        if not marked:
            listing.edges[0] = max(listing.edges[0], i + 1)
            listing.edges[1] = min(listing.edges[1], i - 1)
        lanes.totals[lane] = total + held.coords[held.rows[_slot_at(rows, place)], k]
    return slot, some, pull_before
