"""The bins of a report as axes to draw on, and histograms as heights over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.metrics import Float
from dshift.report_parts import Axis
from dshift.report_scan import evenly
from dshift.report_text import is_nameless, say
from dshift.sources import Samples
from dshift.stacks import unstack

Array = NDArray[Any]

N_DRAWN_BINS = 200
N_NAMED_BINS = 12  # up to so many bins that are named are all named on the axis, else six
N_LETTERS = 12  # of such a name


def make_axes(result: xr.Dataset, samples: Samples, edges: Float | None) -> tuple[Axis, ...]:
    """Return an axis for the bins, or for those of each variable of a stack."""
    modes = result["modes"]
    if "variable_bins" not in modes.attrs:
        dim = str(modes.dims[1])
        coord = samples.bin_coords.get(samples.bin_dim, result[dim])  # xarray numbers what has none
        label = "bin" if is_nameless(dim) else dim
        return (_make_axis(coord, edges, samples.n_bins, label, result.attrs.get("unit", "")),)
    axes: list[Axis] = []
    for name, part in unstack(modes).items():
        n_bins, start = part.shape[-1], axes[-1].columns.stop if axes else 0
        coord = part.coords[part.dims[-1]].rename(name)
        around = np.asarray(part.attrs["edges"], dtype=np.float64)
        axes.append(_make_axis(coord, around, n_bins, name, "", name, start))
    return tuple(axes)


def _make_axis(
    coord: xr.DataArray,
    edges: Float | None,
    n_bins: int,
    label: str,
    unit: str,
    name: str = "",
    start: int = 0,
) -> Axis:
    """Return one axis: in the data's unit if edges or coordinates say it."""
    unit, label = str(coord.attrs.get("units", unit)), str(coord.attrs.get("long_name", label))
    ticks: dict[float, str] = {}
    around = edges_around(coord.values) if edges is None else edges
    if around is None:
        around, unit = np.arange(n_bins + 1.0) - 0.5, ""
        at = evenly(np.arange(n_bins), 6 if n_bins > N_NAMED_BINS else n_bins)
        ticks = {float(i): say(coord.values[i])[:N_LETTERS] for i in at}
    joined = -(-n_bins // N_DRAWN_BINS)
    equal = np.ptp(np.diff(around)) <= 1e-6 * np.diff(around).max()
    per = "share of a sample in each bin" if equal else f"share of a sample per {unit or 'unit'}"
    return Axis(
        edges=np.append(around[:-1:joined], around[-1]),
        label=f"{label} ({unit})" if unit else label,
        height_label=per,
        is_share=bool(equal),
        columns=slice(start, start + n_bins),
        name=name,
        ticks=ticks,
        n_joined=joined,
    )


def edges_around(centers: Array) -> Float | None:
    """Return edges halfway between bin centers, if they are increasing numbers."""
    if centers.dtype.kind not in "iuf" or len(centers) < 2 or not np.isfinite(centers).all():
        return None
    values = centers.astype(np.float64)
    if (np.diff(values) <= 0).any():
        return None
    middle = values[:-1] / 2 + values[1:] / 2
    return np.concatenate([[2 * values[0] - middle[0]], middle, [2 * values[-1] - middle[-1]]])


def heights(rows: Array, axis: Axis, normalize: bool) -> Float:
    """Return rows as they are drawn: shares, by joined bins, by width where widths differ."""
    values = rows[:, axis.columns].astype(np.float64)
    if normalize:
        totals = values.sum(axis=1, keepdims=True)
        values = values / np.where(totals > 0, totals, 1)  # a median under L1 may be all zero
    starts = np.arange(0, values.shape[1], axis.n_joined)
    n_each = np.diff(np.append(starts, values.shape[1]))
    width = n_each if axis.is_share else np.diff(axis.edges)
    drawn: Float = np.add.reduceat(values, starts, axis=1) / width
    return drawn


def crop(edges: Array, drawn: Sequence[Array]) -> tuple[float, float]:
    """Return the part of the axis where something that is drawn has any height."""
    tall = np.abs(np.concatenate(drawn))
    used = np.flatnonzero((tall > 0.003 * tall.max(initial=0)).any(axis=0))
    low, high = (max(used[0] - 1, 0), used[-1] + 2) if len(used) else (0, len(edges) - 1)
    return float(edges[low]), float(edges[min(high, len(edges) - 1)])
