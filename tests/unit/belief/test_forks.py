"""A fork begins as another session was, says so in its first event, and can be held against it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.audit.fsck import check_stream
from cmbs.audit.origins import check_origin
from cmbs.audit.transfer import export_lines, import_lines
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, EventNotFound, HeadMismatch, InvalidRequest, LedgerCorrupt, LimitExceeded
from cmbs.ledger import StoredEntry, canonical, hash_entry
from cmbs.messages import Actor, ActorKind, Origin
from cmbs.spi import AuditLog
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import History, ManualClock, SequentialIds, play
from cmbs.testing.strategies import belief as strategies
from tests.support.plain_store import PlainStore
from tests.support.store_fixture import BACKENDS, StoreFixture, declared, verified
from tests.support.subtests import for_each

TWO_EVENTS = 2


def lived(server: BeliefServer) -> str:
    """A session of five events, one of them a refusal."""
    session_id = declared(server, metadata={"incident": 7})
    server.eliminate(session_id, "s", "1", ["a"], idempotency_key="k")
    server.enter_obligation(session_id, "gate", 1)
    server.declare_conclusion(session_id, "b")
    server.eliminate(session_id, "t", "1", ["a", "b"])
    return session_id


@pytest.mark.req("FORK-01")
@pytest.mark.parametrize("place", BACKENDS)
def test_a_fork_believes_what_its_origin_did_and_then_goes_its_own_way(place: str, tmp_path: Path) -> None:
    with StoreFixture.at(place, tmp_path) as fixture:
        server = fixture.open()
        session_id = lived(server)
        trace = server.audit_trace(session_id)
        forked = server.fork_session(session_id, 3)
        assert forked.origin == Origin(session_id, 3, trace[3].event_hash, declared_by=(None,))
        own = server.audit_trace(forked.session_id)
        assert [entry.payload["origin"]["seq"] for entry in own[:1]] == [3]
        assert [entry.verb for entry in own] == [entry.verb for entry in trace[:4]]
        assert [entry.outcome for entry in own] == [entry.outcome for entry in trace[:4]]
        assert forked.snapshot.survivors == server.query_belief(session_id, at=3).survivors == ["b", "c", "d"]
        assert not {entry.event_id for entry in own} & {entry.event_id for entry in trace}
        server.eliminate(forked.session_id, "t", "1", ["c"])
        assert server.query_belief(forked.session_id).survivors == ["b", "d"]
        assert server.audit_trace(session_id) == trace
        assert verified(server, forked.session_id).survivors == ["b", "d"]
        assert check_origin(fixture.store(), forked.session_id, forked.origin) == (True, None)
        assert check_stream(fixture.store(), forked.session_id).findings == []


@pytest.mark.req("FORK-01")
@given(history=strategies.histories(), data=st.data())
def test_any_prefix_of_any_session_can_be_forked_and_the_fork_verifies(history: History, data: st.DataObject) -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())
    session_id, _ = play(server, history)
    seq = data.draw(st.integers(0, server.current_session(session_id).head.seq))
    forked = server.fork_session(session_id, seq)
    assert forked.snapshot.survivors == server.query_belief(session_id, at=seq).survivors
    session = verify_session(forked.session_id, store.read(forked.session_id), store.head(forked.session_id))
    assert (session.head.seq, session.origin) == (seq, forked.origin)
    assert check_origin(store, forked.session_id, forked.origin) == (True, None)
    again = server.fork_session(forked.session_id)
    assert again.origin.session_id == forked.session_id
    assert check_origin(store, again.session_id, again.origin) == (True, None)


def test_a_session_that_is_no_fork_records_no_origin() -> None:
    server = BeliefServer()
    assert "origin" not in server.audit_trace(declared(server))[0].payload


@pytest.mark.req("FORK-02")
def test_the_same_key_gives_the_same_fork_and_another_prefix_under_it_is_a_conflict() -> None:
    server = BeliefServer()
    session_id = lived(server)
    first = server.fork_session(session_id, 2, idempotency_key="once")
    server.eliminate(first.session_id, "u", "1", ["d"])
    assert server.fork_session(session_id, 2, idempotency_key="once") == first
    assert len(server.audit_trace(first.session_id)) == 4
    with pytest.raises(Conflict, match="used for another request"):
        server.fork_session(session_id, 1, idempotency_key="once")
    with pytest.raises(Conflict):
        declared(server, idempotency_key="once")
    assert server.fork_session(session_id, 2).session_id != first.session_id


@pytest.mark.req("FORK-02")
def test_callers_at_once_under_one_key_get_one_fork(tmp_path: Path) -> None:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        servers = [fixture.open() for _ in range(4)]
        session_id = lived(servers[0])
        found: list[str] = []

        def fork(server: BeliefServer) -> None:
            found.append(server.fork_session(session_id, 2, idempotency_key="once").session_id)

        threads = [Thread(target=fork, args=[server]) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == len(servers)
        assert len(set(found)) == 1
        assert len(servers[0].audit_trace(found[0])) == 3


@pytest.mark.req("FORK-02")
def test_a_fork_is_limited_and_refused_where_it_cannot_be_kept_whole() -> None:
    server = BeliefServer(limits=Limits(fork_events=TWO_EVENTS))
    session_id = lived(server)
    assert server.fork_session(session_id, 1).origin.seq == 1
    with pytest.raises(LimitExceeded) as caught:
        server.fork_session(session_id, 2)
    assert caught.value.details["limit"] == "fork_events"
    with pytest.raises(EventNotFound):
        server.fork_session(session_id, "nowhere")
    with pytest.raises(HeadMismatch):
        server.fork_session(session_id, 0, if_match="stale")
    with closing(BeliefServer(store=PlainStore())) as remote, pytest.raises(InvalidRequest, match="cannot be forked"):
        remote.fork_session(declared(remote))


def test_the_events_of_a_fork_are_of_the_caller_that_forked() -> None:
    server = BeliefServer()
    actor = Actor(ActorKind.AGENT, "forker", authenticated=True, key_id="k1")
    forked = server.fork_session(lived(server), actor=actor)
    assert {entry.actor and entry.actor["id"] for entry in server.audit_trace(forked.session_id)} == {"forker"}


class Failing(InMemoryStore):
    """A store whose appends fail once they have more than one entry."""

    def append(self, appends: object) -> None:
        if len(appends) > 1:  # type: ignore[arg-type]
            raise OSError("no space left")
        super().append(appends)  # type: ignore[arg-type]


def test_a_fork_that_cannot_be_written_leaves_no_trace() -> None:
    store = Failing()
    server = BeliefServer(store=store)
    session_id = lived(server)
    with pytest.raises(OSError, match="no space"):
        server.fork_session(session_id)
    assert [summary.session_id for summary in store.sessions(None, 10)] == [session_id]


def rewrite_window(store: InMemoryStore, session_id: str, first: int, last: int) -> None:
    """Have event `first` say something else, and link and hash all up to `last` anew: only the next one tells."""
    entries = store._streams[session_id].entries
    for seq in range(first, last + 1):
        content = {**json.loads(entries[seq].raw), "prev_event_hash": entries[seq - 1].event_hash.hex()}
        if seq == first:
            content["payload"]["eliminated"] = ["d"]
        raw = canonical.encode(content, 80)
        entries[seq] = StoredEntry(raw, hash_entry(raw))


@pytest.mark.req("FORK-02")
def test_a_window_that_was_rewritten_and_chained_again_cannot_be_forked_from() -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store)
    session_id = lived(server)
    rewrite_window(store, session_id, 1, 3)
    for at in (1, 2, 3):
        with pytest.raises(LedgerCorrupt, match=r"bad at seq 1: its hash is .* was verified"):
            server.fork_session(session_id, at)
    with pytest.raises(LedgerCorrupt):
        server.fork_session(session_id, 1, idempotency_key="once")
    assert [summary.session_id for summary in store.sessions(None, 10)] == [session_id]


# --- what verification says of a fork ---


def forge(log: AuditLog, session_id: str, **changes: object) -> list[StoredEntry]:
    """The first entry of a fork with another origin."""
    content = json.loads(log.read(session_id)[0].raw)
    content["payload"]["origin"].update(changes)
    raw = canonical.encode(content, 80)
    return [StoredEntry(raw, hash_entry(raw))]


@pytest.mark.req("FORK-03")
def test_a_fork_that_does_not_repeat_its_origin_is_found() -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store)
    session_id = lived(server)
    forked = server.fork_session(session_id, 2)
    wrong = {
        "another hash": forked.origin.__class__(session_id, 2, "0" * 64),
        "beyond": Origin(session_id, 9, forked.origin.event_hash),
        "a longer prefix than it has": Origin(session_id, 4, server.audit_trace(session_id)[4].event_hash),
    }
    for origin in wrong.values():
        found, problem = check_origin(store, forked.session_id, origin)
        assert found
        assert problem is not None
    other = server.fork_session(lived(server), 2)
    twin = declared(server)
    for number in range(2):
        server.declare_conclusion(twin, str(number))
    trace = server.audit_trace(twin)
    _, problem = check_origin(store, other.session_id, Origin(twin, 2, trace[2].event_hash))
    assert problem is not None
    assert "event 0 is not that of its origin" in problem


@pytest.mark.req("FORK-03")
def test_an_origin_that_is_elsewhere_is_said_to_be_and_a_damaged_one_is_told() -> None:
    store, target = InMemoryStore(), InMemoryStore()
    server = BeliefServer(store=store)
    session_id = lived(server)
    forked = server.fork_session(session_id, 2)
    list(import_lines(BeliefServer(store=target), export_lines(store, [forked.session_id])))
    assert check_origin(target, forked.session_id, forked.origin) == (False, None)
    assert check_stream(target, forked.session_id).findings == []
    del store._streams[session_id].entries[1]
    assert "its origin cannot be read" in str(check_origin(store, forked.session_id, forked.origin).problem)
    assert len(check_stream(store, forked.session_id).findings) == 1


@pytest.mark.req("FORK-03")
@for_each("changes", [{"event_hash": "xyz"}, {"seq": -1}, {"more": 1}, {"event_hash": "A" * 64}])
def test_an_origin_that_is_none_does_not_verify(changes: dict[str, object]) -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store)
    forked = server.fork_session(declared(server))
    with pytest.raises(LedgerCorrupt):
        verify_session(forked.session_id, forge(store, forked.session_id, **changes))
