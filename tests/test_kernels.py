"""The plain compiled loops, compiled and as Python, against NumPy and exact whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dshift import kernels


def both(kernel: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return kernel, kernel.py_func


EVEN = st.integers(-20, 20).map(lambda value: 2 * value)


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 9), st.integers(0, 4)), elements=EVEN),
    st.data(),
)
def test_kernels_do_what_numpy_does(points: np.ndarray, data: st.DataObject) -> None:
    n, p = points.shape
    x = data.draw(hnp.arrays(np.int64, p, elements=EVEN))
    active = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True)))
    active.sort()
    pulls = data.draw(hnp.arrays(np.int64, n, elements=st.integers(1, 4)))
    copies = np.repeat(points[active], pulls[active], axis=0)
    for measure in both(kernels.l1_distances):
        found = np.full(n, -1, np.int64)
        measure(x, points, found)
        np.testing.assert_array_equal(found, np.abs(points - x).sum(axis=1))
    for measure in both(kernels.squared_distances):
        apart = np.full(n, -1.0)
        measure(x.astype(float), points.astype(float), apart)
        np.testing.assert_array_equal(apart, ((points - x) ** 2).sum(axis=1))
    for combine in both(kernels.weighted_medians):
        found = np.full(p, -1, np.int64)
        combine(points, active, pulls, found)
        np.testing.assert_array_equal(found, np.median(copies, axis=0))
    for combine in both(kernels.means):
        center = np.full(p, -1.0)
        combine(points.astype(float), active, pulls.astype(float), center)
        np.testing.assert_allclose(center, copies.mean(axis=0), rtol=1e-13, atol=1e-13)


@given(
    hnp.arrays(np.int64, 12, elements=st.integers(0, 2**53)),
    hnp.arrays(np.int64, 12, elements=st.integers(1, 2**53)),
    hnp.arrays(np.int64, 12, elements=st.integers(1, 2**58)),
)
def test_density_limbs_are_exact(away: np.ndarray, reach: np.ndarray, pulls: np.ndarray) -> None:
    active = [(int(d), int(p)) for d, r, p in zip(away, reach, pulls, strict=True) if d < r]
    for density_limbs in (kernels.density_limbs, kernels.density_limbs.py_func):
        limbs, height = density_limbs(away, reach, pulls)
        assert kernels.join_limbs(limbs) == sum(d * p for d, p in active)
        assert height == sum(p for _, p in active)
