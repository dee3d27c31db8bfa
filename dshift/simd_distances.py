"""Distances of eight rows of codes to four points at a time, in vectors (see `simd`)."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dshift.simd import (
    CODES_AT_ONCE,
    EIGHT,
    I1,
    I16,
    I32,
    I64,
    LANES,
    QUAD,
    QUERIES,
    ROWS,
    alone,
    load,
    pointer,
    saturating,
    splat,
    word_of,
)


def _store_sums(builder, totals, base, target):
    """Store the sum of each row's four columns, and of what `base` has of others."""
    words = ir.VectorType(I64, EIGHT)
    for bits in (32, 16):  # four columns become two, and one
        shifted = builder.lshr(builder.bitcast(totals, words), ir.Constant(words, [bits] * EIGHT))
        totals = saturating(builder, "uadd", totals, builder.bitcast(shifted, totals.type))
    narrow = builder.trunc(builder.bitcast(totals, words), ir.VectorType(I16, EIGHT))
    narrow = saturating(builder, "uadd", narrow, load(builder, narrow.type, base))
    builder.store(narrow, builder.bitcast(target, narrow.type.as_pointer())).align = 2


def _add_gaps(builder, rows, queries, quad, sums):
    """Sums with the distances of eight rows to each point in one quad of columns."""
    vector, words = rows.type, ir.VectorType(I64, EIGHT)
    absolute = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [vector, I1]), f"llvm.abs.v{vector.count}i16"
    )
    totals = []
    for query, partial in zip(queries, sums, strict=True):
        place = builder.gep(query, [builder.mul(quad, I64(QUAD))])
        four = builder.load(builder.bitcast(place, I64.as_pointer()))
        four.align = 2
        value = builder.bitcast(splat(builder, four, words), vector)
        gap = builder.call(absolute, [builder.sub(rows, value), I1(0)])
        totals.append(saturating(builder, "uadd", partial, gap))
    return totals


def _l1_function(module, n_queries):
    """The loops of `l1_tile`, for so many points at a time, which stay in registers."""
    vector, at = ir.VectorType(I16, EIGHT * QUAD), I16.as_pointer()
    kind = ir.FunctionType(I64, [at, I64, I64, at, I64.as_pointer(), I64, at, at])
    function, is_new = alone(module, f"l1_of_{n_queries}", kind)
    if not is_new:
        return function
    tile_at, n_all, word, points, quads_at, n_quads, base, distances = function.args
    entry, eights, quads, ended, done = (
        function.append_basic_block(name) for name in ("entry", "eights", "quads", "ended", "done")
    )
    builder = ir.IRBuilder(entry)
    width = builder.mul(n_all, I64(QUAD))
    queries = [builder.gep(points, [builder.mul(width, I64(q))]) for q in range(n_queries)]
    builder.cbranch(builder.icmp_unsigned("!=", word, I64(0)), eights, done)

    builder.position_at_end(eights)
    rest, n_before = builder.phi(I64), builder.phi(I64)
    eight = builder.lshr(builder.cttz(rest, ir.Constant(I1, 1)), I64(3))
    start = builder.mul(builder.mul(eight, n_all), I64(EIGHT * QUAD))
    rows_at = builder.gep(tile_at, [start])
    builder.branch(quads)

    builder.position_at_end(quads)
    i = builder.phi(I64)
    sums = [builder.phi(vector) for _ in queries]
    quad = builder.load(builder.gep(quads_at, [i]))
    rows = load(builder, vector, builder.gep(rows_at, [builder.mul(quad, I64(EIGHT * QUAD))]))
    totals = _add_gaps(builder, rows, queries, quad, sums)
    following = builder.add(i, I64(1))
    i.add_incoming(I64(0), eights)
    i.add_incoming(following, quads)
    for partial, total in zip(sums, totals, strict=True):
        partial.add_incoming(ir.Constant(vector, [0] * vector.count), eights)
        partial.add_incoming(total, quads)
    builder.cbranch(builder.icmp_signed("<", following, n_quads), quads, ended)

    builder.position_at_end(ended)
    lane = builder.mul(eight, I64(EIGHT))
    for q, total in enumerate(totals):
        target = builder.gep(distances, [builder.add(I64(q * LANES), lane)])
        _store_sums(builder, total, builder.gep(base, [lane]), target)
    others = builder.and_(rest, builder.not_(builder.shl(I64(255), lane)))
    n_now = builder.add(n_before, I64(n_queries * EIGHT))
    builder.cbranch(builder.icmp_unsigned("!=", others, I64(0)), eights, done)
    for phi, at_first, later in ((rest, word, others), (n_before, I64(0), n_now)):
        phi.add_incoming(at_first, entry)
        phi.add_incoming(later, ended)

    builder.position_at_end(done)
    n_pairs = builder.phi(I64)
    n_pairs.add_incoming(I64(0), entry)
    n_pairs.add_incoming(n_now, ended)
    builder.ret(n_pairs)
    return function


def _l1_of(n_queries):
    """Distances to so many points at a time."""

    def declare(typingctx, codes, tile, word, points, first, quads, n_quads, base, distances):
        signature = types.int64(
            codes,
            types.int64,
            types.uint64,
            points,
            types.int64,
            quads,
            types.int64,
            base,
            distances,
        )

        def emit(context, builder, sig, args):
            codes_v, tile_v, word_v, points_v, first_v, quads_v, n_quads_v, base_v, out_v = args
            codes_array = context.make_array(sig.args[0])(context, builder, codes_v)
            n_all = cgutils.unpack_tuple(builder, codes_array.shape)[2]
            of_point = builder.mul(n_all, I64(QUAD))
            tile_start = builder.mul(builder.mul(tile_v, of_point), I64(LANES))

            def at(which, array, offset):
                return pointer(context, builder, sig.args[which], array, offset)

            return builder.call(
                _l1_function(builder.module, n_queries),
                [
                    builder.gep(codes_array.data, [tile_start]),
                    n_all,
                    word_v,
                    at(3, points_v, builder.mul(first_v, of_point)),
                    at(5, quads_v, I64(0)),
                    n_quads_v,
                    at(7, base_v, I64(0)),
                    at(8, out_v, I64(0)),
                ],
            )

        return signature, emit

    return declare


@intrinsic
def l1_tile(typingctx, codes, tile, word, points, first, quads, n_quads, base, distances):
    """distances[q, lane] = base[lane] + sum_k |points[first + q, k] - code of lane in column k|.

    At most 65,535; k goes through the columns of the first `n_quads` of `quads`, one or more.
    Returns how many distances were evaluated.
    Codes are below 2**15, so that differences fit in 16 bits with their sign. Eight rows at a time,
    those with a lane of `word`: a vector is eight rows by four columns, so that four codes of a
    point are broadcast as one word of 64 bits. `points` has as many columns as whole vectors.
    """
    every = (codes, tile, word, points, first, quads, n_quads, base, distances)
    return _l1_of(QUERIES)(typingctx, *every)


@intrinsic
def l1_tile_of_one(typingctx, codes, tile, word, points, first, quads, n_quads, base, distances):
    """As `l1_tile`, for one point alone."""
    every = (codes, tile, word, points, first, quads, n_quads, base, distances)
    return _l1_of(1)(typingctx, *every)


def _compare_limits(operation, predicate):
    """Word of lanes where `operation(distance, slack) predicate limit`."""

    def declare(typingctx, distances, query, limits, tile, slack):
        signature = types.uint64(distances, types.int64, limits, types.int64, types.uint16)

        def emit(context, builder, sig, args):
            lanes64 = ir.Constant(I64, LANES)
            left = load(
                builder,
                ROWS,
                pointer(context, builder, sig.args[0], args[0], builder.mul(args[1], lanes64)),
            )
            right = load(
                builder,
                ROWS,
                pointer(context, builder, sig.args[2], args[2], builder.mul(args[3], lanes64)),
            )
            shifted = saturating(builder, operation, left, splat(builder, args[4]))
            return word_of(builder, builder.icmp_unsigned(predicate, shifted, right))

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
def l1_of_rows(typingctx, left, i, right, j):
    """L1 distance of row i of `left` and row j of `right`, codes in vectors of CODES_AT_ONCE.

    Codes are below 2**15, and 16 bits hold the sum of the gaps of all vectors (`halves.scale`).
    """
    vector, wide = ir.VectorType(I16, CODES_AT_ONCE), ir.VectorType(I32, CODES_AT_ONCE // 2)

    def emit(context, builder, sig, args):
        array = context.make_array(sig.args[0])(context, builder, args[0])
        width = cgutils.unpack_tuple(builder, array.shape)[1]
        rows = [
            pointer(context, builder, sig.args[at], args[at], builder.mul(args[at + 1], width))
            for at in (0, 2)
        ]
        absolute = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector, I1]), f"llvm.abs.v{vector.count}i16"
        )
        before = builder.block
        loop, done = (builder.append_basic_block(f"l1.{name}") for name in ("codes", "done"))
        builder.branch(loop)

        builder.position_at_end(loop)
        k, total = builder.phi(I64), builder.phi(vector)
        one, other = (load(builder, vector, builder.gep(row, [k])) for row in rows)
        more = builder.add(total, builder.call(absolute, [builder.sub(one, other), I1(0)]))
        following = builder.add(k, I64(CODES_AT_ONCE))
        builder.cbranch(builder.icmp_signed("<", following, width), loop, done)
        for phi, at_first, later in (
            (k, I64(0), following),
            (total, ir.Constant(vector, [0] * vector.count), more),
        ):
            phi.add_incoming(at_first, before)
            phi.add_incoming(later, loop)

        builder.position_at_end(done)
        pairs = builder.bitcast(more, wide)
        low = builder.and_(pairs, ir.Constant(wide, [0xFFFF] * wide.count))
        sums = builder.add(low, builder.lshr(pairs, ir.Constant(wide, [16] * wide.count)))
        reduce = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(I32, [wide]), f"llvm.vector.reduce.add.v{wide.count}i32"
        )
        return builder.zext(builder.call(reduce, [sums]), I64)

    return types.int64(left, types.int64, right, types.int64), emit
