"""Every verb of the belief protocol through `BeliefServer`, over memory and over SQLite."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import (
    Conflict,
    EventNotFound,
    InvalidHypothesisId,
    ObligationNotFound,
    SessionNotFound,
    SessionTerminated,
)
from cmbs.messages import (
    AuditEntry,
    SessionPolicy,
)
from cmbs.testing import SequentialIds
from tests.support.store_fixture import (
    NO_SUCH_SESSION,
    ONTOLOGY,
    StoreFixture,
    declared,
    last_entry,
    verbs,
    verified,
)
from tests.support.subtests import for_each

Verbs = dict[str, Callable[[BeliefServer, str], Any]]

WRITING_VERBS: Verbs = {
    "eliminate": lambda server, session_id: server.eliminate(session_id, "s", "late", ["a"]),
    "enter_obligation": lambda server, session_id: server.enter_obligation(session_id, "late", 1),
    "request_exit": lambda server, session_id: server.request_exit(session_id, "late"),
    "declare_conclusion": lambda server, session_id: server.declare_conclusion(session_id, "late"),
    "request_termination": lambda server, session_id: server.request_termination(session_id),
}
READING_VERBS: Verbs = {
    "query_belief": lambda server, session_id: server.query_belief(session_id),
    "audit_trace": lambda server, session_id: server.audit_trace(session_id),
    "survivors": lambda server, session_id: server.survivors(session_id),
    "obligations": lambda server, session_id: server.obligations(session_id),
}


@pytest.fixture
def server(fixture: StoreFixture) -> BeliefServer:
    return fixture.open()


def terminated(server: BeliefServer) -> str:
    session_id = declared(server, "ab")
    server.eliminate(session_id, "s", "o", ["a"])
    assert server.request_termination(session_id).approved
    return session_id


# --- the fixed shapes ---


@pytest.mark.req("BS-6.5-SERVER-02")
@for_each(
    ("method", "parameters"),
    [
        ("__init__", ["validate_hypotheses", "belief_provider", "store"]),
        ("declare_session", ["ontology", "hypotheses", "metadata"]),
        ("eliminate", ["session_id", "source_id", "observation_id", "eliminated", "justification"]),
        ("apply_probe", ["session_id", "probe_id", "response", "source_id"]),
        ("query_belief", ["session_id"]),
        ("audit_trace", ["session_id", "since_event_id"]),
        ("enter_obligation", ["session_id", "obligation_id", "min_total_eliminations"]),
        ("request_exit", ["session_id", "obligation_id", "context"]),
        ("declare_conclusion", ["session_id", "conclusion_id", "context"]),
        ("request_termination", ["session_id", "context"]),
        ("restore_session", ["session_id", "recovered", "audit_events"]),
    ],
)
def test_the_positional_parameters_are_the_fixed_ones_and_all_others_are_optional_keywords(
    method: str, parameters: list[str]
) -> None:
    signature = inspect.signature(getattr(BeliefServer, method))
    found = [each for each in signature.parameters.values() if each.name != "self"]
    assert [each.name for each in found if each.kind is not each.KEYWORD_ONLY] == parameters
    assert all(each.default is not each.empty for each in found if each.kind is each.KEYWORD_ONLY)


@pytest.mark.req("BS-6.5-SERVER-01")
def test_outcomes_unpack(server: BeliefServer) -> None:
    session_id, snapshot = server.declare_session(ONTOLOGY, ["a", "b", "c"])
    assert (snapshot.session_id, snapshot.survivors) == (session_id, ["a", "b", "c"])
    applied, ignored, snapshot, event_id = server.eliminate(session_id, "s", "o", ["a", "z"])
    assert (applied, ignored, snapshot.survivors) == (["a"], ["z"], ["b", "c"])
    assert event_id == snapshot.audit_head_event_id
    snapshot, event_id = server.enter_obligation(session_id, "gate", 0)
    assert (snapshot.active_obligation_id, snapshot.audit_head_event_id) == ("gate", event_id)
    approved, reason, snapshot, event_id = server.request_exit(session_id, "gate")
    assert (approved, reason, snapshot.audit_head_event_id) == (True, "approved", event_id)
    accepted, reason, snapshot, event_id = server.declare_conclusion(session_id, "b")
    assert (accepted, reason, snapshot.audit_head_event_id) == (True, "accepted", event_id)
    approved, reason, snapshot, event_id = server.request_termination(session_id)
    assert (approved, reason, snapshot.audit_head_event_id) == (False, "not_singleton", event_id)
    assert verified(server, session_id) == snapshot


@pytest.mark.req("BS-6.5-SERVER-02")
def test_a_server_without_arguments_works_in_memory() -> None:
    server = BeliefServer()
    session_id = declared(server)
    assert server.query_belief(session_id).survivors == ["a", "b", "c", "d"]
    server.close()


# --- DECLARE_SESSION ---


@pytest.mark.req("BS-2.1-DECLARE-01", "BS-4.2-SORT-01")
@pytest.mark.parametrize("many", [list, tuple, iter, frozenset], ids=["list", "tuple", "iterator", "frozenset"])
def test_the_survivors_of_a_new_session_are_its_hypotheses_merged_and_sorted(
    server: BeliefServer, many: Callable[[list[str]], Any]
) -> None:
    _, snapshot = server.declare_session(ONTOLOGY, many(["c", "a", "b", "a", "B", "é", "😀", "\uffff"]))
    assert snapshot.survivors == ["B", "a", "b", "c", "é", "\uffff", "😀"]


@pytest.mark.req("BS-2.1-DECLARE-02", "BS-2.1-DECLARE-03", "BS-1.1-MODEL-02")
def test_a_declaration_is_the_first_entry_and_its_ids_and_time_are_the_injected_ones(fixture: StoreFixture) -> None:
    fixture.clock.set("2026-02-03T04:05:06.000007Z")
    server = fixture.open()
    expected = SequentialIds()
    first, second = declared(server), declared(server)
    assert [first, server.audit_trace(first)[0].event_id, second] == [expected.new_id() for _ in range(3)]
    (entry,) = server.audit_trace(first)
    assert (entry.seq, entry.verb, entry.prev_event_hash) == (0, "DECLARE_SESSION", "0" * 64)
    assert entry.ts == "2026-02-03T04:05:06.000007Z"
    assert entry.payload["ontology"] == ONTOLOGY.to_dict()
    assert server.query_belief(first).ontology == ONTOLOGY


@pytest.mark.req("BS-2.1-DECLARE-05")
def test_the_policy_is_recorded_and_governs_a_session_also_under_a_server_with_another_default(
    fixture: StoreFixture,
) -> None:
    strict = fixture.open(validate_hypotheses=True)
    by_default, by_choice = declared(strict), declared(strict, policy=SessionPolicy(validate_hypotheses=False))
    lax = fixture.open()
    assert lax.audit_trace(by_default)[0].payload["policy"]["validate_hypotheses"] is True
    with pytest.raises(InvalidHypothesisId):
        lax.eliminate(by_default, "s", "o", ["z"])
    assert strict.eliminate(by_choice, "s", "o", ["z"]).ignored_eliminated == ["z"]
    assert lax.default_policy(allow_force=True) == SessionPolicy(allow_force=True)
    assert strict.default_policy() == SessionPolicy(validate_hypotheses=True)


# --- ELIMINATE ---


@pytest.mark.req("ARCH-5-RULE-01", "BS-4.1-IDEM-01")
def test_the_same_observation_gives_the_first_result_whatever_happened_since(fixture: StoreFixture) -> None:
    server = fixture.open()
    session_id = declared(server)
    first = server.eliminate(session_id, "s", "o", ["a", "z"], {"n": 1})
    server.eliminate(session_id, "s", "other", ["b"])
    for asked in (server, fixture.open()):
        again = asked.eliminate(session_id, "s", "o", ["z", "a", "a"], {"n": 2})
        assert again == first
        assert again.snapshot.survivors == ["b", "c", "d"]
    assert verbs(server, session_id) == ["DECLARE_SESSION", "ELIMINATE", "ELIMINATE"]
    server.eliminate(session_id, "s", "last", ["c"])
    assert server.request_termination(session_id).approved
    assert server.eliminate(session_id, "s", "o", ["a", "z"]) == first


# --- refusals and errors: the rules themselves are tests of the kernel ---


@pytest.mark.req("BS-2.1-EXIT-02", "BS-2.1-CONCL-02", "BS-2.1-TERM-02", "BS-2.1-TERM-06")
def test_a_refusal_is_answered_and_recorded_with_its_reason_and_its_context(server: BeliefServer) -> None:
    session_id, gated = declared(server), declared(server)
    server.enter_obligation(gated, "gate", 1)
    refusals: list[tuple[str, dict[str, Any], tuple[Any, ...], str]] = [
        (gated, {"obligation_id": "gate"}, server.request_exit(gated, "gate", {"n": 1}), "below_threshold"),
        (gated, {"conclusion_id": "a"}, server.declare_conclusion(gated, "a", {"n": 1}), "obligation_active"),
        (gated, {}, server.request_termination(gated, {"n": 1}), "obligation_active"),
        (session_id, {}, server.request_termination(session_id, {"n": 1}), "not_singleton"),
    ]
    entries = {entry.event_id: entry for each in (session_id, gated) for entry in server.audit_trace(each)}
    for target, payload, (granted, reason, snapshot, event_id), expected in refusals:
        assert (granted, reason, snapshot.session_id, snapshot.terminated) == (False, expected, target, False)
        assert entries[event_id].payload == {**payload, "context": {"n": 1}}
        assert (entries[event_id].outcome or {})["reason"] == expected
    assert server.request_termination(session_id, {"force": True}).reason == "not_singleton"
    assert "force" in (last_entry(server, session_id).notes or "")
    assert server.obligations(gated) == [("gate", "active", 1, 0)]


@pytest.mark.req("BS-2.1-ENTER-03", "BS-2.1-EXIT-04", "ARCH-5-RULE-02", "BS-3.2-ERR-04")
@pytest.mark.parametrize(
    ("error", "act"),
    [
        (Conflict, lambda server, session_id: server.enter_obligation(session_id, "gate", 5)),
        (Conflict, lambda server, session_id: server.eliminate(session_id, "s", "o", ["b"])),
        (ObligationNotFound, lambda server, session_id: server.request_exit(session_id, "late")),
        (InvalidHypothesisId, lambda server, session_id: server.eliminate(session_id, "s", "new", ["b", "z"])),
    ],
)
def test_a_request_that_fails_with_an_error_is_not_recorded(
    fixture: StoreFixture, error: type[Exception], act: Callable[[BeliefServer, str], Any]
) -> None:
    server = fixture.open(validate_hypotheses=True)
    session_id = declared(server)
    server.enter_obligation(session_id, "gate", 0)
    before = server.eliminate(session_id, "s", "o", ["a"]).snapshot
    with pytest.raises(error):
        act(server, session_id)
    assert verified(fixture.open(), session_id) == server.query_belief(session_id) == before


# --- what every verb has in common ---


@pytest.mark.req("BS-3.2-ERR-02")
@for_each("verb", [*WRITING_VERBS, *READING_VERBS])
def test_every_verb_on_an_unknown_session_is_session_not_found(server: BeliefServer, verb: str) -> None:
    session_id = declared(server)
    before = server.list_sessions()
    with pytest.raises(SessionNotFound) as missing:
        (WRITING_VERBS | READING_VERBS)[verb](server, NO_SUCH_SESSION)
    assert missing.value.details.items() >= {"session_id": NO_SUCH_SESSION}.items()
    assert server.list_sessions() == before
    assert len(server.audit_trace(session_id)) == 1


@pytest.mark.req("BS-3.2-ERR-03")
@pytest.mark.parametrize("verb", WRITING_VERBS)
def test_a_terminated_session_takes_no_writing_verb(fixture: StoreFixture, verb: str) -> None:
    server = fixture.open()
    session_id = terminated(server)
    before = server.query_belief(session_id)
    for asked in (server, fixture.open()):
        with pytest.raises(SessionTerminated) as ended:
            WRITING_VERBS[verb](asked, session_id)
        assert ended.value.details.items() >= {"session_id": session_id}.items()
        assert asked.query_belief(session_id) == before
    assert before.terminated


@pytest.mark.req("BS-2.1-QUERY-02", "BS-3.2-ERR-03")
@pytest.mark.parametrize("verb", READING_VERBS)
def test_reading_leaves_no_trace_and_works_after_the_end(server: BeliefServer, verb: str) -> None:
    session_id = terminated(server)
    head = server.log.head(session_id)
    READING_VERBS[verb](server, session_id)
    assert server.log.head(session_id) == head


@pytest.mark.req("BS-2.1-AUDIT-01", "BS-2.1-AUDIT-02", "BS-2.1-AUDIT-03", "BS-1.1-MODEL-03")
def test_the_audit_trace_is_the_whole_log_or_what_came_after_an_event(server: BeliefServer) -> None:
    session_id, other = declared(server), declared(server)
    server.eliminate(session_id, "s", "1", ["a"])
    server.enter_obligation(session_id, "gate", 0)
    entries = server.audit_trace(session_id)
    assert [entry.seq for entry in entries] == [0, 1, 2]
    for position, entry in enumerate(entries):
        assert server.audit_trace(session_id, entry.event_id) == entries[position + 1 :]
        assert AuditEntry.from_dict(entry.to_dict()) == entry
    assert server.audit_trace(session_id, limit=2) == entries[:2]
    assert server.audit_trace(session_id, entries[0].event_id, limit=1) == entries[1:2]
    for unknown in ("", "unknown", NO_SUCH_SESSION, server.audit_trace(other)[0].event_id):
        with pytest.raises(EventNotFound):
            server.audit_trace(session_id, unknown)


@pytest.mark.req("BS-4.1-EQUIV-01")
def test_a_clock_that_is_turned_back_disturbs_nothing(fixture: StoreFixture) -> None:
    fixture.clock.set("2030-01-01T00:00:00.000000Z")
    server = fixture.open()
    session_id = declared(server)
    fixture.clock.set("1999-12-31T23:59:59.999999Z")
    server.eliminate(session_id, "s", "o", ["a"])
    earlier = declared(server)
    assert [entry.ts[:4] for entry in server.audit_trace(session_id)] == ["2030", "1999"]
    assert [summary.session_id for summary in fixture.open().list_sessions()] == [earlier, session_id]
    assert verified(fixture.open(), session_id).survivors == ["b", "c", "d"]
