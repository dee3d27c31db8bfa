"""Members counted in vectors (see `simd`): in many columns for a point, for 64 points by a row."""

from __future__ import annotations

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from dshift.simd import I1, I16, I64, LANES, RANKS_AT_ONCE, ROWS, load, pointer, splat, word_of


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
        vector = ir.VectorType(I16, RANKS_AT_ONCE)
        ranks_v, tile_v, entered_v, left_v, bounds_v, column_v, counts_v, lane_v = args
        n_columns, padded = (
            cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, array).shape)[
                axis
            ]
            for kind, array, axis in ((sig.args[0], ranks_v, 1), (sig.args[6], counts_v, 2))
        )
        limit = load(builder, vector, pointer(context, builder, sig.args[4], bounds_v, column_v))
        first = builder.mul(builder.mul(tile_v, I64(LANES)), n_columns)
        rows = pointer(context, builder, sig.args[0], ranks_v, builder.add(first, column_v))
        at = builder.add(builder.mul(builder.mul(lane_v, I64(2)), padded), column_v)
        home = pointer(context, builder, sig.args[6], counts_v, at)
        homes = [
            builder.bitcast(address, vector.as_pointer())
            for address in (home, builder.gep(home, [padded]))
        ]
        totals = [load(builder, vector, address) for address in homes]
        for word, combine in ((entered_v, builder.sub), (left_v, builder.add)):
            before = builder.block
            loop, done = (builder.append_basic_block(f"count.{name}") for name in ("row", "done"))
            builder.cbranch(builder.icmp_unsigned("!=", word, I64(0)), loop, done)

            builder.position_at_end(loop)
            rest, sums = builder.phi(I64), [builder.phi(vector) for _ in totals]
            row = builder.cttz(rest, ir.Constant(I1, 1))
            row = load(builder, vector, builder.gep(rows, [builder.mul(row, n_columns)]))
            counted = [
                combine(total, builder.sext(builder.icmp_unsigned(how, row, limit), vector))
                for total, how in zip(sums, ("<", "<="), strict=True)
            ]
            others = builder.and_(rest, builder.sub(rest, I64(1)))
            for phi, start, after in (
                (rest, word, others),
                *zip(sums, totals, counted, strict=True),
            ):
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
            builder.store(total, address).align = 2
        return context.get_dummy_value()

    return signature, emit


def _has_mask_registers():
    """Whether numba compiles for a machine with registers for flags of 16-bit lanes."""
    if config.CPU_FEATURES is not None:
        return "+avx512bw" in config.CPU_FEATURES
    return config.CPU_NAME is None and bool(get_host_cpu_features().get("avx512bw"))


def _count_by_masks(builder, word, lanes):
    """Lanes that count up unless they are a bit of `word`, and a word of those that come to 0."""
    present = builder.bitcast(builder.not_(word), ir.VectorType(I1, LANES))
    one, zero = ir.Constant(ROWS, [1] * LANES), ir.Constant(ROWS, [0] * LANES)
    counted = builder.select(present, builder.add(lanes[0], one), lanes[0])
    crossed = builder.and_(builder.icmp_unsigned("==", counted, zero), present)
    return [counted], word_of(builder, crossed)


def _count_by_bits(builder, word, lanes):
    """The same with four vectors of 16 lanes, for registers without masks.

    As one vector, LLVM takes the bits of a word apart one by one.
    """
    part = lanes[0].type
    own, zero = ir.Constant(part, [1 << i for i in range(16)]), ir.Constant(part, [0] * 16)
    counted, crossed = [], I64(0)
    for q, before in enumerate(lanes):
        quarter = builder.trunc(builder.lshr(word, I64(16 * q)), I16)
        missing = builder.and_(splat(builder, quarter, part), own)  # 0 in lanes that count
        counts = builder.sext(builder.icmp_unsigned("==", missing, zero), part)
        counted.append(builder.sub(before, counts))
        flags = builder.icmp_unsigned("==", builder.or_(counted[q], missing), zero)
        flags = builder.zext(builder.bitcast(flags, I16), I64)
        crossed = builder.or_(crossed, builder.shl(flags, I64(16 * q)))
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
    part = ROWS if wide else ir.VectorType(I16, 16)

    def emit(context, builder, sig, args):
        def data(which):
            return context.make_array(sig.args[which])(context, builder, args[which]).data

        rows, places_at, words_at = data(0), data(6), data(7)
        lanes_at = builder.gep(data(4), [builder.mul(args[5], I64(LANES))])
        lanes_at = builder.bitcast(lanes_at, part.as_pointer())
        homes = [builder.gep(lanes_at, [I64(q)]) for q in range(LANES // part.count)]
        befores = [load(builder, part, home) for home in homes]
        entry = builder.block
        loop, done = (builder.append_basic_block(f"crossings.{name}") for name in ("row", "done"))
        builder.cbranch(builder.icmp_signed("!=", args[1], args[2]), loop, done)

        builder.position_at_end(loop)
        i, found = builder.phi(I64), builder.phi(I64)
        lanes = [builder.phi(part) for _ in homes]
        counted, crossed = count(builder, builder.load(builder.gep(rows, [i])), lanes)
        # Written always, and kept if it counts: a branch would often be foreseen wrongly.
        builder.store(i, builder.gep(places_at, [found]))
        builder.store(crossed, builder.gep(words_at, [found]))
        any_ = builder.zext(builder.icmp_unsigned("!=", crossed, I64(0)), I64)
        more = builder.add(found, any_)
        following = builder.add(i, args[3])
        builder.cbranch(builder.icmp_signed("!=", following, args[2]), loop, done)
        for phi, before, after in (
            (i, args[1], following),
            (found, I64(0), more),
            *zip(lanes, befores, counted, strict=True),
        ):
            phi.add_incoming(before, entry)
            phi.add_incoming(after, loop)

        builder.position_at_end(done)
        total = builder.phi(I64)
        afters = [builder.phi(part) for _ in homes]
        for phi, before, after in (
            (total, I64(0), more),
            *zip(afters, befores, counted, strict=True),
        ):
            phi.add_incoming(before, entry)
            phi.add_incoming(after, loop)
        for home, after in zip(homes, afters, strict=True):
            builder.store(after, home).align = 2
        return total

    return signature, emit
