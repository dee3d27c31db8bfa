"""Compiled loops, and nothing else.

Every kernel releases the GIL and runs on one thread: the thread pool or Dask owns the parallelism.
No `fastmath`: integer sums are exact in any order, and float sums are taken in the order written.

Numba's cache knows the date of a function's own file, not of the files that it calls: while working
on compiled code, clear it (`find dshift -name '*.nb?' -delete`).
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

jit = numba.njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)

BUFFERED = 512  # entries of a table that are found before they are counted


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


@jit
def column_of(
    value: Any, n_bins: Any, first: Any, last: Any, scale: Any, low: Any, bound: Any
) -> Any:
    """Return the column of a table in which a float64 value counts; `Finder` has the arguments.

    Unsigned, since the wrapping of negative indices took half of the time.
    """
    if value >= first and value <= last:
        cell = np.uint64((value - first) * scale)
        if low is None:  # cells are bins
            return min(cell, np.uint64(n_bins - 1))
        return np.uint64(low[cell]) + np.uint64(value >= bound[cell])
    if value < first:
        return np.uint64(n_bins)
    return np.uint64(n_bins + 1) if value > last else np.uint64(n_bins + 2)


@jit
def add_weight(row: Any, column: Any, n_bins: Any, weight: Any) -> Any:
    """Add a weight to a row of a table; return 1 if it is none that can be added."""
    if column < n_bins:
        row[column] += weight
    else:
        row[column] += 1
        if column == n_bins + 2:
            return 0
        row[column + np.uint64(3)] += weight
    return 0 if 0 <= weight < np.inf else 1


@jit
def count_lines(
    values: Any,
    weights: Any,
    n_bins: Any,
    tile: Any,
    first: Any,
    last: Any,
    scale: Any,
    low: Any,
    bound: Any,
    table: Any,
) -> Any:
    """Count `values` (outer, n, inner) into `table` (outer, inner, columns); return bad weights.

    The counts of `tile` inner samples are filled at a time, so that they stay in the cache.
    """
    n_bad = 0
    for i in range(values.shape[0]):
        if values.shape[2] == 1:
            line, row = values[i, :, 0], table[i, 0]
            for j in range(line.size):
                column = column_of(np.float64(line[j]), n_bins, first, last, scale, low, bound)
                if weights is None:
                    row[column] += 1
                else:
                    n_bad += add_weight(row, column, n_bins, weights[i, j, 0])
            continue
        for start in range(0, values.shape[2], tile):
            rows = table[i, start : start + tile]
            for j in range(values.shape[1]):
                line = values[i, j, start : start + tile]
                for k in range(line.size):
                    column = column_of(np.float64(line[k]), n_bins, first, last, scale, low, bound)
                    if weights is None:
                        rows[k, column] += 1
                    else:
                        n_bad += add_weight(rows[k], column, n_bins, weights[i, j, start + k])
    return n_bad


@jit
def count_rows(
    labels: Any,
    lowest: Any,
    places: Any,
    values: Any,
    weights: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    low: Any,
    bound: Any,
    table: Any,
) -> Any:
    """Count `values` (n,) into the rows of `table` that `_grouped` gives; return bad weights.

    Entries are found in one loop and counted in another: in a short loop, the processor fetches
    many of a large table at once. One loop took twice as long for 100,000 samples, and no less for
    1,000.
    """
    n_bad = 0
    flat, width = table.reshape(-1), np.uint64(table.shape[1])
    entries = np.empty(BUFFERED, np.uint64)
    for start in range(0, values.size, BUFFERED):
        some, marks = values[start : start + BUFFERED], labels[start : start + BUFFERED]
        for i in range(some.size):
            column = column_of(np.float64(some[i]), n_bins, first, last, scale, low, bound)
            label = np.uint64(np.int64(marks[i]) - lowest)
            row = label if places is None else np.uint64(places[label])
            if weights is not None:
                n_bad += add_weight(table[row], column, n_bins, weights[start + i])
            else:
                entries[i] = row * width + column
        if weights is None:
            for i in range(some.size):
                flat[entries[i]] += 1
    return n_bad


@jit
def search_bins(values: Any, edges: Any, numbers: Any) -> Any:
    """Write the number of each value's bin: -1 below all, n_bins + 1 above all, NaN for NaN."""
    n_bins = edges.size - 1
    for i in range(values.size):
        value = np.float64(values[i])
        if value > edges[n_bins]:
            numbers[i] = n_bins + 1
        elif value == value:
            numbers[i] = min(np.searchsorted(edges, value, side="right"), n_bins) - 1
        else:
            numbers[i] = np.nan


@jit
def mark_labels(labels: Any, lowest: Any, seen: Any) -> None:
    """Mark which labels occur, counted from `lowest`."""
    for label in labels:
        seen[np.int64(label) - lowest] = True


@jit
def extent(values: Any) -> Any:
    """Return the lowest and highest finite value, and how many are finite and infinite."""
    lowest, highest, n_finite, n_infinite = np.inf, -np.inf, 0, 0
    for i in range(values.size):
        value = np.float64(values[i])
        if abs(value) < np.inf:
            n_finite += 1
            lowest = min(lowest, value)
            highest = max(highest, value)
        elif value == value:
            n_infinite += 1
    return lowest, highest, n_finite, n_infinite
