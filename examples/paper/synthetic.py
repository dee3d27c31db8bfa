"""The paper's synthetic experiment: the tables of methods, and what the two classes look like."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from dshift import demo
from examples.common import COLORS, Page
from examples.paper.methods import (
    PEERS,
    WASSERSTEIN_PEERS,
    Labelled,
    mean_and_deviation,
    median_shift_scores,
    peer_scores,
)

N_SAMPLES = 122
N_SETS, N_STARTS = 4, 25  # a stochastic method runs 4 x 25 = 100 times
BANDWIDTH = 4.0

PAPER = {
    "Wasserstein median shift": "1.0",
    "mean shift": "0.11",
    "mini-batch k-means": "0.02 ± 0.05",
    "affinity propagation": "0.15",
    "spectral clustering": "0.0",
    "agglomerative, Ward": "0.08",
    "agglomerative, average": "0.0",
    "DBSCAN": "0.68",
    "Birch": "0.0",
    "Gaussian mixture": "0.10 ± 0.23",
    "k-means under W1": "0.98 ± 0.01",
    "DBSCAN under W1": "0.99",
}


def draw_set(seed: int, n: int = N_SAMPLES) -> Labelled:
    """Return one of the paper's synthetic sets."""
    drawn = demo.synthetic(n, seed)
    return Labelled(drawn.counts.values.astype(np.int64), drawn.truth.values)


def compare(page: Page, small: bool) -> None:
    """Fill in both tables: methods on histograms, and methods under the Wasserstein distance."""
    sets = [draw_set(seed) for seed in range(1 if small else N_SETS)]
    n_starts = 2 if small else N_STARTS
    # The paper's bandwidth alone: it is what the others' best scale is compared with.
    ours = mean_and_deviation(median_shift_scores(sets, BANDWIDTH).default)
    first = {"method": "**Wasserstein median shift**", "paper": PAPER["Wasserstein median shift"]}
    rows = [{**first, "defaults": ours, "best scale": ours, "best scale, on CDFs": ours}]
    # Mean shift takes as long as all others together.
    for method in PEERS[1:] if small else PEERS:
        plain = peer_scores(method, sets, n_starts, lambda one: one.shares)
        on_cdfs = peer_scores(method, sets, n_starts, lambda one: one.cdfs)
        rows.append(
            {
                "method": method.name,
                "paper": PAPER[method.name],
                "defaults": mean_and_deviation(plain.default),
                "best scale": mean_and_deviation(plain.tuned),
                "best scale, on CDFs": mean_and_deviation(on_cdfs.tuned),
            }
        )
    page.table("synthetic", rows)
    rows = [{**first, "here": ours}]
    for method in WASSERSTEIN_PEERS:
        found = peer_scores(method, sets, n_starts, lambda one: one.cdfs, "cityblock")
        here = mean_and_deviation(found.tuned)
        rows.append({"method": method.name, "paper": PAPER[method.name], "here": here})
    page.table("wasserstein", rows)


def draw_samples(page: Page) -> None:
    """Draw two histograms of each class."""
    one = draw_set(0)
    figure, axes = plt.subplots(2, 2, figsize=(7, 3.2), sharex=True, sharey=True)
    centers = (np.arange(one.counts.shape[1]) + 0.5) / one.counts.shape[1]
    for kind, row in enumerate(axes):
        for axis, sample in zip(row, np.flatnonzero(one.truth == kind), strict=False):
            axis.bar(centers, one.counts[sample], 0.01, color=COLORS[kind])
            axis.set_title(f"class {kind + 1}, histogram {sample}")
    figure.supxlabel("value drawn", fontsize=9)
    figure.supylabel("draws of 100", fontsize=9)
    page.picture("samples.svg", figure)
