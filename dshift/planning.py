"""What a fit will do and hold, as plain data, known before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from dshift.columns import bytes_of_slot
from dshift.errors import PlanRefused
from dshift.visited import LEAST_MEMO_BYTES, MEMO_PART, POINTS_A_SEED

ENTRY_BYTES = 8
# Seeds of one block share their walks, so blocks are as large as balance allows. Their size depends
# on nothing but the number of seeds, so that a run can be continued with other workers.
ENOUGH_BLOCKS = 64
MOST_BLOCKS = 4096
LEAST_SEEDS = 256
MOST_SEEDS = 4096
# The same where there is an index. Seeds of one block also share the look-ups of their medians: on
# 25,000 first names, blocks of 512 / 1,024 / 2,048 / 4,096 took 1.30 / 1 / 0.83 / 0.78 of the time.
ENOUGH_BLOCKS_TOGETHER = 8
LEAST_SEEDS_TOGETHER = 512
MOST_SEEDS_TOGETHER = 2048
# Where all that walks may visit fits in this, a thread of this process climbs from several blocks
# together: they share more, and the last walkers of blocks are few. 11,103 first names take 0.92 of
# the processor time in two crews instead of eight blocks.
TOGETHER_BYTES = 64 * 2**20
# Blocks of such seeds take a tenth of a second, and a task costs client, scheduler and worker 4 ms
# of processor time and 5 KB of messages: so a task is a run of blocks. Early runs are long, by the
# blocks that are left for a thread; the last ones are single blocks, for balance.
MOST_BLOCKS_A_RUN = 8
RUNS_LEFT_A_THREAD = 4
# Samples of a share of the labelling: worth a task.
PART_SAMPLES = 16384
PART_BYTES = 8 * 2**20
# Of an index, for each coordinate: a code, a rank, and whether a run of equal values begins at a
# place in the order of its column. The row at that place comes on top (`columns.bytes_of_slot`).
INDEX_BITS = 16 + 16 + 1
# Of the rows that are read at a time, as they are stored; some of them at a time become shares, and
# are placed, moved and hashed. All of it is freed, but `malloc` keeps it: with float64 in a Zarr
# store peaks were higher than with uint8 by 0.7 to 2.3 times what is read at a time, and by twice
# that more on a busy machine.
COPIES_WHILE_READING = 4
COPIES_WHILE_SHARING = 4
ROWS_SHARED_AT_ONCE = 2048
# Of the points that a block stands at: behind the trail, those whose end the memo knows or that a
# trail begins anew with, and what is put in order.
COPIES_OF_SEEDS = 3
# Scratch of a thread that has an index, for each sample: lists, masks and members.
SCRATCH_BYTES = 24
# Of the points: what `malloc` keeps while they are read and indexed. Without it, the peak of
# 120,000 samples of 128 bins in float64 was 3 % above the forecast.
KEPT_PART = 12
# For each sample, once: what building an index takes beside it (columns while they are sorted,
# orders, reaches), and `malloc` keeps. Measured, as growth of the peak with the samples.
BUILDING_BYTES = 152
# Below this, a file that processes share costs more than the memory it saves.
WORTH_SHARING_BYTES = 64 * 2**20
# Below this, a process reads its samples in a moment, when its first task needs them.
WORTH_LOADING_EARLY_BYTES = 16 * 2**20
# Pages of a file that a process needs at hand: less, and it would read all the time.
LEAST_WINDOW_BYTES = 32 * 2**20


def cut_up(count: int, size: int) -> list[slice]:
    """Return ranges of `size`, the last one shorter, that make up `count`."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def trail_bytes(n_coords: int) -> int:
    """Return what the points that a block remembers take, for each of its seeds."""
    return (1 + POINTS_A_SEED) * n_coords * ENTRY_BYTES


def count_crews(n_blocks: int, n_seeds: int, n_coords: int, threads: int) -> int:
    """Return how many runs of blocks threads climb from together: one for each thread, or more."""
    n_bytes = trail_bytes(n_coords) * n_seeds
    n_crews = n_blocks
    if n_bytes <= TOGETHER_BYTES:
        n_crews = min(n_blocks, max(threads, -(-2 * n_bytes // TOGETHER_BYTES)))
    return max(1, n_crews)


def make_crews(blocks: Sequence[slice], n_coords: int, threads: int) -> list[list[slice]]:
    """Return these runs of blocks."""
    n_seeds = sum(block.stop - block.start for block in blocks)
    n_crews = count_crews(len(blocks), n_seeds, n_coords, threads)
    bounds = [len(blocks) * i // n_crews for i in range(n_crews + 1)]
    return [list(blocks[first:last]) for first, last in pairwise(bounds) if first < last]


class Held(StrEnum):
    """Where a process keeps the points."""

    IN_MEMORY = "memory"
    IN_FILE = "file"  # mapped into memory, one for all processes of a node


@dataclass(frozen=True)
class Holding:
    """How a process holds a job."""

    where: Held
    indexed: bool  # seeds climb many times faster with an index, to the same bits


@dataclass(frozen=True)
class Room:
    """What one process has to offer."""

    name: str
    memory_bytes: int  # that it may still fill
    disk_bytes: int = 0  # free where it may put a file
    shares_node: bool = False  # with other processes of the same job


@dataclass(frozen=True)
class Plan:
    """The blocks of a fit and the memory that a process needs for them."""

    n_samples: int
    n_coords: int
    n_seeds: int
    threads: int
    block_size: int
    indexed: bool = False  # as exact geometries are
    reading_bytes: int = 0  # beside the points while they are read, and kept
    crewed: bool = False  # blocks of a thread are climbed from together, where these are small

    @property
    def n_blocks(self) -> int:
        """Blocks of seeds."""
        return -(-self.n_seeds // self.block_size)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the points, one copy a process, or a node where processes share a file."""
        return self.n_samples * self.n_coords * ENTRY_BYTES

    @property
    def index_bytes(self) -> int:
        """Bytes of the index, of what blocks tell each other, and of scratch, if there is one."""
        if not self.indexed:
            return 0
        memo = max(LEAST_MEMO_BYTES, self.matrix_bytes // MEMO_PART)
        bits = INDEX_BITS + 8 * bytes_of_slot(self.n_samples)
        index = self.n_samples * self.n_coords * bits // 8 + self.matrix_bytes // KEPT_PART
        scratch = (SCRATCH_BYTES * self.threads + BUILDING_BYTES) * self.n_samples
        return index + min(memo, self._walk_bytes * self.n_seeds) + scratch

    @property
    def _walk_bytes(self) -> int:
        return (POINTS_A_SEED + COPIES_OF_SEEDS) * self.n_coords * ENTRY_BYTES

    def _working_bytes(self, indexed: bool) -> int:
        per_sample = 4 * ENTRY_BYTES * (self.threads + 1)
        together = self.block_size
        if self.crewed and indexed:
            n_crews = count_crews(self.n_blocks, self.n_seeds, self.n_coords, self.threads)
            together *= -(-self.n_blocks // n_crews)
        paths = self._walk_bytes * min(together * self.threads, self.n_seeds)
        index = self.index_bytes if indexed else 0
        return self.n_samples * per_sample + paths + index + self.reading_bytes

    @property
    def working_bytes(self) -> int:
        """Bytes beside the points: to read them, and to climb."""
        return self._working_bytes(self.indexed)

    @property
    def process_bytes(self) -> int:
        """Bytes that one process will hold if it keeps the points in memory."""
        return self.matrix_bytes + self.working_bytes

    @property
    def part_size(self) -> int:
        """Samples that are given their nearest mode at a time: a share copies their points."""
        small = PART_BYTES // (max(self.n_coords, 1) * ENTRY_BYTES)
        return max(1, min(PART_SAMPLES, small), -(-self.n_samples // MOST_BLOCKS))

    def blocks(self, n_seeds: int) -> list[slice]:
        """Return the blocks of the seeds that turned out to be valid."""
        return cut_up(n_seeds, self.block_size)

    def runs(self, blocks: Sequence[slice], width: int) -> list[tuple[slice, ...]]:
        """Return the blocks in runs, one for each task, to be shared by `width` threads."""
        runs, done = [], 0
        while done < len(blocks):
            fair = (len(blocks) - done) // (RUNS_LEFT_A_THREAD * width)
            # Where there is no index, a block alone takes long.
            size = max(1, min(fair, MOST_BLOCKS_A_RUN)) if self.indexed else 1
            runs.append(tuple(blocks[done : done + size]))
            done += size
        return runs

    def loads_early(self, n_processes: int) -> bool:
        """Return whether all processes had better load at once, before there is work for them."""
        shared = 1 < n_processes <= self.n_blocks
        return shared and self.matrix_bytes >= WORTH_LOADING_EARLY_BYTES

    def held_in(self, room: Room) -> Holding:
        """Return how a process holds the job, or raise PlanRefused if it cannot."""
        file_fits = self.matrix_bytes <= room.disk_bytes
        for indexed in (True, False) if self.indexed else (False,):
            working = self._working_bytes(indexed)
            if self.matrix_bytes + working <= room.memory_bytes:
                worth = room.shares_node and self.matrix_bytes >= WORTH_SHARING_BYTES
                return Holding(Held.IN_FILE if worth and file_fits else Held.IN_MEMORY, indexed)
            if file_fits and working + LEAST_WINDOW_BYTES <= room.memory_bytes:
                return Holding(Held.IN_FILE, indexed)
        raise PlanRefused(self._why_not(room))

    def _why_not(self, room: Room) -> str:
        without = (
            f" without an index, and {human_bytes(self.index_bytes)} more with one"
            if self.indexed
            else ""
        )
        disk = f" and {human_bytes(room.disk_bytes)} of disk" if room.disk_bytes else ""
        least = self._working_bytes(False)
        window = human_bytes(least + LEAST_WINDOW_BYTES)
        mapped = (
            f", or with {human_bytes(self.matrix_bytes)} of disk and {window} of memory"
            if room.disk_bytes
            else ""
        )
        return (
            f"this fit needs {human_bytes(self.matrix_bytes + least)} in one process "
            f"({human_bytes(self.matrix_bytes)} for {self.n_samples:,} points of "
            f"{self.n_coords} coordinates, {human_bytes(least)} to work with "
            f"{self.threads} threads){without}. There are {human_bytes(room.memory_bytes)} of "
            f"memory{disk} left in {room.name}. Use a machine or workers with more memory"
            f"{mapped}, fewer threads a worker, fewer samples, or coarser bins."
        )


def make_plan(
    n_samples: int,
    n_coords: int,
    n_seeds: int,
    threads: int,
    block_size: int | None = None,
    *,
    indexed: bool = False,
    crewed: bool = False,
    rows_at_once: int = 0,
    row_bytes: int = 0,
) -> Plan:
    """Choose the size of the blocks: seconds of work each, and a bounded number of them.

    `rows_at_once` samples are read at a time, of `row_bytes` each in their source.
    """
    if block_size is None:
        enough, least, most = ENOUGH_BLOCKS, LEAST_SEEDS, MOST_SEEDS
        if indexed:
            enough, least = ENOUGH_BLOCKS_TOGETHER, LEAST_SEEDS_TOGETHER
            most = MOST_SEEDS_TOGETHER
        balanced = min(max(-(-n_seeds // enough), least), most)
        n_blocks = min(max(1, -(-n_seeds // balanced)), MOST_BLOCKS)
        block_size = max(1, -(-n_seeds // n_blocks))  # no small one at the end
    shared = COPIES_WHILE_SHARING * min(rows_at_once, ROWS_SHARED_AT_ONCE)
    decoded = min(COPIES_WHILE_READING * rows_at_once, n_samples) * row_bytes
    reading = decoded + shared * n_coords * ENTRY_BYTES
    return Plan(n_samples, n_coords, n_seeds, threads, block_size, indexed, reading, crewed)


@dataclass(frozen=True)
class Forecast:
    """What `dshift.plan` foresees of a fit.

    Attributes
    ----------
    n_samples, n_bins, n_seeds : int
    n_processes, n_threads : int
        Processes that would share the work now, and their threads together. A cluster without
        workers has none yet.
    held : {"memory", "file"} or None
        Where processes keep the points; a file is mapped, and shared by the processes of a node.
        None where the fit would be refused, or no worker is there to ask.
    matrix_bytes, working_bytes : int
        Bytes of the points, and of what each process needs beside them.
    available_bytes : int or None
        Memory that the smallest process has left.
    n_blocks, block_size, n_tasks : int
        Blocks of seeds, and all tasks that a cluster would be given.
    read_bytes : int
        Bytes of histograms that one process reads.
    load_seconds, seconds : float
        To read the samples, and for the whole fit, from one sampled block; NaN where it was not
        tried.
    refusal : str or None
        Why the fit would be refused.
    n_without_index : int
        Processes with too little memory for an index: they are many times slower.
    """

    n_samples: int
    n_bins: int
    n_seeds: int
    n_processes: int
    n_threads: int
    held: str | None
    matrix_bytes: int
    working_bytes: int
    available_bytes: int | None
    n_blocks: int
    block_size: int
    n_tasks: int
    read_bytes: int
    load_seconds: float = math.nan
    seconds: float = math.nan
    refusal: str | None = None
    n_without_index: int = 0

    @property
    def process_bytes(self) -> int:
        """Bytes that each process holds in memory."""
        own = 0 if self.held == Held.IN_FILE else self.matrix_bytes
        return own + self.working_bytes

    def __repr__(self) -> str:
        held = {"memory": "in memory", "file": "in a mapped file, one a node"}
        free = "" if self.available_bytes is None else f" of {human_bytes(self.available_bytes)}"
        lines = [
            f"{self.n_samples:,} samples of {self.n_bins} bins, {self.n_seeds:,} seeds",
            f"workers   {self.n_processes:,} processes, {self.n_threads:,} threads",
            f"memory    {human_bytes(self.process_bytes)}{free} a process; points "
            f"({human_bytes(self.matrix_bytes)}) {held.get(self.held or '', 'nowhere yet')}",
            f"work      {self.n_blocks:,} blocks of {self.block_size:,} seeds, "
            f"{self.n_tasks:,} tasks",
            f"reading   {human_bytes(self.read_bytes)} a process",
        ]
        if self.n_without_index:
            lines.append(f"SLOW      {self.n_without_index:,} processes have no room for an index")
        if not math.isnan(self.seconds):
            lines.append(
                f"time      about {human_seconds(self.seconds)}, "
                f"{human_seconds(self.load_seconds)} of it to read"
            )
        if self.refusal is not None:
            lines.append(f"REFUSED   {self.refusal}")
        return "<dshift.Forecast\n" + "\n".join(f"  {line}" for line in lines) + "\n>"


def human_bytes(n_bytes: float) -> str:
    """Return a size as people write it: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def human_seconds(seconds: float) -> str:
    """Return a time as people say it: `3 min`."""
    for unit, factor in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
