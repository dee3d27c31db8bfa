"""Many bandwidths side by side: what stays the same over a range of them is in the data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from tqdm.auto import tqdm

import dshift
from dshift import arguments
from dshift.errors import InvalidInput, InvalidType
from dshift.field import load_points
from dshift.metrics import (
    Float,
    Int,
    Metric,
    choose_edges,
    resolve_metric,
    segments_of,
    share_rows,
)
from dshift.monitor import wants_progress
from dshift.plateaus import (
    AUTO,
    N_RANKS,
    Labelled,
    agreement,
    choose_bandwidth,
    find_plateaus,
    look_at,
    plateau_variables,
)
from dshift.shift import distances
from dshift.sources import Samples, open_samples

# Modes of one bump count as one cluster here: without that, fragments hide every plateau.
VALLEY = 0.1
N_BANDWIDTHS = 36
QUANTILES = (0.01, 0.8)
N_DRAWN = 2000
N_MEASURED = 512  # samples of which all pairs are measured for the quantiles
MOST_LABELS = 10_000_000


def sweep(
    data: Any,
    bandwidths: Any = None,
    *,
    valley: float | None = VALLEY,
    sample: int | None = N_DRAWN,
    variable: str | None = None,
    metric: str | Metric = "wasserstein",
    edges: Any = None,
    bin_dim: str | None = None,
    weights: Any = None,
    invalid: str = "raise",
    client: Any = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Fit over a range of bandwidths, and find the plateaus: ranges over which clusters stay.

    Parameters
    ----------
    data : as for `fit`
    bandwidths : array (n_bandwidths,), optional
        By default 36, evenly spaced on a log scale between the 1 % and 80 % quantiles of the
        distances between samples.
    valley : float in [0, 1) or None
        As for `fit`: modes are joined unless the density between them falls by more than this.
    sample : int or None
        Of larger data, so many samples are drawn (the same ones in every call) and stand for all.
        None takes all.
    variable, metric, edges, bin_dim, weights, invalid, client, progress
        As for `fit`.

    Returns
    -------
    xarray.Dataset
        On `bandwidth`: `n_clusters`; `n_large`, clusters of 2 % of the data or more;
        `largest_share`; `singletons_share`, the share of the data in clusters of one sample;
        `agreement`, the adjusted Rand index with the labels at the next bandwidth (NaN at the
        last). On `bandwidth` and `rank`: `cluster_sizes` of the largest clusters, 0 where there
        is none. On `bandwidth` and `drawn`: `labels`, unless they are over ten million; the
        coordinate `sample_index` numbers the samples that were used. On `plateau`:
        `plateau_start`, `plateau_stop` and `plateau_middle` (bandwidths), `plateau_length`
        (number of bandwidths), `plateau_clusters` and `plateau_large` (clusters at the middle).

        A plateau is a run of bandwidths with at least two large clusters, each of which agrees
        with the next by 0.9 or more. Sizes are total weights: weight k is k samples.

    Examples
    --------
    >>> import dshift
    >>> from dshift.demo import synthetic
    >>> swept = dshift.sweep(synthetic(60).counts)
    >>> swept.plateau_clusters.values[swept.plateau_length.values.argmax()].item()
    2
    """
    kind, own_metric = resolve_metric(metric)
    shown = wants_progress(arguments.check_progress(progress))
    arguments.check_valley(valley)
    treatment = arguments.check_invalid(invalid)
    n_wanted = _check_sample(sample)
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    heavy = arguments.check_weights(weights, samples.shape)
    bounds = choose_edges(edges, samples.edges, samples.n_bins)
    widths = None if bandwidths is None else _check_bandwidths(bandwidths)

    drawn = _draw(samples, n_wanted, heavy, kind, own_metric, treatment)
    if widths is None:
        widths = _spread_bandwidths(drawn, kind, own_metric, bounds)
    found: list[Labelled] = []
    bar = tqdm(widths, desc="dshift sweep", unit="bandwidth", disable=not shown)
    for width in bar:
        fitted = dshift.fit(
            drawn.rows,
            float(width),
            metric=metric,
            edges=bounds,
            weights=None if heavy is None else drawn.copies,
            valley=valley,
            client=client,
            progress=False,
        )
        found.append(look_at(fitted.label.values.astype(np.int32), drawn.copies))
        bar.set_postfix(clusters=found[-1].n_clusters, refresh=False)
    swept = _build(samples, drawn, widths, found)
    swept.bandwidth.attrs |= {"units": samples.unit} if _has_unit(samples, kind) else {}
    swept.attrs |= {
        "metric": kind if own_metric is None else own_metric.name,
        "valley": "none" if valley is None else float(valley),
    }
    return swept


def auto_bandwidth(word: str, data: Any, **options: Any) -> tuple[float, dict[str, Any]]:
    """Return the bandwidth that `fit` uses for the word "auto", and what its result says of it.

    Parameters
    ----------
    options
        Passed on to `sweep`.
    """
    if word != AUTO:
        raise InvalidInput(
            f"`bandwidth` is {word!r}; the only word allowed is {AUTO!r}: else give a positive "
            "number, or one per sample."
        )
    swept = sweep(data, **options)
    width = choose_bandwidth(swept)
    best = swept.isel(plateau=int(np.argmax(swept.plateau_length.values)))
    return width, {
        "bandwidth_chosen": AUTO,
        "bandwidth_plateau": [float(best.plateau_start), float(best.plateau_stop)],
        "bandwidth_plateau_length": int(best.plateau_length),
        "bandwidth_plateaus": swept.sizes["plateau"],
        "bandwidth_samples": swept.sizes["drawn"],
    }


def _check_sample(sample: object) -> int | None:
    if sample is None:
        return None
    if not isinstance(sample, Integral) or isinstance(sample, bool):
        raise InvalidType(
            f"`sample` is {sample!r}; give a whole number of samples to draw, or None for all."
        )
    if int(sample) < 2:
        raise InvalidInput(f"`sample` is {sample!r}; draw 2 or more, or give None for all.")
    return int(sample)


def _check_bandwidths(bandwidths: object) -> Float:
    wanted = "a list of positive numbers, or None"
    try:
        array = np.asarray(bandwidths)
        if array.dtype.kind not in "iuf":
            raise TypeError
    except (TypeError, ValueError):
        raise InvalidType(f"`bandwidths` is {bandwidths!r}; give {wanted}.") from None
    widths = np.unique(array.astype(np.float64))
    if array.ndim != 1 or not widths.size or not np.isfinite(widths).all() or widths[0] <= 0:
        raise InvalidInput(
            f"`bandwidths` has shape {array.shape} and holds {array.reshape(-1)[:6].tolist()}; "
            f"give {wanted}, all finite."
        )
    return widths


def _has_unit(samples: Samples, kind: str) -> bool:
    return samples.unit is not None and kind == "wasserstein"


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The samples that stand for all."""

    rows: NDArray[Any]  # (n, n_bins)
    index: Int  # (n,): their numbers
    copies: Float  # (n,): the weights, none below one


def _draw(
    samples: Samples,
    count: int | None,
    weights: Float | None,
    kind: str,
    metric: Metric | None,
    invalid: str,
) -> _Drawn:
    """Read the samples that stand for all; those that are not histograms are left out."""
    n = samples.n_samples
    index = np.arange(n)
    if count is not None and count < n:
        rng = np.random.default_rng(arguments.SUBSET_SEED)
        index = np.sort(rng.choice(n, count, replace=False))
    rows = read_rows(samples, index)
    segments = segments_of(samples.edges, samples.n_bins)
    valid = share_rows(rows, kind, metric is None or metric.normalize, segments).valid
    if invalid == "raise" and not valid.all():
        raise InvalidInput(
            f"sample {int(index[np.argmin(valid)])} of {samples.origin} is not a histogram (finite "
            "entries, none negative, and a total above zero), and there may be more. "
            'Mend them, or pass invalid="mask" to leave them out.'
        )
    if valid.sum() < 2:
        raise InvalidInput(
            f"{int(valid.sum())} of {len(valid)} samples drawn from {samples.origin} are "
            "histograms; a sweep needs 2. Draw more with `sample`, or give `bandwidth` a number."
        )
    index = index[valid]
    copies = np.ones(len(index)) if weights is None else _as_copies(weights[index])
    return _Drawn(rows[valid], index, copies)


def _as_copies(weights: Float) -> Float:
    """Return weights of which the least is one sample, unless all are whole numbers."""
    whole = bool((weights == np.rint(weights)).all())
    return weights if whole else weights / weights.min()


def read_rows(samples: Samples, index: Int) -> NDArray[Any]:
    """Read the samples of these numbers (all dimensions flattened), block by block."""
    rows = np.empty((len(index), samples.n_bins), dtype=samples.dtype)
    places = np.unravel_index(index, samples.shape)
    for block in samples.blocks():
        at = list(zip(block, places, strict=True))
        inside = np.logical_and.reduce([(s.start <= place) & (place < s.stop) for s, place in at])
        if inside.any():
            local = tuple(place[inside] - s.start for s, place in at)
            rows[inside] = samples.read(block)[local]
    return rows


def _spread_bandwidths(
    drawn: _Drawn, kind: str, metric: Metric | None, edges: Float | None
) -> Float:
    """Return bandwidths from small to large distances between the samples."""
    n = len(drawn.rows)
    rng = np.random.default_rng(arguments.SUBSET_SEED)
    some = np.sort(rng.choice(n, min(n, N_MEASURED), replace=False))
    loaded = load_points(open_samples(drawn.rows[some]), kind, metric, edges, "raise")
    lengths, counts = [], []
    for i, point in enumerate(loaded.points[:-1]):
        away = distances(loaded.embedding, point, loaded.points[i + 1 :])
        lengths.append(loaded.embedding.in_units(away))
        counts.append(drawn.copies[some[i]] * drawn.copies[some[i + 1 :]])
    away, pairs = np.concatenate(lengths), np.concatenate(counts)
    apart = away > 0
    if not apart.any():
        raise InvalidInput(
            f"all {len(some)} samples looked at are equal, so there is no distance to choose a "
            "bandwidth from; any positive `bandwidth` gives one cluster."
        )
    low, high = np.quantile(
        away[apart], QUANTILES, weights=pairs[apart], method="inverted_cdf"
    ).tolist()
    # Where all distances are alike, half of them is a bandwidth that tells samples apart.
    spread = np.geomspace(min(low, high / 2), high, N_BANDWIDTHS)
    # Four digits, so that a bandwidth can be read off and typed in.
    return np.unique([float(f"{width:.4g}") for width in spread])


def _build(samples: Samples, drawn: _Drawn, widths: Float, found: list[Labelled]) -> xr.Dataset:
    agreements = [
        agreement(one.labels, following.labels, drawn.copies) for one, following in pairwise(found)
    ]
    plateaus = find_plateaus(agreements, [one.n_large for one in found])
    sizes = np.zeros((len(found), N_RANKS))
    for row, one in zip(sizes, found, strict=True):
        row[: len(one.sizes)] = one.sizes
    swept = xr.Dataset(
        {
            "n_clusters": ("bandwidth", [one.n_clusters for one in found]),
            "n_large": ("bandwidth", [one.n_large for one in found]),
            "largest_share": ("bandwidth", [one.largest_share for one in found]),
            "singletons_share": ("bandwidth", [one.singletons_share for one in found]),
            "agreement": ("bandwidth", [*agreements, np.nan]),
            "cluster_sizes": (("bandwidth", "rank"), sizes),
            **plateau_variables(widths, found, plateaus),
        },
        {"bandwidth": widths, "sample_index": ("drawn", drawn.index)},
        {
            "title": "dshift sweep",
            "dshift_version": dshift.__version__,
            "source": samples.origin,
            "n_samples": samples.n_samples,
        },
    )
    if len(found) * len(drawn.index) <= MOST_LABELS:
        swept["labels"] = ("bandwidth", "drawn"), np.array([one.labels for one in found])
    return swept
