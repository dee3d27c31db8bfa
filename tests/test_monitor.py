"""What is told of a run while it lasts: lines in the log, and posts to the dashboard."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dshift import monitor
from dshift.dashboard import TOPIC, JobBoard
from dshift.monitor import BlockDone, Board, Progress

ABOUT = {
    "source": "data.zarr",
    "n_samples": 50,
    "n_bins": 8,
    "n_seeds": 40,
    "n_blocks": 4,
    "bandwidth": "1",
    "metric": "l1",
}


def block(start: int, *modes: int, reused: bool = False) -> BlockDone:
    """Ten seeds of three steps each, with half of the distances of a full scan."""
    return BlockDone(slice(start, start + 10), modes, 30, reused, n_pairs=40 * 50 // 2)


class Watch:
    """A clock that only the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(monitor.time, "monotonic", lambda: self.now)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def test_progress_is_logged_now_and_then(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dshift")
    with Progress(40, shown=False) as bar:
        for start, passed in ((0, 29.5), (10, 0.5), (20, 29.5), (30, 1)):
            watch.now += passed
            bar.block_done(block(start, start, 7, reused=start == 10))
        bar.log_reuse()
    assert caplog.messages == [
        "20 of 40 seeds done, 3 modes",
        "40 of 40 seeds done, 5 modes",
        "reused 1 of 4 blocks from the store",
    ]


def test_a_run_from_the_beginning_does_not_speak_of_reuse(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dshift")
    with Progress(10, shown=False) as bar:
        bar.block_done(block(0, 1))
        bar.log_reuse()
    assert caplog.messages == []


class Cluster:
    """A client that keeps what is posted through it."""

    id, status = "Client-1", "running"

    def __init__(self) -> None:
        self.posted: list[dict[str, Any]] = []
        self.error: Exception | None = None

    def register_plugin(self, plugin: JobBoard) -> None:
        if self.error is not None:
            raise self.error

    def log_event(self, topic: str, message: dict[str, Any]) -> None:
        assert topic == TOPIC
        assert message["job"] == "token"
        self.posted.append(message)

    def said(self, what: str, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(m[name] for name in names) for m in self.posted if m["what"] == what]


def test_blocks_are_posted_together_and_those_of_the_store_apart(watch: Watch) -> None:
    cluster = Cluster()
    board = Board(cluster, "token", n_samples=50)
    board.open(**ABOUT)
    board.stage("shift")
    board.block_done(block(0, 1))  # too soon after the stage
    assert [m["what"] for m in cluster.posted] == ["start", "stage"]
    watch.now += 0.25
    board.block_done(block(10, 1, 2, reused=True))
    board.block_done(block(20, 3))
    board.block_done(block(30, 4))
    board.stage("label")  # no block is told after its stage
    names = ("reused", "n_seeds", "n_modes", "n_iter_sum", "share_evaluated")
    assert cluster.said("block", *names) == [
        (True, 10, 2, 30, 0.5),
        (False, 10, 2, 30, 0.5),
        (False, 20, 4, 60, 0.5),
    ]
    assert cluster.posted[-1]["what"] == "stage"
    board.close("done", n_modes=4, n_clusters=2)
    board.close("failed", error="too late")
    assert cluster.said("end", "state", "n_clusters") == [("done", 2)]


def test_a_scheduler_that_cannot_show_the_page_is_asked_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "dshift")
    cluster = Cluster()
    cluster.error = ModuleNotFoundError("No module named 'dshift'")
    board = Board(cluster, "token", n_samples=50)
    board.open(**ABOUT)
    board.block_done(block(0, 1))
    board.close("done")
    assert cluster.posted == []
    assert caplog.messages == ["no dashboard page (ModuleNotFoundError: No module named 'dshift')"]


def test_nothing_is_posted_through_a_client_that_was_closed() -> None:
    cluster = Cluster()
    board = Board(cluster, "token", n_samples=50)
    board.open(**ABOUT)
    cluster.status = "closed"
    board.block_done(block(0, 1))
    board.close("failed")
    assert [m["what"] for m in cluster.posted] == ["start"]
