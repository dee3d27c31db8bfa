"""How time, work and memory of a fit grow with the number of histograms at a fixed bandwidth.

Run by `python -m tests.benchmarks.growth`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.benchmarks import common
from tests.benchmarks.common import Histograms, Row, note, print_table

SIZES = {
    "synthetic": (12_500, 25_000, 50_000, 100_000, 200_000),
    "names": (12_500, 25_000, 50_000, 106_695),
}
QUICK_SIZES = {"synthetic": (250, 500, 1_000), "names": (250, 500, 1_000)}
# Below, what every fit costs once hides how it grows.
EXPONENT_FROM = 25_000


def load(kind: str, n: int, data: Path) -> Histograms:
    """Return one set of one size."""
    return common.synthetic(n) if kind == "synthetic" else common.names(data, n=n)


def measure_alone(kind: str, n: int, data: Path) -> Row:
    """Measure one fit in a process of its own, so that its memory is its own."""
    note(f"{kind}, N = {n:,}")
    module = ("-m", "tests.benchmarks.growth")
    return common.run_python(*module, "--only", kind, str(n), "--data", str(data.resolve()))


def exponent(rows: Sequence[Row], least_n: int) -> float | None:
    """Return b of seconds = a * N**b, by least squares on logarithms, from `least_n` on."""
    fitted = [row for row in rows if row["n"] >= least_n]
    if len(fitted) < 2:
        return None
    n = np.log([row["n"] for row in fitted])
    seconds = np.log([row["seconds"] for row in fitted])
    return float(np.polynomial.Polynomial.fit(n, seconds, 1).convert().coef[1])


def report(kind: str, rows: list[Row], least_n: int) -> Row:
    """Print the table of one set, and its exponent."""
    title = f"{rows[0]['data']}, {rows[0]['columns'] + 1} bins, bandwidth {rows[0]['bandwidth']}"
    print_table(title, rows, common.FIT_COLUMNS)
    power = exponent(rows, least_n)
    if power is not None:
        print(f"\ntime grows as N ** {power:.2f} from N = {max(least_n, rows[0]['n']):,}")
    return {"data": kind, "exponent": power, "from": least_n}


def main() -> None:
    """Measure every size of both sets and print a table of each."""
    parser = common.make_parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", metavar="N", help="instead of the usual")
    parser.add_argument("--set", choices=tuple(SIZES), help="this one alone")
    parser.add_argument("--only", nargs=2, metavar=("SET", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        kind, n = options.only
        print(json.dumps(common.measure_fit(load(kind, int(n), options.data))))
        return
    machine = common.describe_machine()
    tables: dict[str, list[Row]] = {"growth": [], "exponents": []}
    for kind in [options.set] if options.set else list(SIZES):
        if kind == "names" and not common.has_names(options.data):
            continue
        sizes = options.sizes or (QUICK_SIZES if options.quick else SIZES)[kind]
        rows = [measure_alone(kind, n, options.data) for n in sizes]
        tables["growth"] += rows
        tables["exponents"].append(report(kind, rows, 0 if options.quick else EXPONENT_FROM))
    common.save(options, machine, tables)


if __name__ == "__main__":
    main()
