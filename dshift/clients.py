"""Which Dask client a call uses, and a call from within a task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dshift.errors import InvalidInput, InvalidType


def find_client(client: Any) -> Any:
    """Return the client to use: the one given, else the active one, else None."""
    if client is None:
        # A client cannot be active before distributed is imported, and importing it takes a while.
        distributed = sys.modules.get("distributed")
        # A task that waits for tasks can wait for ever: a fit inside one uses its own threads.
        if distributed is None or _inside_task():
            return None
        try:
            client = distributed.get_client()
        except ValueError:
            return None
    from distributed import Client

    if not isinstance(client, Client):
        raise InvalidType(
            f"`client` is a {type(client).__name__}; give a distributed.Client, or None for the "
            "active one or the threads of this process."
        )
    if client.asynchronous:
        raise InvalidInput("`client` is asynchronous; give one made with asynchronous=False.")
    if client.status != "running":
        raise InvalidInput(f"`client` is {client.status}; give one that is connected.")
    return client


def _inside_task() -> bool:
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


@contextmanager
def beside_the_tasks() -> Iterator[None]:
    """Within a task, leave its thread to the tasks that it is going to wait for."""
    if not _inside_task():
        yield
        return
    from distributed import worker_client

    with worker_client():
        yield
