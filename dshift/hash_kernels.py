"""Compiled loops that number ids by the order in which they first occur; see `kernels`.

A hash table of `keys`, each with the number `held` in its slot, -1 where it is free. A loop goes on
from `start` until `found`, the rows where ids first occur, is full, so that its caller may give it
a larger table. One that grows inside the loop took four times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dshift.kernels import inlined, jit

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: spreads neighbours
LONG = np.uint64(0xFF << 56)  # in the keys of texts of 8 bytes and more
FREE_STEPS = 2**16  # beyond a few for each row: then keys fall together, as if by intent


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
def slot_of(key: Any, shift: Any) -> Any:
    """Return where to look for a key. Once spread, the digits of texts still fall together."""
    key *= SPREAD
    return ((key ^ (key >> np.uint64(32))) * SPREAD) >> np.uint64(shift)


@inlined
def word_of(data: Any, at: Any, size: Any) -> Any:
    """Return up to 8 bytes as one word, with zeros behind; little-endian, as all that numba has."""
    if at + 8 <= data.size:
        word = word_at(data, at)
        if size < 8:
            word &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
        return word
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return word


@inlined
def key_of(data: Any, at: Any, size: Any) -> Any:
    """Return the key of a text: up to 7 bytes the text itself, with its length; else a hash."""
    if size < 8:
        return word_of(data, at, size) | (np.uint64(size) << np.uint64(56))
    key = np.uint64(size)
    for k in range(0, size, 8):
        key = (key ^ word_of(data, at + k, min(8, size - k))) * SPREAD
        key ^= key >> np.uint64(32)
    return key | LONG


@inlined
def same_text(data: Any, one: Any, other: Any, size: Any) -> Any:
    """Tell whether two texts of one length are equal."""
    for k in range(0, size, 8):
        some = min(8, size - k)
        if word_of(data, one + k, some) != word_of(data, other + k, some):
            return False
    return True


@jit
def number_labels(
    labels: Any,
    start: Any,
    codes: Any,
    keys: Any,
    held: Any,
    shift: Any,
    found: Any,
    n_found: Any,
) -> Any:
    """Number whole numbers; return where it stopped, -1 if keys fall together, and how many."""
    last, one = np.uint64(held.size - 1), np.uint64(1)
    left = FREE_STEPS
    for i in range(start, labels.size):
        key = np.uint64(labels[i])
        slot = slot_of(key, shift)
        while keys[slot] != key or held[slot] < 0:
            if held[slot] < 0:
                if n_found == found.size:
                    return i, n_found
                keys[slot], held[slot], found[n_found] = key, n_found, i
                n_found += 1
                break
            slot = (slot + one) & last
            left -= 1
            if left + 8 * (i - start) < 0:
                return -1, n_found
        codes[i] = held[slot]
    return labels.size, n_found


@jit
def number_texts(
    offsets: Any,
    data: Any,
    start: Any,
    codes: Any,
    keys: Any,
    held: Any,
    shift: Any,
    found: Any,
    n_found: Any,
) -> Any:
    """Number texts, the bytes of `data` from one offset to the next; return as `number_labels`."""
    last, one = np.uint64(held.size - 1), np.uint64(1)
    left = FREE_STEPS
    for i in range(start, offsets.size - 1):
        at, size = offsets[i], offsets[i + 1] - offsets[i]
        key = key_of(data, at, size)
        slot = slot_of(key, shift)
        while True:
            code = held[slot]
            if code < 0:
                if n_found == found.size:
                    return i, n_found
                keys[slot], held[slot], found[n_found] = key, n_found, i
                n_found += 1
                break
            if keys[slot] == key:
                if key < LONG:
                    break
                other = offsets[found[code]]
                equal = offsets[found[code] + 1] - other == size
                if equal and same_text(data, at, other, size):
                    break
            slot = (slot + one) & last
            left -= 1
            if left + 8 * (i - start) < 0:
                return -1, n_found
        codes[i] = held[slot]
    return offsets.size - 1, n_found


@jit
def move_keys(keys: Any, held: Any, larger_keys: Any, larger_held: Any, shift: Any) -> None:
    """Put all keys, each of which occurs once, into a larger table."""
    last, one = np.uint64(larger_held.size - 1), np.uint64(1)
    for i in range(held.size):
        if held[i] >= 0:
            slot = slot_of(keys[i], shift)
            while larger_held[slot] >= 0:
                slot = (slot + one) & last
            larger_keys[slot], larger_held[slot] = keys[i], held[i]
