"""The paper's synthetic experiment: two classes that differ in a fifth of their mass."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import dshift

SEEDS = range(10)
BANDWIDTHS = [2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5]


@functools.cache
def histograms(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`n` histograms of 100 draws in 100 bins on [0, 1], and their classes, half and half."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 2
    counts = []
    for k in truth:
        m, m2 = rng.uniform(0.47, 0.53), rng.uniform(0.17, 0.23)
        n_aside = 20 if k else 0
        draws = [rng.normal(m, 0.02, 100 - n_aside), rng.normal(m2, 0.02, n_aside)]
        counts.append(np.histogram(np.concatenate(draws), bins=100, range=(0, 1))[0])
    return np.array(counts), truth


@functools.cache
def agreements(n: int, seed: int, bandwidth: float) -> tuple[float, float]:
    """The ARI of identical merging and of valley=0.1: one fit holds the modes and the clusters."""
    counts, truth = histograms(n, seed)
    result = dshift.fit(counts, bandwidth, valley=0.1)
    found = (result.mode_index.values, result.label.values)
    identical, joined = (float(adjusted_rand_score(truth, labels)) for labels in found)
    return identical, joined


@pytest.mark.parametrize("n", [122, 1000])
@pytest.mark.parametrize("seed", SEEDS)
def test_bandwidth_4_finds_the_classes(n: int, seed: int) -> None:
    counts, truth = histograms(n, seed)
    assert adjusted_rand_score(truth, dshift.fit(counts, 4.0).label.values) == 1.0


@pytest.mark.parametrize("n", [122, 1000])
@pytest.mark.parametrize("seed", SEEDS)
def test_valley_finds_the_classes_at_every_bandwidth(n: int, seed: int) -> None:
    assert [agreements(n, seed, h)[1] for h in BANDWIDTHS] == [1.0] * len(BANDWIDTHS)


@pytest.mark.parametrize("bandwidth", [2.5, 5.5])
def test_identical_merging_alone_fragments(bandwidth: float) -> None:
    """Why `valley` exists: the prototype's means were 0.63 at 2.5 and 0.74 at 5.5."""
    found = [agreements(n, seed, bandwidth) for n in (122, 1000) for seed in SEEDS]
    identical, joined = np.mean(found, axis=0)
    assert 0.5 < identical < 0.9
    assert joined == 1.0
