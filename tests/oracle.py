"""The slow, obvious fit: what `dshift.fit` must equal.

Plain NumPy and Python integers, one seed at a time, every distance at every step, and no memory of
earlier steps. Nothing here is shared with the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

Point = np.ndarray


# --------------------------------------------------------------------------------------------------
# weights and bandwidths


def ordered_sum(values: np.ndarray) -> float:
    """Left to right: `sum` (from Python 3.12) and `np.sum` add floats in orders of their own."""
    total = 0.0
    for value in values.tolist():
        total += value
    return total


def is_integer_valued(values: np.ndarray) -> bool:
    return bool(np.all(values == np.rint(values)))


def integer_pulls(weights: np.ndarray, bandwidths: np.ndarray, scalar: bool) -> list[int]:
    """The integers that stand for w_i / h_i in the weighted median."""
    h_min = bandwidths.min()
    if is_integer_valued(weights) and sum(map(int, weights)) < 2**52:
        whole = [int(w) for w in weights]
        if scalar:
            return whole
        e = min(52, 62 - sum(whole).bit_length())
        return [
            w * max(1, int(np.rint(h_min / h * 2.0**e)))
            for w, h in zip(whole, bandwidths, strict=True)
        ]
    v = weights if scalar else weights * (h_min / bandwidths)
    e = min(52, 61 - len(weights).bit_length())
    return [max(1, int(np.rint(x / v.max() * 2.0**e))) for x in v]


def weighted_medians(values: np.ndarray, pulls: np.ndarray) -> np.ndarray:
    """For each column of even integers, the midpoint of the lower and the upper weighted median."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered = np.take_along_axis(values, order, axis=0)
    below = np.cumsum(pulls[order], axis=0)
    lower = np.argmax(2 * below >= pulls.sum(), axis=0)
    upper = np.argmax(2 * below > pulls.sum(), axis=0)
    columns = np.arange(values.shape[1])
    return (ordered[lower, columns] + ordered[upper, columns]) // 2


# --------------------------------------------------------------------------------------------------
# geometries: each knows coordinates, distances, centres, densities


class Space:
    """Samples in the coordinates of their geometry, with weights and bandwidths.

    `weights` and `bandwidths` have one entry per sample; `scalar` says that the bandwidth was given
    as one number.
    """

    points: np.ndarray

    def __init__(self, n: int, bandwidth: Any, weights: Any) -> None:
        self.scalar = np.ndim(bandwidth) == 0
        self.bandwidths = np.broadcast_to(np.asarray(bandwidth, dtype=np.float64), (n,))
        self.weights = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)

    def embed(self, rows: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def restore(self, point: Point) -> np.ndarray:
        raise NotImplementedError

    def separation(self, x: Point, y: Point) -> Any:
        """Distance in the geometry's own units: the one in which two distances are compared."""
        raise NotImplementedError

    def in_units(self, separation: Any) -> float:
        """Distance in the user's units: the one that is compared with the bandwidth."""
        return float(separation)

    def center(self, active: np.ndarray) -> Point:
        raise NotImplementedError

    def between(self, a: Point, b: Point, j: int) -> Point:
        return a + (b - a) * (j / 10)

    def separations(self, x: Point) -> list[Any]:
        return [self.separation(x, y) for y in self.points]

    def distances(self, x: Point) -> np.ndarray:
        return np.array([self.in_units(s) for s in self.separations(x)])

    def active(self, x: Point) -> np.ndarray:
        """Indices of the samples strictly nearer than their bandwidth."""
        return np.flatnonzero(self.distances(x) < self.bandwidths)

    def density(self, x: Point) -> Any:
        """f(x), by the samples' order."""
        d = self.distances(x)
        f = 0.0
        for i in self.active(x):
            f += self.weights[i] * (1 - d[i] / self.bandwidths[i])
        return f


class GridSpace(Space):
    """Integer coordinates in which the distance is a plain sum of absolute differences."""

    def __init__(self, rows: np.ndarray, bandwidth: Any, weights: Any) -> None:
        super().__init__(len(rows), bandwidth, weights)
        self.step = 1.0
        totals = np.cumsum(rows, axis=1)[:, -1]
        bits = 52 - (rows.shape[1] - 1).bit_length()
        self.grid = 2**bits
        if is_integer_valued(rows) and len(set(totals)) == 1 and totals[0] <= 2**bits:
            self.grid = int(totals[0])
            while self.grid * 2 <= 2**bits:
                self.grid *= 2
        self.pulls = integer_pulls(self.weights, self.bandwidths, self.scalar)

    def snap(self, fractions: np.ndarray) -> np.ndarray:
        return 2 * np.rint(fractions * float(self.grid)).astype(np.int64)

    def separations(self, x: Point) -> list[int]:
        return np.abs(x - self.points).sum(axis=1).tolist()

    def separation(self, x: Point, y: Point) -> int:
        return int(np.abs(x - y).sum())

    def in_units(self, separation: int) -> float:
        return float(separation) * self.step / (2 * self.grid)

    def center(self, active: np.ndarray) -> Point:
        pulls = np.array([self.pulls[i] for i in active])
        if len(set(pulls.tolist())) == 1:
            return np.median(self.points[active], axis=0).astype(np.int64)
        return weighted_medians(self.points[active], pulls)

    def between(self, a: Point, b: Point, j: int) -> Point:
        return a + ((b - a) * j) // 10

    def density(self, x: Point) -> Fraction:
        """f(x) without rounding."""
        separations = self.separations(x)
        weights = [int(w) if w == int(w) else Fraction(w) for w in self.weights.tolist()]
        f = Fraction(0)
        active = self.active(x)
        for h in set(self.bandwidths[active].tolist()):
            same_h = [i for i in active if self.bandwidths[i] == h]
            mass = sum(weights[i] for i in same_h)
            moment = sum(weights[i] * separations[i] for i in same_h)
            f += mass - moment * Fraction(self.step) / (2 * self.grid) / Fraction(h)
        return f

    def reach(self, bandwidth: float) -> int:
        """The smallest grid distance that is not below the bandwidth."""
        low, high = 0, 2**60
        while low < high:
            middle = (low + high) // 2
            if self.in_units(middle) < bandwidth:
                low = middle + 1
            else:
                high = middle
        return low

    def reaches(self) -> list[int]:
        found = {h: self.reach(h) for h in set(self.bandwidths.tolist())}
        return [found[h] for h in self.bandwidths.tolist()]

    def potential(self, x: Point) -> int:
        """sum_i W_i * max(H_i - D_i, 0): f up to the rounding of h_i and w_i / h_i to integers.

        It is the function that the integer iteration climbs, so it never decreases, to the bit.
        """
        return sum(
            pull * max(reach - separation, 0)
            for pull, reach, separation in zip(
                self.pulls, self.reaches(), self.separations(x), strict=True
            )
        )


class WassersteinSpace(GridSpace):
    def __init__(self, rows: np.ndarray, bandwidth: Any, weights: Any, edges: Any) -> None:
        super().__init__(rows, bandwidth, weights)
        self.ratio = np.ones(rows.shape[1] - 1)
        if edges is not None and rows.shape[1] > 1:
            edges = np.asarray(edges, dtype=np.float64)
            centres = (edges[:-1] + edges[1:]) / 2
            spacing = np.diff(centres)
            mean = (centres[-1] - centres[0]) / len(spacing)
            if np.abs(spacing - mean).max() <= 4 * np.finfo(float).eps * np.abs(edges).max():
                self.step = float(mean)
            else:
                self.step = float(spacing.max())
                self.ratio = spacing / self.step
        self.points = self.embed(rows)

    def embed(self, rows: np.ndarray) -> np.ndarray:
        cumulative = np.cumsum(rows, axis=1)
        cdfs = cumulative / cumulative[:, -1:]
        return self.snap(cdfs[:, :-1] * self.ratio)

    def restore(self, point: Point) -> np.ndarray:
        cdf = np.append(point / (2 * self.grid) / self.ratio, 1.0)
        cdf = np.maximum.accumulate(np.clip(cdf, 0.0, 1.0))
        return np.diff(cdf, prepend=0.0)


class L1Space(GridSpace):
    def __init__(self, rows: np.ndarray, bandwidth: Any, weights: Any) -> None:
        super().__init__(rows, bandwidth, weights)
        self.points = self.embed(rows)

    def embed(self, rows: np.ndarray) -> np.ndarray:
        return self.snap(rows / np.cumsum(rows, axis=1)[:, -1:])

    def restore(self, point: Point) -> np.ndarray:
        return point / (2 * self.grid)


class MeanSpace(Space):
    def __init__(self, rows: np.ndarray, bandwidth: Any, weights: Any) -> None:
        super().__init__(len(rows), bandwidth, weights)
        self.points = self.embed(rows)

    def embed(self, rows: np.ndarray) -> np.ndarray:
        return rows / np.cumsum(rows, axis=1)[:, -1:]

    def restore(self, point: Point) -> np.ndarray:
        return point

    def separation(self, x: Point, y: Point) -> float:
        return float(np.add.accumulate((x - y) ** 2)[-1])

    def separations(self, x: Point) -> list[float]:
        return np.add.accumulate((x - self.points) ** 2, axis=1)[:, -1].tolist()

    def pull(self) -> np.ndarray:
        """w_i / h_i; where that leaves the range of floats, relative to the largest power of two.

        A ratio below 2**-900 is raised to about that.
        """
        with np.errstate(over="ignore", under="ignore"):
            quotients = self.weights if self.scalar else self.weights / self.bandwidths
        if quotients.min() > 2.0**-400 and quotients.max() < 2.0**400:
            return quotients
        parts = [
            (np.frexp(w), (1.0, 0) if self.scalar else np.frexp(h))
            for w, h in zip(self.weights, self.bandwidths, strict=True)
        ]
        powers = [int(w[1]) - int(h[1]) for w, h in parts]
        if max(map(abs, powers)) <= 450:
            return quotients
        return np.array(
            [
                w[0] / h[0] * 2.0 ** max(power - max(powers), -900)
                for (w, h), power in zip(parts, powers, strict=True)
            ]
        )

    def center(self, active: np.ndarray) -> Point:
        omega = self.pull()
        top, bottom = np.zeros(self.points.shape[1]), 0.0
        for i in active:
            top += omega[i] * self.points[i]
            bottom += omega[i]
        return top / bottom


@dataclass(frozen=True)
class Custom:
    """A metric of the user: `distance(x, Y) -> (n,)` and `center(Y, weights) -> (q,)`."""

    distance: Callable[[np.ndarray, np.ndarray], np.ndarray]
    center: Callable[[np.ndarray, np.ndarray], np.ndarray]
    normalize: bool = True


class CustomSpace(MeanSpace):
    def __init__(self, rows: np.ndarray, bandwidth: Any, weights: Any, metric: Custom) -> None:
        self.metric = metric
        super().__init__(rows, bandwidth, weights)

    def embed(self, rows: np.ndarray) -> np.ndarray:
        return super().embed(rows) if self.metric.normalize else rows

    def separation(self, x: Point, y: Point) -> float:
        return float(self.metric.distance(x, y[np.newaxis])[0])

    def separations(self, x: Point) -> list[float]:
        return self.metric.distance(x, self.points).tolist()

    def center(self, active: np.ndarray) -> Point:
        return np.asarray(self.metric.center(self.points[active], self.pull()[active]), dtype=float)


def make_space(
    rows: Any,
    bandwidth: Any,
    *,
    metric: str | Custom = "wasserstein",
    edges: Any = None,
    weights: Any = None,
) -> Space:
    rows = np.asarray(rows, dtype=np.float64)
    if isinstance(metric, Custom):
        return CustomSpace(rows, bandwidth, weights, metric)
    if metric == "wasserstein":
        return WassersteinSpace(rows, bandwidth, weights, edges)
    if metric == "l1":
        return L1Space(rows, bandwidth, weights)
    return MeanSpace(rows, bandwidth, weights)


# --------------------------------------------------------------------------------------------------
# the iteration


def next_point(space: Space, x: Point) -> Point | None:
    """One step from x; None if no sample is near enough."""
    active = space.active(x)
    return space.center(active) if len(active) else None


def is_stationary(space: Space, x: Point) -> bool:
    """Does x stay? A point that no sample reaches does."""
    following = next_point(space, x)
    return following is None or np.array_equal(following, x)


def trajectory(space: Space, start: Point) -> list[Point]:
    """From `start` to its mode, both included; empty if `start` sees no sample.

    A center that sees no sample (which a center that minimises cannot be) stays where it is.
    A point that returns after others closes a cycle (possible only where a center is rounded): the
    path then ends at the cycle's member of highest density, ties by the smallest values.
    """
    path = [start]
    while True:
        following = next_point(space, path[-1])
        if following is None:
            return path if len(path) > 1 else []
        seen = [j for j, x in enumerate(path) if np.array_equal(x, following)]
        if seen:
            cycle = range(seen[0], len(path))
            end = min(cycle, key=lambda j: (-space.density(path[j]), tuple(path[j].tolist())))
            return path[: end + 1]
        path.append(following)


# --------------------------------------------------------------------------------------------------
# the fit


@dataclass
class OracleFit:
    """What `fit` must return. `seed_*` belong to seeds given as histograms of their own."""

    space: Space
    coordinates: list[tuple[Any, ...]]
    modes: np.ndarray
    density: list[Any]  # Fractions where the geometry is exact
    size: np.ndarray
    cluster_of_mode: np.ndarray
    mode_index: np.ndarray
    labels: np.ndarray
    n_iter: np.ndarray
    is_seed: np.ndarray
    seed_mode_index: np.ndarray | None
    seed_labels: np.ndarray | None
    seed_n_iter: np.ndarray | None
    all_seeds_stationary: bool
    close_calls: list[str]  # decisions that hang on the rounding of a density or of a size


TOLERANCE = 1e-10


def is_close_call(space: Space, a: Any, b: Any) -> bool:
    """Do these sizes or densities differ by no more than rounding may, so that either may win?

    Sums of integers with one bandwidth are exact, so there equal is equal.
    """
    near = abs(float(a) - float(b)) <= TOLERANCE * float(space.weights.sum())
    exact = isinstance(space, GridSpace) and space.scalar and is_integer_valued(space.weights)
    return near and not (exact and a == b)


def is_close_order(space: Space, a: tuple[float, Any], b: tuple[float, Any]) -> bool:
    """The same for (size, density)."""
    return is_close_call(space, a[0], b[0]) if a[0] != b[0] else is_close_call(space, a[1], b[1])


def nearest_mode(
    space: Space, x: Point, modes: list[Point], density: list[Any]
) -> tuple[int, list[str]]:
    """The nearest mode, ties to the denser, then to the smaller values; and close calls."""
    keys = [
        (space.separation(x, mode), -f, tuple(mode.tolist()))
        for mode, f in zip(modes, density, strict=True)
    ]
    best = keys.index(min(keys))
    rivals = [k for k in keys if k[0] == keys[best][0] and k[2] != keys[best][2]]
    close = any(is_close_call(space, k[1], keys[best][1]) for k in rivals)
    return best, ["nearest mode"] if close else []


def merge_valleys(
    space: Space, modes: list[Point], density: list[Any], valley: float
) -> tuple[list[int], list[str]]:
    """A component number per mode, and the pairs whose joining hangs on rounding."""
    component = list(range(len(modes)))
    close_calls = []
    by_coordinates = sorted(range(len(modes)), key=lambda m: tuple(modes[m].tolist()))
    for rank, a in enumerate(by_coordinates):
        for b in by_coordinates[rank + 1 :]:
            d = space.in_units(space.separation(modes[a], modes[b]))
            if not d < 2 * space.bandwidths.max():
                continue
            between = [space.between(modes[a], modes[b], j) for j in range(1, 10)]
            lowest = min(space.density(x) for x in between)
            needed = Fraction(1 - valley) * min(density[a], density[b])
            if is_close_call(space, lowest, needed):
                close_calls.append("valley")
            if lowest >= needed:
                old, new = component[b], component[a]
                component = [new if c == old else c for c in component]
    return component, close_calls


def fit_oracle(
    rows: Any,
    bandwidth: Any,
    *,
    metric: str | Custom = "wasserstein",
    edges: Any = None,
    weights: Any = None,
    seeds: Any = "all",
    valley: float | None = None,
    min_cluster_size: float = 1,
) -> OracleFit:
    """Cluster `rows`; `seeds` is "all", a list of row indices, or a 2-D array of histograms."""
    space = make_space(rows, bandwidth, metric=metric, edges=edges, weights=weights)
    n, n_bins = np.shape(rows)
    own_seeds = not isinstance(seeds, str) and np.ndim(seeds) == 2
    if own_seeds:
        seed_rows = np.array([], dtype=int)
        starts = space.embed(np.asarray(seeds, dtype=np.float64))
    else:
        seed_rows = np.arange(n) if isinstance(seeds, str) else np.asarray(seeds, dtype=int)
        starts = space.points[seed_rows]

    # every seed to its mode
    paths = [trajectory(space, start) for start in starts]
    ends = [tuple(path[-1].tolist()) if path else None for path in paths]
    found = sorted({end for end in ends if end is not None})
    points = [np.array(end, dtype=space.points.dtype) for end in found]
    density = [space.density(x) for x in points]

    # every sample to a mode
    mode_index = np.full(n, -1)
    n_iter = np.full(n, -1)
    close_calls = []
    for i in range(n):
        if i in seed_rows:
            s = int(np.flatnonzero(seed_rows == i)[0])
            mode_index[i] = found.index(ends[s])
            n_iter[i] = len(paths[s]) - 1
        elif found:
            mode_index[i], calls = nearest_mode(space, space.points[i], points, density)
            close_calls += calls
    size = [ordered_sum(space.weights[mode_index == m]) for m in range(len(found))]

    # order the modes: size, density, coordinates
    order = sorted(range(len(found)), key=lambda m: (-size[m], -density[m], found[m]))
    rank = np.full(len(found) + 1, -1)
    rank[order] = np.arange(len(found))
    mode_index = rank[mode_index]
    found = [found[m] for m in order]
    points = [points[m] for m in order]
    density = [density[m] for m in order]
    size = [size[m] for m in order]
    for m in range(1, len(found)):
        if is_close_order(space, (size[m - 1], density[m - 1]), (size[m], density[m])):
            close_calls.append("order of modes")

    # clusters
    component = list(range(len(found)))
    if valley is not None:
        component, calls = merge_valleys(space, points, density, valley)
        close_calls += calls
    clusters = []
    for c in set(component):
        members = [m for m in range(len(found)) if component[m] == c]
        peak = min(members, key=lambda m: (-density[m], found[m]))
        total = ordered_sum(np.array([size[m] for m in members]))
        clusters.append((-total, -density[peak], found[peak], members))
    clusters.sort()
    for a, b in itertools.pairwise(clusters):
        if is_close_order(space, a[:2], b[:2]):
            close_calls.append("order of clusters")
    cluster_of_mode = np.full(len(found), -1)
    for label, (minus_size, _, _, members) in enumerate(clusters):
        near = abs(-minus_size - min_cluster_size) <= TOLERANCE * float(space.weights.sum())
        if near and not is_integer_valued(space.weights):
            close_calls.append("smallest cluster")
        if min_cluster_size <= 1 or -minus_size >= min_cluster_size:
            cluster_of_mode[members] = label

    def labels_of(index: np.ndarray) -> np.ndarray:
        return np.append(cluster_of_mode, -1)[index]

    seed_mode_index = seed_labels = seed_n_iter = None
    if own_seeds:
        seed_mode_index = np.array([-1 if e is None else found.index(e) for e in ends], dtype=int)
        seed_labels = labels_of(seed_mode_index)
        seed_n_iter = np.array([len(path) - 1 for path in paths])
    return OracleFit(
        space=space,
        coordinates=found,
        modes=np.array([space.restore(x) for x in points]).reshape(len(points), n_bins),
        density=density,
        size=np.array(size, dtype=float),
        cluster_of_mode=cluster_of_mode,
        mode_index=mode_index,
        labels=labels_of(mode_index),
        n_iter=n_iter,
        is_seed=np.isin(np.arange(n), seed_rows),
        seed_mode_index=seed_mode_index,
        seed_labels=seed_labels,
        seed_n_iter=seed_n_iter,
        all_seeds_stationary=all(is_stationary(space, x) for x in points),
        close_calls=close_calls,
    )
