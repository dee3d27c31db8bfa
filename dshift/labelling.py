"""Labels that stay where they were found: put together from a store's records, written by region.

With a store on a cluster, no caller holds a row per sample. Blocks of seeds are on record, and so
are the nearest modes of the other samples; a process that has to label reads them all, once, and
writes the labels of one region of the samples after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift.intact import open_to_write
from dshift.metrics import Float, Int, Points
from dshift.modes import NO_CLUSTER
from dshift.planning import cut_up
from dshift.shift import NO_MODE
from dshift.stage import Places, Stage, climb_share, nearest_share, places_share, rest_of
from dshift.store import RUN_FOLDER, Store, read_block, read_record, write_record

MODES_RECORD = f"{RUN_FOLDER}/modes.npz"
# Samples that are labelled and written at a time, and the chunks of the result.
REGION_SAMPLES = 2**20
NOT_CLIMBED = -1  # steps of a sample that was no seed


# ---------------------------------------------------------------- labels of samples


def labels_of_modes(cluster_of_mode: NDArray[Any], mode_index: NDArray[Any]) -> NDArray[np.int32]:
    """Return the label of each mode index; NO_MODE has NO_CLUSTER."""
    lookup: NDArray[np.int32] = np.append(cluster_of_mode, NO_CLUSTER).astype(np.int32)
    return lookup.take(mode_index)


def on_samples(
    valid: NDArray[np.bool_],
    mode_index: NDArray[Any],
    n_iter: NDArray[Any],
    cluster_of_mode: NDArray[Any],
) -> dict[str, NDArray[Any]]:
    """Return what the result says of each sample.

    Parameters
    ----------
    valid : array (n,)
    mode_index, n_iter : arrays (n_valid,)
        NO_MODE and NOT_CLIMBED where there is none.
    cluster_of_mode : array (n_modes,)
    """
    spread = _spread(valid, mode_index, NO_MODE, np.int64)
    steps = _spread(valid, n_iter, NOT_CLIMBED, np.int32)
    return {
        "label": labels_of_modes(cluster_of_mode, spread),
        "mode_index": spread,
        "n_iter": steps,
        "is_seed": steps != NOT_CLIMBED,
    }


def _spread(valid: NDArray[np.bool_], values: NDArray[Any], fill: int, dtype: Any) -> NDArray[Any]:
    """Return `values` of the valid samples at all samples, with `fill` for the others."""
    out = np.full(valid.shape, fill, dtype=dtype)
    out[valid] = values
    return out


def steps_of_samples(places: Places, n_iter: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the steps of each valid sample, from those of the seeds."""
    steps = np.full(int(places.valid.sum()), NOT_CLIMBED, dtype=np.int32)
    if places.seed_index is not None:
        steps[places.seed_index] = n_iter
    return steps


# ---------------------------------------------------------------- regions of the result


def region_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of regions that lie in one piece in C order, of REGION_SAMPLES at most."""
    chunks, room = [], REGION_SAMPLES
    for axis, length in enumerate(shape):
        after = math.prod(shape[axis + 1 :])
        chunks.append(max(1, min(length, room // after)))
        room = min(room, chunks[-1] * after)
    return tuple(chunks)


def regions(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Yield the regions of samples of this shape, in C order."""
    sizes = zip(shape, region_shape(shape), strict=True)
    cuts = ([slice(s, min(s + step, n)) for s in range(0, n, step)] for n, step in sizes)
    return product(*cuts)


def _flat(shape: Sequence[int], region: tuple[slice, ...]) -> slice:
    """Return the numbers of a region's samples."""
    start = int(np.ravel_multi_index([part.start for part in region], shape))
    return slice(start, start + math.prod(part.stop - part.start for part in region))


# ---------------------------------------------------------------- on a worker


@dataclass(frozen=True, eq=False)
class Labels:
    """Where each valid sample belongs."""

    mode_of_sample: NDArray[np.int32]  # (n_valid,): modes as they were merged, or NO_MODE
    n_iter: NDArray[np.int32]  # (n_valid,)
    valid_before: Int  # (n_samples + 1,): valid samples before each one


@dataclass(frozen=True)
class Cut:
    """How a run was cut: with this a process finds all records."""

    place: Store
    n_seeds: int
    block_size: int
    n_rest: int  # valid samples that are no seeds
    part_size: int  # of these

    @property
    def blocks(self) -> list[slice]:
        """Blocks of seeds."""
        return cut_up(self.n_seeds, self.block_size)

    @property
    def parts(self) -> list[slice]:
        """Parts of the samples that are no seeds."""
        return cut_up(self.n_rest, self.part_size)


@dataclass(frozen=True)
class Totals:
    """What the order of the modes depends on."""

    sizes: Float  # (n_modes,): weight of the samples of each
    whole: bool  # whether all weights are whole numbers


def record_modes(place: Store, modes: Points, densities: Float) -> None:
    """Leave the modes where every worker finds them."""
    write_record(place, MODES_RECORD, {"modes": modes, "densities": densities})


def record_nearest(stage: Stage, place: Store, part: slice) -> None:
    """Record the nearest modes of samples that are no seeds, unless that is done."""
    _nearest(stage, place, part)


def _nearest(stage: Stage, place: Store, part: slice) -> Int:
    key = f"{RUN_FOLDER}/nearest/{part.start}-{part.stop}.npz"
    known = read_record(place, key)
    if known is None:
        modes, densities = _modes(place)
        known = {"modes": nearest_share(stage, modes, densities, part)}
        write_record(place, key, known)
    return known["modes"]


def _modes(place: Store) -> tuple[Points, Float]:
    known = read_record(place, MODES_RECORD)
    if known is None:
        raise RuntimeError(f"{place.name} has lost {MODES_RECORD}")
    return known["modes"], known["densities"]


def put_together(stage: Stage, cut: Cut) -> Labels:
    """Read all records; what is torn is done again."""
    modes, _ = _modes(cut.place)
    number = {mode.tobytes(): at for at, mode in enumerate(modes)}
    n_valid = len(stage.loaded.points)
    mode_of_sample = np.full(n_valid, NO_MODE, dtype=np.int32)
    n_iter = np.full(n_valid, NOT_CLIMBED, dtype=np.int32)
    for block in cut.blocks:
        if stage.seed_index is None:
            break
        climbed = read_block(cut.place, block) or climb_share(stage, block)
        numbers = np.array([*(number[mode.tobytes()] for mode in climbed.modes), NO_MODE])
        samples = stage.seed_index[climbed.seeds]
        mode_of_sample[samples] = numbers[climbed.mode_of_seed]
        n_iter[samples] = climbed.n_iter
    for part in cut.parts:
        mode_of_sample[rest_of(stage)[part]] = _nearest(stage, cut.place, part)
    valid_before = np.concatenate([[0], np.cumsum(places_share(stage).valid)])
    return Labels(mode_of_sample, n_iter, valid_before)


def _labels(stage: Stage, cut: Cut) -> Labels:
    labels: Labels = stage.labels.get(lambda: put_together(stage, cut))
    return labels


def total_share(stage: Stage, cut: Cut, n_modes: int) -> Totals:
    """Return the total weight of each mode; one process adds them, in the samples' order."""
    weights = stage.field.weights
    mode_of_sample = _labels(stage, cut).mode_of_sample
    reached = mode_of_sample != NO_MODE
    sizes = np.bincount(mode_of_sample[reached], weights[reached], minlength=n_modes)
    return Totals(sizes.astype(np.float64), bool((weights == np.rint(weights)).all()))


def write_share(
    stage: Stage,
    cut: Cut,
    new_place: Int,
    cluster_of_mode: NDArray[np.int32],
    shape: tuple[int, ...],
    region: tuple[slice, ...],
) -> None:
    """Write what the result says of the samples of a region."""
    labels, flat = _labels(stage, cut), _flat(shape, region)
    valid = stage.loaded.valid[flat]
    part = slice(labels.valid_before[flat.start], labels.valid_before[flat.stop])
    mode_index = np.append(new_place, NO_MODE)[labels.mode_of_sample[part]]
    found = on_samples(valid, mode_index, labels.n_iter[part], cluster_of_mode)
    for name, values in found.items():
        array = open_to_write(cut.place.url, name)
        array[region] = values.reshape([part.stop - part.start for part in region])
