"""Members counted in vectors (see `simd`): in many columns for a point, for 64 points by a row."""

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
    RANKS_AT_ONCE,
    ROWS,
    load,
    pointer,
    splat,
    word_of,
)

BYTES = ir.VectorType(I8, LANES)
ROWS_CROSSED = 124  # that 8 bits count, above the 2 that lie behind both medians of a lane


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


@intrinsic
def find_crossings(typingctx, present, first, last, step, counters, side, marks, places, words, n):
    """Count rows first, first + step ... up to `last` in the lanes of counters[side].

    A lane counts up with every row i of whose present[i] it is a bit, and crosses where its count
    has no bit in common with its mark, so at 0, or at 0 and 1. The rows where any lane crosses are
    noted behind the `n` that are: in `places`, and in `words` the lanes. Returns how many are noted
    then; both have room for one more than that. There are ROWS_CROSSED at most, so that 8 bits
    count them: a lane that is farther from 0 does not come there.
    """
    signature = types.int64(
        present,
        types.int64,
        types.int64,
        types.int64,
        counters,
        types.int64,
        marks,
        places,
        words,
        types.int64,
    )
    flags_of = _flags_by_masks if _has_mask_registers() else _flags_by_bytes

    def emit(context, builder, sig, args):
        def data(which):
            return context.make_array(sig.args[which])(context, builder, args[which]).data

        rows, places_at, words_at = data(0), data(7), data(8)
        home = builder.gep(data(4), [builder.mul(args[5], I64(LANES))])
        home = builder.bitcast(home, ROWS.as_pointer())
        counts = load(builder, ROWS, home)
        before = _clipped(builder, counts, -128, 127 - ROWS_CROSSED)
        crossing = load(builder, BYTES, data(6))
        zero = ir.Constant(BYTES, [0] * LANES)
        entry = builder.block
        loop, done = (builder.append_basic_block(f"crossings.{name}") for name in ("row", "done"))
        builder.cbranch(builder.icmp_signed("!=", args[1], args[2]), loop, done)

        builder.position_at_end(loop)
        i, found, lanes = builder.phi(I64), builder.phi(I64), builder.phi(BYTES)
        flags = flags_of(builder, builder.load(builder.gep(rows, [i])))
        counted = builder.sub(lanes, builder.sext(flags, BYTES))
        at_zero = builder.icmp_unsigned("==", builder.and_(counted, crossing), zero)
        crossed = word_of(builder, builder.and_(at_zero, flags))
        # Written always, and kept if it counts: a branch would often be foreseen wrongly.
        builder.store(i, builder.gep(places_at, [found]))
        builder.store(crossed, builder.gep(words_at, [found]))
        any_ = builder.zext(builder.icmp_unsigned("!=", crossed, I64(0)), I64)
        more = builder.add(found, any_)
        following = builder.add(i, args[3])
        builder.cbranch(builder.icmp_signed("!=", following, args[2]), loop, done)
        for phi, at_first, later in (
            (i, args[1], following),
            (found, args[9], more),
            (lanes, before, counted),
        ):
            phi.add_incoming(at_first, entry)
            phi.add_incoming(later, loop)

        builder.position_at_end(done)
        total, after = builder.phi(I64), builder.phi(BYTES)
        for phi, at_first, later in ((total, args[9], more), (after, before, counted)):
            phi.add_incoming(at_first, entry)
            phi.add_incoming(later, loop)
        gained = builder.zext(builder.sub(after, before), ROWS)
        builder.store(builder.add(counts, gained), home).align = 2
        return total

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


@intrinsic
def add_to_lanes(typingctx, values, words, n, totals):
    """Add values[i] to totals (64,) in the lanes of words[i], for all i < n."""
    quarter = ir.VectorType(I64, LANES // 4)

    def emit(context, builder, sig, args):
        values_at, words_at, totals_at = (
            context.make_array(sig.args[i])(context, builder, args[i]).data for i in (0, 1, 3)
        )
        zero = ir.Constant(quarter, [0] * quarter.count)
        homes = [
            builder.gep(builder.bitcast(totals_at, quarter.as_pointer()), [I64(q)])
            for q in range(4)
        ]
        befores = [load(builder, quarter, home) for home in homes]
        entry = builder.block
        loop, done = (builder.append_basic_block(f"lanes.{name}") for name in ("add", "done"))
        builder.cbranch(builder.icmp_signed("<", I64(0), args[2]), loop, done)

        builder.position_at_end(loop)
        i, lanes = builder.phi(I64), [builder.phi(quarter) for _ in homes]
        value = splat(builder, builder.load(builder.gep(values_at, [i])), quarter)
        word = splat(builder, builder.load(builder.gep(words_at, [i])), quarter)
        added = []
        for q, lane in enumerate(lanes):
            own = ir.Constant(quarter, [1 << (q * 16 + bit) for bit in range(16)])
            has = builder.icmp_unsigned("!=", builder.and_(word, own), zero)
            added.append(builder.add(lane, builder.select(has, value, zero)))
        following = builder.add(i, I64(1))
        builder.cbranch(builder.icmp_signed("<", following, args[2]), loop, done)
        for phi, before, after in (
            (i, I64(0), following),
            *zip(lanes, befores, added, strict=True),
        ):
            phi.add_incoming(before, entry)
            phi.add_incoming(after, loop)

        builder.position_at_end(done)
        afters = [builder.phi(quarter) for _ in homes]
        for phi, before, after in zip(afters, befores, added, strict=True):
            phi.add_incoming(before, entry)
            phi.add_incoming(after, loop)
        for home, after in zip(homes, afters, strict=True):
            builder.store(after, home).align = 8
        return context.get_dummy_value()

    return types.void(values, words, types.int64, totals), emit
