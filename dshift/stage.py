"""One job on one process: what is asked, what the process holds for it, and the shares of the work.

A `Job` travels to the workers; each process sets its `Stage` once, and every share of the work is
a pure function of the stage and a range of seeds, modes or samples. Both executors run the same
shares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dshift.arguments import Seeds
from dshift.errors import InvalidInput
from dshift.field import Field, Loaded, load_points, make_field
from dshift.metrics import Embedding, Float, Int, Metric, Points
from dshift.modes import find_joints, nearest_modes
from dshift.shift import Climbed, climb, density, distances, step
from dshift.sources import Samples


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that decides where seeds end, and nothing that does not."""

    samples: Samples
    kind: str
    metric: Metric | None
    edges: Float | None
    invalid: str
    bandwidth: Float  # shape () or (n_samples,)
    weights: Float | None  # (n_samples,)
    seeds: Seeds


@dataclass(frozen=True, eq=False)
class Stage:
    """What a process holds to do its share; read only, shared by its threads."""

    loaded: Loaded
    field: Field
    seed_points: Points  # (n_seeds, n_coords)
    seed_index: Int | None  # (n_seeds,): the valid sample that each seed is; None for own seeds
    order: Int  # (n_seeds,): seeds in an order that keeps neighbours together


@dataclass(frozen=True)
class Measured:
    """What is known of a range of modes."""

    densities: Float
    stationary: NDArray[np.bool_]


def set_stage(job: Job, loaded: Loaded | None = None) -> Stage:
    """Read and embed the samples, unless they are at hand."""
    if loaded is None:
        loaded = load_points(job.samples, job.kind, job.metric, job.edges, job.invalid)
    weights = None if job.weights is None else job.weights[loaded.valid]
    bandwidth = job.bandwidth if job.bandwidth.ndim == 0 else job.bandwidth[loaded.valid]
    seed_points, seed_index = _place_seeds(job, loaded)
    field = make_field(loaded, weights, bandwidth)
    return Stage(loaded, field, seed_points, seed_index, np.arange(len(seed_points)))


def _place_seeds(job: Job, loaded: Loaded) -> tuple[Points, Int | None]:
    """Return the points to start from, and which valid sample each one is."""
    if job.seeds.rows is not None:
        points, valid = loaded.embedding.embed(job.seeds.rows)
        if job.invalid == "raise" and not valid.all():
            raise InvalidInput(
                f"`seeds` holds {int((~valid).sum())} rows that are not histograms (the first is "
                f"row {int(np.argmin(valid))}); a histogram has finite entries, none negative, and "
                'a total above zero. Mend them, or pass invalid="mask" to leave them out.'
            )
        return points[valid], None
    if job.seeds.indices is None:
        return loaded.points, np.arange(len(loaded.points))
    number = np.cumsum(loaded.valid) - 1
    index = number[job.seeds.indices[loaded.valid[job.seeds.indices]]]
    if not index.size:
        raise InvalidInput("every sample in `seeds` is masked; choose seeds among valid samples.")
    return loaded.points[index], index


@dataclass(frozen=True)
class Survey:
    """What the caller must know of the samples, without holding them."""

    embedding: Embedding
    valid: NDArray[np.bool_]  # (n_samples,)
    fingerprint: str
    n_seeds: int
    seed_index: Int | None  # (n_seeds,): the valid sample that each seed is


def survey_share(stage: Stage) -> Survey:
    """Return what the caller must know."""
    loaded = stage.loaded
    return Survey(
        loaded.embedding,
        loaded.valid,
        loaded.fingerprint,
        len(stage.seed_points),
        stage.seed_index,
    )


def climb_share(stage: Stage, block: slice) -> Climbed:
    """Climb from a block of seeds: a range of the stage's order."""
    seeds = stage.order[block]
    return climb(stage.field, stage.seed_points[seeds], seeds)


def measure_share(stage: Stage, modes: Points) -> Measured:
    """Return the density at each mode, and whether one more step from it gives it again."""
    return Measured(
        np.array([density(stage.field, x) for x in modes]),
        np.array([_stays(stage.field, x) for x in modes], dtype=bool),
    )


def _stays(field: Field, x: Points) -> bool:
    onward = step(field, x)
    return onward is None or onward.tobytes() == x.tobytes()


def joints_share(
    stage: Stage, modes: Points, densities: Float, valley: float, part: slice
) -> list[tuple[int, int]]:
    """Return the pairs of modes, the first of them in `part`, with no valley between them."""
    field = stage.field
    return find_joints(
        modes,
        densities,
        valley,
        part,
        separation=_separation(field),
        widest=float(field.embedding.reach(2 * field.bandwidth.max())),
        density=lambda x: density(field, x),
    )


def nearest_share(stage: Stage, modes: Points, densities: Float, samples: Int) -> Int:
    """Return the nearest mode of each of the valid samples with these numbers."""
    points = stage.field.points[samples]
    return nearest_modes(points, modes, densities, _separation(stage.field))


def _separation(field: Field) -> Callable[[Points, Points], Points]:
    return lambda x, points: distances(field.embedding, x, points)
