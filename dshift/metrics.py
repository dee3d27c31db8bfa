"""Histograms to points and back: the only room that knows what a histogram is.

The engine behind this door knows points and a distance. For the exact geometries ("wasserstein"
and "l1") a point is a row of even integers, so that sums of absolute differences and midpoints of
two coordinates are exact, whatever their order. DESIGN.md, "Numbers", says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift.edges import bin_spacing, segments_of
from dshift.errors import InvalidInput, InvalidType
from dshift.kernels import divide_rows, place_shares

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Points = NDArray[Any]

EXACT_KINDS = ("wasserstein", "l1")
KINDS = (*EXACT_KINDS, "sqeuclidean")

# Distances between grid points do not exceed this, so that int64 and float64 hold them exactly.
LARGEST_DISTANCE = 2**53
BEYOND_ALL = 2 * LARGEST_DISTANCE
# Pulls of means between powers of two of this size can be multiplied and added without harm.
SAFE_EXPONENT = 450


@dataclass(frozen=True)
class Metric:
    """A distance of the user's own, with the center that minimises it.

    Parameters
    ----------
    distance : callable
        ``distance(x, Y) -> (n,)``: from the point `x` (q,) to each row of `Y` (n, q).
    center : callable
        ``center(Y, weights) -> (q,)``: the point that minimises the weighted sum of distances to
        the rows of `Y`. It must be a function of its arguments alone: the same rows, in the same
        order, give the same bits.
    name : str
        How results and messages call it.
    normalize : bool
        Whether rows are divided by their sum first (as histograms are). With False, rows are
        taken as they are, negative values included.
    """

    distance: Callable[[Float, Float], Float]
    center: Callable[[Float, Float], Float]
    name: str = "custom"
    normalize: bool = True

    def __post_init__(self) -> None:
        for part in ("distance", "center"):
            if not callable(getattr(self, part)):
                raise InvalidType(
                    f"`{part}` is {getattr(self, part)!r}; a function is needed: "
                    "distance(x, Y) -> (n,) and center(Y, weights) -> (q,)."
                )


def resolve_metric(metric: object) -> tuple[str, Metric | None]:
    """Return the kind of geometry, and the user's own metric where there is one."""
    if isinstance(metric, Metric):
        return "custom", metric
    if isinstance(metric, str):
        if metric in KINDS:
            return metric, None
        raise InvalidInput(
            f"`metric` is {metric!r}; allowed are {', '.join(map(repr, KINDS))}, "
            "or a dshift.Metric made from your own distance and center."
        )
    raise InvalidType(
        f"`metric` is a {type(metric).__name__}; give one of {', '.join(map(repr, KINDS))}, "
        "or a dshift.Metric(distance, center)."
    )


@dataclass(frozen=True)
class Shares:
    """A block of rows divided by their totals, and what was seen on the way."""

    values: Float  # (n, p): cumulative for "wasserstein", without last columns, which are all 1
    valid: NDArray[np.bool_]  # (n,)
    totals: Float  # (n,): the total of rows made of whole numbers, NaN for other rows


def share_rows(
    rows: NDArray[Any],
    kind: str,
    normalize: bool = True,
    segments: tuple[int, ...] = (),
    *,
    scratch: Float | None = None,
    into: Float | None = None,
) -> Shares:
    """Divide each row by its total, and cumulate for "wasserstein".

    Rows that are not histograms (NaN or infinite or negative entries, or a total of zero) come
    back invalid, with zeros in place of their values. Stacked histograms are divided and cumulated
    by `segments`, so many bins each, and are valid if all of them are. `scratch` (n or more, bins)
    and `into` (n, p) spare memory where neither is the case: the values are then in `into`.
    """
    if len(segments) > 1 and normalize:
        stops = np.cumsum(segments)[:-1]
        parts = [share_rows(part, kind) for part in np.split(rows, stops, axis=1)]
        valid = np.logical_and.reduce([part.valid for part in parts])
        joined = np.concatenate([part.values for part in parts], axis=1)
        joined[~valid] = 0
        return Shares(joined, valid, np.full(len(rows), np.nan))
    values = np.empty(rows.shape) if scratch is None else scratch[: len(rows)]
    np.copyto(values, rows, casting="unsafe")
    if not normalize:
        valid = np.logical_and.reduce(np.isfinite(values), axis=1)
        values[~valid] = 0
        return Shares(values, valid, np.full(len(values), np.nan))
    n, n_bins = values.shape
    cumulate = kind == "wasserstein"
    shares = np.empty((n, n_bins - 1 if cumulate else n_bins)) if into is None else into
    valid, whole = np.empty(n, dtype=bool), np.empty(n, dtype=bool)
    totals, exponents = np.empty(n), np.empty(n, dtype=np.int64)
    divide_rows(values, cumulate, shares, valid, whole, totals, exponents)
    with np.errstate(over="ignore"):
        return Shares(shares, valid, np.where(whole, np.ldexp(totals, exponents), np.nan))


@dataclass
class TotalsSeen:
    """Whether all valid rows so far are whole numbers with one common total."""

    lowest: float = field(default=np.inf)
    highest: float = field(default=-np.inf)
    all_whole: bool = True

    def add(self, shares: Shares) -> None:
        """Take in one more block."""
        totals = shares.totals[shares.valid]
        if not totals.size:
            return
        if np.isnan(totals).any():
            self.all_whole = False
            return
        self.lowest = min(self.lowest, float(totals.min()))
        self.highest = max(self.highest, float(totals.max()))

    def join(self, other: TotalsSeen) -> None:
        """Take in what was seen elsewhere."""
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)
        self.all_whole = self.all_whole and other.all_whole

    @property
    def common(self) -> int | None:
        """The total that all rows share, if they do."""
        if self.all_whole and self.lowest == self.highest < LARGEST_DISTANCE:
            return int(self.lowest)
        return None


@dataclass(frozen=True)
class Embedding:
    """How the histograms of one fit become points, and how points become histograms again.

    Parameters
    ----------
    kind : str
        "wasserstein", "l1", "sqeuclidean" or "custom".
    n_bins : int
        Bins of a histogram.
    grid : int
        Grid steps to a probability of 1, for the exact kinds.
    step : float
        Spacing of the bins, in the user's unit: the largest one if they differ.
    ratios : array (n_coords,) or None
        Each spacing as a share of `step`; None if all are equal.
    segments : tuple of int
        Bins of each variable, where histograms are stacked.
    metric : Metric or None
        The user's own metric, for the kind "custom".
    """

    kind: str
    n_bins: int
    grid: int = 1
    step: float = 1.0
    ratios: Float | None = None
    metric: Metric | None = None
    segments: tuple[int, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether points are even integers, and distances exact."""
        return self.kind in EXACT_KINDS

    def place(self, shares: Float) -> Points:
        """Return the points of rows that `share_rows` has prepared."""
        if not self.exact:
            return shares
        points = shares.copy(order="C").view(np.int64)
        self.place_bits(points)
        return points

    def place_bits(self, bits: Int) -> None:
        """Turn shares, given as their bits, into points in the same memory; for exact kinds."""
        ratios = np.empty(0) if self.ratios is None else self.ratios
        place_shares(bits, ratios, float(self.grid))

    def embed(self, rows: NDArray[Any]) -> tuple[Points, NDArray[np.bool_]]:
        """Return the points of raw rows, and which rows are valid."""
        normalize = self.metric is None or self.metric.normalize
        shares = share_rows(rows, self.kind, normalize, self.segments)
        return self.place(shares.values), shares.valid

    def restore(self, points: Points) -> Float:
        """Return the histograms (n, n_bins) of points: `place` and `share_rows` undone."""
        if not self.exact:
            return np.asarray(points, dtype=np.float64)
        shares = points / (2.0 * self.grid)
        if self.kind == "l1":
            return np.asarray(shares)
        if self.ratios is not None:
            shares = shares / self.ratios
        stops = np.cumsum(np.array(self.segments or (self.n_bins,)) - 1)[:-1]
        parts = [self._differences(part) for part in np.split(shares, stops, axis=1)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _differences(self, shares: Float) -> Float:
        if self.ratios is not None:
            # Rounding to the grid can leave two nearly equal cumulative shares out of order.
            shares = np.minimum(np.maximum.accumulate(shares, axis=1), 1.0)
        ends = np.zeros((len(shares), 1)), np.ones((len(shares), 1))
        return np.diff(np.concatenate([ends[0], shares, ends[1]], axis=1), axis=1)

    def in_units(self, distances: NDArray[Any]) -> Float:
        """Return distances between points in the user's unit."""
        if not self.exact:
            return np.asarray(distances, dtype=np.float64)
        step, exponent = self._near_one()
        with np.errstate(over="ignore"):
            return np.ldexp((distances * step) / (2.0 * self.grid), exponent)

    def _near_one(self) -> tuple[float, int]:
        """Return `step` without its power of two, and that power: edges of any size are safe."""
        mantissa, exponent = np.frexp(self.step)
        return float(mantissa), int(exponent)

    def in_grid_steps(self, distance: float) -> Fraction:
        """Return a distance in the user's unit as a distance between points, exactly."""
        return Fraction(distance) * (2 * self.grid) / Fraction(self.step)

    def reach(self, bandwidth: Float) -> Points:
        """Return for each bandwidth the least distance between points that is not below it.

        For grid points this turns ``in_units(d) < bandwidth`` into ``d < reach``, exactly.
        """
        if not self.exact:
            return bandwidth
        step, exponent = self._near_one()
        with np.errstate(over="ignore"):
            target = np.ldexp(bandwidth, -exponent)
            guess = np.minimum(target * (2.0 * self.grid) / step, BEYOND_ALL)
        candidates = np.floor(guess)[..., None] + np.arange(-8.0, 9.0)
        candidates = np.clip(candidates, 1, BEYOND_ALL)
        far_enough = (candidates * step) / (2.0 * self.grid) >= target[..., None]
        far_enough[..., -1] = True
        first = far_enough.argmax(axis=-1)
        return np.take_along_axis(candidates, first[..., None], -1)[..., 0].astype(np.int64)


def make_embedding(
    kind: str, n_bins: int, edges: Float | None, metric: Metric | None, common_total: int | None
) -> Embedding:
    """Choose the grid: as fine as exact sums allow, and a multiple of the counts' common total."""
    segments = segments_of(edges, n_bins)
    if kind not in EXACT_KINDS:
        return Embedding(kind, n_bins, metric=metric, segments=segments)
    bits = 52 - (n_bins - 1).bit_length()
    grid = 1 << bits
    if common_total is not None and common_total <= grid:
        grid = common_total << ((grid // common_total).bit_length() - 1)
    step, ratios = bin_spacing(edges) if kind == "wasserstein" else (1.0, None)
    return Embedding(kind, n_bins, grid, step, ratios, segments=segments)


def make_pulls(embedding: Embedding, weights: Float, bandwidth: Float) -> Points:
    """Return what each sample weighs in a median or mean: w_i / h_i, up to a common factor.

    For exact kinds the pulls are whole numbers whose total fits 62 bits, because half of a total is
    compared with partial sums. Whole weights are multiplied, not scaled, so that a sample of
    weight k pulls exactly like k samples.

    Parameters
    ----------
    weights : array (n,)
    bandwidth : array of shape () or (n,)
    """
    if not embedding.exact:
        return _quotients(weights, bandwidth)
    nearness = bandwidth.min() / bandwidth
    if (weights == np.rint(weights)).all() and weights.sum() < 2.0**52:
        whole = weights.astype(np.int64)
        if bandwidth.ndim == 0:
            return whole
        bits = min(52, 62 - int(whole.sum()).bit_length())
        return whole * _at_least_one(nearness * 2.0**bits)
    heavy = weights * nearness
    bits = min(52, 61 - len(heavy).bit_length())
    return _at_least_one(heavy / heavy.max() * 2.0**bits)


def _quotients(weights: Float, bandwidth: Float) -> Float:
    """Return w_i / h_i, times a power of two where they would leave the range of a float64."""
    mantissa, exponent = np.frexp(weights)
    if bandwidth.ndim:
        divisor, lowered = np.frexp(bandwidth)
        mantissa, exponent = mantissa / divisor, exponent - lowered
    if np.abs(exponent).max() > SAFE_EXPONENT:
        # A pull of zero would be no pull, also where nobody else pulls.
        exponent = np.maximum(exponent - exponent.max(), -2 * SAFE_EXPONENT)
    return np.ldexp(mantissa, exponent)


def _at_least_one(values: Float) -> Int:
    return np.maximum(np.rint(values), 1).astype(np.int64)
