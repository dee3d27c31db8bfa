"""Random cases: full of ties, duplicates and extremes, small enough for the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle

from .case import Case

Rng = np.random.Generator

DTYPES = ("f8", "f8", "f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
SOURCES = ("numpy", "numpy", "dask", "xarray", "zarr2", "zarr3", "sharded")
METRICS = ("wasserstein", "wasserstein", "wasserstein", "l1", "sqeuclidean", "own")


def draw(seed: int, number: int) -> Case:
    """Return the case of a number: the same for every run with this seed."""
    rng = np.random.default_rng([seed, number])
    metric = str(rng.choice(METRICS))
    dtype = _dtype(rng)
    rows = _rows(rng, dtype)
    n, q = rows.shape
    edges = _edges(rng, q) if metric == "wasserstein" and rng.random() < 0.4 else None
    bandwidth = _bandwidth(rng, rows, metric, edges)
    seeds = _seeds(rng, rows)
    return Case(
        rows=rows.tolist(),
        dtype=dtype,
        bandwidth=bandwidth,
        metric=metric,
        edges=edges,
        # The user's own metric is the plain median, which minimises for equal pulls alone.
        weights=_weights(rng, n) if metric != "own" and rng.random() < 0.4 else None,
        seeds=seeds,
        valley=_one(rng, (None, None, None, 0.0, 0.1, 0.5, 0.99)),
        min_cluster_size=_one(rng, (1, 1, 1, 2, 3.5, 1000)),
        holes=_holes(rng, n) if seeds == "all" and dtype[-2] == "f" else (),
        source=str(rng.choice(SOURCES)),
        chunks=(int(rng.integers(1, n + 2)), int(rng.integers(1, q + 2))),
        bins_first=bool(rng.random() < 0.2),
        folded=bool(rng.random() < 0.2),
        block_size=_one(rng, (None, 1, 3, 7, 64)),
        threads=_one(rng, (1, 2, 4)),
        cluster=bool(rng.random() < 0.04),
    )


def _one(rng: Rng, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _dtype(rng: Rng) -> str:
    name = str(rng.choice(DTYPES))
    order = str(rng.choice(["<", "<", ">"]))
    return np.dtype(name).newbyteorder(order).str


def _shape(rng: Rng) -> tuple[int, int]:
    kind = rng.random()
    if kind < 0.1:
        return int(rng.integers(1, 4)), int(rng.integers(1, 4))
    if kind < 0.75:
        return int(rng.integers(2, 25)), int(rng.integers(1, 13))
    if kind < 0.95:
        return int(rng.integers(25, 90)), int(rng.integers(2, 40))
    return int(rng.integers(90, 220)), int(rng.integers(2, 140))


def _rows(rng: Rng, dtype: str) -> np.ndarray:
    """Rows that the dtype holds, as it holds them."""
    n, q = _shape(rng)
    shapes = rng.dirichlet(np.full(q, _one(rng, (0.2, 1.0, 5.0))), n)
    kind = _one(rng, ("counts", "counts", "loose", "real", "single", "bumps", "near"))
    if kind == "counts":
        rows = np.array([rng.multinomial(int(rng.integers(1, 40)), s) for s in shapes[:1]])
        total = int(rows.sum())
        rows = np.array([rng.multinomial(total, s) for s in shapes])
    elif kind == "loose":
        rows = rng.integers(0, 4, (n, q))
    elif kind == "real":
        rows = shapes * 10.0 ** rng.integers(-6, 3, (n, 1)) * (rng.random((n, q)) < 0.8)
    elif kind == "single":
        rows = np.eye(q)[rng.integers(0, q, n)] * rng.integers(1, 4, (n, 1))
    elif kind == "bumps":
        middle = rng.uniform(0, q, 3)[rng.integers(0, 3, n)]
        rows = np.exp(-(((np.arange(q) - middle[:, None]) / (q / 10 + 1)) ** 2)) * 100
        rows = rng.poisson(rows).astype(float)
    else:
        # One unit in the last place apart.
        rows = np.repeat(shapes[:1] + 0.01, n, axis=0)
        at = rng.integers(0, q, n)
        rows[np.arange(n), at] = np.nextafter(rows[np.arange(n), at], rng.integers(0, 2, n) * 9.0)
    if rng.random() < 0.3:
        rows = rows[rng.integers(0, max(1, n // 3), n)]
    rows = np.asarray(rows, dtype=float)
    if np.dtype(dtype).kind in "iub" and kind in ("real", "near"):
        rows = np.rint(rows / rows.max(initial=1e-9) * 100)
    if np.dtype(dtype).kind in "iu":
        rows = np.minimum(rows, np.iinfo(dtype).max)
    kept = rows.astype(dtype).astype(float)
    kept[kept.sum(axis=1) == 0, 0] = 1
    return kept


def _edges(rng: Rng, q: int) -> list[float]:
    kind = _one(rng, ("equal", "rounded", "unequal", "wide", "narrow"))
    start = float(_one(rng, (0.0, -5.0, 273.15)))
    if kind == "equal":
        return (start + 0.25 * np.arange(q + 1)).tolist()
    if kind == "rounded":
        return (start + 0.1 * np.arange(q + 1)).tolist()
    widths = rng.choice([0.1, 0.5, 1.0, 2.0, 7.3], q)
    scale = {"unequal": 1.0, "wide": 1e200, "narrow": 1e-200}[kind]
    return (np.cumsum([0.0, *widths]) * scale).tolist()


def _weights(rng: Rng, n: int) -> list[float]:
    kind = _one(rng, ("whole", "halves", "real", "heavy", "extreme"))
    if kind == "whole":
        return [float(w) for w in rng.integers(1, 6, n)]
    if kind == "halves":
        return [float(w) / 2 for w in rng.integers(1, 6, n)]
    if kind == "heavy":
        return [float(w) * 2.0 ** int(rng.integers(0, 50)) for w in rng.integers(1, 6, n)]
    if kind == "extreme":
        return [10.0 ** float(e) for e in rng.uniform(-250, 250, n)]
    return rng.uniform(0.01, 100, n).tolist()


def _one_bandwidth(rng: Rng, away: np.ndarray) -> float:
    """Most often a distance that occurs, or a float beside one."""
    kind = rng.random()
    if kind < 0.06 or not away.size:
        return float(_one(rng, (1e-300, 1e-9, 1e12, 1e300)))
    if kind < 0.12:
        return float(rng.uniform(0.01, 10))
    d = float(rng.choice(away))
    if kind < 0.35:
        return d
    if kind < 0.5:
        return float(np.nextafter(d, _one(rng, (0.0, np.inf))))
    return d * float(_one(rng, (0.5, 0.75, 1.5, 2.0))) or 1.0


def _bandwidth(
    rng: Rng, rows: np.ndarray, metric: str, edges: list[float] | None
) -> float | list[float]:
    known = "l1" if metric == "own" else metric
    space = oracle.make_space(rows, 1.0, metric=known, edges=edges)
    some = rng.integers(0, len(rows), 5)
    away = np.concatenate([space.distances(space.points[i]) for i in some])
    away = away[away > 0]
    if metric == "own" or rng.random() < 0.7:
        return _one_bandwidth(rng, away)
    few = [_one_bandwidth(rng, away) for _ in range(5)]
    return [few[i] for i in rng.integers(0, 5, len(rows))]


def _seeds(rng: Rng, rows: np.ndarray) -> Any:
    n, q = rows.shape
    kind = _one(rng, ("all", "all", "all", "some", "own"))
    if kind == "all":
        return "all"
    if kind == "some":
        return rng.choice(n, int(rng.integers(1, n + 1)), replace=False).tolist()
    mixed = rows[rng.integers(0, n, 3)] + rows[rng.integers(0, n, 3)]
    return [*mixed.tolist(), *np.eye(q)[rng.integers(0, q, 2)].tolist()]


def _holes(rng: Rng, n: int) -> tuple[int, ...]:
    if rng.random() < 0.8:
        return ()
    return tuple(sorted(int(i) for i in rng.integers(0, n + 1, 2)))
