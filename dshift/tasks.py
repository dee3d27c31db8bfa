"""What runs on the workers of a Dask cluster. Each function is given its worker, and knows it only
by its address, its memory, its folder and the events that it passes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import dask
import numpy as np

from dshift.errors import DshiftError, InvalidInput
from dshift.held import JobRef, staged
from dshift.modes import merge
from dshift.monitor import BlockDone
from dshift.parcel import Arrays
from dshift.shift import Climbed
from dshift.sources import Samples
from dshift.stage import Job, climb_share, seeds_share
from dshift.store import JOB_FILE, Store
from dshift.threads import block_failed, name_seeds, run_blocks
from dshift.workers import lodging_of

TOPIC = "dshift-blocks"


def read_probes(samples: Samples) -> bytes:
    """Return a digest of a few samples: of a chunk that is not there Zarr makes empty ones."""
    digest = hashlib.blake2b(digest_size=16)
    for number in sorted({0, samples.n_samples // 2, samples.n_samples - 1}):
        place = np.unravel_index(number, samples.shape)
        digest.update(samples.read(tuple(slice(int(i), int(i) + 1) for i in place)).tobytes())
    return digest.digest()


def why_unreadable(worker: Any, job: Job, expected: bytes | None) -> str | None:
    """Return what keeps the worker from reading the samples as the caller does, if anything."""
    try:
        with dask.config.set(scheduler="synchronous"):
            found = read_probes(job.samples)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if expected in (None, found) else "they find other values there"


def sees(worker: Any, place: Store, key: str, content: bytes) -> bool:
    """Return whether the worker finds the same content in a store."""
    return place.read(key) == content


def unreachable(place: Store, who: str) -> InvalidInput:
    """Return the refusal of a store that the caller and a worker see differently."""
    return InvalidInput(
        f"`store`={place.name!r} is not the same place for {who} as for the caller; give a path on "
        "a file system that all share, or a URL."
    )


def run_share(
    worker: Any, item: Any, *, ref: JobRef, arrays: Arrays | None, share: Callable[..., Any]
) -> Any:
    """Return a share of the work, or the refusal that it ends in: no retry would mend that."""
    try:
        with staged(ref, arrays, lambda: lodging_of(worker)) as stage:
            return share(stage, *item)
    except DshiftError as refusal:
        return refusal


def climb_run(worker: Any, blocks: tuple[slice, ...], **common: Any) -> Climbed:
    """Climb from a run of blocks, one after the other; `common` is what `climb_block` takes."""
    return merge([climb_block(worker, block, **common) for block in blocks])


def climb_block(
    worker: Any,
    block: slice,
    *,
    ref: JobRef,
    arrays: Arrays | None,
    place: Store | None,
    light: bool,
) -> Climbed:
    """Climb from a block of seeds, and tell the caller what it came to.

    Where labels stay in the store, a `light` block is its modes alone.
    """
    if place is not None and place.read(JOB_FILE) is None:
        raise unreachable(place, f"worker {worker.address}")
    ((climbed, done),) = run_blocks(partial(_climb, worker, ref, arrays, place), [block], place)
    counts = done.modes, done.n_steps, done.reused, done.n_pairs
    worker.log_event(TOPIC, (ref.token, block.start, block.stop, *counts))
    if not light:
        return climbed
    none = slice(0, 0)
    return replace(
        climbed,
        mode_of_seed=climbed.mode_of_seed[none],
        n_iter=climbed.n_iter[none],
        seeds=climbed.seeds[none],
    )


def _climb(
    worker: Any, ref: JobRef, arrays: Arrays | None, place: Store | None, block: slice
) -> Climbed:
    with staged(ref, arrays, lambda: lodging_of(worker)) as stage:
        try:
            return climb_share(stage, block)
        except DshiftError:
            raise
        except Exception as error:
            named = name_seeds(seeds_share(stage, block), own=stage.seed_index is None)
            raise block_failed(named, error, place) from error


def told(event: tuple[float, Any]) -> tuple[str, BlockDone]:
    """Return which job an event of `climb_block` is of, and what it says."""
    token, start, stop, modes, n_steps, reused, n_pairs = event[1]
    return token, BlockDone(slice(start, stop), tuple(modes), n_steps, reused, n_pairs)


def merge_parts(worker: Any, *parts: Climbed) -> Climbed:
    """Join blocks of seeds."""
    return merge(parts)
