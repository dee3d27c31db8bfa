"""Many bandwidths side by side: what stays the same over a range of them is in the data."""

from __future__ import annotations

import logging
from dataclasses import replace
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import dshift
from dshift import arguments, engine
from dshift.arguments import Seeds
from dshift.drawn import Drawn, draw, spread_bandwidths
from dshift.edges import choose_edges
from dshift.errors import InvalidInput, InvalidType
from dshift.labelling import labels_of_modes
from dshift.metrics import Float, Metric, resolve_metric
from dshift.monitor import tqdm, wants_progress
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
from dshift.run import examine, refuse_or_say_where
from dshift.sources import Samples, open_samples
from dshift.stage import Job, Stage
from dshift.store import Store, known_job
from dshift.threads import Threads

log = logging.getLogger("dshift")

# Modes of one bump count as one cluster here: without that, fragments hide every plateau.
VALLEY = 0.1
N_DRAWN = 2000
CHOICE, CHOSEN = "bandwidth_", "bandwidth_chosen"  # what a result says of a choice starts so
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

    Notes
    -----
    The samples are read once, and embedded once in each process. Bandwidths are then done side by
    side, one to a thread, which holds an index of its own: with ``sample=None``, as much memory
    as so many fits.

    Examples
    --------
    >>> import dshift
    >>> from dshift.demo import synthetic
    >>> swept = dshift.sweep(synthetic(60).counts)
    >>> swept.plateau_clusters.values[swept.plateau_length.values.argmax()].item()
    2
    """
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    return sweep_samples(
        samples,
        None if bandwidths is None else _check_bandwidths(bandwidths),
        valley=arguments.check_valley(valley),
        sample=_check_sample(sample),
        metric=metric,
        edges=edges,
        weights=weights,
        invalid=invalid,
        client=client,
        progress=progress,
    )


def sweep_samples(
    samples: Samples,
    widths: Float | None,
    *,
    valley: float | None,
    sample: int | None = N_DRAWN,
    metric: str | Metric = "wasserstein",
    edges: Any = None,
    weights: Any = None,
    invalid: str = "raise",
    client: Any = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Sweep over opened samples; see `sweep`."""
    kind, own_metric = resolve_metric(metric)
    shown = wants_progress(arguments.check_progress(progress))
    treatment = arguments.check_invalid(invalid)
    weights = arguments.in_samples_order("weights", weights, samples)
    heavy = arguments.check_weights(weights, samples.shape)
    bounds = choose_edges(edges, samples.edges, samples.n_bins)
    drawn = draw(samples, sample, heavy, kind, own_metric, treatment)
    if widths is None:
        widths = spread_bandwidths(drawn, kind, own_metric, bounds)
    job = Job(
        samples=open_samples(drawn.rows),
        kind=kind,
        metric=own_metric,
        edges=bounds,
        invalid="raise",
        bandwidth=np.asarray(widths[0]),
        weights=None if heavy is None else drawn.copies,
        seeds=Seeds(),
    )
    labels = _labels(job, widths, valley, client, shown)
    swept = _build(samples, drawn, widths, [look_at(one, drawn.copies) for one in labels])
    swept.bandwidth.attrs |= {"units": samples.unit} if _has_unit(samples, kind) else {}
    swept.attrs |= {
        "metric": kind if own_metric is None else own_metric.name,
        "valley": "none" if valley is None else float(valley),
    }
    return swept


def _labels(
    job: Job, widths: Float, valley: float | None, client: Any, shown: bool
) -> list[NDArray[np.int32]]:
    """Return the labels at each bandwidth; a process reads and embeds the samples once for all."""
    chosen = engine.find_client(client)
    plan, rooms = engine.plan_for(job, chosen)
    refuse_or_say_where(plan, rooms)
    # Without rows and weights, which the stage has: light enough to travel with every task.
    bare = replace(job, samples=job.samples.without_data(), weights=None)
    labels: list[NDArray[np.int32]] = []
    with (
        engine.choose_executor(job, plan, chosen, None) as executor,
        tqdm(total=len(widths), desc="dshift sweep", unit="bandwidth", disable=not shown) as bar,
    ):
        blocks = list(plan.blocks(executor.survey().n_seeds))
        for start in range(0, len(widths), executor.width):
            some = widths[start : start + executor.width]
            items = [(replace(bare, bandwidth=np.asarray(w)), blocks, valley) for w in some]
            labels += executor.map("dshift-shift", label_share, items)
            bar.update(len(some))
    return labels


def label_share(
    stage: Stage, job: Job, blocks: list[slice], valley: float | None
) -> NDArray[np.int32]:
    """Return the labels of all samples of a stage at the bandwidth of another job, in one thread.

    Bandwidths are done side by side, and none of them reads or embeds anything.
    """
    weights = stage.field.weights
    with Threads(replace(job, weights=weights), 1, stage.loaded) as alone:
        climbed = alone.climb(blocks, None, lambda done: None)
        # Every sample is a seed.
        found = examine(alone, climbed.modes, valley).cluster(climbed.mode_of_seed, weights, 1)
    return labels_of_modes(found.cluster_of_mode, found.mode_of_sample)


def auto_bandwidth(
    word: str, samples: Samples, place: Store | None = None, **options: Any
) -> tuple[float, dict[str, Any]]:
    """Return the bandwidth that `fit` uses for the word "auto", and what its result says of it.

    Parameters
    ----------
    place : Store, optional
        Where the run is kept: what was chosen there before is not sought again.
    options
        Passed on to `sweep_samples`.
    """
    if word != AUTO:
        raise InvalidInput(
            f"`bandwidth` is {word!r}; the only word allowed is {AUTO!r}: else give a positive "
            "number, or one per sample."
        )
    known = (None if place is None else known_job(place)) or {}
    if known.get(CHOSEN) == AUTO:
        log.info("bandwidth %g was chosen when the store was begun", known["bandwidth"])
        return known["bandwidth"], {key: known[key] for key in known if key.startswith(CHOICE)}
    swept = sweep_samples(samples, None, **options)
    width = choose_bandwidth(swept)
    best = swept.isel(plateau=int(np.argmax(swept.plateau_length.values)))
    return width, {
        CHOSEN: AUTO,
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


def _build(samples: Samples, drawn: Drawn, widths: Float, found: list[Labelled]) -> xr.Dataset:
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
