"""Compiled loops that number ids by the order in which they first occur; see `kernels`.

A hash table of `slots`, each a key and its number, side by side so that one line of the cache holds
both. Keys are kept as they come out of `spread`, which gives every word another one: their upper
bits are the slot where they belong, and the next ones follow where that is taken. A key in its own
slot, as most are, is found without a branch, many rows at a time; the rows that are left are tried
again in the next slots, and only then one by one.

The loop goes on from `start` until `found`, the rows where ids first occur, is full, so that its
caller may give it a larger table. One that grows inside the loop took four times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dshift.kernels import inlined, inner, jit

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: spreads neighbours
LONG = np.uint64(0xFF << 56)  # in the keys of texts of 8 bytes and more
FREE = np.uint64(2**64 - 1)  # the number of a slot that holds no key
AHEAD = 3  # slots behind its own in which a key is looked for without a branch
STEPS = 2**16  # of a batch, from slot to slot: with more, keys fall together, as if by intent


@intrinsic
def word_at(typingctx, data, at):
    """Return the 8 bytes from data[at] on, wherever that is: numba reads aligned words alone."""

    def emit(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(array.data, [args[1]])
        word = builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(data, types.int64), emit


@inlined
def spread(key: Any) -> Any:
    """Return another word for each. Once multiplied, the digits of texts still fall together."""
    key *= SPREAD
    return (key ^ (key >> np.uint64(32))) * SPREAD


@inlined
def cut(word: Any, size: Any) -> Any:
    """Return the first bytes of a word, fewer than 8, with zeros behind."""
    return word & ((np.uint64(1) << np.uint64(8 * size)) - np.uint64(1))


@inlined
def word_of(data: Any, at: Any, size: Any) -> Any:
    """Return up to 8 bytes as one word, with zeros behind; little-endian, as all that numba has."""
    if at + 8 <= data.size:
        word = word_at(data, at)
        return word if size >= 8 else cut(word, size)
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return word


@inlined
def short_key(word: Any, size: Any) -> Any:
    """Return the key of a text of up to 7 bytes: the text itself, with its length."""
    return word | (np.uint64(size) << np.uint64(56))


@inlined
def key_of(data: Any, at: Any, size: Any) -> Any:
    """Return the key of a text, of 8 bytes and more a hash."""
    if size < 8:
        return short_key(word_of(data, at, size), size)
    key = np.uint64(size)
    for k in range(0, size, 8):
        key = (key ^ word_of(data, at + k, min(8, size - k))) * SPREAD
        key ^= key >> np.uint64(32)
    return key | LONG


@inner
def key_labels(labels: Any, keys: Any) -> None:
    """Write the keys of whole numbers."""
    for i in range(labels.size):
        keys[i] = spread(np.uint64(labels[i]))


@inner
def key_texts(offsets: Any, data: Any, keys: Any) -> Any:
    """Write the keys of texts; return the bytes of the longest.

    Where all are short, and words can be read whole, in two loops without a branch.
    """
    n, longest = offsets.size - 1, 0
    for i in range(n):
        longest = max(longest, offsets[i + 1] - offsets[i])
    if longest < 8 and offsets[n - 1] + 8 <= data.size:
        for i in range(n):
            keys[i] = word_at(data, offsets[i])
        for i in range(n):
            size = offsets[i + 1] - offsets[i]
            keys[i] = spread(short_key(cut(keys[i], size), size))
    else:
        for i in range(n):
            keys[i] = spread(key_of(data, offsets[i], offsets[i + 1] - offsets[i]))
    return longest


@inner
def look_up(keys: Any, slots: Any, shift: Any, codes: Any, left: Any) -> Any:
    """Write the numbers of keys that are in their own slot; list the others, return how many.

    What a free slot has for a key belongs elsewhere, see `move_keys`.
    """
    n_left = 0
    for i in range(codes.size):
        slot = keys[i] >> shift
        codes[i] = np.int32(slots[slot, 1])
        left[n_left] = i
        n_left += np.int64(slots[slot, 0] != keys[i])
    return n_left


@inner
def look_ahead(
    keys: Any, slots: Any, shift: Any, ahead: Any, codes: Any, left: Any, n_left: Any
) -> Any:
    """Look for those that are left some slots ahead; return how many are left then."""
    last, n_still = np.uint64(slots.shape[0] - 1), 0
    for k in range(n_left):
        i = left[k]
        slot = ((keys[i] >> shift) + np.uint64(ahead)) & last
        codes[i] = np.int32(slots[slot, 1])
        left[n_still] = i
        n_still += np.int64((slots[slot, 0] != keys[i]) | (slots[slot, 1] == FREE))
    return n_still


@inner
def settle(
    keys: Any,
    slots: Any,
    shift: Any,
    start: Any,
    codes: Any,
    left: Any,
    found: Any,
    n_found: Any,
) -> Any:
    """Number those that are left, new ones too; return how many rows have a number, and ids.

    Fewer rows than there are where `found` is full, and -1 where keys fall together.
    """
    last, n_steps = np.uint64(slots.shape[0] - 1), 0
    for i in left:
        slot = keys[i] >> shift
        while slots[slot, 1] != FREE and slots[slot, 0] != keys[i]:
            slot = (slot + np.uint64(1)) & last
            n_steps += 1
            if n_steps > STEPS:
                return -1, n_found
        if slots[slot, 1] == FREE:
            if n_found == found.size:
                return np.int64(i), n_found
            slots[slot, 0], slots[slot, 1], found[n_found] = keys[i], n_found, start + i
            n_found += 1
        codes[i] = np.int32(slots[slot, 1])
    return codes.size, n_found


@inner
def same_texts(offsets: Any, data: Any, start: Any, codes: Any, found: Any) -> Any:
    """Tell whether texts of one number are equal: of 8 bytes and more, their hashes are."""
    for i in range(codes.size):
        at, first = offsets[start + i], found[codes[i]]
        size, other = offsets[start + i + 1] - at, offsets[first]
        if size >= 8 and size != offsets[first + 1] - other:
            return False
        for k in range(0, size if size >= 8 else 0, 8):
            some = min(8, size - k)
            if word_of(data, at + k, some) != word_of(data, other + k, some):
                return False
    return True


@jit
def number_ids(
    ids: Any,
    data: Any,
    start: Any,
    codes: Any,
    slots: Any,
    shift: Any,
    found: Any,
    n_found: Any,
    keys: Any,
    left: Any,
) -> Any:
    """Number whole numbers, or texts, which are bytes of `data` from one of `ids` to the next.

    Return where it stopped, -1 if it cannot tell ids apart by their keys, and how many there are.
    """
    shift, longest = np.uint64(shift), 0
    while start < codes.size:
        some = codes[start : start + keys.size]
        if data is None:
            key_labels(ids[start : start + keys.size], keys)
        else:
            longest = key_texts(ids[start : start + keys.size + 1], data, keys)
        n_left, ahead = look_up(keys, slots, shift, some, left), 1
        while ahead <= AHEAD and n_left <= some.size // 2:  # else most are new
            n_left = look_ahead(keys, slots, shift, ahead, some, left, n_left)
            ahead += 1
        open_rows = left[:n_left]
        n_done, n_found = settle(keys, slots, shift, start, some, open_rows, found, n_found)
        told_apart = n_done >= 0
        if data is not None:
            numbered = some[: max(n_done, 0)]
            told_apart &= longest < 8 or same_texts(ids, data, start, numbered, found)
        if not told_apart:
            return -1, n_found
        start += n_done
        if n_done < some.size:
            break
    return start, n_found


@jit
def move_keys(slots: Any, larger: Any, shift: Any) -> None:
    """Put all keys into a larger table, of which the other slots are free.

    A free slot has a key that belongs half the table away: no key that belongs there equals it.
    """
    last, half = np.uint64(larger.shape[0] - 1), np.uint64(larger.shape[0] // 2)
    shift = np.uint64(shift)
    for i in range(larger.shape[0]):
        larger[i, 0], larger[i, 1] = (np.uint64(i) ^ half) << shift, FREE
    for i in range(slots.shape[0]):
        if slots[i, 1] != FREE:
            slot = slots[i, 0] >> shift
            while larger[slot, 1] != FREE:
                slot = (slot + np.uint64(1)) & last
            larger[slot, 0], larger[slot, 1] = slots[i, 0], slots[i, 1]
