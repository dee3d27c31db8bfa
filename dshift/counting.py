"""Counts of raw values in tables, one row per sample: pure, for NumPy blocks on one worker.

Behind the bins, a table has three columns for the values that fell below, above, or out as NaN.
Tables of parts of the data add up to the table of the whole, however it is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dshift.count_kernels import count_lines, count_series, extent, search_bins
from dshift.errors import InvalidInput, InvalidType
from dshift.metrics import Float
from dshift.sources import _is_dask_array

BELOW, ABOVE, MISSING = range(3)  # columns of a table behind its bins: how many values
WEIGHT_BELOW = 3  # and in tables of weights, two more: how much weight below and above
CELLS_IN_CACHE = 2**14  # of the lookup for uneven edges
TILE_COUNTS = 2**16  # entries of a table that are filled at a time: they stay in the L2 cache
PIECE_VALUES = 2**17  # of a block that are made ready for the kernel at a time
MERGED_AT_ONCE = 4  # tables that are added up in one task


class Extent(NamedTuple):
    """What values range over."""

    lowest: float
    highest: float
    n_finite: int
    n_infinite: int


def extent_of(values: Any) -> Extent:
    """Return what the values of one block range over."""
    return Extent(*extent(as_numbers(values).ravel(order="K")))


def joined_extent(extents: Sequence[Extent]) -> Extent:
    """Return what the values of all blocks range over."""
    lowest, highest, n_finite, n_infinite = zip(*extents, strict=True)
    return Extent(min(lowest), max(highest), sum(n_finite), sum(n_infinite))


def count_columns(edges: Float, weighted: bool) -> int:
    """Return how many columns a table has."""
    return len(edges) - 1 + (WEIGHT_BELOW + 2 if weighted else WEIGHT_BELOW)


def table_dtype(weighted: bool, n_values: float = math.inf) -> np.dtype[Any]:
    """Return a type that holds the counts of `n_values` values."""
    if weighted:
        return np.dtype(np.float64)
    return np.dtype(np.int32 if n_values < 2**31 else np.int64)


def zeros_table(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an empty table: `np.zeros`, but in large pages of memory, which NumPy asks for here.

    Where samples come at random, small pages made it slower by a tenth to a third.
    """
    table = np.empty(shape, dtype)
    table.fill(0)
    return table


def as_numbers(values: Any) -> NDArray[Any]:
    """Return values as float32 or float64, whichever holds them, with NaN where masked.

    A kernel that took every dtype would be compiled for each.
    """
    if np.ma.isMaskedArray(values):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    small = np.can_cast(array.dtype, np.float32)
    return np.ascontiguousarray(array, dtype=np.float32 if small else np.float64)


def as_weights(weights: Any) -> Float:
    """Return weights in the form that kernels take."""
    return np.asarray(as_numbers(weights), dtype=np.float64)


class Finder(NamedTuple):
    """How kernels find the bin of a value; see `column_of`."""

    first: float
    last: float
    scale: float
    step: float  # between edges, where cells may be one bin too high; NaN where they never are
    low: NDArray[np.int64] | None
    bound: Float | None


def find_bins(
    values: NDArray[Any], edges: Float, finder: Finder | None
) -> tuple[NDArray[Any], Finder]:
    """Return values that kernels find: where there is no finder, the numbers of their bins."""
    if finder is not None:
        return values, finder
    numbers = np.empty(values.shape, np.float32)
    search_bins(values.reshape(-1), edges, numbers.reshape(-1))
    return numbers, Finder(0.0, float(len(edges) - 1), 1.0, np.nan, None, None)


def make_finder(edges: Float, dtype: np.dtype[Any]) -> Finder | None:
    """Return the cheapest exact way from values of a dtype to their bins, if there is a quick one.

    A value's *cell* is the whole part of (value - first) * scale, which never decreases with the
    value. So if cells are right at the bins' edges and just before them, they are right
    everywhere, and the cell is the bin. If they are right at the edges alone, as where values are
    finer near zero than near the first edge, the cell is the bin or the one after; which of them,
    tells the edge between, if it is ``first + cell * step`` to the bit. Failing that, smaller
    cells: where a cell holds one edge at the most, it is enough to know that edge and the bin
    before it. Failing that, None.
    """
    n_bins, first, last, inner = len(edges) - 1, float(edges[0]), float(edges[-1]), edges[1:-1]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        width = edges[-1] - edges[0]
        near = _first_at_or_above(inner, dtype)
        before = np.nextafter(near, -np.inf, dtype=near.dtype).astype(np.float64)
        scales = [n_bins / width]
        while scales[-1] * width < max(CELLS_IN_CACHE, 2 * n_bins):
            scales.append(2 * scales[-1])
    if not (scales[0] > 0 and scales[-1] < np.inf):
        return None
    from_edges = np.minimum(near.astype(np.float64), last) - first
    up_to_edges = np.maximum(before, first) - first
    numbers, step = np.arange(1, n_bins), float(width / n_bins)  # as `np.linspace` has them
    # A little more lifts the products that rounding has left just below a whole number.
    for scale in (scales[0], scales[0] * (1 + 2.0**-50)):
        if (np.trunc(from_edges * scale) != numbers).any():
            continue
        if (np.trunc(up_to_edges * scale) < numbers).all():
            return Finder(first, last, float(scale), np.nan, None, None)
        if (first + numbers * step == inner).all():
            return Finder(first, last, float(scale), step, None, None)
    for scale in scales:
        cell = ((inner - first) * scale).astype(np.int64)
        if (np.diff(cell) > 0).all():
            low = np.searchsorted(cell, np.arange(int((last - first) * scale) + 1))
            bound = np.full(len(low), np.inf)
            bound[cell] = inner
            return Finder(first, last, float(scale), np.nan, low, bound)
    return None


def _first_at_or_above(edges: Float, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the least values of a dtype that are not below the edges."""
    if dtype != np.float32:
        return edges
    near = edges.astype(np.float32)
    return np.where(near < edges, np.nextafter(near, np.float32(np.inf)), near)


def count_block(
    values: Any,
    weights: Any,
    axes: tuple[int, ...],
    edges: Float,
    outside: str,
    count_dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Return the table of a block; `axes`, over which it counts, keep the length 1."""
    # In the order of memory, so that a transposed block is not copied but read as it lies.
    values = values if np.ma.isMaskedArray(values) else np.asarray(values)
    order = sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
    kept = [axis for axis in order if axis not in axes]
    counted = [place for place, axis in enumerate(order) if axis in axes]
    lines = _outer_counted_inner(values.transpose(order), counted)
    loads = None
    if weights is not None:
        loads = _outer_counted_inner(np.asanyarray(weights).transpose(order), counted)
    n_columns = count_columns(edges, weights is not None)
    table = zeros_table((lines.shape[0], lines.shape[2], n_columns), count_dtype)
    n_bad = _count_pieces(lines, loads, edges, table)
    table = table.reshape(*(values.shape[axis] for axis in kept), n_columns)
    table = table.transpose(*np.argsort(kept), len(kept))
    check_counted(table, n_bad, edges, outside)
    return np.expand_dims(table, axes)


def _count_pieces(lines: Any, loads: Any, edges: Float, table: NDArray[Any]) -> int:
    """Count lines a few at a time: what must be copied or converted then stays in the cache."""
    finder, n_bad = make_finder(edges, as_numbers(lines[:0]).dtype), 0
    n_bins, tile = len(edges) - 1, max(1, TILE_COUNTS // table.shape[-1])
    step = max(1, PIECE_VALUES // max(1, lines.shape[1] * lines.shape[2]))
    for start in range(0, len(lines), step):
        part = slice(start, start + step)
        values, way = find_bins(as_numbers(lines[part]), edges, finder)
        heavy = None if loads is None else as_weights(loads[part])
        if lines.shape[2] == 1:
            heavy = None if heavy is None else heavy[:, :, 0]
            n_bad += count_series(values[:, :, 0], heavy, n_bins, *way, table[part, 0])
        else:
            n_bad += count_lines(values, heavy, n_bins, tile, *way, table[part])
    return n_bad


def _outer_counted_inner(values: Any, counted: Sequence[int]) -> Any:
    """Return three axes, of which the middle one is counted over."""
    first, last = counted[0], counted[-1]
    if last - first >= len(counted):
        values = np.moveaxis(values, counted, range(-len(counted), 0))
        first, last = values.ndim - len(counted), values.ndim - 1
    shape = values.shape
    parts = (shape[:first], shape[first : last + 1], shape[last + 1 :])
    return values.reshape(*map(math.prod, parts))


def check_counted(table: NDArray[Any], n_bad: int, edges: Float, outside: str) -> None:
    """Refuse bad weights, and values beyond the edges if those raise."""
    if n_bad:
        raise InvalidInput(
            f"`weights` holds {n_bad} entries that are negative, infinite or NaN; give weights "
            "that are finite and not negative (NaN only where the value is NaN too)."
        )
    if outside == "raise":
        n_bins = len(edges) - 1
        below, above = (table[..., n_bins + column] for column in (BELOW, ABOVE))
        if below.any() or above.any():
            raise InvalidInput(
                f"`data` holds values beyond the `edges` ({int(below.sum())} below "
                f"{float(edges[0])!r} and {int(above.sum())} above {float(edges[-1])!r} in the "
                "first block found); widen `edges`, or "
                'pass outside="drop" to leave them out or outside="clip" to count them in the '
                "first and last bin."
            )


def refuse_unless_numbers(name: str, dtype: Any) -> None:
    """Raise unless a NumPy or pandas dtype is one of real numbers."""
    if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
        raise InvalidType(
            f"`{name}` has the dtype {dtype}; give booleans, integers or real floats."
        )


def plain_array(array: xr.DataArray) -> Any:
    """Return the Dask array inside, or the values as NumPy."""
    return array.data if _is_dask_array(array.data) else array.to_numpy()
