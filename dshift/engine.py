"""The executor of a Dask cluster, and the choice of one. The only room that knows Dask.

Every worker process reads the samples itself, once, when its first task needs them: no task depends
on another worker's memory, so any worker may die or join at any time.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dshift.errors import BlockFailed, DshiftError, InvalidInput, InvalidType
from dshift.modes import merge
from dshift.parcel import Arrays, Packed, pack, read_arrays, unpack, write_arrays
from dshift.plan import Plan, make_plan
from dshift.run import Executor
from dshift.shift import Climbed
from dshift.stage import Job, Stage, Survey, climb_share, set_stage, survey_share
from dshift.store import JOB_FILE, Store
from dshift.threads import (
    BlockDone,
    Threads,
    block_failed,
    current_settings,
    memory_limit,
    run_block,
    settings,
)

__all__ = ["Cluster", "choose_executor", "current_settings", "memory_limit", "settings"]

log = logging.getLogger("dshift")
Outcome = TypeVar("Outcome")

# A job up to this size rides with every task; anything larger travels once.
INLINE_BYTES = 16 * 1024
MERGE_AT_ONCE = 8
RETRIES = 2


def find_client(client: Any) -> Any:
    """Return the client to use: the one given, else the active one, else None."""
    if client is None:
        # A client cannot be active before distributed is imported, and importing it takes a while.
        distributed = sys.modules.get("distributed")
        if distributed is None:
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
    return client


def plan_for(job: Job, client: Any) -> Plan:
    """Return the plan of a job; refuse it if it cannot fit the smallest process."""
    cut, samples = current_settings(), job.samples
    n_seeds = job.seeds.count(samples.n_samples)
    threads, limit = cut.threads, memory_limit()
    if client is not None:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        threads = max((w["nthreads"] for w in workers), default=1)
        limit = min((w["memory_limit"] for w in workers if w["memory_limit"]), default=limit)
    plan = make_plan(samples.n_samples, samples.n_bins, n_seeds, threads, cut.block_size)
    return plan.refused_above(limit)


def choose_executor(job: Job, client: Any, place: Store | None) -> Executor:
    """Return the executor for a job."""
    if client is None:
        return Threads(job, current_settings().threads)
    return Cluster(job, client, place)


@dataclass(frozen=True)
class JobRef:
    """A job as tasks carry it."""

    token: str
    job: Job
    parcel: str | None  # URL of the arrays, where they did not fit


_lock = threading.Lock()
_stages: dict[str, Stage] = {}


def _stage_of(ref: JobRef, arrays: Arrays | None) -> Stage:
    """Return this process's stage for a job, set on first use; the latest job's alone is kept."""
    with _lock:
        if ref.token not in _stages:
            _stages.clear()
            found = read_arrays(ref.parcel) if ref.parcel is not None else arrays or {}
            _stages[ref.token] = set_stage(unpack(Packed(ref.job, found)))
        return _stages[ref.token]


def _forget(token: str) -> None:
    _stages.pop(token, None)


def _run_share(ref: JobRef, arrays: Arrays | None, share: Callable[..., Any], item: Any) -> Any:
    return share(_stage_of(ref, arrays), *item)


def _run_block(ref: JobRef, arrays: Arrays | None, block: slice, place: Store | None) -> Climbed:
    """Climb a block on a worker, and tell the caller what it came to."""
    from distributed import get_worker

    climbed, done = run_block(lambda: climb_share(_stage_of(ref, arrays), block), block, place)
    get_worker().log_event(_topic(ref.token), (block.start, block.stop, *_told(done)))
    return climbed


def _told(done: BlockDone) -> tuple[Any, ...]:
    return done.modes, done.n_steps, done.reused


def _topic(token: str) -> str:
    return f"dshift-{token}"


def _merge(*parts: Climbed) -> Climbed:
    return merge(parts)


def _can_read(job: Job) -> str | None:
    """Return what keeps this process from reading the samples, if anything."""
    try:
        job.samples.read(tuple(slice(0, 1) for _ in job.samples.shape))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _sees(place: Store, key: str, content: bytes) -> bool:
    """Return whether this process finds the same content in a store."""
    return place.read(key) == content


class Cluster:
    """Has the work done on a Dask cluster."""

    def __init__(self, job: Job, client: Any, place: Store | None) -> None:
        self._client = client
        self._token = uuid.uuid4().hex
        self._scratch: str | None = None
        self._count = 0
        self.width = max(1, sum(client.nthreads().values()))
        self._ref, self._arrays = self._send(job, place)

    def _submit(self, name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._count += 1
        key = (f"{name}-{self._token}", self._count)
        return self._client.submit(function, *args, key=key, retries=RETRIES, **options)

    def _ask_all(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a function once on each worker, or on any if none has joined yet."""
        workers = list(self._client.scheduler_info(n_workers=-1)["workers"]) or [None]
        asked = [
            self._submit(
                "dshift-load", function, *args, workers=w and [w], allow_other_workers=w is None
            )
            for w in workers
        ]
        return list(self._client.gather(asked))

    def _refuse_unreachable(self, place: Store | None) -> None:
        if place is None:
            return
        content = place.read(JOB_FILE)
        if content is not None and not all(self._ask_all(_sees, place, JOB_FILE, content)):
            raise InvalidInput(
                f"`store`={place.name!r} is not the same place for the workers as for the caller; "
                "give a path on a file system that all share, or a URL."
            )

    def _send(self, job: Job, place: Store | None) -> tuple[JobRef, Any]:
        """Make the job known to workers: samples by reference if they can read them."""
        readable = False
        light = pack(job, with_samples=False)
        if len(pickle.dumps(light.job)) <= INLINE_BYTES:
            problems = [p for p in self._ask_all(_can_read, light.job) if p]
            readable = not problems
            if problems:
                log.info("workers cannot read %s (%s)", job.samples.origin, problems[0])
        packed = light if readable else pack(job, with_samples=True)
        if sum(array.nbytes for array in packed.arrays.values()) <= INLINE_BYTES:
            return JobRef(self._token, packed.job, None), dict(packed.arrays)
        url = self._scratch_url(place)
        write_arrays(packed.arrays, url)
        marker = Store(url)
        content = marker.read("zarr.json") or b""
        if all(self._ask_all(_sees, marker, "zarr.json", content)):
            log.info("the arrays of the job travel through %s", marker.name)
            return JobRef(self._token, packed.job, url), None
        log.info("the arrays of the job travel through the cluster")
        self._drop_scratch()
        return JobRef(self._token, packed.job, None), self._client.scatter(
            dict(packed.arrays), broadcast=True, hash=False
        )

    def _scratch_url(self, place: Store | None) -> str:
        if place is not None:
            self._scratch = f"{place.url.rstrip('/')}/dshift/parcel-{self._token}"
        else:
            import dask

            folder = dask.config.get("temporary-directory", None)
            self._scratch = tempfile.mkdtemp(prefix="dshift-", dir=folder)
        return self._scratch

    def _drop_scratch(self) -> None:
        if self._scratch is not None:
            if "://" in self._scratch:
                Store(self._scratch).remove("")
            else:
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def survey(self) -> Survey:
        """Have a worker read the samples, and say what is known of them."""
        found = self._submit(
            "dshift-load", _run_share, self._ref, self._arrays, survey_share, ()
        ).result()
        assert isinstance(found, Survey)
        return found

    def climb(
        self,
        blocks: Iterable[slice],
        place: Store | None,
        on_done: Callable[[BlockDone], None],
    ) -> Climbed:
        """Climb from all blocks of seeds, and merge as they end."""
        from distributed import as_completed

        self._refuse_unreachable(place)
        block_of = {
            self._submit("dshift-shift", _run_block, self._ref, self._arrays, block, place): block
            for block in blocks
        }
        told: set[tuple[int, int]] = set()

        def hear(event: tuple[float, Any]) -> None:
            start, stop, modes, n_steps, reused = event[1]
            if (start, stop) not in told:
                told.add((start, stop))
                on_done(BlockDone(slice(start, stop), tuple(modes), n_steps, reused))

        self._client.subscribe_topic(_topic(self._token), hear)
        ready: list[Any] = []
        queue = as_completed(list(block_of))
        try:
            for future in queue:
                block = block_of.pop(future, None)
                if future.status == "error":
                    error = future.exception()
                    if block is None or isinstance(error, DshiftError):
                        raise error
                    raise block_failed(block, error, place) from error
                if future.cancelled():
                    raise BlockFailed("the scheduler was lost or cancelled the job's tasks")
                ready.append(future)
                if len(ready) == MERGE_AT_ONCE:
                    queue.add(self._submit("dshift-merge", _merge, *ready))
                    ready = []
            if len(ready) != 1:
                ready = [self._submit("dshift-merge", _merge, *ready)]
            merged = ready[0].result()
        except BaseException:
            self._client.cancel(list(block_of))
            raise
        finally:
            self._client.unsubscribe_topic(_topic(self._token))
        return merge([merged])

    def map(
        self, name: str, share: Callable[..., Outcome], items: Sequence[tuple[Any, ...]]
    ) -> list[Outcome]:
        """Return ``share(stage, *item)`` for each item, in order."""
        futures = [
            self._submit(name, _run_share, self._ref, self._arrays, share, item) for item in items
        ]
        return list(self._client.gather(futures))

    def close(self) -> None:
        """Let the workers forget the job, and drop what it left on the way."""
        self._client.run(_forget, self._token)
        self._drop_scratch()
