"""`dshift fit` in a job or a container: settings from the environment, and nothing secret said."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
import xarray as xr
from click.testing import Result
from clusters import histograms, local
from console import invoke
from hypothesis import given
from hypothesis import strategies as st

import dshift
from dshift.cli_run import fit
from dshift.redaction import public_cause, public_text
from dshift.terminal import Resumable, resumable, session

SECRET = "hunter2"


@pytest.fixture(autouse=True)
def _same_log_afterwards() -> Iterator[None]:
    log = logging.getLogger("dshift")
    handlers, level = log.handlers, log.level
    yield
    log.handlers, log.level = handlers, level


@pytest.fixture
def hist(tmp_path: Path) -> str:
    data = histograms(40).to_dataset(name="counts")
    data["heavy"] = "sample", np.arange(40) % 3 + 1
    data.to_zarr(tmp_path / "hist.zarr", consolidated=False)
    return str(tmp_path / "hist.zarr")


def run(*words: str, **settings: str) -> Result:
    """Run a command with these settings alone."""
    unset = dict.fromkeys(name for name in os.environ if name.startswith("DSHIFT_"))
    return invoke(words, {**unset, **settings})


def test_every_setting_of_fit_comes_from_the_environment(hist: str, tmp_path: Path) -> None:
    out = tmp_path / "found.zarr"
    settings = {
        "IN": hist,
        "OUT": str(out),
        "BANDWIDTH": "0.9",
        "VALLEY": "none",
        "MIN_CLUSTER_SIZE": "3",
        "SEEDS": "0.5",
        "THREADS": "1",
        "BLOCK_SIZE": "5",
        "VARIABLE": "counts",
        "BIN_DIM": "bin",
        "METRIC": "l1",
        "WEIGHTS": "heavy",
        "INVALID": "mask",
        "PROGRESS": "0",
        "JSON": "1",
    }
    # The rest: "wasserstein" alone has edges, and a scheduler or workers are not this process.
    names = {str(p.envvar or f"DSHIFT_FIT_{p.name}".upper()) for p in fit.params}
    given = {f"DSHIFT_FIT_{name}": value for name, value in settings.items()}
    assert names == {*given, "DSHIFT_FIT_EDGES", "DSHIFT_FIT_WORKERS", "DSHIFT_SCHEDULER"}
    done = run("fit", **given)
    assert done.exit_code == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["store"] == str(out)
    found = xr.open_zarr(out, consolidated=False).load()
    options = {"metric": "l1", "min_cluster_size": 3, "seeds": 0.5}
    weights = np.arange(40) % 3 + 1
    here = dshift.fit(hist, 0.9, variable="counts", weights=weights, **options)
    xr.testing.assert_identical(found.drop_attrs(), here.drop_attrs())


def test_a_block_size_is_one_of_the_run(hist: str, tmp_path: Path) -> None:
    words = ("fit", hist, str(tmp_path / "out"), "--variable", "counts", "--bandwidth", "0.5")
    seen: list[int] = []

    def watch(block: slice) -> None:
        seen.append(block.stop - block.start)

    from dshift import threads

    climb = threads.climb_share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "climb_share", lambda s, b: (watch(b), climb(s, b))[1])
        done = run(*words, "--block-size", "15", "--threads", "1")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert sorted(seen) == [10, 15, 15]


def test_an_unknown_setting_is_refused(hist: str, tmp_path: Path) -> None:
    done = run("fit", hist, str(tmp_path / "out"), DSHIFT_FIT_BANDWITH="3")
    assert done.exit_code == 2
    assert "DSHIFT_FIT_BANDWITH: the environment sets this" in done.stderr
    assert "perhaps DSHIFT_FIT_BANDWIDTH?" in done.stderr
    # Others may have names that begin as ours do.
    assert "Missing option" in run("fit", hist, "x", DSHIFT_ELSE="3").stderr


def test_a_scheduler_file_is_as_good_as_an_address(hist: str, tmp_path: Path) -> None:
    words = ("fit", hist, str(tmp_path / "out"), "--variable", "counts", "--bandwidth", "0.5")
    file = tmp_path / "scheduler.json"
    missing = run(*words, "--scheduler", str(file))
    assert missing.exit_code == 2
    assert f"--scheduler {file}: is no address, and no file is there" in missing.stderr
    with local(1, processes=False) as (cluster, _):
        file.write_text(json.dumps({"address": cluster.scheduler_address}))
        done = run(*words, "--scheduler", str(file))
    assert done.exit_code == 0, done.stdout + done.stderr
    found = xr.open_zarr(tmp_path / "out", consolidated=False).load()
    here = dshift.fit(hist, 0.5, variable="counts", valley=0.1)
    xr.testing.assert_identical(found.drop_attrs(), here.drop_attrs())


# ---------------------------------------------------------------- secrets

WORDS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=3, max_size=20)


@given(WORDS, WORDS, st.sampled_from(["s3", "https", "ftp", "simplecache::s3"]))
def test_no_url_in_a_text_keeps_its_password(user: str, password: str, scheme: str) -> None:
    mark = f"<{password}>"
    url = f"{scheme}://{user}:{mark}@host/folder/x.zarr?token={mark}#{mark}"
    said = public_text(f"cannot read '{url}', and not {url} either")
    assert mark not in said
    assert f"{scheme}://host/folder/x.zarr" in said
    assert public_text(f"tcp://127.0.0.1:8786 and {scheme}://host/x") == (
        f"tcp://127.0.0.1:8786 and {scheme}://host/x"
    )


def test_the_cause_of_an_error_is_told_unless_it_may_hold_a_secret() -> None:
    error = OSError(f"cannot  log in as {SECRET}\nat all")
    assert public_cause(error, "s3://b/x") == f"cannot log in as {SECRET} at all"
    assert public_cause(error, f"ftp://user:{SECRET}@h/x") == "OSError"
    assert public_cause(OSError(), "s3://b/x") == "OSError"
    assert len(public_cause(OSError("x" * 999), "s3://b/x")) == 200


def test_what_is_logged_and_said_of_a_url_has_no_password(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"ftp://user:{SECRET}@host/x.zarr"
    log = logging.getLogger("dshift")
    monkeypatch.setattr(sys, "argv", ["dshift", "fit", url, url, "--bandwidth", "3"])
    with session(None, None, None):
        log.info("reading %s", url)
        log.error("and again %s?token=%s", url, SECRET)
    assert "reading ftp://host/x.zarr" in capsys.readouterr().err

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(Resumable) as told, resumable(url):
        stop()
    assert "dshift fit ftp://host/x.zarr ftp://host/x.zarr --bandwidth 3" in told.value.message
    assert SECRET not in told.value.message


def test_the_errors_of_other_libraries_are_stripped(hist: str, tmp_path: Path) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError(f"cannot read ftp://user:{SECRET}@host/x.zarr")

    words = ("fit", hist, str(tmp_path / "out"), "--bandwidth", "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dshift, "fit", fail)
        done = run(*words)
    assert done.exit_code == 2
    assert "Error: cannot read ftp://host/x.zarr" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_every_parameter_of_fit_is_an_option_or_has_a_name_in_the_environment() -> None:
    for parameter in fit.params:
        assert isinstance(parameter, click.Option) or parameter.envvar
