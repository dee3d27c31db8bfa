"""Random problems: rows full of ties, and everything that `fit` can be asked to do with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import oracle
from hypothesis import strategies as st


@dataclass
class Problem:
    """Rows and a bandwidth, and the options of `fit` that the oracle knows too."""

    rows: np.ndarray
    bandwidth: Any
    options: dict[str, Any] = field(default_factory=dict)


@st.composite
def count_rows(draw: st.DrawFn, n: int, q: int) -> np.ndarray:
    """Histograms of one common total."""
    total = draw(st.integers(1, 12))
    bins = st.lists(st.integers(0, q - 1), min_size=total, max_size=total)
    return np.array([np.bincount(draw(bins), minlength=q) for _ in range(n)])


@st.composite
def loose_rows(draw: st.DrawFn, n: int, q: int) -> np.ndarray:
    """Small whole numbers with totals of their own."""
    row = st.lists(st.integers(0, 3), min_size=q, max_size=q).filter(any)
    return np.array([draw(row) for _ in range(n)])


@st.composite
def real_rows(draw: st.DrawFn, n: int, q: int) -> np.ndarray:
    """Frequencies of any size, zeros among them."""
    value = st.one_of(
        st.just(0.0),
        st.floats(1e-3, 1e3),
        st.floats(1e-12, 1.0),
    )
    row = st.lists(value, min_size=q, max_size=q).filter(any)
    return np.array([draw(row) for _ in range(n)])


@st.composite
def plain_rows(draw: st.DrawFn, n: int, q: int) -> np.ndarray:
    """Constant rows and rows with all their mass in one bin."""
    kinds = [draw(st.integers(0, q)) for _ in range(n)]
    return np.array([np.ones(q) if k == q else q * np.eye(q)[k] for k in kinds])


@st.composite
def repeated_rows(draw: st.DrawFn, n: int, q: int) -> np.ndarray:
    """Few different rows, many duplicates."""
    distinct = draw(st.one_of(count_rows(3, q), loose_rows(3, q), real_rows(3, q)))
    return distinct[[draw(st.integers(0, 2)) for _ in range(n)]]


@st.composite
def small_rows(draw: st.DrawFn, max_rows: int = 14, max_bins: int = 8) -> np.ndarray:
    n = draw(st.one_of(st.integers(1, 4), st.integers(5, max_rows)))
    q = draw(st.one_of(st.integers(1, 2), st.integers(3, max_bins)))
    kinds = [count_rows, loose_rows, real_rows, plain_rows, repeated_rows]
    return draw(draw(st.sampled_from(kinds))(n, q))


@st.composite
def crowded_rows(draw: st.DrawFn) -> np.ndarray:
    """Many rows of few counts, drawn by a seeded generator: long paths, and ties everywhere."""
    n, q, total = draw(st.integers(10, 60)), draw(st.integers(2, 12)), draw(st.integers(2, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shapes = rng.dirichlet(np.full(q, draw(st.sampled_from([0.2, 1.0]))), n)
    counts = np.array([rng.multinomial(total, shape) for shape in shapes])
    return counts + rng.integers(0, 2, (n, q)) if draw(st.booleans()) else counts


@st.composite
def large_rows(draw: st.DrawFn) -> np.ndarray:
    """Up to 300 x 300, drawn by a seeded generator: a few bumps with noise, as counts or not."""
    n, q = draw(st.sampled_from([(300, 300), (300, 17), (33, 300), (300, 1), (1, 300), (129, 128)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centres = rng.uniform(0, q, 3)[rng.integers(0, 3, n)] + rng.normal(0, q / 60, n)
    samples = np.clip(rng.normal(centres[:, None], q / 20, (n, 40)), 0, q - 1).astype(int)
    counts = np.array([np.bincount(row, minlength=q) for row in samples])
    kind = draw(st.sampled_from(["counts", "own totals", "frequencies"]))
    if kind == "own totals":
        return counts * rng.integers(1, 4, (n, 1)) + (rng.random((n, q)) < 1 / q)
    return counts if kind == "counts" else counts + rng.random((n, q)) / q


@st.composite
def bin_edges(draw: st.DrawFn, q: int) -> np.ndarray | None:
    """None, equal bins (up to rounding), or unequal ones."""
    kind = draw(st.sampled_from(["none", "none", "equal", "rounded", "unequal"]))
    if kind == "none":
        return None
    if kind == "equal":
        return draw(st.sampled_from([-3.0, 0.0, 10.0])) + 0.25 * np.arange(q + 1)
    if kind == "rounded":
        return 273.15 + 0.1 * np.arange(q + 1)
    if q <= 16:
        widths = [draw(st.sampled_from([0.1, 0.5, 1.0, 2.0, 7.3])) for _ in range(q)]
    else:
        widths = np.linspace(0.3, 2.0, q).tolist()
    return np.cumsum([draw(st.sampled_from([-5.0, 0.0])), *widths])


@st.composite
def sample_weights(draw: st.DrawFn, n: int) -> np.ndarray | None:
    kind = draw(st.sampled_from(["none", "none", "whole", "halves", "real"]))
    if kind == "none":
        return None
    values = {
        "whole": st.integers(1, 5),
        "halves": st.sampled_from([0.5, 1.0, 1.5, 2.0]),
        "real": st.floats(0.01, 100.0),
    }[kind]
    few = [draw(values) for _ in range(min(n, 20))]
    return np.resize(np.array(few), n)


@st.composite
def one_bandwidth(draw: st.DrawFn, distances: np.ndarray) -> float:
    """Most often a distance that occurs, or a neighbour of one; else some other size."""
    positive = np.unique(distances[distances > 0])
    kinds = ["any", "tiny", "huge"]
    if len(positive):
        kinds = ["equal", "equal", "share", "share", "share", "below", "above", *kinds]
    kind = draw(st.sampled_from(kinds))
    if kind in ("tiny", "huge"):
        return draw(st.sampled_from([1e-300, 1e-9] if kind == "tiny" else [1e4, 1e12, 1e300]))
    if kind == "any":
        return draw(st.floats(0.01, 10.0))
    d = float(positive[draw(st.integers(0, len(positive) - 1))])
    return {
        "equal": d,
        "below": float(np.nextafter(d, 0)),
        "above": float(np.nextafter(d, np.inf)),
        "share": d * draw(st.sampled_from([0.5, 0.75, 1.5, 2.0])),
    }[kind]


@st.composite
def bandwidths(draw: st.DrawFn, distances: np.ndarray, n: int) -> float | np.ndarray:
    """One number (more often), or one per sample."""
    if draw(st.sampled_from([True, True, False])):
        return draw(one_bandwidth(distances))
    few = [draw(one_bandwidth(distances)) for _ in range(min(n, 6))]
    return np.resize(np.array(few), n)


@st.composite
def seed_choices(draw: st.DrawFn, rows: np.ndarray) -> Any:
    """ "all", some indices, or histograms: rows, mixtures of rows, and single bins."""
    n, q = rows.shape
    kind = draw(st.sampled_from(["all", "all", "indices", "own"]))
    if kind == "all":
        return "all"
    if kind == "indices":
        chosen = draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
        return np.array(chosen)
    own = []
    for _ in range(draw(st.integers(1, 4))):
        i, j = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
        single = np.eye(q)[draw(st.integers(0, q - 1))]
        own.append(draw(st.sampled_from([rows[i], rows[i] + rows[j], single])))
    return np.array(own, dtype=float)


@st.composite
def problems(
    draw: st.DrawFn,
    metric: str | oracle.Custom,
    rows: st.SearchStrategy[np.ndarray] | None = None,
    *,
    seeds: bool = True,
    valley: bool = True,
) -> Problem:
    """A whole problem; `seeds` and `valley` say whether those options vary too."""
    data = draw(small_rows() if rows is None else rows)
    n, q = data.shape
    edges = draw(bin_edges(q)) if metric == "wasserstein" else None
    space = oracle.make_space(data, 1.0, metric=metric, edges=edges)
    some = range(0, n, max(1, n // 5))
    bandwidth = draw(bandwidths(np.array([space.distances(space.points[i]) for i in some]), n))
    options: dict[str, Any] = {"metric": metric, "edges": edges}
    options["weights"] = draw(sample_weights(n))
    options["seeds"] = draw(seed_choices(data)) if seeds else "all"
    options["valley"] = draw(st.sampled_from([None, None, 0.0, 0.1, 0.5])) if valley else None
    options["min_cluster_size"] = draw(st.sampled_from([1, 1, 2, 3, 4]))
    return Problem(data, bandwidth, options)
