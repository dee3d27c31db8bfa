"""Histograms of several variables as one, and apart again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from dshift.edges import check_edges, refuse_uneven_densities
from dshift.errors import InvalidInput, InvalidType
from dshift.metrics import Float

LARGEST_RATIO = 1e6  # of the widest to the narrowest of stacked variables


def stack(
    histograms: Mapping[Any, xr.DataArray], scale: Any = None, *, bin_dim: str = "bin"
) -> xr.DataArray:
    """Join histograms of several variables, so that they cluster together.

    `fit` measures the distance of two samples as the sum of ``scale * W1`` over the variables, each
    of which is normalised on its own. Under another metric than "wasserstein" the scales are idle.

    Parameters
    ----------
    histograms : dict from name to DataArray, or Dataset
        Histograms of the same samples, bins last, as `histogram` returns them. Where an array has
        no attribute `edges`, its bins are 1 apart.
    scale : number, dict from name to number, or "range"
        What a distance of 1 in the unit of each variable counts; "range" counts 1 from the first
        to the last edge. None counts all alike, and is allowed only if units are the same.
    bin_dim : str
        Name of the joined dimension.

    Returns
    -------
    xarray.DataArray
        On the samples' dimensions and `bin_dim`, lazy if one of the arrays is. Coordinates of
        the bins: `bin_variable` and `bin_center`; counts of what was left out have the variable's
        name before theirs. `unstack` takes it, or the `modes` of a fit, apart again.

    Notes
    -----
    The attribute `edges` holds what `fit` measures by: the edges of each variable, scaled, and
    counted from 0 if there are several. So they drop to 0 where a variable begins.
    """
    parts = _checked_parts(histograms, bin_dim)
    edges = {name: _edges_of(name, part) for name, part in parts.items()}
    for name, part in parts.items():
        refuse_uneven_densities(f"`histograms` of {name!r}", part.attrs, edges[name])
    units = [str(part.attrs.get("edges_units", "")) for part in parts.values()]
    scales = _scales(scale, edges, units)
    scaled = [edges[name] * scales[name] for name in parts]
    if len(scaled) > 1:
        scaled = [bounds - bounds[0] for bounds in scaled]
    joined = xr.concat(
        [part.drop_vars(list(part.coords)) for part in parts.values()], bin_dim, join="exact"
    )
    left_out = {
        f"{name}_{key}": part.coords[key].variable
        for name, part in parts.items()
        for key in _left_out_of(part)
    }
    first = next(iter(parts.values()))
    own = {bin_dim, *_left_out_of(first)}
    centers = [bounds[:-1] / 2 + bounds[1:] / 2 for bounds in edges.values()]
    sizes = [part.sizes[bin_dim] for part in parts.values()]
    joined = joined.assign_coords(
        {name: coord for name, coord in first.coords.items() if not own & {name, *coord.dims}}
        | left_out
        | {
            "bin_variable": (bin_dim, np.repeat(np.array(list(parts), dtype=object), sizes)),
            "bin_center": (bin_dim, np.concatenate(centers)),
        }
    )
    same_unit = len({*units}) == 1 and units[0] and set(scales.values()) == {1.0}
    joined.attrs = {
        "long_name": "histograms of several variables",
        "edges": np.concatenate(scaled).tolist(),
        **({"edges_units": units[0]} if same_unit else {}),
        "variables": list(parts),
        "variable_bins": sizes,
        "variable_edges": np.concatenate(list(edges.values())).tolist(),
        "variable_units": units,
        "scale": [scales[name] for name in parts],
        **({"ancillary_variables": " ".join(left_out)} if left_out else {}),
    }
    return joined.rename("counts")


def unstack(stacked: xr.DataArray) -> dict[str, xr.DataArray]:
    """Take stacked histograms apart: one DataArray for each variable, bins last.

    Parameters
    ----------
    stacked : DataArray
        What `stack` returned, or the `modes` of a fit of it.
    """
    about = stacked.attrs
    if not isinstance(stacked, xr.DataArray) or "variable_bins" not in about:
        raise InvalidInput(
            "`stacked` has no attribute `variable_bins`; give what `stack` returned, or the "
            "`modes` of a fit of it."
        )
    sizes = np.atleast_1d(about["variable_bins"])
    if sizes.sum() != stacked.shape[-1]:
        raise InvalidInput(
            f"`stacked` has {stacked.shape[-1]} bins, and its variables had {sizes.sum()}; give it "
            "with all of its bins."
        )
    edges = np.split(np.asarray(about["variable_edges"]), np.cumsum(sizes + 1)[:-1])
    stops = np.cumsum(sizes)
    parts = {}
    for i, name in enumerate(np.atleast_1d(about["variables"]).tolist()):
        bin_dim = f"{name}_bin"
        part = stacked.isel({stacked.dims[-1]: slice(stops[i] - sizes[i], stops[i])})
        part = part.drop_vars([*stacked.coords.keys() & {"bin_variable", "bin_center"}])
        part = part.rename({stacked.dims[-1]: bin_dim})
        unit = np.atleast_1d(about["variable_units"]).tolist()[i]
        with_unit = {"units": unit} if unit else {}
        centers = edges[i][:-1] / 2 + edges[i][1:] / 2
        part = part.assign_coords({bin_dim: (bin_dim, centers, with_unit)})
        part.attrs = {"edges": edges[i].tolist(), **({"edges_units": unit} if unit else {})}
        parts[str(name)] = part.rename(str(name))
    return parts


def _checked_parts(histograms: Any, bin_dim: str) -> dict[str, xr.DataArray]:
    """Return the arrays by name, with the same samples in the same order, and `bin_dim` last."""
    if not isinstance(histograms, Mapping) or not histograms:
        raise InvalidType(
            f"`histograms` is a {type(histograms).__name__}; give a dict of one or more DataArrays "
            "by name, such as "
            '{"rain": ..., "temp": ...}.'
        )
    parts: dict[str, xr.DataArray] = {}
    for key, part in histograms.items():
        if not isinstance(part, xr.DataArray) or part.dtype.kind not in "biuf" or part.ndim < 2:
            raise InvalidType(
                f"`histograms` of {key!r} is no DataArray of numbers with samples and bins; make "
                "it one with `dshift.histogram`."
            )
        if "variable_bins" in part.attrs:
            raise InvalidInput(f"`histograms` of {key!r} is a stack itself; give its variables.")
        if bin_dim in (*part.dims[:-1], *(part.coords.keys() - part.dims)):
            raise InvalidInput(
                f"`bin_dim` is {bin_dim!r}, which is a name in `histograms` of {key!r} already; "
                "give another `bin_dim`."
            )
        parts[str(key)] = part.rename({part.dims[-1]: bin_dim})
    names = [f"`{name}` {part.dims[:-1]} {part.shape[:-1]}" for name, part in parts.items()]
    first = next(iter(parts.values()))
    try:
        aligned = xr.align(*parts.values(), join="exact", exclude=[bin_dim], copy=False)
        return {
            name: part.transpose(*first.dims) for name, part in zip(parts, aligned, strict=True)
        }
    except ValueError as error:
        raise InvalidInput(
            f"`histograms` are not of the same samples ({'; '.join(names)}): {error}; select the "
            "samples that they share."
        ) from error


def _left_out_of(part: xr.DataArray) -> list[str]:
    names = str(part.attrs.get("ancillary_variables", "")).split()
    return [name for name in names if name in part.coords]


def _edges_of(name: str, part: xr.DataArray) -> Float:
    n_bins = part.shape[-1]
    stored = part.attrs.get("edges")
    if stored is None:
        return np.arange(n_bins + 1.0)
    try:
        return check_edges(stored, n_bins)
    except (InvalidInput, InvalidType) as error:
        raise InvalidInput(f"`histograms` of {name!r}: {error}") from error


def _scales(scale: Any, edges: Mapping[str, Float], units: Sequence[str]) -> dict[str, float]:
    if scale is None and len({*units}) > 1:
        named = ", ".join(f"{n!r} is in {u or '?'}" for n, u in zip(edges, units, strict=True))
        raise InvalidInput(
            f"`scale` is None, but {named}: such distances cannot be added up; give a dict `scale` "
            'of what 1 of each unit counts, or scale="range".'
        )
    if isinstance(scale, str) and scale == "range":
        return {name: float(1 / (bounds[-1] - bounds[0])) for name, bounds in edges.items()}
    if isinstance(scale, Mapping) and {str(name) for name in scale} != {*edges}:
        raise InvalidInput(
            f"`scale` names {', '.join(map(repr, scale))}; it must name each of "
            f"{', '.join(map(repr, edges))}."
        )
    given = {str(n): s for n, s in scale.items()} if isinstance(scale, Mapping) else {}
    scales = {name: given.get(name, 1.0 if scale is None else scale) for name in edges}
    for name, number in scales.items():
        if not isinstance(number, Real) or isinstance(number, bool):
            raise InvalidType(
                f"`scale` of {name!r} is {number!r}; give a number above 0, a dict of such, or "
                '"range".'
            )
        if not 0 < float(number) < math.inf:
            raise InvalidInput(f"`scale` of {name!r} is {number!r}; it must be finite and above 0.")
    widths = [float(scales[name]) * float(b[-1] - b[0]) for name, b in edges.items()]
    if not max(widths) <= LARGEST_RATIO * min(widths):
        raise InvalidInput(
            f"`scale` makes one variable {max(widths) / min(widths):.0e} times as wide as another, "
            "which would not count at all; give scales that bring the variables nearer."
        )
    return {name: float(number) for name, number in scales.items()}
