"""Time `dshift.histogram` against a plain `np.bincount` pass over the same data.

    python tests/benchmarks/histograms.py [--values-cube 200_000_000] [--values-table 10_000_000]

Two baselines, each a single pass in one thread, chunk by chunk where ours is:

- *bytes*: `np.bincount` reads the same bytes as the histogram: integers of the values' size for a
  cube, ids with the values as weights for a table;
- *indices*: `np.bincount` of ready-made int64 indices sample * n_bins + bin, one for each value:
  the very counts, had someone found the bins already.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import time
from collections.abc import Callable, Iterator

import dask
import numpy as np
import pandas as pd
import xarray as xr

from dshift.histograms import histogram

N_BINS = 64
EVEN = np.linspace(-6, 6, N_BINS + 1)
UNEVEN = np.sinh(np.linspace(-2, 2, N_BINS + 1))
UNEVEN *= 6 / UNEVEN[-1]


def fastest(
    functions: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Return the best time of each, taken in turns so that they share the machine's moods."""
    times = {name: np.inf for name in functions}
    for function in functions.values():
        function()  # compiles
    for _, (name, function) in itertools.product(range(repeats), functions.items()):
        start = clock()
        function()
        times[name] = min(times[name], clock() - start)
    return times


def cube_cases(n_values: int) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    n_time, n_side = 1000, round((n_values / 1000) ** 0.5)
    chunks = {"time": n_time // 4, "y": -(-n_side // 2), "x": n_side}
    for dtype, edges, order in (
        (np.float32, EVEN, ("time", "y", "x")),
        (np.float32, EVEN, ("y", "x", "time")),
        (np.float64, EVEN, ("time", "y", "x")),
        (np.float32, UNEVEN, ("time", "y", "x")),
    ):
        rng = np.random.default_rng(0)
        shape = tuple(n_time if name == "time" else n_side for name in order)
        raw = rng.standard_normal(shape, dtype=dtype)
        np.clip(raw, -6, 6, out=raw)
        cube = xr.DataArray(raw, dims=order).chunk(chunks)
        parts = [part.compute() for part in cube.data.blocks]
        cells = [_indices(part, edges, order.index("time")) for part in parts]
        ints = [part.astype(f"i{raw.itemsize}") for part in cells]
        lazy = histogram(cube, edges, dim="time")
        kind = "even" if edges is EVEN else "uneven"
        name = (
            f"cube {'x'.join(map(str, shape))} {np.dtype(dtype)} over {order.index('time')} {kind}"
        )
        yield (
            name,
            {
                "bytes": lambda ints=ints: [np.bincount(part) for part in ints],
                "indices": lambda cells=cells: [np.bincount(part) for part in cells],
                "1 thread": lambda lazy=lazy: dask.compute(lazy.data, scheduler="sync"),
                "threads": lambda lazy=lazy: dask.compute(lazy.data, scheduler="threads"),
            },
        )


def _indices(part: np.ndarray, edges: np.ndarray, axis: int) -> np.ndarray:
    bins = np.clip(np.searchsorted(edges, part, side="right") - 1, 0, N_BINS - 1)
    shape = [1 if i == axis else size for i, size in enumerate(part.shape)]
    samples = np.arange(np.prod(shape)).reshape(shape)
    return (bins + N_BINS * samples).ravel()


def table_cases(n_values: int) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    for n_ids, order in (
        (1_000, "random"),
        (10_000, "random"),
        (100_000, "random"),
        (10_000, "sorted"),
    ):
        rng = np.random.default_rng(0)
        ids = rng.integers(0, n_ids, n_values)
        if order == "sorted":
            ids.sort()
        values = np.clip(rng.standard_normal(n_values), -6, 6)
        frame = pd.DataFrame({"id": ids, "value": values})
        cells = ids * N_BINS + np.clip(
            np.searchsorted(EVEN, values, side="right") - 1, 0, N_BINS - 1
        )
        yield (
            f"table {n_values} rows, {n_ids} {order} ids",
            {
                "bytes": lambda ids=ids, values=values: np.bincount(ids, weights=values),
                "indices": lambda cells=cells: np.bincount(cells),
                "threads": lambda frame=frame: histogram(frame, EVEN, id="id", value="value"),
            },
        )


def main() -> None:
    """Print a table of ratios: ours over each baseline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values-cube", type=int, default=200_000_000)
    parser.add_argument("--values-table", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: if busy")
    given = parser.parse_args()
    clock = time.perf_counter if given.clock == "wall" else time.process_time
    columns = (
        "bytes s",
        "indices s",
        "1 thread s",
        "threads s",
        "/bytes",
        "/indices",
        "threads/bytes",
    )
    print(f"{'case':52}" + "".join(f"{column:>14}" for column in columns))
    for name, functions in itertools.chain(
        table_cases(given.values_table), cube_cases(given.values_cube)
    ):
        t = fastest(functions, given.repeats, clock)
        one, many = t.get("1 thread", np.nan), t["threads"]
        row = (t["bytes"], t["indices"], one, many)
        row += (one / t["bytes"], one / t["indices"], many / t["bytes"])
        print(f"{name:52}" + "".join(f"{number:14.3f}" for number in row), flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
