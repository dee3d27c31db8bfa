"""Compiled loops for medians along a chain of points: each from those of the point before it.

Neighbouring points share most of their members, and their medians lie close together. A *state*
remembers a point's members as bits and, for each column, a bound near the median with the pull of
the members below it. For the next point, the rows that entered or left are compared with the bounds
of all columns at once; then each column walks, in the order of its values, from the bound to the
median. A chain keeps the states that groups of points ended with: a new group goes on from the one
that is nearest to its first point.

Most rows that a walk would pass are members of no point of the group. So the rows that can be
members (`possible`) are listed for each column, outwards from where the group began and only as far
as walks go: the first walk pays for the list, the others follow it.

The hot loops take plain arrays and no slices of them: numba counts references to those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.kernels import inlined, jit
from dshift.simd import LANES, RANKS_AT_ONCE, count_below, lowest_bit, popcount

STATES = 32  # that a chain remembers
NEAR = 4  # a state is gone on from in place if it differs in less than this part of the members
LISTED = 512  # rows listed on either side of where a group began
SCANNED = 32  # rows looked at for the list at a time
TALLIED = 60_000  # rows whose number 16 bits hold
FEW = 16  # members that are sorted rather than walked to
FEW_OF = 2048  # and one more for so many rows, since walks are longer where members are rare

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Chain(NamedTuple):
    """States of points that were moved before, and scratch for the next one."""

    members: Any  # (states, tiles) uint64
    size: Any  # (states, 2) int64: number of members, and their pull
    bounds: Any  # (states, padded) uint16: a rank of each column
    counts: Any  # (states, p) int64: pull of the members whose rank is below the bound
    used: Any  # (states,) int64: when a group last went on from a state; 0 for never
    changed: Any  # (2, n) int32: slots that entered, and that left, since the counts were made
    n_changed: Any  # (2,) int64
    tally: Any  # (RANKS_AT_ONCE,) uint16
    listed: Any  # (p, 2, LISTED + SCANNED) int32: slots, upwards and downwards
    n_listed: Any  # (p, 2) int64
    edges: Any  # (p, 2) int64: the next place to look at
    at: Any  # (p,) int64: number of the first listed row at the bound; -1 is the first downwards
    found: Any  # (2, p) int64: slots of the lower and the upper median


def make_chain(n_rows: int, n_columns: int, padded: int) -> Chain:
    """Return a chain whose states have no members."""
    return Chain(
        members=np.zeros((STATES, -(-n_rows // LANES)), np.uint64),
        size=np.zeros((STATES, 2), np.int64),
        bounds=np.zeros((STATES, padded), np.uint16),
        counts=np.zeros((STATES, n_columns), np.int64),
        used=np.zeros(STATES, np.int64),
        changed=np.empty((2, n_rows), np.int32),
        n_changed=np.zeros(2, np.int64),
        tally=np.empty(RANKS_AT_ONCE, np.uint16),
        listed=np.empty((n_columns, 2, LISTED + SCANNED), np.int32),
        n_listed=np.zeros((n_columns, 2), np.int64),
        edges=np.zeros((n_columns, 2), np.int64),
        at=np.zeros(n_columns, np.int64),
        found=np.empty((2, n_columns), np.int64),
    )


# ---------------------------------------------------------------- states


@jit
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
        for k in range(chain.counts.shape[1]):
            chain.counts[oldest, k] = chain.counts[nearest, k]
        chain.size[oldest, 0] = chain.size[nearest, 0]
        chain.size[oldest, 1] = chain.size[nearest, 1]
        nearest = oldest
    chain.used[nearest] = latest + 1
    return nearest


# ---------------------------------------------------------------- members


@inlined
def change_members(members, tile, word, changed, n_changed):
    """Make `word` the members of a tile, and note which rows entered and left."""
    before = members[tile]
    members[tile] = word
    entered, left = word & ~before, before & ~word
    n = n_changed[0]
    while entered != _NONE:
        changed[0, n] = tile * LANES + lowest_bit(entered)
        entered &= entered - _ONE
        n += 1
    n_changed[0] = n
    n = n_changed[1]
    while left != _NONE:
        changed[1, n] = tile * LANES + lowest_bit(left)
        left &= left - _ONE
        n += 1
    n_changed[1] = n


@jit
def _count_changed(held, chain, bounds, counts, size):
    """Bring size and counts of a state up to date with the rows that entered or left."""
    n_columns = counts.shape[0]
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
                        counts[k] += sign * np.int64(chain.tally[k - first])
        else:
            for i in range(n):
                pull = sign * held.pulls[slots[i]]
                size[1] += pull
                for k in range(n_columns):
                    if held.ranks[slots[i], k] < bounds[k]:
                        counts[k] += pull


@inlined
def _has(words, slot):
    """Whether a row is set, as a number."""
    return np.int64((words[slot >> 6] >> np.uint64(slot & 63)) & _ONE)


@inlined
def _pull_of(members, pulls, slot):
    """Pull of a row, if it is a member."""
    return _has(members, slot) * (pulls[slot] if pulls.shape[0] > 0 else 1)


# ---------------------------------------------------------------- lists


@inlined
def _begin_list(k, place, n_listed, edges, at):
    edges[k, 0], edges[k, 1] = place, place - 1
    n_listed[k, 0], n_listed[k, 1] = 0, 0
    at[k] = 0


@jit
def begin_lists(held, chain, state):
    """Begin the lists of a new group at the bounds."""
    for k in range(chain.at.shape[0]):
        place = np.int64(chain.bounds[state, k]) << held.shift
        _begin_list(k, place, chain.n_listed, chain.edges, chain.at)


@jit
def _list_more(order, possible, k, side, listed, n_listed, edges):
    """List more rows of one side; their number now."""
    n, edge, n_rows = n_listed[k, side], edges[k, side], order.shape[1]
    before = n
    while n == before and 0 <= edge < n_rows:
        if side == 0:
            for place in range(edge, min(edge + SCANNED, n_rows)):
                slot = np.int64(order[k, place])
                listed[k, 0, n] = slot  # stays if the next line counts it
                n += _has(possible, slot)
            edge += SCANNED
        else:
            for place in range(edge, max(edge - SCANNED, -1), -1):
                slot = np.int64(order[k, place])
                listed[k, 1, n] = slot
                n += _has(possible, slot)
            edge -= SCANNED
    n_listed[k, side], edges[k, side] = n, edge
    return n


# ---------------------------------------------------------------- medians


@inlined
def _walk_up(order, members, possible, pulls, k, i, before, need, listed, n_listed, edges):
    """First listed row from number i on with which the members' pull reaches `need`.

    Returns its number and the pull before it; the number is LISTED where the list ends first.
    """
    while i < 0:
        while -1 - i >= n_listed[k, 1]:  # the bound may lie several rows before the listed ones
            _list_more(order, possible, k, 1, listed, n_listed, edges)
        after = before + _pull_of(members, pulls, np.int64(listed[k, 1, -1 - i]))
        if after >= need:
            return i, before
        before = after
        i += 1
    n = n_listed[k, 0]
    while i < LISTED:
        if i >= n:
            n = _list_more(order, possible, k, 0, listed, n_listed, edges)
        after = before + _pull_of(members, pulls, np.int64(listed[k, 0, i]))
        if after >= need:
            return i, before
        before = after
        i += 1
    return i, before


@inlined
def _walk_down(order, members, possible, pulls, k, i, before, need, listed, n_listed, edges):
    """Last listed row before number i before which the members' pull is below `need`.

    Returns its number and that pull; the number is -LISTED - 1 where the list ends first.
    """
    while i > 0:
        i -= 1
        before -= _pull_of(members, pulls, np.int64(listed[k, 0, i]))
        if before < need:
            return i, before
    n = n_listed[k, 1]
    while i > -LISTED:
        i -= 1
        while -1 - i >= n:
            n = _list_more(order, possible, k, 1, listed, n_listed, edges)
        before -= _pull_of(members, pulls, np.int64(listed[k, 1, -1 - i]))
        if before < need:
            return i, before
    return -LISTED - 1, before


@jit
def _walk_columns(
    order,
    ranks,
    shift,
    pulls,
    members,
    possible,
    lower,
    upper,
    bounds,
    counts,
    listed,
    n_listed,
    edges,
    at,
    found,
):
    """Find the rows of the lower and the upper median of every column, and move the bounds there.

    Where a list is full, it begins anew at the row that the walk has come to.
    """
    for k in range(counts.shape[0]):
        while True:
            i, before = at[k], counts[k]
            if before < lower:
                i, before = _walk_up(
                    order, members, possible, pulls, k, i, before, lower, listed, n_listed, edges
                )
                full = i == LISTED
                slot = np.int64(listed[k, 0, i - full] if i >= 0 else listed[k, 1, -1 - i])
                # A full list ends with a row that is behind us.
                before -= _pull_of(members, pulls, slot) if full else 0
            else:
                i, before = _walk_down(
                    order, members, possible, pulls, k, i, before, lower, listed, n_listed, edges
                )
                full = i < -LISTED
                slot = np.int64(listed[k, 0, i] if i >= 0 else listed[k, 1, -1 - i - full])
            reached = before + _pull_of(members, pulls, slot)
            # The bound is the row's rank, and rows of the same rank may lie before it.
            rank = np.int64(ranks[slot, k])
            place = rank << shift
            while np.int64(order[k, place]) != slot:
                other = np.int64(order[k, place])
                before -= _pull_of(members, pulls, other)
                i -= _has(possible, other)
                place += 1
            bounds[k], counts[k], at[k] = rank, before, i
            if full or i <= -LISTED:
                _begin_list(k, rank << shift, n_listed, edges, at)
            if not full:
                break
        found[0, k] = slot
        while reached < upper:
            place += 1
            slot = np.int64(order[k, place])
            reached += _pull_of(members, pulls, slot)
        found[1, k] = slot


@jit
def _medians_of_few(held, members, n_members, total, result):
    """Medians of few members, by sorting their values."""
    slots = np.empty(n_members, np.int64)
    n = 0
    for tile in range(members.shape[0]):
        word = members[tile]
        while word != _NONE:
            slots[n] = tile * LANES + lowest_bit(word)
            word &= word - _ONE
            n += 1
    values, pulls = np.empty(n, np.int64), np.empty(n, np.int64)
    lower, upper = (total + 1) // 2, total // 2 + 1
    for k in range(result.shape[0]):
        for i in range(n):
            value = held.coords[held.rows[slots[i]], k]
            pull = held.pulls[slots[i]] if held.pulls.shape[0] > 0 else 1
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


@jit
def take_medians(held, chain, state, possible, result):
    """Medians of a state's members into `result` (p,), which stays as it is without members."""
    members, size = chain.members[state], chain.size[state]
    bounds, counts = chain.bounds[state], chain.counts[state]
    _count_changed(held, chain, bounds, counts, size)
    n_members, total = size[0], size[1]
    if n_members == 0:
        return
    if n_members <= FEW + held.order.shape[1] // FEW_OF:
        _medians_of_few(held, members, n_members, total, result)
        return
    _walk_columns(
        held.order,
        held.ranks,
        held.shift,
        held.pulls,
        members,
        possible,
        (total + 1) // 2,
        total // 2 + 1,
        bounds,
        counts,
        chain.listed,
        chain.n_listed,
        chain.edges,
        chain.at,
        chain.found,
    )
    for k in range(result.shape[0]):  # apart from the walks, so that cache misses overlap
        low = held.coords[held.rows[chain.found[0, k]], k]
        high = held.coords[held.rows[chain.found[1, k]], k]
        result[k] = (low + high) >> 1  # both are even
