"""Compiled loops that follow a chain of points: how many members lie below a bound in each column.

Neighbouring points share most of their members, and their medians lie close together. A *state*
remembers a point's members as bits and, for each column, a bound near the median with the pull of
the members below it, and of those below or at it. For the next point, only the rows that entered or
left are compared with the bounds, of all columns at once. A chain keeps the states that groups of
points ended with: a new group goes on from the one that is nearest to its first point.

The hot loops take plain arrays and no slices of them: numba counts references to those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.kernels import inner
from dshift.simd import LANES, RANKS_AT_ONCE, count_below, lowest_bit, popcount

STATES = 32  # that a chain remembers
NEAR = 4  # a state is gone on from in place if it differs in less than this part of the members
TALLIED = 60_000  # rows whose number 16 bits hold

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Chain(NamedTuple):
    """States of points that were moved before, and scratch for the next one."""

    members: Any  # (states, tiles) uint64
    size: Any  # (states, 2) int64: number of members, and their pull
    bounds: Any  # (states, padded) uint16: a rank of each column
    counts: Any  # (states, 2, p) int64: pull of members of ranks below the bound; or at it too
    used: Any  # (states,) int64: when a group last went on from a state; 0 for never
    changed: Any  # (2, n) int32: slots that entered, and that left, since the counts were made
    n_changed: Any  # (2,) int64
    tally: Any  # (2, RANKS_AT_ONCE) uint16


def make_chain(n_rows: int, n_columns: int) -> Chain:
    """Return a chain whose states have no members."""
    padded = -(-n_columns // RANKS_AT_ONCE) * RANKS_AT_ONCE
    return Chain(
        members=np.zeros((STATES, -(-n_rows // LANES)), np.uint64),
        size=np.zeros((STATES, 2), np.int64),
        bounds=np.zeros((STATES, padded), np.uint16),
        counts=np.zeros((STATES, 2, n_columns), np.int64),
        used=np.zeros(STATES, np.int64),
        changed=np.empty((2, n_rows), np.int32),
        n_changed=np.zeros(2, np.int64),
        tally=np.empty((2, RANKS_AT_ONCE), np.uint16),
    )


@inner
def choose_state(chain, wanted):
    """State to go on from to the members `wanted` (tiles,): the nearest, or a copy of it."""
    nearest, least, oldest, n_wanted, latest = 0, np.int64(-1), 0, 0, 0
    for tile in range(wanted.shape[0]):
        n_wanted += np.int64(popcount(wanted[tile]))
    for state in range(STATES):
        latest = max(latest, chain.used[state])
        if chain.used[state] < chain.used[oldest]:
            oldest = state
        if chain.used[state] > 0:
            differ = 0
            for tile in range(wanted.shape[0]):
                differ += np.int64(popcount(wanted[tile] ^ chain.members[state, tile]))
            if least < 0 or differ < least:
                nearest, least = state, differ
    if NEAR * least > n_wanted and oldest != nearest:
        for tile in range(wanted.shape[0]):
            chain.members[oldest, tile] = chain.members[nearest, tile]
        for k in range(chain.bounds.shape[1]):
            chain.bounds[oldest, k] = chain.bounds[nearest, k]
        for k in range(chain.counts.shape[2]):
            chain.counts[oldest, 0, k] = chain.counts[nearest, 0, k]
            chain.counts[oldest, 1, k] = chain.counts[nearest, 1, k]
        chain.size[oldest, 0] = chain.size[nearest, 0]
        chain.size[oldest, 1] = chain.size[nearest, 1]
        nearest = oldest
    chain.used[nearest] = latest + 1
    return nearest


@inner
def change_members(members, wanted, changed, n_changed):
    """Make `wanted` the members, and note which rows entered and left."""
    n_entered, n_left = n_changed[0], n_changed[1]
    for tile in range(members.shape[0]):
        before, after = members[tile], wanted[tile]
        if before == after:
            continue
        members[tile] = after
        entered, left = after & ~before, before & ~after
        while entered != _NONE:
            changed[0, n_entered] = tile * LANES + lowest_bit(entered)
            entered &= entered - _ONE
            n_entered += 1
        while left != _NONE:
            changed[1, n_left] = tile * LANES + lowest_bit(left)
            left &= left - _ONE
            n_left += 1
    n_changed[0], n_changed[1] = n_entered, n_left


@inner
def count_changed(held, chain, state):
    """Bring size and counts of a state up to date with the rows that entered or left."""
    bounds, counts, size = chain.bounds[state], chain.counts[state], chain.size[state]
    n_columns = counts.shape[1]
    for side in range(2):
        n, sign, slots = chain.n_changed[side], 1 - 2 * side, chain.changed[side]
        chain.n_changed[side] = 0
        size[0] += sign * n
        if held.pulls.shape[0] == 0:
            size[1] += sign * n
            for begin in range(0, n, TALLIED):
                end = min(begin + TALLIED, n)
                for first in range(0, n_columns, RANKS_AT_ONCE):
                    count_below(held.ranks, slots, begin, end, bounds, first, chain.tally)
                    for k in range(first, min(first + RANKS_AT_ONCE, n_columns)):
                        counts[0, k] += sign * np.int64(chain.tally[0, k - first])
                        counts[1, k] += sign * np.int64(chain.tally[1, k - first])
        else:
            for i in range(n):
                pull = sign * held.pulls[slots[i]]
                size[1] += pull
                for k in range(n_columns):
                    counts[0, k] += pull * np.int64(held.ranks[slots[i], k] < bounds[k])
                    counts[1, k] += pull * np.int64(held.ranks[slots[i], k] <= bounds[k])
