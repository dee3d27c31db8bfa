"""Compiled loops that count row by row for 64 lanes at once, where every row pulls alike.

A lane counts the members that it passes, from below 0 up, so that its medians are the rows where it
comes to 0, or to 0 and 1 if there are two. The rows where any lane does are noted with the lanes,
and their values added to these.
"""

from __future__ import annotations

import numpy as np

from dshift.kernels import inlined
from dshift.listing import list_more, rows_of
from dshift.simd import LANES, popcount
from dshift.simd_lanes import ROWS_CROSSED, find_crossings, lanes_less
from dshift.simd_notes import NOTE_BITS, add_to_lanes, note_crossings

FARTHEST = 30_000  # members that 16 bits with a sign count before they begin anew
PASSED = 2  # what a lane counts that is behind its medians
CROSSINGS = 2 * LANES  # of a column: both medians of every lane
NOTED = (1 << NOTE_BITS) - 1
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
def _cross(held, lanes, k, side, n_missing, n, watched):
    """Note the rows where lanes come to medians, behind `n` others; how many then.

    `n_missing` is how often they do. Where the lower median of the lane `watched` is among them, it
    is found.
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
        told = note_crossings(
            rows.slots,
            rows.slot_bytes,
            rows.column,
            i,
            step,
            crossed,
            n_rows,
            held.rows,
            held.coords,
            k,
            notes,
            n,
            watched,
            side == 0,
            lanes.found,
        )
        n += told & NOTED
        n_missing -= told >> NOTE_BITS
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
def find_together(held, lanes, first, last, k, alone, run, walking, even):
    """Add up the medians of column k of all lanes `walking`, of which `even` have two each.

    What is looked at begins around the run of the slot `run`. Returns the slot of the lower median
    of the last lane, or -1 where it is of the run, and whether any lane's is.
    """
    notes, watched = lanes.notes, _ONE << np.uint64(last - 1)
    _set_counters(lanes, first, last, k, alone)
    above, here_or_above = lanes_less(lanes.counters, 0, 0), lanes_less(lanes.counters, 0, 1) & even
    under, here_or_under = lanes_less(lanes.counters, 1, 0), lanes_less(lanes.counters, 1, 1) & even
    notes[0, 0] = notes[1, 0] = held.rows[run]
    notes[0, 1] = walking & ~(above | under | here_or_under)
    notes[1, 1] = even & ~(above | here_or_above | under)
    n, lanes.found[0] = np.int64(2), -1
    for side in range(2):  # one after the other in so many words would be compiled twice
        one, other = (under, here_or_under) if side else (above, here_or_above)
        n_missing = np.int64(popcount(one)) + np.int64(popcount(other))
        with_lower = under | here_or_under if side else above
        n = _cross(held, lanes, k, side, n_missing, n, watched & with_lower)
    add_to_lanes(held.coords, k, notes, n, lanes.totals)
    return lanes.found[0], notes[0, 1] != _NONE
