"""What is asked of the workers of a cluster before a job: what they have to offer, and see."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dshift import __version__
from dshift.errors import InvalidInput
from dshift.held import Lodging, release_idle, room_in
from dshift.planning import Room
from dshift.threads import memory_limit

log = logging.getLogger("dshift")

# How long a job waits for the first worker of a cluster.
WAIT_SECONDS = 600
# Runs of a task that raises, beyond the first. A task that kills its worker is Dask's to count.
RETRIES = 2


# ---------------------------------------------------------------- on a worker


def on_worker(function: Callable[..., Any], *args: Any, **common: Any) -> Any:
    """Call a function with the worker that this runs on."""
    from distributed import get_worker

    return function(get_worker(), *args, **common)


def lodging_of(worker: Any) -> Lodging:
    """Return where a worker lives."""
    limit = worker.memory_manager.memory_limit or memory_limit()
    used = worker.monitor.get_process_memory()
    threads = worker.state.nthreads
    return Lodging(f"worker {worker.address}", limit, used, worker.local_directory, threads)


@dataclass(frozen=True)
class Offer:
    """What a worker has to offer."""

    version: str
    limit_bytes: int
    used_bytes: int
    disk_bytes: int


def make_offer(dask_worker: Any) -> Offer:
    """Drop what dead clients left in a worker, and say what it has to offer."""
    release_idle()
    home = lodging_of(dask_worker)
    disk = home.room(shares_node=False).disk_bytes
    return Offer(__version__, home.limit_bytes, home.used_bytes, disk)


# ---------------------------------------------------------------- on the client


def known_workers(client: Any) -> dict[str, Any]:
    """Return what the scheduler knows of its workers, by their addresses."""
    workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def find_rooms(client: Any) -> list[Room]:
    """Return the room for a job in each worker; refuse workers that run something else."""
    said = client.run(make_offer, on_error="return")
    known = known_workers(client)
    offers = {a: o for a, o in said.items() if a in known and not _is_gone(o)}
    for address, offer in offers.items():
        version = getattr(offer, "version", None)
        if version != __version__:
            found = f"dshift {version}" if version else f"no such dshift ({offer!r})"
            raise InvalidInput(
                f"worker {address} has {found}, and the caller has dshift {__version__}; install "
                "the same version on all workers."
            )
    hosts = Counter(known[address]["host"] for address in offers)
    return [
        room_in(
            f"worker {address}",
            offer.limit_bytes,
            offer.used_bytes,
            offer.disk_bytes,
            hosts[known[address]["host"]] > 1,
        )
        for address, offer in offers.items()
    ]


def _is_gone(said: Any) -> bool:
    """Return whether a worker could not be reached: it has left, and the scheduler will know."""
    from distributed.comm.core import CommClosedError

    return isinstance(said, CommClosedError | OSError)


def count_hosts(client: Any) -> int:
    """Return how many hosts have a worker; one, if none has joined yet."""
    return max(1, len({worker["host"] for worker in known_workers(client).values()}))


def threads_a_node(client: Any) -> int:
    """Return the threads of all workers of a host: of the host that has the fewest."""
    of_host: Counter[str] = Counter()
    for worker in known_workers(client).values():
        of_host[worker["host"]] += worker["nthreads"]
    return min(of_host.values(), default=1)


def ask_hosts(client: Any, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return what a function says on one worker of each host, or on any if none has joined yet.

    These are tasks: only for tasks does an adaptive cluster start workers, and keep them.
    """
    one_of_host = {worker["host"]: [at] for at, worker in known_workers(client).items()}
    if not one_of_host:
        log.info("no worker has joined the cluster yet; waiting for one")
    asked = []
    for workers in one_of_host.values() or [[]]:
        # Should the worker be gone by then, another one stands in for it.
        where = {"workers": workers, "allow_other_workers": True} if workers else {}
        key = f"dshift-load-{uuid.uuid4().hex}"
        asked.append(client.submit(on_worker, function, *args, key=key, retries=RETRIES, **where))
    try:
        return [future.result(timeout=None if one_of_host else WAIT_SECONDS) for future in asked]
    except TimeoutError:
        raise InvalidInput(
            f"no worker joined the cluster of `client` ({client.scheduler.address}) within "
            f"{WAIT_SECONDS:g} s; start workers, and wait for them with "
            "`client.wait_for_workers(1)` before the call where they must queue."
        ) from None
