"""Numbers, times and samples of a report in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

NOTHING = "\u2013"


def percent(share: float) -> str:
    """Return a share as a reader wants it: neither 0 % nor 100 % unless it is."""
    shown = f"{share:.0%}" if 0.095 <= share <= 0.995 else f"{share:.1%}"
    if 0 < share < 0.0005:
        shown = "< 0.1%"
    elif 0.9995 <= share < 1:
        shown = "> 99.9%"
    return shown.replace("100.0%", "100%").replace("%", "\u202f%")


def number(value: float) -> str:
    """Return a number with three digits, and no more than it needs."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def plural(count: int, thing: str) -> str:
    """Return so many things."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in the units that suit it."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"


def say(value: Any) -> str:
    """Return a coordinate."""
    if isinstance(value, np.datetime64):
        return str(np.datetime_as_string(value, unit="auto"))
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)


def is_nameless(dim: str) -> bool:
    """Tell a dimension that only xarray has named."""
    return re.fullmatch(r"dim_\d+", dim) is not None


@dataclass(frozen=True, eq=False)
class Names:
    """What samples are called, by their coordinates."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Mapping[str, xr.DataArray]

    def __call__(self, index: int) -> str:
        """Return the name of the sample with a flat index."""
        at = dict(zip(self.dims, np.unravel_index(index, self.shape), strict=True))
        words: list[str] = []
        told: set[str] = set()
        for coord in self.coords.values():  # texts tell most, so they come first
            dims = tuple(map(str, coord.dims))
            if coord.dtype.kind in "OSUT" and dims and set(dims) <= set(self.dims):
                words.append(str(coord.values[tuple(int(at[dim]) for dim in dims)]))
                told |= set(dims)
        for dim in self.dims:
            coord_of_dim = self.coords.get(dim)
            if coord_of_dim is not None and coord_of_dim.dtype.kind not in "OSUT":
                words.append(f"{dim} {say(coord_of_dim.values[at[dim]])}")
            elif coord_of_dim is None and dim not in told:
                nameless = len(self.dims) == 1 and is_nameless(dim)
                words.append(f"{'sample' if nameless else dim} {at[dim]}")
        name = " · ".join(words)
        return name if len(name) <= 80 else name[:79] + "…"
