"""Compiled loops that list the rows of a column outwards from a run, of those that count.

In the order of a column's values, most rows are members of no point at hand. The list has the
*possible* ones, as far out as medians lie: it grows when asked to, to one side or the other. In its
middle one row stands for the run that it begins at, whose members were counted already.

Rows are looked at one after the other. Where possible rows are rare, their ranks in all columns are
marked first, in words of 64 ranks, and the list goes from mark to mark.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.columns import places_of, slot_at
from dshift.kernels import inlined, inner
from dshift.simd import LANES, highest_bit, lowest_bit

SCANNED = 64  # rows looked at for the list at a time

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Listing(NamedTuple):
    """What may be listed, and the list of one column."""

    possible: Any  # (tiles,) uint64: rows that are a member of any lane
    places: Any  # (tiles,) int64: where the rows of a tile have their masks
    masks: Any  # (64 (tiles + 1),) uint64: by place and row, the lanes that it is a member of
    spots: Any  # (p, words) uint64: ranks of possible rows, where these are few
    marked: Any  # (1,) bool: whether they are
    listed: Any  # (2 (n + SCANNED) + 1,) int32: slots, outwards from the middle
    present: Any  # (2 (n + SCANNED) + 1,) uint64: the lanes that they are members of
    ends: Any  # (2,) int64: behind the last listed row upwards, and before the last downwards
    edges: Any  # (2,) int64: the place, or rank to find marked, to look at next, up and down


def make_listing(n_rows: int, n_columns: int, n_ranks: int, places: Any) -> Listing:
    """Return scratch; `places` are those of the batch."""
    n_tiles = -(-n_rows // LANES)
    return Listing(
        possible=np.zeros(n_tiles, np.uint64),
        places=places,
        masks=np.zeros((n_tiles + 1) * LANES, np.uint64),
        spots=np.zeros((n_columns, -(-n_ranks // LANES)), np.uint64),
        marked=np.zeros(1, np.bool_),
        listed=np.empty(2 * (n_rows + SCANNED) + 1, np.int32),
        present=np.empty(2 * (n_rows + SCANNED) + 1, np.uint64),
        ends=np.zeros(2, np.int64),
        edges=np.zeros(2, np.int64),
    )


@inlined
def has(words, slot):
    """Whether a row is set, as a number. Unsigned numbers spare the look for negative indices."""
    slot = np.uint64(slot)
    return np.int64((words[slot >> np.uint64(6)] >> (slot & np.uint64(63))) & _ONE)


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


@inner
def begin_list(held, listing, k, rank):
    """Begin the list at a rank of column k; its places if it is of one run, or twice the first.

    The list goes on around it. Where several runs have that rank, it goes upwards from the first of
    their rows.
    """
    middle = listing.listed.shape[0] // 2
    first, last, alone = places_of(held, k, rank)
    listing.listed[middle] = slot_at(held.order, held.slot_bytes, k, first)
    listing.present[middle] = _NONE
    listing.ends[0], listing.ends[1] = middle + 1, middle - 1
    if listing.marked[0]:
        listing.edges[0], listing.edges[1] = rank + np.int64(alone), rank - 1
    else:
        listing.edges[0], listing.edges[1] = last if alone else first, first - 1
    return first, last if alone else first


@inlined
def _list_rank(held, possible, listed, k, rank, step, end):
    """List the possible rows of a rank; the end of the list then."""
    first, last, _ = places_of(held, k, rank)
    for i in range(last - first):
        place = first + i if step > 0 else last - 1 - i
        slot = slot_at(held.order, held.slot_bytes, k, place)
        listed[end] = slot  # stays if the next line counts it
        end += step * has(possible, slot)
    return end


@inner
def _list_marked_above(held, spots, possible, listed, k, end, rank):
    """List the rows of the next word with marks upwards; end of the list and next rank then."""
    before, n_words = end, spots.shape[1]
    at = rank >> 6
    above = ~_NONE << np.uint64(rank & 63)
    while end == before and at < n_words:
        word = spots[k, at] & above
        while word != _NONE:
            end = _list_rank(held, possible, listed, k, at * 64 + lowest_bit(word), 1, end)
            word &= word - _ONE
        at, above = at + 1, ~_NONE
    return end, at << 6


@inner
def _list_marked_below(held, spots, possible, listed, k, end, rank):
    """Likewise, downwards."""
    before = end
    at = rank >> 6
    below = ~_NONE >> np.uint64(63 - (rank & 63))
    while end == before and at >= 0:
        word = spots[k, at] & below
        while word != _NONE:
            bit = highest_bit(word)
            end = _list_rank(held, possible, listed, k, at * 64 + bit, -1, end)
            word ^= _ONE << np.uint64(bit)
        at, below = at - 1, ~_NONE
    return end, ((at + 1) << 6) - 1


@inlined
def _list_above(order, slot_bytes, n_rows, possible, listed, k, end, edge):
    """List rows among the next ones upwards; end of the list and next place then."""
    before = end
    while end == before and edge < n_rows:
        for place in range(edge, min(edge + SCANNED, n_rows)):
            slot = slot_at(order, slot_bytes, k, place)
            listed[np.uint64(end)] = slot  # stays if the next line counts it
            end += has(possible, slot)
        edge += SCANNED
    return end, edge


@inlined
def _list_below(order, slot_bytes, possible, listed, k, end, edge):
    """Likewise, downwards."""
    before = end
    while end == before and edge >= 0:
        for place in range(edge, max(edge - SCANNED, -1), -1):
            slot = slot_at(order, slot_bytes, k, place)
            listed[np.uint64(end)] = slot
            end -= has(possible, slot)
        edge -= SCANNED
    return end, edge


@inlined
def list_more(held, listing, k, side):
    """List more rows upwards (side 0) or downwards; the end now, which moves unless all are."""
    possible, listed, spots = listing.possible, listing.listed, listing.spots
    order, slot_bytes = held.order, held.slot_bytes
    before, edge = listing.ends[side], listing.edges[side]
    if listing.marked[0] and side == 0:
        end, edge = _list_marked_above(held, spots, possible, listed, k, before, edge)
    elif listing.marked[0]:
        end, edge = _list_marked_below(held, spots, possible, listed, k, before, edge)
    elif side == 0:
        n_rows = held.ranks.shape[0]
        end, edge = _list_above(order, slot_bytes, n_rows, possible, listed, k, before, edge)
    else:
        end, edge = _list_below(order, slot_bytes, possible, listed, k, before, edge)
    listing.ends[side], listing.edges[side] = end, edge
    for i in range(min(before, end + 1), max(before + 1, end)):
        slot = np.uint64(listed[np.uint64(i)])
        place = np.uint64(listing.places[slot >> np.uint64(6)])
        listing.present[np.uint64(i)] = listing.masks[
            (place << np.uint64(6)) | (slot & np.uint64(63))
        ]
    return end
