"""A block of seeds to its modes: pure, runs anywhere.

A step goes from a point to the center of the samples that reach it. The center depends on nothing
but that set of samples, so the walk is a function from points to points: where two walks meet they
stay together, and each point is stepped from once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dshift import kernels
from dshift.errors import InvalidInput
from dshift.field import Field
from dshift.metrics import Embedding, Float, Int, Metric, Points

NO_MODE = -1


@dataclass(frozen=True)
class Climbed:
    """Where a block of seeds ended."""

    modes: Points  # (n_modes, n_coords): each one once
    mode_of_seed: NDArray[np.int64]  # (n_seeds,): a row of `modes`, or NO_MODE
    n_iter: NDArray[np.int32]  # (n_seeds,): steps from the seed to its mode
    seeds: Int  # (n_seeds,): the seeds' own numbers
    n_points: int  # distinct points that were stepped from
    n_pairs: int  # distances that were evaluated for that


def distances(embedding: Embedding, x: Points, points: Points) -> Points:
    """Return the distance (n,) from the point `x` to each of `points` (n, n_coords)."""
    if embedding.metric is not None:
        return _own_distances(embedding.metric, x, points)
    out = np.empty(len(points), dtype=points.dtype)
    measure = kernels.l1_distances if embedding.exact else kernels.squared_distances
    measure(x, points, out)
    return out


def step(field: Field, x: Points) -> Points | None:
    """Return the next point after `x`, or None where no sample reaches `x`."""
    active = np.flatnonzero(distances(field.embedding, x, field.points) < field.reach)
    if not active.size:
        return None
    metric = field.embedding.metric
    if metric is not None:
        return _own_center(metric, field.points[active], field.pulls[active])
    center = np.empty_like(x)
    combine = kernels.weighted_medians if field.embedding.exact else kernels.means
    combine(field.points, active, field.pulls, center)
    return center


def density(field: Field, x: Points) -> float:
    """Return the density at `x`: the sum of weight * (1 - distance / bandwidth) over the active.

    The order of the samples does not matter: exact geometries with one bandwidth add whole numbers
    and round once, so that equal densities are equal floats; the others add with `math.fsum`.
    """
    away = distances(field.embedding, x, field.points)
    if field.embedding.exact and field.weight_of_pull is not None:
        limbs, pull = kernels.density_limbs(away, field.reach, field.pulls)
        slope = field.embedding.in_grid_steps(float(field.bandwidth[0]))
        return float(field.weight_of_pull * (int(pull) - kernels.join_limbs(limbs) / slope))
    active = np.flatnonzero(away < field.reach)
    shares = field.embedding.in_units(away[active]) / field.bandwidth[active]
    return math.fsum(field.weights[active] * (1 - shares))


def _own_distances(metric: Metric, x: Float, points: Float) -> Float:
    found = np.asarray(metric.distance(x, points), dtype=np.float64)
    if found.shape != (len(points),) or np.isnan(found).any():
        raise InvalidInput(
            f"the distance of metric {metric.name!r} returned shape {found.shape} with "
            f"{int(np.isnan(found).sum())} NaN; it must return one number for each of the "
            f"{len(points)} rows: shape ({len(points)},)."
        )
    return found


def _own_center(metric: Metric, rows: Float, pulls: Float) -> Float:
    found = np.asarray(metric.center(rows, pulls), dtype=np.float64)
    if found.shape != rows.shape[1:] or not np.isfinite(found).all():
        raise InvalidInput(
            f"the center of metric {metric.name!r} returned {found!r}; it must return a finite "
            f"point of shape {rows.shape[1:]}."
        )
    # -0.0 and 0.0 are one point, but not the same bytes.
    return found + 0.0


def climb(field: Field, points: Points, seeds: Int) -> Climbed:
    """Walk from each point (n_seeds, n_coords) to where it stays; `seeds` are their numbers."""
    walk = _Walk(field)
    ends = [walk.end_of(seed) for seed in points]
    modes = np.array(walk.modes, dtype=field.points.dtype).reshape(
        len(walk.modes), field.points.shape[1]
    )
    found = np.array(ends, dtype=np.int64).reshape(-1, 2)
    return Climbed(
        modes,
        found[:, 0],
        found[:, 1].astype(np.int32),
        seeds,
        walk.n_steps,
        walk.n_steps * len(field.points),
    )


class _Walk:
    """All walks of a block: what is known of each point that was stepped from."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.modes: list[Points] = []
        self.known: dict[bytes, tuple[int, int]] = {}  # point -> (mode, steps to it)
        self.unreached: set[bytes] = set()  # points that no sample reaches
        self.n_steps = 0

    def end_of(self, seed: Points) -> tuple[int, int]:
        """Return mode and number of steps of a seed; NO_MODE where no sample reaches the seed.

        A walk may end at such a point all the same, if a center does not minimise: it is a mode
        for that walk, and none for a seed, whichever comes first.
        """
        if seed.tobytes() in self.unreached:
            return NO_MODE, 0
        path: list[Points] = []
        on_path: dict[bytes, int] = {}
        x = seed
        while x.tobytes() not in self.known:
            on_path[x.tobytes()] = len(path)
            path.append(x)
            onward = step(self.field, x)
            self.n_steps += 1
            if onward is None:
                self.unreached.add(x.tobytes())
                if x is seed:
                    return NO_MODE, 0
            if onward is None or onward.tobytes() == x.tobytes():
                self._add_mode(x)
            elif onward.tobytes() in on_path:
                path = self._close_cycle(path, on_path[onward.tobytes()])
                x = path[-1]
            else:
                x = onward
        mode, steps = self.known[x.tobytes()]
        for back, point in enumerate(reversed(path)):
            ahead = back if path[-1] is x else back + 1
            self.known.setdefault(point.tobytes(), (mode, steps + ahead))
        return self.known[seed.tobytes()]

    def _add_mode(self, x: Points) -> None:
        self.known[x.tobytes()] = (len(self.modes), 0)
        self.modes.append(x)

    def _close_cycle(self, path: list[Points], start: int) -> list[Points]:
        """End at the cycle's member of highest density, ties by its values.

        Exact arithmetic has no cycles (the density would have to rise all the way round), so this
        is for rounding in means and for the user's own metrics. Returns the path up to that member.
        """
        cycle = path[start:]
        best = min(range(len(cycle)), key=lambda i: (-density(self.field, cycle[i]), *cycle[i]))
        self._add_mode(cycle[best])
        mode, _ = self.known[cycle[best].tobytes()]
        for i, point in enumerate(cycle):
            self.known[point.tobytes()] = (mode, (best - i) % len(cycle))
        return path[: start + best + 1]
