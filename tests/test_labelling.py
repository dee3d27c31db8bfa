"""Labels that stay in the store: put together from records, and written by region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from clusters import histograms, make_job, write
from distributed import Client, get_task_stream
from hypothesis import given
from hypothesis import strategies as st

import dshift
from dshift import engine, labelling
from dshift.engine import settings
from dshift.labelling import Cut, put_together, record_modes, record_nearest, region_shape, regions
from dshift.stage import climb_share, measure_share, set_stage
from dshift.store import Store, write_block
from dshift.threads import Threads

ROWS = histograms()


@given(shape=st.lists(st.integers(1, 9), min_size=1, max_size=4), most=st.integers(1, 60))
def test_regions_are_chunks_that_lie_in_one_piece(shape: list[int], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelling, "REGION_SAMPLES", most)
        numbers = np.arange(np.prod(shape)).reshape(shape)
        seen = []
        for region in regions(shape):
            part = numbers[region].reshape(-1)
            assert 1 <= part.size <= most
            assert all(r.start % c == 0 for r, c in zip(region, region_shape(shape), strict=True))
            flat = labelling._flat(shape, region)
            np.testing.assert_array_equal(part, np.arange(flat.start, flat.stop))
            seen.append(part)
        np.testing.assert_array_equal(np.concatenate(seen), numbers.reshape(-1))


CASES: dict[str, dict[str, Any]] = {
    "all seeds": {},
    "some seeds": {"seeds": 25},
    "own seeds": {"seeds": ROWS.values[3:40]},
    "weights": {"weights": np.linspace(0.5, 2, 120), "min_cluster_size": 9},
    "whole totals of halves": {"weights": np.full(120, 0.5), "valley": 0.1},
    "bandwidths": {"bandwidth": np.linspace(0.5, 1.5, 120)},
    "means": {"metric": "sqeuclidean", "bandwidth": 0.05},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(120,), (5, 8, 3)])
def test_written_by_region_is_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, shape: tuple[int, ...]
) -> None:
    data = xr.DataArray(
        np.where(np.arange(120)[:, None] % 11, ROWS.values, 0).reshape(*shape, 16),
        coords={"dim_0": np.arange(shape[0]) * 2.5},
        dims=[*(f"dim_{axis}" for axis in range(len(shape))), "bin"],
    )
    call = {"data": data, "bandwidth": 1.0, "invalid": "mask", **CASES[case]}
    for name in {"weights", "bandwidth"} & {k for k, v in call.items() if np.ndim(v) == 1}:
        call[name] = call[name].reshape(shape)
    expected = dshift.fit(**call)
    monkeypatch.setattr(Threads, "keeps_labels", True)
    monkeypatch.setattr(labelling, "REGION_SAMPLES", 7)
    with settings(block_size=16):
        found = dshift.fit(**call, store=tmp_path / "r.zarr")
    xr.testing.assert_identical(found, expected)
    assert found.size.dtype == expected.size.dtype
    assert found.label.encoding["chunks"] == region_shape(shape)
    xr.testing.assert_identical(dshift.fit(**call, store=tmp_path / "r.zarr"), expected)


def test_a_record_that_is_lost_or_torn_is_done_again(tmp_path: Path) -> None:
    job = make_job(ROWS, 1.0, seeds=50, invalid="raise")
    stage, place = set_stage(job), Store(str(tmp_path))
    cut = Cut(place, n_seeds=50, block_size=20, n_rest=70, part_size=30)
    parts = [climb_share(stage, block) for block in cut.blocks]
    for block, climbed in zip(cut.blocks, parts, strict=True):
        write_block(place, block, climbed)
    modes = np.unique(np.concatenate([part.modes for part in parts]), axis=0)
    record_modes(place, modes, measure_share(stage, modes).densities)
    for part in cut.parts:
        record_nearest(stage, place, part)
    whole = put_together(stage, cut)
    (tmp_path / "dshift" / "blocks" / "20-40.npz").unlink()
    (tmp_path / "dshift" / "nearest" / "30-60.npz").write_bytes(b"torn")
    again = put_together(stage, cut)
    for name in ("mode_of_sample", "n_iter", "valid_before"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(again, name))
    assert (whole.mode_of_sample >= 0).all()
    (tmp_path / "dshift" / "modes.npz").unlink()
    with pytest.raises(RuntimeError, match=r"has lost dshift/modes\.npz"):
        put_together(stage, cut)


def test_no_task_returns_a_row_per_sample(tmp_path: Path, two_workers: Client) -> None:
    n = 20_000
    path = write(histograms(n), tmp_path / "d.zarr", 5_000)
    # A bandwidth at which few modes are left, since these do travel.
    expected = dshift.fit(path, 4.0)
    with get_task_stream(two_workers) as stream:
        found = dshift.fit(path, 4.0, client=two_workers, store=tmp_path / "r.zarr")
    ran = [entry for entry in stream.data if "dshift-" in str(entry["key"])]
    assert len(ran) > 10
    assert max(entry["nbytes"] for entry in ran) < n / 4
    xr.testing.assert_identical(found, expected)


def test_without_an_index_seeds_come_in_the_same_order_and_end_at_the_same_modes() -> None:
    rows = ROWS.values
    for seeds in ("all", 30, rows[5:50]):
        job = make_job(rows, 1.0, seeds=seeds, invalid="raise")
        fast, plain = set_stage(job), set_stage(job, indexed=False)
        assert plain.index is None
        np.testing.assert_array_equal(plain.order, fast.order)
        block = slice(3, len(fast.order) - 2)
        one, other = climb_share(fast, block), climb_share(plain, block)
        np.testing.assert_array_equal(one.seeds, other.seeds)
        np.testing.assert_array_equal(one.n_iter, other.n_iter)
        np.testing.assert_array_equal(one.modes[one.mode_of_seed], other.modes[other.mode_of_seed])


def test_a_process_without_room_for_an_index_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = dshift.fit(ROWS, 1.0)
    plan, _ = engine.plan_for(make_job(ROWS, 1.0, seeds="all", invalid="raise"), None)
    monkeypatch.setattr(engine, "memory_limit", lambda: plan.process_bytes - 1)
    xr.testing.assert_identical(dshift.fit(ROWS, 1.0), expected)
    assert "climb without it, to the same bits" in caplog.text
    assert dshift.plan(ROWS, 1.0, sample=False).n_without_index == 1
    least = plan.process_bytes - plan.index_bytes
    monkeypatch.setattr(engine, "memory_limit", lambda: least - 1)
    with pytest.raises(dshift.PlanRefused, match=r"without an index, and .* more with one\. There"):
        dshift.fit(ROWS, 1.0)
