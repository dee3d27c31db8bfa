"""What a process holds for a job: the same, whether the samples were read for it or at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clusters import histograms, make_job

from dshift.field import Loaded, load_points
from dshift.planning import ROWS_SHARED_AT_ONCE
from dshift.stage import climb_share, seeds_share, set_stage

ROWS = np.where(np.arange(40)[:, None] % 9, histograms(40).values, 0)
MASKED = np.flatnonzero(~ROWS.any(axis=1))


def job(seeds: Any) -> Any:
    return make_job(ROWS, 1.0, seeds=seeds, invalid="mask")


def test_samples_at_hand_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = job("all")
    fresh = set_stage(asked)
    loaded = load_points(asked.samples, "wasserstein", None, None, "mask")

    def read(*_: Any) -> Loaded:
        pytest.fail("the samples were read again")

    monkeypatch.setattr("dshift.stage.load_points", read)
    at_hand = set_stage(replace(asked, samples=asked.samples.without_data()), loaded)
    assert at_hand.loaded is loaded
    one, other = (climb_share(stage, slice(0, 35)) for stage in (fresh, at_hand))
    np.testing.assert_array_equal(one.modes, other.modes)
    np.testing.assert_array_equal(one.mode_of_seed, other.mode_of_seed)


@pytest.mark.parametrize("seeds", ["all", 12, ROWS[[5, 3, 8]]], ids=["all", "some", "own"])
def test_seeds_of_a_block_are_named_by_the_callers_numbers(seeds: Any) -> None:
    stage = set_stage(job(seeds))
    n_seeds = len(stage.seed_points)
    numbers = np.concatenate([seeds_share(stage, slice(0, 2)), seeds_share(stage, slice(2, None))])
    assert len(numbers) == n_seeds == len(set(numbers.tolist()))
    rows = seeds if isinstance(seeds, np.ndarray) else ROWS
    # The points of those rows are the points that the block starts from.
    points, valid = stage.loaded.embedding.embed(rows[numbers])
    assert valid.all()
    np.testing.assert_array_equal(points, stage.seed_points[stage.order])
    if isinstance(seeds, str):
        assert sorted(numbers) == sorted({*range(40)} - {*MASKED})


def test_what_is_loaded_does_not_depend_on_threads() -> None:
    """Over several parts, with rows to drop; and the fingerprint stays what stores have."""
    random = np.random.default_rng(0)
    rows = random.integers(0, 50, (2 * ROWS_SHARED_AT_ONCE + 100, 7))
    rows[::1000] = 0
    samples = make_job(rows, 1.0, invalid="mask").samples
    alone, together = (
        load_points(samples, "wasserstein", None, None, "mask", threads=threads)
        for threads in (1, 3)
    )
    embedded, valid = alone.embedding.embed(rows)
    for loaded in (alone, together):
        np.testing.assert_array_equal(loaded.points, embedded[valid])
        np.testing.assert_array_equal(loaded.valid, valid)
        assert loaded.fingerprint == "64c4a2878c9d7f424f6a55d65aad9efd"
