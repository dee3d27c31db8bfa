"""Edges of bins: those that were given or are stored with the data, and the spacing they make."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift.errors import InvalidInput, InvalidType

Float = NDArray[np.float64]

DENSITY = "is_density"  # attribute of histograms that were divided by the widths of their bins


def stored_edges(attrs: Mapping[str, Any], n_bins: int, named: str) -> Float | None:
    """Return the edges that an array carries as an attribute, or refuse those that do not fit."""
    stored = attrs.get("edges")
    if stored is None:
        return None
    with contextlib.suppress(TypeError, ValueError, IndexError):
        edges = np.array(stored, dtype=np.float64)
        sizes = np.atleast_1d(attrs.get("variable_bins", n_bins))
        # Edges of stacked variables follow one another, and drop where the next one begins.
        starts = np.cumsum(sizes + 1)[:-1]
        rises = edges[1:] > edges[:-1]
        should_rise = ~np.isin(np.arange(1, edges.size), starts)
        fits = sizes.sum() == n_bins and edges.shape == (n_bins + len(sizes),)
        # Halved, since the distance of two floats need not be one.
        spans = np.ptp(edges / 2) <= np.finfo(np.float64).max / 2
        if fits and (rises == should_rise).all() and np.isfinite(edges).all() and spans:
            return edges
    # Stale edges (say, after a selection of bins) must not give way to unit spacing in silence.
    raise InvalidInput(
        f"{named} has the attribute `edges`={stored}, and {n_bins} bins need {n_bins + 1} finite, "
        "increasing edges: correct or delete it"
    )


def refuse_uneven_densities(named: str, attrs: Mapping[str, Any], edges: Any) -> None:
    """Raise if histograms are densities over bins of different widths: those are no shares."""
    widths = np.diff(edges) if attrs.get(DENSITY) and edges is not None else np.ones(1)
    if np.ptp(widths) > 1e-9 * widths.max():
        raise InvalidInput(
            f"{named} holds densities over bins of different widths, which do not add up to 1: "
            "make the histograms without `density`, or multiply by the widths and delete the "
            f"attribute `{DENSITY}`"
        )


def bin_spacing(edges: Float | None) -> tuple[float, Float | None]:
    """Return the largest spacing of bin centres, and each spacing as a share of it.

    The shares are None where all bins are equally wide (up to the rounding of the edges
    themselves): then coordinates need no scaling, and histograms of counts stay integers.
    """
    if edges is None:
        return 1.0, None
    gaps = np.concatenate([_gaps(part) for part in np.split(edges, _starts(edges)[1:])])
    if not gaps.size:
        return 1.0, None
    step = float(gaps.max())
    if (gaps == step).all():
        return step, None
    return step, np.maximum(gaps / step, np.finfo(np.float64).tiny)


def _gaps(edges: Float) -> Float:
    """Return the distances of bin centres, made equal where they are so up to rounding."""
    centers = edges[:-1] / 2 + edges[1:] / 2
    gaps = np.diff(centers)
    if gaps.size:
        mean = (centers[-1] - centers[0]) / gaps.size
        if np.abs(gaps - mean).max() <= 4 * np.finfo(np.float64).eps * np.abs(edges).max():
            gaps[:] = mean
    # Centres of the narrowest bins can round to one number; their distance is not zero for that.
    return np.where(gaps > 0, gaps, (edges[2:] - edges[:-2]) / 2)


def _starts(edges: Float) -> NDArray[np.int64]:
    """Return where the edges of each variable begin: they drop there. See `dshift.stack`."""
    return np.flatnonzero(np.diff(edges, prepend=np.inf) <= 0)


def segments_of(edges: Float | None, n_bins: int) -> tuple[int, ...]:
    """Return the number of bins of each variable: one number, unless histograms are stacked."""
    if edges is None:
        return (n_bins,)
    return tuple((np.diff(_starts(edges), append=len(edges)) - 1).tolist())


def count_coords(kind: str, edges: Float | None, n_bins: int) -> int:
    """Return how many coordinates a point has."""
    return n_bins - len(segments_of(edges, n_bins)) if kind == "wasserstein" else n_bins


def choose_edges(given: object, stored: Float | None, n_bins: int) -> Float | None:
    """Return the edges that were given, if they may be, or else those stored with the data."""
    if given is None:
        return stored
    if len(segments_of(stored, n_bins)) > 1:
        raise InvalidInput(
            "`edges` is given, but the data are stacked histograms, which have edges of their own "
            "for each variable; leave `edges` out, or pass them to `dshift.histogram`."
        )
    return check_edges(given, n_bins)


def check_edges(edges: object, n_bins: int) -> Float:
    """Return `edges` as float64, or say what is wrong with them."""
    try:
        values = np.asarray(edges, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidType(
            f"`edges` is a {type(edges).__name__} that is not made of numbers; give the "
            f"{n_bins + 1} edges of the {n_bins} bins."
        ) from None
    if values.shape != (n_bins + 1,):
        raise InvalidInput(
            f"`edges` has shape {values.shape}; {n_bins} bins have {n_bins + 1} edges, "
            f"so its shape must be ({n_bins + 1},)."
        )
    if not np.isfinite(values).all():
        raise InvalidInput("`edges` holds NaN or infinity; replace open ends by finite edges.")
    drops = np.flatnonzero(values[1:] <= values[:-1])
    if drops.size:
        i = int(drops[0])
        raise InvalidInput(
            f"`edges` must increase strictly, but edges {i} and {i + 1} are "
            f"{float(values[i])!r} and {float(values[i + 1])!r}; sort them and remove repeats."
        )
    if values[-1] / 2 - values[0] / 2 > np.finfo(np.float64).max / 2:
        raise InvalidInput(
            f"`edges` go from {float(values[0])!r} to {float(values[-1])!r}, which is farther than "
            "a float64 can count; divide them by a common factor."
        )
    return values
