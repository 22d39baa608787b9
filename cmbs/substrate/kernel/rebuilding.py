"""A proposal that has left the state, put together again from the entries that are about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from immutables import Map

from cmbs.substrate.kernel.events import (
    Approve,
    CloseCase,
    Expire,
    MarkInDoubt,
    Propose,
    RecordOutcome,
    RegisterTool,
    Reject,
    SpaceEvent,
    SpaceMessage,
    SpaceVerb,
    Start,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.evolve import apply
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.retention import Recalled
from cmbs.substrate.kernel.state import Approval, Space
from cmbs.substrate.kernel.words import ApprovalStatus, ProposalStatus


def names_of_executions(events: Iterable[SpaceEvent]) -> list[str]:
    """The executions that these events began."""
    return [intent.execution_id for event in events if _begins(event) for intent in event.result.intents]


def names_of_approvals(events: Iterable[SpaceEvent]) -> list[str]:
    """The approvals that these events asked for."""
    return [asked.approval_id for event in events for asked in event.result.asked]


def _begins(event: SpaceEvent) -> bool:
    """Whether the intents of an event are the first ones of their executions."""
    return event.body.verb != SpaceVerb.START


def find_tool(registrations: Iterable[SpaceEvent], tool_id: str, seq: int) -> Tool | None:
    """The tool as it was registered right before an event; None where these events registered none."""
    found: Tool | None = None
    for event in registrations:
        message = event.message
        if isinstance(message, RegisterTool) and event.result.granted and event.body.seq < seq:
            found = message.tool if message.tool.tool_id == tool_id else found
    return found


def rebuild(
    space: Space, proposal_id: str, events: Iterable[SpaceEvent], tools: Mapping[tuple[str, int], Tool]
) -> Recalled:
    """The records of a settled proposal, its executions and its approvals.

    `events` are all that changed where they stand, in order; `tools` has the tool of each execution that one of them
    began, by its id and the seq of the event. The same steps lead to the records as did then.
    """
    part = msgspec.structs.replace(
        space,
        proposals=Map(),
        executions=Map(),
        running=Map(),
        calls=Map(),
        approvals=Map(),
        grants=Map(),
        parked=Map(),
        waiting=Map(),
        spent=Map(),
    )
    for event in events:
        part = _follow(part, proposal_id, event, tools)
    return Recalled(
        proposals=part.proposals,
        executions=part.executions,
        calls=part.calls,
        approvals={name: space.approvals.get(name) or _use_up(approval) for name, approval in part.approvals.items()},
    )


def _use_up(approval: Approval) -> Approval:
    """An approval that has left the state: one that was given has no use left, also where others had the last one."""
    if approval.status is not ApprovalStatus.APPROVED:
        return approval
    return msgspec.structs.replace(approval, uses_left=0)


def _follow(part: Space, proposal_id: str, event: SpaceEvent, tools: Mapping[tuple[str, int], Tool]) -> Space:
    seq, result = event.body.seq, event.result
    statuses = {name: status for name, status in result.statuses.items() if name == proposal_id}
    if not _is_own(part, proposal_id, event.message):
        # A step on something else, which ended it too.
        record = part.proposals[proposal_id]
        status = ProposalStatus(statuses.get(proposal_id, record.status))
        moved = msgspec.structs.replace(record, status=status, changed_seq=seq)
        return msgspec.structs.replace(part, proposals=part.proposals.set(proposal_id, moved))
    known = {each.tool_id: tools[each.tool_id, seq] for each in result.intents if (each.tool_id, seq) in tools}
    part = msgspec.structs.replace(part, tools=part.tools.update(known))
    used = tuple(each for each in result.used_approvals if each in part.approvals)
    withdrawn = tuple(each for each in result.withdrawn_approvals if each in part.approvals)
    unstarted = tuple(each for each in result.not_started if each in part.executions)
    own = msgspec.structs.replace(
        result, statuses=statuses, used_approvals=used, withdrawn_approvals=withdrawn, not_started=unstarted
    )
    return msgspec.structs.replace(part, **apply(part, msgspec.structs.replace(event, result=own)))


def _is_own(part: Space, proposal_id: str, message: SpaceMessage) -> bool:
    """Whether a message is about the proposal itself, one of its executions, one of its approvals, or its case."""
    match message:
        case Propose():
            return message.proposal.proposal_id == proposal_id
        case Wake() | Withdraw():
            return message.proposal_id == proposal_id
        case Approve() | Reject():
            return message.approval_id in part.approvals
        case Expire():
            return message.id == proposal_id or message.id in part.approvals or message.id in part.executions
        case Start() | MarkInDoubt() | RecordOutcome():
            return message.execution_id in part.executions
        case CloseCase():
            return True
        case _:
            return False
