"""Compiled loops that order points by halves, and nothing else.

A segment of points is halved between two of them that are far apart. Distances are those of narrow
*codes*, coordinates without their lowest bits: an order decides how long a step takes, and nothing
else. A *tree* is such halvings of some of the points, down which the others can be sent.
"""

from __future__ import annotations

import numpy as np

from dshift.kernels import inner, jit
from dshift.simd import CODES_AT_ONCE
from dshift.simd_distances import l1_of_rows

SAMPLED = 64  # points among which two far ones are looked for
MIXER = np.uint64(0x9E3779B97F4A7C15)  # takes the numbers of rows apart

_CODE_BITS = 15  # and fewer for many columns,
_SUM_BITS = 16  # since these hold the sum of all vectors of a row: 32 bits took 1.6 times as long


# ---------------------------------------------------------------- codes


@inner
def _padded(n_columns):
    """Length of a code, with zeros behind the last column."""
    return max(n_columns + CODES_AT_ONCE - 1, CODES_AT_ONCE) // CODES_AT_ONCE * CODES_AT_ONCE


@jit
def scale(points):
    """Origin of the codes, and how many bits coordinates have too many."""
    n_columns = points.shape[1]
    lows, highs = np.zeros(n_columns, np.int64), np.zeros(n_columns, np.int64)
    for k in range(n_columns if points.shape[0] > 0 else 0):
        lows[k] = highs[k] = points[0, k]
    for i in range(points.shape[0]):
        for k in range(n_columns):
            lows[k], highs[k] = min(lows[k], points[i, k]), max(highs[k], points[i, k])
    widest = np.int64(0)
    for k in range(n_columns):
        widest = max(widest, highs[k] - lows[k])
    shift, bits = 0, _CODE_BITS
    while bits > 1 and (_padded(n_columns) // CODES_AT_ONCE) << bits > 1 << _SUM_BITS:
        bits -= 1
    while widest >> shift >> bits > 0:
        shift += 1
    return lows, shift


@inner
def _narrow(point, lows, shift, code):
    """The code of a point."""
    for k in range(point.shape[0]):
        code[k] = np.uint64(point[k] - lows[k]) >> np.uint64(shift)


@inner
def _narrow_rows(points, rows, lows, shift, codes):
    """Codes of some of the points."""
    for i in range(rows.shape[0]):
        _narrow(points[rows[i]], lows, shift, codes[i])


# ---------------------------------------------------------------- halves


@inner
def _far_pair(codes, order, start, stop):
    """Two far codes of a segment: the farthest from anything, and the farthest from that."""
    stride = max(1, (stop - start) // SAMPLED)
    other = one = order[start]
    for _ in range(2):
        far, farthest = one, np.int64(-1)
        for i in range(start, stop, stride):
            away = l1_of_rows(codes, one, codes, order[i])
            if away > farthest:
                far, farthest = order[i], away
        other, one = one, far
    return other, one


@inner
def _select(keys, order, start, middle, stop):
    """Reorder so that keys before `middle` are no larger than those after (quickselect)."""
    low, high = start, stop - 1
    while low < high:
        pivot = keys[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while keys[i] < pivot:
                i += 1
            while keys[j] > pivot:
                j -= 1
            if i <= j:
                keys[i], keys[j] = keys[j], keys[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@inner
def _halve(codes, order, keys, start, middle, stop):
    """Reorder a segment so that its halves are apart, and return what they are nearest to."""
    one, other = _far_pair(codes, order, start, stop)
    for i in range(start, stop):
        keys[i] = l1_of_rows(codes, order[i], codes, one) - l1_of_rows(
            codes, order[i], codes, other
        )
    _select(keys, order, start, middle, stop)
    return one, other


@jit
def order_segment(points, rows, lows, shift, whole, leaf_size):
    """Put some of the points in order, in place, down to leaves.

    Halves of more than `whole` points are made of so many: whoever looks at `whole` points at a
    time then looks at a cluster, and not at the end of one and the beginning of another.
    """
    n = rows.shape[0]
    codes = np.zeros((rows.shape[0], _padded(points.shape[1])), np.uint16)
    _narrow_rows(points, rows, lows, shift, codes)
    order, keys = np.arange(n), np.empty(n, np.int64)
    stack = np.empty((128, 2), np.int64)
    stack[0, 0], stack[0, 1], depth = 0, n, 1
    while depth > 0:
        depth -= 1
        start, stop = stack[depth, 0], stack[depth, 1]
        if stop - start <= leaf_size:
            continue
        size = whole if stop - start > whole else leaf_size
        middle = start + (stop - start + size - 1) // size // 2 * size
        _halve(codes, order, keys, start, middle, stop)
        stack[depth, 0], stack[depth, 1] = start, middle
        stack[depth + 1, 0], stack[depth + 1, 1] = middle, stop
        depth += 2
    for i in range(n):
        order[i] = rows[order[i]]
    for i in range(n):
        rows[i] = order[i]


# ---------------------------------------------------------------- a tree


@jit
def grow_tree(points, rows, lows, shift, depth):
    """The far pair of every node, and the least key of its right half.

    Nodes are numbered from 1, level by level: node i has the halves 2 i and 2 i + 1.
    """
    codes = np.zeros((rows.shape[0], _padded(points.shape[1])), np.uint16)
    _narrow_rows(points, rows, lows, shift, codes)
    order, keys = np.arange(rows.shape[0]), np.empty(rows.shape[0], np.int64)
    pairs = np.empty((2 << depth, codes.shape[1]), np.uint16)
    bounds = np.empty(1 << depth, np.int64)
    ends = np.empty((2 << depth, 2), np.int64)
    ends[1, 0], ends[1, 1] = 0, rows.shape[0]
    for node in range(1, 1 << depth):
        start, stop = ends[node, 0], ends[node, 1]
        middle = (start + stop) // 2
        one, other = _halve(codes, order, keys, start, middle, stop)
        for k in range(codes.shape[1]):
            pairs[2 * node, k], pairs[2 * node + 1, k] = codes[one, k], codes[other, k]
        bounds[node] = keys[middle]
        for i in range(middle, stop):
            bounds[node] = min(bounds[node], keys[i])
        ends[2 * node, 0], ends[2 * node, 1] = start, middle
        ends[2 * node + 1, 0], ends[2 * node + 1, 1] = middle, stop
    return pairs, bounds


@jit
def send_down(points, first, last, lows, shift, pairs, bounds, leaf_of):
    """leaf_of[i] = the leaf of a tree where point i ends, for first <= i < last."""
    n_nodes = bounds.shape[0]
    code = np.zeros((1, _padded(points.shape[1])), np.uint16)
    for i in range(first, last):
        _narrow(points[i], lows, shift, code[0])
        # Points on a bound, which may be all there are, go either way.
        coins, node = np.uint64(i) * MIXER, 1
        while node < n_nodes:
            key = l1_of_rows(code, 0, pairs, 2 * node) - l1_of_rows(code, 0, pairs, 2 * node + 1)
            coins <<= np.uint64(1)
            right = key > bounds[node] or (key == bounds[node] and coins >> np.uint64(63) > 0)
            node = 2 * node + (1 if right else 0)
        leaf_of[i] = node - n_nodes
