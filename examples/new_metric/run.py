"""A metric of one's own: hours of the day lie on a circle. Checks the theorem's laws on it.

python examples/new_metric/run.py
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.patches import Patch
from numpy.typing import NDArray

import dshift
from examples.common import COLORS, PALE, Page, make_parser

Float = NDArray[np.float64]

N_HOURS = 24
BANDWIDTH = 2.0  # hours
N_EACH, SMALL_N_EACH = 60, 12
N_VISITORS = 200
CHUNKS = (7, 50, 1_000)


# ---- the metric, in twenty lines -----------------------------------------------------------------


def distance(x: Float, rows: Float) -> Float:
    """Return the circular W1: the least work to turn `x` into each row, midnight being no wall."""
    ahead = np.cumsum(rows, axis=1) - np.cumsum(x)
    # Mass may go round the clock as well: of all flows, the one around the median is cheapest.
    return np.abs(ahead - np.median(ahead, axis=1, keepdims=True)).sum(axis=1)


def center(rows: Float, weights: Float) -> Float:
    """Return the row with the least weighted sum of distances to all rows; the first, if several.

    The space of this example is the set of samples, so this is an argmin, and it depends on
    nothing but its arguments.
    """
    return rows[np.argmin([weights @ distance(row, rows) for row in rows])]


CLOCK = dshift.Metric(distance, center, name="circular W1")

# --------------------------------------------------------------------------------------------------

PLACES = {  # hours at which people come, how spread out they are, and their share
    "bakery": ((7.0, 1.3, 0.8), (16.0, 1.2, 0.2)),
    "office": ((9.0, 0.9, 0.55), (13.5, 0.8, 0.45)),
    "restaurant": ((12.5, 0.8, 0.4), (19.5, 1.2, 0.6)),
    "night club": ((0.0, 1.5, 1.0),),
}


def simulate(n_each: int, seed: int = 0) -> tuple[Float, NDArray[np.int64]]:
    """Return how many visitors each of some made-up places had in each hour, and its kind."""
    rng = np.random.default_rng(seed)
    counts, kinds = [], []
    for kind, humps in enumerate(PLACES.values()):
        for _ in range(n_each):
            shift = rng.uniform(-1.5, 1.5)  # some open earlier than others
            which = rng.choice(len(humps), N_VISITORS, p=[share for *_, share in humps])
            middle, spread = np.array([hump[:2] for hump in humps])[which].T
            hours = rng.normal(middle + shift, spread) % N_HOURS
            counts.append(np.bincount(hours.astype(int), minlength=N_HOURS))
            kinds.append(kind)
    return np.array(counts, dtype=np.float64), np.array(kinds)


def walk(points: Float, start: int) -> tuple[Float, list[float]]:
    """Climb from one sample by the definition; return where it ends, and the density on the way."""
    x, heights = points[start], []
    while True:
        away = distance(x, points)
        active = away < BANDWIDTH
        heights.append(float((1 - away[active] / BANDWIDTH).sum()))
        onward = center(points[active], np.ones(active.sum()))
        if (onward == x).all():
            return x, heights
        x = onward


def check_laws(counts: Float, result: xr.Dataset) -> list[dict[str, object]]:
    """Return for each law how often it was tried and how often it held."""
    points = counts / N_VISITORS
    walks = [walk(points, start) for start in range(len(points))]
    ends = result.modes.values[result.mode_index.values]
    rises = [np.diff(heights) for _, heights in walks]
    same_bits = [
        _without_source(_fit(da.from_array(counts, chunks=(rows, N_HOURS)))).identical(
            _without_source(result)
        )
        for rows in CHUNKS
    ]
    turned = _fit(np.roll(counts, 5, axis=1))
    laws = {
        "every walk by the definition ends at dshift's mode": [
            (end == mode).all() for (end, _), mode in zip(walks, ends, strict=True)
        ],
        "one more step from a mode stays": result.stationary.values,
        "the density never decreases": [bool((r >= -1e-9).all()) for r in rises],
        "it rises whenever a step moves": [bool((r > 0).all()) for r in rises],
        f"the same bits in chunks of {', '.join(map(str, CHUNKS))} rows": same_bits,
        "five hours later, the same clusters": turned.label.values == result.label.values,
    }
    rows = [
        {"law": law, "tried": len(held), "held": int(np.sum(held))} for law, held in laws.items()
    ]
    for row in rows:
        if row["tried"] != row["held"]:
            raise SystemExit(f"a law does not hold: {row}")
    return rows


def _without_source(result: xr.Dataset) -> xr.Dataset:
    """Leave out what tells a NumPy array from one of Dask."""
    return result.drop_attrs()


def _fit(counts: object) -> xr.Dataset:
    return dshift.fit(counts, BANDWIDTH, metric=CLOCK, progress=False)


def compare(kinds: NDArray[np.int64], results: dict[str, xr.Dataset]) -> list[dict[str, object]]:
    """Return where each kind of place went under each metric."""
    rows = []
    for kind, name in enumerate(PLACES):
        row: dict[str, object] = {"kind of place": name, "places": int((kinds == kind).sum())}
        for metric, result in results.items():
            sizes = np.sort(np.bincount(result.label.values[kinds == kind]))[::-1]
            row[f"clusters by {metric}"] = " + ".join(str(size) for size in sizes if size)
        rows.append(row)
    return rows


def draw(page: Page, kinds: NDArray[np.int64], results: dict[str, xr.Dataset]) -> None:
    """Draw the modes of both metrics round the clock, in the colour of the places in them."""
    polar = {"projection": "polar"}
    figure, axes = plt.subplots(1, 2, figsize=(8, 4.7), subplot_kw=polar)
    hours = np.arange(N_HOURS + 1)
    # An hour is an arc, from its start to its end.
    angles = np.repeat(hours, 2)[1:-1] * 2 * np.pi / N_HOURS
    for axis, (metric, result) in zip(axes, results.items(), strict=True):
        alpha = min(0.25, 2 / result.sizes["cluster"])  # many lie on top of each other
        for label in range(result.sizes["cluster"]):
            mode = result.modes.values[np.argmax(result.cluster_of_mode.values == label)]
            color = COLORS[np.bincount(kinds[result.label.values == label]).argmax()]
            axis.plot(angles, np.repeat(mode, 2), color=color, linewidth=0.9)
            axis.fill(angles, np.repeat(mode, 2), color=color, alpha=alpha, linewidth=0)
        axis.set_theta_zero_location("N")
        axis.set_theta_direction(-1)
        axis.set_xticks(hours[:-1:3] * 2 * np.pi / N_HOURS, [f"{hour} h" for hour in hours[:-1:3]])
        axis.set_yticklabels([])
        axis.grid(linewidth=0.5, color=PALE)
        axis.set_title(f"{metric}: {result.sizes['cluster']} clusters", loc="center", pad=14)
    patches = [Patch(color=COLORS[kind], label=name) for kind, name in enumerate(PLACES)]
    figure.get_layout_engine().set(rect=(0, 0.04, 1, 0.91))  # room for what it does not count
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches))
    page.picture("clock.svg", figure)


def main() -> None:
    """Cluster made-up places by the hours of their visitors, on a line and on a circle."""
    options = make_parser(__doc__).parse_args()
    page = Page(__file__, options.out)
    counts, kinds = simulate(SMALL_N_EACH if options.small else N_EACH)
    on_line = dshift.fit(counts, BANDWIDTH, progress=False)
    results = {"W1 on a line": on_line, "W1 on a circle": _fit(counts)}
    page.table("clusters", compare(kinds, results))
    page.table("laws", check_laws(counts, results["W1 on a circle"]))
    draw(page, kinds, results)


if __name__ == "__main__":
    main()
