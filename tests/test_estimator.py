"""`MedianShift` among scikit-learn's own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import dshift
from dshift import MedianShift
from dshift.demo import synthetic
from dshift.vectors import make_ramp

PLAIN_L1 = dshift.Metric(
    lambda x, rows: np.abs(rows - x).sum(axis=1),
    lambda rows, pulls: np.median(np.repeat(rows, pulls.astype(int), axis=0), axis=0),
    name="plain l1",
    normalize=False,
)


def test_scikit_learn_has_no_complaint() -> None:
    done = check_estimator(MedianShift(), on_skip=None)
    assert {check["status"] for check in done} <= {"passed", "skipped"}
    assert sum(check["status"] == "passed" for check in done) > 40


def test_it_is_fit_on_histograms() -> None:
    counts = synthetic(60, seed=2).counts.values
    model = MedianShift(3, metric="wasserstein").fit(counts)
    result = dshift.fit(counts, 3, valley=0.1)
    np.testing.assert_array_equal(model.labels_, result.label)
    np.testing.assert_array_equal(model.predict(counts), model.labels_)
    assert model.n_iter_ == int(result.n_iter.max())
    assert model.bandwidth_ == 3
    assert model.n_features_in_ == 100
    assert model.cluster_centers_.shape == (2, 100)
    np.testing.assert_allclose(model.cluster_centers_.sum(axis=1), 1)
    assert model.result_.attrs["title"] == "dshift clustering"


def test_edges_and_weights_and_bandwidths_reach_fit() -> None:
    counts = synthetic(40, seed=2).counts.values
    edges, weights, widths = np.arange(101) * 2.0, np.linspace(1, 3, 40), np.linspace(4, 8, 40)
    weights[3] = 0
    model = MedianShift(widths, metric="wasserstein", edges=edges, valley=None, min_cluster_size=4)
    model.fit(counts, sample_weight=weights)
    part = weights > 0
    result = dshift.fit(
        counts[part], widths[part], edges=edges, weights=weights[part], min_cluster_size=4
    )
    np.testing.assert_array_equal(model.labels_[part], result.label)
    np.testing.assert_array_equal(model.bandwidth_, widths[part])
    assert model.labels_[3] == dshift.predict(result, counts[3:4], fitted=counts[part]).label[0]


@given(data=st.data())
@settings(max_examples=60)
def test_vectors_climb_as_under_a_plain_l1(data: st.DataObject) -> None:
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 4)))
    values = st.one_of(st.integers(-6, 6), st.sampled_from([0.5, -2.25, 7.75]))
    vectors = np.array([[data.draw(values) for _ in range(shape[1])] for _ in range(shape[0])])
    bandwidth = data.draw(st.sampled_from([0.5, 1, 2, 2.25, 3, 5, 40]))
    weights = data.draw(st.sampled_from([None, np.arange(shape[0]) % 3 + 1]))
    model = MedianShift(bandwidth, valley=None).fit(vectors, sample_weight=weights)
    metric = {"metric": PLAIN_L1, "weights": weights}
    plain = dshift.fit(vectors.astype(float), bandwidth, **metric)
    np.testing.assert_array_equal(model.result_.n_iter, plain.n_iter)
    centers = model.cluster_centers_[model.labels_]
    np.testing.assert_array_equal(centers, plain.modes.values[plain.mode_index.values])
    np.testing.assert_array_equal(model.predict(vectors), model.labels_)


@given(
    vectors=strategies.small_rows(),
    offset=st.sampled_from([0, -3, 1e6]),
    scale=st.sampled_from([1e-9, 0.3, 1.0, 1e12]),
)
def test_a_ramp_keeps_distances(vectors: np.ndarray, offset: float, scale: float) -> None:
    moved = (vectors - vectors.mean()) * scale + offset
    ramp = make_ramp(moved, scale)
    rows = ramp.histograms(moved)
    assert (rows >= 0).all()
    assert len(set(rows.sum(axis=1).tolist())) == 1
    shares = rows / rows.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ramp.vectors(shares), moved, rtol=0, atol=1e-8 * ramp.span)
    gaps = np.abs(np.cumsum(shares[0] - shares[-1])[:-1]) * np.diff(ramp.edges)[0]
    apart = np.abs(moved[0] - moved[-1]).sum()
    np.testing.assert_allclose(gaps.sum(), apart, rtol=0, atol=1e-8 * ramp.span)


def test_far_vectors_are_out_of_reach_and_near_ones_are_not() -> None:
    vectors = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    model = MedianShift(5.0).fit(vectors)
    new = [[4.9, 0.0], [-4.9, 0.0], [0, 6.1], [1e9, 0.0], [-1e9, 1e9], [-3.0, -2.5]]
    assert model.predict(new).tolist() == [0, 0, -1, -1, -1, -1]


def test_auto_finds_blobs() -> None:
    vectors, truth = make_blobs(
        90, centers=[[0, 0], [6, 0], [0, 7]], cluster_std=0.6, random_state=1
    )
    model = MedianShift("auto").fit(vectors)
    assert adjusted_rand_score(truth, model.labels_) == 1
    assert model.result_.attrs["bandwidth_chosen"] == "auto"
    assert model.bandwidth_ == model.result_.attrs["bandwidth"]


def test_in_a_pipeline_and_cloned() -> None:
    vectors, truth = make_blobs(60, centers=[[-5, 0], [5, 0]], random_state=0)
    flow = make_pipeline(StandardScaler(), MedianShift(1.0))
    labels = flow.fit_predict(vectors)
    assert adjusted_rand_score(truth, labels) == 1
    np.testing.assert_array_equal(flow.predict(vectors), labels)
    copy = clone(flow).set_params(medianshift__bandwidth=100.0)
    assert set(copy.fit_predict(vectors)) == {0}
    counted = make_pipeline(
        FunctionTransformer(lambda v: np.clip(v + 20, 0, None)), MedianShift(metric="wasserstein")
    )
    assert counted.fit_predict(vectors).shape == (60,)


def test_nearest_keeps_no_samples() -> None:
    vectors, _ = make_blobs(50, random_state=0)
    model = MedianShift(2.0, assign="nearest").fit(vectors)
    assert model._fitted is None
    assert (model.predict(vectors + 1000) >= 0).all()


def test_a_metric_of_ones_own() -> None:
    vectors, _ = make_blobs(30, random_state=0)
    model = MedianShift(3.0, metric=PLAIN_L1, valley=None).fit(vectors)
    np.testing.assert_array_equal(model.predict(vectors), model.labels_)


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"bandwidth": -1}, [[1.0], [2.0]], r"`bandwidth` is -1.0; it must be finite and above 0"),
        ({"bandwidth": "best"}, [[1.0], [2.0]], r"the only word allowed is 'auto'"),
        ({"assign": "x"}, [[1.0]], "`assign` is 'x'; allowed are 'climb' and 'nearest'"),
        ({"metric": "l2"}, [[1.0]], r"`metric` is 'l2'; allowed are 'l1' \(vectors\)"),
        ({"edges": [0, 1]}, [[1.0]], "`edges` are of histograms; give them with metric"),
        ({"metric": "wasserstein"}, [[1.0, -1.0]], "Negative values in data"),
        ({"metric": "wasserstein"}, [[0, 0], [1, 1]], "are not histograms"),
        ({}, [[-1e308], [1e308]], "beyond what a float64 holds"),
    ],
)
def test_refusals(options: dict[str, Any], rows: list[list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MedianShift(**options).fit(rows)


@pytest.mark.parametrize("weights", [[0, 0], [1, -1], [1, 2, 3], [[1], [1]]])
def test_weights_that_cannot_be_used(weights: Any) -> None:
    with pytest.raises(dshift.InvalidInput, match=r"`sample_weight` has shape .* shape \(2,\)"):
        MedianShift().fit([[1.0], [2.0]], sample_weight=weights)


def test_without_scikit_learn_the_extra_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import dshift; dshift.MedianShift"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'dshift[sklearn]'" in done.stderr.splitlines()[-1]
