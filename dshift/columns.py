"""Compiled loops that sort the columns of the samples once, so that medians are found by counting.

`order[k]` lists the slots of rows by their value in column k, in as few bytes as hold them: two up
to 65,536 rows, three beyond (`slot_at`). Rows of one value are a *run*, and share a rank: the place
where the run begins. `ranks[row]` has a row's ranks in all columns, side by side: one pass over a
row compares it with the medians of all columns. Where rows are more than ranks, short runs share
them too; `heads` has a bit for every place where a run begins.
"""

from __future__ import annotations

import numpy as np

from dshift.kernels import inlined, inner, jit
from dshift.simd import EIGHT, LANES, QUAD, highest_bit, load_four, lowest_bit

COLUMNS_AT_ONCE = 4  # a cache line of coordinates: rows lie apart, and are visited once for eight
COLUMNS_COUNTED_AT_ONCE = 16  # half a cache line of ranks

MOVES_A_ROW = 4  # of a sort by insertion, after which the digits that are left take less

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS
# A word to sort is 32 bits of a key above the slot that has it.
_KEY_BITS = 32
_LOW = np.uint64((1 << _KEY_BITS) - 1)

_ONE = np.uint64(1)
_NONE = np.uint64(0)


# ---------------------------------------------------------------- slots


def bytes_of_slot(n_rows: int) -> int:
    """Return how many bytes hold the slot of any of so many rows."""
    return max(2, -(-(n_rows - 1).bit_length() // 8))


@inlined
def slot_at(order, slot_bytes, k, place):
    """The slot at a place of column k. There are four bytes to read from there, or more."""
    at = k * order.shape[1] + place * slot_bytes
    return load_four(order, at) & ((1 << (8 * slot_bytes)) - 1)


@inlined
def _put_slot(order, slot_bytes, place, slot):
    """Set the slot at a place of a column's order; others write beside it."""
    for byte in range(slot_bytes):
        order[place * slot_bytes + byte] = np.uint8((slot >> (8 * byte)) & 255)


# ---------------------------------------------------------------- sorting


@inner
def _sort_by_digit(words, lowest, starts, into):
    """One pass of a stable radix sort; False where all words have the same digit."""
    n = words.shape[0]
    bit, mask = np.uint64(lowest), np.uint64(_DIGITS - 1)
    starts[:] = 0
    for i in range(n):
        starts[(words[i] >> bit) & mask] += 1
    place = 0
    for digit in range(_DIGITS):
        count = starts[digit]
        if count == n:
            return False
        starts[digit] = place
        place += count
    for i in range(n):
        digit = (words[i] >> bit) & mask
        into[starts[digit]] = words[i]
        starts[digit] += 1
    return True


@inner
def _sort_by_digits(first, last, words, spare, starts, swapped):
    """Passes for the digits of words from bit `first` on; whether the words are in `spare`."""
    for lowest in range(first, last, _DIGIT_BITS):
        if swapped:
            swapped = not _sort_by_digit(spare, lowest, starts, words)
        else:
            swapped = _sort_by_digit(words, lowest, starts, spare)
    return swapped


@inner
def _insert(words, keys):
    """Put words that are nearly in order in the order of their keys; False where that is long."""
    n, n_moves = words.shape[0], 0
    for i in range(1, n):
        word, j = words[i], i
        high, key = word >> np.uint64(_KEY_BITS), keys[word & _LOW]
        while j > 0:
            other = words[j - 1]
            if other >> np.uint64(_KEY_BITS) < high or keys[other & _LOW] <= key:
                break
            words[j] = other
            j -= 1
        words[j] = word
        n_moves += i - j
        if n_moves > MOVES_A_ROW * n:
            return False
    return True


@inner
def _sort_column(keys, largest, words, spare, starts):
    """Slots in the order of their keys, in the low halves of words; ties keep the slots' order.

    Returns whether the words are in `spare`.
    """
    n, bits = keys.shape[0], 0
    while largest >> bits > 0:
        bits += 1
    # The two highest digits put most keys in order, and few others change places after that.
    shift = np.uint64(max(bits - _KEY_BITS, 0))
    for slot in range(n):
        words[slot] = (keys[slot] >> shift << np.uint64(_KEY_BITS)) | np.uint64(slot)
    last = _KEY_BITS + min(bits, _KEY_BITS)
    first = max(_KEY_BITS, last - 2 * _DIGIT_BITS)
    swapped = _sort_by_digits(first, last, words, spare, starts, False)
    if _insert(spare if swapped else words, keys):
        return swapped
    # Otherwise all digits are gone through, from the lowest, 32 bits of the keys at a time.
    # Whatever was moved until here, rows of one key are in the order of their slots.
    for begin in range(0, bits, _KEY_BITS):
        source = spare if swapped else words
        for i in range(n):
            slot = source[i] & _LOW
            source[i] = (keys[slot] >> np.uint64(begin) << np.uint64(_KEY_BITS)) | slot
        last = _KEY_BITS + min(bits - begin, _KEY_BITS)
        swapped = _sort_by_digits(_KEY_BITS, last, words, spare, starts, swapped)
    return swapped


@inner
def _reciprocal(divisor):
    """How often a number has the factor 2, and the inverse of the rest, modulo 2**64."""
    zeros = 0
    while (divisor >> zeros) & 1 == 0:
        zeros += 1
    odd = np.uint64(divisor >> zeros)
    inverse = odd  # right in its lowest 3 bits; each round doubles them
    for _ in range(5):
        inverse *= np.uint64(2) - odd * inverse
    return np.uint64(zeros), inverse


@inner
def _divides(zeros, inverse, most, row, lows):
    """Whether a divisor, as its reciprocal, divides all values of a row above `lows`."""
    n_not = 0
    for k in range(row.shape[0]):
        value = np.uint64(row[k] - lows[k])
        quotient = (value >> zeros) * inverse  # larger than any, where something remains
        n_not += np.int64(quotient > most) + np.int64((value >> zeros) << zeros != value)
    return n_not == 0


@jit
def common_divisor(coords, lows):
    """Greatest common divisor of all coordinates above `lows`; stops at 2, which even ones have.

    Most rows only confirm it, by products: divisions took ten times as long.
    """
    divisor = np.int64(0)
    zeros, inverse, most = np.uint64(63), _ONE, _ONE  # of 2**63, which divides nothing but 0
    for i in range(coords.shape[0]):
        if _divides(zeros, inverse, most, coords[i], lows):
            continue
        for k in range(coords.shape[1]):
            a, b = divisor, coords[i, k] - lows[k]
            while b != 0:
                a, b = b, a % b
            divisor = a
        if divisor == 2:
            break
        zeros, inverse = _reciprocal(divisor)
        most = ~_NONE // np.uint64(divisor >> np.int64(zeros))
    return divisor


@inner
def _rank_of_run(begin, end, shift):
    """The rank of the rows from place `begin` to `end` - 1."""
    # A run that is longer than two ranks has one of its own: no other begins so near it.
    alone = end - begin >= 2 << shift
    return (begin + (1 << shift) - 1) >> shift if alone else begin >> shift


@inner
def _rank_runs(keys, words, shift, order, slot_bytes, heads, ranks):
    """Fill the order, heads and ranks of a column from its sorted words."""
    n = keys.shape[0]
    heads[:] = _NONE
    begin = 0
    while begin < n:
        key, end = keys[words[begin] & _LOW], begin + 1
        while end < n and keys[words[end] & _LOW] == key:
            end += 1
        heads[begin >> 6] |= _ONE << np.uint64(begin & 63)
        rank = _rank_of_run(begin, end, shift)
        for place in range(begin, end):
            slot = np.int64(words[place] & _LOW)
            _put_slot(order, slot_bytes, place, slot)
            ranks[slot] = rank
        begin = end


@jit
def sort_columns(coords, rows, lows, divisor, first, last, shift, slot_bytes, order, heads, ranks):
    """Fill order[k], heads[k] and ranks[:, k] for columns first <= k < last.

    Keys are values above `lows`, of which `divisor` is a common divisor; ties keep the rows' order.
    Ranks are places without their lowest `shift` bits. Radix sort: most keys take two passes, and
    no distribution of values more than seven.
    """
    n = rows.shape[0]
    keys = np.empty((COLUMNS_AT_ONCE, n), np.uint64)
    runs = np.empty((COLUMNS_AT_ONCE, n), np.uint16)
    words, spare = np.empty(n, np.uint64), np.empty(n, np.uint64)
    starts = np.empty(_DIGITS, np.int64)
    # Nothing remains, so a product divides: a division takes ten times as long.
    zeros, inverse = _reciprocal(divisor)
    for begin in range(first, last, COLUMNS_AT_ONCE):
        end = min(begin + COLUMNS_AT_ONCE, last)
        for slot in range(n):
            row = rows[slot]
            for k in range(begin, end):
                keys[k - begin, slot] = (np.uint64(coords[row, k] - lows[k]) >> zeros) * inverse
        for k in range(begin, end):
            largest = 0
            for slot in range(n):
                largest = max(largest, np.int64(keys[k - begin, slot]))
            swapped = _sort_column(keys[k - begin], largest, words, spare, starts)
            source = spare if swapped else words
            column, rank = keys[k - begin], runs[k - begin]
            _rank_runs(column, source, shift, order[k], slot_bytes, heads[k], rank)
        for slot in range(n):
            for k in range(begin, end):
                ranks[slot, k] = runs[k - begin, slot]


@inner
def _largest_code(codes, first, last):
    largest = np.uint16(0)
    for tile in range(codes.shape[0]):
        for eight in range(codes.shape[1]):
            for quad in range(first // QUAD, (last + QUAD - 1) // QUAD):
                for row in range(EIGHT):
                    for column in range(QUAD):
                        largest = max(largest, codes[tile, eight, quad, row, column])
    return np.int64(largest)


@jit
def count_columns(codes, first, last, shift, slot_bytes, order, heads, ranks):
    """As `sort_columns`, where codes stand for one value each: counted, they are sorted.

    They are few, and those of four columns lie together: half the time. `first` begins a quad.
    """
    n = ranks.shape[0]
    n_codes = _largest_code(codes, first, last) + 1
    starts = np.empty((QUAD, n_codes), np.int64)
    rank_of = np.empty((QUAD, n_codes), np.uint16)
    for k in range(first, last, QUAD):
        n_columns, quad = min(QUAD, last - k), k // QUAD
        starts[:] = 0
        for slot in range(n):
            tile, lane = slot // LANES, slot % LANES
            for c in range(n_columns):
                starts[c, codes[tile, lane // EIGHT, quad, lane % EIGHT, c]] += 1
        for c in range(n_columns):
            heads[k + c, :] = _NONE
            begin = 0
            for code in range(n_codes):
                end = begin + starts[c, code]
                starts[c, code] = begin
                if end > begin:
                    heads[k + c, begin >> 6] |= _ONE << np.uint64(begin & 63)
                    rank_of[c, code] = _rank_of_run(begin, end, shift)
                begin = end
        for slot in range(n):
            tile, lane = slot // LANES, slot % LANES
            for c in range(n_columns):
                code = codes[tile, lane // EIGHT, quad, lane % EIGHT, c]
                _put_slot(order[k + c], slot_bytes, starts[c, code], slot)
                starts[c, code] += 1
                ranks[slot, k + c] = rank_of[c, code]


@inner
def _next_head(heads, k, place, n_rows):
    """The first place behind `place` where a run of column k begins, or the end."""
    at = (place + 1) >> 6
    above = ~_NONE << np.uint64((place + 1) & 63)
    while at < heads.shape[1]:
        word = heads[k, at] & above
        if word != _NONE:
            return at * 64 + lowest_bit(word)
        at, above = at + 1, ~_NONE
    return n_rows


@inner
def _head_of(heads, k, place):
    """Where the run of column k begins that has a place."""
    at = place >> 6
    word = heads[k, at] & (~_NONE >> np.uint64(63 - (place & 63)))
    while word == _NONE:
        at -= 1
        word = heads[k, at]
    return at * 64 + highest_bit(word)


@inner
def places_of(heads, shift, n_rows, k, rank):
    """First and last + 1 of the places of a rank in column k, and whether they are one run.

    All of it by the heads of runs: to look at the ranks of rows, which lie all over, was a
    twentieth of the time of 106,695 first names.
    """
    first = rank << shift
    if shift == 0:
        return first, _next_head(heads, k, first, n_rows), True
    # A run with a rank of its own may begin before that place, a short one behind it.
    first = _head_of(heads, k, first)
    last = _next_head(heads, k, first, n_rows)
    if _rank_of_run(first, last, shift) != rank:
        first, last = last, _next_head(heads, k, last, n_rows)
    n_runs = 1
    while last < n_rows:
        after = _next_head(heads, k, last, n_rows)
        if _rank_of_run(last, after, shift) != rank:
            break
        n_runs, last = n_runs + 1, after
    return first, last, n_runs == 1
