"""The points in a file that the processes of one node map into memory, and so hold once.

The first process of a node that needs the points reads them into the file while the others wait at
its lock; a process that dies lets go of the lock, and the next one takes over. Files that no living
process uses are removed by the next one that comes by.

Dask counts the pages of a file that a process has touched as that process's own memory: it pauses
the process at 80 % of its limit and kills it at 95 %. A `Warden` gives such pages back before
that: they stay in the system's cache while there is room, and are read again where there was none.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]

from dshift.field import Loaded, load_points
from dshift.locks import locked
from dshift.metrics import Float, make_embedding
from dshift.stage import Job

PREFIX = "dshift-points-"
# Dask looks every 0.1 s. A warden that looked as often as it must at the end cost the threads that
# climb 3 % of their time, so it looks the less often the more there is left that a process could
# touch, which is not more than this in a second.
WATCH_SECONDS = (0.005, 0.1)
TOUCHED_BYTES_A_SECOND = 16 * 2**30


@dataclass(frozen=True)
class Shelf:
    """Where a node keeps the points of one job."""

    folder: Path
    token: str
    keep_below: int | None = None  # bytes of memory that a process should not exceed

    def path(self, kind: str) -> Path:
        """Return the path of one of the job's files: "use", "lock", "data" or "about"."""
        # By host too, because a folder may be on a disk that nodes share.
        return self.folder / f"{PREFIX}{os.uname().nodename}-{self.token}.{kind}"

    def load(self, job: Job, threads: int = 1) -> tuple[Loaded, Lease]:
        """Map the points, read into the file first if no process of this node has done so.

        Since the other processes wait, one may read on the threads of all.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        lease = Lease(self, locked(self.path("use"), fcntl.LOCK_SH))
        try:
            lock = locked(self.path("lock"), fcntl.LOCK_EX)
            try:
                if not self.path("about").exists():
                    self._fill(job, threads)
                return self._open(job), lease
            finally:
                os.close(lock)
        except BaseException:
            lease.end()
            raise

    def _fill(self, job: Job, threads: int) -> None:
        loaded = load_points(
            job.samples,
            job.kind,
            job.metric,
            job.edges,
            job.invalid,
            allocate=self._allocate,
            threads=threads,
        )
        about = self.path("about").with_suffix(".fresh")
        with open(about, "wb") as file:
            np.savez(
                file,
                valid=loaded.valid,
                fingerprint=np.array(loaded.fingerprint),
                grid=np.array(loaded.embedding.grid),
                shape=np.array(loaded.points.shape),
                dtype=np.array(loaded.points.dtype.str),
            )
        os.replace(about, self.path("about"))

    def _allocate(self, shape: tuple[int, int]) -> Float:
        with open(self.path("data"), "w+b") as file:
            n_bytes = max(8 * shape[0] * shape[1], 1)
            # Takes the room now: a full disk would otherwise end the process at some later write.
            os.posix_fallocate(file.fileno(), 0, n_bytes)
            mapped = mmap.mmap(file.fileno(), n_bytes)
        self._watch(mapped)
        return np.frombuffer(mapped, np.float64, shape[0] * shape[1]).reshape(shape)

    def _open(self, job: Job) -> Loaded:
        with np.load(self.path("about"), allow_pickle=False) as about:
            shape, dtype = tuple(map(int, about["shape"])), np.dtype(str(about["dtype"]))
            valid, grid = about["valid"], int(about["grid"])
            fingerprint = str(about["fingerprint"])
        with open(self.path("data"), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._watch(mapped)
        points = np.frombuffer(mapped, dtype, shape[0] * shape[1]).reshape(shape)
        embedding = make_embedding(job.kind, job.samples.n_bins, job.edges, job.metric, None)
        return Loaded(replace(embedding, grid=grid), points, valid, fingerprint)

    def _watch(self, mapped: mmap.mmap) -> None:
        if self.keep_below is not None and hasattr(mmap, "MADV_DONTNEED"):
            Warden(mapped, self.keep_below).start()

    def _sweep(self) -> None:
        """Remove the files of jobs that no process holds any more."""
        for path in self.folder.glob(f"{PREFIX}{os.uname().nodename}-*.use"):
            token = path.name.rpartition("-")[2].removesuffix(".use")
            if token == self.token:
                continue
            try:
                use = locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            Lease(replace(self, token=token), use).end()

    def remove(self) -> None:
        """Remove the files; processes that have mapped them keep their points."""
        for kind in ("about", "data", "lock", "use"):
            self.path(kind).unlink(missing_ok=True)


class Lease:
    """A process's hold on a file, ended by `end` or by the process's death."""

    def __init__(self, shelf: Shelf, use: int) -> None:
        self._shelf = shelf
        self._use: int | None = use

    def end(self) -> None:
        """Remove the files and let go of them; only once."""
        if self._use is not None:
            self._shelf.remove()
            os.close(self._use)
            self._use = None


def pause_with(left: int) -> float:
    """Return how many seconds a process may be left alone that has so many bytes left."""
    shortest, longest = WATCH_SECONDS
    return min(max(left / TOUCHED_BYTES_A_SECOND, shortest), longest)


class Warden(threading.Thread):
    """Gives the pages of a mapping back while the process holds too much; ends with the mapping."""

    def __init__(self, mapped: mmap.mmap, keep_below: int) -> None:
        super().__init__(name="dshift-warden", daemon=True)
        self._mapped: Callable[[], Any] = weakref.ref(mapped)
        self._keep_below = keep_below
        self._gone = threading.Event()
        weakref.finalize(mapped, self._gone.set)

    def run(self) -> None:
        """Look often enough that not too much is touched in between."""
        process = psutil.Process()
        pause = WATCH_SECONDS[0]
        while not self._gone.wait(pause):
            left = self._keep_below - process.memory_info().rss
            pause = pause_with(left)
            if left < 0:
                mapped = self._mapped()
                if mapped is not None:
                    mapped.madvise(mmap.MADV_DONTNEED)
                del mapped
