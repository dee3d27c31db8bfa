"""Medians of few members, by sorting: where members are rare, the ways between them are long."""

from __future__ import annotations

import numpy as np

from dshift.kernels import inlined, inner
from dshift.simd import LANES, lowest_bit

FEW = 16  # members that are sorted rather than walked to
FEW_OF = 2048  # and one more for so many rows, since lists are longer where members are rare

_ONE = np.uint64(1)
_NONE = np.uint64(0)


def most_of_few(n_rows: int) -> int:
    """Return how many members are sorted rather than walked to, among so many rows."""
    return FEW + n_rows // FEW_OF


@inlined
def pull_of(pulls, slot):
    """Pull of a row; `pulls` are empty where every row pulls 1."""
    return pulls[slot] if pulls.shape[0] > 0 else 1


@inner
def medians_of_few(held, batch, few, lane, total, result):
    """Medians of few members, by sorting their values."""
    slots, values, pulls = few[0], few[1], few[2]
    n = 0
    for tile in range(batch.places.shape[0]):
        place = batch.places[tile]
        word = batch.common[tile] if place == batch.n_open[0] else batch.members[place, lane]
        while word != _NONE:
            slots[n] = tile * LANES + lowest_bit(word)
            word &= word - _ONE
            n += 1
    lower, upper = (total + 1) // 2, total // 2 + 1
    for k in range(result.shape[0]):
        for i in range(n):
            value = held.coords[held.rows[slots[i]], k]
            pull = pull_of(held.pulls, slots[i])
            j = i
            while j > 0 and values[j - 1] > value:
                values[j], pulls[j] = values[j - 1], pulls[j - 1]
                j -= 1
            values[j], pulls[j] = value, pull
        reached, i = pulls[0], 0
        while reached < lower:
            i += 1
            reached += pulls[i]
        j = i
        while reached < upper:
            j += 1
            reached += pulls[j]
        result[k] = (values[i] + values[j]) >> 1
