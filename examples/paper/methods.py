"""The methods of the paper's tables, each with the settings that it may choose from."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from sklearn.cluster import (
    DBSCAN,
    AffinityPropagation,
    AgglomerativeClustering,
    Birch,
    MeanShift,
    MiniBatchKMeans,
    SpectralClustering,
    estimate_bandwidth,
)
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

import dshift

Array = NDArray[Any]

# Shares of the median distance between two samples.
SCALES = (0.15, 0.3, 0.4, 0.6, 0.9)
# Of these, the one that came after a look at the results: the flights' table tells them apart.
ADDED_SCALE = 0.15


@dataclass(frozen=True)
class Labelled:
    """Histograms with their true classes; -1 marks outliers, which no score counts."""

    counts: Array  # (n, n_bins)
    truth: NDArray[np.int64]  # (n,)

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.truth[self.truth >= 0]))

    @property
    def shares(self) -> Array:
        return self.counts / self.counts.sum(axis=1, keepdims=True)

    @property
    def cdfs(self) -> Array:
        """L1 between these is the Wasserstein distance in bins."""
        return np.cumsum(self.shares, axis=1)[:, :-1]

    def score(self, labels: Array) -> float:
        """Return the adjusted Rand index; those that DBSCAN calls noise are one more cluster."""
        counted = self.truth >= 0
        return float(adjusted_rand_score(self.truth[counted], labels[counted]))


@dataclass(frozen=True)
class Method:
    """A way from points to labels.

    Parameters
    ----------
    run : callable
        ``run(points, n_classes, scale, seed)`` returns labels. A scale of None is the method's
        own default, another is a length.
    has_scale : bool
        Whether it asks for a length, such as a bandwidth: then the best of `SCALES` counts too.
    stochastic : bool
        Whether the seed matters.
    """

    name: str
    run: Callable[[Array, int, float | None, int], Array]
    has_scale: bool = False
    stochastic: bool = False


def mean_shift(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run the classical one, with a flat kernel."""
    width = estimate_bandwidth(points, random_state=seed) if scale is None else scale
    return MeanShift(bandwidth=width, bin_seeding=False).fit_predict(points)


def affinity(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run affinity propagation; its preference is a negative squared length."""
    # The scale of the others would make every sample an exemplar: this method wants larger ones.
    preference = None if scale is None else -((10 * scale) ** 2)
    return AffinityPropagation(preference=preference, random_state=seed).fit_predict(points)


def spectral(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run spectral clustering with a Gaussian affinity."""
    gamma = 1.0 if scale is None else 1 / (2 * scale**2)
    return SpectralClustering(k, gamma=gamma, random_state=seed).fit_predict(points)


def dbscan(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run DBSCAN."""
    return DBSCAN(eps=0.5 if scale is None else scale).fit_predict(points)


def birch(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run Birch; its threshold is the radius of a subcluster."""
    return Birch(threshold=0.5 if scale is None else scale / 3, n_clusters=k).fit_predict(points)


def mixture(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run a Gaussian mixture with full covariances."""
    return GaussianMixture(k, random_state=seed).fit_predict(points)


def mini_batch(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run mini-batch k-means."""
    return MiniBatchKMeans(k, n_init=3, random_state=seed).fit_predict(points)


def ward(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Join clusters by the rise of the variance."""
    return AgglomerativeClustering(k, linkage="ward").fit_predict(points)


def average(points: Array, k: int, scale: float | None, seed: int) -> Array:
    """Join clusters by their mean distance."""
    return AgglomerativeClustering(k, linkage="average").fit_predict(points)


def wasserstein_dbscan(cdfs: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run DBSCAN on cumulative histograms, where L1 is the Wasserstein distance."""
    eps = 0.5 if scale is None else scale
    return DBSCAN(eps=eps, metric="manhattan").fit_predict(cdfs)


def wasserstein_kmeans(cdfs: Array, k: int, scale: float | None, seed: int) -> Array:
    """Run k-means under the Wasserstein distance: the centre is the median of the CDFs.

    It starts from k-means++ and ends when no label changes; a cluster that is empty keeps its
    centre.
    """
    rng = np.random.default_rng(seed)
    centers = cdfs[rng.integers(len(cdfs))][None]
    while len(centers) < k:
        nearest = _city_blocks(cdfs, centers).min(axis=1)
        chosen = rng.choice(len(cdfs), p=nearest**2 / (nearest**2).sum())
        centers = np.vstack([centers, cdfs[chosen]])
    labels = np.full(len(cdfs), -1)
    while True:
        found = _city_blocks(cdfs, centers).argmin(axis=1)
        if (found == labels).all():
            return labels
        labels = found
        for j in np.unique(labels):
            centers[j] = np.median(cdfs[labels == j], axis=0)


def _city_blocks(points: Array, centers: Array) -> Array:
    return np.abs(points[:, None] - centers).sum(axis=2)


PEERS = (
    Method("mean shift", mean_shift, has_scale=True),
    Method("mini-batch k-means", mini_batch, stochastic=True),
    Method("affinity propagation", affinity, has_scale=True),
    Method("spectral clustering", spectral, has_scale=True),
    Method("agglomerative, Ward", ward),
    Method("agglomerative, average", average),
    Method("DBSCAN", dbscan, has_scale=True),
    Method("Birch", birch, has_scale=True),
    Method("Gaussian mixture", mixture, stochastic=True),
)
WASSERSTEIN_PEERS = (
    Method("k-means under W1", wasserstein_kmeans, stochastic=True),
    Method("DBSCAN under W1", wasserstein_dbscan, has_scale=True),
)


@dataclass(frozen=True)
class Scores:
    """What a method reached: with its own defaults, and with each of the scales, if it has one."""

    default: list[float]
    scaled: dict[float, list[float]]

    @property
    def tuned(self) -> list[float]:
        """With the best of the scales: the one with the highest mean over the sets."""
        return max([self.default, *self.scaled.values()], key=np.mean)

    @property
    def tuned_at_first(self) -> list[float]:
        """With the best of the scales that were there before anyone looked."""
        return Scores(
            self.default, {s: found for s, found in self.scaled.items() if s != ADDED_SCALE}
        ).tuned


def median_shift_scores(
    sets: Sequence[Labelled], bandwidth: Any, valley: float | None = None
) -> Scores:
    """Return the scores of Wasserstein median shift: as asked, and with the best of the scales."""

    def scores(share: float | None) -> list[float]:
        found = []
        for one in sets:
            width = bandwidth
            if share is not None:
                width = share * float(np.median(pdist(one.cdfs, "cityblock")))
            labels = dshift.fit(one.counts, width, valley=valley, progress=False).label.values
            found.append(one.score(labels))
        return found

    return Scores(scores(None), {share: scores(share) for share in SCALES})


def peer_scores(
    method: Method,
    sets: Sequence[Labelled],
    n_starts: int,
    points_of: Callable[[Labelled], Array],
    metric: str = "euclidean",
) -> Scores:
    """Return the scores of a peer on all sets; a stochastic one starts `n_starts` times on each.

    To choose the best scale takes the truth.
    """
    starts = range(n_starts if method.stochastic else 1)

    def scores(share: float | None) -> list[float]:
        found = []
        for one in sets:
            points = points_of(one)
            scale = None if share is None else share * float(np.median(pdist(points, metric)))
            for seed in starts:
                # Small sets: threads that wait for each other cost more than they bring.
                with warnings.catch_warnings(), threadpool_limits(1):
                    # What does not converge keeps the labels of its last round, and its score.
                    warnings.simplefilter("ignore")
                    found.append(one.score(method.run(points, one.n_classes, scale, seed)))
        return found

    scales = SCALES if method.has_scale else ()
    return Scores(scores(None), {share: scores(share) for share in scales})


def mean_and_deviation(scores: Sequence[float]) -> str:
    """Return a table's cell."""
    mean, deviation = float(np.mean(scores)), float(np.std(scores))
    # Not -0.00.
    text = f"{mean + 0.0:.2f}".replace("-0.00", "0.00")
    return text if deviation < 0.005 else f"{text} ± {deviation:.2f}"
