"""Numbers that break sums, casts and comparisons: no crash, no warning, no wrong answer.

Warnings are errors in this suite, so a test that only fits shows that nothing was said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
import xarray as xr
from test_oracle_equality import assert_equal

import dshift

# The total is a power of two, so shares are exact in every dtype and at every scale.
ROWS = np.random.default_rng(0).multinomial(32, np.full(6, 1 / 6), 40)
BANDWIDTH = {"wasserstein": 0.5, "l1": 0.4, "sqeuclidean": 0.03}
METRICS = list(BANDWIDTH)
TINY, HUGE = 5e-324, np.finfo(np.float64).max


def assert_same(found: xr.Dataset, expected: xr.Dataset) -> None:
    for name in ("label", "mode_index", "n_iter", "modes", "density", "stationary"):
        np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=name)


@pytest.fixture(scope="module")
def plain() -> dict[str, xr.Dataset]:
    fits = {metric: dshift.fit(ROWS, h, metric=metric) for metric, h in BANDWIDTH.items()}
    for metric, fit in fits.items():
        assert fit.sizes["mode"] > 1
        assert_equal(fit, oracle.fit_oracle(ROWS, BANDWIDTH[metric], metric=metric))
    return fits


DTYPES = ["f2", "f4", "u1", "i1", "u2", "i4", "i8", "u8", ">f2", ">f4", ">f8", ">i2", ">u4", ">i8"]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_gives_the_same(plain: dict[str, xr.Dataset], metric: str, dtype: str) -> None:
    assert_same(dshift.fit(ROWS.astype(dtype), BANDWIDTH[metric], metric=metric), plain[metric])


SCALED = {
    "counts of 1e300": ROWS * 2.0**997,
    "counts whose sum overflows": ROWS * 2.0**1018,
    "denormals": ROWS * TINY,
    "int64 sums that overflow": ROWS * 2**58,
    "uint64 beyond int64": ROWS.astype("u8") * np.uint64(2**59),
    "rows of all scales": ROWS * 2.0 ** np.linspace(-1000, 1000, len(ROWS)).round()[:, None],
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", list(SCALED))
def test_the_scale_of_counts_does_not_matter(
    plain: dict[str, xr.Dataset], metric: str, kind: str
) -> None:
    rows = SCALED[kind]
    assert rows.max() > 0
    assert_same(dshift.fit(rows, BANDWIDTH[metric], metric=metric), plain[metric])


def test_uint8_counts_do_not_wrap() -> None:
    rows = np.array([[200, 100, 0], [100, 200, 0], [0, 100, 200]], dtype="u1")
    expected = dshift.fit(rows.astype(float), 0.5)
    assert_same(dshift.fit(rows, 0.5), expected)
    np.testing.assert_allclose(expected.modes.sum("dim_1"), 1)


def test_booleans() -> None:
    rows = ROWS > 5
    rows[:, 0] |= ~rows.any(axis=1)
    assert_equal(dshift.fit(rows, 0.5), oracle.fit_oracle(rows, 0.5))


@pytest.mark.parametrize("metric", METRICS)
def test_a_distance_that_equals_the_bandwidth_is_not_active(metric: str) -> None:
    rows = np.array([[4, 0, 0, 0], [3, 1, 0, 0], [2, 2, 0, 0]])
    distance = {"wasserstein": 0.25, "l1": 0.5, "sqeuclidean": 0.125}[metric]
    assert (dshift.fit(rows, distance, metric=metric).n_iter == 0).all()
    above = float(np.nextafter(distance, 1))
    assert dshift.fit(rows, above, metric=metric).n_iter.values.tolist() == [1, 0, 1]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bandwidth", [1e-17, 1e-15, 1.0])
def test_rows_one_unit_in_the_last_place_apart(metric: str, bandwidth: float) -> None:
    rows = np.ones((9, 5))
    rows[np.arange(5), np.arange(5)] = np.nextafter(1, 2)
    rows[np.arange(5, 9), np.arange(4)] = np.nextafter(1, 0)
    result = dshift.fit(rows, bandwidth, metric=metric)
    assert_equal(result, oracle.fit_oracle(rows, bandwidth, metric=metric))


@pytest.mark.parametrize("metric", METRICS)
def test_rows_that_differ_in_one_bin(metric: str) -> None:
    rows = np.full((30, 8), 10)
    rows[np.arange(30), np.arange(30) % 8] += np.arange(30) // 8
    for bandwidth in (1e-3, 0.02, 0.3):
        result = dshift.fit(rows, bandwidth, metric=metric)
        assert_equal(result, oracle.fit_oracle(rows, bandwidth, metric=metric))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("n", "q"), [(1, 1), (1, 6), (7, 1), (7, 2), (2, 10_000)])
def test_the_smallest_and_the_widest_data(metric: str, n: int, q: int) -> None:
    rows = np.random.default_rng(n).integers(0, 9, (n, q)) + 1
    for bandwidth in (1e-3, 1.0, 1e4) if q < 100 else (1.0,):
        result = dshift.fit(rows, bandwidth, metric=metric, valley=0.1)
        assert_equal(result, oracle.fit_oracle(rows, bandwidth, metric=metric, valley=0.1))


@pytest.mark.parametrize("metric", METRICS)
def test_many_identical_rows(metric: str) -> None:
    n = 1_000_000
    result = dshift.fit(np.broadcast_to(ROWS[0].astype("u1"), (n, 6)), 0.1, metric=metric)
    assert result.sizes["mode"] == 1
    assert (result.label.values == 0).all()
    assert result["size"].values.tolist() == [n]
    np.testing.assert_allclose(result.modes.values[0], ROWS[0] / 32, rtol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bandwidth", [1e300, HUGE])
def test_a_bandwidth_beyond_the_data_finds_one_cluster(metric: str, bandwidth: float) -> None:
    result = dshift.fit(ROWS, bandwidth, metric=metric, valley=0.1)
    assert result.sizes["mode"] == 1
    np.testing.assert_allclose(result.density.values, 40)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bandwidth", [1e-300, TINY])
def test_a_bandwidth_below_the_data_leaves_every_sample_alone(
    metric: str, bandwidth: float
) -> None:
    result = dshift.fit(ROWS, bandwidth, metric=metric, valley=0.1)
    assert result.sizes["mode"] == len(np.unique(ROWS, axis=0))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("power", [-1000, 51, 62, 63, 70, 1000])
def test_equal_weights_of_any_size_change_nothing_but_sizes(
    plain: dict[str, xr.Dataset], metric: str, power: int
) -> None:
    weights = np.full(len(ROWS), 2.0**power)
    result = dshift.fit(ROWS, BANDWIDTH[metric], metric=metric, weights=weights)
    expected = plain[metric]
    for name in ("label", "n_iter", "modes", "stationary"):
        np.testing.assert_array_equal(result[name].values, expected[name].values, err_msg=name)
    # Exact, since a power of two only moves the exponent.
    sizes = np.ldexp(result["size"].values.astype(float), -power)
    np.testing.assert_array_equal(sizes, expected["size"].values)
    np.testing.assert_allclose(np.ldexp(result.density.values, -power), expected.density)


MIXED: dict[str, dict[str, Any]] = {
    "bandwidths": {"bandwidth": np.r_[HUGE, TINY, np.full(38, 0.5)]},
    "weights": {"bandwidth": 0.5, "weights": np.r_[1e305, TINY, np.ones(38)]},
    "both": {
        "bandwidth": np.r_[TINY, HUGE, np.full(38, 0.5)],
        "weights": np.r_[1e305, TINY, np.ones(38)],
    },
    "both the other way round": {
        "bandwidth": np.r_[HUGE, TINY, np.full(38, 0.5)],
        "weights": np.r_[1e305, TINY, np.ones(38)],
    },
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", list(MIXED))
def test_extremes_side_by_side(metric: str, kind: str) -> None:
    result = dshift.fit(ROWS, metric=metric, valley=0.1, **MIXED[kind])
    assert result.stationary.values.all() or metric == "sqeuclidean"
    for name in ("modes", "density"):
        assert np.isfinite(result[name].values).all(), name
    assert (result.label.values >= 0).all()


def test_weights_beyond_int64_keep_their_size() -> None:
    """Whole weights were cast to int64, which wraps beyond 2**63."""
    result = dshift.fit(ROWS, 100.0, weights=np.full(len(ROWS), 2.0**70))
    assert result["size"].values.tolist() == [40 * 2.0**70]
    assert result["cluster_size"].values.tolist() == [40 * 2.0**70]


def test_a_pull_that_overflows_does_not_spoil_the_mean() -> None:
    """1e300 / 1e-20 is infinite, and infinity / infinity is no mean."""
    rows, weights = ROWS[:4], np.array([1e300, 1, 1, 1])
    result = dshift.fit(rows, np.array([1e-20, 9, 9, 9]), metric="sqeuclidean", weights=weights)
    others = rows[1:].mean(axis=0) / 32
    np.testing.assert_allclose(result.modes.values, [rows[0] / 32, others])


EPS = np.finfo(float).eps
EDGES = {
    "denormal bins": [TINY * k for k in range(7)],
    "huge bins": np.linspace(-8e307, 8e307, 7).tolist(),
    "centres that round to one number": [0, 1 + EPS, 1 + 2 * EPS, 1 + 3 * EPS, 2, 3, 4],
    "widths of all sizes": [0, 1e-300, 1e-200, 1e-100, 1, 1e100, 1e200],
}


@pytest.mark.parametrize("kind", list(EDGES))
@pytest.mark.parametrize("bandwidth", [TINY, 1.0, 1e300])
def test_edges_of_any_size(kind: str, bandwidth: float) -> None:
    result = dshift.fit(ROWS, bandwidth, edges=EDGES[kind], valley=0.1)
    assert np.isfinite(result.modes.values).all()
    assert result.stationary.values.all()
    np.testing.assert_allclose(result.modes.sum("dim_1"), 1)


def test_edges_too_far_apart_are_refused() -> None:
    edges = [-1e308, 0, 1, 2, 3, 4, 1e308]
    with pytest.raises(ValueError, match=r"`edges` go from -1e\+308 to 1e\+308, which is farther"):
        dshift.fit(ROWS, 1.0, edges=edges)
    stored = xr.DataArray(ROWS, dims=("sample", "bin"), attrs={"edges": edges})
    with pytest.raises(ValueError, match=r"has the attribute `edges`=.*correct or delete it"):
        dshift.fit(stored, 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": np.int64(99)}, "`seeds` is 99; with 40 samples"),
        ({"seeds": np.float64(1.5)}, "`seeds` is 1.5; a fraction"),
        ({"valley": np.float64(1.5)}, "`valley` is 1.5; it must"),
        ({"min_cluster_size": np.int32(0)}, "`min_cluster_size` is 0; it must"),
        ({"bandwidth": np.float32(-2)}, "`bandwidth` is -2.0; it must"),
        ({"edges": np.array([0, 1, 1, 2, 3, 4, 5])}, "edges 1 and 2 are 1.0 and 1.0;"),
    ],
)
def test_messages_show_numbers_as_people_write_them(change: dict[str, Any], message: str) -> None:
    with pytest.raises(dshift.DshiftError) as caught:
        dshift.fit(**{"data": ROWS, "bandwidth": 1.0, **change})
    assert message in str(caught.value)
