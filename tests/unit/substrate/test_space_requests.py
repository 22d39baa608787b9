"""Validation of requests: whatever comes in is in its one form, or is refused with a reason before anything is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cmbs.errors import BeliefServerError, InvalidRequest, LimitExceeded
from cmbs.messages import Actor
from cmbs.substrate.kernel.calls import SpaceRequest
from cmbs.substrate.kernel.events import (
    Approve,
    ConflictState,
    CreateSpace,
    DisputeMemory,
    Evidence,
    IssueCapability,
    MemoryKind,
    OutcomeStatus,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    SpaceMessage,
)
from cmbs.substrate.kernel.model import (
    Budget,
    Candidate,
    Capability,
    Proposal,
    Provenance,
    Scope,
    ScopeMatch,
    StateDelta,
    ToolCall,
)
from cmbs.substrate.kernel.requests import SpaceCommand, SpaceLimits, SpaceRequestValidator
from tests.support.spaces import AGENT, ROOT, SPACE, World, call, caller_tool, constraint, delta, raw
from tests.support.subtests import for_each

LIMITS = SpaceLimits(
    space_id_length=20,
    candidates_per_proposal=2,
    keys_per_proposal=2,
    space_value_bytes=10,
    space_args_bytes=40,
    space_schema_bytes=60,
    space_result_bytes=30,
    policy_keys=2,
    ids_per_message=2,
    claim_bytes=10,
    space_text_length=30,
    wait_ms=1_000,
)


def through(message: SpaceMessage, actor: Actor = AGENT, limits: SpaceLimits = LIMITS, **parts: Any) -> SpaceRequest:
    return (
        SpaceRequestValidator(limits)
        .validate(SpaceCommand(parts.pop("space_id", SPACE), actor, message, **parts))
        .message
    )


def proposing(*candidates: Candidate, **parts: Any) -> Propose:
    known: dict[str, Any] = {"inputs": [], "permissions": [], "source": "agent", "timestamp": "now", **parts}
    provenance = Provenance(**{name: known[name] for name in ("source", "timestamp", "inputs", "permissions")})
    proposal_id, snapshot_id = known.get("proposal_id", "p"), known.get("snapshot_id", "s")
    proposal = Proposal(proposal_id, snapshot_id, provenance, list(candidates))
    return Propose(proposal, defer_ms=known.get("defer_ms", 1), ask_ms=known.get("ask_ms", 1))


def tool_call(args: bytes) -> ToolCall:
    return ToolCall("t", msgspec.Raw(args), "token", "key")


BAD: dict[str, tuple[SpaceMessage, type[BeliefServerError], str]] = {
    "an empty id": (proposing(proposal_id=""), InvalidRequest, "not empty"),
    "a long id": (proposing(proposal_id="x" * 21), LimitExceeded, "space_id_length"),
    "a surrogate": (proposing(source="\ud800"), InvalidRequest, "surrogate"),
    "no text": (proposing(snapshot_id=7), InvalidRequest, "must be text"),
    "many inputs": (proposing(inputs=["a", "b", "c"]), LimitExceeded, "ids_per_message"),
    "a permission that is no text": (proposing(permissions=[1]), InvalidRequest, "permissions"),
    "many candidates": (proposing(*[delta(a="1")] * 3), LimitExceeded, "candidates_per_proposal"),
    "many keys": (proposing(delta(a="1", b="2", c="3")), LimitExceeded, "keys_per_proposal"),
    "a long value": (proposing(delta(a="x" * 11)), LimitExceeded, "space_value_bytes"),
    "a value of long characters": (proposing(delta(a="é" * 6)), LimitExceeded, "space_value_bytes"),
    "a value that is no text": (proposing(StateDelta({"goal.a": 1})), InvalidRequest, "must be text"),  # type: ignore[dict-item]
    "a value with a surrogate": (proposing(delta(a="\ud800")), InvalidRequest, "surrogate"),
    "a key that is empty": (proposing(StateDelta({"": "1"})), InvalidRequest, "not empty"),
    "an endless wait": (proposing(delta(a="1"), defer_ms=1_001), InvalidRequest, "defer_ms"),
    "no wait": (proposing(delta(a="1"), ask_ms=0), InvalidRequest, "ask_ms"),
    "args that are no object": (proposing(tool_call(b"[1]")), InvalidRequest, "must be an object"),
    "args that are not JSON": (proposing(tool_call(b"{")), InvalidRequest, "malformed JSON"),
    "args that are not there": (proposing(tool_call(b"")), InvalidRequest, "missing"),
    "args with a key twice": (proposing(tool_call(b'{"a":1,"a":2}')), InvalidRequest, "duplicate key"),
    "args beyond I-JSON": (proposing(tool_call(b'{"a":9007199254740993}')), InvalidRequest, "not exact"),
    "args of not a number": (proposing(tool_call(b'{"a":NaN}')), InvalidRequest, "malformed JSON"),
    "large args": (proposing(tool_call(b'{"a":"%s"}' % (b"x" * 40))), LimitExceeded, "space_args_bytes"),
    "huge args": (proposing(tool_call(b'{"a":"%s"}' % (b"x" * 9_999))), LimitExceeded, "space_args_bytes"),
    "an idempotency key that is empty": (
        proposing(ToolCall("t", raw({}), "token", "")), InvalidRequest, "idempotency_key"),
    "an approval until an unreadable moment": (Approve("a", expires_at="soon"), InvalidRequest, "RFC 3339"),
    "an approval of half a use": (Approve("a", uses=1.5), InvalidRequest, "whole number"),  # type: ignore[arg-type]
    "a long reason": (Reject("a", "x" * 31), LimitExceeded, "space_text_length"),
    "a reason with a surrogate": (Reject("a", "\udfff"), InvalidRequest, "surrogate"),
    "a reason that is no text": (Reject("a", 1), InvalidRequest, "must be text"),  # type: ignore[arg-type]
    "a negative duration": (
        RecordOutcome("x", OutcomeStatus.FAILED, duration_ms=-1), InvalidRequest, "must not be negative"),
    "a large result": (RecordOutcome("x", OutcomeStatus.SUCCEEDED, raw("x" * 40)), LimitExceeded, "space_result_bytes"),
    "a long error": (RecordOutcome("x", OutcomeStatus.FAILED, error="x" * 31), LimitExceeded, "space_text_length"),
    "a large policy": (ProposePolicy("c", "h", {"a": "1", "b": "2", "c": "3"}), LimitExceeded, "at most 2"),
    "a space of another name": (CreateSpace("other"), InvalidRequest, "not that of the space"),
    "a tool with a large schema": (
        RegisterTool(caller_tool("c", result_schema=raw({"const": "x" * 60}))), LimitExceeded, "space_schema_bytes"),
    "a tool with a target that it cannot have": (
        RegisterTool(caller_tool("c", target=raw({"url": "x"}))), InvalidRequest, "target"),
    "a token until an unreadable moment": (
        IssueCapability(Capability("t", "a", ["c"], expires_at="never")), InvalidRequest, "RFC 3339"),
    "a budget below nothing": (
        IssueCapability(Capability("t", "a", ["c"], budget=Budget(calls=-1))), InvalidRequest, "budget.calls"),
    "a scope without a place": (
        IssueCapability(Capability("t", "a", ["c"], scopes=[Scope("", ScopeMatch.EXACT, 1)])), InvalidRequest, "path"),
    "a large claim": (PutMemory("m", MemoryKind.FACT, raw("x" * 11)), LimitExceeded, "claim_bytes"),
    "many sources": (
        PromoteMemory("m", MemoryKind.FACT, Evidence(["a", "b", "c"])), LimitExceeded, "ids_per_message"),
    "many reasons": (
        DisputeMemory("m", ConflictState.POSSIBLE, ["a", "b", "c"]), LimitExceeded, "ids_per_message"),
}  # fmt: skip


@pytest.mark.req("SS01-VALIDATOR-01")
@for_each("name", BAD)
def test_what_is_malformed_or_too_large_is_refused_with_a_reason(name: str) -> None:
    message, kind, said = BAD[name]
    with pytest.raises(kind, match=said):
        through(message)


PLACES: dict[str, Callable[[Any], Propose]] = {
    "proposal_id": lambda text: proposing(delta(a="1"), proposal_id=text),
    "snapshot_id": lambda text: proposing(delta(a="1"), snapshot_id=text),
    "source": lambda text: proposing(delta(a="1"), source=text),
    "timestamp": lambda text: proposing(delta(a="1"), timestamp=text),
    "inputs": lambda text: proposing(delta(a="1"), inputs=["i", text]),
    "permissions": lambda text: proposing(delta(a="1"), permissions=["p", text]),
    "key": lambda text: proposing(delta(b="1"), StateDelta({"goal.a": "1", text: "2"})),
    "value": lambda text: proposing(StateDelta({"goal.a": text})),
    "unset": lambda text: proposing(StateDelta({}, [text])),
}


@pytest.mark.req("SS01-VALIDATOR-01")
@for_each("place", PLACES)
def test_every_text_of_a_proposal_is_checked(place: str) -> None:
    limits = SpaceLimits(space_id_length=20, space_value_bytes=10)

    def refusal(text: Any) -> BeliefServerError | None:
        try:
            assert through(PLACES[place](text), limits=limits) == PLACES[place](text)
        except BeliefServerError as exc:
            return exc
        return None

    assert refusal("plain") is None
    assert isinstance(refusal(7), InvalidRequest)
    assert refusal("é") is None
    assert isinstance(refusal("\ud800"), InvalidRequest)
    assert isinstance(refusal("x" * 30), LimitExceeded)
    assert place == "value" or isinstance(refusal(""), InvalidRequest)


@pytest.mark.req("SS01-VALIDATOR-01")
def test_args_that_are_nested_too_deep_are_refused_however_deep() -> None:
    limits = SpaceLimits()
    for depth in (57, 200, 10_000):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        with pytest.raises(LimitExceeded, match="json_depth"):
            through(proposing(tool_call(nested)), limits=limits)
    through(proposing(tool_call(b'{"a":' * 50 + b"1" + b"}" * 50)), limits=limits)


def test_a_space_id_fits_into_a_path() -> None:
    for bad in ("", "a/b", ".a", "é", "x" * 129, "a b", None):
        with pytest.raises(InvalidRequest, match="space_id"):
            through(RetireTool("t"), space_id=bad)
    through(RetireTool("t"), space_id="a-B.9_~")
    with pytest.raises(InvalidRequest, match="idempotency_key"):
        through(RetireTool("t"), idempotency_key="")


def test_messages_come_out_in_their_one_form() -> None:
    loose = through(proposing(tool_call(b'{ "b" : 1.0, "a" : "\\u00e9" }')))
    assert isinstance(loose, Propose)
    (candidate,) = loose.proposal.candidates
    assert isinstance(candidate, ToolCall)
    assert bytes(candidate.args) == '{"a":"é","b":1}'.encode()
    assert through(loose) == loose
    approve = through(Approve("a", expires_at="2026-01-01T01:00:00+01:00"))
    assert isinstance(approve, Approve)
    assert approve.expires_at == "2026-01-01T00:00:00.000000Z"
    change = through(ProposePolicy("c", "h", unset=["b", "a", "b"]), ROOT, SpaceLimits())
    assert isinstance(change, ProposePolicy)
    assert change.unset == ["a", "b"]
    scopes = [Scope("x", ScopeMatch.EXACT, True), Scope("y", ScopeMatch.EXACT, 1), Scope("z", ScopeMatch.PREFIX, "p")]
    token = Capability("t", "a", ["c"], scopes=scopes, parent_id="p", expires_at="2026-01-01T00:00:00Z")
    issued = through(IssueCapability(token))
    assert isinstance(issued, IssueCapability)
    assert issued.capability.expires_at == "2026-01-01T00:00:00.000000Z"


TOOLS: dict[str, dict[str, Any]] = {
    "args_schema": {"args_schema": raw({"type": "nothing"})},
    "result_schema": {"result_schema": raw({"$ref": "https://example.org/schema"})},
    "timeout_ms": {"timeout_ms": 0},
    "max_result_bytes": {"max_result_bytes": 0},
    "facts": {"facts": {"goal.a": "b"}},
    "retired": {"retired": True},
}


@pytest.mark.parametrize("field", TOOLS)
def test_a_tool_that_cannot_work_is_refused(world: World, field: str) -> None:
    world.create()
    with pytest.raises(InvalidRequest) as caught:
        world.say(RegisterTool(msgspec.structs.replace(caller_tool("c"), **TOOLS[field])))
    assert caught.value.details["field"] == field
    assert world.space.head.seq == 0


def test_uses_of_an_approval_are_bounded(world: World) -> None:
    world.open(
        caller_tool("c"),
        policy={"constraint.ask": constraint(when={"op": "exists", "args": ["fact.x"]}, on_fail="ask")},
    )
    (asked,) = world.propose(call("c")).event.result.asked
    for uses in (0, -1, 1_000_001):
        with pytest.raises(InvalidRequest, match="uses"):
            world.say(Approve(asked.approval_id, uses))


@pytest.mark.parametrize("value", [{"b": [1, "ü"], "a": None}, {}])
def test_what_a_caller_sends_as_values_is_recorded_as_what_is_sent_as_text(value: dict[str, Any]) -> None:
    as_values = through(proposing(ToolCall("t", value, "token", "key")))  # type: ignore[arg-type]
    assert as_values == through(proposing(tool_call(json.dumps(value).encode())))


def test_values_of_a_caller_are_bounded_as_text_is() -> None:
    with pytest.raises(LimitExceeded, match="space_args_bytes"):
        through(proposing(ToolCall("t", {"a": "x" * 40}, "token", "key")))  # type: ignore[arg-type]
