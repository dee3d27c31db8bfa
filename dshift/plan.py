"""What a fit will do and hold, as plain data, known before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dshift.errors import PlanRefused

ENTRY_BYTES = 8
# Seeds of one block share their walks, so blocks are as large as balance allows. Their size depends
# on nothing but the number of seeds, so that a run can be continued with other workers.
ENOUGH_BLOCKS = 64
MOST_BLOCKS = 4096
LEAST_SEEDS = 256
MOST_SEEDS = 4096


@dataclass(frozen=True)
class Plan:
    """The blocks of a fit and the memory that a process needs for them."""

    n_samples: int
    n_coords: int
    n_seeds: int
    threads: int
    block_size: int

    @property
    def n_blocks(self) -> int:
        """Blocks of seeds."""
        return -(-self.n_seeds // self.block_size)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of the points, one copy a process."""
        return self.n_samples * self.n_coords * ENTRY_BYTES

    @property
    def working_bytes(self) -> int:
        """Bytes beside the points: a few entries per sample for each thread, and the results."""
        per_sample = 4 * ENTRY_BYTES * (self.threads + 1)
        paths = 64 * self.block_size * self.n_coords * ENTRY_BYTES * self.threads
        return self.n_samples * per_sample + paths

    @property
    def process_bytes(self) -> int:
        """Bytes that one process will hold."""
        return self.matrix_bytes + self.working_bytes

    def blocks(self, n_seeds: int) -> Iterator[slice]:
        """Yield the blocks of the seeds that turned out to be valid."""
        for start in range(0, n_seeds, self.block_size):
            yield slice(start, min(start + self.block_size, n_seeds))

    def refused_above(self, limit_bytes: int) -> Plan:
        """Return this plan, or raise PlanRefused if a process would hold over `limit_bytes`."""
        if self.process_bytes > limit_bytes:
            raise PlanRefused(
                f"this fit needs {human_bytes(self.process_bytes)} in one process "
                f"({human_bytes(self.matrix_bytes)} for {self.n_samples:,} points of "
                f"{self.n_coords} coordinates, {human_bytes(self.working_bytes)} to work with "
                f"{self.threads} threads), and {human_bytes(limit_bytes)} are available. "
                "Use a machine with more memory, fewer samples, or coarser bins."
            )
        return self


def make_plan(
    n_samples: int, n_coords: int, n_seeds: int, threads: int, block_size: int | None = None
) -> Plan:
    """Choose the size of the blocks: seconds of work each, and a bounded number of them."""
    if block_size is None:
        balanced = min(max(-(-n_seeds // ENOUGH_BLOCKS), LEAST_SEEDS), MOST_SEEDS)
        block_size = max(balanced, -(-n_seeds // MOST_BLOCKS))
    return Plan(n_samples, n_coords, n_seeds, threads, block_size)


def human_bytes(n_bytes: float) -> str:
    """Return a size as people write it: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"
