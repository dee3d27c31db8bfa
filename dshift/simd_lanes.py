"""Medians of 64 lanes at a time, in vectors (see `simd`): counted row by row."""

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
    load,
    opaque,
    pointer,
    splat,
    word_of,
)

BYTES = ir.VectorType(I8, LANES)
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


def slots_of(context, builder, kind, slots, column, slot_bytes):
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

        column_at, slot_bits = slots_of(
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


@intrinsic
def lanes_less(typingctx, counters, side, limit):
    """Word of the lanes with counters[side] < limit, as numbers with a sign."""

    def emit(context, builder, sig, args):
        at = builder.mul(args[1], I64(LANES))
        counts = load(builder, ROWS, pointer(context, builder, sig.args[0], args[0], at))
        limits = splat(builder, builder.trunc(args[2], I16))
        return word_of(builder, builder.icmp_signed("<", counts, limits))

    return types.uint64(counters, types.int64, types.int64), emit
