"""The plain compiled loops, compiled and as Python, against NumPy and exact whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dshift
from dshift import (
    halves,
    index,
    kernels,
    simd,
    simd_counts,
    simd_distances,
    simd_lanes,
    simd_notes,
    tiles,
)


def both(kernel: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return kernel, kernel.py_func


EVEN = st.integers(-20, 20).map(lambda value: 2 * value)


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 9), st.integers(0, 4)), elements=EVEN),
    st.data(),
)
def test_kernels_do_what_numpy_does(points: np.ndarray, data: st.DataObject) -> None:
    n, p = points.shape
    x = data.draw(hnp.arrays(np.int64, p, elements=EVEN))
    active = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True)))
    active.sort()
    pulls = data.draw(hnp.arrays(np.int64, n, elements=st.integers(1, 4)))
    copies = np.repeat(points[active], pulls[active], axis=0)
    for measure in both(kernels.l1_distances):
        found = np.full(n, -1, np.int64)
        measure(x, points, found)
        np.testing.assert_array_equal(found, np.abs(points - x).sum(axis=1))
    for measure in both(kernels.squared_distances):
        apart = np.full(n, -1.0)
        measure(x.astype(float), points.astype(float), apart)
        np.testing.assert_array_equal(apart, ((points - x) ** 2).sum(axis=1))
    for combine in both(kernels.weighted_medians):
        found = np.full(p, -1, np.int64)
        combine(points, active, pulls, found)
        np.testing.assert_array_equal(found, np.median(copies, axis=0))
    for combine in both(kernels.means):
        center = np.full(p, -1.0)
        combine(points.astype(float), active, pulls.astype(float), center)
        np.testing.assert_allclose(center, copies.mean(axis=0), rtol=1e-13, atol=1e-13)


@given(
    hnp.arrays(np.int64, 12, elements=st.integers(0, 2**53)),
    hnp.arrays(np.int64, 12, elements=st.integers(1, 2**53)),
    hnp.arrays(np.int64, 12, elements=st.integers(1, 2**58)),
)
def test_density_limbs_are_exact(away: np.ndarray, reach: np.ndarray, pulls: np.ndarray) -> None:
    active = [(int(d), int(p)) for d, r, p in zip(away, reach, pulls, strict=True) if d < r]
    for density_limbs in (kernels.density_limbs, kernels.density_limbs.py_func):
        limbs, height = density_limbs(away, reach, pulls)
        assert kernels.join_limbs(limbs) == sum(d * p for d, p in active)
        assert height == sum(p for _, p in active)


KINDS = ("jit", "inner", "inlined")


def kind_of(node: ast.AST) -> str:
    ways = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return next((way.id for way in ways if isinstance(way, ast.Name) and way.id in KINDS), "")


def named(node: ast.AST, module: str, imported: dict[str, str]) -> tuple[str, str]:
    """Return the module and the name that an expression means, if it is one of ours."""
    if isinstance(node, ast.Name):
        return imported.get(node.id, module), node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id, node.attr
    return "", ""


def python_calls(sources: dict[str, str]) -> list[str]:
    """Return where Python would call what only compiled code can call, as `module: name`."""
    trees = {module: ast.parse(text) for module, text in sources.items()}
    every = [(module, node) for module, tree in trees.items() for node in ast.walk(tree)]
    closed = {
        (module, node.name)
        for module, node in every
        if isinstance(node, ast.FunctionDef) and kind_of(node) in ("inner", "inlined")
    }
    compiled = {id(part) for _, node in every if kind_of(node) for part in ast.walk(node)}
    compiled |= {  # who has one compiled does not call it
        id(node.value)
        for _, node in every
        if isinstance(node, ast.Attribute) and node.attr == "compile"
    }
    imports = [(m, node) for m, node in every if isinstance(node, ast.ImportFrom)]
    imported: dict[str, dict[str, str]] = {module: {} for module in trees}
    for module, node in imports:
        source = (node.module or "").removeprefix("dshift.")
        imported[module] |= {alias.name: source for alias in node.names}
    return [
        f"{module}: {named(node, module, imported[module])[1]}"
        for module, node in every
        if named(node, module, imported[module]) in closed and id(node) not in compiled
    ]


def test_python_calls_no_compiled_function_without_a_way_in() -> None:
    home = Path(dshift.__file__).parent
    sources = {path.stem: path.read_text("utf-8") for path in home.glob("*.py")}
    assert "@inner\ndef classify" in sources["tiles"]
    assert python_calls(sources) == []
    wrong = "from dshift.few import pull_of\ndef f(a): return tiles.classify(a), pull_of(a)"
    assert python_calls(sources | {"new": wrong}) == ["new: classify", "new: pull_of"]


@pytest.mark.parametrize("ratios", [np.empty(0), np.array([1.0, 0.3, 1 / 7])])
def test_shares_are_rounded_to_the_grid_in_place(ratios: np.ndarray) -> None:
    shares = np.random.default_rng(3).random((50, 3))
    shares[:2] = [[0.0, 0.5, 1.0], [2.0**-47, 1.5 * 2.0**-46, 2.5 * 2.0**-46]]
    scaled = shares * ratios if len(ratios) else shares
    expected = 2 * np.rint(scaled * 2.0**46).astype(np.int64)
    for place in both(kernels.place_shares):
        bits = shares.view(np.int64).copy()
        place(bits, ratios, 2.0**46)
        np.testing.assert_array_equal(bits, expected)


@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("farthest", [30, 130, 30_000])
@pytest.mark.parametrize("slot_bytes", [2, 3, 4])
def test_lanes_cross_where_they_have_counted_enough(
    registers: bool, step: int, farthest: int, slot_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With registers for masks and without: the same lanes and counts as row by row."""
    monkeypatch.setattr(simd_lanes, "_has_mask_registers", lambda: registers)
    most = simd_lanes.ROWS_CROSSED

    @numba.njit
    def cross(slots: Any, column: int, first: int, last: int, masks: Any, told: Any) -> None:
        counts, marks, crossed = told
        simd_lanes.find_crossings(
            slots, slot_bytes, column, first, last, step, masks, counts, 1, marks, crossed
        )

    random = np.random.default_rng(1)
    n_slots = 300
    masks = random.integers(0, 2**64, n_slots, np.uint64, endpoint=False)
    order = np.stack([random.permutation(n_slots) for _ in range(3)])
    in_bytes = order.astype("<u4")[:, :, None].view(np.uint8)[:, :, :slot_bytes]
    spared = np.append(in_bytes.ravel(), random.integers(0, 256, 4 - slot_bytes, np.uint8))
    slots = spared[: 3 * n_slots * slot_bytes].reshape(3, -1)
    lanes = random.integers(-farthest, 3, 64)
    counts = np.stack([np.zeros(64), lanes]).astype(np.int16).view(np.uint16)
    both = random.integers(0, 2, 64)  # cross at 1 as well
    marks = (0xFF - both).astype(np.uint8)
    expected = []
    places = range(n_slots - most, n_slots) if step > 0 else range(most - 1, -1, -1)
    for place in places:
        mask = int(masks[order[2, place]])
        counted = np.array([(mask >> lane) & 1 == 1 for lane in range(64)])
        lanes += counted
        crossed = np.flatnonzero(counted & ((lanes == 0) | (lanes == both)))
        expected.append(sum(1 << lane for lane in crossed.tolist()))
    assert any(expected) or farthest > most
    crossed = np.full(most + 1, 5, np.uint64)
    cross(slots, 2, places[0], places[-1] + step, masks, (counts, marks, crossed))
    assert crossed.tolist() == [*expected, 5]
    np.testing.assert_array_equal(counts[1].view(np.int16), lanes)
    assert not counts[0].any()


@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 124])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_crossings_are_noted_row_by_row(n_rows: int, side: int, share: float) -> None:
    """With the slot at which the watched lane crosses: the first, or from above the last."""
    n_slots, slot_bytes, n_before = 300, 3, 2

    @numba.njit
    def note(slots: Any, first: int, told: Any, rows: Any, coords: Any, notes: Any) -> int:
        crossed, n, watched, found = told
        step = 1 - 2 * side
        return simd_notes.note_crossings(
            slots,
            slot_bytes,
            1,
            first,
            step,
            crossed,
            n,
            rows,
            coords,
            2,
            notes,
            n_before,
            watched,
            side == 0,
            found,
        )

    random = np.random.default_rng(n_rows)
    order = np.stack([random.permutation(n_slots) for _ in range(2)])
    in_bytes = order.astype("<u4")[:, :, None].view(np.uint8)[:, :, :slot_bytes]
    slots = np.append(in_bytes.ravel(), np.uint8(9))[:-1].reshape(2, -1)
    rows, coords = random.permutation(n_slots), np.zeros((n_slots, 3), np.int64)
    crossed = random.integers(0, 2**64, 128, np.uint64, endpoint=False)
    crossed[random.random(128) >= share] = 0
    watched, first = 2**5, 150
    places = [first + (1 - 2 * side) * i for i in range(n_rows)]
    at = [(int(order[1, place]), int(crossed[i])) for i, place in enumerate(places)]
    for known in (-1, 7):
        found, notes = np.array([known]), np.zeros((140, 2), np.uint64)
        told = crossed, n_rows, np.uint64(watched), found
        both = note(slots, first, told, rows, coords, notes)
        expected = [[int(rows[slot]), word] for slot, word in at if word]
        assert notes[n_before : n_before + len(expected)].tolist() == expected
        assert not notes[:n_before].any()
        assert not notes[n_before + len(expected) :].any()
        n_lanes = sum(word.bit_count() for _, word in expected)
        assert both == (n_lanes << simd_notes.NOTE_BITS) + len(expected)
        seen = [slot for slot, word in at if word & watched]
        keeps = side == 0 and known >= 0
        assert found[0] == (known if keeps or not seen else seen[0 if side == 0 else -1])


def test_words_that_change() -> None:
    @numba.njit
    def look(words: Any, before: Any) -> Any:
        return simd_counts.lanes_changed(words, 3, before)

    random = np.random.default_rng(3)
    words = random.integers(0, 2, 70, np.uint64) * np.uint64(2**40)
    own = words[3:67].tolist()
    for before in (0, 2**40):
        changed = look(words, np.uint64(before))
        steps = zip([before, *own], own, strict=False)
        assert changed == sum(1 << lane for lane, (one, word) in enumerate(steps) if one != word)


def test_lanes_below_a_limit_are_a_word() -> None:
    @numba.njit
    def less(counts: Any, limit: int) -> Any:
        return simd_lanes.lanes_less(counts, 1, limit)

    counts = np.random.default_rng(2).integers(-2, 3, (2, 64)).astype(np.int16)
    for limit in (-1, 0, 1):
        expected = sum(1 << lane for lane in np.flatnonzero(counts[1] < limit).tolist())
        assert less(counts.view(np.uint16), limit) == expected


@pytest.mark.parametrize("n", [1, 2, 9])
def test_values_are_added_to_the_lanes_of_their_words(n: int) -> None:
    @numba.njit
    def add(coords: Any, notes: Any, n: int, totals: Any) -> None:
        simd_notes.add_to_lanes(coords, 2, notes, n, totals)

    random = np.random.default_rng(n)
    coords = random.integers(-(2**60), 2**60, (20, 3))
    notes = random.integers(0, 2**64, (10, 2), np.uint64, endpoint=False)
    notes[:, 0] %= np.uint64(20)
    totals = random.integers(-100, 100, 64)
    expected = np.zeros(64, np.int64)
    for row, word in notes[:n].tolist():
        expected += [int(coords[row, 2]) * (word >> lane & 1) for lane in range(64)]
    add(coords, notes, n, totals)
    np.testing.assert_array_equal(totals, expected)


@pytest.mark.parametrize("n_quads", [1, 2, 17])
@pytest.mark.parametrize("word", [0, 1, 2**63, 0x00FF_0000_0001_0800, 2**64 - 1])
@pytest.mark.parametrize("n_points", [1, 4])
def test_distances_of_a_tile_are_sums_up_to_the_largest(
    n_quads: int, word: int, n_points: int
) -> None:
    """Of the eights of rows that a word has a bit of, and of no others; how many is told."""
    l1 = simd_distances.l1_tile if n_points == 4 else simd_distances.l1_tile_of_one

    @numba.njit
    def measure(codes: Any, word: Any, points: Any, quads: Any, base: Any, distances: Any) -> int:
        return l1(codes, 1, np.uint64(word), points, 4, quads, len(quads), base, distances)

    random = np.random.default_rng(n_quads)
    rows = random.integers(0, simd.LARGEST_CODE, (3, 64, 4 * n_quads), np.uint16, endpoint=True)
    codes = np.ascontiguousarray(rows.reshape(3, 8, 8, n_quads, 4).transpose(0, 1, 3, 2, 4))
    points = random.integers(0, simd.LARGEST_CODE, (8, 4 * n_quads), np.uint16, endpoint=True)
    points[5] = rows[1, 8]
    base = random.integers(0, 1000, (1, 64), np.uint16)
    looked_at = np.repeat([(word >> 8 * eight) & 255 > 0 for eight in range(8)], 8)
    for quads in (np.arange(n_quads), random.permutation(n_quads)[: (n_quads + 1) // 2]):
        columns = (quads[:, None] * 4 + np.arange(4)).ravel()
        gaps = np.abs(rows[1].astype(int) - points[4 : 4 + n_points, None].astype(int))
        apart = gaps[:, :, columns].sum(axis=2) + base
        assert n_quads < 17 or apart.max() > 65_535
        distances = np.full((n_points, 64), 7, np.uint16)
        n_pairs = measure(codes, np.uint64(word), points, quads, base, distances)
        assert n_pairs == n_points * looked_at.sum()
        np.testing.assert_array_equal(distances, np.where(looked_at, np.minimum(apart, 65_535), 7))


@pytest.mark.parametrize("n_quads", [1, 2, 17])
@pytest.mark.parametrize("word", [0, 1, 2**63, 0x00FF_0000_0001_0800, 2**64 - 1])
def test_near_distances_of_a_tile_are_right_modulo_a_power_of_two(n_quads: int, word: int) -> None:
    """From twice the sums of the larger codes, of some columns for one point and of the others."""

    @numba.njit
    def measure(codes: Any, word: Any, points: Any, parts: Any, sums: Any, distances: Any) -> int:
        some, others = parts
        none, base = np.zeros((1, 64), np.uint16), np.zeros((1, 64), np.uint16)
        if len(some) > 0:
            args = codes, 1, np.uint64(word), points, 4, some, len(some), none, base
            simd_distances.twice_larger(*args)
        near = codes, 1, np.uint64(word), points, 4, others, len(others), base, distances
        return simd_distances.l1_tile_near(*near, *sums)

    random = np.random.default_rng(n_quads)
    rows = random.integers(0, simd.LARGEST_CODE, (3, 64, 4 * n_quads), np.uint16, endpoint=True)
    codes = np.ascontiguousarray(rows.reshape(3, 8, 8, n_quads, 4).transpose(0, 1, 3, 2, 4))
    points = random.integers(0, simd.LARGEST_CODE, (8, 4 * n_quads), np.uint16, endpoint=True)
    n_alike = n_quads // 2
    points[4:, : 4 * n_alike] = points[4, : 4 * n_alike]
    sums = rows.sum(axis=2, dtype=np.uint16), points.sum(axis=1, dtype=np.uint16)
    looked_at = np.repeat([(word >> 8 * eight) & 255 > 0 for eight in range(8)], 8)
    apart = np.abs(rows[1].astype(int) - points[4:, None].astype(int)).sum(axis=2)
    assert n_quads < 17 or apart.max() > 65_535
    distances = np.full((4, 64), 7, np.uint16)
    parts = np.arange(n_alike), np.arange(n_alike, n_quads)
    n_pairs = measure(codes, np.uint64(word), points, parts, sums, distances)
    assert n_pairs == 4 * looked_at.sum()
    np.testing.assert_array_equal(distances, np.where(looked_at, apart % 2**16, 7))


@pytest.mark.parametrize("constant", [(), (0, 1, 2, 3), (4, 5, 6), tuple(range(4, 12)), range(12)])
def test_quads_of_columns_in_which_points_are_alike_are_listed(constant: Sequence[int]) -> None:
    """One quad counts as one that differs if all are alike."""

    @numba.njit
    def find(alike: Any, codes: Any, n_points: int) -> None:
        tiles.find_alike(alike, codes, 1, 1 + n_points)

    codes = np.arange(6 * 12, dtype=np.uint16).reshape(6, 12)
    codes[1:5, list(constant)] = 9
    alike = tiles.make_alike(11)
    alike.differ[:] = alike.base[:] = 1
    find(alike, codes, 4)
    expected = [quad for quad in range(3) if set(range(4 * quad, 4 * quad + 4)) <= set(constant)]
    assert (alike.base == 0).all() or expected
    if len(expected) == 3:
        expected.pop()
    assert alike.quads[: alike.n[1]].tolist() == expected
    assert sorted(alike.others[: alike.n[0]].tolist() + expected) == [0, 1, 2]


@pytest.mark.parametrize("n_columns", [0, 1, 32, 33, 136, 2_000])
def test_distances_of_rows_whose_codes_leave_room_for_their_sum(n_columns: int) -> None:
    """Of points as far apart as can be, so that one bit more would be too many."""

    @numba.njit
    def measure(left: Any, right: Any) -> int:
        return simd_distances.l1_of_rows(left, 1, right, 2)

    points = index.read_only(np.stack([np.zeros(n_columns), np.full(n_columns, 2**40)]).astype(int))
    lows, shift = halves.scale(points)
    width = max(-(-n_columns // simd.CODES_AT_ONCE), 1) * simd.CODES_AT_ONCE
    left, right = np.zeros((2, width), np.uint16), np.zeros((3, width), np.uint16)
    right[2, :n_columns] = (points[1] - lows) >> shift
    random = np.random.default_rng(n_columns)
    for _ in range(3):
        expected = np.abs(left[1].astype(int) - right[2].astype(int)).sum()
        assert measure(left, right) == expected
        left[1, :n_columns] = random.permutation(right[2, :n_columns])
        right[2, :n_columns] = random.integers(0, int(right[2].max()) + 1, n_columns)


@pytest.mark.parametrize("n_columns", [1, 31, 32, 33, 70])
def test_rows_that_enter_and_leave_are_counted(n_columns: int) -> None:
    """Below the bounds, and at them too, in one lane; other lanes stay as they are."""

    @numba.njit
    def count(ranks: Any, tile: int, entered: Any, left: Any, bounds: Any, counts: Any) -> None:
        simd_counts.count_rows(ranks, tile, entered, left, bounds, counts, 5)

    random = np.random.default_rng(n_columns)
    padded = -(-n_columns // simd.RANKS_AT_ONCE) * simd.RANKS_AT_ONCE
    flat = random.integers(0, 9, 192 * n_columns + simd.RANKS_AT_ONCE).astype(np.uint16)
    ranks = flat[: 192 * n_columns].reshape(192, n_columns)
    bounds = random.integers(0, 9, padded).astype(np.uint16)
    counts = random.integers(0, 2**16, (64, 2, padded)).astype(np.uint16)
    expected = counts.copy()
    words = [random.integers(0, 2**64, dtype=np.uint64) for _ in range(2)]
    for word, sign in zip(words, (1, -1), strict=True):
        rows = ranks[128 + np.flatnonzero([(int(word) >> bit) & 1 for bit in range(64)])]
        for side, below in enumerate((rows < bounds[:n_columns], rows <= bounds[:n_columns])):
            expected[5, side, :n_columns] += (sign * below.sum(axis=0)).astype(np.uint16)
    count(ranks, 2, *words, bounds, counts)
    np.testing.assert_array_equal(counts[:, :, :n_columns], expected[:, :, :n_columns])
    count(ranks, 2, np.uint64(0), np.uint64(0), bounds, counts)
    np.testing.assert_array_equal(counts[:, :, :n_columns], expected[:, :, :n_columns])


def test_words_of_lanes_become_words_of_rows() -> None:
    @numba.njit
    def transpose(words: Any, masks: Any) -> None:
        simd.transpose_words(words, 64, masks, 3)

    bits = np.random.default_rng(0).integers(0, 2, (64, 64))
    words = np.zeros((3, 64), np.uint64)
    words[1] = np.packbits(bits, axis=1, bitorder="little").view(np.uint64).ravel()
    masks = np.zeros(70, np.uint64)
    transpose(words, masks)
    rows = np.ascontiguousarray(bits.T)
    expected = np.packbits(rows, axis=1, bitorder="little").view(np.uint64).ravel()
    np.testing.assert_array_equal(masks[3:67], expected)
    assert not masks[:3].any()
    assert not masks[67:].any()


def test_inner_functions_cannot_make_arrays() -> None:
    """They count no references, so what they made would never be freed."""

    @kernels.inner
    def make() -> int:
        return int(np.empty(3)[0])

    @numba.njit
    def call() -> int:
        return make()

    with pytest.raises(numba.core.errors.NumbaError, match=r"function empty"):
        call()


@pytest.mark.parametrize("n_columns", [0, 1, 5])
def test_hashes_of_rows_are_those_of_any_language(n_columns: int) -> None:
    """As numbers of 64 bits have them: what a store keeps must not change with the compiler."""
    random = np.random.default_rng(n_columns)
    rows = random.integers(-(2**63), 2**63, (4, n_columns), np.int64, endpoint=False)
    hashes = np.full(4, 7, np.uint64)
    kernels.hash_rows(rows, hashes)
    modulus = 2**64
    for row, found in zip(rows.tolist(), hashes.tolist(), strict=True):
        total = 0
        for k, entry in enumerate(row):
            mixed = (entry % modulus) ^ ((k + 1) * 0x9E3779B97F4A7C15 % modulus)
            mixed = (mixed ^ mixed >> 33) * 0xFF51AFD7ED558CCD % modulus
            mixed = (mixed ^ mixed >> 29) * 0xC4CEB9FE1A85EC53 % modulus
            total += mixed ^ mixed >> 32
        assert found == total % modulus


@given(st.integers(0, 2**32), st.sampled_from([1, 2**20, 2**63]))
def test_no_two_rows_have_one_hash(seed: int, width: int) -> None:
    """Rows that differ by a sign, by an order, or by one bit, as data do that were altered."""
    random = np.random.default_rng(seed)
    row = random.integers(1, width, 6, endpoint=width < 2**63)
    flips = row.view(np.float64) * np.array([1.0, -1.0])[random.integers(0, 2, (20, 6))]
    bits = row ^ (1 << random.integers(0, 63, (20, 1)) * random.integers(0, 2, (20, 6)))
    orders = np.array([random.permutation(row) for _ in range(20)])
    rows = np.unique(np.concatenate([row[None], flips.view(np.int64), bits, orders]), axis=0)
    hashes = np.empty(len(rows), np.uint64)
    kernels.hash_rows(rows, hashes)
    assert len(set(hashes.tolist())) == len(rows)
