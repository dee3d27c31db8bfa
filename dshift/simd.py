"""Vector primitives that numba cannot express: many lanes of uint16 at a time.

numba promotes small integers to int64, which defeats auto-vectorisation of 16-bit lanes, so these
primitives are written as generic LLVM vector IR (such as `<64 x i16>`). LLVM splits vectors into
whatever registers the machine has (2 of AVX-512, 4 of AVX2, 8 of SSE2 or NEON): the same bits
everywhere.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 64  # rows in a tile: one bit of a uint64 word each
QUERIES = 4  # query points per pass over a tile, held in registers
RANKS_AT_ONCE = 32  # columns of a row of ranks: one cache line

_I1, _I16, _I64 = ir.IntType(1), ir.IntType(16), ir.IntType(64)
_VEC = ir.VectorType(_I16, LANES)


def _saturating(builder, name, left, right):
    """`llvm.uadd.sat` / `llvm.usub.sat` on a vector of lanes."""
    kind = ir.FunctionType(_VEC, [_VEC, _VEC])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.sat.v{LANES}i16")
    return builder.call(function, [left, right])


def _splat(builder, scalar):
    """A vector whose lanes all hold `scalar`."""
    one = builder.insert_element(ir.Constant(_VEC, ir.Undefined), scalar, ir.Constant(_I64, 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_VEC, ir.Undefined), zeros)


def _pointer(context, builder, array_type, array, offset):
    """Address of the element `offset` of a C-contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def _load_lanes(builder, pointer):
    vector = builder.load(builder.bitcast(pointer, _VEC.as_pointer()))
    vector.align = 2
    return vector


def _word(builder, flags):
    """One bit a lane."""
    return builder.bitcast(flags, _I64)


@intrinsic
def l1_tile(typingctx, codes, tile, points, first, n_columns, distances):
    """distances[q, lane] = sum_k |points[first + q, k] - codes[tile, k, lane]|, at most 65535."""
    signature = types.void(codes, types.int64, points, types.int64, types.int64, distances)

    def emit(context, builder, sig, args):
        codes_v, tile_v, points_v, first_v, columns_v, out_v = args
        tile_offset = builder.mul(tile_v, builder.mul(columns_v, ir.Constant(_I64, LANES)))
        row = _pointer(context, builder, sig.args[0], codes_v, tile_offset)
        queries = [
            _pointer(
                context,
                builder,
                sig.args[2],
                points_v,
                builder.mul(builder.add(first_v, ir.Constant(_I64, q)), columns_v),
            )
            for q in range(QUERIES)
        ]
        zero = ir.Constant(_VEC, [0] * LANES)
        before = builder.block
        loop = builder.append_basic_block("l1.columns")
        done = builder.append_basic_block("l1.done")
        empty = builder.icmp_signed("<=", columns_v, ir.Constant(_I64, 0))
        builder.cbranch(empty, done, loop)

        builder.position_at_end(loop)
        column = builder.phi(_I64)
        column.add_incoming(ir.Constant(_I64, 0), before)
        sums = [builder.phi(_VEC) for _ in range(QUERIES)]
        lanes = _load_lanes(
            builder, builder.gep(row, [builder.mul(column, ir.Constant(_I64, LANES))])
        )
        totals = []
        for query, partial in zip(queries, sums, strict=True):
            value = _splat(builder, builder.load(builder.gep(query, [column])))
            # |a - b| = (a -sat b) | (b -sat a): no widening.
            gap = builder.or_(
                _saturating(builder, "usub", lanes, value),
                _saturating(builder, "usub", value, lanes),
            )
            totals.append(_saturating(builder, "uadd", partial, gap))
        following = builder.add(column, ir.Constant(_I64, 1))
        column.add_incoming(following, loop)
        for partial, total in zip(sums, totals, strict=True):
            partial.add_incoming(zero, before)
            partial.add_incoming(total, loop)
        builder.cbranch(builder.icmp_signed("<", following, columns_v), loop, done)

        builder.position_at_end(done)
        for q, total in enumerate(totals):
            final = builder.phi(_VEC)
            final.add_incoming(zero, before)
            final.add_incoming(total, loop)
            totals[q] = final
        for q, final in enumerate(totals):
            target = _pointer(context, builder, sig.args[5], out_v, ir.Constant(_I64, q * LANES))
            builder.store(final, builder.bitcast(target, _VEC.as_pointer())).align = 2
        return context.get_dummy_value()

    return signature, emit


def _compare_limits(operation, predicate):
    """Word of lanes where `operation(distance, slack) predicate limit`."""

    def declare(typingctx, distances, query, limits, tile, slack):
        signature = types.uint64(distances, types.int64, limits, types.int64, types.uint16)

        def emit(context, builder, sig, args):
            lanes64 = ir.Constant(_I64, LANES)
            left = _load_lanes(
                builder,
                _pointer(context, builder, sig.args[0], args[0], builder.mul(args[1], lanes64)),
            )
            right = _load_lanes(
                builder,
                _pointer(context, builder, sig.args[2], args[2], builder.mul(args[3], lanes64)),
            )
            shifted = _saturating(builder, operation, left, _splat(builder, args[4]))
            return _word(builder, builder.icmp_unsigned(predicate, shifted, right))

        return signature, emit

    return declare


@intrinsic
def lanes_inside(typingctx, distances, query, limits, tile, slack):
    """Word of lanes with distances[query] + slack < limits[tile]."""
    return _compare_limits("uadd", "<")(typingctx, distances, query, limits, tile, slack)


@intrinsic
def lanes_outside(typingctx, distances, query, limits, tile, slack):
    """Word of lanes with distances[query] - slack > limits[tile]."""
    return _compare_limits("usub", ">")(typingctx, distances, query, limits, tile, slack)


@intrinsic
def popcount(typingctx, word):
    """Number of set bits."""

    def emit(context, builder, sig, args):
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), emit


@intrinsic
def lowest_bit(typingctx, word):
    """Position of the lowest set bit of a nonzero word."""

    def emit(context, builder, sig, args):
        return builder.cttz(args[0], ir.Constant(_I1, 1))

    return types.int64(types.uint64), emit


@intrinsic
def count_below(typingctx, ranks, slots, first, last, bounds, column, counts):
    """counts[lane] = how many slots[i], first <= i < last, have a rank below bounds[column + lane].

    For RANKS_AT_ONCE columns, whose counts stay in registers; of less than 2**16 rows.
    """
    signature = types.void(ranks, slots, types.int64, types.int64, bounds, types.int64, counts)

    def emit(context, builder, sig, args):
        vector = ir.VectorType(_I16, RANKS_AT_ONCE)
        n_columns = cgutils.unpack_tuple(
            builder, context.make_array(sig.args[0])(context, builder, args[0]).shape
        )[1]

        def load(kind, array, offset):
            pointer = _pointer(context, builder, kind, array, offset)
            loaded = builder.load(builder.bitcast(pointer, vector.as_pointer()))
            loaded.align = 2
            return loaded

        limit = load(sig.args[4], args[4], args[5])
        total = cgutils.alloca_once_value(builder, ir.Constant(vector, [0] * RANKS_AT_ONCE))
        with cgutils.for_range_slice(builder, args[2], args[3], ir.Constant(_I64, 1)) as (i, _):
            slot = builder.load(_pointer(context, builder, sig.args[1], args[1], i))
            slot = builder.sext(slot, _I64) if slot.type.width < 64 else slot
            row = load(sig.args[0], args[0], builder.add(builder.mul(slot, n_columns), args[5]))
            below = builder.sext(builder.icmp_unsigned("<", row, limit), vector)
            builder.store(builder.sub(builder.load(total), below), total)
        target = _pointer(context, builder, sig.args[6], args[6], ir.Constant(_I64, 0))
        builder.store(builder.load(total), builder.bitcast(target, vector.as_pointer())).align = 2
        return context.get_dummy_value()

    return signature, emit
