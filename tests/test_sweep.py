"""Sweeps: what is counted at each bandwidth, plateaus, and the bandwidth that "auto" takes."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from distributed import Client
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance
from sklearn.metrics import adjusted_rand_score

import dshift
import dshift.summary
from dshift import stage
from dshift.demo import synthetic
from dshift.drawn import read_rows
from dshift.plateaus import agreement, choose_bandwidth, find_plateaus
from dshift.sources import Samples, open_samples


@pytest.fixture(scope="module")
def data() -> xr.Dataset:
    return synthetic(60, seed=1)


@pytest.fixture(scope="module")
def swept(data: xr.Dataset) -> xr.Dataset:
    return dshift.sweep(data.counts)


@pytest.mark.parametrize("n", [122, 300])
@pytest.mark.parametrize("seed", range(10))
def test_auto_finds_the_truth_in_the_papers_data(seed: int, n: int) -> None:
    data = synthetic(n, seed=seed)
    result = dshift.fit(data.counts, "auto")
    assert agreement(result.label.values, data.truth.values) == 1
    low, high = result.attrs["bandwidth_plateau"]
    assert low < result.attrs["bandwidth"] < high
    assert result.attrs["bandwidth_chosen"] == "auto"
    assert result.attrs["bandwidth_samples"] == n
    assert result.attrs["valley"] == 0.1


def test_each_bandwidth_is_a_fit(data: xr.Dataset, swept: xr.Dataset) -> None:
    assert swept.sizes["bandwidth"] == 36
    for i in (0, 11, 35):
        one = swept.isel(bandwidth=i)
        result = dshift.fit(data.counts, float(one.bandwidth), valley=0.1)
        sizes = result.cluster_size.values
        assert one.n_clusters == len(sizes)
        np.testing.assert_array_equal(one.labels, result.label)
        np.testing.assert_array_equal(one.cluster_sizes[: len(sizes)], sizes[:10])
        assert not one.cluster_sizes[len(sizes) :].any()
        assert one.largest_share == sizes[0] / 60
        assert one.singletons_share == (sizes == 1).sum() / 60
        assert one.n_large == ((sizes >= 1.2) & (sizes > 1)).sum()
        if i < 35:
            following = swept.labels.values[i + 1]
            assert one.agreement == pytest.approx(adjusted_rand_score(one.labels, following))
    assert np.isnan(swept.agreement[-1])


def test_bandwidths_span_the_quantiles_of_the_distances(
    data: xr.Dataset, swept: xr.Dataset
) -> None:
    rows, bins = data.counts.values, np.arange(100)
    pairs = zip(*np.triu_indices(60, 1), strict=True)
    away = np.array([wasserstein_distance(bins, bins, rows[i], rows[j]) for i, j in pairs])
    low, high = np.quantile(away[away > 0], [0.01, 0.8], method="inverted_cdf")
    widths = swept.bandwidth.values
    np.testing.assert_allclose(widths[[0, -1]], [low, high], rtol=1e-3)
    np.testing.assert_allclose(np.diff(np.log(widths)), np.log(high / low) / 35, rtol=1e-2)
    assert widths.tolist() == [float(f"{w:.4g}") for w in widths]


def test_plateaus_are_what_they_say(swept: xr.Dataset) -> None:
    widths = swept.bandwidth.values.tolist()
    assert swept.sizes["plateau"] >= 1
    for i in range(swept.sizes["plateau"]):
        one = swept.isel(plateau=i)
        start, stop = widths.index(one.plateau_start), widths.index(one.plateau_stop)
        assert one.plateau_length == stop - start + 1
        middle = widths.index(one.plateau_middle)
        assert middle == (start + stop) // 2
        assert (swept.agreement.values[start:stop] >= 0.9).all()
        assert (swept.n_large.values[start : stop + 1] >= 2).all()
        assert one.plateau_clusters == swept.n_clusters[middle]
        assert one.plateau_large == swept.n_large[middle]


@given(
    agreements=st.lists(st.sampled_from([0.0, 0.89, 0.9, 1.0]), max_size=12),
    seed=st.integers(0, 99),
)
def test_runs_of_agreement(agreements: list[float], seed: int) -> None:
    n = len(agreements) + 1
    n_large = np.random.default_rng(seed).integers(0, 4, n).tolist()
    runs = find_plateaus(agreements, n_large)
    linked = {(i, i + 1) for run in runs for i in run[:-1]}
    for i in range(n - 1):
        holds = agreements[i] >= 0.9 and n_large[i] >= 2 and n_large[i + 1] >= 2
        assert ((i, i + 1) in linked) == holds
    assert all(len(run) >= 2 for run in runs)
    assert all(a[-1] < b[0] for a, b in pairwise(runs))


@given(
    pairs=st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 3)), min_size=1, max_size=30),
    data=st.data(),
)
def test_agreement_is_the_adjusted_rand_index_of_copies(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    a, b = np.array(pairs).T
    copies = np.array([data.draw(st.integers(1, 3)) for _ in pairs])
    with warnings.catch_warnings(action="ignore"):
        expected = adjusted_rand_score(np.repeat(a, copies), np.repeat(b, copies))
    assert agreement(a, b, copies) == pytest.approx(expected)
    assert agreement(a, a) == 1


def test_weight_k_is_k_samples() -> None:
    counts = synthetic(30, seed=3).counts.values
    copies = np.arange(30) % 3 + 1
    heavy = dshift.sweep(counts, weights=copies)
    plain = dshift.sweep(np.repeat(counts, copies, axis=0))
    for name in set(heavy) - {"labels"}:
        xr.testing.assert_allclose(heavy[name], plain[name])
    tenths = dshift.sweep(counts, weights=copies / 10)
    for name in ("n_large", "agreement", "singletons_share", "plateau_middle"):
        xr.testing.assert_allclose(heavy[name], tenths[name])


def test_a_sample_stands_for_all_and_is_the_same_every_time(tmp_path: Path) -> None:
    data = synthetic(400, seed=4)
    data.chunk(sample=37).to_zarr(tmp_path / "d.zarr", consolidated=False)
    drawn = dshift.sweep(data.counts, [2, 3, 4], sample=50)
    assert drawn.sizes["drawn"] == 50
    assert drawn.attrs["n_samples"] == 400
    stored = dshift.sweep(tmp_path / "d.zarr", [2, 3, 4], sample=50, variable="counts")
    xr.testing.assert_equal(drawn, stored)
    truth = data.truth.values[drawn.sample_index]
    assert all(agreement(labels, truth) == 1 for labels in drawn.labels.values)
    everything = dshift.sweep(data.counts[:80], [3], sample=None)
    assert everything.sizes["drawn"] == 80


def test_rows_are_read_from_where_they_are() -> None:
    cube = np.arange(5 * 6 * 7 * 3).reshape(5, 6, 7, 3)
    lazy = xr.DataArray(cube, dims=("a", "b", "c", "bin")).chunk(a=2, b=4, c=3)
    index = np.array([0, 3, 11, 100, 209])
    found = read_rows(open_samples(lazy), index)
    np.testing.assert_array_equal(found, cube.reshape(-1, 3)[index])


def test_blocks_without_a_drawn_sample_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(12 * 3).reshape(12, 3)
    seen, read = [], Samples.read

    def watched(self: Samples, block: tuple[slice, ...]) -> np.ndarray:
        seen.append(block[0].start)
        return read(self, block)

    blocks = [(slice(start, start + 3),) for start in range(0, 12, 3)]
    monkeypatch.setattr(Samples, "blocks", lambda self: iter(blocks))
    monkeypatch.setattr(Samples, "read", watched)
    np.testing.assert_array_equal(read_rows(open_samples(rows), np.array([1, 10])), rows[[1, 10]])
    assert seen == [0, 9]


def test_masked_samples_are_left_out(data: xr.Dataset, swept: xr.Dataset) -> None:
    holes = data.counts.values.astype(float)
    holes = np.insert(holes, [3, 20], np.nan, axis=0)
    with pytest.raises(dshift.InvalidInput, match=r"sample 3 of numpy array is not a histogram"):
        dshift.sweep(holes)
    masked = dshift.sweep(holes, invalid="mask")
    np.testing.assert_array_equal(masked.labels, swept.labels)
    assert 3 not in masked.sample_index


def recorded(rows: np.ndarray, reads: list[Any]) -> da.Array:
    """A Dask array that tells when a chunk of it is computed."""

    def read(block: np.ndarray) -> np.ndarray:
        reads.append(block.shape)
        return block

    lazy = da.from_array(rows, chunks=(20, -1))
    return lazy.map_blocks(read, dtype=rows.dtype, meta=np.empty((0, 0), rows.dtype))


def test_data_are_read_once_for_all_bandwidths(data: xr.Dataset, swept: xr.Dataset) -> None:
    reads: list[Any] = []
    lazy = dshift.sweep(recorded(data.counts.values, reads))
    assert len(reads) == 3
    np.testing.assert_array_equal(lazy.labels, swept.labels)
    reads.clear()
    result = dshift.fit(recorded(data.counts.values, reads), "auto")
    assert len(reads) == 3  # for the sweep and the fit
    assert result.attrs["bandwidth"] == choose_bandwidth(swept)


def test_samples_are_embedded_once_for_all_bandwidths(
    data: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    load = stage.load_points

    def counted(samples: Any, *args: Any, **options: Any) -> Any:
        calls.append(samples.n_samples)
        return load(samples, *args, **options)

    monkeypatch.setattr(stage, "load_points", counted)
    dshift.sweep(data.counts, [2, 3, 4, 5])
    assert calls == [60]


def test_a_cluster_sweeps_to_the_same_labels(
    swept: xr.Dataset, data: xr.Dataset, two_workers: Client
) -> None:
    there = dshift.sweep(data.counts, client=two_workers)
    xr.testing.assert_identical(there, swept)


def test_a_stack_is_swept_by_the_sum_of_its_distances(data: xr.Dataset, swept: xr.Dataset) -> None:
    plain = data.counts.assign_attrs(edges=list(range(101))).drop_vars("bin")
    twice = dshift.stack({"a": plain, "b": plain})
    found = dshift.sweep(twice)
    np.testing.assert_allclose(found.bandwidth, 2 * swept.bandwidth, rtol=1e-3)
    doubled = dshift.sweep(twice, 2 * swept.bandwidth.values[::5]).labels.values
    for one, other in zip(doubled, swept.labels.values[::5], strict=True):
        assert agreement(one, other) == 1
    result = dshift.fit(twice, "auto")
    assert agreement(result.label.values, data.truth.values) == 1
    assert result.modes_b.shape == (result.sizes["mode"], 100)


def test_a_stored_run_keeps_the_bandwidth_that_was_chosen(
    data: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = dshift.fit(data.counts, "auto", store=tmp_path / "whole")
    assert whole.attrs["bandwidth_chosen"] == "auto"

    def crash(*args: Any) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as cut_short:
        cut_short.setattr("dshift.api.make_result", crash)
        with pytest.raises(RuntimeError, match="power cut"):
            dshift.fit(data.counts, "auto", store=tmp_path / "torn")
    assert dshift.summary.describe_store(tmp_path / "torn")["bandwidth_chosen"] == "auto"

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("swept again")

    monkeypatch.setattr("dshift.sweeping.sweep_samples", refuse)
    for store in ("torn", "whole"):
        again = dshift.fit(data.counts, "auto", store=tmp_path / store)
        xr.testing.assert_identical(again, whole)
    with pytest.raises(dshift.InvalidInput, match=r"another job \(fingerprint: "):
        dshift.fit(data.counts[::-1], "auto", store=tmp_path / "torn")
    with pytest.raises(dshift.InvalidInput, match=r"another job \(valley: 0.1 there, 0.3 here"):
        dshift.fit(data.counts, "auto", valley=0.3, store=tmp_path / "torn")


def test_a_number_is_no_choice(data: xr.Dataset, tmp_path: Path) -> None:
    dshift.fit(data.counts, 3, valley=0.1, store=tmp_path / "s")
    with pytest.raises(dshift.InvalidInput, match="bandwidth_chosen: None there, 'auto' here"):
        dshift.fit(data.counts, "auto", store=tmp_path / "s")


def test_edges_give_the_unit(data: xr.Dataset, swept: xr.Dataset) -> None:
    named = data.counts.assign_attrs(edges=np.linspace(0, 50, 101).tolist(), edges_units="m")
    metres = dshift.sweep(named.drop_vars("bin"))
    np.testing.assert_allclose(metres.bandwidth, swept.bandwidth / 2, rtol=1e-3)
    assert metres.bandwidth.attrs["units"] == "m"
    np.testing.assert_allclose(choose_bandwidth(metres), choose_bandwidth(swept) / 2, rtol=1e-3)


def test_other_metrics(data: xr.Dataset) -> None:
    mean = dshift.Metric(
        lambda x, rows: ((rows - x) ** 2).sum(axis=1),
        lambda rows, pulls: np.average(rows, axis=0, weights=pulls),
        name="mine",
    )
    some = data.counts[:20]
    mine = dshift.sweep(some, metric=mean)
    known = dshift.sweep(some, metric="sqeuclidean")
    np.testing.assert_array_equal(mine.n_clusters, known.n_clusters)
    assert mine.attrs["metric"] == "mine"
    assert dshift.sweep(some, metric="l1", valley=None).attrs["valley"] == "none"


def test_two_kinds_of_equal_histograms_are_told_apart() -> None:
    rows = np.repeat([[4, 0, 0], [0, 0, 4]], 5, axis=0)
    result = dshift.fit(rows, "auto")
    assert agreement(result.label.values, np.repeat([0, 1], 5)) == 1
    assert result.attrs["bandwidth_plateau_length"] > 20


def test_it_can_be_written_and_says_what_it_is(swept: xr.Dataset, tmp_path: Path) -> None:
    assert swept.attrs["title"] == "dshift sweep"
    swept.to_zarr(tmp_path / "s.zarr", consolidated=False)
    again = xr.open_zarr(tmp_path / "s.zarr", consolidated=False).load()
    assert choose_bandwidth(again) == choose_bandwidth(swept)


def test_labels_are_left_out_when_they_are_many(
    data: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshift.sweeping.MOST_LABELS", 100)
    assert "labels" not in dshift.sweep(data.counts, [2, 3])
    assert "labels" in dshift.sweep(data.counts, [2])


def test_of_equally_long_plateaus_the_finest_is_taken() -> None:
    made = xr.Dataset(
        {"plateau_length": ("plateau", [2, 4, 4]), "plateau_middle": ("plateau", [1.0, 2.0, 3.0])}
    )
    assert choose_bandwidth(made) == 2


def test_no_plateau_is_an_error_that_says_what_to_do() -> None:
    rows = np.eye(3)
    with pytest.raises(dshift.InvalidInput, match=r"'auto' found no plateau: .* give a number"):
        dshift.fit(rows, "auto")


def test_equal_histograms_leave_nothing_to_choose() -> None:
    with pytest.raises(dshift.InvalidInput, match="all 4 samples looked at are equal"):
        dshift.sweep(np.ones((4, 3)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bandwidths": "many"}, dshift.InvalidType, "`bandwidths` is 'many'; give a list of"),
        ({"bandwidths": [[1, 2]]}, dshift.InvalidInput, r"`bandwidths` has shape \(1, 2\)"),
        ({"bandwidths": [0, 1]}, dshift.InvalidInput, r"holds \[0, 1\]; give a list of positive"),
        ({"bandwidths": []}, dshift.InvalidInput, r"`bandwidths` has shape \(0,\)"),
        ({"sample": 2.5}, dshift.InvalidType, "`sample` is 2.5; give a whole number"),
        ({"sample": 1}, dshift.InvalidInput, "`sample` is 1; draw 2 or more"),
        ({"valley": 2}, dshift.InvalidInput, "`valley` is 2"),
        ({"metric": "l3"}, dshift.InvalidInput, "`metric` is 'l3'"),
    ],
)
def test_refusals(
    data: xr.Dataset, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        dshift.sweep(data.counts, **options)


def test_refused_words_and_too_few_samples(data: xr.Dataset) -> None:
    with pytest.raises(dshift.InvalidInput, match="`bandwidth` is 'best'; the only word allowed"):
        dshift.fit(data.counts, "best")
    with pytest.raises(dshift.InvalidInput, match="1 of 1 samples drawn from numpy array are"):
        dshift.sweep(np.ones((1, 3)))
