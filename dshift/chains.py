"""Compiled loops that follow a chain of points: how many members lie below a bound in each column.

Neighbouring points share most of their members, and their medians lie close together. A *state*
remembers a point's members as bits and, for each column, a bound near the median with the pull of
the members below it, and of those below or at it. For the next points, only the rows that entered
or left from one to the next are compared with the bounds, of all columns at once, tile by tile: a
row is fetched once, however many points it enters and leaves. A chain keeps the states that runs of
points ended with: a new run goes on from the one that is nearest to its first point.

The hot loops take plain arrays and no slices of them: numba counts references to those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.kernels import inlined, inner
from dshift.simd import LANES, RANKS_AT_ONCE, lowest_bit, popcount, prefetch
from dshift.simd_counts import count_rows, lanes_changed

STATES = 32  # that a chain remembers
NEAR = 4  # a state is gone on from in place if it differs in less than this part of the members
TALLIED = 511  # tiles whose rows 16 bits count, up and down

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Chain(NamedTuple):
    """States of points that were moved before, and scratch for the next ones."""

    members: Any  # (states, tiles) uint64
    size: Any  # (states, 2) int64: number of members, and their pull
    bounds: Any  # (states, padded) uint16: a rank of each column
    runs: Any  # (states, p) int64: rows of the bound's run; 0 if there are several, or not known
    values: Any  # (states, p) int64: the value of that run
    counts: Any  # (states, 2, p) int64: pull of members of ranks below the bound; or at it too
    used: Any  # (states,) int64: when a run last went on from a state; 0 for never
    tally: Any  # (LANES, 2, padded) uint16: what a lane has more than the one before it, so far
    tiles: Any  # (tiles,) int32: those in which a lane differs from the one before it
    rows: Any  # (tiles,) uint64: which rows these are


def make_chain(n_rows: int, n_columns: int) -> Chain:
    """Return a chain whose states have no members."""
    padded = -(-n_columns // RANKS_AT_ONCE) * RANKS_AT_ONCE
    return Chain(
        members=np.zeros((STATES, -(-n_rows // LANES)), np.uint64),
        size=np.zeros((STATES, 2), np.int64),
        bounds=np.zeros((STATES, padded), np.uint16),
        runs=np.zeros((STATES, n_columns), np.int64),
        values=np.zeros((STATES, n_columns), np.int64),
        counts=np.zeros((STATES, 2, n_columns), np.int64),
        used=np.zeros(STATES, np.int64),
        tally=np.zeros((LANES, 2, padded), np.uint16),
        tiles=np.zeros(-(-n_rows // LANES), np.int32),
        rows=np.zeros(-(-n_rows // LANES), np.uint64),
    )


@inner
def choose_state(chain, batch, lane):
    """State to go on from to the members of a lane: the nearest, or a copy of it."""
    nearest, least, oldest, n_wanted, latest = 0, np.int64(-1), 0, 0, 0
    members, common, places, n_open = batch.members, batch.common, batch.places, batch.n_open[0]
    n_tiles = places.shape[0]
    wanted = batch.wanted
    for tile in range(n_tiles):
        wanted[tile] = common[tile] if places[tile] == n_open else members[places[tile], lane]
        n_wanted += np.int64(popcount(wanted[tile]))
    for state in range(STATES):
        latest = max(latest, chain.used[state])
        if chain.used[state] < chain.used[oldest]:
            oldest = state
        if chain.used[state] > 0:
            differ = 0
            for tile in range(n_tiles):
                differ += np.int64(popcount(wanted[tile] ^ chain.members[state, tile]))
            if least < 0 or differ < least:
                nearest, least = state, differ
    if NEAR * least > n_wanted and oldest != nearest:
        for tile in range(n_tiles):
            chain.members[oldest, tile] = chain.members[nearest, tile]
        for k in range(chain.bounds.shape[1]):
            chain.bounds[oldest, k] = chain.bounds[nearest, k]
        for k in range(chain.counts.shape[2]):
            chain.runs[oldest, k] = chain.runs[nearest, k]
            chain.values[oldest, k] = chain.values[nearest, k]
            chain.counts[oldest, 0, k] = chain.counts[nearest, 0, k]
            chain.counts[oldest, 1, k] = chain.counts[nearest, 1, k]
        chain.size[oldest, 0] = chain.size[nearest, 0]
        chain.size[oldest, 1] = chain.size[nearest, 1]
        nearest = oldest
    chain.used[nearest] = latest + 1
    return nearest


@inner
def _count_heavy(held, tile, word, sign, bounds, size, below, lane):
    """Count the rows of a word for a lane where rows pull with weights."""
    while word != _NONE:
        slot = tile * LANES + lowest_bit(word)
        word &= word - _ONE
        pull = sign * held.pulls[slot]
        size[lane, 1] += pull
        for k in range(below.shape[2]):
            below[lane, 0, k] += pull * np.int64(held.ranks[slot, k] < bounds[k])
            below[lane, 1, k] += pull * np.int64(held.ranks[slot, k] <= bounds[k])


@inlined
def _count_word(held, bounds, tally, tile, before, after, size, below, lane):
    """Count, for a lane, the rows of a tile that entered and left since the lane before it."""
    entered, left = after & ~before, before & ~after
    size[lane, 0] += np.int64(popcount(entered)) - np.int64(popcount(left))
    if held.pulls.shape[0] == 0:
        count_rows(held.ranks, tile, entered, left, bounds, tally, lane)
    else:
        _count_heavy(held, tile, entered, 1, bounds, size, below, lane)
        _count_heavy(held, tile, left, -1, bounds, size, below, lane)


@inlined
def _signed(count):
    """What 16 bits counted: more than half of what they hold means a number below 0."""
    return np.int64(count) - ((np.int64(count) & 0x8000) << 1)


@inner
def _fold(tally, below, first, last):
    """Add what 16 bits counted to what the lanes have, and begin anew."""
    for lane in range(first, last):
        for side in range(2):
            for k in range(below.shape[2]):
                below[lane, side, k] += _signed(tally[lane, side, k])
                tally[lane, side, k] = 0


@inlined
def _find_changes(known, batch, first, last, tiles, rows):
    """List the tiles in which any lane differs from what is known, and the rows; how many."""
    members, common, places, n_open = batch.members, batch.common, batch.places, batch.n_open[0]
    n = 0
    for tile in range(places.shape[0]):
        before, place = known[tile], places[tile]
        differ = common[tile] ^ before
        if place < n_open:
            differ = _NONE
            for lane in range(first, last):
                differ |= members[place, lane] ^ before
        tiles[n], rows[n] = tile, differ
        n += np.int64(differ != _NONE)
    return n


@inlined
def _fetch(ranks, tile, word):
    """Have the ranks of some rows of a tile fetched."""
    n_columns = ranks.shape[1]
    while word != _NONE:
        slot = tile * LANES + lowest_bit(word)
        word &= word - _ONE
        for column in range(0, n_columns + RANKS_AT_ONCE - 1, RANKS_AT_ONCE):
            prefetch(ranks, slot * n_columns + min(column, n_columns - 1))


@inlined
def _count_tiles(held, chain, state, batch, first, last, size, below):
    """Count what lanes have more than the one before them, and the first more than the state.

    The state's members become those of the last lane.
    """
    members, common, places, n_open = batch.members, batch.common, batch.places, batch.n_open[0]
    known, bounds, tally = chain.members[state], chain.bounds[state], chain.tally
    tiles, rows, ranks = chain.tiles, chain.rows, held.ranks
    n_tiles = _find_changes(known, batch, first, last, tiles, rows)
    others = (~_NONE << np.uint64(first) << _ONE) & (~_NONE >> np.uint64(LANES - last))
    for i in range(n_tiles):
        if i + 1 < n_tiles:
            _fetch(ranks, np.int64(tiles[i + 1]), rows[i + 1])
        tile = np.int64(tiles[i])
        before, place = known[tile], places[tile]
        changed = _ONE << np.uint64(first)
        if place < n_open:
            changed = lanes_changed(members, place * LANES, before) & others
            changed |= np.uint64(members[place, first] != before) << np.uint64(first)
        while changed != _NONE:
            lane = lowest_bit(changed)
            changed &= changed - _ONE
            after = members[place, lane] if place < n_open else common[tile]
            _count_word(held, bounds, tally, tile, before, after, size, below, lane)
            before = after
        known[tile] = before
        if i % TALLIED == TALLIED - 1:
            _fold(tally, below, first, last)


@inner
def count_members(held, chain, state, batch, first, last, size, below):
    """Sizes of lanes first..last - 1, and the pull of their members below the bounds, or at them.

    The bounds are those of a state, whose members, size and counts become those of the last lane.
    """
    for lane in range(first, last):
        size[lane, 0] = size[lane, 1] = 0
        for side in range(2):
            for k in range(below.shape[2]):
                below[lane, side, k] = 0
    _count_tiles(held, chain, state, batch, first, last, size, below)
    _add_up_sizes(held, chain.size[state], first, last, size)
    _add_up(chain.tally, chain.counts[state], first, last, below)


@inner
def _add_up_sizes(held, state_size, first, last, size):
    """Make what lanes have more than the one before them what they have."""
    n, pull = state_size[0], state_size[1]
    for lane in range(first, last):
        n += size[lane, 0]
        pull += size[lane, 1]
        size[lane, 0], size[lane, 1] = n, n if held.pulls.shape[0] == 0 else pull
    state_size[0], state_size[1] = size[last - 1, 0], size[last - 1, 1]


@inner
def _add_up(tally, counts, first, last, below):
    """The same for their counts, with what 16 bits counted since."""
    for lane in range(first, last):
        for side in range(2):
            for k in range(below.shape[2]):
                counts[side, k] += below[lane, side, k] + _signed(tally[lane, side, k])
                below[lane, side, k] = counts[side, k]
                tally[lane, side, k] = 0
