"""The plain walk: by hand, and against a loop in plain words."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dshift.errors import InvalidInput
from dshift.field import Field
from dshift.metrics import Embedding, Metric
from dshift.shift import NO_MODE, Climbed, climb, density, distances, step

# ---------------------------------------------------------------- one step


def line(
    places: list[int], reach: int = 5, pulls: list[int] | None = None, scale: float = 1.0
) -> Field:
    """Samples at whole places of a line, doubled as on the grid; one reach for all."""
    n = len(places)
    heavy = np.array([1] * n if pulls is None else pulls)
    return Field(
        embedding=Embedding("l1", 1, grid=8),  # 16 grid steps are one unit
        points=2 * np.array(places)[:, None],
        weights=heavy * scale,
        bandwidth=np.full(n, 2 * reach / 16),
        reach=np.full(n, 2 * reach),
        pulls=heavy,
        weight_of_pull=Fraction(scale),
    )


def at(place: float) -> np.ndarray:
    return np.array([int(2 * place)])


def test_distances_of_each_geometry() -> None:
    x, rows = np.array([2, 6]), np.array([[2, 6], [0, 10], [8, 4]])
    assert distances(Embedding("l1", 2), x, rows).tolist() == [0, 6, 8]
    assert distances(Embedding("wasserstein", 3), x, rows).tolist() == [0, 6, 8]
    found = distances(Embedding("sqeuclidean", 2), x.astype(float), rows.astype(float))
    assert found.tolist() == [0, 20, 40]
    own = Metric(lambda x, points: (points - x)[:, 0], lambda rows, weights: rows[0])
    found = distances(Embedding("custom", 2, metric=own), x.astype(float), rows.astype(float))
    assert found.tolist() == [0, -2, 6]


def test_a_step_goes_to_the_median_of_those_nearer_than_their_reach() -> None:
    field = line([0, 1, 2, 5, 6])
    for place, onward in ((0, 1), (1, 1.5), (3, 2), (5, 3.5), (10, 6), (-4, 0)):
        found = step(field, at(place))
        assert found is not None
        assert found.tolist() == at(onward).tolist(), place
    assert step(field, at(-5)) is None
    assert step(field, at(11)) is None
    heavy = step(line([0, 1, 2], pulls=[5, 1, 1]), at(1))
    assert heavy is not None
    assert heavy.tolist() == [0]


def test_a_step_of_means_and_of_a_metric_of_ones_own() -> None:
    rows = np.array([[0.0], [1.0], [3.0], [9.0]])
    pulls = np.array([1.0, 2.0, 3.0, 4.0])
    fixed: dict[str, Any] = {
        "points": rows,
        "weights": pulls,
        "bandwidth": np.full(4, 5.0),
        "reach": np.full(4, 5.0),
        "pulls": pulls,
        "weight_of_pull": Fraction(1),
    }
    found = step(Field(embedding=Embedding("sqeuclidean", 1), **fixed), np.array([2.0]))
    assert found is not None
    assert found.tolist() == [(0 + 2 + 9) / 6]
    seen = []

    def center(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        seen.append((rows.tolist(), weights.tolist()))
        return np.array([-0.0])

    own = Metric(lambda x, points: np.abs(points - x)[:, 0], center)
    found = step(Field(embedding=Embedding("custom", 1, metric=own), **fixed), np.array([2.0]))
    assert seen == [([[0.0], [1.0], [3.0]], [1.0, 2.0, 3.0])]
    assert found is not None
    assert not np.signbit(found[0])  # so that it is the same point to the byte


def test_densities() -> None:
    field = line([0, 1, 2, 5, 6], scale=0.5)
    # Distances 1, 0, 1, 4 and 5 of a reach of 5.
    assert density(field, at(1)) == float(Fraction(5 + 5 * 4 - 1 - 1 - 4 - 5, 10))
    assert density(field, at(20)) == 0
    assert density(line([0]), at(1)) == 0.8
    many = Field(**{**vars(field), "weight_of_pull": None})
    assert density(many, at(1)) == pytest.approx(1.4, rel=1e-15)
    # Reach is the first grid step at or beyond the bandwidth: who is there would count below zero.
    narrow = Field(**{**vars(many), "bandwidth": np.full(5, 9.5 / 16)})
    assert density(narrow, at(1)) == pytest.approx(0.5 * (4 - 12 / 9.5), rel=1e-15)
    uneven = Field(
        **{
            **vars(many),
            "bandwidth": np.array([1.0, 0.5, 2.0, 1.0, 1.0]),
            "reach": np.array([16, 8, 32, 16, 16]),
            "weights": np.arange(1.0, 6.0),
        }
    )
    away = np.array([1, 0, 1, 4, 5]) / 8
    heights = uneven.weights * (1 - away / uneven.bandwidth)
    assert density(uneven, at(1)) == pytest.approx(heights.sum(), rel=1e-15)


@pytest.mark.parametrize(
    ("distance", "center", "message"),
    [
        (
            lambda x, points: np.zeros(2),
            lambda rows, weights: rows[0],
            r"the distance of metric 'mine' returned shape \(2,\) with 0 NaN; it must return one "
            r"number for each of the 3 rows: shape \(3,\)",
        ),
        (
            lambda x, points: np.array([0, np.nan, np.nan]),
            lambda rows, weights: rows[0],
            r"returned shape \(3,\) with 2 NaN",
        ),
        (
            lambda x, points: np.zeros(3),
            lambda rows, weights: np.zeros(3),
            r"the center of metric 'mine' returned array\(\[0., 0., 0.\]\); it must return a "
            r"finite point of shape \(1,\)",
        ),
        (
            lambda x, points: np.zeros(3),
            lambda rows, weights: np.array([np.inf]),
            r"the center of metric 'mine' returned array\(\[inf\]\)",
        ),
    ],
)
def test_a_metric_that_misbehaves_is_named(distance: Any, center: Any, message: str) -> None:
    field = on_a_line(Metric(distance, center, name="mine"), [0.0, 1.0, 2.0], 1.0)
    with pytest.raises(InvalidInput, match=message):
        step(field, np.array([0.0]))


# ---------------------------------------------------------------- walks


def on_a_line(
    metric: Metric, places: list[float], reach: float, weights: list[float] | None = None
) -> Field:
    n = len(places)
    heavy = np.ones(n) if weights is None else np.array(weights)
    return Field(
        embedding=Embedding("custom", 1, metric=metric),
        points=np.array(places)[:, None],
        weights=heavy,
        bandwidth=np.full(n, reach),
        reach=np.full(n, reach),
        pulls=heavy,
        weight_of_pull=Fraction(1),
    )


def ends(climbed: Climbed) -> list[tuple[float | None, int]]:
    """Where each seed ended, and after how many steps."""
    return [
        (None if mode == NO_MODE else climbed.modes[mode, 0].item(), int(steps))
        for mode, steps in zip(climbed.mode_of_seed, climbed.n_iter, strict=True)
    ]


def test_walks_that_meet_are_walked_once() -> None:
    field = line([0, 1, 2, 5, 6])
    seeds = np.array([7, 3, 5, 4])
    found = climb(field, np.array([at(1), at(0), at(-9), at(1)]), seeds)
    # 0 -> 1 -> 1.5 -> 2 -> 2: five samples are within reach of 2, two of them at one end.
    assert ends(found) == [(4, 2), (4, 3), (None, 0), (4, 2)]
    assert found.modes.tolist() == [[4]]
    assert found.mode_of_seed.tolist() == [0, 0, -1, 0]
    assert found.seeds is seeds
    assert found.n_points == 5  # 1, 1.5 and 2, then 0, then -9
    assert found.n_pairs == 25
    assert (found.modes.dtype, found.n_iter.dtype) == (np.int64, np.int32)


def test_no_seeds_end_nowhere() -> None:
    found = climb(line([0, 1]), np.empty((0, 1), np.int64), np.empty(0, np.int64))
    assert found.modes.shape == (0, 1)
    assert found.mode_of_seed.shape == found.n_iter.shape == (0,)
    assert found.n_points == found.n_pairs == 0


# Samples reach what is far from them: 0 and 10 lead to each other, and between them is nothing.
SHY = Metric(
    lambda x, points: 100 - np.abs(points - x)[:, 0], lambda rows, weights: np.median(rows, axis=0)
)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1.0, 1.0], {0: (0, 0), 10: (0, 1), 3: (0, 2), 8: (0, 1)}),
        ([1.0, 2.0], {0: (0, 0), 10: (0, 1), 3: (0, 2), 8: (0, 1)}),
        ([2.0, 1.0], {0: (10, 1), 10: (10, 0), 3: (10, 1), 8: (10, 2)}),
    ],
)
def test_a_cycle_ends_at_its_densest_member(weights: list[float], expected: dict) -> None:
    field = on_a_line(SHY, [0.0, 10.0], 95.0, weights)
    for order in ([0, 10, 3, 8], [8, 3, 10, 0], [3, 0, 8, 10]):
        found = climb(field, np.array(order, dtype=float)[:, None], np.arange(4))
        assert ends(found) == [expected[seed] for seed in order]
        assert found.n_points == 4


def test_a_walk_may_end_where_no_sample_reaches_but_none_begins_there() -> None:
    field = on_a_line(SHY, [0.0, 10.0], 95.0)
    expected = {30: (5, 1), 5: (None, 0), 40: (5, 1)}
    for order in ([30, 5, 40], [5, 30, 40], [5, 40, 5], [30, 40, 5]):
        found = climb(field, np.array(order, dtype=float)[:, None], np.arange(3))
        assert ends(found) == [expected[seed] for seed in order], order


@given(st.data())
def test_no_walk_depends_on_another(data: st.DataObject) -> None:
    """Any distance and any center at all, on a few places: cycles, dead ends, and what is left."""
    n = data.draw(st.integers(1, 6))
    apart = data.draw(hnp.arrays(np.int64, (n, n), elements=st.integers(0, 3)))
    centers = data.draw(st.lists(st.integers(0, n - 1), min_size=7, max_size=7))

    def center(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.array([centers[int((rows[:, 0] ** 2).sum()) % 7]], dtype=float)

    def distance(x: np.ndarray, points: np.ndarray) -> np.ndarray:
        return apart[int(x[0]), points[:, 0].astype(int)]

    field = on_a_line(Metric(distance, center), [float(i) for i in range(n)], 2.0)
    seeds = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8))
    found = climb(field, np.array(seeds, dtype=float)[:, None], np.arange(len(seeds)))
    for seed, (mode, n_steps) in zip(seeds, ends(found), strict=True):
        path = [seed]
        while True:
            active = [i for i in range(n) if apart[path[-1], i] < 2]
            onward = centers[sum(i**2 for i in active) % 7] if active else None
            if onward is None or onward in path:
                break
            path.append(onward)
        if onward is None:
            expected = (path[-1] if len(path) > 1 else None, len(path) - 1)
        else:
            cycle = range(path.index(onward), len(path))
            height = [sum(1 - apart[x, i] / 2 for i in range(n) if apart[x, i] < 2) for x in path]
            end = min(cycle, key=lambda i: (-height[i], path[i]))
            expected = (path[end], end)
        assert (mode, n_steps) == expected
