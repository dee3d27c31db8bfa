"""The samples of an exact field, as narrow codes in an order that keeps neighbours together.

Codes decide whatever they can decide for certain; the exact coordinates decide the rest. Built once
a process, and shared by its threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dshift import columns, tiles
from dshift.field import Field
from dshift.groups import Nest, count_depths, make_nest
from dshift.metrics import Int
from dshift.ordering import order_points, order_rows
from dshift.planning import cut_up
from dshift.pool import Hands, map_threads
from dshift.simd import EIGHT, LANES, QUAD, QUERIES, RANKS_AT_ONCE, whole_quads
from dshift.visited import PointTable

MAX_CODE = 32_000  # of 32,767: the rest is room for rounding
RANK_BITS = 16
# The widest threshold in units. Distances saturate at 65,535, which must still mean "farther than
# threshold + radius of the group" for radii up to 1.5 thresholds.
MAX_REACH = 26_000
ROWS_ENCODED_AT_ONCE = 256 * LANES  # whole tiles


class Held(NamedTuple):
    """What the compiled loops read."""

    coords: Any  # (n, p) int64, the caller's
    thresholds: Any  # (n,) int64
    pulls: Any  # (n,) int64 by slot, or (0,) where every row pulls 1
    rows: Any  # (n,) int64: slot -> row
    lows: Any  # (p,) int64
    unit: int
    codes: Any  # (tiles, 8, p / 4, 8, 4) uint16: see `tiles`
    sums: Any  # (tiles, 64) uint16: of a row's codes, modulo 2**16
    reach_in: Any  # (tiles, 64) uint16: nearer, in units, is surely inside
    reach_out: Any  # (tiles, 64) uint16: farther is surely outside
    farthest: int  # the largest of these
    order: Any  # (p, n slot_bytes) uint8: slots by the value in a column
    slot_bytes: int
    heads: Any  # (p, words) uint64: the places in that order where a run of one value begins
    ranks: Any  # (n, p) uint16: of a slot's run in each column
    shift: int


@dataclass(frozen=True)
class Index:
    """The arrays, and scratch that threads leave to each other: a chain goes on where it ended.

    It also saves page faults: workers of Dask give freed memory back to the system at once.
    """

    held: Held
    spare: list[Nest] = field(default_factory=list)
    trails: list[PointTable] = field(default_factory=list)
    hands: Hands = field(default_factory=Hands)  # threads that have no block left

    @property
    def n_rows(self) -> int:
        """Samples."""
        return int(self.held.coords.shape[0])

    @property
    def n_columns(self) -> int:
        """Coordinates of a sample."""
        return int(self.held.coords.shape[1])

    @contextmanager
    def scratch(self, n_points: int) -> Iterator[Nest]:
        """Lend scratch for steps of up to `n_points` points."""
        try:
            nest = self.spare.pop()
        except IndexError:
            nest = None
        if nest is None or len(nest.groups.which) < count_depths(n_points):
            nest = make_nest(self.n_rows, self.n_columns, n_points)
        try:
            yield nest
        finally:
            self.spare.append(nest)

    @contextmanager
    def trail(self, capacity: int) -> Iterator[PointTable]:
        """Lend an empty table for `capacity` points."""
        try:
            trail = self.trails.pop()
            trail.clear()
        except IndexError:
            trail = PointTable(self.n_columns, capacity)
        try:
            yield trail
        finally:
            self.trails.append(trail)


def build_index(samples: Field, threads: int = 1) -> Index:
    """Index the samples of an exact field."""
    coords, thresholds = read_only(samples.points), np.array(samples.reach)
    n, p = coords.shape
    lows, unit, divisor = _choose_unit(coords, thresholds)
    n_tiles = -(-n // LANES)
    shape = (n_tiles, LANES // EIGHT, whole_quads(p) // QUAD, EIGHT, QUAD)
    codes = aligned_empty(shape, np.uint16)
    codes[-1:] = 0
    codes[:, :, -1:] = 0
    sums = np.zeros((n_tiles, LANES), np.uint16)
    residuals = np.zeros(n_tiles * LANES, np.int64)
    rows = neighbours_together(coords, threads=threads)

    def encode(part: slice) -> None:
        part_of = part.start, part.stop
        tiles.encode_tiles(coords, rows, lows, unit, *part_of, codes, sums, residuals)

    map_threads(encode, cut_up(n, ROWS_ENCODED_AT_ONCE), threads)
    reach_in, reach_out = _reaches(thresholds[rows], residuals, unit)
    shift = max(0, (n - 1).bit_length() - RANK_BITS)
    slot_bytes = columns.bytes_of_slot(n)
    order = _spared((p, n * slot_bytes), np.uint8, 4 - slot_bytes)  # slots are read by fours
    heads = np.empty((p, n_tiles), np.uint64)
    ranks = _spared((n, p), np.uint16, RANKS_AT_ONCE)  # rows are read in whole vectors
    filled = shift, slot_bytes, order, heads, ranks

    def sort(part: slice) -> None:
        columns.sort_columns(coords, rows, lows, divisor, part.start, part.stop, *filled)

    def count(part: slice) -> None:
        columns.count_columns(codes, part.start, part.stop, *filled)

    if residuals.any():
        map_threads(sort, cut_up(p, columns.COLUMNS_AT_ONCE), threads)
    else:  # as counts have it that are not too large
        map_threads(count, cut_up(p, columns.COLUMNS_COUNTED_AT_ONCE), threads)
    return Index(
        Held(
            coords=coords,
            thresholds=thresholds,
            pulls=np.empty(0, np.int64) if (samples.pulls == 1).all() else samples.pulls[rows],
            rows=rows,
            lows=lows,
            unit=unit,
            codes=codes,
            sums=sums,
            reach_in=reach_in.reshape(n_tiles, LANES),
            reach_out=reach_out.reshape(n_tiles, LANES),
            farthest=int(reach_out.max(initial=0)),
            order=order,
            slot_bytes=slot_bytes,
            heads=heads,
            ranks=ranks,
            shift=shift,
        )
    )


def neighbours_together(points: Int, threads: int = 1) -> Int:
    """Return an order of points in which eight neighbours, and more, are near each other."""
    return order_points(read_only(points), LANES, EIGHT, threads)


def neighbours_among(points: Int, rows: Int, hands: Hands) -> Int:
    """Return an order of the rows of a block's points, likewise for four and more."""
    return order_rows(read_only(points), rows, LANES, QUERIES, hands)


def read_only(points: Int) -> Int:
    """Return a view of one type, so that numba compiles for it once."""
    view = points.view()
    view.flags.writeable = False
    return view


def aligned_empty(shape: tuple[int, ...], dtype: type) -> NDArray[Any]:
    """Return an array that starts on a cache line: a tile's column is two lines, not three."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + size].view(dtype).reshape(shape)


def _spared(shape: tuple[int, int], dtype: type, beyond: int) -> NDArray[Any]:
    """Return an aligned array behind whose end there are zeros that may be read."""
    size = shape[0] * shape[1]
    whole = aligned_empty((size + beyond,), dtype)
    whole[size:] = 0
    return whole[:size].reshape(shape)


def _choose_unit(coords: Int, thresholds: Int) -> tuple[Int, int, int]:
    """Return origin and unit of the codes, and a common divisor of all values above the origin."""
    n, p = coords.shape
    if n == 0 or p == 0:
        return np.zeros(p, np.int64), 1, 1
    lows = coords.min(axis=0)
    spans = coords.max(axis=0) - lows
    farthest = min(int(np.max(thresholds)), int(spans.sum()) + 1)
    finest = max(-(-farthest // MAX_REACH), -(-int(spans.max()) // MAX_CODE), 1)
    divisor = max(columns.common_divisor(coords, lows), 1)
    # Midpoints of two values are multiples of half the values' common divisor.
    return lows, max(divisor // 2, finest), divisor


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
