"""Prints the table of sizes in README.md, from `dshift.plan`'s own numbers: `python sizing.py`.

    python sizing.py 5000000 128 32

prints one row of it, for so many histograms of so many bins on workers of so many threads.
"""

import sys

import dask.array as da

import dshift

CASES = [(100_000, 64), (1_000_000, 64), (1_000_000, 256), (10_000_000, 64)]
THREADS = 16
# Dask lets a worker fill so much of its memory before it moves things to disk.
FILLED = 0.7
GIB = 2**30
HEAD = (
    "| histograms | bins | threads a worker | points | memory a worker | the same, points on disk "
    "| blocks |\n|---|---|---|---|---|---|---|"
)


def row(n_samples: int, n_bins: int, threads: int) -> tuple[float, ...]:
    """Return GiB of the points, of a worker that holds them, of one that maps them; and blocks."""
    lazy = da.zeros((n_samples, n_bins), chunks=(10_000, n_bins))
    with dshift.engine.settings(threads=threads):
        plan = dshift.plan(lazy, 1.0, sample=False)
    points, work = plan.matrix_bytes / GIB, plan.working_bytes / GIB
    return points, (points + work) / FILLED, work / FILLED, plan.n_blocks


def line(n_samples: int, n_bins: int, threads: int) -> str:
    """Return one row of the table."""
    points, in_memory, mapped, n_blocks = row(n_samples, n_bins, threads)
    sizes = " | ".join(f"{size:.1f} GiB" for size in (points, in_memory, mapped))
    return f"| {n_samples:,} | {n_bins} | {threads} | {sizes} | {n_blocks:.0f} |"


if __name__ == "__main__":
    asked = [tuple(map(int, sys.argv[1:]))] if sys.argv[1:] else [(*c, THREADS) for c in CASES]
    print(HEAD)
    for case in asked:
        print(line(*case))
