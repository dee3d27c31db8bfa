"""Errors of codecs, disks and networks become one that says what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dshift.errors import DshiftError, UnreadableData


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise UnreadableData of `what` in place of any error within that is not our own.

    `what` begins with the source's public name. The error of a remote store may quote its URL,
    credentials included, so only its type is shown.
    """
    try:
        yield
    except (DshiftError, MemoryError):
        raise
    except Exception as error:
        remote = what.startswith("zarr ") or ("://" in what and not what.startswith("file://"))
        said = type(error).__name__ if remote else f"{type(error).__name__}: {error}"
        raise UnreadableData(
            f"`data` ({what}) cannot be read ({said}): it may be torn or altered. "
            "Restore that part from a copy, or write it anew."
        ) from (None if remote else error)
