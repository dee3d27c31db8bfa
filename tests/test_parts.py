"""The rooms between source and result, each by itself."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dshift import kernels
from dshift.metrics import make_embedding, make_pulls, share_rows
from dshift.modes import merge, unique_rows
from dshift.monitor import Progress, wants_progress
from dshift.planning import human_bytes, make_plan
from dshift.shift import NO_MODE, Climbed
from dshift.threads import BlockDone, map_threads, memory_limit


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


@given(
    hnp.arrays(np.int64, 12, elements=st.integers(0, 2**53)),
    hnp.arrays(np.int64, 12, elements=st.integers(1, 2**53)),
    hnp.arrays(np.int64, 12, elements=st.integers(1, 2**58)),
)
def test_density_limbs_are_exact(away: np.ndarray, reach: np.ndarray, pulls: np.ndarray) -> None:
    active = [(int(d), int(p)) for d, r, p in zip(away, reach, pulls, strict=True) if d < r]
    for density_limbs in (kernels.density_limbs, kernels.density_limbs.py_func):
        limbs, height = density_limbs(away, reach, pulls)
        assert kernels.join_limbs(limbs) == sum(d * p for d, p in active)
        assert height == sum(p for _, p in active)


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


def test_a_whole_weight_pulls_like_so_many_samples() -> None:
    embedding = make_embedding("wasserstein", 8, None, None, None)
    widths = np.array([1.0, 3.0, 0.7])
    once = make_pulls(embedding, np.ones(6), np.repeat(widths, [1, 2, 3]))
    heavy = make_pulls(embedding, np.array([1.0, 2.0, 3.0]), widths)
    np.testing.assert_array_equal(heavy, [once[0], once[1] + once[2], once[3:].sum()])


def test_totals_of_enormous_and_tiny_rows() -> None:
    rows = np.array([[1e300, 1e308, 1e308], [5e-324, 5e-324, 0], [1, 2, 1]])
    shares = share_rows(rows, "wasserstein")
    assert shares.valid.all()
    np.testing.assert_allclose(shares.values, [[5e-9, 0.5], [0.5, 1], [0.25, 0.75]])


def test_plan_blocks_tile_the_seeds_and_stay_few() -> None:
    for n_seeds in (1, 63, 64, 65, 10_000, 5_000_000):
        plan = make_plan(n_seeds, 64, n_seeds, threads=2)
        blocks = list(plan.blocks(n_seeds))
        assert len(blocks) == plan.n_blocks <= 4096
        assert [b.start for b in blocks[1:]] == [b.stop for b in blocks[:-1]]
        assert blocks[0].start == 0
        assert blocks[-1].stop == n_seeds
    assert make_plan(10**6, 64, 10**6, threads=2).matrix_bytes == 512 * 10**6


def test_human_bytes() -> None:
    sizes = (10, 2048, 3 * 2**20, 1.5 * 2**30, 2**41)
    assert [human_bytes(n) for n in sizes] == ["10 B", "2.0 KiB", "3.0 MiB", "1.5 GiB", "2.0 TiB"]


def test_memory_limit_is_that_of_a_machine() -> None:
    assert 2**20 < memory_limit() < 2**50


def test_an_error_in_a_block_stops_the_others() -> None:
    started: list[int] = []

    def work(item: int) -> None:
        started.append(item)
        if item == 0:
            raise RuntimeError("block 0 broke")
        time.sleep(0.02)  # ten seconds for all, on two threads

    with pytest.raises(RuntimeError, match="block 0 broke"):
        map_threads(work, range(1000), 2)
    assert len(started) < 1000


def test_progress_is_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10, shown=False) as bar:
        bar.block_done(BlockDone(slice(0, 10), (1,), 5, False))
    assert capsys.readouterr() == ("", "")
    with Progress(10, shown=True) as bar:
        bar.block_done(BlockDone(slice(0, 10), (1, 2, 3, 2), 5, True))
    out, err = capsys.readouterr()
    assert out == ""
    assert "10.0/10.0" in err
    assert "modes=3" in err
    assert "reused blocks=1" in err
    assert wants_progress(True)
    assert not wants_progress(False)
    assert not wants_progress(None)
