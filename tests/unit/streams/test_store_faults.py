"""A store that fails at any call of any verb: all is as it was, or the effect is whole, and a retry succeeds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, SessionNotFound, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.messages import BeliefSnapshot, SessionPolicy
from cmbs.spi import EliminationProvenance, EliminationStore, HypothesisProvider
from cmbs.stores import SQLiteStore, Store
from cmbs.testing import FailingEliminationStore, FailingLog, FailingStore, Moment
from tests.support.lasting import LastingLog, LastingStore
from tests.support.plain_store import PlainStore
from tests.support.store_fixture import BACKENDS, ONTOLOGY, StoreFixture, declared, tampering, verified

pytestmark = pytest.mark.slow

Act = Callable[[BeliefServer, str], Any]
Faulty = FailingStore[Any] | FailingLog[Any] | FailingEliminationStore[Any]

# Verbs that are no observation carry a key: without one the server cannot tell a retry from a second request.
WRITES: dict[str, Act] = {
    "declare": lambda server, session_id: server.declare_session(
        ONTOLOGY, [*"abc"], {"n": 1}, idempotency_key=session_id
    ),
    "eliminate": lambda server, session_id: server.eliminate(session_id, "s", "new", ["b", "z"], {"n": 1}),
    "eliminate nothing": lambda server, session_id: server.eliminate(session_id, "s", "new", []),
    "repeat": lambda server, session_id: server.eliminate(session_id, "s", "old", ["a"]),
    "enter": lambda server, session_id: server.enter_obligation(session_id, "new", 1, idempotency_key="k"),
    "exit": lambda server, session_id: server.request_exit(session_id, "gate", idempotency_key="k"),
    "conclude": lambda server, session_id: server.declare_conclusion(session_id, "c", idempotency_key="k"),
    "be refused": lambda server, session_id: server.request_termination(session_id, idempotency_key="k"),
    "end": lambda server, session_id: server.request_termination(session_id, {"force": True}, idempotency_key="k"),
}
PROBED: dict[str, Act] = {
    **WRITES,
    "probe": lambda server, session_id: server.apply_probe(session_id, "is it b", True),
}
READS: dict[str, Act] = {
    "query": lambda server, session_id: server.query_belief(session_id),
    "audit": lambda server, session_id: server.audit_trace(session_id),
    "query at": lambda server, session_id: server.query_belief(session_id, at=1),
    "survivors": lambda server, session_id: server.survivors(session_id),
    "obligations": lambda server, session_id: server.obligations(session_id),
    "list": lambda server, _: server.list_sessions(),
}
SITUATIONS = ("warm", "cold", "overtaken")
# The faults are put between server and driver: PostgreSQL meets them before a release.
STRUCK = [pytest.param(place, marks=[pytest.mark.deep] * (place == "postgres")) for place in BACKENDS]


class ThreeCauses:
    """A provider of the hypotheses that all sessions here have, and a probe that leaves one."""

    def id(self) -> str:
        return "three causes"

    def version(self) -> str:
        return "1"

    def hypothesis_ids(self) -> frozenset[str]:
        return frozenset("abc")

    def probe_ids(self) -> frozenset[str]:
        return frozenset({"is it b"})

    def apply_probe(self, probe_id: str, response: Any) -> dict[str, bool]:
        return {"b": not response, "c": response}


class Ground(NamedTuple):
    """Where the worlds of a test are, each with sessions of its own: a fixture and two handles on its store."""

    fixture: StoreFixture
    mine: Store
    others: Store


class World(NamedTuple):
    """A server over stores that can be told to fail, with a session in the middle of its life."""

    ground: Ground
    server: BeliefServer
    session_id: str
    faulty: list[Faulty]
    began: str

    def on_disk(self) -> dict[str, list[StoredEntry]]:
        """Every log of this world, read past the server and the faults."""
        log = self.ground.others
        return {each.session_id: log.read(each.session_id) for each in log.sessions((self.began, ""), 100)}

    def after_a_restart(self, act: Act) -> Any:
        """What a server that knows nothing yet says."""
        with closing(self.ground.fixture.open(store=LastingStore(self.ground.others))) as server:
            return act(server, self.session_id)


@pytest.fixture
def ground(place: str, tmp_path: Path) -> Iterator[Ground]:
    with StoreFixture.at(place, tmp_path) as fixture:
        yield Ground(fixture, fixture.store(), fixture.store())


@contextmanager
def world(
    ground: Ground, situation: str, *, plain: bool = False, provider: HypothesisProvider | None = None
) -> Iterator[World]:
    with ExitStack() as stack:
        fixture, tombstones = ground.fixture, PlainStore()
        began = fixture.clock.now()

        def opened(handle: Store) -> tuple[BeliefServer, list[Faulty]]:
            faulty: list[Faulty]
            if plain:
                log, remote = LastingLog(handle), FailingEliminationStore(tombstones)
                server, faulty = fixture.open(store=remote, audit_log=log), [remote, log]
            else:
                store = LastingStore(handle)
                server, faulty = fixture.open(store=store, belief_provider=provider), [store]
            stack.callback(server.close)
            return server, faulty

        server, faulty = opened(ground.mine)
        session_id = declared(server, "abc", policy=SessionPolicy(allow_force=True))
        server.eliminate(session_id, "s", "old", ["a"])
        server.enter_obligation(session_id, "gate", 0)
        if situation == "cold":
            server, faulty = opened(ground.mine)
        if situation == "overtaken":
            opened(ground.others)[0].eliminate(session_id, "another", "client", [])
        yield World(ground, server, session_id, faulty, began)
        for store in faulty:
            store.heal()


def plain_result(outcome: Any) -> Any:
    """What was answered, without the ids and times that a second attempt has anew."""
    if not isinstance(outcome, tuple):
        return outcome
    return [
        [part.survivors, part.terminated, part.active_obligation_id] if isinstance(part, BeliefSnapshot) else part
        for name, part in zip(outcome._fields, outcome, strict=True)  # type: ignore[attr-defined]
        if name not in {"audit_event_id", "session_id"}
    ]


def faults_of(ground: Ground, situation: str, act: Act, **options: Any) -> tuple[Any, list[tuple[int, int]]]:
    """The answer when nothing fails, and every call made on the way: which store, and the how-manieth call of it."""
    with world(ground, situation, **options) as healthy:
        before = [len(store.calls) for store in healthy.faulty]
        expected = plain_result(act(healthy.server, healthy.session_id))
        made = [len(store.calls) - already for store, already in zip(healthy.faulty, before, strict=True)]
    return expected, [(number, call) for number, calls in enumerate(made) for call in range(1, calls + 1)]


def agrees_with_its_log(struck: World) -> None:
    """Whatever happened: what the server says is what the stored bytes prove."""
    for session_id in struck.on_disk():
        assert struck.server.query_belief(session_id) == verified(struck.server, session_id)


def check_write(struck: World, act: Act, expected: Any, grows: int, error: Exception | None) -> None:
    before = struck.on_disk()
    try:
        answer = act(struck.server, struck.session_id)
    except (StoreUnavailable, OSError) as exc:
        assert error is None or exc is error  # noqa: PT017
        answer = None
    assert not any(store.pending_faults for store in struck.faulty)
    after = struck.on_disk()
    grown = sum(map(len, after.values())) - sum(map(len, before.values()))
    assert grown in ({grows} if answer is not None else {0, grows})
    assert all(after[session_id][: len(log)] == log for session_id, log in before.items())
    agrees_with_its_log(struck)
    again = act(struck.server, struck.session_id)
    assert plain_result(again) == expected
    assert answer is None or answer == again
    final = struck.on_disk()
    assert sum(map(len, final.values())) == sum(map(len, before.values())) + grows
    agrees_with_its_log(struck)
    assert struck.after_a_restart(READS["query"]) == struck.server.query_belief(struck.session_id)


@pytest.mark.req("ARCH-2-03", "ARCH-2-04")
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("verb", PROBED)
@pytest.mark.parametrize(
    ("place", "error"),
    # A store that breaks its contract by another error than its own does no harm either.
    [
        *(pytest.param(*place.values, None, marks=place.marks) for place in STRUCK),
        ("memory", OSError("broken pipe")),
        ("sqlite", OSError("broken pipe")),
    ],
)
def test_a_write_that_fails_at_any_call_can_be_made_again(
    ground: Ground, verb: str, situation: str, error: Exception | None
) -> None:
    act, provider = PROBED[verb], ThreeCauses() if verb == "probe" else None
    expected, faults = faults_of(ground, situation, act, provider=provider)
    assert faults or verb == "repeat"
    for (number, call), moment in product(faults, Moment):
        with world(ground, situation, provider=provider) as struck:
            struck.faulty[number].fail(call=call, moment=moment, error=error)
            check_write(struck, act, expected, 0 if verb == "repeat" else 1, error)


@pytest.mark.slow
@pytest.mark.req("ARCH-2-03")
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("place", STRUCK)
def test_a_read_that_fails_at_any_call_changes_nothing_and_can_be_made_again(
    ground: Ground, verb: str, situation: str
) -> None:
    act = READS[verb]
    _, faults = faults_of(ground, situation, act)
    assert faults
    for (number, call), moment in product(faults, Moment):
        with world(ground, situation) as struck:
            before = struck.on_disk()
            struck.faulty[number].fail(call=call, moment=moment)
            # Belief that is cached is served while the log cannot be asked; what must come from the log is not.
            try:
                act(struck.server, struck.session_id)
            except StoreUnavailable as exc:
                assert exc.message.startswith("told to fail")  # noqa: PT017
            assert struck.on_disk() == before
            assert act(struck.server, struck.session_id) == struck.after_a_restart(act)
            agrees_with_its_log(struck)


# --- a plain elimination store beside a log ---


@pytest.mark.slow
@pytest.mark.req("ARCH-2-03", "ARCH-2-04")
@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("place", STRUCK)
def test_a_plain_store_or_the_log_beside_it_may_fail_at_any_call(ground: Ground, verb: str, situation: str) -> None:
    act = WRITES[verb]
    expected, faults = faults_of(ground, situation, act, plain=True)
    assert faults
    for (number, call), moment in product(faults, Moment):
        with world(ground, situation, plain=True) as struck:
            struck.faulty[number].fail(call=call, moment=moment)
            check_write(struck, act, expected, 0 if verb == "repeat" else 1, None)
            store: EliminationStore = struck.faulty[0].inner
            for session_id in struck.on_disk():
                assert store.get_survivors(session_id) == {*struck.server.query_belief(session_id).survivors}


@pytest.mark.req("ARCH-2-03")
@pytest.mark.parametrize("place", BACKENDS)
def test_a_plain_store_hears_of_what_was_applied_and_of_nothing_else(ground: Ground) -> None:
    with world(ground, "warm", plain=True) as quiet:
        server, session_id, (remote, _) = quiet.server, quiet.session_id, quiet.faulty
        assert remote.calls == ["create_session", "eliminate"]
        server.eliminate(session_id, "s", "old", ["a"])
        server.eliminate(session_id, "s", "ignored", ["a", "z"])
        server.eliminate(session_id, "s", "nothing", [])
        with pytest.raises(Conflict):
            server.eliminate(session_id, "s", "old", ["b"])
        server.request_exit(session_id, "gate")
        assert remote.calls == ["create_session", "eliminate"]
        server.eliminate(session_id, "who", "what", ["b"])
        assert remote.inner.provenances[-1] == EliminationProvenance("who", "what")
        assert server.waits_in_caller


def test_a_session_survives_its_server_with_a_plain_store_and_its_trace() -> None:
    store = PlainStore()
    with closing(BeliefServer(store=store)) as first, closing(BeliefServer(store=store)) as second:
        session_id = declared(first)
        first.eliminate(session_id, "s", "1", ["a"])
        with pytest.raises(SessionNotFound):
            second.query_belief(session_id)
        second.restore_session(session_id, store.recover(session_id), first.audit_trace(session_id))
        assert second.query_belief(session_id) == first.query_belief(session_id)
        assert len(store.provenances) == 1
        second.eliminate(session_id, "s", "2", ["b"])
        assert store.get_survivors(session_id) == {"c", "d"}


# --- faults of SQLite itself ---


def denied(word: str) -> Callable[..., int]:
    """An authorizer that refuses one kind of statement, as a broken disk would refuse the write behind it."""

    def authorize(action: int, first: str | None, *_: str | None) -> int:
        concerned = action == sqlite3.SQLITE_TRANSACTION and first == word
        return sqlite3.SQLITE_DENY if concerned else sqlite3.SQLITE_OK

    return authorize


@pytest.mark.req("ARCH-2-03", "ARCH-2-04", "BS-5.1-STORE-05")
def test_a_commit_that_fails_after_another_server_went_first_is_not_seen_and_not_acknowledged(
    sqlite_fixture: StoreFixture,
) -> None:
    store = SQLiteStore(sqlite_fixture.path)
    server, other = sqlite_fixture.open(store=store), sqlite_fixture.open()
    session_id = declared(server)
    other.eliminate(session_id, "other", "1", ["a"])
    store._writer.set_authorizer(denied("COMMIT"))
    with pytest.raises(StoreUnavailable):
        server.eliminate(session_id, "s", "o", ["b"])
    assert server.query_belief(session_id).survivors == other.query_belief(session_id).survivors == ["b", "c", "d"]
    store._writer.set_authorizer(None)
    outcome = server.eliminate(session_id, "s", "o", ["b"])
    assert outcome.audit_event_id in {entry.event_id for entry in other.audit_trace(session_id)}
    assert verified(other, session_id) == outcome.snapshot


@pytest.mark.req("ARCH-2-03", "ARCH-2-04")
@pytest.mark.parametrize("eliminated", ["a", "a\x00b"])
def test_a_full_disk_refuses_what_does_not_fit_and_the_retry_succeeds_once_there_is_room(
    sqlite_fixture: StoreFixture, eliminated: str
) -> None:
    store = SQLiteStore(sqlite_fixture.path)
    server = sqlite_fixture.open(store=store)
    session_id = declared(server, [eliminated, "b", "c", "d"])
    (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    large = {"why": "x" * 100_000}
    with pytest.raises(StoreUnavailable, match="full"):
        server.eliminate(session_id, "s", "large", [eliminated], large)
    assert server.query_belief(session_id).n_survivors == 4
    store._writer.execute("PRAGMA max_page_count = 1000000")
    assert server.eliminate(session_id, "s", "large", [eliminated], large).applied_eliminated == [eliminated]
    assert verified(sqlite_fixture.open(), session_id) == server.query_belief(session_id)


@pytest.mark.req("ARCH-2-03", "ARCH-2-04")
def test_a_file_that_another_process_holds_locked_is_unavailable_for_writing_and_readable(
    sqlite_fixture: StoreFixture,
) -> None:
    store = SQLiteStore(sqlite_fixture.path)
    server = sqlite_fixture.open(store=store)
    session_id = declared(server)
    store._writer.execute("PRAGMA busy_timeout = 0")
    with tampering(sqlite_fixture.path) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            server.eliminate(session_id, "s", "o", ["a"])
        assert server.query_belief(session_id).n_survivors == 4
        assert sqlite_fixture.open().query_belief(session_id).n_survivors == 4
    assert server.eliminate(session_id, "s", "o", ["a"]).applied_eliminated == ["a"]


@pytest.mark.req("ARCH-2-03", "ARCH-2-04")
def test_a_transaction_that_sqlite_gives_up_by_itself_is_a_failed_write_like_any_other(
    sqlite_fixture: StoreFixture,
) -> None:
    store = sqlite_fixture.store()
    server = sqlite_fixture.open(store=store)
    session_id = declared(server, ["a\x00b", "c"])
    assert isinstance(store, SQLiteStore)
    # Of this connection alone: one in the file would be refused before anything is written.
    store._writer.execute(
        "CREATE TEMP TRIGGER fault AFTER INSERT ON main.audit_events BEGIN SELECT RAISE(ROLLBACK, 'out of luck'); END"
    )
    with pytest.raises(StoreUnavailable):
        server.eliminate(session_id, "s", "o", ["a\x00b"])
    assert server.query_belief(session_id) == verified(server, session_id)
    assert server.query_belief(session_id).n_survivors == 2
    store._writer.execute("DROP TRIGGER fault")
    assert server.eliminate(session_id, "s", "o", ["a\x00b"]).snapshot.survivors == ["c"]
    assert verified(sqlite_fixture.open(), session_id).survivors == ["c"]
