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
LARGEST_CODE = 2**15 - 1  # so that differences of codes fit in 16 bits with their sign
RANKS_AT_ONCE = 32  # columns of a row of ranks: one cache line

_I1, _I16, _I64 = ir.IntType(1), ir.IntType(16), ir.IntType(64)
_VEC = ir.VectorType(_I16, LANES)


def _saturating(builder, name, left, right):
    """`llvm.uadd.sat` / `llvm.usub.sat` on vectors of lanes."""
    kind, width = ir.FunctionType(left.type, [left.type] * 2), left.type.count
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.sat.v{width}i16")
    return builder.call(function, [left, right])


def _splat(builder, scalar, vector=_VEC):
    """A vector whose lanes all hold `scalar`."""
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, scalar, _I64(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, undefined, zeros)


def _pointer(context, builder, array_type, array, offset):
    """Address of the element `offset` of a C-contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def _load(builder, vector, pointer):
    """A vector from anywhere."""
    loaded = builder.load(builder.bitcast(pointer, vector.as_pointer()))
    loaded.align = 2
    return loaded


def _word(builder, flags):
    """One bit a lane."""
    return builder.bitcast(flags, _I64)


@intrinsic
def l1_tile(typingctx, codes, tile, points, first, n_columns, distances):
    """distances[q, lane] = sum_k |points[first + q, k] - codes[tile, k, lane]|, at most 65535.

    Codes are below 2**15, so that differences fit in 16 bits with their sign. Half a tile at a
    time: the sums of four points and 64 lanes are more than the 16 registers of AVX2.
    """
    signature = types.void(codes, types.int64, points, types.int64, types.int64, distances)
    half = ir.VectorType(_I16, LANES // 2)

    def emit(context, builder, sig, args):
        codes_v, tile_v, points_v, first_v, columns_v, out_v = args
        tile_offset = builder.mul(tile_v, builder.mul(columns_v, _I64(LANES)))
        tile_at = _pointer(context, builder, sig.args[0], codes_v, tile_offset)
        queries = [
            _pointer(
                context,
                builder,
                sig.args[2],
                points_v,
                builder.mul(builder.add(first_v, _I64(q)), columns_v),
            )
            for q in range(QUERIES)
        ]
        absolute = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(half, [half, _I1]), f"llvm.abs.v{LANES // 2}i16"
        )
        zero = ir.Constant(half, [0] * (LANES // 2))

        def sum_columns(start):
            before = builder.block
            loop = builder.append_basic_block("l1.columns")
            done = builder.append_basic_block("l1.done")
            builder.cbranch(builder.icmp_signed("<=", columns_v, _I64(0)), done, loop)

            builder.position_at_end(loop)
            column = builder.phi(_I64)
            column.add_incoming(_I64(0), before)
            sums = [builder.phi(half) for _ in range(QUERIES)]
            lanes = _load(
                builder,
                half,
                builder.gep(tile_at, [builder.add(builder.mul(column, _I64(LANES)), _I64(start))]),
            )
            totals = []
            for query, partial in zip(queries, sums, strict=True):
                value = _splat(builder, builder.load(builder.gep(query, [column])), half)
                gap = builder.call(absolute, [builder.sub(lanes, value), _I1(0)])
                totals.append(_saturating(builder, "uadd", partial, gap))
            following = builder.add(column, _I64(1))
            column.add_incoming(following, loop)
            for partial, total in zip(sums, totals, strict=True):
                partial.add_incoming(zero, before)
                partial.add_incoming(total, loop)
            builder.cbranch(builder.icmp_signed("<", following, columns_v), loop, done)

            builder.position_at_end(done)
            results = [builder.phi(half) for _ in range(QUERIES)]
            for result, total in zip(results, totals, strict=True):
                result.add_incoming(zero, before)
                result.add_incoming(total, loop)
            for q, result in enumerate(results):
                target = _pointer(context, builder, sig.args[5], out_v, _I64(q * LANES + start))
                builder.store(result, builder.bitcast(target, half.as_pointer())).align = 2

        sum_columns(0)
        sum_columns(LANES // 2)
        return context.get_dummy_value()

    return signature, emit


def _compare_limits(operation, predicate):
    """Word of lanes where `operation(distance, slack) predicate limit`."""

    def declare(typingctx, distances, query, limits, tile, slack):
        signature = types.uint64(distances, types.int64, limits, types.int64, types.uint16)

        def emit(context, builder, sig, args):
            lanes64 = ir.Constant(_I64, LANES)
            left = _load(
                builder,
                _VEC,
                _pointer(context, builder, sig.args[0], args[0], builder.mul(args[1], lanes64)),
            )
            right = _load(
                builder,
                _VEC,
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
def highest_bit(typingctx, word):
    """Position of the highest set bit of a nonzero word."""

    def emit(context, builder, sig, args):
        return builder.sub(_I64(63), builder.ctlz(args[0], ir.Constant(_I1, 1)))

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


@intrinsic
def find_crossing(typingctx, absent, first, last, step, needed, side, crossed):
    """First i = first, first + step ... whose row brings a lane of needed[side] to 0; else `last`.

    A lane counts up, modulo 2**16, with every row but those of whose absent[i] it is a bit.
    crossed[0] has the lanes that came to 0 with row i, if there is one. Lanes are four vectors of
    16: as one of 64, LLVM packs and unpacks them.
    """
    signature = types.int64(
        absent, types.int64, types.int64, types.int64, needed, types.int64, crossed
    )
    part = ir.VectorType(_I16, 16)
    parts = range(LANES // 16)

    def emit(context, builder, sig, args):
        def array(which):
            return context.make_array(sig.args[which])(context, builder, args[which])

        rows = builder.bitcast(array(0).data, _I16.as_pointer())
        lanes_at = builder.gep(array(4).data, [builder.mul(args[5], _I64(LANES))])
        lanes_at = builder.bitcast(lanes_at, part.as_pointer())
        places = [builder.gep(lanes_at, [_I64(q)]) for q in parts]
        befores = [_load(builder, part, place) for place in places]
        own, zero = ir.Constant(part, [1 << i for i in range(16)]), ir.Constant(part, [0] * 16)
        entry = builder.block
        loop, again, hit, done = (
            builder.append_basic_block(f"crossing.{name}")
            for name in ("row", "next", "hit", "done")
        )
        builder.cbranch(builder.icmp_signed("!=", args[1], args[2]), loop, done)

        builder.position_at_end(loop)
        i, lanes = builder.phi(_I64), [builder.phi(part) for _ in parts]
        counted, open_ = [], []
        for q in parts:
            quarter = builder.load(
                builder.gep(rows, [builder.add(builder.shl(i, _I64(2)), _I64(q))])
            )
            missing = builder.and_(_splat(builder, quarter, part), own)  # 0 in lanes that count
            counts = builder.sext(builder.icmp_unsigned("==", missing, zero), part)
            counted.append(builder.sub(lanes[q], counts))
            open_.append(builder.or_(counted[q], missing))  # 0 in lanes that cross
        least = open_[0]
        for vector in open_[1:]:
            least = builder.select(builder.icmp_unsigned("<", vector, least), vector, least)
        crosses = builder.bitcast(builder.icmp_unsigned("==", least, zero), _I16)
        builder.cbranch(builder.icmp_unsigned("!=", crosses, _I16(0)), hit, again)

        builder.position_at_end(again)
        following = builder.add(i, args[3])
        builder.cbranch(builder.icmp_signed("!=", following, args[2]), loop, done)
        i.add_incoming(args[1], entry)
        i.add_incoming(following, again)
        for q in parts:
            lanes[q].add_incoming(befores[q], entry)
            lanes[q].add_incoming(counted[q], again)

        builder.position_at_end(hit)
        word = _I64(0)
        for q in parts:
            flags = builder.bitcast(builder.icmp_unsigned("==", open_[q], zero), _I16)
            word = builder.or_(word, builder.shl(builder.zext(flags, _I64), _I64(16 * q)))
        builder.store(word, array(6).data)
        builder.branch(done)

        builder.position_at_end(done)
        found = builder.phi(_I64)
        found.add_incoming(args[2], entry)
        found.add_incoming(i, hit)
        found.add_incoming(args[2], again)
        afters = [builder.phi(part) for _ in parts]
        for q, after in enumerate(afters):
            after.add_incoming(befores[q], entry)
            after.add_incoming(counted[q], hit)
            after.add_incoming(counted[q], again)
        for q, after in enumerate(afters):
            builder.store(after, places[q]).align = 2
        return found

    return signature, emit
