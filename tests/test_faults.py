"""Processes are really killed: the job ends with the same bits, or its store continues."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from clusters import (
    SECONDS,
    TESTS,
    Commands,
    Poison,
    blocks_told,
    close_gate,
    fail_at_the_first_block,
    histograms,
    holds_nothing,
    let_idle_jobs_go_at_once,
    local,
    make_job,
    n_done,
    n_runs,
    n_tasks,
    save_points,
    slow_metric,
    until,
)
from distributed import Client

import dshift
from dshift.engine import settings
from dshift.held import held_tokens
from dshift.stage import seeds_share, set_stage
from dshift.threads import name_seeds

ROWS = histograms()
N_BLOCKS = 12
N_FREE = 6  # blocks that end while the gate is closed: the others wait there to be killed
CALL: dict[str, Any] = {"bandwidth": 0.4, "valley": 0.1}


@pytest.fixture(scope="module")
def expected() -> xr.Dataset:
    """The answer, found in this process without delay."""
    return dshift.fit(ROWS, **CALL, metric=slow_metric(0))


@contextmanager
def fitting(
    n_started: int, place: Path | None, gate: Path, **options: Any
) -> Iterator[Future[xr.Dataset]]:
    """Run a fit in another thread, in front of a gate; the context starts at so many blocks.

    The gate is open once the caller unlinks it, or the context ends.
    """
    metric = slow_metric(0, gate=gate)
    call = {"data": ROWS, **CALL, "metric": metric, "store": place, **options}

    def fit() -> xr.Dataset:
        with settings(block_size=len(ROWS) // N_BLOCKS):
            return dshift.fit(**call)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(fit)
        client = options["client"]

        def started() -> bool:
            assert not run.done(), run.result()
            return sum(map(len, blocks_told(client))) >= n_started

        try:
            until(started, f"{n_started} blocks are done")
            yield run
        finally:
            gate.unlink(missing_ok=True)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return close_gate(tmp_path / "gate", N_FREE)


def wait_at(rows: Any, gate: str) -> Any:
    until(lambda: not os.path.exists(gate), "the gate opens")
    return rows


def n_executing(dask_worker: Any) -> int:
    """Return how many threads of a worker are at work: a dropped task runs to its end."""
    return len(dask_worker.state.executing)


def pids(client: Client) -> list[int]:
    return list(client.run(os.getpid).values())


# ---------------------------------------------------------------- workers


def test_one_worker_is_killed(tmp_path: Path, gate: Path, expected: xr.Dataset) -> None:
    place = tmp_path / "r.zarr"
    with local(2) as (_, client):
        with fitting(4, place, gate, client=client) as run:
            os.kill(pids(client)[0], signal.SIGKILL)
            gate.unlink()
            found = run.result(SECONDS)
        climbed, reused = blocks_told(client)
        # A block on record is never climbed again; what the worker held is read from its record.
        assert max(climbed.values()) == 1
        assert set(climbed) | set(reused) == set(range(0, 120, 10))
        # Beyond one run a block: those read again, and the one or two that the worker was given.
        assert n_runs(client, "dshift-shift") <= N_BLOCKS + sum(reused.values()) + 2
    xr.testing.assert_identical(found, expected)


def test_all_workers_are_killed_without_a_store(gate: Path, expected: xr.Dataset) -> None:
    with local(2) as (_, client):
        with fitting(N_FREE, None, gate, client=client) as run:
            before = blocks_told(client)[0]
            for pid in pids(client):
                os.kill(pid, signal.SIGKILL)
            gate.unlink()
            found = run.result(SECONDS)
        climbed, _ = blocks_told(client)
        assert set(climbed) == set(range(0, 120, 10))
        # All that was done before is done again, once, and nothing else.
        assert sum(climbed.values()) <= N_BLOCKS + sum(before.values()) + 2
        until(lambda: holds_nothing(client), "the workers let go")
    xr.testing.assert_identical(found, expected)


def test_arrays_that_travelled_through_the_cluster_are_sent_again(
    gate: Path,
    expected: xr.Dataset,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Another process's memory is a file system that workers do not see.
    unseen = SimpleNamespace(mkdtemp=lambda **options: "memory://scratch")
    monkeypatch.setattr("dshift.courier.tempfile", unseen)
    monkeypatch.setattr("dshift.parcel.INLINE_BYTES", 0)
    monkeypatch.setattr("dshift.courier.INLINE_BYTES", 0)
    caplog.set_level(logging.INFO, "dshift")
    with local(2) as (_, client), fitting(N_FREE, None, gate, client=client) as run:
        for pid in pids(client):
            os.kill(pid, signal.SIGKILL)
        gate.unlink()
        found = run.result(SECONDS)
    assert "the cluster lost the arrays of the job" in caplog.text
    xr.testing.assert_identical(found, expected)


def test_a_cluster_that_is_restarted_goes_on(
    tmp_path: Path, gate: Path, expected: xr.Dataset
) -> None:
    place = tmp_path / "r.zarr"
    with local(2) as (_, client):
        with fitting(N_FREE, place, gate, client=client) as run:
            client.restart(timeout=SECONDS)
            gate.unlink()
            found = run.result(SECONDS)
        climbed, reused = blocks_told(client)
        # What was on record is read, once for each time that the cluster dropped it.
        assert max(climbed.values()) == 1
        assert set(climbed) | set(reused) == set(range(0, 120, 10))
        until(lambda: holds_nothing(client), "the workers let go")
    xr.testing.assert_identical(found, expected)


def test_a_restart_before_the_samples_are_read_is_one_error(tmp_path: Path, gate: Path) -> None:
    waiting = da.from_array(ROWS.values, chunks=(120, 16)).map_blocks(
        wait_at, gate=str(gate), dtype=ROWS.dtype, meta=np.empty((0, 0), ROWS.dtype)
    )
    with local(1) as (_, client), ThreadPoolExecutor(1) as pool:
        run = pool.submit(dshift.fit, waiting, 1.0, client=client, store=tmp_path / "r.zarr")
        try:
            until(lambda: any(client.processing().values()) or run.done(), "a worker is asked")
            client.restart(timeout=SECONDS)
            with pytest.raises(dshift.ClusterLost, match=r"was restarted, or .* cancelled") as lost:
                run.result(SECONDS)
        finally:
            gate.unlink()
        assert "the same call continues" in str(lost.value)


def test_workers_that_are_asked_to_leave_mid_run(gate: Path, expected: xr.Dataset) -> None:
    with local(2) as (cluster, client):
        with fitting(N_FREE, None, gate, client=client) as run:
            cluster.scale(1)
            gate.unlink()
            found = run.result(SECONDS)
        until(lambda: len(client.nthreads()) == 1, "one has left")
        assert set(blocks_told(client)[0]) == set(range(0, 120, 10))
    xr.testing.assert_identical(found, expected)


def test_a_worker_that_loses_sight_of_the_store_is_named(
    tmp_path: Path, gate: Path, expected: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    # For each process this is in the folder that it works in.
    place = Path("/proc/self/cwd/r.zarr")
    with local(1) as (_, client), fitting(N_FREE, place, gate, client=client) as run:
        client.run(os.chdir, str(elsewhere))
        gate.unlink()
        with pytest.raises(dshift.InvalidInput, match=r"same place for worker tcp.* caller;"):
            run.result(SECONDS)
    with settings(block_size=10):
        found = dshift.fit(ROWS, **CALL, metric=slow_metric(0), store=place)
    xr.testing.assert_identical(found, expected)


def test_a_poisoned_block_is_named_and_the_store_stays_good(
    tmp_path: Path, expected: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker that was killed may be slow to come back, and is the one to name the seeds.
    monkeypatch.setattr("dshift.engine.NAMING_SECONDS", SECONDS)
    place, poison = tmp_path / "r.zarr", tmp_path / "poison.npy"
    save_points(poison, ROWS[57:58])
    call = {"data": ROWS, **CALL, "metric": slow_metric(0, poison), "store": place}
    with (
        # One failure is enough, and no other block waits on the worker to be blamed for it.
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": 0,
                "distributed.scheduler.worker-saturation": 1.0,
            }
        ),
        local(1) as (_, client),
        settings(block_size=10),
    ):
        with pytest.raises(
            dshift.BlockFailed,
            match=r"the block of 10 seeds \(samples 50 to 59\) failed with Killed",
        ) as caught:
            dshift.fit(**call, client=client)
        assert f"Finished blocks are in {str(place)!r}" in str(caught.value)
        kept = n_done(place)
        assert 0 < kept < N_BLOCKS
        poison.unlink()
        # The failed job is over, although its error is still held.
        until(lambda: not client.run_on_scheduler(n_tasks), "no task is left")
        before = blocks_told(client)
        found = dshift.fit(**call, client=client)
        climbed, reused = (
            now - then for now, then in zip(blocks_told(client), before, strict=True)
        )
        assert (sum(reused.values()), sum(climbed.values())) == (kept, N_BLOCKS - kept)
    xr.testing.assert_identical(found, expected)


def test_a_poisoned_block_is_found_in_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dshift.engine.NAMING_SECONDS", SECONDS)
    place, poison = tmp_path / "r.zarr", tmp_path / "poison"
    poison.touch()
    settled = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.worker-saturation": 1.0,
    }
    with dask.config.set(settled), local(1) as (_, client), settings(block_size=15):
        # The second of 8 blocks, which begin with a run of two; too few for a merge to be blamed.
        client.register_plugin(Poison(15, poison))
        with pytest.raises(dshift.BlockFailed, match="failed with Killed") as caught:
            dshift.fit(ROWS, 1.0, client=client, store=place)
        seeds = seeds_share(set_stage(make_job(ROWS, 1.0)), slice(15, 30))
        assert name_seeds(seeds, own=False) in str(caught.value)
        assert n_done(place) == 7
        poison.unlink()
        found = dshift.fit(ROWS, 1.0, client=client, store=place)
        climbed, reused = blocks_told(client)
        assert max(climbed.values()) == 1
        # What a worker tells just before it is killed may be lost with it.
        assert set(climbed) | set(reused) == set(range(0, 120, 15))
        assert len(reused) == 7
    xr.testing.assert_identical(found, dshift.fit(ROWS, 1.0))


def test_a_block_that_raises_is_named_by_its_samples_and_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A second try would wait behind blocks that wait at the gate.
    monkeypatch.setattr("dshift.engine.RETRIES", 0)
    gate = tmp_path / "gate"
    gate.touch()
    data = np.concatenate([np.zeros((5, 16)), ROWS.values])  # the first five are masked
    with local(2) as (_, client), settings(block_size=3):
        client.run(fail_at_the_first_block, str(gate))
        try:
            with pytest.raises(dshift.BlockFailed, match="failed with ZeroDivision") as caught:
                dshift.fit(data, 1.0, invalid="mask", client=client)
        finally:
            gate.unlink()
        named = re.search(r"block of 3 seeds \(samples ([\d, to]+)\)", str(caught.value))
        assert named, caught.value
        job = make_job(data, 1.0, seeds="all", invalid="mask")
        numbers = np.sort(seeds_share(set_stage(job), slice(0, 3)))
        assert numbers.min() >= 5
        assert named[1] in (", ".join(map(str, numbers)), f"{numbers[0]} to {numbers[-1]}")
        # Although its error is still held: the block under way may end, the other 38 never start.
        until(lambda: not client.run_on_scheduler(n_tasks), "no task is left")
        assert n_runs(client, "dshift-shift") < 10
        until(lambda: holds_nothing(client), "the workers let go")


# ---------------------------------------------------------------- client and scheduler


CLIENT = """
import sys
sys.path.insert(0, {tests!r})
from clusters import histograms, slow_metric
from distributed import Client
import dshift
from dshift.engine import settings
with Client(scheduler_file={file!r}) as client, settings(block_size=10):
    dshift.fit(histograms(), {bandwidth}, valley={valley}, metric=slow_metric(0, gate={gate!r}),
               store={place!r}, client=client)
"""


def start_client(commands: Commands, place: Path, gate: Path, **options: Any) -> Any:
    """Start a process that fits."""
    names = {"tests": str(TESTS), "file": commands.file, "place": str(place), "gate": str(gate)}
    return subprocess.Popen([sys.executable, "-c", CLIENT.format(**names, **CALL)], **options)


def the_gate_is_reached(place: Path, client_process: Any) -> bool:
    return n_done(place) == N_FREE or client_process.poll() is not None


def test_the_client_then_the_scheduler_is_killed(
    tmp_path: Path, gate: Path, expected: xr.Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dshift")
    place = tmp_path / "r.zarr"
    with Commands(tmp_path) as commands:
        commands.add_workers(2)
        first = start_client(commands, place, gate)
        until(lambda: the_gate_is_reached(place, first), "half of the blocks are done")
        first.kill()
        assert first.wait() == -signal.SIGKILL
        with Client(scheduler_file=commands.file, set_as_default=False) as client:
            # The scheduler drops the dead client's tasks; those that run end, and are recorded.
            # Were the gate open before, others would run until the scheduler has noticed.
            until(lambda: not any(client.processing().values()), "all tasks are dropped")
            gate.unlink()
            until(lambda: not any(client.run(n_executing).values()), "the threads are idle")
            kept = n_done(place)
            told = blocks_told(client)
            assert N_FREE <= kept <= N_FREE + 2
            assert sum(told[0].values()) <= kept
            # What it left in the workers goes when the next job counts the room that they have.
            assert any(client.run(held_tokens).values())
            client.run(let_idle_jobs_go_at_once)
            dshift.plan(ROWS, **CALL, client=client, sample=False)
            assert not any(client.run(held_tokens).values())

            close_gate(gate, kept + 2)
            n_told = sum(map(len, told))
            with fitting(n_told + kept + 2, place, gate, client=client) as run:
                commands.scheduler.kill()
                with pytest.raises(dshift.ClusterLost, match="connection to the scheduler") as lost:
                    run.result(SECONDS)
        assert "the same call continues" in str(lost.value)
    # Blocks that waited at the gate may have ended on a worker that outlived its scheduler.
    again = n_done(place)
    assert kept <= again
    with settings(block_size=10):
        found = dshift.fit(ROWS, **CALL, metric=slow_metric(0), store=place)
    assert f"reused {again} of {N_BLOCKS} blocks" in caplog.text
    xr.testing.assert_identical(found, expected)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, gate: Path) -> None:
    place = tmp_path / "r.zarr"
    with Commands(tmp_path) as commands:
        commands.add_workers(1)
        run = start_client(commands, place, gate, stderr=subprocess.PIPE, text=True)
        until(lambda: the_gate_is_reached(place, run), "half of the blocks are done")
        run.send_signal(signal.SIGINT)
        errors = run.communicate(timeout=SECONDS)[1]
        assert errors.rstrip().endswith("KeyboardInterrupt")
        gate.unlink()
        with Client(scheduler_file=commands.file, set_as_default=False) as client:
            until(lambda: not any(client.processing().values()), "the worker is idle")
            until(lambda: not client.run_on_scheduler(n_tasks), "no task is left")
            until(lambda: holds_nothing(client), "the workers let go")
            state = client.run_on_scheduler(
                lambda dask_scheduler: dask_scheduler.plugins["dshift-board"].jobs[-1].state
            )
            assert state == "interrupted"
    assert N_FREE <= n_done(place) < N_BLOCKS
    assert not (place / "dshift" / "lock.json").exists()
