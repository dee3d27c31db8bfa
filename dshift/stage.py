"""One job on one process: what is asked, what the process holds for it, and the shares of the work.

A `Job` travels to the workers; each process sets its `Stage` once, and every share of the work is
a pure function of the stage and a range of seeds, modes or samples. Both executors run the same
shares.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift.arguments import Seeds
from dshift.crowd import climb_together, step_together
from dshift.errors import InvalidInput
from dshift.field import Field, Loaded, load_points, make_field
from dshift.index import Index, build_index, neighbours_together
from dshift.metrics import Embedding, Float, Int, Metric, Points
from dshift.modes import find_joints, nearest_modes
from dshift.shift import NO_MODE, Climbed, climb, density, distances, step
from dshift.sources import Samples
from dshift.visited import LEAST_MEMO_BYTES, MEMO_PART, Memo


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


class Once:
    """Something that the first thread to ask makes, and the others share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[Any] = []

    def get(self, make: Callable[[], Any]) -> Any:
        """Return the thing, made now if nobody has yet."""
        with self._lock:
            if not self._made:
                self._made.append(make())
            return self._made[0]


@dataclass(frozen=True, eq=False)
class Stage:
    """What a process holds to do its share; read only, shared by its threads."""

    loaded: Loaded
    field: Field
    seed_points: Points  # (n_seeds, n_coords)
    seed_index: Int | None  # (n_seeds,): the valid sample that each seed is; None for own seeds
    order: Int  # (n_seeds,): seeds in an order that keeps neighbours together
    index: Index | None  # for exact kinds
    memo: Memo | None  # what the blocks of this process have found out so far
    rest: Once = dataclass_field(default_factory=Once)  # valid samples that are no seeds
    labels: Once = dataclass_field(default_factory=Once)  # of all samples, once modes are known

    @cached_property
    def order_digest(self) -> str:
        """What two processes must have in common for a range of the order to be the same seeds."""
        return hashlib.blake2b(self.order.astype("<i8").tobytes(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Measured:
    """What is known of a range of modes."""

    densities: Float
    stationary: NDArray[np.bool_]


def set_stage(
    job: Job, loaded: Loaded | None = None, *, indexed: bool = True, threads: int = 1
) -> Stage:
    """Read and embed the samples, unless they are at hand, on threads that have nothing else to do.

    Exact geometries get an index, unless there is no room for one: seeds then climb one by one.
    """
    if loaded is None:
        loaded = load_points(
            job.samples, job.kind, job.metric, job.edges, job.invalid, threads=threads
        )
    weights = None if job.weights is None else job.weights[loaded.valid]
    bandwidth = job.bandwidth if job.bandwidth.ndim == 0 else job.bandwidth[loaded.valid]
    seed_points, seed_index = _place_seeds(job, loaded)
    field = make_field(loaded, weights, bandwidth)
    if not loaded.embedding.exact or not indexed:
        # Blocks are ranges of this order, so it is the same with an index and without.
        exact = loaded.embedding.exact
        order = np.arange(len(seed_points))
        if exact:
            order = neighbours_together(seed_points, threads=threads)
        return Stage(loaded, field, seed_points, seed_index, order, None, None)
    index = build_index(field, threads)
    whole = seed_points is loaded.points
    order = index.held.rows if whole else neighbours_together(seed_points, threads=threads)
    memo = Memo(seed_points.shape[1], max(LEAST_MEMO_BYTES, field.points.nbytes // MEMO_PART))
    return Stage(loaded, field, seed_points, seed_index, order, index, memo)


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
    """What the caller must know of the samples: nothing that grows with them."""

    embedding: Embedding
    fingerprint: str
    n_valid: int
    n_seeds: int
    own_seeds: bool  # histograms of the caller's own, and no samples
    order: str  # a digest of the order that blocks are ranges of


def survey_share(stage: Stage) -> Survey:
    """Return what the caller must know."""
    loaded = stage.loaded
    return Survey(
        loaded.embedding,
        loaded.fingerprint,
        len(loaded.points),
        len(stage.seed_points),
        stage.seed_index is None,
        stage.order_digest,
    )


@dataclass(frozen=True)
class Places:
    """Which samples are valid, and which of these are seeds."""

    valid: NDArray[np.bool_]  # (n_samples,)
    seed_index: Int | None  # (n_seeds,): the valid sample that each seed is; None for own seeds

    def rest(self) -> Int:
        """Return the valid samples that are no seeds."""
        no_seed = np.ones(int(self.valid.sum()), dtype=bool)
        no_seed[[] if self.seed_index is None else self.seed_index] = False
        return np.flatnonzero(no_seed)


def places_share(stage: Stage) -> Places:
    """Return where the seeds are; only a caller who gathers labels needs to know."""
    return Places(stage.loaded.valid, stage.seed_index)


def rest_of(stage: Stage) -> Int:
    """Return the valid samples that are no seeds."""
    rest: Int = stage.rest.get(lambda: places_share(stage).rest())
    return rest


def seeds_share(stage: Stage, *blocks: slice) -> Int:
    """Return the numbers of blocks' seeds: samples, or rows of the caller's own seeds."""
    seeds: Int = np.concatenate([stage.order[block] for block in blocks])
    if stage.seed_index is None:
        return seeds
    return np.flatnonzero(stage.loaded.valid)[stage.seed_index[seeds]]


def climb_share(stage: Stage, *blocks: slice) -> Climbed:
    """Climb from blocks of seeds, ranges of the stage's order, together."""
    seeds = np.concatenate([stage.order[block] for block in blocks])
    if stage.index is None:
        return climb(stage.field, stage.seed_points[seeds], seeds)
    climbed = climb_together(stage.index, stage.seed_points, seeds, stage.memo)
    # Only a seed of the caller's own can start where nobody reaches it.
    return climbed if stage.seed_index is not None else _unreached(stage.field, climbed)


def _unreached(field: Field, climbed: Climbed) -> Climbed:
    """Take the modes away that no sample reaches: seeds that stayed because nothing pulled."""
    away = (distances(field.embedding, mode, field.points) for mode in climbed.modes)
    reached = np.array([(d < field.reach).any() for d in away], dtype=bool)
    place = np.where(reached, np.cumsum(reached) - 1, NO_MODE)
    return replace(climbed, modes=climbed.modes[reached], mode_of_seed=place[climbed.mode_of_seed])


def measure_share(stage: Stage, modes: Points) -> Measured:
    """Return the density at each mode, and whether one more step from it gives it again."""
    densities = np.array([density(stage.field, x) for x in modes])
    if stage.index is not None:
        return Measured(densities, (step_together(stage.index, modes) == modes).all(axis=1))
    onward = (step(stage.field, x) for x in modes)
    stays = [y is None or y.tobytes() == x.tobytes() for x, y in zip(modes, onward, strict=True)]
    return Measured(densities, np.array(stays, dtype=bool))


def joints_share(
    stage: Stage, modes: Points, densities: Float, valley: float, part: slice
) -> list[tuple[int, int]]:
    """Return the pairs of modes, the first of them in `part`, with no valley between them."""
    field = stage.field
    with np.errstate(over="ignore"):
        widest = 2 * field.bandwidth.max()
    return find_joints(
        modes,
        densities,
        valley,
        part,
        separation=_separation(field),
        widest=float(field.embedding.reach(widest)),
        density=lambda x: density(field, x),
    )


def nearest_share(stage: Stage, modes: Points, densities: Float, part: slice) -> Int:
    """Return the nearest mode of each sample in a part of those that are no seeds."""
    points = stage.field.points[rest_of(stage)[part]]
    return nearest_modes(points, modes, densities, _separation(stage.field))


def _separation(field: Field) -> Callable[[Points, Points], Points]:
    return lambda x, points: distances(field.embedding, x, points)
