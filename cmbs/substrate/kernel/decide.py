"""The rules of a space: what a message comes to. Pure, and the only place where these rules live.

`decide(space, message, actor, stamp)` answers with the event to record, or with the earlier one that the message
repeats, or raises one of `cmbs.errors`; it changes nothing. `evolve(space, event)` is the only way from one state to
the next, live and in replay. What is denied, deferred or refused is an event like any other.
"""

from __future__ import annotations

from collections.abc import Callable

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, SpaceNotFound
from cmbs.messages import Actor
from cmbs.substrate.kernel.events import (
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
from cmbs.substrate.kernel.evolve import evolve
from cmbs.substrate.kernel.executions import decide_in_doubt, decide_outcome, decide_start
from cmbs.substrate.kernel.governance import (
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
from cmbs.substrate.kernel.proposals import decide_approve, decide_expire, decide_propose, decide_reject, decide_wake
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.steps import fingerprint, record

__all__ = ["decide", "evolve"]


def decide(
    space: Space | None, message: SpaceMessage, actor: Actor, stamp: Stamp, space_id: str = ""
) -> SpaceEvent | Repeat:
    """The decision on any message. `space_id` names the space in SpaceNotFound, where `space` is None."""
    if space is None:
        if not isinstance(message, CreateSpace):
            raise SpaceNotFound(space_id)
        return record(message.space_id, None, message, decide_create(message, actor), actor, stamp)
    if stamp.idempotency_key is not None:
        known = space.requests.get(stamp.idempotency_key)
        if known is not None:
            seq, asked = known
            if asked != fingerprint(message, actor):
                raise Conflict(
                    f"idempotency key `{stamp.idempotency_key}` was used for another request",
                    {"idempotency_key": stamp.idempotency_key},
                )
            return Repeat(seq)
    rule = _RULES.get(type(message))
    if rule is None:
        raise Conflict(f"space `{space.space_id}` was created before", {"space_id": space.space_id})
    result = rule(space, message, actor, stamp)
    if isinstance(result, StepResult):
        return record(space.space_id, space.head, message, result, actor, stamp)
    return result


# Every message to a space that is there.
_RULES: dict[type[SpaceMessage], Callable[..., StepResult | Repeat]] = {
    Propose: decide_propose,
    RecordOutcome: decide_outcome,
    Wake: decide_wake,
    Approve: decide_approve,
    Reject: decide_reject,
    Expire: decide_expire,
    Start: decide_start,
    MarkInDoubt: decide_in_doubt,
    PutMemory: decide_memory,
    PromoteMemory: decide_memory,
    DisputeMemory: decide_memory,
    SetMode: decide_mode,
    ProposePolicy: decide_propose_policy,
    SettlePolicy: decide_settle_policy,
    RegisterTool: decide_register_tool,
    RetireTool: decide_retire_tool,
    IssueCapability: decide_issue,
    RevokeCapability: decide_revoke,
}
