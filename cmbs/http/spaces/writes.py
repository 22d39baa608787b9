"""The writes of a space: one table of the bodies that become messages, and of how the answers are shown.

From a row comes the operation of the OpenAPI document; one handler in `cmbs.http.spaces.routes` serves every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec

from cmbs.api import space_requests as requests
from cmbs.http.spaces import views
from cmbs.http.spaces.views import Reader
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel import events
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import Capability, Proposal, StateDelta, Tool, ToolCall

_CANDIDATES = {requests.StateDeltaRequest: StateDelta, requests.ToolCallRequest: ToolCall}
Build: TypeAlias = Callable[..., events.SpaceMessage]


@dataclass(frozen=True, slots=True)
class Write:
    """How a request of the table becomes a message to the space, and how the answer is shown.

    `build` is called with the ids of the path and the fields of the body that were sent; `show` builds the response.
    """

    build: Build
    show: Callable[[SpaceAnswer, Reader], msgspec.Struct] = views.show_step
    # Whether a caller with this body acts as an operator, so that its key needs `spaces:operate` too.
    governs: Callable[[Actor, Any], bool] | None = None


def _build_proposal(candidates: list[msgspec.Struct], defer_ms: int, ask_ms: int, **fields: Any) -> events.Propose:
    built = [_CANDIDATES[type(each)](*msgspec.structs.astuple(each)) for each in candidates]
    return events.Propose(Proposal(candidates=built, **fields), defer_ms=defer_ms, ask_ms=ask_ms)


def _is_operator(actor: Actor, _: Any) -> bool:
    return actor.kind is ActorKind.OPERATOR


def _issues_as_operator(actor: Actor, body: Capability) -> bool:
    """A root token is an operator's to issue; a narrower one under it, its holder's."""
    return body.parent_id is None or actor.kind is ActorKind.OPERATOR


# By the name of the operation; `cmbs.api.operations.writes` has the rest of each.
WRITES: dict[str, Write] = {
    "set_space_mode": Write(events.SetMode),
    "set_space_governance": Write(events.SetGovernance),
    "propose": Write(_build_proposal, views.show_recorded_decision),
    "withdraw_proposal": Write(events.Withdraw, views.show_withdrawal),
    "approve": Write(events.Approve, views.show_settled_approval),
    "reject": Write(events.Reject, views.show_settled_approval),
    "register_tool": Write(lambda **fields: events.RegisterTool(Tool(**fields))),
    "retire_tool": Write(events.RetireTool),
    "issue_capability": Write(
        lambda **fields: events.IssueCapability(Capability(**fields)), governs=_issues_as_operator
    ),
    "revoke_capability": Write(events.RevokeCapability, governs=_is_operator),
    "open_case": Write(events.OpenCase),
    "close_case": Write(events.CloseCase),
    "put_memory": Write(events.PutMemory),
    "promote_memory": Write(events.PromoteMemory),
    "dispute_memory": Write(events.DisputeMemory),
    "propose_policy_change": Write(events.ProposePolicy),
    "authorise_policy_change": Write(partial(events.SettlePolicy, authorise=True)),
    "reject_policy_change": Write(partial(events.SettlePolicy, authorise=False)),
}
