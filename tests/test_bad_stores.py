"""Stores that are torn, altered, full or gone: one clear error that says what and where, or the
right result. Never a wrong one, and never the bare error of a codec or a disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import dshift
from dshift.engine import settings

ROWS = np.random.default_rng(0).multinomial(50, np.full(16, 1 / 16), 200)
BANDWIDTH = 0.8

LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {},
    "v2": {"zarr_format": 2},
    "sharded": {"shards": (100, 16)},
    "uncompressed": {"compressors": None},
}


@pytest.fixture(scope="module")
def expected() -> xr.Dataset:
    return dshift.fit(ROWS, BANDWIDTH)


@pytest.fixture(params=list(LAYOUTS))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Four chunks of 50 samples, or two shards of 100."""
    path = tmp_path / "data.zarr"
    layout = LAYOUTS[request.param]
    zarr.create_array(path, shape=ROWS.shape, dtype="i4", chunks=(50, 16), **layout)[...] = ROWS
    return path


def second_chunk(path: Path) -> Path:
    metadata = ("zarr.json", ".zarray", ".zattrs")
    return sorted(f for f in path.rglob("*") if f.is_file() and f.name not in metadata)[1]


def metadata(path: Path) -> Path:
    return next(f for f in (path / "zarr.json", path / ".zarray") if f.exists())


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-5])


def replace_by_loop(file: Path) -> None:
    """A link to itself: nobody can read it, not even root."""
    file.unlink()
    file.symlink_to(file.name)


def flip(file: Path, at: float = 0.5) -> None:
    content = bytearray(file.read_bytes())
    content[int(at * len(content))] ^= 0x40
    file.write_bytes(content)


def edit(file: Path, **changes: Any) -> None:
    said = json.loads(file.read_text())
    file.write_text(json.dumps({k: v for k, v in (said | changes).items() if v is not None}))


# ---------------------------------------------------------------- sources


def test_whole_sources_are_read(source: Path, expected: xr.Dataset) -> None:
    found = dshift.fit(source, BANDWIDTH)
    np.testing.assert_array_equal(found.label, expected.label)
    np.testing.assert_array_equal(found.modes, expected.modes)


@pytest.mark.parametrize("damage", [truncate, replace_by_loop])
def test_a_chunk_that_cannot_be_read(source: Path, damage: Callable[[Path], None]) -> None:
    damage(second_chunk(source))
    with pytest.raises(dshift.UnreadableData, match=r"cannot be read .* Restore that part") as lost:
        dshift.fit(source, BANDWIDTH, store=source.parent / "out.zarr")
    assert f"`data` ({source}, samples dim_0=0:200)" in str(lost.value)
    assert isinstance(lost.value, OSError)
    assert not (source.parent / "out.zarr").exists()


def test_a_missing_chunk_is_zeros_and_zeros_are_no_histogram(source: Path) -> None:
    second_chunk(source).unlink()
    with pytest.raises(dshift.InvalidInput, match=r"are not histograms .* chunk that a Zarr store"):
        dshift.fit(source, BANDWIDTH)
    masked = dshift.fit(source, BANDWIDTH, invalid="mask")
    n_lost = 100 if metadata(source).read_text().count("sharding") else 50
    assert (masked.label.values == -1).sum() == n_lost


def test_a_flipped_bit_is_found_where_the_store_has_checksums(tmp_path: Path) -> None:
    path = tmp_path / "data.zarr"
    options: Any = {"chunks": (50, 16), "compressors": [zarr.codecs.Crc32cCodec()]}
    zarr.create_array(path, shape=ROWS.shape, dtype="i4", **options)[...] = ROWS
    flip(second_chunk(path))
    with pytest.raises(dshift.UnreadableData, match="checksum"):
        dshift.fit(path, BANDWIDTH)


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        replace_by_loop,
        lambda file: file.write_bytes(b"\xff\xfe\x00"),
        lambda file: file.write_text("[]"),
        lambda file: edit(file, shape=None),
    ],
    ids=["truncated", "unreadable", "binary", "no object", "no shape"],
)
def test_broken_metadata(source: Path, damage: Callable[[Path], None]) -> None:
    damage(metadata(source))
    with pytest.raises(dshift.InvalidInput, match=r"cannot be opened as Zarr .*metadata is whole"):
        dshift.fit(source, BANDWIDTH)


@pytest.fixture
def group(tmp_path: Path) -> Path:
    path = tmp_path / "group.zarr"
    coords = {"place": np.arange(200.0), "bin": np.arange(16.0)}
    xr.Dataset({"counts": (("place", "bin"), ROWS)}, coords).to_zarr(path, consolidated=False)
    return path


GROUP_DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "torn coordinate": (
        lambda path: truncate(path / "place" / "c" / "0"),
        "its coordinates. cannot be read",
    ),
    "coordinate without metadata": (
        lambda path: truncate(path / "place" / "zarr.json"),
        "the list of its arrays. cannot be read",
    ),
    "unknown codec": (
        lambda path: edit(path / "place" / "zarr.json", codecs=[{"name": "nonsense"}]),
        "codec:? 'nonsense'",  # in the words of several versions of Zarr
    ),
    "shapes that disagree": (
        lambda path: edit(path / "place" / "zarr.json", shape=[77]),
        "xarray cannot read the group .*conflicting sizes",
    ),
}


@pytest.mark.parametrize("kind", list(GROUP_DAMAGE))
def test_a_damaged_group(group: Path, kind: str) -> None:
    damage, message = GROUP_DAMAGE[kind]
    damage(group)
    with pytest.raises(dshift.InvalidInput, match=message) as refused:
        dshift.fit(group, BANDWIDTH)
    assert "group.zarr" in str(refused.value)


def test_consolidated_metadata_is_not_needed_and_may_be_stale(
    group: Path, expected: xr.Dataset
) -> None:
    np.testing.assert_array_equal(dshift.fit(group, BANDWIDTH).label, expected.label)
    with pytest.warns(UserWarning, match="Consolidated metadata"):
        zarr.consolidate_metadata(group)
    shutil.rmtree(group / "counts")
    with pytest.raises(dshift.InvalidInput, match="are not histograms"):
        dshift.fit(group, BANDWIDTH)


def test_the_error_of_a_remote_store_is_not_quoted() -> None:
    """It may hold the URL, and the URL a password."""
    from dshift.unreadable import reading

    for name in ("s3://bucket/data.zarr, samples x=0:1", "zarr Array counts, samples x=0:1"):
        with pytest.raises(dshift.UnreadableData) as lost, reading(name):
            raise ValueError("s3://user:secret@bucket")
        assert "secret" not in str(lost.value)
        assert lost.value.__cause__ is None
        assert lost.value.__suppress_context__
    with pytest.raises(MemoryError), reading("data"):
        raise MemoryError


# ---------------------------------------------------------------- stores of runs


class Stop(Exception):
    """What ends a run early."""


def run(
    place: Path,
    stop_at: int | None = None,
    at_end: Callable[[], Any] = lambda: None,
    bandwidth: float = 0.6,
) -> Any:
    """Fit in blocks of 20 seeds; stop, or do something, in the middle."""
    calls = 0

    def distance(x: Any, rows: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 150:
            at_end()
        if stop_at is not None and calls > stop_at:
            raise Stop
        return np.abs(rows - x).sum(axis=1)

    metric = dshift.Metric(distance, lambda rows, weights: np.median(rows, axis=0))
    with settings(block_size=20, threads=1):
        return dshift.fit(ROWS, bandwidth, metric=metric, store=place)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    return run(tmp_path_factory.mktemp("whole") / "run.zarr")


def records(place: Path) -> list[Path]:
    return sorted((place / "dshift" / "blocks").glob("*.npz"))


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    place = tmp_path / "run.zarr"
    with pytest.raises(dshift.BlockFailed, match="failed with Stop"):
        run(place, stop_at=150)
    assert len(records(place)) >= 3
    return place


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        flip,
        lambda file: flip(file, 0.0),
        lambda file: file.write_bytes(b""),
        lambda file: file.unlink(),
        lambda file: shutil.copy(file.with_name("20-40.npz"), file),
    ],
    ids=["truncated", "flipped", "flipped digest", "empty", "missing", "copy of another"],
)
def test_a_damaged_record_is_done_again(
    half_done: Path, whole: xr.Dataset, damage: Callable[[Path], Any]
) -> None:
    damage(half_done / "dshift" / "blocks" / "0-20.npz")
    xr.testing.assert_identical(run(half_done), whole)


def test_a_record_that_cannot_be_read_is_named(half_done: Path) -> None:
    replace_by_loop(half_done / "dshift" / "blocks" / "0-20.npz")
    with pytest.raises(dshift.StoreFailed, match=r"blocks/0-20\.npz of `store`=.*cannot be read"):
        run(half_done)


@pytest.mark.parametrize("damage", [truncate, lambda file: file.write_text("[]"), Path.unlink])
def test_records_of_an_unknown_job_are_not_taken_for_this_one(
    half_done: Path, tmp_path: Path, damage: Callable[[Path], Any]
) -> None:
    expected = run(tmp_path / "fresh.zarr", bandwidth=0.5)
    damage(half_done / "dshift" / "job.json")
    with contextlib.suppress(dshift.InvalidInput):  # refused, or all blocks are done again
        xr.testing.assert_identical(run(half_done, bandwidth=0.5), expected)


def test_records_of_another_job_are_not_taken_for_this_one(half_done: Path, tmp_path: Path) -> None:
    place = tmp_path / "other.zarr"
    with pytest.raises(dshift.BlockFailed):
        run(place, stop_at=150, bandwidth=0.5)
    for record in records(half_done):
        shutil.copy(record, place / "dshift" / "blocks")
    expected = run(tmp_path / "fresh.zarr", bandwidth=0.5)
    xr.testing.assert_identical(run(place, bandwidth=0.5), expected)


def test_a_store_that_is_removed_while_the_run_lasts(tmp_path: Path, whole: xr.Dataset) -> None:
    place = tmp_path / "run.zarr"
    xr.testing.assert_identical(run(place, at_end=lambda: shutil.rmtree(place)), whole)
    xr.testing.assert_identical(run(place, stop_at=0), whole)


def chunk_of(place: Path, name: str) -> Path:
    return next(f for f in sorted((place / name / "c").rglob("*")) if f.is_file())


@pytest.mark.parametrize("name", ["label", "modes", "is_seed"])
@pytest.mark.parametrize(
    "damage", [truncate, flip, Path.unlink, replace_by_loop], ids=lambda damage: damage.__name__
)
def test_a_damaged_result_is_not_returned(
    tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    place = tmp_path / "run.zarr"
    run(place)
    damage(chunk_of(place, name))
    with pytest.raises(dshift.StoreFailed, match=rf"is damaged: {name} .* Remove the store") as bad:
        run(place)
    assert repr(str(place)) in str(bad.value)
    with pytest.raises(dshift.StoreFailed, match=rf"is damaged: {name} "):
        dshift.predict(place, ROWS)


def test_a_result_without_one_of_its_variables_is_not_returned(tmp_path: Path) -> None:
    place = tmp_path / "run.zarr"
    run(place)
    shutil.rmtree(place / "label")
    with pytest.raises(dshift.StoreFailed, match="is damaged: label cannot be read"):
        run(place)


def test_a_finished_result_has_every_chunk(tmp_path: Path, whole: xr.Dataset) -> None:
    """Also those of zeros alone, which Zarr leaves out: a lost one would not be missed."""
    place = tmp_path / "run.zarr"
    run(place)
    for _, array in zarr.open_group(place, mode="r").arrays():
        assert array.nchunks_initialized == array.nchunks
    xr.testing.assert_identical(run(place, stop_at=0), whole)


@pytest.mark.parametrize("below", ["file", "file/run.zarr", "loop/run.zarr"])
def test_a_store_where_none_can_be(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(dshift.DshiftError, match=r"cannot be (written|read)|is not a run"):
        dshift.fit(ROWS, BANDWIDTH, store=tmp_path / below)
    assert (tmp_path / "file").read_text() == "not a folder"


# ---------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB, of the test's own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "dshift-test", str(folder)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"this container may not mount: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_fills_up(small_disk: Path, whole: xr.Dataset) -> None:
    place = small_disk / "run.zarr"
    with pytest.raises(dshift.StoreFailed, match=r"cannot be written \(No space left.*continues"):
        run(place)
    kept = records(place)
    assert kept
    assert all(file.stat().st_size for file in kept)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    xr.testing.assert_identical(run(place), whole)
