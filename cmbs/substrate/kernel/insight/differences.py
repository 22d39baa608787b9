"""What happened in a space between two moments. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from cmbs.substrate.kernel.events import (
    Approve,
    Changes,
    CloseCase,
    DisputeMemory,
    Expire,
    ExpiryOf,
    IssueCapability,
    MarkInDoubt,
    OpenCase,
    PromoteMemory,
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
    StepResult,
)
from cmbs.substrate.kernel.insight.findings import SpaceChangeItem
from cmbs.substrate.kernel.policy.policy import POLICY_PREFIXES
from cmbs.substrate.kernel.words import SpaceChangeKind


class SpaceDiff(NamedTuple):
    """What is another after the entry `to_seq` than it was after `from_seq`, and how much was refused.

    The changes are in the order of the last events that touched them.
    """

    space_id: str
    from_seq: int
    to_seq: int
    snapshot_id_before: str
    snapshot_id_after: str
    refused: int
    changes: list[SpaceChangeItem]


def list_changes(
    events: Iterable[SpaceEvent], before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[list[SpaceChangeItem], int]:
    """What events changed of a space whose state map was `before` and is `after`; and how many were refused."""
    changes: dict[tuple[SpaceChangeKind, str], SpaceChangeItem] = {}
    refused = 0
    for event in events:
        seq, event_id = event.body.seq, event.body.event_id
        refused += not event.result.granted
        for key in (*event.result.changes.set, *event.result.changes.unset):
            kind = SpaceChangeKind.POLICY if key.startswith(POLICY_PREFIXES) else SpaceChangeKind.FACT
            if before.get(key) == after.get(key):
                changes.pop((kind, key), None)
            else:
                changes[kind, key] = SpaceChangeItem(seq, kind, key, event_id, before.get(key), after.get(key))
        for kind, name, status in _touch_records(event):
            changes[kind, name] = SpaceChangeItem(seq, kind, name, event_id, None, status)
    return sorted(changes.values(), key=lambda change: change.place), refused


def _touch_records(event: SpaceEvent) -> Iterator[tuple[SpaceChangeKind, str, str]]:
    """The records that an event touched, and how each stands after it."""
    message, result = event.message, event.result
    for name, status in result.statuses.items():
        yield SpaceChangeKind.PROPOSAL, name, status
    for asked in result.asked:
        yield SpaceChangeKind.APPROVAL, asked.approval_id, "pending"
    for approval_id in result.withdrawn_approvals:
        yield SpaceChangeKind.APPROVAL, approval_id, "withdrawn"
    for intent in result.intents:
        yield SpaceChangeKind.EXECUTION, intent.execution_id, "running"
    if result.granted:
        yield from _touch_named(message, result)


def _touch_named(message: SpaceMessage, result: StepResult) -> Iterator[tuple[SpaceChangeKind, str, str]]:
    """The record that a message names itself, and how it stands where the message was granted."""
    match message:
        case SetMode() if result.reason_code is None:
            yield SpaceChangeKind.MODE, "mode", message.mode.value
        case SetGovernance() if result.reason_code is None:
            yield SpaceChangeKind.GOVERNANCE, "operators_needed", str(message.operators_needed)
        case ProposePolicy():
            # Where one operator is enough, it is applied with its own entry.
            applied = result.changes != Changes()
            yield SpaceChangeKind.POLICY_CHANGE, message.change_id, "applied" if applied else "pending"
        case RecordOutcome():
            yield SpaceChangeKind.EXECUTION, message.execution_id, (result.outcome or message.status).value
        case SettlePolicy():
            yield SpaceChangeKind.POLICY_CHANGE, message.change_id, "applied" if message.authorise else "rejected"
        case Expire() if message.of is not ExpiryOf.PARKED:
            kind = SpaceChangeKind.APPROVAL if message.of is ExpiryOf.APPROVAL else SpaceChangeKind.MEMORY
            yield kind, message.id, "expired"
        case _ if type(message) in _TOUCHES:
            kind, name_of, status_of = _TOUCHES[type(message)]
            yield kind, name_of(message), status_of(message)
        case _:
            pass


# Messages that always do the same to one record: what kind of record, which one, and how it stands then.
_TOUCHES: dict[type[SpaceMessage], tuple[SpaceChangeKind, Callable[[Any], str], Callable[[Any], str]]] = {
    RegisterTool: (SpaceChangeKind.TOOL, lambda message: message.tool.tool_id, lambda _: "registered"),
    RetireTool: (SpaceChangeKind.TOOL, lambda message: message.tool_id, lambda _: "retired"),
    IssueCapability: (SpaceChangeKind.CAPABILITY, lambda message: message.capability.token_id, lambda _: "issued"),
    RevokeCapability: (SpaceChangeKind.CAPABILITY, lambda message: message.token_id, lambda _: "revoked"),
    Approve: (SpaceChangeKind.APPROVAL, lambda message: message.approval_id, lambda _: "approved"),
    Reject: (SpaceChangeKind.APPROVAL, lambda message: message.approval_id, lambda _: "rejected"),
    MarkInDoubt: (SpaceChangeKind.EXECUTION, lambda message: message.execution_id, lambda _: "in_doubt"),
    PutMemory: (SpaceChangeKind.MEMORY, lambda message: message.entry_id, lambda message: message.kind.value),
    PromoteMemory: (SpaceChangeKind.MEMORY, lambda message: message.entry_id, lambda message: message.kind.value),
    DisputeMemory: (
        SpaceChangeKind.MEMORY,
        lambda message: message.entry_id,
        lambda message: message.conflict_state.value,
    ),
    OpenCase: (SpaceChangeKind.CASE, lambda message: message.case_id, lambda _: "open"),
    CloseCase: (SpaceChangeKind.CASE, lambda message: message.case_id, lambda _: "closed"),
}
