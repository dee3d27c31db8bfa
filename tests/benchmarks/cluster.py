"""What a Dask cluster adds to a fit: speed-up, messages, memory of client and scheduler, ceiling.

Run by `python -m tests.benchmarks.cluster`. Worker processes are real, the data is a Zarr store.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xarray as xr
from distributed import Client, LocalCluster

import dshift
from dshift.engine import settings
from tests.benchmarks import common
from tests.benchmarks.common import Row, note, print_table, stopwatch, synthetic

SPEED_ROWS, QUICK_SPEED_ROWS = 150_000, 2_000
MEMORY_ROWS, QUICK_MEMORY_ROWS = (12_500, 50_000, 200_000), (500, 2_000)
EMPTY_BLOCKS, QUICK_EMPTY_BLOCKS = 10_000, 200
SEEDS, BLOCKS = 400, 40


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


def speed(n: int, folder: Path) -> list[Row]:
    """Time the same fit on two threads, and on one and two worker processes."""
    path = write(n, folder)
    bandwidth = common.SYNTHETIC_BANDWIDTH
    dshift.fit(path, bandwidth, seeds=64, progress=False)
    rows: list[Row] = []
    for threads in (1, 2):
        note(f"{threads} threads of this process, N = {n:,}")
        with settings(threads=threads):
            found, seconds = stopwatch(lambda: dshift.fit(path, bandwidth, progress=False))
        rows.append({"where": f"{threads} threads", "seconds": seconds})
    for n_workers in (1, 2):
        note(f"{n_workers} worker processes, N = {n:,}")
        with cluster(n_workers) as client:
            dshift.fit(path, bandwidth, seeds=64, client=client, progress=False)
            again, seconds = stopwatch(
                lambda client=client: dshift.fit(path, bandwidth, client=client, progress=False)
            )
        xr.testing.assert_identical(again, found)
        rows.append({"where": f"{n_workers} processes", "seconds": seconds})
    _, two_threads, one, two = (row["seconds"] for row in rows)
    rows[3] |= {"speedup": one / two, "over_threads": two / two_threads}
    rows[1]["speedup"] = rows[0]["seconds"] / two_threads
    return rows


SPEED_COLUMNS = {
    "where": ("where", ""),
    "seconds": ("seconds", ".2f"),
    "speedup": ("1 to 2", ".2f"),
    "over_threads": ("of 2 threads", ".2f"),
}


# ---------------------------------------------------------------- memory and messages


def measure_one(path: str, file: str) -> Row:
    """Fit on a cluster of commands and say what client and scheduler came to."""
    with Client(scheduler_file=file) as client:
        client.wait_for_workers(2)
        bandwidth = common.SYNTHETIC_BANDWIDTH
        client.run(__import__, "dshift.tasks")
        dshift.fit(path, bandwidth, seeds=64, client=client, progress=False)
        before = client.run_on_scheduler(_scheduler_bytes)
        with common.PeakMemory() as memory, settings(block_size=SEEDS // BLOCKS):
            dshift.fit(path, bandwidth, seeds=SEEDS, client=client, progress=False)
        after = client.run_on_scheduler(_scheduler_bytes)
    return {
        "client_bytes": memory.added_bytes,
        "scheduler_bytes": after["peak"] - before["peak"],
        "blocks": BLOCKS,
        "through_scheduler": after["moved"] - before["moved"],
        "per_block": (after["moved"] - before["moved"]) / BLOCKS,
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


def memory(sizes: tuple[int, ...], folder: Path) -> list[Row]:
    """Measure client and scheduler at growing N and a fixed number of seeds and blocks."""
    from tests.clusters import Commands

    rows = []
    for n in sizes:
        note(f"memory, N = {n:,}")
        path = write(n, folder)
        place = folder / f"cluster-{n}"
        place.mkdir()
        with Commands(place) as commands:
            commands.add_workers(2)
            module = ("-m", "tests.benchmarks.cluster")
            found = common.run_python(*module, "--only", path, commands.file)
        rows.append({"n": n, "matrix_bytes": n * (common.N_BINS - 1) * 8, **found})
    return rows


MEMORY_COLUMNS = {
    "n": ("N", ",d"),
    "matrix_bytes": ("matrix", ",d"),
    "client_bytes": ("client, added", ",d"),
    "scheduler_bytes": ("scheduler, added", ",d"),
    "through_scheduler": ("through scheduler", ",d"),
    "per_block": ("a block", ",.0f"),
}


# ---------------------------------------------------------------- the ceiling


def nothing(number: int) -> int:
    """Do a block's worth of nothing."""
    return number


def ceiling(n_blocks: int) -> Row:
    """Schedule empty blocks, drained as a fit drains them."""
    from distributed import as_completed

    note(f"{n_blocks:,} empty blocks")
    with cluster(2) as client:
        started = time.perf_counter()
        futures = client.map(nothing, range(n_blocks), key="dshift-shift-empty")
        submitted = time.perf_counter() - started
        queue = as_completed(futures)
        del futures
        for future in queue:
            del future
        seconds = time.perf_counter() - started
    return {
        "blocks": n_blocks,
        "seconds": seconds,
        "submit_seconds": submitted,
        "milliseconds_a_block": 1000 * seconds / n_blocks,
        "blocks_a_second": n_blocks / seconds,
        "workers_of_one_second_blocks": int(n_blocks / seconds),
    }


CEILING_COLUMNS = {
    "blocks": ("empty blocks", ",d"),
    "seconds": ("seconds", ".1f"),
    "milliseconds_a_block": ("ms a block", ".2f"),
    "blocks_a_second": ("blocks/s", ",.0f"),
    "workers_of_one_second_blocks": ("threads kept busy by 1 s blocks", ",d"),
}


def main() -> None:
    """Measure everything and print a table of each."""
    parser = common.make_parser(__doc__, data=False)
    parser.add_argument("--only", nargs=2, metavar=("PATH", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure_one(*options.only)))
        return
    machine = common.describe_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speeds = speed(QUICK_SPEED_ROWS if options.quick else SPEED_ROWS, folder)
        print_table("The same fit on threads and processes", speeds, SPEED_COLUMNS)
        rows = memory(QUICK_MEMORY_ROWS if options.quick else MEMORY_ROWS, folder)
        print_table(
            f"Client and scheduler, {SEEDS:,} seeds in {BLOCKS} blocks", rows, MEMORY_COLUMNS
        )
    top = ceiling(QUICK_EMPTY_BLOCKS if options.quick else EMPTY_BLOCKS)
    print_table("How far one scheduler goes", [top], CEILING_COLUMNS)
    common.save(options, machine, {"speed": speeds, "memory": rows, "ceiling": top})


if __name__ == "__main__":
    main()
