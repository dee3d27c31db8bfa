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
EIGHT, QUAD = 8, 4  # rows and columns of codes that are one vector
QUERIES = 4  # query points per pass over rows, held in registers
LARGEST_CODE = 2**15 - 1  # so that differences of codes fit in 16 bits with their sign
RANKS_AT_ONCE = 32  # columns of a row of ranks: one cache line
CODES_AT_ONCE = 32  # columns of a row of codes, where rows are ordered


def whole_quads(n_columns: int) -> int:
    """Return how many columns codes have that are read in whole vectors."""
    return -(-n_columns // QUAD) * QUAD


I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
ROWS = ir.VectorType(I16, LANES)


def saturating(builder, name, left, right):
    """`llvm.uadd.sat` / `llvm.usub.sat` on vectors of lanes."""
    kind, width = ir.FunctionType(left.type, [left.type] * 2), left.type.count
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.sat.v{width}i16")
    return builder.call(function, [left, right])


def splat(builder, scalar, vector=ROWS):
    """A vector whose lanes all hold `scalar`."""
    undefined = ir.Constant(vector, ir.Undefined)
    one = builder.insert_element(undefined, scalar, I64(0))
    zeros = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, undefined, zeros)


def pointer(context, builder, array_type, array, offset):
    """Address of the element `offset` of a C-contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def load(builder, vector, address):
    """A vector from anywhere."""
    loaded = builder.load(builder.bitcast(address, vector.as_pointer()))
    loaded.align = 2
    return loaded


def word_of(builder, flags):
    """One bit a lane."""
    return builder.bitcast(flags, I64)


def opaque(builder, word):
    """A word of which the compiler forgets what it knew, so that it keeps to what is written."""
    return builder.call(ir.InlineAsm(ir.FunctionType(I64, [I64]), "", "=r,0"), [word])


def alone(module, name, kind):
    """A function of the module of that name, and whether its body is still to be written.

    Hot loops stand alone: amid a large function they would lack registers.
    """
    function = cgutils.get_or_insert_function(module, kind, f"dshift.{name}")
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function, not function.blocks


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
        return builder.cttz(args[0], ir.Constant(I1, 1))

    return types.int64(types.uint64), emit


@intrinsic
def highest_bit(typingctx, word):
    """Position of the highest set bit of a nonzero word."""

    def emit(context, builder, sig, args):
        return builder.sub(I64(63), builder.ctlz(args[0], ir.Constant(I1, 1)))

    return types.int64(types.uint64), emit


@intrinsic
def transpose_words(typingctx, words, first, masks, at):
    """masks[at + row] has bit `lane` where words[first + lane] has bit `row`; 64 by 64 of them.

    Quarters of ever smaller squares change places: between vectors of eight words while these are
    larger than that, then within them. Both arrays are C-contiguous.
    """
    signature = types.void(words, types.int64, masks, types.int64)
    eight = ir.VectorType(I64, 8)

    def constant(values):
        return ir.Constant(eight, [value & (2**64 - 1) for value in values])

    def emit(context, builder, sig, args):
        source, target = (
            builder.bitcast(
                pointer(context, builder, sig.args[i], args[i], args[i + 1]), eight.as_pointer()
            )
            for i in (0, 2)
        )
        rows = [load(builder, eight, builder.gep(source, [I64(i)])) for i in range(8)]
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
            swap = ir.Constant(ir.VectorType(I32, 8), [lane ^ width for lane in range(8)])
            for i in range(8):
                other = builder.shuffle_vector(rows[i], rows[i], swap)
                other = builder.call(rotate, [other, other, by])
                rows[i] = builder.or_(builder.and_(rows[i], kept), builder.and_(other, others))
        for i, row in enumerate(rows):
            builder.store(row, builder.gep(target, [I64(i)])).align = 2
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def load_four(typingctx, array, offset):
    """Four bytes of a C-contiguous array of bytes, from `offset` on, the lowest first."""

    def emit(context, builder, sig, args):
        address = pointer(context, builder, sig.args[0], args[0], args[1])
        four = builder.load(builder.bitcast(address, I32.as_pointer()))
        four.align = 1
        return builder.zext(four, I64)

    return types.int64(array, types.int64), emit


def fetch(builder, address):
    """Have the cache line of an address fetched by and by."""
    address = builder.bitcast(address, I8.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [address, I32(0), I32(2), I32(1)])  # to read, of the data


@intrinsic
def prefetch(typingctx, array, offset):
    """Have the cache line of the element `offset` of a C-contiguous array fetched by and by."""

    def emit(context, builder, sig, args):
        fetch(builder, pointer(context, builder, sig.args[0], args[0], args[1]))
        return context.get_dummy_value()

    return types.void(array, types.int64), emit
