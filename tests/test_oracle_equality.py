"""`fit` equals the oracle: labels, modes to the bit, and the number of steps."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import strategies
import xarray as xr
from hypothesis import event, given, settings
from hypothesis import strategies as st
from strategies import Problem

import dshift

GEOMETRIES = ["wasserstein", "l1", "sqeuclidean"]


def fit(problem: Problem) -> xr.Dataset:
    return dshift.fit(problem.rows, problem.bandwidth, **problem.options)


def rows_of(modes: np.ndarray, index: np.ndarray) -> list[bytes | None]:
    """The bytes of each sample's mode: what is compared when the order of modes is not defined."""
    return [None if m < 0 else modes[m].tobytes() for m in index.tolist()]


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    pairs = set(zip(a.tolist(), b.tolist(), strict=True))
    kept = {p for p in pairs if -1 not in p}
    one_to_one = len({p[0] for p in kept}) == len({p[1] for p in kept}) == len(kept)
    return one_to_one and pairs - kept <= {(-1, -1)}


def assert_equal(result: xr.Dataset, expected: oracle.OracleFit) -> None:
    """Everything equal; where the order hangs on rounding, everything but the order."""
    modes = result.modes.values
    np.testing.assert_array_equal(result.is_seed.values, expected.is_seed)
    np.testing.assert_array_equal(result.n_iter.values, expected.n_iter)
    assert bool(result.attrs["all_seeds_stationary"]) == expected.all_seeds_stationary
    assert expected.all_seeds_stationary or not isinstance(expected.space, oracle.GridSpace)
    assert result.label.dtype == np.int32
    if expected.seed_n_iter is not None:
        reached = expected.seed_mode_index >= 0
        np.testing.assert_array_equal(
            result.seed_n_iter.values[reached], expected.seed_n_iter[reached]
        )
        np.testing.assert_array_equal(result.seed_mode_index.values >= 0, reached)
        assert not (result.seed_label.values[~reached] >= 0).any()
    close = set(expected.close_calls)
    if not close:
        assert_same_order(result, expected)
        return
    assert sorted(m.tobytes() for m in modes) == sorted(m.tobytes() for m in expected.modes)
    if "nearest mode" not in close:
        assert rows_of(modes, result.mode_index.values) == rows_of(
            expected.modes, expected.mode_index
        )
    if close <= {"order of modes", "order of clusters"}:
        assert same_partition(result.label.values, expected.labels)


def assert_same_order(result: xr.Dataset, expected: oracle.OracleFit) -> None:
    np.testing.assert_array_equal(result.modes.values, expected.modes)
    np.testing.assert_array_equal(result.mode_index.values, expected.mode_index)
    np.testing.assert_array_equal(result.cluster_of_mode.values, expected.cluster_of_mode)
    np.testing.assert_array_equal(result.label.values, expected.labels)
    np.testing.assert_allclose(result["size"].values, expected.size, rtol=1e-12)
    weight = expected.space.weights.sum()
    density = np.array([float(f) for f in expected.density])
    np.testing.assert_allclose(result.density.values, density, rtol=1e-10, atol=1e-10 * weight)
    if expected.seed_mode_index is not None:
        np.testing.assert_array_equal(result.seed_mode_index.values, expected.seed_mode_index)
        np.testing.assert_array_equal(result.seed_label.values, expected.seed_labels)


def check(problem: Problem) -> None:
    expected = oracle.fit_oracle(problem.rows, problem.bandwidth, **problem.options)
    event(f"close calls: {', '.join(sorted(set(expected.close_calls))) or 'none'}")
    event(f"modes: {min(len(expected.modes), 4)}, longest path: {min(expected.n_iter.max(), 4)}")
    assert_equal(fit(problem), expected)


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=150)
@given(data=st.data())
def test_small(metric: str, data: st.DataObject) -> None:
    check(data.draw(strategies.problems(metric)))


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=60)
@given(data=st.data())
def test_crowded(metric: str, data: st.DataObject) -> None:
    check(data.draw(strategies.problems(metric, strategies.crowded_rows())))


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=8)
@given(data=st.data())
def test_large(metric: str, data: st.DataObject) -> None:
    check(data.draw(strategies.problems(metric, strategies.large_rows(), valley=False)))


def test_equal_densities_tie() -> None:
    """4 samples at 11/6 bandwidths in all, 3 at 5/6: the same density, so the values decide."""
    rows = np.array([[0, 1], [0, 1], [0, 1], [1, 1], [2, 1], [2, 3], [3, 2]])
    bandwidth = 0.40000000000000036
    result = dshift.fit(rows, bandwidth, metric="l1")
    assert result.density.values[1] == result.density.values[2]
    assert_equal(result, oracle.fit_oracle(rows, bandwidth, metric="l1"))


@pytest.mark.parametrize("bandwidth", [[1.0, 1e-300], [1e-300, 1.0]])
def test_a_rounded_mean_that_cycles_is_not_called_stationary(bandwidth: list[float]) -> None:
    rows = np.array([[2, 3], [2, 3]])
    result = dshift.fit(rows, np.array(bandwidth), metric="sqeuclidean")
    expected = oracle.fit_oracle(rows, np.array(bandwidth), metric="sqeuclidean")
    assert not expected.all_seeds_stationary
    assert_equal(result, expected)


@pytest.mark.parametrize("metric", GEOMETRIES)
@pytest.mark.parametrize("seeds", [1, 7, 0.25])
def test_random_seeds(metric: str, seeds: float) -> None:
    """A number of seeds chooses them, the same ones every time."""
    rows = np.random.default_rng(3).multinomial(9, np.full(5, 0.2), 40)
    problem = Problem(rows, 0.5, {"metric": metric, "seeds": seeds})
    result = fit(problem)
    chosen = np.flatnonzero(result.is_seed.values)
    assert len(chosen) == (seeds if seeds >= 1 else 10)
    assert_equal(result, oracle.fit_oracle(rows, 0.5, metric=metric, seeds=chosen))
    xr.testing.assert_identical(fit(problem), result)


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=30)
@given(data=st.data())
def test_masked_samples_do_not_count(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, seeds=False))
    n, q = problem.rows.shape
    holes = sorted(data.draw(st.lists(st.integers(0, n), min_size=1, max_size=3)))
    bad = np.array([np.nan] + [0.0] * (q - 1))
    rows = np.insert(problem.rows.astype(float), holes, bad, axis=0)
    valid = ~np.isnan(rows[:, 0])
    options = dict(problem.options)
    if options["weights"] is not None:
        options["weights"] = np.insert(options["weights"], holes, 1)
    bandwidth = problem.bandwidth
    if np.ndim(bandwidth):
        bandwidth = np.insert(bandwidth, holes, 1.0)
    result = dshift.fit(rows, bandwidth, invalid="mask", **options)
    for name in ("label", "mode_index"):
        assert (result[name].values[~valid] == -1).all()
    expected = oracle.fit_oracle(problem.rows, problem.bandwidth, **problem.options)
    assert_equal(result.isel({result.label.dims[0]: valid}), expected)
