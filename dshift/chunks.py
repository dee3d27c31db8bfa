"""The blocks that a source is read by: its chunks, joined where they are small, cut where large."""

from __future__ import annotations

import itertools
import math

Sizes = tuple[tuple[int, ...], ...]  # chunk sizes along each dimension, as Dask writes them

MAX_BLOCK_BYTES = 64 * 2**20  # a chunk above this is split
JOINED_BLOCK_BYTES = 16 * 2**20  # chunks are joined up to this: a read then outweighs its overhead


def chunk_sizes(length: int, chunk: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of the chunks that make up a length, from one size or all of them."""
    if isinstance(chunk, tuple):
        return chunk if sum(chunk) == length else (length,)
    step = chunk if chunk > 0 else max(length, 1)  # -1 is the whole length, as in Dask
    return tuple(min(step, length - start) for start in range(0, length, step))


def block_sizes(layouts: tuple[Sizes, ...], row_bytes: int) -> Sizes:
    """Return the sizes of blocks to read, of the layouts that chunks have, coarsest first."""
    # The coarsest layout that fits: a shard is read whole, or else by its inner chunks.
    fitting = [s for s in layouts if row_bytes * math.prod(map(max, s)) <= MAX_BLOCK_BYTES]
    blocks = list(fitting[0] if fitting else layouts[-1])
    # Joining starts from the last axis and splitting from the first: blocks stay near C order.
    for axis in sorted(range(len(blocks)), reverse=bool(fitting)):
        slab_bytes = row_bytes * math.prod(map(max, blocks)) // max(blocks[axis])
        if fitting:
            blocks[axis] = _joined(blocks[axis], JOINED_BLOCK_BYTES // slab_bytes)
        else:
            limit = max(1, MAX_BLOCK_BYTES // slab_bytes)
            blocks[axis] = tuple(part for size in blocks[axis] for part in chunk_sizes(size, limit))
    return tuple(blocks)


def _joined(sizes: tuple[int, ...], limit: int) -> tuple[int, ...]:
    joined = [0]
    for size in filter(None, sizes):  # Dask may hold empty chunks
        if joined[-1] and joined[-1] + size > limit:
            joined.append(0)
        joined[-1] += size
    return tuple(joined)


def slices_of(sizes: tuple[int, ...]) -> list[slice]:
    """Return the ranges of chunks of these sizes."""
    stops = itertools.accumulate(sizes)
    return [slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]
