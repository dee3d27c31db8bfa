"""Stacked histograms cluster by the sum of their distances, and come apart again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

import dshift
from dshift.edges import count_coords, segments_of
from dshift.metrics import make_embedding


def made(seed: int, n: int = 40) -> dict[str, xr.DataArray]:
    rng = np.random.default_rng(seed)
    kind = np.arange(n) % 4
    rain = rng.normal(np.where(kind < 2, 2.0, 6.0)[:, None], 0.5, (n, 60))
    temp = rng.normal(np.where(kind % 2, 280.0, 300.0)[:, None], 2.0, (n, 50))
    cubes = {"rain": (rain, "mm"), "temp": (temp, "K")}
    edges = {"rain": [-2, 0, 1, 2, 3, 5, 8, 12], "temp": np.linspace(260, 320, 25)}
    return {
        name: dshift.histogram(
            xr.DataArray(raw, dims=("s", "t"), attrs={"units": unit}), edges[name], dim="t"
        )
        for name, (raw, unit) in cubes.items()
    }


def test_distances_add_up() -> None:
    parts = made(0)
    scale = {"rain": 2.0, "temp": 0.125}
    joined = dshift.stack(parts, scale)
    edges = np.array(joined.attrs["edges"])
    assert segments_of(edges, joined.shape[-1]) == (7, 24)
    embedding = make_embedding("wasserstein", joined.shape[-1], edges, None, None)
    points, valid = embedding.embed(joined.values)
    assert valid.all()
    assert points.shape[1] == count_coords("wasserstein", edges, 31) == 6 + 23
    for i, j in ((0, 1), (0, 2), (3, 4)):
        found = embedding.in_units(np.abs(points[i] - points[j]).sum())
        expected = sum(
            scale[name] * wasserstein_distance(part.bin, part.bin, part.values[i], part.values[j])
            for name, part in parts.items()
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    back = embedding.restore(points)
    for rows, part in zip(np.split(back, [7], axis=1), parts.values(), strict=True):
        np.testing.assert_allclose(rows, part / part.sum("bin"), atol=1e-9)


def test_a_stack_clusters_jointly_and_modes_come_back_per_variable(tmp_path: Path) -> None:
    parts = made(1)
    joined = dshift.stack(parts, "range")
    result = dshift.fit(joined, 0.15, valley=0.1)
    truth = np.arange(40) % 4
    assert result.attrs["n_clusters"] == 4
    assert len({*zip(result.label.values.tolist(), truth.tolist(), strict=True)}) == 4
    assert result.modes_rain.dims == ("mode", "rain_bin")
    assert result.temp_bin.attrs["units"] == "K"
    np.testing.assert_allclose(result.modes_rain.sum("rain_bin"), 1)
    np.testing.assert_allclose(result.modes_temp.sum("temp_bin"), 1)
    assert (result.modes.values >= 0).all()
    assert dshift.unstack(result.modes)["rain"].attrs["edges"] == parts["rain"].attrs["edges"]
    joined.to_dataset().to_zarr(tmp_path / "stack.zarr", consolidated=False)
    again = dshift.fit(
        str(tmp_path / "stack.zarr"), 0.15, valley=0.1, variable="counts", store=tmp_path / "result"
    )
    xr.testing.assert_equal(again.label, result.label)
    assert again.fingerprint == result.fingerprint


def test_one_variable_is_the_variable_itself() -> None:
    rain = made(2)["rain"]
    alone, stacked = dshift.fit(rain, 0.7), dshift.fit(dshift.stack({"rain": rain}), 0.7)
    assert alone.label.values.tolist() == stacked.label.values.tolist()
    assert alone.fingerprint == stacked.fingerprint


def test_lazy_stacks_are_read_once() -> None:
    reads: list[Any] = []

    def read(block: np.ndarray) -> np.ndarray:
        reads.append(block.shape)
        return block

    raw = da.random.default_rng(0).uniform(0, 1, (6, 50), chunks=(3, 50))
    raw = raw.map_blocks(read, dtype=float, meta=np.empty((0, 0)))
    cube = xr.DataArray(raw, dims=("s", "t"))
    counts = dshift.histogram(cube, np.linspace(0, 1, 5), dim="t", outside="drop")
    dshift.fit(counts, 0.1)
    assert len(reads) == 2
    dshift.fit(dshift.stack({"a": counts, "b": counts}), 0.1)
    assert len(reads) == 4


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 99))
def test_segments_of_any_sizes(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = {
        f"v{i}": xr.DataArray(
            rng.integers(0, 4, (5, size)) + (rng.uniform(size=(5, 1)) < 0.8),
            dims=("s", "q"),
            attrs={"edges": (np.cumsum(rng.uniform(0.5, 2, size + 1)) - 40).tolist()},
        )
        for i, size in enumerate(sizes)
    }
    joined = dshift.stack(parts)
    edges = np.array(joined.attrs["edges"])
    assert segments_of(edges, sum(sizes)) == tuple(sizes)
    embedding = make_embedding("wasserstein", sum(sizes), edges, None, None)
    points, valid = embedding.embed(joined.values)
    whole = np.logical_and.reduce([part.values.sum(axis=1) > 0 for part in parts.values()])
    np.testing.assert_array_equal(valid, whole)
    assert points.shape == (5, sum(sizes) - len(sizes))
    rows = embedding.restore(points[valid])
    for part, found in zip(
        parts.values(), np.split(rows, np.cumsum(sizes)[:-1], axis=1), strict=True
    ):
        expected = part.values[valid] / part.values[valid].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_edges_of_a_stack_cannot_be_replaced() -> None:
    joined = dshift.stack(made(3), "range")
    with pytest.raises(dshift.InvalidInput, match="`edges` is given, but the data are stacked"):
        dshift.fit(joined, 1, edges=np.arange(32))
    with pytest.raises(dshift.InvalidInput, match="has the attribute `edges`"):
        dshift.fit(joined[:, :-1], 1)
