"""Compiled loops that count along a list for 64 lanes at once, where every row pulls alike.

A lane counts the members that it passes, from below 0 up, so that its medians are the rows where it
comes to 0, or to 0 and 1 if there are two. The rows where any lane does are noted with the lanes,
and their values added to these.
"""

from __future__ import annotations

import numpy as np

from dshift.kernels import inner
from dshift.listing import list_more
from dshift.simd import LANES, popcount, prefetch
from dshift.simd_counts import ROWS_CROSSED, add_to_lanes, find_crossings, lanes_less

FARTHEST = 30_000  # members that 16 bits with a sign count before they begin anew
PASSED = 2  # what a lane counts that is behind its medians
CROSSINGS = 2 * LANES  # of a column: both medians of every lane
ONE, BOTH = 0xFF, 0xFE  # marks of lanes that come to their median at 0, or to two at 0 and 1

_ONE = np.uint64(1)
_NONE = np.uint64(0)


@inner
def _begin_counting(ahead, counters, side):
    """Set what lanes count; 16 bits need not hold all of it."""
    for lane in range(LANES):
        counters[side, lane] = min(max(ahead[side, lane], -FARTHEST), PASSED)


@inner
def _end_counting(ahead, counters, side):
    """Add what lanes have counted."""
    for lane in range(LANES):
        begun = min(max(ahead[side, lane], -FARTHEST), PASSED)
        ahead[side, lane] += (np.int64(counters[side, lane]) - begun) & 0xFFFF


@inner
def _set_counters(lanes, first, last, k, alone):
    """Set by how many members lanes are before their medians where the list begins, up and down.

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


@inner
def _cross(held, lanes, k, side, n_missing, n):
    """Note the rows of a list where lanes come to medians, behind `n` others; how many then.

    `n_missing` is how often they do.
    """
    listing, counters, places, words = lanes.listing, lanes.counters, lanes.places, lanes.words
    step, n_counted = 1 - 2 * side, 0
    i = end = listing.ends[side]  # where the list begins
    while n_missing > 0:
        if i == end:
            end = list_more(held, listing, k, side)
        stop = i + step * min(abs(end - i), ROWS_CROSSED)
        found = find_crossings(
            listing.present, i, stop, step, counters, side, lanes.marks, places, words, n
        )
        n_counted += abs(stop - i)
        i = stop
        while n < found:
            n_missing -= np.int64(popcount(words[n]))
            # The values lie in rows all over the samples, and come while others are looked for.
            row = held.rows[listing.listed[places[n]]]
            prefetch(held.coords, row * held.coords.shape[1] + k)
            n += 1
        if n_counted >= FARTHEST - ROWS_CROSSED:
            _end_counting(lanes.ahead, counters, side)
            _begin_counting(lanes.ahead, counters, side)
            n_counted = 0
    return n


@inner
def _row_of_lane(places, words, n, lane, upwards):
    """Where the row is listed that is the lower median of a lane, which is not in the run."""
    found = np.int64(0)
    for i in range(2, n):
        if (words[i] >> np.uint64(lane)) & _ONE != _NONE:
            found = places[i]
            if upwards:
                break
    return found


@inner
def find_together(held, lanes, first, last, k, alone, value, walking, even):
    """Add up the medians of column k of all lanes `walking`, of which `even` have two each.

    The list begins around a run of that value. Returns the slot of the lower median of the last
    lane, or -1 where it is of the run, and whether any lane's is.
    """
    listing, places, words, values = lanes.listing, lanes.places, lanes.words, lanes.values
    _set_counters(lanes, first, last, k, alone)
    above, here_or_above = lanes_less(lanes.counters, 0, 0), lanes_less(lanes.counters, 0, 1) & even
    under, here_or_under = lanes_less(lanes.counters, 1, 0), lanes_less(lanes.counters, 1, 1) & even
    words[0] = walking & ~(above | under | here_or_under)
    words[1] = even & ~(above | here_or_above | under)
    values[0] = values[1] = value
    n = np.int64(2)
    for side in range(2):  # one after the other in so many words would be compiled twice
        one, other = (under, here_or_under) if side else (above, here_or_above)
        n_missing = np.int64(popcount(one)) + np.int64(popcount(other))
        n = _cross(held, lanes, k, side, n_missing, n)
    for i in range(2, n):
        values[i] = held.coords[held.rows[listing.listed[places[i]]], k]
    for lane in range(LANES):
        lanes.totals[lane] = 0
    add_to_lanes(values, words, n, lanes.totals)
    bit = np.uint64(last - 1)
    if (words[0] >> bit) & _ONE != _NONE:
        return np.int64(-1), True
    upwards = (above >> bit) & _ONE != _NONE
    place = _row_of_lane(places, words, n, last - 1, upwards)
    return np.int64(listing.listed[place]), words[0] != _NONE
