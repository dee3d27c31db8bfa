"""Brings a job to the workers of a cluster.

Samples that workers can read are read by them. Other arrays are left in a scratch store that both
sides reach or, where there is none, handed over by the cluster, which may lose them with a worker:
they are then handed over again.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

import dask

from dshift import tasks
from dshift.errors import StoreFailed
from dshift.held import JobRef
from dshift.parcel import INLINE_BYTES, Packed, pack, pickled_bytes, with_samples, write_parcel
from dshift.planning import Plan
from dshift.stage import Job
from dshift.store import JOB_FILE, PARCELS, ROOT, Store
from dshift.workers import WAIT_SECONDS, ask_hosts, threads_a_node

log = logging.getLogger("dshift")


def questions_a_host(job: Job, stored: bool) -> int:
    """Return what one worker of each host is asked: can it read the samples, and see the stores."""
    packed = pack(job)
    may_read = pickled_bytes(Packed(packed.job, {})) <= INLINE_BYTES
    return may_read + (not (may_read and packed.light)) + stored


class Courier:
    """Brings one job to the workers, and clears up after it."""

    def __init__(self, client: Any, place: Store | None) -> None:
        self._client, self._place = client, place
        self._scratch: Store | None = None
        self._packed: Packed | None = None  # while arrays travel through the cluster
        self.arrays: Any = None  # those of a light job, or a future of them

    def send(self, job: Job, plan: Plan, token: str) -> JobRef:
        """Make the job known to workers: samples by reference if they can read them."""
        packed = pack(job)
        if not self._workers_read(packed):
            packed = with_samples(packed)
        if packed.light:
            self.arrays = dict(packed.arrays)
        elif not self._left_in_scratch(packed, token):
            self._packed = packed
            self._scatter()
        url = None if self._scratch is None else self._scratch.url
        shares_node = len(self._client.nthreads()) > 1
        return JobRef(token, packed.job, plan, url, shares_node, threads_a_node(self._client))

    def _workers_read(self, packed: Packed) -> bool:
        if pickled_bytes(Packed(packed.job, {})) > INLINE_BYTES:
            return False
        samples = packed.job.samples
        # A Dask array may be hours of work, or on the cluster already.
        expected = None if samples.is_dask else tasks.read_probes(samples)
        answers = ask_hosts(self._client, tasks.why_unreadable, packed.job, expected)
        problem = next(filter(None, answers), None)
        if problem is not None:
            log.info("workers cannot read %s (%s)", packed.job.samples.origin, problem)
        return problem is None

    def _left_in_scratch(self, packed: Packed, token: str) -> bool:
        """Leave the arrays where workers find them; return whether they do."""
        if self._place is not None:
            self._scratch = Store(f"{self._place.url.rstrip('/')}/{PARCELS}{token}")
        else:
            folder = dask.config.get("temporary-directory", None)
            self._scratch = Store(tempfile.mkdtemp(prefix="dshift-", dir=folder))
        write_parcel(self._scratch.url, packed)
        if self._seen_by_all(self._scratch):
            log.info("the arrays of the job travel through %s", self._scratch.name)
            return True
        self._drop_scratch()
        return False

    def _seen_by_all(self, scratch: Store) -> bool:
        try:
            return all(ask_hosts(self._client, tasks.sees, scratch, ROOT, scratch.read(ROOT)))
        except StoreFailed as error:  # a folder of the caller's own, and workers of another user
            log.info("workers cannot read %s (%s)", scratch.name, error)
            return False

    def _scatter(self) -> None:
        assert self._packed is not None
        log.info("the arrays of the job travel through the cluster")
        self._client.wait_for_workers(1, timeout=WAIT_SECONDS)
        # In a list, since a bare dict would be scattered name by name.
        arrays = [self._packed.in_memory()]
        [self.arrays] = self._client.scatter(arrays, broadcast=True, hash=False)

    def send_again(self) -> None:
        """Hand over the arrays again if the cluster has lost them."""
        if self._packed is not None and self.arrays.status != "finished":
            log.info("the cluster lost the arrays of the job")
            self._scatter()

    def refuse_unreachable_store(self) -> None:
        """Raise unless workers find in the store what the caller wrote there."""
        content = None if self._place is None else self._place.read(JOB_FILE)
        if self._place is None or content is None:
            return
        if not all(ask_hosts(self._client, tasks.sees, self._place, JOB_FILE, content)):
            raise tasks.unreachable(self._place, "the workers")

    def close(self) -> None:
        """Drop what was left on the way."""
        self.arrays = self._packed = None
        self._drop_scratch()

    def _drop_scratch(self) -> None:
        if self._scratch is not None:
            scratch, self._scratch = self._scratch, None
            try:
                scratch.remove("")
            except OSError as error:  # no reason to lose a result
                log.warning("%s could not be removed (%s)", scratch.name, error.strerror or error)
