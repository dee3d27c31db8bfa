"""Compiled loops for medians where rows pull with weights: lanes walk along the list one by one."""

from __future__ import annotations

import numpy as np

from dshift.few import pull_of
from dshift.kernels import inner
from dshift.listing import list_more

_ONE = np.uint64(1)
_NONE = np.uint64(0)


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
        if (listing.present[i] >> bit) & _ONE != _NONE:
            pull = pull_of(held.pulls, listing.listed[i])
            if side == 0 and before + pull >= need:
                return i, before + pull
            if side == 1 and before - pull < need:
                return i, before
            before += step * pull
        i += step


@inner
def find_heavy(held, lanes, first, last, k, alone, walking):
    """Add up the medians of column k of the lanes `walking`.

    Returns the slot of the lower median of the last lane, or -1 where it is of the run that the
    list begins around, whether any lane's is, and the pull of the last lane's members before it.
    """
    middles, below, listing = lanes.middles, lanes.below, lanes.listing
    middle, here, some = listing.listed.shape[0] // 2, _NONE, False
    slot, pull_before = np.int64(-1), np.int64(0)
    for lane in range(first, last):
        here |= np.uint64(alone and below[lane, 1, k] > below[lane, 0, k]) << np.uint64(lane)
    listing.present[middle] = here
    for lane in range(first, last):
        bit = np.uint64(lane)
        if (walking >> bit) & _ONE == _NONE:
            continue
        lower, upper = middles[0, lane], middles[1, lane]
        before = below[lane, 0, k]
        behind = below[lane, 1, k] if alone else before
        i, reached, slot = middle, behind, np.int64(-1)
        if behind < lower or before >= lower:
            side = np.int64(before >= lower)
            counted = before if side else behind
            i, reached = _cross_lane(held, listing, k, side, lane, counted, lower)
            slot = np.int64(listing.listed[i])
            pull_before = reached - pull_of(held.pulls, slot)
        else:
            some = True
        total = held.coords[held.rows[listing.listed[i]], k]
        while reached < upper:  # the next member, whatever it pulls
            i += 1
            if i == listing.ends[0]:
                list_more(held, listing, k, np.int64(0))
            reached += np.int64((listing.present[i] >> bit) & _ONE)
        lanes.totals[lane] = total + held.coords[held.rows[listing.listed[i]], k]
    return slot, some, pull_before
