"""Members counted in many columns at a time, in vectors (see `simd`)."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dshift.simd import (
    I1,
    I16,
    I32,
    I64,
    LANES,
    RANKS_AT_ONCE,
    alone,
    load,
    opaque,
    pointer,
    splat,
    word_of,
)


def _count_function(module):
    """The loops of `count_rows`."""
    vector = ir.VectorType(I16, RANKS_AT_ONCE)
    at = I16.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [at, I64, I64, I64, at, at, I64])
    function, is_new = alone(module, "count_rows", kind)
    if not is_new:
        return function
    rows_at, n_columns, entered, left, bounds, home, padded = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    # Added under a mask, which is one instruction less than to make numbers of flags.
    one = splat(builder, builder.trunc(opaque(builder, I64(1)), I16), vector)
    entry = builder.block
    columns = function.append_basic_block("columns")
    builder.branch(columns)

    builder.position_at_end(columns)
    column = builder.phi(I64)
    column.add_incoming(I64(0), entry)
    limit = load(builder, vector, builder.gep(bounds, [column]))
    rows = builder.gep(rows_at, [column])
    homes = [
        builder.gep(home, [column]),
        builder.gep(home, [builder.add(column, padded)]),
    ]
    totals = [load(builder, vector, address) for address in homes]
    for word, combine in ((entered, builder.add), (left, builder.sub)):
        before = builder.block
        loop, done = (function.append_basic_block(name) for name in ("row", "done"))
        builder.cbranch(builder.icmp_unsigned("!=", word, I64(0)), loop, done)

        builder.position_at_end(loop)
        rest, sums = builder.phi(I64), [builder.phi(vector) for _ in totals]
        row = builder.cttz(rest, ir.Constant(I1, 1))
        row = load(builder, vector, builder.gep(rows, [builder.mul(row, n_columns)]))
        counted = [
            builder.select(builder.icmp_unsigned(how, row, limit), combine(total, one), total)
            for total, how in zip(sums, ("<", "<="), strict=True)
        ]
        others = builder.and_(rest, builder.sub(rest, I64(1)))
        for phi, start, after in ((rest, word, others), *zip(sums, totals, counted, strict=True)):
            phi.add_incoming(start, before)
            phi.add_incoming(after, loop)
        builder.cbranch(builder.icmp_unsigned("!=", others, I64(0)), loop, done)

        builder.position_at_end(done)
        ends = [builder.phi(vector) for _ in totals]
        for phi, start, after in zip(ends, totals, counted, strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(after, loop)
        totals = ends
    for address, total in zip(homes, totals, strict=True):
        builder.store(total, builder.bitcast(address, vector.as_pointer())).align = 2
    following = builder.add(column, I64(RANKS_AT_ONCE))
    column.add_incoming(following, builder.block)
    ended = function.append_basic_block("ended")
    builder.cbranch(builder.icmp_signed("<", following, n_columns), columns, ended)
    builder.position_at_end(ended)
    builder.ret_void()
    return function


@intrinsic
def count_rows(typingctx, ranks, tile, entered, left, bounds, counts, lane):
    """Add to counts[lane, 0] how many rows of a tile have a rank below their bound, by column.

    Rows of the word `entered` count up, those of `left` down; counts[lane, 1] has those below or
    at the bound. All of it modulo 2**16.
    """
    signature = types.void(
        ranks, types.int64, types.uint64, types.uint64, bounds, counts, types.int64
    )

    def emit(context, builder, sig, args):
        ranks_v, tile_v, entered_v, left_v, bounds_v, counts_v, lane_v = args
        n_columns, padded = (
            cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, array).shape)[
                axis
            ]
            for kind, array, axis in ((sig.args[0], ranks_v, 1), (sig.args[5], counts_v, 2))
        )
        first = builder.mul(builder.mul(tile_v, I64(LANES)), n_columns)
        home = builder.mul(builder.mul(lane_v, I64(2)), padded)
        builder.call(
            _count_function(builder.module),
            [
                pointer(context, builder, sig.args[0], ranks_v, first),
                n_columns,
                entered_v,
                left_v,
                pointer(context, builder, sig.args[4], bounds_v, I64(0)),
                pointer(context, builder, sig.args[5], counts_v, home),
                padded,
            ],
        )
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def lanes_changed(typingctx, words, at, before):
    """The lanes whose word differs from that of the lane before: words[at + lane], LANES of them.

    `before` is what the first lane is compared with.
    """

    def emit(context, builder, sig, args):
        row = ir.VectorType(I64, LANES)
        own = load(builder, row, pointer(context, builder, sig.args[0], args[0], args[1]))
        shifted = ir.Constant(ir.VectorType(I32, LANES), [LANES, *range(LANES - 1)])
        previous = builder.shuffle_vector(own, splat(builder, args[2], row), shifted)
        return word_of(builder, builder.icmp_unsigned("!=", own, previous))

    return types.uint64(words, types.int64, types.uint64), emit
