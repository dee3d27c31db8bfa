"""Arrays that are counted over some of their dimensions, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.counting import (
    MERGED_AT_ONCE,
    Extent,
    count_block,
    count_columns,
    extent_of,
    joined_extent,
    plain_array,
    refuse_unless_numbers,
    table_dtype,
)
from dshift.errors import InvalidInput, InvalidType
from dshift.metrics import Float
from dshift.sources import _is_dask_array


@dataclass(frozen=True)
class Cube:
    """An array that is counted over some of its axes."""

    data: Any  # NumPy or Dask array
    weights: Any  # of the same shape, or None
    axes: tuple[int, ...]  # to count over, increasing
    dims: tuple[Hashable, ...] = ()  # of the samples
    coords: Mapping[Hashable, Any] | None = None
    quantity: str | None = None  # what the values are
    unit: str | None = None

    @property
    def names(self) -> set[Hashable]:
        """Names that are taken."""
        return {*self.dims, *(self.coords or ())}

    def extent(self) -> Extent:
        """Return what the values range over."""
        if not _is_dask_array(self.data):
            return extent_of(self.data)
        from dask.base import compute
        from dask.delayed import delayed

        blocks = self.data.to_delayed().ravel()
        return joined_extent(compute(*map(delayed(extent_of), blocks)))

    def total(self, edges: Float) -> NDArray[Any]:
        """Return the counts of all values together."""
        everything = Cube(self.data, None, tuple(range(self.data.ndim)))
        counts: NDArray[Any] = np.asarray(everything.table(edges, "drop")[0])
        return counts[: len(edges) - 1]

    def table(self, edges: Float, outside: str) -> tuple[Any, Mapping[Hashable, Any]]:
        """Return the table (*samples, n_columns), and the coordinates of the samples."""
        n_values = math.prod(self.data.shape[axis] for axis in self.axes)
        dtype = table_dtype(self.weights is not None, n_values)
        how = {"axes": self.axes, "edges": edges, "outside": outside, "count_dtype": dtype}
        if _is_dask_array(self.data):
            return _count_chunks(self.data, self.weights, how), self.coords or {}
        table = count_block(self.data, self.weights, **how)  # type: ignore[arg-type]
        return table.squeeze(self.axes), self.coords or {}


def _count_chunks(data: Any, weights: Any, how: dict[str, Any]) -> Any:
    """Return the table of all chunks: theirs, added up a few at a time."""
    import dask.array as da

    axes, dtype = how["axes"], how["count_dtype"]
    n_columns = count_columns(how["edges"], weights is not None)
    data = data.rechunk(_joined_chunks(data, axes, n_columns * dtype.itemsize))
    every = tuple(range(data.ndim))
    weights_and_axes: tuple[Any, Any] = (None, None)
    if weights is not None:
        weights_and_axes = (da.asarray(weights).rechunk(data.chunks), every)
    tables = da.blockwise(
        count_block,
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


def open_cube(data: Any, dim: Any, weights: Any) -> Cube:
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
    return Cube(
        data=plain_array(cube),
        weights=None if weights is None else _cube_weights(weights, cube),
        axes=tuple(axis for axis, name in enumerate(cube.dims) if name in over),
        dims=tuple(name for name in cube.dims if name not in over),
        coords=kept.coords,
        quantity=cube.attrs.get("long_name"),  # a name may be the token of a Dask array
        unit=cube.attrs.get("units"),
    )


def _dims_to_count(dim: Any, dims: tuple[Hashable, ...]) -> set[Hashable]:
    if not dims:
        raise InvalidInput(
            "`data` has no dimension to count over; give an array of one dimension or more."
        )
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
    refuse_unless_numbers("weights", weights.dtype)
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
    return plain_array(weights)
