"""Compiled loops over the rows of a column outwards from a run, of those that count.

In the order of a column's values, most rows are members of no point at hand. Where these are not
too many, rows are looked at one after the other, in that order. Where the *possible* rows, which
are members of any, are rare, their ranks in the columns at hand are marked, in words of 64 ranks,
and a list goes from mark to mark, as far out as medians lie: it grows when asked to, to one side or
the other. In its middle one row stands for the run that it begins at, whose members were counted
already. Either way the rows have *places*, in the order or in the list, and are read by `Rows`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dshift.columns import places_of, slot_at
from dshift.kernels import inlined, inner
from dshift.simd import LANES, highest_bit, lowest_bit

LISTED_BYTES = 4  # of a slot in a list

_ONE = np.uint64(1)
_NONE = np.uint64(0)


class Listing(NamedTuple):
    """What may be listed, and the list of one column."""

    possible: Any  # (tiles,) uint64: rows that are a member of any lane
    masks: Any  # (64 tiles,) uint64: by slot, the lanes that a row is a member of
    shown: Any  # (tiles,) uint64: rows whose masks are all lanes, the others' are none,
    mixed: Any  # (tiles,) bool: but in these tiles
    spots: Any  # (p, words) uint64: ranks of possible rows, where these are few
    marked: Any  # (1,) bool: whether they are
    listed: Any  # (2 n + 1,) int32: slots, outwards from the middle
    as_bytes: Any  # (1, 4 (2 n + 1)) uint8: the same memory
    starts: Any  # (2,) int64: the first place upwards of the run, and downwards
    ends: Any  # (2,) int64: behind the last place upwards, and before the last downwards
    edges: Any  # (2,) int64: what was not looked at yet, up and down: a place, or a marked rank


def make_listing(n_rows: int, n_columns: int, n_ranks: int) -> Listing:
    """Return scratch."""
    n_tiles = -(-n_rows // LANES)
    listed = np.empty(2 * n_rows + 1, np.int32)
    return Listing(
        possible=np.zeros(n_tiles, np.uint64),
        masks=np.zeros(n_tiles * LANES, np.uint64),
        shown=np.zeros(n_tiles, np.uint64),
        mixed=np.zeros(n_tiles, np.bool_),
        spots=np.zeros((n_columns, -(-n_ranks // LANES)), np.uint64),
        marked=np.zeros(1, np.bool_),
        listed=listed,
        as_bytes=listed.view(np.uint8).reshape(1, -1),
        starts=np.zeros(2, np.int64),
        ends=np.zeros(2, np.int64),
        edges=np.zeros(2, np.int64),
    )


class Rows(NamedTuple):
    """Slots by place, as `slot_at` reads them."""

    slots: Any  # the order of the columns, or a list as bytes
    slot_bytes: Any
    column: Any


@inlined
def rows_of(held, listing, k):
    """The rows that are looked at for column k."""
    if listing.marked[0]:
        return Rows(listing.as_bytes, LISTED_BYTES, np.int64(0))
    return Rows(held.order, held.slot_bytes, np.int64(k))


@inlined
def has(words, slot):
    """Whether a row is set, as a number. Unsigned numbers spare the look for negative indices."""
    slot = np.uint64(slot)
    return np.int64((words[slot >> np.uint64(6)] >> (slot & np.uint64(63))) & _ONE)


@inner
def mark_spots(ranks, possible, columns, n_columns, spots):
    """Mark the ranks of the possible rows in the first `n_columns` of some columns."""
    for tile in range(possible.shape[0]):
        word = possible[tile]
        while word != _NONE:
            slot = tile * LANES + lowest_bit(word)
            word &= word - _ONE
            for i in range(n_columns):
                rank = np.int64(ranks[slot, columns[i]])
                spots[columns[i], rank >> 6] |= _ONE << np.uint64(rank & 63)


@inner
def clear_spots(columns, n_columns, spots):
    """Take all marks of these columns away."""
    for i in range(n_columns):
        for word in range(spots.shape[1]):
            spots[columns[i], word] = _NONE


@inlined
def begin_list(held, listing, k, rank):
    """Begin at a rank of column k; its places in the order if it is of one run, or twice the first.

    Rows are looked at around it. Where several runs have that rank, they are upwards from the first
    of their rows.
    """
    first, last, alone = places_of(held.heads, held.shift, held.ranks.shape[0], k, rank)
    last = last if alone else first
    if listing.marked[0]:
        middle = listing.listed.shape[0] // 2
        listing.listed[middle] = slot_at(held.order, held.slot_bytes, k, first)
        listing.starts[0] = listing.ends[0] = middle + 1
        listing.starts[1] = listing.ends[1] = middle - 1
        listing.edges[0], listing.edges[1] = rank + np.int64(alone), rank - 1
    else:
        listing.starts[0] = listing.edges[0] = last
        listing.starts[1] = listing.edges[1] = first - 1
        listing.ends[0], listing.ends[1] = held.ranks.shape[0], -1
    return first, last


@inlined
def _list_rank(held, possible, listed, k, rank, step, end):
    """List the possible rows of a rank; the end of the list then."""
    first, last, _ = places_of(held.heads, held.shift, held.ranks.shape[0], k, rank)
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
def list_more(held, listing, k, side):
    """List more rows upwards (side 0) or downwards; the end now, which moves unless all are."""
    possible, listed, spots = listing.possible, listing.listed, listing.spots
    end, edge = listing.ends[side], listing.edges[side]
    if side == 0:
        end, edge = _list_marked_above(held, spots, possible, listed, k, end, edge)
    else:
        end, edge = _list_marked_below(held, spots, possible, listed, k, end, edge)
    listing.ends[side], listing.edges[side] = end, edge
    return end
