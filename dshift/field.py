"""The field that seeds climb: every sample as a point, how far it reaches and how hard it pulls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dshift.edges import count_coords, segments_of
from dshift.errors import InvalidInput
from dshift.metrics import (
    Embedding,
    Float,
    Metric,
    Points,
    TotalsSeen,
    make_embedding,
    make_pulls,
    share_rows,
)
from dshift.planning import ROWS_SHARED_AT_ONCE
from dshift.pool import map_threads
from dshift.sources import Samples


@dataclass(frozen=True)
class Loaded:
    """The valid samples of a source as points."""

    embedding: Embedding
    points: Points  # (n_valid, n_coords)
    valid: NDArray[np.bool_]  # (n_samples,)
    fingerprint: str  # of points and validity: the same for every chunking and source


@dataclass(frozen=True)
class Field:
    """What every seed is measured against; read only, shared by all threads of a process."""

    embedding: Embedding
    points: Points  # (n, n_coords)
    weights: Float  # (n,)
    bandwidth: Float  # (n,)
    reach: Points  # (n,): a sample is active for points nearer than this
    pulls: Points  # (n,)
    weight_of_pull: Fraction | None  # weight = pull times this; None where bandwidths differ


def load_points(
    samples: Samples,
    kind: str,
    metric: Metric | None,
    edges: Float | None,
    invalid: str,
    *,
    allocate: Callable[[tuple[int, int]], Float] = np.empty,
    threads: int = 1,
) -> Loaded:
    """Read the samples once, block by block, straight into the matrix that `allocate` makes."""
    n_coords = count_coords(kind, edges, samples.n_bins)
    segments = segments_of(edges, samples.n_bins)
    shares = allocate((samples.n_samples, n_coords))
    valid = np.empty(samples.n_samples, dtype=bool)
    totals = TotalsSeen()
    normalize = metric is None or metric.normalize
    numbers = np.arange(samples.n_samples).reshape(samples.shape)
    for block in samples.blocks():
        rows, where = samples.read(block).reshape(-1, samples.n_bins), numbers[block].ravel()
        for part in _row_ranges(len(rows)):  # a block may be all there is; what it becomes is wider
            found = share_rows(rows[part], kind, normalize, segments)
            totals.add(found)
            shares[where[part]], valid[where[part]] = found.values, found.valid
    if not valid.all():
        _refuse_or_drop(samples, valid, invalid)
        shares = _keep(shares, valid)
    embedding = make_embedding(kind, samples.n_bins, edges, metric, totals.common)
    points = _place_all(shares, embedding)
    return Loaded(embedding, points, valid, _fingerprint(points, valid, threads))


def _row_ranges(n_rows: int) -> Iterator[slice]:
    for start in range(0, n_rows, ROWS_SHARED_AT_ONCE):
        yield slice(start, min(start + ROWS_SHARED_AT_ONCE, n_rows))


def _refuse_or_drop(samples: Samples, valid: NDArray[np.bool_], invalid: str) -> None:
    bad = np.flatnonzero(~valid)
    where = np.unravel_index(bad[0], samples.shape)
    place = ", ".join(f"{d}={int(i)}" for d, i in zip(samples.dims, where, strict=True))
    reason = f"{bad.size} of {valid.size} samples of {samples.origin} are not histograms"
    hint = (
        "a histogram has finite entries, none negative, and a total above zero (a chunk that a "
        "Zarr store lacks reads as zeros)"
    )
    if invalid == "raise":
        raise InvalidInput(
            f"{reason} (the first at {place}): {hint}. "
            'Mend them, or pass invalid="mask" to give them the label -1.'
        )
    if bad.size == valid.size:
        raise InvalidInput(f"{reason}, so nothing is left to cluster: {hint}.")


def _keep(rows: Float, valid: NDArray[np.bool_]) -> Float:
    """Move the valid rows to the front, in place, and return them."""
    end = 0
    for part in _row_ranges(len(rows)):
        kept = rows[part][valid[part]]
        rows[end : end + len(kept)] = kept
        end += len(kept)
    return rows[:end]


def _place_all(shares: Float, embedding: Embedding) -> Points:
    """Turn shares into points in the same memory: both take eight bytes an entry."""
    points = shares.view(np.int64) if embedding.exact else shares
    for part in _row_ranges(len(shares)):
        points[part] = embedding.place(shares[part])
    points.flags.writeable = False
    return points


def _fingerprint(points: Points, valid: NDArray[np.bool_], threads: int) -> str:
    """Return a digest of digests of the parts, which threads make side by side."""

    def digest_part(part: slice) -> bytes:
        rows = points[part].astype(points.dtype.newbyteorder("<"), copy=False)
        return hashlib.blake2b(rows.tobytes(), digest_size=16).digest()

    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((points.shape, points.dtype.kind)).encode())
    digest.update(np.packbits(valid).tobytes())
    for of_part in map_threads(digest_part, _row_ranges(len(points)), threads):
        digest.update(of_part)
    return digest.hexdigest()


def make_field(loaded: Loaded, weights: Float | None, bandwidth: Float) -> Field:
    """Give the points their weights and bandwidths.

    Parameters
    ----------
    weights : array (n_valid,) or None
    bandwidth : array of shape () or (n_valid,)
    """
    n = len(loaded.points)
    heavy = np.ones(n) if weights is None else weights
    pulls = make_pulls(loaded.embedding, heavy, bandwidth)
    # A fraction, since the lightest weights cannot be divided without loss.
    ratio = Fraction(heavy.max().item()) / Fraction(pulls.max().item())
    return Field(
        embedding=loaded.embedding,
        points=loaded.points,
        weights=heavy,
        bandwidth=np.broadcast_to(bandwidth, (n,)),
        reach=np.broadcast_to(loaded.embedding.reach(bandwidth), (n,)),
        pulls=pulls,
        weight_of_pull=ratio if bandwidth.ndim == 0 else None,
    )
