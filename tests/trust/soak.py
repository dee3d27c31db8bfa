"""Fits on a cluster that is attacked all the time: the results stay the same, to the bit.

`python -m tests.trust.soak --minutes 60` kills and adds workers, stops one for a while, cuts the
network of one, has another client restart the cluster, and kills the scheduler, while one fit after
the other runs there. It prints each fit, the faults by kind, and the memory of client, scheduler
and workers from first to last; it ends with 1 if a result differed, or a fit failed with anything
but the loss of the scheduler, or a restart before its samples were read.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import xarray as xr
from clusters import TESTS, until
from distributed import Client

import dshift
from dshift.demo import synthetic
from dshift.engine import settings
from tests.trust.links import Link, why_not

# What a fit says that may be called again; a restart ends one that still asks how to travel.
LOST = ("connection to the scheduler", "was restarted")
N_SAMPLES, N_BINS, BANDWIDTH, VALLEY = 30_000, 64, 1.0, 0.1
BLOCK_SIZE = 1000
LEAST_WORKERS, MOST_WORKERS = 2, 4
# So that a cut line is noticed in seconds: half a minute is what Dask allows by default.
NOTICES = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s"}
MIB = 2**20


@dataclass
class Site:
    """A scheduler and workers as processes; one worker behind a link of its own, if possible."""

    folder: Path
    link: Link | None
    generation: int = 0
    scheduler: subprocess.Popen[bytes] = field(init=False)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    leaving: list[subprocess.Popen[bytes]] = field(default_factory=list)  # told to end
    remote: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> str:
        """Where the scheduler says its address."""
        return str(self.folder / f"scheduler-{self.generation}.json")

    def _start(self, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        command = [*before, sys.executable, "-m", "dask", *arguments, "--scheduler-file", self.file]
        paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, **NOTICES, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with open(self.folder / "log.txt", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=env)

    def start(self) -> None:
        """Start a scheduler, and workers."""
        self.generation += 1
        host = "127.0.0.1" if self.link is None else self.link.host
        where = ("--host", host, "--port", "0", "--dashboard-address", ":0")
        self.scheduler = self._start("scheduler", *where)
        until(lambda: os.path.exists(self.file), "the scheduler starts")
        for _ in range(LEAST_WORKERS):
            self.add_worker()
        self.add_remote()

    def add_worker(self) -> None:
        """Start one more worker."""
        host = "127.0.0.1" if self.link is None else self.link.host
        self.workers.append(self._start("worker", *self._worker_options(host)))

    def add_remote(self) -> None:
        """Start the worker behind the link, unless it lives."""
        if self.link is not None and (self.remote is None or self.remote.poll() is not None):
            options = self._worker_options(self.link.inside)
            self.remote = self._start("worker", *options, before=self.link.within)

    def _worker_options(self, host: str) -> tuple[str, ...]:
        scratch = str(self.folder / "scratch")
        plain = ("--nthreads", "1", "--no-dashboard", "--no-nanny", "--memory-limit", "2GiB")
        return ("--host", host, *plain, "--local-directory", scratch, "--death-timeout", "60")

    def living(self) -> list[subprocess.Popen[bytes]]:
        """Workers that can be attacked by signals."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        return self.workers

    def records(self) -> set[Path]:
        """Blocks that are in the stores of the runs."""
        return set(self.folder.glob("run-*.zarr/dshift/blocks/*.npz"))

    def stop(self) -> None:
        """End all processes."""
        remote = [self.remote] if self.remote else []
        ours = [self.scheduler, *self.workers, *self.leaving, *remote]
        for process in ours:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in ours:
            process.wait()
        self.workers, self.leaving, self.remote = [], [], None


# ---------------------------------------------------------------- faults


def kill_worker(site: Site, dice: random.Random) -> None:
    """Kill a worker, and start others if few are left."""
    dice.choice(site.living()).kill()
    while len(site.living()) < LEAST_WORKERS:
        site.add_worker()


def add_worker(site: Site, dice: random.Random) -> None:
    """Add a worker, or let one go if there are many."""
    if len(site.living()) < MOST_WORKERS:
        site.add_worker()
    else:
        worker = dice.choice(site.living())
        worker.terminate()
        site.workers.remove(worker)
        site.leaving.append(worker)


def pause_worker(site: Site, dice: random.Random) -> None:
    """Stop a worker for some seconds."""
    worker = dice.choice(site.living())
    worker.send_signal(signal.SIGSTOP)
    time.sleep(dice.uniform(2, 15))
    worker.send_signal(signal.SIGCONT)


def cut_network(site: Site, dice: random.Random) -> None:
    """Cut the link of the remote worker, for shorter or longer than it takes to notice."""
    assert site.link is not None
    site.add_remote()
    site.link.cut()
    time.sleep(dice.choice([3, 20]))
    site.link.mend()


def restart_cluster(site: Site, dice: random.Random) -> None:
    """Have another client restart the cluster: the tasks of all clients are gone, and all workers.

    Workers without a nanny end then; whoever started them starts them again.
    """
    ended = [*site.living(), *([site.remote] if site.remote else [])]
    with Client(scheduler_file=site.file, timeout=60, set_as_default=False) as other:
        other.restart(wait_for_workers=False)
    for worker in ended:
        # Those that had not joined yet heard nothing of it. Killed, because a worker of Dask that
        # is told to end while it closes may hang.
        worker.kill()
        worker.wait()
    for _ in range(LEAST_WORKERS):
        site.add_worker()
    site.add_remote()


def restart_scheduler(site: Site, dice: random.Random) -> None:
    """Kill the scheduler, and start all anew: workers do not outlive their scheduler."""
    site.stop()
    site.start()


Fault = Callable[[Site, random.Random], None]
OFTEN: tuple[Fault, ...] = (kill_worker, kill_worker, add_worker, add_worker, pause_worker)
SELDOM: dict[int, Fault] = {5: restart_cluster, 0: restart_scheduler}


def attack(site: Site, dice: random.Random, end: threading.Event, faults: Counter[str]) -> None:
    """Do one thing after the other until the end; every tenth time the scheduler goes.

    Half-way to that the cluster is restarted: oftener, one fit could lose a task too many times.

    A fault waits for a block to be recorded since the last one: on a machine of any speed, the fits
    are hit in the middle, and get on nevertheless.
    """
    choices = (*OFTEN, *((cut_network,) if site.link else ()))
    for number in itertools.count(1):
        before = site.records()
        while site.records() == before or dice.random() < 0.5:
            if end.wait(1):
                return
            if not site.living():
                site.add_worker()
        fault = SELDOM.get(number % 10) or dice.choice(choices)
        fault(site, dice)
        faults[fault.__name__] += 1


# ---------------------------------------------------------------- fits


def fit(data: str, store: Path | None = None, client: Client | None = None) -> xr.Dataset:
    """The call that is made over and over."""
    with settings(block_size=BLOCK_SIZE):
        return dshift.fit(data, BANDWIDTH, valley=VALLEY, store=store, client=client).load()


def fit_until_done(site: Site, data: str, store: Path, losses: Counter[str]) -> xr.Dataset:
    """Call `fit` again with a new client wherever the cluster was lost; the store goes on."""
    while True:
        try:
            with Client(scheduler_file=site.file, timeout=60, set_as_default=False) as client:
                return fit(data, store, client)
        except (dshift.BlockFailed, OSError, TimeoutError) as error:
            is_lost = any(said in str(error) for said in LOST)
            if is_lost or not isinstance(error, dshift.DshiftError):
                losses[type(error).__name__] += 1
                time.sleep(0.5)
            else:
                raise


def resident(pid: int) -> float:
    """MiB that a process holds, 0 if it is gone."""
    with contextlib.suppress(psutil.Error):
        return float(psutil.Process(pid).memory_info().rss / MIB)
    return 0.0


@contextlib.contextmanager
def maybe_link() -> Iterator[Link | None]:
    """A link, or the reason why there is none."""
    reason = why_not()
    if reason is not None:
        print(f"no network is cut: {reason}")
        yield None
        return
    link = Link()
    try:
        yield link
    finally:
        link.close()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.soak")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=N_SAMPLES)
    asked = parser.parse_args()
    os.environ.update(NOTICES)
    # Dask says at length that a connection was lost, which is what is done here on purpose.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    faults: Counter[str] = Counter()
    losses: Counter[str] = Counter()
    n_fits = n_wrong = 0
    with (
        tempfile.TemporaryDirectory(prefix="dshift-soak-", ignore_cleanup_errors=True) as name,
        maybe_link() as link,
    ):
        folder = Path(name)
        data = str(folder / "data.zarr")
        counts = synthetic(asked.samples, n_bins=N_BINS).counts
        counts.to_dataset(name="counts").chunk(sample=4096).to_zarr(data, consolidated=False)
        expected = fit(data)
        print(f"{asked.samples} samples, {expected.sizes['mode']} modes", flush=True)
        site = Site(folder, link)
        site.start()
        end = threading.Event()
        attacker = ThreadPoolExecutor(1)
        attacked = attacker.submit(attack, site, random.Random(asked.seed), end, faults)
        started = time.monotonic()
        try:
            while not attacked.done() and (
                n_fits == 0 or time.monotonic() < started + 60 * asked.minutes
            ):
                begun = time.monotonic()
                found = fit_until_done(site, data, folder / f"run-{n_fits}.zarr", losses)
                n_fits += 1
                same = found.identical(expected)
                n_wrong += not same
                workers = [resident(worker.pid) for worker in site.workers]
                print(
                    f"{time.monotonic() - started:6.0f} s  fit {n_fits} took "
                    f"{time.monotonic() - begun:5.1f} s, {'same' if same else 'DIFFERENT'};  MiB: "
                    f"client {resident(os.getpid()):.0f}, scheduler "
                    f"{resident(site.scheduler.pid):.0f}, workers "
                    f"{', '.join(f'{worker:.0f}' for worker in workers)};  {faults.total()} faults",
                    flush=True,
                )
        finally:
            end.set()
            attacker.shutdown()
            site.stop()
        attacked.result()  # raises what ended the attacks before their time
    print(f"{n_fits} fits, {n_wrong} differed; faults: {dict(faults)}; lost: {dict(losses)}")
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
