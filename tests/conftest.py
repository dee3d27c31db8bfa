"""What tests share: one hypothesis profile, and one cluster for those that change nothing on it.

The profile draws the same examples in every run, and has no deadline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from distributed import Client

settings.register_profile("dshift", deadline=None, derandomize=True, database=None)
settings.load_profile("dshift")


@pytest.fixture(scope="session")
def two_workers() -> Iterator[Client]:
    """Two worker processes, started by the first test that asks for them.

    For tests that only run jobs there. Who stops workers, changes settings in them or counts what
    they did before starts a cluster of its own.
    """
    # Imported with this file, Dask would take pytest's handlers for its own, and silence them.
    from clusters import local

    with local(2) as (_, client):
        yield client
