"""The paper's climate experiment: rainfall and temperature of the contiguous states of the USA."""

from __future__ import annotations

import gzip
import re
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.cluster import MeanShift, estimate_bandwidth
from threadpoolctl import threadpool_limits

import dshift
from examples.common import COLORS, INK, PALE, Page

NOAA = "https://www.ncei.noaa.gov/pub/data/cirs/climdiv/"
LAST_YEAR = 2020
VALLEY = 0.1
QUANTILES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # of mean shift's bandwidth; 0.3 is its default

# NOAA's numbers 1 to 48 are the contiguous states in this order.
STATES = re.findall(
    r"\w+",
    "AL AZ AR CA CO CT DE FL GA ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC "
    "ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY",
)
COAST = ["ME", "NH", "MA", "RI", "CT", "NY", "NJ", "DE", "MD", "VA", "NC", "SC", "GA", "FL"]
# Where each state stands in a map of equal tiles.
TILES = """
.. .. .. .. .. .. .. .. .. .. ME
.. .. .. .. .. .. .. .. .. VT NH
WA ID MT ND MN IL WI MI NY RI MA
OR NV WY SD IA IN OH PA NJ CT ..
CA UT CO NE MO KY WV VA MD DE ..
.. AZ NM KS AR TN NC SC .. .. ..
.. .. .. OK LA MS AL GA .. .. ..
.. .. .. TX .. .. .. .. FL .. ..
"""


@dataclass(frozen=True)
class Element:
    """What was measured: how NOAA's files are called, and the bins that suit it."""

    name: str
    stem: str
    unit: str
    bin_width: float
    bandwidth: float


ELEMENTS = (
    Element("rainfall", "climdiv-pcpnst-", "inches a month", 0.25, 0.4),
    Element("temperature", "climdiv-tmpcst-", "°F", 2.5, 2.0),
)


def find_files(data: Path | None, folder: Path, site: str = NOAA) -> dict[str, Path]:
    """Return the file of each element: from `data`, or from NOAA, downloaded to `folder`."""
    if data is not None:
        found = {e.name: sorted(data.glob(f"{e.stem}*")) for e in ELEMENTS}
        for element in ELEMENTS:
            if not found[element.name]:
                raise SystemExit(
                    f"{data} has no file {element.stem}*; give the folder that holds NOAA's "
                    "nClimDiv files of the states as --data, or leave it out to download them."
                )
        return {name: files[-1] for name, files in found.items()}
    try:
        with urllib.request.urlopen(site, timeout=60) as answer:
            listing = answer.read().decode()
        files = {}
        for element in ELEMENTS:
            name = sorted(set(re.findall(rf"{element.stem}[\w.-]+", listing)))[-1]
            files[element.name] = folder / name
            with urllib.request.urlopen(site + name, timeout=60) as answer:
                files[element.name].write_bytes(answer.read())
        return files
    except (OSError, IndexError) as error:
        raise SystemExit(
            f"the climate data could not be read from {site} ({error}). Download the files "
            "climdiv-pcpnst-* and climdiv-tmpcst-* by hand and pass their folder as --data."
        ) from error


def read_series(file: Path) -> xr.DataArray:
    """Read NOAA's columns: monthly values (state, month) of the states, without gaps."""
    open_text = gzip.open if file.suffix == ".gz" else open
    values: dict[int, list[float]] = {}
    with open_text(file, "rt") as lines:
        for line in lines:
            key, *months = line.split()
            state, year = int(key[:3]), int(key[6:10])
            if state <= len(STATES) and year <= LAST_YEAR:
                values.setdefault(state, []).extend(map(float, months))
    table = np.array([values[state] for state in sorted(values)])
    return xr.DataArray(table, {"state": STATES}, ("state", "month"))


def count_months(element: Element, file: Path) -> xr.DataArray:
    """Return one histogram per state."""
    series = read_series(file)
    width = element.bin_width
    edges = np.arange(np.floor(series.min() / width), np.ceil(series.max() / width) + 1) * width
    return dshift.histogram(series, edges, dim="month", units=element.unit)


@dataclass(frozen=True)
class Found:
    """Labels of the states by one method at one bandwidth."""

    method: str
    bandwidth: float
    labels: NDArray[Any]

    @property
    def n_clusters(self) -> int:
        return len(np.unique(self.labels))

    def members(self, state: str) -> list[str]:
        """Return the states that share the cluster of this one."""
        same = self.labels == self.labels[STATES.index(state)]
        return [name for name, one in zip(STATES, same, strict=True) if one]

    def row(self, element: Element) -> dict[str, Any]:
        """Return a line of the table: what the paper says of California and of the east coast."""
        beside = [name for name in self.members("CA") if name != "CA"]
        # A dict keeps the order from north to south, a set would not.
        parts = dict.fromkeys(
            tuple(s for s in COAST if s in self.members(state)) for state in COAST
        )
        coast = " / ".join(" ".join(part) for part in sorted(parts, key=len, reverse=True))
        return {
            "data": element.name,
            "method": self.method,
            "bandwidth": f"{self.bandwidth:.3g}",
            "clusters": self.n_clusters,
            "California": "alone" if not beside else "with " + _few(beside),
            "the Atlantic states": "together" if len(parts) == 1 else coast,
        }


def _few(names: list[str]) -> str:
    return " ".join(names) if len(names) <= 4 else f"{len(names)} others"


def shift_medians(counts: xr.DataArray, bandwidth: float) -> Found:
    """Cluster by Wasserstein median shift."""
    result = dshift.fit(counts, bandwidth, valley=VALLEY, progress=False)
    return Found("median shift", bandwidth, result.label.values)


def shift_means(counts: xr.DataArray, quantile: float) -> Found:
    """Cluster by classical mean shift on the shares of the bins."""
    shares = counts.values / counts.values.sum(axis=1, keepdims=True)
    with threadpool_limits(1):
        width = float(estimate_bandwidth(shares, quantile=quantile))
        return Found("mean shift", width, MeanShift(bandwidth=width).fit_predict(shares))


def draw_map(axis: Axes, found: Found) -> None:
    """Draw the states as tiles; a cluster of one state is grey."""
    sizes = np.bincount(found.labels)
    order = {int(k): i for i, k in enumerate(np.argsort(-sizes, kind="stable"))}
    for y, line in enumerate(TILES.split("\n")[1:-1]):
        for x, state in enumerate(line.split()):
            if state == "..":
                continue
            label = int(found.labels[STATES.index(state)])
            alone = sizes[label] == 1
            color = PALE if alone else COLORS[order[label] % len(COLORS)]
            axis.add_patch(plt.Rectangle((x, -y), 0.94, 0.94, color=color))
            style = {"ha": "center", "va": "center", "fontsize": 7.5}
            axis.text(x + 0.47, 0.47 - y, state, color=INK if alone else "white", **style)
    axis.set(xlim=(-0.1, 11.1), ylim=(-7.1, 1.1), aspect="equal")
    axis.axis("off")


def compare(page: Page, data: Path | None, small: bool) -> None:
    """Cluster the states both ways, fill in the table and draw the maps side by side."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 7))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = find_files(data, Path(folder))
        counts = {e.name: count_months(e, files[e.name]) for e in ELEMENTS}
    for element, (left, right) in zip(ELEMENTS, axes, strict=True):
        histograms = counts[element.name]
        swept = dshift.sweep(histograms, progress=False)
        stable = [float(middle) for middle in swept.plateau_middle]
        medians = [shift_medians(histograms, width) for width in stable]
        means = [shift_means(histograms, q) for q in (QUANTILES[-1:] if small else QUANTILES)]
        shown = shift_medians(histograms, element.bandwidth)
        # As many clusters as ours, or nearly: the fairest picture of the other.
        beside = min(means, key=lambda one: abs(one.n_clusters - shown.n_clusters))
        rows += [one.row(element) for one in (*medians, *means)]
        for axis, one in ((left, shown), (right, beside)):
            axis.set_title(f"{element.name}, {one.method}: {one.n_clusters} clusters")
            draw_map(axis, one)
    page.table("climate", rows)
    page.picture("climate.svg", figure)
