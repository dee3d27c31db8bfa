"""The public calls: one line per stage, no arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from dshift import arguments, engine
from dshift.errors import InvalidInput
from dshift.field import Loaded, load_points, make_field
from dshift.metrics import Float, Int, Metric, Points, check_edges, resolve_metric
from dshift.monitor import Progress, wants_progress
from dshift.plan import make_plan
from dshift.result import build_result, refuse_name_clashes
from dshift.sources import open_samples
from dshift.store import check_store, write_result


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
    bandwidth : float, or array of one float per sample
        How far a sample reaches, in the unit of the distance: samples nearer than this to a point
        pull it. For "sqeuclidean" it is a squared length.
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
        them falls by more than this share of the lower peak.
    min_cluster_size : float
        Clusters of less total weight get the label -1.
    invalid : {"raise", "mask"}
        What to do with samples that are not histograms: stop, or give them the label -1.
    client : optional
        Reserved for a Dask client.
    store : path, optional
        Where to write the result as a Zarr group, whole or not at all.
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
    kind, own_metric = resolve_metric(metric)
    target = check_store(store)
    shown = wants_progress(arguments.check_progress(progress))
    depth = arguments.check_valley(valley)
    least = arguments.check_min_cluster_size(min_cluster_size)
    treatment = arguments.check_invalid(invalid)
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    refuse_name_clashes(samples)
    widths = arguments.check_bandwidth(bandwidth, samples.shape)
    heavy = arguments.check_weights(weights, samples.shape)
    starts = arguments.check_seeds(seeds, samples.n_samples, samples.n_bins)
    bounds = edges if edges is not None else samples.edges
    bounds = None if bounds is None else check_edges(bounds, samples.n_bins)
    cut = engine.current_settings()
    plan = make_plan(
        samples.n_samples, samples.n_bins, starts.count, cut.threads, cut.block_size
    ).refused_above(engine.memory_limit())

    loaded = load_points(samples, kind, own_metric, bounds, treatment)
    field = make_field(loaded, _of_valid(heavy, loaded), _of_valid(widths, loaded))
    seed_points, seed_index = _seed_points(starts, loaded, treatment)
    with Progress(len(seed_points), shown) as bar:
        climbed = engine.climb_all(plan.for_seeds(len(seed_points)), field, seed_points, bar)
    clustering = engine.cluster(field, climbed, seed_index, depth, least)
    how = {
        "metric": kind if own_metric is None else own_metric.name,
        **({"bandwidth": float(widths)} if widths.ndim == 0 else {}),
        **({"unit": samples.unit} if samples.unit and kind == "wasserstein" else {}),
        "valley": "none" if depth is None else depth,
        "min_cluster_size": least,
        "weighted": int(heavy is not None),
    }
    result = build_result(samples, loaded, field, clustering, climbed, seed_index, bounds, how)
    if target is not None:
        write_result(result, target)
    return result


def _of_valid(values: Float | None, loaded: Loaded) -> Any:
    """Return the part of a per-sample array that belongs to valid samples."""
    return values if values is None or values.ndim == 0 else values[loaded.valid]


def _seed_points(
    starts: arguments.Seeds, loaded: Loaded, invalid: str
) -> tuple[Points, Int | None]:
    """Return the points to start from, and which valid sample each one is."""
    if starts.rows is not None:
        points, valid = loaded.embedding.embed(starts.rows)
        if invalid == "raise" and not valid.all():
            raise InvalidInput(
                f"`seeds` holds {int((~valid).sum())} rows that are not histograms (the first is "
                f"row {int(np.argmin(valid))}); a histogram has finite entries, none negative, and "
                'a total above zero. Mend them, or pass invalid="mask" to leave them out.'
            )
        return points[valid], None
    number = np.cumsum(loaded.valid) - 1
    index = number[starts.indices[loaded.valid[starts.indices]]]
    if not index.size:
        raise InvalidInput("every sample in `seeds` is masked; choose seeds among valid samples.")
    whole = len(index) == len(loaded.points)
    return loaded.points if whole else loaded.points[index], index
