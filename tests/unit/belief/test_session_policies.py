"""What a session's policy may ask for: conclusions of survivors, and eliminations through probes alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cmbs.audit.transfer import export_lines
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.views import obligations
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, Forbidden, FreeHandRefused, InvalidRequest, LedgerCorrupt, ObligationNotFound
from cmbs.ledger import canonical
from cmbs.ledger.listing import index_session
from cmbs.messages import (
    ActorKind,
    ConclusionRule,
    EliminationRule,
    ObligationState,
    ProviderRef,
    Reason,
    SessionPolicy,
)
from cmbs.stores.memory import InMemoryStore
from tests.support.exports import check_export, fit_stream, read_streams, refuse_export, write_export
from tests.support.forging import sealed
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line, fork_of
from tests.support.subtests import for_each


def outcome_of(line: Line, seq: int) -> Any:
    return msgspec.json.decode(line.log[seq].raw)["outcome"]


def observing() -> Line:
    policy = SessionPolicy(eliminations=EliminationRule.OBSERVATIONS)
    return Line(VALIDATOR.declare(ONTOLOGY, ["a", "b", "c"], None, policy, ProviderRef("kit", "1")))


@pytest.mark.req("GATES-CONCL-01")
def test_a_conclusion_must_name_a_survivor_where_the_policy_says_so() -> None:
    line = Line.over("a", "b", conclusions="survivors")
    line.eliminate("1", "a")
    for conclusion_id in ("a", "unknown", "b"):
        line.tell(VALIDATOR.declare_conclusion(conclusion_id, None))
    assert [outcome_of(line, seq)["reason"] for seq in (2, 3, 4)] == ["not_a_survivor", "not_a_survivor", "accepted"]
    assert [conclusion_id for _, conclusion_id in line.session.conclusions] == ["b"]
    assert verify_session(line.session_id, line.log).head == line.session.head


@pytest.mark.req("GATES-CONCL-01")
@pytest.mark.parametrize(
    ("rule", "reasons"),
    [
        ("not_eliminated", ["not_a_survivor", "accepted", "accepted", "accepted"]),
        ("survivors", ["not_a_survivor", "not_a_survivor", "accepted", "accepted"]),
        ("decided", ["not_a_survivor", "not_a_survivor", "not_singleton", "accepted"]),
    ],
)
def test_each_rule_says_what_may_be_concluded(rule: str, reasons: list[str]) -> None:
    line = Line.over("a", "b", "c", conclusions=rule)
    line.eliminate("1", "a")
    for conclusion_id in ("a", "unknown", "b"):
        line.tell(VALIDATOR.declare_conclusion(conclusion_id, None))
    line.eliminate("2", "c")
    line.tell(VALIDATOR.declare_conclusion("b", None))
    assert [outcome_of(line, seq)["reason"] for seq in (2, 3, 4, 6)] == reasons
    assert verify_session(line.session_id, line.log).head == line.session.head


@pytest.mark.req("GATES-CONCL-01")
def test_a_tie_is_believed_of_the_kit_of_the_session_alone() -> None:
    policy = SessionPolicy(conclusions=ConclusionRule.DECIDED)
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, policy, ProviderRef("kit", "1", "11" * 32)))
    for tied_by in ("22" * 32, "11" * 32):
        line.tell(VALIDATOR.declare_conclusion("a", None, tied_by))
    assert [outcome_of(line, seq)["reason"] for seq in (1, 2)] == ["not_singleton", "accepted"]
    without_kit = Line.over("a", "b", conclusions="decided")
    without_kit.tell(VALIDATOR.declare_conclusion("a", None, "11" * 32))
    assert outcome_of(without_kit, 1)["reason"] == "not_singleton"


@pytest.mark.req("GATES-ELIM-01")
def test_an_operator_may_list_ids_all_the_same_and_the_event_says_so() -> None:
    line = observing()
    for kind in (ActorKind.AGENT, ActorKind.TOOL, ActorKind.ENCODER):
        with pytest.raises(FreeHandRefused):
            line.tell(VALIDATOR.eliminate("s", "1", ["a"], None), actor="who", kind=kind)
    line.tell(VALIDATOR.eliminate("s", "1", ["a"], None), actor="who", kind=ActorKind.OPERATOR)
    assert "without a probe" in msgspec.json.decode(line.log[1].raw)["notes"]
    assert verify_session(line.session_id, line.log).head == line.session.head


@pytest.mark.req("GATES-CONCL-01")
def test_an_active_obligation_comes_before_what_is_concluded() -> None:
    line = Line.over("a", "b", conclusions="survivors")
    line.tell(VALIDATOR.enter_obligation("o", 1))
    line.tell(VALIDATOR.declare_conclusion("unknown", None))
    assert outcome_of(line, 2) == {"accepted": False, "reason": Reason.OBLIGATION_ACTIVE}


@pytest.mark.req("GATES-OBSERVERS-01")
def test_only_observers_that_the_policy_names_eliminate_and_answer_probes() -> None:
    policy = SessionPolicy(observers=("probe",), eliminations=EliminationRule.OBSERVATIONS)
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b", "c"], None, policy, ProviderRef("kit", "1")))
    answer = VALIDATOR.eliminate("s", "disk", ["a"], None, VALIDATOR.probe("disk", "full"))
    for actor in (None, "agent"):
        with pytest.raises(Forbidden) as caught:
            line.tell(answer, actor=actor)
        details = caught.value.details
        assert (details["reason"], details["found"], details["accepted"]) == ("not_an_observer", actor, ["probe"])
    assert len(line.log) == 1
    line.tell(answer, actor="probe")
    assert list(line.session.survivors) == ["b", "c"]
    assert verify_session(line.session_id, line.log).head == line.session.head
    # An agent that forks the session repeats the answer, and cannot add one.
    fork = fork_of(line, "fork", "agent")
    assert list(fork.session.survivors) == ["b", "c"]
    assert verify_session("fork", fork.log).head == fork.session.head
    with pytest.raises(Forbidden):
        fork.tell(VALIDATOR.eliminate("s", "net", ["b"], None, VALIDATOR.probe("net", "down")), actor="agent")


@pytest.mark.req("GATES-OBSERVERS-01")
def test_without_a_probe_an_observer_may_eliminate_where_lists_are_taken() -> None:
    line = Line.over("a", "b", observers=["bob", "ann", "ann"])
    assert line.session.policy.observers == ("ann", "bob")
    line.eliminate("1", "a", actor="ann")
    with pytest.raises(Forbidden):
        line.eliminate("2", "b", actor="cyd")
    assert list(line.session.survivors) == ["b"]


@pytest.mark.req("GATES-OBSERVERS-01")
@for_each("observers", [[], "ann", [1]])
def test_observers_are_ids_one_at_least(observers: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"policy\.observers"):
        Line.over("a", observers=observers)


@pytest.mark.req("GATES-OBSERVERS-01")
@for_each(("observers", "reason"), [([], "names no observer"), (["b", "a"], "not sorted")])
def test_a_log_with_other_observers_does_not_verify(observers: list[str], reason: str) -> None:
    entry = msgspec.json.decode(Line.over("a", observers=["ann"]).log[0].raw)
    entry["payload"]["policy"]["observers"] = observers
    with pytest.raises(LedgerCorrupt, match=reason):
        verify_session(entry["stream_id"], [sealed(canonical.encode(entry))])


@pytest.mark.req("GATES-CONCL-01")
@pytest.mark.parametrize("policy", [{}, {"conclusions": "any", "eliminations": "any"}])
def test_by_default_anything_may_be_concluded_and_listed(policy: dict[str, Any]) -> None:
    line = Line.over("a", "b", **policy)
    line.eliminate("1", "a")
    line.tell(VALIDATOR.declare_conclusion("a", None))
    assert outcome_of(line, 2) == {"accepted": True, "reason": "accepted"}
    recorded = msgspec.json.decode(line.log[0].raw)["payload"]["policy"]
    assert recorded == {"allow_force": False, "stability_window": 0, "validate_hypotheses": False, **policy}


@pytest.mark.req("GATES-ELIM-01")
def test_a_list_of_ids_is_refused_where_only_probes_eliminate_and_changes_nothing() -> None:
    line = observing()
    with pytest.raises(FreeHandRefused) as caught:
        line.eliminate("1", "a")
    assert (caught.value.details["field"], caught.value.details["next"]) == ("eliminated", "observe")
    assert len(line.log) == 1
    probe = VALIDATOR.probe("disk", "full")
    line.tell(VALIDATOR.eliminate("s", "disk", ["a"], None, probe))
    assert list(line.session.survivors) == ["b", "c"]
    assert verify_session(line.session_id, line.log).head == line.session.head
    # In a log, such an entry is none.
    entry = msgspec.json.decode(line.log[1].raw)
    entry["payload"]["probe"] = None
    with pytest.raises(LedgerCorrupt, match="FREE_HAND_REFUSED"):
        verify_session(line.session_id, [line.log[0], sealed(canonical.encode(entry))])


@pytest.mark.req("GATES-ELIM-01")
def test_a_session_without_a_provider_cannot_ask_for_probes_alone() -> None:
    with pytest.raises(InvalidRequest, match="nothing could be eliminated") as caught:
        Line.over("a", eliminations="observations")
    assert caught.value.details["field"] == "policy.eliminations"


@for_each("value", ["all", "", 1, None, True])
@for_each("name", ["conclusions", "eliminations"])
def test_another_word_is_refused_with_those_that_there_are(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Line.over("a", **{name: value})
    rule = {"conclusions": ConclusionRule, "eliminations": EliminationRule}[name]
    assert caught.value.details["field"] == f"policy.{name}"
    assert caught.value.details["accepted"] == [word.value for word in rule]


# --- obligations that operators lift ----------------------------------------------------------------------------------


def locked() -> Line:
    """A session with an obligation that cannot be met, entered by an agent."""
    line = Line.over("a", "b")
    line.tell(VALIDATOR.enter_obligation("more than there are", 5), actor="agent")
    line.eliminate("1", "a")
    line.tell(VALIDATOR.request_exit("more than there are", None), actor="agent")
    assert outcome_of(line, 3)["reason"] == Reason.BELOW_THRESHOLD
    return line


@pytest.mark.req("GATES-OBL-LIFT")
def test_an_operator_lifts_an_obligation_that_cannot_be_met() -> None:
    line = locked()
    lift = VALIDATOR.update_case({"lift_obligation": "more than there are"})
    with pytest.raises(Forbidden) as caught:
        line.tell(lift, actor="agent")
    assert (caught.value.details["reason"], caught.value.details["field"]) == ("not_an_operator", "lift_obligation")
    line.tell(lift, actor="ann", kind=ActorKind.OPERATOR)
    assert line.session.active == ()
    assert [each.state for each in obligations(line.session)] == [ObligationState.LIFTED]
    # It was never met, and cannot be left or lifted again; what it held back goes on.
    line.tell(VALIDATOR.request_exit("more than there are", None), actor="agent")
    assert outcome_of(line, 5)["reason"] == Reason.OBLIGATION_NOT_ACTIVE
    with pytest.raises(Conflict, match="left at seq 4 already"):
        line.tell(lift, actor="ann", kind=ActorKind.OPERATOR)
    line.tell(VALIDATOR.declare_conclusion("b", None), actor="agent")
    assert outcome_of(line, 6) == {"accepted": True, "reason": "accepted"}
    recorded = msgspec.json.decode(line.log[4].raw)
    assert (recorded["verb"], recorded["actor"]["id"]) == ("UPDATE_CASE", "ann")
    assert recorded["payload"] == {"lift_obligation": "more than there are"}
    assert verify_session(line.session_id, line.log).obligations == line.session.obligations
    listed = index_session([each.raw for each in line.log])
    assert listed is not None
    assert listed.listing.n_obligations == 0
    fork = fork_of(line, "fork", "agent")
    assert [each.state for each in obligations(fork.session)] == [ObligationState.LIFTED]


@pytest.mark.req("GATES-OBL-LIFT")
def test_only_an_active_obligation_is_lifted() -> None:
    line = locked()
    for name in ("another", ""):
        with pytest.raises(ObligationNotFound):
            line.tell(VALIDATOR.update_case({"lift_obligation": name}))
    with pytest.raises(InvalidRequest):
        VALIDATOR.update_case({"lift_obligation": 1})


@pytest.mark.req("GATES-OBL-LIFT")
def test_the_offline_verifier_knows_lifted_obligations() -> None:
    server = BeliefServer(store=InMemoryStore())
    session_id, _ = server.declare_session(ONTOLOGY, ["a", "b"])
    server.enter_obligation(session_id, "o", 5)
    server.update_case(session_id, {"lift_obligation": "o"})
    assert server.declare_conclusion(session_id, "b").accepted
    assert [each.state for each in server.obligations(session_id)] == [ObligationState.LIFTED]
    (first, *rest) = read_streams(export_lines(server.log, [session_id]))[session_id]
    assert check_export(write_export(fit_stream([first, *rest]))).status == "good"
    forged = [first, rest[0], {**rest[1], "payload": {"lift_obligation": "another"}}]
    assert refuse_export(write_export(fit_stream(forged))).place["field"] == "payload.lift_obligation"
