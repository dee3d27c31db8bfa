"""The executor of a Dask cluster, and the choice of one. The only room that knows Dask.

Every worker process reads the samples itself, once, when its first task needs them: no task depends
on another worker's memory, so any worker may die or join at any time.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from dshift import tasks
from dshift.clients import beside_the_tasks, find_client
from dshift.courier import Courier, questions_a_host
from dshift.edges import count_coords
from dshift.errors import ClusterLost, DshiftError
from dshift.hearing import Heard, hearing
from dshift.held import JobRef, forget
from dshift.metrics import EXACT_KINDS
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

__all__ = [
    "Cluster",
    "choose_executor",
    "current_settings",
    "find_client",
    "memory_limit",
    "settings",
]

log = logging.getLogger("dshift")
Outcome = TypeVar("Outcome")

# Times that the cluster may lose one task altogether before the job gives up.
MOST_LOSSES = 5
# For a worker to say which samples a failed block is of: it may have to read them first.
NAMING_SECONDS = 60


# ---------------------------------------------------------------- before a job


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
        # Whoever chose blocks, wants them recorded one by one.
        crewed=client is None and cut.block_size is None,
        rows_at_once=at_once,
        row_bytes=samples.n_bins * samples.dtype.itemsize,
    )
    return plan, rooms


def n_threads(client: Any) -> int:
    """Return the threads that would do the work now."""
    return current_settings().threads if client is None else int(sum(client.nthreads().values()))


def n_tasks_before(job: Job, plan: Plan, client: Any, stored: bool) -> int:
    """Return how many tasks find out how a job can travel, and have all workers load early."""
    if client is None:
        return 0
    n_workers = len(client.nthreads())
    early = n_workers if plan.loads_early(n_workers) else 0
    return count_hosts(client) * questions_a_host(job, stored) + early


def choose_executor(job: Job, plan: Plan, client: Any, place: Store | None) -> Executor:
    """Return the executor for a job."""
    if client is not None:
        return Cluster(job, plan, client, place)
    holding = plan.held_in(Room("this process", memory_limit()))
    return Threads(job, plan.threads, indexed=holding.indexed, crewed=plan.crewed)


# ---------------------------------------------------------------- a job


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
        self._at_exit = ExitStack()

    @property
    def width(self) -> int:
        """Threads of all workers now."""
        return max(1, n_threads(self._client))

    @property
    def keeps_labels(self) -> bool:
        """Whether labels stay in the store: there is one, and workers write to it."""
        return self._place is not None

    def __enter__(self) -> Cluster:
        self._at_exit.enter_context(beside_the_tasks())
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

    def _submit(self, name: str, function: Callable[..., Any], *args: Any, **common: Any) -> Any:
        self._refuse_if_cut_off()
        options = {"key": self._new_key(name), "retries": RETRIES, **common}
        return self._client.submit(on_worker, function, *args, **options)

    def _submit_all(
        self, name: str, function: Callable[..., Any], items: Sequence[Any], **common: Any
    ) -> list[Any]:
        """Send one task an item, all in one message: what they have in common is in it once."""
        self._refuse_if_cut_off()
        if not items:
            return []
        keys = [self._new_key(name) for _ in items]
        # Not pure: nothing is to be hashed, and least of all a metric of the caller's own.
        options = {"key": keys, "retries": RETRIES, "pure": False, **common}
        sent: list[Any] = self._client.map(on_worker, [function] * len(items), items, **options)
        return sent

    def _new_key(self, name: str) -> tuple[str, int]:
        self._count += 1
        return f"{name}-{self._token}", self._count

    def _refuse_if_cut_off(self) -> None:
        if self._client.status != "running":
            raise self._cut_off()

    def _cut_off(self, *, cancelled: bool = False) -> DshiftError:
        scheduler = getattr(self._client.scheduler, "address", "closed")
        lost = f"the connection to the scheduler ({scheduler}) was lost"
        if cancelled and self._client.status == "running":
            lost = f"the cluster of {scheduler} was restarted, or its tasks were cancelled"
        return run_failed(lost, self._place, ClusterLost)

    def _under_way(self) -> UnderWay:
        from distributed import as_completed

        return UnderWay(self._client, as_completed(loop=self._client.loop))

    def _job_args(self) -> dict[str, Any]:
        """Return what every task that needs the samples is given."""
        return {"ref": self._ref, "arrays": self._courier.arrays}

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
        self._load_early()
        survey = self.map("dshift-load", survey_share, [()])[0]
        # From here on, whoever reads something else is found out.
        self._ref = replace(self._ref, fingerprint=survey.fingerprint, order=survey.order)
        return survey

    def _load_early(self) -> None:
        """Have all workers load at the same time: there are blocks only when one of them has.

        Nobody waits for these tasks: whoever has not loaded by then does so for its first block.
        """
        addresses = list(self._client.nthreads())
        if not self._plan.loads_early(len(addresses)):
            return
        loading = self._at_exit.enter_context(self._under_way())
        args = {**self._job_args(), "share": survey_share}
        for address in addresses:
            here = {"workers": [address], "allow_other_workers": False}
            future = self._submit("dshift-load", tasks.run_share, (), **args, **here)
            loading.add([future], [address])

    def map(
        self, name: str, share: Callable[..., Outcome], items: Sequence[tuple[Any, ...]]
    ) -> list[Outcome]:
        """Return ``share(stage, *item)`` for each item, in order."""
        self._board.stage(name.removeprefix("dshift-"))

        found: dict[int, Any] = {}
        with self._under_way() as under_way:

            def send(numbers: Sequence[int]) -> None:
                args = {**self._job_args(), "share": share}
                chosen = [items[number] for number in numbers]
                under_way.add(self._submit_all(name, tasks.run_share, chosen, **args), numbers)

            send(range(len(items)))
            for future, number in under_way:
                try:
                    found[number] = future.result()
                except CancelledError:
                    self._recover((name, number))
                    send([number])
                except Exception as error:
                    # It was done, and its outcome went with the line to the scheduler.
                    if future.status != "error" and isinstance(error, OSError):
                        raise self._cut_off() from error
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
        with hearing(self._client, self._token) as heard, self._under_way() as under_way:
            return self._climb(list(blocks), under_way, heard, on_done)

    def _climb(
        self,
        blocks: list[slice],
        under_way: UnderWay,
        heard: Heard,
        on_done: Callable[[BlockDone], None],
    ) -> Climbed:
        """Send blocks, and merges of what has ended, until one future holds all of them."""

        # Own seeds are the caller's, and so is what became of each of them.
        light = self.keeps_labels and self._job.seeds.rows is None

        def send(runs: Sequence[tuple[slice, ...]]) -> None:
            args = {**self._job_args(), "place": self._place, "light": light}
            sent = self._submit_all("dshift-shift", tasks.climb_run, runs, **args)
            under_way.add(sent, runs)

        ready = under_way.ended
        send(self._plan.runs(blocks, self.width))
        for future, under in under_way:
            for done in heard.news():
                on_done(done)
                self._board.block_done(done)
            if future.status == "error":
                send(self._blocks_to_blame(future, under))
                continue
            ready.append((future, under))
            for lost in [part for part in ready if part[0].cancelled()]:
                ready.remove(lost)
                self._recover(lost[1])
                send(self._plan.runs(lost[1], self.width))
            last = not len(under_way)
            if last and len(ready) == 1:
                try:
                    return merge([ready[0][0].result()])
                except CancelledError:
                    # Comes round again, as one of the lost.
                    future, under = ready.pop()
                    under_way.add([future], [under])
            elif last or len(ready) == MERGE_AT_ONCE:
                parts = [part for part, _ in ready]
                merged = tuple(block for _, under in ready for block in under)
                under_way.add([self._submit("dshift-merge", tasks.merge_parts, *parts)], [merged])
                ready.clear()
        raise AssertionError("unreachable: the last future returns")

    def _blocks_to_blame(self, future: Any, under: tuple[slice, ...]) -> list[tuple[slice, ...]]:
        """Return a run that failed, block by block: the one at fault is raised when it is alone."""
        error = future.exception()
        if isinstance(error, DshiftError):
            raise error
        if len(under) == 1 or not future.key[0].startswith("dshift-shift"):
            raise self._failure(under, error)
        return [(block,) for block in under]

    def _failure(self, under: tuple[slice, ...], error: Exception) -> Exception:
        block = min(under, key=lambda block: block.start)
        # The worker that could have named the seeds is dead.
        named = f"the block of seeds {block.start} to {block.stop - 1}, in the order of the run,"
        args = {**self._job_args(), "share": seeds_share}
        asked = self._submit("dshift-load", tasks.run_share, (block,), **args)
        with suppress(Exception):
            numbers = asked.result(timeout=NAMING_SECONDS)
            named = name_seeds(numbers, own=self._job.seeds.rows is not None)
        asked.cancel()
        failed = block_failed(named, error, self._place)
        failed.__cause__ = error
        return failed

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
        with self._at_exit:
            self._clear_up(error)

    def _clear_up(self, error: BaseException | None) -> None:
        from distributed.client import ClosedClientError
        from distributed.comm.core import CommClosedError

        self._courier.close()
        gone = self._client.status != "running"
        # Whatever was asked of the scheduler when it went, the caller hears one thing. Of a client
        # that is closed while it asks, Dask also raises a bare RuntimeError, or that None cannot
        # answer.
        if isinstance(error, CommClosedError | ClosedClientError | CancelledError) or (
            gone and type(error) in (RuntimeError, AttributeError)
        ):
            # A client may still take itself for connected when the first answer fails.
            raise self._cut_off(cancelled=isinstance(error, CancelledError)) from error
        if gone:
            return
        # Whatever goes wrong here must not hide the result or the error.
        with suppress(Exception):
            if isinstance(error, Exception):
                self._board.close("failed", error=f"{type(error).__name__}: {error}")
            self._board.close("done" if error is None else "interrupted")
            self._client.run(forget, self._token, on_error="ignore")
