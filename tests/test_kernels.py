"""The plain compiled loops, compiled and as Python, against NumPy and exact whole numbers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dshift
from dshift import kernels, simd, simd_counts, simd_distances


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


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("step", [1, -1])
def test_lanes_cross_where_they_have_counted_enough(
    masks: bool, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With registers for masks and without: the same rows, lanes and counts as one by one."""
    monkeypatch.setattr(simd_counts, "_has_mask_registers", lambda: masks)

    @numba.njit
    def cross(absent: Any, first: int, last: int, needed: Any, places: Any, words: Any) -> int:
        return simd_counts.find_crossings(absent, first, last, step, needed, 1, places, words)

    random = np.random.default_rng(1)
    absent = random.integers(0, 2**64, 300, np.uint64, endpoint=False)
    needed = np.stack([np.zeros(64), -random.integers(0, 200, 64)]).astype(np.int64)
    lanes, expected = needed[1].copy(), []
    rows = range(20, 280) if step > 0 else range(279, 19, -1)
    for row in rows:
        counts = np.array([(int(absent[row]) >> lane) & 1 == 0 for lane in range(64)])
        lanes += counts
        crossed = sum(1 << lane for lane in np.flatnonzero(counts & (lanes == 0)).tolist())
        if crossed:
            expected.append((row, crossed))
    held, places, words = needed.astype(np.uint16), np.zeros(300, int), np.zeros(300, np.uint64)
    n_found = cross(absent, rows[0], rows[-1] + step, held, places, words)
    assert list(zip(places[:n_found], words[:n_found], strict=True)) == expected
    np.testing.assert_array_equal(held[1], lanes.astype(np.uint16))
    assert not held[0].any()
    assert cross(absent, 5, 5, held, places, words) == 0


@pytest.mark.parametrize("n_quads", [1, 2, 17])
@pytest.mark.parametrize("word", [0, 1, 2**63, 0x00FF_0000_0001_0800, 2**64 - 1])
def test_distances_of_a_tile_are_sums_up_to_the_largest(n_quads: int, word: int) -> None:
    """Of the eights of rows that a word has a bit of, and of no others; how many is told."""

    @numba.njit
    def measure(codes: Any, word: Any, points: Any, distances: Any) -> int:
        return simd_distances.l1_tile(codes, 1, np.uint64(word), points, 4, distances)

    random = np.random.default_rng(n_quads)
    rows = random.integers(0, simd.LARGEST_CODE, (3, 64, 4 * n_quads), np.uint16, endpoint=True)
    codes = np.ascontiguousarray(rows.reshape(3, 8, 8, n_quads, 4).transpose(0, 1, 3, 2, 4))
    points = random.integers(0, simd.LARGEST_CODE, (8, 4 * n_quads), np.uint16, endpoint=True)
    points[5] = rows[1, 8]
    apart = np.abs(rows[1].astype(int) - points[4:, None].astype(int)).sum(axis=2)
    assert n_quads == 1 or apart.max() > 65_535
    looked_at = np.repeat([(word >> 8 * eight) & 255 > 0 for eight in range(8)], 8)
    distances = np.full((4, 64), 7, np.uint16)
    assert measure(codes, np.uint64(word), points, distances) == 4 * looked_at.sum()
    np.testing.assert_array_equal(distances, np.where(looked_at, np.minimum(apart, 65_535), 7))


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
