"""What a command needs of what has left the state of its space: found before it is decided, and not too long before."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cmbs.messages import Actor
from cmbs.substrate.kernel.calls import MakeCall, SpaceRequest
from cmbs.substrate.kernel.decide import find_request
from cmbs.substrate.kernel.events import (
    Approve,
    Propose,
    RecordOutcome,
    Reject,
    Start,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.model import Candidate, ToolCall
from cmbs.substrate.kernel.proposals import Unprepared
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.retention import NOTHING, Unknown, last_dropped
from cmbs.substrate.kernel.state import CallKey, Space


def find_unknown(space: Space, command: SpaceCommand) -> Unknown:
    """What has to be looked up for a command, on a state that something may have left."""
    if last_dropped(space.head.seq) < 0:
        return NOTHING
    message, key = command.message, command.idempotency_key
    known = key is None or find_request(space, key, command.actor) is not None
    named = _find_named(space, message, command.actor)
    return msgspec.structs.replace(named, idempotency_key=None if known else key)


def _find_named(space: Space, message: SpaceRequest, sender: Actor) -> Unknown:
    match message:
        case Propose():
            proposal = message.proposal
            return Unknown(
                proposal_id=None if proposal.proposal_id in space.proposals else proposal.proposal_id,
                snapshot_id=None if proposal.state_snapshot_id in space.snapshots else proposal.state_snapshot_id,
                calls=_unknown_calls(space, proposal.candidates, sender),
            )
        case MakeCall():
            key = message.call.idempotency_key
            calls = () if key is None else _unknown_calls(space, [message.call], sender)
            return Unknown(calls=calls)
        case Wake():
            return Unknown(calls=_calls_of_proposal(space, message.proposal_id))
        case Withdraw():
            return Unknown(proposal_id=None if message.proposal_id in space.proposals else message.proposal_id)
        case Approve() | Reject():
            return _find_unknown_of_approval(space, message)
        case RecordOutcome() | Start():
            execution = space.executions.get(message.execution_id)
            is_here = execution is not None and not execution.is_outline
            return Unknown(execution_id=None if is_here else message.execution_id)
        case _:
            return NOTHING


def _find_unknown_of_approval(space: Space, message: Approve | Reject) -> Unknown:
    approval = space.approvals.get(message.approval_id)
    if approval is None:
        return Unknown(approval_id=message.approval_id)
    return NOTHING if isinstance(message, Reject) else Unknown(calls=_calls_of_proposal(space, approval.proposal_id))


def _calls_of_proposal(space: Space, proposal_id: str) -> tuple[CallKey, ...]:
    record = space.proposals.get(proposal_id)
    return () if record is None else _unknown_calls(space, record.message.proposal.candidates, record.actor)


def _unknown_calls(space: Space, candidates: Iterable[Candidate], actor: Actor) -> tuple[CallKey, ...]:
    """The keys of calls of an actor under which the state knows no execution, each once."""
    calls = [each for each in candidates if isinstance(each, ToolCall) and each.idempotency_key is not None]
    of = (actor.kind, actor.id)
    keys = dict.fromkeys(CallKey(call.tool_id, call.idempotency_key or "", of) for call in calls)
    return tuple(key for key in keys if key not in space.calls)


class PastUnread(Unprepared):
    """A decision needs what the ledger has of the past, and it was not looked up since something left the state."""


def require_lookup(space: Space, command: SpaceCommand) -> None:
    """Raise PastUnread where something that the command names may have left the state and was not looked up since.

    What was settled after the lookup is in the state still: so what neither of the two has, never was.
    """
    unknown, looked_up = find_unknown(space, command), command.looked_up or NOTHING
    is_lately = command.looked_up_seq >= last_dropped(space.head.seq)
    if unknown == NOTHING or (is_lately and _covers(looked_up, unknown)):
        return
    raise PastUnread(f"what has left space `{space.space_id}` was not looked up", {"space_id": space.space_id})


def _covers(looked_up: Unknown, unknown: Unknown) -> bool:
    """Whether all of this was looked up: what the state had at the time was not, and may have left since."""
    names = ("proposal_id", "approval_id", "execution_id", "idempotency_key", "snapshot_id")
    return set(unknown.calls) <= set(looked_up.calls) and all(
        getattr(unknown, name) in (None, getattr(looked_up, name)) for name in names
    )
