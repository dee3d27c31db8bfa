"""Lock files: what is locked is the file that others find under that name."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshift.locks import locked


def n_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def replace(path: Path) -> None:
    path.unlink()
    path.touch()


@pytest.mark.parametrize("lose", [Path.unlink, replace], ids=["removed", "replaced"])
def test_a_file_that_went_while_one_waited_is_locked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Path], None]
) -> None:
    path, flock, n_before = tmp_path / "deep" / "lock", fcntl.flock, n_open()
    waited: list[int] = []

    def wait(lock: int, how: int) -> None:
        flock(lock, how)
        waited.append(lock)
        if len(waited) == 1:  # who held it took it away
            lose(path)

    monkeypatch.setattr(fcntl, "flock", wait)
    lock = locked(path, fcntl.LOCK_EX)
    assert len(waited) == 2
    assert os.path.samestat(os.fstat(lock), path.stat())
    with pytest.raises(BlockingIOError):
        locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)
    os.close(locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
    assert n_open() == n_before


def test_a_folder_that_went_before_its_file_was_made_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mkdir = tmp_path / "deep" / "lock", Path.mkdir
    made: list[Path] = []

    def make(self: Path, *args: Any, **kwargs: Any) -> None:
        mkdir(self, *args, **kwargs)
        made.append(self)
        if len(made) == 1:  # the last one to leave took it away
            self.rmdir()

    monkeypatch.setattr(Path, "mkdir", make)
    lock = locked(path, fcntl.LOCK_EX)
    assert made == [path.parent] * 2
    assert os.path.samestat(os.fstat(lock), path.stat())
    os.close(lock)


def test_a_folder_that_went_while_it_was_made_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mkdir = tmp_path / "store" / "run" / "lock", os.mkdir
    made: list[Path] = []

    def make(folder: Any, *args: Any, **kwargs: Any) -> None:
        mkdir(folder, *args, **kwargs)
        made.append(Path(folder))
        if len(made) == 1:  # the last one to leave had made the store itself
            os.rmdir(folder)

    monkeypatch.setattr(os, "mkdir", make)
    os.close(locked(path, fcntl.LOCK_EX))
    assert made == [path.parents[1], path.parents[1], path.parents[0]]


def test_a_folder_that_came_and_went_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mkdir = tmp_path / "run" / "lock", os.mkdir
    path.parent.mkdir()

    def make(folder: Any, *args: Any, **kwargs: Any) -> None:
        try:
            mkdir(folder, *args, **kwargs)
        except FileExistsError:  # of another run, which leaves now
            os.rmdir(folder)
            raise

    monkeypatch.setattr(os, "mkdir", make)
    os.close(locked(path, fcntl.LOCK_EX))


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        locked(tmp_path / "file" / "lock", fcntl.LOCK_EX)
    with pytest.raises(FileNotFoundError):
        locked(Path("/proc/nowhere/lock"), fcntl.LOCK_EX)


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.symlink_to(tmp_path / "gone" / "lock")
    with pytest.raises(OSError, match="symbolic links"):
        locked(path, fcntl.LOCK_EX)


def test_many_may_share_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    both = [locked(path, fcntl.LOCK_SH | fcntl.LOCK_NB) for _ in range(2)]
    with pytest.raises(BlockingIOError):
        locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for lock in both:
        os.close(lock)
