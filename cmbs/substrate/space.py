"""The rules of a space: what a message comes to. Pure, and the only place where these rules live.

`decide(space, message, actor, stamp)` answers with the event to record, or with the earlier one that the message
repeats, or raises one of `cmbs.errors`; it changes nothing. `evolve(space, event)` is the only way from one state to
the next, live and in replay. What is denied, deferred or refused is an event like any other.
"""

from __future__ import annotations

from cmbs.belief_events import Repeat, Stamp
from cmbs.errors import Conflict, InvalidRequest, SpaceNotFound
from cmbs.messages import Actor
from cmbs.substrate.events import (
    Approve,
    CreateSpace,
    DisputeMemory,
    Expire,
    IssueCapability,
    MarkInDoubt,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetMode,
    SettlePolicy,
    SpaceEvent,
    SpaceMessage,
    Start,
    StepResult,
    Wake,
)
from cmbs.substrate.evolving import evolve
from cmbs.substrate.executing import decide_in_doubt, decide_outcome, decide_start
from cmbs.substrate.governing import (
    decide_create,
    decide_issue,
    decide_memory,
    decide_mode,
    decide_propose_policy,
    decide_register_tool,
    decide_retire_tool,
    decide_revoke,
    decide_settle_policy,
)
from cmbs.substrate.proposing import decide_approve, decide_expire, decide_propose, decide_reject, decide_wake
from cmbs.substrate.state import Space
from cmbs.substrate.steps import fingerprint, recorded

__all__ = ["decide", "evolve"]


def decide(
    space: Space | None, message: SpaceMessage, actor: Actor, stamp: Stamp, space_id: str = ""
) -> SpaceEvent | Repeat:
    """The decision on any message. `space_id` is for whoever asks for a space that is not there."""
    if space is None:
        if not isinstance(message, CreateSpace):
            raise SpaceNotFound(space_id)
        return recorded(message.space_id, None, message, decide_create(message, actor), actor, stamp)
    if stamp.idempotency_key is not None:
        known = space.requests.get(stamp.idempotency_key)
        if known is not None:
            seq, said = known
            if said != fingerprint(message, actor):
                raise Conflict(
                    f"idempotency key `{stamp.idempotency_key}` was used for another request",
                    {"idempotency_key": stamp.idempotency_key},
                )
            return Repeat(seq)
    result = _decided(space, message, actor, stamp)
    if isinstance(result, Repeat):
        return result
    return recorded(space.space_id, space.head, message, result, actor, stamp)


def _decided(space: Space, message: SpaceMessage, actor: Actor, stamp: Stamp) -> StepResult | Repeat:
    match message:
        case Propose():
            return decide_propose(space, message, actor, stamp)
        case RecordOutcome():
            return decide_outcome(space, message, actor, stamp)
        case Wake():
            return decide_wake(space, message, actor, stamp)
        case Approve():
            return decide_approve(space, message, actor, stamp)
        case Reject():
            return decide_reject(space, message, actor, stamp)
        case Expire():
            return decide_expire(space, message, actor, stamp)
        case Start():
            return decide_start(space, message, actor, stamp)
        case MarkInDoubt():
            return decide_in_doubt(space, message, actor, stamp)
        case PutMemory() | PromoteMemory() | DisputeMemory():
            return decide_memory(space, message, actor, stamp)
        case _:
            return _governed(space, message, actor, stamp)


def _governed(space: Space, message: SpaceMessage, actor: Actor, stamp: Stamp) -> StepResult | Repeat:
    match message:
        case SetMode():
            return decide_mode(space, message, actor, stamp)
        case ProposePolicy():
            return decide_propose_policy(space, message, actor, stamp)
        case SettlePolicy():
            return decide_settle_policy(space, message, actor, stamp)
        case RegisterTool():
            return decide_register_tool(space, message, actor, stamp)
        case RetireTool():
            return decide_retire_tool(space, message, actor, stamp)
        case IssueCapability():
            return decide_issue(space, message, actor, stamp)
        case RevokeCapability():
            return decide_revoke(space, message, actor, stamp)
        case CreateSpace():
            raise Conflict(f"space `{space.space_id}` was created before", {"space_id": space.space_id})
        case _:  # pragma: no cover - these are all there are
            raise InvalidRequest(f"`{type(message).__name__}` is not a message to a space")
