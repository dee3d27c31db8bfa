"""What a report refuses: other things than results, other data than the result's, wrong places."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import xarray as xr

from dshift.errors import DshiftError, InvalidInput, InvalidType
from dshift.field import load_points
from dshift.metrics import KINDS, Float, Metric
from dshift.model import refuse_parts
from dshift.sources import Samples

MAX_CHECKED_VALUES = 2**26  # numbers in the data: beyond that they are not read as a whole


def check_result(result: Any) -> None:
    """Refuse what is not a result of `fit`."""
    if not isinstance(result, xr.Dataset):
        raise InvalidType(
            f"`result` is a {type(result).__name__}; give the Dataset that dshift.fit returned, or "
            "the path of its store."
        )
    refuse_parts(result)


def check_path(path: Any, data: Any) -> Path:
    """Return the file to write; refuse one that is the data, or no plain file."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidType(f"`path` is a {type(path).__name__}; give the file's name, as text.")
    target = Path(os.fsdecode(path)).expanduser()
    if target.is_dir():
        raise InvalidInput(f"`path`={str(target)!r} is a directory; add a name, as in report.html.")
    if not target.parent.is_dir():
        raise InvalidInput(
            f"`path`={str(target)!r}: there is no directory {str(target.parent)!r}; make it first, "
            "or choose another place."
        )
    if target.exists() and not target.is_file():
        raise InvalidInput(
            f"`path`={str(target)!r} is a device or a pipe; give the name of a file."
        )
    if isinstance(data, xr.Dataset | xr.DataArray):
        data = data.encoding.get("source")
    if isinstance(data, str | os.PathLike) and target.resolve() == Path(data).resolve():
        raise InvalidInput(f"`path`={str(target)!r} is the data; give the name of another file.")
    return target


def check_sweep(sweep: Any) -> None:
    """Refuse what is not a sweep."""
    if sweep is not None and not isinstance(sweep, xr.Dataset):
        raise InvalidType(f"`sweep` is a {type(sweep).__name__}; give what dshift.sweep returned.")
    if sweep is not None and "bandwidth" not in sweep.coords:
        raise InvalidInput(
            f"`sweep` has the coordinates {sorted(map(str, sweep.coords))}, and `bandwidth` is "
            "needed; give what dshift.sweep returned."
        )


def check_match(result: xr.Dataset, samples: Samples) -> None:
    """Refuse data of other dimensions or bins than the result's."""
    label, n_bins = result["label"], result["modes"].shape[1]
    dims = tuple(map(str, label.dims))
    turned = dims != samples.dims and sorted(dims) == sorted(samples.dims)
    if label.shape != samples.shape or n_bins != samples.n_bins or turned:
        given = dict(zip(samples.dims, samples.shape, strict=True))
        known = dict(zip(dims, label.shape, strict=True))
        raise InvalidInput(
            f"`data` ({samples.origin}) has samples {given} of {samples.n_bins} bins, and `result` "
            f"is about samples {known} of {n_bins} bins; give the data that was clustered, and the "
            "`variable` and `bin_dim` of that fit."
        )


def check_fingerprint(result: xr.Dataset, samples: Samples, edges: Float | None) -> None:
    """Refuse data whose histograms are not those that were clustered."""
    known = result.attrs.get("fingerprint")
    if known is None:
        return
    found = "none"
    for kind, metric in _ways_to_read(str(result.attrs.get("metric", "wasserstein"))):
        with suppress(DshiftError):  # not one of the rows is a histogram
            found = load_points(samples, kind, metric, edges, "mask").fingerprint
        if found == known:
            return
    raise InvalidInput(
        f"`data` ({samples.origin}) has the shape of what was clustered, but holds other "
        f"histograms: their fingerprint is {found}, and that of `result` is {known}; give the same "
        "histograms, in the same order."
    )


def _ways_to_read(metric: str) -> Iterator[tuple[str, Metric | None]]:
    """Yield how the fit may have read its rows: a metric of the user's own does not say."""
    if metric in KINDS:
        yield metric, None
        return
    for normalize in (True, False):
        yield "custom", Metric(_unused, _unused, metric, normalize=normalize)


def _unused(*_: Any) -> Any:
    raise NotImplementedError  # rows are read here, and not measured
