"""The executor of a Dask cluster, and the choice of one. The only room that knows Dask.

Every worker process reads the samples itself, once, when its first task needs them: no task depends
on another worker's memory, so any worker may die or join at any time.
"""

from __future__ import annotations

import logging
import math
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from dshift import tasks
from dshift.courier import Courier, questions_a_host
from dshift.errors import ClusterLost, DshiftError, InvalidInput, InvalidType
from dshift.held import JobRef, forget
from dshift.metrics import EXACT_KINDS, count_coords
from dshift.modes import Clustering, merge
from dshift.monitor import BlockDone, Board
from dshift.planning import Plan, Room, make_plan
from dshift.run import MERGE_AT_ONCE, Executor
from dshift.shift import Climbed
from dshift.stage import Job, Survey, seeds_share, survey_share
from dshift.store import Store
from dshift.threads import (
    Threads,
    block_failed,
    current_settings,
    memory_limit,
    name_seeds,
    run_failed,
    settings,
)
from dshift.underway import UnderWay
from dshift.workers import RETRIES, count_hosts, find_rooms, on_worker

__all__ = ["Cluster", "choose_executor", "current_settings", "memory_limit", "settings"]

log = logging.getLogger("dshift")
Outcome = TypeVar("Outcome")

# Times that the cluster may lose one task altogether before the job gives up.
MOST_LOSSES = 5
# For a worker to say which samples a failed block is of: it may have to read them first.
NAMING_SECONDS = 60


# ---------------------------------------------------------------- before a job


def find_client(client: Any) -> Any:
    """Return the client to use: the one given, else the active one, else None."""
    if client is None:
        # A client cannot be active before distributed is imported, and importing it takes a while.
        distributed = sys.modules.get("distributed")
        # A task that waits for tasks can wait for ever: a fit inside one uses its own threads.
        if distributed is None or _inside_task():
            return None
        try:
            client = distributed.get_client()
        except ValueError:
            return None
    from distributed import Client

    if not isinstance(client, Client):
        raise InvalidType(
            f"`client` is a {type(client).__name__}; give a distributed.Client, or None for the "
            "active one or the threads of this process."
        )
    if client.asynchronous:
        raise InvalidInput("`client` is asynchronous; give one made with asynchronous=False.")
    if client.status != "running":
        raise InvalidInput(f"`client` is {client.status}; give one that is connected.")
    return client


def _inside_task() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def plan_for(job: Job, client: Any) -> tuple[Plan, list[Room]]:
    """Return the plan of a job, and what each process has to offer that would run it now."""
    cut, samples = current_settings(), job.samples
    n_seeds = job.seeds.count(samples.n_samples)
    n_coords = count_coords(job.kind, job.edges, samples.n_bins)
    threads, rooms = cut.threads, [Room("this process", memory_limit())]
    if client is not None:
        threads = max(client.nthreads().values(), default=1)
        rooms = find_rooms(client)
    at_once = math.prod(part.stop - part.start for part in next(samples.blocks()))
    plan = make_plan(
        samples.n_samples,
        n_coords,
        n_seeds,
        threads,
        cut.block_size,
        indexed=job.kind in EXACT_KINDS,
        rows_at_once=at_once,
    )
    return plan, rooms


def n_threads(client: Any) -> int:
    """Return the threads that would do the work now."""
    return current_settings().threads if client is None else int(sum(client.nthreads().values()))


def n_questions(job: Job, client: Any, stored: bool) -> int:
    """Return how many tasks it takes to find out how a job can travel."""
    return 0 if client is None else count_hosts(client) * questions_a_host(job, stored)


def choose_executor(job: Job, plan: Plan, client: Any, place: Store | None) -> Executor:
    """Return the executor for a job."""
    if client is not None:
        return Cluster(job, plan, client, place)
    holding = plan.held_in(Room("this process", memory_limit()))
    return Threads(job, plan.threads, indexed=holding.indexed)


# ---------------------------------------------------------------- a job

_listeners: dict[str, SimpleQueue[BlockDone]] = {}


def _hear(event: tuple[float, Any]) -> None:
    """Hand what a worker tells of a block to its job; this runs in the client's own thread."""
    token, done = tasks.told(event)
    if token in _listeners:
        _listeners[token].put(done)


class Cluster:
    """Has the work done on a Dask cluster."""

    def __init__(self, job: Job, plan: Plan, client: Any, place: Store | None) -> None:
        self._job, self._plan, self._client, self._place = job, plan, client, place
        self._token = uuid.uuid4().hex
        self._board = Board(client, self._token, plan.n_samples)
        self._courier = Courier(client, place)
        self._ref: JobRef
        self._count = 0
        self._losses: Counter[Any] = Counter()

    @property
    def width(self) -> int:
        """Threads of all workers now."""
        return max(1, n_threads(self._client))

    @property
    def keeps_labels(self) -> bool:
        """Whether labels stay in the store: there is one, and workers write to it."""
        return self._place is not None

    def __enter__(self) -> Cluster:
        job = self._job
        self._board.open(
            source=job.samples.origin,
            n_samples=job.samples.n_samples,
            n_bins=job.samples.n_bins,
            n_seeds=self._plan.n_seeds,
            n_blocks=self._plan.n_blocks,
            bandwidth=f"{float(job.bandwidth):g}" if job.bandwidth.ndim == 0 else "per sample",
            metric=job.kind if job.metric is None else job.metric.name,
        )
        return self

    def _submit(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        self._refuse_if_cut_off()
        self._count += 1
        key = (f"{name}-{self._token}", self._count)
        return self._client.submit(on_worker, function, *args, key=key, retries=RETRIES)

    def _refuse_if_cut_off(self) -> None:
        if self._client.status != "running":
            raise self._cut_off()

    def _cut_off(self) -> DshiftError:
        scheduler = getattr(self._client.scheduler, "address", "closed")
        lost = f"the connection to the scheduler ({scheduler}) was lost"
        return run_failed(lost, self._place, ClusterLost)

    def _under_way(self) -> UnderWay:
        from distributed import as_completed

        return UnderWay(self._client, as_completed(loop=self._client.loop))

    def _job_args(self) -> tuple[JobRef, Any]:
        return self._ref, self._courier.arrays

    def _recover(self, lost: Any) -> None:
        """Make sure that a lost task can be sent again."""
        self._refuse_if_cut_off()
        self._losses[str(lost)] += 1
        if self._losses[str(lost)] > MOST_LOSSES:
            lost_it = f"the cluster lost the same task {MOST_LOSSES + 1} times"
            raise run_failed(lost_it, self._place, ClusterLost)
        self._courier.send_again()

    def survey(self) -> Survey:
        """Have a worker read the samples, and say what is known of them."""
        self._ref = self._courier.send(self._job, self._plan, self._token)
        survey = self.map("dshift-load", survey_share, [()])[0]
        # From here on, whoever reads something else is found out.
        self._ref = replace(self._ref, fingerprint=survey.fingerprint)
        return survey

    def map(
        self, name: str, share: Callable[..., Outcome], items: Sequence[tuple[Any, ...]]
    ) -> list[Outcome]:
        """Return ``share(stage, *item)`` for each item, in order."""
        self._board.stage(name.removeprefix("dshift-"))

        def send(number: int) -> Any:
            return self._submit(name, tasks.run_share, *self._job_args(), share, items[number])

        found: dict[int, Any] = {}
        with self._under_way() as under_way:
            for number in range(len(items)):
                under_way.add(send(number), number)
            for future, number in under_way:
                try:
                    found[number] = future.result()
                except CancelledError:
                    self._recover((name, number))
                    under_way.add(send(number), number)
                except Exception as error:
                    failed = f"a task {name} failed with {type(error).__name__}: {error}"
                    raise run_failed(failed, self._place) from error
                if isinstance(found.get(number), DshiftError):
                    raise found[number]
        return [found[number] for number in range(len(items))]

    def climb(
        self,
        blocks: Iterable[slice],
        place: Store | None,
        on_done: Callable[[BlockDone], None],
    ) -> Climbed:
        """Climb from all blocks of seeds, and merge as they end."""
        self._courier.refuse_unreachable_store()
        self._board.stage("shift")
        _listeners[self._token] = SimpleQueue()
        self._client.subscribe_topic(tasks.TOPIC, _hear)
        try:
            with self._under_way() as under_way:
                return self._climb(list(blocks), under_way, on_done)
        finally:
            del _listeners[self._token]
            if not _listeners and self._client.status == "running":
                self._client.unsubscribe_topic(tasks.TOPIC)

    def _climb(
        self, blocks: list[slice], under_way: UnderWay, on_done: Callable[[BlockDone], None]
    ) -> Climbed:
        """Send blocks, and merges of what has ended, until one future holds all of them."""

        # Own seeds are the caller's, and so is what became of each of them.
        light = self.keeps_labels and self._job.seeds.rows is None

        def send(block: slice) -> None:
            args = (*self._job_args(), block, self._place, light)
            under_way.add(self._submit("dshift-shift", tasks.climb_block, *args), (block,))

        told: set[tuple[int, int]] = set()
        ready = under_way.ended
        for block in blocks:
            send(block)
        for future, under in under_way:
            self._tell(told, on_done)
            if future.status == "error":
                error = future.exception()
                raise error if isinstance(error, DshiftError) else self._failure(under, error)
            ready.append((future, under))
            for lost in [part for part in ready if part[0].cancelled()]:
                ready.remove(lost)
                self._recover(lost[1])
                for block in lost[1]:
                    send(block)
            last = not len(under_way)
            if last and len(ready) == 1:
                try:
                    return merge([ready[0][0].result()])
                except CancelledError:
                    # Comes round again, as one of the lost.
                    under_way.add(*ready.pop())
            elif last or len(ready) == MERGE_AT_ONCE:
                parts = [part for part, _ in ready]
                merged = tuple(block for _, under in ready for block in under)
                under_way.add(self._submit("dshift-merge", tasks.merge_parts, *parts), merged)
                ready.clear()
        raise AssertionError("unreachable: the last future returns")

    def _failure(self, under: tuple[slice, ...], error: Exception) -> Exception:
        block = min(under, key=lambda block: block.start)
        # The worker that could have named the seeds is dead.
        named = f"the block of seeds {block.start} to {block.stop - 1}, in the order of the run,"
        asked = self._submit(
            "dshift-load", tasks.run_share, *self._job_args(), seeds_share, (block,)
        )
        with suppress(Exception):
            numbers = asked.result(timeout=NAMING_SECONDS)
            named = name_seeds(numbers, own=self._job.seeds.rows is not None)
        asked.cancel()
        failed = block_failed(named, error, self._place)
        failed.__cause__ = error
        return failed

    def _tell(self, told: set[tuple[int, int]], on_done: Callable[[BlockDone], None]) -> None:
        """Pass on what workers told of finished blocks; of one that was done again only once."""
        with suppress(Empty):
            while True:
                done = _listeners[self._token].get_nowait()
                span = (done.block.start, done.block.stop)
                if span not in told:
                    told.add(span)
                    on_done(done)
                    self._board.block_done(done)

    def report(self, clustering: Clustering) -> None:
        """Say what came out."""
        n_clusters = int(clustering.cluster_of_mode.max(initial=-1)) + 1
        self._board.close("done", n_modes=len(clustering.modes), n_clusters=n_clusters)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the workers forget the job, and drop what it left on the way."""
        from distributed.comm.core import CommClosedError

        self._courier.close()
        # Whatever was asked of the scheduler when it went, the caller hears one thing.
        if isinstance(error, CommClosedError | CancelledError):
            raise self._cut_off() from error
        if self._client.status != "running":
            return
        # Whatever goes wrong here must not hide the result or the error.
        with suppress(Exception):
            if isinstance(error, Exception):
                self._board.close("failed", error=f"{type(error).__name__}: {error}")
            self._board.close("done" if error is None else "interrupted")
            self._client.run(forget, self._token, on_error="ignore")
