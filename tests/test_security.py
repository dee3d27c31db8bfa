"""What comes from a store or from data is never code, never a path, and never tells a secret.

That the report and the dashboard page escape every string is shown in test_report.py
(`test_text_from_the_data_is_escaped`, in a real browser) and test_dashboard.py
(`test_every_string_is_escaped`).
"""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import xarray as xr

import dshift
from dshift.engine import settings
from dshift.store import JOB_FILE, LOCK_FILE

PACKAGE = Path(dshift.__file__).parent
ROWS = np.random.default_rng(0).multinomial(30, np.full(5, 0.2), 24)


# ---------------------------------------------------------------- code


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("array", ["place", "counts"])
@pytest.mark.parametrize("dtype", [None, "|O"])
@pytest.mark.parametrize("codec", ["filters", "compressor"])
def test_a_pickle_in_a_source_is_not_opened(
    tmp_path: Path, array: str, dtype: str | None, codec: str
) -> None:
    """Version 2 of Zarr has a codec that unpickles chunks."""
    path, trace = tmp_path / "data.zarr", tmp_path / "trace"
    data = xr.Dataset({"counts": (("place", "bin"), ROWS)}, {"place": np.arange(24.0)})
    data.to_zarr(path, zarr_format=2, consolidated=False)
    metadata = path / array / ".zarray"
    said = json.loads(metadata.read_text())
    pickled = {"id": "pickle", "protocol": 5}
    said |= {"filters": None, "compressor": None, "fill_value": None}
    said[codec] = [pickled] if codec == "filters" else pickled
    said["dtype"] = dtype or said["dtype"]
    metadata.write_text(json.dumps(said))
    for chunk in (path / array).glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(Payload(trace)))
    with pytest.raises(dshift.DshiftError, match=r"data\.zarr"):
        dshift.fit(path, 1.0)
    assert not trace.exists()


def test_a_pickle_in_the_record_of_a_block_is_not_opened(tmp_path: Path) -> None:
    place, trace = tmp_path / "run.zarr", tmp_path / "trace"
    with settings(block_size=8):
        expected = dshift.fit(ROWS, 0.8, store=place)
    job = json.loads((place / "zarr.json").read_text())["attributes"]["dshift_job"]
    buffer = io.BytesIO()
    np.savez(buffer, modes=np.array([Payload(trace)], dtype=object))
    blocks = tmp_path / "again.zarr" / "dshift" / "blocks"
    blocks.mkdir(parents=True)
    (blocks.parent / "job.json").write_text(job)
    for content in (buffer.getvalue(), bytes(16) + buffer.getvalue()):
        (blocks / "0-8.npz").write_bytes(content)
        with settings(block_size=8):
            xr.testing.assert_identical(
                dshift.fit(ROWS, 0.8, store=tmp_path / "again.zarr"), expected
            )
        assert not trace.exists()
        (tmp_path / "again.zarr").rename(tmp_path / f"done{len(content)}")
        blocks.mkdir(parents=True)
        (blocks.parent / "job.json").write_text(job)


DANGEROUS = {
    "pickle.load",
    "pickle.loads",
    "cloudpickle.load",
    "cloudpickle.loads",
    "marshal.load",
    "marshal.loads",
    "shelve.open",
    "yaml.load",
    "pandas.read_pickle",
    "pd.read_pickle",
    "joblib.load",
    "eval",
    "exec",
    "os.system",
}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_nothing_in_the_package_unpickles_or_evaluates(path: Path) -> None:
    for name, call in calls(ast.parse(path.read_text())):
        assert name not in DANGEROUS, f"line {call.lineno}"
        options = {word.arg: ast.unparse(word.value) for word in call.keywords}
        if name in ("np.load", "numpy.load"):
            assert options.get("allow_pickle") == "False", f"line {call.lineno}"
        assert options.get("allow_pickle") != "True", f"line {call.lineno}"
        assert options.get("shell") != "True", f"line {call.lineno}"


# ---------------------------------------------------------------- paths


NAMES = ["../../evil", "..", ".", "a/b", "/abs", "a\\b", "", "nul\0", "dshift", "zarr.json"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["coordinate", "samples", "bins"])
def test_a_name_that_is_a_path_does_not_reach_a_store(tmp_path: Path, name: str, kind: str) -> None:
    dims = {"samples": (name, "bin"), "bins": ("place", name)}.get(kind, ("place", "bin"))
    axis = dims[1] if kind == "bins" else dims[0]
    coords = {name: (axis, np.arange(5 if kind == "bins" else 24))}
    data = xr.DataArray(ROWS, dims=dims, coords=coords)
    (tmp_path / "folder").mkdir()
    with pytest.raises(dshift.InvalidInput, match="cannot be the name of a variable in `store`"):
        dshift.fit(data, 0.8, store=tmp_path / "folder" / "run.zarr")
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]
    # In memory, a name is only a name.
    assert dshift.fit(data, 0.8).label.dims == dims[:1]


def test_a_stacked_variable_that_is_a_path_does_not_reach_a_store(tmp_path: Path) -> None:
    part = xr.DataArray(ROWS, dims=("place", "bin"), attrs={"edges": list(range(6))})
    stacked = dshift.stack({"one": part, "two": part})
    stacked.attrs["variables"] = ["one", "../../evil"]
    with pytest.raises(dshift.InvalidInput, match="cannot be the name of a variable in `store`"):
        dshift.fit(stacked, 0.8, store=tmp_path / "run.zarr")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "coordinate",
    [
        xr.Variable("place", np.arange(24.0), {"made by": object()}),
        xr.Variable("place", np.array([object()] * 24)),
        xr.Variable("place", np.array(["a", 1] * 12, dtype=object)),
    ],
    ids=["attribute", "objects", "mixed"],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, coordinate: xr.Variable
) -> None:
    data = xr.DataArray(ROWS, dims=("place", "bin"), coords={"tag": coordinate})
    with pytest.raises(dshift.InvalidInput, match="the coordinate `tag` cannot be written"):
        dshift.fit(data, 0.8, store=tmp_path / "run.zarr")
    assert not list(tmp_path.iterdir())


def test_coordinates_of_every_kind_are_written(tmp_path: Path) -> None:
    coords: dict[str, Any] = {
        "place": [f"tower {i}" for i in range(24)],
        "since": ("place", np.datetime64("2020-01-01", "ns") + np.arange(24)),
        "lasted": ("place", np.arange(24).astype("m8[ns]")),
        "kind": ("place", np.array(["a", "b"] * 12, dtype=object)),
        "height": 3.5,
    }
    data = xr.DataArray(ROWS, dims=("place", "bin"), coords=coords)
    first = dshift.fit(data, 0.8, store=tmp_path / "run.zarr")
    again = dshift.fit(data, 0.8, store=tmp_path / "run.zarr")
    assert set(first.coords) == set(again.coords) == set(coords)
    np.testing.assert_array_equal(again.since, data.since)
    np.testing.assert_array_equal(again.place, data.place)


# ---------------------------------------------------------------- secrets


SECRET = "h1dden"
URL = f"memory://user:{SECRET}@host"


@pytest.fixture
def memory() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm(f"/user:{SECRET}@host", recursive=True)


def test_a_secret_is_nowhere_to_be_read(
    memory: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    caplog.set_level(logging.DEBUG, "dshift")
    counts = xr.DataArray(ROWS, dims=("place", "bin"), name="counts")
    counts.to_dataset().to_zarr(f"{URL}/data.zarr", consolidated=False)
    call: dict[str, Any] = {"data": f"{URL}/data.zarr", "store": f"{URL}/run.zarr"}
    result = dshift.fit(**call, bandwidth=0.8, progress=True)
    assert SECRET not in str(result.attrs)
    again = dshift.fit(**call, bandwidth=0.8)
    assert SECRET not in str(again.attrs)
    stored = [memory.cat_file(path) for path in memory.find(f"/user:{SECRET}@host/run.zarr")]
    assert stored
    assert not any(SECRET.encode() in content for content in stored)
    dshift.report(result, call["data"], tmp_path / "report.html")
    assert SECRET not in (tmp_path / "report.html").read_text()
    with pytest.raises(dshift.InvalidInput, match="holds a run of another job") as other:
        dshift.fit(**call, bandwidth=0.9)
    with pytest.raises(dshift.MissingData) as missing:
        dshift.fit(f"{URL}/none.zarr", 0.8)
    for error in (other.value, missing.value):
        assert SECRET not in str(error)
    assert SECRET not in caplog.text
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err


@pytest.mark.parametrize(("method", "done"), [("pipe_file", "written"), ("cat_file", "read")])
@pytest.mark.parametrize("key", [LOCK_FILE, JOB_FILE])
def test_a_remote_store_that_refuses_is_named_and_tells_no_secret(
    memory: Any, monkeypatch: pytest.MonkeyPatch, method: str, done: str, key: str
) -> None:
    kind = type(memory)
    work = getattr(kind, method)
    memory.pipe_file(f"/user:{SECRET}@host/other", b"")  # for the fixture to remove

    def refuse(self: Any, path: str, *args: Any, **how: Any) -> Any:
        if path.endswith(key):
            raise PermissionError(f"403 Forbidden: {path}")
        return work(self, path, *args, **how)

    monkeypatch.setattr(kind, method, refuse)
    said = rf"{key} of `store`='memory://host/run\.zarr' cannot be {done} \(PermissionError\)"
    with pytest.raises(dshift.StoreFailed, match=said) as refused:
        dshift.fit(ROWS, 0.8, store=f"{URL}/run.zarr")
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_a_torn_chunk_of_a_remote_source_tells_no_secret(memory: Any) -> None:
    counts = xr.DataArray(ROWS, dims=("place", "bin"), name="counts")
    counts.to_dataset().to_zarr(f"{URL}/data.zarr", consolidated=False)
    memory.pipe_file(f"/user:{SECRET}@host/data.zarr/counts/c/0/0", b"torn")
    with pytest.raises(dshift.UnreadableData, match=r"memory://host/data\.zarr") as torn:
        dshift.fit(f"{URL}/data.zarr", 0.8)
    assert SECRET not in str(torn.value)
    assert torn.value.__cause__ is None
