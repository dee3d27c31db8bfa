"""Clusters where the samples are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift.metrics import Float, Int
from dshift.report_axes import edges_around
from dshift.report_parts import Map
from dshift.report_scan import evenly
from dshift.report_text import Names, say

Array = NDArray[Any]

N_PIXELS = 600  # of a map, on its longer side
N_MAPS = 4
ROLES = {  # names, standard names, units and axes by which CF and habit say where a sample is
    "y": ({"lat", "latitude", "y"}, "latitude", "degrees_north", "Y"),
    "x": ({"lon", "long", "longitude", "x"}, "longitude", "degrees_east", "X"),
}


def _place_dim(names: Names, role: str) -> str | None:
    """Return the coordinate that says where samples are, along one axis of a map."""
    words, standard_name, units, axis = ROLES[role]
    known: list[str] = [*names.dims, *names.coords]
    for name in known:
        attrs = names.coords[name].attrs if name in names.coords else {}
        said = (attrs.get("standard_name"), attrs.get("units"), attrs.get("axis"))
        if name.lower() in words or said[0] == standard_name or said[1] == units or said[2] == axis:
            return name
    return None


def make_maps(names: Names, label: Array) -> list[Map]:
    """Return maps of the clusters, where coordinates say where the samples are."""
    y, x = _place_dim(names, "y"), _place_dim(names, "x")
    if y is None or x is None or y == x:
        return []
    words = ("longitude", "latitude") if x.lower() not in {"x", "y"} else ("x", "y")
    if y in names.dims and x in names.dims:
        return list(_grid_maps(names, label, y, x, words))
    dims = names.coords[y].dims if y in names.coords else ()
    if len(dims) != 1 or x not in names.coords or names.coords[x].dims != dims or label.ndim > 1:
        return []
    at = evenly(np.arange(len(label)), 5000)
    xs, ys = (names.coords[name].values[at].astype(np.float64) for name in (x, y))
    ok = np.isfinite(xs) & np.isfinite(ys)
    return [Map("", label[at][ok], xs[ok], ys[ok], words)] if ok.any() else []


def _grid_maps(names: Names, label: Array, y: str, x: str, words: tuple[str, str]) -> Iterator[Map]:
    ranges = [_pixels(names, dim) for dim in (y, x)]
    others = [dim for dim in names.dims if dim not in (y, x)]
    sizes = [names.shape[names.dims.index(dim)] for dim in others]
    for place in range(min(math.prod(sizes), N_MAPS)):
        at = dict(zip(others, np.unravel_index(place, sizes) if sizes else (), strict=True))
        part = label[tuple(int(at[dim]) if dim in at else slice(None) for dim in names.dims)]
        part = part if names.dims.index(y) < names.dims.index(x) else part.T
        (rows, ys), (columns, xs) = ranges
        name = " · ".join(f"{dim} {_coordinate(names, dim, int(i))}" for dim, i in at.items())
        yield Map(name, part[np.ix_(rows, columns)], xs, ys, words)


def _coordinate(names: Names, dim: str, index: int) -> str:
    return say(names.coords[dim].values[index]) if dim in names.coords else str(index)


def _pixels(names: Names, dim: str) -> tuple[Int, Float]:
    """Return the index of the nearest sample for each pixel along one axis, and the axis's ends."""
    length = names.shape[names.dims.index(dim)]
    centers = names.coords[dim].values if dim in names.coords else np.arange(length)
    flipped = len(centers) > 1 and centers.dtype.kind in "iuf" and centers[0] > centers[-1]
    around = edges_around(centers[::-1] if flipped else centers)
    flipped = flipped and around is not None
    edges = np.arange(length + 1) - 0.5 if around is None else around
    smallest = float(np.diff(edges).min())
    count = int(min(N_PIXELS, max(length, math.ceil((edges[-1] - edges[0]) / smallest - 1e-6))))
    middles = edges[0] + (np.arange(count) + 0.5) * (edges[-1] - edges[0]) / count
    index = np.clip(np.searchsorted(edges, middles, "right") - 1, 0, length - 1)
    ends: Float = edges[[0, -1]].astype(np.float64)
    return (length - 1 - index if flipped else index), ends
