"""The rooms between source and result, each by itself."""

from __future__ import annotations

import ast
import symtable
import time
from pathlib import Path

import pytest

import dshift
from dshift.monitor import Progress, wants_progress
from dshift.pool import map_threads
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
