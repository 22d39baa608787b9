"""Spaces as values, put together for a test of what is decided on them: no ledger, no server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from immutables import Map

from cmbs.ledger import Head, canonical
from cmbs.ledger.event_tree import EventTree
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.stages import hash_of_args
from cmbs.substrate.kernel.events import Intent, Mode, SpaceVerb
from cmbs.substrate.kernel.model import Candidate, Capability, Proposal, Provenance, Tool, ToolCall, ToolKind
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.state import Case, Execution, Space
from cmbs.substrate.kernel.words import CaseStatus, ExecutionStatus

NOW = "2026-01-02T03:04:05.000000Z"
LATER = "2026-01-02T04:00:00.000000Z"
EARLIER = "2026-01-02T03:00:00.000000Z"
AGENT = Actor(ActorKind.AGENT, "agent-1")
SNAPSHOT = "snapshot-now"
ANY_OBJECT = msgspec.Raw(b'{"type":"object"}')
_OPERATOR = Actor(ActorKind.OPERATOR, "operator-1")
# One for the agent, one for another, one that is closed.
CASES = {
    "mine": Case("mine", b'{"name":"prod"}', frozenset({AGENT.id}), _OPERATOR, 1, EARLIER),
    "theirs": Case("theirs", b"{}", frozenset({"other"}), _OPERATOR, 2, EARLIER),
    "closed": Case("closed", b"{}", frozenset({AGENT.id}), _OPERATOR, 3, EARLIER, CaseStatus.CLOSED),
}


def payload(**fields: Any) -> str:
    """A constraint, version 1, that concerns everything unless `fields` say otherwise."""
    return json.dumps({"v": 1, "effect": "allow", "subject": None} | fields)


def predicate(op: str, *args: Any) -> dict[str, Any]:
    """A predicate as it stands in a payload."""
    return {"op": op, "args": list(args)}


def tool(tool_id: str = "fs.write", **fields: Any) -> Tool:
    """A tool that the caller runs; it takes any object."""
    return Tool(**({"tool_id": tool_id, "kind": ToolKind.CALLER, "args_schema": ANY_OBJECT} | fields))


def token(name: str = "token-1", **fields: Any) -> Capability:
    """A token of `AGENT` for the tools `fs.write` and `email.send`."""
    whole = {"token_id": name, "agent_id": AGENT.id, "tool_ids": ["email.send", "fs.write"]}
    return Capability(**(whole | fields))


def call(tool_id: str = "fs.write", args: Any = None, held: str | None = "token-1", key: str | None = "k") -> ToolCall:
    """A call with canonical args."""
    return ToolCall(tool_id, msgspec.Raw(canonical.encode({} if args is None else args)), held, key)


def proposal(*candidates: Candidate, actor: Actor = AGENT, snapshot: str = SNAPSHOT, **fields: Any) -> Proposal:
    """A proposal of `actor` on `snapshot`."""
    whole: dict[str, Any] = {
        "proposal_id": "proposal-1",
        "state_snapshot_id": snapshot,
        "provenance": Provenance(actor.id, EARLIER),
        "candidates": list(candidates),
    }
    return Proposal(**(whole | fields))


def space(
    pairs: Mapping[str, str] | None = None,
    state: Mapping[str, str] | None = None,
    *,
    tools: tuple[Tool, ...] = (),
    tokens: tuple[Capability, ...] = (),
    **fields: Any,
) -> Space:
    """A space with this policy, this state beside it, these tools and tokens; the rest empty but for `fields`.

    `snapshot-old` is an older snapshot of it, at seq 10; the current one is of seq 20.
    """
    policy = compile_policy(pairs or {})
    known: dict[str, Any] = {
        "space_id": "default",
        "mode": Mode.ENFORCE,
        "head": Head(20, bytes(32)),
        "tree": EventTree().extend([bytes(32)] * 21),
        "head_event_id": "event-20",
        "events": Map({f"event-{seq}": (seq, SpaceVerb.PROPOSE) for seq in range(21)}),
        "snapshot_id": SNAPSHOT,
        "state": Map({**(pairs or {}), **(state or {})}),
        "snapshots": Map({"snapshot-old": 10, SNAPSHOT: 20}),
        "policy": policy,
        "policy_version": 1,
        "tools": Map({each.tool_id: each for each in tools}),
        "capabilities": Map({each.token_id: each for each in tokens}),
    } | fields
    return Space(**known)


def with_execution(made: ToolCall, made_with: Tool, agent: Actor = AGENT) -> dict[str, Any]:
    """The fields of a space in which this call was executed as `execution-1`."""
    intent = Intent(
        "execution-1", 0, made.tool_id, hash_of_args(made), LATER, 1, made.capability_token_id, made.idempotency_key
    )
    args, status = bytes(made.args), ExecutionStatus.SUCCEEDED
    execution = Execution(intent, "proposal-0", agent.id, made_with, args, status, 15, agent_kind=agent.kind)
    return {
        "executions": Map({"execution-1": execution}),
        "calls": Map({execution.call_key: "execution-1"}),
    }
