"""The Dataset that a fit returns. DESIGN.md, "The result", is the list of its variables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import dshift
from dshift.errors import InvalidInput
from dshift.labelling import labels_of_modes
from dshift.metrics import Float
from dshift.modes import NO_CLUSTER, Clustering
from dshift.shift import NO_MODE, Climbed
from dshift.sources import Samples
from dshift.stacks import unstack
from dshift.stage import Job, Survey

MODE, CLUSTER, SEED = "mode", "cluster", "seed"
TITLE = "dshift clustering"
RUN = "dshift_run"
ON_SAMPLES = {
    "label": "cluster, -1 for none",
    "mode_index": "row of `modes` that the sample belongs to, -1 for none",
    "n_iter": "steps from the sample to its mode, -1 where the sample was not a seed",
    "is_seed": "whether the sample climbed to its mode, or was given the nearest one",
}
OWN_NAMES = (
    *ON_SAMPLES,
    "modes",
    "density",
    "size",
    "stationary",
    "cluster_of_mode",
    "cluster_size",
    "bandwidth",
    "sample_weight",
    "seed_label",
    "seed_mode_index",
    "seed_n_iter",
    MODE,
    CLUSTER,
    SEED,
)


def refuse_name_clashes(samples: Samples) -> None:
    """Raise if a dimension or coordinate of the data has a name that the result needs."""
    for name in (*samples.dims, samples.bin_dim, *samples.coords, *samples.bin_coords):
        if name in OWN_NAMES:
            raise InvalidInput(
                f"the data has a dimension or coordinate called `{name}`, which is the name of a "
                f"variable of the result; rename it first, for example to `{name}_`."
            )


@dataclass(frozen=True, eq=False)
class Ask:
    """All that the caller asked for: where seeds end, and what becomes of the modes."""

    job: Job
    valley: float | None
    min_cluster_size: float
    chosen: dict[str, Any] = field(default_factory=dict)  # how the bandwidth was, if not given

    def how(self) -> dict[str, Any]:
        """Return the attributes of the result that say what was asked."""
        job, metric = self.job, self.job.metric
        how: dict[str, Any] = {"metric": job.kind if metric is None else metric.name}
        if job.bandwidth.ndim == 0:
            how["bandwidth"] = float(job.bandwidth)
        how |= self.chosen
        if job.samples.unit and job.kind == "wasserstein":
            how["unit"] = job.samples.unit
        return how | {
            "valley": "none" if self.valley is None else self.valley,
            "min_cluster_size": self.min_cluster_size,
            "weighted": int(job.weights is not None),
        }

    def identity(self, survey: Survey) -> dict[str, Any]:
        """Return what two runs must have in common to be one run."""
        job = self.job
        return {
            "dshift_version": dshift.__version__,
            **self.how(),
            "fingerprint": survey.fingerprint,
            "n_seeds": survey.n_seeds,
            "order": survey.order,
            "bandwidths": _digest(job.bandwidth),
            "weights": _digest(job.weights),
            "edges": _digest(job.edges),
            "invalid": job.invalid,
            "seeds": [_digest(job.seeds.indices), _digest(job.seeds.rows)],
        }

    def valid_weights(self, valid: NDArray[np.bool_]) -> Float:
        """Return the weights of the valid samples."""
        if self.job.weights is None:
            return np.ones(int(valid.sum()))
        return self.job.weights[valid]


def _digest(array: NDArray[Any] | None) -> str:
    if array is None:
        return "none"
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    header = f"{plain.shape}{plain.dtype.str}".encode()
    return hashlib.blake2b(header + plain.tobytes(), digest_size=8).hexdigest()


def sample_variables(samples: Samples, values: Mapping[str, Any]) -> dict[str, xr.Variable]:
    """Return arrays (n_samples,), as `on_samples` names them, on the samples' own dimensions."""
    return {
        name: xr.Variable(samples.dims, values[name].reshape(samples.shape), {"long_name": text})
        for name, text in ON_SAMPLES.items()
    }


def build_result(
    ask: Ask,
    survey: Survey,
    clustering: Clustering,
    climbed: Climbed,
    labelled: dict[str, xr.Variable],
) -> xr.Dataset:
    """Put the clustering onto the dimensions and coordinates of the samples.

    `labelled` are the `sample_variables`.
    """
    samples = ask.job.samples
    variables = dict(labelled)
    variables |= _mode_variables(samples, survey, clustering)
    if ask.job.bandwidth.ndim:
        widths = ask.job.bandwidth.reshape(samples.shape)
        variables["bandwidth"] = xr.Variable(samples.dims, widths)
    if ask.job.weights is not None:
        heavy = ask.job.weights.reshape(samples.shape)
        variables["sample_weight"] = xr.Variable(samples.dims, heavy)
    if survey.own_seeds:
        variables |= _seed_variables(clustering, climbed)
    dataset = xr.Dataset(variables, {**samples.coords, **samples.bin_coords})
    if ask.job.edges is not None:
        dataset["modes"].attrs["edges"] = ask.job.edges.tolist()
    if samples.stack_attrs:
        dataset["modes"].attrs |= samples.stack_attrs
        parts = unstack(dataset["modes"])
        dataset = dataset.assign({f"modes_{name}": part for name, part in parts.items()})
    dataset.attrs = {
        "title": TITLE,
        "dshift_version": dshift.__version__,
        "source": samples.origin,
        **ask.how(),
        "n_seeds": survey.n_seeds,
        "n_modes": len(clustering.modes),
        "n_clusters": int(clustering.cluster_of_mode.max(initial=-1)) + 1,
        # A number, since netCDF has no true and false.
        "all_seeds_stationary": int(clustering.stationary.all()),
        "fingerprint": survey.fingerprint,
    }
    if survey.embedding.exact:
        dataset.attrs["grid"] = survey.embedding.grid
    # What it cost differs from run to run, so it is no part of what two results have in common.
    n_seeds = max(survey.n_seeds, 1)
    dataset.encoding[RUN] = {
        "evaluated_share": climbed.n_pairs / (n_seeds * samples.n_samples),
        "points_per_seed": climbed.n_points / n_seeds,
    }
    return dataset


def _mode_variables(
    samples: Samples, survey: Survey, clustering: Clustering
) -> dict[str, xr.Variable]:
    cluster_of_mode = clustering.cluster_of_mode
    kept = cluster_of_mode != NO_CLUSTER
    cluster_size = np.bincount(
        cluster_of_mode[kept],
        clustering.sizes[kept],
        minlength=int(cluster_of_mode.max(initial=-1)) + 1,
    )
    histograms = survey.embedding.restore(clustering.modes)
    return {
        "modes": xr.Variable((MODE, samples.bin_dim), histograms),
        "density": xr.Variable(MODE, clustering.densities),
        "size": xr.Variable(
            MODE, clustering.sizes, {"long_name": "samples of the mode, by their total weight"}
        ),
        "stationary": xr.Variable(MODE, clustering.stationary),
        "cluster_of_mode": xr.Variable(MODE, cluster_of_mode),
        "cluster_size": xr.Variable(CLUSTER, cluster_size.astype(clustering.sizes.dtype)),
    }


def _seed_variables(clustering: Clustering, climbed: Climbed) -> dict[str, xr.Variable]:
    place = np.append(clustering.new_place, NO_MODE)[climbed.mode_of_seed]
    return {
        "seed_label": xr.Variable(SEED, labels_of_modes(clustering.cluster_of_mode, place)),
        "seed_mode_index": xr.Variable(SEED, place),
        "seed_n_iter": xr.Variable(SEED, climbed.n_iter),
    }
