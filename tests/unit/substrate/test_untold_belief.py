"""Belief that cannot be told opens nothing: of a session that is not there, or a list that no reading has whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from cmbs.messages import Actor
from cmbs.substrate.kernel.insight.advice import advise_on_record
from cmbs.substrate.kernel.insight.lint import lint
from cmbs.substrate.kernel.model import MAX_READ_CONCLUSIONS, MAX_READ_SURVIVORS, Decision, Failure, ReasonCode, Verdict
from cmbs.substrate.kernel.replay import verify_belief_pins
from tests.support.cases import (
    AGENT,
    ALLOWED,
    DEFERRED,
    KNOWN,
    OTHER,
    OTHER_TOKEN,
    Incidents,
    equal,
    every,
    gated,
    outcome,
)
from tests.support.spaces import ANY, SPACE, constraint, delta

DENIED = (Verdict.DEFER, ReasonCode.CONSTRAINT_DENIED, Failure.DEFER)
FREE = {"constraint.free": constraint(v=2, subject={"tool_id": "restart"})}
MANY = [f"h{number}" for number in range(MAX_READ_SURVIVORS)]


def negate(predicate: dict[str, Any]) -> dict[str, Any]:
    return {"op": "not", "args": [predicate]}


def among(value: str, reference: str) -> dict[str, Any]:
    return {"op": "in", "args": [{"literal": value}, {"ref": reference}]}


def open_nowhere(incidents: Incidents) -> None:
    incidents.open_case("c")
    incidents.source.lost.add("c")


def open_over_many(incidents: Incidents) -> None:
    incidents.declare("c", hypotheses=[*MANY, "corruption"])
    incidents.open_case("c")


def conclude_often(incidents: Incidents) -> None:
    """What was concluded first is pushed out of what a reading carries."""
    session_id = incidents.begin("c")
    incidents.belief.declare_conclusion(session_id, "corruption")
    for number in range(MAX_READ_CONCLUSIONS):
        incidents.belief.declare_conclusion(session_id, f"another {number}")


SITUATIONS = [
    pytest.param(open_nowhere, {"op": "ne", "args": ["$case.belief.n_survivors", 1]}, id="no session"),
    pytest.param(open_nowhere, equal("$case.belief.terminated", False), id="no session to end"),
    pytest.param(open_nowhere, {"op": "exists", "args": ["$case.belief.independent.survivors"]}, id="without others"),
    pytest.param(open_over_many, among("corruption", "$case.belief.survivors"), id="many survive"),
    pytest.param(
        open_over_many, among("corruption", "$case.belief.independent.survivors"), id="many without the actor"
    ),
    pytest.param(conclude_often, among("corruption", "$case.belief.concluded"), id="many conclusions"),
]


def decide(policy: dict[str, str], begin: Callable[[Incidents], None]) -> tuple[Decision, str]:
    """What becomes of a restart; and what the agent is told."""
    with closing(Incidents(policy)) as incidents:
        begin(incidents)
        decision = incidents.restart("p", "c")
        incidents.assert_replays()
        space = incidents.world.space
        told = advise_on_record(space, space.proposals["p"], AGENT)
    return decision, "; ".join(each.message for each in told)


@pytest.mark.req("CASE-GATE-07")
@pytest.mark.parametrize(("begin", "danger"), SITUATIONS)
def test_a_danger_that_cannot_be_told_denies_and_its_absence_does_not_allow(
    begin: Callable[[Incidents], None], danger: dict[str, Any]
) -> None:
    denied, told = decide(FREE | {"constraint.danger": gated(effect="deny", when=danger)}, begin)
    assert outcome(denied) == DENIED
    assert "(not told: " in told
    unmet, told = decide({"constraint.safe": gated(when=negate(danger))}, begin)
    assert outcome(unmet) == DEFERRED
    assert "(not told: " in told
    if danger["op"] == "in":
        assert "must be other than a list with `corruption`" in told


@pytest.mark.req("GATES-IND-03")
@pytest.mark.parametrize(
    ("declarer", "why", "next_step"),
    [
        (AGENT, "the proposer declared the session", "have an operator or the harness declare the session"),
        (None, "the session was declared without a key", "have an operator make keys with `cmbs keys create`"),
    ],
)
def test_no_actor_opens_a_gate_over_a_session_that_it_declared_or_that_has_no_keys(
    declarer: Actor | None, why: str, next_step: str
) -> None:
    with closing(Incidents()) as incidents:
        incidents.declare("c", actor=declarer, agents=[AGENT.id, OTHER.id])
        incidents.open_case("c", [AGENT.id, OTHER.id])
        incidents.rule_out("c", "cache", "dns")
        assert outcome(incidents.restart("p", "c")) == DEFERRED
        space = incidents.world.space
        (told,) = advise_on_record(space, space.proposals["p"], AGENT)
        assert f"(not told: {why}" in told.message
        assert told.next.startswith(next_step)
        # What the proposer chose does not keep others from acting.
        other = incidents.restart("q", "c", actor=OTHER, token=OTHER_TOKEN)
        assert outcome(other) == (DEFERRED if declarer is None else ALLOWED)
        incidents.assert_replays()
        files = {"c": incidents.log.read("c")}
        assert verify_belief_pins(incidents.log.read(f"space:{SPACE}"), files) == 3


@pytest.mark.req("GATES-IND-03")
def test_what_is_unknown_of_others_is_known_of_all() -> None:
    policy = {
        "constraint.restart": gated(when=every(KNOWN, negate(equal("$case.belief.independent.terminated", True))))
    }
    with closing(Incidents(policy)) as incidents:
        incidents.declare("c", actor=AGENT)
        incidents.open_case("c")
        incidents.rule_out("c", "cache", "dns")
        assert outcome(incidents.restart("p", "c")) == DEFERRED
        space = incidents.world.space
        (told,) = advise_on_record(space, space.proposals["p"], AGENT)
        assert [each.field for each in told.faults] == [] or "$case.belief.n_survivors" not in str(told.faults)


@pytest.mark.req("CASE-GATE-07")
def test_what_can_be_told_is_decided_by_its_predicates() -> None:
    safe = {"constraint.safe": gated(when=negate(among("corruption", "$case.belief.survivors")))}
    with closing(Incidents(safe)) as incidents:
        open_over_many(incidents)
        assert outcome(incidents.restart("early", "c")) == DEFERRED
        incidents.rule_out("c", "h0")
        # All that are left are named now, and the one that is asked for is among them.
        assert outcome(incidents.restart("named", "c")) == DEFERRED
        incidents.rule_out("c", "corruption")
        assert outcome(incidents.restart("ruled out", "c")) == ALLOWED


@pytest.mark.req("CASE-GATE-07")
def test_an_invariant_on_what_cannot_be_told_does_not_hold() -> None:
    invariant = {"policy.invariant.calm": f'{{"v": 2, "when": {ANY_SAFE}}}', "constraint.all": ANY}
    with closing(Incidents(invariant)) as incidents:
        open_nowhere(incidents)
        refused = incidents.world.decide(delta(x="1"), actor=AGENT, case_id="c")
        assert refused.reason_code is ReasonCode.INVARIANT_VIOLATED


ANY_SAFE = '{"op": "not", "args": [{"op": "eq", "args": ["$case.belief.terminated", false]}]}'


@pytest.mark.req("CASE-GATE-07")
@pytest.mark.parametrize("version", [1, 2])
def test_a_fixed_session_that_is_not_there_is_missing_as_ever(version: int) -> None:
    gone = negate(equal("$belief.never-declared.terminated", False))
    decision, _ = decide(
        {"constraint.fixed": constraint(v=version, when=gone, subject={"tool_id": "restart"})}, open_nowhere
    )
    assert outcome(decision) == ALLOWED


@pytest.mark.req("CASE-GATE-07")
def test_lint_does_not_call_a_deny_useless_that_denies_what_cannot_be_told() -> None:
    never = {"op": "all", "args": [equal("$case.belief.terminated", True), equal("$case.belief.terminated", False)]}
    found = lint(FREE | {"constraint.x": gated(effect="deny", when=never)})
    assert [each.rule for each in found.findings if each.key == "constraint.x"] == []
