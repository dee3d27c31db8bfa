"""The field that seeds climb: every sample as a point, how far it reaches and how hard it pulls."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dshift import kernels
from dshift.edges import count_coords, segments_of
from dshift.errors import InvalidInput
from dshift.metrics import (
    Embedding,
    Float,
    Int,
    Metric,
    Points,
    TotalsSeen,
    make_embedding,
    make_pulls,
    share_rows,
)
from dshift.planning import ENTRY_BYTES, ROWS_SHARED_AT_ONCE, cut_up
from dshift.pool import map_threads
from dshift.sources import Samples

# Of what rows become on the way, at a time, in memory that is used again: Dask's workers give what
# is freed back to the system at once, and fresh pages took two thirds of the time. With 64 KiB two
# threads spent more time on waiting for the interpreter than they saved.
BYTES_AT_ONCE = 256 * 2**10


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

        # Blocks are ranges of the samples as a rule: their rows become shares where they belong.
        in_line = bool(where.size) and where[-1] - where[0] == where.size - 1

        def share(
            part: slice, rows: Points = rows, where: Int = where, in_line: bool = in_line
        ) -> TotalsSeen:
            seen, scratch = TotalsSeen(), np.empty((_few(samples.n_bins), samples.n_bins))
            for few in _few_rows(part, samples.n_bins):
                place = slice(where[few.start], where[few.stop - 1] + 1) if in_line else where[few]
                target = shares[place] if in_line and normalize else None
                found = share_rows(
                    rows[few], kind, normalize, segments, scratch=scratch, into=target
                )
                seen.add(found)
                valid[place] = found.valid
                if found.values is not target:
                    shares[place] = found.values
            return seen

        for seen in map_threads(share, cut_up(len(rows), ROWS_SHARED_AT_ONCE), threads):
            totals.join(seen)
    if not valid.all():
        _refuse_or_drop(samples, valid, invalid)
        shares = _keep(shares, valid)
    embedding = make_embedding(kind, samples.n_bins, edges, metric, totals.common)
    points, digests = _place_all(shares, embedding, threads)
    return Loaded(embedding, points, valid, _fingerprint(points, valid, digests))


def _few(width: int) -> int:
    """Return how many rows are turned into shares at a time."""
    return max(1, BYTES_AT_ONCE // (width * ENTRY_BYTES))


def _few_rows(part: slice, width: int) -> Iterator[slice]:
    """Cut a part so that what it becomes on the way stays in a cache, and in memory at hand."""
    for few in cut_up(part.stop - part.start, _few(width)):
        yield slice(part.start + few.start, part.start + few.stop)


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
    for part in cut_up(len(rows), ROWS_SHARED_AT_ONCE):
        kept = rows[part][valid[part]]
        rows[end : end + len(kept)] = kept
        end += len(kept)
    return rows[:end]


def _place_all(shares: Float, embedding: Embedding, threads: int) -> tuple[Points, list[bytes]]:
    """Turn shares into points in the same memory, since both take eight bytes an entry.

    Also returns digests of the parts, which are made while they are at hand.
    """
    bits = shares.view(np.int64)
    points: Points = bits if embedding.exact else shares

    def place(part: slice) -> bytes:
        if embedding.exact:
            embedding.place_bits(bits[part])
        return _digest(points[part])

    digests = map_threads(place, cut_up(len(points), ROWS_SHARED_AT_ONCE), threads)
    points.flags.writeable = False
    return points, digests


def _digest(points: Points) -> bytes:
    hashes = np.empty(len(points), np.uint64)
    kernels.hash_rows(points.view(np.int64), hashes)
    return hashlib.blake2b(hashes.astype("<u8").tobytes(), digest_size=16).digest()


def _fingerprint(points: Points, valid: NDArray[np.bool_], digests: list[bytes]) -> str:
    """Return a digest of the digests of all parts."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((points.shape, points.dtype.kind)).encode())
    digest.update(np.packbits(valid).tobytes())
    for of_part in digests:
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
