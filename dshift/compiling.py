"""The first fit of all, compiled by two processes.

numba compiles one function at a time in a process, whatever its threads. Of what a first fit
compiles, medians take a third, and come late. So a second process compiles them meanwhile, into
numba's cache, where this one finds them. It waits for nothing: what is not in the cache when it is
wanted, this process compiles itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from dshift import groups, lanes
from dshift.columns import bytes_of_slot
from dshift.groups import make_nest
from dshift.index import Held, read_only


@contextmanager
def compiled_beside(threads: int) -> Iterator[None]:
    """Within this context, have a second process compile, if there is need and more than a thread.

    It ends by itself; at the latest, with this context.
    """
    command = [sys.executable, "-P", "-m", "dshift.compiling"]
    quiet = subprocess.DEVNULL
    helper = None
    if threads > 1 and not is_compiled():
        with suppress(OSError):  # no such program, no room for a process: it only saves time
            helper = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        yield
    finally:
        if helper is not None:
            helper.kill()
            helper.wait()


def is_compiled() -> bool:
    """Return whether steps are compiled, in this process or in the cache, where numba compiles.

    What the cache has of an older version is older than its source. A program that was frozen into
    one file has no interpreter to start, and counts as compiled.
    """
    step = groups.step_points
    if not isinstance(step, Dispatcher) or getattr(sys, "frozen", False) or step.signatures:
        return True
    source = Path(groups.__file__).stat().st_mtime
    kept = f"groups.step_points-*.py{sys.version_info.major}{sys.version_info.minor}*.nbi"
    cache = Path(str(step.stats.cache_path))
    return any(file.stat().st_mtime >= source for file in cache.glob(kept))


def types_of_medians() -> tuple[Any, ...]:
    """Return the types that `take_medians` is called with, as no samples have them too."""
    nest, points = make_nest(0, 1, 1), np.empty((0, 1), np.int64)
    values = nothing_held(), nest.chain, 0, nest.batch, nest.lanes, 0, 0, points
    return tuple(numba.typeof(value) for value in values)


def nothing_held() -> Held:
    """Return an index of no samples."""

    def none(dtype: type, n_dimensions: int = 1) -> Any:
        return np.empty((0,) * n_dimensions, dtype)

    return Held(
        coords=read_only(none(np.int64, 2)),
        thresholds=none(np.int64),
        pulls=none(np.int64),
        rows=none(np.int64),
        lows=none(np.int64),
        unit=1,
        codes=none(np.uint16, 5),
        sums=none(np.uint16, 2),
        reach_in=none(np.uint16, 2),
        reach_out=none(np.uint16, 2),
        farthest=0,
        order=none(np.uint8, 2),
        slot_bytes=bytes_of_slot(0),
        heads=none(np.uint64, 2),
        ranks=none(np.uint16, 2),
        shift=0,
    )


if __name__ == "__main__":
    lanes.take_medians.compile(types_of_medians())
