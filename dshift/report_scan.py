"""One pass over the data of a report, or over a part of it where it is large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dshift.errors import InvalidInput
from dshift.metrics import Float, Int
from dshift.report_ruler import Ruler
from dshift.sources import Samples

Array = NDArray[Any]
Block = tuple[slice, ...]

N_CARDS = 12  # clusters with a plot of their own
N_MEMBERS = 400  # of a cluster, in its band
N_VIEW = 2000  # samples on the plane
MAX_READ_BYTES = 2 * 2**30
MAX_MEASURED, MAX_MEASURED_VALUES = 1_000_000, 2**26  # samples, and numbers in them
MAX_KEPT_VALUES = 2**22
PIECE_VALUES = 2**20  # numbers worked on at a time


@dataclass(frozen=True, eq=False)
class Scan:
    """What one pass over some of the data brought back."""

    measured: Int  # indices of samples, increasing
    distances: Float  # of those, to their mode
    kept: Int  # indices of samples whose rows were kept, increasing
    rows: Float  # (n_kept, n_bins)
    n_reachable: int  # labelled samples in the blocks that were read


def evenly(values: Array, most: int) -> Array:
    """Return at most so many of `values`, evenly spread."""
    if len(values) <= most:
        return values
    return values[np.linspace(0, len(values) - 1, most).astype(np.int64)]


def drawn_from(index: Int, most: int) -> Int:
    """Return at most so many samples, one from each of equal parts, the same in every call."""
    if len(index) <= most:
        return index
    # At random within the part: equal steps would fall into step with the rows of a grid.
    shifts = np.random.default_rng(0).random(most)
    return index[((np.arange(most) + shifts) * (len(index) / most)).astype(np.int64)]


def _choose_blocks(samples: Samples, label: Array, n_cards: int) -> list[Block]:
    """Return the blocks to read: all, or some that hold a sample of every cluster to be drawn."""
    blocks = list(samples.blocks())
    rows = max(math.prod(s.stop - s.start for s in block) for block in blocks)
    most = max(1, MAX_READ_BYTES // (rows * samples.n_bins * samples.dtype.itemsize))
    if len(blocks) <= most:
        return blocks
    chosen = set(evenly(np.arange(len(blocks)), most).tolist())
    seen = {number for place in chosen for number in np.unique(label[blocks[place]]).tolist()}
    for cluster in set(range(n_cards)) - seen:
        first = np.unravel_index(int(np.argmax(label.ravel() == cluster)), label.shape)
        inside = (
            all(s.start <= i < s.stop for s, i in zip(block, first, strict=True))
            for block in blocks
        )
        chosen.add(list(inside).index(True))
    return [blocks[place] for place in sorted(chosen)]


def _indices(block: Block, shape: tuple[int, ...]) -> Int:
    """Return the flat indices of a block's samples, in its own order."""
    axes = np.ix_(*(np.arange(s.start, s.stop) for s in block))
    return np.ravel_multi_index(axes, shape).ravel()


def _rows(samples: Samples, blocks: list[Block], wanted: Array) -> Iterator[tuple[Int, Array]]:
    """Read the wanted samples, a bounded number at a time."""
    piece = max(1, PIECE_VALUES // samples.n_bins)
    for block in blocks:
        index = _indices(block, samples.shape)
        places = np.flatnonzero(wanted[index])
        if len(places):
            rows = samples.read(block).reshape(-1, samples.n_bins)
            for start in range(0, len(places), piece):
                part = places[start : start + piece]
                yield index[part], rows[part]


def scan_samples(
    samples: Samples, ruler: Ruler, label: Array, mode_index: Array, modes: Float, n_cards: int
) -> Scan:
    """Measure how far samples are from their mode, and keep the rows that will be drawn."""
    blocks = _choose_blocks(samples, label, n_cards)
    reachable = np.zeros(samples.shape, dtype=bool)
    for block in blocks:
        reachable[block] = True
    flat = label.ravel()
    labelled = np.flatnonzero(reachable.ravel() & (flat >= 0))
    most = min(MAX_MEASURED, max(1000, MAX_MEASURED_VALUES // samples.n_bins))
    n_members = int(np.clip(MAX_KEPT_VALUES // (samples.n_bins * N_CARDS), 20, N_MEMBERS))
    n_view = int(np.clip(MAX_KEPT_VALUES // samples.n_bins, 100, N_VIEW))
    numbers = flat[labelled]
    drawn = [drawn_from(labelled[numbers == c], n_members) for c in range(n_cards)]
    kept = np.unique(np.concatenate([drawn_from(labelled, n_view), *drawn]))
    wanted = np.zeros(samples.n_samples, dtype=bool)
    wanted[drawn_from(labelled, most)] = True
    wanted[kept] = True
    measured = np.flatnonzero(wanted)
    distances, rows = np.full(len(measured), np.nan), np.zeros((len(kept), samples.n_bins))
    targets, _ = ruler.points(modes)
    for index, part in _rows(samples, blocks, wanted):
        points, valid = ruler.points(part)
        if not valid.all():
            raise InvalidInput(
                f"`data` ({samples.origin}) holds {int((~valid).sum())} rows that are not "
                "histograms where `result` has labels; give the data that was clustered."
            )
        gaps = ruler.between(points, targets[mode_index.ravel()[index]])
        distances[np.searchsorted(measured, index)] = gaps
        at = np.minimum(np.searchsorted(kept, index), len(kept) - 1)
        here = kept[at] == index
        rows[at[here]] = part[here]
    return Scan(measured, distances, kept, rows, len(labelled))
