"""numba loops for the median step of a group of points.

All points of a group share most of their members: the shared pull of each bucket of ranks is
counted once, and a point's own members are one bit a row. The buckets are swept outwards from a
guess for all points together; then a median's rank within its bucket is selected among few rows,
and where values outnumber ranks, its value among those of its rank.

Measured and lost: a bisection per point instead of the sweep (6x slower: no two points share a
vector); per point, a bisection within the bucket, or listing and sorting its own members there
(3-4x slower than the walk); listing shared members column by column (a cache miss per tile) instead
of tile by tile; linear codes instead of ranks (half the memory, but ties and crowded codes cost a
sort per point).
"""

from __future__ import annotations

import numpy as np

from dshift.kernels import jit
from dshift.simd import LANES, lanes_between, lowest_bit, popcount, walk

_ONE = np.uint64(1)
_NONE = np.uint64(0)


@jit
def _add_pulls(own, plane, slots, pulls, totals):
    """totals[j] += pull of the rows set in both own[:, j] and plane."""
    for tile in range(own.shape[0]):
        if plane[tile] == _NONE:
            continue
        if pulls.shape[0] == 0:
            for j in range(own.shape[1]):
                totals[j] += np.int64(popcount(own[tile, j] & plane[tile]))
            continue
        for j in range(own.shape[1]):
            word = own[tile, j] & plane[tile]
            while word != _NONE:
                totals[j] += pulls[slots[tile * LANES + lowest_bit(word)]]
                word &= word - _ONE


@jit
def total_pulls(own, slots, pulls, totals):
    """totals[j] += pull of the rows in own[:, j]."""
    _add_pulls(own, np.full(own.shape[0], ~_NONE), slots, pulls, totals)


@jit
def _mark(ranks, column, start, width, plane):
    """plane = rows with start <= rank < start + width."""
    for tile in range(ranks.shape[0]):
        offset = (tile * ranks.shape[1] + column) * LANES
        plane[tile] = lanes_between(ranks, offset, np.uint16(start), np.uint16(width))


@jit
def _guess(counts, shared):
    """Bucket of the shared members' own median, and the shared pull before it."""
    pull, bucket = 0, 0
    while bucket < counts.shape[0] - 1 and 2 * (pull + counts[bucket]) < shared:
        pull += counts[bucket]
        bucket += 1
    return bucket, pull


@jit
def locate(counts, shared, shift, ranks, slots, pulls, own, totals, found, wanted):
    """found[k, side, :, j] = bucket of the lower or upper median of column k, and pull before it.

    wanted[k] = first and last of the buckets found in column k.
    """
    n_columns, n_buckets = counts.shape
    n_points = own.shape[1]
    plane = np.empty(own.shape[0], np.uint64)
    middle = np.empty(n_points, np.int64)
    pull, added = np.empty_like(middle), np.empty_like(middle)
    for k in range(n_columns):
        start, pull_before = _guess(counts[k], shared)
        middle[:] = pull_before
        if start > 0:
            _mark(ranks, k, 0, start << shift, plane)
            _add_pulls(own, plane, slots, pulls, middle)
        wanted[k, 0], wanted[k, 1] = n_buckets - 1, 0
        for direction in (1, -1):
            for j in range(n_points):
                pull[j] = middle[j]
            bucket = start if direction == 1 else start - 1
            left = True
            while left and 0 <= bucket < n_buckets:
                added[:] = 0
                _mark(ranks, k, bucket << shift, 1 << shift, plane)
                _add_pulls(own, plane, slots, pulls, added)
                left = False
                for j in range(n_points):
                    change = added[j] + counts[k, bucket]
                    before = pull[j] if direction == 1 else pull[j] - change
                    after = before + change
                    for side in range(2):
                        rank = (totals[j] + 1) // 2 if side == 0 else totals[j] // 2 + 1
                        if before < rank <= after:
                            found[k, side, 0, j], found[k, side, 1, j] = bucket, before
                            wanted[k, 0] = min(wanted[k, 0], bucket)
                            wanted[k, 1] = max(wanted[k, 1], bucket)
                    pull[j] = after if direction == 1 else before
                    if direction == 1:
                        left |= totals[j] > 0 and after < totals[j] // 2 + 1
                    else:
                        left |= totals[j] > 0 and before >= (totals[j] + 1) // 2
                bucket += direction


@jit
def list_shared(ranks, members, shift, wanted, listed, n_listed):
    """listed[k, :n_listed[k]] = shared members (slots) in the wanted buckets of column k."""
    n_listed[:] = 0
    for tile in range(members.shape[0]):
        if members[tile] == _NONE:
            continue
        for k in range(ranks.shape[1]):
            start = np.uint16(wanted[k, 0] << shift)
            width = np.uint16((wanted[k, 1] + 1 - wanted[k, 0]) << shift)
            offset = (tile * ranks.shape[1] + k) * LANES
            word = lanes_between(ranks, offset, start, width) & members[tile]
            n = n_listed[k]
            while word != _NONE:
                listed[k, n] = tile * LANES + lowest_bit(word)
                word &= word - _ONE
                n += 1
            n_listed[k] = n


@jit
def transpose_bits(own, by_row):
    """Bit j of by_row[chunk, place] is bit `place` of own[:, 64 chunk + j]: one bit a point."""
    block = np.empty(LANES, np.uint64)
    for chunk in range(by_row.shape[0]):
        n_points = min(LANES, own.shape[1] - chunk * LANES)
        for tile in range(own.shape[0]):
            block[:] = _NONE
            for j in range(n_points):
                block[j] = own[tile, chunk * LANES + j]
            width, mask = 32, np.uint64(0x00000000FFFFFFFF)
            while width > 0:  # swap ever smaller quarters of the 64 x 64 square
                turn = np.uint64(width)
                for j in range(LANES):
                    if j & width == 0:
                        swap = ((block[j] >> turn) ^ block[j + width]) & mask
                        block[j] ^= swap << turn
                        block[j + width] ^= swap
                width >>= 1
                mask ^= mask << np.uint64(width)
            for lane in range(LANES):
                by_row[chunk, tile * LANES + lane] = block[lane]


@jit
def _list_open(ranks, open_words, column, start, width, places):
    """Places of the open rows with start <= rank < start + width; how many."""
    n = 0
    for tile in range(ranks.shape[0]):
        offset = (tile * ranks.shape[1] + column) * LANES
        word = lanes_between(ranks, offset, np.uint16(start), np.uint16(width)) & open_words[tile]
        while word != _NONE:
            places[n] = tile * LANES + lowest_bit(word)
            word &= word - _ONE
            n += 1
    return n


@jit
def _sort_entries(keys, n, begins, order):
    """order[begins[key]:begins[key + 1]] = the entries of each key."""
    begins[:] = 0
    for i in range(n):
        begins[keys[i] + 2] += 1
    place = 0  # in a register: sums through memory cost a store-to-load wait each
    for key in range(2, begins.shape[0]):
        place += begins[key]
        begins[key] = place
    for i in range(n):
        order[begins[keys[i] + 1]] = i
        begins[keys[i] + 1] += 1


@jit
def _sort_run(start, stop, column, coords, rows, entry_slots, order, masks, entry_pulls):
    """Order entries start..stop - 1, all of one rank, by exact value."""
    for i in range(start + 1, stop):
        entry, mask, pull, at = order[i], masks[i], entry_pulls[i], i
        value = coords[rows[entry_slots[entry]], column]
        while at > start and coords[rows[entry_slots[order[at - 1]]], column] > value:
            order[at], masks[at] = order[at - 1], masks[at - 1]
            entry_pulls[at] = entry_pulls[at - 1]
            at -= 1
        order[at], masks[at], entry_pulls[at] = entry, mask, pull


@jit
def _sort_reached(
    reached, low, high, column, keys, coords, rows, entry_slots, order, masks, entry_pulls
):
    """Put the ranks at which some point reached its need in order of exact value."""
    for side in range(2):
        before = _NONE
        for i in range(low, high):
            if reached[side, i] != before:
                before = reached[side, i]
                key, start, stop = keys[order[i]], i, i + 1
                while start > low and keys[order[start - 1]] == key:
                    start -= 1
                while stop < high and keys[order[stop]] == key:
                    stop += 1
                _sort_run(start, stop, column, coords, rows, entry_slots, order, masks, entry_pulls)


@jit
def _set_needs(bucket, found, totals, start, stop, needs):
    """needs[side, j] = what the bucket must hold to reach the median; whether any point asks."""
    never = needs[0, LANES]
    is_wanted = False
    for side in range(2):
        needs[side, stop - start : LANES] = never
        for j in range(start, stop):
            asks = totals[j] > 0 and found[side, 0, j] == bucket
            rank = (totals[j] + 1) // 2 if side == 0 else totals[j] // 2 + 1
            needs[side, j - start] = rank - found[side, 1, j] if asks else never
            is_wanted |= asks
    return is_wanted


@jit
def _note_reached(reached, order, entry_slots, low, high, start, at):
    """at[side, j] = slot of the member with which a point reached its need."""
    for side in range(2):
        before = _NONE
        for i in range(low, high):
            word = reached[side, i] & ~before
            before = reached[side, i]
            while word != _NONE:
                at[side, start + lowest_bit(word)] = entry_slots[order[i]]
                word &= word - _ONE


@jit
def refine(
    found,
    wanted,
    listed,
    n_listed,
    index_ranks,
    rows,
    pulls,
    coords,
    values_of,
    n_values,
    mixed,
    shift,
    ranks,
    slots,
    open_words,
    by_row,
    needs,
    totals,
    result,
):
    """From buckets to exact values: result[j] = (lower + upper median) // 2, if it has members.

    The members of a bucket are walked in the order of their values, for 64 points at once. `needs`
    (2, 65) is scratch whose type holds the pull of a bucket; its last column is more than any.
    """
    n_columns, n_points = ranks.shape[1], totals.shape[0]
    n_buckets, n_most = values_of.shape[1], listed.shape[1] + ranks.shape[0] * LANES
    begins = np.empty((n_buckets << shift) + 2, np.int32)
    places, keys = np.empty(n_most, np.int32), np.empty(n_most, np.int32)
    order, entry_slots = np.empty(n_most, np.int32), np.empty(n_most, np.int32)
    masks, reached = np.empty(n_most, np.uint64), np.empty((2, n_most), np.uint64)
    entry_pulls = np.empty(n_most, needs.dtype)
    at = np.empty((2, n_points), np.int64)
    for k in range(n_columns):
        first = wanted[k, 0] << shift
        width = (wanted[k, 1] + 1 - wanted[k, 0]) << shift
        many = False
        for bucket in range(wanted[k, 0], wanted[k, 1] + 1):
            many |= n_values[k, bucket] > 1
        if many:
            n_open = _list_open(ranks, open_words, k, first, width, places)
            for i in range(n_open):
                place = places[i]
                entry_slots[i] = slots[place]
                keys[i] = np.int64(ranks[place >> 6, k, place & 63]) - first
            n = n_open + n_listed[k]
            for i in range(n_open, n):
                slot = listed[k, i - n_open]
                entry_slots[i] = slot
                keys[i] = np.int64(index_ranks[slot >> 6, k, slot & 63]) - first
            _sort_entries(keys, n, begins[: width + 2], order)
            for i in range(n):
                entry_pulls[i] = pulls[entry_slots[order[i]]] if pulls.shape[0] > 0 else 1
            for chunk in range(by_row.shape[0]):
                start, stop = chunk * LANES, min((chunk + 1) * LANES, n_points)
                for i in range(n):
                    entry = order[i]
                    masks[i] = by_row[chunk, places[entry]] if entry < n_open else ~_NONE
                for bucket in range(wanted[k, 0], wanted[k, 1] + 1):
                    if n_values[k, bucket] > 1 and _set_needs(
                        bucket, found[k], totals, start, stop, needs
                    ):
                        low = begins[(bucket << shift) - first]
                        high = begins[((bucket + 1) << shift) - first]
                        walk(masks, entry_pulls, low, high, needs, reached)
                        if mixed[k]:
                            _sort_reached(
                                reached,
                                low,
                                high,
                                k,
                                keys,
                                coords,
                                rows,
                                entry_slots,
                                order,
                                masks,
                                entry_pulls,
                            )
                            walk(masks, entry_pulls, low, high, needs, reached)
                        _note_reached(reached, order, entry_slots, low, high, start, at)
        for j in range(n_points):  # apart from the walk, so that cache misses overlap
            if totals[j] > 0:
                both = 0
                for side in range(2):
                    bucket = found[k, side, 0, j]
                    if n_values[k, bucket] == 1:
                        both += values_of[k, bucket]
                    else:
                        both += coords[rows[at[side, j]], k]
                result[j, k] = both // 2
