"""Why, and what would have turned it: the flips are what arbitration says, no smaller one exists, and nothing leaks."""

from itertools import combinations, product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.messages import ActorKind
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.insight import fact_domains
from cmbs.substrate.kernel.insight import flips as flipping
from cmbs.substrate.kernel.insight.explanation import Explanation, Hypothetical, explain, redact
from cmbs.substrate.kernel.insight.flips import smallest_flip
from cmbs.substrate.kernel.model import BeliefReading, Decision, ReasonCode, Stage, Verdict
from cmbs.substrate.kernel.policy.policy import Policy, compile_policy
from cmbs.substrate.kernel.words import FlipStatus
from tests.support.policies import (
    allow,
    ask,
    beliefs,
    call,
    candidates,
    delta,
    deny,
    eq,
    op,
    policies,
    policy_of,
    states,
    wide_policies,
)
from tests.support.subtests import for_each

OPERATOR, AGENT = ActorKind.OPERATOR, ActorKind.AGENT


def explain_to(policy: Policy, *proposed: Any, reader: ActorKind = OPERATOR, **situation: Any) -> Explanation:
    return explain(ask(policy, list(proposed), **situation), reader)


def changes(explanation: Explanation) -> list[tuple[str, str | None, str | None]]:
    return [(each.reference, each.now, each.to) for each in explanation.flip.changes]


def decision_of(it: Hypothetical) -> Decision:
    return arbitrate(it.space, it.proposal, it.actor, it.now, it.belief).decision


# --- why --------------------------------------------------------------------------------------------------------------


def test_a_denial_names_the_constraint_the_predicate_the_key_and_what_it_found() -> None:
    policy = policy_of(ok=allow("one"), no=deny("one", eq("fact.a", "p"), reason="not with p"))
    explanation = explain_to(policy, call(), state={"fact.a": "p"})
    (because,) = explanation.because
    assert (because.verdict, because.reason_code, because.stage) == (
        Verdict.DENY,
        ReasonCode.CONSTRAINT_DENIED,
        Stage.CONSTRAINTS,
    )
    (speaker,) = because.speakers
    assert (speaker.key, speaker.reason, speaker.value) == (
        "constraint.no",
        "not with p",
        policy.pairs["constraint.no"],
    )
    assert [(step.at, step.op, step.reference, step.found, step.passed) for step in speaker.steps] == [
        ("when", "eq", "fact.a", "p", True)
    ]
    assert not because.approvable


def test_what_asks_can_be_approved() -> None:
    explanation = explain_to(policy_of(ok=allow("one"), ask=deny("one", on_fail="ask")), call())
    assert explanation.because[0].approvable
    assert explanation.flip.status is FlipStatus.NONE
    assert explanation.flip.note == "no state and no belief would have led to another verdict"


def test_an_invariant_and_a_group_speak_too() -> None:
    policy = policy_of(any=allow(), policy__invariant__i=eq("goal.c", "q"), policy__exclusive__g=["goal.c", "goal.d"])
    explanation = explain_to(policy, delta(c="p"), state={"goal.d": "1"})
    assert [speaker.key for speaker in explanation.because[0].speakers] == ["policy.exclusive.g"]
    explanation = explain_to(policy, delta(c="p"))
    (speaker,) = explanation.because[0].speakers
    assert (speaker.key, [step.found for step in speaker.steps]) == ("policy.invariant.i", ["p"])


# --- what would have turned it ----------------------------------------------------------------------------------------


FEW = op("schema", "$belief.S.n_survivors", {"maximum": 1})
GATE = op("all", FEW, eq("$belief.S.active_obligation_id", None))
NO_SESSION = [("$belief.S.active_obligation_id", None, "null"), ("$belief.S.n_survivors", None, "1")]
NINE = {"belief": {"S": {"n_survivors": 9}}}
HARD = {"type": "string", "pattern": "^[a-z]{9}$"}
WHOLE_AND_PART = op("all", op("schema", "fact.a", {"type": "object"}), eq("fact.a.b", 1), eq("fact.c", 1))
GROUP = {"any": allow(), "policy__exclusive__g": ["goal.c", "goal.d"]}
EITHER = op("any", op("all", eq("fact.a", 1), eq("fact.b", 2)), op("all", eq("fact.c", 1)))


def gate(when: Any, **more: Any) -> dict[str, Any]:
    return {"ok": allow("one", when, **more)}


@for_each(
    ("policy", "proposed", "situation", "changed"),
    [
        (gate(FEW, on_fail="defer"), call(), NINE, [("$belief.S.n_survivors", "9", "1")]),
        (
            gate(op("schema", "$belief.S.entropy_proxy", {"maximum": 1})),
            call(),
            NINE,
            [("$belief.S.n_survivors", "9", "2")],
        ),
        (gate(eq("$belief.S.terminated", True)), call(), NINE, [("$belief.S.terminated", "false", "true")]),
        (
            gate(eq("$belief.S.survivors", ["h"])),
            call(),
            {"belief": {"S": {"survivors": ["h", "g"]}}},
            [("$belief.S.survivors", '["h","g"]', '["h"]')],
        ),
        (
            gate(op("schema", "$belief.S.concluded", {"contains": {"const": "h"}})),
            call(),
            NINE,
            [("$belief.S.concluded", "[]", '["h"]')],
        ),
        (
            gate(eq("$belief.S.active_obligation_id", "o")),
            call(),
            NINE,
            [("$belief.S.active_obligation_id", "null", "o")],
        ),
        (gate(op("missing", "$belief.S.terminated")), call(), NINE, [("$belief.S.terminated", "false", None)]),
        # A session that is not there would have to be.
        (gate(GATE), call(), {}, NO_SESSION),
        (gate(GATE), call(), {"belief": {"S": {"found": False}}}, NO_SESSION),
        # A field inside a key is changed, and the rest of the key stays.
        (
            gate(op("all", eq("fact.a.b", "p"), eq("fact.a.c", 1))),
            call(),
            {"state": {"fact.a": {"b": "q", "c": 1, "other": [1]}}},
            [("fact.a", '{"b":"q","c":1,"other":[1]}', '{"b":"p","c":1,"other":[1]}')],
        ),
        (gate(eq("fact.a.1", "p")), call(), {"state": {"fact.a": ["x", "y"]}}, [("fact.a", '["x","y"]', '["x","p"]')]),
        # As few facts as possible, and all that are needed.
        (
            {**gate(EITHER), "no": deny("one", eq("fact.c", 1))},
            call(),
            {},
            [("fact.a", None, "1"), ("fact.b", None, "2")],
        ),
        ({"ok": allow("one"), "no": deny("one", eq("fact.a", "p"))}, call(), {}, [("fact.a", None, "p")]),
        (GROUP, delta(c="p"), {"state": {"goal.d": "1"}}, [("goal.d", "1", None)]),
        (GROUP, delta(c="p"), {}, [("goal.d", None, "present")]),
        # Only the smaller numbers of facts have to be covered.
        (
            {**gate(op("any", op("schema", "fact.b", HARD), eq("fact.b", "p"))), "no": deny("one", eq("fact.a", "p"))},
            call(),
            {"state": {"fact.a": "p"}},
            [("fact.a", "p", None), ("fact.b", None, "p")],
        ),
    ],
)
def test_the_smallest_change_of_facts_turns_a_decision(
    policy: dict[str, Any], proposed: Any, situation: dict[str, Any], changed: list[tuple[str, str | None, str | None]]
) -> None:
    explanation = explain_to(policy_of(**policy), proposed, **situation)
    assert (changes(explanation), explanation.flip.status) == (changed, FlipStatus.SMALLEST)
    assert (explanation.flip.verdict is Verdict.ALLOW) is (explanation.decision.verdict is not Verdict.ALLOW)


def test_survivors_that_a_reading_does_not_carry_are_not_made_up() -> None:
    when = op("all", op("exists", "$belief.S.survivors"), op("schema", "$belief.S.n_survivors", {"minimum": 3}))
    explanation = explain_to(policy_of(ok=allow("one", when)), call(), belief={"S": {"n_survivors": 5}})
    assert explanation.flip.status in {FlipStatus.SMALLEST, FlipStatus.UNKNOWN}


def test_nothing_that_facts_do_not_decide_is_turned_by_facts() -> None:
    policy = policy_of(ok=allow("one", eq("fact.a", "p")))
    explanation = explain_to(policy, call(token="unknown"))
    assert (explanation.flip.status, explanation.flip.note) == (
        FlipStatus.NONE,
        "it was decided at the stage `capability`, which no fact changes",
    )
    allowed = explain_to(policy_of(ok=allow("one")), call())
    assert (allowed.flip.status, allowed.flip.note) == (
        FlipStatus.NONE,
        "nothing that was decided here depends on facts",
    )
    assert explain_to(policy_of(ok=allow())).flip.status is FlipStatus.NONE
    assert explain_to(policy_of(bad="no"), call()).because[0].reason_code is ReasonCode.MALFORMED_CONSTRAINT


def test_each_of_several_candidates_has_to_be_turned() -> None:
    policy = policy_of(one=allow("one", eq("fact.a", "p")), two=allow("two", eq("fact.b", "p")))
    explanation = explain_to(policy, call("one"), call("two"))
    assert changes(explanation) == [("fact.a", None, "p"), ("fact.b", None, "p")]
    assert explain_to(policy, call("one"), call("two"), state={"fact.a": "p"}).flip.changes[0].reference == "fact.b"
    loose = explain_to(policy, call("one"), call("two"), atomic=False)
    assert len(loose.flip.changes) == 1


def test_where_values_cannot_be_covered_the_answer_is_a_bound_or_not_known() -> None:
    both = op("all", op("any", op("schema", "fact.a", HARD), eq("fact.a", "p")), eq("fact.b", 1))
    assert explain_to(policy_of(**gate(both)), call()).flip.status is FlipStatus.BOUND
    unknown = explain_to(policy_of(**gate(op("schema", "fact.a", HARD))), call())
    assert (unknown.flip.status, unknown.flip.ruled_out) == (FlipStatus.UNKNOWN, 0)
    # A key that is read as a whole and in part is never said to be covered.
    explanation = explain_to(policy_of(**gate(WHOLE_AND_PART)), call(), state={"fact.a": "text"})
    assert explanation.flip.status is FlipStatus.BOUND
    assert changes(explanation) == [("fact.a", "text", '{"b":1}'), ("fact.c", None, "1")]


def test_a_spent_budget_says_how_far_it_came() -> None:
    facts = [f"fact.k{place}" for place in range(9)]
    policy = policy_of(ok=allow("one", op("all", *(eq(fact, 1) for fact in facts))))
    found = smallest_flip(ask(policy, [call()]), max_decisions=300)
    assert found.status is FlipStatus.UNKNOWN
    assert found.decisions == 300
    assert found.ruled_out >= 1
    assert smallest_flip(ask(policy, [call()]), max_decisions=0).status is FlipStatus.UNKNOWN
    # The decision that turns it may be the last one there is.
    single = ask(policy_of(ok=allow("one", eq("fact.a", 1))), [call()])
    assert smallest_flip(single, smallest_flip(single).decisions).status is FlipStatus.SMALLEST


def test_facts_beyond_the_number_that_is_searched_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flipping, "MAX_FACTS", 1)
    found = smallest_flip(ask(policy_of(ok=allow("one", op("all", eq("fact.a", 1), eq("fact.b", 1)))), [call()]))
    assert (found.status, found.ruled_out) == (FlipStatus.UNKNOWN, 1)


def test_a_key_with_too_many_fields_is_tried_one_field_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_domains, "MAX_ALTERATIONS", 8)
    policy = policy_of(ok=allow("one", op("all", eq("fact.a.b", 1), eq("fact.a.c", 2), eq("fact.a.d", 3))))
    assert explain_to(policy, call(), state={"fact.a": {"b": 1, "c": 2}}).flip.status is FlipStatus.SMALLEST
    assert explain_to(policy, call()).flip.status is FlipStatus.BOUND


# --- against everything -----------------------------------------------------------------------------------------------


TEXTS = [None, "p", "q", "5", "5.5", '"5"', "true", "null", '["h"]', '{"x":"p"}', "", "ppp", "7"]
READINGS = [None, *product((0, 1, 3, 5, 6), ([], ["h"], ["other"]))]


def apply_changes(it: Hypothetical, key: str, choice: Any) -> Hypothetical:
    if key == "S":
        reading = BeliefReading("S", False)
        if choice is not None:
            reading = BeliefReading("S", True, n_survivors=choice[0], concluded=choice[1])
        return it._replace(belief={"S": reading})
    state = it.space.state.delete(key) if choice is None and key in it.space.state else it.space.state
    state = state if choice is None else state.set(key, choice)
    return it._replace(space=msgspec.structs.replace(it.space, state=state))


def turns(it: Hypothetical, number: int) -> bool:
    """Whether some change of so many facts, of those in the vocabulary, turns the decision."""
    was = decision_of(it).verdict is Verdict.ALLOW
    keys = ["fact.a", "fact.b", "goal.c", "S"]
    for chosen in combinations(keys, number):
        for choices in product(*(READINGS if key == "S" else TEXTS for key in chosen)):
            other = it
            for key, choice in zip(chosen, choices, strict=True):
                other = apply_changes(other, key, choice)
            if (decision_of(other).verdict is Verdict.ALLOW) is not was:
                return True
    return False


@given(policies() | wide_policies(), st.lists(candidates, min_size=1, max_size=2), states, beliefs, st.booleans())
def test_a_flip_turns_the_decision_and_none_is_smaller(
    pairs: dict[str, str], proposed: list[Any], state: Any, belief: Any, atomic: bool
) -> None:
    it = ask(compile_policy(pairs), proposed, state=state, belief=belief, atomic=atomic)
    found = smallest_flip(it, 2_000)
    was = decision_of(it).verdict is Verdict.ALLOW
    if found.alterations:
        other = it
        for each in found.alterations:
            if each.reading is not None:
                other = other._replace(belief={**other.belief, each.reading.session_id: each.reading})
            else:
                other = apply_changes(other, each.fact, each.text)
        assert (decision_of(other).verdict is Verdict.ALLOW) is not was
        assert found.decision == decision_of(other)
    sure = len(found.alterations) - 1 if found.status is FlipStatus.SMALLEST else found.ruled_out
    if found.status is FlipStatus.NONE:
        sure = 1
    if sure >= 1:
        assert not turns(it, 1)


# --- what is not theirs to read ---------------------------------------------------------------------------------------


def test_an_agent_learns_which_fact_and_not_which_value_the_policy_asks_for() -> None:
    policy = policy_of(ok=allow("one", eq("fact.a", "open sesame")))
    explanation = explain_to(policy, call(), reader=AGENT, state={"fact.a": "p"})
    assert b"sesame" not in msgspec.json.encode(explanation)
    (change,) = explanation.flip.changes
    assert (change.reference, change.now, change.to, change.withheld) == ("fact.a", "p", None, True)
    assert explanation.because[0].speakers[0].value is None
    belief = policy_of(ok=allow("one", op("schema", "$belief.S.n_survivors", {"maximum": 3})))
    (change,) = explain_to(belief, call(), reader=AGENT, belief={"S": {"n_survivors": 9}}).flip.changes
    assert (change.now, change.to, change.withheld) == ("9", None, True)


def test_private_values_are_nowhere_in_what_an_agent_is_told() -> None:
    policy = policy_of(
        ok=allow("one", op("all", eq("fact.customer.name", "x"), eq("policy.value.limit", "y"), eq("fact.a", "p"))),
        policy__private=["fact.customer"],
        policy__value__limit="topmost",
    )
    situation: dict[str, Any] = {"state": {"fact.customer": {"name": "Jane Doe"}, "fact.a": "q"}}
    secret = explain_to(policy, call(), reader=AGENT, **situation)
    assert b"Jane Doe" not in msgspec.json.encode(secret)
    assert b"topmost" not in msgspec.json.encode(secret)
    assert secret.withheld == 2
    assert [step.reference for step in secret.because[0].speakers[0].steps] == ["fact.a"]
    plain = explain_to(policy, call(), **situation)
    assert b"Jane Doe" in msgspec.json.encode(plain)
    assert plain.withheld == 0


def test_a_private_key_that_moved_is_not_named_and_any_other_is() -> None:
    policy = policy_of(any=allow(None, op("exists", "fact.secret", "fact.a")), policy__private=["fact.secret"])
    it = ask(policy, [delta(c="p")], state={"fact.a": "1"}, seen={"fact.secret": "1", "fact.a": "2"})
    decision = decision_of(it)
    moved = {step.reference for step in decision.trace if step.stage is Stage.FRESHNESS and step.reference is not None}
    assert moved == {"fact.secret", "fact.a"}
    shown = redact(decision, policy, AGENT)
    assert {step.reference for step in shown.trace if step.stage is Stage.FRESHNESS} == {"fact.a", None}
    assert redact(decision, policy, OPERATOR) is decision


def test_what_a_rule_found_in_the_args_of_another_is_not_shown() -> None:
    policy = policy_of(any=allow(None, eq("$args.n", 1)))
    decision = decision_of(ask(policy, [call(args={"n": 1})]))
    assert "$args.n" in {step.reference for step in decision.trace}
    assert "$args.n" not in {step.reference for step in redact(decision, policy, AGENT, own=False).trace}
