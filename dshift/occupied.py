"""One run at a time in a store: a record there says who is at work, and that he still is.

The record is renewed while the run lasts. It counts for nothing once it has not been renewed for
`STALE_SECONDS`, or when the process that it names is gone from this very host. On a local disk two
runs that start at the same moment cannot both get the store. Elsewhere that is promised only as far
as the file system refuses to create what exists already; where it does not, the one that wrote last
goes on, and the other one gives up if it sees that in time. Hosts must agree on the time to within
a minute. Two runs of one job would do no harm but work: they write the same bits.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from dshift.errors import StoreInUse
from dshift.store import LOCK_FILE, LOCK_GUARD, ROOT, RUN_FOLDER, Store

log = logging.getLogger("dshift")

BEAT_SECONDS = 10.0
STALE_SECONDS = 90.0


def _host() -> str:
    """Return where process numbers mean what they mean here: a host, or a container on one."""
    with suppress(OSError):
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    return os.uname().nodename


@dataclass(frozen=True)
class Holder:
    """Who is at work in a store."""

    host: str = field(default_factory=_host)
    pid: int = field(default_factory=os.getpid)
    started: float = field(default_factory=lambda: psutil.Process().create_time())
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    seen: float = field(default_factory=time.time)

    def lives(self) -> bool:
        """Return whether the run may still be going on."""
        return time.time() - self.seen < STALE_SECONDS and not (
            self.host == _host() and self._gone()
        )

    def _gone(self) -> bool:
        try:
            # Numbers of processes are used again.
            return abs(float(psutil.Process(self.pid).create_time()) - self.started) > 1
        except psutil.NoSuchProcess:
            return True

    def write(self, place: Store) -> None:
        """Say so in the store."""
        place.write(LOCK_FILE, json.dumps(asdict(self)).encode())


def _holder(place: Store) -> Holder | None:
    try:
        return Holder(**json.loads(place.read(LOCK_FILE) or b""))
    except (ValueError, TypeError):  # none, or torn
        return None


@contextmanager
def occupied(place: Store | None) -> Iterator[None]:
    """Keep others out of a store for as long as a run lasts; a finished one is open to all."""
    if place is None:
        yield
    elif place.read(ROOT) is not None:
        _clear_up_after_the_dead(place)
        yield
    else:
        was_there = place.local_path is None or os.path.exists(place.local_path)
        me = Holder()
        _take(place, me)
        beat = _Beat(place, me)
        beat.start()
        try:
            yield
        finally:
            beat.end()
            _leave(place, me, was_there)


def _take(place: Store, me: Holder) -> None:
    with _one_at_a_time(place):
        other = _holder(place)
        if other is not None and other.lives():
            raise _in_use(place, other)
        if other is not None:
            log.info("the run of process %d on %s has died; taking over", other.pid, other.host)
            me.write(place)
        elif not place.create(LOCK_FILE, json.dumps(asdict(me)).encode()):
            raise _in_use(place, _holder(place))
    now = _holder(place)
    if now is not None and now.token != me.token:
        raise _in_use(place, now)


def _in_use(place: Store, other: Holder | None) -> StoreInUse:
    who = "another process"
    if other is not None:
        ago = max(0, round(time.time() - other.seen))
        who = f"process {other.pid} on {other.host.split()[0]}, seen {ago} s ago"
    return StoreInUse(
        f"`store`={place.name!r} is in use by {who}. Wait until that run has ended, or give "
        f"another store. A run that was killed counts as ended {STALE_SECONDS:.0f} s after it was "
        "last seen; on the same host, at once."
    )


@contextmanager
def _one_at_a_time(place: Store) -> Iterator[None]:
    """Let one process at a time decide, where the file system is of this host."""
    if place.local_path is None:
        yield
        return
    from dshift.locks import locked

    try:
        guard = locked(Path(place.local_path) / LOCK_GUARD, fcntl.LOCK_EX)
    except OSError as error:
        raise place.failed("written", LOCK_GUARD, error) from error
    try:
        yield
    finally:
        # Closed alone, it would be held on by a process that was forked meanwhile.
        fcntl.flock(guard, fcntl.LOCK_UN)
        os.close(guard)


class _Beat(threading.Thread):
    """Renews the record."""

    def __init__(self, place: Store, me: Holder) -> None:
        super().__init__(name="dshift-beat", daemon=True)
        self._place, self._me, self._over = place, me, threading.Event()

    def run(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            try:
                # Or else one that takes over in between would lose its record to this one.
                with _one_at_a_time(self._place):
                    other = _holder(self._place)
                    if other is not None and other.token != self._me.token:
                        log.warning("another run has taken over the store %s", self._place.name)
                        return
                    replace(self._me, seen=time.time()).write(self._place)
            except Exception as error:
                log.info("the record of this run could not be renewed (%r)", error)

    def end(self) -> None:
        self._over.set()
        self.join()


def _leave(place: Store, me: Holder, was_there: bool) -> None:
    """Take the record away; of a finished run, all that was kept to continue it."""
    if not _has_run_folder(place):
        return
    # The result is whole, or the error is on its way: neither may be lost to a full disk.
    with suppress(OSError), _one_at_a_time(place):
        other = _holder(place)
        if other is not None and other.token != me.token:
            return
        _remove(place, [LOCK_FILE] if place.read(ROOT) is None else _all_kept(place))
        if place.local_path is not None and not was_there:
            os.rmdir(place.local_path)


def _clear_up_after_the_dead(place: Store) -> None:
    """Remove what a run left that died after its last write."""
    if not _has_run_folder(place):
        return
    with suppress(OSError), _one_at_a_time(place):
        other = _holder(place)
        if other is None or not other.lives():
            _remove(place, _all_kept(place))


def _has_run_folder(place: Store) -> bool:
    """Return whether there may be something to remove; to hold the guard would make the folder."""
    return place.local_path is None or os.path.exists(_run_folder(place.local_path))


def _run_folder(local_path: str) -> Path:
    return Path(local_path) / RUN_FOLDER


def _all_kept(place: Store) -> list[str]:
    """Return all that a run has kept, but for the guard."""
    if place.local_path is None:
        return [RUN_FOLDER]
    kept = [f"{RUN_FOLDER}/{name}" for name in os.listdir(_run_folder(place.local_path))]
    return [key for key in kept if key != LOCK_GUARD]


def _remove(place: Store, keys: list[str]) -> None:
    """Remove what a run has kept, and its folder if that was all; who calls holds the guard."""
    for key in keys:
        place.remove(key)
    if place.local_path is not None:
        # After all else: once it is gone, whoever comes makes and holds one of his own.
        place.remove(LOCK_GUARD)
        os.rmdir(_run_folder(place.local_path))
