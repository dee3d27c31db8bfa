"""Compiled loops that count row by row for 64 lanes at once, where every row pulls alike.

A lane counts the members that it passes, from below 0 up, so that its medians are the rows where it
comes to 0, or to 0 and 1 if there are two. The rows where any lane does are noted with the lanes,
and their values added to these.
"""

from __future__ import annotations

import numpy as np

from dshift.columns import slot_at
from dshift.kernels import inlined
from dshift.listing import list_more, rows_of
from dshift.simd import LANES, lowest_bit, popcount, prefetch
from dshift.simd_lanes import ROWS_CROSSED, add_to_lanes, find_crossings, lanes_less, which_set

FARTHEST = 30_000  # members that 16 bits with a sign count before they begin anew
PASSED = 2  # what a lane counts that is behind its medians
CROSSINGS = 2 * LANES  # of a column: both medians of every lane
ONE, BOTH = 0xFF, 0xFE  # marks of lanes that come to their median at 0, or to two at 0 and 1

_ONE = np.uint64(1)
_NONE = np.uint64(0)


@inlined
def _begin_counting(ahead, counters, side):
    """Set what lanes count; 16 bits need not hold all of it."""
    for lane in range(LANES):
        counters[side, lane] = min(max(ahead[side, lane], -FARTHEST), PASSED)


@inlined
def _end_counting(ahead, counters, side):
    """Add what lanes have counted."""
    for lane in range(LANES):
        begun = min(max(ahead[side, lane], -FARTHEST), PASSED)
        ahead[side, lane] += (np.int64(counters[side, lane]) - begun) & 0xFFFF


@inlined
def _set_counters(lanes, first, last, k, alone):
    """Set by how many members lanes are before their medians at the first place, up and down.

    Upwards a lane comes to its lower median at 0, and to the upper one, if that is another, at 1;
    downwards to the upper one at 0 and to the lower one at 1.
    """
    below, middles, ahead, aside = lanes.below, lanes.middles, lanes.ahead, lanes.aside
    at = 1 if alone else 0
    for lane in range(first, last):
        ahead[0, lane] = below[lane, at, k] - middles[0, lane] + aside[lane]
        ahead[1, lane] = middles[1, lane] - 1 - below[lane, 0, k] + aside[lane]
    _begin_counting(ahead, lanes.counters, 0)
    _begin_counting(ahead, lanes.counters, 1)


@inlined
def _cross(held, lanes, k, side, n_missing, n):
    """Note the rows where lanes come to medians, behind `n` others; how many then.

    `n_missing` is how often they do.
    """
    listing, counters, crossed, notes = lanes.listing, lanes.counters, lanes.crossed, lanes.notes
    rows = rows_of(held, listing, k)
    step, n_counted = 1 - 2 * side, 0
    i, end = listing.starts[side], listing.ends[side]
    while n_missing > 0:
        if i == end:
            end = list_more(held, listing, k, side)
        n_rows = min(abs(end - i), ROWS_CROSSED)
        find_crossings(
            rows.slots,
            rows.slot_bytes,
            rows.column,
            i,
            i + step * n_rows,
            step,
            listing.masks,
            counters,
            side,
            lanes.marks,
            crossed,
        )
        near, far = which_set(crossed, 0), which_set(crossed, LANES)
        near &= ~_NONE >> np.uint64(max(LANES - n_rows, 0))
        far &= (_ONE << np.uint64(max(n_rows - LANES, 0))) - _ONE
        # One loop over both words: where it ends is foreseen wrongly as a rule.
        for _ in range(popcount(near) + popcount(far)):
            is_far = near == _NONE
            at = lowest_bit(far if is_far else near) + (LANES if is_far else 0)
            far &= far - _ONE if is_far else ~_NONE
            near &= near - _ONE
            lanes_there = crossed[at]
            n_missing -= np.int64(popcount(lanes_there))
            slot = slot_at(rows.slots, rows.slot_bytes, rows.column, i + step * at)
            notes[n, 0], notes[n, 1] = slot, lanes_there
            # The values lie in rows all over the samples, and come while others are looked for.
            prefetch(held.coords, held.rows[slot] * held.coords.shape[1] + k)
            n += 1
        i += step * n_rows
        n_counted += n_rows
        if n_counted >= FARTHEST - ROWS_CROSSED:
            _end_counting(lanes.ahead, counters, side)
            _begin_counting(lanes.ahead, counters, side)
            n_counted = 0
    if not listing.marked[0]:
        listing.edges[side] = i
    return n


@inlined
def _slot_of_lane(notes, n, lane, upwards):
    """The slot of the row that is the lower median of a lane, which is not in the run."""
    found = _NONE
    for i in range(2, n):
        if (notes[i, 1] >> np.uint64(lane)) & _ONE != _NONE:
            found = notes[i, 0]
            if upwards:
                break
    return np.int64(found)


@inlined
def find_together(held, lanes, first, last, k, alone, run, walking, even):
    """Add up the medians of column k of all lanes `walking`, of which `even` have two each.

    What is looked at begins around the run of the slot `run`. Returns the slot of the lower median
    of the last lane, or -1 where it is of the run, and whether any lane's is.
    """
    notes = lanes.notes
    _set_counters(lanes, first, last, k, alone)
    above, here_or_above = lanes_less(lanes.counters, 0, 0), lanes_less(lanes.counters, 0, 1) & even
    under, here_or_under = lanes_less(lanes.counters, 1, 0), lanes_less(lanes.counters, 1, 1) & even
    notes[0, 0] = notes[1, 0] = run
    notes[0, 1] = walking & ~(above | under | here_or_under)
    notes[1, 1] = even & ~(above | here_or_above | under)
    n = np.int64(2)
    for side in range(2):  # one after the other in so many words would be compiled twice
        one, other = (under, here_or_under) if side else (above, here_or_above)
        n_missing = np.int64(popcount(one)) + np.int64(popcount(other))
        n = _cross(held, lanes, k, side, n_missing, n)
    add_to_lanes(held.coords, held.rows, k, notes, n, lanes.totals)
    bit = np.uint64(last - 1)
    if (notes[0, 1] >> bit) & _ONE != _NONE:
        return np.int64(-1), True
    upwards = (above >> bit) & _ONE != _NONE
    return _slot_of_lane(notes, n, last - 1, upwards), notes[0, 1] != _NONE
