"""The samples that stand for all in a sweep, and the bandwidths that suit them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift import arguments
from dshift.edges import segments_of
from dshift.errors import InvalidInput
from dshift.field import load_points
from dshift.metrics import Float, Int, Metric, share_rows
from dshift.shift import distances
from dshift.sources import Samples, open_samples

N_BANDWIDTHS = 36
QUANTILES = (0.01, 0.8)
N_MEASURED = 512  # samples of which all pairs are measured for the quantiles


@dataclass(frozen=True, eq=False)
class Drawn:
    """The samples that stand for all."""

    rows: NDArray[Any]  # (n, n_bins)
    index: Int  # (n,): their numbers
    copies: Float  # (n,): the weights, none below one


def draw(
    samples: Samples,
    count: int | None,
    weights: Float | None,
    kind: str,
    metric: Metric | None,
    invalid: str,
) -> Drawn:
    """Read the samples that stand for all; those that are not histograms are left out."""
    n = samples.n_samples
    index = np.arange(n)
    if count is not None and count < n:
        rng = np.random.default_rng(arguments.SUBSET_SEED)
        index = np.sort(rng.choice(n, count, replace=False))
    rows = read_rows(samples, index)
    segments = segments_of(samples.edges, samples.n_bins)
    valid = share_rows(rows, kind, metric is None or metric.normalize, segments).valid
    if invalid == "raise" and not valid.all():
        raise InvalidInput(
            f"sample {int(index[np.argmin(valid)])} of {samples.origin} is not a histogram (finite "
            "entries, none negative, and a total above zero), and there may be more. "
            'Mend them, or pass invalid="mask" to leave them out.'
        )
    if valid.sum() < 2:
        raise InvalidInput(
            f"{int(valid.sum())} of {len(valid)} samples drawn from {samples.origin} are "
            "histograms; a sweep needs 2. Draw more with `sample`, or give `bandwidth` a number."
        )
    index = index[valid]
    copies = np.ones(len(index)) if weights is None else _as_copies(weights[index])
    return Drawn(rows[valid], index, copies)


def _as_copies(weights: Float) -> Float:
    """Return weights of which the least is one sample, unless all are whole numbers."""
    whole = bool((weights == np.rint(weights)).all())
    return weights if whole else weights / weights.min()


def read_rows(samples: Samples, index: Int) -> NDArray[Any]:
    """Read the samples of these numbers (all dimensions flattened), block by block."""
    rows = np.empty((len(index), samples.n_bins), dtype=samples.dtype)
    places = np.unravel_index(index, samples.shape)
    for block in samples.blocks():
        at = list(zip(block, places, strict=True))
        inside = np.logical_and.reduce([(s.start <= place) & (place < s.stop) for s, place in at])
        if inside.any():
            local = tuple(place[inside] - s.start for s, place in at)
            rows[inside] = samples.read(block)[local]
    return rows


def spread_bandwidths(drawn: Drawn, kind: str, metric: Metric | None, edges: Float | None) -> Float:
    """Return bandwidths from small to large distances between the samples."""
    n = len(drawn.rows)
    rng = np.random.default_rng(arguments.SUBSET_SEED)
    some = np.sort(rng.choice(n, min(n, N_MEASURED), replace=False))
    loaded = load_points(open_samples(drawn.rows[some]), kind, metric, edges, "raise")
    lengths, counts = [], []
    for i, point in enumerate(loaded.points[:-1]):
        away = distances(loaded.embedding, point, loaded.points[i + 1 :])
        lengths.append(loaded.embedding.in_units(away))
        counts.append(drawn.copies[some[i]] * drawn.copies[some[i + 1 :]])
    away, pairs = np.concatenate(lengths), np.concatenate(counts)
    apart = away > 0
    if not apart.any():
        raise InvalidInput(
            f"all {len(some)} samples looked at are equal, so there is no distance to choose a "
            "bandwidth from; any positive `bandwidth` gives one cluster."
        )
    low, high = np.quantile(
        away[apart], QUANTILES, weights=pairs[apart], method="inverted_cdf"
    ).tolist()
    # Where all distances are alike, half of them is a bandwidth that tells samples apart.
    spread = np.geomspace(min(low, high / 2), high, N_BANDWIDTHS)
    # Four digits, so that a bandwidth can be read off and typed in.
    return np.unique([float(f"{width:.4g}") for width in spread])
