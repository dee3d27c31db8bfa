"""Raw series to histograms: cubes, long tables and lists of series, lazily where they are Dask.

Every source is counted into a *table*: one row per sample, one column per bin, and behind the bins
three columns for the values that fell below, above, or out as NaN. Tables of parts of the data add
up to the table of the whole, however it is cut. `_finish` makes histograms of a table.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numba
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dshift.errors import InvalidInput, InvalidType, MissingData
from dshift.metrics import Float, check_edges
from dshift.sources import _is_dask_array, public_name

BELOW, ABOVE, MISSING = range(3)  # columns of a table behind its bins: how many values
WEIGHT_BELOW = 3  # and in tables of weights, two more: how much weight below and above

CELLS_IN_CACHE = 2**14  # of the lookup for uneven edges
TILE_COUNTS = 2**16  # entries of a table that are filled at a time: they stay in the L2 cache
PIECE_VALUES = 2**17  # of a block that are made ready for the kernel at a time
BLOCK_BYTES = 64 * 2**20  # of a table made from a data frame: longer ones are cut
BATCH_VALUES = 2**20  # short series are counted together, so many values at a time
MERGED_AT_ONCE = 4  # tables that are added up in one task

FIRST_CELLS, MORE_CELLS = 2**16, 2**12  # of the search for quantiles: first pass, later ones
MOST_PASSES = 4
LARGEST_RATIO = 1e6  # of the widest to the narrowest of stacked variables
RANK_ERROR = 0.01  # of a bin's share of the values: what quantiles may be off by


def histogram(
    data: Any,
    edges: Any = None,
    *,
    bins: int | None = None,
    dim: Any = None,
    id: str | None = None,
    value: str | None = None,
    weights: Any = None,
    density: bool = False,
    outside: str = "raise",
    bin_dim: str = "bin",
    units: str | None = None,
) -> xr.DataArray:
    """Count raw values into one histogram per sample.

    Bins are those of `numpy.histogram`: closed below and open above, the last one closed.

    Parameters
    ----------
    data : one of
        - a cube: xarray.DataArray, NumPy or Dask array (whose dimensions are called ``dim_0``,
          ``dim_1``, ... as in xarray), to be reduced over `dim`;
        - a long table: pandas or Dask DataFrame, or path or URL of Parquet, in which each row
          holds a value of the sample that `id` names;
        - series of any lengths: a list of 1-D arrays, or a dict from sample to 1-D array.
    edges : array (n_bins + 1,), "range" or "quantiles"
        The edges of the bins, in the data's unit; or how to draw `bins` bins from the data, the
        same for all samples: equally wide from the lowest to the highest value, or with equally
        many values in each. Weights play no part in that.
    bins : int, optional
        The number of bins, where `edges` are not given; alone, it means ``edges="range"``.
    dim : name, names or ...
        Dimensions of a cube to count over; ``...`` is all of them. The others are the samples.
    id, value : str
        Columns of a table. For series, `id` may name the dimension of the samples ("sample").
    weights : optional
        What each value counts, finite and not negative. For a cube an array of its shape, or a
        DataArray of some of its dimensions; for a table the name of a column; for series as many
        arrays of the same lengths.
    density : bool
        Whether to divide by the sample's total and by the widths of the bins, for plots. Cluster
        counts instead: where widths differ, densities are not shares.
    outside : {"raise", "drop", "clip"}
        What to do with values beyond the edges, infinite ones included: stop, leave them out, or
        count them in the first and the last bin.
    bin_dim : str
        Name of the new dimension.
    units : str, optional
        Unit of the values; by default the attribute `units` of a DataArray.

    Returns
    -------
    xarray.DataArray
        `counts` (or `density`) on the dimensions of the samples and, last, `bin_dim`. Counts are
        int32 for a cube with less than 2**31 values a sample, else int64; float64 if weighted.
        The coordinate `bin_dim` holds the centres of the bins. By the attributes `edges` and
        `edges_units`, `fit` measures in the data's own unit. The coordinate `n_missing` counts the
        NaN that were left out of each sample; `n_below` and `n_above`, unless those raise, the
        values beyond the edges. The samples of a table are its ids, sorted.

    Notes
    -----
    Dask input gives a lazy result: nothing is read until it is computed, and then all of it once;
    the chunks of a cube's samples stay as they are. What must be known earlier takes a pass over
    the data at once: the ids of a Dask table; the range, for ``edges="range"`` (the same pass); for
    "quantiles" at least one more, until every edge has its rank to 1 % of a bin, or four were
    made. Edges do not depend on the chunks.

    The counts of a block are as large as its samples times the bins. Where they outweigh its
    values, chunks are joined along `dim` first, so that memory is bounded by a few times the
    larger of the two. Sums of weights that are not whole numbers may differ in their last bits
    between chunkings.

    Examples
    --------
    >>> import dshift
    >>> dshift.histogram([[1, 2, 2], [5, float("nan")]], edges=[0, 2, 4, 6]).values.tolist()
    [[1, 2, 0], [0, 0, 1]]
    """
    _check_choices(density, outside, bin_dim, units)
    wanted = _wanted_edges(edges, bins)
    source = _open(data, dim, id, value, weights)
    _refuse_name_clashes(source.names, bin_dim, outside)
    bounds = wanted if isinstance(wanted, np.ndarray) else _drawn_edges(source, *wanted)
    table, coords = source.table(bounds, outside)
    unit = source.unit if units is None else units
    counts = _assemble(table, source.dims, bounds, outside, density, bin_dim, unit)
    return counts.assign_coords(coords)


# ------------------------------------------------------------------------- what a caller may pass


def _check_choices(density: object, outside: object, bin_dim: object, units: object) -> None:
    if not isinstance(density, bool):
        raise InvalidType(f"`density` is {density!r}; give True or False.")
    if outside not in ("raise", "drop", "clip"):
        raise InvalidInput(
            f'`outside` is {outside!r}; allowed are "raise" (stop), "drop" (leave values beyond '
            'the edges out, and count them) and "clip" (count them in the first and last bin).'
        )
    for name, text in (("bin_dim", bin_dim), ("units", "" if units is None else units)):
        if not isinstance(text, str):
            raise InvalidType(f"`{name}` is {text!r}; give a string.")


def _wanted_edges(edges: Any, bins: Any) -> Float | tuple[str, int]:
    """Return the edges that were given, or how to draw them and the number of bins."""
    if edges is not None and not isinstance(edges, str):
        if bins is not None:
            raise InvalidInput(
                f"`edges` and `bins`={bins!r} are both given; leave one of them out, or pass "
                'edges="range" or edges="quantiles".'
            )
        shape = np.shape(edges)
        if len(shape) != 1 or shape[0] < 2:
            raise InvalidInput(
                f"`edges` has shape {shape}; give a list of two or more, one more than bins."
            )
        return check_edges(edges, shape[0] - 1)
    if edges not in (None, "range", "quantiles"):
        raise InvalidInput(
            f'`edges` is {edges!r}; the words allowed are "range" and "quantiles", with a number '
            "of `bins`; or give the edges themselves."
        )
    if bins is None:
        raise InvalidInput(
            f"`edges` is {edges!r} and `bins` is None; give the edges of the bins, or the number "
            "of `bins` to draw from the data."
        )
    if not isinstance(bins, Integral) or isinstance(bins, bool):
        raise InvalidType(f"`bins` is {bins!r}; give a whole number, 1 or more.")
    if bins < 1:
        raise InvalidInput(f"`bins` is {bins!r}; give 1 or more.")
    return edges or "range", int(bins)


def _refuse_name_clashes(taken: Iterable[Hashable], bin_dim: str, outside: str) -> None:
    clash = {bin_dim, *_left_out(outside)} & set(taken)
    if bin_dim in clash:
        raise InvalidInput(
            f"`bin_dim` is {bin_dim!r}, which is a name in `data` already; give another `bin_dim`."
        )
    if clash:
        raise InvalidInput(
            f"`data` has a dimension or coordinate {min(map(str, clash))!r}, a name that the "
            "result needs; rename it first."
        )


# ---------------------------------------------------------------------------- edges from the data


class Extent(NamedTuple):
    """What values range over."""

    lowest: float
    highest: float
    n_finite: int
    n_infinite: int


def _extent(values: Any) -> Extent:
    """Return what the values of one block range over."""
    return Extent(*extent(_numbers(values).ravel(order="K")))


def _joined_extent(extents: Sequence[Extent]) -> Extent:
    """Return what the values of all blocks range over."""
    lowest, highest, n_finite, n_infinite = zip(*extents, strict=True)
    return Extent(min(lowest), max(highest), sum(n_finite), sum(n_infinite))


def _drawn_edges(source: _Cube | _Rows, how: str, bins: int) -> Float:
    lowest, highest, n_finite, n_infinite = source.extent()
    if n_infinite or not n_finite:
        found = f"{n_infinite} infinite values" if n_infinite else "no values but NaN"
        raise InvalidInput(
            f"`data` holds {found}, so {bins} `bins` cannot be drawn from it; give the `edges`"
            + (', with outside="drop" or "clip".' if n_infinite else ".")
        )
    if lowest == highest:  # as np.histogram does
        lowest, highest = lowest - 0.5, highest + 0.5
    if how == "range":
        edges = _between(lowest, highest, bins)
    else:
        edges = _quantiles(source.total, lowest, highest, n_finite, bins)
    same = np.flatnonzero(np.diff(edges) <= 0)
    if same.size:
        raise InvalidInput(
            f"{bins} `bins` cannot be drawn from the {how} of `data`: edges {same[0]} and "
            f"{same[0] + 1} would both be {float(edges[same[0]])!r}; ask for fewer `bins`, or give "
            "the `edges`."
        )
    return edges


def _between(low: float, high: float, n_parts: int) -> Float:
    if math.isfinite(high - low):
        return np.linspace(low, high, n_parts + 1)
    return 2 * np.linspace(low / 2, high / 2, n_parts + 1)


def _quantiles(
    total: Callable[[Float], NDArray[Any]], lowest: float, highest: float, n: int, bins: int
) -> Float:
    """Return edges between which equally many values lie, from counts in ever finer cells.

    Counts do not depend on the chunks, so neither do the edges.
    """
    ranks = np.arange(1, bins) * (n / bins)
    edges, cells = np.empty(0), np.unique(_between(lowest, highest, FIRST_CELLS))
    for _ in range(MOST_PASSES):
        counts = total(cells)
        below = np.concatenate([[0], np.cumsum(counts)])
        # The cell in which each rank falls: below[hit] < rank <= below[hit + 1].
        hit = np.searchsorted(below, ranks, side="left") - 1
        edges = _in_gaps(cells, counts, hit + (ranks - below[hit] > counts[hit] / 2))
        coarse = np.unique(hit[counts[hit] > RANK_ERROR * n / bins])
        parts = [_between(cells[c], cells[c + 1], MORE_CELLS) for c in coarse]
        finer = np.unique(np.concatenate([cells, *parts]))
        if len(finer) == len(cells):
            break
        cells = finer
    return np.concatenate([[lowest], edges, [highest]])


def _in_gaps(cells: Float, counts: NDArray[Any], at: NDArray[np.intp]) -> Float:
    """Return the middle of the empty stretch around each of some edges of cells."""
    held = np.flatnonzero(counts)
    place = np.searchsorted(held, at)
    ends = np.concatenate([cells[:1], cells[held + 1]])[place]
    starts = np.concatenate([cells[held], cells[-1:]])[place]
    return np.asarray(ends / 2 + starts / 2)


# -------------------------------------------------------------------------------- tables of counts


def _n_columns(edges: Float, weighted: bool) -> int:
    """Return how many columns a table has."""
    return len(edges) - 1 + (WEIGHT_BELOW + 2 if weighted else WEIGHT_BELOW)


def _table_dtype(weighted: bool, n_values: float = math.inf) -> np.dtype[Any]:
    """Return a type that holds the counts of `n_values` values."""
    if weighted:
        return np.dtype(np.float64)
    return np.dtype(np.int32 if n_values < 2**31 else np.int64)


def _numbers(values: Any) -> NDArray[Any]:
    """Return values as float32 or float64, whichever holds them, with NaN where masked.

    A kernel that took every dtype would be compiled for each.
    """
    if np.ma.isMaskedArray(values):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    small = np.can_cast(array.dtype, np.float32)
    return np.ascontiguousarray(array, dtype=np.float32 if small else np.float64)


def _weights(weights: Any) -> Float:
    """Return weights in the form that kernels take."""
    return np.asarray(_numbers(weights), dtype=np.float64)


class Finder(NamedTuple):
    """How kernels find the bin of a value; see `column_of`."""

    first: float
    last: float
    scale: float
    low: NDArray[np.int64] | None
    bound: Float | None


def _found(
    values: NDArray[Any], edges: Float, finder: Finder | None
) -> tuple[NDArray[Any], Finder]:
    """Return values that kernels find: where there is no finder, the numbers of their bins."""
    if finder is not None:
        return values, finder
    numbers = np.empty(values.shape, np.float32)
    search_bins(values.reshape(-1), edges, numbers.reshape(-1))
    return numbers, Finder(0.0, float(len(edges) - 1), 1.0, None, None)


def make_finder(edges: Float, dtype: np.dtype[Any]) -> Finder | None:
    """Return the cheapest exact way from values of a dtype to their bins, if there is a quick one.

    A value's *cell* is the whole part of (value - first) * scale, which never decreases with the
    value. So if cells are right at the bins' edges and just before them, they are right
    everywhere, and the cell is the bin. Failing that, smaller cells: where a cell holds one edge
    at the most, it is enough to know that edge and the bin before it. Failing that, None.
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
    numbers = np.arange(1, n_bins)
    # A little more lifts the products that rounding has left just below a whole number.
    for scale in (scales[0], scales[0] * (1 + 2.0**-50)):
        rises = np.trunc(from_edges * scale) == numbers
        if (rises & (np.trunc(up_to_edges * scale) < numbers)).all():
            return Finder(first, last, float(scale), None, None)
    for scale in scales:
        cell = ((inner - first) * scale).astype(np.int64)
        if (np.diff(cell) > 0).all():
            low = np.searchsorted(cell, np.arange(int((last - first) * scale) + 1))
            bound = np.full(len(low), np.inf)
            bound[cell] = inner
            return Finder(first, last, float(scale), low, bound)
    return None


def _first_at_or_above(edges: Float, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the least values of a dtype that are not below the edges."""
    if dtype != np.float32:
        return edges
    near = edges.astype(np.float32)
    return np.where(near < edges, np.nextafter(near, np.float32(np.inf)), near)


def _count_block(
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
    n_columns = _n_columns(edges, weights is not None)
    table = np.zeros((lines.shape[0], lines.shape[2], n_columns), count_dtype)
    n_bad = _count_pieces(lines, loads, edges, table)
    table = table.reshape(*(values.shape[axis] for axis in kept), n_columns)
    table = table.transpose(*np.argsort(kept), len(kept))
    _check_counted(table, n_bad, edges, outside)
    return np.expand_dims(table, axes)


def _count_pieces(lines: Any, loads: Any, edges: Float, table: NDArray[Any]) -> int:
    """Count lines a few at a time: what must be copied or converted then stays in the cache."""
    finder, n_bad = make_finder(edges, _numbers(lines[:0]).dtype), 0
    step = max(1, PIECE_VALUES // max(1, lines.shape[1] * lines.shape[2]))
    for start in range(0, len(lines), step):
        part = slice(start, start + step)
        values, way = _found(_numbers(lines[part]), edges, finder)
        heavy = None if loads is None else _weights(loads[part])
        tile = max(1, TILE_COUNTS // table.shape[-1])
        n_bad += count_lines(values, heavy, len(edges) - 1, tile, *way, table[part])
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


def _check_counted(table: NDArray[Any], n_bad: int, edges: Float, outside: str) -> None:
    """Refuse bad weights, and values beyond the edges if those raise."""
    if n_bad:
        raise InvalidInput(
            f"`weights` holds {n_bad} entries that are negative, infinite or NaN; give weights "
            "that are finite and not negative (NaN only where the value is NaN too)."
        )
    if outside == "raise":
        left_out = table[..., len(edges) - 1 :]
        below, above = int(left_out[..., BELOW].sum()), int(left_out[..., ABOVE].sum())
        if below or above:
            raise InvalidInput(
                f"`data` holds values beyond the `edges` ({below} below {float(edges[0])!r} and "
                f"{above} above {float(edges[-1])!r} in the first block found); widen `edges`, or "
                'pass outside="drop" to leave them out or outside="clip" to count them in the '
                "first and last bin."
            )


# ------------------------------------------------------------------------------------------ cubes


@dataclass(frozen=True)
class _Cube:
    """An array that is counted over some of its axes."""

    data: Any  # NumPy or Dask array
    weights: Any  # of the same shape, or None
    axes: tuple[int, ...]  # to count over, increasing
    dims: tuple[Hashable, ...] = ()  # of the samples
    coords: Mapping[Hashable, Any] | None = None
    unit: str | None = None

    @property
    def names(self) -> set[Hashable]:
        """Names that are taken."""
        return {*self.dims, *(self.coords or ())}

    def extent(self) -> Extent:
        """Return what the values range over."""
        if not _is_dask_array(self.data):
            return _extent(self.data)
        from dask.base import compute
        from dask.delayed import delayed

        blocks = self.data.to_delayed().ravel()
        return _joined_extent(compute(*map(delayed(_extent), blocks)))

    def total(self, edges: Float) -> NDArray[Any]:
        """Return the counts of all values together."""
        everything = _Cube(self.data, None, tuple(range(self.data.ndim)))
        counts: NDArray[Any] = np.asarray(everything.table(edges, "drop")[0])
        return counts[: len(edges) - 1]

    def table(self, edges: Float, outside: str) -> tuple[Any, Mapping[Hashable, Any]]:
        """Return the table (*samples, n_columns), and the coordinates of the samples."""
        n_values = math.prod(self.data.shape[axis] for axis in self.axes)
        dtype = _table_dtype(self.weights is not None, n_values)
        how = {"axes": self.axes, "edges": edges, "outside": outside, "count_dtype": dtype}
        if _is_dask_array(self.data):
            return _count_chunks(self.data, self.weights, how), self.coords or {}
        table = _count_block(self.data, self.weights, **how)  # type: ignore[arg-type]
        return table.squeeze(self.axes), self.coords or {}


def _count_chunks(data: Any, weights: Any, how: dict[str, Any]) -> Any:
    """Return the table of all chunks: theirs, added up a few at a time."""
    import dask.array as da

    axes, dtype = how["axes"], how["count_dtype"]
    n_columns = _n_columns(how["edges"], weights is not None)
    data = data.rechunk(_joined_chunks(data, axes, n_columns * dtype.itemsize))
    every = tuple(range(data.ndim))
    weights_and_axes: tuple[Any, Any] = (None, None)
    if weights is not None:
        weights_and_axes = (da.asarray(weights).rechunk(data.chunks), every)
    tables = da.blockwise(
        _count_block,
        (*every, data.ndim),
        data,
        every,
        *weights_and_axes,
        new_axes={data.ndim: n_columns},
        adjust_chunks={axis: tuple(1 for _ in data.chunks[axis]) for axis in axes},
        meta=np.empty((0,) * (data.ndim + 1), dtype),
        token="dshift-histogram",
        **how,
    )
    # Blocks are added one by one: `da.sum` would first copy them side by side.
    return da.reduction(
        tables,
        _as_it_is,
        _added_up,
        combine=_added_up,
        axis=axes,
        dtype=dtype,
        split_every=MERGED_AT_ONCE,
        concatenate=False,
        meta=np.empty((0,) * (data.ndim + 1 - len(axes)), dtype),
        name="dshift-histogram-sum",
    )


def _as_it_is(table: NDArray[Any], axis: Any, keepdims: bool) -> NDArray[Any]:
    return table


def _added_up(tables: Any, axis: tuple[int, ...], keepdims: bool) -> NDArray[Any]:
    first, *others = _flat(tables)
    total = first.copy() if others else first
    for table in others:
        total += table
    return total if keepdims else total.squeeze(axis)


def _flat(nested: Any) -> Iterator[NDArray[Any]]:
    if isinstance(nested, list):
        for part in nested:
            yield from _flat(part)
    else:
        yield nested


def _joined_chunks(data: Any, axes: tuple[int, ...], row_bytes: int) -> dict[int, Any]:
    """Return chunks along `axes`, joined until the values of a block outweigh its counts.

    A chunk of one time step, say, would otherwise turn into counts of many times its size.
    """
    n_values = math.prod(max(data.chunks[axis]) for axis in axes)
    wanted = row_bytes / max(1, n_values * data.dtype.itemsize)
    chunks = {}
    for axis in reversed(axes):
        sizes, several = data.chunks[axis], max(1, math.ceil(wanted))
        chunks[axis] = tuple(sum(sizes[i : i + several]) for i in range(0, len(sizes), several))
        wanted /= min(several, len(sizes))
    return chunks


def _open_cube(data: Any, dim: Any, weights: Any) -> _Cube:
    """Check an array and what to count over."""
    cube = data if isinstance(data, xr.DataArray) else xr.DataArray(data)
    if cube.dtype.kind not in "biuf":
        raise InvalidType(
            f"`data` has the dtype {cube.dtype}; give booleans, integers or real floats."
        )
    if not all(size >= 0 for size in cube.shape):  # Dask: NaN is unknown
        raise InvalidInput(
            f"`data` has the shape {cube.shape}; all lengths must be known, see Dask's "
            "`compute_chunk_sizes`."
        )
    over = _dims_to_count(dim, cube.dims)
    kept = cube.coords.to_dataset()
    kept = kept.drop_vars([name for name, coord in cube.coords.items() if over & {*coord.dims}])
    return _Cube(
        data=_plain(cube),
        weights=None if weights is None else _cube_weights(weights, cube),
        axes=tuple(axis for axis, name in enumerate(cube.dims) if name in over),
        dims=tuple(name for name in cube.dims if name not in over),
        coords=kept.coords,
        unit=cube.attrs.get("units"),
    )


def _plain(array: xr.DataArray) -> Any:
    """Return the Dask array inside, or the values as NumPy."""
    return array.data if _is_dask_array(array.data) else array.to_numpy()


def _dims_to_count(dim: Any, dims: tuple[Hashable, ...]) -> set[Hashable]:
    if dim is ...:
        return set(dims)
    names = {dim} if isinstance(dim, str) else set(dim if isinstance(dim, Iterable) else [dim])
    if dim is None or not names or not names <= set(dims):
        raise InvalidInput(
            f"`dim` is {dim!r}; name one or more of the dimensions of `data` to count over: "
            f"{', '.join(map(repr, dims))}; or pass ... for all of them."
        )
    return names


def _cube_weights(weights: Any, cube: xr.DataArray) -> Any:
    if not isinstance(weights, xr.DataArray):
        if np.shape(weights) != cube.shape:
            raise InvalidInput(
                f"`weights` has shape {np.shape(weights)} and `data` {cube.shape}; give them the "
                "same shape, or weights as a DataArray of some of the dimensions."
            )
        weights = xr.DataArray(weights, dims=cube.dims)
    _refuse_unless_numbers("weights", weights.dtype)
    try:
        if not set(weights.dims) <= set(cube.dims):
            raise ValueError(f"dimensions {weights.dims}, data has {cube.dims}")
        weights, _ = xr.align(weights, cube, join="exact", copy=False)
        weights = weights.broadcast_like(cube).transpose(*cube.dims)
    except ValueError as error:
        raise InvalidInput(
            f"`weights` do not fit onto `data` ({error}); give a DataArray of some of its "
            "dimensions, with the same coordinates."
        ) from error
    return _plain(weights)


def _refuse_unless_numbers(name: str, dtype: Any) -> None:
    """Raise unless a NumPy or pandas dtype is one of real numbers."""
    if not pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_complex_dtype(dtype):
        raise InvalidType(
            f"`{name}` has the dtype {dtype}; give booleans, integers or real floats."
        )


# ------------------------------------------------------------------------------- tables and series

Piece = tuple[Any, NDArray[Any], Any]  # ids (n,), values (n,), and weights (n,) or None
Partial = tuple[pd.Index, NDArray[Any]]  # ids, each once, and their rows of a table


@dataclass(frozen=True)
class _Rows:
    """Values in rows, each with the id of its sample, in pieces that are read one at a time."""

    pieces: Callable[[], Iterable[Any]]  # a `Piece` each, or the Delayed of one
    lazy: bool
    weighted: bool
    dims: tuple[str]
    ids: pd.Index | None = None  # None: those that occur
    ids_of_pieces: Sequence[Any] | None = None  # None: to be found out
    labels: Any = None  # of `ids`, as coordinate
    unit: str | None = None

    @property
    def names(self) -> set[Hashable]:
        """Names that are taken."""
        return set(self.dims)

    def extent(self) -> Extent:
        """Return what the values range over."""
        return _joined_extent([extent for _, extent in self._survey])

    def total(self, edges: Float) -> NDArray[Any]:
        """Return the counts of all values together."""
        counts: NDArray[Any] = np.sum(self._each(partial(_count_all, edges=edges)), axis=0)
        return counts

    def table(self, edges: Float, outside: str) -> tuple[Any, Mapping[Hashable, Any]]:
        """Return the table (n_ids, n_columns), and the coordinate of the samples."""
        dtype = _table_dtype(self.weighted)
        count = partial(_count_piece, edges=edges, outside=outside)
        empty = np.zeros((0, _n_columns(edges, self.weighted)), dtype)
        if self.lazy:
            places = self.ids_of_pieces or [found for found, _ in self._survey]
            ids = _all_ids(places) if self.ids is None else self.ids
            table = _lazy_table(self.pieces(), count, ids, places, empty)
        else:
            parts = self._each(count)
            ids = _all_ids([found for found, _ in parts]) if self.ids is None else self.ids
            table = _merge(ids, parts, empty)[1]
        labels = np.asarray(ids) if self.ids is None else self.labels
        return table, {} if labels is None else {self.dims[0]: labels}

    @cached_property
    def _survey(self) -> list[tuple[pd.Index, Extent]]:
        return self._each(_survey_piece)

    def _each(self, function: Callable[[Piece], Any]) -> list[Any]:
        if not self.lazy:
            return [function(piece) for piece in self.pieces()]
        from dask.base import compute
        from dask.delayed import delayed

        return list(compute(*map(delayed(function), self.pieces())))


def _survey_piece(piece: Piece) -> tuple[pd.Index, Extent]:
    return _grouped(piece[0])[0], _extent(piece[1])


def _count_all(piece: Piece, edges: Float) -> NDArray[Any]:
    table = _count_block(piece[1], None, (0,), edges, "drop", np.dtype(np.int64))
    return table[0, : len(edges) - 1]


def _count_piece(piece: Piece, edges: Float, outside: str) -> Partial:
    ids = piece[0]
    values = _numbers(piece[1])
    values, finder = _found(values, edges, make_finder(edges, values.dtype))
    weights = None if piece[2] is None else _weights(piece[2])
    n_columns = _n_columns(edges, weights is not None)
    dtype = _table_dtype(weights is not None, len(values))
    span = _span(ids)
    # Every row of a piece counts in some column: where ids lie close together, count into a table
    # of all whole numbers between them, and leave out those that are empty.
    at_once = span is not None and weights is None and span[1] * n_columns <= 2 * len(values)
    if span is not None and at_once:
        (lowest, n_rows), labels, places, found = span, np.asarray(ids), None, None
    else:
        found, labels, lowest, places = _grouped(ids)
        n_rows = len(found)
    table = np.zeros((n_rows, n_columns), dtype)
    labels = labels.astype(np.int64, copy=False)
    n_bad = count_rows(labels, lowest, places, values, weights, len(edges) - 1, *finder, table)
    _check_counted(table, n_bad, edges, outside)
    if found is not None:
        return found, table
    held = np.flatnonzero(table.any(axis=1))
    return pd.Index(held + lowest), table if len(held) == n_rows else table[held]


def _span(ids: Any) -> tuple[int, int] | None:
    """Return the lowest of some whole numbers, and how many there are from it to the highest."""
    if not isinstance(ids.dtype, np.dtype) or ids.dtype.kind not in "iu" or not len(ids):
        return None
    lowest, highest = int(ids.min()), int(ids.max())
    return (lowest, highest - lowest + 1) if highest < 2**63 else None


def _grouped(ids: Any) -> tuple[pd.Index, NDArray[Any], int, NDArray[Any] | None]:
    """Return the ids, sorted, each once; and where to find the place of a row's id among them.

    That is ``places[labels[i] - lowest]``, or ``labels[i]`` where `places` is None.
    """
    if isinstance(ids.dtype, pd.CategoricalDtype):
        found, labels, lowest, places = _grouped(ids.array.codes)
        categories = ids.array.categories.take(found)
        order = categories.argsort()
        sorted_places = np.argsort(order)
        places = sorted_places if places is None else sorted_places[places]
        return categories.take(order), labels, lowest, places
    span = _span(ids)
    # A lookup is several times faster than hashing, where it is not too large.
    if span is not None and span[1] <= 4 * len(ids) + 2**20:
        labels, (lowest, n_labels) = np.asarray(ids), span
        labels = labels.astype(np.int64, copy=False)
        seen = np.zeros(n_labels, np.bool_)
        mark_labels(labels, lowest, seen)
        return pd.Index(np.flatnonzero(seen) + lowest), labels, lowest, np.cumsum(seen) - 1
    try:
        codes, unique = pd.factorize(ids, sort=True)
    except TypeError as error:
        raise InvalidType(
            f"the `id` column holds ids that cannot be sorted ({error}); make them of one type."
        ) from error
    return pd.Index(unique), codes, 0, None


def _all_ids(found: Sequence[Any]) -> pd.Index:
    first, *others = found
    return first.append(others).unique().sort_values() if others else first


def _merge(ids: pd.Index, parts: Sequence[Partial], empty: NDArray[Any]) -> Partial:
    """Return the rows of `ids` from partial tables added up: a partial table again."""
    if len(parts) == 1 and parts[0][0] is ids:
        return ids, parts[0][1].astype(empty.dtype, copy=False)
    table = np.zeros((len(ids), empty.shape[1]), empty.dtype)
    for found, rows in parts:
        at = ids.get_indexer(found)
        table[at[at >= 0]] += rows[at >= 0]
    return ids, table


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


def _open(data: Any, dim: Any, id: Any, value: Any, weights: Any) -> _Cube | _Rows:
    if isinstance(data, xr.Dataset):
        names = ", ".join(map(repr, data.data_vars))
        raise InvalidType(f"`data` is a Dataset; give one of its variables: data[...] of {names}.")
    is_cube = isinstance(data, xr.DataArray | np.ndarray) or _is_dask_array(data)
    if not is_cube and dim is not None:
        raise InvalidInput(f"`dim` is {dim!r}, but only arrays have dimensions; leave it out.")
    if is_cube:
        if id is not None or value is not None:
            raise InvalidInput(
                f"`id` is {id!r} and `value` {value!r}, but `data` is an array, not a table; leave "
                "them out, and name the dimensions to count over in `dim`."
            )
        return _open_cube(data, dim, weights)
    if isinstance(data, str | os.PathLike):
        data = _read_parquet(os.fspath(data))
    if isinstance(data, pd.DataFrame) or _is_dask_frame(data):
        return _open_frame(data, id, value, weights)
    if isinstance(data, Mapping | list | tuple):
        return _open_series(data, id, value, weights)
    raise InvalidType(
        f"`data` is a {type(data).__name__}; give a DataArray, an array, a DataFrame, the path of "
        "a Parquet file, or a list or dict of 1-D arrays."
    )


def _is_dask_frame(data: Any) -> bool:
    """Tell a Dask DataFrame, without importing any."""
    dask_frame = sys.modules.get("dask.dataframe")
    return dask_frame is not None and isinstance(data, dask_frame.DataFrame)


def _read_parquet(path: str) -> Any:
    """Return the Dask DataFrame of a path or URL."""
    shown = public_name(path)
    try:
        import dask.dataframe as dd

        return dd.read_parquet(os.path.expanduser(path))
    except ImportError as error:
        raise InvalidInput(
            f"`data`={shown!r}: reading Parquet needs more packages ({error}); "
            "`pip install 'dshift[tables]'`."
        ) from error
    except FileNotFoundError:
        raise MissingData(f"`data`={shown!r} does not exist; check the path.") from None
    except (OSError, ValueError) as error:
        cause = error if shown == path else None  # it may quote the URL whole
        raise InvalidInput(
            f"`data`={shown!r} cannot be read as Parquet ({cause or type(error).__name__}); give a "
            "Parquet file or directory, or open the data with pandas, Dask or xarray."
        ) from cause


def _open_frame(frame: Any, id: Any, value: Any, weights: Any) -> _Rows:
    """Check a data frame and the names of its columns."""
    columns = list(frame.columns)
    wanted = {"id": id, "value": value, **({} if weights is None else {"weights": weights})}
    for name, column in wanted.items():
        if not isinstance(column, Hashable) or columns.count(column) != 1:
            raise InvalidInput(
                f"`{name}` is {column!r}; name one of the columns of `data`: "
                f"{', '.join(map(repr, columns))}."
            )
        if name != "id":
            _refuse_unless_numbers(f"{name}` column `{column}", frame.dtypes[column])
    if len({*wanted.values()}) < len(wanted):
        raise InvalidInput(f"`id` is {id!r} and so is another column; name columns that differ.")
    lazy = not isinstance(frame, pd.DataFrame)
    cut = partial(_cut_piece, id=id, value=value, weights=weights)

    def pieces() -> Iterable[Any]:
        if not lazy:
            return [cut(frame)]
        from dask.delayed import delayed

        return map(delayed(cut), frame[list(wanted.values())].to_delayed())

    return _Rows(pieces, lazy, weights is not None, (str(id),))


def _cut_piece(frame: pd.DataFrame, id: str, value: str, weights: str | None) -> Piece:
    n_missing = 0 if frame[id].dtype.kind in "biu" else int(frame[id].isna().sum())
    if n_missing:
        raise InvalidInput(
            f"`id` column `{id}` is missing in {n_missing} rows; drop those rows, or fill them in."
        )
    return frame[id], _column(frame[value]), None if weights is None else _column(frame[weights])


def _column(column: pd.Series) -> NDArray[Any]:
    if isinstance(column.dtype, np.dtype):
        return np.asarray(column)
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _open_series(data: Any, id: Any, value: Any, weights: Any) -> _Rows:
    """Check a list or dict of series, and their weights."""
    if value is not None or not isinstance(id, str | None):
        raise InvalidInput(
            f"`id` is {id!r} and `value` {value!r}, but `data` is a {type(data).__name__}; leave "
            "`value` out, and give `id` a string, the name of the samples' dimension."
        )
    keys = list(data) if isinstance(data, Mapping) else list(range(len(data)))
    if not keys:
        raise InvalidInput("`data` is empty; give at least one series.")
    arrays = [_one_series("data", key, data[key]) for key in keys]
    loads = None
    if weights is not None:
        if type(weights) is not type(data) or len(weights) != len(data):
            raise InvalidInput(
                f"`weights` is a {type(weights).__name__}; for series give a "
                f"{type(data).__name__} of {len(data)} arrays, like `data`."
            )
        loads = [_one_series("weights", key, _weights_of(weights, key)) for key in keys]
        for key, array, load in zip(keys, arrays, loads, strict=True):
            if array.shape != load.shape:
                raise InvalidInput(
                    f"`weights` of {key!r} has shape {load.shape} and `data` {array.shape}; give "
                    "as many weights as values."
                )
    every, labels = pd.RangeIndex(len(keys)), keys if isinstance(data, Mapping) else None
    dims, weighted = (id or "sample",), loads is not None
    if not any(map(_is_dask_array, [*arrays, *(loads or ())])):
        batches = partial(_batches, arrays, loads)
        return _Rows(batches, False, weighted, dims, every, labels=labels)
    pieces, numbers = _lazy_pieces(arrays, loads)
    places = [every[[number]] for number in numbers]
    return _Rows(lambda: pieces, True, weighted, dims, every, places, labels)


def _weights_of(weights: Any, key: Any) -> Any:
    try:
        return weights[key]
    except KeyError:
        raise InvalidInput(f"`weights` has no {key!r}; give it the keys of `data`.") from None


def _one_series(name: str, key: Any, series: Any) -> Any:
    array = series if _is_dask_array(series) else np.asanyarray(series)
    if isinstance(series, xr.DataArray):
        array = _plain(series)
    if array.ndim != 1:
        raise InvalidInput(
            f"`{name}` of {key!r} has {array.ndim} dimensions; each series must be a 1-D array."
        )
    # An empty list has no dtype of its own.
    _refuse_unless_numbers(f"{name}` of `{key}", array.dtype)
    return array


def _batches(arrays: Sequence[Any], loads: Sequence[Any] | None) -> Iterator[Piece]:
    """Yield series joined into pieces, because each piece takes microseconds to begin."""
    ends = np.cumsum([len(array) for array in arrays]) // BATCH_VALUES
    for _, group in itertools.groupby(range(len(arrays)), key=ends.__getitem__):
        some = list(group)
        joined = [np.concatenate([of[i] for i in some]) for of in (arrays, loads) if of is not None]
        labels = np.repeat(some, [len(arrays[i]) for i in some])
        yield labels, joined[0], joined[1] if loads is not None else None


def _lazy_pieces(arrays: Sequence[Any], loads: Sequence[Any] | None) -> tuple[list[Any], list[int]]:
    """Return the Delayed of a piece for each chunk of each series, and which series that is."""
    import dask.array as da
    from dask.delayed import delayed

    pieces, numbers = [], []
    for number, array in enumerate(arrays):
        values = da.asarray(array)
        blocks = [values.to_delayed()]
        if loads is not None:
            blocks.append(da.asarray(loads[number]).rechunk(values.chunks).to_delayed())
        for some in zip(*blocks, strict=True):
            pieces.append(delayed(_numbered)(number, *some))
            numbers.append(number)
    return pieces, numbers


def _numbered(number: int, values: Any, weights: Any = None) -> Piece:
    return np.full(len(values), number), values, weights


# -------------------------------------------------------------------------------------- the result


def _left_out(outside: str) -> dict[str, tuple[int, str]]:
    """Return the coordinates that count what was left out: their column, and what they say."""
    beyond = "left out" if outside == "drop" else "counted in the {} bin"
    return {"n_missing": (MISSING, "NaN, left out")} | (
        {}
        if outside == "raise"
        else {
            "n_below": (BELOW, f"values below the first edge, {beyond.format('first')}"),
            "n_above": (ABOVE, f"values above the last edge, {beyond.format('last')}"),
        }
    )


def _assemble(
    table: Any,
    dims: tuple[Hashable, ...],
    edges: Float,
    outside: str,
    density: bool,
    bin_dim: str,
    unit: str | None,
) -> xr.DataArray:
    """Return the histograms of a table, with edges, unit, and counts of what was left out."""
    n_bins, name = len(edges) - 1, "density" if density else "counts"
    widths = np.diff(edges) if density else None
    if not density and outside != "clip":
        values = table[..., :n_bins]
    elif _is_dask_array(table):
        dtype = np.float64 if density else table.dtype
        values = table.map_blocks(
            _finish,
            n_bins,
            outside == "clip",
            widths,
            chunks=(*table.chunks[:-1], (n_bins,)),
            meta=np.empty((0,) * table.ndim, dtype),
        )
    else:
        values = _finish(table, n_bins, outside == "clip", widths)
    counters = {
        key: xr.Variable(dims, table[..., n_bins + column].astype(np.int64), {"long_name": text})
        for key, (column, text) in _left_out(outside).items()
    }
    with_unit = {} if unit is None else {"units": unit}
    centers = xr.Variable(bin_dim, edges[:-1] / 2 + edges[1:] / 2, with_unit)
    attrs = {
        "long_name": f"{name} of values in bins",
        "edges": edges.tolist(),
        **({} if unit is None else {"edges_units": unit}),
        # So CF calls what tells of the quality of a variable's values.
        "ancillary_variables": " ".join(counters),
    }
    coords = {bin_dim: centers, **counters}
    return xr.DataArray(values, coords, (*dims, bin_dim), name, attrs)


def _finish(table: NDArray[Any], n_bins: int, clip: bool, widths: Float | None) -> NDArray[Any]:
    bins = table[..., :n_bins]
    if clip:
        weighted = table.shape[-1] > n_bins + WEIGHT_BELOW
        below = n_bins + (WEIGHT_BELOW if weighted else BELOW)
        bins = bins.copy()
        bins[..., 0] += table[..., below]
        bins[..., -1] += table[..., below + 1]
    if widths is None:
        return bins
    with np.errstate(invalid="ignore"):  # a sample without values has no density: NaN
        density: NDArray[Any] = bins / widths / bins.sum(axis=-1, keepdims=True)
    return density


# ------------------------------------------------------------- several histograms for each sample


def stack(
    histograms: Mapping[Any, xr.DataArray], scale: Any = None, *, bin_dim: str = "bin"
) -> xr.DataArray:
    """Join histograms of several variables, so that they cluster together.

    `fit` measures the distance of two samples as the sum of ``scale * W1`` over the variables, each
    of which is normalised on its own. Under another metric than "wasserstein" the scales are idle.

    Parameters
    ----------
    histograms : dict from name to DataArray, or Dataset
        Histograms of the same samples, bins last, as `histogram` returns them. Where an array has
        no attribute `edges`, its bins are 1 apart.
    scale : number, dict from name to number, or "range"
        What a distance of 1 in the unit of each variable counts; "range" counts 1 from the first
        to the last edge. None counts all alike, and is allowed only if units are the same.
    bin_dim : str
        Name of the joined dimension.

    Returns
    -------
    xarray.DataArray
        On the samples' dimensions and `bin_dim`, lazy if one of the arrays is. Coordinates of
        the bins: `bin_variable` and `bin_center`; counts of what was left out have the variable's
        name before theirs. `unstack` takes it, or the `modes` of a fit, apart again.

    Notes
    -----
    The attribute `edges` holds what `fit` measures by: the edges of each variable, scaled, and
    counted from 0 if there are several. So they drop to 0 where a variable begins.
    """
    parts = _checked_parts(histograms, bin_dim)
    edges = {name: _edges_of(name, part) for name, part in parts.items()}
    units = [str(part.attrs.get("edges_units", "")) for part in parts.values()]
    scales = _scales(scale, edges, units)
    scaled = [edges[name] * scales[name] for name in parts]
    if len(scaled) > 1:
        scaled = [bounds - bounds[0] for bounds in scaled]
    joined = xr.concat(
        [part.drop_vars(list(part.coords)) for part in parts.values()], bin_dim, join="exact"
    )
    left_out = {
        f"{name}_{key}": part.coords[key].variable
        for name, part in parts.items()
        for key in _left_out_of(part)
    }
    first = next(iter(parts.values()))
    own = {bin_dim, *_left_out_of(first)}
    centers = [bounds[:-1] / 2 + bounds[1:] / 2 for bounds in edges.values()]
    sizes = [part.sizes[bin_dim] for part in parts.values()]
    joined = joined.assign_coords(
        {name: coord for name, coord in first.coords.items() if not own & {name, *coord.dims}}
        | left_out
        | {
            "bin_variable": (bin_dim, np.repeat(np.array(list(parts), dtype=object), sizes)),
            "bin_center": (bin_dim, np.concatenate(centers)),
        }
    )
    same_unit = len({*units}) == 1 and units[0] and set(scales.values()) == {1.0}
    joined.attrs = {
        "long_name": "histograms of several variables",
        "edges": np.concatenate(scaled).tolist(),
        **({"edges_units": units[0]} if same_unit else {}),
        "variables": list(parts),
        "variable_bins": sizes,
        "variable_edges": np.concatenate(list(edges.values())).tolist(),
        "variable_units": units,
        "scale": [scales[name] for name in parts],
        **({"ancillary_variables": " ".join(left_out)} if left_out else {}),
    }
    return joined.rename("counts")


def unstack(stacked: xr.DataArray) -> dict[str, xr.DataArray]:
    """Take stacked histograms apart: one DataArray for each variable, bins last.

    Parameters
    ----------
    stacked : DataArray
        What `stack` returned, or the `modes` of a fit of it.
    """
    about = stacked.attrs
    if not isinstance(stacked, xr.DataArray) or "variable_bins" not in about:
        raise InvalidInput(
            "`stacked` has no attribute `variable_bins`; give what `stack` returned, or the "
            "`modes` of a fit of it."
        )
    sizes = np.atleast_1d(about["variable_bins"])
    if sizes.sum() != stacked.shape[-1]:
        raise InvalidInput(
            f"`stacked` has {stacked.shape[-1]} bins, and its variables had {sizes.sum()}; give it "
            "with all of its bins."
        )
    edges = np.split(np.asarray(about["variable_edges"]), np.cumsum(sizes + 1)[:-1])
    stops = np.cumsum(sizes)
    parts = {}
    for i, name in enumerate(np.atleast_1d(about["variables"]).tolist()):
        bin_dim = f"{name}_bin"
        part = stacked.isel({stacked.dims[-1]: slice(stops[i] - sizes[i], stops[i])})
        part = part.drop_vars([*stacked.coords.keys() & {"bin_variable", "bin_center"}])
        part = part.rename({stacked.dims[-1]: bin_dim})
        unit = np.atleast_1d(about["variable_units"]).tolist()[i]
        with_unit = {"units": unit} if unit else {}
        centers = edges[i][:-1] / 2 + edges[i][1:] / 2
        part = part.assign_coords({bin_dim: (bin_dim, centers, with_unit)})
        part.attrs = {"edges": edges[i].tolist(), **({"edges_units": unit} if unit else {})}
        parts[str(name)] = part.rename(str(name))
    return parts


def _checked_parts(histograms: Any, bin_dim: str) -> dict[str, xr.DataArray]:
    """Return the arrays by name, with the same samples in the same order, and `bin_dim` last."""
    if not isinstance(histograms, Mapping) or not histograms:
        raise InvalidType(
            f"`histograms` is a {type(histograms).__name__}; give a dict of one or more DataArrays "
            "by name, such as "
            '{"rain": ..., "temp": ...}.'
        )
    parts: dict[str, xr.DataArray] = {}
    for key, part in histograms.items():
        if not isinstance(part, xr.DataArray) or part.dtype.kind not in "biuf" or part.ndim < 2:
            raise InvalidType(
                f"`histograms` of {key!r} is no DataArray of numbers with samples and bins; make "
                "it one with `dshift.histogram`."
            )
        if "variable_bins" in part.attrs:
            raise InvalidInput(f"`histograms` of {key!r} is a stack itself; give its variables.")
        if bin_dim in (*part.dims[:-1], *(part.coords.keys() - part.dims)):
            raise InvalidInput(
                f"`bin_dim` is {bin_dim!r}, which is a name in `histograms` of {key!r} already; "
                "give another `bin_dim`."
            )
        parts[str(key)] = part.rename({part.dims[-1]: bin_dim})
    names = [f"`{name}` {part.dims[:-1]} {part.shape[:-1]}" for name, part in parts.items()]
    first = next(iter(parts.values()))
    try:
        aligned = xr.align(*parts.values(), join="exact", exclude=[bin_dim], copy=False)
        return {
            name: part.transpose(*first.dims) for name, part in zip(parts, aligned, strict=True)
        }
    except ValueError as error:
        raise InvalidInput(
            f"`histograms` are not of the same samples ({'; '.join(names)}): {error}; select the "
            "samples that they share."
        ) from error


def _left_out_of(part: xr.DataArray) -> list[str]:
    names = str(part.attrs.get("ancillary_variables", "")).split()
    return [name for name in names if name in part.coords]


def _edges_of(name: str, part: xr.DataArray) -> Float:
    n_bins = part.shape[-1]
    stored = part.attrs.get("edges")
    if stored is None:
        return np.arange(n_bins + 1.0)
    try:
        return check_edges(stored, n_bins)
    except (InvalidInput, InvalidType) as error:
        raise InvalidInput(f"`histograms` of {name!r}: {error}") from error


def _scales(scale: Any, edges: Mapping[str, Float], units: Sequence[str]) -> dict[str, float]:
    if scale is None and len({*units}) > 1:
        named = ", ".join(f"{n!r} is in {u or '?'}" for n, u in zip(edges, units, strict=True))
        raise InvalidInput(
            f"`scale` is None, but {named}: such distances cannot be added up; give a dict `scale` "
            'of what 1 of each unit counts, or scale="range".'
        )
    if isinstance(scale, str) and scale == "range":
        return {name: float(1 / (bounds[-1] - bounds[0])) for name, bounds in edges.items()}
    if isinstance(scale, Mapping) and {str(name) for name in scale} != {*edges}:
        raise InvalidInput(
            f"`scale` names {', '.join(map(repr, scale))}; it must name each of "
            f"{', '.join(map(repr, edges))}."
        )
    given = {str(n): s for n, s in scale.items()} if isinstance(scale, Mapping) else {}
    scales = {name: given.get(name, 1.0 if scale is None else scale) for name in edges}
    for name, number in scales.items():
        if not isinstance(number, Real) or isinstance(number, bool):
            raise InvalidType(
                f"`scale` of {name!r} is {number!r}; give a number above 0, a dict of such, or "
                '"range".'
            )
        if not 0 < float(number) < math.inf:
            raise InvalidInput(f"`scale` of {name!r} is {number!r}; it must be finite and above 0.")
    widths = [float(scales[name]) * float(b[-1] - b[0]) for name, b in edges.items()]
    if not max(widths) <= LARGEST_RATIO * min(widths):
        raise InvalidInput(
            f"`scale` makes one variable {max(widths) / min(widths):.0e} times as wide as another, "
            "which would not count at all; give scales that bring the variables nearer."
        )
    return {name: float(number) for name, number in scales.items()}


# ------------------------------------------------------------------------ kernels (for kernels.py)

jit = numba.njit(nogil=True, cache=True, error_model="numpy")
BUFFERED = 512


@jit
def column_of(value, n_bins, first, last, scale, low, bound):  # type: ignore[no-untyped-def]
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
def add_weight(row, column, n_bins, weight):  # type: ignore[no-untyped-def]
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
def count_lines(  # type: ignore[no-untyped-def]
    values, weights, n_bins, tile, first, last, scale, low, bound, table
):
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
def count_rows(  # type: ignore[no-untyped-def]
    labels, lowest, places, values, weights, n_bins, first, last, scale, low, bound, table
):
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
def search_bins(values, edges, numbers):  # type: ignore[no-untyped-def]
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
def mark_labels(labels, lowest, seen):  # type: ignore[no-untyped-def]
    """Mark which labels occur, counted from `lowest`."""
    for label in labels:
        seen[np.int64(label) - lowest] = True


@jit
def extent(values):  # type: ignore[no-untyped-def]
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
