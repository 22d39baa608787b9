"""The graph stores that need nothing installed: each passes the whole contract."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.stores.sqlite import SQLiteGraphStore
from cmbs.testing.contracts.graph_samples import Opened
from cmbs.testing.contracts.graph_store import GraphStoreContract


class TestMemory(GraphStoreContract):
    @pytest.fixture
    def opened(self) -> Opened:
        store = MemoryGraphStore()
        return lambda: store


class TestSQLite(GraphStoreContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Iterator[Opened]:
        with ExitStack() as opened:
            yield lambda: opened.enter_context(closing(SQLiteGraphStore(tmp_path / "tee.db")))
