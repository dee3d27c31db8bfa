"""What must hold for every fit, whatever its data: the theorem's laws and the contract's."""

from __future__ import annotations

import itertools
from typing import Any

import dask.array as da
import numpy as np
import oracle
import pytest
import strategies
import xarray as xr
import zarr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance
from strategies import Problem
from test_oracle_equality import assert_equal

import dshift

EXACT = ["wasserstein", "l1"]
GEOMETRIES = [*EXACT, "sqeuclidean"]


def any_rows() -> st.SearchStrategy[np.ndarray]:
    return st.one_of(strategies.small_rows(), strategies.crowded_rows())


def plain_problems(metric: str, rows: st.SearchStrategy[np.ndarray]) -> st.SearchStrategy[Problem]:
    return strategies.problems(metric, rows, seeds=False, valley=False)


def fit(problem: Problem, **changes: Any) -> xr.Dataset:
    return dshift.fit(problem.rows, problem.bandwidth, **{**problem.options, **changes})


def space_of(problem: Problem) -> oracle.Space:
    options = {name: problem.options[name] for name in ("metric", "edges", "weights")}
    return oracle.make_space(problem.rows, problem.bandwidth, **options)


def assume_sane(problem: Problem, least: float) -> None:
    """Bandwidths far above the rounding of distances, and not too different from each other.

    Means and user's centers are rounded, and so is w_i / h_i: the laws hold up to that.
    """
    h = np.asarray(problem.bandwidth)
    assume(h.min() >= least and h.max() <= 1e6 * h.min())


def mode_rows(result: xr.Dataset, index: str = "mode_index") -> np.ndarray:
    """Each sample's (or seed's) own mode."""
    assert (result[index].values >= 0).all()
    return result.modes.values[result[index].values]


# --------------------------------------------------------------------------------------------------
# the theorem


@pytest.mark.parametrize("metric", EXACT)
@settings(max_examples=80)
@given(data=st.data())
def test_density_never_decreases(metric: str, data: st.DataObject) -> None:
    """In integers: not by one bit, and it rises whenever a sample enters the active set."""
    problem = data.draw(plain_problems(metric, any_rows()))
    space = space_of(problem)
    assert isinstance(space, oracle.GridSpace)
    result = fit(problem)
    for i, start in enumerate(space.points[:20]):
        path = oracle.trajectory(space, start)
        np.testing.assert_array_equal(mode_rows(result)[i], space.restore(path[-1]))
        heights = [space.potential(x) for x in path]
        reached = [set(space.active(x).tolist()) for x in path]
        steps = itertools.pairwise(zip(heights, reached, strict=True))
        for (before, old), (after, new) in steps:
            assert after > before if new - old else after >= before


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=50)
@given(data=st.data())
def test_modes_are_as_dense_as_their_seeds(metric: str, data: st.DataObject) -> None:
    problem = data.draw(plain_problems(metric, any_rows()))
    assume_sane(problem, least=1e-9)
    space = space_of(problem)
    result = fit(problem)
    at_modes = result.density.values[result.mode_index.values]
    at_seeds = np.array([float(space.density(x)) for x in space.points])
    assert (at_modes >= at_seeds - 1e-9 * space.weights.sum()).all()


@pytest.mark.parametrize("metric", EXACT)
@settings(max_examples=50)
@given(data=st.data())
def test_modes_stay(metric: str, data: st.DataObject) -> None:
    """Modes given as seeds take no step. (Counts of one total: their modes lie on the grid.)"""
    n, q = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 8))
    problem = data.draw(plain_problems(metric, strategies.count_rows(n, q)))
    if problem.options["edges"] is not None:
        problem.options["edges"] = -3.0 + 0.25 * np.arange(q + 1)
    modes = fit(problem).modes.values
    if metric == "l1":  # a median of histograms need not have the total 1
        assume(np.all(modes.sum(axis=1) == 1))
    again = fit(problem, seeds=modes)
    assert (again.seed_n_iter.values == 0).all()
    np.testing.assert_array_equal(mode_rows(again, "seed_mode_index"), modes)


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=50)
@given(data=st.data())
def test_one_more_step_from_a_mode_is_the_mode(metric: str, data: st.DataObject) -> None:
    problem = data.draw(plain_problems(metric, any_rows()))
    if metric not in EXACT:
        assume_sane(problem, least=1e-9)
    space = space_of(problem)
    result = fit(problem)
    known = {space.restore(x).tobytes(): x for p in space.points for x in [end_of(space, p)]}
    assert set(known) == {mode.tobytes() for mode in result.modes.values}
    for mode in known.values():
        np.testing.assert_array_equal(oracle.next_point(space, mode), mode)
    assert result.attrs["all_seeds_stationary"]


def end_of(space: oracle.Space, start: np.ndarray) -> np.ndarray:
    return oracle.trajectory(space, start)[-1]


@settings(max_examples=100)
@given(strategies.problems("wasserstein", any_rows()))
def test_wasserstein_modes_are_histograms(problem: Problem) -> None:
    modes = fit(problem).modes.values
    assert (modes >= 0).all()
    np.testing.assert_allclose(modes.sum(axis=1), 1.0, rtol=0, atol=1e-12)


# --------------------------------------------------------------------------------------------------
# symmetries


@pytest.mark.parametrize("metric", EXACT)
@settings(max_examples=60)
@given(data=st.data())
def test_permuting_samples_permutes_labels(metric: str, data: st.DataObject) -> None:
    problem = data.draw(plain_problems(metric, any_rows()))
    weights = problem.options["weights"]
    if weights is not None:
        problem.options["weights"] = weights = np.ceil(weights)
    if np.ndim(problem.bandwidth):
        problem.bandwidth = float(problem.bandwidth[0])
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(len(problem.rows))
    moved = Problem(problem.rows[order], problem.bandwidth, dict(problem.options))
    moved.options["weights"] = None if weights is None else weights[order]
    result, shuffled = fit(problem), fit(moved)
    for name in ("label", "mode_index", "n_iter"):
        np.testing.assert_array_equal(shuffled[name].values, result[name].values[order])
    for name in ("modes", "density", "size", "cluster_of_mode"):
        np.testing.assert_array_equal(shuffled[name].values, result[name].values)


@pytest.mark.parametrize("metric", EXACT)
@settings(max_examples=60)
@given(data=st.data())
def test_permuting_samples_with_their_bandwidths(metric: str, data: st.DataObject) -> None:
    """Where densities are rounded, their order may change, but no sample changes its mode."""
    problem = data.draw(plain_problems(metric, any_rows()))
    n = len(problem.rows)
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(n)
    weights = problem.options["weights"]
    moved = Problem(
        problem.rows[order],
        np.broadcast_to(problem.bandwidth, n)[order],
        {**problem.options, "weights": None if weights is None else weights[order]},
    )
    problem.bandwidth = np.broadcast_to(problem.bandwidth, n)
    result, shuffled = fit(problem), fit(moved)
    np.testing.assert_array_equal(mode_rows(shuffled), mode_rows(result)[order])
    np.testing.assert_array_equal(shuffled.n_iter.values, result.n_iter.values[order])


@pytest.mark.parametrize("metric", EXACT)
@settings(max_examples=60)
@given(data=st.data())
def test_weight_k_is_k_copies(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, any_rows(), seeds=False))
    n = len(problem.rows)
    weights = np.resize(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)), n)
    problem.options["weights"] = weights
    copies = np.repeat(np.arange(n), weights)
    bandwidth = problem.bandwidth if np.ndim(problem.bandwidth) == 0 else problem.bandwidth[copies]
    expanded = Problem(problem.rows[copies], bandwidth, {**problem.options, "weights": None})
    weighted, copied = fit(problem), fit(expanded)
    np.testing.assert_array_equal(copied.n_iter.values, weighted.n_iter.values[copies])
    np.testing.assert_array_equal(mode_rows(copied), mode_rows(weighted)[copies])
    for name in ("label", "mode_index"):
        np.testing.assert_array_equal(copied[name].values, weighted[name].values[copies])
    for name in ("modes", "size", "cluster_of_mode"):
        np.testing.assert_array_equal(copied[name].values, weighted[name].values)
    np.testing.assert_allclose(copied.density.values, weighted.density.values, rtol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_weight_k_is_k_copies_for_means(seed: int) -> None:
    """A mean of copies is rounded otherwise than a weighted mean, but the labels are the same."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.eye(4) * 20, 10, axis=0) + rng.random((40, 4)) * 8
    weights = rng.integers(1, 5, 40)
    copies = np.repeat(np.arange(40), weights)
    weighted = dshift.fit(rows, 0.05, metric="sqeuclidean", weights=weights)
    copied = dshift.fit(rows[copies], 0.05, metric="sqeuclidean")
    assert weighted.sizes["mode"] >= 4
    np.testing.assert_array_equal(copied.label.values, weighted.label.values[copies])
    np.testing.assert_allclose(copied.modes.values, weighted.modes.values, rtol=1e-12)


@settings(max_examples=60)
@given(problem=strategies.problems("wasserstein", any_rows()), power=st.integers(-30, 30))
def test_scaling_edges_and_bandwidth_changes_nothing(problem: Problem, power: int) -> None:
    q = problem.rows.shape[1]
    if problem.options["edges"] is None:
        problem.options["edges"] = np.arange(q + 1.0)
    assume(np.min(problem.bandwidth) > 1e-200 and np.max(problem.bandwidth) < 1e200)
    result = fit(problem)
    factor = 2.0**power
    scaled = dshift.fit(
        problem.rows,
        problem.bandwidth * factor,
        **{**problem.options, "edges": problem.options["edges"] * factor},
    )
    for name in sorted(set(result.data_vars) - {"bandwidth"}):
        np.testing.assert_array_equal(scaled[name].values, result[name].values, err_msg=name)


def test_unit_edges_are_no_edges() -> None:
    rows = np.random.default_rng(0).multinomial(20, np.full(9, 1 / 9), 50)
    plain, edged = dshift.fit(rows, 0.8), dshift.fit(rows, 0.8, edges=np.arange(10.0))
    for name in sorted(set(plain.data_vars)):
        np.testing.assert_array_equal(edged[name].values, plain[name].values, err_msg=name)


# --------------------------------------------------------------------------------------------------
# the distance is W1


@settings(max_examples=100)
@given(data=st.data())
def test_distance_is_scipys(data: st.DataObject) -> None:
    """Two rows meet if and only if the bandwidth exceeds SciPy's distance between them.

    At twice that distance they end halfway, where the density is 2 * (1 - 1/4).
    """
    q = data.draw(st.integers(2, 12))
    kind = data.draw(st.sampled_from([strategies.loose_rows, strategies.real_rows]))
    rows = data.draw(kind(2, q))
    edges = data.draw(strategies.bin_edges(q))
    centres = np.arange(q) if edges is None else (edges[:-1] + edges[1:]) / 2
    d = wasserstein_distance(centres, centres, rows[0], rows[1])
    assume(d > 1e-6)
    assert dshift.fit(rows, d * (1 + 1e-7), edges=edges).sizes["mode"] == 1
    assert dshift.fit(rows, d * (1 - 1e-7), edges=edges).sizes["mode"] == 2
    wide = dshift.fit(rows, 2 * d, edges=edges)
    np.testing.assert_allclose(wide.density.values, [1.5], rtol=1e-7)


# --------------------------------------------------------------------------------------------------
# the way the work is cut changes no bit


@st.composite
def cuts(draw: st.DrawFn, length: int) -> tuple[int, ...]:
    """A random chunking of an axis."""
    inner = draw(st.sets(st.integers(1, length - 1), max_size=4)) if length > 1 else set()
    return tuple(np.diff([0, *sorted(inner), length]).tolist())


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=25)
@given(data=st.data())
def test_chunks_change_no_bit(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, any_rows(), seeds=False))
    whole = fit(problem)
    n, q = problem.rows.shape
    lazy = da.from_array(problem.rows, chunks=(data.draw(cuts(n)), data.draw(cuts(q))))
    stored = zarr.create_array(
        zarr.storage.MemoryStore(),
        data=problem.rows,
        chunks=(data.draw(st.integers(1, n)), data.draw(st.integers(1, q))),
    )
    dims = (*whole.label.dims, whole.modes.dims[1])
    sources = [lazy, stored, xr.DataArray(lazy, dims=dims)]
    for source in sources:
        result = dshift.fit(source, problem.bandwidth, **problem.options)
        result.attrs["source"] = whole.attrs["source"]
        xr.testing.assert_identical(result, whole)


@settings(max_examples=20)
@given(data=st.data())
def test_chunks_of_a_cube_change_no_bit(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(2))
    rows = data.draw(strategies.loose_rows(shape[0] * shape[1], 5))
    flat = dshift.fit(rows, 0.7)
    cube = xr.DataArray(rows.reshape(*shape, 5), dims=("lat", "lon", "bin"))
    chunks = {dim: data.draw(cuts(size)) for dim, size in cube.sizes.items()}
    result = dshift.fit(cube.chunk(chunks), 0.7)
    assert result.label.dims == ("lat", "lon")
    for name in ("label", "mode_index", "n_iter", "is_seed"):
        np.testing.assert_array_equal(result[name].values.ravel(), flat[name].values)
    for name in ("modes", "density", "size", "cluster_of_mode"):
        np.testing.assert_array_equal(result[name].values, flat[name].values)


@pytest.mark.parametrize("metric", GEOMETRIES)
@settings(max_examples=25)
@given(data=st.data())
def test_blocks_and_threads_change_no_bit(metric: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems(metric, any_rows()))
    whole = fit(problem)
    for threads in (1, 2, 5):
        block_size = data.draw(st.integers(1, len(problem.rows)))
        with dshift.engine.settings(block_size=block_size, threads=threads):
            xr.testing.assert_identical(fit(problem), whole)


# --------------------------------------------------------------------------------------------------
# metrics of the user's own


def hamming(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return (rows != x).sum(axis=1).astype(float)


def majority(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The heaviest value of each coordinate, ties to the smallest."""
    center = []
    for column in rows.T:
        values = np.unique(column)
        center.append(values[np.argmax([weights[column == v].sum() for v in values])])
    return np.array(center)


def cosine(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    lengths = np.sqrt((rows * rows).sum(axis=1)) * np.sqrt((x * x).sum())
    return np.maximum(1 - (rows * x).sum(axis=1) / lengths, 0)


def mean_direction(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    units = rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    mean = ((weights / weights.max())[:, None] * units).sum(axis=0)
    return mean / np.sqrt((mean * mean).sum())


OWN_METRICS = {
    "hamming": oracle.Custom(hamming, majority, normalize=False),
    "cosine": oracle.Custom(cosine, mean_direction, normalize=False),
    "cosine of histograms": oracle.Custom(cosine, mean_direction),
}


def own(name: str) -> dshift.Metric:
    metric = OWN_METRICS[name]
    return dshift.Metric(metric.distance, metric.center, name=name, normalize=metric.normalize)


@pytest.mark.parametrize("name", OWN_METRICS)
@settings(max_examples=50)
@given(data=st.data())
def test_own_metric(name: str, data: st.DataObject) -> None:
    """It ends, where the oracle ends; the density never decreases; every mode stays."""
    kind = strategies.loose_rows if name == "hamming" else strategies.real_rows
    n, q = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 6))
    problem = data.draw(strategies.problems(OWN_METRICS[name], kind(n, q)))
    assume_sane(problem, least=1e-3)
    expected = oracle.fit_oracle(problem.rows, problem.bandwidth, **problem.options)
    assert_equal(fit(problem, metric=own(name)), expected)

    space = expected.space
    slack = 1e-11 * space.weights.sum()
    for start in space.points:
        path = oracle.trajectory(space, start)
        heights = [space.density(x) for x in path]
        assert all(b >= a - slack for a, b in itertools.pairwise(heights))
        np.testing.assert_array_equal(oracle.next_point(space, path[-1]), path[-1])


def test_own_metric_finds_directions() -> None:
    rng = np.random.default_rng(5)
    axes = np.repeat(np.eye(3), 20, axis=0)
    rows = (axes + rng.normal(0, 0.05, axes.shape)) * rng.uniform(1, 50, (60, 1))
    result = dshift.fit(rows, 0.3, metric=own("cosine"))
    np.testing.assert_array_equal(np.unique(result.label.values), [0, 1, 2])
    np.testing.assert_array_equal(
        result.label.values.reshape(3, 20), np.tile(result.label.values[::20], (20, 1)).T
    )
    np.testing.assert_allclose((result.modes.values**2).sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize(
    ("heavy", "mode", "n_iter"), [(1, 0.0, [0, 2, 1, 1]), (2, 10.0, [1, 1, 0, 2])]
)
def test_a_center_that_does_not_minimise_still_ends(
    heavy: float, mode: float, n_iter: list[int]
) -> None:
    """0 and 10 lead to each other. The denser one is the mode; if neither is, the smaller one."""
    rows = np.array([[0.0], [1.0], [10.0], [11.0]])
    metric = dshift.Metric(
        lambda x, points: np.abs(points - x).sum(axis=1),
        lambda points, weights: 10 - points.min(axis=0),
        normalize=False,
    )
    result = dshift.fit(rows, 1.5, metric=metric, weights=[1, 1, heavy, 1])
    np.testing.assert_array_equal(result.modes.values, [[mode]])
    np.testing.assert_array_equal(result.n_iter.values, n_iter)
