"""What tests share: one hypothesis profile, and one cluster for those that change nothing on it.

The profile draws the same examples in every run, and has no deadline.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import local
from distributed import Client
from hypothesis import settings

settings.register_profile("dshift", deadline=None, derandomize=True, database=None)
settings.load_profile("dshift")


@pytest.fixture(scope="session")
def two_workers() -> Iterator[Client]:
    """Two worker processes, started by the first test that asks for them.

    For tests that only run jobs there. Who stops workers, changes settings in them or counts what
    they did before starts a cluster of its own.
    """
    with local(2) as (_, client):
        yield client
