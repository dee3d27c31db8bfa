"""What a worker process holds from task to task, without a cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clusters import make_job, until

import dshift
from dshift import held
from dshift.engine import plan_for
from dshift.held import Cache, JobRef, Lodging, staged
from dshift.monitor import MOST_HASHES, ModeCount


def take(cache: Cache[str], token: str, make: Callable[[], str], n_bytes: int, limit: int) -> str:
    with cache.use(token, make, n_bytes, limit) as thing:
        return thing


def test_threads_wait_for_one_load_and_an_error_is_not_kept() -> None:
    gone: list[str] = []
    cache: Cache[str] = Cache(gone.append)
    started, gate, loads = threading.Event(), threading.Event(), []

    def load() -> str:
        loads.append(1)
        started.set()
        gate.wait(60)
        return "stage"

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(take, cache, "a", load, 1, 10) for _ in range(8)]
        started.wait(60)
        cache.end("b")  # never waits for a load
        gate.set()
        assert {future.result() for future in asked} == {"stage"}
    assert len(loads) == 1
    with pytest.raises(ZeroDivisionError):
        take(cache, "c", lambda: str(1 // 0), 1, 10)
    assert take(cache, "c", lambda: "mended", 1, 10) == "mended"
    assert take(cache, "d", lambda: "large", 9, 10) == "large"
    assert (cache.tokens(), gone) == (["c", "d"], ["stage"])
    cache.end("c")
    cache.end("d")
    assert (cache.tokens(), gone) == ([], ["stage", "mended", "large"])


def test_a_load_that_outlasts_its_job_is_let_go() -> None:
    gone: list[str] = []
    cache: Cache[str] = Cache(gone.append)

    def load() -> str:
        cache.end("a")  # the job ends meanwhile
        return "late"

    assert take(cache, "a", load, 1, 10) == "late"
    assert (cache.tokens(), gone) == ([], ["late"])
    with pytest.raises(RuntimeError, match="has ended"):
        take(cache, "a", load, 1, 10)


def test_what_nobody_uses_is_let_go_and_what_is_in_use_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone: list[str] = []
    cache: Cache[str] = Cache(gone.append)
    take(cache, "idle", lambda: "idle", 1, 10)
    with cache.use("busy", lambda: "busy", 1, 10):
        cache.release_idle(3600)
        assert cache.tokens() == ["idle", "busy"]
        cache.release_idle(0)
        assert (cache.tokens(), gone) == (["busy"], ["idle"])
        assert take(cache, "idle", lambda: "set again", 1, 10) == "set again"
        # One in use is not let go for another's sake either.
        assert take(cache, "large", lambda: "large", 10, 10) == "large"
        assert cache.tokens() == ["busy", "large"]
    cache.release_idle(0)
    assert cache.tokens() == []


def test_nobody_has_to_ask_for_an_idle_thing_to_be_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "KEPT_IDLE_SECONDS", 0.2)
    gone: list[str] = []
    cache: Cache[str] = Cache(gone.append)
    for turn in ("first", "second"):  # the watch ends with the last thing, and begins again
        take(cache, turn, lambda turn=turn: turn, 1, 10)
        until(lambda: not cache.tokens(), "the idle thing is let go")
        until(lambda: not cache._watched, "the watch ends")
    assert gone == ["first", "second"]
    with cache.use("busy", lambda: "busy", 1, 10):
        time.sleep(0.5)
        assert cache.tokens() == ["busy"]
    until(lambda: not cache.tokens(), "it is let go once it is idle")


def test_a_worker_that_reads_other_samples_is_found_out(tmp_path: Path) -> None:
    job = make_job(np.eye(4), 1.0, seeds="all", invalid="raise")
    plan, _ = plan_for(job, None)
    home = Lodging("worker tcp://here", 2**34, 0, str(tmp_path / "worker"), 1)
    ref = JobRef("a", job, plan, None, False)
    with staged(ref, None, lambda: home) as stage:
        fingerprint, order = stage.loaded.fingerprint, stage.order_digest
    with (
        pytest.raises(dshift.InvalidInput, match="worker tcp://here has the seeds in another orde"),
        staged(replace(ref, fingerprint=fingerprint, order="another"), None, lambda: home),
    ):
        pass
    with (  # loaded before the others' samples were known
        pytest.raises(dshift.InvalidInput, match="worker tcp://here reads other histograms from"),
        staged(replace(ref, fingerprint="another"), None, lambda: home),
    ):
        pass
    held.forget("a")
    known = replace(ref, token="b", fingerprint=fingerprint, order=order)
    with staged(known, None, lambda: home):
        pass
    held.forget("b")
    with (
        pytest.raises(dshift.InvalidInput, match="worker tcp://here reads other histograms from"),
        staged(replace(ref, token="c", fingerprint="another"), None, lambda: home),
    ):
        pass
    held.forget("c")
    assert not {"a", "b", "c"} & set(held.held_tokens())  # others may have left theirs


def test_modes_are_counted_in_bounded_memory() -> None:
    rng = np.random.default_rng(0)
    hashes = [int(h) for h in rng.integers(0, 2**64, 100_000, dtype=np.uint64)]
    count = ModeCount()
    for part in range(0, 200, 20):
        count.add(hashes[part : part + 40])
    assert (int(count), str(count)) == (220, "220")
    for part in range(0, 100_000, 1000):
        count.add(sorted(hashes[part : part + 1000])[:MOST_HASHES])
    assert abs(int(count) / 100_000 - 1) < 0.2
    assert str(count).startswith("~")
