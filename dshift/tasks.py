"""What runs on the workers of a Dask cluster. Each function is given its worker, and knows it only
by its address, its memory, its folder and the events that it passes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask

from dshift.errors import DshiftError
from dshift.held import JobRef, Lodging, stage_of
from dshift.modes import merge
from dshift.monitor import BlockDone
from dshift.parcel import Arrays
from dshift.shift import Climbed
from dshift.stage import Job, climb_share
from dshift.store import Store
from dshift.threads import memory_limit, run_block

TOPIC = "dshift-blocks"


def _lodging(worker: Any) -> Lodging:
    limit = worker.memory_manager.memory_limit or memory_limit()
    used = worker.monitor.get_process_memory()
    return Lodging(f"worker {worker.address}", limit, used, worker.local_directory)


def free_disk(worker: Any) -> int:
    """Return the bytes that are free where the worker may write."""
    return _lodging(worker).room(shares_node=False).disk_bytes


def why_unreadable(worker: Any, job: Job) -> str | None:
    """Return what keeps the worker from reading the samples, if anything."""
    try:
        with dask.config.set(scheduler="synchronous"):
            job.samples.read(tuple(slice(0, 1) for _ in job.samples.shape))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def sees(worker: Any, place: Store, key: str, content: bytes) -> bool:
    """Return whether the worker finds the same content in a store."""
    return place.read(key) == content


def run_share(
    worker: Any, ref: JobRef, arrays: Arrays | None, share: Callable[..., Any], item: Any
) -> Any:
    """Return a share of the work, or the refusal that it ends in: no retry would mend that."""
    try:
        return share(stage_of(ref, arrays, lambda: _lodging(worker)), *item)
    except DshiftError as refusal:
        return refusal


def climb_block(
    worker: Any, ref: JobRef, arrays: Arrays | None, block: slice, place: Store | None
) -> Climbed:
    """Climb from a block of seeds, and tell the caller what it came to."""
    climbed, done = run_block(
        lambda: climb_share(stage_of(ref, arrays, lambda: _lodging(worker)), block), block, place
    )
    counts = done.modes, done.n_steps, done.reused, done.n_pairs
    worker.log_event(TOPIC, (ref.token, block.start, block.stop, *counts))
    return climbed


def told(event: tuple[float, Any]) -> tuple[str, BlockDone]:
    """Return which job an event of `climb_block` is of, and what it says."""
    token, start, stop, modes, n_steps, reused, n_pairs = event[1]
    return token, BlockDone(slice(start, stop), tuple(modes), n_steps, reused, n_pairs)


def merge_parts(worker: Any, *parts: Climbed) -> Climbed:
    """Join blocks of seeds."""
    return merge(parts)
