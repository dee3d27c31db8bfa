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
from dshift.pool import map_threads

SEGMENT_BYTES = 8 * 2**20  # of codes that an even tree leaves together at most
LEAST_SEGMENT = 1024  # points, however wide
SEEN_OF_SEGMENT = 256  # of them, those that grow the tree,
LEAST_STRIDE = 32  # but no more than one of so many
DEEPEST_TREE = 16
ROWS_SENT_AT_ONCE = 8192


def order_points(points: Int, leaf_size: int, threads: int = 1) -> Int:
    """Return an order of points, the same for any number of threads."""
    n = len(points)
    lows, shift = halves.scale(points)
    row_bytes = 2 * (points.shape[1] + halves.VECTOR)
    together = max(SEGMENT_BYTES // row_bytes, LEAST_SEGMENT)
    depth = min((max(n - 1, 0) // together).bit_length(), DEEPEST_TREE)
    if depth == 0:
        order = np.arange(n)
        halves.order_segment(points, order, lows, shift, leaf_size)
        return order
    seen = _drawn(n, max(together // SEEN_OF_SEGMENT, LEAST_STRIDE))
    pairs, bounds = halves.grow_tree(points, seen, lows, shift, depth)
    leaf_of = np.empty(n, np.uint16)

    def send(part: slice) -> None:
        halves.send_down(points, part.start, part.stop, lows, shift, pairs, bounds, leaf_of)

    map_threads(send, cut_up(n, ROWS_SENT_AT_ONCE), threads)
    order = np.argsort(leaf_of, kind="stable")

    def finish(part: slice) -> None:
        halves.order_segment(points, order[part], lows, shift, leaf_size)

    # Where the tree left many together, they are equal or nearly so.
    longest = -(-2 * together // leaf_size) * leaf_size
    map_threads(finish, _segments(np.bincount(leaf_of), leaf_size, longest), threads)
    return order


def _drawn(n: int, stride: int) -> Int:
    """Return one of every `stride` rows, anywhere in them: data may repeat with any period."""
    strides = np.arange(n // stride, dtype=np.uint64)
    within = (strides * halves.MIXER >> np.uint64(32)) % np.uint64(stride)
    return (strides * np.uint64(stride) + within).astype(np.int64)


def _segments(lengths: Int, leaf_size: int, longest: int) -> list[slice]:
    """Return what the tree left together, in whole leaves, and no more than `longest`."""
    stops = np.minimum(-(-np.cumsum(lengths) // leaf_size) * leaf_size, lengths.sum())
    segments = []
    for start, stop in pairwise([0, *stops.tolist()]):
        parts = cut_up(stop - start, longest)
        segments += [slice(start + part.start, start + part.stop) for part in parts]
    return segments
