"""Time `dshift.histogram` against a plain `np.bincount` pass over the same data.

    python tests/benchmarks/histograms.py [--values-cube 200_000_000] [--values-table 10_000_000]
    python tests/benchmarks/histograms.py --stored [--values-cube 200_000_000]

Three yardsticks, each a single pass in one thread, chunk by chunk where ours is:

- *bytes*: `np.bincount` reads the same bytes as the histogram and finds no bins: integers of the
  values' size for a cube, ids with the values as weights for a table. It cannot read ids that are
  strings or far apart, so there it is given their codes, which are made before the clock starts;
- *indices*: `np.bincount` of ready-made int64 indices sample * n_bins + bin, one for each value:
  the very counts, had someone found the bins already;
- *plain*: what one writes without dshift: `pd.factorize` where ids need it, `np.searchsorted`,
  `np.bincount` of the flat index, and its shape.

"wall" is what a user waits for, on all cores; on a machine that others use, "cpu" (of all threads
together) tells more. With `--stored`, the cube lies in a Zarr store in a temporary folder, and the
memory that the histogram takes beyond that of the imported packages is printed too.
"""

from __future__ import annotations

import argparse
import itertools
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator

import dask
import dask.array as da
import numpy as np
import pandas as pd
import xarray as xr
import zarr

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
        axis = order.index("time")
        cells = [_indices(part, edges, axis) for part in parts]
        ints = [part.astype(f"i{raw.itemsize}") for part in cells]
        lazy = histogram(cube, edges, dim="time")
        kind = "even" if edges is EVEN else "uneven"
        name = f"cube {'x'.join(map(str, shape))} {np.dtype(dtype)} over {axis} {kind}"
        yield (
            name,
            {
                "bytes": lambda ints=ints: [np.bincount(part) for part in ints],
                "indices": lambda cells=cells: [np.bincount(part) for part in cells],
                "plain": lambda parts=parts, edges=edges, axis=axis: [
                    np.bincount(_indices(part, edges, axis)) for part in parts
                ],
                "1 thread": lambda lazy=lazy: dask.compute(lazy.data, scheduler="sync"),
                "threads": lambda lazy=lazy: dask.compute(lazy.data, scheduler="threads"),
            },
        )


def _bins(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, N_BINS - 1)


def _indices(part: np.ndarray, edges: np.ndarray, axis: int) -> np.ndarray:
    shape = [1 if i == axis else size for i, size in enumerate(part.shape)]
    samples = np.arange(np.prod(shape)).reshape(shape)
    return (_bins(part, edges) + N_BINS * samples).ravel()


def table_cases(n_values: int) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    for n_ids, kind in (
        (1_000, "random"),
        (10_000, "random"),
        (100_000, "random"),
        (10_000, "sorted"),
        (10_000, "sparse"),
        (10_000, "string"),
    ):
        rng = np.random.default_rng(0)
        codes = rng.integers(0, n_ids, n_values)
        if kind == "sorted":
            codes.sort()
        names = np.arange(n_ids)
        if kind == "sparse":
            names = rng.integers(0, 2**62, n_ids)
        ids = pd.Series(codes if kind in ("random", "sorted") else names[codes])
        if kind == "string":
            ids = pd.Series(pd.Categorical.from_codes(codes, [f"s{i}" for i in names])).astype(str)
        values = np.clip(rng.standard_normal(n_values), -6, 6)
        frame = pd.DataFrame({"id": ids, "value": values})
        cells = codes * N_BINS + _bins(values, EVEN)
        yield (
            f"table {n_values} rows, {n_ids} {kind} ids",
            {
                "bytes": lambda codes=codes, values=values: np.bincount(codes, weights=values),
                "indices": lambda cells=cells: np.bincount(cells),
                "plain": lambda frame=frame, n_ids=n_ids: _plain_table(frame, n_ids),
                "threads": lambda frame=frame: histogram(frame, EVEN, id="id", value="value"),
            },
        )


def _plain_table(frame: pd.DataFrame, n_ids: int) -> np.ndarray:
    codes = frame["id"].to_numpy()
    if codes.dtype != np.int64 or codes.max() >= n_ids:
        codes, _ = pd.factorize(frame["id"], sort=True)
    cells = codes * N_BINS + _bins(frame["value"].to_numpy(), EVEN)
    return np.bincount(cells, minlength=n_ids * N_BINS).reshape(n_ids, N_BINS)


def time_stored(n_values: int, clock: Callable[[], float]) -> None:
    """Print time and memory of a cube that is read from a store, chunk by chunk."""
    n_time, n_side = 1000, round((n_values / 1000) ** 0.5)
    shape, chunks = (n_time, n_side, n_side), (n_time // 4, -(-n_side // 2), n_side)
    with tempfile.TemporaryDirectory() as folder:
        raw = zarr.create_array(
            f"{folder}/cube.zarr", shape=shape, chunks=chunks, dtype="f4", compressors=None
        )
        rng = np.random.default_rng(0)
        for t in range(0, n_time, chunks[0]):
            for y in range(0, n_side, chunks[1]):
                part = (chunks[0], min(chunks[1], n_side - y), n_side)
                raw[t : t + chunks[0], y : y + chunks[1]] = np.clip(
                    rng.standard_normal(part, dtype="f4"), -6, 6
                )
        cube = xr.DataArray(da.from_zarr(raw), dims=("time", "y", "x"))
        histogram(cube[:, :1, :1], EVEN, dim="time").compute()  # compiles
        before = _peak_bytes()
        start = clock()
        counts = histogram(cube, EVEN, dim="time").compute()
        ours, grown = clock() - start, _peak_bytes() - before
        start = clock()
        for t in range(0, n_time, chunks[0]):
            for y in range(0, n_side, chunks[1]):
                part = raw[t : t + chunks[0], y : y + chunks[1]]
                np.bincount(part.ravel().view(np.uint32) >> 16)
        plain = clock() - start
    print(f"cube {'x'.join(map(str, shape))} float32, {raw.nbytes / 2**20:.0f} MiB in a Zarr store")
    print(f"histogram {ours:.3f} s; read and np.bincount of the same bytes {plain:.3f} s")
    print(
        f"memory: {grown / 2**20:.0f} MiB more than before, of which the result is "
        f"{counts.nbytes / 2**20:.0f} MiB; a chunk is {4 * math.prod(chunks) / 2**20:.0f} MiB"
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Print a table of ratios: ours over each baseline."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values-cube", type=int, default=200_000_000)
    parser.add_argument("--values-table", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: if busy")
    parser.add_argument("--stored", action="store_true", help="a cube in a store, and memory")
    given = parser.parse_args()
    clock = time.perf_counter if given.clock == "wall" else time.process_time
    if given.stored:
        time_stored(given.values_cube, clock)
        return
    yardsticks = ("bytes", "indices", "plain")
    columns = (*yardsticks, "1 thread", "threads", *(f"/{name}" for name in yardsticks))
    print(f"{given.clock} seconds; the last columns are those of threads over the yardsticks'")
    print(f"{'case':52}" + "".join(f"{column:>10}" for column in columns))
    for name, functions in itertools.chain(
        table_cases(given.values_table), cube_cases(given.values_cube)
    ):
        t = {"1 thread": np.nan, **fastest(functions, given.repeats, clock)}
        row = [t[column] for column in columns[:5]] + [t["threads"] / t[y] for y in yardsticks]
        print(f"{name:52}" + "".join(f"{number:10.3f}" for number in row), flush=True)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main()
