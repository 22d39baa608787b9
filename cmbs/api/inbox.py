"""Types of what waits for a person, across spaces."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from cmbs.api import spaces
from cmbs.api.answers import Count, Page, Partial
from cmbs.api.sessions import NextCursor
from cmbs.ledger.instants import Timestamp
from cmbs.substrate.kernel.words import WaitKind


class InboxItem(Partial, kw_only=True, frozen=True):
    """One thing that waits for a person; with its record, where it has one."""

    space_id: str
    kind: WaitKind
    id: Annotated[str, Meta(description="Of the approval, the execution or the change; else of the space.")]
    seq: Annotated[Count, Meta(description="The step since which it waits, or, of a mode, the newest step.")]
    asked_by: str
    case_id: str | None
    case_title: str | None
    expires_at: Timestamp | None
    approval: spaces.ApprovalItem | None = None
    execution: spaces.ExecutionResponse | None = None
    policy_change: spaces.PolicyChangeResponse | None = None


class InboxPage(Page[InboxItem], frozen=True):
    """A page of what waits, by space and then the oldest first."""

    collection: ClassVar[str] = "waiting"
    waiting: list[InboxItem]
    next_cursor: NextCursor
