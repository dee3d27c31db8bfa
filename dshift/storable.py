"""What cannot be written to a store is refused before the work, not after it."""

from __future__ import annotations

import re

import numpy as np
import xarray as xr
import zarr

from dshift.errors import InvalidInput
from dshift.intact import with_plain_strings
from dshift.sources import Samples
from dshift.store import ROOT, RUN_FOLDER

# A name is a folder of the store: it may not lead out of it, into another, or to our own files.
UNSAFE = re.compile(r"[/\\\0]|^\.*$")
TAKEN = (RUN_FOLDER, ROOT, ".zgroup", ".zattrs", ".zarray", ".zmetadata")


def refuse_unstorable(samples: Samples) -> None:
    """Raise if a coordinate of the data could not be written with the result."""
    for name, coord in {**samples.coords, **samples.bin_coords}.items():
        _refuse_unsafe_name(name)
        # One entry shows whether the type and the attributes can be written; objects may be mixed.
        part = coord if coord.dtype == object else coord[(slice(0, 1),) * coord.ndim]
        try:
            alone = xr.Dataset(coords={name: part.variable})
            with_plain_strings(alone).to_zarr(
                zarr.storage.MemoryStore(), mode="w", consolidated=False
            )
        except Exception as error:
            raise InvalidInput(
                f"the coordinate `{name}` cannot be written to `store` ({error}); convert it or "
                f"its attributes, or leave it out: data.drop_vars({name!r})."
            ) from error
    for name in np.atleast_1d(samples.stack_attrs.get("variables", [])).tolist():
        _refuse_unsafe_name(str(name))


def _refuse_unsafe_name(name: str) -> None:
    if UNSAFE.search(name) or name in TAKEN:
        raise InvalidInput(
            f"the data has a variable or coordinate called {name!r}, which cannot be the name of a "
            "variable in `store`; rename it to a word without slashes and leading dots."
        )
