"""The command line, as a person would call it."""

from __future__ import annotations

import json
import logging
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any
from xml.etree import ElementTree

import click
import numpy as np
import pytest
import xarray as xr
from click.testing import Result
from clusters import SECONDS, n_done, until
from console import invoke
from distributed import Client
from sklearn.metrics import adjusted_rand_score

import dshift
from dshift.cli import main
from dshift.demo import agreement, synthetic


def test_demo(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "dshift", "demo", "--out", "d", "--samples", "200"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "agreement with the truth (adjusted Rand index): 1.000" in done.stdout
    assert "every seed stationary: yes" in done.stdout
    assert "200/200" in done.stderr
    result = xr.open_zarr(tmp_path / "d" / "result.zarr", consolidated=False)
    assert result.attrs["n_clusters"] == 2
    picture = ElementTree.parse(tmp_path / "d" / "clusters.svg").getroot()
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}text"))) == 2


def test_demo_does_not_write_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("mine")
    done = invoke(["demo", "--out", str(tmp_path / "d")])
    assert done.exit_code == 2
    assert "this is a file; give a folder" in done.stderr
    assert (tmp_path / "d").read_text() == "mine"


@pytest.fixture(scope="module")
def hist(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cli") / "hist.zarr"
    data = synthetic(80, seed=1)
    data["heavy"] = "sample", np.arange(80) % 3 + 1
    data.to_zarr(path, consolidated=False)
    return str(path)


@pytest.fixture(scope="module")
def found(hist: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("cli") / "found.zarr")
    call("fit", hist, path, "--variable", "counts", "--bandwidth", "3")
    return path


def call(*words: Any, code: int = 0, env: dict[str, str] | None = None) -> Result:
    """Run a command; whatever it says on an error is one line."""
    done = invoke([*map(str, words)], env)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.stdout + done.stderr
    if code:
        said = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
        assert len(said) == 1
        assert done.stderr.splitlines()[-1] == said[0]
    return done


def test_fit_prints_a_table_and_keeps_the_result(hist: str, tmp_path: Path) -> None:
    out = tmp_path / "r.zarr"
    words = ("fit", hist, out, "--variable", "counts", "--bandwidth", 3)
    done = call(*words, "--no-progress")
    assert "2 clusters from" in done.stdout
    assert f"result: {out}" in done.stdout
    assert done.stderr == ""
    result = dshift.fit(hist, 3, variable="counts", valley=0.1)
    kept = xr.open_zarr(out, consolidated=False)
    np.testing.assert_array_equal(kept.label, result.label)
    again = json.loads(call(*words, "--json").stdout)
    assert again["n_clusters"] == 2
    assert again["cluster_sizes"] == result.cluster_size.values.tolist()
    assert again["all_seeds_stationary"] == 1


def test_every_option_of_fit_reaches_it(hist: str, tmp_path: Path) -> None:
    out = tmp_path / "r.zarr"
    words = ["fit", hist, out, "--variable", "counts", "--bandwidth", 0.9, "--valley", "none"]
    words += ["--metric", "l1", "--min-cluster-size", 3, "--seeds", 0.5, "--weights", "heavy"]
    words += ["--bin-dim", "bin", "--invalid", "mask", "--progress"]
    assert "dshift" in call(*words).stderr
    weights = np.arange(80) % 3 + 1
    options = {"metric": "l1", "min_cluster_size": 3, "seeds": 0.5, "weights": weights}
    result = dshift.fit(hist, 0.9, variable="counts", **options)
    kept = xr.open_zarr(out, consolidated=False)
    np.testing.assert_array_equal(kept.label, result.label)
    assert kept.attrs["valley"] == "none"


def test_auto_and_edges(hist: str, tmp_path: Path) -> None:
    edges = ",".join(map(str, np.linspace(0, 50, 101)))
    words = ("fit", hist, tmp_path / "r.zarr", "--variable", "counts", "--bandwidth", "auto")
    done = call(*words, "--edges", edges)
    assert "chosen from the plateau" in done.stdout
    kept = xr.open_zarr(tmp_path / "r.zarr", consolidated=False)
    assert kept.attrs["bandwidth_chosen"] == "auto"
    assert kept.attrs["bandwidth"] < 2.5


def test_options_come_from_the_environment_too(hist: str, tmp_path: Path) -> None:
    env = {"DSHIFT_FIT_BANDWIDTH": "3", "DSHIFT_FIT_VARIABLE": "counts", "DSHIFT_FIT_JSON": "1"}
    assert json.loads(call("fit", hist, tmp_path / "r", env=env).stdout)["bandwidth"] == 3
    env = {"DSHIFT_SCHEDULER": "tcp://x:1"}
    words = ("fit", hist, tmp_path / "s", "--bandwidth", 3, "--workers", 1)
    assert "give one of them" in call(*words, code=2, env=env).stderr


def test_sweep(hist: str, tmp_path: Path) -> None:
    words = ("sweep", hist, "--variable", "counts", "--bandwidths", "2,3,4,9", "--sample", "60")
    done = call(*words)
    assert "plateaus" in done.stdout
    assert "bandwidth auto: 3" in done.stdout
    said = json.loads(call(*words, tmp_path / "s.zarr", "--json").stdout)
    assert said["bandwidth"] == [2, 3, 4, 9]
    assert said["agreement"][-1] is None
    assert said["plateaus"][0]["middle"] == 3
    assert said["n_samples"] == 80
    assert xr.open_zarr(tmp_path / "s.zarr", consolidated=False).sizes["drawn"] == 60
    assert "exists; give another path" in call(*words, tmp_path / "s.zarr", code=2).stderr
    everything = call(*words[:-1], "all", "--bandwidths", "50", "--valley", "none")
    assert "no plateau" in everything.stdout


def test_predict(hist: str, found: str, tmp_path: Path) -> None:
    out = tmp_path / "p.zarr"
    words = ("predict", found, hist, out, "--variable", "counts")
    assert "0 of 80 by the nearest mode only" in call(*words).stdout
    kept, result = (xr.open_zarr(p, consolidated=False) for p in (out, found))
    np.testing.assert_array_equal(kept.label, result.label)
    assert "--overwrite to replace it" in call(*words, code=2).stderr
    said = json.loads(call(*words, "--overwrite", "--assign", "nearest", "--json").stdout)
    assert sum(said["sizes"].values()) == said["n_inexact"] == 80
    call(*words, "--overwrite", "--fitted", hist)


def test_histogram_of_a_cube(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3, 4))
    cube = xr.Dataset({"wind": (("time", "lat", "lon"), values, {"units": "m/s"})})
    cube.to_netcdf(tmp_path / "wind.nc", engine="h5netcdf")
    cube.to_zarr(tmp_path / "wind.zarr", consolidated=False)
    words = ("--dim", "time", "--edges", "-5,-1,0,1,5")
    done = call("histogram", tmp_path / "wind.nc", tmp_path / "h.zarr", *words)
    assert "3 lat x 4 lon x 4 bin" in done.stdout
    said = call("histogram", tmp_path / "wind.zarr", tmp_path / "g.zarr", *words, "--json").stdout
    assert json.loads(said)["shape"] == {"lat": 3, "lon": 4, "bin": 4}
    one, other = (xr.open_zarr(tmp_path / p, consolidated=False) for p in ("h.zarr", "g.zarr"))
    xr.testing.assert_equal(one, other)
    expected = np.histogram(values[:, 2, 1], [-5, -1, 0, 1, 5])[0]
    np.testing.assert_array_equal(one.counts[2, 1], expected)
    result = json.loads(
        call("fit", tmp_path / "h.zarr", tmp_path / "r.zarr", "--bandwidth", 1, "--json").stdout
    )
    assert result["unit"] == "m/s"
    bins = call(
        "histogram", tmp_path / "wind.nc", tmp_path / "q.zarr", "--dim", "time", "--bins", 5,
        "--quantiles", "--workers", 1, "--no-progress",
    )  # fmt: skip
    assert "5 bin" in bins.stdout


def test_report(hist: str, found: str, tmp_path: Path) -> None:
    call("sweep", hist, tmp_path / "s.zarr", "--variable", "counts", "--bandwidths", "2,3,4")
    words = ("report", found, hist, tmp_path / "page.html", "--variable", "counts")
    done = call(*words, "--sweep", tmp_path / "s.zarr", "--title", "Two humps")
    assert done.stdout == f"report: {tmp_path / 'page.html'}\n"
    assert "Two humps" in (tmp_path / "page.html").read_text()


def test_info(hist: str, found: str, tmp_path: Path) -> None:
    text = call("info", found).stdout
    assert "finished" in text
    assert "80 sample" in text
    assert "2 clusters from" in text
    said = json.loads(call("info", found, "--json").stdout)
    assert said["bandwidth"] == 3
    assert sum(said["cluster_sizes"]) == 80
    assert "counts" in call("info", hist).stdout
    missing = call("info", tmp_path / "nothing", code=2).stderr
    assert "holds neither a result nor a run of dshift" in missing


# From its second block on, this fit waits for a signal, however long that takes to come.
WAITING = """
import os, select, signal, time
from dshift import engine, threads
import dshift
from dshift.cli import main
climb, begun = threads.climb_share, []
came, comes = os.pipe()
os.set_blocking(comes, False)
signal.set_wakeup_fd(comes)
def climb_and_wait(*args):
    begun.append(args)
    if len(begun) > 1:
        select.select([came], [], [], 600)
        time.sleep(0.2)  # the signal is for the main thread
    return climb(*args)
threads.climb_share = climb_and_wait
with engine.settings(block_size=10, threads=1):
    main(prog_name="dshift")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_fit_says_how_to_resume(hist: str, tmp_path: Path, number: int) -> None:
    out = tmp_path / "r.zarr"
    words = ["fit", hist, str(out), "--variable", "counts", "--bandwidth", "3"]
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, *words], stdout=PIPE, stderr=PIPE, text=True
    )
    try:
        until(lambda: n_done(out) or process.poll() is not None, "a block is done")
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 75, stderr
    assert stdout == ""
    last = stderr.splitlines()[-1]
    assert "this continues from them: dshift fit" in last
    assert shlex.split(last.split("from them: ")[1]) == ["dshift", *words]
    assert "Traceback" not in stderr

    said = json.loads(call("info", out, "--json").stdout)
    assert said["state"] == "unfinished"
    assert 10 <= said["n_seeds_done"] < said["n_seeds"] == 80
    assert f"{said['n_seeds_done']} seeds of 80" in call("info", out).stdout
    call(*words, code=0)
    assert json.loads(call("info", out, "--json").stdout)["state"] == "finished"


def test_what_is_said_when_something_is_wrong(hist: str, tmp_path: Path) -> None:
    out = tmp_path / "r.zarr"
    wrong: list[tuple[list[Any], str]] = [
        (["fit", "nothing.zarr", out, "--bandwidth", 3], "'nothing.zarr' holds no Zarr array"),
        (["fit", "nothing.nc", out, "--bandwidth", 3], "there is no such file"),
        (["fit", __file__ + ".nc", out, "--bandwidth", 3], "there is no such file"),
        (["fit", hist, out, "--bandwidth", 3], "choose `variable` from: counts, heavy, truth"),
        (["fit", hist, out], "Missing option '--bandwidth'"),
        (["fit", hist, out, "--bandwidth", "wide"], "neither a number nor auto"),
        (["fit", hist, out, "--bandwidth", -1, "--variable", "counts"], "`bandwidth` is -1.0"),
        (["fit", hist, out, "--bandwidth", 3, "--edges", "a,b"], "not a list of numbers"),
        (["fit", hist, out, "--bandwidth", 3, "--weights", "w"], "--weights w: there is no such"),
        (["fit", hist, out, "--bandwith", 3], "No such option"),
        (["sweep", hist, "--variable", "none"], "`variable`='none' is not in"),
        (["predict", hist, hist, out], "a Dataset with the title None"),
        (["predict", out, hist, tmp_path / "p.zarr"], "holds no result"),
        (["predict", out, hist, out], "would replace the input"),
        (["histogram", "nothing", out, "--bins", 3], "no Zarr group or netCDF file"),
        (["histogram", hist, out, "--bins", 3], "--variable: choose one of counts, heavy, truth"),
        (["report", hist, hist, "page.html"], "a Dataset with the title None"),
        (["report", "r", hist, "page.html", "--sweep", "none"], "--sweep none: there is no store"),
        (["fits"], "No such command"),
    ]
    for words, message in wrong:
        assert message in call(*words, code=2).stderr


def test_results_go_to_stdout_and_the_rest_to_stderr(hist: str, tmp_path: Path) -> None:
    words = ["fit", hist, "r.zarr", "--variable", "counts", "--bandwidth", "3", "--json"]
    command = [sys.executable, "-m", "dshift"]
    quiet: dict[str, Any] = {"cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run([*command, *words, "--progress"], **quiet, check=True)
    assert json.loads(done.stdout)["n_clusters"] == 2
    assert "80.0/80.0" in done.stderr
    wrong = subprocess.run([*command, "fit", "nothing.zarr", "r", "--bandwidth", "3"], **quiet)
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    logged, said = wrong.stderr.splitlines()
    assert logged.endswith("dshift INFO fit of nothing.zarr into r")
    assert said.startswith("Error: `data`='nothing.zarr' holds no Zarr array")


def test_a_file_that_is_no_netcdf(tmp_path: Path) -> None:
    (tmp_path / "x.nc").write_text("no")
    words = ("fit", tmp_path / "x.nc", tmp_path / "r", "--bandwidth", 3)
    assert "cannot be read as netCDF" in call(*words, code=2).stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (dshift.PlanRefused("too\nlarge"), 3),
        (dshift.BlockFailed("lost"), 4),
        (dshift.ClusterLost("gone"), 5),
        (KeyboardInterrupt(), 75),
        (PermissionError("not yours"), 2),
    ],
)
def test_exit_codes(
    hist: str, tmp_path: Path, error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(dshift, "fit", fail)
    call("fit", hist, tmp_path / "r", "--bandwidth", 3, code=code)
    assert str(code) in main.epilog
    if code == 75:
        monkeypatch.setattr(dshift, "sweep", fail)
        call("sweep", hist, code=130)


def test_a_scheduler_out_of_reach(
    hist: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    def refuse(*args: Any, **options: Any) -> None:
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", refuse)
    words = ("fit", hist, tmp_path / "r", "--bandwidth", 3, "--scheduler", "tcp://nowhere:1")
    assert "tcp://nowhere:1: cannot be reached (timed out)" in call(*words, code=5).stderr


def test_on_workers_and_on_a_scheduler(
    hist: str, found: str, tmp_path: Path, two_workers: Client
) -> None:
    words = ("--variable", "counts", "--bandwidth", 3, "--json")
    there = ("--scheduler", two_workers.scheduler.address)
    done = call("fit", hist, tmp_path / "a", *words, *there)
    call("predict", found, hist, tmp_path / "p", "--variable", "counts", *there)
    swept = call("sweep", hist, "--variable", "counts", "--bandwidths", "3,4", "--json", *there)
    assert "dashboard: http" in done.stderr
    for path in (tmp_path / "a", tmp_path / "p"):
        kept, result = (xr.open_zarr(p, consolidated=False) for p in (path, found))
        np.testing.assert_array_equal(kept.label, result.label)
    assert json.loads(swept.stdout)["n_clusters"] == [2, 2]


def test_lines_are_logged_where_there_is_no_terminal(hist: str, tmp_path: Path) -> None:
    call("fit", hist, tmp_path / "r", "--variable", "counts", "--bandwidth", 3)
    assert logging.getLogger("dshift").isEnabledFor(logging.INFO)


def test_the_environment_knows_options_by_their_names() -> None:
    for command in main.commands.values():
        for option in (o for o in command.params if isinstance(o, click.Option)):
            names = {name.lstrip("-").replace("-", "_") for name in option.opts}
            assert option.name in names


def test_help_teaches_and_is_quick() -> None:
    for words in (["--help"], *([name, "--help"] for name in main.commands)):
        assert "Usage: " in call(*words).stdout
    for name in main.commands:
        text = call(name, "--help").stdout
        assert text.count(f"\n    dshift {name}") >= 2, f"{name} --help has no examples"
    assert {*main.commands} == {"histogram", "fit", "sweep", "predict", "report", "info", "demo"}
    assert "75   fit was interrupted" in call("--help").stdout
    assert dshift.__version__ in call("--version").stdout
    code = "import sys; from dshift.cli import main; print({'numpy', 'xarray'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("seed", range(5))
def test_agreement_is_the_adjusted_rand_index(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-1, 4, 50), rng.integers(0, 3, 50)
    assert agreement(a, b) == pytest.approx(adjusted_rand_score(a, b))
    assert agreement(a, a) == 1.0
    assert agreement(np.zeros(5), np.zeros(5)) == 1.0


def test_the_synthetic_set_is_as_the_paper_says() -> None:
    data = synthetic(300, seed=3)
    counts, truth = data.counts.values, data.truth.values
    assert counts.shape == (300, 100)
    np.testing.assert_array_equal(counts.sum(axis=1), 100)
    np.testing.assert_array_equal(counts[:, :35].sum(axis=1), np.where(truth == 1, 20, 0))
    assert (synthetic(300, seed=3).counts == data.counts).all()
    assert not (synthetic(300, seed=4).counts == data.counts).all()
