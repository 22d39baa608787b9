"""What is particular to the PostgreSQL store; what it shares with the others is in their contract tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Barrier, Thread

import psycopg
import pytest

from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import CmbsError, InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.ledger import Head, StoredEntry
from cmbs.spi import Append, EliminationProvenance, Opening, StaleHead
from cmbs.spi.session_search import SessionQuery
from cmbs.stores import open_store
from cmbs.stores._postgres_schema import APPEND_ONLY
from cmbs.stores.postgres import PostgresStore
from cmbs.stores.session_search import build_search
from cmbs.testing.streams import stream
from tests.support.store_fixture import StoreFixture, declared, verified

pytestmark = pytest.mark.postgres

SEEN = EliminationProvenance("source", "observation")


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at("postgres", tmp_path) as fixture:
        yield fixture


@pytest.fixture
def store(fixture: StoreFixture) -> PostgresStore:
    store = fixture.store()
    assert isinstance(store, PostgresStore)
    return store


@pytest.fixture
def outsider(fixture: StoreFixture, store: PostgresStore) -> Iterator[psycopg.Connection]:
    """A connection of a client that does not use cmbs."""
    with psycopg.connect(fixture.url, autocommit=True) as connection:
        yield connection


# --- the schema ---


@pytest.mark.req("STORE-PG-02")
@pytest.mark.parametrize(
    "statement",
    [
        *(f"DELETE FROM cmbs.{table}" for table in ("audit_events", "tombstones", "universes", "sessions")),
        *(f"TRUNCATE cmbs.{table}" for table in ("audit_events", "tombstones", "universes", "sessions")),
        "UPDATE cmbs.audit_events SET entry = ''",
        "UPDATE cmbs.tombstones SET hypothesis_id = ''",
        "UPDATE cmbs.universes SET hypothesis_ids = ''",
        "UPDATE cmbs.sessions SET head_seq = head_seq - 1",
        "UPDATE cmbs.sessions SET head_seq = head_seq + 1, n_survivors = n_survivors + 1",
    ],
)
def test_the_database_itself_refuses_to_change_what_was_written(
    store: PostgresStore, outsider: psycopg.Connection, statement: str
) -> None:
    store.append(stream())
    store.create_session("apart", frozenset("ab"))
    with pytest.raises(psycopg.Error) as refused:
        outsider.execute(statement.encode())
    assert refused.value.sqlstate == APPEND_ONLY
    assert len(store.read(stream()[0].stream_id)) == 3


@pytest.mark.req("STORE-PG-02")
def test_exact_bytes_are_stored_and_what_they_eliminate_is_not_copied(
    store: PostgresStore, outsider: psycopg.Connection
) -> None:
    items = stream()
    store.append(items)
    rows = outsider.execute("SELECT entry, event_hash FROM cmbs.audit_events ORDER BY seq").fetchall()
    assert rows == [(item.entry.raw, item.entry.event_hash) for item in items]
    assert outsider.execute("SELECT count(*) FROM cmbs.tombstones").fetchone() == (0,)
    assert store.get_eliminated(items[0].stream_id) == {"a", "b"}


@pytest.mark.req("STORE-GUARD-01")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DROP TRIGGER append_only ON cmbs.audit_events", "`append_only` on `audit_events` is missing"),
        (
            "ALTER TABLE cmbs.sessions DISABLE TRIGGER only_forward",
            "`only_forward` on `sessions` is missing or switched",
        ),
        (
            "CREATE OR REPLACE FUNCTION cmbs.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'",
            "the function `refuse_change` is not the one",
        ),
    ],
)
def test_a_database_that_lost_a_guard_is_not_opened_to_write(
    fixture: StoreFixture, outsider: psycopg.Connection, change: str, said: str
) -> None:
    outsider.execute(change.encode())
    with pytest.raises(StoreUnavailable, match=said):
        open_store(fixture.url)


# --- ids ---


def test_a_session_id_that_the_database_cannot_hold_is_not_found_and_not_created(store: PostgresStore) -> None:
    assert (store.head("a\x00b"), store.read("a\x00b"), store.checkpoint("a\x00b")) == (None, [], None)
    assert store.opening("a\x00b") == Opening(None, None, [], [])
    with pytest.raises(SessionNotFound):
        store.recover("a\x00b")
    with pytest.raises(InvalidRequest, match="cannot hold"):
        store.create_session("a\x00b", frozenset("ab"))


# --- several writers ---


@pytest.mark.req("STORE-PG-03")
def test_groups_that_name_the_same_sessions_in_another_order_do_not_block_each_other(fixture: StoreFixture) -> None:
    left, right = stream(1, events=4), stream(2, events=4)
    stores = [fixture.store(), fixture.store()]
    stores[0].append([left[0], right[0]])
    begin = Barrier(2)
    outcomes: list[str] = []

    def append(number: int, group: list[Append]) -> None:
        begin.wait()
        try:
            stores[number].append(group)
            outcomes.append("written")
        except StaleHead:
            outcomes.append("stale")

    groups = ([left[1], right[1]], [right[1], left[1]])
    threads = [Thread(target=append, args=(number, group)) for number, group in enumerate(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["stale", "written"]
    assert stores[0].head(left[0].stream_id) == Head(1, left[1].entry.event_hash)


def test_what_was_appended_in_an_exclusive_block_that_failed_is_not_there(store: PostgresStore) -> None:
    declaration, elimination, _ = stream()
    store.append([declaration])

    def fail_in_the_block() -> None:
        with store.exclusive([declaration.stream_id]):
            store.append([elimination])
            raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        fail_in_the_block()
    assert store.head(declaration.stream_id) == Head(0, declaration.entry.event_hash)


# --- the first use of a session ---


class WithoutSingleReads(PostgresStore):
    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        raise StoreUnavailable(f"`{stream_id}` was read beyond {after}, up to {limit} and {max_bytes}")


def checkpointed(fixture: StoreFixture, seq: int) -> str:
    """A session of six events, with a checkpoint."""
    server = fixture.open()
    session_id = declared(server)
    for number in range(5):
        server.eliminate(session_id, "s", str(number), ["abcd"[number % 2]])
    entries = server.log.read(session_id)
    server.close()
    fixture.store().put_checkpoint(session_id, seq, freeze(verify_session(session_id, entries[:seq])))
    return session_id


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
@pytest.mark.parametrize("seq", [5])
@pytest.mark.usefixtures("digests_everywhere")
def test_the_first_use_of_a_session_with_a_checkpoint_is_one_exchange(fixture: StoreFixture, seq: int) -> None:
    session_id = checkpointed(fixture, seq)
    with closing(BeliefServer(store=WithoutSingleReads(fixture.url))) as server:
        assert server.query_belief(session_id) == fixture.open().query_belief(session_id)
        assert server.eliminate(session_id, "s", "more", ["c"]).snapshot.n_survivors == 1
    # That it is not there is not taken from the row of its head alone.
    with pytest.raises(SessionNotFound):
        fixture.open().query_belief("unknown")


@pytest.mark.req("ARCH-4-CHECKPOINT-02")
@pytest.mark.usefixtures("digests_everywhere")
def test_a_session_whose_checkpoint_does_not_fit_is_read_whole(fixture: StoreFixture) -> None:
    session_id = checkpointed(fixture, 5)
    fixture.store().put_checkpoint(session_id, 5, b"nonsense")
    with (
        closing(BeliefServer(store=WithoutSingleReads(fixture.url))) as server,
        pytest.raises(StoreUnavailable, match="beyond -1, up to 1024"),
    ):
        server.query_belief(session_id)
    assert fixture.open().query_belief(session_id).n_survivors == 2


# --- a database that is not there ---


@pytest.mark.req("STORE-PG-04")
@pytest.mark.usefixtures("digests_everywhere")
def test_connections_that_the_database_cut_are_replaced_also_at_first_use(
    fixture: StoreFixture, outsider: psycopg.Connection
) -> None:
    session_id = checkpointed(fixture, 5)
    server = fixture.open()
    # Of this database alone: other tests use the same server at the same time.
    ours = "application_name = 'cmbs' AND datname = current_database()"
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}"
    outsider.execute(cut)
    assert server.query_belief(session_id).n_survivors == 2
    outsider.execute(cut)
    assert server.eliminate(session_id, "s", "new", ["c"]).snapshot.n_survivors == 1
    assert verified(server, session_id).n_survivors == 1


@pytest.mark.req("STORE-PG-04")
def test_a_closed_store_is_unavailable_whatever_one_asks(store: PostgresStore) -> None:
    declaration = stream()[0]
    store.close()
    store.close()
    uses = (
        lambda: store.append([declaration]),
        lambda: store.head("s"),
        lambda: store.read("s"),
        lambda: store.sessions(None, 1),
        lambda: store.put_checkpoint("s", 0, b""),
        lambda: store.checkpoint("s"),
        lambda: store.opening("s"),
        lambda: store.put_intent(declaration),
        lambda: store.intent("s"),
        lambda: store.open_intents(1),
        lambda: store.drop_intent("s", b""),
        lambda: store.create_session("s", frozenset("a")),
        lambda: store.eliminate("s", {"a"}, SEEN),
        lambda: store.recover("s"),
        lambda: store.exclusive(["s"]).__enter__(),
    )
    for use in uses:
        with pytest.raises(StoreUnavailable):
            use()
    store.append([])


@pytest.mark.req("STORE-PG-04")
def test_a_database_that_cannot_be_reached_is_unavailable_and_a_url_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open the database"):
        open_store(f"postgresql://user:secret@/db?host={tmp_path}")
    with pytest.raises(InvalidRequest) as refused:
        open_store("postgresql://user:secret@[host/db")
    assert "secret" not in f"{refused.value} {refused.value.details}"


def test_without_the_extra_the_error_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cmbs.stores.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CmbsError, match=r"cmbs\[postgres\]"):
        open_store("postgresql://localhost/db")


# --- lists ---

# As in a store of many sessions: each has a kit of its own, one in five is of an agent, one in twenty of a source.
FILL = """
CREATE TEMP TABLE made AS
    SELECT n, 'session ' || n AS id, '2026-01-01T00:00:00.' || lpad(n::text, 6, '0') || 'Z' AS ts
    FROM generate_series(1, 40000) AS n;
INSERT INTO cmbs.listings SELECT id, ts, 'open', id, '' FROM made;
INSERT INTO cmbs.listing_terms SELECT id, convert_to('kit ' || n, 'UTF8'), ts FROM made;
INSERT INTO cmbs.listing_terms SELECT id, 'agent'::bytea, ts FROM made WHERE n % 5 = 0;
INSERT INTO cmbs.listing_terms SELECT id, 'source'::bytea, ts FROM made WHERE n % 20 = 1;
"""


@pytest.mark.req("FIND-INDEX-01")
def test_sessions_of_two_terms_that_never_met_are_not_looked_up_one_by_one(outsider: psycopg.Connection) -> None:
    outsider.execute(FILL)
    outsider.execute("VACUUM ANALYZE cmbs.listings, cmbs.listing_terms")
    query = SessionQuery(terms=(b"agent", b"source"))
    statement, parameters = build_search(query, None, 50, mark="%s", schema="cmbs.", contains="")
    ((plan,),) = outsider.execute(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}".encode(), parameters
    ).fetchall()
    # One block for each session of the agent would be 8,000.
    whole = plan[0]["Plan"]
    assert whole["Shared Hit Blocks"] + whole["Shared Read Blocks"] < 2_000
