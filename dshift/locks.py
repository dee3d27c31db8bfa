"""Lock files of the operating system: a process that dies lets go of them."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def locked(path: Path, how: int) -> int:
    """Return the descriptor of a lock file that is still there once it is locked.

    Closing it lets go. `how` is of `fcntl`: LOCK_EX or LOCK_SH, with LOCK_NB to raise OSError
    instead of waiting.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # A link to nowhere would not be found for ever: links are refused.
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:  # who left took the folder away meanwhile
            continue
        try:
            fcntl.flock(lock, how)
            with suppress(FileNotFoundError):  # taken away by who held it
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
