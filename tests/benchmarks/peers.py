"""dshift.fit against other ways to cluster the same histograms, and against one distance matrix.

Run by `python -m tests.benchmarks.peers`.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import DBSCAN, HDBSCAN, MeanShift

from dshift.demo import agreement
from dshift.engine import settings
from tests.benchmarks import common
from tests.benchmarks.common import Histograms, Row, note, print_table, stopwatch, timed

SIZES = (5_000, 20_000)
QUICK_SIZES = (2_000,)
LEAST_BIRTHS = 1_000
QUICK_NAMES = 500
# MeanShift takes minutes beyond.
MEAN_SHIFT_MOST = 5_000
START_ROWS = 1_000
THREADS = (1, 2)
FAST_HDBSCAN = ("fast_hdbscan", "pynndescent")


@dataclass(frozen=True)
class Parameters:
    """What gives the peers sensible clusters: found by hand, and quick ones preferred."""

    mean_shift_bandwidth: float | None
    eps: float
    min_samples: int
    min_cluster_size: int


PARAMETERS = {
    "synthetic": Parameters(0.7, eps=0.7, min_samples=10, min_cluster_size=100),
    "first names": Parameters(None, eps=2.0, min_samples=20, min_cluster_size=50),
}


@dataclass(frozen=True)
class Peer:
    """Another way, from cumulative histograms to labels, or to nothing but time."""

    name: str
    run: Callable[[NDArray[np.float64]], NDArray[np.int64] | None]
    compiles: bool = False


def peers_for(histograms: Histograms) -> Iterator[Peer]:
    """Yield the peers that can be run on this set."""
    use = PARAMETERS[histograms.name]
    manhattan: dict[str, Any] = {"metric": "manhattan", "n_jobs": -1}
    if use.mean_shift_bandwidth is not None and len(histograms) <= MEAN_SHIFT_MOST:
        shift = MeanShift(bandwidth=use.mean_shift_bandwidth, n_jobs=-1)
        yield Peer("scikit-learn MeanShift", shift.fit_predict)
    dbscan = DBSCAN(eps=use.eps, min_samples=use.min_samples, **manhattan)
    yield Peer("scikit-learn DBSCAN (manhattan)", dbscan.fit_predict)
    # Ten neighbours for both: fast_hdbscan searches three times as many, so that more are slower.
    # By itself it takes as many as a cluster has at least, and leaves fewer names in none.
    hierarchy: dict[str, Any] = {"min_cluster_size": use.min_cluster_size, "min_samples": 10}
    hdbscan = HDBSCAN(**hierarchy, **manhattan, copy=True)
    yield Peer("scikit-learn HDBSCAN (manhattan)", hdbscan.fit_predict)
    if missing := [name for name in FAST_HDBSCAN if importlib.util.find_spec(name) is None]:
        note(f"skipped: fast_hdbscan; pip install {' '.join(missing)}")
    else:
        fast = partial(_fast_hdbscan, **hierarchy)
        yield Peer("fast_hdbscan (L2, approximate)", fast, compiles=True)
        by_default = partial(_fast_hdbscan, min_cluster_size=use.min_cluster_size)
        yield Peer("fast_hdbscan, min_samples by default", by_default, compiles=True)
    yield Peer("SciPy cdist (cityblock), 1 thread", _all_distances)


def _fast_hdbscan(cdfs: NDArray[np.float64], **hierarchy: Any) -> NDArray[np.int64]:
    from fast_hdbscan import HDBSCAN as FastHDBSCAN

    labels: NDArray[np.int64] = FastHDBSCAN(**hierarchy).fit_predict(cdfs)
    return labels


def _all_distances(cdfs: NDArray[np.float64]) -> None:
    cdist(cdfs, cdfs, "cityblock")


def compare(
    histograms: Histograms, without: Sequence[str], *, enough_seconds: float = 10.0
) -> list[Row]:
    """Time dshift and its peers on one set; every ratio is to this dshift.

    Parameters
    ----------
    without : sequence of str
        Parts of the names of peers to leave out.
    enough_seconds : float
        What is shorter is timed several times, for so long.

    Returns
    -------
    list of dict
        The row of a peer that failed holds its `error`, and no times.
    """
    note(f"{histograms.name}, N = {len(histograms):,}: dshift")
    ours = timed(lambda: histograms.fit().label.values, warm_up=True, enough_seconds=enough_seconds)
    rows = [_row(histograms, "dshift.fit", ours, ours.seconds)]
    cdfs = common.cdfs_of(histograms.counts)
    for peer in peers_for(histograms):
        if any(part in peer.name for part in without):
            continue
        note(f"{histograms.name}, N = {len(histograms):,}: {peer.name}")
        try:
            timing = timed(
                partial(peer.run, cdfs), warm_up=peer.compiles, enough_seconds=enough_seconds
            )
        except Exception as error:  # of whatever kind, in a package of others
            said = f"{type(error).__name__}: {error}"
            note(f"failed: {peer.name} with {said}")
            rows.append({**_about(histograms, peer.name), "error": said})
        else:
            rows.append(_row(histograms, peer.name, timing, ours.seconds))
    return rows


def _about(histograms: Histograms, name: str) -> Row:
    return {"data": histograms.name, "n": len(histograms), "method": name}


def _row(histograms: Histograms, name: str, timing: common.Timing[Any], unit: float) -> Row:
    labels, truth = timing.value, histograms.truth
    row: Row = {
        **_about(histograms, name),
        "seconds": timing.seconds,
        "ratio": timing.seconds / unit,
        "first_seconds": timing.first_seconds,
        "n_runs": timing.n_runs,
    }
    if labels is not None:
        row["clusters"] = len(np.unique(labels[labels >= 0]))
        row["without_cluster"] = float(np.mean(labels < 0))
        row["ari"] = None if truth is None else agreement(labels, truth)
    return row


def compare_threads(histograms: Histograms, n_rounds: int) -> Row:
    """Time fits with one thread and with two, in turns."""
    note(f"{histograms.name}, N = {len(histograms):,}: threads")
    histograms.fit(rows=common.WARM_UP_ROWS)
    runs: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for _ in range(n_rounds):
        for threads in THREADS:
            with settings(threads=threads):
                runs[threads].append(stopwatch(histograms.fit)[1])
    one, two = (statistics.median(runs[threads]) for threads in THREADS)
    return {
        "data": histograms.name,
        "n": len(histograms),
        "one_seconds": one,
        "two_seconds": two,
        "ratio": one / two,
        "n_runs": n_rounds,
    }


# NumPy is there before the clock starts, as it is for whoever holds an array.
FIRST_FIT = """
import json, sys, time
import numpy
counts = numpy.load(sys.argv[1])
start = time.perf_counter()
import dshift
dshift.fit(counts, float(sys.argv[2]), progress=False)
print(json.dumps({"fit_seconds": time.perf_counter() - start}))
"""


def first_fits(n_warm_runs: int) -> list[Row]:
    """Time the first fit of fresh processes, with nothing in numba's cache, then with all in it."""
    histograms = common.synthetic(START_ROWS)
    with tempfile.TemporaryDirectory(prefix="dshift-benchmark-") as folder:
        file = Path(folder) / "counts.npy"
        np.save(file, histograms.counts)
        environment = {
            "NUMBA_CACHE_DIR": str(Path(folder) / "cache"),
            # Kept, as pip keeps it where packages are installed, whatever the settings here.
            "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode"),
            "PYTHONDONTWRITEBYTECODE": "",
        }

        def start() -> Row:
            began = time.perf_counter()
            answer = common.run_python(
                "-c", FIRST_FIT, str(file), str(histograms.bandwidth), environment=environment
            )
            return {**answer, "process_seconds": time.perf_counter() - began}

        note(f"first fit of a fresh process, N = {START_ROWS:,}")
        common.run_python("-c", "import dshift.api; print(0)", environment=environment)
        empty = start()
        warm = [start() for _ in range(n_warm_runs)]
    medians = {key: statistics.median(run[key] for run in warm) for key in empty}
    return [
        {"cache": "empty", "n": START_ROWS, "n_runs": 1, **empty},
        {"cache": "warm", "n": START_ROWS, "n_runs": n_warm_runs, **medians},
    ]


COLUMNS = {
    "method": ("method", ""),
    "seconds": ("seconds", ".3f"),
    "ratio": ("to dshift", ".1f"),
    "clusters": ("clusters", ",d"),
    "without_cluster": ("in none", ".0%"),
    "ari": ("ARI", ".3f"),
    "first_seconds": ("first call", ".3f"),
    "n_runs": ("runs", "d"),
}
THREAD_COLUMNS = {
    "data": ("data", ""),
    "n": ("N", ",d"),
    "one_seconds": ("1 thread", ".3f"),
    "two_seconds": ("2 threads", ".3f"),
    "ratio": ("ratio", ".2f"),
    "n_runs": ("runs", "d"),
}
START_COLUMNS = {
    "cache": ("compilation cache", ""),
    "n": ("N", ",d"),
    "fit_seconds": ("import and fit", ".2f"),
    "process_seconds": ("whole process", ".2f"),
    "n_runs": ("runs", "d"),
}


def choose_sets(options: argparse.Namespace) -> list[Histograms]:
    """Return the sets to compare on."""
    sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)
    sets = [common.synthetic(n) for n in sizes]
    if common.has_names(options.data):
        n = QUICK_NAMES if options.quick else None
        sets.append(common.names(options.data, least_births=LEAST_BIRTHS, n=n))
    return sets


def main() -> None:
    """Run the comparisons and print three kinds of tables."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="of the synthetic sets")
    parser.add_argument(
        "--without", nargs="+", default=[], metavar="PEER", help="leave out, such as MeanShift"
    )
    options = parser.parse_args()
    machine = common.describe_machine()
    sets = choose_sets(options)
    rows: list[Row] = []
    for histograms in sets:
        of_set = compare(histograms, options.without)
        n, n_bins = histograms.counts.shape
        print_table(f"{histograms.name}, {n:,} x {n_bins}", of_set, COLUMNS)
        rows += of_set
    # The largest synthetic set and the names: small ones have no work to share.
    largest = {histograms.name: histograms for histograms in sets}
    threads = [compare_threads(each, 1 if options.quick else 5) for each in largest.values()]
    print_table("one thread to two", threads, THREAD_COLUMNS)
    starts = first_fits(1 if options.quick else 5)
    print_table("first fit in a fresh process", starts, START_COLUMNS)
    common.save(options, machine, {"peers": rows, "threads": threads, "first_fits": starts})


if __name__ == "__main__":
    main()
