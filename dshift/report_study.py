"""A result beside its data: all that the parts of a report are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.edges import check_edges
from dshift.metrics import Float, Int
from dshift.report_axes import heights, make_axes
from dshift.report_check import MAX_CHECKED_VALUES, check_fingerprint
from dshift.report_parts import Axis
from dshift.report_ruler import Ruler
from dshift.report_scan import N_CARDS, Scan, scan_samples
from dshift.report_text import Names
from dshift.sources import Samples

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Study:
    """A result beside its data, on the way to the page."""

    result: xr.Dataset
    samples: Samples
    compared: bool  # the data's fingerprint is that of the result
    ruler: Ruler
    axes: tuple[Axis, ...]
    names: Names
    label: Array  # on the samples' own dimensions
    mode_index: Array
    modes: Float
    main: Int  # the largest mode of each cluster
    sizes: Array  # of the clusters
    scan: Scan

    def heights(self, rows: Array) -> list[Float]:
        """Return rows as they are drawn, on each axis."""
        return [heights(rows, axis, self.ruler.normalize) for axis in self.axes]


def study(result: xr.Dataset, samples: Samples) -> Study:
    """Look at a result and its data; read these once, if they are not too large."""
    edges = _edges(result["modes"])
    small = samples.n_samples * samples.n_bins <= MAX_CHECKED_VALUES
    if small:
        samples = samples.in_memory()
        check_fingerprint(result, samples, edges)
    modes = result["modes"].values.astype(np.float64)
    label, mode_index = result["label"].values, result["mode_index"].values
    clusters, first = np.unique(result["cluster_of_mode"].values, return_index=True)
    main = first[clusters >= 0]
    ruler = Ruler.of(result, edges)
    dims = tuple(map(str, result["label"].dims))
    coords = {str(name): coord for name, coord in result.coords.items()}
    coords |= samples.coords if samples.dims == dims else {}
    return Study(
        result=result,
        samples=samples,
        compared=small and "fingerprint" in result.attrs,
        ruler=ruler,
        axes=make_axes(result, samples, edges),
        names=Names(dims, samples.shape, coords),
        label=label,
        mode_index=mode_index,
        modes=modes,
        main=main,
        sizes=result["cluster_size"].values,
        scan=scan_samples(samples, ruler, label, mode_index, modes, min(len(main), N_CARDS)),
    )


def _edges(modes: xr.DataArray) -> Float | None:
    stored = modes.attrs.get("edges")
    if stored is None:
        return None
    # Those of a stack drop where the next variable begins; `fit` has checked them.
    is_stack = "variable_bins" in modes.attrs
    return np.asarray(stored, np.float64) if is_stack else check_edges(stored, modes.shape[1])
