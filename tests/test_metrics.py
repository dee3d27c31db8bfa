"""Histograms to points and back, bandwidths to reach, weights to pulls: number by number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshift import kernels
from dshift.edges import bin_spacing, check_edges, choose_edges, count_coords, segments_of
from dshift.errors import InvalidInput, InvalidType
from dshift.metrics import (
    LARGEST_DISTANCE,
    Metric,
    Shares,
    TotalsSeen,
    make_embedding,
    make_pulls,
    resolve_metric,
    share_rows,
)

EPS = float(np.finfo(np.float64).eps)
TINY, MOST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)
STACKED = np.array([0.0, 1, 2, 3, 0, 5, 10])  # three bins, then two


def city_block(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.abs(rows - x).sum(axis=1)


def middle(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.median(rows, axis=0)


OWN = Metric(city_block, middle)
RAW = Metric(city_block, middle, normalize=False)


# ---------------------------------------------------------------- names


def test_a_metric_is_a_name_or_made_of_functions() -> None:
    assert [resolve_metric(name) for name in ("wasserstein", "l1", "sqeuclidean")] == [
        ("wasserstein", None),
        ("l1", None),
        ("sqeuclidean", None),
    ]
    assert resolve_metric(OWN) == ("custom", OWN)
    assert OWN.name == "custom"
    assert OWN.normalize
    with pytest.raises(InvalidInput, match="`metric` is 'l2'; allowed are 'wasserstein', 'l1', 's"):
        resolve_metric("l2")
    with pytest.raises(InvalidType, match=r"`metric` is a int; give one of .*Metric\(distance, ce"):
        resolve_metric(3)
    with pytest.raises(InvalidType, match=r"`distance` is 3; a function is needed: distance\(x, Y"):
        Metric(3, middle)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match="`center` is None; a function is needed"):
        Metric(city_block, None)  # type: ignore[arg-type]


# ---------------------------------------------------------------- edges


def test_equal_bins_have_one_spacing_and_others_their_shares() -> None:
    assert bin_spacing(None) == (1.0, None)
    assert bin_spacing(np.array([3.0, 7.0])) == (1.0, None)
    assert bin_spacing(np.array([1.0, 3.0, 5.0, 7.0])) == (2.0, None)
    step, shares = bin_spacing(np.array([0.0, 2.0, 4.0, 12.0]))
    assert step == 5.0
    assert shares is not None
    assert shares.tolist() == [0.4, 1.0]


def test_bins_are_equal_up_to_four_units_in_the_last_place_of_the_largest_edge() -> None:
    step, shares = bin_spacing(273.15 + 0.1 * np.arange(9))
    assert shares is None
    assert step == pytest.approx(0.1, rel=1e-12)
    # Distances of centres differ from their mean by a + b - 1, over 4.
    for off, equal in ((16, True), (18, False), (-16, True), (-18, False)):
        edges = np.array([0.0, 0.25, 0.75 + off * EPS, 1.0])
        assert (bin_spacing(edges)[1] is None) == equal
        assert (bin_spacing(edges - 1.0)[1] is None) == equal


def test_bins_so_narrow_that_centres_coincide_keep_a_distance() -> None:
    edges = np.array([1 + EPS, 1 + 2 * EPS, 1 + 3 * EPS, 2.0])
    step, shares = bin_spacing(edges)
    assert step == pytest.approx(0.5)
    assert shares is not None
    assert shares[0] == EPS / step
    _, shares = bin_spacing(np.array([0.0, 5e-324, 1e-323, 1e308]))
    assert shares is not None
    assert shares.tolist() == [TINY, 1.0]


def test_the_edges_of_stacked_variables_begin_where_they_drop() -> None:
    assert segments_of(None, 4) == (4,)
    assert segments_of(np.array([0.0, 1.0, 2.0]), 2) == (2,)
    assert segments_of(STACKED, 5) == (3, 2)
    assert segments_of(np.array([0.0, 1, 1, 2, 3]), 3) == (1, 2)
    assert [count_coords(kind, STACKED, 5) for kind in ("wasserstein", "l1")] == [3, 5]
    assert count_coords("wasserstein", None, 5) == 4
    assert count_coords("sqeuclidean", None, 5) == 5
    step, shares = bin_spacing(STACKED)
    assert step == 5.0
    assert shares is not None
    assert shares.tolist() == [0.2, 0.2, 1.0]


def test_given_edges_win_over_stored_ones_unless_histograms_are_stacked() -> None:
    stored = np.array([0.0, 1, 2])
    assert choose_edges(None, stored, 2) is stored
    assert choose_edges(None, None, 2) is None
    chosen = choose_edges([5, 6, 9], stored, 2)
    assert chosen is not None
    assert chosen.tolist() == [5, 6, 9]
    assert chosen.dtype == np.float64
    with pytest.raises(InvalidInput, match="the data are stacked histograms, which have edges of"):
        choose_edges([0, 1, 2, 3, 4, 5], STACKED, 5)


@pytest.mark.parametrize(
    ("edges", "error", "message"),
    [
        (["a", "b"], InvalidType, "`edges` is a list that is not made of numbers; give the 4 edges "
         "of the 3 bins"),
        ([0, 1, 2], InvalidInput, r"`edges` has shape \(3,\); 3 bins have 4 edges, so its shape "
         r"must be \(4,\)"),
        ([0, 1, 2, np.inf], InvalidInput, "`edges` holds NaN or infinity; replace open ends"),
        ([0, 1, 1, 2], InvalidInput, "must increase strictly, but edges 1 and 2 are 1.0 and 1.0"),
        ([0, 2, 1, 0], InvalidInput, "must increase strictly, but edges 1 and 2 are 2.0 and 1.0"),
        ([-MOST, 0, 1, MOST], InvalidInput, "`edges` go from -1.797.* to 1.797.*e.308, which is"),
        ([-MOST / 2, 0, 1, np.nextafter(MOST / 2, MOST)], InvalidInput, "divide them by a common"),
    ],
)  # fmt: skip
def test_bad_edges_are_refused(edges: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_edges(edges, 3)


def test_edges_may_span_all_that_a_float_can_count() -> None:
    assert check_edges([-MOST / 2, 0, 1, MOST / 2], 3).tolist() == [-MOST / 2, 0, 1, MOST / 2]


# ---------------------------------------------------------------- shares


def test_rows_become_shares_or_cumulative_shares() -> None:
    rows = np.array([[1, 2, 1], [0, 0, 8]], dtype=np.uint8)
    found = share_rows(rows, "wasserstein")
    assert found.values.tolist() == [[0.25, 0.75], [0, 0]]
    assert found.totals.tolist() == [4, 8]
    assert found.valid.all()
    for kind in ("l1", "sqeuclidean", "custom"):
        assert share_rows(rows, kind).values.tolist() == [[0.25, 0.5, 0.25], [0, 0, 1]]


@pytest.mark.parametrize("bad", [[np.nan, 1, 1], [np.inf, 1, 1], [-1, 2, 1], [0, 0, 0]])
def test_what_is_no_histogram_becomes_zeros(bad: list[float]) -> None:
    rows = np.array([bad, [1.0, 2, 1]])
    found = share_rows(rows, "l1")
    assert found.valid.tolist() == [False, True]
    assert found.values.tolist() == [[0, 0, 0], [0.25, 0.5, 0.25]]
    assert found.totals[1] == 4
    assert np.isnan(found.totals[0])


def test_a_metric_may_take_rows_as_they_are() -> None:
    rows = np.array([[-1.0, 2, 0], [0, 0, 0], [np.nan, 1, 1], [1, 1, -np.inf]])
    found = share_rows(rows, "custom", normalize=False)
    assert found.valid.tolist() == [True, True, False, False]
    assert found.values.tolist() == [[-1, 2, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert np.isnan(found.totals).all()
    stacked = share_rows(rows[:1], "custom", False, (2, 1))
    assert stacked.values.tolist() == [[-1, 2, 0]]


def test_stacked_variables_are_divided_each_by_its_own_total() -> None:
    rows = np.array([[1, 1, 2, 3, 1], [1, 1, 2, 0, 0], [0, 0, 0, 1, 1]])
    found = share_rows(rows, "wasserstein", True, (3, 2))
    assert found.values.tolist() == [[0.25, 0.5, 0.75], [0, 0, 0], [0, 0, 0]]
    assert found.valid.tolist() == [True, False, False]
    assert np.isnan(found.totals).all()
    assert share_rows(rows[:1], "l1", True, (5,)).totals.tolist() == [8]


def test_totals_are_those_of_whole_numbers_alone() -> None:
    rows = np.array([[1.5, 2.5], [1, 3], [2.0**60, 2.0**60], [1e308, 1e308]])
    totals = share_rows(rows, "l1").totals
    assert np.isnan(totals[0])
    assert totals[1:].tolist() == [4, 2.0**61, np.inf]


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint64, np.float32, np.float64])
def test_rows_become_shares_where_they_are_wanted(dtype: type) -> None:
    """In memory that held other numbers, the same bits; an invalid row among them."""
    rows = np.array([[1, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 4]]).astype(dtype)
    plain = share_rows(rows, "wasserstein")
    scratch, into = np.full((5, 4), np.nan), np.full((3, 3), np.nan)
    found = share_rows(rows, "wasserstein", scratch=scratch, into=into)
    assert found.values is into
    np.testing.assert_array_equal(into, plain.values)
    np.testing.assert_array_equal(found.valid, [True, False, True])
    np.testing.assert_array_equal(found.totals, plain.totals)
    stacked = share_rows(rows, "l1", True, (2, 2), scratch=scratch, into=into)
    np.testing.assert_array_equal(stacked.values, share_rows(rows, "l1", True, (2, 2)).values)


def test_totals_of_enormous_and_tiny_rows() -> None:
    rows = np.array([[1e300, 1e308, 1e308], [5e-324, 5e-324, 0], [1, 2, 1]])
    shares = share_rows(rows, "wasserstein")
    assert shares.valid.all()
    np.testing.assert_allclose(shares.values, [[5e-9, 0.5], [0.5, 1], [0.25, 0.75]])


def shares_by_numpy(rows: np.ndarray, cumulate: bool) -> tuple[np.ndarray, ...]:
    """As `divide_rows` does it, a step at a time for all rows."""
    values = rows.copy()
    valid = np.isfinite(values).all(axis=1)
    values[~valid] = 0
    valid &= (values.min(axis=1) >= 0) & (values.max(axis=1) > 0)
    values[~valid] = 0
    whole = valid & (values == np.rint(values)).all(axis=1)
    _, exponents = np.frexp(np.where(valid, values.max(axis=1), 0.0))
    values = np.ldexp(values, -exponents[:, None])
    cumulated = np.cumsum(values, axis=1)
    totals = np.where(valid, cumulated[:, -1], 1.0)
    shares = (cumulated[:, :-1] if cumulate else values) / totals[:, None]
    return shares, valid, whole, totals, exponents.astype(np.int64)


@pytest.mark.parametrize("cumulate", [True, False])
@pytest.mark.parametrize("kernel", [kernels.divide_rows, kernels.divide_rows.py_func])
def test_rows_are_divided_to_the_bit(kernel: Any, cumulate: bool) -> None:
    random = np.random.default_rng(0)
    odd = [0.0, -0.0, np.nan, np.inf, -np.inf, -1.0, 5e-324, 1.7e308, 2.0**1023, 3.0, 2.5]
    below = np.ldexp(random.integers(0, 2**12, (40, 5)).astype(float), -1074)
    below[:, 0] = np.ldexp(1.0, random.integers(1, 9, 40))  # the others are rounded, once
    rows = np.concatenate(
        [
            random.choice(odd, (300, 5), p=[0.3, 0.2, 0.01, 0.01, 0.01, 0.02, *[0.09] * 5]),
            np.ldexp(random.random((100, 5)), random.integers(-1100, 1024, (100, 5))),
            random.integers(0, 9, (40, 5)).astype(float),
            below,
        ]
    )
    n = len(rows)
    found = (
        np.empty((n, 4 if cumulate else 5)),
        np.empty(n, dtype=bool),
        np.empty(n, dtype=bool),
        np.empty(n),
        np.empty(n, dtype=np.int64),
    )
    kernel(rows, cumulate, *found)
    assert 100 < found[1].sum() < n
    for one, other in zip(found, shares_by_numpy(rows, cumulate), strict=True):
        assert one.tobytes() == np.ascontiguousarray(other).tobytes()


def seen(*blocks: list[float]) -> int | None:
    """The common total after blocks of totals; a negative one is of a row that is invalid."""
    totals, joined = TotalsSeen(), TotalsSeen()
    for block in blocks:
        values = np.array(block, dtype=float)
        shares = Shares(np.empty((len(block), 0)), ~(values < 0), values)
        totals.add(shares)
        alone = TotalsSeen()
        alone.add(shares)
        joined.join(alone)
    assert joined == totals
    return totals.common


def test_a_common_total_is_that_of_all_valid_rows() -> None:
    assert seen([7, 7], [7]) == 7
    assert isinstance(seen([7]), int)
    assert seen([7, 7], [7, 8]) is None
    assert seen([8], [7]) is None
    assert seen([7, -1], [-1]) == 7
    assert seen([7], [np.nan]) is None
    assert seen([7, np.nan], [7]) is None
    assert seen([-1]) is None
    assert seen() is None
    assert seen([LARGEST_DISTANCE - 1]) == LARGEST_DISTANCE - 1
    assert seen([LARGEST_DISTANCE]) is None


# ---------------------------------------------------------------- points


@pytest.mark.parametrize(
    ("n_bins", "total", "grid"),
    [
        (1, None, 2**52),
        (2, None, 2**51),
        (64, None, 2**46),
        (65, None, 2**45),
        (64, 100, 100 << 39),
        (64, 2**46, 2**46),
        (64, 2**46 - 1, 2**46 - 1),
        (64, 2**46 + 1, 2**46),
    ],
)
def test_the_grid_is_as_fine_as_exact_sums_allow(n_bins: int, total: int | None, grid: int) -> None:
    for kind in ("wasserstein", "l1"):
        embedding = make_embedding(kind, n_bins, None, None, total)
        assert embedding.grid == grid
        assert embedding.exact
        # The farthest two histograms: 1 apart in each coordinate, or 2 in all.
        assert 2 * grid * count_coords(kind, None, n_bins) <= LARGEST_DISTANCE
        assert total is None or total > grid or grid % total == 0


def test_the_other_geometries_have_no_grid() -> None:
    for kind, metric in (("sqeuclidean", None), ("custom", OWN)):
        embedding = make_embedding(kind, 4, np.arange(5.0), metric, 7)
        assert (embedding.grid, embedding.step, embedding.ratios) == (1, 1.0, None)
        assert embedding.metric is metric
        assert not embedding.exact
        assert count_coords(kind, np.arange(5.0), 4) == 4
        rows = np.array([[1.0, 1, 1, 1]])
        points, valid = embedding.embed(rows)
        assert points.tolist() == embedding.restore(points).tolist() == [[0.25] * 4]
        assert valid.all()
        assert embedding.in_units(np.array([3])).tolist() == [3.0]
        assert embedding.reach(np.array([0.7])).tolist() == [0.7]
    raw = make_embedding("custom", 2, None, RAW, None)
    assert raw.embed(np.array([[-3.0, 5.0]]))[0].tolist() == [[-3.0, 5.0]]


def test_counts_of_one_total_become_multiples_of_it() -> None:
    embedding = make_embedding("wasserstein", 3, None, None, 10)
    unit = embedding.grid // 10
    points, valid = embedding.embed(np.array([[3, 4, 3], [0, 0, 10], [0, np.nan, 1]]))
    assert points.tolist() == [[6 * unit, 14 * unit], [0, 0], [0, 0]]
    assert valid.tolist() == [True, True, False]
    np.testing.assert_array_equal(
        embedding.restore(points[:2]), np.diff([[0, 0.3, 0.7, 1], [0, 0, 0, 1]], axis=1)
    )
    l1 = make_embedding("l1", 3, np.array([0.0, 1, 5, 9]), None, 10)
    assert (l1.step, l1.ratios) == (1.0, None)
    points, _ = l1.embed(np.array([[3, 4, 3]]))
    assert points.tolist() == [[6 * unit, 8 * unit, 6 * unit]]
    assert l1.restore(points).tolist() == [[0.3, 0.4, 0.3]]


def test_unequal_bins_are_scaled_on_the_way_in_and_out() -> None:
    embedding = make_embedding("wasserstein", 3, np.array([0.0, 2, 4, 12]), None, None)
    assert embedding.step == 5.0
    points, _ = embedding.embed(np.array([[1, 1, 2]]))
    grid = embedding.grid
    assert points.tolist() == [[2 * round(0.25 * 0.4 * grid), 2 * round(0.5 * grid)]]
    np.testing.assert_allclose(embedding.restore(points), [[0.25, 0.25, 0.5]], rtol=1e-14)
    # Out of order or beyond 1 by the rounding of a narrow bin: no share is below zero for that.
    off = np.array([[2 * int(0.4 * grid) + 4, 2 * grid - 2], [2, 0]])
    assert (embedding.restore(off) >= 0).all()
    np.testing.assert_allclose(embedding.restore(off).sum(axis=1), 1, rtol=1e-15)


def test_stacked_histograms_come_back_each_for_itself() -> None:
    embedding = make_embedding("wasserstein", 5, STACKED, None, None)
    assert embedding.segments == (3, 2)
    assert count_coords("wasserstein", STACKED, 5) == 3
    rows = np.array([[1, 1, 2, 3, 1], [4, 0, 0, 0, 2]])
    points, _ = embedding.embed(rows)
    np.testing.assert_allclose(
        embedding.restore(points), [[0.25, 0.25, 0.5, 0.75, 0.25], [1, 0, 0, 0, 1]], atol=1e-14
    )
    one_bin = make_embedding("wasserstein", 3, np.array([0.0, 1, 0, 1, 2]), None, None)
    points, _ = one_bin.embed(np.array([[7, 1, 3]]))
    assert one_bin.restore(points).tolist() == [[1, 0.25, 0.75]]


# ---------------------------------------------------------------- distances and reach


def test_distances_in_the_users_unit() -> None:
    for width in (0.25, 1e300, 1e-300):
        embedding = make_embedding("wasserstein", 4, width * np.arange(5), None, None)
        one = 2 * embedding.grid
        found = embedding.in_units(np.array([0, one, 3 * one, one // 4]))
        np.testing.assert_allclose(found, np.array([0, 1, 3, 0.25]) * embedding.step, rtol=1e-15)
        assert embedding.in_grid_steps(embedding.step) == Fraction(one)
        assert embedding.in_grid_steps(embedding.step / 4) == Fraction(one, 4)
    far = make_embedding("wasserstein", 2, np.array([0.0, 1e308, 1.6e308]), None, None)
    assert far.in_units(np.array([2**54])).tolist() == [np.inf]  # and no warning


@pytest.mark.parametrize("kind", ["wasserstein", "l1"])
@given(
    h=st.floats(1e-12, 1e12),
    total=st.one_of(st.none(), st.integers(1, 10**6)),
    width=st.sampled_from([1e-300, 0.01, 1.0, 3.7, 1e300]),
    n_bins=st.integers(2, 300),
)
def test_reach_is_the_least_distance_that_is_not_below_the_bandwidth(
    kind: str, h: float, total: int | None, width: float, n_bins: int
) -> None:
    edges = np.arange(n_bins + 1) * width
    if not np.isfinite(edges).all():
        edges = None
        width = 1.0
    embedding = make_embedding(kind, n_bins, edges, None, total)
    h = min(h * embedding.step, 1e308)
    reach = int(embedding.reach(np.asarray(h)))
    below = embedding.in_units(np.array([reach - 1, reach]))
    assert below[0] < h or reach == 1 or reach > 2**53  # no distance is as long
    assert below[1] >= h or reach == 2**54


# ---------------------------------------------------------------- pulls

EXACT = make_embedding("wasserstein", 8, None, None, None)
MEANS = make_embedding("sqeuclidean", 8, None, None, None)


def test_whole_weights_pull_as_they_are() -> None:
    weights = np.array([1.0, 3.0, 2.0**52 - 5])
    pulls = make_pulls(EXACT, weights, np.array(2.5))
    assert pulls.dtype == np.int64
    assert pulls.tolist() == [1, 3, 2**52 - 5]


@pytest.mark.parametrize(
    "weights", [[1.0, 3.0], [0.5, 1.5], [2.0**51, 3 * 2.0**51], [1e-300, 3e-300]]
)
def test_other_weights_are_scaled_to_whole_numbers(weights: list[float]) -> None:
    for bandwidth in (np.array(2.0), np.array([1.0, 1.0])):
        pulls = make_pulls(EXACT, np.array(weights), bandwidth)
        assert pulls.dtype == np.int64
        assert float(pulls[1] / pulls[0]) == pytest.approx(3, rel=1e-14)
        assert int(pulls.sum()) < 2**62


def test_a_wider_sample_pulls_less() -> None:
    assert make_pulls(EXACT, np.ones(3), np.array([1.0, 2.0, 4.0])).tolist() == [
        2**52,
        2**51,
        2**50,
    ]
    assert make_pulls(EXACT, np.array([4.0, 0.5]), np.array([8.0, 1.0])).tolist() == [2**52, 2**52]
    # The widest ratio is that of 52 bits: nobody pulls nothing.
    assert make_pulls(EXACT, np.ones(2), np.array([1e-9, 1e300])).tolist() == [2**52, 1]
    assert make_pulls(EXACT, np.array([1e-300, 0.5]), np.array(1.0)).tolist() == [1, 2**52]


@pytest.mark.parametrize("heavy", [2.0**10, 2.0**51, 1e200, 0.75])
def test_the_total_of_pulls_leaves_a_bit(heavy: float) -> None:
    for bandwidth in (np.array(1.0), np.linspace(1, 1.0001, 5000)):
        pulls = make_pulls(EXACT, np.full(5000, heavy), bandwidth)
        total = sum(pulls.tolist())
        assert total < 2**62
        # And as many bits as that leaves are used, where weights are not taken as they are.
        assert total >= 2**60 or (bandwidth.ndim == 0 and heavy == 2.0**10)


def test_a_whole_weight_pulls_like_so_many_samples() -> None:
    widths = np.array([1.0, 3.0, 0.7])
    once = make_pulls(EXACT, np.ones(6), np.repeat(widths, [1, 2, 3]))
    heavy = make_pulls(EXACT, np.array([1.0, 2.0, 3.0]), widths)
    np.testing.assert_array_equal(heavy, [once[0], once[1] + once[2], once[3:].sum()])


def test_pulls_of_means_are_quotients_that_stay_in_range() -> None:
    weights, widths = np.array([3.0, 0.1, 7.0]), np.array([0.7, 2.0, 1e-3])
    np.testing.assert_array_equal(make_pulls(MEANS, weights, widths), weights / widths)
    np.testing.assert_array_equal(make_pulls(MEANS, weights, np.array(0.3)), weights)
    edge = np.array([2.0**449, 1.0, 2.0**-451])
    np.testing.assert_array_equal(make_pulls(MEANS, edge, np.array(1.0)), edge)
    # Beyond: relative to the largest, whose power of two becomes 1; and never nothing.
    beyond = np.array([2.0**450, 2.0**448, 2.0**-460])
    assert make_pulls(MEANS, beyond, np.array(1.0)).tolist() == [0.5, 0.125, 2.0**-901]
    small = np.array([2.0**-452, 2.0**-454])
    assert make_pulls(MEANS, small, np.array(1.0)).tolist() == [0.5, 0.125]
    wide = make_pulls(MEANS, np.array([1e300, 1e300]), np.array([1e-300, 2e-300]))
    assert wide[0] == 2 * wide[1] > 0
