"""A million histograms of 64 bins, every one a seed. To be run by hand: it takes its time.

Run by `python -m tests.benchmarks.million`.
"""

from __future__ import annotations

from tests.benchmarks import common
from tests.benchmarks.common import note, print_table

N = 1_000_000
QUICK_N = 1_000


def main() -> None:
    """Draw the histograms, fit them behind a progress bar, print time and memory."""
    parser = common.make_parser(__doc__, data=False)
    parser.add_argument("--n", type=int, metavar="N", help=f"histograms (default: {N:,})")
    options = parser.parse_args()
    machine = common.describe_machine()
    n = options.n or (QUICK_N if options.quick else N)
    note(f"drawing {n:,} histograms")
    histograms = common.synthetic(n)
    row = common.measure_fit(histograms, progress=True)
    print_table(f"{n:,} x {common.N_BINS}, every row a seed", [row], common.FIT_COLUMNS)
    if not row["stationary"]:
        raise SystemExit("a seed did not end at a stationary point: this is a bug in dshift")
    common.save(options, machine, {"million": [row]})


if __name__ == "__main__":
    main()
