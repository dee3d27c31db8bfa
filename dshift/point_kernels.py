"""Compiled loops that find points by value in a table, and nothing else."""

from __future__ import annotations

import numpy as np

from dshift.kernels import inlined, inner, jit

EMPTY = np.uint64(2**64 - 1)  # an entry of a table: there are fewer than 2**32 points

_ONE = np.uint64(1)
_ID_BITS = np.uint64(32)
_ID = np.uint64(2**32 - 1)


@inner
def _hash(point):
    """Mix each coordinate with its place, then add: no step waits for the one before it.

    A chain of multiplications took nine times as long for 136 coordinates.
    """
    total = np.uint64(0)
    for k in range(point.shape[0]):
        mixed = np.uint64(point[k]) ^ (np.uint64(k + 1) * np.uint64(0x9E3779B97F4A7C15))
        mixed *= np.uint64(0xFF51AFD7ED558CCD)
        total += mixed ^ (mixed >> np.uint64(32))
    total *= np.uint64(0xFF51AFD7ED558CCD)
    return total ^ (total >> np.uint64(32))


@inner
def _same(left, right):
    """Equality of two points."""
    for k in range(left.shape[0]):
        if left[k] != right[k]:
            return False
    return True


@inlined
def _is_at(entry, hashed, stored, point):
    """Whether an entry of a table is that of a point: seldom does another one have its tag."""
    return (entry >> _ID_BITS) == (hashed >> _ID_BITS) and _same(stored[entry & _ID], point)


@jit
def find_points(points, stored, table, ids):
    """ids[j] = place of points[j] in `stored`, or -1.

    An entry of the table is the place of a point, and above it the upper half of its hash: to look
    at a point that is not the one sought takes longer than all the rest.
    """
    mask = np.uint64(table.shape[0] - 1)
    for j in range(points.shape[0]):
        hashed = _hash(points[j])
        at = hashed & mask
        ids[j] = -1
        while table[at] != EMPTY:
            if _is_at(table[at], hashed, stored, points[j]):
                ids[j] = np.int64(table[at] & _ID)
                break
            at = (at + _ONE) & mask


@jit
def store_points(points, stored, n_stored, table, ids):
    """Like find_points, but appends what is new, for which there is room; how many are stored."""
    mask = np.uint64(table.shape[0] - 1)
    for j in range(points.shape[0]):
        hashed = _hash(points[j])
        at = hashed & mask
        while table[at] != EMPTY and not _is_at(table[at], hashed, stored, points[j]):
            at = (at + _ONE) & mask
        if table[at] == EMPTY:
            table[at] = (hashed >> _ID_BITS << _ID_BITS) | np.uint64(n_stored)
            for k in range(points.shape[1]):  # assigning the row costs 2.5 s of compilation
                stored[n_stored, k] = points[j, k]
            n_stored += 1
        ids[j] = np.int64(table[at] & _ID)
    return n_stored
