"""The shipped contracts of audit logs, and of stores that are log and tombstones in one, over every driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cmbs.stores import InMemoryStore, SQLiteStore
from cmbs.stores.postgres import PostgresStore
from cmbs.testing.contracts.audit_log import AuditLogContract
from cmbs.testing.contracts.session_search import SessionSearchContract
from cmbs.testing.contracts.store import StoreContract
from cmbs.testing.contracts.stored_rows import StoredRowsContract
from cmbs.testing.streams import stream
from tests.support.postgres import fresh_database, partitioned_database


@pytest.mark.req("BS-5.1-STORE-08", "ARCH-4-CHECKPOINT-01", "ARCH-4-SAGA-01")
class TestMemoryLog(AuditLogContract):
    @pytest.fixture
    def open_log(self) -> Callable[[], InMemoryStore]:
        store = InMemoryStore()
        return lambda: store


@pytest.mark.req("BS-5.1-STORE-08", "ARCH-4-02", "ARCH-4-CHECKPOINT-01", "ARCH-4-SAGA-01")
class TestSQLiteLog(AuditLogContract):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], SQLiteStore]:
        return lambda: SQLiteStore(tmp_path / "cmbs.db")


@pytest.mark.postgres
@pytest.mark.req("BS-5.1-STORE-08", "ARCH-4-02", "ARCH-4-CHECKPOINT-01", "ARCH-4-SAGA-01", "STORE-PG-03")
class TestPostgresLog(AuditLogContract):
    @pytest.fixture
    def open_log(self) -> Iterator[Callable[[], PostgresStore]]:
        with fresh_database() as url:
            yield lambda: PostgresStore(url)


@pytest.mark.postgres
@pytest.mark.req("STORE-PG-06")
class TestPartitionedPostgresLog(AuditLogContract):
    @pytest.fixture
    def open_log(self) -> Iterator[Callable[[], PostgresStore]]:
        with partitioned_database() as url:
            yield lambda: PostgresStore(url)


@pytest.mark.postgres
@pytest.mark.req("STORE-PG-06")
class TestPartitionedPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> Iterator[Callable[[], PostgresStore]]:
        with partitioned_database() as url:
            yield lambda: PostgresStore(url)


@pytest.mark.req("BS-5.1-STORE-05", "BS-5.1-STORE-08")
class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> Callable[[], InMemoryStore]:
        return InMemoryStore


@pytest.mark.req("BS-5.1-STORE-05", "BS-5.1-STORE-08")
class TestSQLiteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], SQLiteStore]:
        return lambda: SQLiteStore(tmp_path / "cmbs.db")


@pytest.mark.postgres
@pytest.mark.req("BS-5.1-STORE-05", "BS-5.1-STORE-08")
class TestPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> Iterator[Callable[[], PostgresStore]]:
        with fresh_database() as url:
            yield lambda: PostgresStore(url)


@pytest.mark.req("STORE-ROWS-01")
class TestSQLiteRows(StoredRowsContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], SQLiteStore]:
        return lambda: SQLiteStore(tmp_path / "cmbs.db")


@pytest.mark.postgres
@pytest.mark.req("STORE-ROWS-01")
class TestPostgresRows(StoredRowsContract):
    @pytest.fixture
    def open_store(self) -> Iterator[Callable[[], PostgresStore]]:
        with fresh_database() as url:
            yield lambda: PostgresStore(url)


def test_only_a_store_that_waits_for_a_device_is_blocking() -> None:
    assert (InMemoryStore.blocking, SQLiteStore.blocking, PostgresStore.blocking) == (False, True, True)


def test_a_memory_store_outlives_its_closing() -> None:
    store = InMemoryStore()
    store.append(stream())
    store.close()
    assert len(store.sessions(None, 1)) == 1


@pytest.mark.req("FIND-SESSIONS-01", "FIND-INDEX-01")
class TestMemorySearch(SessionSearchContract):
    @pytest.fixture
    def open_log(self) -> Callable[[], InMemoryStore]:
        return InMemoryStore


@pytest.mark.req("FIND-SESSIONS-01", "FIND-INDEX-01")
class TestSQLiteSearch(SessionSearchContract):
    @pytest.fixture
    def open_log(self, tmp_path: Path) -> Callable[[], SQLiteStore]:
        return lambda: SQLiteStore(tmp_path / "cmbs.db")


@pytest.mark.postgres
@pytest.mark.req("FIND-SESSIONS-01", "FIND-INDEX-01")
class TestPostgresSearch(SessionSearchContract):
    @pytest.fixture
    def open_log(self) -> Iterator[Callable[[], PostgresStore]]:
        with fresh_database() as url:
            yield lambda: PostgresStore(url)


@pytest.mark.postgres
@pytest.mark.req("STORE-PG-06")
class TestPartitionedPostgresSearch(SessionSearchContract):
    @pytest.fixture
    def open_log(self) -> Iterator[Callable[[], PostgresStore]]:
        with partitioned_database() as url:
            yield lambda: PostgresStore(url)
