"""Every fast path against the slow one: the index, the groups and the memo change no bit.

What the compiled loops choose by size is forced here by size: many points for groups within groups,
few members for sorting, many rows for ranks that several rows share, rare members for marks.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dshift import (
    chains,
    columns,
    crossing,
    crowd,
    few,
    groups,
    halves,
    index,
    ordering,
    shift,
    simd,
    simd_lanes,
    tiles,
)
from dshift.field import Field
from dshift.metrics import make_embedding
from dshift.pool import Hands
from dshift.visited import Memo, PointTable


def make_test_field(points: np.ndarray, reach: np.ndarray, pulls: np.ndarray) -> Field:
    """A field of even integer points, as `make_field` would give."""
    return Field(
        embedding=make_embedding("l1", max(points.shape[1], 1), None, None, None),
        points=points,
        weights=pulls.astype(np.float64),
        bandwidth=reach.astype(np.float64),
        reach=reach,
        pulls=pulls,
        weight_of_pull=None,
    )


def even_field(points: np.ndarray, reach: int, pulls: np.ndarray | None = None) -> Field:
    """A field of one reach."""
    n = len(points)
    pulls = np.ones(n, np.int64) if pulls is None else pulls
    return make_test_field(np.ascontiguousarray(points), np.full(n, reach), pulls)


@st.composite
def fields(draw: st.DrawFn, most_rows: int = 200, most_columns: int = 12) -> tuple[Field, Any]:
    """Points with ties, duplicates and outliers; reaches from nothing to everything; any pulls."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, p = draw(st.integers(1, most_rows)), draw(st.integers(0, most_columns))
    width = draw(st.sampled_from([1, 3, 100, 2**16, 2**20, 2**44]))
    points = 2 * rng.integers(0, width, (n, p), endpoint=True)
    if draw(st.booleans()):  # duplicates, near and far clumps
        points = points[rng.integers(0, max(1, n // 3), n)]
        points = points + 2 * rng.integers(0, draw(st.integers(1, 3)), (n, p))
    if draw(st.booleans()) and n > 2:  # one outlier stretches the codes' unit
        points[0] += 2 * draw(st.sampled_from([10, 2**30]))
    typical = np.abs(points - points[rng.integers(n)]).sum(axis=1)
    scale = draw(st.sampled_from([0.1, 0.5, 1, 1.5, 10]))
    reach = np.full(n, max(1, int(np.median(typical) * scale)), dtype=np.int64)
    if draw(st.booleans()):  # exactly a distance that occurs
        reach[:] = max(1, int(typical[rng.integers(n)]))
    if draw(st.booleans()):
        reach = np.maximum(1, (reach * rng.uniform(0.2, 2, n)).astype(np.int64))
    pulls = np.ones(n, dtype=np.int64)
    if draw(st.booleans()):
        pulls = rng.integers(1, draw(st.sampled_from([3, 2**53])), n)
    return make_test_field(np.ascontiguousarray(points), reach, pulls), rng


def slow(field: Field, points: np.ndarray) -> list[Any]:
    climbed = shift.climb(field, points, np.arange(len(points)))
    ends = [None if m == -1 else climbed.modes[m].tobytes() for m in climbed.mode_of_seed]
    # The fast walk leaves a point that nobody reaches where it is.
    return [
        (points[i].tobytes() if end is None else end, n)
        for i, (end, n) in enumerate(zip(ends, climbed.n_iter.tolist(), strict=True))
    ]


def fast(field: Field, points: np.ndarray, memo: Memo | None = None) -> list[Any]:
    built = index.build_index(field)
    climbed = crowd.climb_together(built, points, np.arange(len(points)), memo)
    ends = [climbed.modes[m].tobytes() for m in climbed.mode_of_seed]
    return list(zip(ends, climbed.n_iter.tolist(), strict=True))


def slow_steps(field: Field, points: np.ndarray) -> np.ndarray:
    onward = [shift.step(field, x) for x in points]
    return np.array([x if y is None else y for x, y in zip(points, onward, strict=True)])


def step_both(field: Field, points: np.ndarray) -> None:
    """One step of all points, together and one by one."""
    built = index.build_index(field)
    np.testing.assert_array_equal(crowd.step_together(built, points), slow_steps(field, points))


def test_free_threads_change_no_bit() -> None:
    """One block of seeds, whose steps two other threads take part in."""
    rng = np.random.default_rng(5)
    points = 2 * rng.integers(0, 60, (900, 5)).cumsum(axis=1)
    field = make_test_field(points, np.full(900, 90), np.ones(900, np.int64))
    built, threads, met = index.build_index(field), set(), threading.Barrier(3)
    step_points = crowd.groups.step_points

    def step_and_tell(*args: Any) -> None:
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            met.wait(timeout=60)
        step_points(*args)

    with ThreadPoolExecutor(2) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowd.groups, "step_points", step_and_tell)
        built.hands.lend(pool, 2)
        shared = crowd.climb_together(built, points, np.arange(900))
    assert len(threads) == 3
    ends = [shared.modes[m].tobytes() for m in shared.mode_of_seed]
    assert list(zip(ends, shared.n_iter.tolist(), strict=True)) == slow(field, points)


@given(fields())
def test_the_index_changes_no_bit(drawn: tuple[Field, Any]) -> None:
    field, rng = drawn
    own = field.points[rng.integers(0, len(field.points), 20)]
    strange = own + rng.integers(-3, 4, own.shape)  # odd, and outside of the codes' range
    far = own + 2**45
    for points in (field.points, strange, far):
        assert fast(field, points) == slow(field, points)


@given(fields(), st.data())
def test_a_memo_changes_no_bit(drawn: tuple[Field, Any], data: st.DataObject) -> None:
    field, rng = drawn
    if field.points.shape[1] == 0:
        return
    memo = Memo(field.points.shape[1], data.draw(st.sampled_from([0, 300, 2**20])))
    for _ in range(3):
        points = field.points[rng.integers(0, len(field.points), 30)]
        assert fast(field, points, memo) == slow(field, points)


@given(fields(), st.sampled_from([0, 1, 2]))
def test_what_is_forgotten_changes_no_bit(drawn: tuple[Field, Any], points_a_seed: int) -> None:
    """Blocks that remember no more than the points that they stand at, or little more."""
    field, rng = drawn
    points = field.points[rng.integers(0, len(field.points), 30)]
    memo = Memo(field.points.shape[1], 2**20) if field.points.shape[1] else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowd, "POINTS_A_SEED", points_a_seed)
        for _ in range(2):
            assert fast(field, points, memo) == slow(field, points)


@settings(max_examples=20)
@given(fields(most_rows=3_000, most_columns=40), st.booleans())
def test_many_rows_and_columns(drawn: tuple[Field, Any], all_rows: bool) -> None:
    """Several words of columns, several tiles, walks of any length."""
    field, rng = drawn
    chosen = rng.integers(0, len(field.points), 300 if all_rows else 5)
    step_both(field, field.points[chosen])


def clumps(n: int, p: int, seed: int = 0, width: int = 2**20) -> np.ndarray:
    """Wide overlapping clumps of distinct values."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, width, (5, p))
    spread = rng.integers(-width // 8, width // 8, (n, p))
    return 2 * (centres[rng.integers(0, 5, n)] + spread)


def typical_distance(points: np.ndarray) -> int:
    return int(np.median(np.abs(points - points[0]).sum(axis=1)))


@pytest.mark.parametrize("pulled", [False, True])
def test_groups_within_groups(pulled: bool) -> None:
    """More points than four batches have: groups of groups of them."""
    points = clumps(6_000, 5)
    pulls = np.random.default_rng(1).integers(1, 9, len(points)) if pulled else None
    field = even_field(points, typical_distance(points) // 3, pulls)
    seeds = points[:2_000]
    assert len(seeds) > 4 * 4 * simd.LANES
    step_both(field, seeds)


@pytest.mark.parametrize("pulled", [False, True])
def test_ranks_are_shared(pulled: bool, monkeypatch: Any) -> None:
    """Many rows of one rank, and points that are far from those before them."""
    monkeypatch.setattr(index, "RANK_BITS", 7)
    points = clumps(9_000, 3, seed=2)
    pulls = np.random.default_rng(1).integers(1, 2**40, len(points)) if pulled else None
    field = even_field(points, typical_distance(points), pulls)
    built = index.build_index(field)
    assert built.held.shift > 4
    assert len(points) > 8 * simd_lanes.ROWS_CROSSED
    rng = np.random.default_rng(3)
    seeds = points[rng.permutation(len(points))[:60]]
    expected = slow_steps(field, seeds)
    for _ in range(2):  # the second time from where the first one ended
        np.testing.assert_array_equal(crowd.step_together(built, seeds), expected)
    for seed, end in zip(
        seeds, expected, strict=True
    ):  # each a group of its own, far from the last
        np.testing.assert_array_equal(crowd.step_together(built, seed[None])[0], end)


@pytest.mark.parametrize("rank_bits", [16, 11])
@pytest.mark.parametrize("pulled", [False, True])
def test_ranks_of_rare_members_are_marked(pulled: bool, rank_bits: int, monkeypatch: Any) -> None:
    """Small clumps, so that the list would pass many rows for each that it keeps."""
    monkeypatch.setattr(index, "RANK_BITS", rank_bits)
    rng = np.random.default_rng(6)
    centres = rng.integers(0, 2**20, (60, 3))
    points = 2 * (np.repeat(centres, 150, axis=0) + rng.integers(-(2**12), 2**12, (9_000, 3)))
    pulls = rng.integers(1, 9, len(points)) if pulled else None
    field = even_field(points, 2**14, pulls)
    built = index.build_index(field)
    assert (built.held.shift > 0) == (rank_bits < 14)
    seeds = points[rng.permutation(len(points))[:60]]
    expected = slow_steps(field, seeds)
    np.testing.assert_array_equal(crowd.step_together(built, seeds), expected)
    with built.scratch(1) as nest:
        pass
    n_marked = 0
    for seed, end in zip(seeds, expected, strict=True):
        nest.lanes.span[0] = len(points)  # as if the points before had made the list look so far
        nest.lanes.listing.marked[0] = False
        np.testing.assert_array_equal(crowd.step_together(built, seed[None])[0], end)
        n_marked += int(nest.lanes.listing.marked[0])
        assert not nest.lanes.listing.spots.any()
    assert n_marked > len(seeds) // 2  # a seed whose medians are all at the bound needs no list


@pytest.mark.parametrize("n_lanes", [1, 2, 4, 5, 16, 17, 33, 63, 64, 65, 129])
def test_lanes_that_are_not_full(n_lanes: int) -> None:
    points = clumps(2_000, 5, seed=7)
    step_both(even_field(points, typical_distance(points)), points[:n_lanes])


def test_points_far_apart_do_not_share_lanes() -> None:
    """Two clumps of equal size, in turns: each call has both, and ends with the lanes of one."""
    rng = np.random.default_rng(8)
    points = 2 * rng.integers(0, 2**10, (1_000, 4))
    points[::2] += 2**30
    field = even_field(points, 2**12)
    built = index.build_index(field)
    np.testing.assert_array_equal(crowd.step_together(built, points), slow_steps(field, points))
    with built.scratch(len(points)) as nest:
        near = points[built.held.rows][:, 0] < 2**29
        bits = np.unpackbits(nest.lanes.listing.possible.view(np.uint8), bitorder="little")[
            : len(points)
        ]
        assert near[bits.astype(bool)].all() or not near[bits.astype(bool)].any()


def test_where_nothing_can_be_settled_all_rows_are_looked_at_once() -> None:
    """Noise in many dimensions: the cost is that of brute force, and centres are soon left out."""
    points = 2 * np.random.default_rng(10).integers(0, 2**20, (64 * 8 * tiles.TRIED, 24))
    field = even_field(points, typical_distance(points[:500]))
    built, stats, seeds = index.build_index(field), crowd.Stats(), points[:256]
    moved = crowd.step_together(built, seeds, stats)
    np.testing.assert_array_equal(moved[:20], slow_steps(field, seeds[:20]))
    assert 1 <= stats.n_pairs / len(points) / len(seeds) < 1.1


@pytest.mark.parametrize("n_points", [40, 700])
@pytest.mark.parametrize("width", [3, 6, 12, 20])
def test_rows_as_far_as_16_bits_count_are_not_near(width: int, n_points: int) -> None:
    """Points along a way, so that some rows are as far as distances wrap around: 2.5 reaches.

    The wider, the farther apart are the points of a group; 40 are in none.
    """
    random, reach, n_columns = np.random.default_rng(width), 2**40, 40
    along = random.integers(0, width * reach // n_columns, (1_500, 1))
    points = (along + random.integers(0, reach // 10_000, (1_500, n_columns))) // 2 * 2
    field = even_field(points, reach)
    assert index.build_index(field).held.unit == -(-reach // index.MAX_REACH)
    step_both(field, points[random.permutation(len(points))[:n_points]])


@pytest.mark.parametrize("n_points", [64, 65, 129])
def test_rows_at_a_distance_that_saturates_are_not_near(n_points: int) -> None:
    """A reach of more units than are counted, and a batch of one point, of radius 0, beyond it."""
    random = np.random.default_rng(n_points)
    points, reach = 2 * random.integers(0, 10, (300, 5)), 70_000
    seeds = points[:n_points].copy()
    seeds[:, :3] += 32_000
    field = even_field(points, reach)
    held = index.build_index(field).held
    assert (held.unit, held.farthest) == (1, tiles.MODULUS - 1)
    away = np.abs(seeds[:, None] - points).sum(axis=2)
    assert away.min() > reach
    assert (away % tiles.MODULUS).max() < reach
    step_both(field, seeds)


def test_a_batch_of_points_far_apart_is_moved_in_runs() -> None:
    """Clumps of a few points each, in no order, so that the 64 points of a batch share nothing."""
    rng = np.random.default_rng(9)
    centres = 2 * rng.integers(0, 2**20, (40, 3))
    points = np.repeat(centres, 30, axis=0) + 2 * rng.integers(0, 50, (1_200, 3))
    field = even_field(points, 300)
    built = index.build_index(field)
    seeds = points[rng.permutation(len(points))[:200]]
    expected = slow_steps(field, seeds)
    moved = np.empty_like(seeds)
    with built.scratch(len(seeds)) as nest:
        groups.step_points(built.held, nest, index.read_only(seeds), np.arange(200), moved)
    np.testing.assert_array_equal(moved, expected)


@pytest.mark.parametrize("n_near", [0, 1, 2, few.FEW, few.FEW + 1, few.FEW + 2])
@pytest.mark.parametrize("pulled", [False, True])
def test_few_members_are_sorted(n_near: int, pulled: bool) -> None:
    """On either side of the number of members from which on a chain walks."""
    rng = np.random.default_rng(n_near)
    near = 2 * rng.integers(0, 50, (n_near, 4))
    away = 2 * rng.integers(10**6, 2 * 10**6, (500, 4))
    pulls = rng.integers(1, 4, n_near + 500) if pulled else None
    field = even_field(np.concatenate([near, away]), 1_000, pulls)
    step_both(field, np.concatenate([near, np.array([[25, 25, 25, 25]])]))


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_more_rows_than_16_bits_count(share: float) -> None:
    """Ranks and tallies of 16 bits, with twice as many rows: all members, with ties, or not."""
    points = clumps(140_000, 2, seed=4, width=2**12 if share == 1 else 2**40)
    away = np.abs(points - points[0]).sum(axis=1)
    field = even_field(points, 2**30 if share == 1 else int(np.quantile(away, share)))
    built = index.build_index(field)
    assert built.held.shift == 2
    assert share * len(points) // 2 > crossing.FARTHEST
    assert len(points) // 64 > 2 * chains.TALLIED
    step_both(field, points[:5])


def test_points_that_are_alike_but_for_a_unit_have_distances_of_their_own() -> None:
    """Codes that lose nothing, and as many rows as can be at the very threshold."""
    rng = np.random.default_rng(8)
    points = 2 * rng.integers(0, 4, (4_000, 8))
    field = even_field(points, 20)
    assert index.build_index(field).held.unit == 1
    seeds = np.full((64, 8), 2)
    seeds[:, :3] += rng.integers(0, 2, (64, 3))
    step_both(field, seeds)


@pytest.mark.parametrize("pulled", [False, True])
def test_all_rows_are_in_doubt_where_one_far_row_makes_codes_coarse(pulled: bool) -> None:
    """More of them in a tile than wait to be decided."""
    rng = np.random.default_rng(9)
    points = 2 * rng.integers(0, 2**10, (700, 6))
    points[-1] += 2**50
    pulls = rng.integers(1, 9, len(points)) if pulled else None
    field = even_field(points, typical_distance(points[:-1]), pulls)
    assert index.build_index(field).held.unit > 2**20
    assert simd.LANES**2 > tiles.MANY_DOUBTS
    step_both(field, points[:130])


def slots_of(held: Any, k: int) -> Any:
    """The order of a column, as numbers."""
    in_bytes = held.order[k].reshape(-1, held.slot_bytes).astype(np.int64)
    return (in_bytes << (8 * np.arange(held.slot_bytes))).sum(axis=1)


@pytest.mark.parametrize(("n_rows", "expected"), [(1, 2), (65_536, 2), (65_537, 3), (2**24 + 1, 4)])
def test_slots_have_as_few_bytes_as_hold_them(n_rows: int, expected: int) -> None:
    assert columns.bytes_of_slot(n_rows) == expected


@pytest.mark.parametrize("slot_bytes", [2, 3, 4])
@pytest.mark.parametrize("width", [2**10, 2**40])  # columns that are counted, and sorted
def test_slots_in_any_number_of_bytes(slot_bytes: int, width: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(columns, "bytes_of_slot", lambda n_rows: slot_bytes)
    points = clumps(2_000, 5, seed=7, width=width)
    field = even_field(points, typical_distance(points))
    assert index.build_index(field).held.order.shape == (5, 2_000 * slot_bytes)
    step_both(field, points[:200])


def test_columns_are_sorted_by_value() -> None:
    points = clumps(2_000, 4, seed=5, width=2**40)
    points[::7] = points[0]
    held = index.build_index(even_field(points, 2**30)).held
    for k in range(4):
        values = points[held.rows[slots_of(held, k)], k]
        assert (np.diff(values) >= 0).all()
        heads = np.unpackbits(held.heads[k].view(np.uint8), bitorder="little")[: len(points)]
        np.testing.assert_array_equal(heads, np.diff(values, prepend=values[0] - 1) > 0)
        ranks = held.ranks[slots_of(held, k), k]
        np.testing.assert_array_equal(ranks, np.searchsorted(values, values))


def test_data_of_any_size_are_of_one_type() -> None:
    """Or the loops would be compiled again, for half a minute."""
    kinds = set()
    for n in (1, 2, 500, 70_000):
        points = clumps(n, 3)
        reach = np.broadcast_to(np.int64(9), n)  # as one bandwidth for all is
        for array in (points, reach):
            array.flags.writeable = False
        field = make_test_field(points, reach, np.ones(n, np.int64))
        kinds.add(numba.typeof(index.build_index(field).held))
    assert len(kinds) == 1


@pytest.mark.parametrize("leaf", [1, 4, 64])
@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 1_000])
def test_an_order_of_points_is_an_order(n: int, leaf: int) -> None:
    points = clumps(n, 3) if n else np.empty((0, 3), np.int64)
    np.testing.assert_array_equal(np.sort(ordering.order_points(points, 64, leaf)), np.arange(n))
    rows = np.flatnonzero(np.arange(n) % 3)
    order = ordering.order_rows(points, rows, 64, leaf, Hands())
    np.testing.assert_array_equal(np.sort(order), rows)
    assert order is not rows


CLUMPS = np.arange(5 * ordering.LEAST_SEGMENT + 7) // 2 % 37  # in the rows' order, with a period


def many_points(kind: str) -> Any:
    random = np.random.default_rng(3)
    if kind == "equal":
        return np.full((len(CLUMPS), 3), 6)
    centres = random.integers(0, 2**40, (37, 5))
    return 2 * (centres[CLUMPS] + random.integers(0, 2**20, (len(CLUMPS), 5)))


@pytest.mark.parametrize("kind", ["equal", "clumps"])
@pytest.mark.parametrize("together", [0, ordering.SEGMENT_BYTES])
def test_an_order_does_not_depend_on_threads(
    kind: str, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a tree, or by quarters."""
    monkeypatch.setattr(ordering, "SEGMENT_BYTES", together)
    points = index.read_only(many_points(kind))
    alone = ordering.order_points(points, 64, 8)
    np.testing.assert_array_equal(np.sort(alone), np.arange(len(points)))
    np.testing.assert_array_equal(ordering.order_points(points, 64, 8, threads=3), alone)


@pytest.mark.parametrize("n", [1_023, 1_024, 1_025, 1_087, 1_089, 1_200, 3_000])
def test_an_order_of_a_block_does_not_depend_on_threads_that_are_free(n: int) -> None:
    """It is that of one segment, whose quarters are put in order side by side."""
    points, hands = index.read_only(many_points("clumps")), Hands()
    rows = np.arange(len(points))[::-1][:n].copy()
    alone = rows.copy()
    halves.order_segment(points, alone, *halves.scale(points), 64, 4)
    np.testing.assert_array_equal(ordering.order_rows(points, rows, 64, 4, hands), alone)
    with ThreadPoolExecutor(2) as pool:
        hands.lend(pool, 2)
        np.testing.assert_array_equal(ordering.order_rows(points, rows, 64, 4, hands), alone)


@pytest.mark.parametrize("together", [0, ordering.SEGMENT_BYTES])
def test_an_order_of_many_points_keeps_neighbours_together(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "SEGMENT_BYTES", together)
    order = ordering.order_points(index.read_only(many_points("clumps")), 64, 8)
    leaves = np.split(CLUMPS[order], range(64, len(order), 64))
    n_seen = np.mean([len(np.unique(leaf)) for leaf in leaves])
    assert n_seen < 4  # of 37; 30 where rows are in no order


def test_points_that_are_looked_at_together_are_one_cluster() -> None:
    random = np.random.default_rng(4)
    clump = random.permutation(np.repeat(np.arange(22), 64))  # 22 is no power of two
    points = 2 * (random.integers(0, 2**40, (22, 5))[clump] + random.integers(0, 99, (1408, 5)))
    order = ordering.order_rows(index.read_only(points), np.arange(1408), 64, 4, Hands())
    assert all(len(set(clump[part])) == 1 for part in np.split(order, 22))


def test_equal_points_go_all_over_a_tree() -> None:
    n, depth = 4_000, 3
    points = index.read_only(np.full((n, 2), 6))
    lows, shift = halves.scale(points)
    pairs, bounds = halves.grow_tree(points, np.arange(100), lows, shift, depth)
    leaf_of = np.empty(n, np.uint16)
    halves.send_down(points, 0, n, lows, shift, pairs, bounds, leaf_of)
    assert np.bincount(leaf_of, minlength=8).min() > n // 16


def test_segments_are_whole_leaves_and_not_too_long() -> None:
    lengths = np.array([10, 0, 700, 1, 2, 0])
    found = [(part.start, part.stop) for part in ordering._segments(lengths, 64, 256)]
    assert found == [(0, 64), (64, 320), (320, 576), (576, 713)]
    assert ordering._segments(np.array([65, 1]), 64, 128) == [slice(0, 66)]


def test_scratch_is_lent_to_one_at_a_time() -> None:
    points = clumps(200, 3)
    built = index.build_index(even_field(points, typical_distance(points)))
    with built.scratch(10) as one, built.scratch(10) as other:
        assert one is not other
    with built.scratch(10) as again:
        assert again is one or again is other
    with built.scratch(11) as longer:
        assert longer is again
    with built.scratch(10_000) as larger:
        assert len(larger.groups.which) > len(one.groups.which)


def test_a_trail_is_lent_to_one_at_a_time_and_is_empty() -> None:
    points = clumps(200, 3)
    built = index.build_index(even_field(points, typical_distance(points)))
    with built.trail(10) as one, built.trail(10) as other:
        assert one is not other
        one.add(points)
        other.add(points)
    with built.trail(10) as again:
        assert again is one or again is other
        assert again.size == 0
        assert (again.find(points) == -1).all()


def test_points_with_half_a_hash_in_common_are_told_apart() -> None:
    """Of two million numbers some hundred pairs have it, and also their place in a small table."""
    numbers = np.arange(2**21, dtype=np.uint64)
    mixed = (numbers ^ np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xFF51AFD7ED558CCD)
    hashes = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xFF51AFD7ED558CCD)
    hashes ^= hashes >> np.uint64(32)
    alike = (hashes >> np.uint64(32) << np.uint64(2)) | (hashes & np.uint64(3))
    order = np.argsort(alike)
    pairs = np.flatnonzero(np.diff(alike[order]) == 0)
    assert len(pairs) > 50
    for place in pairs:
        points = order[place : place + 2, None]
        table = PointTable(1, 1)
        assert table.add(points[:1]).tolist() == [0]
        assert table.find(points).tolist() == [0, -1]
        other = PointTable(1, 2)
        assert other.add(points).tolist() == [0, 1]
        assert other.find(points[::-1]).tolist() == [1, 0]


@pytest.mark.parametrize("capacity", [4, 64])
def test_points_put_behind_a_trail_are_kept_once(capacity: int) -> None:
    """As if they had been added; also where room has to be made first."""
    rng = np.random.default_rng(0)
    trail, other = PointTable(2, capacity), PointTable(2, capacity)
    for count in (3, 20, 0, 30):
        points = rng.integers(0, 5, (count, 2))
        trail.room(count)[:] = points
        np.testing.assert_array_equal(trail.keep(count), other.add(points))
        np.testing.assert_array_equal(trail.points, other.points)
    assert trail.size == len(np.unique(trail.points, axis=0)) > 10


def test_an_index_does_not_depend_on_the_threads_that_build_it() -> None:
    points = clumps(2 * index.ROWS_ENCODED_AT_ONCE + 70, 9)
    field = even_field(points, typical_distance(points[:500]))
    alone, together = index.build_index(field).held, index.build_index(field, threads=3).held
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("largest", [0, 1, 100, 32_000])
@pytest.mark.parametrize("n", [1, 64, 300])
def test_columns_are_counted_as_they_are_sorted(n: int, largest: int) -> None:
    random = np.random.default_rng(largest)
    keys = random.integers(0, largest, (n, 5), endpoint=True)
    keys[:, 2] = keys[random.integers(0, n, n), 2]  # ties
    points, rows, n_tiles = 2 * keys, np.arange(n), -(-n // 64)
    codes = np.zeros((n_tiles * 64, 8), np.uint16)
    codes[:n, :5] = keys
    codes = np.ascontiguousarray(codes.reshape(n_tiles, 8, 8, 2, 4).transpose(0, 1, 3, 2, 4))
    kinds: Any = ((5, 3 * n), np.uint8), ((5, n_tiles), np.uint64), ((n, 5), np.uint16)
    found, expected = (tuple(np.empty(*kind) for kind in kinds) for _ in range(2))
    lows = np.zeros(5, np.int64)
    columns.sort_columns(index.read_only(points), rows, lows, 2, 0, 5, 1, 3, *expected)
    for first, last in ((0, 4), (4, 5)):
        columns.count_columns(codes, first, last, 1, 3, *found)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bits", [1, 11, 31, 32, 33, 43, 44, 52])
@pytest.mark.parametrize("divisor", [2, 6, 2 * 121, 2**9 * 1000])
def test_columns_are_sorted_whatever_the_keys(bits: int, divisor: int) -> None:
    random = np.random.default_rng(bits)
    n_keys = max(2, 2**bits // divisor)
    points = np.array([3, 5, 7, 11, 13]) + divisor * random.integers(0, n_keys, (300, 5))
    points[:, 1] = points[0, 1]  # nothing to sort
    points[:, 2] = points[random.integers(0, 300, 300), 2]  # ties
    points[:299, 3] = 11 + (points[:299, 3] - 11) // (divisor << 23) * divisor
    points[:150, 3] = points[149:299, 3]  # ties there too
    points[299, 3] = 11 + divisor * (n_keys - 1)  # so that the highest digits order nothing else
    rows, lows = random.permutation(300), points.min(axis=0)
    in_bytes, ranks = np.empty((5, 1200), np.uint8), np.empty((300, 5), np.uint16)
    made = in_bytes, np.empty((5, 5), np.uint64), ranks
    columns.sort_columns(index.read_only(points), rows, lows, divisor, 0, 5, 1, 4, *made)
    order = in_bytes.view("<u4")
    expected = np.argsort(points[rows], axis=0, kind="stable")
    np.testing.assert_array_equal(order, expected.T)
    for k in range(5):
        values = points[rows, k]
        assert (np.diff(ranks[order[k], k].astype(int)) >= 0).all()
        for rank in np.unique(ranks[:, k]):
            of_rank = values[ranks[:, k] == rank]
            assert len(np.unique(of_rank)) == 1 or len(of_rank) < 2 * 4


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 10, 121 * 2**9, 7**9, 2**40, 2**50 + 2]))
def test_a_common_divisor_is_the_greatest(seed: int, divisor: int) -> None:
    random = np.random.default_rng(seed)
    most = random.choice([1, 2, 5, 1_000, 2**52 // divisor + 2])
    points = random.integers(9) + divisor * random.integers(0, most, random.integers(1, 6, 2))
    lows = points.min(axis=0)
    expected = math.gcd(*(points - lows).ravel().tolist())
    found = columns.common_divisor(index.read_only(points), lows)
    assert found == expected or (found == 2 and expected == 1)  # it stops at 2


@numba.njit
def every_place(held: Any, k: int, out: Any) -> None:
    for slot in range(len(out)):
        rank = np.int64(held.ranks[slot, k])
        n_rows = held.ranks.shape[0]
        found = columns.places_of(held.heads, held.shift, n_rows, k, rank)
        out[slot, 0], out[slot, 1], alone = found
        out[slot, 2] = int(alone)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 400), st.sampled_from([1, 2, 9, 400]), st.data())
def test_places_of_a_rank(seed: int, n: int, n_values: int, data: st.DataObject) -> None:
    """Runs of any length, of which short ones share ranks, and what is found of each rank."""
    random = np.random.default_rng(seed)
    values = np.sort(random.integers(0, n_values, n)) ** data.draw(st.sampled_from([1, 3]))
    points = 2 * values[random.permutation(n)][:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "RANK_BITS", data.draw(st.sampled_from([4, 7, 16])))
        held = index.build_index(even_field(points, 2)).held
    found = np.empty((n, 3), np.int64)
    every_place(held, 0, found)
    ranks = held.ranks[slots_of(held, 0), 0]
    np.testing.assert_array_equal(np.sort(ranks), ranks)
    for slot in range(n):
        places = np.flatnonzero(ranks == held.ranks[slot, 0])
        n_runs = len(np.unique(values[places]))
        assert found[slot].tolist() == [places[0], places[-1] + 1, n_runs == 1]
        if n_runs > 1:  # only short runs share a rank
            assert np.unique(values[places], return_counts=True)[1].max() < 2 << held.shift


@pytest.mark.parametrize("rank_bits", [16, 9, 6])
@pytest.mark.parametrize("pulled", [False, True])
def test_long_runs_of_equal_values(rank_bits: int, pulled: bool, monkeypatch: Any) -> None:
    """Medians within runs, at their ends and between two of them; bounds that stay and move."""
    monkeypatch.setattr(index, "RANK_BITS", rank_bits)
    rng = np.random.default_rng(rank_bits)
    values = np.array([0, 0, 0, 2, 40, 42, 44, 46, 2000, 2000])
    points = np.concatenate([values[rng.integers(0, 10, (3_000, 4))], clumps(1_000, 4) >> 10 << 1])
    points[:, 3] = 2 * rng.integers(0, 3, len(points))  # nothing but runs
    pulls = rng.integers(1, 5, len(points)) if pulled else None
    field = even_field(points, 2_100, pulls)
    built = index.build_index(field)
    assert (built.held.shift > 0) == (rank_bits < 12)
    seeds = points[rng.permutation(len(points))[:200]]
    expected = slow_steps(field, seeds)
    for _ in range(2):
        np.testing.assert_array_equal(crowd.step_together(built, seeds), expected)
    with built.scratch(1) as nest:
        pass
    for seed, end in zip(seeds, expected, strict=True):
        nest.lanes.span[0] = len(points) * rng.integers(0, 3)  # marked, or not
        np.testing.assert_array_equal(crowd.step_together(built, seed[None])[0], end)
