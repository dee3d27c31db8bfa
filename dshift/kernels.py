"""Compiled loops, and nothing else.

Every kernel releases the GIL and runs on one thread: the thread pool or Dask owns the parallelism.
No `fastmath`: integer sums are exact in any order, and float sums are taken in the order written.

Numba's cache knows the date of a function's own file, not of the files that it calls: while working
on compiled code, clear it (`find dshift -name '*.nb?' -delete`).
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

# Of the three kinds of compiled functions, only `jit` may be called from Python. The others have no
# way in from there, which halves what is compiled for them and, with ours, a third of the time of
# the first fit; a call from Python crashes the process, so a test looks for such calls.
_HOW: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy", "boundscheck": False}
# Nor do the others count references to arrays: numba does so atomically, at 20 cycles apiece, for
# every array that is taken from a tuple and every row of one, which were 30 % of a fit. So they
# cannot make arrays (numba refuses to compile that), and work on those that they are passed.
_COMPILED_ALONE = {"no_cfunc_wrapper": True, "no_cpython_wrapper": True, "_nrt": False}
jit = numba.njit(**_HOW, no_cfunc_wrapper=True)
inner = numba.njit(**_HOW, **_COMPILED_ALONE)
# For the innermost loops: passing arrays to a function that is not inlined costs more than it does.
inlined = numba.njit(**_HOW, **_COMPILED_ALONE, forceinline=True)


@jit
def divide_rows(
    values: Any, cumulate: bool, shares: Any, valid: Any, whole: Any, totals: Any, exponents: Any
) -> None:
    """Divide each row of `values` (n, m) by its total, cumulated if asked, into `shares` (n, p).

    The total is `totals` times two to the power of `exponents`; `whole` are rows of whole numbers.
    Rows that are not `valid` become zeros.
    """
    bits = values.view(np.int64)  # in the order of the values, where those are positive
    for i in range(values.shape[0]):
        n_odd, n_broken, highest = 0, 0, np.int64(0)
        for k in range(values.shape[1]):
            value = values[i, k]
            n_odd += np.int64(value >= 0.0) & np.int64(value < np.inf) ^ 1
            n_broken += np.int64(value != np.rint(value))
            highest = max(highest, bits[i, k])
        valid[i] = n_odd == 0 and highest > 0
        whole[i] = valid[i] and n_broken == 0
        totals[i], exponents[i] = 1.0, 0
        if not valid[i]:
            shares[i, :] = 0.0
            continue
        # A power of two takes each row near 1, so that neither 1e300 nor 1e-320 can spoil a sum.
        # The second factor is 1 but where a float64 cannot hold the first one alone.
        exponent = math.frexp(np.int64(highest).view(np.float64))[1]
        first = min(-exponent, 1000)
        factor, rest = math.ldexp(1.0, first), math.ldexp(1.0, -exponent - first)
        total = -0.0  # added to anything, it changes nothing
        for k in range(shares.shape[1]):  # from left to right
            value = values[i, k] * factor * rest
            total += value
            shares[i, k] = total if cumulate else value
        for k in range(shares.shape[1], values.shape[1]):
            total += values[i, k] * factor * rest
        totals[i], exponents[i] = total, exponent
        for k in range(shares.shape[1]):
            shares[i, k] /= total


@jit
def place_shares(bits: Any, ratios: Any, grid: float) -> None:
    """Turn shares (n, p), given as the bits of float64, into points on the grid, in place.

    Twice a whole number, so that the midpoint of two coordinates is whole too. `ratios` (p,) scale
    the columns, unless they are empty.
    """
    for i in range(bits.shape[0]):
        for k in range(bits.shape[1]):
            share = np.int64(bits[i, k]).view(np.float64)
            if ratios.shape[0] > 0:
                share *= ratios[k]
            bits[i, k] = 2 * np.int64(np.rint(share * grid))


@jit
def hash_rows(bits: Any, hashes: Any) -> None:
    """Hash each row of `bits` (n, p) into `hashes` (n,): entries mixed with their places, twice.

    Not against forgery, but no change that happens by itself leaves it as it was. Sums need no
    entry to wait for the one before it: it takes a tenth of the time of a cryptographic hash.
    """
    for i in range(bits.shape[0]):
        total = np.uint64(0)
        for k in range(bits.shape[1]):
            mixed = np.uint64(bits[i, k]) ^ (np.uint64(k + 1) * np.uint64(0x9E3779B97F4A7C15))
            mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xC4CEB9FE1A85EC53)
            total += mixed ^ (mixed >> np.uint64(32))
        hashes[i] = total


@inner
def code_distance(left: Any, right: Any) -> Any:
    """L1 distance of two codes (p,) uint16, as int64."""
    total = np.uint32(0)
    for k in range(left.shape[0]):  # differences in 16 bits: twice as many at a time
        away = np.uint16(max(left[k], right[k]) - min(left[k], right[k]))
        total = np.uint32(total + np.uint32(away))
    return np.int64(total)


@jit
def l1_distances(x: Any, points: Any, out: Any) -> None:
    """Distance from `x` (p,) to each row of `points` (n, p), into `out` (n,); int64."""
    for i in range(points.shape[0]):
        total = 0
        for k in range(points.shape[1]):
            total += abs(points[i, k] - x[k])
        out[i] = total


@jit
def squared_distances(x: Any, points: Any, out: Any) -> None:
    """Squared Euclidean distance from `x` to each row, coordinates added from left to right."""
    for i in range(points.shape[0]):
        total = 0.0
        for k in range(points.shape[1]):
            difference = points[i, k] - x[k]
            total += difference * difference
        out[i] = total


@jit
def weighted_medians(points: Any, active: Any, pulls: Any, out: Any) -> None:
    """Weighted median of each coordinate over the rows `active`, into `out` (p,); int64.

    The midpoint of the lower and the upper median, which is exact for even coordinates.
    """
    values = np.empty(active.size, np.int64)
    total = 0
    for row in active:
        total += pulls[row]
    for k in range(points.shape[1]):
        for j in range(active.size):
            values[j] = points[active[j], k]
        order = np.argsort(values)
        reached = 0
        j = 0
        while True:
            reached += pulls[active[order[j]]]
            if reached >= total - reached:
                break
            j += 1
        lower = values[order[j]]
        if reached == total - reached:
            j += 1
        out[k] = (lower + values[order[j]]) // 2


@jit
def means(points: Any, active: Any, pulls: Any, out: Any) -> None:
    """Weighted mean of the rows `active`, added in their order, into `out` (p,); float64."""
    total = 0.0
    out[:] = 0.0
    for row in active:
        total += pulls[row]
        for k in range(points.shape[1]):
            out[k] += pulls[row] * points[row, k]
    for k in range(points.shape[1]):
        out[k] /= total


@jit
def density_limbs(distances: Any, reach: Any, pulls: Any) -> Any:
    """Return the sums of pull * distance, in eight limbs, and of pulls over the rows in reach.

    Pulls have up to 62 bits and distances 53, so the products are split into halves (31 and 27
    bits) and each half-product into words of 32 bits, whose sums cannot overflow below 2**31 rows.
    """
    limbs = np.zeros(8, np.int64)
    total_pull = 0
    for i in range(distances.size):
        away = distances[i]
        if away < reach[i]:
            total_pull += pulls[i]
            pull_high, pull_low = pulls[i] >> 31, pulls[i] & 0x7FFFFFFF
            away_high, away_low = away >> 27, away & 0x7FFFFFF
            limbs[0] += (pull_low * away_low) & 0xFFFFFFFF
            limbs[1] += (pull_low * away_low) >> 32
            limbs[2] += (pull_low * away_high) & 0xFFFFFFFF
            limbs[3] += (pull_low * away_high) >> 32
            limbs[4] += (pull_high * away_low) & 0xFFFFFFFF
            limbs[5] += (pull_high * away_low) >> 32
            limbs[6] += (pull_high * away_high) & 0xFFFFFFFF
            limbs[7] += (pull_high * away_high) >> 32
    return limbs, total_pull


def join_limbs(limbs: Any) -> int:
    """Return the whole number that `density_limbs` has split."""
    shifts = (0, 32, 27, 59, 31, 63, 58, 90)
    return sum(int(limb) << shift for limb, shift in zip(limbs, shifts, strict=True))
