"""Request and response types of forks, differences and comparisons of sources."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.api.answers import Answer, Count, Page
from cmbs.api.sessions import NextCursor, SessionOrigin, Snapshot
from cmbs.belief.kernel.comparisons import AgreementItem, SessionChangeItem, SourceItem


class ForkSessionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fork of a session."""

    at: Annotated[
        int | str | UnsetType | None,
        Meta(description="The seq or the id of the event to begin after; by default the last."),
    ] = UNSET
    without: Annotated[
        list[int | str] | UnsetType,
        Meta(description="Reports to leave out, by seq or event id: events of ELIMINATE up to `at`."),
    ] = UNSET


class ForkSessionResponse(Answer, frozen=True):
    """Answer to a fork."""

    session_id: Annotated[str, Meta(description="The new session.")]
    origin: SessionOrigin
    snapshot: Snapshot


class SessionDiffPage(Page[SessionChangeItem], frozen=True):
    """What happened between two moments of a session, in its order."""

    collection: ClassVar[str] = "changes"
    session_id: str
    from_seq: Count
    to_seq: Count
    n_survivors_before: Count
    n_survivors_after: Count
    counts: Annotated[dict[str, int], Meta(description="How many changes of each kind there are on all pages.")]
    changes: list[SessionChangeItem]
    attributes: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="What was declared of the hypotheses that were eliminated on this page."),
    ]
    next_cursor: NextCursor


class SourcesPage(Page[SourceItem], frozen=True):
    """The sources of a session, by id, and the agreement of the ones that listed most, in pairs."""

    collection: ClassVar[str] = "sources"
    session_id: str
    head_seq: Count
    n_sources: Count
    n_survivors: Count
    agreed: Annotated[int, Meta(ge=0, description="Hypotheses that several sources have listed.")]
    sources: list[SourceItem]
    agreements: list[AgreementItem]
    next_cursor: NextCursor
