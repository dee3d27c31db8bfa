"""Compiled loops that list the rows of a column outwards from a place, of those that count.

In the order of a column's values, most rows are members of no point at hand. The list has the
*possible* ones, as far out as medians lie: it grows when asked to, to one side or the other.

Rows are looked at one after the other. Where possible rows are rare, their ranks in all columns are
marked first, in words of 64 ranks, and the list goes from mark to mark.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.kernels import inlined, jit
from dshift.simd import LANES, highest_bit, lowest_bit

SCANNED = 64  # rows looked at for the list at a time

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Listing(NamedTuple):
    """What may be listed, and the list of one column."""

    order: Any  # (p, n): slots by the value in a column
    shift: int  # places of a rank, as a power of two
    possible: Any  # (tiles,) uint64: rows that are a member of any lane
    masks: Any  # (slots,) uint64: the lanes that a row is a member of, where it is possible
    spots: Any  # (p, words) uint64: ranks of possible rows
    marked: Any  # (1,) bool: whether `spots` are to be used
    listed: Any  # (2 (n + SCANNED),) int32: slots, outwards from the middle
    absent: Any  # (2 (n + SCANNED),) uint64: the lanes that they are no members of
    ends: Any  # (2,) int64: behind the last listed row upwards, and before the last downwards
    edges: Any  # (2,) int64: the place in the column to look at next, upwards and downwards


@inlined
def has(words, slot):
    """Whether a row is set, as a number."""
    return np.int64((words[slot >> 6] >> np.uint64(slot & 63)) & _ONE)


@jit
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


@jit
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
def _list_rank(listing, k, rank, step, end):
    """List the possible rows of a rank; the end of the list then."""
    n_places = 1 << listing.shift
    for i in range(n_places):
        place = rank * n_places + (i if step > 0 else n_places - 1 - i)
        if place < listing.order.shape[1]:
            slot = np.int64(listing.order[k, place])
            listing.listed[end] = slot  # stays if the next line counts it
            end += step * has(listing.possible, slot)
    return end


@jit
def _list_marked_above(listing, k, end, edge):
    """List the rows of the next word with marks upwards; end of the list and edge then."""
    before, n_words = end, listing.spots.shape[1]
    rank = edge >> listing.shift
    at = rank >> 6
    above = ~_NONE << np.uint64(rank & 63)
    while end == before and at < n_words:
        word = listing.spots[k, at] & above
        while word != _NONE:
            end = _list_rank(listing, k, at * 64 + lowest_bit(word), 1, end)
            word &= word - _ONE
        at, above = at + 1, ~_NONE
    return end, (at << 6) << listing.shift


@jit
def _list_marked_below(listing, k, end, edge):
    """Likewise, downwards."""
    before = end
    rank = edge >> listing.shift
    at = rank >> 6
    below = ~_NONE >> np.uint64(63 - (rank & 63))
    while end == before and at >= 0:
        word = listing.spots[k, at] & below
        while word != _NONE:
            bit = highest_bit(word)
            end = _list_rank(listing, k, at * 64 + bit, -1, end)
            word ^= _ONE << np.uint64(bit)
        at, below = at - 1, ~_NONE
    return end, (((at + 1) << 6) << listing.shift) - 1


@jit
def list_more(listing, k, side):
    """List more rows upwards (side 0) or downwards; the end now, which moves unless all are."""
    order, possible, listed = listing.order, listing.possible, listing.listed
    before, end, edge = listing.ends[side], listing.ends[side], listing.edges[side]
    n_rows = order.shape[1]
    if listing.marked[0] and side == 0:
        end, edge = _list_marked_above(listing, k, end, edge)
    elif listing.marked[0]:
        end, edge = _list_marked_below(listing, k, end, edge)
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
