"""What a plan says, number by number, and where it changes its mind. No cluster, no fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshift import planning
from dshift.errors import PlanRefused
from dshift.planning import (
    BUILDING_BYTES,
    ENTRY_BYTES,
    KEPT_PART,
    LEAST_WINDOW_BYTES,
    MOST_BLOCKS,
    MOST_BLOCKS_A_RUN,
    PART_BYTES,
    PART_SAMPLES,
    RUNS_LEFT_A_THREAD,
    SCRATCH_BYTES,
    WORTH_SHARING_BYTES,
    Forecast,
    Held,
    Holding,
    Plan,
    Room,
    cut_up,
    human_bytes,
    human_seconds,
    make_plan,
)
from dshift.visited import LEAST_MEMO_BYTES, MEMO_PART, POINTS_A_SEED


@given(count=st.integers(0, 500), size=st.integers(1, 60))
def test_ranges_tile_what_they_cut_up(count: int, size: int) -> None:
    ranges = cut_up(count, size)
    assert [i for r in ranges for i in range(r.start, r.stop)] == list(range(count))
    assert all(r.stop - r.start == size for r in ranges[:-1])


# ---------------------------------------------------------------- blocks


@pytest.mark.parametrize("indexed", [False, True])
def test_blocks_tile_the_seeds_and_stay_few(indexed: bool) -> None:
    for n_seeds in (1, 63, 64, 65, 10_000, 5_000_000, 50_000_001):
        plan = make_plan(n_seeds, 64, n_seeds, threads=2, indexed=indexed)
        blocks = plan.blocks(n_seeds)
        assert len(blocks) == plan.n_blocks <= MOST_BLOCKS
        assert blocks[0].start == 0
        assert blocks[-1].stop == n_seeds
        # Fewer turned out to be valid: the blocks are of the same size.
        assert plan.blocks(max(1, n_seeds - 1))[0].stop == min(plan.block_size, max(1, n_seeds - 1))


def test_runs_hold_every_block_once_and_leave_single_ones_for_the_end() -> None:
    for n_blocks in (1, 7, 8, 53, 300, 4096):
        plan = make_plan(n_blocks, 4, n_blocks, threads=1, block_size=1, indexed=True)
        blocks = plan.blocks(n_blocks)
        for width in (1, 2, 16, 500):
            runs = plan.runs(blocks, width)
            sizes = [len(run) for run in runs]
            assert [block for run in runs for block in run] == blocks
            assert sizes == sorted(sizes, reverse=True)
            assert max(sizes) <= MOST_BLOCKS_A_RUN
            assert len(runs) >= min(n_blocks, RUNS_LEFT_A_THREAD * width)
            assert sizes[-1] == 1
    assert len(plan.runs(blocks, 2)) < n_blocks / 7
    bare = make_plan(n_blocks, 4, n_blocks, threads=1, block_size=1, indexed=False)
    assert bare.runs(blocks, 2) == [(block,) for block in blocks]


def check_sizes(size: Callable[[int], int], least: int, enough: int, most: int) -> None:
    assert [size(0), size(1), size(2)] == [1, 1, 2]
    assert size(least) == size(2 * least) == size(enough * least) == least
    assert size(least + 2) == least // 2 + 1
    assert size(enough * least + 1) == least + 1
    assert size(enough * most) == size(MOST_BLOCKS * most) == most
    assert size(enough * most + 1) == -(-(enough * most + 1) // (enough + 1))
    assert size(MOST_BLOCKS * most + 1) == most + 1


def test_blocks_with_an_index_are_large_enough_to_share() -> None:
    def size(n_seeds: int) -> int:
        return make_plan(10, 3, n_seeds, 1, indexed=True).block_size

    least, most = planning.LEAST_SEEDS_TOGETHER, planning.MOST_SEEDS_TOGETHER
    enough = planning.ENOUGH_BLOCKS_TOGETHER
    check_sizes(size, least, enough, most)


def test_processes_load_early_where_each_has_work_and_loading_takes_long() -> None:
    worth = planning.WORTH_LOADING_EARLY_BYTES // 8
    plan = make_plan(worth, 1, 30, threads=1, block_size=10)
    assert [plan.loads_early(n) for n in (0, 1, 2, 3, 4)] == [False, False, True, True, False]
    assert not make_plan(worth - 1, 1, 30, threads=1, block_size=10).loads_early(2)


def test_blocks_without_an_index_are_worth_a_task_and_small_enough_to_balance() -> None:
    def size(n_seeds: int) -> int:
        return make_plan(10, 3, n_seeds, 1).block_size

    least = planning.LEAST_SEEDS
    enough, most = planning.ENOUGH_BLOCKS, planning.MOST_SEEDS
    check_sizes(size, least, enough, most)


def test_a_block_size_that_is_asked_for_is_taken() -> None:
    plan = make_plan(10, 3, 10, 1, block_size=4)
    assert plan.block_size == 4
    assert plan.n_blocks == 3
    assert plan.blocks(10) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert not plan.indexed
    assert plan.reading_bytes == 0


def test_a_share_of_the_labelling_is_worth_a_task_and_small_in_bytes() -> None:
    def size(n_samples: int, n_coords: int) -> int:
        return make_plan(n_samples, n_coords, 1, 1).part_size

    assert size(1000, 0) == size(1000, 1) == size(1000, 64) == PART_SAMPLES == 16384
    assert size(1000, 128) == PART_BYTES // (128 * 8) == 8192
    assert size(1000, 2 * PART_BYTES) == 1
    assert size(MOST_BLOCKS * PART_SAMPLES + 1, 64) == PART_SAMPLES + 1


# ---------------------------------------------------------------- bytes

WALK_POINTS = POINTS_A_SEED + planning.COPIES_OF_SEEDS


def test_bytes_of_a_plan_without_an_index() -> None:
    plan = make_plan(1000, 64, 300, threads=3, block_size=100)
    assert plan.matrix_bytes == 1000 * 64 * 8
    assert plan.index_bytes == 0
    # Four numbers a sample for each thread and once more; and the walks of a block, for each.
    walks = WALK_POINTS * 64 * 8 * 100 * 3
    assert plan.working_bytes == 1000 * 4 * 8 * (3 + 1) + walks
    assert plan.process_bytes == plan.matrix_bytes + plan.working_bytes
    few = make_plan(1000, 64, 30, threads=3, block_size=100)
    assert few.working_bytes == plan.working_bytes - walks + WALK_POINTS * 64 * 8 * 30


@pytest.mark.parametrize("n_seeds", [1, 100, 101, 700])
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("small", [True, False])
def test_crews_are_runs_of_blocks_for_all_threads(n_seeds: int, threads: int, small: bool) -> None:
    """As large as balance and memory allow; single blocks where walks take more."""
    n_coords = planning.TOGETHER_BYTES // (8 * (1 + POINTS_A_SEED) * n_seeds) + (not small)
    blocks = planning.cut_up(n_seeds, 100)
    crews = planning.make_crews(blocks, n_coords, threads)
    assert [block for crew in crews for block in crew] == blocks
    sizes = [sum(block.stop - block.start for block in crew) for crew in crews]
    assert len(crews) >= min(threads, len(blocks))
    if not small:
        assert len(crews) == len(blocks)
    else:
        assert len(crews) == min(max(threads, 2), len(blocks))
        assert max(sizes) - min(sizes) <= 100


def test_bytes_of_crews_are_those_of_seeds_that_climb_at_once() -> None:
    """Where there is an index: seeds that climb one by one are no crews."""
    shape = {"n_samples": 4_000, "n_coords": 64, "n_seeds": 4_000, "threads": 2}
    apart = make_plan(**shape, indexed=True)
    crewed = make_plan(**shape, indexed=True, crewed=True)
    walk = WALK_POINTS * 64 * 8
    more = walk * (4_000 - 2 * apart.block_size)
    assert crewed.block_size == apart.block_size == 512 - 12
    assert crewed.working_bytes == apart.working_bytes + more
    alone = shape | {"n_seeds": 20_000, "threads": 1}  # two crews, one after the other
    apart, crewed = make_plan(**alone, indexed=True), make_plan(**alone, indexed=True, crewed=True)
    more = walk * (10_000 - apart.block_size)
    assert crewed.working_bytes == apart.working_bytes + more
    assert make_plan(4_000, 64, 0, 2, indexed=True, crewed=True).working_bytes > 0
    assert planning.make_crews([], 64, 2) == []
    large = shape | {"n_seeds": planning.TOGETHER_BYTES // planning.trail_bytes(64) + 1}
    assert (
        make_plan(**large, indexed=True, crewed=True).working_bytes
        == make_plan(**large, indexed=True).working_bytes
    )
    assert make_plan(**shape, crewed=True).working_bytes == make_plan(**shape).working_bytes


@pytest.mark.parametrize("n_rows", [1, 10_000])
def test_bytes_of_the_reading_are_kept(n_rows: int) -> None:
    plan = make_plan(20_000, 63, 300, threads=1, block_size=100)
    more = {"rows_at_once": n_rows, "row_bytes": 64 * 2}
    reading = make_plan(20_000, 63, 300, threads=1, block_size=100, **more)
    shared = 4 * min(n_rows, planning.ROWS_SHARED_AT_ONCE) * 63 * ENTRY_BYTES
    assert reading.reading_bytes == min(4 * n_rows, 20_000) * 64 * 2 + shared
    assert reading.working_bytes == plan.working_bytes + reading.reading_bytes


@pytest.mark.parametrize("n_coords", [0, 1, 64, 65])
@pytest.mark.parametrize(("n", "bits"), [(1000, 49), (65_536, 49), (80_000, 57), (2**25, 65)])
def test_an_index_holds_49_bits_or_more_for_each_coordinate(
    n: int, bits: int, n_coords: int
) -> None:
    plan = make_plan(n, n_coords, 0, threads=3, indexed=True)
    around = n * (3 * SCRATCH_BYTES + BUILDING_BYTES) + plan.matrix_bytes // KEPT_PART
    assert plan.index_bytes == n * n_coords * bits // 8 + around


def test_the_memo_is_part_of_the_index_and_bounded() -> None:
    def memo(n_samples: int, n_seeds: int) -> int:
        with_seeds = make_plan(n_samples, 64, n_seeds, 1, indexed=True)
        return with_seeds.index_bytes - replace(with_seeds, n_seeds=0).index_bytes

    assert memo(1000, 10) == 10 * WALK_POINTS * 64 * 8
    assert memo(1000, 10**6) == LEAST_MEMO_BYTES
    assert memo(10**6, 10**6) == 10**6 * 64 * 8 // MEMO_PART > LEAST_MEMO_BYTES
    plan = make_plan(1000, 64, 300, threads=2, block_size=100, indexed=True)
    assert plan.working_bytes == replace(plan, indexed=False).working_bytes + plan.index_bytes


# ---------------------------------------------------------------- rooms

PLAN = make_plan(200_000, 64, 1000, threads=2, indexed=True)
BARE = PLAN.working_bytes - PLAN.index_bytes
ALL, WINDOW = 10**12, LEAST_WINDOW_BYTES
MATRIX, WORKING = PLAN.matrix_bytes, PLAN.working_bytes


@pytest.mark.parametrize(
    ("memory", "disk", "expected"),
    [
        (MATRIX + WORKING, 0, Holding(Held.IN_MEMORY, True)),
        (MATRIX + WORKING, ALL, Holding(Held.IN_MEMORY, True)),
        (MATRIX + WORKING - 1, MATRIX, Holding(Held.IN_FILE, True)),
        (WORKING + WINDOW, MATRIX, Holding(Held.IN_FILE, True)),
        (MATRIX + WORKING - 1, MATRIX - 1, Holding(Held.IN_MEMORY, False)),
        (WORKING + WINDOW - 1, MATRIX, Holding(Held.IN_MEMORY, False)),
        (MATRIX + BARE, 0, Holding(Held.IN_MEMORY, False)),
        (MATRIX + BARE - 1, MATRIX, Holding(Held.IN_FILE, False)),
        (BARE + WINDOW, MATRIX, Holding(Held.IN_FILE, False)),
        (MATRIX + BARE - 1, 0, None),
        (MATRIX + BARE - 1, MATRIX - 1, None),
        (BARE + WINDOW - 1, MATRIX, None),
    ],
)
def test_a_room_holds_what_fits_to_the_byte(
    memory: int, disk: int, expected: Holding | None
) -> None:
    assert BARE + WINDOW < MATRIX + BARE < WORKING + WINDOW < MATRIX + WORKING
    room = Room("here", memory, disk)
    if expected is None:
        with pytest.raises(PlanRefused):
            PLAN.held_in(room)
    else:
        assert PLAN.held_in(room) == expected


def test_a_plan_without_an_index_asks_for_none() -> None:
    plan = replace(PLAN, indexed=False)
    assert plan.held_in(Room("here", ALL)) == Holding(Held.IN_MEMORY, False)


def test_processes_of_a_node_share_a_file_where_that_is_worth_it() -> None:
    per_sample = 64 * ENTRY_BYTES
    worth = make_plan(WORTH_SHARING_BYTES // per_sample, 64, 10, 1)
    small = replace(worth, n_samples=worth.n_samples - 1)
    assert worth.matrix_bytes == WORTH_SHARING_BYTES
    shared = Room("node", ALL, worth.matrix_bytes, shares_node=True)
    assert worth.held_in(shared).where == Held.IN_FILE
    assert small.held_in(shared).where == Held.IN_MEMORY
    assert worth.held_in(replace(shared, shares_node=False)).where == Held.IN_MEMORY
    full = replace(shared, disk_bytes=worth.matrix_bytes - 1)
    assert worth.held_in(full).where == Held.IN_MEMORY


SMALL = Plan(2**20, 64, 2**20, threads=2, block_size=1024)


@pytest.mark.parametrize(
    ("plan", "room", "message"),
    [
        (
            SMALL,
            Room("this process", 2**20),
            "this fit needs 615.0 MiB in one process (512.0 MiB for 1,048,576 points of 64 "
            "coordinates, 103.0 MiB to work with 2 threads). There are 1.0 MiB of memory left in "
            "this process. Use a machine or workers with more memory, fewer threads a worker, "
            "fewer samples, or coarser bins.",
        ),
        (
            replace(SMALL, indexed=True),
            Room("worker 3", 2**20, 2**30),
            "this fit needs 615.0 MiB in one process (512.0 MiB for 1,048,576 points of 64 "
            "coordinates, 103.0 MiB to work with 2 threads) without an index, and 730.7 MiB more "
            "with one. There are 1.0 MiB of memory and 1.0 GiB of disk left in worker 3. Use a "
            "machine or workers with more memory, or with 512.0 MiB of disk and 135.0 MiB of "
            "memory, fewer threads a worker, fewer samples, or coarser bins.",
        ),
    ],
)
def test_a_refusal_says_the_numbers_and_the_remedy(plan: Plan, room: Room, message: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        plan.held_in(room)
    assert str(refused.value) == message
    assert plan.reading_bytes == 0


# ---------------------------------------------------------------- what people read


def test_human_bytes() -> None:
    sizes = (10, 1023, 1024, 2048, 3 * 2**20, 1.5 * 2**30, 2**40 - 2**30, 2**40, 2**41, 2**51)
    assert [human_bytes(n) for n in sizes] == [
        "10 B",
        "1023 B",
        "1.0 KiB",
        "2.0 KiB",
        "3.0 MiB",
        "1.5 GiB",
        "1023.0 GiB",
        "1.0 TiB",
        "2.0 TiB",
        "2048.0 TiB",
    ]


def test_human_seconds() -> None:
    times = (0.04, 9.94, 10, 119, 120, 7199, 7200, 2 * 86400 - 1, 2 * 86400, 10 * 86400)
    assert [human_seconds(t) for t in times] == [
        "0.0 s",
        "9.9 s",
        "10 s",
        "119 s",
        "2 min",
        "120 min",
        "2 h",
        "48 h",
        "2 days",
        "10 days",
    ]


FORECAST = Forecast(
    n_samples=1_000_000,
    n_bins=64,
    n_seeds=5000,
    n_processes=1200,
    n_threads=2400,
    held="memory",
    matrix_bytes=512 * 2**20,
    working_bytes=2**30,
    available_bytes=4 * 2**30,
    n_blocks=1001,
    block_size=2048,
    n_tasks=3000,
    read_bytes=3 * 2**20,
)


def test_a_forecast_reads_well() -> None:
    assert math.isnan(FORECAST.seconds)
    assert math.isnan(FORECAST.load_seconds)
    assert FORECAST.process_bytes == 3 * 2**29
    assert repr(FORECAST).splitlines() == [
        "<dshift.Forecast",
        "  1,000,000 samples of 64 bins, 5,000 seeds",
        "  workers   1,200 processes, 2,400 threads",
        "  memory    1.5 GiB of 4.0 GiB a process; points (512.0 MiB) in memory",
        "  work      1,001 blocks of 2,048 seeds, 3,000 tasks",
        "  reading   3.0 MiB a process",
        ">",
    ]


def test_a_forecast_says_what_is_out_of_the_ordinary() -> None:
    unusual = replace(
        FORECAST,
        held="file",
        available_bytes=None,
        load_seconds=3.0,
        seconds=600.0,
        refusal="too large.",
        n_without_index=1500,
    )
    assert unusual.process_bytes == 2**30
    lines = repr(unusual).splitlines()
    assert lines[3] == (
        "  memory    1.0 GiB a process; points (512.0 MiB) in a mapped file, one a node"
    )
    assert lines[6:] == [
        "  SLOW      1,500 processes have no room for an index",
        "  time      about 10 min, 3.0 s of it to read",
        "  REFUSED   too large.",
        ">",
    ]
    assert "points (512.0 MiB) nowhere yet" in repr(replace(FORECAST, held=None))
