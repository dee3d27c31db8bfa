"""Peaks of memory against the forecast, over a grid of types, samples, bins and threads.

`python -m tests.trust.memory` prints a table. Each point is fitted in a process of its own, which
first fits a small part, so that compiled code and libraries are not counted as data, and then gives
back what `malloc` kept of it: what the fit took from there would not be seen.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.trust import ROOT

SAMPLES, BINS, THREADS = (20_000, 60_000, 120_000), (32, 64, 128), (1, 2)
DTYPES = ("uint8", "float64")  # wide ones are read in several blocks
MIB = 2**20

# The peak is the kernel's own high-water mark, set back once the small fit is over.
FIT = """
import ctypes, gc, json, sys
from pathlib import Path
import dshift
from dshift.engine import settings

path, threads = sys.argv[1], int(sys.argv[2])

def status(name):
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith(name))
    return int(line.split()[1]) * 1024

with settings(threads=threads):
    dshift.fit(path + ".small", 2.5)
    forecast = dshift.plan(path, 2.5, sample=False)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    result = dshift.fit(path, 2.5)
    print(json.dumps([forecast.process_bytes, status("VmHWM") - before, result.sizes["mode"]]))
"""


@dataclass(frozen=True)
class Peak:
    """Bytes foreseen and bytes taken by one fit."""

    forecast_bytes: int
    peak_bytes: int
    n_modes: int

    @property
    def ratio(self) -> float:
        """The forecast as a multiple of the truth."""
        return self.forecast_bytes / self.peak_bytes


def usual_malloc() -> dict[str, str]:
    """Return the environment without settings of `malloc`.

    A process that starts Dask workers has one from then on, by which `malloc` keeps nothing: peaks
    of what it starts later are lower by a third.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}


def measure(n_samples: int, n_bins: int, threads: int, dtype: str) -> Peak:
    """Fit in a fresh process, and say what it took."""
    from dshift.demo import synthetic

    with tempfile.TemporaryDirectory(prefix="dshift-memory-") as folder:
        path = str(Path(folder) / "data.zarr")
        counts = synthetic(n_samples, n_bins=n_bins).counts.astype(dtype)
        counts.to_dataset(name="counts").chunk(sample=8192).to_zarr(path, consolidated=False)
        counts[:2000].to_dataset(name="counts").to_zarr(f"{path}.small", consolidated=False)
        said = subprocess.run(
            [sys.executable, "-c", FIT, path, str(threads)],
            cwd=ROOT,
            env=usual_malloc(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    return Peak(*json.loads(said.stdout))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.trust.memory")
    parser.add_argument("--samples", type=int, nargs="+", default=SAMPLES)
    parser.add_argument("--bins", type=int, nargs="+", default=BINS)
    parser.add_argument("--threads", type=int, nargs="+", default=THREADS)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    asked = parser.parse_args()
    print("  dtype  samples  bins  threads  forecast MiB  peak MiB  forecast / peak  modes")
    ratios = []
    # What only large sets need is not compiled by the small fit: compiling took 27 MiB once.
    measure(max(asked.samples), max(asked.bins), 1, asked.dtypes[0])
    grid = itertools.product(asked.dtypes, asked.samples, asked.bins, asked.threads)
    for dtype, n_samples, n_bins, threads in grid:
        peak = measure(n_samples, n_bins, threads, dtype)
        ratios.append(peak.ratio)
        print(
            f"{dtype:>7}  {n_samples:7d}  {n_bins:4d}  {threads:7d}  "
            f"{peak.forecast_bytes / MIB:12.1f}  {peak.peak_bytes / MIB:8.1f}  "
            f"{peak.ratio:15.2f}  {peak.n_modes:5d}",
            flush=True,
        )
    print(f"forecast / peak from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
