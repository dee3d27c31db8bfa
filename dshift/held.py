"""What a process holds from one task to the next: a job's stage, set once, and let go in time."""

from __future__ import annotations

import logging
import shutil
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import dask

from dshift.parcel import Arrays, read_parcel, unpack
from dshift.planning import Held, Plan, Room, human_bytes
from dshift.stage import Job, Stage, set_stage

if TYPE_CHECKING:
    from dshift.mapped import Lease

log = logging.getLogger("dshift")

Thing = TypeVar("Thing")

# Jobs whose end is remembered, so that a load that outlasts its job is not kept.
ENDED_JOBS = 256


@dataclass
class _Entry(Generic[Thing]):
    n_bytes: int
    thing: Future[Thing] = field(default_factory=Future)


class Cache(Generic[Thing]):
    """Things by token; each is made once, by the first thread that asks, while the others wait."""

    def __init__(self, let_go: Callable[[Thing], None]) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry[Thing]] = OrderedDict()
        self._ended: deque[str] = deque(maxlen=ENDED_JOBS)
        self._let_go = let_go

    def get(self, token: str, make: Callable[[], Thing], n_bytes: int, limit: int) -> Thing:
        """Return the thing of a token, made first if need be.

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
            self._entries.move_to_end(token)
        if mine:
            self._fill(token, entry, make)
        return entry.thing.result()

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
            if entry.thing.done():
                del self._entries[token]
                self._let_go(entry.thing.result())
                held -= entry.n_bytes

    def end(self, token: str) -> None:
        """Let go of a token's thing, now or, if it is still being made, then. Never waits long."""
        with self._lock:
            self._ended.append(token)
            entry = self._entries.get(token)
            if entry is None or not entry.thing.done():
                return
            del self._entries[token]
        self._let_go(entry.thing.result())

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


@dataclass(frozen=True)
class Lodging:
    """Where a process lives: its name, the memory that it may use and does use, its folder."""

    name: str
    limit_bytes: int
    used_bytes: int
    folder: str

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


def stage_of(ref: JobRef, arrays: Arrays | None, lodging: Callable[[], Lodging]) -> Stage:
    """Return this process's stage for a job, set on first use."""
    plan, limit = ref.plan, int(lodging().limit_bytes * FILLED)
    stage, _ = _stages.get(
        ref.token, lambda: _set(ref, arrays, lodging()), plan.process_bytes, limit
    )
    return stage


def _set(ref: JobRef, arrays: Arrays | None, home: Lodging) -> tuple[Stage, Lease | None]:
    job = unpack(ref.job, read_parcel(ref.parcel) if ref.parcel is not None else arrays or {})
    # Samples may be a Dask array. Computed on the cluster, it would wait for the very threads
    # that wait for it.
    with dask.config.set(scheduler="synchronous"):
        if ref.plan.held_in(home.room(ref.shares_node)) is Held.IN_MEMORY:
            return set_stage(job), None
        from dshift.mapped import Shelf

        keep_below = int(home.limit_bytes * KEPT_BELOW)
        shelf = Shelf(Path(home.folder).parent, ref.token, keep_below)
        log.info("points (%s) in %s", human_bytes(ref.plan.matrix_bytes), shelf.path("data"))
        loaded, lease = shelf.load(job)
    try:
        return set_stage(job, loaded), lease
    except BaseException:
        lease.end()
        raise


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
