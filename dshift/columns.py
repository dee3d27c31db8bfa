"""Compiled loops that sort the columns of the samples once, so that medians are found by counting.

`order[k]` lists the rows by their value in column k; `ranks[row]` has a row's places in all of
these lists, side by side: one pass over a row compares it with the medians of all columns.
"""

from __future__ import annotations

import numpy as np

from dshift.kernels import inner, jit

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS


@inner
def _sort_by_digit(keys, places, lowest, starts, sorted_keys, sorted_places):
    """One pass of a stable radix sort; False where all keys have the same digit."""
    n = keys.shape[0]
    starts[:] = 0
    for i in range(n):
        starts[(keys[i] >> lowest) & (_DIGITS - 1)] += 1
    place = 0
    for digit in range(_DIGITS):
        count = starts[digit]
        if count == n:
            return False
        starts[digit] = place
        place += count
    for i in range(n):
        digit = (keys[i] >> lowest) & (_DIGITS - 1)
        sorted_keys[starts[digit]] = keys[i]
        sorted_places[starts[digit]] = places[i]
        starts[digit] += 1
    return True


@jit
def sort_columns(coords, rows, lows, divisor, first, last, shift, order, ranks):
    """Fill order[k] and ranks[:, k] for columns first <= k < last; ties keep the rows' order.

    Keys are values above `lows`, of which `divisor` is a common divisor. A rank is a place in the
    list without its lowest `shift` bits. Radix sort: keys of few values take one pass, and no
    distribution of values takes more than five.
    """
    n = rows.shape[0]
    keys, other_keys = np.empty(n, np.int64), np.empty(n, np.int64)
    places, other_places = np.empty(n, np.int64), np.empty(n, np.int64)
    starts = np.empty(_DIGITS, np.int64)
    for k in range(first, last):
        largest = 0
        for slot in range(n):
            keys[slot] = (coords[rows[slot], k] - lows[k]) // divisor
            places[slot] = slot
            largest = max(largest, keys[slot])
        lowest = 0
        while largest >> lowest > 0:
            if _sort_by_digit(keys, places, lowest, starts, other_keys, other_places):
                keys, other_keys = other_keys, keys
                places, other_places = other_places, places
            lowest += _DIGIT_BITS
        for place in range(n):
            slot = places[place]
            order[k, place] = slot
            ranks[slot, k] = place >> shift
