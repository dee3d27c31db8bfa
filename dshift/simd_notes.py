"""Rows that are medians, noted with their lanes, and their values added up (see `simd`)."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dshift.simd import I1, I8, I32, I64, LANES, alone, fetch, load, pointer, splat, word_of
from dshift.simd_lanes import slots_of

NOTE_BITS = 32  # of what `note_crossings` returns that say how many notes


def _crossed_among(builder, crossed, half, n_rows):
    """Which of 64 rows are crossed at: the first 64 of `n_rows`, or the others."""
    rows, none = ir.VectorType(I64, LANES), I64(0)
    words = load(builder, rows, builder.gep(crossed, [I64(half * LANES)]))
    some = word_of(builder, builder.icmp_unsigned("!=", words, ir.Constant(rows, [0] * LANES)))
    n_here = builder.sub(n_rows, I64(half * LANES))
    # A word cannot be shifted by as many bits as it has.
    before_last = builder.sub(builder.shl(I64(1), builder.and_(n_here, I64(LANES - 1))), I64(1))
    is_whole = builder.icmp_signed(">=", n_here, I64(LANES))
    is_none = builder.icmp_signed("<=", n_here, none)
    kept = builder.select(is_whole, I64(-1), builder.select(is_none, none, before_last))
    return builder.and_(some, kept)


def _noting_function(module):
    """The loop of `note_crossings`."""
    bytes_at, words_at = I8.as_pointer(), I64.as_pointer()
    kind = ir.FunctionType(
        I64,
        [bytes_at, I64, I32, words_at, I64, words_at, words_at, I64, words_at, I64, I1, words_at],
    )
    function, is_new = alone(module, "note_crossings", kind)
    if not is_new:
        return function
    first, stride, slot_bits, crossed, n_rows, rows, column, width = function.args[:8]
    notes, watched, is_first, found = function.args[8:]
    entry, loop, done = (function.append_basic_block(name) for name in ("entry", "note", "done"))
    builder, none = ir.IRBuilder(entry), I64(0)
    near, far = (_crossed_among(builder, crossed, half, n_rows) for half in range(2))
    known = builder.load(found)
    any_row = builder.icmp_unsigned("!=", builder.or_(near, far), none)
    builder.cbranch(any_row, loop, done)

    # One loop over both words: where it ends is foreseen wrongly as a rule.
    builder.position_at_end(loop)
    near_now, far_now, to = builder.phi(I64), builder.phi(I64), builder.phi(words_at)
    count, slot_found = builder.phi(I64), builder.phi(I64)
    is_far = builder.icmp_unsigned("==", near_now, none)
    word = builder.select(is_far, far_now, near_now)
    bit = builder.cttz(word, ir.Constant(I1, 1))
    row = builder.or_(bit, builder.select(is_far, I64(LANES), none))
    others = builder.and_(word, builder.sub(word, I64(1)))
    near_next = builder.select(is_far, none, others)
    far_next = builder.select(is_far, others, far_now)
    lanes = builder.load(builder.gep(crossed, [row]))
    at = builder.gep(first, [builder.mul(row, stride)])
    slot = builder.load(builder.bitcast(at, I32.as_pointer()))
    slot.align = 1
    slot = builder.zext(builder.and_(slot, slot_bits), I64)
    source = builder.load(builder.gep(rows, [slot]))
    # The values lie in rows all over the samples, and come while others are looked for.
    value_at = builder.gep(column, [builder.mul(source, width)])
    fetch(builder, value_at)
    builder.store(source, to)
    builder.store(lanes, builder.gep(to, [I64(1)]))
    is_watched = builder.icmp_unsigned("!=", builder.and_(lanes, watched), none)
    is_new_one = builder.icmp_signed("<", slot_found, none)
    takes = builder.and_(is_watched, builder.or_(is_new_one, builder.not_(is_first)))
    slot_now = builder.select(takes, slot, slot_found)
    counted = builder.add(count, builder.ctpop(lanes))
    to_next = builder.gep(to, [I64(2)])
    left = builder.icmp_unsigned("!=", builder.or_(near_next, far_next), none)
    builder.cbranch(left, loop, done)
    for phi, at_first, later in (
        (near_now, near, near_next),
        (far_now, far, far_next),
        (to, notes, to_next),
        (count, none, counted),
        (slot_found, known, slot_now),
    ):
        phi.add_incoming(at_first, entry)
        phi.add_incoming(later, loop)

    builder.position_at_end(done)
    ends = []
    for at_first, later in ((none, counted), (notes, to_next), (known, slot_now)):
        end = builder.phi(later.type)
        end.add_incoming(at_first, entry)
        end.add_incoming(later, loop)
        ends.append(end)
    n_crossed, last_note, slot_of_lane = ends
    builder.store(slot_of_lane, found)
    bytes_noted = builder.sub(builder.ptrtoint(last_note, I64), builder.ptrtoint(notes, I64))
    n_notes = builder.lshr(bytes_noted, I64(4))
    builder.ret(builder.or_(builder.shl(n_crossed, I64(NOTE_BITS)), n_notes))
    return function


@intrinsic
def note_crossings(
    typingctx,
    slots,
    slot_bytes,
    column,
    first,
    step,
    crossed,
    n_rows,
    rows,
    coords,
    k,
    notes,
    n,
    watched,
    is_first,
    found,
):
    """Note the rows where lanes cross, of those that `find_crossings` told of, behind `n` others.

    A note is a row of the samples and the lanes. `found[0]` becomes the slot of a row that a lane
    of the word `watched` crosses at: the first one, if it was below 0, or else the last. Returns
    how many were noted, and above these NOTE_BITS how often lanes crossed.
    """
    integer = types.int64
    signature = types.int64(
        slots,
        integer,
        integer,
        integer,
        integer,
        crossed,
        integer,
        rows,
        coords,
        integer,
        notes,
        integer,
        types.uint64,
        types.boolean,
        found,
    )

    def emit(context, builder, sig, args):
        slots_v, slot_bytes_v, column_v, first_v, step_v = args[:5]

        def data(which, offset):
            return pointer(context, builder, sig.args[which], args[which], offset)

        column_at, slot_bits = slots_of(
            context, builder, sig.args[0], slots_v, column_v, slot_bytes_v
        )
        shape = context.make_array(sig.args[8])(context, builder, args[8]).shape
        return builder.call(
            _noting_function(builder.module),
            [
                builder.gep(column_at, [builder.mul(first_v, slot_bytes_v)]),
                builder.mul(step_v, slot_bytes_v),
                slot_bits,
                data(5, I64(0)),
                args[6],
                data(7, I64(0)),
                data(8, args[9]),
                cgutils.unpack_tuple(builder, shape)[1],
                data(10, builder.shl(args[11], I64(1))),
                args[12],
                builder.trunc(args[13], I1) if args[13].type != I1 else args[13],
                data(14, I64(0)),
            ],
        )

    return signature, emit


def _adding_function(module):
    """The loop of `add_to_lanes`."""
    quarter, words_at = ir.VectorType(I64, LANES // 4), I64.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [words_at, I64, words_at, I64, words_at])
    function, is_new = alone(module, "add_to_lanes", kind)
    if not is_new:
        return function
    column_at, n_columns, notes, count, totals = function.args
    zero = ir.Constant(quarter, [0] * quarter.count)
    entry, loop, done = (function.append_basic_block(name) for name in ("entry", "add", "done"))
    builder = ir.IRBuilder(entry)
    builder.branch(loop)

    builder.position_at_end(loop)
    i, lanes = builder.phi(I64), [builder.phi(quarter) for _ in range(4)]
    note = builder.gep(notes, [builder.shl(i, I64(1))])
    value = builder.load(builder.gep(column_at, [builder.mul(builder.load(note), n_columns)]))
    value = splat(builder, value, quarter)
    word = splat(builder, builder.load(builder.gep(note, [I64(1)])), quarter)
    added = []
    for q, lane in enumerate(lanes):
        own = ir.Constant(quarter, [1 << (q * 16 + bit) for bit in range(16)])
        has = builder.icmp_unsigned("!=", builder.and_(word, own), zero)
        added.append(builder.add(lane, builder.select(has, value, zero)))
    following = builder.add(i, I64(1))
    builder.cbranch(builder.icmp_signed("<", following, count), loop, done)
    for phi, before, after in (
        (i, I64(0), following),
        *((lane, zero, after) for lane, after in zip(lanes, added, strict=True)),
    ):
        phi.add_incoming(before, entry)
        phi.add_incoming(after, loop)

    builder.position_at_end(done)
    for q, total in enumerate(added):
        home = builder.gep(totals, [I64(q * quarter.count)])
        builder.store(total, builder.bitcast(home, quarter.as_pointer())).align = 8
    builder.ret_void()
    return function


@intrinsic
def add_to_lanes(typingctx, coords, column, notes, n, totals):
    """Set totals (64,) to sums of values: coords[row, column] in the lanes of its word.

    The first `n` notes, one or more, are a row and a word each.
    """
    signature = types.void(coords, types.int64, notes, types.int64, totals)

    def emit(context, builder, sig, args):
        coords_array = context.make_array(sig.args[0])(context, builder, args[0])
        first = I64(0)
        builder.call(
            _adding_function(builder.module),
            [
                builder.gep(coords_array.data, [args[1]]),
                cgutils.unpack_tuple(builder, coords_array.shape)[1],
                pointer(context, builder, sig.args[2], args[2], first),
                args[3],
                pointer(context, builder, sig.args[4], args[4], first),
            ],
        )
        return context.get_dummy_value()

    return signature, emit
