"""What a caller may pass to `fit`: checked before anything is read or written."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from dshift.errors import InvalidInput, InvalidType
from dshift.metrics import Float, Int
from dshift.sources import Samples

# Subsets of seeds are drawn with this, so that the same call gives the same answer.
SUBSET_SEED = 0


def _as_numbers(name: str, value: object, wanted: str) -> Float:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidType(
            f"`{name}` is {_short(value)}, which is not made of real numbers; give {wanted}."
        ) from None


def _short(value: object) -> str:
    # NumPy would write `np.int64(5)` for a 5.
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _per_sample(name: str, array: Float, shape: tuple[int, ...]) -> Float:
    """Return one number per sample, from an array in the samples' shape or flattened."""
    n_samples = int(np.prod(shape))
    if array.shape not in (shape, (n_samples,)):
        raise InvalidInput(
            f"`{name}` has shape {array.shape}; the {n_samples} samples have shape {shape}, "
            f"so give one number per sample: shape {shape} or ({n_samples},)."
        )
    return array.reshape(-1)


def in_samples_order(name: str, value: Any, samples: Samples) -> Any:
    """Return a DataArray with its dimensions as those of the samples; anything else as it is.

    One whose coordinates are others, or in another order, would give numbers to wrong samples.
    """
    if not isinstance(value, xr.DataArray) or set(value.dims) != set(samples.dims):
        return value
    turned = value.transpose(*samples.dims)
    for dim in samples.dims if turned.shape == samples.shape else ():
        # By `in`, since xarray gives out numbers for a dimension without coordinates.
        both = dim in samples.coords and dim in turned.coords
        if both and not samples.coords[dim].variable.equals(turned.coords[dim].variable):
            raise InvalidInput(
                f"`{name}` has other coordinates along {dim!r} than the data, or the same ones in "
                f"another order; take those of the data: {name}.sel({dim}=data[{dim!r}])."
            )
    return turned


def _refuse_unless_positive(name: str, array: Float) -> None:
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if bad.size:
        at = f" (the first at sample {int(bad[0])})" if array.ndim else ""
        value = float(array.reshape(-1)[bad[0]])
        raise InvalidInput(f"`{name}` is {value!r}{at}; it must be finite and above 0.")


def check_bandwidth(bandwidth: object, shape: tuple[int, ...]) -> Float:
    """Return the bandwidth as an array of shape () or (n_samples,)."""
    wanted = "a positive number, or one per sample"
    array = _as_numbers("bandwidth", bandwidth, wanted)
    if array.ndim:
        array = _per_sample("bandwidth", array, shape)
    _refuse_unless_positive("bandwidth", array)
    return array


def check_weights(weights: object, shape: tuple[int, ...]) -> Float | None:
    """Return the weights as an array (n_samples,), or None."""
    if weights is None:
        return None
    array = _as_numbers("weights", weights, "a positive number per sample, or None")
    array = _per_sample("weights", array, shape)
    _refuse_unless_positive("weights", array)
    if array.max() >= np.finfo(np.float64).max / array.size:
        raise InvalidInput(
            "`weights` add up to more than a float64 holds; divide them by a common factor."
        )
    return array


def check_valley(valley: object) -> float | None:
    """Return the depth of valley that separates clusters, or None."""
    if valley is None:
        return None
    if not isinstance(valley, Real) or isinstance(valley, bool):
        raise InvalidType(f"`valley` is {_short(valley)}; give None or a number in [0, 1).")
    if not 0 <= float(valley) < 1:
        raise InvalidInput(
            f"`valley` is {_short(valley)}; it must be at least 0 and below 1: the share of the "
            "lower peak that the density may lose between two modes of one cluster."
        )
    return float(valley)


def check_min_cluster_size(size: object) -> float:
    """Return the least total weight of a cluster."""
    if not isinstance(size, Real) or isinstance(size, bool):
        raise InvalidType(f"`min_cluster_size` is {_short(size)}; give a number, 1 or more.")
    if not 1 <= float(size) < np.inf:
        raise InvalidInput(
            f"`min_cluster_size` is {_short(size)}; it must be finite and at least 1."
        )
    return float(size)


def check_invalid(invalid: object) -> str:
    """Return what to do with samples that are not histograms."""
    if invalid not in ("raise", "mask"):
        raise InvalidInput(
            f'`invalid` is {_short(invalid)}; allowed are "raise" (stop and say which) and '
            '"mask" (give them the label -1).'
        )
    return str(invalid)


def check_progress(progress: object) -> bool | None:
    """Return whether a progress bar was asked for."""
    if progress is not None and not isinstance(progress, bool):
        raise InvalidType(
            f"`progress` is {_short(progress)}; give True, False, or None (a bar on a terminal)."
        )
    return progress


@dataclass(frozen=True)
class Seeds:
    """Where to start: at every sample, at some (`indices`), or at the caller's own histograms."""

    indices: Int | None = None  # sorted, each once
    rows: NDArray[Any] | None = None

    def count(self, n_samples: int) -> int:
        """Return how many there are."""
        given = self.indices if self.rows is None else self.rows
        return n_samples if given is None else len(given)


def check_seeds(seeds: object, n_samples: int, n_bins: int) -> Seeds:
    """Return the seeds that were asked for."""
    if isinstance(seeds, str):
        if seeds != "all":
            raise InvalidInput(f'`seeds` is {seeds!r}; the only word allowed is "all".')
        return Seeds()
    if isinstance(seeds, bool | None):
        raise InvalidType(f"`seeds` is {seeds!r}; {_SEEDS_ALLOWED}")
    if isinstance(seeds, Integral):
        return _drawn(int(seeds), n_samples, seeds)
    if isinstance(seeds, Real):
        if not 0 < float(seeds) <= 1:
            raise InvalidInput(
                f"`seeds` is {_short(seeds)}; a fraction must be above 0 and at most 1."
            )
        return _drawn(max(1, round(float(seeds) * n_samples)), n_samples, seeds)
    array = np.asarray(seeds)
    if array.ndim == 2 and array.dtype.kind in "iuf":
        return _own_rows(array, n_bins)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidType(
            f"`seeds` is an array of shape {array.shape} and dtype {array.dtype}; {_SEEDS_ALLOWED}"
        )
    return _picked(array, n_samples)


_SEEDS_ALLOWED = (
    'give "all", a number of samples, a fraction of them, a list of sample indices (whole '
    "numbers), or histograms of shape (n_seeds, n_bins)."
)


def _drawn(count: int, n_samples: int, given: object) -> Seeds:
    if not 1 <= count <= n_samples:
        raise InvalidInput(
            f"`seeds` is {_short(given)}; with {n_samples} samples it must be from 1 to "
            f"{n_samples} (a fraction is written with a point: 0.1)."
        )
    drawn = np.random.default_rng(SUBSET_SEED).choice(n_samples, count, replace=False)
    return Seeds(np.sort(drawn))


def _picked(indices: NDArray[Any], n_samples: int) -> Seeds:
    if not indices.size:
        raise InvalidInput("`seeds` is empty; give at least one sample index.")
    outside = indices[(indices < 0) | (indices >= n_samples)]
    if outside.size:
        raise InvalidInput(
            f"`seeds` holds the index {int(outside[0])}; the {n_samples} samples are numbered "
            f"0 to {n_samples - 1}, all sample dimensions flattened."
        )
    return Seeds(np.unique(indices).astype(np.int64))


def _own_rows(rows: NDArray[Any], n_bins: int) -> Seeds:
    if rows.shape[1] != n_bins:
        raise InvalidInput(
            f"`seeds` has shape {rows.shape}, but the data has {n_bins} bins: "
            f"give histograms of shape (n_seeds, {n_bins})."
        )
    if not len(rows):
        raise InvalidInput("`seeds` is empty; give at least one histogram.")
    return Seeds(rows=rows)
