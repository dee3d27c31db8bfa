"""A finished result can be told from a damaged one: every chunk is there, with its own checksum.

Checksums are Zarr's own codec, so any reader of the store is warned, and workers that write chunks
need not know of it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from typing import Any

import xarray as xr
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from dshift.errors import StoreFailed

_opening = threading.Lock()
ALWAYS_THERE = ("label", "mode_index", "n_iter", "is_seed", "modes", "density", "cluster_of_mode")


def with_plain_strings(result: xr.Dataset) -> xr.Dataset:
    """Return the same with strings of any length: Zarr has no settled form for fixed ones."""
    fixed = {name: c.astype(object) for name, c in result.coords.items() if c.dtype.kind == "U"}
    return result.assign_coords(fixed)


def checked_encoding(result: xr.Dataset) -> dict[Any, dict[str, Any]]:
    """Return the encoding that gives each chunk of each variable a checksum."""
    codecs = (ZstdCodec(), Crc32cCodec())
    return {name: {"compressors": codecs} for name in result.variables}


def open_to_write(url: str, variable: str) -> Any:
    """Return an array of a result whose chunks are all written, also those of fill values alone.

    An array keeps the configuration that it was opened with; the lock is for other threads that
    open one, since leaving the context gives back what was there before for all of them.
    """
    with _opening, zarr.config.set({"array.write_empty_chunks": True}):
        return zarr.open_array(url, path=variable, mode="r+")


def refuse_damaged(url: str, name: str, variables: Iterable[str]) -> None:
    """Raise StoreFailed unless every chunk of a finished result can be read; keep none of them.

    `name` is what messages call the store.
    """
    looked_at = "the group"
    try:
        for variable in sorted({*variables, *ALWAYS_THERE}):
            looked_at = variable
            array = zarr.open_array(url, path=variable, mode="r")
            _refuse_gaps(array)
            starts = [range(0, n, c) for n, c in zip(array.shape, array.chunks, strict=True)]
            for corner in itertools.product(*starts):
                array[tuple(slice(i, i + c) for i, c in zip(corner, array.chunks, strict=True))]
    except Exception as error:
        # That of a remote store may quote its URL, credentials included.
        remote = "://" in name
        said = type(error).__name__ if remote else f"{type(error).__name__}: {error}"
        raise StoreFailed(
            f"the result in `store`={name!r} is damaged: {looked_at} cannot be read ({said}). "
            "Remove the store, and fit again."
        ) from (None if remote else error)


def _refuse_gaps(array: Any) -> None:
    if array.nchunks_initialized < array.nchunks:
        raise FileNotFoundError(
            f"{array.nchunks - array.nchunks_initialized} of {array.nchunks} chunks are not there"
        )
