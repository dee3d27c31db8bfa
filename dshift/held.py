"""What a process holds from one task to the next: a job's stage, set once, and let go in time."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import dask

from dshift.errors import InvalidInput
from dshift.parcel import Arrays, read_parcel, unpack
from dshift.planning import Held, Plan, Room, human_bytes
from dshift.stage import Job, Stage, set_stage

if TYPE_CHECKING:
    from dshift.mapped import Lease

log = logging.getLogger("dshift")

Thing = TypeVar("Thing")

# Jobs whose end is remembered, so that a load that outlasts its job is not kept.
ENDED_JOBS = 256


# A stage that nobody has used for so long is let go: its client may be dead. Should the job go on
# after all, the stage is set again.
KEPT_IDLE_SECONDS = 600.0
# The same when a new job comes and counts the room that is left.
IDLE_SECONDS_AT_NEW_JOB = 5.0


@dataclass
class _Entry(Generic[Thing]):
    n_bytes: int
    thing: Future[Thing] = field(default_factory=Future)
    n_users: int = 0
    left: float = 0.0  # when the last user left, by the monotonic clock

    def idle(self, seconds: float) -> bool:
        """Return whether the thing is made, and nobody has used it for so long."""
        unused = not self.n_users and time.monotonic() - self.left >= seconds
        return unused and self.thing.done()


class Cache(Generic[Thing]):
    """Things by token; each is made once, by the first thread that asks, while the others wait."""

    def __init__(self, let_go: Callable[[Thing], None]) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry[Thing]] = OrderedDict()
        self._ended: deque[str] = deque(maxlen=ENDED_JOBS)
        self._let_go = let_go
        self._watched = False

    @contextmanager
    def use(
        self, token: str, make: Callable[[], Thing], n_bytes: int, limit: int
    ) -> Iterator[Thing]:
        """Use the thing of a token, made first if need be.

        Parameters
        ----------
        make : callable
            If it raises, all who wait get the error, and the next to ask tries again.
        n_bytes, limit : int
            What the thing weighs, and what all together may: the least lately used go first.
        """
        with self._lock:
            if token in self._ended:
                raise RuntimeError("the job has ended")
            entry = self._entries.get(token)
            mine = entry is None
            if entry is None:
                self._make_room(limit - n_bytes)
                entry = self._entries[token] = _Entry(n_bytes)
                self._watch()
            self._entries.move_to_end(token)
            entry.n_users += 1
        try:
            if mine:
                self._fill(token, entry, make)
            yield entry.thing.result()
        finally:
            with self._lock:
                entry.n_users -= 1
                entry.left = time.monotonic()

    def _fill(self, token: str, entry: _Entry[Thing], make: Callable[[], Thing]) -> None:
        try:
            thing = make()
        except BaseException as error:
            with self._lock:
                self._entries.pop(token, None)
            entry.thing.set_exception(error)
            return
        entry.thing.set_result(thing)
        if token in self._ended:
            self.end(token)

    def _make_room(self, room: int) -> None:
        held = sum(entry.n_bytes for entry in self._entries.values())
        for token, entry in list(self._entries.items()):
            if held <= room:
                break
            if entry.idle(0):
                held -= entry.n_bytes
                self._drop(token)

    def _drop(self, token: str) -> None:
        self._let_go(self._entries.pop(token).thing.result())

    def release_idle(self, seconds: float) -> None:
        """Let go of what nobody has used for so long."""
        with self._lock:
            for token, entry in list(self._entries.items()):
                if entry.idle(seconds):
                    log.info("job %s has not been heard of for a while: let go", token)
                    self._drop(token)

    def _watch(self) -> None:
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._release, name="dshift-held", daemon=True).start()

    def _release(self) -> None:
        while True:
            time.sleep(min(KEPT_IDLE_SECONDS / 10, 10))
            self.release_idle(KEPT_IDLE_SECONDS)
            with self._lock:
                if not self._entries:
                    self._watched = False
                    return

    def end(self, token: str) -> None:
        """Let go of a token's thing, now or, if it is still being made, then. Never waits long."""
        with self._lock:
            self._ended.append(token)
            entry = self._entries.get(token)
            if entry is not None and entry.thing.done():
                self._drop(token)

    def tokens(self) -> list[str]:
        """Return the tokens of what is held or being made."""
        with self._lock:
            return list(self._entries)


@dataclass(frozen=True)
class JobRef:
    """A job as tasks carry it."""

    token: str
    job: Job
    plan: Plan
    parcel: str | None  # URL of the arrays, where they were too large to come along
    shares_node: bool  # whether processes of one node had better share one copy
    node_threads: int = 1  # of all processes of a node
    fingerprint: str | None = None  # of the samples, once a worker has read them
    order: str | None = None  # a digest of that of the seeds, as that worker has it


@dataclass(frozen=True)
class Lodging:
    """Where a process lives: its name, the memory it may use and does use, folder and threads."""

    name: str
    limit_bytes: int
    used_bytes: int
    folder: str
    threads: int

    def room(self, shares_node: bool) -> Room:
        """Return what is left for a job."""
        try:
            disk = shutil.disk_usage(self.folder).free
        except OSError:
            disk = 0
        return room_in(self.name, self.limit_bytes, self.used_bytes, disk, shares_node)


# Dask spills at 70 % of a worker's limit, pauses at 80 % and kills at 95 %.
FILLED = 0.7
# Where the pages of a file are given back: a core can touch 100 MB before that takes effect.
KEPT_BELOW = 0.5


def room_in(name: str, limit: int, used: int, disk: int, shares_node: bool) -> Room:
    """Return what a process has left that may use `limit` bytes and uses `used`."""
    return Room(name, max(0, int(limit * FILLED) - used), disk, shares_node)


@contextmanager
def staged(ref: JobRef, arrays: Arrays | None, lodging: Callable[[], Lodging]) -> Iterator[Stage]:
    """Use this process's stage for a job, set on first use."""
    limit = int(lodging().limit_bytes * FILLED)
    held = _stages.use(
        ref.token, lambda: _set(ref, arrays, lodging()), ref.plan.process_bytes, limit
    )
    with held as (stage, _):
        _refuse_others(ref, stage, lodging())
        yield stage


def _set(ref: JobRef, arrays: Arrays | None, home: Lodging) -> tuple[Stage, Lease | None]:
    job = unpack(ref.job, read_parcel(ref.parcel) if ref.parcel is not None else arrays or {})
    holding = ref.plan.held_in(home.room(ref.shares_node))
    if ref.plan.indexed and not holding.indexed:
        log.warning("no room for an index (%s)", human_bytes(ref.plan.index_bytes))
    # Samples may be a Dask array. Computed on the cluster, it would wait for the very threads
    # that wait for it.
    with dask.config.set(scheduler="synchronous"):
        if holding.where is Held.IN_MEMORY:
            return set_stage(job, indexed=holding.indexed, threads=home.threads), None
        from dshift.mapped import Shelf

        keep_below = int(home.limit_bytes * KEPT_BELOW)
        shelf = Shelf(Path(home.folder).parent, ref.token, keep_below)
        log.info("points (%s) in %s", human_bytes(ref.plan.matrix_bytes), shelf.path("data"))
        loaded, lease = shelf.load(job, max(home.threads, ref.node_threads))
    try:
        return set_stage(job, loaded, indexed=holding.indexed, threads=home.threads), lease
    except BaseException:
        lease.end()
        raise


def _refuse_others(ref: JobRef, stage: Stage, home: Lodging) -> None:
    if ref.fingerprint not in (None, stage.loaded.fingerprint):
        raise InvalidInput(
            f"{home.name} reads other histograms from {ref.job.samples.origin} than the worker "
            "that read them first; give a path on a file system that all workers share, or a URL, "
            "and do not change the data while it is clustered."
        )
    if ref.order not in (None, stage.order_digest):
        raise InvalidInput(
            f"{home.name} has the seeds in another order than the worker that read them first, so "
            "that a block would not be the same seeds on both; install the same dshift, NumPy and "
            "numba on all workers, and use one kind of processor."
        )


def _let_go(held: tuple[Stage, Lease | None]) -> None:
    if held[1] is not None:
        held[1].end()


_stages: Cache[tuple[Stage, Lease | None]] = Cache(_let_go)


def forget(token: str) -> None:
    """Let go of a job that has ended."""
    _stages.end(token)


def held_tokens() -> list[str]:
    """Return the jobs that this process holds a stage for."""
    return _stages.tokens()


def release_idle() -> None:
    """Let go of jobs that nobody has worked on for a while: their clients may be dead."""
    _stages.release_idle(IDLE_SECONDS_AT_NEW_JOB)
