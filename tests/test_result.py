"""What `fit` returns: where labels come back, how the result is stored, what it says of itself."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import dshift
from dshift import engine, index, store, threads
from dshift.demo import synthetic


def cube() -> xr.DataArray:
    """A (bin, lat, lon) cube of counts: the west has low values, the east high ones."""
    counts = np.random.default_rng(1).integers(0, 5, (6, 4, 5))
    counts[0, :, :2] += 40
    counts[5, :, 2:] += 40
    return xr.DataArray(
        counts,
        dims=("bin", "lat", "lon"),
        coords={
            "lat": [10.0, 20, 30, 40],
            "lon": np.arange(5),
            "height": (("lat", "lon"), np.arange(20.0).reshape(4, 5)),
            "bin": np.arange(6) * 10,
        },
        name="rain",
    )


def test_labels_come_back_on_the_samples_own_grid() -> None:
    result = dshift.fit(cube(), 2.0, bin_dim="bin")
    assert result.label.dims == ("lat", "lon")
    assert result.label.dtype == np.int32
    np.testing.assert_array_equal(result.label.values, [[1, 1, 0, 0, 0]] * 4)
    np.testing.assert_array_equal(result.lat.values, cube().lat.values)
    np.testing.assert_array_equal(result.height.values, cube().height.values)
    np.testing.assert_array_equal(result.bin.values, cube().bin.values)
    assert result.modes.dims == ("mode", "bin")


@pytest.mark.parametrize("how", ["zarr", "netcdf"])
def test_round_trip(how: str, tmp_path: Path) -> None:
    result = dshift.fit(cube(), 2.0, bin_dim="bin", edges=np.arange(7.0), valley=0.1)
    if how == "zarr":
        result.to_zarr(tmp_path / "r.zarr", consolidated=False)
        back = xr.open_zarr(tmp_path / "r.zarr", consolidated=False).load()
    else:
        result.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
        back = xr.load_dataset(tmp_path / "r.nc", engine="h5netcdf")
    xr.testing.assert_equal(back, result)
    for name in result.variables:
        assert back[name].dtype == result[name].dtype
    for key, value in result.attrs.items():
        assert back.attrs[key] == value
    np.testing.assert_array_equal(back.modes.attrs["edges"], np.arange(7.0))


def test_attributes_say_how_it_was_made() -> None:
    result = dshift.fit(cube(), 2.0, bin_dim="bin", valley=0.25)
    assert result.attrs["metric"] == "wasserstein"
    assert result.attrs["bandwidth"] == 2.0
    assert result.attrs["valley"] == 0.25
    assert result.attrs["n_seeds"] == 20
    assert result.attrs["n_clusters"] == 2
    assert result.attrs["all_seeds_stationary"] == 1
    assert result.attrs["dshift_version"] == dshift.__version__
    assert dshift.fit(cube(), 2.0, bin_dim="bin").attrs["valley"] == "none"
    assert "unit" not in result.attrs
    measured = cube().assign_attrs(edges=np.arange(7.0), edges_units="mm")
    assert dshift.fit(measured, 2.0, bin_dim="bin").attrs["unit"] == "mm"
    # Shares of bins are not in the unit of the edges.
    assert "unit" not in dshift.fit(measured, 0.5, bin_dim="bin", metric="l1").attrs


def test_fingerprint_is_of_the_histograms_not_of_their_form() -> None:
    rows = cube().values.reshape(6, -1).T
    first = dshift.fit(rows, 2.0).attrs["fingerprint"]
    assert dshift.fit(rows.astype(np.float32) * 2, 2.0).attrs["fingerprint"] == first
    assert dshift.fit(cube().chunk(lat=1), 9.0, bin_dim="bin").attrs["fingerprint"] == first
    changed = rows.copy()
    changed[3, 2] += 1
    assert dshift.fit(changed, 2.0).attrs["fingerprint"] != first


def test_bandwidth_per_sample_is_kept() -> None:
    widths = np.linspace(1, 3, 20).reshape(4, 5)
    result = dshift.fit(cube(), widths, bin_dim="bin")
    np.testing.assert_array_equal(result.bandwidth.values, widths)
    assert "bandwidth" not in result.attrs


def test_invalid_samples_are_masked() -> None:
    data = cube().astype(float)
    data[:, 1, 2] = np.nan
    data[:, 3, 4] = 0
    data[2, 0, 0] = -1
    whole = dshift.fit(data, 2.0, bin_dim="bin", invalid="mask", weights=np.full((4, 5), 2))
    bad = np.zeros((4, 5), bool)
    bad[1, 2] = bad[3, 4] = bad[0, 0] = True
    for name in ("label", "mode_index", "n_iter"):
        np.testing.assert_array_equal(whole[name].values[bad], -1)
    assert not whole.is_seed.values[bad].any()
    alone = dshift.fit(data.values[:, ~bad].T, 2.0)
    np.testing.assert_array_equal(whole.label.values[~bad], alone.label.values)
    np.testing.assert_array_equal(whole.modes.values, alone.modes.values)
    np.testing.assert_array_equal(whole["size"].values, 2 * alone["size"].values)


def test_min_cluster_size_hides_small_clusters_and_keeps_their_modes() -> None:
    result = dshift.fit(cube(), 2.0, bin_dim="bin", min_cluster_size=9)
    np.testing.assert_array_equal(result.label.values, [[-1, -1, 0, 0, 0]] * 4)
    np.testing.assert_array_equal(result.cluster_of_mode.values, [0, -1])
    assert result.sizes["cluster"] == 1


def test_seeds_that_nothing_reaches_have_no_mode() -> None:
    rows = [[9, 1, 0, 0], [8, 2, 0, 0]]
    result = dshift.fit(rows, 0.5, seeds=[[0, 0, 0, 1.0], [1.0, 0, 0, 0]])
    np.testing.assert_array_equal(result.seed_mode_index, [-1, 0])
    np.testing.assert_array_equal(result.seed_label, [-1, 0])
    np.testing.assert_array_equal(result.seed_n_iter, [0, 1])
    np.testing.assert_array_equal(result.label, [0, 0])
    assert not result.is_seed.values.any()
    nobody = dshift.fit(rows, 0.5, seeds=[[0, 0, 0, 1.0]])
    assert nobody.sizes["mode"] == 0
    np.testing.assert_array_equal(nobody.label, [-1, -1])


def test_a_subset_of_seeds_is_reproducible_and_said() -> None:
    counts = synthetic(200).counts
    first, again = dshift.fit(counts, 4, seeds=0.25), dshift.fit(counts, 4, seeds=50)
    xr.testing.assert_identical(first, again)
    assert int(first.is_seed.sum()) == first.attrs["n_seeds"] == 50
    np.testing.assert_array_equal(first.n_iter.values >= 0, first.is_seed.values)
    assert (first.label.values >= 0).all()


def test_one_bin_makes_all_histograms_equal() -> None:
    result = dshift.fit(np.array([[3], [5], [1.5]]), 1.0)
    np.testing.assert_array_equal(result.label, [0, 0, 0])
    np.testing.assert_array_equal(result.modes, [[1.0]])


def test_a_finished_store_returns_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "deep" / "result.zarr"
    first = dshift.fit(cube(), 2.0, bin_dim="bin", store=place)
    xr.testing.assert_equal(xr.open_zarr(place, consolidated=False).load(), first)
    assert not (place / "dshift").exists()
    monkeypatch.setattr("dshift.stage.climb", None)
    xr.testing.assert_identical(dshift.fit(cube(), 2.0, bin_dim="bin", store=place), first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bandwidth": 3.0}, "bandwidth: 2.0 there, 3.0 here"),
        ({"data": cube() + 1}, "fingerprint: "),
        ({"weights": np.full((4, 5), 2)}, "weighted: 0 there, 1 here"),
        ({"valley": 0.1}, "valley: 'none' there, 0.1 here"),
        ({"metric": "l1"}, "metric: 'wasserstein' there, 'l1' here"),
        ({"edges": np.arange(7) * 2.0}, "edges: 'none' there"),
        ({"seeds": [1, 2]}, "seeds: "),
    ],
)
def test_another_job_under_the_same_store_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    call: dict[str, Any] = {"data": cube(), "bandwidth": 2.0, "bin_dim": "bin"}
    place = tmp_path / "result.zarr"
    first = dshift.fit(**call, store=place)
    with pytest.raises(ValueError, match=f"holds a run of another job .*{message}"):
        dshift.fit(**{**call, **change}, store=place)
    xr.testing.assert_equal(xr.open_zarr(place, consolidated=False).load(), first)


def test_blocks_of_another_order_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call: dict[str, Any] = {"data": cube(), "bandwidth": 2.0, "bin_dim": "bin"}
    place = tmp_path / "result.zarr"
    first = dshift.fit(**call, store=place)
    in_order = index.order_points
    monkeypatch.setattr(index, "order_points", lambda *given: in_order(*given)[::-1].copy())
    xr.testing.assert_identical(dshift.fit(**call, store=tmp_path / "fresh.zarr"), first)
    with pytest.raises(ValueError, match=r"another job .*order: '\w+' there, '\w+' here"):
        dshift.fit(**call, store=place)


def test_a_result_is_whole_or_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "result.zarr"
    whole_write = store.Store.write

    def full_disk(self: store.Store, key: str, content: bytes) -> None:
        if key.startswith("modes/c"):
            raise OSError("No space left on device")
        whole_write(self, key, content)

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "write", full_disk)
        with pytest.raises(OSError, match="No space"):
            dshift.fit(cube(), 2.0, bin_dim="bin", store=place)
    assert not (place / "zarr.json").exists()
    again = dshift.fit(cube(), 2.0, bin_dim="bin", store=place)
    xr.testing.assert_equal(xr.open_zarr(place, consolidated=False).load(), again)
    # A crash after the last write and before the clean-up leaves the run's folder.
    (place / "dshift").mkdir()
    xr.testing.assert_identical(dshift.fit(cube(), 2.0, bin_dim="bin", store=place), again)
    assert not (place / "dshift").exists()


def test_a_write_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError("No space left on device")

    place = store.Store(str(tmp_path))
    place.write("a/b", b"old")
    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        place.write("a/b", b"new")
    assert place.read("a/b") == b"old"
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_resume_runs_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = synthetic(300).counts
    whole = dshift.fit(counts, 4.0)
    place = tmp_path / "r.zarr"
    ran: list[slice] = []
    climb_share = threads.climb_share

    def climb_until_the_crash(stage: Any, block: slice) -> Any:
        if len(ran) == 5:
            raise MemoryError("the machine went down")
        ran.append(block)
        return climb_share(stage, block)

    with engine.settings(block_size=30, threads=1):
        with monkeypatch.context() as patch:
            patch.setattr(threads, "climb_share", climb_until_the_crash)
            with pytest.raises(
                dshift.BlockFailed, match=r"30 seeds \(samples .* failed with MemoryErr"
            ):
                dshift.fit(counts, 4.0, store=place)
        records = sorted((place / "dshift" / "blocks").iterdir())
        assert len(records) == 5
        records[2].write_bytes(records[2].read_bytes()[:-1])  # torn
        records[3].write_bytes(b"")
        ran.clear()
        monkeypatch.setattr(threads, "climb_share", lambda s, b: ran.append(b) or climb_share(s, b))
        resumed = dshift.fit(counts, 4.0, store=place)
    assert len(ran) == 10 - 5 + 2
    xr.testing.assert_identical(resumed, whole)


def test_blocks_that_are_climbed_together_are_recorded_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one's own choice one by one; and a run goes on with what is missing, together."""
    counts, place, crews = synthetic(2_100).counts, tmp_path / "r.zarr", []
    climb_share = threads.climb_share

    def climb_and_tell(stage: Any, *blocks: slice) -> Any:
        crews.append(blocks)
        return climb_share(stage, *blocks)

    monkeypatch.setattr(threads, "climb_share", climb_and_tell)
    with engine.settings(block_size=420, threads=2):
        apart = dshift.fit(counts, 4.0)
    assert [len(crew) for crew in crews] == [1] * 5
    crews.clear()
    with engine.settings(threads=2):
        together = dshift.fit(counts, 4.0)
    assert sorted(len(crew) for crew in crews) == [2, 3]
    xr.testing.assert_identical(together.drop_attrs(), apart.drop_attrs())
    crews.clear()
    write_block, written = threads.write_block, []

    def write_three(place: Any, block: slice, climbed: Any) -> None:
        if len(written) == 3:
            raise MemoryError("the machine went down")
        written.append(block)
        write_block(place, block, climbed)

    with engine.settings(threads=1):
        with monkeypatch.context() as patch:
            patch.setattr(threads, "write_block", write_three)
            with pytest.raises(dshift.BlockFailed, match=r"2,100 seeds .* failed with MemoryErr"):
                dshift.fit(counts, 4.0, store=place)
        resumed = dshift.fit(counts, 4.0, store=place)
    assert [crew[-2:] for crew in crews] == [crews[1], crews[1]]
    xr.testing.assert_identical(resumed.drop_attrs(), together.drop_attrs())


def test_a_store_on_any_file_system() -> None:
    first = dshift.fit(cube(), 2.0, bin_dim="bin", store="memory://runs/r.zarr")
    again = dshift.fit(cube(), 2.0, bin_dim="bin", store="memory://runs/r.zarr")
    xr.testing.assert_identical(first, again)
    with pytest.raises(ValueError, match="cannot be reached"):
        dshift.fit(cube(), 2.0, bin_dim="bin", store="nosuch://runs/r.zarr")


def test_import_is_quick_and_starts_nothing() -> None:
    code = (
        "import sys, threading, dshift; "
        "heavy = {'numba', 'xarray', 'distributed', 'bokeh'} & set(sys.modules); "
        "assert not heavy, heavy; assert threading.active_count() == 1; "
        "assert 'fit' in dir(dshift)"
    )
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    print(f"import dshift: {time.perf_counter() - started:.2f} s with the interpreter's start")


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        _ = dshift.fitt
