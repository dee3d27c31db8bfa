"""How a report measures distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.metrics import KINDS, Embedding, Float, make_embedding, share_rows
from dshift.report_text import NOTHING, number

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Ruler:
    """How the report measures distances: as the fit did, where it can know how."""

    embedding: Embedding
    name: str
    unit: str
    normalize: bool = True

    @classmethod
    def of(cls, result: xr.Dataset, edges: Float | None) -> Ruler:
        """Return the ruler of a result; W1 or L1 stands in for a metric of the user's own."""
        metric, modes = str(result.attrs.get("metric", "wasserstein")), result["modes"].values
        own = metric not in KINDS
        stands_in = f", in place of the metric {metric!r}," if own else ""
        if own and not ((modes >= 0).all() and np.allclose(modes.sum(axis=1), 1)):
            plain = make_embedding("custom", modes.shape[1], None, None, None)
            return cls(plain, f"L1{stands_in}", "", normalize=False)
        kind = "wasserstein" if own else metric
        embedding = make_embedding(kind, modes.shape[1], edges, None, None)
        if kind == "wasserstein":
            unit = str(result.attrs.get("unit", "")) if edges is not None else "bins"
            added = " added up over the variables" if len(embedding.segments) > 1 else ""
            return cls(embedding, f"W1{added}{stands_in}", unit)
        names = {"l1": "L1 distance", "sqeuclidean": "squared Euclidean distance"}
        return cls(embedding, names[kind], "")

    def points(self, rows: Array) -> tuple[Float, NDArray[np.bool_]]:
        """Return rows as points, and which are histograms."""
        segments = self.embedding.segments
        shares = share_rows(rows, self.embedding.kind, self.normalize, segments)
        return self.embedding.place(shares.values).astype(np.float64), shares.valid

    def between(self, points: Float, others: Float) -> Float:
        """Return the distances of points (n, p), or of each pair if `others` has the same rows."""
        gaps = points - others
        parts = gaps * gaps if self.embedding.kind == "sqeuclidean" else np.abs(gaps)
        return self.embedding.in_units(parts.sum(axis=-1))

    def table(self, points: Float, others: Float) -> Float:
        """Return the distances (n, m) of all pairs."""
        columns = [self.between(points, other) for other in others]
        return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0))

    def squared(self, distances: Float) -> Float:
        """Return squares of lengths, for classical scaling."""
        return distances if self.embedding.kind == "sqeuclidean" else distances**2

    def say(self, distance: float) -> str:
        """Return a distance with its unit."""
        return f"{number(distance)} {self.unit}".strip() if np.isfinite(distance) else NOTHING
