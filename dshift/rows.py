"""Values in rows that name their samples: counted piece by piece, and merged."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from dask.system import CPU_COUNT
from numpy.typing import NDArray

from dshift.count_kernels import count_rows, held_rows, weigh_rows
from dshift.counting import (
    MERGED_AT_ONCE,
    TILE_COUNTS,
    Extent,
    Finder,
    as_numbers,
    as_weights,
    check_counted,
    count_block,
    count_columns,
    extent_of,
    find_bins,
    joined_extent,
    make_finder,
    table_dtype,
    zeros_table,
)
from dshift.grouping import as_labels, grouped, whole_span
from dshift.metrics import Float

BLOCK_BYTES = 64 * 2**20  # of a table made from a data frame: longer ones are cut
ENTRIES = 2**14  # of a table that are found before they are counted


Piece = tuple[Any, NDArray[Any], Any]  # ids (n,), values (n,), and weights (n,) or None
Partial = tuple[pd.Index, NDArray[Any]]  # ids, each once, and their rows of a table


@dataclass(frozen=True)
class Rows:
    """Values in rows, each with the id of its sample, in pieces that are read one at a time."""

    pieces: Callable[[], Iterable[Any]]  # a `Piece` each, or the Delayed of one
    lazy: bool
    weighted: bool
    dims: tuple[str]
    ids: pd.Index | None = None  # None: those that occur
    ids_of_pieces: Sequence[Any] | None = None  # None: to be found out
    labels: Any = None  # of `ids`, as coordinate
    quantity: str | None = None  # what the values are
    unit: str | None = None

    @property
    def names(self) -> set[Hashable]:
        """Names that are taken."""
        return set(self.dims)

    def extent(self) -> Extent:
        """Return what the values range over."""
        return joined_extent([extent for _, extent in self._survey])

    def total(self, edges: Float) -> NDArray[Any]:
        """Return the counts of all values together."""
        counts: NDArray[Any] = np.sum(self._each(partial(_count_all, edges=edges)), axis=0)
        return counts

    def table(self, edges: Float, outside: str) -> tuple[Any, Mapping[Hashable, Any]]:
        """Return the table (n_ids, n_columns), and the coordinate of the samples."""
        dtype = table_dtype(self.weighted)
        count = partial(_count_piece, edges=edges, outside=outside)
        empty = np.zeros((0, count_columns(edges, self.weighted)), dtype)
        if self.lazy:
            places = self.ids_of_pieces or [found for found, _ in self._survey]
            ids = _all_ids(places) if self.ids is None else self.ids
            table = _lazy_table(self.pieces(), count, ids, places, empty)
        else:
            with _threads() as pool:
                parts = list(pool.map(count, self.pieces()))
                ids = self.ids
                if ids is None:
                    ids = _all_ids([found for found, _ in parts])
                table = _merge(ids, parts, empty, pool.map)[1]
        labels = np.asarray(ids) if self.ids is None else self.labels
        return table, {} if labels is None else {self.dims[0]: labels}

    @cached_property
    def _survey(self) -> list[tuple[pd.Index, Extent]]:
        return self._each(_survey_piece)

    def _each(self, function: Callable[[Piece], Any]) -> list[Any]:
        if not self.lazy:
            with _threads() as pool:
                return list(pool.map(function, self.pieces()))
        from dask.base import compute
        from dask.delayed import delayed

        return list(compute(*map(delayed(function), self.pieces())))


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(CPU_COUNT, thread_name_prefix="dshift")


def _survey_piece(piece: Piece) -> tuple[pd.Index, Extent]:
    ids = grouped(piece[0], whole_span(piece[0])).sorted_ids()
    return ids, extent_of(piece[1])


def _count_all(piece: Piece, edges: Float) -> NDArray[Any]:
    table = count_block(piece[1], None, (0,), edges, "drop", np.dtype(np.int64))
    return table[0, : len(edges) - 1]


def _count_piece(piece: Piece, edges: Float, outside: str) -> Partial:
    ids = piece[0]
    values = as_numbers(piece[1])
    values, finder = find_bins(values, edges, make_finder(edges, values.dtype))
    weights = None if piece[2] is None else as_weights(piece[2])
    n_bins, n_columns = len(edges) - 1, count_columns(edges, weights is not None)
    span, groups = whole_span(ids), None
    # Every row of a piece counts in some column: where ids lie close together, count into a table
    # of all whole numbers between them, and leave out those that are empty.
    if span is not None and weights is None and span[1] * n_columns <= 2 * len(values):
        (lowest, n_rows), labels, places = span, as_labels(ids), None
    else:
        groups = grouped(ids, span)
        labels, lowest, places, n_rows = *groups[1:4], len(groups.ids)
    rows = (labels, lowest, places, values)
    if weights is None:
        n_bad, table = 0, _counted(rows, n_bins, finder, (n_rows, n_columns))
    else:
        table = zeros_table((n_rows, n_columns), np.dtype(np.float64))
        n_bad = weigh_rows(*rows, weights, n_bins, *finder, table)
    check_counted(table, n_bad, edges, outside)
    if groups is not None:
        return groups.sorted_ids(), table if groups.order is None else table[groups.order]
    held = np.flatnonzero(held_rows(table))
    return pd.Index(held + lowest), table if len(held) == n_rows else table[held]


def _counted(
    rows: tuple[Any, ...], n_bins: int, finder: Finder, shape: tuple[int, int]
) -> NDArray[Any]:
    """Return the table of one piece's rows, as narrow as its counts are."""
    table = zeros_table(shape, np.dtype(np.uint8))
    # Pages of it that are never written to take no memory.
    wide = np.zeros(shape, table_dtype(False, len(rows[-1])))
    entries = np.empty(ENTRIES, np.uint32 if table.size < 2**32 else np.uint64)
    if count_rows(*rows, n_bins, *finder, entries, table, wide):
        wide += table
        return wide
    return table


def _all_ids(found: Sequence[Any]) -> pd.Index:
    first, *others = found
    if all(first.equals(other) for other in others):  # as a rule: several times faster
        return first
    return first.append(others).unique().sort_values()


def _merge(
    ids: pd.Index, parts: Sequence[Partial], empty: NDArray[Any], run: Callable[..., Any] = map
) -> Partial:
    """Return the rows of `ids` from partial tables added up: a partial table again.

    With the `map` of a pool, on its threads.
    """
    whole = [rows for found, rows in parts if found is ids or found.equals(ids)]
    if whole and len(whole) == len(parts):  # as a rule: several times faster
        return ids, _added_up(whole, empty.dtype, run)
    table = zeros_table((len(ids), empty.shape[1]), empty.dtype)
    for found, rows in parts:
        at = ids.get_indexer(found)
        table[at[at >= 0]] += rows[at >= 0]
    return ids, table


def _added_up(tables: Sequence[NDArray[Any]], dtype: Any, run: Callable[..., Any]) -> NDArray[Any]:
    """Return the sum of tables with the same rows."""
    total = np.empty(tables[0].shape, dtype)
    step = max(1, TILE_COUNTS // total.shape[1])  # rows that stay in the cache

    def add(rows: range) -> None:
        for start in rows[::step]:
            part = slice(start, min(start + step, rows.stop))
            np.copyto(total[part], tables[0][part])
            for table in tables[1:]:
                total[part] += table[part]

    shares = np.linspace(0, len(total), CPU_COUNT + 1, dtype=int).tolist()
    list(run(add, map(range, shares[:-1], shares[1:])))
    return total


def _lazy_table(
    pieces: Iterable[Any],
    count: Callable[[Piece], Partial],
    ids: pd.Index,
    ids_of_pieces: Sequence[Any],
    empty: NDArray[Any],
) -> Any:
    """Build each chunk of ids from the pieces that hold some of them; count each piece once."""
    import dask.array as da
    from dask.delayed import delayed

    counted = [delayed(count, name="dshift-histogram")(piece) for piece in pieces]
    length = max(1, BLOCK_BYTES // (empty.shape[1] * empty.itemsize))
    chunks_of_pieces = [set(ids.get_indexer(found) // length) for found in ids_of_pieces]
    chunks = []
    for chunk, start in enumerate(range(0, len(ids), length)):
        some = ids[start : start + length]
        held = zip(counted, chunks_of_pieces, strict=True)
        parts = [part for part, places in held if chunk in places]
        table = _merge_lazily(delayed(some), parts, empty)
        chunks.append(da.from_delayed(table, (len(some), empty.shape[1]), empty.dtype))
    return da.concatenate(chunks)


def _merge_lazily(ids: Any, parts: list[Any], empty: NDArray[Any]) -> Any:
    """Merge a few partial tables at a time, so that they are not all held at once."""
    from dask.delayed import delayed

    merge = delayed(_merge)
    while True:
        groups = [parts[i : i + MERGED_AT_ONCE] for i in range(0, len(parts), MERGED_AT_ONCE)]
        parts = [merge(ids, group, empty) for group in groups or [[]]]
        if len(parts) == 1:
            return parts[0][1]
