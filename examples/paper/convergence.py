"""How walks end: the density along them, the steps they take, and what the bandwidth changes."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import dshift
from examples.common import COLORS, INK, Page
from examples.paper.methods import Labelled
from examples.paper.synthetic import BANDWIDTH, draw_set

N_WALKS = 40
VALLEY = 0.1
TICKS = (0.3, 0.5, 1, 2, 4, 8)
Float = NDArray[np.float64]


def walk(cdfs: Float, start: int, bandwidth: float) -> tuple[Float, list[float]]:
    """Climb from one sample by the method as it is written; return where it ends, and f on the way.

    A step: take the samples nearer than the bandwidth, go to the median of their cumulative
    histograms. It ends where a step stays.
    """
    x, heights = cdfs[start], []
    while True:
        away = np.abs(cdfs - x).sum(axis=1)
        active = away < bandwidth
        heights.append(float((1 - away[active] / bandwidth).sum()))
        onward = np.median(cdfs[active], axis=0)
        if (onward == x).all():
            return x, heights
        x = onward


def draw_convergence(page: Page, small: bool) -> None:
    """Draw the density along walks, and how many steps all walks take."""
    one = draw_set(0)
    result = dshift.fit(one.counts, BANDWIDTH, progress=False)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    falls = 0
    for start in range(5 if small else N_WALKS):
        end, heights = walk(one.cdfs, start, BANDWIDTH)
        found = np.cumsum(result.modes.values[result.mode_index.values[start]])[:-1]
        if not np.allclose(end, found, atol=1e-9):
            raise SystemExit(f"the walk from sample {start} ends elsewhere than dshift's: a bug")
        falls += int((np.diff(heights) < -1e-9).sum())
        color = COLORS[one.truth[start]]
        left.plot(heights, color=color, alpha=0.5, linewidth=1)
        left.plot(len(heights) - 1, heights[-1], "o", color=color, markersize=3)
    left.set(title="the density only rises, and then stays", xlabel="step", ylabel="f")
    steps = np.bincount(result.n_iter.values)
    right.bar(np.arange(len(steps)), steps, color=INK, width=0.7)
    for axis in (left, right):
        axis.set_xticks(range(len(steps)))
    right.set(title="all walks end: no tolerance, no limit", xlabel="steps", ylabel="samples")
    page.picture("convergence.svg", figure)
    page.table(
        "convergence",
        [
            {
                "walks": len(one.counts),
                "most steps": int(result.n_iter.max()),
                "mean steps": float(result.n_iter.mean()),
                "stationary modes": f"{int(result.stationary.sum())} of {result.sizes['mode']}",
                "falls of f on the walks drawn": falls,
            }
        ],
    )


def draw_sweep(page: Page, small: bool) -> None:
    """Draw what every bandwidth finds, with identical modes joined and with `valley`."""
    one = draw_set(0)
    swept = dshift.sweep(one.counts, valley=None, progress=False)
    widths = swept.bandwidth.values[:: 6 if small else 1]
    found = {None: _scan(one, widths, None), VALLEY: _scan(one, widths, VALLEY)}
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 4.2), sharex=True)
    for (valley, (scores, n_clusters)), color in zip(found.items(), COLORS, strict=False):
        label = "identical modes are one cluster" if valley is None else f"valley={valley}"
        top.plot(widths, scores, "o-", color=color, markersize=3, label=label)
        bottom.plot(widths, n_clusters, "o-", color=color, markersize=3)
    top.set(ylabel="adjusted Rand index", xscale="log")
    top.axvline(BANDWIDTH, color=INK, linewidth=0.8, linestyle=":")
    top.legend()
    bottom.set(ylabel="clusters", xlabel="bandwidth in bins", yscale="log")
    bottom.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    bottom.minorticks_off()
    bottom.yaxis.set_major_formatter("{x:g}")
    page.picture("sweep.svg", figure)
    rows = [
        {
            "joined by": "identity" if valley is None else f"valley = {valley}",
            "mean ARI over all bandwidths": float(np.mean(scores)),
            "bandwidths with ARI 1": f"{sum(s == 1 for s in scores)} of {len(widths)}",
        }
        for valley, (scores, _) in found.items()
    ]
    page.table("sweep", rows)


def _scan(one: Labelled, widths: Float, valley: float | None) -> tuple[list[float], list[int]]:
    scores, n_clusters = [], []
    for width in widths:
        result = dshift.fit(one.counts, float(width), valley=valley, progress=False)
        scores.append(one.score(result.label.values))
        n_clusters.append(result.sizes["cluster"])
    return scores, n_clusters
