"""Advice on decisions: every reason code says what was wrong and what to do, and doing that helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import Refusal
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.insight.advice import ADVICE, advise
from cmbs.substrate.kernel.insight.explanation import redact
from cmbs.substrate.kernel.insight.refused import Refused
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Budget,
    Candidate,
    Proposal,
    Provenance,
    ReasonCode,
    Scope,
    ScopeMatch,
    Spent,
    StateDelta,
    ToolCall,
    Verdict,
)
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import ProposalStatus
from cmbs.testing.spaces import (
    AGENT,
    EARLIER,
    LATER,
    NOW,
    SNAPSHOT,
    call,
    payload,
    predicate,
    proposal,
    token,
    tool,
    with_execution,
)
from cmbs.testing.strategies.substrate import any_spaces, proposals, readings
from tests.support.arbitrating import ALLOW_ALL, ready
from tests.support.subtests import for_each

OPERATOR = Actor(ActorKind.OPERATOR, "root")


def refuse(
    kept: Space,
    *candidates: Candidate,
    actor: Actor = AGENT,
    reader: Actor | None = None,
    belief: Mapping[str, BeliefReading] | None = None,
    now: str | None = NOW,
    **fields: Any,
) -> list[Refusal]:
    """The refusals of a proposal, to its proposer."""
    asked = proposal(*candidates, actor=actor, **fields)
    return refuse_proposal(kept, asked, actor, reader or actor, belief or {}, now)


def refuse_proposal(
    kept: Space,
    asked: Proposal,
    actor: Actor,
    reader: Actor,
    belief: Mapping[str, BeliefReading],
    now: str | None = NOW,
) -> list[Refusal]:
    decision = arbitrate(kept, asked, actor, NOW, belief).decision
    shown = redact(decision, kept.policy, reader.kind)
    return advise(Refused(kept, asked, actor, shown, reader.kind, kept.policy, ProposalStatus.DENIED, now=now))


def only(refusals: list[Refusal], code: ReasonCode) -> Refusal:
    [refusal] = refusals
    assert refusal.code == code
    return refusal


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-REFUSAL-01")
def test_every_reason_code_has_advice() -> None:
    assert set(ADVICE) == set(ReasonCode) - {ReasonCode.ALLOWED}


@pytest.mark.req("GATES-REFUSAL-01")
@given(any_spaces(), proposals(), readings(), st.sampled_from([AGENT, OPERATOR]), st.sampled_from([NOW, None]))
def test_whatever_is_not_allowed_has_a_refusal_that_can_be_read(
    kept: Space, asked: Proposal, belief: dict[str, BeliefReading], reader: Actor, now: str | None
) -> None:
    decision = arbitrate(kept, asked, AGENT, NOW, belief).decision
    refusals = refuse_proposal(kept, asked, AGENT, reader, belief, now)
    against = [each for each in decision.candidates if each.verdict is not Verdict.ALLOW]
    assert len(refusals) == (len(against) or (decision.verdict is not Verdict.ALLOW))
    for refusal in refusals:
        assert refusal.code in ReasonCode.__members__
        assert refusal.message
        assert refusal.next
        assert not refusal.sentence.endswith(".")
        assert msgspec.json.decode(msgspec.json.encode(refusal), type=Refusal).sentence == refusal.sentence


def test_a_code_without_a_row_still_has_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ADVICE, ReasonCode.NO_ALLOW)
    refusal = only(refuse(ready({}), call()), ReasonCode.NO_ALLOW)
    assert refusal.sentence == "it was not allowed: NO_ALLOW; ask for an explanation of the proposal"


# --- what is accepted is accepted -------------------------------------------------------------------------------------


def follow(kept: Space, asked: Proposal, refusal: Refusal) -> tuple[Space, Proposal] | None:
    """The proposal, corrected as its refusal says; None where the refusal names nothing that a program can put in."""
    place, accepted = refusal.candidate or 0, refusal.accepted
    if refusal.field == "state_snapshot_id":
        return kept, msgspec.structs.replace(asked, state_snapshot_id=accepted)
    if refusal.field == "provenance.source":
        provenance = msgspec.structs.replace(asked.provenance, source=accepted)
        return kept, msgspec.structs.replace(asked, provenance=provenance)
    candidate = asked.candidates[place] if asked.candidates else None
    if not isinstance(candidate, ToolCall):
        return None
    parts: dict[str, Any]
    match refusal.field:
        case "tool_id" if accepted:
            parts = {"tool_id": accepted[0]}
        case "capability_token_id" if accepted:
            parts = {"capability_token_id": accepted[0]}
        case "idempotency_key":
            parts = {"idempotency_key": "a key of its own"}
        case "args.path" if refusal.code == ReasonCode.CAPABILITY_SCOPE:
            [value] = accepted.values()
            parts = {"args": msgspec.Raw(canonical.encode({"path": value}))}
        case _:
            return None
    candidates = list(asked.candidates)
    candidates[place] = msgspec.structs.replace(candidate, **parts)
    return kept, msgspec.structs.replace(asked, candidates=candidates)


@pytest.mark.req("GATES-REFUSAL-02")
@given(any_spaces(), proposals(), readings())
def test_a_proposal_that_follows_its_refusal_is_not_refused_for_the_same_again(
    kept: Space, asked: Proposal, belief: dict[str, BeliefReading]
) -> None:
    for refusal in refuse_proposal(kept, asked, AGENT, AGENT, belief):
        corrected = follow(kept, asked, refusal)
        if corrected is None:
            continue
        again = refuse_proposal(*corrected, AGENT, AGENT, belief)
        same = [each for each in again if (each.candidate, each.code) == (refusal.candidate, refusal.code)]
        assert [each for each in same if (each.field, each.found) == (refusal.field, refusal.found)] == []


# --- shape, freshness, authority --------------------------------------------------------------------------------------


def test_nothing_is_proposed() -> None:
    assert only(refuse(ready()), ReasonCode.NOTHING_PROPOSED).field == "candidates"
    refusal = only(refuse(ready(), StateDelta()), ReasonCode.NOTHING_PROPOSED)
    assert (refusal.field, refusal.candidate) == ("candidates.0", 0)


def test_keys_outside_namespaces_and_of_others_name_those_that_may_be_written() -> None:
    refusal = only(refuse(ready(), StateDelta({"x": "1", "goal.a": "1"})), ReasonCode.KEY_OUTSIDE_NAMESPACES)
    assert (refusal.field, refusal.found, refusal.accepted) == ("x", "x", ["goal."])
    refusal = only(refuse(ready(), StateDelta({"fact.x": "1"})), ReasonCode.AUTHORITY_DENIED)
    assert refusal.message == "`fact.x` is written by `encoder`, `tool`, not by `agent`"
    refusal = only(refuse(ready(), StateDelta({"fact.x": "1"}), actor=OPERATOR), ReasonCode.AUTHORITY_DENIED)
    assert refusal.next == "leave the state as it is: an actor of kind `operator` proposes no changes of it"


def test_candidates_that_clash_name_each_other() -> None:
    first, second = refuse(ready(), StateDelta({"goal.a": "1"}), StateDelta({"goal.a": "2"}))
    assert (first.found, second.found) == ([1], [0])
    first, second, held = refuse(ready(), call(), call(), StateDelta({"goal.a": "1"}))
    assert (first.code, first.found, second.found) == (ReasonCode.CONFLICTING_CANDIDATES, [1], [0])
    assert (held.code, held.found) == (ReasonCode.HELD_BACK, [0, 1])
    assert "`candidates.0` (CONFLICTING_CANDIDATES)" in held.message


def test_provenance_names_the_proposer_and_its_own_tokens() -> None:
    kept = ready(tokens=(token(), token("theirs", agent_id="other")))
    refusal = only(refuse(kept, call(), provenance=Provenance("other", NOW)), ReasonCode.FORGED_PROVENANCE)
    assert (refusal.field, refusal.found, refusal.accepted) == ("provenance.source", "other", AGENT.id)
    claimed = Provenance(AGENT.id, NOW, permissions=["token-1", "theirs", "none"])
    refusal = only(refuse(kept, call(), provenance=claimed), ReasonCode.FORGED_PROVENANCE)
    assert (refusal.found, refusal.accepted) == (["theirs", "none"], ["token-1"])
    posing = Actor(ActorKind.ENCODER, AGENT.id)
    claimed = Provenance(AGENT.id, NOW, permissions=["token-1"])
    refusal = only(refuse(kept, call(), actor=posing, provenance=claimed), ReasonCode.FORGED_PROVENANCE)
    assert (refusal.found, refusal.accepted) == (["token-1"], [])


@pytest.mark.req("GATES-REFUSAL-03")
def test_a_stale_snapshot_names_the_keys_that_moved_as_far_as_they_may_be_read() -> None:
    pairs = ALLOW_ALL | {
        "constraint.a": payload(when=predicate("exists", "fact.open", "fact.secret.x")),
        "policy.private": '["fact.secret"]',
    }
    kept = ready(pairs, changed=Map({"fact.open": 15, "fact.secret.x": 15}))
    refusal = only(refuse(kept, call(), snapshot="snapshot-old"), ReasonCode.STALE_SNAPSHOT)
    assert (refusal.found, refusal.accepted) == ("snapshot-old", SNAPSHOT)
    assert refusal.message == "`fact.open` changed since the snapshot that the proposal is based on"
    hidden = ready(pairs, changed=Map({"fact.secret.x": 15}))
    refusal = only(refuse(hidden, call(), snapshot="snapshot-old"), ReasonCode.STALE_SNAPSHOT)
    assert refusal.message.startswith("something that a rule reads changed")
    shown = only(refuse(hidden, call(), snapshot="snapshot-old", reader=OPERATOR), ReasonCode.STALE_SNAPSHOT)
    assert shown.message.startswith("`fact.secret.x`")
    unknown = only(refuse(kept, call(), snapshot="never"), ReasonCode.UNKNOWN_SNAPSHOT)
    assert (unknown.found, unknown.accepted) == ("never", SNAPSHOT)


# --- tools and args ---------------------------------------------------------------------------------------------------


def test_an_unknown_tool_names_the_nearest_or_all_where_they_are_few() -> None:
    refusal = only(refuse(ready(), call("fs.wriet")), ReasonCode.UNKNOWN_TOOL)
    assert (refusal.field, refusal.found, refusal.accepted) == ("tool_id", "fs.wriet", ["fs.write"])
    refusal = only(refuse(ready(), call("zzz")), ReasonCode.UNKNOWN_TOOL)
    assert refusal.accepted == ["email.send", "fs.write"]
    many = ready(tools=tuple(tool(f"tool-{number:03}") for number in range(30)))
    refusal = only(refuse(many, call("zzz")), ReasonCode.UNKNOWN_TOOL)
    assert (refusal.accepted, refusal.next.startswith("read the list of tools")) == (None, True)
    retired = ready(tools=(tool(retired=True), tool("fs.writes")))
    refusal = only(refuse(retired, call()), ReasonCode.TOOL_RETIRED)
    assert (refusal.message, refusal.accepted) == ("`fs.write` is no longer offered", ["fs.writes"])


SCHEMA = {
    "type": "object",
    "required": ["service"],
    "additionalProperties": False,
    "properties": {
        "service": {"enum": ["api", "web"]},
        "grace": {"type": "integer", "minimum": 3},
        "notes": {"type": "array", "items": {"$ref": "#/$defs/note"}},
    },
    "$defs": {"note": {"minLength": 2}},
}


@pytest.mark.req("GATES-REFUSAL-01")
def test_args_that_do_not_fit_name_every_argument_and_its_rule() -> None:
    kept = ready(tools=(tool(args_schema=msgspec.Raw(canonical.encode(SCHEMA))),))
    args = {"grace": 1, "notes": ["ok", "x"], "servise": "api"}
    refusal = only(refuse(kept, call(args=args)), ReasonCode.ARGS_INVALID)
    faults = {fault.field: fault for fault in refusal.faults}
    assert sorted(faults) == ["args.grace", "args.notes.1", "args.service", "args.servise"]
    assert (faults["args.grace"].found, faults["args.grace"].accepted) == (1, {"minimum": 3})
    assert (faults["args.notes.1"].found, faults["args.notes.1"].accepted) == ("x", {"minLength": 2})
    assert faults["args.service"].accepted == {"enum": ["api", "web"]}
    assert faults["args.servise"].message == "`args.servise` is not an argument, did you mean `service`"
    unlike = only(refuse(kept, call(args={"service": "api", "zz": 1})), ReasonCode.ARGS_INVALID)
    assert (unlike.message, unlike.accepted) == ("`args.zz` is not an argument", ["grace", "notes", "service"])
    wrong = only(refuse(kept, call(args={"service": "database"})), ReasonCode.ARGS_INVALID)
    assert (wrong.field, wrong.found, wrong.accepted, wrong.faults) == (
        "args.service",
        "database",
        {"enum": ["api", "web"]},
        (),
    )


def test_args_that_are_no_object_and_schemas_that_nothing_fits_are_told_apart() -> None:
    kept = ready(tools=(tool(args_schema=msgspec.Raw(b"false")),))
    assert only(refuse(kept, call()), ReasonCode.ARGS_INVALID).field == "args"
    kept = ready(tools=(tool(args_schema=msgspec.Raw(b'{"type":3}')),))
    assert "no args can fit" in only(refuse(kept, call()), ReasonCode.ARGS_INVALID).message
    for text in (b"[1]", b"{"):
        broken = ToolCall("fs.write", msgspec.Raw(text), "token-1", "k")
        refusal = only(refuse(ready(), broken), ReasonCode.ARGS_INVALID)
        assert (refusal.message, refusal.accepted) == ("the args must be a JSON object", {"type": "object"})


def test_a_tool_that_was_registered_anew_since_is_told() -> None:
    asked = proposal(call(args={"grace": 1}))
    then = ready(tools=(tool(args_schema=msgspec.Raw(b'{"required":["path"]}')),))
    decision = arbitrate(then, asked, AGENT, NOW, {}).decision
    made = Refused(ready(), asked, AGENT, decision, AGENT.kind, then.policy, ProposalStatus.DENIED)
    assert "which is another by now" in only(advise(made), ReasonCode.ARGS_INVALID).message


def test_a_key_is_asked_for_and_that_of_another_call_is_not_taken() -> None:
    refusal = only(refuse(ready(), call(key=None)), ReasonCode.IDEMPOTENCY_KEY_REQUIRED)
    assert refusal.field == "idempotency_key"
    kept = ready(**with_execution(call(args={"path": "a"}), tool()))
    refusal = only(refuse(kept, call(args={"path": "b"})), ReasonCode.IDEMPOTENCY_CONFLICT)
    assert (refusal.found, "use a new key" in refusal.next) == ("k", True)


# --- tokens -----------------------------------------------------------------------------------------------------------


TOKENS = (
    token(),
    token("broken", parent_id="gone"),
    token("ends", expires_at=LATER),
    token("mail", tool_ids=["email.send"]),
    token("over", expires_at=EARLIER),
    token("revoked"),
    token("spent", budget=Budget(calls=1, bytes=100, wall_ms=5)),
    token("theirs", agent_id="other"),
    token("data", scopes=[Scope("path", ScopeMatch.PREFIX, "/data/"), Scope("n", ScopeMatch.EXACT, 1)]),
)


@for_each(
    ("held", "code", "message"),
    [
        (None, ReasonCode.CAPABILITY_REQUIRED, "a call of `fs.write` needs a capability token"),
        ("none", ReasonCode.CAPABILITY_UNKNOWN, "there is no token `none`"),
        ("theirs", ReasonCode.CAPABILITY_OTHER_AGENT, "token `theirs` was not issued to agent `agent-1`"),
        ("over", ReasonCode.CAPABILITY_EXPIRED, f"token `over` expired at {EARLIER}"),
        ("revoked", ReasonCode.CAPABILITY_REVOKED, "token `revoked` was revoked"),
        ("mail", ReasonCode.CAPABILITY_TOOL, "token `mail` covers `email.send`, not `fs.write`"),
    ],
)
def test_a_token_that_is_not_good_names_own_ones_that_are(held: str | None, code: ReasonCode, message: str) -> None:
    kept = ready(tokens=TOKENS, revoked=Map({"revoked": 3}), spent=Map({"spent": Spent(calls=1)}))
    refusal = only(refuse(kept, call(held=held)), code)
    assert (refusal.message, refusal.field, refusal.accepted) == (message, "capability_token_id", ["ends", "token-1"])
    assert refusal.next == "send the call under `ends`, `token-1`"
    # Without a moment, whether a token has expired is not known.
    assert only(refuse(kept, call(held=held), now=None), code).accepted == ["token-1"]
    alone = ready(tokens=[each for each in TOKENS if each.token_id == held], revoked=Map({"revoked": 3}))
    refusal = only(refuse(alone, call(held=held)), code)
    assert (refusal.accepted, refusal.next) == (None, "ask an operator for a token that covers this call of `fs.write`")


def test_a_token_that_is_good_again_has_a_sentence_too() -> None:
    asked = proposal(call(held="over"))
    decision = arbitrate(ready(tokens=TOKENS), asked, AGENT, NOW, {}).decision
    renewed = ready(tokens=(token("over"),))
    made = Refused(renewed, asked, AGENT, decision, AGENT.kind, renewed.policy, ProposalStatus.DENIED, now=NOW)
    assert only(advise(made), ReasonCode.CAPABILITY_EXPIRED).message == "token `over` was not good for this call"


def test_scopes_name_the_argument_what_was_found_and_what_is_allowed() -> None:
    kept = ready(tokens=TOKENS)
    refusal = only(refuse(kept, call(args={"path": "/etc"}, held="data")), ReasonCode.CAPABILITY_SCOPE)
    assert (refusal.field, refusal.found, refusal.accepted) == ("args.path", "/etc", {"prefix": "/data/"})
    assert only(refuse(kept, call(args={"path": "/data/x"}, held="data")), ReasonCode.CAPABILITY_SCOPE).faults == ()
    missing = refusal.faults[1]
    assert (missing.field, missing.found, missing.accepted) == ("args.n", None, {"exact": 1})
    assert missing.message == '`args.n` is missing, and token `data` allows {"exact":1} only'


def test_budgets_name_their_numbers() -> None:
    kept = ready(tokens=TOKENS, spent=Map({"spent": Spent(calls=1, wall_ms=5)}))
    delta = StateDelta({"goal.a": "1"})
    first, second, _ = refuse(kept, call(held="spent"), call("email.send", held="spent", key="l"), delta)
    assert first.code == second.code == ReasonCode.BUDGET_EXHAUSTED
    assert [(each.field, each.found, each.accepted) for each in first.faults] == [
        ("budget.calls", 3, {"maximum": 1}),
        ("budget.wall_ms", 6, {"maximum": 5}),
    ]
    assert first.faults[0].message == "token `spent` has 1 of 1 calls spent, and this needs 2 more"
    assert first.next == "send the call under `ends`, `revoked`, `token-1`"
