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


def _in_vectors(builder, name, vector, *operands):
    """An intrinsic of LLVM on vectors of 16 bits."""
    kind = ir.FunctionType(vector, [operand.type for operand in operands])
    function = cgutils.get_or_insert_function(
        builder.module, kind, f"llvm.{name}.v{vector.count}i16"
    )
    return builder.call(function, operands)


def _add_saturating(builder, left, right):
    return saturating(builder, "uadd", left, right)


def _gap(builder, rows, value):
    """What `_add_quad` adds up where sums saturate: distances."""
    return _in_vectors(builder, "abs", rows.type, builder.sub(rows, value), I1(0))


def _larger(builder, rows, value):
    """What it adds up modulo 2**16."""
    return _in_vectors(builder, "umax", rows.type, rows, value)


def _add_quad(builder, rows, queries, quad, sums, near):
    """Sums with what eight rows and each point add to them in one quad of columns."""
    measure, add = (_larger, ir.IRBuilder.add) if near else (_gap, _add_saturating)
    totals = []
    for query, partial in zip(queries, sums, strict=True):
        place = builder.gep(query, [builder.mul(quad, I64(QUAD))])
        four = builder.load(builder.bitcast(place, I64.as_pointer()))
        four.align = 2
        value = builder.bitcast(splat(builder, four, ir.VectorType(I64, EIGHT)), rows.type)
        totals.append(add(builder, partial, measure(builder, rows, value)))
    return totals


def _sum_of_quad(builder, totals, near):
    """The sum of each row's four columns."""
    add = ir.IRBuilder.add if near else _add_saturating
    words = ir.VectorType(I64, EIGHT)
    for bits in (32, 16):  # four columns become two, and one
        shifted = builder.lshr(builder.bitcast(totals, words), ir.Constant(words, [bits] * EIGHT))
        totals = add(builder, totals, builder.bitcast(shifted, totals.type))
    return builder.trunc(builder.bitcast(totals, words), ir.VectorType(I16, EIGHT))


def _l1_function(module, n_queries, near):
    """The loops of `l1_tile` and the others, for so many points, whose sums stay in registers."""
    vector, at = ir.VectorType(I16, EIGHT * QUAD), I16.as_pointer()
    kind = ir.FunctionType(I64, [at, I64, I64, at, I64.as_pointer(), I64, at, at, at, at])
    name = f"l1_{'near_' if near else ''}of_{n_queries}"
    function, is_new = alone(module, name, kind)
    if not is_new:
        return function
    tile_at, n_all, word, points, quads_at, n_quads, base, distances = function.args[:8]
    row_sums, point_sums = function.args[8:]
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
    totals = _add_quad(builder, rows, queries, quad, sums, near)
    following = builder.add(i, I64(1))
    i.add_incoming(I64(0), eights)
    i.add_incoming(following, quads)
    for partial, total in zip(sums, totals, strict=True):
        partial.add_incoming(ir.Constant(vector, [0] * vector.count), eights)
        partial.add_incoming(total, quads)
    builder.cbranch(builder.icmp_signed("<", following, n_quads), quads, ended)

    builder.position_at_end(ended)
    lane = builder.mul(eight, I64(EIGHT))
    eight_rows = ir.VectorType(I16, EIGHT)
    before = load(builder, eight_rows, builder.gep(base, [lane]))
    if near and n_queries > 1:
        before = builder.sub(before, load(builder, eight_rows, builder.gep(row_sums, [lane])))
    for q, total in enumerate(totals):
        narrow = _sum_of_quad(builder, total, near)
        if near:
            narrow = builder.add(builder.add(narrow, narrow), before)
        else:
            narrow = _add_saturating(builder, narrow, before)
        if near and n_queries > 1:
            own = builder.load(builder.gep(point_sums, [I64(q)]))
            narrow = builder.sub(narrow, splat(builder, own, eight_rows))
        target = builder.gep(distances, [builder.add(I64(q * LANES), lane)])
        builder.store(narrow, builder.bitcast(target, eight_rows.as_pointer())).align = 2
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


def _call_l1(context, builder, kinds, args, n_queries, near):
    """Call the loops for arrays as the intrinsics below are given them."""
    tile_v, word_v, first_v, n_quads_v = args[1], args[2], args[4], args[6]
    codes_array = context.make_array(kinds[0])(context, builder, args[0])
    n_all = cgutils.unpack_tuple(builder, codes_array.shape)[2]
    of_point = builder.mul(n_all, I64(QUAD))
    tile_start = builder.mul(builder.mul(tile_v, of_point), I64(LANES))

    def at(which, offset):
        return pointer(context, builder, kinds[which], args[which], offset)

    nowhere = ir.Constant(I16.as_pointer(), None)
    has_sums = len(args) > 9
    return builder.call(
        _l1_function(builder.module, n_queries, near),
        [
            builder.gep(codes_array.data, [tile_start]),
            n_all,
            word_v,
            at(3, builder.mul(first_v, of_point)),
            at(5, I64(0)),
            n_quads_v,
            at(7, I64(0)),
            at(8, I64(0)),
            at(9, builder.mul(tile_v, I64(LANES))) if has_sums else nowhere,
            at(10, first_v) if has_sums else nowhere,
        ],
    )


def _l1_of(n_queries, near=False):
    """Distances to so many points at a time."""

    def declare(typingctx, *arrays):
        integer, word = types.int64, types.uint64
        codes, _, _, points, _, quads, _, base, distances, *sums = arrays
        signature = types.int64(
            codes, integer, word, points, integer, quads, integer, base, distances, *sums
        )

        def emit(context, builder, sig, args):
            return _call_l1(context, builder, sig.args, args, n_queries, near)

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


@intrinsic
def l1_tile_near(
    typingctx,
    codes,
    tile,
    word,
    points,
    first,
    quads,
    n_quads,
    base,
    distances,
    row_sums,
    point_sums,
):
    """As `l1_tile`, modulo 2**16: right for rows that are known to be nearer than that.

    A distance is twice the sum of the larger codes less both sums of codes, `row_sums[tile]` and
    `point_sums[first + q]`: two instructions a vector instead of three. `base` has twice the sums
    of the larger codes in other columns.
    """
    every = (codes, tile, word, points, first, quads, n_quads, base, distances)
    return _l1_of(QUERIES, near=True)(typingctx, *every, row_sums, point_sums)


@intrinsic
def twice_larger(typingctx, codes, tile, word, points, first, quads, n_quads, base, distances):
    """As `l1_tile_of_one`, but base[lane] + twice the sum of the larger codes, modulo 2**16."""
    every = (codes, tile, word, points, first, quads, n_quads, base, distances)
    return _l1_of(1, near=True)(typingctx, *every)


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
