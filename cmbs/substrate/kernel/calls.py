"""Calls: one candidate of a proposal each, from what an agent asks for to where it stands. Pure.

An agent asks for a call with `MakeCall`, which is never recorded: on the newest state it becomes the proposal that is,
with the snapshot, the provenance and the token that the agent would otherwise have to look up. An open writing call
that is the same is joined instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import msgspec
from immutables import Map

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.ledger import canonical
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.capabilities import Demand, is_exhausted, token_line, use_fault
from cmbs.substrate.kernel.arbitration.stages import find_call, hash_of_args, hash_of_tool
from cmbs.substrate.kernel.events import Claim, KnownCalls, Propose, SpaceEvent, SpaceMessage
from cmbs.substrate.kernel.model import BeliefReading, Proposal, Provenance, Tool, ToolCall, ToolKind
from cmbs.substrate.kernel.retention import UNSETTLED
from cmbs.substrate.kernel.state import Execution, OpenCallKey, ProposalRecord, Space
from cmbs.substrate.kernel.words import CALLER

_CALL_PREFIX = "c"
# Who runs the tools of other kinds than `caller`.
SERVER = "server"
_WAIT_MS = 3_600_000


class MakeCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a tool, as an agent asks for it. `call` need name no token and no idempotency key.

    `belief`, `known_calls` and `queued` are those of the proposal that it becomes.
    """

    call: ToolCall
    case_id: str | msgspec.UnsetType = msgspec.UNSET
    claim: Claim | msgspec.UnsetType = msgspec.UNSET
    defer_ms: int = _WAIT_MS
    ask_ms: int = _WAIT_MS
    # Whether a call with a key of its own joins the same writing call under another key, as one without a key does.
    joins: bool = False
    belief: list[BeliefReading] = []
    known_calls: KnownCalls = msgspec.UNSET
    queued: bool | msgspec.UnsetType = msgspec.UNSET


# What a space can be asked.
SpaceRequest: TypeAlias = SpaceMessage | MakeCall


class CallPlace(NamedTuple):
    """What a call id names: a candidate of the proposal that an event made."""

    event_id: str
    candidate: int


def name_call(event_id: str, candidate: int) -> str:
    """The id of a call: of a candidate of the proposal that this event made."""
    return f"{_CALL_PREFIX}-{event_id}-{candidate}"


def read_call_id(call_id: str) -> CallPlace | None:
    """What a call id names; None for a text that is none."""
    prefix, _, rest = call_id.partition("-")
    event_id, _, place = rest.rpartition("-")
    is_number = place.isascii() and place.isdigit() and len(place) < 10  # noqa: PLR2004 - far beyond any proposal
    if prefix != _CALL_PREFIX or not event_id or not is_number:
        return None
    return CallPlace(event_id, int(place))


def executor_of(tool: Tool) -> str:
    """Who runs calls of a tool outside the server: the id of an executor, or `CALLER` for the agent itself."""
    return CALLER if isinstance(tool.executor, msgspec.UnsetType) else tool.executor


def name_runner(tool: Tool) -> str:
    """Who runs calls of a tool: `SERVER`, `CALLER`, or the id of an executor."""
    return SERVER if is_run_by_server(tool) else executor_of(tool)


def is_run_by_server(tool: Tool | None) -> bool:
    """Whether the server runs calls of a tool itself."""
    return tool is not None and tool.kind is not ToolKind.CALLER


def is_executor(execution: Execution, actor: Actor) -> bool:
    """Whether the actor runs calls of this tool: the executor that the tool names, or else the maker of the call."""
    if is_run_by_server(execution.tool):
        return False
    executor = executor_of(execution.tool)
    if executor == CALLER:
        return (actor.kind, actor.id) == (execution.agent_kind, execution.agent_id)
    return actor.kind is ActorKind.EXECUTOR and actor.id == executor


def hash_of_call(
    space: Space, actor_id: str, case_id: str | msgspec.UnsetType | None, tool_id: str | None, args_hash: str
) -> str:
    """The tagged hash, in hex, of all that is decided, approved and sent of a call.

    Who asks, in which case, the registration of the tool, the args and what is forwarded with them. Of a delta the
    tool is null.
    """
    shown = {
        "agent_id": actor_id,
        "args_hash": args_hash,
        "case_id": None if isinstance(case_id, msgspec.UnsetType) else case_id,
        "tool_hash": hash_of_tool(space, tool_id),
    }
    return hash_tagged(Domain.CALL, canonical.encode(shown)).hex()


def claims(space: Space, tool: Tool, claim: Claim) -> bool:
    """Whether a claim that came with a call starts it: by who is to run it, on the registration that there is."""
    executor = claim.executor
    if isinstance(executor, msgspec.UnsetType):
        is_executor = executor_of(tool) == CALLER
    else:
        is_executor = executor.kind is ActorKind.EXECUTOR and executor.id == executor_of(tool)
    return is_executor and claim.tool_hash in (msgspec.UNSET, hash_of_tool(space, tool.tool_id))


# --- from a call to a proposal ----------------------------------------------------------------------------------------


def complete_call(space: Space, message: MakeCall, actor: Actor, stamp: Stamp) -> Propose | Repeat:
    """The proposal that a call becomes on this state, or the one that it repeats or joins."""
    tool = space.tools.get(message.call.tool_id)
    call = _forward_allowed(space, message.call)
    if call.capability_token_id is None:
        call = msgspec.structs.replace(call, capability_token_id=_choose_token(space, call, actor, stamp.ts))
    known = _find_same(space, call, message, actor)
    if known is not None:
        return Repeat(known.seq)
    if call.idempotency_key is None and tool is not None and tool.writes:
        call = msgspec.structs.replace(call, idempotency_key=f"{_CALL_PREFIX}-{stamp.event_id}")
    token_id = call.capability_token_id
    is_own = token_id in space.tokens_of.get(actor.id, ()) and actor.kind is ActorKind.AGENT
    proposal = Proposal(
        f"{_CALL_PREFIX}-{stamp.event_id}",
        space.snapshot_id,
        Provenance(actor.id, stamp.ts, permissions=[token_id] if token_id is not None and is_own else []),
        [call],
        case_id=message.case_id,
    )
    return Propose(
        proposal,
        message.belief,
        message.defer_ms,
        message.ask_ms,
        message.known_calls,
        queued=message.queued if is_run_by_server(tool) or not isinstance(message.claim, msgspec.UnsetType) else True,
        claim=message.claim,
    )


def _forward_allowed(space: Space, call: ToolCall) -> ToolCall:
    """The call with only those of its fields beside the args that the policy lets through to the tool."""
    if isinstance(call.forwarded, msgspec.UnsetType):
        return call
    allowed = space.policy.find_forwarded(call.tool_id)
    fields = {name: value for name, value in msgspec.json.decode(call.forwarded).items() if name in allowed}
    forwarded = msgspec.Raw(canonical.encode(fields)) if fields else msgspec.UNSET
    return msgspec.structs.replace(call, forwarded=forwarded)


def _choose_token(space: Space, call: ToolCall, actor: Actor, now: str) -> str | None:
    """The token of the agent that is good for a call, else one that covers its tool, so that the refusal names it."""
    args = msgspec.json.decode(call.args)
    covering: str | None = None
    for token_id in space.tokens_of.get(actor.id, ()):
        token = space.capabilities[token_id]
        if call.tool_id not in token.tool_ids:
            continue
        line = token_line(space.capabilities, token_id)
        covering = covering or token_id
        demand = Demand(1, len(bytes(call.args)))
        is_spent = any(is_exhausted(space, each, demand) for each in line.tokens)
        if use_fault(space, line, actor, call.tool_id, args, now) is None and not is_spent:
            return token_id
    return covering


def _find_same(space: Space, call: ToolCall, message: MakeCall, actor: Actor) -> ProposalRecord | None:
    """The proposal of the call that this one repeats, by its key, or joins, because the same is open."""
    tool = space.tools.get(call.tool_id)
    writes = tool is not None and tool.writes
    key, case_id = call.idempotency_key, None if isinstance(message.case_id, msgspec.UnsetType) else message.case_id
    if key is not None:
        execution = space.executions.get(find_call(space, call.tool_id, key, actor) or "")
        if execution is not None and execution.intent.args_hash == hash_of_args(call):
            record = space.proposals.get(execution.proposal_id)
            return None if record is None or record.case_id != case_id else record
    open_key = OpenCallKey((actor.kind, actor.id), case_id, call.tool_id, hash_of_args(call), key)
    known = () if key is None and not writes else space.open_calls.get(open_key, ())
    if not known and message.joins and writes:
        known = space.open_calls.get(open_key._replace(idempotency_key=None), ())
    return space.proposals[known[0]] if known else None


# --- what is open -----------------------------------------------------------------------------------------------------


def index_open_calls(space: Space) -> Map[OpenCallKey, tuple[str, ...]]:
    """The open calls, from everything that the space holds: by what makes them the same, the oldest first."""
    found: dict[OpenCallKey, tuple[str, ...]] = {}
    for record in sorted(space.proposals.values(), key=_by_seq):
        if record.status in UNSETTLED:
            proposal = record.message.proposal
            for key in _list_keys(record, proposal):
                found[key] = (*found.get(key, ()), proposal.proposal_id)
    return Map(found)


def update_open_calls(before: Space, after: Space, event: SpaceEvent) -> Map[OpenCallKey, tuple[str, ...]]:
    """The open calls after a step; `after` is what it leads to, but for these."""
    found = before.open_calls
    for proposal_id in event.result.statuses:
        record, known = after.proposals[proposal_id], before.proposals.get(proposal_id)
        was_open, is_open = known is not None and known.status in UNSETTLED, record.status in UNSETTLED
        for key in () if was_open == is_open else _list_keys(record, record.message.proposal):
            others = tuple(each for each in found.get(key, ()) if each != proposal_id)
            left = (*others, proposal_id) if is_open else others
            found = found.set(key, left) if left else found.delete(key)
    return found


def _list_keys(record: ProposalRecord, proposal: Proposal) -> list[OpenCallKey]:
    """Under what the calls of a proposal are found while they are open: with their keys, and without; each once."""
    actor = (record.actor.kind, record.actor.id)
    calls = [each for each in proposal.candidates if isinstance(each, ToolCall)]
    keys = [
        OpenCallKey(actor, record.case_id, each.tool_id, hash_of_args(each), idempotency_key)
        for each in calls
        for idempotency_key in (each.idempotency_key, None)
    ]
    return list(dict.fromkeys(keys))


def _by_seq(record: ProposalRecord) -> int:
    return record.seq


def list_tokens(tokens: Iterable[tuple[str, str]]) -> Map[str, tuple[str, ...]]:
    """The ids of tokens by the agents that hold them, sorted, from pairs of agent and token."""
    found: dict[str, list[str]] = {}
    for agent_id, token_id in tokens:
        found.setdefault(agent_id, []).append(token_id)
    return Map({agent_id: tuple(sorted(ids)) for agent_id, ids in found.items()})
