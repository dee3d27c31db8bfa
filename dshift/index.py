"""The samples of an exact field, as narrow codes in an order that keeps neighbours together.

Codes decide whatever they can decide for certain; the exact coordinates decide the rest. Built once
a process, and shared by its threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift import tiles
from dshift.field import Field
from dshift.metrics import Int
from dshift.simd import LANES

MAX_CODE = 65_000  # of 65,535: the rest is room for rounding
MAX_DIRECT = 256  # exact codes up to here serve as buckets of ranks themselves
RANK_SHIFT = 9
MAX_COUNTED = 1_300_000  # rows of which a bucket of many values holds less than 65,535
LIGHT, HEAVY = 96, 15  # shares of the rows in a bucket of many values, and in a value with its own
MAX_BUCKETS = 127  # LIGHT + 2 HEAVY + 1: with RANK_SHIFT, ranks stay below 65,536
# The widest threshold in units. Distances saturate at 65,535, which must still mean "farther than
# threshold + radius of the group" for radii up to 1.5 thresholds.
MAX_REACH = 26_000


@dataclass(frozen=True)
class Index:
    """Codes and exact rows. `exact` says that the codes lose nothing: value = low + unit * code."""

    coords: Int  # (n, p), the caller's
    thresholds: Int  # (n,)
    pulls: Int  # (slots,), or (0,) where every row pulls 1
    rows: Int  # (n,) slot -> row
    lows: Int  # (p,)
    unit: int
    exact: bool
    shift: int  # rank >> shift = bucket
    codes: NDArray[np.uint16]  # (tiles, p, 64)
    reach_in: NDArray[np.uint16]  # (tiles, 64): nearer, in units, is surely inside
    reach_out: NDArray[np.uint16]  # (tiles, 64): farther is surely outside
    ranks: NDArray[np.uint16]  # (tiles, p, 64): order of values in a column; the codes, if exact
    n_values: Int  # (p, buckets): distinct values in a bucket
    values_of: Int  # (p, buckets): the value, where there is one
    mixed: NDArray[np.bool_]  # (p,): values outnumber the ranks of this column
    open_words: NDArray[np.uint64]  # (tiles,): one bit per row

    @property
    def slots(self) -> Int:
        """Slots of the whole index."""
        return np.arange(self.codes.shape[0] * LANES)

    @property
    def n_buckets(self) -> int:
        """Buckets of ranks."""
        return int(self.values_of.shape[1])

    def needs(self) -> NDArray[Any]:
        """Scratch for pulls within a bucket, set to more than any of them."""
        if self.pulls.size or self.coords.shape[0] > MAX_COUNTED:
            return np.full((2, LANES + 1), np.iinfo(np.int64).max)
        return np.full((2, LANES + 1), np.iinfo(np.uint16).max, np.uint16)

    @property
    def extra_bytes(self) -> int:
        """Bytes held beyond the caller's matrix."""
        arrays = (
            self.thresholds,
            self.pulls,
            self.rows,
            self.lows,
            self.codes,
            self.reach_in,
            self.reach_out,
            self.n_values,
            self.values_of,
            self.mixed,
            self.open_words,
        ) + (() if self.ranks is self.codes else (self.ranks,))
        return sum(array.nbytes for array in arrays)


def build_index(field: Field) -> Index:
    """Index the samples of an exact field."""
    coords, thresholds = field.points, np.ascontiguousarray(field.reach)
    n, p = coords.shape
    lows, unit, exact = _choose_unit(coords, thresholds)
    n_tiles = -(-n // LANES)
    codes = aligned_empty((n_tiles, p, LANES), np.uint16)
    codes[-1:] = 0
    residuals = np.zeros(n_tiles * LANES, np.int64)
    rows = tiles.order_points(coords, LANES)
    tiles.encode_tiles(coords, rows, lows, unit, codes, residuals)
    if exact and codes.max(initial=0) < MAX_DIRECT:
        order = _codes_as_ranks(codes, lows, unit)
    else:
        order = _rank(coords, rows, codes.shape)
    reach_in, reach_out = _reaches(thresholds[rows], residuals, unit)
    return Index(
        coords=coords,
        thresholds=thresholds,
        pulls=np.empty(0, np.int64) if (field.pulls == 1).all() else field.pulls[rows],
        rows=rows,
        lows=lows,
        unit=unit,
        exact=exact,
        codes=codes,
        reach_in=reach_in.reshape(n_tiles, LANES),
        reach_out=reach_out.reshape(n_tiles, LANES),
        **order,
        open_words=first_bits(n),
    )


def neighbours_together(points: Int) -> Int:
    """Return an order of points in which neighbours are near each other."""
    order: Int = tiles.order_points(points, LANES)
    return order


def aligned_empty(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Return an array that starts on a cache line: a tile's column is two lines, not three."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(dtype).reshape(shape)


def _choose_unit(coords: Int, thresholds: Int) -> tuple[Int, int, bool]:
    """Return origin and unit of the codes, and whether 16 bits hold the values exactly."""
    n, p = coords.shape
    if n == 0 or p == 0:
        return np.zeros(p, np.int64), 1, True
    lows = coords.min(axis=0)
    spans = coords.max(axis=0) - lows
    farthest = min(int(np.max(thresholds)), int(spans.sum()) + 1)
    finest = max(-(-farthest // MAX_REACH), -(-int(spans.max()) // MAX_CODE), 1)
    # Midpoints of two values are multiples of half the values' common divisor.
    half_grid = max(tiles.common_divisor(coords, lows) // 2, 1)
    return lows, max(half_grid, finest), half_grid >= finest


def _codes_as_ranks(codes: NDArray[np.uint16], lows: Int, unit: int) -> dict[str, Any]:
    """Few exact codes: each is a bucket of its own."""
    n_buckets = int(codes.max(initial=0)) + 1
    values_of = lows[:, None] + unit * np.arange(n_buckets)
    return {
        "ranks": codes,
        "shift": 0,
        "values_of": values_of,
        "n_values": np.ones_like(values_of),
        "mixed": np.zeros(lows.shape[0], np.bool_),
    }


def _rank(coords: Int, rows: Int, shape: tuple[int, ...]) -> dict[str, Any]:
    """Rank the values of each column, in buckets of about equal mass."""
    ranks = aligned_empty(shape, np.uint16)
    ranks[-1:] = 0
    n_columns = coords.shape[1]
    values_of = np.zeros((n_columns, MAX_BUCKETS), np.int64)
    n_values = np.zeros((n_columns, MAX_BUCKETS), np.int64)
    mixed = np.zeros(n_columns, np.bool_)
    shift = min(RANK_SHIFT, (coords.shape[0] // LIGHT + 1).bit_length())
    for k in range(n_columns):
        column = coords[rows, k]
        values, counts = np.unique(column, return_counts=True)
        codes, mixed[k] = _bucket_values(counts, shift)
        tiles.to_tiles(codes[np.searchsorted(values, column)], k, ranks)
        buckets = codes >> shift
        n_values[k] = np.bincount(buckets, minlength=MAX_BUCKETS)
        values_of[k, buckets] = values
    n_buckets = int((n_values > 0).any(axis=0).sum())
    return {
        "ranks": ranks,
        "shift": shift,
        "values_of": values_of[:, :n_buckets].copy(),
        "n_values": n_values[:, :n_buckets].copy(),
        "mixed": mixed,
    }


def _bucket_values(counts: Int, shift: int) -> tuple[Int, bool]:
    """A rank for each of the distinct values that occur `counts` times; whether any share a rank.

    A value that alone fills a bucket has its own, so that ties cost nothing.
    """
    n = counts.sum()
    heavy = counts * HEAVY >= n
    light_before = np.cumsum(np.where(heavy, 0, counts)) - np.where(heavy, 0, counts)
    heavy_before = np.cumsum(heavy) - heavy
    buckets = light_before * LIGHT // n + 2 * heavy_before + heavy
    buckets = np.cumsum(np.diff(buckets, prepend=buckets[0]) != 0)
    first = np.flatnonzero(np.diff(buckets, prepend=-1) != 0)
    size = np.diff(first, append=counts.shape[0])
    within = np.arange(counts.shape[0]) - first[buckets]
    stride = -(-size // (1 << shift))
    return (buckets << shift) + within // stride[buckets], bool((stride > 1).any())


def _reaches(
    thresholds: Int, residuals: Int, unit: int
) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return the code distances below which a row is surely inside, and above which outside.

    65,535 for the second means never: the distances saturate there.
    """
    within = np.zeros(residuals.shape[0], np.int64)
    within[: thresholds.shape[0]] = thresholds
    nearest = -((residuals - within) // unit)
    farthest = -((-residuals - within) // unit) - 1
    return (
        np.clip(nearest, 0, 65_535).astype(np.uint16),
        np.clip(farthest, 0, 65_535).astype(np.uint16),
    )


def first_bits(n: int) -> NDArray[np.uint64]:
    """Words with the first n bits set."""
    words = np.full(-(-n // LANES), ~np.uint64(0))
    if n % LANES:
        words[-1] = np.uint64((1 << n % LANES) - 1)
    return words
