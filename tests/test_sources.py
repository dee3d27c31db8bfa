"""Every kind of source gives the rows of the NumPy array it was made from, lazily."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dshift
from dshift import chunks as blocks_of_chunks
from dshift.edges import DENSITY
from dshift.errors import DshiftError, InvalidInput, InvalidType, MissingData
from dshift.sources import open_samples, source_bytes

KINDS = [
    "numpy",
    "list",
    "dask",
    "dataarray",
    "dataarray-dask",
    "dataset",
    "zarr2",
    "zarr3",
    "zarr3-sharded",
    "array-path",
    "plain-group2",
    "plain-group3",
    "xarray-group2",
    "xarray-group3",
    "xarray-group3-consolidated",
    "lazy-dataarray",
]


def counts_of(shape, dtype=np.int32, seed=0):
    return np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)


def write_xarray(dataset, path, zarr_format, consolidated=False):
    with warnings.catch_warnings():  # version 3 warns about consolidated metadata on writing
        warnings.simplefilter("ignore")
        dataset.to_zarr(path, zarr_format=zarr_format, consolidated=consolidated, mode="w")
    return path


def make_source(kind, array, dims, chunks, path):
    """Turn `array` into a source of the given kind."""
    named = xr.DataArray(array, dims=dims, name="h")
    encoded = named.to_dataset()
    encoded["h"].encoding["chunks"] = chunks
    if kind == "numpy":
        return array
    if kind == "list":
        return array.tolist()
    if kind == "dask":
        return da.from_array(array, chunks)
    if kind == "dataarray":
        return named
    if kind == "dataarray-dask":
        return named.chunk(dict(zip(dims, chunks, strict=True)))
    if kind == "dataset":
        return named.to_dataset()
    if kind in ("zarr2", "zarr3"):
        return zarr.create_array({}, data=array, chunks=chunks, zarr_format=int(kind[4]))
    if kind == "zarr3-sharded":
        shards = tuple(2 * c for c in chunks)
        return zarr.create_array({}, data=array, chunks=chunks, shards=shards)
    if kind == "array-path":
        zarr.create_array(path, data=array, chunks=chunks, overwrite=True)
        return path
    if kind.startswith("plain-group"):
        group = zarr.open_group(path, mode="w", zarr_format=int(kind[-1]))
        group.create_array("h", data=array, chunks=chunks)
        return path
    version = 2 if kind == "xarray-group2" else 3
    write_xarray(encoded, path, version, consolidated=kind.endswith("consolidated"))
    if kind == "lazy-dataarray":
        return xr.open_zarr(path, chunks=None, consolidated=False)["h"]
    return path


def read_all(samples):
    """Assemble all blocks, and check that they tile the samples exactly."""
    rows = np.zeros((*samples.shape, samples.n_bins), samples.dtype)
    visits = np.zeros(samples.shape, int)
    for block in samples.blocks():
        part = samples.read(block)
        assert part.shape == (*visits[block].shape, samples.n_bins)
        assert part.dtype == samples.dtype
        assert part.dtype.isnative
        assert part.flags.c_contiguous
        assert part.size
        rows[block] = part
        visits[block] += 1
    assert (visits == 1).all()
    return rows


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that small arrays are joined and split too."""

    def shrink(largest, joined):
        monkeypatch.setattr(blocks_of_chunks, "MAX_BLOCK_BYTES", largest)
        monkeypatch.setattr(blocks_of_chunks, "JOINED_BLOCK_BYTES", joined)

    return shrink


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(drawn=st.data())
def test_every_kind_gives_the_rows_of_numpy(kind, drawn, tmp_path_factory):
    ndim = drawn.draw(st.integers(2, 4))
    shape = tuple(drawn.draw(st.lists(st.integers(1, 6), min_size=ndim, max_size=ndim)))
    chunks = tuple(drawn.draw(st.integers(1, size)) for size in shape)
    axis = drawn.draw(st.integers(0, ndim - 1))
    array = counts_of(shape)
    path = str(tmp_path_factory.mktemp("source") / "x.zarr")
    dims = tuple(f"dim_{i}" for i in range(ndim))
    source = make_source(kind, array, dims, chunks, path)
    largest = drawn.draw(st.integers(1, 400))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_of_chunks, "MAX_BLOCK_BYTES", largest)
        patch.setattr(blocks_of_chunks, "JOINED_BLOCK_BYTES", drawn.draw(st.integers(1, largest)))
        samples = open_samples(source, bin_dim=f"dim_{axis}")
        rows = read_all(samples)
    assert samples.dims == dims[:axis] + dims[axis + 1 :]
    assert samples.n_samples == array.size // shape[axis]
    assert source_bytes(samples) == array.size * samples.dtype.itemsize
    np.testing.assert_array_equal(rows, np.moveaxis(array, axis, -1))


def test_the_bin_dimension_is_the_last_by_default():
    samples = open_samples(np.zeros((2, 3, 4)))
    assert (samples.dims, samples.shape) == (("dim_0", "dim_1"), (2, 3))
    assert (samples.bin_dim, samples.n_bins) == ("dim_2", 4)
    assert (samples.coords, samples.bin_coords, samples.edges, samples.unit) == ({}, {}, None, None)


@pytest.mark.parametrize("dtype", ["?", "u1", ">u2", "<i8", ">i4", "<f2", ">f4", ">f8"])
@pytest.mark.parametrize("kind", ["numpy", "dask", "dataarray", "zarr2", "zarr3", "array-path"])
def test_any_numeric_dtype_is_read_in_native_order(kind, dtype, tmp_path):
    array = (counts_of((4, 5)) % 2).astype(dtype)
    samples = open_samples(make_source(kind, array, ("s", "b"), (2, 5), tmp_path / "x.zarr"))
    assert samples.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(read_all(samples), array)


@pytest.mark.parametrize("kind", ["numpy", "dask", "dataarray"])
def test_a_block_is_the_callers_own(kind):
    array = counts_of((4, 5))
    kept = array.copy()
    samples = open_samples(make_source(kind, array, ("s", "b"), (4, 5), None))
    samples.read((slice(0, 4),))[:] = -1
    np.testing.assert_array_equal(array, kept)


# --- blocks -------------------------------------------------------------------------------------


def lengths(samples):
    return [tuple(s.stop - s.start for s in block) for block in samples.blocks()]


def test_small_chunks_are_joined_and_never_cut(small_blocks):
    small_blocks(largest=1000, joined=40)  # 10 rows of 4 bytes
    source = da.zeros((23, 4), chunks=((3, 3, 4, 0, 4, 2, 7), 4), dtype="u1")
    assert lengths(open_samples(source)) == [(10,), (6,), (7,)]
    source = da.zeros((17, 4), chunks=((0, 4, 0, 13, 0), 4), dtype="u1")
    assert lengths(open_samples(source)) == [(4,), (13,)]


def test_the_last_dimension_is_joined_first(small_blocks):
    small_blocks(largest=1000, joined=48)
    assert lengths(open_samples(da.zeros((4, 6, 4), chunks=(1, 2, 4), dtype="u1"))) == [(2, 6)] * 2


def test_a_chunk_between_the_limits_is_one_block(small_blocks):
    small_blocks(largest=100, joined=40)
    assert lengths(open_samples(da.zeros((50, 4), chunks=(25, 4), dtype="u1"))) == [(25,)] * 2


def test_a_huge_chunk_is_split(small_blocks):
    small_blocks(largest=40, joined=40)
    assert lengths(open_samples(np.zeros((25, 4), "u1"))) == [(10,), (10,), (5,)]
    assert lengths(open_samples(np.zeros((2, 25, 4), "u1"))) == [(1, 10), (1, 10), (1, 5)] * 2
    assert lengths(open_samples(np.zeros((2, 100), "u1"))) == [(1,)] * 2  # a row is never cut


def test_a_shard_is_one_block_or_split_along_its_chunks(small_blocks, tmp_path):
    path = tmp_path / "x.zarr"
    group = zarr.open_group(path, mode="w")
    options = {"chunks": (4, 3), "shards": (12, 3), "dtype": "u1", "dimension_names": ("s", "b")}
    group.create_array("h", shape=(24, 3), **options)
    transposed = xr.open_zarr(path, chunks=None, consolidated=False)["h"].T
    for source, bin_dim in ((path, "b"), (path / "h", "b"), (transposed, "b")):
        samples = open_samples(source, bin_dim=bin_dim)
        small_blocks(largest=36, joined=3)
        assert lengths(samples) == [(12,), (12,)]
        small_blocks(largest=35, joined=3)
        assert lengths(samples) == [(4,)] * 6


def test_blocks_of_large_data_have_a_few_mebibytes():
    samples = open_samples(da.zeros((10**6, 64), chunks=(1000, 64)))
    block_bytes = [n * 64 * 8 for (n,) in lengths(samples)]
    assert max(block_bytes) <= 16 * 2**20
    assert min(block_bytes[:-1]) >= 8 * 2**20


def test_lazy_xarray_is_read_along_its_chunks(small_blocks, tmp_path):
    small_blocks(largest=1000, joined=1)
    array = counts_of((9, 4, 5))
    source = make_source("lazy-dataarray", array, ("s", "t", "b"), (2, 4, 5), tmp_path / "x.zarr")
    assert lengths(open_samples(source)) == [(2, 4)] * 4 + [(1, 4)]
    assert lengths(open_samples(source.transpose("t", "b", "s"), bin_dim="b"))[0] == (4, 2)
    source.encoding["preferred_chunks"] = {"s": (4, 5), "t": -1}
    assert lengths(open_samples(source)) == [(4, 4), (5, 4)]
    source.encoding["preferred_chunks"] = {"s": (4, 4)}  # stale: it does not add up to 9
    assert lengths(open_samples(source)) == [(9, 4)]


# --- laziness -----------------------------------------------------------------------------------


def failing_dask(shape, chunks):
    def fail(_):
        raise AssertionError("computed too early")

    return da.map_blocks(fail, da.zeros(shape, chunks=chunks), dtype=float, meta=np.zeros((0, 0)))


@pytest.mark.parametrize("kind", ["dask", "dataarray", "dataset"])
def test_opening_computes_nothing(kind):
    source = failing_dask((6, 4), (2, 4))
    if kind != "dask":
        source = xr.DataArray(source, dims=("s", "b"), name="h")
    samples = open_samples(source.to_dataset() if kind == "dataset" else source)
    assert samples.n_samples == 6
    with pytest.raises(AssertionError, match="too early"):
        samples.read(next(samples.blocks()))


class CountingStore(zarr.storage.MemoryStore):
    """Remembers the chunks that are asked for."""

    asked: list[str]  # of the class made for one test: xarray reads through a read-only twin

    async def get(self, key, prototype, byte_range=None):
        if "/c/" in key:
            self.asked.append(key)
        return await super().get(key, prototype, byte_range)


@pytest.mark.parametrize("as_group", [False, True])
def test_each_chunk_is_read_once(small_blocks, as_group):
    small_blocks(largest=200, joined=60)
    store = type("Store", (CountingStore,), {"asked": []})()
    group = zarr.create_group(store)
    array = counts_of((7, 5, 6), "u1") + 1
    group.create_array("h", data=array, chunks=(2, 2, 6), dimension_names=("x", "y", "b"))
    samples = open_samples(group if as_group else group["h"])
    assert store.asked == []
    assert 1 < len(lengths(samples)) < 12
    np.testing.assert_array_equal(read_all(samples), array)
    assert len(store.asked) == len(set(store.asked)) == 12


def test_each_dask_chunk_is_computed_once_by_the_users_scheduler(small_blocks):
    small_blocks(largest=200, joined=60)
    seen = []
    source = da.map_blocks(
        lambda x, block_info=None: seen.append(block_info[0]["chunk-location"]) or x,
        da.from_array(counts_of((9, 4)), chunks=(2, 4)),
        dtype=np.int32,
        meta=np.zeros((0, 0), np.int32),
    )
    used = []

    def scheduler(graph, keys, **kwargs):
        used.append(keys)
        return dask.get(graph, keys, **kwargs)

    with dask.config.set(scheduler=scheduler):
        samples = open_samples(source)
        assert seen == used == []
        read_all(samples)
    assert sorted(seen) == [(i, 0) for i in range(5)]
    assert len(used) == len(lengths(samples))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_read_at_the_same_time(kind, tmp_path, small_blocks):
    small_blocks(largest=400, joined=400)
    array = counts_of((40, 6))
    samples = open_samples(make_source(kind, array, ("s", "b"), (3, 6), str(tmp_path / "x.zarr")))
    blocks = list(samples.blocks()) * 5
    with ThreadPoolExecutor(4) as pool:
        for block, rows in zip(blocks, pool.map(samples.read, blocks), strict=True):
            np.testing.assert_array_equal(rows, array[block])


@pytest.mark.parametrize("kind", ["array-path", "xarray-group3", "dask", "numpy"])
def test_samples_can_be_sent_to_another_process(kind, tmp_path):
    array = counts_of((8, 6))
    source = make_source(kind, array, ("s", "b"), (3, 6), str(tmp_path / "x.zarr"))
    np.testing.assert_array_equal(read_all(pickle.loads(pickle.dumps(open_samples(source)))), array)


# --- names, coordinates, edges ------------------------------------------------------------------


def cube():
    """Daily histograms on a curvilinear grid, with every sort of coordinate."""
    return xr.DataArray(
        counts_of((3, 2, 4, 5)),
        dims=("time", "y", "x", "speed"),
        coords={
            "time": np.array(["2020-01-01", "2020-01-02", "2020-01-05"], "datetime64[ns]"),
            "lat": (("y", "x"), np.arange(8.0).reshape(2, 4), {"units": "degrees_north"}),
            "lon": (("y", "x"), np.arange(8.0).reshape(2, 4) * 2),
            "station": ("x", ["a", "b", "c", "d"]),
            "run": 7,
            "speed": ("speed", np.arange(5.0), {"units": "m s-1"}),
            "speed_name": ("speed", list("vwxyz")),
            "both": (("y", "speed"), np.zeros((2, 5))),
        },
        name="h",
    )


def as_path(data, path, zarr_format):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # version 3 strings have no specification yet
        data.to_dataset().to_zarr(path, zarr_format=zarr_format, consolidated=False)
    return path


@pytest.mark.parametrize("zarr_format", [None, 2, 3])
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
def test_coordinates_come_along(zarr_format, tmp_path):
    data = cube()
    source = as_path(data, tmp_path / "x.zarr", zarr_format) if zarr_format else data
    samples = open_samples(source)
    assert samples.dims == ("time", "y", "x")
    assert set(samples.coords) == {"time", "lat", "lon", "station", "run"}
    assert set(samples.bin_coords) == {"speed", "speed_name"}
    assert samples.unit == "m s-1"
    assert all(c.encoding == {} for c in samples.coords.values())
    for name, coord in {**samples.coords, **samples.bin_coords}.items():
        np.testing.assert_array_equal(coord.values, data[name].values)
        assert coord.dims == data[name].dims
        assert coord.attrs == data[name].attrs
    label = xr.Dataset({"label": (samples.dims, np.zeros(samples.shape))}, samples.coords)
    xr.testing.assert_equal(label["label"], data.isel(speed=0, drop=True).drop_vars("both") * 0.0)
    np.testing.assert_array_equal(read_all(samples), data.values)


def test_the_levels_of_a_multiindex_become_plain_coordinates(tmp_path):
    data = cube().drop_vars(["lat", "lon", "station", "both"]).stack(cell=("y", "x"))
    samples = open_samples(data, bin_dim="speed")
    assert samples.dims == ("time", "cell")
    assert set(samples.coords) == {"time", "run", "y", "x"}
    dataset = xr.Dataset(coords=samples.coords)
    dataset.to_zarr(tmp_path / "x.zarr", consolidated=False)
    assert dataset.set_index(cell=("y", "x")).indexes["cell"].equals(data.indexes["cell"])


def test_lazy_coordinates_are_loaded():
    coords = {"weight": ("s", da.arange(3, chunks=1)), "left": ("b", da.arange(2, chunks=1))}
    samples = open_samples(xr.DataArray(np.ones((3, 2)), dims=("s", "b"), coords=coords))
    assert samples.coords["weight"].chunks is samples.bin_coords["left"].chunks is None


def test_dimensions_with_numbers_for_names(tmp_path):
    data = xr.DataArray(np.ones((3, 4)), dims=(0, 1), coords={"b": ((0,), [1, 2, 3])})
    samples = open_samples(data)
    assert samples.dims == ("0",)
    assert samples.coords["b"].dims == ("0",)
    result = dshift.fit(data, 1.0, store=tmp_path / "result.zarr")
    assert set(result.sizes) == {"0", "1", "mode", "cluster"}


def test_zarr_names_its_dimensions():
    names = {"dimension_names": ("place", "bin")}
    assert open_samples(zarr.create_array({}, data=counts_of((2, 3)), **names)).dims == ("place",)
    attrs = {"attributes": {"_ARRAY_DIMENSIONS": ["place", "bin"]}, "zarr_format": 2}
    assert open_samples(zarr.create_array({}, data=counts_of((2, 3)), **attrs)).dims == ("place",)
    for names in (None, ("place", None), ("place", "place")):
        array = zarr.create_array({}, data=counts_of((2, 3)), dimension_names=names)
        assert open_samples(array).dims == ("dim_0",)


def test_a_group_with_nameless_arrays_is_read_by_zarr():
    group = zarr.create_group({})
    group.create_array("h", data=counts_of((2, 3)))
    group.create_array("t", data=counts_of((2,)), dimension_names=("t",))
    assert open_samples(group, variable="h").dims == ("dim_0",)


@pytest.mark.parametrize("how", ["dataarray", "array", "group", "group2"])
def test_edges_are_taken_from_the_attributes(how):
    attrs = {"edges": [0.0, 1.0, 4.0, 9.0], "edges_units": "mm"}
    source = xr.DataArray(counts_of((2, 3)), dims=("s", "b"), attrs=attrs)
    if how != "dataarray":
        group = zarr.create_group({}, zarr_format=2 if how == "group2" else 3)
        array = group.create_array("h", data=counts_of((2, 3)))
        array.attrs.update(attrs)
        source = array if how == "array" else group
    samples = open_samples(source)
    assert samples.edges.dtype == np.float64
    assert samples.edges.tolist() == [0, 1, 4, 9]
    assert samples.unit == "mm"


def test_the_unit_of_the_bin_coordinate_wins():
    coords = {"b": ("b", [1, 2, 3], {"units": "s"})}
    data = xr.DataArray(counts_of((2, 3)), dims=("s", "b"), coords=coords)
    assert open_samples(data.assign_attrs(edges_units="mm")).unit == "s"


# --- paths and decoding -------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("scheme", ["path", "file", "memory"])
def test_paths_and_urls(scheme, consolidated, zarr_format, tmp_path):
    name = f"{zarr_format}{consolidated}.zarr"
    url = {
        "path": tmp_path / name,
        "file": f"file://{tmp_path}/{name}",
        "memory": f"memory://{tmp_path}/{name}",
    }[scheme]
    data = cube().drop_vars(["station", "speed_name"])
    target = url if scheme == "memory" else tmp_path / name
    write_xarray(data.to_dataset(), target, zarr_format, consolidated)
    samples = open_samples(url)
    assert samples.origin == f"{url}/h"
    assert samples.dims == ("time", "y", "x")
    np.testing.assert_array_equal(read_all(samples), data.values)
    bare = open_samples(f"{url}/h")
    assert bare.origin == f"{url}/h"
    np.testing.assert_array_equal(read_all(bare), data.values)
    if scheme == "memory":
        fsspec.filesystem("memory").rm(str(tmp_path), recursive=True)


def test_a_home_directory_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    zarr.create_array(tmp_path / "x.zarr", data=counts_of((2, 3)))
    assert open_samples("~/x.zarr").origin == "~/x.zarr"


def test_group_objects_and_subgroups():
    root = zarr.create_group({})
    inner = root.create_group("inner")
    inner.create_array("h", data=counts_of((4, 3)), dimension_names=("s", "b"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        consolidated = zarr.consolidate_metadata(root.store)
    for group in (inner, consolidated["inner"]):
        samples = open_samples(group)
        assert samples.origin == "zarr Group inner/h"
        np.testing.assert_array_equal(read_all(samples), counts_of((4, 3)))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_values_are_masked_as_xarray_does(zarr_format, tmp_path):
    data = xr.Dataset({"h": (("s", "b"), np.array([[1, -9, 0], [2, 3, 4]], "i4"))})
    data["h"].attrs["_FillValue"] = -9
    path = write_xarray(data, tmp_path / "x.zarr", zarr_format)
    samples = open_samples(path)
    assert samples.dtype.kind == "f"
    np.testing.assert_array_equal(read_all(samples), [[1, np.nan, 0], [2, 3, 4]])


def test_scaled_data_is_decoded(tmp_path):
    data = xr.Dataset({"h": (("s", "b"), np.array([[0.0, 0.5], [1.0, 0.25]]))})
    encoding = {"h": {"scale_factor": 0.25, "dtype": "i2", "_FillValue": 0, "add_offset": -0.25}}
    data.to_zarr(tmp_path / "x.zarr", zarr_format=2, consolidated=False, encoding=encoding)
    np.testing.assert_array_equal(read_all(open_samples(tmp_path / "x.zarr")), data["h"])


def test_an_empty_bin_of_zarr_version_2_is_not_missing(tmp_path):
    group = zarr.open_group(tmp_path / "x.zarr", mode="w", zarr_format=2)
    array = np.array([[0, 1, 2], [3, 0, 4]], "i4")
    names = {"_ARRAY_DIMENSIONS": ["s", "b"]}
    assert group.create_array("h", data=array, attributes=names).fill_value == 0
    samples = open_samples(tmp_path / "x.zarr")
    assert (samples.dims, samples.dtype) == (("s",), np.int32)
    np.testing.assert_array_equal(read_all(samples), array)


def test_masked_values_are_refused_when_read():
    masked = np.ma.masked_less(counts_of((4, 3)), 50)
    for source in (masked, da.from_array(masked, chunks=2)):
        samples = open_samples(source)
        with pytest.raises(InvalidInput, match=r"`data` \(.*array\) holds masked values: fill"):
            read_all(samples)


# --- choosing a variable ------------------------------------------------------------------------


def two_variables():
    return xr.Dataset(
        {
            "a": (("s", "b"), counts_of((2, 3))),
            "c": (("s", "b"), counts_of((2, 3), seed=1)),
            "name": ("s", ["x", "y"]),
            "total": 5,
        }
    )


def groups(tmp_path):
    yield two_variables()
    plain = zarr.open_group(tmp_path / "plain.zarr", mode="w")
    for name in ("a", "c"):
        plain.create_array(name, data=two_variables()[name].values)
    yield plain
    dataset = two_variables().drop_vars("name")
    yield write_xarray(dataset, tmp_path / "named.zarr", 2)


def test_variable_picks_one(tmp_path):
    for source in groups(tmp_path):
        rows = read_all(open_samples(source, variable="c"))
        np.testing.assert_array_equal(rows, two_variables()["c"])


def test_ambiguity_is_refused_with_a_list(tmp_path):
    for source in groups(tmp_path):
        with pytest.raises(InvalidInput, match=r"several arrays .* choose `variable` from: a, c$"):
            open_samples(source)


def test_an_unknown_variable_is_refused_with_a_list(tmp_path):
    for source in groups(tmp_path):
        with pytest.raises(InvalidInput, match=r"`variable`='z' is not in .*from: a, c$"):
            open_samples(source, variable="z")


def test_the_only_numeric_variable_is_taken():
    source = two_variables().drop_vars("c").assign_coords(d=(("s", "b"), np.ones((2, 3))))
    assert open_samples(source).origin == "Dataset a"


# --- refusals -----------------------------------------------------------------------------------


def refused(expected, pattern, data, **options):
    with pytest.raises(expected, match=pattern) as caught:
        open_samples(data, **options)
    assert isinstance(caught.value, DshiftError)
    return caught.value


def test_a_missing_path_is_refused_and_nothing_is_left_behind(tmp_path):
    for path in (tmp_path / "no.zarr", f"file://{tmp_path}/no.zarr", "memory://no.zarr"):
        error = refused(MissingData, "holds no Zarr array or group; check that it exists", path)
        assert isinstance(error, FileNotFoundError)
        assert isinstance(error, ValueError)
        assert str(path) in str(error)
    (tmp_path / "folder").mkdir()
    refused(MissingData, "open another format with xarray", tmp_path / "folder")
    (tmp_path / "x.nc").write_bytes(b"CDF")
    refused(MissingData, "open another format with xarray", tmp_path / "x.nc")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "x.nc"]


@pytest.mark.parametrize("half", ["file:x.zarr", "file:/x.zarr", "s3:bucket/x.zarr", "memory:x"])
def test_half_a_url_is_refused_and_makes_no_folder(half, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scheme = half.partition(":")[0]
    with pytest.raises(dshift.InvalidInput, match=f"`data`='{half}' is no URL, .*{scheme}://"):
        open_samples(half)
    with pytest.raises(dshift.InvalidInput, match=f"`store`='{half}' is no URL, .*{scheme}://"):
        dshift.fit(np.ones((3, 4)), 1.0, store=half)
    assert not any(tmp_path.iterdir())
    dshift.fit(np.ones((3, 4)), 1.0, store=f"./{half}" if "/" not in half else "run:1.zarr")


def test_an_unknown_protocol_is_refused():
    refused(InvalidInput, r"`data`='bla://x' cannot be opened as Zarr \(Protocol not", "bla://x")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("bla://user:secret@host/x.zarr?token=secret#secret", "bla://host/x.zarr"),
        ("bla://secret@host/x@y.zarr", "bla://host/x@y.zarr"),
        ("bla://key:sec/ret@host/x.zarr", "bla://host/x.zarr"),
        ("simplecache::bla://user:secret@host/x.zarr", "simplecache::bla://host/x.zarr"),
        ("memory://user:secret@host/x.zarr", "memory://host/x.zarr"),
        ("bla://host:8080/x@y.zarr", "bla://host:8080/x@y.zarr"),
    ],
)
def test_credentials_are_never_shown(url, shown):
    error = refused(InvalidInput, "^`data`=", url)
    assert f"`data`={shown!r}" in str(error)
    if url != shown:
        assert error.__cause__ is error.__context__ is None
        assert "sec" not in str(error)


def test_credentials_are_not_in_the_origin_of_an_open_source():
    url = "memory://user:secret@host/x.zarr"
    array = zarr.create_array(url, data=counts_of((2, 3)))
    assert open_samples(url).origin == "memory://host/x.zarr"
    assert "secret" not in open_samples(array).origin
    fsspec.filesystem("memory").rm("/user:secret@host", recursive=True)


@pytest.mark.parametrize(
    "array",
    [
        np.ones((2, 3), complex),
        np.array([["a", "b"]]),
        np.array([[b"a", b"b"]]),
        np.array([[None, 1]]),
        np.zeros((2, 3), "datetime64[s]"),
        np.zeros((2, 3), "timedelta64[s]"),
        da.ones((2, 3), dtype=complex),
        xr.DataArray(np.ones((2, 3), complex)),
        zarr.create_array({}, data=np.ones((2, 3), complex)),
        None,
    ],
)
def test_other_dtypes_are_refused(array):
    pattern = r"has the dtype .*, and histograms are booleans, integers or real floats: convert"
    assert isinstance(refused(InvalidType, pattern, array), TypeError)


def test_a_group_without_numbers_is_refused():
    refused(InvalidInput, r"holds no arrays of .*give a group or Dataset", xr.Dataset())
    refused(InvalidInput, r"holds no arrays of .*give a group or Dataset", zarr.create_group({}))
    text = xr.Dataset({"name": ("s", ["x"])})
    refused(InvalidType, "dtype <U1", text, variable="name")


def test_a_group_that_xarray_cannot_read_is_refused():
    group = zarr.create_group({})
    group.create_array("a", data=counts_of((2, 3)), dimension_names=("s", "b"))
    group.create_array("c", data=counts_of((4, 3)), dimension_names=("s", "b"))
    refused(InvalidInput, r"xarray cannot read the group .*conflicting sizes.*array's path", group)


@pytest.mark.parametrize("data", [[1, 2, 3], np.float64(1), da.ones(3), xr.DataArray([1, 2])])
def test_a_single_histogram_is_refused(data):
    refused(InvalidInput, r"has the shape \(.*\): histograms need a sample dim.* add one", data)


@pytest.mark.parametrize("data", [np.ones((0, 3)), np.ones((3, 0)), da.ones((2, 0, 3)), [[], []]])
def test_no_bins_or_no_samples_are_refused(data):
    refused(InvalidInput, r"of lengths \(.*\): each needs .* length of at least 1", data)


def test_unknown_lengths_are_refused():
    data = da.ones((6, 3), chunks=2)
    refused(InvalidInput, "compute_chunk_sizes", data[data[:, 0] > 0])


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
def test_repeated_dimensions_are_refused():
    data = xr.DataArray(np.ones((3, 3)), dims=("s", "s"))
    refused(InvalidInput, r"dimensions \('s', 's'\).* each needs a name of its own", data)


def test_an_unknown_bin_dimension_is_refused():
    pattern = r"`bin_dim`='z' is not a dimension of `data` \(numpy array\): it has \('dim_0', 'd"
    refused(InvalidInput, pattern, np.ones((2, 3)), bin_dim="z")


@pytest.mark.parametrize("data", [np.ones((2, 3)), xr.DataArray(np.ones((2, 3))), da.ones((2, 3))])
def test_a_variable_of_a_single_array_is_refused(data):
    refused(InvalidInput, r"`variable`='h': .* is one array; leave it out", data, variable="h")


def test_ragged_rows_are_refused():
    refused(InvalidInput, r"\(list\) is not a regular array of numbers", [[1, 2], [3]])


@pytest.mark.parametrize("edges", [[0, 1, 2], [0, 1, 1, 2], [0, 1, 2, np.inf], ["a"] * 4, 3, [[0]]])
def test_stale_edges_are_refused(edges):
    data = xr.DataArray(np.ones((2, 3)), dims=("s", "b"), attrs={"edges": edges})
    pattern = r"has the attribute `edges`=.*, and 3 bins need 4 finite, increasing edges: correct"
    refused(InvalidInput, pattern, data)


def test_samples_that_are_read_at_once_or_travel_without_their_data(small_blocks):
    counts = counts_of((3, 5, 4))
    coords = {"x": [1, 2, 3], "b": [7, 8, 9, 10]}
    lazy = xr.DataArray(
        da.from_array(counts, chunks=(2, 2, 3)), dims=("x", "y", "b"), coords=coords
    )
    samples = open_samples(lazy)
    assert samples.is_dask
    read = samples.in_memory()
    assert not read.is_dask
    whole = (slice(0, 3), slice(0, 5))
    np.testing.assert_array_equal(read.read(whole), counts)
    assert list(read.coords) == ["x"]
    light = samples.without_coords()
    assert light.coords == light.bin_coords == {}
    np.testing.assert_array_equal(light.read(whole), counts)
    assert samples.without_data().shape == (3, 5)


def test_densities_over_uneven_bins_are_refused():
    attrs = {"edges": [0.0, 1.0, 2.0, 4.0], DENSITY: True}
    data = xr.DataArray(np.ones((2, 3)), dims=("s", "b"), attrs=attrs)
    refused(
        InvalidInput, "holds densities over bins of different widths, which do not add up", data
    )
    even = {**attrs, "edges": [0.0, 1.0, 2.0, 3.0]}
    assert open_samples(data.assign_attrs(even)).n_bins == 3
