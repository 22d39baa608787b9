"""What becomes of whole proposals: commits judged together, atomic or not, observed, checked again, traced."""

from typing import Any

import msgspec
from immutables import Map

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate, recheck
from cmbs.substrate.kernel.arbitration.conflicts import Finding
from cmbs.substrate.kernel.arbitration.stages import hash_of_args
from cmbs.substrate.kernel.events import Changes, Mode
from cmbs.substrate.kernel.model import Candidate, Failure, ReasonCode, Stage, StateDelta, Verdict
from cmbs.testing.spaces import AGENT, NOW, call, payload, predicate, proposal, tool, with_execution
from tests.support.arbitrating import ALLOW_ALL, MIXED, NEEDS_PATH, decide, ready, reason
from tests.support.subtests import for_each

ENCODER = Actor(ActorKind.ENCODER, "encoder-1")

# --- conflicts and invariants -----------------------------------------------------------------------------------------

EXCLUSIVE = ALLOW_ALL | {"policy.exclusive.g": '["goal.a","goal.b"]'}


@for_each(
    ("state", "deltas", "expected"),
    [
        ({}, [StateDelta({"goal.a": "1"})], ReasonCode.ALLOWED),
        ({}, [StateDelta({"goal.a": "1", "goal.b": "1"})], ReasonCode.EXCLUSIVE_GOALS),
        ({}, [StateDelta({"goal.a": "1"}), StateDelta({"goal.b": "1"})], ReasonCode.EXCLUSIVE_GOALS),
        ({"goal.b": "1"}, [StateDelta({"goal.a": "1"})], ReasonCode.EXCLUSIVE_GOALS),
        ({"goal.b": "1"}, [StateDelta({"goal.a": "1"}, ["goal.b"])], ReasonCode.ALLOWED),
        ({"goal.b": "1"}, [StateDelta({"goal.b": "2"})], ReasonCode.ALLOWED),
        ({"goal.a": "1", "goal.b": "1"}, [StateDelta({}, ["goal.a"])], ReasonCode.ALLOWED),
        ({"goal.a": "1", "goal.b": "1"}, [StateDelta({"goal.c": "1"})], ReasonCode.ALLOWED),
    ],
)
def test_of_exclusive_goals_one_may_be_set(
    state: dict[str, str], deltas: list[StateDelta], expected: ReasonCode
) -> None:
    decision = decide(ready(EXCLUSIVE, state), *deltas).decision
    assert decision.reason_code == expected
    if expected is not ReasonCode.ALLOWED:
        assert decision.stage is Stage.CONFLICTS
        assert {tuple(each.matched) for each in decision.candidates} == {("policy.exclusive.g",)}


INVARIANT = ALLOW_ALL | {
    "policy.invariant.i": '{"op":"not","args":[{"op":"eq","args":["goal.a","bad"]}]}',
    "policy.invariant.j": '{"op":"missing","args":["goal.z"]}',
}


def test_an_invariant_is_judged_on_the_state_as_it_would_be() -> None:
    assert reason(ready(INVARIANT), StateDelta({"goal.a": "good"})) == ReasonCode.ALLOWED
    decision = decide(ready(INVARIANT), StateDelta({"goal.a": "bad", "goal.z": "1"})).decision
    assert (decision.reason_code, decision.stage) == (ReasonCode.INVARIANT_VIOLATED, Stage.INVARIANTS)
    assert decision.candidates[0].matched == ("policy.invariant.i", "policy.invariant.j")
    # One that is violated already is violated after any commit that does not mend it.
    violated = {"goal.a": "bad"}
    assert reason(ready(INVARIANT, violated), StateDelta({"goal.c": "1"})) == ReasonCode.INVARIANT_VIOLATED
    assert reason(ready(INVARIANT, violated), StateDelta({}, ["goal.a"])) == ReasonCode.ALLOWED


def test_what_cannot_be_read_of_a_policy_denies_what_it_may_concern() -> None:
    unreadable = ALLOW_ALL | {"policy.exclusive.g": "?"}
    assert reason(ready(unreadable), StateDelta({"goal.a": "1"})) == ReasonCode.MALFORMED_POLICY
    assert reason(ready(unreadable), StateDelta({"fact.a": "1"}), actor=ENCODER) == ReasonCode.ALLOWED
    assert reason(ready(unreadable), call()) == ReasonCode.ALLOWED
    decision = decide(ready(INVARIANT | {"policy.invariant.k": "?"}), StateDelta({"goal.a": "bad"})).decision
    assert (decision.reason_code, decision.stage) == (ReasonCode.MALFORMED_POLICY, Stage.INVARIANTS)
    assert decision.candidates[0].matched == ("policy.invariant.k",)


def test_deltas_that_passed_so_far_are_judged_together_and_fail_together() -> None:
    deltas = [StateDelta({"goal.c": "1"}), StateDelta({"goal.a": "bad"}), StateDelta({"fact.no": "1"})]
    ruling = decide(ready(INVARIANT), *deltas, call(), atomic=False)
    assert [each.reason_code for each in ruling.decision.candidates] == [
        ReasonCode.INVARIANT_VIOLATED,
        ReasonCode.INVARIANT_VIOLATED,
        ReasonCode.AUTHORITY_DENIED,
        ReasonCode.ALLOWED,
    ]
    assert [each.runs for each in ruling.candidates] == [False, False, False, True]
    assert ruling.changes == Changes()


def test_changes_are_what_really_changes() -> None:
    kept = ready(state={"goal.same": "1", "goal.gone": "1"})
    delta = StateDelta({"goal.same": "1", "goal.new": "2", "goal.b": "3"}, ["goal.gone", "goal.never"])
    assert decide(kept, delta).changes == Changes({"goal.b": "3", "goal.new": "2"}, ["goal.gone"])


# --- whole proposals --------------------------------------------------------------------------------------------------


def test_one_candidate_that_fails_holds_an_atomic_proposal_back() -> None:
    ruling = decide(ready(), call(), StateDelta({"goal.a": "1"}), StateDelta({"fact.a": "1"}))
    assert ruling.decision.verdict is Verdict.DENY
    assert [each.reason_code for each in ruling.decision.candidates] == [
        ReasonCode.HELD_BACK,
        ReasonCode.HELD_BACK,
        ReasonCode.AUTHORITY_DENIED,
    ]
    assert not any(each.runs for each in ruling.candidates)
    assert ruling.changes == Changes()


def test_of_a_proposal_that_is_not_atomic_the_rest_goes_on() -> None:
    ruling = decide(ready(), StateDelta({"goal.a": "1"}), StateDelta({"fact.a": "1"}), atomic=False)
    assert ruling.decision.verdict is Verdict.ALLOW
    assert ruling.changes == Changes({"goal.a": "1"})
    nothing = decide(ready(), StateDelta({"fact.b": "1"}), StateDelta({"fact.a": "1"}), atomic=False)
    assert nothing.decision.verdict is Verdict.DENY


def test_the_strictest_failure_decides_for_a_proposal() -> None:
    both = [call("email.send"), call()]
    ruling = decide(ready(MIXED), *both)
    assert (ruling.decision.failure, ruling.parks) == (Failure.ASK, False)
    assert [each.asks for each in ruling.candidates] == [(), ("constraint.ask",)]
    blocked = decide(ready(MIXED), *both, call("gone"))
    assert blocked.decision.reason_code == ReasonCode.UNKNOWN_TOOL
    assert [each.asks for each in blocked.candidates] == [(), (), ()]
    assert decide(ready(MIXED), call("email.send")).parks


def test_candidates_of_a_proposal_that_is_not_atomic_ask_and_wait_each_for_itself() -> None:
    pairs = ALLOW_ALL | {
        "constraint.ask": payload(effect="deny", on_fail="ask", when=predicate("exists", "$args.set.goal.a")),
        "constraint.defer": payload(
            effect="deny", on_fail="defer", subject={"tool_id": "email.send"}, when=predicate("missing", "fact.go")
        ),
    }
    drawn: list[Candidate] = [StateDelta({"goal.a": "1"}), StateDelta({"goal.b": "1"})]
    drawn += [call("email.send"), call("gone", key="x")]
    apart = decide(ready(pairs), *drawn, atomic=False)
    assert apart.decision.verdict is Verdict.ALLOW
    assert [each.asks for each in apart.candidates] == [("constraint.ask",), (), (), ()]
    assert apart.candidates[0].args_hash == hash_of_args(drawn[0])
    assert (apart.parks, apart.waits_for) == (True, ("fact.go",))
    assert apart.changes == Changes({"goal.b": "1"})
    together = decide(ready(pairs), *drawn)
    assert (together.parks, together.waits_for) == (False, ())
    assert not any(each.asks for each in together.candidates)


# --- observing --------------------------------------------------------------------------------------------------------


@for_each(
    ("candidate", "fields", "runs"),
    [
        (call(), {"pairs": {}}, True),
        (call(held=None), {}, True),
        (call(), {"tools": (NEEDS_PATH,)}, True),
        (StateDelta({"goal.a": "1"}), {"pairs": {}}, True),
        (StateDelta({"goal.z": "1"}), {"pairs": INVARIANT}, True),
        (call("gone"), {}, False),
        (call(), {"tools": (tool(retired=True),)}, False),
        (call(key=None), {}, False),
        (call(args={"other": 1}), with_execution(call(), tool()), False),
        (StateDelta({"fact.a": "1"}), {}, False),
        (StateDelta({"policy.value.a": "1"}), {}, False),
        (StateDelta({"elsewhere": "1"}), {}, False),
    ],
)
def test_observing_records_what_would_be_and_keeps_up_what_cannot_be_let_go(
    candidate: Candidate, fields: dict[str, Any], runs: bool
) -> None:
    ruling = decide(ready(mode=Mode.OBSERVE, **fields), candidate)
    assert ruling.decision.observed
    assert ruling.decision.verdict is Verdict.DENY
    assert ruling.candidates[0].runs is runs
    assert bool(ruling.changes.set) is (runs and isinstance(candidate, StateDelta))


def test_observing_finds_what_it_keeps_up_behind_what_it_lets_go() -> None:
    kept = ready(mode=Mode.OBSERVE, changed=Map({"fact.a": 15}))
    ruling = decide(kept, StateDelta({"fact.a": "1"}), snapshot="snapshot-old")
    assert ruling.decision.reason_code == ReasonCode.STALE_SNAPSHOT
    assert not ruling.candidates[0].runs
    tools = (tool(args_schema=msgspec.Raw(b'{"required":["path"]}')),)
    ruling = decide(ready(mode=Mode.OBSERVE, tools=tools), call(key=None))
    assert ruling.decision.reason_code == ReasonCode.ARGS_INVALID
    assert not ruling.candidates[0].runs


def test_observing_an_atomic_proposal_runs_all_of_it_or_nothing() -> None:
    kept = ready({}, mode=Mode.OBSERVE)
    assert [each.runs for each in decide(kept, call(), call("gone")).candidates] == [False, False]
    assert [each.runs for each in decide(kept, call(), call("gone"), atomic=False).candidates] == [True, False]
    asked = decide(ready(MIXED, mode=Mode.OBSERVE), call())
    assert (asked.candidates[0].runs, asked.candidates[0].asks, asked.parks) == (True, (), False)


# --- once more, before a late commit ----------------------------------------------------------------------------------


def test_deltas_that_waited_for_calls_are_checked_again_on_the_state_of_then() -> None:
    asked = proposal(
        call(), StateDelta({"goal.a": "1"}, ["goal.b"]), StateDelta({"goal.c": "1"}), snapshot="snapshot-old"
    )
    assert recheck(ready(state={"goal.b": "x"}), asked, AGENT, [1], {}) == Changes({"goal.a": "1"}, ["goal.b"])
    moved = recheck(ready(changed=Map({"goal.b": 12})), asked, AGENT, [1], {})
    assert isinstance(moved, Finding)
    assert moved.reason_code == ReasonCode.STALE_SNAPSHOT
    assert recheck(ready(changed=Map({"goal.b": 12})), asked, AGENT, [2], {}) == Changes({"goal.c": "1"})
    crowded = recheck(ready(EXCLUSIVE, {"goal.b": "1"}), proposal(StateDelta({"goal.a": "1"})), AGENT, [0], {})
    assert isinstance(crowded, Finding)
    assert crowded.reason_code == ReasonCode.EXCLUSIVE_GOALS
    forged = recheck(ready(), proposal(StateDelta({"goal.a": "1"}), snapshot="never"), AGENT, [0], {})
    assert isinstance(forged, Finding)
    assert forged.reason_code == ReasonCode.UNKNOWN_SNAPSHOT


# --- the trace --------------------------------------------------------------------------------------------------------


def test_the_trace_goes_through_every_stage_even_after_one_that_failed() -> None:
    kept = ready(
        MIXED | {"policy.exclusive.g": '["goal.a","goal.b"]', "constraint.bad": "?"}, changed=Map({"goal.a": 15})
    )
    asked = proposal(call("gone", held=None), StateDelta({"goal.a": "1"}), snapshot="snapshot-old")
    trace = arbitrate(kept, asked, AGENT, NOW, {}).decision.trace
    of_call = [(step.stage, step.passed, step.note) for step in trace if step.candidate == 0 and step.key is None]
    assert of_call == [
        (Stage.SHAPE, True, None),
        (Stage.FRESHNESS, True, None),
        (Stage.AUTHORITY, True, None),
        (Stage.TOOL, False, "UNKNOWN_TOOL"),
        (Stage.TOOL, True, None),
        (Stage.CAPABILITY, False, "CAPABILITY_REQUIRED"),
        (Stage.CONSTRAINTS, False, "MALFORMED_CONSTRAINT"),
    ]
    assert ("goal.a", False) in [(step.reference, step.passed) for step in trace if step.stage is Stage.FRESHNESS]
    assert ("constraint.bad", "malformed") in [(step.key, step.note) for step in trace]
