"""Medians of 64 lanes at a time, in vectors (see `simd`): counted row by row, and added up."""

from __future__ import annotations

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from dshift.simd import (
    I1,
    I8,
    I16,
    I32,
    I64,
    LANES,
    ROWS,
    alone,
    fetch,
    load,
    opaque,
    pointer,
    splat,
    word_of,
)

BYTES = ir.VectorType(I8, LANES)
NOTE_BITS = 32  # of what `note_crossings` returns that say how many notes
ROWS_CROSSED = 124  # that 8 bits count, above the 2 that lie behind both medians of a lane


def _has_mask_registers():
    """Whether numba compiles for a machine with registers for flags of 16-bit lanes."""
    if config.CPU_FEATURES is not None:
        return "+avx512bw" in config.CPU_FEATURES
    return config.CPU_NAME is None and bool(get_host_cpu_features().get("avx512bw"))


def _flags_by_masks(builder, word):
    """The bits of a word, a flag each: a register for masks holds them as they are."""
    return builder.bitcast(word, ir.VectorType(I1, LANES))


def _flags_by_bytes(builder, word):
    """The same for registers without masks: LLVM would take the bits of a word apart one by one."""
    parts = builder.bitcast(word, ir.VectorType(I8, 8))
    where = ir.Constant(ir.VectorType(I32, LANES), [lane // 8 for lane in range(LANES)])
    spread = builder.shuffle_vector(parts, parts, where)
    own = ir.Constant(BYTES, [1 << lane % 8 for lane in range(LANES)])
    return builder.icmp_unsigned("==", builder.and_(spread, own), own)


def _clipped(builder, counts, least, most):
    """Counts of 16 bits as 8 bits, with those that are less or more brought to the ends."""
    for name, bound in (("smax", least), ("smin", most)):
        kind = ir.FunctionType(ROWS, [ROWS] * 2)
        limit = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{LANES}i16")
        counts = builder.call(limit, [counts, ir.Constant(ROWS, [bound & 0xFFFF] * LANES)])
    return builder.trunc(counts, BYTES)


def _crossings_function(module):
    """The loop of `find_crossings`."""
    bytes_at, words_at = I8.as_pointer(), I64.as_pointer()
    kind = ir.FunctionType(
        ir.VoidType(),
        [bytes_at, I64, bytes_at, I32, words_at, ROWS.as_pointer(), BYTES.as_pointer(), words_at],
    )
    function, is_new = alone(module, "find_crossings", kind)
    if not is_new:
        return function
    first, stride, end, slot_bits, masks, home, marks, crossed_at = function.args
    flags_of = _flags_by_masks if _has_mask_registers() else _flags_by_bytes
    zero = ir.Constant(BYTES, [0] * LANES)
    entry, loop, done = (function.append_basic_block(name) for name in ("entry", "row", "done"))

    builder = ir.IRBuilder(entry)
    one = splat(builder, builder.trunc(opaque(builder, I64(1)), I8), BYTES)
    counts, crossing = load(builder, ROWS, home), load(builder, BYTES, marks)
    before = _clipped(builder, counts, -128, 127 - ROWS_CROSSED)
    builder.branch(loop)

    builder.position_at_end(loop)
    at, to, lanes = builder.phi(bytes_at), builder.phi(words_at), builder.phi(BYTES)
    slot = builder.load(builder.bitcast(at, I32.as_pointer()))
    slot.align = 1
    slot = builder.zext(builder.and_(slot, slot_bits), I64)
    flags = flags_of(builder, builder.load(builder.gep(masks, [slot])))
    counted = builder.select(flags, builder.add(lanes, one), lanes)
    at_zero = builder.icmp_unsigned("==", builder.and_(counted, crossing), zero)
    builder.store(word_of(builder, builder.and_(at_zero, flags)), to)
    following, next_to = builder.gep(at, [stride]), builder.gep(to, [I64(1)])
    builder.cbranch(builder.icmp_unsigned("!=", following, end), loop, done)
    for phi, at_first, later in (
        (at, first, following),
        (to, crossed_at, next_to),
        (lanes, before, counted),
    ):
        phi.add_incoming(at_first, entry)
        phi.add_incoming(later, loop)

    builder.position_at_end(done)
    gained = builder.zext(builder.sub(counted, before), ROWS)
    builder.store(builder.add(counts, gained), home).align = 2
    builder.ret_void()
    return function


def _slots_of(context, builder, kind, slots, column, slot_bytes):
    """Where the slots of a column are, and the bits of four bytes that one of them has."""
    array = context.make_array(kind)(context, builder, slots)
    width = cgutils.unpack_tuple(builder, array.shape)[1]
    bits = builder.sub(builder.shl(I64(1), builder.mul(slot_bytes, I64(8))), I64(1))
    return builder.gep(array.data, [builder.mul(column, width)]), builder.trunc(bits, I32)


@intrinsic
def find_crossings(
    typingctx,
    slots,
    slot_bytes,
    column,
    first,
    last,
    step,
    masks,
    counters,
    side,
    marks,
    crossed,
):
    """Count rows in the lanes of counters[side]: those at places first, first + step ... to `last`.

    There is one at least, and that at `last` is left out. A place i of a column has the slot of its
    row in `slot_bytes` bytes of `slots`, from which four may be read. A lane counts up with every
    row of whose masks[slot] it is a bit, and crosses where its count has no bit in common with its
    mark, so at 0, or at 0 and 1. What lanes cross at a row is told in `crossed`, row by row: to
    note only rows where some do took nearly twice the time. There are ROWS_CROSSED at most, so that
    8 bits count them: a lane that is farther from 0 does not come there.
    """
    integer = types.int64
    signature = types.void(
        slots,
        integer,
        integer,
        integer,
        integer,
        integer,
        masks,
        counters,
        integer,
        marks,
        crossed,
    )

    def emit(context, builder, sig, args):
        slots_v, slot_bytes_v, column_v, first_v, last_v, step_v = args[:6]

        def data(which, offset, kind):
            address = pointer(context, builder, sig.args[which], args[which], offset)
            return builder.bitcast(address, kind.as_pointer())

        column_at, slot_bits = _slots_of(
            context, builder, sig.args[0], slots_v, column_v, slot_bytes_v
        )
        builder.call(
            _crossings_function(builder.module),
            [
                builder.gep(column_at, [builder.mul(first_v, slot_bytes_v)]),
                builder.mul(step_v, slot_bytes_v),
                builder.gep(column_at, [builder.mul(last_v, slot_bytes_v)]),
                slot_bits,
                data(6, I64(0), I64),
                data(7, builder.mul(args[8], I64(LANES)), ROWS),
                data(9, I64(0), BYTES),
                data(10, I64(0), I64),
            ],
        )
        return context.get_dummy_value()

    return signature, emit


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
    builder, all_rows = ir.IRBuilder(entry), ir.VectorType(I64, LANES)
    none, every = I64(0), I64(-1)

    def set_among(half, n_behind):
        """Which of 64 rows are crossed at, but for the last `n_behind`."""
        words = load(builder, all_rows, builder.gep(crossed, [I64(half * LANES)]))
        zeros = ir.Constant(all_rows, [0] * LANES)
        some = word_of(builder, builder.icmp_unsigned("!=", words, zeros))
        kept = builder.select(
            builder.icmp_signed(">=", n_behind, I64(LANES)),
            none,
            builder.lshr(every, builder.select(_below(builder, n_behind), none, n_behind)),
        )
        return builder.and_(some, kept)

    near = set_among(0, builder.sub(I64(LANES), n_rows))
    far = set_among(1, builder.sub(I64(2 * LANES), n_rows))
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


def _below(builder, number):
    """Whether a number is less than 0."""
    return builder.icmp_signed("<", number, I64(0))


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

        column_at, slot_bits = _slots_of(
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


@intrinsic
def lanes_less(typingctx, counters, side, limit):
    """Word of the lanes with counters[side] < limit, as numbers with a sign."""

    def emit(context, builder, sig, args):
        at = builder.mul(args[1], I64(LANES))
        counts = load(builder, ROWS, pointer(context, builder, sig.args[0], args[0], at))
        limits = splat(builder, builder.trunc(args[2], I16))
        return word_of(builder, builder.icmp_signed("<", counts, limits))

    return types.uint64(counters, types.int64, types.int64), emit


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
