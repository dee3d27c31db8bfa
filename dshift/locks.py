"""Lock files of the operating system: a process that dies lets go of them."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

# Of a folder that others may take away while it is made: beyond, something else is wrong.
TRIES = 100


def locked(path: Path, how: int) -> int:
    """Return the descriptor of a lock file that is still there once it is locked.

    Closing it lets go. `how` is of `fcntl`: LOCK_EX or LOCK_SH, with LOCK_NB to raise OSError
    instead of waiting.
    """
    while True:
        lock = _open(path)
        try:
            fcntl.flock(lock, how)
            with suppress(FileNotFoundError):  # taken away by who held it
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _open(path: Path) -> int:
    n_failed = 0
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A link could lead anywhere.
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except (FileNotFoundError, FileExistsError):
            # Who left took the folder away meanwhile; or, for `mkdir`, it came and went.
            n_failed += 1
            if n_failed == TRIES:
                raise
