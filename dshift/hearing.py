"""What workers tell of the blocks that they have finished, heard through a client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

from dshift.monitor import BlockDone
from dshift.tasks import TOPIC, told


class Heard:
    """What was told of one job."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[BlockDone] = SimpleQueue()
        self._known: set[tuple[int, int]] = set()

    def news(self) -> Iterator[BlockDone]:
        """Yield what is new; of a block that was done again nothing is."""
        while True:
            try:
                done = self.queue.get_nowait()
            except Empty:
                return
            span = (done.block.start, done.block.stop)
            if span not in self._known:
                self._known.add(span)
                yield done


_jobs: dict[str, Heard] = {}
_n_jobs: Counter[str] = Counter()  # that hear through each client, by its id
_lock = Lock()


def _hear(event: tuple[float, Any]) -> None:
    """Hand what a worker tells of a block to its job; this runs in the client's own thread."""
    token, done = told(event)
    if token in _jobs:
        _jobs[token].queue.put(done)


@contextmanager
def hearing(client: Any, token: str) -> Iterator[Heard]:
    """Hear of the blocks of a job; a client may hear for several at once."""
    _jobs[token] = heard = Heard()
    with _lock:
        _n_jobs[client.id] += 1
    try:
        # Raises if the client has been closed meanwhile.
        client.subscribe_topic(TOPIC, _hear)
        yield heard
    finally:
        with _lock:
            _n_jobs[client.id] -= 1
            if not _n_jobs[client.id]:
                del _n_jobs[client.id]
                # One that is closed hears no more: that must not hide how the job ended.
                with suppress(Exception):
                    client.unsubscribe_topic(TOPIC)
        del _jobs[token]
