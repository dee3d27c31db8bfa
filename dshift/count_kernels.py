"""Compiled loops that count values into tables, and nothing else; see `kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dshift.kernels import jit

BUFFERED = 512  # entries of a table that are found before they are counted


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
def count_even_rows(
    labels: Any,
    lowest: Any,
    values: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    table: Any,
) -> None:
    """Do what `count_rows` does where rows are labels, cells are bins, and nothing has a weight.

    The loop that finds entries has no branch and narrow columns, so that it is done four at a time.
    """
    flat, width = table.reshape(-1), np.int64(table.shape[1])
    entries = np.empty(BUFFERED, np.int64)
    top, below = np.int32(n_bins - 1), np.int32(n_bins)
    above, missing = np.int32(n_bins + 1), np.int32(n_bins + 2)
    for start in range(0, values.size, BUFFERED):
        some, marks = values[start : start + BUFFERED], labels[start : start + BUFFERED]
        for i in range(some.size):
            value = np.float64(some[i])
            inside = (value >= first) & (value <= last)
            cell = min(np.int32((value - first) * scale if inside else 0.0), top)
            beyond = below if value < first else (above if value > last else missing)
            column = cell if inside else beyond
            entries[i] = (marks[i] - lowest) * width + np.int64(column)
        for i in range(some.size):
            flat[np.uint64(entries[i])] += 1


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
def span_of(labels: Any) -> Any:
    """Return the lowest and the highest label, in one pass."""
    lowest = highest = labels[0]
    for label in labels:
        lowest, highest = min(lowest, label), max(highest, label)
    return lowest, highest


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
