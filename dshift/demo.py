"""The paper's synthetic histograms, and a picture of what a fit finds in them."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

import numpy as np
import xarray as xr

from dshift.plateaus import agreement as agreement

N_DRAWS = 100
N_SECOND_HUMP = 20
HUMP_WIDTH = 0.02


def synthetic(n_samples: int, seed: int = 0, n_bins: int = 100) -> xr.Dataset:
    """Return the paper's synthetic set: two kinds of histograms that are hard to tell apart.

    Each histogram counts 100 draws. Those of the first class come from one narrow hump around a
    center in [0.47, 0.53]; of those of the second class, 20 come from another hump around a center
    in [0.17, 0.23]. The classes alternate.

    Parameters
    ----------
    n_samples : int
    seed : int
        Of the random generator.
    n_bins : int
        Bins on [0, 1].

    Returns
    -------
    xarray.Dataset
        `counts` (sample, bin) and `truth` (sample).
    """
    rng = np.random.default_rng(seed)
    truth = np.arange(n_samples) % 2
    centers = np.repeat(rng.uniform(0.47, 0.53, n_samples)[:, None], N_DRAWS, axis=1)
    second = rng.uniform(0.17, 0.23, n_samples)
    centers[truth == 1, :N_SECOND_HUMP] = second[truth == 1, None]
    draws = rng.normal(centers, HUMP_WIDTH)
    bins = np.clip((draws * n_bins).astype(np.int64), 0, n_bins - 1)
    flat = bins + n_bins * np.arange(n_samples)[:, None]
    counts = np.bincount(flat.ravel(), minlength=n_samples * n_bins).reshape(n_samples, n_bins)
    edges = np.linspace(0, 1, n_bins + 1)
    return xr.Dataset(
        {"counts": (("sample", "bin"), counts.astype(np.uint8)), "truth": ("sample", truth)},
        {"bin": edges[:-1] / 2 + edges[1:] / 2},
    )


COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
PANEL_WIDTH, PANEL_HEIGHT, MARGIN = 720, 150, 46


def draw_clusters(
    counts: xr.DataArray, result: xr.Dataset, path: str | os.PathLike[str], most: int = 4
) -> Path:
    """Draw the largest clusters as an SVG: each mode over some of its members.

    Parameters
    ----------
    counts : DataArray (sample, bin)
    result : Dataset
        What `dshift.fit` returned for `counts`.
    path : path
        The SVG file to write.
    most : int
        Clusters to draw at the most.
    """
    n_drawn = min(most, result.sizes["cluster"])
    panels = [_panel(counts, result, cluster) for cluster in range(n_drawn)]
    height = n_drawn * (PANEL_HEIGHT + MARGIN) + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PANEL_WIDTH + 2 * MARGIN} {height}"'
        ' font-family="system-ui, sans-serif" font-size="14">',
        '<rect width="100%" height="100%" fill="white"/>',
        *panels,
        "</svg>",
    ]
    target = Path(path)
    target.write_text("\n".join(lines), encoding="utf-8")
    return target


def _panel(counts: xr.DataArray, result: xr.Dataset, cluster: int) -> str:
    members = np.flatnonzero(result.label.values.ravel() == cluster)
    shown = members[np.linspace(0, len(members) - 1, min(len(members), 40)).astype(int)]
    rows = counts.values.reshape(-1, counts.shape[-1])[shown].astype(np.float64)
    rows /= rows.sum(axis=1, keepdims=True)
    mode = result.modes.values[int(np.argmax(result.cluster_of_mode.values == cluster))]
    top = MARGIN + cluster * (PANEL_HEIGHT + MARGIN)
    tallest = max(float(mode.max()), float(rows.max()))
    color = COLORS[cluster % len(COLORS)]
    title = escape(f"cluster {cluster}: {len(members)} histograms, and the mode they climb to")
    parts = [f'<text x="{MARGIN}" y="{top - 8}" fill="#222">{title}</text>']
    parts += [_steps(row, tallest, top, color, 0.8, 0.25) for row in rows]
    parts.append(_steps(mode, tallest, top, "#111111", 2.2, 1.0))
    base = top + PANEL_HEIGHT
    parts.append(f'<path d="M{MARGIN} {base}h{PANEL_WIDTH}" stroke="#888" fill="none"/>')
    return "\n".join(parts)


def _steps(
    row: np.ndarray, tallest: float, top: float, color: str, width: float, opacity: float
) -> str:
    step = PANEL_WIDTH / len(row)
    levels = top + PANEL_HEIGHT * (1 - row / tallest)
    path = f"M{MARGIN} {top + PANEL_HEIGHT}" + "".join(f"V{y:.1f}h{step:.2f}" for y in levels)
    return (
        f'<path d="{path}V{top + PANEL_HEIGHT}" fill="none" stroke="{color}" '
        f'stroke-width="{width}" stroke-opacity="{opacity}"/>'
    )
