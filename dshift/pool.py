"""Work spread over the threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

# What is shared is cut into ranges that take unlike times. Each is a half of what is left then for
# a thread, so that the last ones are short; but not too short, since ranges have work of their own.
PART_OF_REST = 2
LEAST_PART = 32  # of all, for a thread


class Hands:
    """Threads of a pool that have no item left, for what others still work at.

    Nobody waits for a thread to begin: who shares something does all that no other thread takes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._n_free = 0  # below zero while items wait for a thread

    def lend(self, pool: ThreadPoolExecutor | None, n_free: int) -> None:
        """Let threads of a pool take part from now on, or those of none."""
        with self._lock:
            self._pool, self._n_free = pool, n_free

    def add(self, n_free: int) -> None:
        """Count so many threads more as free."""
        with self._lock:
            self._n_free += n_free

    def share(self, work: Callable[[slice], None], count: int, least: int) -> None:
        """Do `work` for ranges that make up `count`, on this thread and on those that are free.

        Each begins at a multiple of `least`, and is no shorter, but for the last one.
        """
        n_least = -(-count // least)
        with self._lock:
            pool, n_helpers = self._pool, 0
            if pool is not None:
                n_helpers = max(0, min(self._n_free, n_least - 1))
            self._n_free -= n_helpers
        if pool is None or n_helpers == 0:
            work(slice(0, count))
            return
        starts, start, shortest = [], 0, -(-n_least // (LEAST_PART * (n_helpers + 1)))
        while start < n_least:
            starts.append(start * least)
            start += max(shortest, (n_least - start) // (PART_OF_REST * (n_helpers + 1)))
        shared = _Shared(work, [slice(*bounds) for bounds in pairwise([*starts, count])])
        with ExitStack() as at_the_end:
            at_the_end.callback(self.add, n_helpers)
            at_the_end.callback(shared.end)
            with suppress(RuntimeError):  # the pool takes nothing more, as after Ctrl-C
                for _ in range(n_helpers):
                    pool.submit(shared.work_on)
            shared.work_on()


class _Shared:
    """Ranges that threads take one by one: any of them may come late, or never."""

    def __init__(self, work: Callable[[slice], None], ranges: list[slice]) -> None:
        self._changed = threading.Condition()
        self._work, self._left, self._n_at_work = work, ranges, 0
        self._error: BaseException | None = None

    def work_on(self) -> None:
        """Take ranges until there are none."""
        while True:
            with self._changed:
                if not self._left:
                    return
                part = self._left.pop(0)
                self._n_at_work += 1
            error = None
            try:
                self._work(part)
            except BaseException as caught:
                error = caught
            with self._changed:
                self._n_at_work -= 1
                if error is not None:
                    self._error = error
                    self._left.clear()
                self._changed.notify_all()

    def end(self) -> None:
        """Return when nobody is at work, nor will be; raise the error of any thread."""
        with self._changed:
            self._left.clear()
            self._changed.wait_for(lambda: self._n_at_work == 0)
            if self._error is not None:
                raise self._error


def map_threads(
    work: Callable[[Item], Outcome],
    items: Iterable[Item],
    threads: int,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
    hands: Hands | None = None,
) -> list[Outcome]:
    """Apply `work` to each item on a pool of threads; outcomes come back in the items' order.

    Where one thread would do all of it, that is the caller's: to start another takes 0.2 ms. The
    first error, or Ctrl-C, cancels what has not started and is raised. Threads that have no item
    left are `hands` for the others.
    """
    items = list(items)
    if threads == 1 or (len(items) == 1 and hands is None):
        return [_done(work(item), on_done) for item in items]
    hands = hands or Hands()

    def work_and_be_free(item: Item) -> Outcome:
        try:
            return work(item)
        finally:
            hands.add(1)

    with ThreadPoolExecutor(threads, thread_name_prefix="dshift") as pool:
        hands.lend(pool, threads - len(items))
        futures: list[Future[Outcome]] = [pool.submit(work_and_be_free, item) for item in items]
        try:
            for future in as_completed(futures):
                on_done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            hands.lend(None, 0)
    return [future.result() for future in futures]


def _done(outcome: Outcome, on_done: Callable[[Outcome], None]) -> Outcome:
    on_done(outcome)
    return outcome
