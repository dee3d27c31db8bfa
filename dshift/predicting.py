"""New samples to the clusters of a fit: by the same walk, or by the nearest mode."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import dshift
from dshift import arguments, engine
from dshift.arguments import Seeds
from dshift.edges import segments_of
from dshift.errors import DshiftError, InvalidInput
from dshift.labelling import labels_of_modes
from dshift.metrics import Int, Metric, share_rows
from dshift.model import Model, open_result
from dshift.monitor import Progress, wants_progress
from dshift.run import refuse_or_say_where
from dshift.shift import NO_MODE
from dshift.sources import Samples, open_samples
from dshift.stage import Job

ASSIGNS = ("climb", "nearest")
# Rows that climb in one job: points and rows of a batch stay below about 1 GiB.
BATCH_BYTES = 2**29


def predict(
    result: Any,
    data: Any,
    *,
    fitted: Any = None,
    assign: str = "climb",
    variable: str | None = None,
    bin_dim: str | None = None,
    metric: Metric | None = None,
    invalid: str = "raise",
    client: Any = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Give samples to the clusters of a fit.

    Parameters
    ----------
    result : Dataset, or path or URL of a store
        What `fit` returned or stored.
    data : as for `fit`
        Histograms with the bins of those that were fitted.
    fitted : as for `fit`, optional
        The histograms that were fitted. Needed for "climb" unless these were read from a path or
        URL and still are there; they are recognised by their fingerprint.
    assign : {"climb", "nearest"}
        Climb the density of the fitted histograms, exactly as their own samples did: those that
        were seeds get their own labels back. Or take the nearest mode, which does without the
        fitted histograms.
    variable, bin_dim : str, optional
        As for `fit`, of `data`. By default bins are in the dimension of that name in the result,
        else in the last one.
    metric : Metric, optional
        The metric of the fit, where that was your own.
    invalid, client, progress
        As for `fit`. "nearest" runs in this process.

    Returns
    -------
    xarray.Dataset
        On the dimensions of the samples of `data`, with their coordinates: `label` and
        `mode_index`, -1 where no fitted sample is in reach; `n_iter`, steps to the mode (-1 for
        "nearest"); `exact`, false where the label is that of the nearest mode and not of the one
        that the sample climbs to: with "nearest", and where a walk ends at a point that is none
        of the fitted modes (then the nearest mode to that end counts).

    Examples
    --------
    >>> import numpy as np, dshift
    >>> rows = np.array([[9, 1, 0], [8, 2, 0], [0, 1, 9]])
    >>> result = dshift.fit(rows, bandwidth=0.5)
    >>> dshift.predict(result, np.array([[0, 2, 8]]), fitted=rows).label.values.tolist()
    [1]
    """
    model = Model.of(open_result(result), metric)
    if assign not in ASSIGNS:
        raise InvalidInput(
            f'`assign` is {assign!r}; allowed are "climb" (the same walk as in `fit`) and '
            '"nearest" (the nearest mode).'
        )
    treatment = arguments.check_invalid(invalid)
    shown = wants_progress(arguments.check_progress(progress))
    samples = _open_like(model, data, variable, bin_dim)
    _refuse_other_bins(model, samples)
    out = _Outcome.blank(samples.n_samples)
    if assign == "nearest":
        _assign_nearest(model, samples, treatment, out)
    else:
        base = _open_fitted(model, fitted)
        with Progress(samples.n_samples, shown) as bar:
            for blocks in _batches(samples):
                _assign_climbing(model, base, samples, blocks, treatment, client, bar, out)
    return _build(model, samples, assign, out)


def _open_like(
    model: Model, data: Any, variable: str | None, bin_dim: str | None = None
) -> Samples:
    """Open samples, with their bins in the dimension of that name in the result if there is one."""
    samples = open_samples(data, variable=variable, bin_dim=bin_dim)
    if bin_dim is None and model.bin_dim in samples.dims:
        return open_samples(data, variable=variable, bin_dim=model.bin_dim)
    return samples


def _refuse_other_bins(model: Model, samples: Samples) -> None:
    n_bins = model.modes.shape[1]
    if samples.n_bins != n_bins:
        raise InvalidInput(
            f"`data` ({samples.origin}) has {samples.n_bins} bins in its dimension "
            f"{samples.bin_dim!r}, but the fit had {n_bins}; give histograms with the same bins."
        )
    if model.edges is None or samples.edges is None:
        return
    if not np.array_equal(model.edges, samples.edges):
        raise InvalidInput(
            f"`data` ({samples.origin}) has other bin edges than the fit: make its histograms "
            "with the edges in `result.modes.attrs['edges']`."
        )


def _open_fitted(model: Model, fitted: Any) -> Samples:
    """Open the histograms that were fitted."""
    source = str(model.result.attrs["source"])
    group, _, name = source.replace(" ", "/").rpartition("/")
    tries: list[tuple[Any, str | None]] = [(fitted, name), (fitted, None)]
    if fitted is None:
        # Through its group first: that is how `fit` read it, scale factors and all.
        tries = [(group, name), (source, None)]
        if "://" not in source and not os.path.exists(os.path.expanduser(source)):
            raise InvalidInput(
                f"the fit was of `{source}`, which cannot be read again from here; pass the fitted "
                'histograms as `fitted`, or assign="nearest" to do without them.'
            )
    for data, variable in tries[:-1]:
        with suppress(DshiftError):
            return _refuse_other_size(model, _open_like(model, data, variable))
    return _refuse_other_size(model, _open_like(model, *tries[-1]))


def _refuse_other_size(model: Model, samples: Samples) -> Samples:
    same = (model.result.label.size, model.modes.shape[1]) == (samples.n_samples, samples.n_bins)
    if not same:
        raise _not_the_fitted(
            model, samples, f"{samples.n_samples} samples x {samples.n_bins} bins"
        )
    return samples


def _not_the_fitted(model: Model, samples: Samples, what: str) -> InvalidInput:
    result = model.result
    return InvalidInput(
        f"`fitted` ({samples.origin}: {what}) is not what was fitted ({result.label.size} samples "
        f"x {model.modes.shape[1]} bins, fingerprint {result.attrs['fingerprint']}); give the same "
        'histograms in the same order, or assign="nearest" to do without them.'
    )


@dataclass(frozen=True, eq=False)
class _Outcome:
    """What is found for each sample."""

    mode_index: Int
    n_iter: NDArray[np.int32]
    exact: NDArray[np.bool_]

    @staticmethod
    def blank(n_samples: int) -> _Outcome:
        return _Outcome(
            np.full(n_samples, NO_MODE),
            np.full(n_samples, -1, dtype=np.int32),
            np.ones(n_samples, dtype=bool),
        )


Block = tuple[slice, ...]


def _batches(samples: Samples) -> Iterator[list[Block]]:
    """Yield the blocks of the samples in groups that climb together."""
    batch: list[Block] = []
    n_bytes = 0
    for block in samples.blocks():
        block_bytes = 8 * samples.n_bins * int(np.prod([s.stop - s.start for s in block]))
        if batch and n_bytes + block_bytes > BATCH_BYTES:
            yield batch
            batch, n_bytes = [], 0
        batch.append(block)
        n_bytes += block_bytes
    yield batch


def _read_valid(
    model: Model, samples: Samples, block: Block, invalid: str
) -> tuple[NDArray[Any], Int]:
    """Return the histograms of a block, and their numbers."""
    rows = samples.read(block).reshape(-1, samples.n_bins)
    grid = np.meshgrid(*(np.arange(s.start, s.stop) for s in block), indexing="ij", copy=False)
    numbers = np.ravel_multi_index([at.reshape(-1) for at in grid], samples.shape)
    normalize = model.metric is None or model.metric.normalize
    segments = segments_of(model.edges, samples.n_bins)
    valid = share_rows(rows, model.kind, normalize, segments).valid
    if invalid == "raise" and not valid.all():
        raise InvalidInput(
            f"sample {int(numbers[np.argmin(valid)])} of {samples.origin} is not a histogram "
            "(finite entries, none negative, and a total above zero), and there may be more. "
            'Mend them, or pass invalid="mask" to give them the label -1.'
        )
    return rows[valid], numbers[valid]


def _assign_nearest(model: Model, samples: Samples, invalid: str, out: _Outcome) -> None:
    embedding = model.embedding()
    for block in samples.blocks():
        rows, numbers = _read_valid(model, samples, block, invalid)
        out.mode_index[numbers] = model.nearest(embedding, embedding.embed(rows)[0])
        out.exact[numbers] = False


def _assign_climbing(
    model: Model,
    base: Samples,
    samples: Samples,
    blocks: list[Block],
    invalid: str,
    client: Any,
    bar: Progress,
    out: _Outcome,
) -> None:
    """Climb from a batch of samples, as seeds of a job like that of the fit."""
    read = [_read_valid(model, samples, block, invalid) for block in blocks]
    rows = np.concatenate([rows for rows, _ in read])
    numbers = np.concatenate([numbers for _, numbers in read])
    if not numbers.size:
        return
    job = _job_of(model, base, rows)
    chosen = engine.find_client(client)
    plan, rooms = engine.plan_for(job, chosen)
    refuse_or_say_where(plan, rooms)
    with engine.choose_executor(job, plan, chosen, None) as executor:
        survey = executor.survey()
        if survey.fingerprint != model.result.attrs["fingerprint"]:
            raise _not_the_fitted(model, base, f"fingerprint {survey.fingerprint}")
        climbed = executor.climb(plan.blocks(survey.n_seeds), None, bar.block_done)
    place, known = model.recognise(survey.embedding, climbed.modes)
    out.mode_index[numbers] = np.append(place, NO_MODE)[climbed.mode_of_seed]
    out.n_iter[numbers] = climbed.n_iter
    out.exact[numbers] = np.append(known, True)[climbed.mode_of_seed]


def _job_of(model: Model, base: Samples, rows: NDArray[Any]) -> Job:
    # Samples that the fit masked are part of the fingerprint, so masking here can hide nothing.
    return Job(
        samples=base,
        kind=model.kind,
        metric=model.metric,
        edges=model.edges,
        invalid="mask",
        bandwidth=model.bandwidth(),
        weights=model.weights(),
        seeds=Seeds(rows=rows),
    )


def _build(model: Model, samples: Samples, assign: str, out: _Outcome) -> xr.Dataset:
    labels = labels_of_modes(model.result.cluster_of_mode.values, out.mode_index)
    named: dict[str, tuple[NDArray[Any], str]] = {
        "label": (labels, "cluster, -1 for none"),
        "mode_index": (out.mode_index, "row of `modes` in the result, -1 for none"),
        "n_iter": (out.n_iter, "steps from the sample to its mode, -1 where it did not climb"),
        "exact": (out.exact, "false where the label is only that of the nearest mode"),
    }
    variables = {
        name: xr.Variable(samples.dims, values.reshape(samples.shape), {"long_name": text})
        for name, (values, text) in named.items()
    }
    attrs = {
        "title": "dshift prediction",
        "dshift_version": dshift.__version__,
        "source": samples.origin,
        "assign": assign,
        "fitted": model.result.attrs["source"],
        "fingerprint": model.result.attrs["fingerprint"],
        "n_clusters": model.result.attrs["n_clusters"],
    }
    return xr.Dataset(variables, samples.coords, attrs)
