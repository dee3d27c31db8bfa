"""The tasks of a job that a cluster has been given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any


class UnderWay:
    """Tasks that have not ended, each with what it is for; those left over are cancelled.

    So are the `ended` ones that the caller still holds. An error holds on to its frames, and these
    to their futures: the cluster would go on computing what it has lost of them.
    """

    def __init__(self, client: Any, queue: Any) -> None:
        self._client, self._queue = client, queue  # the queue yields tasks as they end
        self._notes: dict[Any, Any] = {}
        self.ended: list[tuple[Any, Any]] = []

    def add(self, futures: Sequence[Any], notes: Sequence[Any]) -> None:
        """Take in tasks, and what each of them is for."""
        self._notes.update(zip(futures, notes, strict=True))
        self._queue.update(futures)

    def __len__(self) -> int:
        return len(self._notes)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield tasks as they end, well or not. They are released when the caller lets go."""
        for future in self._queue:
            yield future, self._notes.pop(future)

    def __enter__(self) -> UnderWay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        left = [*self._notes, *(future for future, _ in self.ended)]
        if left and self._client.status == "running":
            with suppress(Exception):
                self._client.cancel(left)
