"""Advice on rules of the policy: which one, what it found, what it asks for, and what may not be told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cmbs.messages import Actor, ActorKind
from cmbs.refusals import Refusal
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.events import Asked
from cmbs.substrate.kernel.insight.advice import advise, advise_on_explanation
from cmbs.substrate.kernel.insight.explanation import Hypothetical, explain, redact
from cmbs.substrate.kernel.insight.refused import Refused
from cmbs.substrate.kernel.insight.rule_advice import find_bound
from cmbs.substrate.kernel.model import BeliefReading, Candidate, ReasonCode, StateDelta, Verdict
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.state import Case, Space
from cmbs.substrate.kernel.words import FlipStatus, ProposalStatus
from cmbs.testing.spaces import AGENT, LATER, NOW, call, payload, predicate, proposal
from tests.support import policies
from tests.support.arbitrating import ALLOW_ALL, ready
from tests.support.subtests import for_each

OPERATOR = Actor(ActorKind.OPERATOR, "root")
WRITE = {"tool_id": "fs.write"}
SECRET = "only operators read this"


def refuse(
    kept: Space,
    *candidates: Candidate,
    reader: Actor = AGENT,
    belief: Mapping[str, BeliefReading] | None = None,
    status: ProposalStatus | None = ProposalStatus.DENIED,
    **fields: Any,
) -> list[Refusal]:
    asked = proposal(*candidates)
    decision = arbitrate(kept, asked, AGENT, NOW, belief or {}).decision
    shown = redact(decision, kept.policy, reader.kind)
    return advise(Refused(kept, asked, AGENT, shown, reader.kind, kept.policy, status, now=NOW, **fields))


def refuse_one(code: ReasonCode, when: Any, state: Mapping[str, str] | None = None, **more: Any) -> Refusal:
    """The refusal of a call by a constraint with this `when`: a denial, or a permission that is not met."""
    effect = "deny" if code is ReasonCode.CONSTRAINT_DENIED else "allow"
    pairs = {"constraint.rule": payload(effect=effect, subject=WRITE, when=when), "policy.private": '["fact.secret"]'}
    if effect == "deny":
        pairs |= ALLOW_ALL
    [refusal] = refuse(ready(pairs, state), call(args=more.pop("args", {"path": "/a"})), **more)
    assert (refusal.code, refusal.rules) == (code, ("constraint.rule",))
    return refusal


AT_MOST_THREE = {"schema": {"maximum": 3}}
UNMET, DENIED = ReasonCode.ALLOW_UNMET, ReasonCode.CONSTRAINT_DENIED


@for_each(
    ("code", "when", "state", "field", "found", "accepted"),
    [
        (UNMET, predicate("eq", "fact.mode", "on"), {"fact.mode": "off"}, "fact.mode", "off", "on"),
        (UNMET, predicate("in", "fact.mode", ["a", "b"]), {}, "fact.mode", None, {"in": ["a", "b"]}),
        (UNMET, predicate("exists", "fact.a", "fact.b"), {"fact.a": "1"}, "fact.b", None, {"exists": True}),
        (UNMET, predicate("missing", "fact.a"), {"fact.a": "1"}, "fact.a", "1", {"exists": False}),
        (UNMET, predicate("schema", "fact.a", {"maximum": 3}), {"fact.a": "5"}, "fact.a", "5", AT_MOST_THREE),
        (DENIED, predicate("eq", "$args.path", "/a"), {}, "args.path", "/a", {"not": "/a"}),
        (DENIED, predicate("not", predicate("eq", "fact.mode", "on")), {}, "fact.mode", None, "on"),
        (DENIED, predicate("exists", "fact.a"), {"fact.a": "1"}, "fact.a", "1", {"exists": False}),
        (
            UNMET,
            predicate(
                "any",
                predicate("all", predicate("eq", "fact.a", 1), predicate("eq", "fact.b", 2)),
                predicate("eq", "fact.c", 3),
            ),
            {},
            "fact.c",
            None,
            3,
        ),
        (
            DENIED,
            predicate("all", predicate("exists", "fact.a"), predicate("eq", "$args.path", "/a")),
            {"fact.a": "1"},
            "fact.a",
            "1",
            {"exists": False},
        ),
    ],
)
def test_an_operator_learns_what_a_rule_found_and_what_it_asks_for(
    code: ReasonCode, when: Any, state: dict[str, str], field: str, found: Any, accepted: Any
) -> None:
    refusal = refuse_one(code, when, state, reader=OPERATOR)
    assert (refusal.field, refusal.found, refusal.accepted) == (field, found, accepted)
    bound = refuse_one(code, when, state)
    assert (bound.field, bound.found, bound.accepted) == (field, found, None)
    assert f"`{field}` is {'missing' if found is None else f'`{found}`'}" in bound.message


@for_each(
    ("reference", "state", "step"),
    [
        ("fact.mode", {}, "wait until a tool or an encoder reports another `fact.mode`"),
        ("goal.mode", {}, "propose a change of `goal.mode` first"),
        ("$args.path", {}, "propose it with another `args.path`"),
        ("$actor.id", {}, "ask an operator: `$actor.id` cannot be changed by a proposal"),
    ],
)
def test_the_next_step_goes_by_who_can_change_what_was_read(reference: str, state: dict[str, str], step: str) -> None:
    assert refuse_one(UNMET, predicate("eq", reference, "on"), state).next == step


def test_words_for_what_is_accepted() -> None:
    told: dict[tuple[Any, ...], str] = {
        ("exists", "fact.a"): "must be there",
        ("in", "fact.a", ("x", "y")): "must be one of `x`, `y`",
        ("eq", "fact.a", "x"): "must be `x`",
    }
    for asked, words in told.items():
        refusal = refuse_one(UNMET, predicate(*asked), reader=OPERATOR)
        assert refusal.message.endswith(words)
    refusal = refuse_one(UNMET, predicate("missing", "fact.a"), {"fact.a": "1"}, reader=OPERATOR)
    assert refusal.message.endswith("must be absent")
    refusal = refuse_one(DENIED, predicate("eq", "fact.a", "1"), {"fact.a": "1"}, reader=OPERATOR)
    assert refusal.message.endswith('must be other than `"1"`')


# --- belief -----------------------------------------------------------------------------------------------------------


def seen(**fields: Any) -> dict[str, BeliefReading]:
    return {"S": BeliefReading("S", True, **fields)}


@pytest.mark.req("GATES-REFUSAL-01")
@for_each(
    ("when", "belief", "found", "accepted", "step"),
    [
        (
            predicate("eq", "$belief.S.n_survivors", 1),
            seen(n_survivors=4),
            "4",
            1,
            "eliminate 3 more of the hypotheses in session `S`",
        ),
        (
            predicate("schema", "$belief.S.n_survivors", {"maximum": 2}),
            seen(n_survivors=3),
            "3",
            {"schema": {"maximum": 2}},
            "eliminate 1 more of the hypotheses in session `S`",
        ),
        (
            predicate("eq", "$belief.S.n_survivors", 1),
            seen(n_survivors=0),
            "0",
            1,
            "begin a new session: session `S` has too few hypotheses left, and none comes back",
        ),
        (
            predicate("eq", "$belief.S.n_survivors", True),
            seen(n_survivors=2),
            "2",
            True,
            "begin a new session: session `S` has `2` hypotheses left, and none comes back",
        ),
        (
            predicate("in", "$belief.S.n_survivors", [1]),
            seen(n_survivors=2),
            "2",
            {"in": [1]},
            "eliminate 1 more of the hypotheses in session `S`",
        ),
        (
            predicate("eq", "$belief.S.active_obligation_id", None),
            seen(active_obligation_id="look"),
            "look",
            None,
            "leave obligation `look` of session `S` first, or have an operator lift it where it cannot be met",
        ),
        (
            predicate("eq", "$belief.S.terminated", True),
            seen(),
            "false",
            True,
            "conclude in session `S`, and request its termination",
        ),
        (
            predicate("eq", "$belief.S.n_survivors", 1),
            {},
            None,
            1,
            "open session `S`, and narrow it down there",
        ),
    ],
)
def test_a_gate_tells_an_agent_its_numbers_and_what_is_left_to_do(
    when: Any, belief: dict[str, BeliefReading], found: str | None, accepted: Any, step: str
) -> None:
    refusal = refuse_one(UNMET, when, belief=belief)
    assert (refusal.found, refusal.accepted, refusal.next) == (found, accepted, step)


@for_each(
    ("accepted", "most"),
    [
        (2, 2),
        ({"le": 2}, 2),
        ({"lt": 2}, 1),
        ({"schema": {"maximum": 2}}, 2),
        (True, None),
        ({"ge": 2}, None),
        ({"in": [1, 2, "3"]}, 2),
        ({"in": ["1"]}, None),
        ({"ne": 3}, 2),
        ({"ne": 0}, None),
        ({"not": 3}, 2),
        ({"not": {"ne": 3}}, 3),
        ({"not": {"gt": 3}}, 3),
        ({"not": {"ge": 3}}, 2),
        ("2", None),
    ],
)
def test_a_bound_on_survivors_is_read_from_what_a_rule_accepts(accepted: Any, most: int | None) -> None:
    assert find_bound(accepted) == most


# --- what may not be told ---------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-REFUSAL-03")
def test_what_may_not_be_read_is_not_in_a_refusal() -> None:
    when = predicate("all", predicate("eq", "fact.secret.x", "other"), predicate("eq", "fact.open", SECRET + "!"))
    refusal = refuse_one(UNMET, when, {"fact.secret.x": SECRET, "fact.open": "no"})
    assert SECRET not in str(msgspec.to_builtins(refusal))
    assert "fact.secret" not in str(msgspec.to_builtins(refusal))
    assert "it reads something that you may not read" in refusal.message
    assert refusal.next.endswith("ask an operator what would be allowed")
    shown = refuse_one(UNMET, when, {"fact.secret.x": SECRET, "fact.open": "no"}, reader=OPERATOR)
    assert [fault.found for fault in shown.faults] == [SECRET, "no"]
    hidden = refuse_one(UNMET, predicate("eq", "fact.secret.x", "other"), {"fact.secret.x": SECRET})
    assert (hidden.field, hidden.faults) == (None, ())


@pytest.mark.req("GATES-REFUSAL-03")
@given(policies.policies(), st.lists(policies.candidates, min_size=1, max_size=2), policies.beliefs)
def test_no_private_value_reaches_an_agent(
    pairs: dict[str, str], candidates: list[Any], belief: dict[str, Any]
) -> None:
    private = pairs | {"policy.private": '["fact.", "goal."]'}
    state = {"fact.a": "s3cret-a", "fact.b": "s3cret-b", "fact.o": '{"x":"s3cret-o"}'}
    asked = policies.ask(compile_policy(private), candidates, state=state, belief=belief)
    explained = explain(asked, asked.actor.kind, 50)
    for refusal in advise_on_explanation(asked, explained, asked.actor):
        assert "s3cret" not in str(msgspec.to_builtins(refusal))


def test_a_denial_without_a_condition_asks_for_an_operator() -> None:
    pairs = ALLOW_ALL | {"constraint.no": payload(effect="deny", subject=WRITE, reason="not here")}
    [refusal] = refuse(ready(pairs), call())
    assert refusal.sentence == "`constraint.no` denies it (not here); ask an operator what would be allowed"


def test_under_another_policy_a_rule_is_not_looked_up_again() -> None:
    then = ready({"constraint.rule": payload(when=predicate("eq", "fact.a", 1))})
    asked = proposal(call())
    decision = arbitrate(then, asked, AGENT, NOW, {}).decision
    now = ready({})
    made = Refused(now, asked, AGENT, decision, OPERATOR.kind, now.policy, ProposalStatus.DENIED)
    [refusal] = advise(made)
    assert refusal.next == "propose it again: the policy is another by now"


# --- rules without predicates -----------------------------------------------------------------------------------------


def test_without_a_rule_that_allows_it_nothing_is_allowed() -> None:
    [refusal] = refuse(ready({}), call())
    assert refusal.message == "no rule of the policy allows calls of `fs.write`"
    [refusal] = refuse(ready({}), StateDelta({"goal.a": "1"}))
    assert refusal.message == "no rule of the policy allows changes of the state"


def test_what_cannot_be_read_is_explained_to_operators_alone() -> None:
    kept = ready(ALLOW_ALL | {"constraint.bad": "{"})
    [refusal] = refuse(kept, call())
    assert (refusal.code, refusal.next) == (ReasonCode.MALFORMED_CONSTRAINT, "ask an operator to mend the policy")
    assert refusal.message == "`constraint.bad` of the policy cannot be read, so what it may concern is denied"
    [refusal] = refuse(kept, call(), reader=OPERATOR)
    assert refusal.message.startswith("`constraint.bad` of the policy cannot be read: ")
    [refusal] = refuse(ready(ALLOW_ALL | {"policy.exclusive.g": "?"}), StateDelta({"goal.a": "1"}))
    assert (refusal.code, refusal.field) == (ReasonCode.MALFORMED_POLICY, "policy.exclusive.g")


def test_goals_that_exclude_each_other_are_named_as_far_as_they_may_be_read() -> None:
    pairs = ALLOW_ALL | {
        "policy.exclusive.g": '["goal.a","goal.b","goal.secret"]',
        "policy.exclusive.other": '["goal.x","goal.y"]',
        "policy.private": '["goal.secret"]',
    }
    kept = ready(pairs, {"goal.b": "1", "goal.secret": "1"})
    [refusal] = refuse(kept, StateDelta({"goal.a": "1"}))
    assert (refusal.code, refusal.found) == (ReasonCode.EXCLUSIVE_GOALS, ["goal.a", "goal.b"])
    [refusal] = refuse(kept, StateDelta({"goal.a": "1"}, ["goal.b"]), reader=OPERATOR)
    assert refusal.found == ["goal.a", "goal.secret"]
    asked = proposal(StateDelta({"goal.a": "1"}))
    decision = arbitrate(kept, asked, AGENT, NOW, {}).decision
    without = ready()
    made = Refused(without, asked, AGENT, decision, AGENT.kind, without.policy, ProposalStatus.DENIED)
    assert advise(made)[0].message == "goals that exclude each other would be set"


@pytest.mark.parametrize("version", [1, 2])
def test_an_invariant_names_what_it_would_find(version: int) -> None:
    when = predicate("not", predicate("eq", "goal.a", "high"))
    rule = msgspec.json.encode(when if version == 1 else {"v": 2, "when": when}).decode()
    [refusal] = refuse(ready(ALLOW_ALL | {"policy.invariant.i": rule}), StateDelta({"goal.a": "high"}))
    assert (refusal.code, refusal.field, refusal.found) == (ReasonCode.INVARIANT_VIOLATED, "goal.a", "high")
    assert refusal.next == "propose another value of `goal.a`"


# --- where it stands --------------------------------------------------------------------------------------------------


def waiting(on_fail: str) -> Space:
    rule = payload(subject=WRITE, when=predicate("eq", "fact.mode", "on"), on_fail=on_fail)
    return ready({"constraint.rule": rule, "policy.private": '["fact.secret"]'})


def test_what_asks_names_its_approval_and_its_end() -> None:
    asked = [Asked("a-0", 1, "hash", "call", [], LATER), Asked("a-1", 0, "hash", "call", [], LATER)]
    [refusal] = refuse(waiting("ask"), call(), status=ProposalStatus.ASKED, asked=asked)
    assert (refusal.approval_id, refusal.until) == ("a-1", LATER)
    assert refusal.next == f"wait until an operator approves `a-1`, by {LATER}: then claim the call and run it"
    [refusal] = refuse(waiting("ask"), call(), status=ProposalStatus.ASKED)
    assert refusal.approval_id is None
    [refusal] = refuse(waiting("ask"), call(), status=ProposalStatus.REJECTED)
    assert refusal.next == "it no longer waits, since it is rejected: propose it again if you still want it"
    [refusal] = refuse(waiting("ask"), call(), status=None)
    assert refusal.next.endswith("; or propose it, and an operator is asked to approve it")


def test_what_is_parked_names_what_it_waits_for_and_until_when() -> None:
    [refusal] = refuse(waiting("defer"), call(), status=ProposalStatus.PARKED, parked_until=LATER)
    assert refusal.until == LATER
    assert refusal.next.endswith(f"it waits for `fact.mode` until {LATER}: then claim the call and run it")
    [refusal] = refuse(waiting("defer"), call(), status=None)
    assert refusal.next.endswith("; once proposed, it waits for `fact.mode`")
    hidden = payload(subject=WRITE, when=predicate("eq", "fact.secret", "on"), on_fail="defer")
    kept = ready({"constraint.rule": hidden, "policy.private": '["fact.secret"]'})
    [refusal] = refuse(kept, call(), status=None)
    assert refusal.next.endswith("; once proposed, it waits for a change")


def test_what_is_degraded_names_the_offer() -> None:
    pairs = {"policy.degrade.fs.write": '{"mode":"slow"}'}
    [refusal] = refuse(ready(pairs), call())
    assert refusal.accepted == '{"mode":"slow"}'
    assert refusal.next.startswith('use what the policy offers instead: {"mode":"slow"}; or ')


def test_what_ran_has_no_refusal() -> None:
    assert refuse(ready({}), call(), ran=(0,)) == []


# --- explanations -----------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-REFUSAL-02")
@given(policies.policies(), st.lists(policies.candidates, min_size=1, max_size=2), policies.states, policies.beliefs)
def test_what_an_explanation_says_would_be_allowed_is_allowed(
    pairs: dict[str, str], candidates: list[Any], state: dict[str, str], belief: dict[str, Any]
) -> None:
    asked = policies.ask(compile_policy(pairs), candidates, state=state, belief=belief)
    explained = explain(asked, ActorKind.OPERATOR, 200)
    refusals = advise_on_explanation(asked, explained, OPERATOR)
    if explained.decision.verdict is Verdict.ALLOW or explained.flip.status is FlipStatus.NONE:
        assert not any("it would be allowed if" in refusal.next for refusal in refusals)
        return
    told = [change for change in explained.flip.changes if not change.reference.startswith("$")]
    if len(told) < len(explained.flip.changes) or any((each.to or "").endswith("…") for each in told):
        return
    changed = dict(asked.space.state)
    for change in told:
        if change.to is None:
            changed.pop(change.reference)
        else:
            changed[change.reference] = change.to
        assert any(f"`{change.reference}` were " in refusal.next for refusal in refusals) or not told
    space = msgspec.structs.replace(asked.space, state=type(asked.space.state)(changed))
    if told:
        assert arbitrate(space, *asked[1:]).decision.verdict is Verdict.ALLOW


@pytest.mark.req("GATES-REFUSAL-03")
def test_an_explanation_tells_an_agent_which_fact_and_not_which_value() -> None:
    kept = ready({"constraint.rule": payload(when=predicate("eq", "fact.mode", "on"))}, {"fact.mode": "off"})
    asked = Hypothetical(kept, proposal(call()), AGENT, NOW, {})
    explained = explain(asked, AGENT.kind)
    [refusal] = advise_on_explanation(asked, explained, AGENT)
    assert refusal.next == "it would be allowed if `fact.mode` were another"
    [refusal] = advise_on_explanation(asked, explain(asked, OPERATOR.kind), OPERATOR)
    assert refusal.next == "it would be allowed if `fact.mode` were `on`"
    gone = ready({"constraint.rule": payload(when=predicate("missing", "fact.mode"))}, {"fact.mode": "off"})
    asked = Hypothetical(gone, proposal(call()), AGENT, NOW, {})
    [refusal] = advise_on_explanation(asked, explain(asked, OPERATOR.kind), OPERATOR)
    assert refusal.next == "it would be allowed if `fact.mode` were absent"
    assert advise_on_explanation(asked, explained, Actor(ActorKind.AGENT, "another")) == []


@pytest.mark.req("GATES-REFUSAL-NEXT")
@for_each(
    ("asked", "words"),
    [
        (("ne", "fact.a", 5), "other than `5`"),
        (("lt", "fact.a", 2), "below `2`"),
        (("le", "fact.a", 2), "at most `2`"),
        (("gt", "fact.a", 6), "above `6`"),
        (("ge", "fact.a", 6), "at least `6`"),
        (("prefix", "fact.a", "/r"), "a text that begins with `/r`"),
        (("in", "fact.a", []), "nothing that there is"),
        (("in", "fact.a", ["50", 50]), 'one of `"50"`, `50`'),
        (("in", "fact.a", {"ref": "$args.list"}), "in what `args.list` is"),
        (("eq", "fact.a", {"ref": "$args.path"}), "what `args.path` is"),
        (("eq", "fact.a", {"literal": "50"}), '`"50"`'),
        (("eq", "fact.a", "50"), '`"50"`'),
        (("eq", "fact.a", {"b": 1}), '`{"b":1}`'),
        (("eq", "fact.a", {"b": 1, "c": 2}), '`{"b":1,"c":2}`'),
        (("schema", "fact.a", "small"), "as the schema `small` asks"),
        (("schema", "fact.a", {"type": "integer", "maximum": 2}), "of type integer and at most `2`"),
        (("schema", "fact.a", {"type": ["integer", "null"], "minimum": 9}), "of type integer or null and at least `9`"),
        (("schema", "fact.a", {"const": "x"}), "`x`"),
        (("schema", "fact.a", {"enum": ["1", 1]}), 'one of `"1"`, `1`'),
        (("schema", "fact.a", {"exclusiveMinimum": 9}), "above `9`"),
        (("schema", "fact.a", {"exclusiveMaximum": 1}), "below `1`"),
        (("schema", "fact.a", {"type": "string", "pattern": "^a"}), "of type string and a text that matches `^a`"),
        (("schema", "fact.a", {"anyOf": [{"minimum": 9}]}), "as a schema in the rule asks"),
        (("schema", "fact.a", False), "as a schema in the rule asks"),
    ],
)
def test_no_sentence_has_a_raw_predicate(asked: tuple[Any, ...], words: str) -> None:
    refusal = refuse_later(predicate(*asked), {"fact.a": "5"})
    assert refusal.message.endswith(f"`fact.a` is `5`, and must be {words}")


@pytest.mark.req("GATES-REFUSAL-NEXT")
@for_each(
    ("asked", "words"),
    [
        (("ne", "fact.a", 1), "`1`"),
        (("lt", "fact.a", 6), "at least `6`"),
        (("le", "fact.a", 6), "above `6`"),
        (("gt", "fact.a", 2), "at most `2`"),
        (("ge", "fact.a", 2), "below `2`"),
        (("eq", "fact.a", 5), "other than `5`"),
        (("in", "fact.a", [5]), "other than one of `5`"),
    ],
)
def test_what_must_not_be_so_is_said_as_what_must_be(asked: tuple[Any, ...], words: str) -> None:
    refusal = refuse_later(predicate("not", predicate(*asked)), {"fact.a": "5"})
    assert refusal.message.endswith(f"must be {words}")


def refuse_later(when: Any, state: Mapping[str, str], reader: Actor = OPERATOR, **more: Any) -> Refusal:
    """The refusal of a call by an allow of version 2 that is not met."""
    pairs = {
        "constraint.rule": payload(v=2, effect="allow", subject=WRITE, when=when),
        "policy.schema.small": '{"maximum": 1}',
    }
    [refusal] = refuse(ready(pairs, state), call(args={"path": "/a"}), reader=reader, **more)
    return refusal


@pytest.mark.req("GATES-REFUSAL-NEXT")
def test_a_text_that_looks_like_a_number_looks_different() -> None:
    pairs = {"constraint.rule": payload(v=2, effect="allow", subject=WRITE, when=predicate("eq", "$args.n", 50))}
    [refusal] = refuse(ready(pairs), call(args={"path": "/a", "n": "50"}), reader=OPERATOR)
    assert refusal.message.endswith('`args.n` is `"50"`, and must be `50`')
    for text in ("", " a", "a ", "null", "true", '"a"', "[1]"):
        [refusal] = refuse(ready(pairs), call(args={"path": "/a", "n": text}), reader=OPERATOR)
        assert f"`{msgspec.json.encode(text).decode()}`" in refusal.message


# --- the survivor that is not known -----------------------------------------------------------------------------------


def refuse_in_case(n_survivors: int, *, asks_count: bool = True, when: Any = None, **reading: Any) -> Refusal:
    """The refusal of a write of `/a` where only the component of the survivor may be written, or by another rule."""
    same = when or predicate("eq", "$args.path", {"ref": "$case.belief.survivor.component"})
    when = predicate("all", predicate("le", "$case.belief.n_survivors", 9), same) if asks_count else same
    pairs = {"constraint.rule": payload(v=2, effect="allow", subject=WRITE, when=when)}
    kept = ready(pairs)
    kept = msgspec.structs.replace(kept, cases=kept.cases.set("c", case_of("c")))
    asked = msgspec.structs.replace(proposal(call(args={"path": "/a"})), case_id="c")
    belief = {"c": BeliefReading("c", True, n_survivors=n_survivors, **reading)}
    decision = arbitrate(kept, asked, AGENT, NOW, belief).decision
    made = Refused(kept, asked, AGENT, decision, AGENT.kind, kept.policy, ProposalStatus.DENIED, now=NOW)
    [refusal] = advise(made)
    return refusal


def case_of(case_id: str) -> Case:
    return Case(case_id, b"{}", frozenset({AGENT.id}), AGENT, 0, NOW)


@pytest.mark.req("GATES-REFUSAL-NEXT")
def test_an_unknown_survivor_is_said_to_be_unknown() -> None:
    unknown = refuse_in_case(3)
    assert "no survivor is known yet, so `args.path` cannot be checked" in unknown.message
    assert unknown.next == "rule out more hypotheses in the session of the case, until one is left"
    assert refuse_in_case(3, asks_count=False).next == unknown.next
    none = refuse_in_case(0)
    assert "no survivor is left, so `args.path` cannot be checked" in none.message
    assert none.next.startswith("begin a new session")
    bare = refuse_in_case(1, survivors=["x"])
    assert "nothing is declared of the survivor as `$case.belief.survivor.component` asks" in bare.message
    assert bare.next.startswith("have an operator declare a new session")
    other = refuse_in_case(1, survivors=["x"], survivor_attributes=msgspec.Raw(b'{"component":"/b"}'))
    assert other.message.endswith("`args.path` is `/a`, and must be what `$case.belief.survivor.component` is")
    assert other.next == "propose it with another `args.path`"


@pytest.mark.req("GATES-REFUSAL-NEXT")
def test_what_is_said_of_a_case_is_for_operators_to_change() -> None:
    refusal = refuse_in_case(1, when=predicate("eq", "$case.attributes.tier", "gold"))
    assert refusal.next == "have an operator admit the case with another `$case.attributes.tier`"


@pytest.mark.req("GATES-REFUSAL-NEXT")
def test_a_literal_that_is_looked_for_in_what_a_survivor_declares_waits_for_the_survivor() -> None:
    refusal = refuse_in_case(2, when=predicate("eq", "$case.belief.survivor", "dns"), asks_count=False)
    assert refusal.message.endswith("no survivor is known yet, so `$case.belief.survivor` is not known")
    assert refusal.next.startswith("rule out more hypotheses")


# --- following the advice ---------------------------------------------------------------------------------------------

WHERE = "session `S`"
CHANGE_FIRST = "propose a change of `goal.a` first"
VALUES: list[Any] = [0, 1, 2, 3, 5, "1", "on", "/a", True, False, None]
ASKED = st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge", "in", "exists", "missing"])
READ = st.sampled_from(
    ["fact.a", "goal.a", "$args.n", "$belief.S.n_survivors", "$belief.S.terminated", "$belief.S.active_obligation_id"]
)


class Tried(msgspec.Struct, frozen=True):
    """Everything that a refused call of the tool rests on, beside the one rule."""

    state: dict[str, str] = {}
    args: dict[str, Any] = {}
    belief: BeliefReading = BeliefReading("S", True, n_survivors=4)

    def decide(self, when: Any) -> Refusal | None:
        pairs = {"constraint.rule": payload(v=2, effect="allow", subject=WRITE, when=when)}
        made = call(args={"path": "/a", **self.args})
        told = refuse(ready(pairs, self.state), made, reader=OPERATOR, belief={"S": self.belief})
        return told[0] if told else None


def list_next(tried: Tried, refusal: Refusal) -> list[Tried] | None:
    """What following the next step can lead to; None where it names a person, or another session."""
    step = refusal.next
    if step.startswith(("ask an operator", "begin a new session", "have an operator")):
        return None
    if match := re.fullmatch(rf"eliminate (\d+) more of the hypotheses in {WHERE}", step):
        left = tried.belief.n_survivors - int(match[1])
        return [replace(tried, belief=replace(tried.belief, n_survivors=left))]
    if step.startswith("leave obligation"):
        return [replace(tried, belief=replace(tried.belief, active_obligation_id=None))]
    if step == f"conclude in {WHERE}, and request its termination":
        return [replace(tried, belief=replace(tried.belief, terminated=True))]
    if step == f"go on in {WHERE} until it is so":
        names = [None, *(f"{each}" for each in VALUES)]
        return [replace(tried, belief=replace(tried.belief, active_obligation_id=each)) for each in names]
    texts = [each if isinstance(each, str) else msgspec.json.encode(each).decode() for each in VALUES]
    for known in ("fact.a", "goal.a"):
        if step in (
            f"wait until a tool or an encoder reports another `{known}`",
            f"propose a change of `{known}` first",
        ):
            return [replace(tried, state={}), *(replace(tried, state={known: text}) for text in texts)]
    assert step == "propose it with another `args.n`"
    return [replace(tried, args={}), *(replace(tried, args={"n": value}) for value in VALUES)]


@pytest.mark.req("GATES-REFUSAL-NEXT")
@given(
    ASKED,
    READ,
    st.sampled_from(VALUES),
    st.sampled_from(VALUES),
    st.integers(0, 5),
    st.booleans(),
    st.sampled_from([None, "look", "1"]),
    st.booleans(),
)
def test_following_the_next_step_leads_on(
    op: str, read: str, literal: Any, found: Any, left: int, ended: bool, active: str | None, negated: bool
) -> None:
    asked = {"exists": (), "missing": (), "in": ([literal, "on"],)}.get(op, (literal,))
    when = predicate(op, read, *asked)
    when = predicate("not", when) if negated else when
    text = found if isinstance(found, str) else msgspec.json.encode(found).decode()
    reading = BeliefReading("S", True, n_survivors=left, terminated=ended, active_obligation_id=active)
    tried = Tried({read: text} if "$" not in read else {}, {"n": found} if read == "$args.n" else {}, reading)
    refusal = tried.decide(when)
    if refusal is None:
        return
    followed = list_next(tried, refusal)
    if followed is None:
        return
    # Doing what it says opens the gate, or leads to another refusal: a rule may ask for what can never be.
    possible = [each.decide(when) for each in followed]
    assert any(each != refusal for each in possible), (refusal.next, when)
    if refusal.next.startswith(("eliminate", "leave")):
        assert possible == [None], (refusal.next, when)


@pytest.mark.req("GATES-REFUSAL-NEXT")
def test_a_goal_that_the_proposal_sets_is_not_to_be_changed_first() -> None:
    pairs = ALLOW_ALL | {"policy.invariant.calm": msgspec.json.encode(predicate("eq", "goal.a", "on")).decode()}
    [refusal] = refuse(ready(pairs), StateDelta({"goal.a": "off"}))
    assert refusal.next == "propose another value of `goal.a`"
    assert refuse(ready(pairs), StateDelta({"goal.a": "on"})) == []
    [refusal] = refuse(ready(pairs, {"goal.a": "on"}), StateDelta(unset=["goal.a"]))
    assert refusal.next == "do not unset `goal.a`"
    [refusal] = refuse(ready(pairs), StateDelta({"goal.b": "x"}))
    assert refusal.next == "propose a change of `goal.a` first"
