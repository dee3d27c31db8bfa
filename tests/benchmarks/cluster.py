"""What a Dask cluster adds to a fit: speed-up, messages, memory of client and scheduler, ceiling.

Run by `python -m tests.benchmarks.cluster`, or one part alone: `... cluster speed` (or lean, bytes,
memory, ceiling). Worker processes are real, the data is a Zarr store.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import struct
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import dask
import xarray as xr
from distributed import Client, LocalCluster

import dshift
from dshift import engine
from dshift.engine import settings
from dshift.monitor import BlockDone
from tests.benchmarks import common
from tests.benchmarks.common import Row, note, print_table, stopwatch, synthetic

SPEED_ROWS, QUICK_SPEED_ROWS = 400_000, 2_000
# A shorter job says more of starts and ends than of the work: `speed` takes more rows until then.
LEAST_SPEED_SECONDS = 30.0
MORE_ROWS = 1.5
# Each way of running a job has its turn so often: a shared machine is not always as fast.
ROUNDS = 3
# Of two processes that only hash: what Dask itself leaves of two cores.
HASHING_SECONDS, QUICK_HASHING_SECONDS = 8.0, 0.2
BYTES_ROWS, QUICK_BYTES_ROWS = (12_500, 50_000, 200_000), (500, 2_000)
MEMORY_ROWS, QUICK_MEMORY_ROWS = (50_000, 200_000, 800_000), (500, 2_000)
EMPTY_BLOCKS, QUICK_EMPTY_BLOCKS = 10_000, 200
SEEDS = 480
# The same seeds in few and in many blocks: the difference is what a block costs.
FEW_BLOCKS, MANY_BLOCKS = 40, 160
MIB = 2**20
# What Dask does in every process however little there is to do: `speed` has it as Dask ships it,
# `lean` as these settings of Dask's own leave it.
LEAN = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.memory.monitor-interval": "1s",
}


@contextmanager
def cluster(n_workers: int, **options: Any) -> Iterator[Client]:
    """Start worker processes of one thread each, and wait until they have imported dshift."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
    with LocalCluster(n_workers=n_workers, **options) as local, Client(local) as client:
        client.run(__import__, "dshift.tasks")
        yield client


def write(n: int, folder: Path) -> str:
    """Write synthetic histograms to Zarr."""
    path = str(folder / f"{n}.zarr")
    counts = xr.DataArray(synthetic(n).counts, dims=("sample", "bin"), name="counts")
    counts.to_dataset().chunk(sample=min(n, 50_000)).to_zarr(path, mode="w", consolidated=False)
    return path


# ---------------------------------------------------------------- speed


def time_everywhere(n: int, folder: Path, n_rounds: int) -> dict[str, list[float]]:
    """Return the seconds of the same fit on threads of this process, and on worker processes."""
    path = write(n, folder)
    bandwidth = common.SYNTHETIC_BANDWIDTH
    dshift.fit(path, bandwidth, seeds=64, progress=False)
    seconds = defaultdict(list)
    for number in range(n_rounds):
        for threads in (1, 2):
            note(f"round {number + 1}: {threads} threads of this process, N = {n:,}")
            with settings(threads=threads):
                found, taken = stopwatch(lambda: dshift.fit(path, bandwidth, progress=False))
            seconds[f"{threads} threads"].append(taken)
        for n_workers in (1, 2):
            note(f"round {number + 1}: {n_workers} worker processes, N = {n:,}")
            with cluster(n_workers) as client:
                dshift.fit(path, bandwidth, seeds=64, client=client, progress=False)
                again, taken = stopwatch(
                    lambda client=client: dshift.fit(path, bandwidth, client=client, progress=False)
                )
            seconds[f"{n_workers} processes"].append(taken)
            xr.testing.assert_identical(again, found)
    return seconds


def hash_for(seconds: float) -> int:
    """Return how many mebibytes a thread hashes in so many seconds: no memory, and no lock."""
    data, n_hashed, end = bytes(MIB), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        hashlib.sha256(data).digest()
        n_hashed += 1
    return n_hashed


def two_that_hash(seconds: float) -> float:
    """Return how much more two worker processes hash than one does."""
    hashed = {}
    for n_workers in (1, 2):
        with cluster(n_workers) as client:
            each = client.map(hash_for, [seconds] * n_workers, pure=False)
            hashed[n_workers] = sum(client.gather(each))
    return hashed[2] / hashed[1]


def rows_that_take(least_seconds: float, n: int, folder: Path) -> int:
    """Return at least `n`, and as many rows as two threads of this process need so long for."""
    dshift.fit(write(n, folder), common.SYNTHETIC_BANDWIDTH, seeds=64, progress=False)
    while True:
        path = write(n, folder)
        with settings(threads=2):
            _, seconds = stopwatch(
                lambda path=path: dshift.fit(path, common.SYNTHETIC_BANDWIDTH, progress=False)
            )
        if seconds >= least_seconds:
            return n
        note(f"two threads take {seconds:.1f} s for N = {n:,}: more rows")
        n = int(n * MORE_ROWS)


def speed(quick: bool, folder: Path, part: str = "speed") -> list[Row]:
    """Compare one and two threads of this process, and one and two worker processes."""
    n = QUICK_SPEED_ROWS
    if not quick:
        n = rows_that_take(LEAST_SPEED_SECONDS, SPEED_ROWS, folder)
    rounds = time_everywhere(n, folder, 1 if quick else ROUNDS)
    rows = [
        {
            "part": part,
            "what": f"{where}, N = {n:,}",
            "value": f"{median(taken):.1f} s ({min(taken):.1f} to {max(taken):.1f})",
        }
        for where, taken in rounds.items()
    ]
    seconds = {where: median(taken) for where, taken in rounds.items()}
    by_processes = seconds["1 processes"] / seconds["2 processes"]
    to_threads = seconds["2 processes"] / seconds["2 threads"]
    hashing = two_that_hash(QUICK_HASHING_SECONDS if quick else HASHING_SECONDS)
    return [
        *rows,
        _row(part, "1 to 2 processes that only hash", hashing, "x"),
        _row(part, "1 to 2 threads", seconds["1 threads"] / seconds["2 threads"], "x"),
        _row(part, "1 to 2 processes", by_processes, "x", "at least 1.8"),
        _row(part, "2 processes to 2 threads", to_threads, "x", "at most 1.2"),
    ]


def lean(quick: bool, folder: Path) -> list[Row]:
    """Compare the same with Dask's periodic work turned down, in its workers too."""
    with dask.config.set(LEAN):
        return speed(quick, folder, "lean")


def _row(part: str, what: str, value: float, unit: str, wanted: str = "") -> Row:
    return {"part": part, "what": what, "value": f"{value:,.2f} {unit}", "wanted": wanted}


# ---------------------------------------------------------------- messages and memory


def measure_one(path: str, file: str, folder: str) -> Row:
    """Fit on a cluster of commands, and say what went through the scheduler and what was held."""
    bandwidth = common.SYNTHETIC_BANDWIDTH
    moved, peaks = {}, {}
    with Client(scheduler_file=file) as client:
        client.wait_for_workers(2)

        def fit(n_blocks: int, name: str) -> None:
            with settings(block_size=SEEDS // n_blocks):
                place = f"{folder}/{name}.zarr"
                options = {"client": client, "store": place, "progress": False}
                dshift.fit(path, bandwidth, seeds=SEEDS, **options)

        fit(FEW_BLOCKS, "first")  # imports, compiles
        for n_blocks in (FEW_BLOCKS, MANY_BLOCKS):
            before = client.run_on_scheduler(_scheduler_bytes)
            with common.PeakMemory() as peak:
                fit(n_blocks, str(n_blocks))
            after = client.run_on_scheduler(_scheduler_bytes)
            moved[n_blocks] = after["moved"] - before["moved"]
            peaks[n_blocks] = (peak.added_bytes, after["peak"] - before["peak"])
    more = MANY_BLOCKS - FEW_BLOCKS
    return {
        "block_bytes": (moved[MANY_BLOCKS] - moved[FEW_BLOCKS]) / more,
        "job_bytes": moved[FEW_BLOCKS],
        "client_bytes": peaks[FEW_BLOCKS][0],
        "scheduler_bytes": peaks[FEW_BLOCKS][1],
    }


def _scheduler_bytes(dask_scheduler: Any) -> dict[str, int]:
    """Return what passed the scheduler's open connections so far, and its peak of memory."""
    moved = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(descriptor))) as connection:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
        except OSError:  # no socket, or not of TCP
            continue
        if len(info) == 136:
            # `tcpi_bytes_acked` and `tcpi_bytes_received` of Linux's tcp_info.
            moved += sum(struct.unpack_from("QQ", info, 120))
    status = Path("/proc/self/status").read_text()
    return {"peak": int(status.split("VmHWM:")[1].split()[0]) * 1024, "moved": moved}


def measure(part: str, n: int, folder: Path) -> Row:
    """Measure one fit in processes of its own."""
    from tests.clusters import Commands

    note(f"{part}, N = {n:,}")
    path, place = write(n, folder), folder / f"{part}-{n}"
    place.mkdir()
    with Commands(place) as commands:
        commands.add_workers(2)
        module = ("-m", "tests.benchmarks.cluster", part)
        return common.run_python(*module, "--only", path, commands.file, str(place))


def messages(sizes: tuple[int, ...], folder: Path) -> list[Row]:
    """Return the bytes through the scheduler, with a store, at growing N."""
    rows = []
    for n in sizes:
        found = measure("bytes", n, folder)
        rows.append(_row("bytes", f"a block more, N = {n:,}", found["block_bytes"] / 1024, "KiB"))
        title = f"a job of {FEW_BLOCKS} blocks, N = {n:,}"
        rows.append(_row("bytes", title, found["job_bytes"] / 1024, "KiB", "flat in N"))
    return rows


def memory(sizes: tuple[int, ...], folder: Path) -> list[Row]:
    """Return what client and scheduler add, with a store, at growing N."""
    rows = []
    for n in sizes:
        found = measure("memory", n, folder)
        matrix = n * (common.N_BINS - 1) * 8 / MIB
        for who in ("client", "scheduler"):
            title = f"{who}, N = {n:,} (matrix {matrix:,.0f} MiB)"
            rows.append(_row("memory", title, found[f"{who}_bytes"] / MIB, "MiB", "flat in N"))
    return rows


# ---------------------------------------------------------------- the ceiling


def ceiling(n_blocks: int, folder: Path) -> list[Row]:
    """Have a fit climb blocks of no seeds: sent, told of, merged and drained like any others.

    One to a task, as where threads are many, and in runs, as where they are few.
    """
    from tests.clusters import make_job

    path = write(500, folder)
    note(f"{n_blocks:,} empty blocks")
    job = make_job(path, 1.0, seeds="all", invalid="raise")
    blocks = [slice(number, number) for number in range(n_blocks)]
    rows = []
    with cluster(2) as client:
        plan, _ = engine.plan_for(job, client)
        for cut in (replace(plan, indexed=False), plan):
            with engine.choose_executor(job, cut, client, None) as executor:
                executor.survey()
                told: list[BlockDone] = []
                executor.climb(blocks[:8], None, told.append)
                _, seconds = stopwatch(
                    lambda climb=executor.climb, told=told: climb(blocks, None, told.append)
                )
                how = f"in {len(cut.runs(blocks, executor.width)):,} tasks"
            rows += [
                _row("ceiling", f"{n_blocks:,} empty blocks {how}", seconds, "s"),
                _row("ceiling", f"a block {how}", 1000 * seconds / n_blocks, "ms"),
                _row("ceiling", f"blocks a second {how}", n_blocks / seconds, ""),
            ]
    return rows


COLUMNS = {"part": ("part", ""), "what": ("what", ""), "value": ("value", ""), "wanted": ("", "")}
Part = Callable[[bool, Path], list[Row]]
PARTS: dict[str, Part] = {
    "speed": speed,
    "lean": lean,
    "bytes": lambda quick, folder: messages(QUICK_BYTES_ROWS if quick else BYTES_ROWS, folder),
    "memory": lambda quick, folder: memory(QUICK_MEMORY_ROWS if quick else MEMORY_ROWS, folder),
    "ceiling": lambda quick, folder: ceiling(QUICK_EMPTY_BLOCKS if quick else EMPTY_BLOCKS, folder),
}


def main() -> None:
    """Measure what was asked for, and print one table."""
    parser = common.make_parser(__doc__, data=False)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which; all by default")
    parser.add_argument("--only", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure_one(*options.only)))
        return
    machine = common.describe_machine()
    rows: list[Row] = []
    for part in options.parts or PARTS:
        with tempfile.TemporaryDirectory() as name:
            rows += PARTS[part](options.quick, Path(name))
    print_table("What a cluster adds to a fit", rows, COLUMNS)
    common.save(options, machine, {"cluster": rows})


if __name__ == "__main__":
    main()
