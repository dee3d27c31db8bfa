"""Draw and check cases until the time is over; shrink and save what fails.

`python -m tests.fuzz --seconds 1800 --seed 1` ends with 1 if anything failed. A failure is saved
under `tests/fuzz/cases`, and the suite checks it from then on.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import sys
import time
import traceback
from collections import Counter
from contextlib import ExitStack

import numpy as np
from clusters import local
from distributed import Client

from .case import Case, save
from .check import check
from .draw import draw
from .shrink import shrink

# A case takes milliseconds; one that takes this long hangs, and says where.
HANGS_AFTER_SECONDS = 600


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--most", type=int, default=None, help="cases to check at most")
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.seconds
    seen: Counter[str] = Counter()
    n_failed = 0
    with ExitStack() as stack:
        _, client = stack.enter_context(local(2, processes=False))
        for number in itertools.count(asked.first):
            n_done = number - asked.first
            if time.monotonic() > deadline or n_done == asked.most:
                break
            faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)
            case = draw(asked.seed, number)
            error = failure(case, client)
            faulthandler.cancel_dump_traceback_later()
            seen.update(_traits(case))
            if error is not None:
                n_failed += 1
                _report(asked.seed, number, case, client)
    print(f"{n_done} cases of seed {asked.seed}, {n_failed} failed")
    print(", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    return 1 if n_failed else 0


def failure(case: Case, client: Client | None) -> str | None:
    """The kind of failure of a case, or None if it passes."""
    try:
        check(case, client if case.cluster else None)
    except Exception as error:
        return type(error).__name__
    return None


def _report(seed: int, number: int, case: Case, client: Client) -> None:
    print(f"case {number} of seed {seed} failed; making it smaller", flush=True)
    small = shrink(case, lambda smaller: failure(smaller, client))
    try:
        check(small, client if small.cluster else None)
    except Exception:
        traceback.print_exc()
    print(f"saved as {save(small)}", flush=True)


def _traits(case: Case) -> list[str]:
    yes = {
        "per-sample bandwidth": np.ndim(case.bandwidth) > 0,
        "weights": case.weights is not None,
        "edges": case.edges is not None,
        "valley": case.valley is not None,
        "own seeds": np.ndim(case.seeds) == 2,
        "some seeds": np.ndim(case.seeds) == 1,
        "holes": bool(case.holes),
        "cluster": case.cluster,
        "big-endian": case.dtype.startswith(">"),
    }
    return [
        case.metric,
        case.source,
        case.dtype[1:],
        *(name for name, is_so in yes.items() if is_so),
    ]


if __name__ == "__main__":
    sys.exit(main())
