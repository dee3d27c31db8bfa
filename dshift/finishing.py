"""From modes to the result: gathered by the caller, or written to the store by the workers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from dshift.labelling import on_samples, region_shape, regions, steps_of_samples, write_share
from dshift.planning import Plan
from dshift.result import RUN, Ask, build_result, sample_variables
from dshift.run import Executor, examine, gather_labels, total_stored
from dshift.shift import Climbed
from dshift.stage import Survey, places_share
from dshift.store import Store, finish, open_finished, write_arrays

SAMPLE_DTYPES = {
    "label": np.int32,
    "mode_index": np.int64,
    "n_iter": np.int32,
    "is_seed": np.bool_,
}


def make_result(
    executor: Executor,
    plan: Plan,
    ask: Ask,
    survey: Survey,
    climbed: Climbed,
    place: Store | None,
) -> xr.Dataset:
    """Return the result; in the store it is whole by then.

    Labels that stay in the store are left out.
    """
    if place is not None and executor.keeps_labels:
        return _write_there(executor, plan, ask, survey, climbed, place)
    result = _gather(executor, plan, ask, survey, climbed)
    if place is not None:
        finish(place, write_arrays(place, result, ask.identity(survey)))
    return result


def open_result(place: Store, made: xr.Dataset) -> xr.Dataset:
    """Return the result in the store, with what it cost to make it."""
    result = open_finished(place)
    result.encoding[RUN] = made.encoding[RUN]
    return result


def _gather(
    executor: Executor, plan: Plan, ask: Ask, survey: Survey, climbed: Climbed
) -> xr.Dataset:
    """Return the result, its labels in the caller's memory."""
    examined = examine(executor, climbed.modes, ask.valley)
    places = executor.map("dshift-label", places_share, [()])[0]
    mode_of_sample = gather_labels(executor, plan, places, examined, climbed)
    weights = ask.valid_weights(places.valid)
    clustering = examined.cluster(mode_of_sample, weights, ask.min_cluster_size)
    values = on_samples(
        places.valid,
        clustering.mode_of_sample,
        steps_of_samples(places, climbed.n_iter),
        clustering.cluster_of_mode,
    )
    labelled = sample_variables(ask.job.samples, values)
    result = build_result(ask, survey, clustering, climbed, labelled)
    executor.report(clustering)
    return result


def _write_there(
    executor: Executor,
    plan: Plan,
    ask: Ask,
    survey: Survey,
    climbed: Climbed,
    place: Store,
) -> xr.Dataset:
    """Have the labels written by the workers; write the rest here, and return that."""
    samples = ask.job.samples
    examined = examine(executor, climbed.modes, ask.valley)
    cut, totals = total_stored(executor, plan, survey, examined, place)
    # Each mode stands for its samples, whose weights are added up already.
    every_mode = np.arange(len(examined.modes))
    clustering = examined.cluster(every_mode, totals.sizes, ask.min_cluster_size)
    if not totals.whole:
        clustering = replace(clustering, sizes=clustering.sizes.astype(np.float64))
    labelled = sample_variables(samples, _blanks(samples.shape))
    result = build_result(ask, survey, clustering, climbed, labelled)
    root = write_arrays(place, result, ask.identity(survey))
    found = (clustering.new_place, clustering.cluster_of_mode, samples.shape)
    items = [(cut, *found, region) for region in regions(samples.shape)]
    executor.map("dshift-label", write_share, items)
    finish(place, root)
    executor.report(clustering)
    return result.drop_vars(SAMPLE_DTYPES)


def _blanks(shape: tuple[int, ...]) -> dict[str, Any]:
    """Return arrays without content, in the chunks that workers will write."""
    import dask.array as da

    chunks = region_shape(shape)
    return {name: da.zeros(shape, dtype, chunks=chunks) for name, dtype in SAMPLE_DTYPES.items()}
