"""The rooms between source and result, each by itself."""

from __future__ import annotations

import ast
import symtable
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dshift
from dshift.monitor import Progress, wants_progress
from dshift.pool import Hands, map_threads
from dshift.threads import BlockDone, memory_limit

ROOMS = sorted(Path(dshift.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.stem)
def test_no_variable_of_a_comprehension_is_a_name_of_the_module(room: Path) -> None:
    """Python 3.12.0 to 3.12.3 do not find that name in the next comprehension of a function."""
    source = room.read_text()
    globals_ = symtable.symtable(source, room.name, "exec").get_symbols()
    known = {s.get_name() for s in globals_ if s.is_assigned() or s.is_imported()}
    loops = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.comprehension)]
    names = [n for loop in loops for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
    assert [(n.id, n.lineno) for n in names if n.id in known] == []


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


def test_threads_without_items_are_hands_for_the_others() -> None:
    """Two items that are short and one that is shared: three threads meet in it."""
    hands, met = Hands(), threading.Barrier(3)
    seen: list[int] = []
    short = threading.Barrier(3)

    def part(rows: slice) -> None:
        if rows.start < 5:  # the first three ranges, which three threads take
            met.wait(timeout=60)
        seen.extend(range(rows.start, rows.stop))

    def work(item: int) -> None:
        short.wait(timeout=60)
        deadline = time.monotonic() + 60
        while item == 0 and hands._n_free < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        if item == 0:
            hands.share(part, 14, 1)

    map_threads(work, range(3), 3, hands=hands)
    assert sorted(seen) == list(range(14))


@given(st.integers(0, 50), st.integers(1, 9), st.integers(-2, 5), st.integers(1, 3))
def test_what_is_shared_is_done_once(count: int, least: int, n_free: int, threads: int) -> None:
    """Also where fewer threads begin than were counted as free."""
    hands, ranges = Hands(), []
    with ThreadPoolExecutor(threads) as pool:
        hands.lend(pool, n_free)
        hands.share(ranges.append, count, least)
        ranges.sort(key=lambda part: (part.start, part.stop))
        assert hands._n_free == n_free
    assert [row for part in ranges for row in range(part.start, part.stop)] == list(range(count))
    for part in ranges:
        assert part.start % least == 0
        assert part.stop - part.start >= least or part.stop == count
    assert len(ranges) == 1 or n_free > 0


def test_ranges_that_are_shared_become_shorter_down_to_some_length() -> None:
    hands, ranges = Hands(), []
    with ThreadPoolExecutor(1) as pool:
        hands.lend(pool, 1)
        hands.share(ranges.append, 64_000, 64)
    lengths = [part.stop - part.start for part in sorted(ranges, key=lambda part: part.start)]
    assert lengths[0] == 16_000
    assert lengths[:-1] == sorted(lengths[:-1], reverse=True)
    assert lengths[-2] == 64 * 16  # of a thousand, one of 32 for each of two threads


@pytest.mark.parametrize(("threads", "items"), [(1, 5), (3, 1)])
def test_what_one_thread_would_do_is_done_by_the_caller(threads: int, items: int) -> None:
    told: list[int] = []
    done = map_threads(
        lambda item: (item, threading.get_ident()),
        range(items),
        threads,
        lambda outcome: told.append(outcome[0]),
    )
    assert done == [(item, threading.get_ident()) for item in range(items)]
    assert told == list(range(items))


def test_nobody_waits_for_threads_that_are_busy_or_gone() -> None:
    hands, ranges, leave = Hands(), [], threading.Event()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(leave.wait, 60)
        hands.lend(pool, 1)
        hands.share(ranges.append, 20, 1)
        assert sum(part.stop - part.start for part in ranges) == 20
        leave.set()
        busy.result()
        pool.shutdown()
        hands.share(ranges.append, 20, 1)
    assert sum(part.stop - part.start for part in ranges) == 40


@pytest.mark.parametrize("broken", [0, 5, 19])
def test_an_error_in_what_is_shared_comes_when_nobody_is_at_work(broken: int) -> None:
    hands, at_work = Hands(), []

    def part(rows: slice) -> None:
        at_work.append(rows)
        time.sleep(0.001)
        if broken in range(rows.start, rows.stop):
            raise RuntimeError("a range broke")
        time.sleep(0.02)
        at_work.remove(rows)

    with ThreadPoolExecutor(3) as pool:
        hands.lend(pool, 3)
        with pytest.raises(RuntimeError, match="a range broke"):
            hands.share(part, 20, 1)
        assert [rows for rows in at_work if broken not in range(rows.start, rows.stop)] == []
        assert hands._n_free == 3


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
