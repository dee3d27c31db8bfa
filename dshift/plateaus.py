"""Plateaus: ranges of bandwidths over which clusters stay; pure functions on labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.errors import InvalidInput
from dshift.metrics import Float, Int

# What makes a plateau: neighbours that agree, and two clusters that are more than stragglers.
AGREEING = 0.9
LARGE_SHARE = 0.02
N_RANKS = 10
AUTO = "auto"


def agreement(
    labels: NDArray[Any], others: NDArray[Any], copies: NDArray[Any] | None = None
) -> float:
    """Return the adjusted Rand index of two labellings: 1 for equal, about 0 for unrelated.

    Parameters
    ----------
    labels, others : arrays (n,)
    copies : array (n,), optional
        How many samples each one stands for.
    """

    def pairs(codes: NDArray[Any]) -> float:
        counts = np.bincount(codes, copies)
        return float((counts * (counts - 1.0) / 2).sum())

    _, first = np.unique(labels, return_inverse=True)
    _, second = np.unique(others, return_inverse=True)
    # Coded as pairs, not as a table: that has a cell for every two clusters.
    _, both = np.unique(first * (second.max() + 1) + second, return_inverse=True)
    rows, columns, everything = pairs(first), pairs(second), pairs(np.zeros_like(first))
    if everything == 0:
        return 1.0
    by_chance = rows * columns / everything
    ceiling = (rows + columns) / 2
    return 1.0 if ceiling == by_chance else (pairs(both) - by_chance) / (ceiling - by_chance)


@dataclass(frozen=True, eq=False)
class Labelled:
    """The clusters at one bandwidth."""

    labels: NDArray[np.int32]
    sizes: Float  # of the largest
    n_clusters: int
    n_large: int
    largest_share: float
    singletons_share: float


def look_at(labels: NDArray[np.int32], copies: Float) -> Labelled:
    """Count the clusters; weight k is k samples."""
    sizes: Float = np.bincount(labels, copies).astype(np.float64)
    members = np.bincount(labels)
    single = (members == 1) & (sizes <= 1)
    shares = sizes / sizes.sum()
    return Labelled(
        labels,
        np.sort(sizes)[::-1][:N_RANKS],
        len(sizes),
        int(((shares >= LARGE_SHARE) & ~single).sum()),
        float(shares.max()),
        float(sizes[single].sum() / sizes.sum()),
    )


def find_plateaus(agreements: Sequence[float], n_large: Sequence[int]) -> list[range]:
    """Return the runs of two or more bandwidths that agree and hold two large clusters.

    Parameters
    ----------
    agreements : sequence (n_bandwidths - 1,)
        Of each bandwidth with the next.
    n_large : sequence (n_bandwidths,)
    """
    runs, start = [], 0
    for i in range(len(n_large)):
        onward = i < len(agreements) and agreements[i] >= AGREEING and min(n_large[i : i + 2]) >= 2
        if not onward:
            if i > start:
                runs.append(range(start, i + 1))
            start = i + 1
    return runs


def plateau_variables(
    widths: Float, found: list[Labelled], plateaus: list[range]
) -> dict[str, tuple[str, Any]]:
    """Return the variables of a sweep on the dimension `plateau`."""

    def whole(values: Iterable[int]) -> Int:
        return np.fromiter(values, dtype=np.int64)

    middle = whole(run[(len(run) - 1) // 2] for run in plateaus)
    return {
        "plateau_start": ("plateau", widths[whole(run[0] for run in plateaus)]),
        "plateau_stop": ("plateau", widths[whole(run[-1] for run in plateaus)]),
        "plateau_middle": ("plateau", widths[middle]),
        "plateau_length": ("plateau", whole(len(run) for run in plateaus)),
        "plateau_clusters": ("plateau", whole(found[i].n_clusters for i in middle)),
        "plateau_large": ("plateau", whole(found[i].n_large for i in middle)),
    }


def choose_bandwidth(swept: xr.Dataset) -> float:
    """Return the middle of the longest plateau of a sweep; of equally long ones, the finest.

    Parameters
    ----------
    swept : Dataset
        What `sweep` returned.
    """
    lengths = swept.plateau_length.values
    if not lengths.size:
        raise InvalidInput(
            f"`bandwidth`={AUTO!r} found no plateau: at no two neighbouring bandwidths from "
            f"{float(swept.bandwidth[0]):.4g} to {float(swept.bandwidth[-1]):.4g} do the same two "
            f"or more clusters of {LARGE_SHARE:.0%} of the {swept.sizes['drawn']} samples hold. "
            "Look at `dshift.sweep(data)`, and give a number."
        )
    return float(swept.plateau_middle.values[int(np.argmax(lengths))])
