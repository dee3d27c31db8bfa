"""`predict` is the walk of `fit`, and says where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import strategies
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Problem

import dshift
from dshift import predicting
from dshift.demo import synthetic
from dshift.model import Model, open_result

GEOMETRIES = ["wasserstein", "l1", "sqeuclidean"]


def fit(problem: Problem) -> xr.Dataset:
    return dshift.fit(problem.rows, problem.bandwidth, **problem.options)


@pytest.fixture(scope="module")
def data() -> xr.Dataset:
    return synthetic(80, seed=1)


@pytest.fixture(scope="module")
def result(data: xr.Dataset) -> xr.Dataset:
    return dshift.fit(data.counts, 3, valley=0.1)


@pytest.mark.parametrize("metric", GEOMETRIES)
@given(data=st.data())
@settings(max_examples=40)
def test_training_data_get_their_own_labels(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, seeds=False))
    result = fit(problem)
    found = dshift.predict(result, problem.rows, fitted=problem.rows)
    for name in ("label", "mode_index", "n_iter"):
        np.testing.assert_array_equal(found[name].values, result[name].values)
    assert found.exact.all()


@pytest.mark.parametrize("metric", GEOMETRIES)
@given(data=st.data())
@settings(max_examples=40)
def test_new_samples_end_where_seeds_of_ones_own_end(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, seeds=False))
    new = data.draw(strategies.seed_choices(problem.rows).filter(lambda s: np.ndim(s) == 2))
    result = fit(problem)
    found = dshift.predict(result, new, fitted=problem.rows)
    climbed = dshift.fit(problem.rows, problem.bandwidth, **problem.options | {"seeds": new})
    ends = climbed.seed_mode_index.values
    np.testing.assert_array_equal(found.n_iter.values, climbed.seed_n_iter.values)
    np.testing.assert_array_equal(found.mode_index.values == -1, ends == -1)
    known = {row.tobytes() for row in result.modes.values}
    for i in np.flatnonzero(ends != -1):
        row = climbed.modes.values[ends[i]].tobytes()
        assert found.exact.values[i] == (row in known)
        if found.exact.values[i]:
            assert result.modes.values[found.mode_index.values[i]].tobytes() == row
    assert found.exact.values[ends == -1].all()


@pytest.mark.parametrize("metric", GEOMETRIES)
@given(data=st.data())
@settings(max_examples=40)
def test_nearest_is_what_samples_get_that_are_no_seeds(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, seeds=False))
    count = data.draw(st.integers(1, len(problem.rows)))
    problem.options["seeds"] = np.arange(count)
    result = fit(problem)
    found = dshift.predict(result, problem.rows, assign="nearest")
    rest = ~result.is_seed.values
    np.testing.assert_array_equal(found.mode_index.values[rest], result.mode_index.values[rest])
    np.testing.assert_array_equal(found.label.values[rest], result.label.values[rest])
    assert not found.exact.any()
    assert (found.n_iter == -1).all()


@pytest.mark.parametrize("metric", ["wasserstein", "l1"])
@given(data=st.data())
@settings(max_examples=40)
def test_modes_come_back_as_the_points_they_were(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, strategies.crowded_rows()))
    model = Model.of(fit(problem), None)
    embedding = model.embedding()
    back = embedding.restore(model.mode_points(embedding))
    # Of unequal bins, `restore` itself mends what rounding to the grid has put out of order.
    tolerance = 0 if embedding.ratios is None else 1e-13
    np.testing.assert_allclose(back, model.modes, rtol=0, atol=tolerance)


def test_batches_and_chunks_do_not_matter(
    data: xr.Dataset, result: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = synthetic(60, seed=2).counts
    cube = xr.DataArray(
        new.values.reshape(6, 10, 100),
        dims=("lat", "lon", "bin"),
        coords={"lat": np.arange(6.0)},
    )
    whole = dshift.predict(result, cube, fitted=data.counts)
    assert whole.label.dims == ("lat", "lon")
    np.testing.assert_array_equal(whole.lat, cube.lat)
    monkeypatch.setattr(predicting, "BATCH_BYTES", 1)
    monkeypatch.setattr("dshift.chunks.JOINED_BLOCK_BYTES", 1)
    moved = cube.chunk(lat=4, lon=3).transpose("bin", "lat", "lon")
    xr.testing.assert_identical(
        whole.drop_attrs(), dshift.predict(result, moved, fitted=data.counts.values).drop_attrs()
    )
    nearest = dshift.predict(result, moved, assign="nearest")
    np.testing.assert_array_equal(nearest.label, whole.label)


def test_the_fitted_data_is_found_where_it_was(
    data: xr.Dataset, result: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, alone, kept = tmp_path / "data.zarr", tmp_path / "alone.zarr", tmp_path / "result.zarr"
    data.to_zarr(group, consolidated=False)
    import zarr

    zarr.save_array(str(alone), data.counts.values)
    monkeypatch.chdir(tmp_path)
    sources: list[tuple[Any, dict[str, Any]]] = [
        (group, {"variable": "counts"}),
        ("data.zarr", {"variable": "counts"}),
        (group / "counts", {}),
        (alone, {}),
        ("alone.zarr", {}),
        (zarr.open_group(group)["counts"], {}),
    ]
    for source, options in sources:
        fitted = dshift.fit(source, 3, valley=0.1, **options)
        found = dshift.predict(fitted, data.counts)
        np.testing.assert_array_equal(found.label, result.label)
    dshift.fit(group, 3, variable="counts", valley=0.1, store=kept)
    found = dshift.predict(kept, data.counts)
    np.testing.assert_array_equal(found.label, result.label)
    assert dshift.predict(kept, data, variable="counts", fitted=data).exact.all()


def test_a_packed_source_is_read_as_fit_read_it(data: xr.Dataset, tmp_path: Path) -> None:
    packing = {"counts": {"scale_factor": 0.5, "dtype": "int16", "_FillValue": -1}}
    shares = data[["counts"]].astype(float)
    shares.to_zarr(tmp_path / "packed.zarr", encoding=packing, consolidated=False)
    result = dshift.fit(tmp_path / "packed.zarr", 3)
    assert dshift.predict(result, shares.counts).exact.all()


def test_the_same_after_a_round_trip(data: xr.Dataset, tmp_path: Path) -> None:
    weights = np.linspace(0.5, 2, 80)
    widths = np.linspace(2, 4, 80)
    edges = np.cumsum(np.linspace(1, 2, 101))
    options: dict[str, Any] = {"weights": weights, "edges": edges}
    result = dshift.fit(data.counts, widths, store=tmp_path / "r.zarr", **options)
    result.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as again:
        for opened in (result, tmp_path / "r.zarr", again.load()):
            found = dshift.predict(opened, data.counts, fitted=data.counts)
            np.testing.assert_array_equal(found.label, result.label)
            np.testing.assert_array_equal(found.n_iter, result.n_iter)


def test_a_result_that_xarray_wrote_is_opened(tmp_path: Path) -> None:
    result = dshift.fit([[1, 2, 1], [2, 1, 1]], 9)
    assert not result.label.any()
    # Of nothing but zeros xarray writes no chunk, where a store of `fit` would be called damaged.
    result.to_zarr(tmp_path / "copy.zarr", consolidated=False)
    assert not (tmp_path / "copy.zarr" / "label" / "c").exists()
    xr.testing.assert_identical(open_result(tmp_path / "copy.zarr"), result)


def test_masked_samples_and_samples_out_of_reach() -> None:
    rows = np.array([[9, 1, 0, 0], [8, 2, 0, 0], [0, 0, 0, 0]])
    result = dshift.fit(rows, 0.5, invalid="mask")
    new = np.array([[8.0, 1, 0, 0], [0, 0, 0, 1], [0, np.nan, 0, 0]])
    found = dshift.predict(result, new, fitted=rows, invalid="mask")
    assert found.label.values.tolist() == [0, -1, -1]
    assert found.n_iter.values.tolist() == [1, 0, -1]
    assert found.exact.all()
    nearest = dshift.predict(result, new, assign="nearest", invalid="mask")
    assert nearest.label.values.tolist() == [0, 0, -1]
    empty = dshift.predict(result, new[2:], fitted=rows, invalid="mask")
    assert empty.label.values.tolist() == [-1]


def test_an_end_that_is_no_mode_of_the_fit_is_said_to_be_inexact() -> None:
    rows = np.array([[1, 0, 0, 0], [0, 0, 0, 1]])
    result = dshift.fit(rows, 2.0)
    # One and a half bins from both: its walk ends at their midpoint, where no sample's walk ends.
    found = dshift.predict(result, np.array([[1, 0, 0, 1]]), fitted=rows)
    assert found.exact.values.tolist() == [False]
    assert found.label.values.tolist() == [0]


def test_clusters_that_are_too_small_stay_none() -> None:
    rows = np.array([[9, 1, 0], [8, 2, 0], [0, 1, 9]])
    result = dshift.fit(rows, 0.5, min_cluster_size=2)
    found = dshift.predict(result, rows, fitted=rows)
    assert found.label.values.tolist() == [0, 0, -1]
    assert found.mode_index.values[2] >= 0


def test_a_metric_of_ones_own() -> None:
    metric = dshift.Metric(
        lambda x, rows: np.abs(rows - x).max(axis=1),
        lambda rows, pulls: rows[np.argmin([np.abs(rows - r).max(axis=1) @ pulls for r in rows])],
        name="chebyshev",
    )
    rows = np.random.default_rng(0).random((20, 4))
    result = dshift.fit(rows, 0.2, metric=metric)
    found = dshift.predict(result, rows, fitted=rows, metric=metric)
    np.testing.assert_array_equal(found.label, result.label)
    with pytest.raises(dshift.InvalidInput, match=r"metric of its own, 'chebyshev'; pass it"):
        dshift.predict(result, rows, fitted=rows)
    other = dshift.Metric(metric.distance, metric.center, name="other")
    with pytest.raises(dshift.InvalidInput, match="'other', but the fit used 'chebyshev'"):
        dshift.predict(result, rows, fitted=rows, metric=other)


def test_it_says_what_it_is(data: xr.Dataset, result: xr.Dataset) -> None:
    found = dshift.predict(result, data.counts, assign="nearest")
    assert found.attrs["title"] == "dshift prediction"
    assert found.attrs["fingerprint"] == result.attrs["fingerprint"]
    assert {v.attrs["long_name"] != "" for v in found.data_vars.values()} == {True}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assign": "closest"}, r"`assign` is 'closest'; allowed are \"climb\""),
        ({}, "the fit was of `DataArray counts`, which cannot be read again"),
        ({"fitted": synthetic(80, seed=5).counts}, "fingerprint .* is not what was fitted"),
        ({"fitted": synthetic(79, seed=1).counts}, "79 samples x 100 bins.*is not what was fitted"),
        ({"invalid": "drop"}, "`invalid` is 'drop'"),
    ],
)
def test_refusals(
    data: xr.Dataset, result: xr.Dataset, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(dshift.InvalidInput, match=message):
        dshift.predict(result, data.counts, **options)


def test_other_bins_are_refused(data: xr.Dataset, result: xr.Dataset) -> None:
    with pytest.raises(dshift.InvalidInput, match="99 bins in its dimension 'bin', but the fit"):
        dshift.predict(result, data.counts[:, 1:], assign="nearest")
    edges = np.linspace(0, 1, 101)
    measured = dshift.fit(data.counts, 0.03, edges=edges)
    other = data.counts.assign_attrs(edges=(edges * 2).tolist())
    with pytest.raises(dshift.InvalidInput, match="other bin edges than the fit"):
        dshift.predict(measured, other, assign="nearest")
    same = data.counts.assign_attrs(edges=edges.tolist())
    assert dshift.predict(measured, same, assign="nearest").label.size == 80


def test_rows_that_are_no_histograms_are_named(data: xr.Dataset, result: xr.Dataset) -> None:
    rows = data.counts.values.copy()
    rows[7] = 0
    with pytest.raises(dshift.InvalidInput, match=r"sample 7 of numpy array is not a histogram"):
        dshift.predict(result, rows, assign="nearest")


def test_what_is_no_result_is_refused(data: xr.Dataset, tmp_path: Path) -> None:
    with pytest.raises(dshift.InvalidType, match="`result` is a int"):
        dshift.predict(3, data.counts)
    with pytest.raises(dshift.InvalidInput, match="a Dataset with the title None"):
        dshift.predict(data, data.counts)
    with pytest.raises(dshift.MissingData, match=r"holds no result of .*; check the path"):
        open_result(tmp_path / "nothing.zarr")
    (tmp_path / "half.zarr" / "dshift").mkdir(parents=True)
    (tmp_path / "half.zarr" / "dshift" / "job.json").write_text("{}")
    with pytest.raises(dshift.MissingData, match="holds a fit that has not ended; finish it"):
        open_result(tmp_path / "half.zarr")
