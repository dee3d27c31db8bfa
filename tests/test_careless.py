"""A careless caller: what was not offered stays, and nothing is mixed up in silence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from console import invoke

import dshift

ROWS = np.random.default_rng(3).multinomial(30, np.full(6, 1 / 6), 9)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Histograms, raw values, and something precious."""
    monkeypatch.chdir(tmp_path)
    counts = xr.Dataset({"counts": (("s", "bin"), ROWS)})
    counts.to_zarr("hist.zarr", consolidated=False)
    counts.to_netcdf("hist.nc", engine="h5netcdf")
    raw = np.random.default_rng(0).normal(size=(4, 20))
    xr.Dataset({"raw": (("s", "t"), raw)}).to_zarr("raw.zarr", consolidated=False)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("mine")
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def call(*words: str, code: int = 0) -> str:
    done = invoke(words)
    said = str(done.stdout + done.stderr)
    assert done.exit_code == code, said
    return said


# ---------------------------------------------------------------- commands that write


COUNT = ("histogram", "raw.zarr")
BINS = ("--dim", "t", "--bins", "4", "--overwrite")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*COUNT, "precious", *BINS), "OUT precious: is no Zarr store, and --overwrite replaces"),
        ((*COUNT, "hist.nc", *BINS), "OUT hist.nc: is no Zarr store"),
        ((*COUNT, ".", *BINS), "OUT .: would replace the input raw.zarr"),
        ((*COUNT, "./raw.zarr/", *BINS), "would replace the input raw.zarr"),
        (("histogram", "raw.zarr/raw", "raw.zarr", *BINS), "would replace the input raw.zarr/raw"),
        (("sweep", "hist.zarr", "hist.zarr", "--overwrite"), "would replace the input hist.zarr"),
        (("predict", "raw.zarr", "hist.zarr", "raw.zarr", "--overwrite"), "input raw.zarr"),
        (("predict", "r", "hist.zarr", "f", "--fitted", "f", "--overwrite"), "the input f"),
        ((*COUNT, "nonsense://x", *BINS), "OUT nonsense://x: cannot be reached (Protocol not know"),
    ],
)
def test_a_command_replaces_only_stores_that_are_not_its_input(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    before = files(folder)
    assert said in call(*words, code=2)
    assert files(folder) == before


def test_a_url_is_not_replaced_unasked_either(folder: Path) -> None:
    url = f"file://{folder}/hist.zarr"
    before = files(folder)
    assert "exists; give another path, or --overwrite" in call(*COUNT, url, *BINS[:-1], code=2)
    assert files(folder) == before
    call(*COUNT, url, *BINS)
    assert xr.open_zarr("hist.zarr", consolidated=False).counts.shape == (4, 4)


def test_overwrite_replaces_a_store_through_a_link_and_nothing_beside_it(folder: Path) -> None:
    (folder / "old.zarr.partial").mkdir()
    (folder / "old.zarr.partial" / "mine.txt").write_text("mine")
    os.rename("hist.zarr", "old.zarr")
    (folder / "link.zarr").symlink_to("old.zarr")
    call(*COUNT, "link.zarr", *BINS)
    assert (folder / "link.zarr").is_symlink()
    assert xr.open_zarr("old.zarr", consolidated=False).counts.shape == (4, 4)
    assert files(folder)["old.zarr.partial/mine.txt"] == b"mine"
    assert not list(folder.glob("*.????????.partial"))


def test_a_report_replaces_neither_the_data_nor_a_device(folder: Path) -> None:
    result = dshift.fit("hist.zarr", 0.7, store="found.zarr")
    os.mkfifo("pipe")
    before = files(folder)
    with pytest.raises(dshift.InvalidInput, match="'pipe' is a device or a pipe; give the name"):
        dshift.report(result, "hist.zarr", "pipe")
    assert "is the data; give the name of another file" in call(
        "report", "found.zarr", "hist.nc", "./hist.nc", code=2
    )
    assert files(folder) == before
    (folder / "page.html").symlink_to("real.html")
    assert dshift.report(result, "hist.zarr", "page.html") == Path("page.html")
    assert (folder / "page.html").is_symlink()
    assert (folder / "real.html").read_text().startswith("<!DOCTYPE html>")


# ---------------------------------------------------------------- numbers for samples, by name


def square() -> tuple[xr.DataArray, xr.DataArray]:
    """Histograms on a square, where a wrong order of the dimensions has the right shape."""
    coords = {"y": [10, 20, 30], "x": [1, 2, 3]}
    counts = xr.DataArray(ROWS.reshape(3, 3, 6), coords, dims=("y", "x", "bin"))
    return counts, xr.DataArray(np.arange(1.0, 10).reshape(3, 3), coords, dims=("y", "x"))


@pytest.mark.parametrize("name", ["weights", "bandwidth"])
def test_dimensions_are_matched_by_name(name: str) -> None:
    counts, numbers = square()
    found = {}
    for order in ("yx", "xy"):
        options: dict[str, Any] = {"bandwidth": 0.5, name: numbers.transpose(*order) / 8}
        found[order] = dshift.fit(counts, **options)
    xr.testing.assert_identical(found["yx"], found["xy"])
    if name == "weights":
        swept = [dshift.sweep(counts, [0.5], weights=numbers.transpose(*o)) for o in ("yx", "xy")]
        xr.testing.assert_identical(*swept)


@pytest.mark.parametrize("name", ["weights", "bandwidth"])
def test_other_coordinates_are_refused(name: str) -> None:
    counts, numbers = square()
    message = rf"`{name}` has other coordinates along 'x' .*{name}\.sel\(x=data\['x'\]\)"
    for wrong in (numbers[:, ::-1], numbers.assign_coords(x=[1, 2, 4])):
        options: dict[str, Any] = {"bandwidth": 0.5, name: wrong}
        with pytest.raises(dshift.InvalidInput, match=message):
            dshift.fit(counts, **options)


def test_a_command_matches_weights_by_name(tmp_path: Path) -> None:
    counts, numbers = square()
    data = xr.Dataset({"counts": counts, "turned": numbers.transpose("x", "y")})
    data.to_zarr(tmp_path / "data.zarr", consolidated=False)
    words = ("--variable", "counts", "--weights", "turned", "--bandwidth", "0.5", "--no-progress")
    call("fit", str(tmp_path / "data.zarr"), str(tmp_path / "found.zarr"), *words)
    found = xr.open_zarr(tmp_path / "found.zarr", consolidated=False)
    np.testing.assert_array_equal(found.sample_weight, numbers)


def test_a_part_of_a_result_is_no_result() -> None:
    result = dshift.fit(ROWS, 0.7)
    with pytest.raises(dshift.InvalidInput, match=r"`result` has no variable .*`modes`.* give the"):
        dshift.predict(result[["label"]], ROWS, fitted=ROWS)


@pytest.mark.parametrize(
    "alter",
    [
        lambda result: result.isel(mode=slice(0, -1)),
        lambda result: result.where(result.label == 0),
        lambda result: result.transpose(),
    ],
    ids=["fewer modes", "where", "transposed"],
)
def test_an_altered_result_is_refused(tmp_path: Path, alter: Any) -> None:
    altered = alter(dshift.fit(ROWS, 0.2))
    with pytest.raises(dshift.InvalidInput, match="`result` was altered: its `modes` are"):
        dshift.predict(altered, ROWS, assign="nearest")
    with pytest.raises(dshift.InvalidInput, match="`result` was altered: its `modes` are"):
        dshift.report(altered, ROWS, tmp_path / "page.html")


def test_nearest_modes_are_those_of_the_metric_of_the_fit() -> None:
    result = dshift.fit(ROWS, 0.7)
    with pytest.raises(dshift.InvalidInput, match="`metric` is 'l1', but the fit used 'wassers"):
        dshift.predict(result, ROWS, assign="nearest", metric="l1")  # type: ignore[arg-type]
