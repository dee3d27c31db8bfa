"""Every fast path against the slow one: the index, the groups and the memo change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dshift import crowd, index, shift
from dshift.field import Field
from dshift.metrics import make_embedding
from dshift.visited import Memo


def make_test_field(points: np.ndarray, reach: np.ndarray, pulls: np.ndarray) -> Field:
    """A field of even integer points, as `make_field` would give."""
    return Field(
        embedding=make_embedding("l1", max(points.shape[1], 1), None, None, None),
        points=points,
        weights=pulls.astype(np.float64),
        bandwidth=reach.astype(np.float64),
        reach=reach,
        pulls=pulls,
        weight_of_pull=None,
    )


@st.composite
def fields(draw: st.DrawFn, most_rows: int = 200, most_columns: int = 12) -> tuple[Field, Any]:
    """Points with ties, duplicates and outliers; reaches from nothing to everything; any pulls."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, p = draw(st.integers(1, most_rows)), draw(st.integers(0, most_columns))
    width = draw(st.sampled_from([1, 3, 100, 2**16, 2**20, 2**44]))
    points = 2 * rng.integers(0, width, (n, p), endpoint=True)
    if draw(st.booleans()):  # duplicates, near and far clumps
        points = points[rng.integers(0, max(1, n // 3), n)]
        points = points + 2 * rng.integers(0, draw(st.integers(1, 3)), (n, p))
    if draw(st.booleans()) and n > 2:  # one outlier stretches the codes' unit
        points[0] += 2 * draw(st.sampled_from([10, 2**30]))
    typical = np.abs(points - points[rng.integers(n)]).sum(axis=1)
    scale = draw(st.sampled_from([0.1, 0.5, 1, 1.5, 10]))
    reach = np.full(n, max(1, int(np.median(typical) * scale)), dtype=np.int64)
    if draw(st.booleans()):  # exactly a distance that occurs
        reach[:] = max(1, int(typical[rng.integers(n)]))
    if draw(st.booleans()):
        reach = np.maximum(1, (reach * rng.uniform(0.2, 2, n)).astype(np.int64))
    pulls = np.ones(n, dtype=np.int64)
    if draw(st.booleans()):
        pulls = rng.integers(1, draw(st.sampled_from([3, 2**53])), n)
    return make_test_field(np.ascontiguousarray(points), reach, pulls), rng


def slow(field: Field, points: np.ndarray) -> list[Any]:
    climbed = shift.climb(field, points, np.arange(len(points)))
    ends = [None if m == -1 else climbed.modes[m].tobytes() for m in climbed.mode_of_seed]
    # The fast walk leaves a point that nobody reaches where it is.
    return [
        (points[i].tobytes() if end is None else end, n)
        for i, (end, n) in enumerate(zip(ends, climbed.n_iter.tolist(), strict=True))
    ]


def fast(field: Field, points: np.ndarray, memo: Memo | None = None) -> list[Any]:
    built = index.build_index(field)
    climbed = crowd.climb_together(built, points, np.arange(len(points)), memo)
    ends = [climbed.modes[m].tobytes() for m in climbed.mode_of_seed]
    return list(zip(ends, climbed.n_iter.tolist(), strict=True))


@given(fields())
def test_the_index_changes_no_bit(drawn: tuple[Field, Any]) -> None:
    field, rng = drawn
    own = field.points[rng.integers(0, len(field.points), 20)]
    strange = own + rng.integers(-3, 4, own.shape)  # odd, and outside of the codes' range
    far = own + 2**45
    for points in (field.points, strange, far):
        assert fast(field, points) == slow(field, points)
