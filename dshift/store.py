"""Results in Zarr, written whole or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import xarray as xr
import zarr

from dshift.errors import InvalidInput, InvalidType
from dshift.result import TITLE


def check_store(store: object) -> Path | None:
    """Return where to write the result; refuse a place that holds anything but a result."""
    if store is None:
        return None
    if not isinstance(store, str | os.PathLike):
        raise InvalidType(
            f"`store` is a {type(store).__name__}; give the path of a Zarr store to write, or None."
        )
    if "://" in os.fspath(store):
        raise InvalidInput(f"`store` is {os.fspath(store)!r}; only local paths are supported.")
    target = Path(store)
    if target.exists() and not is_result(target):
        raise InvalidInput(
            f"`store` is {str(target)!r}, which exists and is not a result of dshift; "
            "give another path, or remove it first."
        )
    return target


def is_result(path: Path) -> bool:
    """Return whether a result of dshift is stored at `path`."""
    try:
        return bool(zarr.open_group(path, mode="r").attrs.get("title") == TITLE)
    except Exception:
        return False


def write_result(result: xr.Dataset, target: Path) -> None:
    """Write the result beside its place and move it there when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex[:8]
    fresh = target.with_name(f".{target.name}.{token}.new")
    stale = target.with_name(f".{target.name}.{token}.old")
    try:
        result.to_zarr(fresh, mode="w", consolidated=False)
        if target.exists():
            target.rename(stale)
        fresh.rename(target)
    except BaseException:
        if stale.exists() and not target.exists():
            stale.rename(target)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(stale, ignore_errors=True)
