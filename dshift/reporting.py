"""The report: a result and its data as one HTML file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import xarray as xr

from dshift.errors import InvalidInput, InvalidType
from dshift.model import open_result
from dshift.report_check import check_match, check_path, check_result, check_sweep
from dshift.report_findings import find
from dshift.report_page import render
from dshift.report_study import study
from dshift.sources import open_samples


def report(
    result: Any,
    data: Any,
    path: str | os.PathLike[str],
    *,
    sweep: xr.Dataset | None = None,
    variable: str | None = None,
    bin_dim: str | None = None,
    title: str | None = None,
) -> Path:
    """Write one HTML file that shows what a fit found and how sure it is.

    The file holds everything that it needs. Of large data a part is read, and the page says so.

    Parameters
    ----------
    result : Dataset, or path or URL of a store
        What `dshift.fit` returned or stored.
    data : path, URL, zarr.Array, zarr.Group, xarray.DataArray, xarray.Dataset, dask or NumPy array
        The histograms that were clustered. Others are refused, by their fingerprint; data of more
        than 2**26 numbers are not compared, and the page says so.
    path : path
        The file to write. It appears whole or not at all, in place of an older one.
    sweep : Dataset, optional
        What `dshift.sweep` returned, to show how the clusters depend on the bandwidth.
    variable, bin_dim : str, optional
        As for `dshift.fit`.
    title : str, optional
        Heading of the page; by default it names the data.

    Returns
    -------
    pathlib.Path
        `path`.
    """
    if isinstance(result, str | os.PathLike):
        result = open_result(result)
    check_result(result)
    target = check_path(path, data)
    if title is not None and not isinstance(title, str):
        raise InvalidType(f"`title` is a {type(title).__name__}; give a text, or leave it out.")
    check_sweep(sweep)
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    check_match(result, samples)
    _write_whole(target, render(find(study(result, samples), title, sweep)))
    return target


def _write_whole(target: Path, html: str) -> None:
    # A link stays where it is, and what it points to is replaced.
    target = Path(os.path.realpath(target))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(html)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # a temporary file is private, a report is not
        os.replace(name, target)
    except BaseException as error:
        os.unlink(name)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise


def _unwritable(target: Path, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"`path`={str(target)!r} cannot be written ({error.strerror or error}); choose a place "
        "where you may write and that has room."
    )
