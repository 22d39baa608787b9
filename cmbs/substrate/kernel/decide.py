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
from cmbs.substrate.kernel.calls import MakeCall, SpaceRequest, complete_call
from cmbs.substrate.kernel.cases import decide_close_case, decide_open_case
from cmbs.substrate.kernel.events import (
    Approve,
    CloseCase,
    CreateSpace,
    DisputeMemory,
    Expire,
    IssueCapability,
    MarkInDoubt,
    OpenCase,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetGovernance,
    SetMode,
    SettlePolicy,
    SpaceEvent,
    SpaceMessage,
    Start,
    StepResult,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.evolve import advance, evolve
from cmbs.substrate.kernel.executions import decide_in_doubt, decide_outcome, decide_start
from cmbs.substrate.kernel.governance import (
    decide_create,
    decide_governance,
    decide_issue,
    decide_memory,
    decide_mode,
    decide_propose_policy,
    decide_register_tool,
    decide_retire_tool,
    decide_revoke,
    decide_settle_policy,
)
from cmbs.substrate.kernel.proposals import decide_approve, decide_propose
from cmbs.substrate.kernel.retention import with_recalled
from cmbs.substrate.kernel.state import RequestKey, Space
from cmbs.substrate.kernel.steps import fingerprint, record
from cmbs.substrate.kernel.waiting import decide_expire, decide_reject, decide_wake, decide_withdraw

__all__ = ["advance", "decide", "evolve"]


def decide(
    space: Space | None, message: SpaceRequest, actor: Actor, stamp: Stamp, space_id: str = ""
) -> SpaceEvent | Repeat:
    """The decision on any message. `space_id` names the space in SpaceNotFound, where `space` is None."""
    if space is None:
        if not isinstance(message, CreateSpace):
            raise SpaceNotFound(space_id)
        return record(message.space_id, None, message, decide_create(message, actor), actor, stamp)
    if isinstance(message, MakeCall):
        completed = complete_call(space, message, actor, stamp)
        if isinstance(completed, Repeat):
            return completed
        message = completed
    space = with_recalled(space, message)
    if stamp.idempotency_key is not None:
        known = find_request(space, stamp.idempotency_key, actor)
        if known is not None:
            seq, asked = known
            if asked != fingerprint(message, actor):
                raise Conflict(
                    f"idempotency key `{stamp.idempotency_key}` was used for another request",
                    {
                        "idempotency_key": stamp.idempotency_key,
                        "field": "idempotency_key",
                        "found": stamp.idempotency_key,
                        "next": "use a new key for a new request; to repeat the first one, send it unchanged",
                    },
                )
            return Repeat(seq)
    rule = _RULES.get(type(message))
    if rule is None:
        raise Conflict(
            f"space `{space.space_id}` was created before",
            {
                "space_id": space.space_id,
                "field": "space_id",
                "found": space.space_id,
                "next": "use the space as it is, or create another one under a new id",
            },
        )
    result = rule(space, message, actor, stamp)
    if isinstance(result, StepResult):
        return record(space.space_id, space.head, message, result, actor, stamp)
    return result


def find_request(space: Space, idempotency_key: str, actor: Actor) -> tuple[int, bytes] | None:
    """What was recorded under this key by this actor."""
    return space.requests.get(RequestKey(idempotency_key, (actor.kind, actor.id)))


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
    Withdraw: decide_withdraw,
    SetMode: decide_mode,
    SetGovernance: decide_governance,
    ProposePolicy: decide_propose_policy,
    SettlePolicy: decide_settle_policy,
    RegisterTool: decide_register_tool,
    RetireTool: decide_retire_tool,
    IssueCapability: decide_issue,
    RevokeCapability: decide_revoke,
    OpenCase: decide_open_case,
    CloseCase: decide_close_case,
}
