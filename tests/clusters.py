"""Real clusters for tests, and a metric that takes its time so that a kill lands in the middle."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import xarray as xr
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import WorkerPlugin

import dshift
from dshift import held
from dshift.api import _make_job
from dshift.demo import synthetic
from dshift.sources import open_samples
from dshift.stage import Job, climb_share
from dshift.tasks import TOPIC, told

TESTS = Path(__file__).parent
SECONDS = 300  # for anything that is waited for, on a busy machine


def until(true: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Return the first true value of a call."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.02)
    return found


# ---------------------------------------------------------------- data


def histograms(n: int = 120, n_bins: int = 16) -> xr.DataArray:
    return synthetic(n, n_bins=n_bins).counts


def write(counts: xr.DataArray, path: Path, rows: int) -> str:
    """Write histograms to Zarr in chunks of so many rows."""
    counts.to_dataset(name="counts").chunk(sample=rows).to_zarr(path, consolidated=False)
    return str(path)


def watched_distance(x: Any, rows: Any, seconds: float, poison: str, gate: str) -> Any:
    if _is_in(x, poison):
        os.kill(os.getpid(), signal.SIGKILL)
    until(lambda: not _is_in(x, gate), "the gate opens")
    time.sleep(seconds * len(rows))
    return np.abs(rows - x).sum(axis=1)


def _is_in(x: Any, file: str) -> bool:
    """Return whether a point is one of those in a file, as long as there is one."""
    try:
        return bool(file) and bool(np.isclose(np.load(file), x).all(axis=1).any())
    except FileNotFoundError:
        return False


def make_job(data: Any, bandwidth: float, *, seeds: Any = "all", invalid: str = "raise") -> Job:
    """Return what `fit` makes of its arguments."""
    return _make_job(open_samples(data), bandwidth, "wasserstein", None, None, seeds, invalid)


def save_points(path: Path, counts: xr.DataArray) -> Path:
    """Write histograms as the points that `slow_metric` knows."""
    fresh = path.with_suffix(".fresh.npy")
    np.save(fresh, counts.values / counts.values.sum(axis=1, keepdims=True))
    return fresh.replace(path)


def middle(rows: Any, weights: Any) -> Any:
    return np.median(rows, axis=0)


def close_gate(gate: Path, n_free: int) -> Path:
    """Let blocks of ten `histograms()` wait, from block `n_free` on; unlinked, the gate is open.

    They wait at their last seed: no walk from another seed passes by one of these.
    """
    return save_points(gate, histograms()[10 * n_free + 9 :: 10])


def slow_metric(seconds: float, poison: Path | str = "", gate: Path | str = "") -> dshift.Metric:
    """Return L1, at so many seconds a row.

    It kills its process at the points in the file `poison`. At the points in the file `gate` it
    waits until that file is gone, so that a test decides how far a run gets.
    """
    distance = partial(watched_distance, seconds=seconds, poison=str(poison), gate=str(gate))
    return dshift.Metric(distance, middle, name="slow")


def fail_at_the_first_block(gate: str) -> None:
    """Make the first block of every job fail on this worker, and the others wait at a gate."""
    from dshift import tasks

    def climb_or_fail(stage: Any, block: slice) -> Any:
        if block.start == 0:
            raise ZeroDivisionError("on purpose")
        until(lambda: not os.path.exists(gate), "the gate opens")
        return climb_share(stage, block)

    tasks.climb_share = climb_or_fail


class Poison(WorkerPlugin):
    """Makes one block kill its worker, and the worker that comes in its place."""

    def __init__(self, start: int, file: Path) -> None:
        self.start, self.file = start, file

    def setup(self, worker: Any) -> None:
        from dshift import tasks

        def climb_or_die(stage: Any, block: slice) -> Any:
            if block.start == self.start and self.file.exists():
                os.kill(os.getpid(), signal.SIGKILL)
            return climb_share(stage, block)

        tasks.climb_share = climb_or_die


def let_idle_jobs_go_at_once() -> None:
    """Make this worker drop what nobody uses as soon as a new job comes."""
    held.IDLE_SECONDS_AT_NEW_JOB = 0.0


# ---------------------------------------------------------------- clusters


@contextlib.contextmanager
def local(n_workers: int = 2, **options: Any) -> Iterator[tuple[LocalCluster, Client]]:
    options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
    # A worker that is killed and not back in time is given up for good, and a busy machine is slow.
    # Not the active client, so that a fit without one runs in this process.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": f"{SECONDS}s"}),
        LocalCluster(n_workers=n_workers, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield cluster, client


@dataclass
class Commands:
    """A scheduler and workers that were started as commands."""

    folder: Path
    options: tuple[str, ...] = ()
    scheduler: subprocess.Popen[bytes] = field(init=False)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def file(self) -> str:
        return str(self.folder / "scheduler.json")

    def _start(self, *arguments: str, package: str = "") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--scheduler-file", self.file]
        paths = [package, str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
        with open(self.folder / "log.txt", "ab") as log:
            return subprocess.Popen(
                [*command, *self.options],
                stdout=log,
                stderr=log,
                cwd=self.folder,  # which comes before all paths
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )

    def __enter__(self) -> Commands:
        where = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0")
        self.scheduler = self._start("scheduler", *where)
        until(lambda: os.path.exists(self.file), "the scheduler starts")
        return self

    def add_workers(self, n: int, *options: str, package: str = "") -> None:
        """Start workers; in the folder `package` they find another dshift than this one."""
        where = ("--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard")
        scratch = ("--local-directory", str(self.folder / "local"))
        for _ in range(n):
            self.workers.append(self._start("worker", *where, *scratch, *options, package=package))

    def __exit__(self, *error: object) -> None:
        processes = [*self.workers, self.scheduler]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def blocks_by_worker(stream: Any) -> Counter[str]:
    """Return how many blocks each worker has climbed, by a task stream of Dask."""
    ran = [entry for entry in stream.data if "dshift-shift" in str(entry["key"])]
    return Counter(entry["worker"] for entry in ran)


def n_done(place: Path) -> int:
    """Return how many blocks a store has on record."""
    folder = place / "dshift" / "blocks"
    return len(list(folder.glob("*.npz"))) if folder.exists() else 0


def blocks_told(client: Client) -> tuple[Counter[int], Counter[int]]:
    """Return how often each block, by its first seed, was climbed and was reused on a cluster."""
    done = [told(event)[1] for event in client.get_events(TOPIC)]
    climbed = Counter(block.block.start for block in done if not block.reused)
    return climbed, Counter(block.block.start for block in done if block.reused)


def holds_nothing(client: Client) -> bool:
    """Return whether no worker holds a job; one that was still loading lets go when it has."""
    return not any(client.run(held.held_tokens).values())


def n_tasks(dask_scheduler: Any) -> int:
    """Return how many tasks are not over; one that failed stays while its error is held."""
    return sum(task.state != "erred" for task in dask_scheduler.tasks.values())


def n_runs(client: Client, name: str) -> int:
    """Return how often tasks of a name were given to a worker."""

    def count(dask_scheduler: Any) -> int:
        prefix = dask_scheduler.task_prefixes.get(name)
        return 0 if prefix is None else int(prefix.state_counts["processing"])

    return client.run_on_scheduler(count)
