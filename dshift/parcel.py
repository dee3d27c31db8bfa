"""A job for the journey: what is small travels with every task, what is large travels once.

Workers read samples themselves wherever they can. What they cannot read (arrays in the caller's
memory) is put into a Zarr group that they can, or handed over by the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from dshift.arguments import Seeds
from dshift.sources import Samples, open_samples
from dshift.stage import Job

# By name; NumPy, or Zarr that is still unread.
Arrays = Mapping[str, Any]

# Rows of a chunk: small enough to be read piecewise, large enough for few files.
CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Packed:
    """A job without its arrays, and the arrays."""

    job: Job  # `samples` reads nothing if they are among the arrays
    arrays: Arrays


def pack(job: Job, *, with_samples: bool) -> Packed:
    """Take the arrays out of a job, and the samples too if workers cannot read them."""
    named = {
        "weights": job.weights,
        "bandwidth": job.bandwidth if job.bandwidth.ndim else None,
        "seed_indices": job.seeds.indices,
        "seed_rows": job.seeds.rows,
        "samples": _all_rows(job.samples) if with_samples else None,
    }
    arrays = {name: array for name, array in named.items() if array is not None}
    light = replace(
        job,
        samples=job.samples.without_data() if with_samples else job.samples.without_coords(),
        weights=None,
        bandwidth=job.bandwidth if job.bandwidth.ndim == 0 else np.asarray(np.nan),
        seeds=Seeds(),
    )
    return Packed(light, arrays)


def unpack(packed: Packed) -> Job:
    """Put the arrays back."""
    arrays = packed.arrays
    job = replace(
        packed.job,
        weights=_get(arrays, "weights"),
        bandwidth=_get(arrays, "bandwidth", packed.job.bandwidth),
        seeds=Seeds(_get(arrays, "seed_indices"), _get(arrays, "seed_rows")),
    )
    if "samples" in arrays:
        job = replace(job, samples=open_samples(arrays["samples"]))
    return job


def _get(arrays: Arrays, name: str, default: Any = None) -> Any:
    return np.asarray(arrays[name][...]) if name in arrays else default


def _all_rows(samples: Samples) -> NDArray[Any]:
    """Return the samples as one (n_samples, n_bins) array."""
    rows = np.empty((*samples.shape, samples.n_bins), dtype=samples.dtype)
    for block in samples.blocks():
        rows[block] = samples.read(block)
    return rows.reshape(-1, samples.n_bins)


def write_arrays(arrays: Arrays, url: str) -> None:
    """Write arrays to a Zarr group, in chunks of rows."""
    group = zarr.open_group(url, mode="w")
    for name, array in arrays.items():
        row_bytes = max(array[:1].nbytes, 1)
        chunk = (max(1, min(len(array), CHUNK_BYTES // row_bytes)), *array.shape[1:])
        group.create_array(name, shape=array.shape, dtype=array.dtype, chunks=chunk)[...] = array


def read_arrays(url: str) -> Arrays:
    """Return the arrays of a group, still unread."""
    return {str(name): array for name, array in zarr.open_group(url, mode="r").arrays()}
