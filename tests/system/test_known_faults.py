"""One test, or a few, for each fault that systems of this kind are known for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.survivors import Universe, commitment
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, LedgerCorrupt, StoreUnavailable
from cmbs.ledger import Head, from_audit_entry, verify_chain
from cmbs.messages import AuditEntry
from cmbs.spi import RecoveredState
from cmbs.testing import FailingStore, ManualClock, SequentialIds
from cmbs.testing.strategies import belief as strategies
from tests.support.forgery import tamper
from tests.support.store_fixture import ONTOLOGY, PLACES, StoreFixture, declared, tampering, verified

GUARDS = ("audit_events_no_update", "audit_events_no_delete", "sessions_only_forward", "tombstones_no_delete")


@pytest.fixture(params=PLACES)
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield fixture


@pytest.fixture
def server(fixture: StoreFixture) -> BeliefServer:
    return fixture.open()


# --- keys joined into one string ---


@pytest.mark.req("ARCH-5-RULE-03")
def test_observations_whose_parts_join_to_the_same_text_are_two(server: BeliefServer) -> None:
    session_id = declared(server)
    first = server.eliminate(session_id, "a::b", "c", ["a"])
    second = server.eliminate(session_id, "a", "b::c", ["b"])
    assert (first.applied_eliminated, second.applied_eliminated) == (["a"], ["b"])
    assert first.audit_event_id != second.audit_event_id
    assert server.eliminate(session_id, "a::b", "c", ["a"]) == first
    with pytest.raises(Conflict):
        server.eliminate(session_id, "a", "b::c", ["a"])


@pytest.mark.req("ARCH-5-RULE-03")
@given(
    text=strategies.ids(6),
    separator=st.sampled_from(["::", "/", "|", "\x00", "\n", ":", " ", "", '","']),
    cuts=st.tuples(st.integers(0, 6), st.integers(0, 6)),
)
def test_wherever_a_text_is_cut_in_two_the_parts_are_another_observation(
    text: str, separator: str, cuts: tuple[int, int]
) -> None:
    pieces = separator.join(text)
    first, second = ((pieces[:cut], pieces[cut:]) for cut in cuts)
    assume(first != second)
    server = BeliefServer()
    session_id = declared(server, "ab")
    assert server.eliminate(session_id, *first, ["a"]).applied_eliminated == ["a"]
    assert server.eliminate(session_id, *second, ["b"]).applied_eliminated == ["b"]


# --- memory ahead of a failed store ---


@pytest.mark.req("ARCH-2-03")
def test_a_failed_write_does_not_count_as_an_observation_a_conclusion_or_an_obligation(fixture: StoreFixture) -> None:
    store = FailingStore(fixture.store())
    server = fixture.open(store=store)
    session_id = declared(server)
    attempts: list[Callable[[], Any]] = [
        lambda: server.eliminate(session_id, "s", "o", ["a"]),
        lambda: server.enter_obligation(session_id, "gate", 3),
        lambda: server.declare_conclusion(session_id, "c", idempotency_key="k"),
        lambda: server.declare_session(ONTOLOGY, ["a"], idempotency_key="k"),
    ]
    for attempt in attempts:
        store.fail("append")
        with pytest.raises(StoreUnavailable):
            attempt()
    assert len(server.list_sessions()) == 1
    # Each with another content, which would be a conflict had the failed attempt left anything behind.
    assert server.declare_conclusion(session_id, "d", idempotency_key="k").accepted
    assert server.enter_obligation(session_id, "gate", 0).snapshot.active_obligation_id == "gate"
    assert server.eliminate(session_id, "s", "o", ["b"]).snapshot.survivors == ["a", "c", "d"]
    assert server.declare_session(ONTOLOGY, ["b"], idempotency_key="k").snapshot.survivors == ["b"]
    assert verified(server, session_id) == server.query_belief(session_id)


# --- a forged log ---


def eventful(server: BeliefServer) -> tuple[str, list[AuditEntry], RecoveredState]:
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"], {"why": "seen"})
    server.eliminate(session_id, "s", "2", ["b"])
    server.enter_obligation(session_id, "gate", 9)
    server.request_exit(session_id, "gate")
    state = RecoveredState(frozenset("abcd"), frozenset("ab"), frozenset("cd"))
    return session_id, server.audit_trace(session_id), state


@pytest.mark.req("BS-6.5-SERVER-04")
def test_another_history_that_is_sound_in_itself_is_a_conflict_where_the_true_one_is_known(
    fixture: StoreFixture,
) -> None:
    true, other = fixture.open(), BeliefServer(clock=ManualClock(), ids=SequentialIds())
    session_id = declared(true)
    assert declared(other) == session_id
    true.eliminate(session_id, "s", "1", ["a"], {"why": "seen"})
    other.eliminate(session_id, "s", "1", ["a"], {"why": "told"})
    entries, rewritten = true.audit_trace(session_id), other.audit_trace(session_id)
    assert [entry.event_id for entry in rewritten] == [entry.event_id for entry in entries]
    state = RecoveredState(frozenset("abcd"), frozenset("a"), frozenset("bcd"))
    with pytest.raises(Conflict):
        true.restore_session(session_id, state, rewritten)
    assert true.audit_trace(session_id) == entries
    true.restore_session(session_id, state, entries)


# --- history that callers can reach ---


@pytest.mark.req("BS-2.1-AUDIT-04")
def test_what_was_passed_in_can_be_changed_afterwards_without_changing_history(fixture: StoreFixture) -> None:
    server = fixture.open()
    hypotheses, metadata = ["a", "b", "c"], {"nested": {"list": [1]}}
    session_id, _ = server.declare_session(ONTOLOGY, hypotheses, metadata)
    eliminated, justification = ["a"], {"nested": {"list": [1]}}
    context: dict[str, Any] = {"force": False}
    server.eliminate(session_id, "s", "o", eliminated, justification)
    server.request_termination(session_id, context)
    before = server.audit_trace(session_id)
    hypotheses.append("d")
    eliminated.append("b")
    for own in (metadata, justification):
        own["nested"]["list"].append(2)
        own["more"] = {}
    context["force"] = True
    for asked in (server, fixture.open()):
        assert asked.audit_trace(session_id) == before
        assert asked.query_belief(session_id).survivors == ["b", "c"]
    assert before[1].payload["justification"] == {"nested": {"list": [1]}}


@pytest.mark.req("BS-2.1-AUDIT-04")
def test_what_was_handed_out_can_be_changed_without_changing_history(server: BeliefServer) -> None:
    session_id = declared(server)
    outcome = server.eliminate(session_id, "s", "o", ["a", "z"], {"nested": [1]})
    pristine = server.audit_trace(session_id)
    outcome.applied_eliminated.append("b")
    outcome.ignored_eliminated.clear()
    outcome.snapshot.survivors.append("a")
    outcome.snapshot.to_dict()["survivors"].clear()
    handed_out = server.audit_trace(session_id)
    handed_out[1].payload["justification"]["nested"].append(2)
    handed_out[1].payload["eliminated"].append("b")
    handed_out[1].delta_eliminated.append("b")
    handed_out[1].delta["eliminated"].append("b")
    handed_out[0].payload["hypotheses"].clear()
    handed_out.clear()
    server.survivors(session_id).survivors.clear()
    server.list_sessions().clear()
    server.obligations(session_id).append(("x", "active", 1, 0))  # type: ignore[arg-type]
    assert server.audit_trace(session_id) == pristine
    assert server.query_belief(session_id).survivors == ["b", "c", "d"]
    again = server.eliminate(session_id, "s", "o", ["a", "z"])
    assert (again.applied_eliminated, again.ignored_eliminated) == (["a"], ["z"])
    assert outcome.snapshot.survivors == ["b", "c", "d"]
    assert verified(server, session_id) == again.snapshot


# --- hashing without frames ---


def hash_joined(*parts: str) -> str:
    """What the fault looks like."""
    return sha256("".join(parts).encode()).hexdigest()


@pytest.mark.req("LED-3-SURV-02")
def test_survivor_sets_that_join_to_the_same_text_have_different_commitments(fixture: StoreFixture) -> None:
    assert hash_joined("ab", "c") == hash_joined("a", "bc")
    sets = [["ab", "c"], ["a", "bc"], ["abc"], ["a\nb"], ["a", "b"], ["a,b"], ["", "ab"], ["ab"], ["a", "b", ""]]
    roots = {Universe.of(each).compute_root() for each in sets}
    assert len(roots) == len(sets)
    hashes = set()
    for hypotheses in sets:
        # The same ids and time for each, so that nothing but the hypotheses differs.
        server = BeliefServer(clock=ManualClock(), ids=SequentialIds())
        hashes.add(server.audit_trace(declared(server, hypotheses))[0].event_hash)
    assert len(hashes) == len(sets)


@pytest.mark.req("LED-3-SURV-02")
@given(text=st.text(st.sampled_from("ab0"), min_size=2, max_size=6), cut=st.integers(0, 5))
def test_moving_the_boundary_between_session_and_previous_hash_moves_the_commitment(text: str, cut: int) -> None:
    assume(cut < len(text))
    root = bytes(32)
    whole = commitment(text, bytes(32), root)
    moved = commitment(text[:cut], text[cut:].encode() + bytes(32 - len(text[cut:].encode())), root)
    assert whole != moved


# --- forks ---


@pytest.mark.req("BS-5.2-CONC-03")
def test_two_servers_that_write_at_once_leave_one_line_of_history(fixture: StoreFixture) -> None:
    session_id = declared(fixture.open(), [str(number) for number in range(64)])
    servers = [fixture.open() for _ in range(4)]

    def write(number: int) -> str:
        return servers[number % 4].eliminate(session_id, "s", str(number), [str(number)]).audit_event_id

    with ThreadPoolExecutor(16) as pool:
        acknowledged = list(pool.map(write, range(64)))
    entries = fixture.open().audit_trace(session_id)
    assert [entry.seq for entry in entries] == list(range(65))
    assert {entry.event_id for entry in entries[1:]} == {*acknowledged}
    assert len({entry.prev_event_hash for entry in entries}) == 65
    assert verified(servers[0], session_id).survivors == []


# --- a tail that was cut off ---


@pytest.mark.req("LED-3-VERIFY-07")
def test_a_log_without_its_tail_verifies_alone_and_not_against_the_recorded_head(server: BeliefServer) -> None:
    session_id, entries, _ = eventful(server)
    stored = [from_audit_entry(entry) for entry in entries]
    head = server.log.head(session_id)
    assert head == Head(4, stored[-1].event_hash)
    assert verify_session(session_id, stored, head).head == verify_chain(session_id, stored, head) == head
    for length in range(1, 5):
        short = stored[:length]
        assert verify_session(session_id, short).head.seq == length - 1
        with pytest.raises(LedgerCorrupt, match="recorded head"):
            verify_session(session_id, short, head)
        with pytest.raises(LedgerCorrupt, match="recorded head"):
            verify_chain(session_id, short, head)


@pytest.mark.req("LED-3-VERIFY-07", "BS-6.5-SERVER-04")
def test_a_log_without_its_tail_does_not_fit_the_recovered_state(server: BeliefServer) -> None:
    session_id, entries, state = eventful(BeliefServer())
    with pytest.raises(LedgerCorrupt, match="recovered"):
        server.restore_session(session_id, state, entries[:2])
    assert server.list_sessions() == []


@pytest.mark.req("LED-3-VERIFY-07")
def test_a_stored_log_without_its_tail_is_not_served(tmp_path: Path) -> None:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        session_id, *_ = eventful(fixture.open())
        fixture.close()
        with tampering(fixture.path, *GUARDS) as database:
            database.execute("DELETE FROM audit_events WHERE seq > 2")
        with pytest.raises(LedgerCorrupt):
            fixture.open().query_belief(session_id)


# --- time ---


@pytest.mark.req("LED-3-ENC-04")
@pytest.mark.parametrize(
    "moment", ["2026-03-29T01:59:59.999999Z", "2026-01-01T00:00:00.000000Z", "1999-12-31T23:59:59.000001Z"]
)
def test_time_is_hashed_at_the_grain_at_which_it_is_stored(fixture: StoreFixture, moment: str) -> None:
    fixture.clock.set(moment)
    server = fixture.open()
    session_id = declared(server)
    fresh = fixture.open()
    (stored,) = fresh.log.read(session_id)
    (entry,) = fresh.audit_trace(session_id)
    assert entry.ts == json.loads(stored.raw)["ts"] == moment == fresh.list_sessions()[0].created_ts
    assert sha256(b"\x00" + stored.raw).digest() == stored.event_hash
    assert from_audit_entry(entry) == stored


@pytest.mark.req("LED-3-ENC-04")
def test_a_microsecond_more_is_another_log(server: BeliefServer) -> None:
    session_id, entries, state = eventful(BeliefServer(clock=ManualClock("2026-01-01T00:00:00.000000Z")))
    moved = tamper(entries, lambda log: log[0].update(ts="2026-01-01T00:00:00.000001Z"))
    with pytest.raises(LedgerCorrupt, match="event_hash"):
        server.restore_session(session_id, state, moved)
    assert server.list_sessions() == []
