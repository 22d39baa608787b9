"""What several tests of the transport begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cmbs.stores.memory import InMemoryStore
from cmbs.stores.sqlite import SQLiteStore
from tests.support.space_client import SpaceClient, app_over, space_client


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> InMemoryStore | SQLiteStore:
    """A store, in memory and in a file. The server that gets it closes it."""
    return InMemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "cmbs.db")


@pytest.fixture
def log() -> InMemoryStore:
    return InMemoryStore()


@pytest.fixture
def space(log: InMemoryStore) -> Iterator[SpaceClient]:
    """A client of a space that was just created in `log`."""
    with space_client(app_over(log)) as client:
        client.create()
        yield client
