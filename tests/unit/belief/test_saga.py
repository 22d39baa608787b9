"""A store of tombstones beside the log: whatever happens between two steps, the session goes on by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, NoReturn

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, LedgerCorrupt, SessionNotFound, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.spi import Append, StaleHead
from cmbs.stores import Store
from cmbs.testing import FailingLog, Moment
from tests.support.store_fixture import ONTOLOGY, PLACES, StoreFixture, declared, verified
from tests.support.wayward_store import WaywardStore

ELIMINATION = ("eliminate", frozenset("a"))
DECLARATION = ("create_session", frozenset("abcd"))


class Pair(NamedTuple):
    """A log that outlives its servers, and a store of tombstones beside it."""

    fixture: StoreFixture
    store: WaywardStore

    def server(self, **options: Any) -> BeliefServer:
        """A server that knows nothing yet: what a restart gives."""
        options.setdefault("audit_log", self.fixture.store())
        return self.fixture.open(store=self.store, **options)

    def log(self) -> Store:
        return self.fixture.store()


@pytest.fixture(params=PLACES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield Pair(fixture, WaywardStore())


@pytest.fixture
def released() -> Iterator[Event]:
    """Set when the test is over, so that no call hangs for good."""
    event = Event()
    yield event
    event.set()


def fail() -> NoReturn:
    raise ConnectionResetError("reset by peer")


def be_down() -> NoReturn:
    raise StoreUnavailable("maintenance")


def agree(pair: Pair, server: BeliefServer, session_id: str) -> None:
    """Server, log and store tell the same story, and nothing is in doubt."""
    snapshot = server.query_belief(session_id)
    assert verified(server, session_id) == snapshot
    assert pair.store.get_survivors(session_id) == frozenset(snapshot.survivors)
    assert pair.log().open_intents(10) == []


# --- a store that misbehaves ---


@pytest.mark.req("ARCH-2-SAGA-01")
@pytest.mark.parametrize(
    ("moment", "fault", "reason"),
    [("before", fail, "reset by peer"), ("after", fail, "reset by peer"), ("before", be_down, "maintenance")],
)
def test_a_store_that_fails_leaves_the_elimination_in_doubt_and_the_retry_drives_it_forward(
    pair: Pair, moment: str, fault: Callable[[], NoReturn], reason: str
) -> None:
    server = pair.server()
    session_id = declared(server)
    setattr(pair.store, moment, fault)
    with pytest.raises(StoreUnavailable, match=reason):
        server.eliminate(session_id, "s", "1", ["a"])
    assert server.query_belief(session_id).n_survivors == 4
    assert pair.log().open_intents(10) == [session_id]
    pair.store.heal()
    outcome = server.eliminate(session_id, "s", "1", ["a"])
    assert (outcome.applied_eliminated, outcome.snapshot.n_survivors) == (["a"], 3)
    assert pair.store.sent == [DECLARATION, ELIMINATION, ELIMINATION]
    agree(pair, server, session_id)
    assert server.eliminate(session_id, "s", "1", ["a"]) == outcome
    assert len(pair.store.sent) == 3


@pytest.mark.req("ARCH-2-SAGA-01")
def test_what_is_in_doubt_is_settled_before_anything_else_is_decided(pair: Pair) -> None:
    server = pair.server()
    session_id = declared(server)
    pair.store.after = fail
    with pytest.raises(StoreUnavailable):
        server.eliminate(session_id, "s", "1", ["a"])
    with pytest.raises(StoreUnavailable):
        server.enter_obligation(session_id, "gate", 1)
    pair.store.heal()
    server.enter_obligation(session_id, "gate", 1)
    assert [entry.verb for entry in server.audit_trace(session_id)] == [
        *("DECLARE_SESSION", "ELIMINATE", "ENTER_OBLIGATION"),
    ]
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-01")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_store_that_hangs_does_not_hang_the_server(pair: Pair, released: Event, moment: str) -> None:
    session_id = declared(pair.server())
    impatient = pair.server(store_timeout_seconds=0.01)
    setattr(pair.store, moment, released.wait)
    with pytest.raises(StoreUnavailable, match=r"did not answer in 0\.01 seconds"):
        impatient.eliminate(session_id, "s", "1", ["a"])
    assert impatient.query_belief(session_id).n_survivors == 4
    pair.store.heal()
    # With patience again: how soon a thread runs is not what is tested.
    server = pair.server()
    assert server.eliminate(session_id, "s", "1", ["a"]).snapshot.n_survivors == 3
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-01")
def test_an_answer_that_comes_when_all_is_settled_changes_nothing(pair: Pair) -> None:
    session_id = declared(pair.server())
    impatient, late = pair.server(store_timeout_seconds=0.01), Event()
    pair.store.answered.clear()

    def hang() -> None:
        late.wait()

    pair.store.before = hang
    with pytest.raises(StoreUnavailable):
        impatient.eliminate(session_id, "s", "1", ["a"])
    pair.store.heal()
    server = pair.server()
    server.eliminate(session_id, "s", "2", ["b"])
    before = server.query_belief(session_id)
    pair.store.answered.clear()
    late.set()
    pair.store.answered.wait()
    assert server.query_belief(session_id) == before
    assert before.survivors == ["c", "d"]
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-01")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Conflict("not here"), Conflict),
        # The log has the session: a store that does not know it is not there for us.
        (SessionNotFound("gone"), StoreUnavailable),
    ],
)
def test_what_the_store_refuses_did_not_happen_and_is_not_in_doubt(
    pair: Pair, error: Exception, expected: type[Exception]
) -> None:
    server = pair.server()
    session_id = declared(server)

    def refuse() -> NoReturn:
        raise error

    pair.store.before = refuse
    with pytest.raises(expected, match=r"not here|does not know the session"):
        server.eliminate(session_id, "s", "1", ["a"])
    agree(pair, server, session_id)
    pair.store.heal()
    assert server.eliminate(session_id, "s", "1", ["b"]).applied_eliminated == ["b"]
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-01")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_declaration_in_doubt_is_driven_forward_as_well(pair: Pair, moment: str) -> None:
    server = pair.server()
    setattr(pair.store, moment, fail)
    with pytest.raises(StoreUnavailable):
        server.declare_session(ONTOLOGY, [*"abcd"], idempotency_key="k")
    assert server.list_sessions() == []
    pair.store.heal()
    session_id = server.declare_session(ONTOLOGY, [*"abcd"], idempotency_key="k").session_id
    assert pair.store.sent == [DECLARATION, DECLARATION]
    assert [summary.session_id for summary in server.list_sessions()] == [session_id]
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-01")
def test_a_declaration_that_the_store_refuses_leaves_no_session(pair: Pair) -> None:
    server = pair.server()
    session_id = declared(server, idempotency_key="k")
    pair.store._universes[session_id] = frozenset("xyz")
    other = BeliefServer(store=pair.store)
    with pytest.raises(Conflict, match="another universe"):
        other.declare_session(ONTOLOGY, [*"abcd"], idempotency_key="k")
    with pytest.raises(SessionNotFound):
        other.query_belief(session_id)
    assert other.log.open_intents(1) == []


# --- a crash between any two steps ---


class Crash(Exception):
    """The process is gone."""


# The call of the log at which the process dies, and whether the store had been told by then.
STEPS: dict[str, tuple[str, Moment, int]] = {
    "before the intent": ("put_intent", Moment.BEFORE, 0),
    "after the intent": ("put_intent", Moment.AFTER, 0),
    "after the call": ("append", Moment.BEFORE, 1),
    "after the entry": ("append", Moment.AFTER, 1),
}
Act = Callable[[BeliefServer], Any]


def crash(pair: Pair, step: str, act: Act) -> int:
    """Let a server die on the way; how often the store was called."""
    method, moment, _ = STEPS[step]
    log = FailingLog(pair.log())
    server = pair.server(audit_log=log)
    already = len(pair.store.sent)
    log.fail(method, moment=moment, error=Crash())
    with pytest.raises(Crash):
        act(server)
    return len(pair.store.sent) - already


@pytest.mark.req("ARCH-2-SAGA-02")
@pytest.mark.parametrize("step", STEPS)
def test_after_a_crash_at_any_step_a_restart_drives_the_elimination_forward_once(pair: Pair, step: str) -> None:
    session_id = declared(pair.server())
    act: Act = lambda server: server.eliminate(session_id, "s", "1", ["a"])  # noqa: E731
    assert crash(pair, step, act) == STEPS[step][2]
    told = len(pair.store.sent)
    restarted = pair.server()
    in_doubt = step in {"after the intent", "after the call"}
    assert len(pair.store.sent) - told == in_doubt
    settled = 4 if step == "before the intent" else 3
    assert restarted.query_belief(session_id).n_survivors == settled
    agree(pair, restarted, session_id)
    # Settled: neither another restart nor a repeat sends it again.
    outcome = act(restarted)
    told = len(pair.store.sent)
    assert act(pair.server()) == outcome
    assert len(pair.store.sent) == told
    assert len(pair.log().read(session_id)) == 2
    agree(pair, restarted, session_id)


@pytest.mark.req("ARCH-2-SAGA-02")
@pytest.mark.parametrize("step", STEPS)
def test_after_a_crash_at_any_step_a_declaration_is_there_once(pair: Pair, step: str) -> None:
    act: Act = lambda server: server.declare_session(ONTOLOGY, [*"abcd"], idempotency_key="k")  # noqa: E731
    assert crash(pair, step, act) == STEPS[step][2]
    restarted = pair.server()
    assert len(restarted.list_sessions()) == (step != "before the intent")
    session_id = act(restarted).session_id
    assert act(pair.server()).session_id == session_id
    assert len(pair.log().read(session_id)) == 1
    agree(pair, restarted, session_id)


@pytest.mark.req("ARCH-2-SAGA-02")
def test_a_restart_does_not_wait_for_a_store_that_is_still_down(pair: Pair) -> None:
    session_id = declared(pair.server())
    crash(pair, "after the intent", lambda server: server.eliminate(session_id, "s", "1", ["a"]))
    pair.store.before = fail
    restarted = pair.server()
    assert restarted.query_belief(session_id).n_survivors == 4
    pair.store.heal()
    assert restarted.eliminate(session_id, "s", "2", ["b"]).snapshot.survivors == ["c", "d"]
    agree(pair, restarted, session_id)


# --- several servers ---


class Overtaken(FailingLog[Any]):
    """A log on which another writer does something right before a call."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.first: dict[str, Callable[[], object]] = {}

    def _other_writer(self, method: str) -> None:
        self.first.pop(method, lambda: None)()

    def put_intent(self, append: Append) -> None:
        """After another writer."""
        self._other_writer("put_intent")
        super().put_intent(append)

    def append(self, appends: Any) -> None:
        """After another writer."""
        self._other_writer("append")
        super().append(appends)

    def intent(self, stream_id: str) -> StoredEntry | None:
        """Before another writer: what is answered is already old."""
        found = super().intent(stream_id)
        self._other_writer("intent")
        return found


@pytest.mark.req("ARCH-2-SAGA-02")
def test_a_server_that_was_overtaken_decides_again(pair: Pair) -> None:
    log = Overtaken(pair.log())
    server, other = pair.server(audit_log=log), pair.server()
    session_id = declared(server)
    log.first["put_intent"] = lambda: other.eliminate(session_id, "s", "other", ["a", "b"])
    assert server.eliminate(session_id, "s", "mine", ["a", "c"]).applied_eliminated == ["c"]
    assert pair.store.sent[1:] == [("eliminate", frozenset("ab")), ("eliminate", frozenset("c"))]
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-02")
def test_an_intent_that_another_server_drove_forward_is_ours_all_the_same(pair: Pair) -> None:
    log = Overtaken(pair.log())
    server, other = pair.server(audit_log=log), pair.server()
    session_id = declared(server)
    log.first["append"] = lambda: other.enter_obligation(session_id, "gate", 0)
    outcome = server.eliminate(session_id, "s", "1", ["a"])
    trace = server.audit_trace(session_id)
    assert [entry.verb for entry in trace] == ["DECLARE_SESSION", "ELIMINATE", "ENTER_OBLIGATION"]
    assert trace[1].event_id == outcome.audit_event_id
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-02")
def test_an_intent_that_was_settled_while_we_looked_is_left_alone(pair: Pair) -> None:
    session_id = declared(pair.server())
    other = pair.server()
    crash(pair, "after the intent", lambda server: server.eliminate(session_id, "s", "1", ["a"]))
    log = Overtaken(pair.log())
    log.first["intent"] = lambda: other.enter_obligation(session_id, "gate", 0)
    server = pair.server(audit_log=log)
    assert pair.store.sent == [DECLARATION, ELIMINATION]
    agree(pair, server, session_id)


@pytest.mark.req("ARCH-2-SAGA-02")
def test_a_log_that_always_has_another_writer_in_front_is_unavailable(pair: Pair) -> None:
    log = FailingLog(pair.log())
    server = pair.server(audit_log=log)
    session_id = declared(server)
    for _ in range(16):
        log.fail("put_intent", error=StaleHead(session_id))
    with pytest.raises(StoreUnavailable, match="kept changing"):
        server.eliminate(session_id, "s", "1", ["a"])
    log.heal()
    assert server.eliminate(session_id, "s", "1", ["a"]).snapshot.n_survivors == 3


# --- an intent that is none ---


class Forged(FailingLog[Any]):
    """A log whose open intent was edited outside cmbs."""

    forgery: StoredEntry | None = None

    def intent(self, stream_id: str) -> StoredEntry | None:
        """The edited one."""
        return self.forgery or super().intent(stream_id)


@pytest.mark.req("ARCH-2-SAGA-01")
@pytest.mark.parametrize("raw", [b"nonsense", None])
def test_an_intent_that_does_not_verify_is_named_and_not_sent(pair: Pair, raw: bytes | None) -> None:
    log = Forged(pair.log())
    server = pair.server(audit_log=log)
    session_id = declared(server)
    crash(pair, "after the intent", lambda each: each.eliminate(session_id, "s", "1", ["a"]))
    intended = pair.log().intent(session_id)
    assert intended is not None
    log.forgery = StoredEntry(raw or intended.raw.replace(b'["a"]', b'["b"]'), intended.event_hash)
    with pytest.raises(LedgerCorrupt):
        server.eliminate(session_id, "s", "1", ["a"])
    assert pair.store.sent == [DECLARATION]
