"""Raw series to histograms: cubes, long tables and lists of series, lazily where they are Dask.

Every source is counted into a table (see `counting`); `_finish` makes histograms of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from dshift.counting import ABOVE, BELOW, MISSING, WEIGHT_BELOW
from dshift.cubes import Cube, open_cube
from dshift.edges import DENSITY, check_edges
from dshift.errors import InvalidInput, InvalidType
from dshift.metrics import Float
from dshift.rows import Rows
from dshift.sources import _is_dask_array
from dshift.tables import is_dask_frame, open_frame, open_series, read_parquet

FIRST_CELLS, MORE_CELLS = 2**16, 2**12  # of the search for quantiles: first pass, later ones
MOST_PASSES = 4
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
        counts instead: where widths differ, densities are not shares, and `fit` refuses them.
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
        The coordinate `bin_dim` holds the centres of the bins; its attribute `long_name` says what
        the values are (of a DataArray its `long_name`, of a table the column). By the
        attributes `edges` and `edges_units`, `fit` measures in the data's own unit. The coordinate
        `n_missing` counts the NaN that were left out of each sample; `n_below` and `n_above`,
        unless those raise, the values beyond the edges. The samples of a table are its ids, sorted.

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
    axis = (bin_dim, source.quantity, unit)
    counts = _assemble(table, source.dims, bounds, outside, density, *axis)
    return counts.assign_coords(coords)


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


def _open(data: Any, dim: Any, id: Any, value: Any, weights: Any) -> Cube | Rows:
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
        return open_cube(data, dim, weights)
    if isinstance(data, str | os.PathLike):
        data = read_parquet(os.fspath(data))
    if isinstance(data, pd.DataFrame) or is_dask_frame(data):
        return open_frame(data, id, value, weights)
    if isinstance(data, Mapping | list | tuple):
        return open_series(data, id, value, weights)
    raise InvalidType(
        f"`data` is a {type(data).__name__}; give a DataArray, an array, a DataFrame, the path of "
        "a Parquet file, or a list or dict of 1-D arrays."
    )


def _drawn_edges(source: Cube | Rows, how: str, bins: int) -> Float:
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
    quantity: str | None,
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
    with_name = {} if quantity is None else {"long_name": quantity}
    centers = xr.Variable(bin_dim, edges[:-1] / 2 + edges[1:] / 2, with_name | with_unit)
    attrs = {
        "long_name": f"{name} of values in bins",
        "edges": edges.tolist(),
        **({} if unit is None else {"edges_units": unit}),
        **({DENSITY: 1} if density else {}),
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
