"""Modes merged, joined, ordered and labelled, against loops that say the same in plain words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dshift.modes import (
    NO_CLUSTER,
    Clustering,
    connect,
    find_joints,
    merge,
    nearest_modes,
    order_clusters,
    split,
    unique_rows,
)
from dshift.shift import NO_MODE, Climbed

# ---------------------------------------------------------------- merge


@st.composite
def climbed_blocks(draw: st.DrawFn) -> list[Climbed]:
    n_coords = draw(st.integers(0, 3))
    blocks, at = [], 0
    for _ in range(draw(st.integers(1, 4))):
        rows = draw(
            hnp.arrays(np.int64, (draw(st.integers(0, 4)), n_coords), elements=st.integers(0, 2))
        )
        modes, _ = unique_rows(rows)
        ends = draw(st.lists(st.integers(NO_MODE, len(modes) - 1), max_size=5))
        steps = np.array([draw(st.integers(0, 9)) for _ in ends], np.int32)
        seeds = np.arange(len(ends)) + at
        at += len(ends)
        blocks.append(Climbed(modes, np.array(ends, np.int64), steps, seeds, 3, 5))
    return blocks


def same(a: Climbed, b: Climbed) -> None:
    np.testing.assert_array_equal(a.modes, b.modes)
    np.testing.assert_array_equal(a.mode_of_seed, b.mode_of_seed)
    np.testing.assert_array_equal(a.n_iter, b.n_iter)
    assert (a.n_points, a.n_pairs) == (b.n_points, b.n_pairs)


@given(climbed_blocks())
def test_what_is_split_merges_again(blocks: list[Climbed]) -> None:
    """Each part with the modes of its own seeds, in order, and the first one with the cost."""
    whole = merge(blocks)
    used = np.unique(whole.mode_of_seed[whole.mode_of_seed != NO_MODE])
    place = np.append(np.cumsum(np.isin(np.arange(len(whole.modes)), used)) - 1, NO_MODE)
    reached = replace(whole, modes=whole.modes[used], mode_of_seed=place[whole.mode_of_seed])
    sizes = [len(block.seeds) for block in blocks]
    parts = split(whole, sizes)
    assert [len(part.seeds) for part in parts] == sizes
    same(merge(parts), reached)
    for part, block in zip(parts, blocks, strict=True):
        np.testing.assert_array_equal(part.seeds, block.seeds)
        ends = set(part.mode_of_seed.tolist()) - {NO_MODE}
        assert ends == set(range(len(part.modes)))
    assert [part.n_pairs for part in parts] == [whole.n_pairs] + [0] * (len(parts) - 1)


@given(climbed_blocks(), st.data())
def test_merge_is_associative_and_keeps_every_seed_at_its_mode(
    blocks: list[Climbed], data: st.DataObject
) -> None:
    whole = merge(blocks)
    cut = data.draw(st.integers(1, len(blocks)))
    left = merge(blocks[:cut])
    same(merge([left, *blocks[cut:]]), whole)
    same(merge(data.draw(st.permutations(blocks))), whole)
    at = 0
    for block in blocks:
        for end in block.mode_of_seed:
            now = whole.mode_of_seed[at]
            assert (now == NO_MODE) == (end == NO_MODE)
            if end != NO_MODE:
                np.testing.assert_array_equal(whole.modes[now], block.modes[end])
            at += 1
    assert len({mode.tobytes() for mode in whole.modes}) == len(whole.modes)


def test_rows_without_coordinates_are_all_the_same() -> None:
    distinct, place = unique_rows(np.empty((3, 0), np.int64))
    assert distinct.shape == (1, 0)
    assert place.tolist() == [0, 0, 0]
    distinct, place = unique_rows(np.empty((0, 0), np.int64))
    assert distinct.shape == (0, 0)
    assert place.size == 0


def test_distinct_rows_come_in_the_order_of_their_values() -> None:
    distinct, place = unique_rows(np.array([[2, 0], [1, 9], [2, 0], [1, 3]]))
    assert distinct.tolist() == [[1, 3], [1, 9], [2, 0]]
    assert place.tolist() == [2, 1, 2, 0]


def test_seeds_come_in_the_order_of_their_numbers_with_their_steps() -> None:
    late = Climbed(
        np.array([[7], [5]]), np.array([0, -1]), np.array([4, 9]), np.array([8, 3]), 2, 7
    )
    early = Climbed(np.array([[5]]), np.array([0]), np.array([1]), np.array([0]), 30, 100)
    merged = merge([late, early])
    assert merged.modes.tolist() == [[5], [7]]
    assert merged.seeds.tolist() == [0, 3, 8]
    assert merged.mode_of_seed.tolist() == [0, NO_MODE, 1]
    assert merged.n_iter.tolist() == [1, 9, 4]
    assert (merged.n_points, merged.n_pairs) == (32, 107)


# ---------------------------------------------------------------- joints


def city_block(x: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.abs(points - x).sum(axis=1)


def joints_of(
    modes: list[list[float]],
    heights: list[float],
    valley: float,
    density: Callable[[np.ndarray], float],
    *,
    widest: float = 1e9,
    part: slice | None = None,
) -> list[tuple[int, int]]:
    return find_joints(
        np.array(modes),
        np.array(heights, dtype=float),
        valley,
        slice(0, len(modes)) if part is None else part,
        separation=city_block,
        widest=widest,
        density=density,
    )


def test_every_tenth_of_the_way_is_looked_at_from_the_middle() -> None:
    seen: list[list[float]] = []

    def density(x: np.ndarray) -> float:
        seen.append(x.tolist())
        return 5.0

    assert joints_of([[0, 7], [100, 0]], [5, 9], 0.0, density) == [(0, 1)]
    # Whole numbers stay whole: rounded down along the way.
    assert seen == [[j * 10, 7 + (-7 * j) // 10] for j in (5, 4, 6, 3, 7, 2, 8, 1, 9)]
    seen.clear()
    assert joints_of([[0.5], [1.0]], [5, 9], 0.0, density) == [(0, 1)]
    np.testing.assert_array_equal(
        seen, [[0.5 + 0.5 * (j / 10)] for j in (5, 4, 6, 3, 7, 2, 8, 1, 9)]
    )


@pytest.mark.parametrize("lowest_at", range(10, 100, 10))
def test_modes_are_joined_unless_the_density_falls_below_the_lower_peak(lowest_at: int) -> None:
    modes = [[0], [100]]
    for lowest, joined in ((6.0, True), (np.nextafter(6.0, 0), False)):

        def density(x: np.ndarray, lowest: float = lowest) -> float:
            return lowest if x[0] == lowest_at else 99.0

        for heights in ([8, 50], [50, 8]):
            assert joints_of(modes, heights, 0.25, density) == [(0, 1)] * joined


def test_modes_as_far_apart_as_two_bandwidths_are_not_joined() -> None:
    assert joints_of([[0], [10]], [1, 1], 0.5, lambda x: 1.0, widest=10) == []
    assert joints_of([[0], [10]], [1, 1], 0.5, lambda x: 1.0, widest=11) == [(0, 1)]


def test_near_modes_are_tried_first_and_connected_ones_not_again() -> None:
    modes = [[0, 0], [0, 9], [1, 0], [2, 0]]
    n_looks = 0

    def density(x: np.ndarray) -> float:
        nonlocal n_looks
        n_looks += 1
        return 1.0

    assert joints_of(modes, [1, 1, 1, 1], 0.5, density) == [(0, 2), (0, 3), (0, 1)]
    assert n_looks == 27
    # The first two are joined with the third, and so with each other.
    apart = [[0, 0], [0, 4], [2, 2], [9, 9]]
    wall = [0, 2]
    found = joints_of(apart, [1, 1, 1, 1], 0.5, lambda x: float(x.tolist() != wall))
    assert found == [(0, 2), (0, 3), (1, 2)]


def test_a_part_finds_the_joints_of_its_own_modes() -> None:
    modes = [[0], [1], [2], [3]]
    assert joints_of(modes, [1] * 4, 0.5, lambda x: 1.0, part=slice(1, 2)) == [(1, 2), (1, 3)]
    assert joints_of(modes, [1] * 4, 0.5, lambda x: 1.0, part=slice(2, 99)) == [(2, 3)]
    assert joints_of(modes, [1] * 4, 0.5, lambda x: 1.0, part=slice(3, 99)) == []


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 7), st.just(2)), elements=st.integers(0, 40)),
    st.data(),
)
def test_joints_of_parts_connect_what_all_pairs_connect(
    rows: np.ndarray, data: st.DataObject
) -> None:
    modes, _ = unique_rows(rows)
    n = len(modes)
    heights = [data.draw(st.integers(3, 6)) for _ in range(n)]
    widest = data.draw(st.integers(1, 60))

    def density(x: np.ndarray) -> float:
        return float(3 + (3 * x[0] + 5 * x[1]) % 4)

    found = []
    cut = data.draw(st.integers(0, n))
    for part in (slice(0, cut), slice(cut, n)):
        found += joints_of(modes.tolist(), heights, 0.25, density, widest=widest, part=part)
    group = list(range(n))
    for a in range(n):
        for b in range(a + 1, n):
            way = [modes[a] + (modes[b] - modes[a]) * j // 10 for j in range(1, 10)]
            floor = 0.75 * min(heights[a], heights[b])
            if np.abs(modes[a] - modes[b]).sum() < widest and min(map(density, way)) >= floor:
                group = [group[a] if g == group[b] else g for g in group]
    first = [group.index(g) for g in group]
    assert connect(n, found).tolist() == first


def test_connected_modes_are_known_by_the_first_of_them() -> None:
    assert connect(6, [(3, 4), (1, 3), (2, 5)]).tolist() == [0, 1, 2, 1, 1, 2]
    assert connect(4, [(2, 3), (0, 1), (1, 3)]).tolist() == [0, 0, 0, 0]
    assert connect(3, []).tolist() == [0, 1, 2]


# ---------------------------------------------------------------- nearest


def test_ties_for_the_nearest_mode_go_to_the_denser_then_to_the_first() -> None:
    modes = np.array([[0], [4], [8], [12]])
    points = np.array([[0], [2], [6], [10], [11], [99]])
    found = nearest_modes(points, modes, np.array([1.0, 2.0, 2.0, 3.0]), city_block)
    assert found.tolist() == [0, 1, 1, 3, 3, 3]


def test_without_modes_there_is_no_nearest() -> None:
    found = nearest_modes(np.zeros((3, 2)), np.zeros((0, 2)), np.zeros(0), city_block)
    assert found.tolist() == [NO_MODE] * 3


# ---------------------------------------------------------------- order


def order(
    ends: list[int],
    *,
    densities: list[float],
    weights: list[float] | None = None,
    group: list[int] | None = None,
    min_cluster_size: float = 1,
) -> Clustering:
    n = len(densities)
    return order_clusters(
        np.arange(n)[:, None] * 10,
        np.array(densities, dtype=float),
        np.array(ends, dtype=np.int64),
        np.ones(len(ends)) if weights is None else np.array(weights, dtype=float),
        np.arange(n) if group is None else np.array(group),
        min_cluster_size,
        np.arange(n) % 2 == 0,
    )


@st.composite
def endings(draw: st.DrawFn) -> dict[str, list]:
    n = draw(st.integers(1, 6))
    ends = draw(st.lists(st.integers(NO_MODE, n - 1), max_size=12))
    joints = st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3)
    return {
        "ends": ends,
        "densities": [draw(st.integers(1, 3)) for _ in range(n)],
        "weights": [draw(st.sampled_from([1.0, 2.0, 0.5])) for _ in ends],
        "group": connect(n, draw(joints)).tolist(),
        "min_cluster_size": draw(st.sampled_from([0.5, 1, 1.5, 2, 3])),
    }


@given(endings())
def test_order_and_labels_are_those_of_plain_sorting(drawn: dict) -> None:
    found = order(**drawn)
    densities, group = drawn["densities"], drawn["group"]
    n = len(densities)
    pairs = list(zip(drawn["ends"], drawn["weights"], strict=True))
    sizes = [sum(w for end, w in pairs if end == m) for m in range(n)]
    ranked = sorted(range(n), key=lambda m: (-sizes[m], -densities[m], m))
    clusters = []
    for g in set(group):
        members = [m for m in range(n) if group[m] == g]
        peak = min(members, key=lambda m: (-densities[m], m))
        clusters.append((-sum(sizes[m] for m in members), -densities[peak], peak, members))
    labels = [NO_CLUSTER] * n
    for label, (minus_size, _, _, members) in enumerate(sorted(clusters)):
        if drawn["min_cluster_size"] <= 1 or -minus_size >= drawn["min_cluster_size"]:
            for m in members:
                labels[m] = label
    assert found.modes[:, 0].tolist() == [10 * m for m in ranked]
    assert found.densities.tolist() == [densities[m] for m in ranked]
    assert found.sizes.tolist() == [sizes[m] for m in ranked]
    assert found.cluster_of_mode.tolist() == [labels[m] for m in ranked]
    assert found.stationary.tolist() == [m % 2 == 0 for m in ranked]
    assert found.new_place.tolist() == [ranked.index(m) for m in range(n)]
    expected = [NO_MODE if end == NO_MODE else ranked.index(end) for end in drawn["ends"]]
    assert found.mode_of_sample.tolist() == expected


def test_a_light_cluster_is_kept_by_default() -> None:
    found = order([0, 1], densities=[1, 1], weights=[0.25, 0.5])
    assert found.cluster_of_mode.tolist() == [0, 1]
    assert found.sizes.tolist() == [0.5, 0.25]
    found = order([0, 1], densities=[1, 1], weights=[1, 2], min_cluster_size=2)
    assert found.cluster_of_mode.tolist() == [0, -1]


def test_sizes_are_whole_numbers_as_far_as_they_can_be_counted() -> None:
    assert order([0, 0], densities=[1], weights=[2.0**53 - 1, 1.0]).sizes.dtype == np.int64
    assert order([0, 0], densities=[1], weights=[2.0**53, 2.0]).sizes.dtype == np.float64
    assert order([0, 0], densities=[1], weights=[1, 0.5]).sizes.dtype == np.float64
    assert order([0], densities=[1]).cluster_of_mode.dtype == np.int32


def test_without_modes_there_are_no_clusters() -> None:
    found = order([NO_MODE, NO_MODE], densities=[])
    assert found.cluster_of_mode.size == found.sizes.size == 0
    assert found.mode_of_sample.tolist() == [NO_MODE, NO_MODE]
