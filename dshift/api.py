"""The public calls: one line per stage, no arithmetic."""

from __future__ import annotations

import time
from typing import Any

import xarray as xr

from dshift import arguments, engine
from dshift.edges import choose_edges
from dshift.finishing import make_result, open_result
from dshift.metrics import Metric, resolve_metric
from dshift.monitor import Progress, wants_progress
from dshift.occupied import occupied
from dshift.planning import Forecast
from dshift.result import RUN, Ask, refuse_name_clashes
from dshift.run import count_tasks, foresee, refuse_or_say_where, with_times
from dshift.sources import Samples, computed_once, open_samples
from dshift.stage import Job
from dshift.storable import refuse_unstorable
from dshift.store import check_store, claim
from dshift.sweeping import VALLEY, auto_bandwidth


def fit(
    data: Any,
    bandwidth: Any,
    *,
    variable: str | None = None,
    metric: str | Metric = "wasserstein",
    edges: Any = None,
    bin_dim: str | None = None,
    weights: Any = None,
    seeds: Any = "all",
    valley: float | None = None,
    min_cluster_size: float = 1,
    invalid: str = "raise",
    client: Any = None,
    store: Any = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Cluster histograms by the modes that they climb to.

    Parameters
    ----------
    data : path, URL, zarr.Array, zarr.Group, xarray.DataArray, xarray.Dataset, dask or NumPy array
        Histograms: counts or frequencies of any numeric dtype. One dimension holds the bins, all
        others together are the samples. Rows are normalised.
    bandwidth : float, array of one float per sample, or "auto"
        How far a sample reaches, in the unit of the distance: samples nearer than this to a point
        pull it. For "sqeuclidean" it is a squared length. "auto" takes the middle of the longest
        plateau that `sweep` finds, and the result says so.
    variable : str, optional
        Which array of a Zarr group or Dataset; needed if there is more than one.
    metric : {"wasserstein", "l1", "sqeuclidean"} or Metric
        The distance between histograms.
    edges : array (n_bins + 1,), optional
        Edges of the bins, in the data's unit. By default those stored with the data; without any,
        neighbouring bins are 1 apart. For "wasserstein" alone.
    bin_dim : str, optional
        The dimension of the bins; the last one by default.
    weights : array of one float per sample, optional
        A sample of weight k counts as k samples.
    seeds : "all", int, float, indices (n_seeds,) or histograms (n_seeds, n_bins)
        Where to start: at every sample, at so many or such a share of them (drawn reproducibly),
        at those of these indices, or at histograms of your own. Samples that were not seeds get
        the nearest mode.
    valley : float in [0, 1), optional
        None keeps every mode a cluster of its own. A number joins modes unless the density between
        them falls by more than this share of the lower peak. With ``bandwidth="auto"``, 0.1 stands
        in for None: plateaus are found with it.
    min_cluster_size : float
        Clusters of less total weight get the label -1; 1 keeps every cluster, however light.
    invalid : {"raise", "mask"}
        What to do with samples that are not histograms: stop, or give them the label -1.
    client : distributed.Client, optional
        Where to run. By default on the active client if there is one, else on the threads of this
        process. The result is the same to the bit.
    store : path or URL, optional
        Where to keep the run: blocks as they end, then the result as a Zarr group. The same call
        after an interruption continues from there; a finished store returns its result. On a
        cluster, labels then never pass through this process: workers write them to the store, and
        the Dataset returned reads them from there when they are looked at.
    progress : bool, optional
        Whether to show a bar on stderr; by default on a terminal and in a notebook.

    Returns
    -------
    xarray.Dataset
        On the samples' dimensions: `label`, `mode_index`, `n_iter`, `is_seed`. On the dimension
        `mode`: `modes` (histograms), `density`, `size`, `stationary`, `cluster_of_mode`. On
        `cluster`: `cluster_size`. Labels are 0, 1, ... by decreasing size.

    Examples
    --------
    >>> import numpy as np, dshift
    >>> result = dshift.fit(np.array([[9, 1, 0], [8, 2, 0], [0, 1, 9]]), bandwidth=0.5)
    >>> result.label.values.tolist()
    [0, 0, 1]
    """
    started = time.perf_counter()
    chosen = engine.find_client(client)
    shown = wants_progress(arguments.check_progress(progress))
    depth = arguments.check_valley(valley)
    least = arguments.check_min_cluster_size(min_cluster_size)
    place = check_store(store)
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    how_chosen: dict[str, Any] = {}
    if isinstance(bandwidth, str):
        depth = VALLEY if depth is None else depth
        samples = computed_once(samples)
        bandwidth, how_chosen = auto_bandwidth(
            bandwidth,
            samples,
            place,
            valley=depth,
            metric=metric,
            edges=edges,
            weights=weights,
            invalid=invalid,
            client=client,
            progress=progress,
        )
    job = _make_job(samples, bandwidth, metric, edges, weights, seeds, invalid)
    if place is not None:
        refuse_unstorable(samples)
    ask = Ask(job, depth, least, how_chosen)

    cut, rooms = engine.plan_for(job, chosen)
    refuse_or_say_where(cut, rooms)
    with occupied(place), engine.choose_executor(job, cut, chosen, place) as executor:
        survey = executor.survey()
        if place is not None:
            done = claim(place, ask.identity(survey))
            if done is not None:
                return done
        with Progress(survey.n_seeds, shown) as bar:
            climbed = executor.climb(cut.blocks(survey.n_seeds), place, bar.block_done)
            bar.log_reuse()
        result = make_result(executor, cut, ask, survey, climbed, place)
    if place is not None and executor.keeps_labels:
        result = open_result(place, result)
    result.encoding[RUN]["seconds"] = time.perf_counter() - started
    return result


def plan(
    data: Any,
    bandwidth: Any,
    *,
    variable: str | None = None,
    metric: str | Metric = "wasserstein",
    edges: Any = None,
    bin_dim: str | None = None,
    weights: Any = None,
    seeds: Any = "all",
    valley: float | None = None,
    invalid: str = "raise",
    client: Any = None,
    store: Any = None,
    sample: bool = True,
) -> Forecast:
    """Foresee what `fit` with the same arguments would do and hold; cluster nothing.

    Parameters
    ----------
    data, bandwidth, variable, metric, edges, bin_dim, weights, seeds, valley, invalid, client
        As in `fit`.
    store : path or URL, optional
        As in `fit`; nothing is written there.
    sample : bool
        Whether to read the samples and climb one block of seeds, to estimate the time.

    Returns
    -------
    Forecast
        Bytes a process, blocks, tasks, bytes to read, seconds; its `refusal` says why `fit` would
        not start, where that is so.
    """
    chosen = engine.find_client(client)
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    job = _make_job(samples, bandwidth, metric, edges, weights, seeds, invalid)
    cut, rooms = engine.plan_for(job, chosen)
    joined, stored = arguments.check_valley(valley) is not None, store is not None
    n_threads = engine.n_threads(chosen)
    n_tasks = count_tasks(job, cut, max(1, n_threads), joined=joined, stored=stored)
    n_tasks += engine.n_tasks_before(job, cut, chosen, stored)
    forecast = foresee(job, cut, rooms, n_threads, n_tasks)
    if not sample or forecast.refusal is not None:
        return forecast
    with engine.choose_executor(job, cut, chosen, None) as executor:
        return with_times(forecast, executor)


def _make_job(
    samples: Samples,
    bandwidth: Any,
    metric: str | Metric,
    edges: Any,
    weights: Any,
    seeds: Any,
    invalid: str,
) -> Job:
    """Check what decides where seeds end, before anything is read."""
    kind, own_metric = resolve_metric(metric)
    treatment = arguments.check_invalid(invalid)
    refuse_name_clashes(samples)
    bandwidth = arguments.in_samples_order("bandwidth", bandwidth, samples)
    widths = arguments.check_bandwidth(bandwidth, samples.shape)
    weights = arguments.in_samples_order("weights", weights, samples)
    heavy = arguments.check_weights(weights, samples.shape)
    starts = arguments.check_seeds(seeds, samples.n_samples, samples.n_bins)
    bounds = choose_edges(edges, samples.edges, samples.n_bins)
    return Job(samples, kind, own_metric, bounds, treatment, widths, heavy, starts)
