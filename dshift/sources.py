"""Sources: a path, URL, Zarr, xarray, Dask or NumPy object becomes `Samples`.

Only this module knows where histograms come from. `open_samples` reads metadata and coordinates;
the histograms themselves are read block by block, when `Samples.read` is called.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xarray as xr
import zarr
from fsspec import available_protocols
from xarray.indexes import PandasMultiIndex

from dshift.chunks import Sizes, block_sizes, chunk_sizes, slices_of
from dshift.edges import refuse_uneven_densities, stored_edges
from dshift.errors import InvalidInput, InvalidType, MissingData
from dshift.redaction import public_cause, public_name
from dshift.unreadable import reading

MAX_KEPT_BYTES = 256 * 2**20  # of a Dask array that is computed once and kept
# Attributes by which a CF writer says that the stored numbers are not the values themselves.
PACKING_ATTRS = {"_FillValue", "missing_value", "scale_factor", "add_offset", "_Unsigned"}
# Attributes by which stacked histograms can be taken apart.
STACK_ATTRS = ("variables", "variable_bins", "variable_edges", "variable_units", "scale")
NUMBERS = "booleans, integers or real floats"


@dataclass(frozen=True, eq=False)
class Samples:
    """Histograms that can be read block by block, and the names of their axes."""

    origin: str  # what messages call the source; never holds credentials
    dims: tuple[str, ...]  # of the samples, in the source's order
    shape: tuple[int, ...]
    bin_dim: str
    n_bins: int
    dtype: np.dtype[Any]  # of what `read` returns, in native byte order
    coords: dict[str, xr.DataArray] = field(repr=False)  # on no bin dimension; in memory
    bin_coords: dict[str, xr.DataArray] = field(repr=False)  # on the bin dimension alone; in memory
    edges: np.ndarray | None = field(repr=False)  # (n_bins + 1,), stored with the data, in `unit`
    unit: str | None
    stack_attrs: dict[str, Any] = field(repr=False)  # of stacked histograms: see `dshift.stack`
    _array: Any = field(repr=False)
    _bin_axis: int = field(repr=False)
    _layouts: tuple[Sizes, ...] = field(repr=False)  # chunks of the samples, coarsest first

    @property
    def n_samples(self) -> int:
        """Number of histograms."""
        return math.prod(self.shape)

    def blocks(self) -> Iterator[tuple[slice, ...]]:
        """Tile the samples along the source's chunks, in C order.

        Only a chunk beyond `chunks.MAX_BLOCK_BYTES` is ever shared by two blocks.
        """
        sizes = block_sizes(self._layouts, self.n_bins * self.dtype.itemsize)
        return itertools.product(*map(slices_of, sizes))

    def read(self, block: tuple[slice, ...]) -> np.ndarray:
        """Read one block (a slice for each of `dims`); threads may read at the same time.

        Returns a (*block_shape, n_bins) C-contiguous array that the caller owns.
        """
        where = (*block[: self._bin_axis], slice(None), *block[self._bin_axis :])
        if _is_dask_array(self._array):
            # With whatever scheduler the user chose; errors are those of the user's own graph.
            values = np.asanyarray(self._array[where].compute())
        else:
            ranges = [f"{d}={s.start}:{s.stop}" for d, s in zip(self.dims, block, strict=True)]
            with reading(f"{self.origin}, samples {', '.join(ranges)}"):
                part = self._array[where]
                values = part.to_numpy() if isinstance(part, xr.Variable) else np.asanyarray(part)
        if np.ma.is_masked(values):
            raise InvalidInput(f"`data` ({self.origin}) holds masked values: fill them with NaN")
        return np.array(np.moveaxis(values, self._bin_axis, -1), dtype=self.dtype, order="C")

    def in_memory(self) -> Samples:
        """Return the same samples, all read at once."""
        rows = np.empty((*self.shape, self.n_bins), dtype=self.dtype)
        for block in self.blocks():
            rows[block] = self.read(block)
        whole = tuple((size,) for size in self.shape)
        return replace(self, _array=rows, _bin_axis=len(self.dims), _layouts=(whole,))

    @property
    def is_dask(self) -> bool:
        """Whether reading is computing, which may take long."""
        return _is_dask_array(self._array)

    def without_coords(self) -> Samples:
        """Return the same samples without coordinates: light enough to travel with every task."""
        return replace(self, coords={}, bin_coords={})

    def without_data(self) -> Samples:
        """Return what is known of the samples, with nothing to read."""
        return replace(self.without_coords(), _array=None)


def computed_once(samples: Samples) -> Samples:
    """Return samples that are a Dask array in memory, if they are not large; others as they are.

    Whoever reads them more than once would else have all of it computed again.
    """
    small = source_bytes(samples) <= MAX_KEPT_BYTES
    return samples.in_memory() if small and _is_dask_array(samples._array) else samples


def source_bytes(samples: Samples) -> int:
    """Bytes of all the histograms, as `Samples.read` returns them."""
    return samples.n_samples * samples.n_bins * samples.dtype.itemsize


def open_samples(data: Any, *, variable: str | None = None, bin_dim: str | None = None) -> Samples:
    """Open histograms without reading them.

    Parameters
    ----------
    data : path or fsspec URL of a Zarr array or group, `zarr.Array`, `zarr.Group`,
        `xarray.DataArray`, `xarray.Dataset`, `dask.array.Array`, or anything that NumPy turns
        into numbers. Two dimensions or more.
    variable : which array of a group or Dataset; needed when there are several.
    bin_dim : name of the dimension along the bins; the last one if None. Nameless dimensions are
        called ``dim_0``, ``dim_1``, ... as in xarray.
    """
    return _samples(_find(data, variable), bin_dim)


@dataclass(frozen=True)
class _Found:
    """An array that takes slices, and what its source says about it."""

    origin: str
    array: Any
    dims: tuple[Any, ...] | None  # None: nameless
    chunkings: Sequence[Sequence[int | tuple[int, ...]]]  # coarsest first; -1 is a whole length
    attrs: Mapping[str, Any] = field(default_factory=dict)
    coords: Mapping[Any, xr.DataArray] = field(default_factory=dict)


def _find(data: Any, variable: str | None) -> _Found:
    origin = type(data).__name__
    if isinstance(data, (str, os.PathLike)):
        origin, data = _open_path(os.fspath(data))
    elif isinstance(data, (zarr.Array, zarr.Group)):
        local = isinstance(data.store, zarr.storage.LocalStore)  # others may hold credentials
        origin = str(data.store_path) if local else f"zarr {origin} {data.path}".strip()
    if isinstance(data, zarr.Group):
        return _from_group(data, variable, origin)
    if isinstance(data, xr.Dataset):
        return _from_dataset(data, variable, origin)
    if variable is not None:
        raise InvalidInput(f"`variable`={variable!r}: `data` ({origin}) is one array; leave it out")
    if isinstance(data, zarr.Array):
        return _from_zarr(data, origin)
    if isinstance(data, xr.DataArray):
        return _from_dataarray(data, f"{origin} {data.name or ''}".strip())
    if _is_dask_array(data):
        return _Found("dask array", data, None, (data.chunks,))
    return _from_numpy(data)


def refuse_half_url(name: str, path: str) -> None:
    """Raise for `file:x`, which is neither a URL nor meant to be a folder called `file:`."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme in available_protocols() and not rest.startswith(("//", ":")):
        raise InvalidInput(
            f"`{name}`={public_name(path)!r} is no URL, which would begin with '{scheme}://' (of a "
            "file: 'file:///', then its folder); for a path that has a colon, write './' before it"
        )


def _open_path(path: str) -> tuple[str, Any]:
    refuse_half_url("data", path)
    origin = public_name(path)
    try:
        return origin, zarr.open(os.path.expanduser(path), mode="r")
    except Exception as error:
        failure = error
    # The cause may quote the URL whole, so it is shown only when there was nothing to hide.
    cause = failure if origin == path else None
    if not isinstance(failure, FileNotFoundError):
        raise InvalidInput(
            f"`data`={origin!r} cannot be opened as Zarr ({public_cause(failure, path)}); check "
            "that its metadata is whole; of a URL, that its fsspec package is installed (S3: "
            "`pip install 'dshift[s3]'`) and its credentials are set"
        ) from cause
    raise MissingData(
        f"`data`={origin!r} holds no Zarr array or group; check that it exists, or open another "
        "format with xarray and give the DataArray"
    ) from cause


def _from_group(group: zarr.Group, variable: str | None, origin: str) -> _Found:
    with reading(f"{origin}, the list of its arrays"):
        arrays = dict(group.arrays())
    if all(_zarr_dims(array) for array in arrays.values() if array.ndim):
        return _from_dataset(_open_with_xarray(group, arrays, origin), variable, origin)
    name = _pick(arrays, variable, origin)
    return _from_zarr(arrays[name], f"{origin}/{name}")


def _from_zarr(array: Any, origin: str) -> _Found:
    chunkings = (array.shards or array.chunks, array.chunks)
    return _Found(origin, array, _zarr_dims(array), chunkings, dict(array.attrs))


def _open_with_xarray(group: zarr.Group, arrays: Mapping[str, Any], origin: str) -> xr.Dataset:
    # xarray takes the fill value of a version 2 array for "missing", and zarr-python fills with 0
    # unless told otherwise. An empty bin is not a missing one: such arrays are read as they are.
    as_stored = {
        name: False
        for name, array in arrays.items()
        if group.metadata.zarr_format == 2 and PACKING_ATTRS.isdisjoint(array.attrs)
        if array.fill_value is not None and array.fill_value == 0
    }
    # Said outright, because xarray warns when it has to find out. It looks at the store's root.
    consolidated = not group.path and group.metadata.consolidated_metadata is not None
    with reading(f"{origin}, its coordinates"):
        try:
            dataset: xr.Dataset = xr.open_zarr(
                group.store,
                group=group.path,
                chunks=None,
                consolidated=consolidated,
                mask_and_scale=as_stored,
            )
        except ValueError as error:
            raise InvalidInput(
                f"xarray cannot read the group `data`={origin!r} ({error}); give the array's path"
            ) from error
    return dataset


def _from_dataset(dataset: xr.Dataset, variable: str | None, origin: str) -> _Found:
    name = _pick(dataset.data_vars if variable is None else dataset.variables, variable, origin)
    return _from_dataarray(dataset[name], f"{origin}{' ' if origin == 'Dataset' else '/'}{name}")


def _pick(arrays: Mapping[Any, Any], variable: str | None, origin: str) -> Any:
    numeric = [name for name, array in arrays.items() if array.ndim and _is_numeric(array.dtype)]
    if variable in arrays or (variable is None and len(numeric) == 1):
        return numeric[0] if variable is None else variable
    problem = f"`data` ({origin}) holds {'several' if numeric else 'no'} arrays of {NUMBERS}"
    if variable is not None:
        problem = f"`variable`={variable!r} is not in `data` ({origin})"
    remedy = f"choose `variable` from: {', '.join(sorted(map(str, numeric)))}"
    raise InvalidInput(f"{problem}; {remedy if numeric else 'give a group or Dataset of numbers'}")


def _from_dataarray(data: xr.DataArray, origin: str) -> _Found:
    # A MultiIndex cannot be written to Zarr; its levels, as plain coordinates, can.
    stacked = {i.dim for i in data.xindexes.values() if isinstance(i, PandasMultiIndex)}
    coords = data.reset_index(list(stacked)).coords if stacked else data.coords
    # Counts of what `histogram` left out come with the histograms themselves: to compute them
    # beforehand would read all raw data once more.
    left_out = str(data.attrs.get("ancillary_variables", "")).split()
    kept = {k: c for k, c in coords.items() if k not in left_out or c.chunks is None}
    variable = data.variable
    if variable.chunks is not None and _is_dask_array(variable.data):
        return _Found(origin, data.data, data.dims, (data.data.chunks,), data.attrs, kept)
    # By name, since a transposed variable keeps the order of its `shards`.
    chunks = variable.encoding.get("preferred_chunks") or {}
    shards = dict(zip(chunks, variable.encoding.get("shards") or (), strict=False))
    chunkings = [[c.get(dim, -1) for dim in variable.dims] for c in (shards or chunks, chunks)]
    return _Found(origin, variable, variable.dims, chunkings, data.attrs, kept)


def _from_numpy(data: Any) -> _Found:
    origin = "numpy array" if isinstance(data, np.ndarray) else type(data).__name__
    try:
        array = np.asanyarray(data)
    except (ValueError, TypeError) as error:
        message = f"`data` ({origin}) is not a regular array of numbers ({error}); make it one"
        raise InvalidInput(message) from error
    return _Found(origin, array, None, (array.shape,))


def _is_dask_array(data: Any) -> bool:
    # A Dask array exists only once dask.array is imported, and importing it takes a second.
    dask_array = sys.modules.get("dask.array")
    return dask_array is not None and isinstance(data, dask_array.Array)


def _is_numeric(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _zarr_dims(array: Any) -> tuple[str, ...] | None:
    """Names of an array's dimensions, or None unless each has one of its own."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    distinct = {name for name in names or () if isinstance(name, str)}
    return tuple(names) if names and len(names) == len(distinct) == array.ndim else None


def _samples(found: _Found, bin_dim: str | None) -> Samples:
    named, shape = f"`data` ({found.origin})", found.array.shape
    dims = tuple(map(str, found.dims or (f"dim_{axis}" for axis in range(len(shape)))))
    if not _is_numeric(found.array.dtype):
        raise InvalidType(
            f"{named} has the dtype {found.array.dtype}, and histograms are {NUMBERS}: convert it, "
            "or choose another `variable`"
        )
    if len(dims) < 2:
        raise InvalidInput(
            f"{named} has the shape {shape}: histograms need a sample dimension beside their bins; "
            "add one, for example with `data[numpy.newaxis, :]`"
        )
    if not all(size >= 1 for size in shape) or len(set(dims)) < len(dims):  # Dask: NaN is unknown
        raise InvalidInput(
            f"{named} has the dimensions {dims} of lengths {shape}: each needs a name of its own "
            "and a known length of at least 1 (for Dask, see `compute_chunk_sizes`)"
        )
    if bin_dim is not None and bin_dim not in dims:
        raise InvalidInput(f"`bin_dim`={bin_dim!r} is not a dimension of {named}: it has {dims}")
    axis = len(dims) - 1 if bin_dim is None else dims.index(bin_dim)
    kept = [i for i in range(len(dims)) if i != axis]
    on_bins = {k: c for k, c in found.coords.items() if set(map(str, c.dims)) == {dims[axis]}}
    off_bins = {k: c for k, c in found.coords.items() if dims[axis] not in map(str, c.dims)}
    bin_attrs = on_bins[dims[axis]].attrs if dims[axis] in on_bins else {}
    edges = stored_edges(found.attrs, shape[axis], named)
    refuse_uneven_densities(named, found.attrs, edges)
    return Samples(
        origin=found.origin,
        dims=tuple(dims[i] for i in kept),
        shape=tuple(shape[i] for i in kept),
        bin_dim=dims[axis],
        n_bins=shape[axis],
        dtype=found.array.dtype.newbyteorder("="),
        coords=_loaded(off_bins, found.origin),
        bin_coords=_loaded(on_bins, found.origin),
        edges=edges,
        unit=bin_attrs.get("units", found.attrs.get("edges_units")),
        stack_attrs={name: found.attrs[name] for name in STACK_ATTRS if name in found.attrs},
        _array=found.array,
        _bin_axis=axis,
        _layouts=tuple(tuple(chunk_sizes(shape[i], c[i]) for i in kept) for c in found.chunkings),
    )


def _loaded(coords: Mapping[Any, xr.DataArray], origin: str) -> dict[str, xr.DataArray]:
    loaded = {}
    for name, coord in coords.items():
        with reading(f"{origin}, the coordinate {name}"):
            # Made anew: the encoding of the source's store would break writing to another.
            alone = coord.variable.compute()
            alone.dims = tuple(map(str, alone.dims))  # as those of the samples
            loaded[str(name)] = xr.DataArray(alone, name=str(name))
    return loaded
