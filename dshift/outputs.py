"""Where a command writes: what is there is lost only if it is a Zarr store, and was offered."""

from __future__ import annotations

import os
import shutil
import uuid
from typing import TYPE_CHECKING

from dshift.redaction import public_cause, public_name
from dshift.terminal import BadInput

if TYPE_CHECKING:
    import xarray as xr

# One of these is in the folder of every Zarr group and array.
ZARR_FILES = ("zarr.json", ".zgroup", ".zarray")


def check_new(path: str, overwrite: bool, *inputs: str | None) -> None:
    """Refuse to write where something is, unless it may be replaced: never an input."""
    import fsspec

    shown = public_name(path)
    for given in filter(None, inputs):
        if _is_within(given, path):
            raise BadInput(f"OUT {shown}: would replace the input {public_name(given)}; rename it.")
    try:
        fs, root = fsspec.core.url_to_fs(path)
        is_there = fs.exists(root)
        is_zarr = is_there and any(fs.exists(f"{root.rstrip('/')}/{name}") for name in ZARR_FILES)
    except Exception as error:  # object stores have errors of their own
        raise BadInput(f"OUT {shown}: cannot be reached ({public_cause(error, path)}).") from None
    if is_there and not overwrite:
        raise BadInput(f"OUT {shown}: exists; give another path, or --overwrite to replace it.")
    if is_there and not is_zarr:
        raise BadInput(
            f"OUT {shown}: is no Zarr store, and --overwrite replaces nothing else; give another "
            "path."
        )


def _is_within(path: str, folder: str) -> bool:
    if "://" not in path and "://" not in folder:
        path, folder = os.path.realpath(path), os.path.realpath(folder)
    return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")


def write_new(dataset: xr.Dataset, path: str) -> None:
    """Write a Dataset to Zarr; on a disk it appears whole or not at all."""
    path = path.removeprefix("file://")
    if "://" in path:
        dataset.to_zarr(path, mode="w", consolidated=False)
        return
    target = os.path.realpath(path)  # a link stays, and what it points to is replaced
    partial = f"{target}.{uuid.uuid4().hex[:8]}.partial"
    try:
        dataset.to_zarr(partial, mode="w", consolidated=False)
        if os.path.isdir(target):
            shutil.rmtree(target)
        os.replace(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
