"""Arbitration by example: each stage of a candidate, each of its reason codes, and the examples of the spec."""

from typing import Any

import msgspec
import pytest
from immutables import Map

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.arbitrate import belief_sessions
from cmbs.substrate.kernel.arbitration.stages import hash_of_args, hash_of_tool
from cmbs.substrate.kernel.events import Asked, Changes
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Budget,
    Candidate,
    Failure,
    Provenance,
    ReasonCode,
    Stage,
    StateDelta,
    ToolCall,
    Verdict,
)
from cmbs.substrate.kernel.state import Approval, GrantKey, Space
from cmbs.substrate.kernel.words import ApprovalStatus
from cmbs.testing.spaces import (
    AGENT,
    EARLIER,
    LATER,
    NOW,
    call,
    payload,
    predicate,
    proposal,
    token,
    tool,
    with_execution,
)
from tests.support.arbitrating import ALLOW_ALL, NEEDS_PATH, decide, ready, reason
from tests.support.subtests import for_each


def test_what_nothing_speaks_against_is_allowed_and_runs() -> None:
    ruling = decide(ready(), call())
    assert ruling.decision.verdict is Verdict.ALLOW
    assert ruling.decision.candidates[0].matched == ("constraint.all",)
    assert ruling.decision.state_snapshot_id == "snapshot-now"
    assert ruling.decision.policy_hash == ready().policy.policy_hash
    assert ruling.candidates[0].runs
    assert ruling.candidates[0].args_hash == hash_of_args(call())


# --- the examples of the spec -----------------------------------------------------------------------------------------


@pytest.mark.req("SS01-6-EXAMPLES")
def test_the_first_example_of_the_spec_blocks_every_mail() -> None:
    pairs = ALLOW_ALL | {
        "constraint.no_send_email": '{"v":1,"effect":"deny","subject":{"tool_id":"email.send"},"on_fail":"block"}'
    }
    decision = decide(ready(pairs), call("email.send")).decision
    assert (decision.verdict, decision.failure) == (Verdict.DENY, Failure.BLOCK)
    assert decision.reason_code == ReasonCode.CONSTRAINT_DENIED
    assert decision.candidates[0].matched == ("constraint.no_send_email",)
    assert reason(ready(pairs), call("fs.write")) == ReasonCode.ALLOWED


@pytest.mark.req("SS01-6-EXAMPLES")
def test_the_second_example_of_the_spec_asks_while_there_is_no_source() -> None:
    pairs = ALLOW_ALL | {
        "constraint.requires_source": '{"v":1,"effect":"deny","subject":{"tool_id":"fs.write"},'
        ' "when":{"op":"missing","args":["fact.source_ref"]},"on_fail":"ask"}'
    }
    ruling = decide(ready(pairs), call())
    assert (ruling.decision.verdict, ruling.decision.failure) == (Verdict.DEFER, Failure.ASK)
    assert ruling.candidates[0].asks == ("constraint.requires_source",)
    assert not ruling.candidates[0].runs
    assert reason(ready(pairs, {"fact.source_ref": "doc-1"}), call()) == ReasonCode.ALLOWED


# --- shape and freshness ----------------------------------------------------------------------------------------------


@for_each(
    ("candidates", "expected"),
    [
        ([], ReasonCode.NOTHING_PROPOSED),
        ([StateDelta()], ReasonCode.NOTHING_PROPOSED),
        ([StateDelta({"elsewhere.x": "1"})], ReasonCode.KEY_OUTSIDE_NAMESPACES),
        ([StateDelta({"goal": "1"})], ReasonCode.KEY_OUTSIDE_NAMESPACES),
        ([StateDelta({}, ["goal."])], ReasonCode.KEY_OUTSIDE_NAMESPACES),
        ([StateDelta({"goal.a": "1"}, ["goal.a"])], ReasonCode.CONFLICTING_CANDIDATES),
        ([StateDelta({"goal.a": "1"}), StateDelta({"goal.a": "2"})], ReasonCode.CONFLICTING_CANDIDATES),
        ([StateDelta({"goal.a": "1"}), StateDelta({}, ["goal.a"])], ReasonCode.CONFLICTING_CANDIDATES),
        ([StateDelta({"goal.a": "1"}), StateDelta({"goal.a": "1"})], ReasonCode.ALLOWED),
        ([call(), call()], ReasonCode.CONFLICTING_CANDIDATES),
        ([call(), call(args={"other": 1})], ReasonCode.CONFLICTING_CANDIDATES),
        ([call(), call(key="other")], ReasonCode.ALLOWED),
        ([call(key=None), call("email.send", key=None)], ReasonCode.IDEMPOTENCY_KEY_REQUIRED),
    ],
)
def test_the_shape_of_candidates(candidates: list[Candidate], expected: ReasonCode) -> None:
    assert reason(ready(), *candidates) == expected


def test_what_clashes_is_turned_down_on_both_sides_and_the_rest_goes_on_where_it_may() -> None:
    clash = [StateDelta({"goal.a": "1"}), StateDelta({"goal.b": "1"}), StateDelta({"goal.a": "2"})]
    ruling = decide(ready(), *clash, atomic=False)
    assert [each.reason_code for each in ruling.decision.candidates] == [
        ReasonCode.CONFLICTING_CANDIDATES,
        ReasonCode.ALLOWED,
        ReasonCode.CONFLICTING_CANDIDATES,
    ]
    assert ruling.changes == Changes({"goal.b": "1"})


@for_each(
    ("provenance", "forged"),
    [
        (Provenance(AGENT.id, EARLIER, permissions=["token-1"]), False),
        (Provenance("agent-2", EARLIER), True),
        (Provenance(AGENT.id, EARLIER, permissions=["token-1", "theirs"]), True),
        (Provenance(AGENT.id, EARLIER, permissions=["none"]), True),
    ],
)
def test_a_forged_provenance_is_found(provenance: Provenance, forged: bool) -> None:
    kept = ready(tokens=(token(), token("theirs", agent_id="agent-2")))
    for candidate in (call(), StateDelta({"goal.a": "1"})):
        found = reason(kept, candidate, provenance=provenance)
        assert (found == ReasonCode.FORGED_PROVENANCE) is forged


def test_permissions_of_an_agent_are_not_those_of_an_encoder_of_the_same_name() -> None:
    provenance = Provenance(AGENT.id, EARLIER, permissions=["token-1"])
    namesake = Actor(ActorKind.ENCODER, AGENT.id)
    assert reason(ready(), StateDelta({"fact.a": "1"}), actor=namesake, provenance=provenance) == (
        ReasonCode.FORGED_PROVENANCE
    )


def test_a_snapshot_that_never_was_is_found() -> None:
    decision = decide(ready(), call(), snapshot="forged").decision
    assert (decision.reason_code, decision.stage) == (ReasonCode.UNKNOWN_SNAPSHOT, Stage.SHAPE)


GUARDED = {"constraint.a": payload(when=predicate("eq", "fact.env.name", "dev"))}


@for_each(
    ("changed", "stale"),
    [
        ({}, False),
        ({"fact.env": 11}, True),
        ({"fact.env.name": 11}, True),
        ({"fact.env": 10}, False),
        ({"fact.x": 11}, False),
    ],
)
def test_a_key_that_a_constraint_reads_and_that_changed_since_makes_a_call_stale(
    changed: dict[str, int], stale: bool
) -> None:
    kept = ready(GUARDED, {"fact.env": '{"name":"dev"}'}, changed=Map(changed))
    ruling = decide(kept, call(), snapshot="snapshot-old")
    assert (ruling.decision.reason_code == ReasonCode.STALE_SNAPSHOT) is stale
    assert not ruling.parks
    assert ruling.decision.failure == (Failure.DEFER if stale else None)
    # On the current snapshot nothing is stale.
    assert reason(kept, call()) == ReasonCode.ALLOWED


def test_a_key_that_is_written_and_that_changed_since_makes_a_delta_stale() -> None:
    kept = ready(changed=Map({"goal.a": 15, "goal.b": 15}))
    assert reason(kept, StateDelta({"goal.a": "1"}), snapshot="snapshot-old") == ReasonCode.STALE_SNAPSHOT
    assert reason(kept, StateDelta({}, ["goal.b"]), snapshot="snapshot-old") == ReasonCode.STALE_SNAPSHOT
    assert reason(kept, StateDelta({"goal.c": "1"}), snapshot="snapshot-old") == ReasonCode.ALLOWED


# --- authority, tool, capability --------------------------------------------------------------------------------------


@pytest.mark.req("SS01-4-AUTHORITY")
@for_each("kind", ActorKind)
@for_each("key", ["policy.value.x", "constraint.all", "goal.a", "fact.a"])
def test_authority_is_by_namespace(kind: ActorKind, key: str) -> None:
    actor = Actor(kind, "someone")
    permitted = (key.startswith("goal.") and kind is ActorKind.AGENT) or (
        key.startswith("fact.") and kind in {ActorKind.ENCODER, ActorKind.TOOL}
    )
    expected = ReasonCode.ALLOWED if permitted else ReasonCode.AUTHORITY_DENIED
    assert reason(ready(), StateDelta({key: "x"}), actor=actor) == expected
    assert reason(ready(), StateDelta({}, [key]), actor=actor) == expected


BROKEN = tool(args_schema=msgspec.Raw(b'{"$ref":"#"}'))


@for_each(
    ("fields", "candidate", "expected"),
    [
        ({"tools": ()}, call(), ReasonCode.UNKNOWN_TOOL),
        ({"tools": (tool(retired=True),)}, call(), ReasonCode.TOOL_RETIRED),
        ({"tools": (NEEDS_PATH,)}, call(), ReasonCode.ARGS_INVALID),
        ({"tools": (NEEDS_PATH,)}, call(args={"path": 1}), ReasonCode.ALLOWED),
        ({"tools": (BROKEN,)}, call(), ReasonCode.ARGS_INVALID),
        ({}, ToolCall("fs.write", msgspec.Raw(b"[]"), "token-1", "k"), ReasonCode.ARGS_INVALID),
        ({}, ToolCall("fs.write", msgspec.Raw(b"{"), "token-1", "k"), ReasonCode.ARGS_INVALID),
        ({}, ToolCall("fs.write", msgspec.Raw(b'{"a":"\xff"}'), "token-1", "k"), ReasonCode.ARGS_INVALID),
        ({}, ToolCall("fs.write", msgspec.Raw(b'{"a":' + b"[" * 100_000), "token-1", "k"), ReasonCode.ARGS_INVALID),
        ({}, call(key=None), ReasonCode.IDEMPOTENCY_KEY_REQUIRED),
        ({}, call("email.send", key=None), ReasonCode.ALLOWED),
        ({}, call(held=None), ReasonCode.CAPABILITY_REQUIRED),
        ({}, call(held="none"), ReasonCode.CAPABILITY_UNKNOWN),
        ({"tokens": (token(agent_id="agent-2"),)}, call(), ReasonCode.CAPABILITY_OTHER_AGENT),
        ({"tokens": (token(expires_at=EARLIER),)}, call(), ReasonCode.CAPABILITY_EXPIRED),
        ({"revoked": Map({"token-1": 3})}, call(), ReasonCode.CAPABILITY_REVOKED),
        ({"tokens": (token(tool_ids=["other"]),)}, call(), ReasonCode.CAPABILITY_TOOL),
        ({"tokens": (token(budget=Budget(calls=0)),)}, call(), ReasonCode.BUDGET_EXHAUSTED),
    ],
)
def test_tool_and_capability(fields: dict[str, Any], candidate: Candidate, expected: ReasonCode) -> None:
    assert reason(ready(**fields), candidate) == expected


def test_a_repeat_of_the_very_same_call_is_answered_by_the_first_and_spends_nothing() -> None:
    spent_out = (token(budget=Budget(calls=0)),)
    ruling = decide(ready(tokens=spent_out, **with_execution(call(), tool())), call())
    assert ruling.candidates[0].answered_by == "execution-1"
    assert ruling.candidates[0].runs


@pytest.mark.parametrize("repeat", [call(args={"other": 1}), call(held="token-2")], ids=["args", "token"])
def test_the_key_of_an_earlier_call_with_anything_else_changed_is_refused(repeat: ToolCall) -> None:
    kept = ready(tokens=(token(), token("token-2")), **with_execution(call(), tool()))
    assert reason(kept, repeat) == ReasonCode.IDEMPOTENCY_CONFLICT


# --- constraints ------------------------------------------------------------------------------------------------------

FALSE = predicate("exists", "fact.never")


@for_each(
    ("pairs", "expected", "failure", "matched"),
    [
        ({}, ReasonCode.NO_ALLOW, Failure.BLOCK, []),
        ({"constraint.a": payload(subject={"tool_id": "other"})}, ReasonCode.NO_ALLOW, Failure.BLOCK, []),
        ({"constraint.a": payload(effect="deny", when=FALSE)}, ReasonCode.NO_ALLOW, Failure.BLOCK, []),
        ({"constraint.a": payload(when=FALSE)}, ReasonCode.ALLOW_UNMET, Failure.BLOCK, ["constraint.a"]),
        (
            {"constraint.a": payload(when=FALSE, on_fail="ask"), "constraint.b": payload(when=FALSE, on_fail="defer")},
            ReasonCode.ALLOW_UNMET,
            Failure.ASK,
            ["constraint.a"],
        ),
        (
            {
                "constraint.a": payload(when=FALSE),
                "constraint.b": payload(subject={"capability": "net"}, when=FALSE, on_fail="ask"),
                "constraint.c": payload(subject={"tool_id": "fs.write"}, when=FALSE, on_fail="defer"),
            },
            ReasonCode.ALLOW_UNMET,
            Failure.DEFER,
            ["constraint.c"],
        ),
        (
            {
                "constraint.a": payload(when=FALSE),
                "constraint.b": payload(subject={"capability": "net"}, when=FALSE, on_fail="ask"),
            },
            ReasonCode.ALLOW_UNMET,
            Failure.ASK,
            ["constraint.b"],
        ),
        (
            {
                "constraint.a": payload(effect="deny", on_fail="defer"),
                "constraint.b": payload(effect="deny", on_fail="ask"),
                "constraint.d": payload(effect="deny", on_fail="ask", subject={"tool_id": "fs.write"}),
            },
            ReasonCode.CONSTRAINT_DENIED,
            Failure.ASK,
            ["constraint.b", "constraint.d"],
        ),
        (
            {"constraint.a": payload(effect="deny", on_fail="ask"), "constraint.b": payload(effect="deny")},
            ReasonCode.CONSTRAINT_DENIED,
            Failure.BLOCK,
            ["constraint.b"],
        ),
        (
            {"constraint.a": "?", "constraint.b": payload(effect="deny"), "constraint.c": payload(v=3)},
            ReasonCode.MALFORMED_CONSTRAINT,
            Failure.BLOCK,
            ["constraint.a", "constraint.c"],
        ),
        (
            {"constraint.a": payload(v=3, subject={"tool_id": "email.send"}), "constraint.all": payload()},
            ReasonCode.ALLOWED,
            None,
            ["constraint.all"],
        ),
        (
            {"constraint.z": payload(subject={"tool_id": "fs.write"}), "constraint.all": payload()},
            ReasonCode.ALLOWED,
            None,
            ["constraint.z"],
        ),
    ],
)
def test_constraints_come_to_one_answer(
    pairs: dict[str, str], expected: ReasonCode, failure: Failure | None, matched: list[str]
) -> None:
    decided = decide(ready(pairs, tokens=(token(capabilities=["net"]),)), call()).decision.candidates[0]
    assert (decided.reason_code, decided.failure, decided.matched) == (expected, failure, tuple(matched))


def test_the_reason_that_a_policy_gives_is_handed_on() -> None:
    pairs = {"constraint.a": payload(effect="deny"), "constraint.b": payload(effect="deny", reason="ask Kim first")}
    assert decide(ready(pairs), call()).decision.candidates[0].reason == "ask Kim first"


def test_a_null_subject_concerns_deltas_and_tool_id_tells_them_apart() -> None:
    only_deltas = {"constraint.a": payload(when=predicate("missing", "$tool.id"))}
    assert reason(ready(only_deltas), StateDelta({"goal.a": "1"})) == ReasonCode.ALLOWED
    assert reason(ready(only_deltas), call()) == ReasonCode.ALLOW_UNMET
    assert reason(ready({}), StateDelta({"goal.a": "1"})) == ReasonCode.NO_ALLOW
    of_value = {"constraint.a": payload(when=predicate("eq", "$args.set.goal.a", "ship"))}
    assert reason(ready(of_value), StateDelta({"goal.a": "ship"})) == ReasonCode.ALLOWED
    assert reason(ready(of_value), StateDelta({"goal.a": "sink"})) == ReasonCode.ALLOW_UNMET


def test_a_deferred_candidate_waits_for_what_its_constraints_read() -> None:
    when = predicate(
        "all", predicate("eq", "fact.a.b", 1), predicate("schema", "$belief.s.n_survivors", {"maximum": 1})
    )
    kept = ready({"constraint.a": payload(when=when, on_fail="defer")})
    ruling = decide(kept, call())
    assert ruling.parks
    assert ruling.waits_for == ("$belief.s", "fact.a", "fact.a.b")
    assert ruling.decision.candidates[0].waits_for == ruling.waits_for
    reading = BeliefReading("s", found=True, n_survivors=1)
    assert reason(ready(kept.policy.pairs, {"fact.a.b": "1"}), call(), belief={"s": reading}) == ReasonCode.ALLOWED


def test_the_sessions_that_a_decision_may_read_are_known_before_it() -> None:
    def about(session_id: str) -> dict[str, Any]:
        return {"when": predicate("exists", f"$belief.{session_id}.concluded")}

    kept = ready(
        {
            "constraint.a": payload(subject={"tool_id": "fs.write"}, **about("of-tool")),
            "constraint.b": payload(effect="deny", subject={"capability": "net"}, **about("of-name")),
            "constraint.c": payload(**about("of-all")),
            "constraint.d": payload(subject={"tool_id": "other"}, **about("of-other")),
            "policy.invariant.i": '{"op":"exists","args":["$belief.of-invariant.concluded"]}',
        },
        tokens=(token(capabilities=["net"]),),
    )
    assert belief_sessions(kept, proposal(call()), AGENT).keys() == {"of-tool", "of-name", "of-all"}
    assert belief_sessions(kept, proposal(StateDelta({"goal.a": "1"})), AGENT).keys() == {"of-all", "of-invariant"}


# --- degrade ----------------------------------------------------------------------------------------------------------

OFFER = {"policy.degrade.fs.write": '{"mode":"slow"}'}


@for_each(
    ("pairs", "candidate", "failure"),
    [
        (OFFER, call(), Failure.DEGRADE),
        (ALLOW_ALL | OFFER, call(held="none"), Failure.DEGRADE),
        (ALLOW_ALL | OFFER, call(key=None), Failure.BLOCK),
        (OFFER | {"constraint.a": payload(effect="deny", on_fail="ask")}, call(), Failure.ASK),
        (OFFER, call("email.send"), Failure.BLOCK),
        ({"policy.degrade.fs.write": "?"}, call(), Failure.BLOCK),
    ],
)
def test_a_call_that_is_blocked_for_want_of_a_right_is_answered_with_the_offer(
    pairs: dict[str, str], candidate: ToolCall, failure: Failure
) -> None:
    ruling = decide(ready(pairs), candidate)
    decided = ruling.decision.candidates[0]
    assert decided.failure == failure
    assert decided.offer == ('{"mode":"slow"}' if failure is Failure.DEGRADE else None)
    assert not ruling.candidates[0].runs


# --- approvals --------------------------------------------------------------------------------------------------------

ASKING = ALLOW_ALL | {"constraint.ask": payload(effect="deny", on_fail="ask")}


def with_approval(kept: Space, candidate: Candidate, constraint: str = "constraint.ask", **fields: Any) -> Space:
    """The space with an approval of exactly this candidate."""
    tool_id = candidate.tool_id if isinstance(candidate, ToolCall) else None
    tool_hash = hash_of_tool(kept, tool_id)
    asked = Asked("approval-1", 0, hash_of_args(candidate), "", [constraint], LATER, tool_id, tool_hash)
    whole: dict[str, Any] = {"status": ApprovalStatus.APPROVED, "uses_left": 1, "good_until": LATER} | fields
    approval = Approval(asked, "proposal-0", AGENT, kept.policy.policy_hash, **whole)
    key = GrantKey(AGENT.id, tool_id, asked.args_hash, constraint, kept.policy.policy_hash, tool_hash, None)
    return msgspec.structs.replace(
        kept, grants=kept.grants.set(key, "approval-1"), approvals=kept.approvals.set("approval-1", approval)
    )


@pytest.mark.parametrize(
    "candidate", [call(args={"a": 1}), StateDelta({"goal.a": "1"}, ["goal.b"])], ids=["call", "delta"]
)
def test_an_approval_satisfies_the_constraint_that_asked(candidate: Candidate) -> None:
    ruling = decide(with_approval(ready(ASKING), candidate), candidate)
    assert ruling.decision.verdict is Verdict.ALLOW
    assert ruling.candidates[0].used_approvals == ("approval-1",)


def test_an_approval_stands_in_for_a_permission_that_asks_and_is_kept_where_another_permits() -> None:
    pairs = {"constraint.ask": payload(when=FALSE, on_fail="ask")}
    assert decide(with_approval(ready(pairs), call()), call()).candidates[0].used_approvals == ("approval-1",)
    wider = ready(pairs | ALLOW_ALL)
    assert decide(with_approval(wider, call()), call()).candidates[0].used_approvals == ()


@for_each(
    ("fields", "candidate", "expected"),
    [
        ({"good_until": None}, call(args={"a": 1}), ReasonCode.ALLOWED),
        ({}, call(args={"a": 2}), ReasonCode.CONSTRAINT_DENIED),
        ({}, call("email.send", args={"a": 1}), ReasonCode.CONSTRAINT_DENIED),
        ({"good_until": NOW}, call(args={"a": 1}), ReasonCode.CONSTRAINT_DENIED),
        ({"uses_left": 0}, call(args={"a": 1}), ReasonCode.CONSTRAINT_DENIED),
        ({"status": ApprovalStatus.EXPIRED}, call(args={"a": 1}), ReasonCode.CONSTRAINT_DENIED),
    ],
    ids=["without an end", "args", "tool", "expired", "used up", "not approved"],
)
def test_an_approval_covers_exactly_what_was_approved_while_it_is_good(
    fields: dict[str, Any], candidate: ToolCall, expected: ReasonCode
) -> None:
    assert reason(with_approval(ready(ASKING), call(args={"a": 1}), **fields), candidate) == expected


def test_an_approval_is_gone_with_the_policy_that_it_was_given_under() -> None:
    kept = with_approval(ready(ASKING), call())
    changed = kept.policy.change({"policy.value.x": "1"}, [])
    assert reason(msgspec.structs.replace(kept, policy=changed), call()) == ReasonCode.CONSTRAINT_DENIED


def test_an_approval_for_one_call_is_none_for_two_of_them() -> None:
    twins = [call(key="one"), call(key="two")]
    once = with_approval(ready(ASKING), call())
    assert [each.reason_code for each in decide(once, *twins, atomic=False).decision.candidates] == (
        [ReasonCode.CONSTRAINT_DENIED] * 2
    )
    twice = with_approval(ready(ASKING), call(), uses_left=2)
    assert reason(twice, *twins) == ReasonCode.ALLOWED


def test_an_approval_that_covers_two_constraints_is_used_once() -> None:
    pairs = ASKING | {"constraint.ask2": payload(effect="deny", on_fail="ask")}
    kept = with_approval(with_approval(ready(pairs), call()), call(), "constraint.ask2")
    assert decide(kept, call()).candidates[0].used_approvals == ("approval-1",)
