"""The rooms between source and result, each by itself."""

from __future__ import annotations

import time

import pytest

from dshift.monitor import Progress, wants_progress
from dshift.pool import map_threads
from dshift.threads import BlockDone, memory_limit


def test_memory_limit_is_that_of_a_machine() -> None:
    assert 2**20 < memory_limit() < 2**50


def test_an_error_in_a_block_stops_the_others() -> None:
    started: list[int] = []

    def work(item: int) -> None:
        started.append(item)
        if item == 0:
            raise RuntimeError("block 0 broke")
        time.sleep(0.02)  # ten seconds for all, on two threads

    with pytest.raises(RuntimeError, match="block 0 broke"):
        map_threads(work, range(1000), 2)
    assert len(started) < 1000


def test_progress_is_silent_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10, shown=False) as bar:
        bar.block_done(BlockDone(slice(0, 10), (1,), 5, False))
    assert capsys.readouterr() == ("", "")
    with Progress(10, shown=True) as bar:
        bar.block_done(BlockDone(slice(0, 10), (1, 2, 3, 2), 5, True))
    out, err = capsys.readouterr()
    assert out == ""
    assert "10.0/10.0" in err
    assert "modes=3" in err
    assert "reused blocks=1" in err
    assert wants_progress(True)
    assert not wants_progress(False)
    assert not wants_progress(None)
