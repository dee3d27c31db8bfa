"""A job for the journey: what is small travels with every task, what is large travels once.

Workers read samples themselves wherever they can. What they cannot read (arrays in the caller's
memory) is put into a Zarr group that they can, or handed over by the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import zarr
from numpy.typing import NDArray

from dshift.arguments import Seeds
from dshift.sources import Samples, open_samples
from dshift.stage import Job

# By name; NumPy, or Zarr that is still unread.
Arrays = Mapping[str, Any]
SAMPLES = "samples"

# A job up to this size rides with every task; anything larger travels once.
INLINE_BYTES = 16 * 1024
# Rows of a chunk: small enough to be read piecewise, large enough for few files.
CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Packed:
    """A job without its arrays, the arrays, and the samples if they must travel too."""

    job: Job
    arrays: Arrays
    samples: Samples | None = None

    @property
    def light(self) -> bool:
        """Whether all of it may ride with every task."""
        return self.samples is None and pickled_bytes(self) <= INLINE_BYTES

    def in_memory(self) -> Arrays:
        """Return the arrays, with those of the samples read."""
        if self.samples is None:
            return dict(self.arrays)
        return {**self.arrays, SAMPLES: _read_all(self.samples)}


def pack(job: Job) -> Packed:
    """Take the arrays out of a job; its samples stay, without their coordinates."""
    named = {
        "weights": job.weights,
        "bandwidth": job.bandwidth if job.bandwidth.ndim else None,
        "seed_indices": job.seeds.indices,
        "seed_rows": job.seeds.rows,
    }
    light = replace(
        job,
        samples=job.samples.without_coords(),
        weights=None,
        bandwidth=job.bandwidth if job.bandwidth.ndim == 0 else np.asarray(np.nan),
        seeds=Seeds(),
    )
    return Packed(light, {name: array for name, array in named.items() if array is not None})


def with_samples(packed: Packed) -> Packed:
    """Return the same with the samples taken out of the job, to travel with the arrays."""
    samples = packed.job.samples
    return Packed(replace(packed.job, samples=samples.without_data()), packed.arrays, samples)


def pickled_bytes(packed: Packed) -> int:
    """Return what a packed job weighs in a message, without copying arrays that it may hold."""
    buffers: list[Any] = []
    head = cloudpickle.dumps(packed.job, protocol=5, buffer_callback=buffers.append)
    arrays = sum(int(array.nbytes) for array in packed.arrays.values())
    return len(head) + sum(int(buffer.raw().nbytes) for buffer in buffers) + arrays


def unpack(job: Job, arrays: Arrays) -> Job:
    """Put the arrays back."""
    whole = replace(
        job,
        weights=_get(arrays, "weights"),
        bandwidth=_get(arrays, "bandwidth", job.bandwidth),
        seeds=Seeds(_get(arrays, "seed_indices"), _get(arrays, "seed_rows")),
    )
    if SAMPLES not in arrays:
        return whole
    # Messages call the samples what the caller calls them.
    found = open_samples(arrays[SAMPLES])
    samples = replace(found, origin=job.samples.origin, dims=job.samples.dims)
    return replace(whole, samples=samples)


def _get(arrays: Arrays, name: str, default: Any = None) -> Any:
    return np.asarray(arrays[name][...]) if name in arrays else default


def _read_all(samples: Samples) -> NDArray[Any]:
    rows = np.empty((*samples.shape, samples.n_bins), dtype=samples.dtype)
    for block in samples.blocks():
        rows[block] = samples.read(block)
    return rows


def write_parcel(url: str, packed: Packed) -> None:
    """Write arrays to a Zarr group, and the samples block by block."""
    group, samples = zarr.open_group(url, mode="w"), packed.samples
    for name, array in packed.arrays.items():
        row_bytes = max(array[:1].nbytes, 1)
        chunk = (max(1, min(len(array), CHUNK_BYTES // row_bytes)), *array.shape[1:])
        group.create_array(name, shape=array.shape, dtype=array.dtype, chunks=chunk)[...] = array
    if samples is None:
        return
    first = next(samples.blocks())
    target = group.create_array(
        SAMPLES,
        shape=(*samples.shape, samples.n_bins),
        dtype=samples.dtype,
        chunks=(*(part.stop - part.start for part in first), samples.n_bins),
    )
    for block in samples.blocks():
        target[block] = samples.read(block)


def read_parcel(url: str) -> Arrays:
    """Return the arrays of a group, still unread."""
    return {str(name): array for name, array in zarr.open_group(url, mode="r").arrays()}
