"""Work spread over the threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def map_threads(
    work: Callable[[Item], Outcome],
    items: Iterable[Item],
    threads: int,
    on_done: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Apply `work` to each item on a pool of threads; outcomes come back in the items' order.

    The first error, or Ctrl-C, cancels what has not started and is raised.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="dshift") as pool:
        futures: list[Future[Outcome]] = [pool.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                on_done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
