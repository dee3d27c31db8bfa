"""What the benchmarks share: data, clocks, memory, tables, files."""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import dshift
from dshift import demo

ROOT = Path(__file__).resolve().parents[2]
NAMES_FILE = ROOT.parent / "shared" / "data" / "us_baby_names" / "us_baby_names.npz"

N_BINS = 64
# The paper's 4 bins of 100.
SYNTHETIC_BANDWIDTH = 4 * N_BINS / 100
# Years of birth.
NAMES_BANDWIDTH = 10.0
# Rows that are drawn at a time, so that drawing a million takes no more memory than clustering it.
DRAW_ROWS = 100_000
WARM_UP_ROWS = 1_000
# Fits below this are timed several times.
SHORT_SECONDS = 3.0

PACKAGES = ("numpy", "numba", "scipy", "scikit-learn", "fast_hdbscan", "pynndescent")

Row = dict[str, Any]
Value = TypeVar("Value")


# ---------------------------------------------------------------- data


@dataclass(frozen=True)
class Histograms:
    """A set of histograms, the bandwidth that suits it, and its classes where they are known."""

    name: str
    counts: NDArray[Any]
    bandwidth: float
    truth: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the cumulative histograms in float64; the last bin, always 1, is left out."""
        return len(self.counts) * (self.counts.shape[1] - 1) * 8

    def fit(self, *, rows: int | None = None, progress: bool = False) -> xr.Dataset:
        """Cluster the first `rows` histograms, or all, from the NumPy array to the Dataset."""
        return dshift.fit(self.counts[:rows], self.bandwidth, progress=progress)


def synthetic(n: int, seed: int = 0) -> Histograms:
    """Return `n` of the paper's synthetic histograms in 64 bins."""
    sizes = [min(DRAW_ROWS, n - start) for start in range(0, n, DRAW_ROWS)]
    parts = [demo.synthetic(size, seed + i, n_bins=N_BINS) for i, size in enumerate(sizes)]
    counts = np.concatenate([part.counts.values for part in parts])
    truth = np.concatenate([part.truth.values for part in parts])
    return Histograms("synthetic", counts, SYNTHETIC_BANDWIDTH, truth)


def names(path: Path, *, least_births: int = 0, n: int | None = None) -> Histograms:
    """Return the years of birth of the first names, all or `n` of them: larger sets hold smaller.

    They are in a random order, which is the same in every run.
    """
    counts = np.load(path)["counts"]
    counts = counts[counts.sum(axis=1) >= least_births]
    order = np.random.default_rng(0).permutation(len(counts))
    return Histograms("first names", np.ascontiguousarray(counts[order[:n]]), NAMES_BANDWIDTH)


def has_names(path: Path) -> bool:
    """Return whether the file of the first names is there; say so if it is not."""
    if not path.is_file():
        note(f"skipped: the first names, because there is no file {path}; give it as --data FILE")
    return path.is_file()


def cdfs_of(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return cumulative histograms (n, n_bins - 1) for the peers: L1 between them is W1."""
    cumulative = np.cumsum(counts, axis=1, dtype=np.float64)
    return np.ascontiguousarray(cumulative[:, :-1] / cumulative[:, -1:])


# ---------------------------------------------------------------- clocks


@dataclass(frozen=True)
class Timing(Generic[Value]):
    """What a call returned and how long it took: the median, and the first call if set apart."""

    value: Value
    seconds: float
    n_runs: int
    first_seconds: float | None = None


def stopwatch(call: Callable[[], Value]) -> tuple[Value, float]:
    """Return what `call` returns, and its seconds."""
    start = time.perf_counter()
    value = call()
    return value, time.perf_counter() - start


def timed(
    call: Callable[[], Value],
    *,
    warm_up: bool = False,
    enough_seconds: float = 10.0,
    most_runs: int = 7,
) -> Timing[Value]:
    """Call until `enough_seconds` are spent or `most_runs` are made, at least once.

    With `warm_up`, one more call comes first and is reported apart: it may compile.
    """
    first = stopwatch(call)[1] if warm_up else None
    value, seconds = stopwatch(call)
    runs = [seconds]
    while len(runs) < most_runs and sum(runs) + runs[-1] <= enough_seconds:
        value, seconds = stopwatch(call)
        runs.append(seconds)
    return Timing(value, statistics.median(runs), len(runs), first)


# ---------------------------------------------------------------- memory


class PeakMemory:
    """Bytes that a block of code added to this process at its highest.

    On Linux the high-water mark is set back to the present at the start. `ru_maxrss` cannot be set
    back, and a new process inherits its parent's: where there is nothing else, an earlier peak
    hides a later one.
    """

    added_bytes: int

    def __enter__(self) -> PeakMemory:
        gc.collect()
        _return_free_memory()
        _forget_peak()
        self._before = _peak_bytes()
        return self

    def __exit__(self, *error: object) -> None:
        self.added_bytes = _peak_bytes() - self._before


def _return_free_memory() -> None:
    """Give what malloc holds but does not use back to the system: it would hide later use."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> None:
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure_fit(histograms: Histograms, *, progress: bool = False) -> Row:
    """Return time, memory and work of a whole fit; kernels are compiled before."""
    histograms.fit(rows=WARM_UP_ROWS)
    with PeakMemory() as memory:
        result, seconds = stopwatch(lambda: histograms.fit(progress=progress))
    if seconds < SHORT_SECONDS:
        seconds = timed(histograms.fit).seconds
    matrix = histograms.matrix_bytes
    return {
        "data": histograms.name,
        "n": len(histograms),
        "columns": histograms.counts.shape[1] - 1,
        "bandwidth": histograms.bandwidth,
        "seconds": seconds,
        "microseconds_per_seed": seconds / len(histograms) * 1e6,
        "clusters": result.sizes["cluster"],
        "stationary": bool(result.stationary.all()),
        "evaluated_share": result.encoding["dshift_run"]["evaluated_share"],
        "points_per_seed": result.encoding["dshift_run"]["points_per_seed"],
        "matrix_bytes": matrix,
        "added_mib": memory.added_bytes / 2**20,
        "added_matrices": memory.added_bytes / matrix,
        "above_matrix": memory.added_bytes / matrix - 1,
    }


# ---------------------------------------------------------------- output

# What the columns of `measure_fit` are called in a table.
FIT_COLUMNS = {
    "data": ("data", ""),
    "n": ("N", ",d"),
    "seconds": ("seconds", ".2f"),
    "microseconds_per_seed": ("us/seed", ".0f"),
    "clusters": ("clusters", ",d"),
    "evaluated_share": ("evaluated of N", ".1%"),
    "points_per_seed": ("new points/seed", ".2f"),
    "added_mib": ("peak MiB", ",.0f"),
    "added_matrices": ("of matrix", ".2f"),
    "above_matrix": ("above it", ".2f"),
}


def note(text: str) -> None:
    """Say what goes on, beside the tables."""
    print(text, file=sys.stderr, flush=True)


def print_table(
    title: str, rows: Sequence[Row], columns: Mapping[str, tuple[str, str]], missing: str = "-"
) -> None:
    """Print rows under aligned heads.

    Parameters
    ----------
    columns : dict
        Key of a row to its head and its format, in order.
    missing : str
        What stands for None and for keys that a row does not have.
    """

    def cell(row: Row, key: str, form: str) -> str:
        return missing if row.get(key) is None else format(row[key], form)

    heads = [head for head, _ in columns.values()]
    body = [[cell(row, key, form) for key, (_, form) in columns.items()] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
    is_text = [form == "" for _, form in columns.values()]
    print(f"\n{title}\n")
    for line in (heads, ["-" * width for width in widths], *body):
        cells = zip(line, widths, is_text, strict=True)
        print("  ".join(f"{c:<{w}}" if left else f"{c:>{w}}" for c, w, left in cells).rstrip())
    sys.stdout.flush()


def make_parser(description: str | None, *, data: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a tiny run, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here too")
    if data:
        parser.add_argument(
            "--data", type=Path, default=NAMES_FILE, metavar="FILE", help="us_baby_names.npz"
        )
    return parser


def describe_machine() -> Row:
    """Return where and with what the numbers were taken, and print it."""
    installed = {name: _version(name) for name in PACKAGES}
    machine: Row = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "dshift": dshift.__version__,
        **{name: version for name, version in installed.items() if version},
    }
    print(", ".join(f"{key} {value}" for key, value in machine.items()), flush=True)
    if machine["load"] > 0.5:
        note(f"careful: other programs run here (load {machine['load']}); times will be long")
    return machine


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def save(options: argparse.Namespace, machine: Row, tables: Mapping[str, Any]) -> None:
    """Write the tables to the file of --json, if it was given."""
    if options.json is not None:
        content = {"machine": machine, "quick": options.quick, **tables}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def run_python(*arguments: str, environment: Mapping[str, str] | None = None) -> Row:
    """Run Python in a process of its own and return the JSON object on its last line."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: Row = json.loads(done.stdout.splitlines()[-1])
    return answer
