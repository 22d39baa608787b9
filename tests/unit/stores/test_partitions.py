"""Tables in hash partitions, and what the SQL of the store asks of a database that speaks PostgreSQL's protocol."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import StoreUnavailable
from cmbs.stores import _postgres_schema, open_store
from cmbs.stores import postgres as driver
from cmbs.stores._postgres_partitions import count_partitions
from cmbs.stores.postgres import PostgresStore
from cmbs.testing.streams import stream
from tests.support.http_server import run_cmbs
from tests.support.postgres import PARTITIONS, empty_database, fresh_database, partitioned_database
from tests.support.store_fixture import declared, verified

pytestmark = pytest.mark.postgres

SESSIONS = 64


@pytest.fixture
def url() -> Iterator[str]:
    with partitioned_database() as url:
        yield url


@pytest.mark.req("STORE-PG-06")
def test_sessions_are_spread_over_the_partitions_and_each_lies_in_one(url: str, tmp_path: Path) -> None:
    with closing(BeliefServer(store=open_store(url))) as server:
        for _ in range(SESSIONS):
            session_id = declared(server)
            server.eliminate(session_id, "s", "1", ["a"])
            assert server.eliminate(session_id, "s", "1", ["a"]).applied_eliminated == ["a"]
            assert verified(server, session_id) == server.query_belief(session_id)
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT tableoid::regclass::text, count(*), count(DISTINCT stream_id) FROM cmbs.audit_events GROUP BY 1"
        ).fetchall()
        homes = connection.execute(
            "SELECT max(n) FROM (SELECT count(DISTINCT tableoid) AS n FROM cmbs.audit_events GROUP BY stream_id) AS t"
        ).fetchone()
        assert count_partitions(connection) == PARTITIONS
    assert len(rows) == PARTITIONS
    assert sum(events for _, events, _ in rows) == 2 * SESSIONS
    assert homes == (1,)
    checked = run_cmbs("fsck", url, directory=tmp_path)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.req("STORE-PG-06", "STORE-PG-02")
@pytest.mark.parametrize("change", ["DELETE FROM {}", "TRUNCATE {}", "UPDATE {} SET entry = ''"])
def test_what_was_written_cannot_be_changed_in_a_partition_either(url: str, change: str) -> None:
    with closing(open_store(url)) as store:
        store.append(stream())
        with psycopg.connect(url, autocommit=True) as connection:
            home = connection.execute("SELECT DISTINCT tableoid::regclass::text FROM cmbs.audit_events").fetchone()
            assert home is not None
            for table in ("cmbs.audit_events", home[0]):
                with pytest.raises(psycopg.Error, match="append-only"):
                    connection.execute(change.format(table).encode())
        assert len(store.read(stream()[0].stream_id)) == len(stream())


@pytest.mark.req("STORE-PG-06")
def test_a_database_is_partitioned_by_a_command_once_and_only_while_it_is_empty(tmp_path: Path) -> None:
    with empty_database() as url:
        made = run_cmbs("partition", url, "--partitions", "3", directory=tmp_path)
        assert (made.returncode, made.stderr) == (0, "the tables are in 3 partitions\n")
        again = run_cmbs("partition", url, "--partitions", "5", directory=tmp_path)
        assert again.returncode != 0
        assert "partitioned already" in again.stderr
        with psycopg.connect(url) as connection:
            assert count_partitions(connection) == 3
    with fresh_database() as url, closing(open_store(url)) as store:
        assert isinstance(store, PostgresStore)
        store.append(stream())
        with pytest.raises(StoreUnavailable, match="is not empty"):
            store.partition(3)
        assert len(store.read(stream()[0].stream_id)) == len(stream())
    refused = run_cmbs("partition", f"sqlite:///{tmp_path / 'x.db'}", "--partitions", "3", directory=tmp_path)
    assert refused.returncode != 0
    assert "only tables of a PostgreSQL database" in refused.stderr
    assert not (tmp_path / "x.db").exists()


# --- what the SQL needs ---


@pytest.mark.req("STORE-PG-06")
def test_whatever_is_unique_is_unique_within_a_stream_and_nothing_counts_across_them() -> None:
    with fresh_database() as url, psycopg.connect(url) as connection:
        keys = connection.execute(
            "SELECT c.relname, a.attname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid"
            " JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
            " WHERE i.indisunique AND c.relnamespace = 'cmbs'::regnamespace"
        ).fetchall()
        assert {column for _, column in keys} == {"stream_id", "session_id"}
        assert {table for table, _ in keys} >= {"sessions", "audit_events", "checkpoints", "intents"}
        others = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'cmbs'::regnamespace AND relkind IN ('S', 'm')"
        ).fetchall()
        assert others == []


FORBIDDEN = re.compile(
    r"\b(LISTEN|UNLISTEN|NOTIFY|pg_notify|nextval|SERIAL|GENERATED \w+ AS IDENTITY|TEMP(ORARY)? TABLE|WITH HOLD|DISCARD"
    r"|SET SESSION|SET_CONFIG|pg_advisory_lock|pg_try_advisory_lock|PREPARE TRANSACTION|LOCK TABLE|DEFERRABLE"
    r"|SERIALIZABLE)\b",
    re.IGNORECASE,
)


@pytest.mark.req("STORE-PG-06")
def test_no_statement_needs_what_a_distributed_database_lacks() -> None:
    sources = {module.__name__: inspect.getsource(module) for module in (driver, _postgres_schema)}
    for name, source in sources.items():
        assert FORBIDDEN.findall(source) == [], name
    # The one lock that is no row's is taken while the schema is made.
    assert "advisory" not in sources[driver.__name__]
    assert re.findall(r"pg_advisory\w+", sources[_postgres_schema.__name__]) == ["pg_advisory_xact_lock"]
    for said in ("LISTEN x", "SELECT nextval('s')", "CREATE TEMP TABLE t ()", "id SERIAL"):
        assert FORBIDDEN.search(said)


@pytest.mark.req("STORE-PG-06")
def test_a_connection_that_was_used_keeps_no_state_that_another_could_miss() -> None:
    """No locks, channels, temporary tables or settings are left: only prepared statements, which any connection has."""
    with fresh_database() as url, closing(BeliefServer(store=open_store(url))) as server:
        session_id = declared(server)
        server.eliminate(session_id, "s", "1", ["a"])
        store = server.log
        assert isinstance(store, PostgresStore)
        with store.exclusive([session_id]):
            store.head(session_id)
        with store._connection() as connection:
            for left in (
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'",
                "SELECT pg_listening_channels()",
                "SELECT 1 FROM pg_class WHERE relpersistence = 't'",
                "SELECT 1 FROM pg_cursors",
                "SELECT name FROM pg_settings WHERE source = 'session'",
            ):
                assert connection.execute(left.encode()).fetchall() == [], left
