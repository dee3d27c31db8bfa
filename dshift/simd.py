"""Vector primitives that numba cannot express: many lanes of uint16 at a time.

numba promotes small integers to int64, which defeats auto-vectorisation of 16-bit lanes, so these
primitives are written as generic LLVM vector IR (such as `<64 x i16>`). LLVM splits vectors into
whatever registers the machine has (2 of AVX-512, 4 of AVX2, 8 of SSE2 or NEON): the same bits
everywhere.
"""

from __future__ import annotations

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

LANES = 64  # rows in a tile: one bit of a uint64 word each
EIGHT, QUAD = 8, 4  # rows and columns of codes that are one vector
QUERIES = 4  # query points per pass over rows, held in registers
LARGEST_CODE = 2**15 - 1  # so that differences of codes fit in 16 bits with their sign
RANKS_AT_ONCE = 32  # columns of a row of ranks: one cache line


def whole_quads(n_columns: int) -> int:
    """Return how many columns codes have that are read in whole vectors."""
    return -(-n_columns // QUAD) * QUAD


_I1, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))
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
    zeros = ir.Constant(ir.VectorType(_I32, vector.count), [0] * vector.count)
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
def l1_tile(typingctx, codes, tile, word, points, first, distances):
    """distances[q, lane] = sum_k |points[first + q, k] - code of lane in column k|, at most 65535.

    Returns how many distances were evaluated.
    Codes are below 2**15, so that differences fit in 16 bits with their sign. Eight rows at a time,
    those with a lane of `word`: a vector is eight rows by four columns, so that four codes of a
    point are broadcast as one word of 64 bits. `points` has as many columns as whole vectors.
    """
    signature = types.int64(codes, types.int64, types.uint64, points, types.int64, distances)
    vector, words = ir.VectorType(_I16, EIGHT * QUAD), ir.VectorType(_I64, EIGHT)

    def emit(context, builder, sig, args):
        codes_v, tile_v, word_v, points_v, first_v, out_v = args
        codes_array = context.make_array(sig.args[0])(context, builder, codes_v)
        n_quads = cgutils.unpack_tuple(builder, codes_array.shape)[2]
        width = builder.mul(n_quads, _I64(QUAD))
        queries = [
            _pointer(
                context,
                builder,
                sig.args[3],
                points_v,
                builder.mul(builder.add(first_v, _I64(q)), width),
            )
            for q in range(QUERIES)
        ]
        absolute = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector, _I1]), f"llvm.abs.v{vector.count}i16"
        )
        before = builder.block
        eights, quads, ended, done = (
            builder.append_basic_block(f"l1.{name}")
            for name in ("eights", "quads", "ended", "done")
        )
        builder.cbranch(builder.icmp_unsigned("!=", word_v, _I64(0)), eights, done)

        builder.position_at_end(eights)
        rest, n_before = builder.phi(_I64), builder.phi(_I64)
        eight = builder.lshr(builder.cttz(rest, ir.Constant(_I1, 1)), _I64(3))
        start = builder.add(builder.mul(tile_v, _I64(LANES // EIGHT)), eight)
        start = builder.mul(builder.mul(start, n_quads), _I64(EIGHT * QUAD))
        rows_at = builder.gep(codes_array.data, [start])
        builder.branch(quads)

        builder.position_at_end(quads)
        quad = builder.phi(_I64)
        sums = [builder.phi(vector) for _ in queries]
        at = builder.mul(quad, _I64(EIGHT * QUAD))
        rows = _load(builder, vector, builder.gep(rows_at, [at]))
        totals = []
        for query, partial in zip(queries, sums, strict=True):
            place = builder.gep(query, [builder.mul(quad, _I64(QUAD))])
            four = builder.load(builder.bitcast(place, _I64.as_pointer()))
            four.align = 2
            value = builder.bitcast(_splat(builder, four, words), vector)
            gap = builder.call(absolute, [builder.sub(rows, value), _I1(0)])
            totals.append(_saturating(builder, "uadd", partial, gap))
        following = builder.add(quad, _I64(1))
        quad.add_incoming(_I64(0), eights)
        quad.add_incoming(following, quads)
        for partial, total in zip(sums, totals, strict=True):
            partial.add_incoming(ir.Constant(vector, [0] * vector.count), eights)
            partial.add_incoming(total, quads)
        builder.cbranch(builder.icmp_signed("<", following, n_quads), quads, ended)

        builder.position_at_end(ended)
        lane = builder.mul(eight, _I64(EIGHT))
        for q, total in enumerate(totals):
            for bits in (32, 16):  # four columns become one
                shifted = builder.lshr(
                    builder.bitcast(total, words), ir.Constant(words, [bits] * EIGHT)
                )
                total = _saturating(builder, "uadd", total, builder.bitcast(shifted, vector))
            narrow = builder.trunc(builder.bitcast(total, words), ir.VectorType(_I16, EIGHT))
            offset = builder.add(_I64(q * LANES), lane)
            target = _pointer(context, builder, sig.args[5], out_v, offset)
            builder.store(narrow, builder.bitcast(target, narrow.type.as_pointer())).align = 2
        others = builder.and_(rest, builder.not_(builder.shl(_I64(255), lane)))
        n_now = builder.add(n_before, _I64(QUERIES * EIGHT))
        builder.cbranch(builder.icmp_unsigned("!=", others, _I64(0)), eights, done)
        for phi, at_first, later in ((rest, word_v, others), (n_before, _I64(0), n_now)):
            phi.add_incoming(at_first, before)
            phi.add_incoming(later, ended)

        builder.position_at_end(done)
        n_pairs = builder.phi(_I64)
        n_pairs.add_incoming(_I64(0), before)
        n_pairs.add_incoming(n_now, ended)
        return n_pairs

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
def transpose_words(typingctx, words, first, masks, at):
    """masks[at + row] has bit `lane` where words[first + lane] has bit `row`; 64 by 64 of them.

    Quarters of ever smaller squares change places: between vectors of eight words while these are
    larger than that, then within them. Both arrays are C-contiguous.
    """
    signature = types.void(words, types.int64, masks, types.int64)
    eight = ir.VectorType(_I64, 8)

    def constant(values):
        return ir.Constant(eight, [value & (2**64 - 1) for value in values])

    def emit(context, builder, sig, args):
        source, target = (
            builder.bitcast(
                _pointer(context, builder, sig.args[i], args[i], args[i + 1]), eight.as_pointer()
            )
            for i in (0, 2)
        )
        rows = [_load(builder, eight, builder.gep(source, [_I64(i)])) for i in range(8)]
        for width in (32, 16, 8):
            low = constant([(2**64 - 1) // (2**width + 1)] * 8)
            by, apart = constant([width] * 8), width // 8
            for i in range(8):
                if i & apart == 0:
                    shifted = builder.xor(builder.lshr(rows[i], by), rows[i + apart])
                    swapped = builder.and_(shifted, low)
                    rows[i] = builder.xor(rows[i], builder.shl(swapped, by))
                    rows[i + apart] = builder.xor(rows[i + apart], swapped)
        rotate = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(eight, [eight] * 3), "llvm.fshl.v8i64"
        )
        for width in (4, 2, 1):
            low = (2**64 - 1) // (2**width + 1)
            first_half = [lane & width == 0 for lane in range(8)]
            kept = constant([low if half else ~low for half in first_half])
            others = constant([~low if half else low for half in first_half])
            by = constant([width if half else 64 - width for half in first_half])
            swap = ir.Constant(ir.VectorType(_I32, 8), [lane ^ width for lane in range(8)])
            for i in range(8):
                other = builder.shuffle_vector(rows[i], rows[i], swap)
                other = builder.call(rotate, [other, other, by])
                rows[i] = builder.or_(builder.and_(rows[i], kept), builder.and_(other, others))
        for i, row in enumerate(rows):
            builder.store(row, builder.gep(target, [_I64(i)])).align = 2
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def prefetch(typingctx, array, offset):
    """Have the cache line of the element `offset` of a C-contiguous array fetched by and by."""

    def emit(context, builder, sig, args):
        pointer = _pointer(context, builder, sig.args[0], args[0], args[1])
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, _I32, _I32, _I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, _I32(0), _I32(2), _I32(1)])  # to read, of the data
        return context.get_dummy_value()

    return types.void(array, types.int64), emit


@intrinsic
def count_rows(typingctx, ranks, tile, entered, left, bounds, column, counts, lane):
    """Add to counts[lane, 0] how many rows of a tile have a rank below their bound.

    Rows of the word `entered` count up, those of `left` down; counts[lane, 1] has those below or
    at the bound. All of it for RANKS_AT_ONCE columns from `column` on, modulo 2**16.
    """
    signature = types.void(
        ranks,
        types.int64,
        types.uint64,
        types.uint64,
        bounds,
        types.int64,
        counts,
        types.int64,
    )

    def emit(context, builder, sig, args):
        vector = ir.VectorType(_I16, RANKS_AT_ONCE)
        ranks_v, tile_v, entered_v, left_v, bounds_v, column_v, counts_v, lane_v = args
        n_columns, padded = (
            cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, array).shape)[
                axis
            ]
            for kind, array, axis in ((sig.args[0], ranks_v, 1), (sig.args[6], counts_v, 2))
        )
        limit = _load(builder, vector, _pointer(context, builder, sig.args[4], bounds_v, column_v))
        first = builder.mul(builder.mul(tile_v, _I64(LANES)), n_columns)
        rows = _pointer(context, builder, sig.args[0], ranks_v, builder.add(first, column_v))
        at = builder.add(builder.mul(builder.mul(lane_v, _I64(2)), padded), column_v)
        home = _pointer(context, builder, sig.args[6], counts_v, at)
        homes = [
            builder.bitcast(pointer, vector.as_pointer())
            for pointer in (home, builder.gep(home, [padded]))
        ]
        totals = [_load(builder, vector, pointer) for pointer in homes]
        for word, combine in ((entered_v, builder.sub), (left_v, builder.add)):
            before = builder.block
            loop, done = (builder.append_basic_block(f"count.{name}") for name in ("row", "done"))
            builder.cbranch(builder.icmp_unsigned("!=", word, _I64(0)), loop, done)

            builder.position_at_end(loop)
            rest, sums = builder.phi(_I64), [builder.phi(vector) for _ in totals]
            row = builder.cttz(rest, ir.Constant(_I1, 1))
            row = _load(builder, vector, builder.gep(rows, [builder.mul(row, n_columns)]))
            counted = [
                combine(total, builder.sext(builder.icmp_unsigned(how, row, limit), vector))
                for total, how in zip(sums, ("<", "<="), strict=True)
            ]
            others = builder.and_(rest, builder.sub(rest, _I64(1)))
            for phi, start, after in (
                (rest, word, others),
                *zip(sums, totals, counted, strict=True),
            ):
                phi.add_incoming(start, before)
                phi.add_incoming(after, loop)
            builder.cbranch(builder.icmp_unsigned("!=", others, _I64(0)), loop, done)

            builder.position_at_end(done)
            ends = [builder.phi(vector) for _ in totals]
            for phi, start, after in zip(ends, totals, counted, strict=True):
                phi.add_incoming(start, before)
                phi.add_incoming(after, loop)
            totals = ends
        for pointer, total in zip(homes, totals, strict=True):
            builder.store(total, pointer).align = 2
        return context.get_dummy_value()

    return signature, emit


def _has_mask_registers():
    """Whether numba compiles for a machine with registers for flags of 16-bit lanes."""
    if config.CPU_FEATURES is not None:
        return "+avx512bw" in config.CPU_FEATURES
    return config.CPU_NAME is None and bool(get_host_cpu_features().get("avx512bw"))


def _count_by_masks(builder, word, lanes):
    """Lanes that count up unless they are a bit of `word`, and a word of those that come to 0."""
    present = builder.bitcast(builder.not_(word), ir.VectorType(_I1, LANES))
    one, zero = ir.Constant(_VEC, [1] * LANES), ir.Constant(_VEC, [0] * LANES)
    counted = builder.select(present, builder.add(lanes[0], one), lanes[0])
    crossed = builder.and_(builder.icmp_unsigned("==", counted, zero), present)
    return [counted], _word(builder, crossed)


def _count_by_bits(builder, word, lanes):
    """The same with four vectors of 16 lanes, for registers without masks.

    As one vector, LLVM takes the bits of a word apart one by one.
    """
    part = lanes[0].type
    own, zero = ir.Constant(part, [1 << i for i in range(16)]), ir.Constant(part, [0] * 16)
    counted, crossed = [], _I64(0)
    for q, before in enumerate(lanes):
        quarter = builder.trunc(builder.lshr(word, _I64(16 * q)), _I16)
        missing = builder.and_(_splat(builder, quarter, part), own)  # 0 in lanes that count
        counts = builder.sext(builder.icmp_unsigned("==", missing, zero), part)
        counted.append(builder.sub(before, counts))
        flags = builder.icmp_unsigned("==", builder.or_(counted[q], missing), zero)
        flags = builder.zext(builder.bitcast(flags, _I16), _I64)
        crossed = builder.or_(crossed, builder.shl(flags, _I64(16 * q)))
    return counted, crossed


@intrinsic
def find_crossings(typingctx, absent, first, last, step, needed, side, places, words):
    """Count rows first, first + step ... up to `last` in the lanes of needed[side].

    A lane counts up, modulo 2**16, with every row i but those of whose absent[i] it is a bit.
    Returns how many rows brought a lane to 0: `places` has these, and `words` the lanes. Both have
    room for as many as there are rows.
    """
    signature = types.int64(
        absent, types.int64, types.int64, types.int64, needed, types.int64, places, words
    )
    wide = _has_mask_registers()
    count = _count_by_masks if wide else _count_by_bits
    part = _VEC if wide else ir.VectorType(_I16, 16)

    def emit(context, builder, sig, args):
        def data(which):
            return context.make_array(sig.args[which])(context, builder, args[which]).data

        rows, places_at, words_at = data(0), data(6), data(7)
        lanes_at = builder.gep(data(4), [builder.mul(args[5], _I64(LANES))])
        lanes_at = builder.bitcast(lanes_at, part.as_pointer())
        homes = [builder.gep(lanes_at, [_I64(q)]) for q in range(LANES // part.count)]
        befores = [_load(builder, part, home) for home in homes]
        entry = builder.block
        loop, done = (builder.append_basic_block(f"crossings.{name}") for name in ("row", "done"))
        builder.cbranch(builder.icmp_signed("!=", args[1], args[2]), loop, done)

        builder.position_at_end(loop)
        i, found = builder.phi(_I64), builder.phi(_I64)
        lanes = [builder.phi(part) for _ in homes]
        counted, crossed = count(builder, builder.load(builder.gep(rows, [i])), lanes)
        # Written always, and kept if it counts: a branch would often be foreseen wrongly.
        builder.store(i, builder.gep(places_at, [found]))
        builder.store(crossed, builder.gep(words_at, [found]))
        any_ = builder.zext(builder.icmp_unsigned("!=", crossed, _I64(0)), _I64)
        more = builder.add(found, any_)
        following = builder.add(i, args[3])
        builder.cbranch(builder.icmp_signed("!=", following, args[2]), loop, done)
        for phi, before, after in (
            (i, args[1], following),
            (found, _I64(0), more),
            *zip(lanes, befores, counted, strict=True),
        ):
            phi.add_incoming(before, entry)
            phi.add_incoming(after, loop)

        builder.position_at_end(done)
        total = builder.phi(_I64)
        afters = [builder.phi(part) for _ in homes]
        for phi, before, after in (
            (total, _I64(0), more),
            *zip(afters, befores, counted, strict=True),
        ):
            phi.add_incoming(before, entry)
            phi.add_incoming(after, loop)
        for home, after in zip(homes, afters, strict=True):
            builder.store(after, home).align = 2
        return total

    return signature, emit
