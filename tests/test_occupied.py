"""One run at a time in a store, whoever else is killed, late, elsewhere or just as quick."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from clusters import SECONDS, TESTS, close_gate, histograms, n_done, save_points, slow_metric, until

import dshift
from dshift import occupied as room
from dshift.engine import settings
from dshift.occupied import STALE_SECONDS, Holder, occupied
from dshift.store import JOB_FILE, LOCK_FILE, ROOT, RUN_FOLDER, Store

ROWS = histograms()


def write(place: Store, holder: Holder) -> None:
    place.write(LOCK_FILE, json.dumps(asdict(holder)).encode())


def elsewhere(**said: Any) -> Holder:
    """Return somebody at work on another host."""
    return replace(Holder(), host="elsewhere pid:[1]", **said)


@pytest.fixture
def place(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "r.zarr"))


def test_a_second_run_is_refused_and_the_first_one_goes_on(tmp_path: Path) -> None:
    path, gate = tmp_path / "r.zarr", tmp_path / "gate"
    call = {"data": ROWS, "bandwidth": 0.4, "store": path}
    slow = slow_metric(0, gate=save_points(gate, ROWS))
    with settings(block_size=30), ThreadPoolExecutor(1) as pool:
        first = pool.submit(dshift.fit, **call, metric=slow)
        try:
            until(lambda: (path / LOCK_FILE).exists() or first.done(), "the run starts")
            for _ in range(2):
                with pytest.raises(
                    dshift.StoreInUse,
                    match=rf"r\.zarr' is in use by process {os.getpid()} on .*, seen \d+ s ago\. "
                    r"Wait until .* or give another store",
                ):
                    dshift.fit(**call, metric=slow_metric(0))
        finally:
            gate.unlink()
        found = first.result(SECONDS)
    assert not (path / "dshift").exists()
    xr.testing.assert_identical(dshift.fit(**call, metric=slow_metric(0)), found)


def test_a_finished_store_is_open_to_all_and_cleared_of_what_the_dead_left(place: Store) -> None:
    found = dshift.fit(ROWS, 1.0, store=place.url)
    write(place, elsewhere())  # in the middle of its last write
    with occupied(place):
        assert place.read(LOCK_FILE)
    write(place, elsewhere(seen=time.time() - STALE_SECONDS - 1))
    xr.testing.assert_identical(dshift.fit(ROWS, 1.0, store=place.url), found)
    assert not (Path(place.url) / "dshift").exists()


def test_a_run_that_ends_while_another_one_looks_is_known(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dshift.fit(ROWS, 1.0, store=place.url)
    finished, read = place.read(ROOT) or b"", Store.read
    os.unlink(f"{place.url}/{ROOT}")  # as it was before the last write
    place.write(JOB_FILE, json.loads(finished)["attributes"]["dshift_job"].encode())

    def read_and_end(self: Store, key: str) -> bytes | None:
        content = read(self, key)
        if (Path(place.url) / JOB_FILE).exists():
            self.write(ROOT, finished)
            self.remove(RUN_FOLDER)
        return content

    monkeypatch.setattr(Store, "read", read_and_end)
    xr.testing.assert_identical(dshift.fit(ROWS, 1.0, store=place.url), found)


def test_who_is_dead_is_followed_at_once_on_the_same_host(
    place: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dshift")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    reused = replace(Holder(), started=1.0)  # this process's number, but not its start
    for dead in (replace(Holder(), pid=gone.pid), reused):
        write(place, dead)
        caplog.clear()
        with occupied(place):
            assert json.loads(place.read(LOCK_FILE) or b"")["token"] != dead.token
        assert "has died; taking over" in caplog.text
    assert os.listdir(place.url) == []


def test_who_is_on_another_host_is_believed_until_he_is_stale(place: Store) -> None:
    write(place, elsewhere(seen=time.time() - STALE_SECONDS / 2))
    said = r"on elsewhere, seen \d+ s ago"
    with pytest.raises(dshift.StoreInUse, match=said), occupied(place):
        pass
    assert place.read(LOCK_FILE), "the record of the other must stay"
    write(place, elsewhere(seen=time.time() - STALE_SECONDS - 1))
    with occupied(place):
        pass
    place.write(LOCK_FILE, b'{"host": "els')  # torn
    with occupied(place):
        pass


def test_a_run_that_is_refused_leaves_nothing(place: Store) -> None:
    bad = ROWS.values.copy()
    bad[3] = 0
    with pytest.raises(dshift.InvalidInput, match="not histograms"):
        dshift.fit(bad, 1.0, store=place.url)
    assert not os.path.exists(place.url)
    os.mkdir(place.url)  # but a folder that was there stays
    with pytest.raises(dshift.InvalidInput, match="not histograms"):
        dshift.fit(bad, 1.0, store=place.url)
    assert os.listdir(place.url) == []


def test_a_store_that_was_removed_is_not_made_again_to_leave_it(place: Store) -> None:
    os.mkdir(place.url)
    with occupied(place):
        shutil.rmtree(place.url)
    assert not os.path.exists(place.url)


def test_the_record_is_renewed_and_its_loss_is_noticed(
    place: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(room, "BEAT_SECONDS", 0.05)

    def seen() -> float:
        return float(json.loads(place.read(LOCK_FILE) or b"")["seen"])

    other = elsewhere()
    with occupied(place):
        first = seen()
        until(lambda: seen() > first, "the record is renewed")
        write(place, other)
        # A renewal may have been under way.
        until(
            lambda: write(place, other) or "another run has taken over" in caplog.text,
            "the loss is noticed",
        )
    assert json.loads(place.read(LOCK_FILE) or b"")["token"] == other.token


def test_where_two_can_create_one_file_the_one_that_wrote_last_goes_on(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwritten(self: Store, key: str, content: bytes) -> bool:
        self.write(key, content)
        write(self, elsewhere(pid=7))
        return True

    monkeypatch.setattr(Store, "create", overwritten)
    with (
        pytest.raises(dshift.StoreInUse, match="in use by process 7 on elsewhere"),
        occupied(place),
    ):
        pytest.fail("two runs in one store")


def test_who_came_first_and_left_again_has_no_name(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "create", lambda self, key, content: False)
    with pytest.raises(dshift.StoreInUse, match="in use by another process"), occupied(place):
        pytest.fail("the file was there")


@pytest.mark.parametrize("local", [True, False])
def test_of_many_that_start_together_one_gets_the_store(tmp_path: Path, local: bool) -> None:
    for turn in range(5):
        name = f"{uuid.uuid4().hex}-{turn}"
        url = str(tmp_path / name) if local else f"memory://{name}"
        together, over = threading.Barrier(12), threading.Barrier(12)

        def start(place: Store, together: Any = together, over: Any = over) -> bool:
            together.wait(SECONDS)
            try:
                with occupied(place):
                    over.wait(SECONDS)
                    return True
            except dshift.StoreInUse:
                over.wait(SECONDS)
                return False

        with ThreadPoolExecutor(12) as pool:
            assert sum(pool.map(start, [Store(url)] * 12)) == 1


STARTER = """
import os, sys, time
sys.path.insert(0, {tests!r})
from clusters import histograms, slow_metric
import dshift
rows, metric = histograms(), slow_metric(0, gate={gate!r})
open({ready!r} + str(os.getpid()), "w").close()
while not os.path.exists({go!r}):
    time.sleep(0.001)
try:
    dshift.fit(rows, 0.4, metric=metric, store={place!r})
except dshift.StoreInUse:
    sys.exit(3)
"""


def test_processes_that_start_together(tmp_path: Path) -> None:
    names = {name: str(tmp_path / name) for name in ("gate", "go", "place")}
    save_points(Path(names["gate"]), ROWS)
    code = STARTER.format(tests=str(TESTS), ready=str(tmp_path / "ready-"), **names)
    runs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    try:
        until(lambda: len(list(tmp_path.glob("ready-*"))) == 3, "all are ready")
        Path(names["go"]).touch()
        until(lambda: sum(run.poll() is not None for run in runs) == 2, "two are refused")
        Path(names["gate"]).unlink()
        assert sorted(run.wait(SECONDS) for run in runs) == [0, 3, 3]
    finally:
        for run in runs:
            run.kill()
            run.wait()
    found = dshift.fit(ROWS, 0.4, metric=slow_metric(0), store=names["place"])
    xr.testing.assert_identical(found, dshift.fit(ROWS, 0.4, metric=slow_metric(0)))


def test_a_killed_run_is_continued_at_once(tmp_path: Path) -> None:
    place, gate = tmp_path / "place", close_gate(tmp_path / "gate", 6)
    code = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from clusters import histograms, slow_metric
import dshift
from dshift.engine import settings
with settings(block_size=10, threads=1):
    dshift.fit(histograms(), 0.4, metric=slow_metric(0, gate={str(gate)!r}), store={str(place)!r})
"""
    run = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(lambda: n_done(place) == 6 or run.poll() is not None, "half of the blocks are done")
    finally:
        run.kill()
        run.wait()
    assert (place / LOCK_FILE).exists()
    with settings(block_size=10):
        found = dshift.fit(ROWS, 0.4, metric=slow_metric(0), store=place)
    assert (place / ROOT).exists()
    xr.testing.assert_identical(found, dshift.fit(ROWS, 0.4, metric=slow_metric(0)))


class Interleaved:
    """Runs as threads that halt where they are told to, until they are let on.

    A run that waits for the guard says so: whoever must halt at a place that is kept from it by
    another run could else be waited for in vain.
    """

    def __init__(self, place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place, self._pool = place, ThreadPoolExecutor(4)
        self._halts: dict[tuple[str, str, str], threading.Event] = {}
        self._seen: set[tuple[str, str]] = set()  # who is where
        flock, makedirs, write, remove = fcntl.flock, os.makedirs, Store.write, Store.remove

        def watched_flock(lock: int, how: int) -> None:
            try:
                flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                self._say("waits")
                flock(lock, how)

        def watched_makedirs(path: str, **how: Any) -> None:
            makedirs(path, **how)
            self._pass("made", os.path.basename(path))

        def watched_write(place: Store, key: str, content: bytes) -> None:
            self._pass("writes", key)
            write(place, key, content)

        def watched_remove(place: Store, key: str) -> None:
            remove(place, key)
            self._pass("removed", key)

        monkeypatch.setattr(fcntl, "flock", watched_flock)
        monkeypatch.setattr(os, "makedirs", watched_makedirs)
        monkeypatch.setattr(Store, "write", watched_write)
        monkeypatch.setattr(Store, "remove", watched_remove)

    def _say(self, where: str) -> None:
        self._seen.add((threading.current_thread().name, where))

    def _pass(self, when: str, key: str) -> None:
        halt = self._halts.get((threading.current_thread().name, when, key))
        if halt is not None:
            self._say("halted")
            assert halt.wait(SECONDS)

    def halt(self, who: str, when: str, key: str) -> threading.Event:
        """Have a thread halt where it made a folder, writes a key, or removed one."""
        return self._halts.setdefault((who, when, key), threading.Event())

    def until(self, who: str, *where: str) -> None:
        until(lambda: {(who, at) for at in where} & self._seen, f"{who} is at {where}")

    def start(self, who: str, over: threading.Event) -> Future[bool]:
        """Have a run hold the store until it is over; its outcome is whether it did."""

        def hold() -> bool:
            threading.current_thread().name = who
            try:
                with occupied(self._place):
                    self._say("inside")
                    assert over.wait(SECONDS)
                    return True
            except dshift.StoreInUse:
                self._say("refused")
                return False

        return self._pool.submit(hold)


def test_of_two_that_come_while_a_third_leaves_one_gets_the_store(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, first_over, over = Interleaved(place, monkeypatch), threading.Event(), threading.Event()
    leaves = runs.halt("first", "removed", LOCK_FILE)
    takes = runs.halt("second", "writes", LOCK_FILE)
    first = runs.start("first", first_over)
    runs.until("first", "inside")
    first_over.set()
    runs.until("first", "halted")  # its record is gone, its guard is not
    second = runs.start("second", over)
    runs.until("second", "halted", "waits")
    leaves.set()
    assert first.result(SECONDS)
    runs.until("second", "halted")  # it found no record, and has not written its own
    third = runs.start("third", over)
    runs.until("third", "inside", "waits")
    takes.set()
    runs.until("second", "inside", "refused")
    runs.until("third", "inside", "refused")
    over.set()
    assert sorted([second.result(SECONDS), third.result(SECONDS)]) == [False, True]
    assert os.listdir(place.url) == []


def test_a_late_renewal_does_not_replace_the_record_of_who_took_over(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "BEAT_SECONDS", 0.01)
    runs, first_over, over = Interleaved(place, monkeypatch), threading.Event(), threading.Event()
    renews = runs.halt("dshift-beat", "writes", LOCK_FILE)
    first = runs.start("first", first_over)
    runs.until("dshift-beat", "halted")  # it found its own record, and was put to sleep
    monkeypatch.setattr(room, "BEAT_SECONDS", 10.0)
    mine = Holder(**json.loads(place.read(LOCK_FILE) or b""))
    write(place, replace(mine, seen=time.time() - STALE_SECONDS - 1))
    second = runs.start("second", over)
    runs.until("second", "inside", "waits")
    renews.set()
    runs.until("second", "inside", "refused")
    first_over.set()
    assert first.result(SECONDS)
    third = runs.start("third", over)
    runs.until("third", "inside", "refused")
    over.set()
    assert sorted([second.result(SECONDS), third.result(SECONDS)]) == [False, True]


def test_what_is_cleared_up_is_not_of_a_run_that_is_just_starting(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, over = Interleaved(place, monkeypatch), threading.Event()
    over.set()
    takes = runs.halt("late", "made", RUN_FOLDER)
    late = runs.start("late", over)
    runs.until("late", "halted")  # it saw no result, and has not written its record
    place.write(ROOT, b"{}")
    other = runs.start("other", over)
    runs.until("other", "inside", "waits")
    takes.set()
    assert late.result(SECONDS)
    assert other.result(SECONDS)
    assert os.listdir(place.url) == [ROOT]


def test_a_process_that_was_forked_does_not_keep_the_guard(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, inherited = fcntl.flock, []

    def forked(lock: int, how: int) -> None:
        flock(lock, how | fcntl.LOCK_NB)  # raises where it would wait
        inherited.append(os.dup(lock))  # as a fork does with all that is open

    monkeypatch.setattr(fcntl, "flock", forked)
    try:
        with occupied(place):
            pass
    finally:
        for lock in inherited:
            os.close(lock)
    assert not os.path.exists(place.url)
