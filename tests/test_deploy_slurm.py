"""deploy/slurm on a real SLURM of two nodes: its scripts as they are, killed and resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import xarray as xr
from clusters import TESTS, histograms, n_done, until, write
from slurm import JOB_SECONDS, Slurm, refuse_or_skip

import dshift

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

DEPLOY = TESTS.parent / "deploy"
SCRIPT = str(DEPLOY / "slurm" / "dshift.sbatch")
N_SAMPLES, BLOCK_SIZE, BANDWIDTH = 400, 20, 0.3
N_BLOCKS = N_SAMPLES // BLOCK_SIZE


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    refuse_or_skip()
    with Slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(histograms(N_SAMPLES), tmp_path_factory.mktemp("data") / "hist.zarr", 100)


@pytest.fixture(scope="module")
def expected(data: str) -> xr.Dataset:
    return dshift.fit(data, BANDWIDTH, valley=0.1)


def same(place: Path, expected: xr.Dataset) -> None:
    """Check that a store holds the very bits that this process finds."""
    found = xr.open_zarr(place, consolidated=False).load()
    xr.testing.assert_identical(found.drop_attrs(), expected.drop_attrs())


class Submission:
    """deploy/'s own script, submitted unchanged from a folder of its own."""

    def __init__(self, slurm: Slurm, folder: Path, data: str, **settings: str) -> None:
        self.slurm, self.folder, self.settings = slurm, folder, settings
        self.store, self.scratch = folder / "found.zarr", folder / "scratch"
        self.scratch.mkdir()
        self.words = [SCRIPT, data, str(self.store), "--bandwidth", str(BANDWIDTH)]
        self.words += ["--block-size", str(BLOCK_SIZE)]

    def submit(self, *options: str) -> str:
        settings = {"DSHIFT_SCRATCH": str(self.scratch), **self.settings}
        return self.slurm.submit(*options, *self.words, cwd=self.folder, **settings)

    def log(self, job: str) -> str:
        path = self.folder / f"dshift-{job}.log"
        return path.read_text() if path.exists() else "no log yet"

    def finish(self, job: str, code: int) -> None:
        """Wait for the end of a job, and check its exit code and that nothing is left of it."""
        found = self.slurm.wait(job)
        assert found["ExitCode"] == f"{code}:0", self.log(job)
        assert not list(self.folder.glob(".dshift-*")), self.log(job)
        assert not list(self.scratch.iterdir()), self.log(job)


def gate(folder: Path, after: int) -> dict[str, str]:
    """Return settings by which each worker stops after so many blocks, until `folder/go` exists."""
    return {
        "DSHIFT_GATE": str(folder / "go"),
        "DSHIFT_GATE_BLOCKS": str(after),
        "DASK_DISTRIBUTED__WORKER__PRELOAD": "['gate']",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")])),
    }


def reused(log: str) -> int:
    """Return how many blocks a fit says that it took from its store."""
    found = re.search(rf"reused (\d+) of {N_BLOCKS} blocks", log)
    return int(found[1]) if found else 0


def test_two_nodes_give_the_same_bits_and_end_clean(
    slurm: Slurm, data: str, expected: xr.Dataset, tmp_path: Path
) -> None:
    run = Submission(slurm, tmp_path, data)
    job = run.submit()
    run.finish(job, 0)
    assert slurm.job(job)["NumNodes"] == "2"
    same(run.store, expected)
    log = run.log(job)
    assert f"result: {run.store}" in log
    assert len(set(re.findall(r"Start worker at: +(\S+)", log))) == 2


def test_a_cancelled_job_is_resumed_by_the_same_line(
    slurm: Slurm, data: str, expected: xr.Dataset, tmp_path: Path
) -> None:
    run = Submission(slurm, tmp_path, data, **gate(tmp_path, after=2))
    first = run.submit()
    until(lambda: n_done(run.store) >= 2, "blocks are recorded", JOB_SECONDS)
    slurm.run("scancel", first)
    assert slurm.wait(first)["JobState"] == "CANCELLED", run.log(first)
    n_kept = n_done(run.store)
    assert 2 <= n_kept < N_BLOCKS

    (tmp_path / "go").touch()
    second = run.submit()
    run.finish(second, 0)
    assert reused(run.log(second)) == n_kept
    same(run.store, expected)


def test_the_walltime_ends_a_fit_in_order(
    slurm: Slurm, data: str, expected: xr.Dataset, tmp_path: Path
) -> None:
    run = Submission(slurm, tmp_path, data, **gate(tmp_path, after=2))
    # The script asks for a signal two minutes before the end; SLURM sends it up to one earlier.
    first = run.submit("--time=4")
    run.finish(first, 75)
    n_kept = n_done(run.store)
    assert n_kept < N_BLOCKS
    # A slow machine may not have come to the first block by then.
    assert "Finished blocks are in" in run.log(first) or n_kept == 0

    (tmp_path / "go").touch()
    second = run.submit()
    run.finish(second, 0)
    assert reused(run.log(second)) == n_kept
    same(run.store, expected)


def test_workers_that_cannot_start_end_the_job(slurm: Slurm, data: str, tmp_path: Path) -> None:
    settings = {"DASK_DISTRIBUTED__WORKER__PRELOAD": "['no_such_module_of_dshift']"}
    run = Submission(slurm, tmp_path, data, **settings)
    job = run.submit()
    run.finish(job, 5)
    assert "the workers or the scheduler ended before the fit" in run.log(job)


def make_certificates(folder: Path) -> str:
    subprocess.run([str(DEPLOY / "certificates.sh"), str(folder)], check=True, capture_output=True)
    return str(folder)


def test_tls(slurm: Slurm, data: str, expected: xr.Dataset, tmp_path: Path) -> None:
    run = Submission(slurm, tmp_path, data, DSHIFT_TLS=make_certificates(tmp_path / "tls"))
    job = run.submit()
    run.finish(job, 0)
    assert "tls://" in run.log(job)
    assert "tcp://" not in run.log(job)
    same(run.store, expected)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_driver_asks_for_jobs_and_gives_them_back(
    slurm: Slurm, data: str, expected: xr.Dataset, tmp_path: Path, tls: bool
) -> None:
    store = tmp_path / "found.zarr"
    settings = {
        "DASK_CONFIG": str(DEPLOY / "slurm" / "jobqueue.yaml"),
        # The nodes here are smaller than those that the file is for.
        "DASK_JOBQUEUE__SLURM__CORES": "2",
        "DASK_JOBQUEUE__SLURM__MEMORY": "2GB",
    }
    if tls:
        folder = make_certificates(tmp_path / "tls")
        settings["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = f"{folder}/ca.pem"
        for role in ("SCHEDULER", "WORKER", "CLIENT"):
            settings[f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT"] = f"{folder}/cert.pem"
            settings[f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY"] = f"{folder}/key.pem"
    # On SIGABRT it says where it is.
    driver = [sys.executable, "-X", "faulthandler", str(DEPLOY / "slurm" / "driver.py")]
    with open(tmp_path / "driver.log", "wb") as log:
        process = subprocess.Popen(
            [*driver, data, str(store), str(BANDWIDTH)],
            cwd=tmp_path,
            env={**slurm.environment, **settings},
            stdout=log,
            stderr=log,
        )
    seen: set[str] = set()

    def ended() -> bool:
        seen.update(slurm.jobs())
        return process.poll() is not None

    try:
        until(ended, "the driver ends", JOB_SECONDS)
    except AssertionError:
        process.send_signal(signal.SIGABRT)
        process.wait()
        pytest.fail((tmp_path / "driver.log").read_text())
    finally:
        process.kill()
        process.wait()
    said = (tmp_path / "driver.log").read_text()
    assert process.returncode == 0, said
    assert seen, "no job was seen"
    until(lambda: not slurm.jobs(), "the workers' jobs end")
    logs = "".join(path.read_text() for path in (tmp_path / "dshift-logs").iterdir())
    assert ("tls://" in logs) == tls
    same(store, expected)
