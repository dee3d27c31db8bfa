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

import numpy as np
import xarray as xr
from distributed import Client, LocalCluster

import dshift
from dshift.demo import synthetic
from dshift.tasks import TOPIC, told

TESTS = Path(__file__).parent
SECONDS = 90  # for anything that is waited for, on a busy machine


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


def slow_distance(x: Any, rows: Any, seconds: float, poison: str) -> Any:
    if poison and os.path.exists(poison) and np.allclose(x, np.load(poison)):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds * len(rows))
    return np.abs(rows - x).sum(axis=1)


def middle(rows: Any, weights: Any) -> Any:
    return np.median(rows, axis=0)


def slow_metric(seconds: float, poison: Path | None = None) -> dshift.Metric:
    """Return L1, at so many seconds a row; it kills its process at the point in file `poison`."""
    distance = partial(slow_distance, seconds=seconds, poison=str(poison or ""))
    return dshift.Metric(distance, middle, name="slow")


# ---------------------------------------------------------------- clusters


@contextlib.contextmanager
def local(n_workers: int = 2, **options: Any) -> Iterator[tuple[LocalCluster, Client]]:
    options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
    # Not the active client, so that a fit without one runs in this process.
    with (
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

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--scheduler-file", self.file]
        paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
        with open(self.folder / "log.txt", "ab") as log:
            return subprocess.Popen(
                [*command, *self.options],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )

    def __enter__(self) -> Commands:
        where = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0")
        self.scheduler = self._start("scheduler", *where)
        until(lambda: os.path.exists(self.file), "the scheduler starts")
        return self

    def add_workers(self, n: int, *options: str) -> None:
        where = ("--host", "127.0.0.1", "--nthreads", "1", "--no-dashboard")
        scratch = ("--local-directory", str(self.folder / "local"))
        for _ in range(n):
            self.workers.append(self._start("worker", *where, *scratch, *options))

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


def n_done(place: Path) -> int:
    """Return how many blocks a store has on record."""
    folder = place / "dshift" / "blocks"
    return len(list(folder.glob("*.npz"))) if folder.exists() else 0


def blocks_told(client: Client) -> tuple[Counter[int], Counter[int]]:
    """Return how often each block, by its first seed, was climbed and was reused on a cluster."""
    done = [told(event)[1] for event in client.get_events(TOPIC)]
    climbed = Counter(block.block.start for block in done if not block.reused)
    return climbed, Counter(block.block.start for block in done if block.reused)


def n_runs(client: Client, name: str) -> int:
    """Return how often tasks of a name were given to a worker."""

    def count(dask_scheduler: Any) -> int:
        prefix = dask_scheduler.task_prefixes.get(name)
        return 0 if prefix is None else int(prefix.state_counts["processing"])

    return client.run_on_scheduler(count)
