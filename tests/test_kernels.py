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
from dshift import kernels, simd, simd_counts, simd_distances, tiles


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


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("farthest", [30, 130, 30_000])
def test_lanes_cross_where_they_have_counted_enough(
    masks: bool, step: int, farthest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With registers for masks and without: the same rows, lanes and counts as one by one."""
    monkeypatch.setattr(simd_counts, "_has_mask_registers", lambda: masks)
    most = simd_counts.ROWS_CROSSED

    @numba.njit
    def cross(rows: Any, first: int, last: int, counts: Any, marks: Any, notes: Any, n: int) -> int:
        places, words = notes
        return simd_counts.find_crossings(
            rows, first, last, step, counts, 1, marks, places, words, n
        )

    random = np.random.default_rng(1)
    present = random.integers(0, 2**64, 300, np.uint64, endpoint=False)
    lanes = random.integers(-farthest, 3, 64)
    counts = np.stack([np.zeros(64), lanes]).astype(np.int16).view(np.uint16)
    both = random.integers(0, 2, 64)  # cross at 1 as well
    marks = (0xFF - both).astype(np.uint8)
    expected = []
    rows = range(20, 20 + most) if step > 0 else range(19 + most, 19, -1)
    for row in rows:
        counted = np.array([(int(present[row]) >> lane) & 1 == 1 for lane in range(64)])
        lanes += counted
        crossed = np.flatnonzero(counted & ((lanes == 0) | (lanes == both)))
        if len(crossed):
            expected.append((row, sum(1 << lane for lane in crossed.tolist())))
    assert expected or farthest > most
    notes = np.full(200, 5), np.full(200, 5, np.uint64)
    n_found = cross(present, rows[0], rows[-1] + step, counts, marks, notes, 2)
    assert list(zip(notes[0][2:n_found], notes[1][2:n_found], strict=True)) == expected
    assert (notes[0][:2] == 5).all()
    np.testing.assert_array_equal(counts[1].view(np.int16), lanes)
    assert not counts[0].any()
    assert cross(present, 5, 5, counts, marks, notes, 7) == 7


def test_lanes_below_a_limit_are_a_word() -> None:
    @numba.njit
    def less(counts: Any, limit: int) -> Any:
        return simd_counts.lanes_less(counts, 1, limit)

    counts = np.random.default_rng(2).integers(-2, 3, (2, 64)).astype(np.int16)
    for limit in (-1, 0, 1):
        expected = sum(1 << lane for lane in np.flatnonzero(counts[1] < limit).tolist())
        assert less(counts.view(np.uint16), limit) == expected


@pytest.mark.parametrize("n", [0, 1, 9])
def test_values_are_added_to_the_lanes_of_their_words(n: int) -> None:
    @numba.njit
    def add(values: Any, words: Any, n: int, totals: Any) -> None:
        simd_counts.add_to_lanes(values, words, n, totals)

    random = np.random.default_rng(n)
    values = random.integers(-(2**60), 2**60, 10)
    words = random.integers(0, 2**64, 10, np.uint64, endpoint=False)
    totals = random.integers(-100, 100, 64)
    expected = totals.copy()
    for value, word in zip(values[:n], words.tolist(), strict=False):
        expected += [value * (word >> lane & 1) for lane in range(64)]
    add(values, words, n, totals)
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


@pytest.mark.parametrize("constant", [(), (0, 1, 2, 3), (4, 5, 6), tuple(range(4, 12)), range(12)])
def test_quads_of_columns_in_which_points_are_alike_are_listed(constant: Sequence[int]) -> None:
    """One quad counts as one that differs if all are alike."""

    @numba.njit
    def find(alike: Any, codes: Any, n_points: int) -> None:
        tiles.find_alike(alike, codes, n_points)

    codes = np.arange(5 * 12, dtype=np.uint16).reshape(5, 12)
    codes[:4, list(constant)] = 9
    alike = tiles.make_alike(11)
    alike.differ[:] = alike.base[:] = 1
    find(alike, codes, 4)
    expected = [quad for quad in range(3) if set(range(4 * quad, 4 * quad + 4)) <= set(constant)]
    assert (alike.base == 0).all() or expected
    if len(expected) == 3:
        expected.pop()
    assert alike.quads[: alike.n[1]].tolist() == expected
    assert sorted(alike.others[: alike.n[0]].tolist() + expected) == [0, 1, 2]


@pytest.mark.parametrize("n_columns", [1, 31, 32, 33, 70])
def test_rows_that_enter_and_leave_are_counted(n_columns: int) -> None:
    """Below the bounds, and at them too, in one lane; other lanes stay as they are."""

    @numba.njit
    def count(ranks: Any, tile: int, entered: Any, left: Any, bounds: Any, counts: Any) -> None:
        for column in range(0, n_columns, simd.RANKS_AT_ONCE):
            simd_counts.count_rows(ranks, tile, entered, left, bounds, column, counts, 5)

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
