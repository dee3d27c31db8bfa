"""What the page of a report shows, as plain data: measured in some rooms, drawn in others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Axis:
    """The bins of one variable, as they are drawn."""

    edges: Array  # (n_drawn + 1,)
    label: str
    height_label: str
    is_share: bool  # heights are shares of a sample, to be shown as per cent
    columns: slice  # of a histogram
    name: str = ""  # of the variable, where there are several
    ticks: dict[float, str] = field(default_factory=dict)  # for bins that are named, not measured
    n_joined: int = 1
    shown: tuple[float, float] = (0.0, 1.0)  # what of the axis has anything on it


@dataclass(frozen=True, eq=False)
class Card:
    """One cluster."""

    number: int
    n_samples: int
    size: str
    share: float
    n_modes: int
    spread: str  # half of its samples are nearer to their mode than this
    typical: str  # the sample nearest to a mode
    modes: list[Array]  # on each axis (n, n_drawn): the first is the largest
    bands: list[Array] | None  # on each axis (4, n_drawn): quantiles 5, 25, 75, 95 % of the members
    n_drawn: int  # members in the bands, if not all are; else 0


@dataclass(frozen=True, eq=False)
class View:
    """Samples and modes on a plane."""

    samples: Array  # (n, 2)
    labels: list[str]
    clusters: Array
    distances: list[str]
    modes: Array  # (k, 2)
    kept: float  # share of the spread that the plane keeps


@dataclass(frozen=True, eq=False)
class Map:
    """Clusters on a regular grid of pixels, or at points."""

    name: str
    clusters: Array  # (ny, nx), or (n,) for points
    x: Array  # two ends, or (n,)
    y: Array
    axis_names: tuple[str, str]

    @property
    def aspect(self) -> float:
        """Width over height."""
        width, height = np.ptp(self.x), np.ptp(self.y)
        return float(np.clip(width / height if height > 0 else 1, 0.6, 3))


@dataclass(frozen=True, eq=False)
class Outlier:
    """A sample far from its mode."""

    label: str
    cluster: int
    distance: str
    sample: list[Array]  # on each axis
    mode: list[Array]
    shown: list[tuple[float, float]]  # of each axis


@dataclass(frozen=True, eq=False)
class Sweep:
    """What a sweep over bandwidths found."""

    bandwidth: Array
    n_clusters: Array | None
    shares: dict[str, Array]  # by what they are shares of
    plateaus: list[tuple[float, float, int | None]]  # start, stop, clusters; the longest first
    chosen: float | None
    label: str  # of the bandwidth, with its unit


@dataclass(frozen=True, eq=False)
class Findings:
    """All that the page shows."""

    title: str
    summary: str
    certified: bool
    certificate: str
    facts: list[tuple[str, str, str]]  # name, value, note
    attrs: list[tuple[str, str]]
    n_samples: int
    n_labelled: int  # samples with a cluster
    note: str  # how samples were drawn, if they were
    distance: str  # its name, with the unit
    axes: list[Axis]
    weighted: bool
    sizes: Array  # of all clusters
    rest: str  # what the clusters beyond the cards hold
    cards: list[Card]
    all_modes: list[Array]  # on each axis (k, n_drawn), by size
    order: Array  # of alike modes
    matrix: Array  # (m, m) distances between modes, by size
    view: View | None
    maps: list[Map]
    outliers: list[Outlier]
    near: str  # how far samples usually are
    sweep: Sweep | None
