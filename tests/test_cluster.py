"""A fit on real Dask clusters: the same bits as in this process, and nothing left behind."""

from __future__ import annotations

import asyncio
import datetime
import errno
import logging
import mmap
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np
import psutil
import pytest
import xarray as xr
import zarr
from clusters import (
    SECONDS,
    Commands,
    blocks_by_worker,
    histograms,
    holds_nothing,
    local,
    make_job,
    n_runs,
    n_tasks,
    save_points,
    slow_metric,
    until,
    write,
)
from distributed import (
    Client,
    Future,
    LocalCluster,
    Security,
    get_client,
    get_task_stream,
    performance_report,
)
from distributed.client import ClosedClientError
from distributed.comm.core import CommClosedError
from hypothesis import given
from hypothesis import strategies as st

import dshift
from dshift import courier, hearing, planning
from dshift.arguments import Seeds
from dshift.engine import plan_for, settings
from dshift.field import load_points
from dshift.held import FILLED, held_tokens
from dshift.mapped import TOUCHED_BYTES_A_SECOND, WATCH_SECONDS, Shelf, Warden, pause_with
from dshift.planning import LEAST_WINDOW_BYTES
from dshift.sources import open_samples
from dshift.stage import Job
from dshift.store import Store, check_store
from dshift.tasks import TOPIC
from dshift.workers import threads_a_node

ROWS = histograms()
IDENTICAL = xr.testing.assert_identical


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[LocalCluster, Client]]:
    dshift.fit(ROWS, 1.0)  # compiles, if need be, once and not in every process
    with local(4) as (cluster, client):
        yield cluster, client


@pytest.fixture
def client(cluster: tuple[LocalCluster, Client]) -> Client:
    return cluster[1]


# ---------------------------------------------------------------- the same bits


@pytest.mark.parametrize("n_workers", [4, 2, 1])
def test_same_bits_for_any_workers_chunks_and_blocks(
    cluster: tuple[LocalCluster, Client], tmp_path: Path, n_workers: int
) -> None:
    cluster[0].scale(n_workers)
    until(lambda: len(cluster[1].nthreads()) == n_workers, f"{n_workers} workers")
    for rows, block_size in ((7, 16), (50, 33), (120, 120)):
        path = write(ROWS, tmp_path / f"{rows}.zarr", rows)
        expected = dshift.fit(path, 1.0, valley=0.1)
        with settings(block_size=block_size):
            IDENTICAL(dshift.fit(path, 1.0, valley=0.1, client=cluster[1]), expected)
    assert n_runs(cluster[1], "dshift-shift") >= 8 + 4 + 1


CASES: dict[str, dict[str, Any]] = {
    "weights": {"weights": np.arange(1.0, 121)},
    "bandwidths": {"bandwidth": np.linspace(0.5, 1.5, 120)},
    "l1": {"metric": "l1", "bandwidth": 0.3},
    "means": {"metric": "sqeuclidean", "bandwidth": 0.05},
    "own metric": {
        "metric": dshift.Metric(
            lambda x, rows: np.abs(rows - x).sum(axis=1), lambda rows, w: np.median(rows, axis=0)
        ),
        "bandwidth": 0.3,
    },
    "some seeds": {"seeds": 25},
    "own seeds": {"seeds": ROWS.values[3:40]},
    "masked": {"data": np.where(np.arange(120)[:, None] % 9, ROWS.values, 0), "invalid": "mask"},
    "edges": {"edges": np.linspace(0, 4, 17) ** 2, "bandwidth": 0.5},
}


@pytest.mark.parametrize("case", CASES)
def test_same_bits_for_every_option(client: Client, tmp_path: Path, case: str) -> None:
    call = {"data": ROWS, "bandwidth": 1.0, **CASES[case]}
    with settings(block_size=30):
        expected = dshift.fit(**call)
        IDENTICAL(dshift.fit(**call, client=client), expected)
        IDENTICAL(dshift.fit(**call, client=client, store=tmp_path / "r.zarr"), expected)


def test_sources_that_workers_cannot_read_travel(
    client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = np.random.default_rng(0).integers(1, 2**16, (300, 40))  # more than a message may hold
    expected = dshift.fit(rows, 2.0)
    memory = zarr.create_array(zarr.storage.MemoryStore(), data=rows, chunks=(50, 40))
    caplog.set_level(logging.INFO, "dshift")
    for data in (rows, memory, da.from_array(rows, chunks=(30, 40))):
        caplog.clear()
        found = dshift.fit(data, 2.0, client=client)
        np.testing.assert_array_equal(found.label, expected.label)
        np.testing.assert_array_equal(found.modes, expected.modes)
        assert "the arrays of the job travel through /" in caplog.text
    place = tmp_path / "r.zarr"
    dshift.fit(rows, 2.0, client=client, store=place)
    assert f"travel through {place}/dshift/parcel-" in caplog.text
    assert not (place / "dshift").exists()


def test_dask_arrays_on_the_cluster_and_beside_it(client: Client, tmp_path: Path) -> None:
    path = write(ROWS, tmp_path / "d.zarr", 50)
    lazy = xr.open_zarr(path, consolidated=False).counts
    expected = dshift.fit(path, 1.0)
    np.testing.assert_array_equal(dshift.fit(lazy, 1.0, client=client).label, expected.label)
    with client.as_current():
        held = client.persist(lazy.data)
        np.testing.assert_array_equal(dshift.fit(held, 1.0).label, expected.label)


def test_arrays_travel_through_the_cluster_where_nothing_is_shared(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Another process's memory is a file system that workers do not see.
    unseen = SimpleNamespace(mkdtemp=lambda **options: "memory://scratch")
    monkeypatch.setattr("dshift.courier.tempfile", unseen)
    caplog.set_level(logging.INFO, "dshift")
    rows = ROWS.values.astype(np.float64).repeat(4, axis=0)
    IDENTICAL(dshift.fit(rows, 1.0, client=client), dshift.fit(rows, 1.0))
    assert "the arrays of the job travel through the cluster" in caplog.text


def test_arrays_travel_through_the_cluster_where_workers_may_not_read_the_scratch_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = Store.read

    def refused(self: Store, key: str) -> bytes | None:
        # A folder of the caller's own, on the disk of a host where workers are another user's.
        if "dshift-" in self.url and "Dask-Default-Threads" in threading.current_thread().name:
            raise self.failed("read", key, PermissionError(errno.EACCES, "Permission denied"))
        return read(self, key)

    caplog.set_level(logging.INFO, "dshift")
    rows = ROWS.values.astype(np.float64).repeat(4, axis=0)
    with local(1, processes=False) as (_, client):
        monkeypatch.setattr(Store, "read", refused)
        IDENTICAL(dshift.fit(rows, 1.0, client=client), dshift.fit(rows, 1.0))
    assert "the arrays of the job travel through the cluster" in caplog.text


def test_a_scratch_store_that_cannot_be_removed_does_not_cost_the_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    remove = Store.remove

    def in_vain(self: Store, prefix: str) -> None:
        remove(self, prefix)
        raise OSError(errno.ENOTEMPTY, "Directory not empty")  # NFS, while a worker reads there

    rows = ROWS.values.astype(np.float64).repeat(4, axis=0)
    with local(1, processes=False) as (_, client):
        monkeypatch.setattr(Store, "remove", in_vain)
        before = set(held_tokens())
        IDENTICAL(dshift.fit(rows, 1.0, client=client), dshift.fit(rows, 1.0))
        assert set(held_tokens()) <= before
        bad = rows.copy()
        bad[3] = -1
        with pytest.raises(dshift.InvalidInput, match="not histograms"):
            dshift.fit(bad, 1.0, client=client)
    assert "could not be removed" in caplog.text


def test_a_path_that_only_the_client_sees(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dshift")
    path = "memory://only-here/d.zarr"  # the memory of this process
    zarr.create_array(path, data=ROWS.values, chunks=(50, 16))
    IDENTICAL(dshift.fit(path, 1.0, client=client), dshift.fit(path, 1.0))
    assert f"workers cannot read {path}" in caplog.text
    assert "the arrays of the job travel through /" in caplog.text


# ---------------------------------------------------------------- clients of every kind


def test_clients_that_cannot_be_used() -> None:
    with pytest.raises(dshift.InvalidType, match=r"`client` is a str; give a distributed\.Client"):
        dshift.fit(ROWS, 1.0, client="tcp://127.0.0.1:8786")

    async def fit_with_an_asynchronous_client() -> None:
        options = {"processes": False, "dashboard_address": ":0", "asynchronous": True}
        async with (
            LocalCluster(n_workers=0, **options) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            with pytest.raises(dshift.InvalidInput, match="made with asynchronous=False"):
                dshift.fit(ROWS, 1.0, client=client)

    asyncio.run(fit_with_an_asynchronous_client())
    with local(0, processes=False) as (_, client):
        client.close()
        with pytest.raises(dshift.InvalidInput, match="is closed; give one that is connected"):
            dshift.fit(ROWS, 1.0, client=client)


def test_a_client_that_is_closed_mid_run_says_so(tmp_path: Path) -> None:
    with local(1, processes=False) as (_, client):
        call = {"data": ROWS, "bandwidth": 0.4}
        with fitting_behind_a_gate(tmp_path / "gate", client, **call) as run:
            until(lambda: all_work(client, 1) or run.done(), "the job is under way")
            client.close()
        with pytest.raises(dshift.BlockFailed, match=r"connection to the scheduler .* was lost"):
            run.result(SECONDS)


@pytest.mark.parametrize(
    "error",  # of Dask's, which only a race brings about
    [RuntimeError("ConnectionPool is closed"), AttributeError("'NoneType' ... 'ncores'")],
)
def test_a_client_that_is_closed_while_it_fetches_a_result_says_so(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def ask_and_be_closed(client: Client, *question: Any) -> list[Any]:
        client.close()
        raise error

    monkeypatch.setattr(courier, "ask_hosts", ask_and_be_closed)
    with (
        local(1, processes=False) as (_, client),
        pytest.raises(dshift.ClusterLost, match=r"connection to the scheduler .* was lost"),
    ):
        dshift.fit(ROWS, 0.4, client=client)


def test_a_client_that_is_closed_before_it_hears_of_blocks_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscribe = Client.subscribe_topic

    def too_late(client: Client, topic: str, handler: Any) -> None:
        if topic == TOPIC:  # Dask has some of its own
            client.close()
        subscribe(client, topic, handler)

    monkeypatch.setattr(Client, "subscribe_topic", too_late)
    with (
        local(1, processes=False) as (_, client),
        pytest.raises(dshift.ClusterLost, match=r"connection to the scheduler .* was lost"),
    ):
        dshift.fit(ROWS, 0.4, client=client)
    assert not hearing._jobs
    assert not hearing._n_jobs


def test_a_client_that_is_closed_while_it_stops_hearing_does_not_hide_the_outcome() -> None:
    class Closing:
        id, status = "closing", "running"

        def subscribe_topic(self, topic: str, handler: Any) -> None: ...

        def unsubscribe_topic(self, topic: str) -> None:
            raise ClosedClientError("Client is closed. Can't send unsubscribe-topic message.")

    with pytest.raises(KeyError, match="the outcome"), hearing.hearing(Closing(), "token"):
        raise KeyError("the outcome")
    assert not hearing._jobs
    assert not hearing._n_jobs


def test_a_line_that_breaks_before_the_client_notices_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler that is killed: the answer that was waited for can fail first."""

    def ask_in_vain(client: Client, *question: Any) -> list[Any]:
        raise CommClosedError("in <TCP (closed) ...>: Connection reset by peer")

    monkeypatch.setattr(courier, "ask_hosts", ask_in_vain)
    with (
        local(1, processes=False) as (_, client),
        pytest.raises(dshift.ClusterLost, match=r"connection to the scheduler .* was lost"),
    ):
        dshift.fit(ROWS, 0.4, client=client)


def test_a_line_that_breaks_while_an_outcome_is_fetched_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that was done did not fail: the soak saw such a loss told as a failure."""
    result = Future.result

    def fetch_in_vain(future: Future, timeout: float | None = None) -> Any:
        if str(future.key).startswith("('dshift-label"):
            raise CommClosedError("in <TCP (closed) ConnectionPool.gather ...>: Stream is closed")
        return result(future, timeout)

    monkeypatch.setattr(Future, "result", fetch_in_vain)
    with (
        local(1, processes=False) as (_, client),
        pytest.raises(dshift.ClusterLost, match=r"connection to the scheduler .* was lost"),
    ):
        dshift.fit(ROWS, 0.4, client=client)


def test_workers_that_are_threads() -> None:
    with local(2, processes=False) as (_, client):
        before = set(held_tokens())  # these workers are threads of a process that had others
        IDENTICAL(dshift.fit(ROWS, 1.0, client=client), dshift.fit(ROWS, 1.0))
        assert set(held_tokens()) <= before


def test_the_active_client_is_used_and_a_task_uses_its_own_threads(client: Client) -> None:
    before = n_runs(client, "dshift-shift")
    with client.as_current():
        found = dshift.fit(ROWS, 1.0)
    after = n_runs(client, "dshift-shift")
    assert after > before
    inner = client.submit(dshift.fit, ROWS, 1.0).result()
    assert n_runs(client, "dshift-shift") == after
    IDENTICAL(found, inner)


def fit_on_the_cluster_of_this_task(rows: Any) -> xr.Dataset:
    return dshift.fit(rows, 1.0, client=get_client())


def test_a_task_that_fits_on_its_own_cluster_leaves_its_thread() -> None:
    with local(1) as (_, client):  # of one thread, which the task has
        inner = client.submit(fit_on_the_cluster_of_this_task, ROWS).result(SECONDS)
        assert n_runs(client, "dshift-shift") > 0
    IDENTICAL(inner, dshift.fit(ROWS, 1.0))


def test_fits_at_once_through_one_client_and_another(client: Client) -> None:
    calls = [{"bandwidth": width, "metric": slow_metric(1e-6)} for width in (0.3, 0.4, 0.5)]
    with (
        Client(client.scheduler.address, set_as_default=False) as other,
        ThreadPoolExecutor(3) as pool,
    ):

        def fit(number: int) -> xr.Dataset:
            with settings(block_size=10):
                chosen = (client, client, other)[number]
                return dshift.fit(ROWS, **calls[number], client=chosen)

        found = list(pool.map(fit, range(3)))
    for result, call in zip(found, calls, strict=True):
        IDENTICAL(result, dshift.fit(ROWS, **{**call, "metric": slow_metric(0)}))
    states = client.run_on_scheduler(
        lambda dask_scheduler: [
            (job.state, job.n_done) for job in dask_scheduler.plugins["dshift-board"].jobs
        ]
    )
    assert states[-3:] == [("done", 120)] * 3
    assert not hearing._jobs
    assert not hearing._n_jobs


@contextmanager
def fitting_behind_a_gate(gate: Path, client: Client, **call: Any) -> Iterator[Any]:
    """Run a fit in another thread whose seeds wait at a gate; it opens at the end."""
    save_points(gate, ROWS)

    def fit() -> xr.Dataset:
        with settings(block_size=3):
            return dshift.fit(**call, metric=slow_metric(0, gate=gate), client=client)

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(fit)
        try:
            yield run
        finally:
            gate.unlink()


def all_work(client: Client, n_workers: int) -> bool:
    """Return whether so many workers have joined, and each has a task in hand."""
    in_hand = client.processing()
    return len(in_hand) == n_workers and all(in_hand.values())


def test_adaptive_cluster_that_starts_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dshift")
    gate = tmp_path / "gate"
    call = {"data": ROWS, "bandwidth": 0.4}
    with local(0) as (cluster, client):
        cluster.adapt(minimum=0, maximum=2, interval="100ms")
        with get_task_stream(client) as stream:
            with fitting_behind_a_gate(gate, client, **call) as run:
                until(lambda: all_work(client, 2) or run.done(), "both workers have work")
            found = run.result(SECONDS)
    assert "no worker has joined the cluster yet" in caplog.text
    assert len(blocks_by_worker(stream)) >= 2
    IDENTICAL(found, dshift.fit(**call, metric=slow_metric(0)))


def test_a_cluster_without_workers_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dshift")
    monkeypatch.setattr("dshift.workers.WAIT_SECONDS", 0.5)
    with local(0) as (_, client):
        with pytest.raises(
            dshift.InvalidInput, match=r"no worker joined .* within 0.5 s; start workers"
        ):
            dshift.fit(ROWS, 1.0, client=client)
        forecast = dshift.plan(ROWS, 1.0, client=client, sample=False)
        assert (forecast.n_processes, forecast.held) == (0, None)
    assert "no worker has joined the cluster yet" in caplog.text


def make_certificate(folder: Path) -> tuple[str, str]:
    """Write a certificate that is its own authority, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dshift tests")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    certificate = builder.add_extension(constraints, critical=True).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    pkcs8, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_commands_with_tls_and_a_worker_that_joins_late(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    tls = ("--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key, "--protocol", "tls")
    security = Security(
        tls_ca_file=cert, tls_client_cert=cert, tls_client_key=key, require_encryption=True
    )
    call = {"data": write(ROWS, tmp_path / "d.zarr", 50), "bandwidth": 0.4}
    with Commands(tmp_path, tls) as commands:
        commands.add_workers(1)
        options = {"security": security, "set_as_default": False}
        with Client(scheduler_file=commands.file, **options) as client:
            assert client.scheduler.address.startswith("tls://")
            with get_task_stream(client) as stream:
                with fitting_behind_a_gate(tmp_path / "gate", client, **call) as run:
                    until(lambda: all_work(client, 1) or run.done(), "the first one has work")
                    commands.add_workers(1)
                    until(lambda: all_work(client, 2) or run.done(), "the late one has work")
                found = run.result(SECONDS)
            ran = blocks_by_worker(stream)
            assert set(ran) == set(client.nthreads())
            assert sum(ran.values()) == 40
            until(lambda: holds_nothing(client), "the workers let go")
    IDENTICAL(found, dshift.fit(**call, metric=slow_metric(0)))


def test_a_worker_with_another_version_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "other" / "dshift"
    shutil.copytree(Path(dshift.__file__).parent, package)
    front = package / "__init__.py"
    front.write_text(front.read_text().replace(dshift.__version__, "0.0.9"))
    with Commands(tmp_path) as commands:
        commands.add_workers(1, package=str(package.parent))
        with Client(scheduler_file=commands.file, set_as_default=False) as client:
            client.wait_for_workers(1, SECONDS)
            with pytest.raises(
                dshift.InvalidInput, match=r"has dshift 0\.0\.9, and the caller has .*; install"
            ):
                dshift.fit(ROWS, 1.0, client=client)


# ---------------------------------------------------------------- memory


def wide(tmp_path: Path) -> str:
    """Write histograms of 1024 bins, whose points take 400 MiB."""
    n, rng = 51_250, np.random.default_rng(0)
    path = str(tmp_path / "wide.zarr")
    array = zarr.create_array(path, shape=(n, 1024), chunks=(1_000, 1024), dtype="float64")
    for start in range(0, n, 1_000):
        part = slice(start, min(start + 1_000, n))
        array[part] = rng.integers(1, 9, (part.stop - start, 1024))
    return path


@pytest.fixture
def small_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """Commands whose workers Dask neither kills nor pauses, however slow this machine is.

    Pages of a mapped file count as memory until they are given back, which takes a free core.
    """
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE", "False")
    with Commands(tmp_path) as commands:
        yield commands


@pytest.mark.slow
def test_small_workers_map_the_points_do_without_an_index_or_are_refused(
    tmp_path: Path, small_workers: Commands, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dshift")
    call = {"data": wide(tmp_path), "bandwidth": 1e-6, "seeds": 4}
    means = {**call, "metric": "sqeuclidean"}  # which need no index
    with settings(threads=1):
        job = make_job(call["data"], 1e-6, seeds=4, invalid="raise")
        plan, _ = plan_for(job, None)
    # A worker that has imported all it needs uses about 220 MiB, and may fill 70 % of its limit:
    # so half way between room enough to map the points, and room enough for an index too.
    room = LEAST_WINDOW_BYTES + (plan.working_bytes + plan._working_bytes(False)) / 2
    enough = str(int((220 * 2**20 + room) / FILLED))
    small_workers.add_workers(1, "--no-nanny", "--memory-limit", "250MiB")
    with Client(scheduler_file=small_workers.file, set_as_default=False) as client:
        client.wait_for_workers(1, SECONDS)
        with pytest.raises(
            dshift.PlanRefused,
            match=r"needs [\d.]+ MiB in one process \(400.0 MiB for 51,250 points of 1023 .*, and "
            r"[\d.]+ MiB more with one.* left in worker tcp.*workers with more memory, or with "
            r"400.0 MiB of disk and [\d.]+ MiB of memory",
        ):
            dshift.fit(**call, client=client)
        small_workers.add_workers(1, "--no-nanny", "--memory-limit", enough)
        client.wait_for_workers(2, SECONDS)
        with pytest.raises(dshift.PlanRefused, match="left in worker"):  # by the smallest
            dshift.fit(**call, client=client)

        def all_but_the_last_leave() -> None:
            for worker in small_workers.workers[:-1]:
                worker.terminate()
            until(lambda: len(client.nthreads()) == 1, "the others have left")

        all_but_the_last_leave()
        forecast = dshift.plan(**means, client=client, sample=False)
        assert (forecast.held, forecast.n_without_index) == ("file", 0)
        assert forecast.matrix_bytes > 400 * 10**6 > (forecast.available_bytes or 0)
        by_means = dshift.fit(**means, client=client)
        assert "too large for the memory of 1 of 1 processes" in caplog.text
        assert "climb without it" not in caplog.text

        # A fresh one: what a process has used, it keeps for a while.
        small_workers.add_workers(1, "--no-nanny", "--memory-limit", enough)
        client.wait_for_workers(2, SECONDS)
        all_but_the_last_leave()
        forecast = dshift.plan(**call, client=client, sample=False)
        assert (forecast.held, forecast.n_without_index) == ("file", 1)
        assert "1 processes have no room for an index" in repr(forecast)
        by_medians = dshift.fit(**call, client=client)
        assert "is too large for the memory of 1 of 1 processes" in caplog.text
        assert "climb without it, to the same bits" in caplog.text
        until(lambda: not list(tmp_path.rglob("dshift-points-*")), "the files are gone")
    IDENTICAL(by_means, dshift.fit(**means))
    IDENTICAL(by_medians, dshift.fit(**call))


def test_pages_of_a_mapped_file_are_given_back(tmp_path: Path) -> None:
    n_bytes = 256 * 2**20
    with open(tmp_path / "file", "w+b") as file:
        file.truncate(n_bytes)
        mapped = mmap.mmap(file.fileno(), n_bytes)
    process = psutil.Process()
    before = process.memory_info().rss
    pages = np.frombuffer(mapped, np.uint8)[::4096]
    assert pages.sum() == 0
    assert process.memory_info().rss - before > n_bytes / 2
    Warden(mapped, before + n_bytes // 4).start()
    until(lambda: process.memory_info().rss - before < n_bytes / 2, "the pages are given back")
    assert pages.sum() == 0  # and read again
    del pages, mapped
    until(lambda: "dshift-warden" not in {t.name for t in threading.enumerate()}, "it ends")


@given(left=st.integers(-(2**40), 2**40))
def test_a_warden_looks_before_what_is_left_can_be_touched(left: int) -> None:
    pause = pause_with(left)
    assert WATCH_SECONDS[0] <= pause <= WATCH_SECONDS[1]
    soonest = TOUCHED_BYTES_A_SECOND * WATCH_SECONDS[0]
    assert pause * TOUCHED_BYTES_A_SECOND <= max(left, soonest) * (1 + 1e-9)
    assert pause_with(left + 2**20) >= pause


def mapped_files(pid: int) -> set[str]:
    """Return the files of points that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if line.endswith(".data")}


def share_files_of_any_size() -> None:
    """Make this process share files that are not worth it."""
    planning.WORTH_SHARING_BYTES = 0


def test_processes_of_a_node_hold_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WORTH_SHARING_BYTES", 0)
    call = {"data": write(ROWS, tmp_path / "d.zarr", 50), "bandwidth": 0.4}
    with local(2, local_directory=str(tmp_path / "local")) as (_, client):
        client.run(share_files_of_any_size)
        pids = client.run(os.getpid).values()
        with fitting_behind_a_gate(tmp_path / "gate", client, **call) as run:
            until(lambda: all(map(mapped_files, pids)) or run.done(), "both have mapped a file")
            files = [mapped_files(pid) for pid in pids]
        found = run.result(SECONDS)
        assert len(files[0]) == 1
        assert files[0] == files[1]
        assert not list((tmp_path / "local").rglob("dshift-points-*"))
    IDENTICAL(found, dshift.fit(**call, metric=slow_metric(0)))


def test_a_file_that_nobody_holds_is_swept_and_a_torn_one_is_read_again(tmp_path: Path) -> None:
    left = Shelf(tmp_path, "dead")
    left.path("use").touch()
    left.path("data").write_bytes(b"half")
    samples = open_samples(ROWS.values)
    job = Job(samples, "wasserstein", None, None, "raise", np.asarray(1.0), None, Seeds())
    shelf = Shelf(tmp_path, "alive")
    shelf.path("data").write_bytes(b"half of what a killed process wrote")
    loaded, lease = shelf.load(job, threads=2)
    again, second = shelf.load(job)
    plain = load_points(samples, "wasserstein", None, None, "raise")
    for found in (loaded, again):
        np.testing.assert_array_equal(found.points, plain.points)
        assert (found.fingerprint, found.embedding) == (plain.fingerprint, plain.embedding)
    assert not list(tmp_path.glob("*dead*"))
    lease.end()
    second.end()
    assert not list(tmp_path.iterdir())


def test_the_process_that_reads_for_a_node_has_the_threads_of_all(tmp_path: Path) -> None:
    with local(2, threads_per_worker=3, local_directory=str(tmp_path)) as (_, client):
        assert threads_a_node(client) == 6


def test_a_job_that_fits_nowhere_is_refused_with_numbers(client: Client, tmp_path: Path) -> None:
    # A billion histograms that were never written: refused before they are read.
    path = str(tmp_path / "huge.zarr")
    zarr.create_array(path, shape=(10**10, 64), chunks=(10**6, 64), dtype="uint8", fill_value=1)
    with pytest.raises(dshift.PlanRefused, match=r"needs [\d.]+ TiB in one .* in worker tcp"):
        dshift.fit(path, 1.0, client=client)
    forecast = dshift.plan(path, 1.0, client=client)
    assert "more memory" in (forecast.refusal or "")
    assert "REFUSED" in repr(forecast)
    assert np.isnan(forecast.seconds)


@pytest.mark.parametrize("worth_loading_early", [planning.WORTH_LOADING_EARLY_BYTES, 1])
def test_plan_counts_every_task(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth_loading_early: int
) -> None:
    monkeypatch.setattr(planning, "WORTH_LOADING_EARLY_BYTES", worth_loading_early)
    path = write(ROWS, tmp_path / "d.zarr", 50)
    heavy = {"weights": np.linspace(1, 2, 120).repeat(30)}
    many = np.repeat(ROWS.values, 30, axis=0)
    cases: tuple[dict[str, Any], ...] = (
        {"data": path},
        {"data": path, "valley": 0.1, "store": tmp_path / "1.zarr"},
        {"data": path, "seeds": 25, "store": tmp_path / "2.zarr"},
        {"data": path, "seeds": ROWS.values[3:40]},
        {"data": many, "seeds": 100, **heavy, "store": tmp_path / "3.zarr"},
    )
    # Small blocks are sent in runs.
    for case, block_size in [(case, 10) for case in cases] + [({"data": path}, 2)]:
        with settings(block_size=block_size):
            forecast = dshift.plan(**case, bandwidth=1.0, client=client, sample=False)
            with get_task_stream(client) as stream:
                dshift.fit(**case, bandwidth=1.0, client=client)
        given = {str(entry["key"]) for entry in stream.data if "dshift-" in str(entry["key"])}
        assert len(given) == forecast.n_tasks, (case, sorted(given))


def test_all_workers_load_at_once_and_nobody_waits_for_one_that_is_gone(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(ROWS, tmp_path / "d.zarr", 50)
    monkeypatch.setattr(planning, "WORTH_LOADING_EARLY_BYTES", 1)
    here = client.nthreads()
    gone = {"tcp://127.0.0.1:9": 1}
    for known in (here, here | gone):
        monkeypatch.setattr(client, "nthreads", lambda known=known: known)
        with settings(block_size=10), get_task_stream(client) as stream:
            found = dshift.fit(path, 1.0, client=client)
        IDENTICAL(found, dshift.fit(path, 1.0))
        loads = [entry for entry in stream.data if "dshift-load" in str(entry["key"])]
        assert {entry["worker"] for entry in loads} == set(here)
    until(lambda: not client.run_on_scheduler(n_tasks), "no task is left")


def test_plan_foresees_what_a_fit_does(client: Client, tmp_path: Path) -> None:
    path = write(ROWS, tmp_path / "d.zarr", 50)
    with settings(block_size=20):
        forecast = dshift.plan(path, 1.0, client=client)
        before = n_runs(client, "dshift-shift")
        dshift.fit(path, 1.0, client=client)
    assert n_runs(client, "dshift-shift") - before == forecast.n_blocks == 6
    assert (forecast.n_samples, forecast.n_bins, forecast.n_seeds) == (120, 16, 120)
    assert forecast.matrix_bytes == 120 * 15 * 8
    assert forecast.read_bytes == 120 * 16
    assert forecast.held == "memory"
    assert forecast.n_threads == forecast.n_processes == len(client.nthreads())
    assert 0 < forecast.load_seconds < forecast.seconds
    for said in ("120 samples of 16 bins", "6 blocks of 20 seeds", "time      about"):
        assert said in repr(forecast)
    alone = dshift.plan(path, 1.0)
    assert alone.n_processes == 1
    assert alone.seconds > 0


# ---------------------------------------------------------------- stores and those who watch


def test_a_finished_store_runs_no_block_and_another_job_is_refused(
    client: Client, tmp_path: Path
) -> None:
    place = tmp_path / "r.zarr"
    first = dshift.fit(ROWS, 1.0, client=client, store=place)
    before = n_runs(client, "dshift-shift")
    IDENTICAL(dshift.fit(ROWS, 1.0, client=client, store=place), first)
    IDENTICAL(dshift.fit(ROWS, 1.0, store=place), first)
    for other in ({"bandwidth": 1.1}, {"data": ROWS[1:]}, {"weights": np.ones(120)}):
        with pytest.raises(dshift.InvalidInput, match="holds a run of another job"):
            dshift.fit(**{"data": ROWS, "bandwidth": 1.0, **other}, client=client, store=place)
    assert n_runs(client, "dshift-shift") == before
    IDENTICAL(xr.open_zarr(place, consolidated=False).load().drop_attrs(), first.drop_attrs())


def test_a_store_that_workers_do_not_see_is_refused(client: Client) -> None:
    with pytest.raises(dshift.InvalidInput, match="not the same place for the workers"):
        dshift.fit(ROWS, 1.0, client=client, store="memory://only-here/r.zarr")


def test_a_relative_store_is_one_place_for_processes_in_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert check_store("r.zarr") == Store(str(tmp_path / "r.zarr"))
    assert check_store("memory://none/r.zarr") == Store("memory://none/r.zarr")


def test_a_store_left_before_the_job_was_claimed_is_usable(client: Client, tmp_path: Path) -> None:
    parcel = tmp_path / "r.zarr" / "dshift" / "parcel-0123"
    parcel.mkdir(parents=True)
    (parcel / "zarr.json").write_text("{}")
    IDENTICAL(
        dshift.fit(ROWS, 1.0, client=client, store=tmp_path / "r.zarr"), dshift.fit(ROWS, 1.0)
    )


def test_bad_input_is_refused_once_and_in_the_callers_words(client: Client) -> None:
    before = n_runs(client, "dshift-load")
    bad = ROWS.copy()
    bad[5] = 0
    with pytest.raises(dshift.InvalidInput, match=r"1 of 120 samples .* first at sample=5"):
        dshift.fit(bad, 1.0, client=client)
    # The disk, the source, the load: no retry of a refusal.
    assert n_runs(client, "dshift-load") - before <= 3
    until(lambda: holds_nothing(client), "the workers let go")


def test_bar_and_log_and_board(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with settings(block_size=20):
        dshift.fit(ROWS, 1.0, client=client, progress=True)
    bar = capsys.readouterr().err
    assert "120/120" in bar
    assert "modes=" in bar
    board = client.run_on_scheduler(
        lambda dask_scheduler: [
            (job.state, job.n_done, job.n_modes, job.n_clusters)
            for job in dask_scheduler.plugins["dshift-board"].jobs
        ]
    )
    found = dshift.fit(ROWS, 1.0)
    assert board[-1] == ("done", 120, found.sizes["mode"], found.sizes["cluster"])


def test_performance_report_works_around_a_fit(client: Client, tmp_path: Path) -> None:
    with client.as_current(), performance_report(str(tmp_path / "report.html")):
        dshift.fit(ROWS, 1.0)
    assert "dshift-shift" in (tmp_path / "report.html").read_text()


def test_nothing_is_left_on_the_cluster(client: Client) -> None:
    dshift.fit(ROWS, 1.0, client=client)
    until(lambda: holds_nothing(client), "the workers let go")
    until(lambda: client.run_on_scheduler(lambda dask_scheduler: not dask_scheduler.tasks), "tasks")
