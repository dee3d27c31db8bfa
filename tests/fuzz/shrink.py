"""The smallest case that still fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from .case import Case

PLAIN = {f.name: f.default for f in fields(Case) if f.name not in ("rows", "dtype", "bandwidth")}


def shrink(case: Case, failure: Callable[[Case], str | None], seconds: float = 60) -> Case:
    """Return a case of the same failure from which nothing more can be taken away.

    Parameters
    ----------
    failure : callable
        The kind of failure of a case, or None if it passes.
    seconds : float
        Of this process's own time, however busy the machine is, after which what was reached is
        enough.
    """
    kind, deadline = failure(case), time.process_time() + seconds
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(case):
            if time.process_time() > deadline:
                return case
            if failure(smaller) == kind:
                case, progress = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for name, default in PLAIN.items():
        if name != "metric" and getattr(case, name) != default:
            yield replace(case, **{name: default})
    if case.dtype != "<f8":
        yield replace(case, dtype="<f8")
    if not isinstance(case.bandwidth, float):
        for bandwidth in sorted(set(case.bandwidth)):
            yield replace(case, bandwidth=bandwidth)
    for kept in _subsets(len(case.rows)):
        yield _with_rows(case, kept)
    if case.edges is None and np.ndim(case.seeds) < 2:
        for kept in _subsets(len(case.rows[0])):
            rows = [[row[k] for k in kept] for row in case.rows]
            if all(any(row) for row in rows):
                yield replace(case, rows=rows)
    yield from _plainer_numbers(case)


def _subsets(n: int) -> Iterator[list[int]]:
    """All but a half, then all but a quarter, ... then all but one."""
    size = n // 2
    while size:
        for start in range(0, n, size):
            kept = [i for i in range(n) if not start <= i < start + size]
            if kept:
                yield kept
        size //= 2


def _with_rows(case: Case, kept: list[int]) -> Case:
    change: dict[str, Any] = {"rows": [case.rows[i] for i in kept]}
    for name in ("weights", "bandwidth"):
        if isinstance(values := getattr(case, name), list):
            change[name] = [values[i] for i in kept]
    if isinstance(case.seeds, list) and np.ndim(case.seeds) == 1:
        place = {old: new for new, old in enumerate(kept)}
        change["seeds"] = [place[i] for i in case.seeds if i in place] or "all"
    if case.holes:
        change["holes"] = tuple(min(hole, len(kept)) for hole in case.holes)
    return replace(case, **change)


def _plainer_numbers(case: Case) -> Iterator[Case]:
    rounded = np.rint(np.array(case.rows))
    if (rounded.sum(axis=1) > 0).all() and rounded.tolist() != case.rows:
        yield replace(case, rows=rounded.tolist())
    if case.weights is not None:
        whole = [max(1.0, float(round(w))) for w in case.weights]
        if whole != case.weights:
            yield replace(case, weights=whole)
    if isinstance(case.bandwidth, float) and case.bandwidth != round(case.bandwidth, 2) > 0:
        yield replace(case, bandwidth=round(case.bandwidth, 2))
