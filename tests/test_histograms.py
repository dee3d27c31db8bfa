"""Histograms of raw data equal `np.histogram` of each sample, however the data come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dshift.rows
from dshift.count_kernels import count_rows
from dshift.counting import make_finder
from dshift.grouping import _number, _numbered
from dshift.hash_kernels import SPREAD
from dshift.histograms import histogram
from dshift.stacks import stack, unstack

EDGES = [0.0, 1.0, 2.5, 4.0]
DTYPES = ("f2", "f4", "f8", ">f4", "i1", "u2", "i4", ">i8", "u8", "?")


class TooEarly(Exception):
    """Something was computed that should have stayed lazy."""


def refuse(*args: object, **kwargs: object) -> None:
    raise TooEarly


def reference(values: Any, edges: Any, weights: Any = None) -> np.ndarray:
    """One sample: what `np.histogram` says of all that is not NaN."""
    numbers = np.asarray(values).astype(np.float64).ravel()
    kept = ~np.isnan(numbers)
    heavy = None if weights is None else np.asarray(weights, dtype=np.float64).ravel()[kept]
    return np.histogram(numbers[kept], edges, weights=heavy)[0]


@st.composite
def edge_lists(draw: st.DrawFn) -> np.ndarray:
    n_bins = draw(st.integers(1, 12))
    start = draw(st.sampled_from([0.0, -3.0, 0.1, -1e-3, 1e6]))
    width = draw(st.sampled_from([1.0, 0.1, 1 / 3, 1e-5, 7.7e4]))
    if draw(st.booleans()):
        return start + width * np.arange(n_bins + 1)
    steps = draw(st.lists(st.sampled_from([1.0, 0.1, 1e-4, 50.0, 3e6]), min_size=n_bins))
    return start + width * np.concatenate([[0.0], np.cumsum(steps)])


@st.composite
def chunkings(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    chunks = []
    for size in shape:
        cuts = draw(st.sets(st.integers(1, max(1, size - 1)), max_size=3)) if size > 1 else set()
        ends = [0, *sorted(cuts), size]
        chunks.append(tuple(np.diff(ends).tolist()))
    return tuple(chunks)


@st.composite
def cubes(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Edges, and values of which many lie on the edges or next to them."""
    edges = draw(edge_lists())
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=6))
    near = np.concatenate(
        [
            edges,
            np.nextafter(edges, np.inf),
            np.nextafter(edges, -np.inf),
            (edges[1:] + edges[:-1]) / 2,
        ]
    )
    if dtype.kind == "f":
        near = np.concatenate([near, edges - 1, edges * 2, [np.nan, np.inf, -np.inf]])
        with np.errstate(over="ignore"):
            pool = near.astype(dtype)
    elif dtype.kind == "b":
        pool = np.array([False, True])
    else:
        info = np.iinfo(dtype)
        pool = np.clip(np.rint(near), float(info.min) / 2, float(info.max) / 2).astype(dtype)
    picks = draw(hnp.arrays(np.intp, shape, elements=st.integers(0, len(pool) - 1)))
    return edges, pool[picks]


@settings(max_examples=80)
@given(st.data())
def test_cube_equals_numpy_for_every_chunking(data: st.DataObject) -> None:
    edges, values = data.draw(cubes())
    dims = [f"d{axis}" for axis in range(values.ndim)]
    over = data.draw(st.sets(st.sampled_from(dims), min_size=1))
    outside = data.draw(st.sampled_from(["drop", "clip"]))
    order = data.draw(st.permutations(dims))
    weights = None
    if data.draw(st.booleans()):  # whole weights, whose sums are exact
        weights = data.draw(hnp.arrays(np.int64, values.shape, elements=st.integers(0, 9)))
    chunks = data.draw(chunkings(values.shape))
    lazy = xr.DataArray(da.from_array(values, chunks=chunks), dims=dims).transpose(*order)
    eager = xr.DataArray(values, dims=dims).transpose(*order)
    heavy = None if weights is None else xr.DataArray(weights, dims=dims)

    found = histogram(eager, edges, dim=over, weights=heavy, outside=outside)
    with dask.config.set(scheduler=refuse):
        promised = histogram(lazy, edges, dim=list(over), weights=heavy, outside=outside)
    computed = promised.compute(scheduler="sync")

    samples = [name for name in order if name not in over]
    assert found.dims == promised.dims == (*samples, "bin")
    for name in samples:
        assert promised.chunksizes[name] == lazy.chunksizes[name]
    xr.testing.assert_identical(found, computed)
    stacked = eager.transpose(*samples, *over).to_numpy().reshape(*found.shape[:-1], -1)
    loads = None
    if heavy is not None:
        loads = heavy.transpose(*samples, *over).to_numpy().reshape(stacked.shape)
    for index in np.ndindex(found.shape[:-1]):
        series = stacked[index].astype(np.float64)
        load = None if loads is None else loads[index]
        if outside == "clip":
            inside = np.clip(series, edges[0], edges[-1])
            expected = reference(inside, edges, load)
        else:
            expected = reference(series, edges, load)
        np.testing.assert_array_equal(found.values[index], expected)
        assert found.n_missing.values[index] == np.isnan(series).sum()
        assert found.n_below.values[index] == (series < edges[0]).sum()
        assert found.n_above.values[index] == (series > edges[-1]).sum()


@settings(max_examples=60)
@given(st.data())
def test_density_equals_numpy(data: st.DataObject) -> None:
    edges = data.draw(edge_lists())
    inside = st.sampled_from([*edges, *((edges[1:] + edges[:-1]) / 2)])
    values = data.draw(hnp.arrays(np.float64, (3, 5), elements=inside))
    weights = data.draw(hnp.arrays(np.float64, (3, 5), elements=st.floats(0.5, 2)))
    cube = xr.DataArray(da.from_array(values, chunks=(2, 5)), dims=("s", "t"))
    plain = histogram(cube, edges, dim="t", density=True)
    heavy = histogram(cube, edges, dim="t", density=True, weights=weights)
    assert (plain.name, plain.dtype) == ("density", np.float64)
    for i in range(3):
        np.testing.assert_array_equal(
            plain.values[i], np.histogram(values[i], edges, density=True)[0]
        )
        expected = np.histogram(values[i], edges, density=True, weights=weights[i])[0]
        np.testing.assert_allclose(heavy.values[i], expected, rtol=1e-12)


def test_density_of_a_sample_without_values_is_nan() -> None:
    found = histogram([[], [1.5]], EDGES, density=True)
    assert np.isnan(found.values[0]).all()
    np.testing.assert_array_equal(found.values[1], [0, 1 / 1.5, 0])


def test_densities_over_uneven_bins_are_refused_where_shares_are_needed() -> None:
    cube = np.random.default_rng(0).uniform(0, 4, (6, 50))
    even, uneven = np.linspace(0, 4, 5), [0, 1, 2, 4]
    flat = histogram(cube, even, dim="dim_1", density=True)
    counts = histogram(cube, even, dim="dim_1")
    labels = [dshift.fit(rows, 0.2).label.values.tolist() for rows in (flat, counts)]
    assert labels[0] == labels[1]
    steep = histogram(cube, uneven, dim="dim_1", density=True)
    refused = r"holds densities over bins of different widths, .* without `density`"
    for use in (lambda d: dshift.fit(d, 0.2), dshift.sweep, lambda d: dshift.stack({"a": d})):
        with pytest.raises(dshift.InvalidInput, match=refused):
            use(steep)
    shares = (steep * np.diff(uneven)).drop_attrs().assign_attrs(edges=uneven)
    plain = histogram(cube, uneven, dim="dim_1")
    np.testing.assert_array_equal(dshift.fit(shares, 0.2).label, dshift.fit(plain, 0.2).label)


def test_masked_values_of_a_series_are_missing() -> None:
    series = np.ma.array([1.0, 2.0, 3], mask=[False, True, False])
    found = histogram([series, [3.5]], EDGES)
    np.testing.assert_array_equal(found.values, [[0, 1, 1], [0, 0, 1]])
    assert found.n_missing.values.tolist() == [1, 0]


def test_threads_count_a_table_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    ids, values = rng.integers(-5, 50, 5000), rng.uniform(0, 4, 5000)
    values[::7] = np.nan
    for keys in (ids, np.sort(ids), ids.astype(str)):
        frame = pd.DataFrame({"k": keys, "v": values})
        whole = histogram(frame, EDGES, id="k", value="v")
        with monkeypatch.context() as cut:
            cut.setattr("dshift.tables.LEAST_ROWS", 100)
            cut.setattr("dshift.tables.CPU_COUNT", 13)
            xr.testing.assert_identical(histogram(frame, EDGES, id="k", value="v"), whole)
        with_edges = histogram(frame, bins=3, id="k", value="v")
        assert with_edges.n_missing.sum() == np.isnan(values).sum()


def test_large_even_and_uneven_bins_equal_numpy() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("f4", "f8"):
        values = np.clip(rng.normal(size=(4, 30_000)), -5, 5).astype(dtype)
        for edges in (
            np.linspace(-5, 5, 65),
            np.linspace(-5, 5, 1001),
            np.linspace(-5.000001, 5.1, 778),
            np.sinh(np.linspace(-3, 3, 50)),
            np.sort(rng.uniform(-5, 5, 5000)),
            np.array([-6, 0, 1e-300, 2e-300, 1, 1e300]),
            np.array([0, 5e-324, 1e-323]),
        ):
            found = histogram(values, edges, dim="dim_1", outside="drop")
            for i in range(4):
                np.testing.assert_array_equal(found.values[i], reference(values[i], edges))


def test_even_edges_that_values_come_close_to_are_found_without_a_lookup() -> None:
    edges = np.linspace(-6, 6, 65)  # near 0 values are finer than their distance from -6 is
    assert make_finder(edges, np.dtype("f8")).step == 0.1875
    uneven = edges.copy()
    uneven[20] = np.nextafter(uneven[20], 0)
    assert make_finder(uneven, np.dtype("f8")).low is not None
    for dtype in ("f4", "f8"):
        at = np.concatenate([edges, uneven]).astype(dtype)
        values = np.concatenate([at, *(np.nextafter(at, at.dtype.type(to)) for to in (-9, 9))])
        for some in (edges, uneven):
            found = histogram(values, some, dim="dim_0", outside="drop")
            np.testing.assert_array_equal(found.values, reference(values, some))


@settings(max_examples=200)
@given(
    st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.integers(1, 40), st.sampled_from(["f4", "f8"])
)
def test_no_value_next_to_an_edge_goes_astray(
    low: float, width: float, n_bins: int, dtype: str
) -> None:
    edges = np.linspace(low, low + width, n_bins + 1)
    at = edges.astype(dtype)
    values = np.concatenate([at, *(np.nextafter(at, at.dtype.type(to)) for to in (-1e4, 1e4))])
    found = histogram(values, edges, dim="dim_0", outside="drop")
    np.testing.assert_array_equal(found.values, reference(values, edges))


# ---------------------------------------------------------------------------------------- laziness


def test_the_data_are_read_once_and_the_memory_is_bounded_by_chunks() -> None:
    reads = []

    def read(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        reads.append(block_info[0]["chunk-location"])
        return block

    raw = da.zeros((6, 4, 8), chunks=(2, 2, 4)).map_blocks(
        read, dtype=float, meta=np.empty((0, 0, 0))
    )
    found = histogram(xr.DataArray(raw, dims=("t", "y", "x")), EDGES, dim="t")
    assert reads == []
    found.compute(scheduler="sync")
    assert sorted(reads) == sorted(np.ndindex(3, 2, 2))


def test_small_chunks_are_joined_along_the_dimension_counted_over() -> None:
    raw = da.zeros((400, 10, 10), chunks=(1, 5, 10), dtype="f4")
    found = histogram(xr.DataArray(raw, dims=("t", "y", "x")), np.arange(65) - 0.5, dim="t")
    assert found.chunks == ((5, 5), (10,), (64,))
    names = [str(key[0]) for key in dict(found.data.dask)]
    tables = [n for n in names if n.startswith("dshift-histogram") and "-sum" not in n]
    assert 2 * 400 / 67 <= len(tables) <= 2 * 400 / 60
    assert (found.values.sum(axis=-1) == 400).all()


def test_counts_come_in_the_smallest_safe_type() -> None:
    cube = xr.DataArray(da.zeros((2**31, 2), dtype="i1", chunks=(2**24, 2)), dims=("t", "s"))
    assert histogram(cube, EDGES, dim="t").dtype == np.int64
    assert histogram(cube[:-1], EDGES, dim="t").dtype == np.int32
    assert histogram([[1.0]], EDGES).dtype == np.int64
    assert histogram(cube[:4], EDGES, dim="t", weights=cube[:4]).dtype == np.float64


def test_series_of_dask_arrays_are_lazy() -> None:
    lazy = [da.from_array(np.array([0.5, 3.0, np.nan]), chunks=2), np.array([1.0])]
    with dask.config.set(scheduler=refuse):
        found = histogram(lazy, EDGES, weights=[[1, 2, 3], da.ones(1)])
    assert found.chunks is not None
    np.testing.assert_array_equal(found.values, [[1, 0, 2], [0, 1, 0]])
    np.testing.assert_array_equal(found.n_missing.values, [1, 0])


def test_series_may_be_of_xarray() -> None:
    series = [[0.5, 3.0, np.nan], [1.0]]
    plain = [xr.DataArray(one, dims="t") for one in series]
    for some in (plain, [plain[0].chunk(t=2), plain[1]]):
        found = histogram(some, EDGES)
        np.testing.assert_array_equal(found.values, [[1, 0, 1], [0, 1, 0]])
        np.testing.assert_array_equal(found.n_missing.values, [1, 0])
    assert found.chunks is not None


def test_a_dask_table_is_surveyed_at_once_and_counted_later() -> None:
    frame = pd.DataFrame({"k": [1, 2, 1], "v": [0.5, 1.5, 3.0]})
    table = dd.from_pandas(frame, npartitions=2)
    with dask.config.set(scheduler=refuse), pytest.raises(TooEarly):
        histogram(table, EDGES, id="k", value="v")
    found = histogram(table, EDGES, id="k", value="v")
    assert found.chunks is not None
    with dask.config.set(scheduler=refuse), pytest.raises(TooEarly):
        found.compute()
    np.testing.assert_array_equal(found.values, [[1, 0, 1], [0, 1, 0]])


# ------------------------------------------------------------------------------------------ tables

IDS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([-(2**62), 0, 2**62]),
    st.sampled_from(["b", "a", "long name", ""]),
    st.sampled_from([0.5, -1.0, 2.25]),
    st.sampled_from([pd.Timestamp("2020-01-01"), pd.Timestamp("1999-12-31")]),
)


@settings(max_examples=40)
@given(data=st.data())
def test_tables_in_every_form_agree(tmp_path_factory: Any, data: st.DataObject) -> None:
    kind = data.draw(st.integers(0, len(IDS.element_strategies) - 1))
    ids = data.draw(st.lists(IDS.element_strategies[kind], min_size=1, max_size=25))
    n = len(ids)
    values = data.draw(
        hnp.arrays(np.float32, n, elements=st.sampled_from([0, 1, 2, 2.5, 4, np.nan]))
    )
    loads = data.draw(hnp.arrays(np.int16, n, elements=st.integers(0, 4)))
    weights = data.draw(st.sampled_from([None, "w"]))
    frame = pd.DataFrame({"k": ids, "v": values, "w": loads})
    how = {"edges": EDGES, "id": "k", "value": "v", "weights": weights}

    found = histogram(frame, **how)
    assert found.dims == ("k", "bin")
    assert found.k.values.tolist() == np.asarray(pd.Index(sorted(set(ids)))).tolist()
    for key, row, missing in zip(
        sorted(set(ids)), found.values, found.n_missing.values, strict=True
    ):
        mine = np.array([i == key for i in ids])
        load = None if weights is None else loads[mine]
        np.testing.assert_array_equal(row, reference(values[mine], EDGES, load))
        assert missing == np.isnan(values[mine]).sum()

    path = tmp_path_factory.mktemp("parquet") / "rows.parquet"
    frame.to_parquet(path, row_group_size=7)
    categories = frame.assign(k=pd.Categorical(ids, categories=sorted(set(ids), reverse=True)))
    nullable = frame.assign(v=pd.array(values, dtype="Float64"))
    others = {
        "dask": dd.from_pandas(frame, npartitions=data.draw(st.integers(1, 5))),
        "parquet": path,
        "categories": categories,
        "nullable": nullable,
    }
    for name, other in others.items():
        again = histogram(other, **how).compute(scheduler="sync")
        np.testing.assert_array_equal(again.values, found.values, err_msg=name)
        np.testing.assert_array_equal(again.n_missing.values, found.n_missing.values)
        assert again.k.values.tolist() == found.k.values.tolist()
        assert again.attrs == found.attrs
    series: dict[Any, list[float]] = {}
    for key, number in zip(ids, values, strict=True):
        series.setdefault(key, []).append(number)
    in_order = {key: np.array(series[key]) for key in sorted(series)}
    if weights is None:
        np.testing.assert_array_equal(histogram(in_order, EDGES).values, found.values)
        np.testing.assert_array_equal(histogram([*in_order.values()], EDGES).values, found.values)


def test_ids_of_every_width_and_spread() -> None:
    rng = np.random.default_rng(1)
    values = rng.uniform(0, 4, 5000)
    small = rng.integers(0, 100, 5000)
    plain = histogram(pd.DataFrame({"k": small, "v": values}), EDGES, id="k", value="v")
    for ids in (
        small.astype("i1"),
        small.astype(">i4"),
        small.astype("u8"),
        small * 1000 - 7,
        small * 10**15,
        small.astype("u8") + np.uint64(2**63),
        small.astype("f4"),
        small.astype("U5"),
    ):
        found = histogram(pd.DataFrame({"k": ids, "v": values}), EDGES, id="k", value="v")
        back = {key: row for key, row in zip(ids.tolist(), small, strict=True)}
        rows = [back[key] for key in found.k.values.tolist()]
        np.testing.assert_array_equal(found.values, plain.sel(k=rows).values)


@pytest.mark.parametrize("keys", [[3, 7], [2**61, -7], ["b", "a"]])
def test_counts_beyond_a_byte(keys: list[Any]) -> None:
    """A count comes round at 256, and entries are found in several turns."""
    values = np.repeat([0.5, 1.5, 3.0], [255, 256, 80_000])
    for n in (255, 511, len(values)):
        rows = {keys[0]: values[:n], keys[1]: 4 - values[:n]}
        frame = pd.DataFrame({"k": np.tile(keys, n), "v": np.stack([*rows.values()], 1).ravel()})
        found = histogram(frame, EDGES, id="k", value="v")
        assert found.k.values.tolist() == sorted(keys)
        assert found.dtype == np.int64
        for key, row in zip(sorted(keys), found.values, strict=True):
            np.testing.assert_array_equal(row, reference(rows[key], EDGES))


@pytest.mark.parametrize("index", [np.uint32, np.uint64])
def test_entries_of_tables_of_any_size(index: Any) -> None:
    rng = np.random.default_rng(0)
    labels, values = rng.integers(0, 9, 1000), rng.uniform(0, 4, 1000)
    table, wide = np.zeros((9, 6), np.uint8), np.zeros((9, 6), np.int32)
    finder = make_finder(np.array(EDGES), values.dtype)
    n_round = count_rows(labels, 0, None, values, 3, *finder, np.empty(64, index), table, wide)
    assert n_round == 0
    for label in range(9):
        np.testing.assert_array_equal(table[label, :3], reference(values[labels == label], EDGES))


TEXTS = st.one_of(
    st.text(max_size=3),
    st.text("ab", min_size=6, max_size=10),  # up to 7 bytes are their own key
    st.text("a\0", max_size=4),
    st.sampled_from(["a" * 40, "a" * 39 + "b", "b" + "a" * 39, "é" * 4, "日本語"]),
)


@given(
    st.one_of(
        st.lists(TEXTS, min_size=1, max_size=40),
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40),
        st.lists(st.integers(0, 40).map(lambda i: i * 2**57), min_size=1, max_size=40),
    ),
    st.integers(0, 5),
    st.sampled_from([1, 2, 12]),
    st.sampled_from([1, 5, 2**12]),
)
def test_ids_are_numbered_as_pandas_does(ids: list[Any], cut: int, bits: int, batch: int) -> None:
    column = pd.Series(ids * 2).iloc[min(cut, len(ids)) :]
    if isinstance(ids[0], str):
        column = column.astype("string[pyarrow]")
        halves = pd.concat([column, column])
        assert halves.array.__arrow_array__().num_chunks == 2
        plain = column.astype("str")  # objects before pandas 3, which are left to it
        columns = [column, halves, *([plain] if plain.dtype != object else [])]
    else:
        columns = [column]
    for one in columns:
        codes, unique = pd.factorize(one)
        with pytest.MonkeyPatch.context() as small:
            small.setattr("dshift.grouping.FIRST_BITS", bits)  # few slots: the table grows
            small.setattr("dshift.grouping.BATCH", batch)
            numbered = _numbered(one, None if isinstance(ids[0], str) else (0, 1))
        assert numbered is not None
        np.testing.assert_array_equal(numbered[0], codes)
        assert one.array.take(numbered[1]).tolist() == list(unique)


def test_long_texts_of_one_hash_are_left_to_pandas() -> None:
    """Made so that the hashes are equal: they are no valid UTF-8, which the loop does not mind."""

    def mixed(word: int) -> int:
        word = (word * int(SPREAD)) % 2**64
        return word ^ (word >> 32)

    def text(*words: int) -> bytes:
        return b"".join(word.to_bytes(8, "little") for word in words)

    some = (b"one word", b"and more", b"or other")
    first, second, other = (int.from_bytes(word, "little") for word in some)
    before_last = mixed(16 ^ first) ^ second
    text_of_two = text(first, second)
    same_length = text(other, before_last ^ mixed(16 ^ other))
    longer = text(first, second, before_last ^ mixed(mixed(24 ^ first) ^ second))
    for texts, told_apart in (
        ([text_of_two, b"short", same_length], False),
        ([text_of_two, b"short", longer], False),
        ([longer, b"short", text_of_two], False),
        ([text_of_two, b"short", text_of_two], True),
    ):
        offsets = np.cumsum([0, *map(len, texts)])
        data = np.frombuffer(b"".join(texts), np.uint8)
        assert (_number(offsets, data, len(texts)) is not None) == told_apart


def unspread(key: int) -> int:
    """Return the whole number whose key this is: `spread`, undone."""
    inverse = pow(int(SPREAD), -1, 2**64)
    word = (key * inverse) % 2**64
    number = ((word ^ (word >> 32)) * inverse) % 2**64
    return number - 2**64 if number >= 2**63 else number


@given(
    st.integers(1, 6),
    st.lists(st.integers(0, 63), min_size=1, max_size=64),
    st.sampled_from([1, 3, 64]),
)
@example(2, [16, 16, 16, 16, 16, 32], 3)  # the last one is that of a free slot, two ahead
def test_keys_that_free_slots_have_are_numbered_too(bits: int, high: list[int], batch: int) -> None:
    """Of those keys all but the upper bits are 0. Many fall into one slot, or the last ones."""
    ids = pd.Series([unspread(number << 58) for number in high * 2])
    with pytest.MonkeyPatch.context() as small:
        small.setattr("dshift.grouping.FIRST_BITS", bits)
        small.setattr("dshift.grouping.BATCH", batch)
        numbered = _numbered(ids, (0, 1))
    assert numbered is not None
    codes, unique = pd.factorize(ids)
    np.testing.assert_array_equal(numbered[0], codes)
    assert ids.array.take(numbered[1]).tolist() == list(unique)


def test_ids_whose_keys_fall_together_are_left_to_pandas() -> None:
    """Slots are known to whoever reads the code: ids that all want one must not take for ever."""
    n = 3000
    keys = np.array([unspread(i) for i in range(n)])
    numbers = np.tile(keys, 9)
    assert _numbered(pd.Series(numbers), (0, 1)) is None
    frame = pd.DataFrame({"k": numbers, "v": 1.5})
    found = histogram(frame, EDGES, id="k", value="v")
    assert found.k.values.tolist() == sorted(keys.tolist())
    assert (found.values == [0, 9, 0]).all()


def test_long_tables_are_cut_and_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dshift.rows, "BLOCK_BYTES", 1000)
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"k": rng.integers(0, 97, 3000), "v": rng.uniform(0, 4, 3000)})
    whole = histogram(frame, EDGES, id="k", value="v")
    for table in (frame, frame.sort_values("k")):
        parts = dd.from_pandas(table, npartitions=30, sort=False)
        found = histogram(parts, EDGES, id="k", value="v")
        assert max(found.chunks[0]) == 1000 // (6 * 8)
        np.testing.assert_array_equal(found.compute(scheduler="sync").values, whole.values)


def test_an_empty_partition_and_an_empty_table() -> None:
    frame = pd.DataFrame({"k": [1, 2], "v": [0.5, 1.5]})
    lazy = dd.from_pandas(frame, npartitions=2)
    found = histogram(lazy[lazy.k > 1], EDGES, id="k", value="v")
    np.testing.assert_array_equal(found.values, [[0, 1, 0]])
    empty = histogram(frame[:0], EDGES, id="k", value="v")
    assert empty.shape == (0, 3)


# ----------------------------------------------------------------------------- edges from the data


def test_edges_from_the_range() -> None:
    values = np.array([[3.0, -1.0, np.nan], [7.0, 2.0, 2.5]])
    for data in (values, da.from_array(values, chunks=(1, 2))):
        found = histogram(data, bins=4, dim="dim_1")
        np.testing.assert_array_equal(found.attrs["edges"], np.linspace(-1, 7, 5))
        np.testing.assert_array_equal(found.values.sum(axis=0), reference(values, 4))
        assert "n_below" not in found.coords
    assert histogram([[2, 2]], bins=2).attrs["edges"] == [1.5, 2.0, 2.5]
    extreme = histogram([[-1.7e308, 1.7e308]], bins=2)
    assert extreme.attrs["edges"] == [-1.7e308, 0, 1.7e308]


@pytest.mark.parametrize("kind", ["normal", "lognormal", "outlier", "whole", "float32"])
def test_edges_from_quantiles(kind: str) -> None:
    rng = np.random.default_rng(3)
    values = {
        "normal": rng.normal(size=60_000),
        "lognormal": rng.lognormal(sigma=4, size=60_000),
        "outlier": np.append(rng.normal(size=59_999), 1e9),
        "whole": rng.integers(0, 1000, 60_000),
        "float32": rng.normal(300, 5, 60_000).astype(np.float32),
    }[kind]
    shape = values.reshape(300, 200)
    found = histogram(shape, "quantiles", bins=20, dim="dim_1")
    edges = found.attrs["edges"]
    assert (edges[0], edges[-1]) == (values.min(), values.max())
    total = found.values.sum(axis=0)
    allowed = 0.02 * 3000 + (60 if kind == "whole" else 0)
    assert np.abs(total - 3000).max() <= allowed
    for chunks in ((7, 200), (300, 33), (150, 100)):
        lazy = histogram(da.from_array(shape, chunks=chunks), "quantiles", bins=20, dim="dim_1")
        assert lazy.attrs["edges"] == edges
    frame = pd.DataFrame({"k": np.repeat(np.arange(300), 200), "v": values})
    table = histogram(dd.from_pandas(frame, npartitions=3), "quantiles", bins=20, id="k", value="v")
    assert table.attrs["edges"] == edges
    assert histogram([*shape], "quantiles", bins=20).attrs["edges"] == edges


def test_one_bin() -> None:
    assert histogram([[1, 2], [3]], bins=1).values.tolist() == [[2], [1]]
    assert histogram([[1, 2], [3]], "quantiles", bins=1).values.tolist() == [[2], [1]]


# -------------------------------------------------------------------------------------- the result


def test_the_result_carries_edges_unit_and_coordinates() -> None:
    times = pd.date_range("2000-01-01", periods=3)
    cube = xr.DataArray(
        np.zeros((3, 2, 2)),
        dims=("time", "lat", "lon"),
        coords={
            "time": times,
            "lat": [10, 20],
            "season": ("time", ["a", "b", "c"]),
            "area": (("lat", "lon"), np.ones((2, 2))),
            "drift": (("time", "lat"), np.ones((3, 2))),
        },
        attrs={"units": "m s-1"},
        name="wind",
    )
    found = histogram(cube, EDGES, dim="time")
    assert set(found.coords) == {"lat", "area", "bin", "n_missing"}
    assert found.bin.values.tolist() == [0.5, 1.75, 3.25]
    assert found.bin.attrs["units"] == found.attrs["edges_units"] == "m s-1"
    assert found.attrs["edges"] == EDGES
    assert found.name == "counts"
    assert "long_name" not in found.bin.attrs
    titled = cube.assign_attrs(long_name="wind speed")
    assert histogram(titled, EDGES, dim="time").bin.attrs["long_name"] == "wind speed"
    table = pd.DataFrame({"ship": ["b", "a"], "depth": [1.0, 2.0]})
    assert histogram(table, EDGES, id="ship", value="depth").bin.attrs == {"long_name": "depth"}
    assert histogram([[1.0]], EDGES).bin.attrs == {}
    other = histogram(cube, EDGES, dim=..., units="kt", bin_dim="speed", outside="drop")
    assert other.dims == ("speed",)
    assert other.attrs["edges_units"] == "kt"
    assert other.attrs["ancillary_variables"] == "n_missing n_below n_above"
    assert "edges_units" not in histogram(cube.values, EDGES, dim="dim_0").attrs
    named = histogram({"x": [1.0], "y": [2.0]}, EDGES, id="ship")
    assert named.ship.values.tolist() == ["x", "y"]


def test_the_result_goes_through_zarr_and_into_fit(tmp_path: Path) -> None:
    import dshift

    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"ship": np.repeat(["a", "b", "c", "d"], 50), "v": rng.uniform(0, 2, 200)})
    frame.loc[frame.ship.isin(["c", "d"]), "v"] += 2
    counts = histogram(frame, EDGES, id="ship", value="v", units="kt")
    counts.to_dataset().to_zarr(tmp_path / "counts.zarr", consolidated=False)
    result = dshift.fit(str(tmp_path / "counts.zarr"), 0.5, variable="counts")
    assert result.label.values.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert result.attrs["unit"] == "kt"
    assert result.modes.attrs["edges"] == EDGES
    xr.testing.assert_identical(result.label, dshift.fit(counts, 0.5).label)


# ------------------------------------------------------------------------------------------ errors

CUBE = xr.DataArray(np.zeros((2, 3)), dims=("s", "t"), coords={"s": [1, 2]})
FRAME = pd.DataFrame({"k": [1, 2], "v": [0.5, 1.5], "name": ["a", "b"]})
TABLE: dict[str, Any] = {"data": FRAME, "id": "k", "value": "v"}

BAD_CALLS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"edges": None},
        ValueError,
        r"`edges` is None and `bins` is None; give the edges of the bins",
    ),
    ({"edges": "range"}, ValueError, r"`edges` is 'range' and `bins` is None"),
    (
        {"edges": "even", "bins": 3},
        ValueError,
        r"`edges` is 'even'; the words allowed are \"range\"",
    ),
    ({"bins": 3}, ValueError, r"`edges` and `bins`=3 are both given; leave one of them out"),
    ({"edges": None, "bins": 2.5}, TypeError, r"`bins` is 2\.5; give a whole number"),
    ({"edges": None, "bins": True}, TypeError, r"`bins` is True; give a whole number"),
    ({"edges": None, "bins": 0}, ValueError, r"`bins` is 0; give 1 or more"),
    ({"edges": 3}, ValueError, r"`edges` has shape \(\); give a list of two or more"),
    ({"edges": [1]}, ValueError, r"`edges` has shape \(1,\); give a list of two or more"),
    ({"edges": [1, 1]}, ValueError, r"`edges` must increase strictly"),
    ({"edges": [1, np.inf]}, ValueError, r"`edges` holds NaN or infinity"),
    ({"edges": ["a", "b"]}, TypeError, r"`edges` is a list that is not made of numbers"),
    ({"density": 1}, TypeError, r"`density` is 1; give True or False"),
    ({"outside": "keep"}, ValueError, r"`outside` is 'keep'; allowed are \"raise\""),
    ({"bin_dim": 3}, TypeError, r"`bin_dim` is 3; give a string"),
    ({"units": 3}, TypeError, r"`units` is 3; give a string"),
    ({"bin_dim": "s"}, ValueError, r"`bin_dim` is 's', which is a name in `data` already"),
    (
        {"data": CUBE.rename(s="n_missing")},
        ValueError,
        r"`data` has a dimension or coordinate 'n_mis",
    ),
    ({"dim": None}, ValueError, r"`dim` is None; name one or more of the dimensions .* 's', 't'"),
    ({"dim": "x"}, ValueError, r"`dim` is 'x'; name one or more"),
    ({"dim": ["t", "x"]}, ValueError, r"`dim` is \['t', 'x'\]; name one or more"),
    ({"dim": []}, ValueError, r"`dim` is \[\]; name one or more"),
    ({"dim": 0}, ValueError, r"`dim` is 0; name one or more"),
    ({"id": "k"}, ValueError, r"`id` is 'k' and `value` None, but `data` is an array"),
    ({"data": CUBE.astype(str)}, TypeError, r"`data` has the dtype <U32; give booleans"),
    (
        {"data": CUBE.to_dataset(name="a")},
        TypeError,
        r"`data` is a Dataset; give one of its var.*'a'",
    ),
    ({"data": 3, "dim": None}, TypeError, r"`data` is a int; give a DataArray"),
    ({"data": FRAME}, ValueError, r"`dim` is 't', but only arrays have dimensions"),
    ({"data": CUBE + 9}, ValueError, r"beyond the `edges` \(0 below 0\.0 and 6 above 4\.0"),
    ({"data": CUBE - np.inf}, ValueError, r"\(6 below 0\.0 and 0 above 4\.0 .*; widen `edges`, or"),
    ({"weights": [1, 2]}, ValueError, r"`weights` has shape \(2,\) and `data` \(2, 3\)"),
    ({"weights": CUBE.rename(t="x")}, ValueError, r"`weights` do not fit onto `data` \(dimensions"),
    ({"weights": CUBE.assign_coords(s=[1, 3])}, ValueError, r"`weights` do not fit onto `data` \("),
    ({"weights": CUBE.astype(str)}, TypeError, r"`weights` has the dtype <U32; give booleans"),
    ({"weights": CUBE - 1}, ValueError, r"`weights` holds 6 entries that are negative, infinite"),
    ({"weights": CUBE * np.nan}, ValueError, r"`weights` holds 6 entries that are negative"),
    (
        {"data": CUBE * np.nan, "edges": None, "bins": 2},
        ValueError,
        r"`data` holds no values but NaN",
    ),
    (
        {"data": CUBE + np.inf, "edges": None, "bins": 2},
        ValueError,
        r"holds 6 infinite values, so 2",
    ),
    (
        {"edges": "quantiles", "bins": 4, "data": xr.concat([CUBE] * 9 + [CUBE + 1], "t")},
        ValueError,
        r"4 `bins` cannot be drawn from the quantiles of `data`: edges 0 and 1 would both be",
    ),
    (
        {"edges": None, "bins": 9, "data": xr.DataArray([1e17, 1e17 + 16], dims="t")},
        ValueError,
        r"9 `bins` cannot be drawn from the range of `data`: edges",
    ),
    (
        {"data": "no/such.parquet", "dim": None},
        FileNotFoundError,
        r"`data`='no/such.parquet' does not",
    ),
    (
        {**TABLE, "id": None, "dim": None},
        ValueError,
        r"`id` is None; name one of the columns .*'k', 'v'",
    ),
    ({**TABLE, "value": "x", "dim": None}, ValueError, r"`value` is 'x'; name one of the columns"),
    (
        {**TABLE, "weights": [1], "dim": None},
        ValueError,
        r"`weights` is \[1\]; name one of the columns",
    ),
    ({**TABLE, "value": "k", "dim": None}, ValueError, r"`id` is 'k' and so is another column"),
    ({**TABLE, "value": "name", "dim": None}, TypeError, r"`value` column `name` has the dtype"),
    ({"data": xr.DataArray(1.0), "dim": ...}, ValueError, r"`data` has no dimension to count over"),
    ({"data": [], "dim": None}, ValueError, r"`data` is empty; give at least one series"),
    ({"data": [[1], 2], "dim": None}, ValueError, r"`data` of 1 has 0 dimensions; each series"),
    ({"data": [["a"]], "dim": None}, TypeError, r"`data` of `0` has the dtype <U1"),
    ({"data": [[1]], "value": "v", "dim": None}, ValueError, r"`value` 'v', but `data` is a list"),
    (
        {"data": [[1]], "weights": {0: [1]}, "dim": None},
        ValueError,
        r"`weights` is a dict; for series",
    ),
    (
        {"data": [[1]], "weights": [[1, 2]], "dim": None},
        ValueError,
        r"`weights` of 0 has shape \(2,\)",
    ),
    ({"data": {"a": [1]}, "weights": {"b": [1]}, "dim": None}, ValueError, r"`weights` has no 'a'"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD_CALLS)
def test_bad_calls(change: dict[str, Any], error: type[Exception], message: str) -> None:
    call = {"data": CUBE, "edges": EDGES, "dim": "t", **change}
    with pytest.raises(dshift.errors.DshiftError, match=message) as caught:
        histogram(**call)
    assert isinstance(caught.value, error)


def test_bad_tables(tmp_path: Path) -> None:
    holes = pd.DataFrame({"k": ["a", None], "v": [1.0, 2.0]})
    with pytest.raises(ValueError, match=r"`id` column `k` is missing in 1 rows; drop those rows"):
        histogram(holes, EDGES, id="k", value="v")
    for dtype in ("Int64", "int64[pyarrow]", "string[pyarrow]", "category"):
        gap = pd.Series([3, None, 3], dtype="Int64").astype(dtype)
        with pytest.raises(ValueError, match="`id` column `k` is missing in 1 rows"):
            histogram(pd.DataFrame({"k": gap, "v": [1.0, 2.0, 3.0]}), EDGES, id="k", value="v")
    lazy = dd.from_pandas(FRAME, npartitions=1)
    far = histogram(lazy, [0, 1], id="k", value="v")
    with pytest.raises(dshift.errors.InvalidInput, match=r"0 below 0\.0 and 1 above 1\.0"):
        far.compute()
    path = tmp_path / "text.parquet"
    path.write_text("no parquet")
    with pytest.raises(dshift.errors.InvalidInput, match="cannot be read as Parquet"):
        histogram(path, EDGES, id="k", value="v")
    with pytest.raises(dshift.errors.DshiftError) as caught:
        histogram("memory://user:secret@host/none.parquet", EDGES, id="k", value="v")
    assert "secret" not in str(caught.value)
    unknown = da.ones(4, chunks=2)
    with pytest.raises(ValueError, match="all lengths must be known"):
        histogram(unknown[unknown > 0], EDGES, dim="dim_0")


# ------------------------------------------------------------------------------------------- stack


def two(lazy: bool = False) -> dict[str, xr.DataArray]:
    rng = np.random.default_rng(5)
    cube = xr.DataArray(
        rng.uniform(0, 4, (20, 3, 2)), dims=("t", "y", "x"), coords={"y": [5, 6, 7]}
    )
    cube = cube.chunk(t=7, y=2) if lazy else cube
    rain = histogram(cube.assign_attrs(units="mm"), EDGES, dim="t")
    temp = histogram(cube.assign_attrs(units="K") * 10, bins=5, dim="t", units="K", outside="clip")
    return {"rain": rain, "temp": temp}


@pytest.mark.parametrize("lazy", [False, True])
def test_stack_and_unstack(lazy: bool) -> None:
    parts = two(lazy)
    with dask.config.set(scheduler=refuse):
        joined = stack(parts, scale={"rain": 2, "temp": 0.5})
    assert joined.dims == ("y", "x", "bin")
    assert joined.shape == (3, 2, 8)
    assert (joined.chunks is not None) == lazy
    assert joined.attrs["variables"] == ["rain", "temp"]
    assert joined.attrs["scale"] == [2.0, 0.5]
    temp_edges = np.array(parts["temp"].attrs["edges"])
    expected = [*(2 * np.array(EDGES)), *(0.5 * temp_edges - 0.5 * temp_edges[0])]
    np.testing.assert_array_equal(joined.attrs["edges"], expected)
    assert "edges_units" not in joined.attrs
    assert {"rain_n_missing", "temp_n_missing", "temp_n_below", "y"} <= set(joined.coords)
    assert joined.bin_variable.values.tolist() == ["rain"] * 3 + ["temp"] * 5
    back = unstack(joined)
    assert [*back] == ["rain", "temp"]
    for name, part in back.items():
        assert part.dims == ("y", "x", f"{name}_bin")
        np.testing.assert_array_equal(part.values, parts[name].values)
        assert part.attrs["edges"] == parts[name].attrs["edges"]
        assert part[f"{name}_bin"].attrs["units"] == {"rain": "mm", "temp": "K"}[name]


def test_scales() -> None:
    parts = two()
    by_range = stack(parts, "range").attrs["scale"]
    widths = [p.attrs["edges"][-1] - p.attrs["edges"][0] for p in parts.values()]
    np.testing.assert_allclose(by_range, 1 / np.array(widths))
    assert stack(parts, 3).attrs["scale"] == [3.0, 3.0]
    same = {"a": parts["rain"], "b": parts["rain"]}
    assert stack(same).attrs["scale"] == [1.0, 1.0]
    assert stack(same).attrs["edges_units"] == "mm"
    bare = {"a": xr.DataArray(np.ones((2, 3)), dims=("s", "q"))}
    assert stack(bare).attrs["edges"] == [0, 1, 2, 3]


P = two()
BAD_STACKS: list[tuple[Any, Any, str]] = [
    ([P["rain"]], None, r"`histograms` is a list; give a dict of one or more DataArrays"),
    ({}, None, r"`histograms` is a dict; give a dict of one or more"),
    ({"a": [[1]]}, None, r"`histograms` of 'a' is no DataArray of numbers with samples and bins"),
    ({"a": P["rain"][0, 0]}, None, r"`histograms` of 'a' is no DataArray of numbers"),
    ({"a": stack({"b": P["rain"]})}, None, r"`histograms` of 'a' is a stack itself"),
    ({"a": P["rain"], "b": P["rain"][:2]}, None, r"are not of the same samples \(`a` \('y', 'x'\)"),
    ({"a": P["rain"], "b": P["rain"][0]}, None, r"are not of the same samples"),
    ({"a": P["rain"][..., :2]}, None, r"`histograms` of 'a': `edges` has shape \(4,\); 2 bins"),
    (P, None, r"`scale` is None, but 'rain' is in mm, 'temp' is in K: such distances cannot"),
    (P, {"rain": 1}, r"`scale` names 'rain'; it must name each of 'rain', 'temp'"),
    (P, "std", r"`scale` of 'rain' is 'std'; give a number above 0"),
    (P, {"rain": 1, "temp": 0}, r"`scale` of 'temp' is 0; it must be finite and above 0"),
    (P, {"rain": 1, "temp": 1e-9}, r"`scale` makes one variable 1e\+08 times as wide as another"),
    ({"a": P["rain"].rename(x="bin", bin="q")}, None, r"`bin_dim` is 'bin', which is a name in"),
]


@pytest.mark.parametrize(("parts", "scale", "message"), BAD_STACKS)
def test_bad_stacks(parts: Any, scale: Any, message: str) -> None:
    with pytest.raises(dshift.errors.DshiftError, match=message):
        stack(parts, scale)


def test_bad_unstack() -> None:
    with pytest.raises(ValueError, match="`stacked` has no attribute `variable_bins`"):
        unstack(P["rain"])
    with pytest.raises(ValueError, match="`stacked` has 4 bins, and its variables had 8"):
        unstack(stack(P, 1)[..., :4])
