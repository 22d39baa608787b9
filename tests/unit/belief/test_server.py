"""Every verb of the belief protocol through `BeliefServer`, over memory and over SQLite."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import (
    BeliefServerError,
    Conflict,
    EventNotFound,
    InvalidHypothesisId,
    ObligationNotFound,
    SessionNotFound,
    SessionTerminated,
)
from cmbs.messages import (
    AuditEntry,
    ConclusionOutcome,
    DeclareOutcome,
    EliminateOutcome,
    EnterOutcome,
    ExitOutcome,
    OntologyBundle,
    SessionPolicy,
    TerminationOutcome,
)
from cmbs.testing import ManualClock, SequentialIds
from tests.support.store_fixture import (
    NO_SUCH_SESSION,
    ONTOLOGY,
    StoreFixture,
    declared,
    last_entry,
    verbs,
    verified,
)

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
@pytest.mark.parametrize(
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
@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        (DeclareOutcome, ("session_id", "snapshot")),
        (EliminateOutcome, ("applied_eliminated", "ignored_eliminated", "snapshot", "audit_event_id")),
        (EnterOutcome, ("snapshot", "audit_event_id")),
        (ExitOutcome, ("approved", "reason", "snapshot", "audit_event_id")),
        (ConclusionOutcome, ("accepted", "reason", "snapshot", "audit_event_id")),
        (TerminationOutcome, ("approved", "reason", "snapshot", "audit_event_id")),
    ],
)
def test_outcomes_have_their_fields_in_the_order_of_the_specification(outcome: Any, fields: tuple[str, ...]) -> None:
    assert outcome._fields == fields
    assert issubclass(outcome, tuple)


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


@pytest.mark.req("BS-1.1-MODEL-02", "BS-2.1-DECLARE-04")
def test_ontology_and_metadata_are_kept_as_given_and_not_interpreted(server: BeliefServer) -> None:
    odd = OntologyBundle("", " ", "not a url \n", "😀")
    metadata = {"force": True, "hypotheses": ["z"], "nested": {"": [None, 1.5, "é"]}}
    session_id, _ = server.declare_session(odd, ["a"], metadata)
    assert server.query_belief(session_id).ontology == odd
    assert server.audit_trace(session_id)[0].payload["metadata"] == metadata
    assert server.query_belief(session_id).survivors == ["a"]


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


@pytest.mark.req("BS-2.1-ELIM-01", "BS-2.1-ELIM-02", "BS-2.1-ELIM-03", "BS-2.1-ELIM-06", "ARCH-5-RULE-04")
def test_an_elimination_applies_what_survives_and_ignores_the_rest(server: BeliefServer) -> None:
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["b"])
    outcome = server.eliminate(session_id, "s", "2", ["z", "d", "b", "a", "d"], {"why": "seen"})
    assert outcome.applied_eliminated == ["a", "d"]
    assert outcome.ignored_eliminated == ["b", "z"]
    assert outcome.snapshot.survivors == ["c"]
    entry = last_entry(server, session_id)
    assert (entry.event_id, entry.delta) == (outcome.audit_event_id, {"eliminated": ["a", "d"]})
    assert entry.payload["eliminated"] == ["a", "b", "d", "z"]
    assert (entry.payload["source_id"], entry.payload["observation_id"]) == ("s", "2")
    assert (entry.payload["justification"], entry.outcome, entry.notes) == ({"why": "seen"}, None, None)
    assert entry.survivors_before_hash != entry.survivors_after_hash


@pytest.mark.req("BS-2.1-ELIM-07", "BS-2.1-ELIM-05")
@pytest.mark.parametrize("eliminated", [[], ["unknown"]])
def test_an_elimination_of_nothing_is_recorded(server: BeliefServer, eliminated: list[str]) -> None:
    session_id = declared(server)
    outcome = server.eliminate(session_id, "s", "o", eliminated)
    assert outcome.applied_eliminated == []
    assert outcome.snapshot.n_survivors == 4
    entry = last_entry(server, session_id)
    assert (entry.seq, entry.delta_eliminated, entry.payload["justification"]) == (1, [], None)
    assert entry.survivors_before_hash == entry.survivors_after_hash


@pytest.mark.req("BS-2.1-ELIM-04", "BS-2.1-ELIM-08", "BS-1.1-MODEL-01")
def test_nothing_comes_back_and_a_session_without_survivors_can_still_be_used(server: BeliefServer) -> None:
    session_id = declared(server, "ab")
    assert server.eliminate(session_id, "s", "1", ["a", "b"]).snapshot.survivors == []
    assert server.eliminate(session_id, "s", "2", ["a"]).ignored_eliminated == ["a"]
    snapshot = server.query_belief(session_id)
    assert (snapshot.survivors, snapshot.n_survivors, snapshot.entropy_proxy) == ([], 0, 0.0)
    assert server.request_termination(session_id).reason == "not_singleton"
    assert server.survivors(session_id).survivors == []


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


@pytest.mark.req("ARCH-5-RULE-01")
def test_a_repeat_is_answered_even_after_the_session_ended(server: BeliefServer) -> None:
    session_id = declared(server, "ab")
    first = server.eliminate(session_id, "s", "o", ["a"])
    server.request_termination(session_id)
    assert server.eliminate(session_id, "s", "o", ["a"]) == first
    assert not first.snapshot.terminated


@pytest.mark.req("ARCH-5-RULE-02")
@pytest.mark.parametrize("other", [[], ["a"], ["a", "b", "c"], ["c", "d"]])
def test_the_same_observation_with_other_ids_is_a_conflict_and_changes_nothing(
    server: BeliefServer, other: list[str]
) -> None:
    session_id = declared(server)
    first = server.eliminate(session_id, "s", "o", ["a", "b"])
    with pytest.raises(Conflict) as refused:
        server.eliminate(session_id, "s", "o", other)
    assert refused.value.details["event_id"] == first.audit_event_id
    assert server.query_belief(session_id) == first.snapshot


@pytest.mark.req("BS-3.2-ERR-04")
def test_with_validation_an_unknown_id_is_refused_and_nothing_is_applied(fixture: StoreFixture) -> None:
    server = fixture.open(validate_hypotheses=True)
    session_id = declared(server)
    with pytest.raises(InvalidHypothesisId) as refused:
        server.eliminate(session_id, "s", "o", ["a", "x", "y"])
    assert refused.value.details == {"unknown": ["x", "y"]}
    assert verbs(server, session_id) == ["DECLARE_SESSION"]
    assert server.eliminate(session_id, "s", "o", ["a"]).applied_eliminated == ["a"]


# --- obligations ---


@pytest.mark.req("BS-2.1-ENTER-01", "BS-2.1-ENTER-02", "BS-2.1-EXIT-06", "BS-2.2-SNAP-06")
def test_the_newest_obligation_still_active_is_the_active_one(server: BeliefServer) -> None:
    session_id = declared(server)
    assert server.query_belief(session_id).active_obligation_id is None
    for obligation_id in ("first", "second", "third"):
        assert server.enter_obligation(session_id, obligation_id, 0).snapshot.active_obligation_id == obligation_id
    assert server.request_exit(session_id, "second").snapshot.active_obligation_id == "third"
    assert server.request_exit(session_id, "third").snapshot.active_obligation_id == "first"
    assert server.request_exit(session_id, "first").snapshot.active_obligation_id is None
    assert [view.obligation_id for view in server.obligations(session_id)] == ["first", "second", "third"]
    assert {view.state for view in server.obligations(session_id)} == {"exited"}


@pytest.mark.req("BS-2.1-EXIT-01", "BS-2.1-EXIT-02", "BS-2.1-EXIT-03", "BS-2.1-EXIT-05", "BS-2.2-SNAP-06")
def test_an_exit_needs_its_eliminations_and_every_refusal_is_an_entry(server: BeliefServer) -> None:
    session_id = declared(server)
    server.eliminate(session_id, "s", "before", ["a"])
    server.enter_obligation(session_id, "gate", 2)
    assert server.request_exit(session_id, "gate").reason == "below_threshold"
    server.eliminate(session_id, "s", "during", ["a", "b", "z"])
    server.eliminate(session_id, "s", "during", ["z", "b", "a"])
    refused = server.request_exit(session_id, "gate", {"attempt": 2})
    assert (refused.approved, refused.reason) == (False, "below_threshold")
    assert last_entry(server, session_id).outcome == {"approved": False, "reason": "below_threshold"}
    assert last_entry(server, session_id).payload == {"context": {"attempt": 2}, "obligation_id": "gate"}
    server.eliminate(session_id, "s", "enough", ["c"])
    assert server.request_exit(session_id, "gate").approved
    late = server.request_exit(session_id, "gate")
    assert (late.approved, late.reason) == (False, "obligation_not_active")
    server.eliminate(session_id, "s", "after", ["d"])
    assert server.obligations(session_id) == [("gate", "exited", 2, 2)]


@pytest.mark.req("BS-2.1-ENTER-03")
def test_an_obligation_id_is_used_once_in_the_life_of_a_session(server: BeliefServer) -> None:
    session_id = declared(server)
    server.enter_obligation(session_id, "gate", 0)
    with pytest.raises(Conflict, match="gate"):
        server.enter_obligation(session_id, "gate", 0)
    assert server.request_exit(session_id, "gate").approved
    with pytest.raises(Conflict, match="gate"):
        server.enter_obligation(session_id, "gate", 5)
    assert verbs(server, session_id) == ["DECLARE_SESSION", "ENTER_OBLIGATION", "REQUEST_EXIT"]


@pytest.mark.req("BS-2.1-EXIT-04")
def test_an_exit_from_an_obligation_never_entered_is_not_found_and_not_recorded(server: BeliefServer) -> None:
    session_id = declared(server)
    with pytest.raises(ObligationNotFound) as missing:
        server.request_exit(session_id, "gate")
    assert missing.value.details == {"obligation_id": "gate"}
    assert verbs(server, session_id) == ["DECLARE_SESSION"]


# --- conclusions and termination ---


@pytest.mark.req("BS-2.1-CONCL-01", "BS-2.1-CONCL-02", "BS-2.1-CONCL-03")
def test_a_conclusion_waits_for_every_obligation(server: BeliefServer) -> None:
    session_id = declared(server)
    server.enter_obligation(session_id, "gate", 0)
    refused = server.declare_conclusion(session_id, "a", {"sure": True})
    assert (refused.accepted, refused.reason) == (False, "obligation_active")
    assert last_entry(server, session_id).outcome == {"accepted": False, "reason": "obligation_active"}
    server.request_exit(session_id, "gate")
    assert server.declare_conclusion(session_id, "a").accepted


@pytest.mark.req("BS-2.1-TERM-01", "BS-2.1-TERM-02", "BS-2.1-TERM-03", "BS-2.1-TERM-07")
def test_termination_needs_one_survivor_and_no_obligation(server: BeliefServer) -> None:
    session_id = declared(server, "ab")
    server.enter_obligation(session_id, "gate", 1)
    assert server.request_termination(session_id).reason == "obligation_active"
    server.eliminate(session_id, "s", "o", ["a"])
    assert server.request_termination(session_id).reason == "obligation_active"
    server.request_exit(session_id, "gate")
    outcome = server.request_termination(session_id, {"note": "done"})
    assert (outcome.approved, outcome.reason, outcome.snapshot.terminated) == (True, "approved", True)
    several = declared(server)
    refused = server.request_termination(several)
    assert (refused.approved, refused.snapshot.terminated) == (False, False)
    assert "singleton" in refused.reason
    assert last_entry(server, several).outcome == {"approved": False, "reason": "not_singleton"}


@pytest.mark.req("BS-2.1-TERM-04")
def test_termination_waits_for_a_stable_conclusion_where_the_policy_says_so(fixture: StoreFixture) -> None:
    server = fixture.open()
    session_id = declared(server, "ab", policy=SessionPolicy(stability_window=2))
    server.eliminate(session_id, "s", "o", ["a"])
    for conclusion_id in ("x", "y"):
        assert server.request_termination(session_id).reason == "conclusion_unstable"
        server.declare_conclusion(session_id, conclusion_id)
    server.enter_obligation(session_id, "gate", 0)
    assert not server.declare_conclusion(session_id, "y").accepted
    server.request_exit(session_id, "gate")
    assert server.request_termination(session_id).reason == "conclusion_unstable"
    server.declare_conclusion(session_id, "y")
    assert fixture.open().request_termination(session_id).approved


@pytest.mark.req("BS-2.1-TERM-05", "BS-2.1-TERM-06")
def test_force_works_only_where_the_policy_allows_it(server: BeliefServer) -> None:
    closed = declared(server)
    refused = server.request_termination(closed, {"force": True})
    assert (refused.approved, refused.reason) == (False, "not_singleton")
    assert "force" in (last_entry(server, closed).notes or "")
    allowed = declared(server, policy=SessionPolicy(allow_force=True))
    server.enter_obligation(allowed, "gate", 9)
    for almost in ({"force": 1}, {"force": "true"}, {"FORCE": True}, {"nested": {"force": True}}, None):
        assert server.request_termination(allowed, almost).reason == "obligation_active"
    forced = server.request_termination(allowed, {"force": True})
    assert (forced.approved, forced.reason, forced.snapshot.terminated) == (True, "forced", True)
    assert last_entry(server, allowed).outcome == {"approved": True, "reason": "forced"}
    assert verified(server, allowed) == forced.snapshot


# --- what every verb has in common ---


@pytest.mark.req("BS-3.2-ERR-02")
@pytest.mark.parametrize("verb", [*WRITING_VERBS, *READING_VERBS])
def test_every_verb_on_an_unknown_session_is_session_not_found(server: BeliefServer, verb: str) -> None:
    declared(server)
    with pytest.raises(SessionNotFound) as missing:
        (WRITING_VERBS | READING_VERBS)[verb](server, NO_SUCH_SESSION)
    assert missing.value.details == {"session_id": NO_SUCH_SESSION}
    assert len(server.list_sessions()) == 1


@pytest.mark.req("BS-3.2-ERR-03")
@pytest.mark.parametrize("verb", WRITING_VERBS)
def test_a_terminated_session_takes_no_writing_verb(fixture: StoreFixture, verb: str) -> None:
    server = fixture.open()
    session_id = terminated(server)
    before = server.query_belief(session_id)
    for asked in (server, fixture.open()):
        with pytest.raises(SessionTerminated) as ended:
            WRITING_VERBS[verb](asked, session_id)
        assert ended.value.details == {"session_id": session_id}
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


@pytest.mark.req("BS-2.2-SNAP-01", "BS-2.2-SNAP-02", "BS-2.2-SNAP-03", "BS-2.2-SNAP-04", "BS-2.1-QUERY-01")
def test_a_snapshot_has_the_fields_of_the_specification(server: BeliefServer) -> None:
    session_id = declared(server, "cab")
    outcome = server.enter_obligation(session_id, "gate", 1)
    assert server.query_belief(session_id).to_dict() == {
        "session_id": session_id,
        "ontology": ONTOLOGY.to_dict(),
        "survivors": ["a", "b", "c"],
        "n_survivors": 3,
        "entropy_proxy": math.log2(3),
        "terminated": False,
        "active_obligation_id": "gate",
        "audit_head_event_id": outcome.audit_event_id,
    }


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


@pytest.mark.req("BS-3.2-ERR-16")
def test_an_error_says_its_code_its_message_and_its_details() -> None:
    server = BeliefServer(clock=ManualClock(), ids=SequentialIds())
    with pytest.raises(BeliefServerError) as missing:
        server.query_belief("unknown")
    error = missing.value
    assert (error.code, error.message, error.details) == (
        "SESSION_NOT_FOUND",
        "no session `unknown`",
        {"session_id": "unknown"},
    )
    assert str(error) == "SESSION_NOT_FOUND: no session `unknown`"
