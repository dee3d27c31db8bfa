"""A case against the oracle, and against the plainest call for the same data."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import oracle
import xarray as xr
import zarr
from distributed import Client
from test_oracle_equality import assert_equal

import dshift
from dshift.engine import settings

from .case import Case


def city_block(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """L1, columns added from left to right."""
    return np.add.accumulate(np.abs(rows - x), axis=1)[:, -1]


def median(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The middle of each column."""
    return np.median(rows, axis=0)


OWN = dshift.Metric(city_block, median, name="own")


def check(case: Case, client: Client | None = None) -> oracle.OracleFit:
    """Raise unless `fit` gives what the oracle gives; return that."""
    options: dict[str, Any] = {
        "edges": case.edges,
        "valley": case.valley,
        "min_cluster_size": case.min_cluster_size,
    }
    seeds = case.seeds if case.seeds == "all" else np.array(case.seeds)
    expected = oracle.fit_oracle(
        case.counts(),
        case.bandwidth,
        metric=oracle.Custom(city_block, median) if case.metric == "own" else case.metric,
        weights=case.weights,
        seeds=seeds,
        **options,
    )
    options |= {
        "metric": OWN if case.metric == "own" else case.metric,
        "weights": _with_holes(case, case.weights),
        "seeds": seeds,
        "invalid": "mask" if case.holes else "raise",
    }
    bandwidth = _with_holes(case, case.bandwidth)
    rows = case.counts()
    if case.holes:
        rows = np.insert(rows, case.holes, np.nan, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = _flat(dshift.fit(rows, bandwidth, **options))
        with (
            settings(block_size=case.block_size, threads=case.threads),
            _opened(case, rows) as (data, names),
        ):
            cut_up = dshift.fit(data, bandwidth, **names, **options, client=client)
    valid = np.setdiff1d(np.arange(len(rows)), np.array(case.holes) + np.arange(len(case.holes)))
    assert (np.delete(plain.label.values, valid) == -1).all()
    assert_equal(plain.isel(sample=valid), expected)
    _assert_same_bits(_flat(cut_up), plain)
    return expected


def _with_holes(case: Case, values: Any) -> Any:
    if values is None or np.ndim(values) == 0:
        return values
    return np.insert(np.array(values, dtype=float), list(case.holes), 1.0)


def _flat(result: xr.Dataset) -> xr.Dataset:
    """All samples on one dimension, all bins on another, no coordinates."""
    dims = result.label.dims
    return xr.Dataset(
        {
            name: (("sample",), v.values.reshape(-1))
            if v.dims == dims
            else (("mode", "bin") if name == "modes" else v.dims, v.values)
            for name, v in result.data_vars.items()
        },
        attrs=result.attrs,
    )


def _assert_same_bits(found: xr.Dataset, plain: xr.Dataset) -> None:
    assert set(found.data_vars) == set(plain.data_vars)
    for name, variable in plain.data_vars.items():
        assert found[name].dtype == variable.dtype, name
        assert found[name].values.tobytes() == variable.values.tobytes(), name
    for name in set(plain.attrs) - {"source"}:
        assert found.attrs[name] == plain.attrs[name], name


@contextlib.contextmanager
def _opened(case: Case, rows: np.ndarray) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The rows in the source that the case asks for, and the names that `fit` must be told."""
    dims, chunks = ["sample", "bin"], list(case.chunks)
    n, q = rows.shape
    array = rows
    if case.folded and n % 2 == 0:
        array, dims, chunks = array.reshape(2, n // 2, q), ["pair", *dims], [1, *chunks]
    if case.bins_first:
        array = np.moveaxis(array, -1, 0)
        dims, chunks = [dims[-1], *dims[:-1]], [chunks[-1], *chunks[:-1]]
    names: dict[str, Any] = {}
    if case.bins_first:
        names["bin_dim"] = "bin" if case.source in ("xarray", "zarr2", "zarr3") else "dim_0"
    chunks = [min(c, s) for c, s in zip(chunks, array.shape, strict=True)]
    if case.source == "numpy":
        yield array, names
    elif case.source == "dask":
        yield dask.array.from_array(array, chunks=tuple(chunks)), names
    elif case.source == "xarray":
        yield xr.DataArray(array, dims=dims), names
    else:
        with tempfile.TemporaryDirectory(prefix="dshift-fuzz-") as folder:
            path = Path(folder) / "rows.zarr"
            options: dict[str, Any] = {"chunks": tuple(chunks)}
            if case.source == "sharded":
                options["shards"] = tuple(
                    c * -(-s // c) for c, s in zip(chunks, array.shape, strict=True)
                )
            elif case.source == "zarr2":
                options |= {"zarr_format": 2, "attributes": {"_ARRAY_DIMENSIONS": dims}}
            else:
                options["dimension_names"] = dims
            zarr.create_array(path, shape=array.shape, dtype=array.dtype, **options)[...] = array
            yield str(path), names
