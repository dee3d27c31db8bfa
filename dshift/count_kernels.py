"""Compiled loops that count values into tables, and nothing else; see `kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dshift.kernels import inlined, inner, jit

BUFFERED = 512  # entries of a table that are found before they are counted
LANES = 4  # rows in which one series is counted
WIDEST_LANE = 2**10  # columns: wider ones leave the cache


@inlined
def column_of(
    number: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    step: Any,
    low: Any,
    bound: Any,
) -> Any:
    """Return the column of a table in which a value counts; `Finder` has the arguments.

    Without a branch and with narrow columns, so that several values are done at a time.
    """
    value = np.float64(number)
    inside = (value >= first) & (value <= last)
    cell = np.int32((value - first) * scale if inside else 0.0)
    if low is None:  # cells are bins, or the bins after
        column = min(cell, np.int32(n_bins - 1))
        column -= np.int32(value < first + np.float64(column) * step)
    else:
        place = np.uint32(cell)  # unsigned: a negative index would be wrapped around
        column = np.int32(low[place]) + np.int32(value >= bound[place])
    above, missing = np.int32(n_bins + 1), np.int32(n_bins + 2)
    beyond = np.int32(n_bins) if value < first else (above if value > last else missing)
    return column if inside else beyond


@inner
def find_columns(
    values: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    step: Any,
    low: Any,
    bound: Any,
    columns: Any,
) -> None:
    """Write the column of a table in which each value counts."""
    for i in range(values.size):
        columns[i] = column_of(values[i], n_bins, first, last, scale, step, low, bound)


@inner
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
    step: Any,
    low: Any,
    bound: Any,
    table: Any,
) -> Any:
    """Count `values` (outer, n, inner) into `table` (outer, inner, columns); return bad weights.

    The counts of `tile` inner samples are filled at a time, so that they stay in the cache.
    """
    n_bad = 0
    flat, width = table.reshape(-1), np.int64(table.shape[2])
    columns = np.empty(BUFFERED, np.int32)
    tile = min(tile, BUFFERED)
    for i in range(values.shape[0]):
        for start in range(0, values.shape[2], tile):
            base = (i * np.int64(values.shape[2]) + start) * width
            for j in range(values.shape[1]):
                line = values[i, j, start : start + tile]
                find_columns(line, n_bins, first, last, scale, step, low, bound, columns)
                for k in range(line.size):
                    if weights is None:
                        flat[np.uint64(base + k * width + columns[k])] += 1
                    else:
                        row = table[i, start + k]
                        weight = weights[i, j, start + k]
                        n_bad += add_weight(row, np.uint64(columns[k]), n_bins, weight)
    return n_bad


@jit
def count_series(
    values: Any,
    weights: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    step: Any,
    low: Any,
    bound: Any,
    table: Any,
) -> Any:
    """Count `values` (outer, n) into `table` (outer, columns); return bad weights.

    Neighbours often fall into one bin, and a count must be stored before it can be raised again.
    So they are counted in turns in a few rows, lanes, which are added up after every series, unless
    that is the longer part of the work.
    """
    n_bad = 0
    width = np.int64(table.shape[1])
    n_lanes = LANES if width <= values.shape[1] // 2 and width <= WIDEST_LANE else 1
    columns = np.empty(BUFFERED, np.int32)
    lanes = np.zeros(LANES * width, table.dtype)
    for i in range(values.shape[0]):
        row = table[i]
        for start in range(0, values.shape[1], BUFFERED):
            some = values[i, start : start + BUFFERED]
            find_columns(some, n_bins, first, last, scale, step, low, bound, columns)
            if weights is not None:
                for j in range(some.size):
                    n_bad += add_weight(row, np.uint64(columns[j]), n_bins, weights[i, start + j])
            elif n_lanes == 1:
                for j in range(some.size):
                    row[np.uint64(columns[j])] += 1
            else:
                for j in range(some.size):
                    lanes[np.uint64((j % LANES) * width + columns[j])] += 1
        if weights is None and n_lanes > 1:
            for k in range(width):
                for lane in range(LANES):
                    row[k] += lanes[lane * width + k]
                    lanes[lane * width + k] = 0
    return n_bad


@inner
def find_entries(
    labels: Any,
    lowest: Any,
    places: Any,
    width: Any,
    values: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    step: Any,
    low: Any,
    bound: Any,
    entries: Any,
) -> None:
    """Write the entry of a flat table, `width` columns a row, in which each value counts."""
    for i in range(values.size):
        row = np.int64(labels[i] - lowest)
        if places is not None:
            row = np.int64(places[np.uint64(row)])
        column = column_of(values[i], n_bins, first, last, scale, step, low, bound)
        entries[i] = row * width + column


@jit
def count_rows(
    labels: Any,
    lowest: Any,
    places: Any,
    values: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    step: Any,
    low: Any,
    bound: Any,
    entries: Any,
    table: Any,
    wide: Any,
) -> Any:
    """Count `values` (n,) into rows of `table`; return how often a count of it came round to 0.

    The row is ``places[label - lowest]``, or ``label - lowest`` where `places` is None. The table
    is of uint8, so that four times as many rows stay in the cache; what comes round is counted in
    `wide`. Entries are found in one loop and counted in another: in a short loop, the processor
    fetches many of a large table at once. As many as `entries` holds at a time: with 512, whose
    values are one page of memory, the fetching of values began anew for each, which took half as
    long again. Sorting entries by parts of the table that fit the cache took no less.
    """
    n_round = 0
    flat, more, width = table.reshape(-1), wide.reshape(-1), np.int64(table.shape[1])
    for start in range(0, values.size, entries.size):
        some = values[start : start + entries.size]
        marks = labels[start : start + entries.size]
        find_entries(
            marks,
            lowest,
            places,
            width,
            some,
            n_bins,
            first,
            last,
            scale,
            step,
            low,
            bound,
            entries,
        )
        for i in range(some.size):
            count = np.uint8(flat[entries[i]] + np.uint8(1))
            flat[entries[i]] = count
            if count == 0:
                more[entries[i]] += 256
                n_round += 1
    return n_round


@jit
def weigh_rows(
    labels: Any,
    lowest: Any,
    places: Any,
    values: Any,
    weights: Any,
    n_bins: Any,
    first: Any,
    last: Any,
    scale: Any,
    step: Any,
    low: Any,
    bound: Any,
    table: Any,
) -> Any:
    """Add the weights of `values` (n,) to rows of `table`, as `count_rows`; return bad weights."""
    n_bad = 0
    columns = np.empty(BUFFERED, np.int32)
    for start in range(0, values.size, BUFFERED):
        some, marks = values[start : start + BUFFERED], labels[start : start + BUFFERED]
        find_columns(some, n_bins, first, last, scale, step, low, bound, columns)
        for i in range(some.size):
            row = np.int64(marks[i] - lowest)
            if places is not None:
                row = places[np.uint64(row)]
            weight = weights[start + i]
            n_bad += add_weight(table[row], np.uint64(columns[i]), n_bins, weight)
    return n_bad


@jit
def held_rows(table: Any) -> Any:
    """Return which rows of a table hold any count; whole rows are faster than up to the first."""
    held = np.zeros(table.shape[0], np.bool_)
    for i in range(table.shape[0]):
        bits = table[i, 0]
        for k in range(1, table.shape[1]):
            bits |= table[i, k]
        held[i] = bits != 0
    return held


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
