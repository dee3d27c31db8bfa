"""A sweep over bandwidths, as a report shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.metrics import Float
from dshift.report_parts import Sweep

Array = NDArray[Any]

SHARES = {
    "largest_share": "in the largest cluster",
    "singletons_share": "in clusters of one",
    "agreement": "agreement with the next bandwidth",
}


def read_sweep(sweep: xr.Dataset, result: xr.Dataset, unit: str) -> Sweep:
    """Return what is there of a sweep; what is not is not shown."""
    chosen = result.attrs.get("bandwidth")
    bandwidth = sweep["bandwidth"].values.astype(np.float64).ravel()
    order = np.argsort(bandwidth)

    def curve(name: str) -> Array | None:
        if name not in sweep or sweep[name].dims != ("bandwidth",):
            return None
        values: Array = sweep[name].values.astype(np.float64)
        return values[order]

    n_clusters = curve("n_clusters")
    shares = {text: curve(name) for name, text in SHARES.items()}
    return Sweep(
        bandwidth=bandwidth[order],
        n_clusters=n_clusters,
        shares={text: values for text, values in shares.items() if values is not None},
        plateaus=_plateaus(sweep, bandwidth[order], n_clusters),
        chosen=None if chosen is None else float(chosen),
        label=f"bandwidth ({unit})" if unit else "bandwidth",
    )


def _plateaus(
    sweep: xr.Dataset, bandwidth: Float, n_clusters: Array | None
) -> list[tuple[float, float, int | None]]:
    if "plateau_start" not in sweep or "plateau_stop" not in sweep:
        return []
    starts, stops = (sweep[f"plateau_{end}"].values.ravel() for end in ("start", "stop"))
    if starts.dtype.kind in "iu":  # places along `bandwidth`, both ends included
        starts, stops = (bandwidth[np.clip(e, 0, len(bandwidth) - 1)] for e in (starts, stops))
    lengths = np.log(stops / starts)
    if "plateau_length" in sweep:
        lengths = sweep["plateau_length"].values.ravel()
    found = []
    for at in np.argsort(-lengths, kind="stable"):
        middle = int(np.abs(np.log(bandwidth / np.sqrt(starts[at] * stops[at]))).argmin())
        count = None if n_clusters is None else int(n_clusters[middle])
        if "plateau_clusters" in sweep:
            count = int(sweep["plateau_clusters"].values.ravel()[at])
        found.append((float(starts[at]), float(stops[at]), count))
    return found
