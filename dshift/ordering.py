"""Points in an order that keeps neighbours together: every dyadic segment is a cluster.

Rows that lie apart in memory take eight times as long to read as rows in a line. So many points are
first sent down a tree that some of them have grown, and are then ordered segment by segment, in a
narrow copy that fits in a cache.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dshift import halves
from dshift.metrics import Int
from dshift.planning import cut_up
from dshift.pool import Hands, map_threads
from dshift.simd import CODES_AT_ONCE

SEGMENT_BYTES = 8 * 2**20  # of codes that an even tree leaves together at most
LEAST_SEGMENT = 1024  # points, however wide
SEEN_OF_SEGMENT = 256  # of them, those that grow the tree,
LEAST_STRIDE = 32  # but no more than one of so many
DEEPEST_TREE = 16
ROWS_SENT_AT_ONCE = 8192
WORTH_SHARING = 16  # clusters of a block, so that its quarters are halves of halves

Scale = tuple[Int, int]  # origin of the codes, and bits that coordinates have too many


def order_rows(points: Int, rows: Int, whole: int, leaf_size: int, hands: Hands) -> Int:
    """Return an order of some of the points, that fit in a cache, with threads that are free.

    Every `whole` of them are a cluster, and within these every `leaf_size`.
    """
    order, scale = rows.copy(), halves.scale(points)
    quarters = [slice(0, len(order))]
    if len(order) > WORTH_SHARING * whole:
        for _ in range(2):
            quarters = [half for part in quarters for half in _halved(part, whole)]
        longest = max(part.stop - part.start for part in quarters)
        halves.order_segment(points, order, *scale, whole, longest)

    def finish(some: slice) -> None:
        for part in quarters[some]:
            halves.order_segment(points, order[part], *scale, whole, leaf_size)

    hands.share(finish, len(quarters), 1)
    return order


def _halved(part: slice, whole: int) -> tuple[slice, slice]:
    """Return where `order_segment` halves a part that is long enough."""
    middle = part.start + -(-(part.stop - part.start) // whole) // 2 * whole
    return slice(part.start, middle), slice(middle, part.stop)


def order_points(points: Int, whole: int, leaf_size: int, threads: int = 1) -> Int:
    """Return such an order of all points, the same for any number of threads."""
    n, scale = len(points), halves.scale(points)
    row_bytes = 2 * (points.shape[1] + CODES_AT_ONCE)
    together = max(SEGMENT_BYTES // row_bytes, LEAST_SEGMENT)
    if n <= together:
        order, segments = _quarters(points, scale, whole)
    else:
        order, segments = _by_tree(points, scale, whole, together, threads)

    def finish(part: slice) -> None:
        halves.order_segment(points, order[part], *scale, whole, leaf_size)

    map_threads(finish, segments, threads)
    return order


def _quarters(points: Int, scale: Scale, whole: int) -> tuple[Int, list[slice]]:
    """Return points in four segments that lie apart, and these."""
    order = np.arange(len(points))
    quarter = max(1, -(-len(points) // (4 * whole))) * whole
    halves.order_segment(points, order, *scale, quarter, quarter)
    return order, cut_up(len(points), quarter)


def _by_tree(
    points: Int, scale: Scale, whole: int, together: int, threads: int
) -> tuple[Int, list[slice]]:
    """Return points in segments of about `together`, as a tree has them, and these."""
    n = len(points)
    depth = min(((n - 1) // together).bit_length(), DEEPEST_TREE)
    seen = _drawn(n, max(together // SEEN_OF_SEGMENT, LEAST_STRIDE))
    pairs, bounds = halves.grow_tree(points, seen, *scale, depth)
    leaf_of = np.empty(n, np.uint16)

    def send(part: slice) -> None:
        halves.send_down(points, part.start, part.stop, *scale, pairs, bounds, leaf_of)

    map_threads(send, cut_up(n, ROWS_SENT_AT_ONCE), threads)
    # Where the tree left many together, they are equal or nearly so.
    longest = -(-2 * together // whole) * whole
    order = np.argsort(leaf_of, kind="stable")
    return order, _segments(np.bincount(leaf_of), whole, longest)


def _drawn(n: int, stride: int) -> Int:
    """Return one of every `stride` rows, anywhere in them: data may repeat with any period."""
    strides = np.arange(n // stride, dtype=np.uint64)
    within = (strides * halves.MIXER >> np.uint64(32)) % np.uint64(stride)
    return (strides * np.uint64(stride) + within).astype(np.int64)


def _segments(lengths: Int, whole: int, longest: int) -> list[slice]:
    """Return what the tree left together, `whole` by `whole`, and no more than `longest`."""
    stops = np.minimum(-(-np.cumsum(lengths) // whole) * whole, lengths.sum())
    segments = []
    for start, stop in pairwise([0, *stops.tolist()]):
        parts = cut_up(stop - start, longest)
        segments += [slice(start + part.start, start + part.stop) for part in parts]
    return segments
