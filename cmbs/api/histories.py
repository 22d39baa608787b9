"""Request and response types of forks, differences and comparisons of sources."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.api.answers import Answer, Count, Page
from cmbs.api.sessions import NextCursor, SessionOrigin, Snapshot
from cmbs.belief.kernel.comparisons import ChangeKind
from cmbs.belief.kernel.contradictions import MAX_NAMED


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


class SessionChangeItem(Answer, frozen=True):
    """One thing that happened."""

    kind: ChangeKind
    seq: Count
    event_id: str
    id: Annotated[str | None, Meta(description="The hypothesis, obligation or conclusion; of a refusal, the reason.")]
    source_id: Annotated[str | None, Meta(description="Of an elimination.")]
    observation_id: Annotated[str | None, Meta(description="Of an elimination.")]


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


class SourceItem(Answer, frozen=True):
    """What one source did. Ids that are not in the universe count nowhere."""

    source_id: str
    events: Count
    eliminated: Annotated[int, Meta(ge=0, description="Hypotheses that it was the first to list.")]
    already_eliminated_by_others: Count
    already_eliminated_by_itself: Count
    only_here: Annotated[int, Meta(ge=0, description="Hypotheses that it has listed and no other source.")]
    bits: Annotated[float, Meta(ge=0, description="By how much its events reduced log2 of the survivors.")]
    contradicted_conclusions: Annotated[list[str], Meta(description="Accepted conclusions that it has eliminated.")]
    left_none: Annotated[bool, Meta(description="Whether the last survivor was eliminated by it.")]


class AgreementItem(Answer, frozen=True):
    """How far two sources agree on what to eliminate."""

    source_id: str
    other_source_id: str
    both: Annotated[int, Meta(ge=0, description="Hypotheses that both have listed.")]
    share: Annotated[float, Meta(ge=0, le=1, description="Their share of those that either has listed.")]


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


class ReportItem(Answer, frozen=True):
    """A report, by where it stands in the log."""

    seq: Count
    event_id: str
    source_id: str
    observation_id: str
    probe_id: Annotated[str | None, Meta(description="What was asked, where a provider worked out what it rules out.")]


class LoneWordItem(Answer, frozen=True):
    """A cause that one report alone speaks against."""

    hypothesis_id: str
    report: ReportItem


class ExplanationItem(Answer, frozen=True):
    """Reports that, all wrong, would let these causes be true, and fewer would not."""

    reports: list[ReportItem]
    causes: Annotated[list[str], Meta(description=f"The first {MAX_NAMED}, by id.")]
    n_causes: Count


class ContradictionResponse(Answer, frozen=True):
    """What explains that nothing is left of a session; empty lists where something is."""

    contradiction: bool
    left_none: Annotated[ReportItem | None, Meta(description="The report after which nothing was left.")]
    smallest: Annotated[Count, Meta(description="How many reports must be wrong at least.")]
    alone: Annotated[
        list[LoneWordItem], Meta(description=f"Causes that one report alone speaks against: the first {MAX_NAMED}.")
    ]
    n_alone: Count
    explanations: Annotated[list[ExplanationItem], Meta(description=f"The smallest first, {MAX_NAMED} at most.")]
    n_explanations: Annotated[Count, Meta(description="How many were found; more where it is not exhaustive.")]
    exhaustive: Annotated[bool, Meta(description="Whether these are all; the smallest always are looked for.")]
    look_again: Annotated[
        list[ReportItem],
        Meta(description="Reports to take again: at least one is wrong, if no more are wrong than must be."),
    ]
    shortest: Annotated[bool, Meta(description="Whether no shorter list would do; false where the search was cut.")]
