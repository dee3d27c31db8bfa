"""How many elements a second the kernels handle, and what share that is of the machine's own peak.

An element is one coordinate of one row for one query. The peak is measured in the same run by a
yardstick that does nothing but load, subtract, take the absolute value and add, on data in the
first-level cache. All on one thread.

Run by `python -m tests.benchmarks.kernels`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import dshift.groups
import dshift.index
import dshift.kernels
from dshift.field import Field
from dshift.kernels import jit
from dshift.metrics import make_embedding
from dshift.tiles import classify, encode_points, make_alike, make_coded
from tests.benchmarks import common
from tests.benchmarks.common import Row, note, print_table, stopwatch

# ---------------------------------------------------------------- yardsticks

# One vector is as wide as the widest registers; LLVM splits it where they are narrower.
VECTOR_BYTES = 64
# So many sums run side by side that none waits for the one before.
N_SUMS = 4
# Half of the smallest first-level cache in use.
CACHED_BYTES = 1 << 14
N_QUERIES = 64

_INT64, _INT32 = ir.IntType(64), ir.IntType(32)


@intrinsic
def _add_gaps(typingctx: Any, row: Any, value: Any, sums: Any) -> Any:
    """sums[j] += sum_i |row[i * len(sums) + j] - value|, modulo the type's range; j in registers.

    In vector IR, since numba would widen 16-bit integers to 64 bits.
    """
    signature = numba.void(row, row.dtype, sums)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        dtype = sig.args[0].dtype
        n_lanes = VECTOR_BYTES * 8 // dtype.bitwidth
        vector = ir.VectorType(context.get_value_type(dtype), n_lanes)
        rows, totals = (
            context.make_array(kind)(context, builder, array)
            for kind, array in ((sig.args[0], args[0]), (sig.args[2], args[2]))
        )
        source, target = (
            builder.bitcast(array.data, vector.as_pointer()) for array in (rows, totals)
        )
        query = _splat(builder, vector, args[1])
        partial = [
            cgutils.alloca_once_value(builder, _load(builder, target, ir.Constant(_INT64, j)))
            for j in range(N_SUMS)
        ]
        n_elements = builder.extract_value(rows.shape, 0)
        n_rounds = builder.udiv(n_elements, ir.Constant(_INT64, n_lanes * N_SUMS))
        with cgutils.for_range(builder, n_rounds) as loop:
            first = builder.mul(loop.index, ir.Constant(_INT64, N_SUMS))
            for j, total in enumerate(partial):
                loaded = _load(builder, source, builder.add(first, ir.Constant(_INT64, j)))
                gap = _gap(builder, dtype, vector, loaded, query)
                builder.store(_plus(builder, dtype, builder.load(total), gap), total)
        for j, total in enumerate(partial):
            place = builder.gep(target, [ir.Constant(_INT64, j)])
            builder.store(builder.load(total), place).align = VECTOR_BYTES
        return context.get_dummy_value()

    return signature, emit


def _load(builder: Any, vectors: Any, place: Any) -> Any:
    loaded = builder.load(builder.gep(vectors, [place]))
    loaded.align = VECTOR_BYTES
    return loaded


def _splat(builder: Any, vector: Any, value: Any) -> Any:
    """Return a vector whose lanes all hold `value`."""
    nothing = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(nothing, value, ir.Constant(_INT64, 0))
    zeros = ir.Constant(ir.VectorType(_INT32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, nothing, zeros)


def _gap(builder: Any, dtype: Any, vector: Any, left: Any, right: Any) -> Any:
    """Return |left - right|; for unsigned integers the larger less the smaller."""

    def call(name: str, *arguments: Any) -> Any:
        kind = ir.FunctionType(vector, [argument.type for argument in arguments])
        lane = f"{'f' if isinstance(dtype, numba.types.Float) else 'i'}{dtype.bitwidth}"
        full_name = f"llvm.{name}.v{vector.count}{lane}"
        function = cgutils.get_or_insert_function(builder.module, kind, full_name)
        return builder.call(function, arguments)

    if isinstance(dtype, numba.types.Float):
        return call("fabs", builder.fsub(left, right))
    if dtype.signed:
        return call("abs", builder.sub(left, right), ir.Constant(ir.IntType(1), 0))
    return builder.sub(call("umax", left, right), call("umin", left, right))


def _plus(builder: Any, dtype: Any, left: Any, right: Any) -> Any:
    add = builder.fadd if isinstance(dtype, numba.types.Float) else builder.add
    return add(left, right)


@numba.njit(nogil=True)
def yardstick(row: Any, queries: Any, n_passes: int, sums: Any) -> None:
    """Measure `row` against one query after the other, `n_passes` times all of them."""
    for _ in range(n_passes):
        for value in queries:
            _add_gaps(row, value, sums)


def aligned_empty(size: int, dtype: Any) -> NDArray[Any]:
    """Return an array that starts where a vector may start."""
    n_bytes = size * np.dtype(dtype).itemsize
    raw = np.empty(n_bytes + VECTOR_BYTES, np.uint8)
    start = -raw.ctypes.data % VECTOR_BYTES
    return raw[start : start + n_bytes].view(dtype)


def check_yardstick(dtype: Any) -> None:
    """Raise if the yardstick's sums are wrong: then it has not done the work it is timed for."""
    row, sums = aligned_empty(2_048, dtype), aligned_empty(VECTOR_BYTES * N_SUMS, np.uint8)
    row[:] = np.random.default_rng(0).integers(0, 50, row.size)
    sums[:] = 0
    queries = np.array([3, 40], dtype)
    yardstick(row, queries, 1, sums.view(dtype))
    gaps = np.abs(row[None, :].astype(np.int64) - queries[:, None].astype(np.int64))
    expected = gaps.reshape(-1, sums.view(dtype).size).sum(axis=0)
    if not np.array_equal(sums.view(dtype), expected.astype(dtype)):
        raise AssertionError(f"the yardstick for {np.dtype(dtype).name} adds up wrongly")


def registers(dtype: Any) -> str:
    """Return the kind of registers in which the yardstick takes absolute values, of x86 or ARM."""
    of_type = numba.from_dtype(np.dtype(dtype))
    name = next(s for s in yardstick.signatures if s[0].dtype == of_type)
    code = yardstick.inspect_asm(name)
    found = re.findall(r"\bv?p?(?:abs|and|sub|min)\w*\s.*%(zmm|ymm|xmm)\d", code)
    found += re.findall(r"\b[su]?f?ab[sd]\s+v\d+\.(\d+\w)", code)
    return max(set(found), key=found.count) if found else "unknown"


# ---------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """Something to time: `run` handles so many `elements`; its peak is the yardstick of `dtype`."""

    name: str
    dtype: str
    elements: int
    run: Callable[[], Any]


def yardstick_case(dtype: str) -> Case:
    """Return the yardstick of a type."""
    check_yardstick(dtype)
    size = CACHED_BYTES // np.dtype(dtype).itemsize
    row = aligned_empty(size, dtype)
    queries = aligned_empty(N_QUERIES, dtype)
    sums = aligned_empty(VECTOR_BYTES * N_SUMS // np.dtype(dtype).itemsize, dtype)
    rng = np.random.default_rng(0)
    row[:], queries[:], sums[:] = rng.integers(0, 99, size), rng.integers(0, 99, N_QUERIES), 0
    n_passes = 64
    elements = n_passes * N_QUERIES * size
    return Case("yardstick", dtype, elements, lambda: yardstick(row, queries, n_passes, sums))


def distance_cases(n: int, n_columns: int) -> Iterator[Case]:
    """Yield the distance kernels, on `n` rows."""
    points = _points(n, n_columns)
    queries, out = points[:16].copy(), np.empty(n, np.int64)
    elements = len(queries) * n * n_columns

    def rows_to_points() -> None:
        for query in queries:
            dshift.kernels.l1_distances(query, points, out)

    yield Case(f"l1_distances, {n:,} rows", "int64", elements, rows_to_points)
    for near in (False, True):
        name = f"classify, {n:,} rows{', near' if near else ''}"
        yield Case(name, "uint16", *_classify(points, queries, near))
    floats = points.astype(np.float64)
    yield Case(
        f"SciPy cdist, {n:,} rows",
        "float64",
        elements,
        lambda: cdist(floats[:16], floats, "cityblock"),
    )


def _classify(points: NDArray[np.int64], queries: NDArray[np.int64], near: bool) -> tuple[int, Any]:
    """Return the elements and the call of the index's distance kernel: whole tiles of codes.

    `near` is the one for rows that are known to be nearer than 16 bits count.
    """
    held = _index(points).held
    n_tiles, n_columns = len(held.codes), 4 * held.codes.shape[2]
    which, words = np.arange(n_tiles, dtype=np.int32), np.full(n_tiles, ~np.uint64(0))
    coded = make_coded(4, n_columns)
    alike, distances = make_alike(n_columns), np.empty((4, 64), np.uint16)
    found = tuple(np.empty((n_tiles, 4), np.uint64) for _ in range(2))

    def classify() -> None:
        _four_at_a_time(held, queries, which, words, coded, near, alike, distances, found)

    return len(queries) * held.codes.size, classify


@jit
def _four_at_a_time(  # type: ignore[no-untyped-def]
    held, queries, which, words, coded, near, alike, distances, found
):
    inside, unsure = found
    n = which.shape[0]
    for first in range(0, queries.shape[0], 4):
        encode_points(held, queries[first : first + 4], coded)
        classify(held, which, words, n, coded, near, alike, distances, inside, unsure)


def _index(points: NDArray[np.int64]) -> dshift.index.Index:
    n, n_columns = points.shape
    reach = np.full(n, n_columns << 24)
    return dshift.index.build_index(
        Field(
            embedding=make_embedding("l1", n_columns, None, None, None),
            points=points,
            weights=np.ones(n),
            bandwidth=reach.astype(np.float64),
            reach=reach,
            pulls=np.ones(n, np.int64),
            weight_of_pull=None,
        )
    )


def median_cases(n: int, n_columns: int) -> Iterator[Case]:
    """Yield the median kernels, on `n` active rows."""
    points = _points(n, n_columns)
    active, pulls = np.arange(n), np.ones(n, np.int64)
    out, elements = np.empty(n_columns, np.int64), n * n_columns
    yield Case(
        f"weighted_medians, {n:,} rows",
        "int64",
        elements,
        lambda: dshift.kernels.weighted_medians(points, active, pulls, out),
    )
    yield Case(f"step, {n:,} rows", "uint16", *_steps(points))
    yield Case(f"np.median, {n:,} rows", "int64", elements, lambda: np.median(points, axis=0))


def _steps(points: NDArray[np.int64]) -> tuple[int, Any]:
    """Return what brute force would handle, and the call: one whole step of many points."""
    index = _index(points)
    queries = points[index.held.rows[:256]]
    nest = dshift.groups.make_nest(*points.shape, len(queries))
    order, moved = np.arange(len(queries)), queries.copy()
    queries.flags.writeable = False
    elements = len(queries) * points.size

    def step() -> None:
        dshift.groups.step_points(index.held, nest, queries, order, moved)

    return elements, step


def _points(n: int, n_columns: int) -> NDArray[np.int64]:
    """Return cumulative histograms as the engine holds them: even integers."""
    cumulative = np.cumsum(common.synthetic(n).counts[:, :n_columns], axis=1, dtype=np.int64)
    return np.ascontiguousarray(cumulative << 20)


# The kernels of the engine go here: in the second-level cache, and with all rows of a usual set.
YARDSTICKS = ("float32", "float64", "int16", "uint16", "int64")
N_COLUMNS = 63
CACHED_ROWS = 1_024
ALL_ROWS = 20_000


def all_cases(all_rows: int) -> Iterator[Case]:
    """Yield every kernel to be timed."""
    for n in (CACHED_ROWS, all_rows):
        yield from distance_cases(n, N_COLUMNS)
        yield from median_cases(n, N_COLUMNS)


# ---------------------------------------------------------------- measuring


def rates(cases: list[Case], n_rounds: int) -> list[list[float]]:
    """Return elements per second of every case in every round; each round runs all cases."""
    for case in cases:
        case.run()
    return [[case.elements / _seconds(case.run) for case in cases] for _ in range(n_rounds)]


def _seconds(run: Callable[[], Any], least: float = 0.01) -> float:
    """Return the seconds of a call, as the mean of so many that the clock is exact enough."""
    n_runs, seconds = 1, stopwatch(run)[1]
    while seconds < least:
        n_runs, seconds = n_runs + 1, seconds + stopwatch(run)[1]
    return seconds / n_runs


def summarise(cases: list[Case], rounds: list[list[float]], n_yardsticks: int) -> list[Row]:
    """Return medians over the rounds; a share of the peak is taken within each round."""
    peaks = {case.dtype: i for i, case in enumerate(cases[:n_yardsticks])}
    return [
        {
            "name": case.name,
            "dtype": case.dtype,
            "registers": registers(case.dtype) if i < n_yardsticks else None,
            "giga_per_second": statistics.median(line[i] for line in rounds) / 1e9,
            "best_giga_per_second": max(line[i] for line in rounds) / 1e9,
            "of_peak": statistics.median(line[i] / line[peaks[case.dtype]] for line in rounds),
        }
        for i, case in enumerate(cases)
    ]


COLUMNS = {
    "name": ("what", ""),
    "dtype": ("type", ""),
    "registers": ("registers", ""),
    "giga_per_second": ("G element/s", ".2f"),
    "best_giga_per_second": ("best", ".2f"),
    "of_peak": ("of peak", ".1%"),
}


def main() -> None:
    """Time the yardsticks and the kernels in turns, and print one table."""
    parser = common.make_parser(__doc__, data=False)
    options = parser.parse_args()
    machine = common.describe_machine()
    cases = [yardstick_case(dtype) for dtype in YARDSTICKS]
    cases += all_cases(CACHED_ROWS * 2 if options.quick else ALL_ROWS)
    n_rounds = 3 if options.quick else 15
    note(f"{len(cases)} cases, {n_rounds} rounds")
    rows = summarise(cases, rates(cases, n_rounds), len(YARDSTICKS))
    print_table("elements a second on one thread", rows, COLUMNS)
    common.save(options, machine, {"kernels": rows})


if __name__ == "__main__":
    main()
