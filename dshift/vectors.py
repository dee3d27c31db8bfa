"""Vectors as histograms, so that the exact engine clusters any real numbers under plain L1.

A vector of p coordinates becomes a histogram of p + 1 bins whose cumulative histogram is the vector
on a ramp: ``F_k = (k + u_k) / p``, where u_k is the k-th coordinate as a share of a common span. On
the ramp neighbours are in order whatever the vector, and W1 between two such histograms, with bins
``p * span`` apart, is the L1 distance of the vectors. The histograms are counts with one total, so
coordinates are rounded once, here, to ``span * 2**-bits``, and everything after that is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dshift.errors import InvalidInput
from dshift.metrics import Float


@dataclass(frozen=True, eq=False)
class Ramp:
    """How the vectors of one fit become histograms.

    Parameters
    ----------
    low : array (p,)
        Coordinates below this, or above ``low + span``, are moved there.
    span : float
        A power of two, so that whole numbers stay exact.
    """

    low: Float
    span: float

    @property
    def edges(self) -> Float:
        """Edges of the bins: with them, W1 is the L1 distance of the vectors."""
        p = len(self.low)
        return np.arange(p + 2.0) * (p * self.span)

    def _height(self) -> float:
        """Counts to a span: as many as keep a total of all coordinates on the engine's grid."""
        n_bits = len(self.low).bit_length()
        return 2.0 ** max(52 - 2 * n_bits, 1)

    def histograms(self, vectors: NDArray[np.number]) -> NDArray[np.int64]:
        """Return the histograms (n, p + 1) of vectors (n, p)."""
        height = self._height()
        shares = np.clip((vectors - self.low) / self.span, 0.0, 1.0)
        heights = np.rint(shares * height).astype(np.int64)
        steps = np.arange(len(self.low)) * np.int64(height)
        total = np.int64(len(self.low) * height)
        counts: NDArray[np.int64] = np.diff(heights + steps, axis=1, prepend=0, append=total)
        return counts

    def vectors(self, histograms: Float) -> Float:
        """Return the vectors (n, p) of normalised histograms (n, p + 1)."""
        p = len(self.low)
        shares = np.cumsum(histograms, axis=1)[:, :-1] * p - np.arange(p)
        # Medians lie on half steps; anything finer is rounding.
        half_steps = 2 * self._height()
        return np.rint(shares * half_steps) / half_steps * self.span + self.low


def make_ramp(vectors: NDArray[np.number], bandwidth: float) -> Ramp:
    """Choose a ramp that holds the vectors and everything within a bandwidth of them."""
    low, high = vectors.min(axis=0).astype(np.float64), vectors.max(axis=0).astype(np.float64)
    # Where a coordinate is moved, it was a bandwidth off all samples, and still is.
    margin = _power_above(bandwidth)
    widest = float(np.max(high / 2 - low / 2)) + margin
    if not math.isfinite(4 * widest * len(low)):
        raise InvalidInput(
            f"`X` and `bandwidth` span {widest:.3g}, beyond what a float64 holds when "
            "coordinates are added; divide both by a common factor."
        )
    return Ramp(low - margin, 2 * _power_above(widest))


def _power_above(value: float) -> float:
    mantissa, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - (mantissa == 0.5)) if math.isfinite(value) else value
