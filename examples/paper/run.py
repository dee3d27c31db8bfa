"""The experiments of the paper, as code. Fills in the tables of README.md and draws its pictures.

    python examples/paper/run.py --data ../shared/data/climdiv_state

Without --data, the climate data are downloaded from NOAA.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from examples.common import Page, make_parser
from examples.paper import climate, convergence, flights, synthetic

PARTS = ("synthetic", "convergence", "flights", "climate")


def main() -> None:
    """Run all parts, or those that were asked for."""
    parser = make_parser(__doc__)
    parser.add_argument("--data", type=Path, metavar="DIR", help="NOAA's nClimDiv files")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="these alone")
    options = parser.parse_args()
    page = Page(__file__, options.out)
    if "synthetic" in options.parts:
        synthetic.draw_samples(page)
        synthetic.compare(page, options.small)
    if "convergence" in options.parts:
        convergence.draw_convergence(page, options.small)
        convergence.draw_sweep(page, options.small)
    if "flights" in options.parts:
        flights.compare(page, options.small)
    if "climate" in options.parts:
        climate.compare(page, options.data, options.small)


if __name__ == "__main__":
    main()
