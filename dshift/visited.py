"""Points that walks have visited: found by value, so that walks that meet are walked once."""

from __future__ import annotations

import threading

import numpy as np

from dshift import point_kernels
from dshift.metrics import Int

# The memo may hold a sixteenth of what the points hold. With an eighth, 106,695 first names peaked
# at 0.06 more of their matrix, with 1 % fewer steps, and were no faster.
MEMO_PART = 16
# With 4 MiB, 25,000 first names take 5 % more steps than with 8, with 6 MiB 1 %.
LEAST_MEMO_BYTES = 3 * 2**21


# Points that a block remembers for each of its seeds. On real data walks visit 6 to 30 points until
# they meet others; with more of them, a block forgets what lies behind it and goes on. With 3 for
# each of 2,048 seeds, 50,000 first names took a tenth longer; 12 were no faster.
POINTS_A_SEED = 4


class PointTable:
    """Distinct points, numbered in the order of their first visit."""

    def __init__(self, n_columns: int, capacity: int = 64) -> None:
        self._points = np.empty((capacity, n_columns), np.int64)
        self._table = np.full(4 << (capacity - 1).bit_length(), point_kernels.EMPTY)
        self.size = 0

    @property
    def points(self) -> Int:
        """The points (size, p)."""
        return self._points[: self.size]

    def find(self, points: Int) -> Int:
        """Return the numbers of `points`, -1 where they are new."""
        ids = np.empty(points.shape[0], np.int64)
        point_kernels.find_points(points, self._points, self._table, ids)
        return ids

    def add(self, points: Int) -> Int:
        """Return the numbers of `points`, the new ones appended."""
        self._make_room(self.size + points.shape[0])
        ids = np.empty(points.shape[0], np.int64)
        self.size = point_kernels.store_points(points, self._points, self.size, self._table, ids)
        return ids

    def room(self, count: int) -> Int:
        """Return rows (count, p) behind the last point, to be filled for `keep`."""
        self._make_room(self.size + count)
        return self._points[self.size : self.size + count]

    def keep(self, count: int) -> Int:
        """Add the points that `room` was filled with, in place, and return their numbers."""
        return self.add(self._points[self.size : self.size + count])

    def clear(self) -> None:
        """Forget all points, and keep the room for as many."""
        self.size = 0
        self._table.fill(point_kernels.EMPTY)

    def _make_room(self, needed: int) -> None:
        if needed <= self._points.shape[0]:
            return
        capacity = max(needed, 2 * self._points.shape[0])
        points = np.empty((capacity, self._points.shape[1]), np.int64)
        points[: self.size] = self.points
        self._points = points
        self._table = np.full(4 << (capacity - 1).bit_length(), point_kernels.EMPTY)
        ids = np.empty(self.size, np.int64)
        point_kernels.store_points(points[: self.size], points, 0, self._table, ids)


class Memo:
    """What blocks tell each other: point -> (its mode, steps to it). Threads share one a process.

    It never changes a result, only who computes it. It learns until it holds `max_bytes`.
    """

    def __init__(self, n_columns: int, max_bytes: int = LEAST_MEMO_BYTES) -> None:
        self._lock = threading.Lock()
        self._max_points = max_bytes // (8 * n_columns + 48)
        # Room for all of them, which is no memory before it is used: a table that grows is copied.
        self._known = PointTable(n_columns, max(1, self._max_points))
        self._modes = np.empty(self._max_points, np.int64)
        self._steps = np.empty(self._max_points, np.int64)

    @property
    def size(self) -> int:
        """How many points it knows."""
        return self._known.size

    def look_up(self, points: Int) -> tuple[Int, Int, Int]:
        """Return which of `points` are known, and the modes and steps of those."""
        with self._lock:
            ids = self._known.find(points)
            known = np.flatnonzero(ids >= 0)
            ids = ids[known]
            return known, self._known.points[self._modes[ids]], self._steps[ids]

    def learn(self, points: Int, modes: Int, mode_of_point: Int, steps: Int) -> None:
        """Record that points[j] ends in modes[mode_of_point[j]] after steps[j] steps."""
        with self._lock:
            if self._known.size + points.shape[0] + modes.shape[0] > self._max_points:
                return
            mode_ids, ids = self._known.add(modes), self._known.add(points)
            self._modes[mode_ids], self._steps[mode_ids] = mode_ids, 0
            self._modes[ids], self._steps[ids] = mode_ids[mode_of_point], steps
