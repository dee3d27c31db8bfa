"""Compiled loops that list the rows of a column outwards from a place, of those that count.

In the order of a column's values, most rows are members of no point at hand. The list has the
*possible* ones, as far out as medians lie: it grows when asked to, to one side or the other.

Rows are looked at one after the other. Where possible rows are rare, their ranks in all columns are
marked first, in words of 64 ranks, and the list goes from mark to mark.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.kernels import inlined, inner
from dshift.simd import LANES, highest_bit, lowest_bit

SCANNED = 64  # rows looked at for the list at a time

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Listing(NamedTuple):
    """What may be listed, and the list of one column."""

    possible: Any  # (tiles,) uint64: rows that are a member of any lane
    masks: Any  # (slots,) uint64: the lanes that a row is a member of, where it is possible
    spots: Any  # (p, words) uint64: ranks of possible rows, where these are few
    marked: Any  # (1,) bool: whether they are
    listed: Any  # (2 (n + SCANNED),) int32: slots, outwards from the middle
    absent: Any  # (2 (n + SCANNED),) uint64: the lanes that they are no members of
    ends: Any  # (2,) int64: behind the last listed row upwards, and before the last downwards
    edges: Any  # (2,) int64: the place in the column to look at next, upwards and downwards


def make_listing(n_rows: int, n_columns: int, n_ranks: int) -> Listing:
    """Return scratch."""
    n_tiles = -(-n_rows // LANES)
    return Listing(
        possible=np.zeros(n_tiles, np.uint64),
        masks=np.zeros(n_tiles * LANES, np.uint64),
        spots=np.zeros((n_columns, -(-n_ranks // LANES)), np.uint64),
        marked=np.zeros(1, np.bool_),
        listed=np.empty(2 * (n_rows + SCANNED), np.int32),
        absent=np.empty(2 * (n_rows + SCANNED), np.uint64),
        ends=np.zeros(2, np.int64),
        edges=np.zeros(2, np.int64),
    )


@inlined
def has(words, slot):
    """Whether a row is set, as a number."""
    return np.int64((words[slot >> 6] >> np.uint64(slot & 63)) & _ONE)


@inner
def mark_spots(ranks, possible, spots):
    """Mark the ranks of the possible rows in all columns."""
    for tile in range(possible.shape[0]):
        word = possible[tile]
        while word != _NONE:
            slot = tile * LANES + lowest_bit(word)
            word &= word - _ONE
            for k in range(spots.shape[0]):
                rank = np.int64(ranks[slot, k])
                spots[k, rank >> 6] |= _ONE << np.uint64(rank & 63)


@inner
def clear_spots(spots):
    """Take all marks away."""
    for k in range(spots.shape[0]):
        for word in range(spots.shape[1]):
            spots[k, word] = _NONE


@inlined
def begin_list(listing, place):
    """Begin the list at a place of the column: the first one upwards."""
    middle = listing.listed.shape[0] // 2
    listing.ends[0], listing.ends[1] = middle, middle - 1
    listing.edges[0], listing.edges[1] = place, place - 1


@inlined
def _list_rank(order, shift, possible, listed, k, rank, step, end):
    """List the possible rows of a rank; the end of the list then."""
    n_places = 1 << shift
    for i in range(n_places):
        place = rank * n_places + (i if step > 0 else n_places - 1 - i)
        if place < order.shape[1]:
            slot = np.int64(order[k, place])
            listed[end] = slot  # stays if the next line counts it
            end += step * has(possible, slot)
    return end


@inner
def _list_marked_above(order, shift, spots, possible, listed, k, end, edge):
    """List the rows of the next word with marks upwards; end of the list and edge then."""
    before, n_words = end, spots.shape[1]
    rank = edge >> shift
    at = rank >> 6
    above = ~_NONE << np.uint64(rank & 63)
    while end == before and at < n_words:
        word = spots[k, at] & above
        while word != _NONE:
            end = _list_rank(order, shift, possible, listed, k, at * 64 + lowest_bit(word), 1, end)
            word &= word - _ONE
        at, above = at + 1, ~_NONE
    return end, (at << 6) << shift


@inner
def _list_marked_below(order, shift, spots, possible, listed, k, end, edge):
    """Likewise, downwards."""
    before = end
    rank = edge >> shift
    at = rank >> 6
    below = ~_NONE >> np.uint64(63 - (rank & 63))
    while end == before and at >= 0:
        word = spots[k, at] & below
        while word != _NONE:
            bit = highest_bit(word)
            end = _list_rank(order, shift, possible, listed, k, at * 64 + bit, -1, end)
            word ^= _ONE << np.uint64(bit)
        at, below = at - 1, ~_NONE
    return end, (((at + 1) << 6) << shift) - 1


@inner
def list_more(order, shift, listing, k, side):
    """List more rows upwards (side 0) or downwards; the end now, which moves unless all are."""
    possible, listed, spots = listing.possible, listing.listed, listing.spots
    before, end, edge = listing.ends[side], listing.ends[side], listing.edges[side]
    n_rows = order.shape[1]
    if listing.marked[0] and side == 0:
        end, edge = _list_marked_above(order, shift, spots, possible, listed, k, end, edge)
    elif listing.marked[0]:
        end, edge = _list_marked_below(order, shift, spots, possible, listed, k, end, edge)
    while end == before and 0 <= edge < n_rows:
        if side == 0:
            for place in range(edge, min(edge + SCANNED, n_rows)):
                slot = np.int64(order[k, place])
                listed[end] = slot  # stays if the next line counts it
                end += has(possible, slot)
            edge += SCANNED
        else:
            for place in range(edge, max(edge - SCANNED, -1), -1):
                slot = np.int64(order[k, place])
                listed[end] = slot
                end -= has(possible, slot)
            edge -= SCANNED
    listing.ends[side], listing.edges[side] = end, edge
    for i in range(min(before, end + 1), max(before + 1, end)):
        listing.absent[i] = ~listing.masks[listed[i]]
    return end
