"""The loops that count, each by itself: in the suite compiled, under coverage as Python too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dshift.count_kernels import BUFFERED, extent, held_rows, mark_labels, search_bins, span_of
from dshift.counting import count_block, make_finder
from dshift.rows import _count_piece

# Equal widths; widths that a lookup tells apart; and some that it does not.
EDGES = {
    "cells": np.linspace(0, 2, 9),
    "lookup": np.array([-2, -1.5, 0.1, 0.2, 2]),
    "search": np.array([-2, 0, 1e-300, 2e-300, 1, 1e300]),
}
COUNTS = np.dtype(np.int64)


@pytest.fixture(autouse=True)
def _as_compiled() -> Iterator[None]:
    """Compiled code says nothing of what overflows."""
    with np.errstate(all="ignore"):
        yield


def values(*shape: int) -> np.ndarray:
    """Values on edges, between and beyond them, and none at all."""
    pool = [*EDGES["cells"], *EDGES["lookup"], -2.1, 2.1, 0.15, 1e301, np.inf, -np.inf, np.nan]
    return np.random.default_rng(0).choice(pool, shape)


def expected(one: np.ndarray, edges: np.ndarray, weights: np.ndarray | None) -> list[float]:
    """One row of a table, as NumPy counts it."""
    kept = ~np.isnan(one)
    beyond = [one < edges[0], one > edges[-1]]
    heavy = None if weights is None else weights[kept]
    row = np.histogram(one[kept], edges, weights=heavy)[0].tolist()
    row += [part.sum() for part in (*beyond, ~kept)]
    return row if weights is None else row + [weights[part].sum() for part in beyond]


def test_the_edges_are_found_in_three_ways() -> None:
    found = [make_finder(edges, np.dtype(np.float64)) for edges in EDGES.values()]
    assert found[0] is not None
    assert found[0].low is None
    assert found[1] is not None
    assert found[1].low is not None
    assert found[2] is None


@pytest.mark.parametrize("way", EDGES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(3, 5), (2, 2 * BUFFERED + 3), (2, 7, 4), (1, 3, BUFFERED + 9)])
def test_blocks(way: str, weighted: bool, shape: tuple[int, ...]) -> None:
    edges, block = EDGES[way], values(*shape)
    # Whole numbers, whose sums are exact.
    loads = np.random.default_rng(1).integers(0, 9, shape).astype(float) if weighted else None
    dtype = np.dtype(np.float64) if weighted else COUNTS
    table = count_block(block, loads, (1,), edges, "drop", dtype)
    for place in np.ndindex(table.shape[:-1]):
        at = (place[0], slice(None), *place[2:])
        load = None if loads is None else loads[at]
        assert table[place].tolist() == expected(block[at], edges, load)


@pytest.mark.parametrize("way", EDGES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gap", [0, 5, 10**6], ids=["dense", "with gaps", "far apart"])
def test_rows(way: str, weighted: bool, gap: int) -> None:
    rng, edges = np.random.default_rng(2), EDGES[way]
    ids = rng.choice([-3, -2, 4 + gap], 2 * BUFFERED + 3)
    column = values(len(ids))
    loads = rng.integers(0, 9, len(ids)).astype(float) if weighted else None
    found, table = _count_piece((pd.Series(ids), column, loads), edges, "drop")
    assert found.tolist() == [-3, -2, 4 + gap]
    for number, row in zip(found, table, strict=True):
        mine = ids == number
        load = None if loads is None else loads[mine]
        assert row.tolist() == expected(column[mine], edges, load)


@pytest.mark.parametrize("bad", [-1.0, np.inf, np.nan])
def test_bad_weights_are_counted_unless_the_value_is_missing(bad: float) -> None:
    block, loads = np.array([[0.5, np.nan, 3.0, -3.0]]), np.ones((1, 4))
    loads[0, 1] = bad
    count_block(block, loads, (1,), EDGES["cells"], "drop", np.dtype(np.float64))
    loads[0, [0, 2]] = bad
    with pytest.raises(ValueError, match="`weights` holds 2 entries"):
        count_block(block, loads, (1,), EDGES["cells"], "drop", np.dtype(np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extent(dtype: Any) -> None:
    some = np.array([np.nan, 2, -np.inf, -1, np.inf, 5, np.inf], dtype)
    assert extent(some) == (-1, 5, 3, 3)
    assert extent(some[:1]) == (np.inf, -np.inf, 0, 0)


def test_numbers_of_bins() -> None:
    edges = np.array([0.0, 1.0, 4.0])
    some = np.array([-0.5, 0, 0.5, 1, 4, np.nextafter(4, 5), np.inf, -np.inf, np.nan])
    found = np.empty(len(some), np.float32)
    search_bins(some, edges, found)
    np.testing.assert_array_equal(found, [-1, 0, 0, 1, 1, 3, 3, -1, np.nan])


def test_labels_and_rows_that_occur() -> None:
    labels = np.array([7, 4, 4, 9])
    assert span_of(labels) == (4, 9)
    seen = np.zeros(6, np.bool_)
    mark_labels(labels, 4, seen)
    assert seen.tolist() == [True, False, False, True, False, True]
    table = np.array([[0, 0, 0], [0, 0, 2], [1, 0, 0]])
    assert held_rows(table).tolist() == [False, True, True]
