"""What answers say beside outcomes: refusals in full, repeats, and how far obligations are from being exited."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from cmbs.messages import ObligationState, ReachDetail, Reason

Item = TypeVar("Item")
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Answer(msgspec.Struct, frozen=True):
    """What a server answers. A reader passes over members that it does not know: a newer server may have more."""


class Partial(Answer, frozen=True, omit_defaults=True):
    """An answer with members that are not always there: one that is None, or false, by default is left out."""


class OpenDocument(Answer, frozen=True):
    """An answer whose other members depend on what it is: clients hand it out as plain JSON."""


class CurrentBelief(Answer, frozen=True):
    """The belief of now, beside that of an event that is answered again."""

    n_survivors: Count
    audit_head_event_id: str
    terminated: bool


Replayed: TypeAlias = Annotated[
    bool, Meta(description="True where the request was recorded before and this is the first answer again.")
]
Current: TypeAlias = Annotated[
    CurrentBelief | None, Meta(description="Only of a request that was recorded before: the belief of now.")
]


class Page(Answer, Generic[Item], frozen=True):
    """A page of a list: `items` are those of the field `collection`, `next_cursor` asks for the page after it."""

    collection: ClassVar[str]

    @property
    def items(self) -> list[Item]:
        """The items of this page."""
        items: list[Item] = getattr(self, self.collection)
        return items


class RefusalDetail(Partial, kw_only=True, frozen=True):
    """Why a request was refused, and what to do, with the numbers that the reason is about."""

    code: Reason
    message: Annotated[str, Meta(description="The refusal in a sentence.")]
    field: Annotated[str, Meta(description="What of the request or the session is in the way.")]
    found: Any
    accepted: Any
    next: Annotated[str, Meta(description="What to do.")]
    obligation_id: str | None = None
    needed: int | None = None
    eliminated: int | None = None
    alive: int | None = None
    reachable: bool | None = None
    exited_seq: int | None = None
    n_survivors: int | None = None
    survivors: list[str] | None = None
    conclusions: list[str] | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        return f"{self.message}; {self.next}"


Refusal: TypeAlias = Annotated[RefusalDetail | None, Meta(description="Only of a request that was refused.")]


class ObligationItem(Answer, frozen=True):
    """An obligation of a session."""

    obligation_id: str
    state: ObligationState
    min_total_eliminations: Count
    eliminations: Annotated[int, Meta(ge=0, description="How many hypotheses were eliminated while it was active.")]
    reach: ReachDetail


class ObligationsResponse(Answer, frozen=True):
    """Every obligation of a session, in the order of entry."""

    obligations: list[ObligationItem]


class DocumentFinding(Answer, frozen=True, kw_only=True):
    """One of the things that are wrong with a kit or a policy file."""

    severity: Annotated[
        str,
        Meta(
            description="How bad it is: a document with warnings alone can be used.",
            extra_json_schema={"enum": ["error", "warning"]},
        ),
    ]
    rule: Annotated[str, Meta(description="The rule that is broken.")]
    message: Annotated[str, Meta(description="What is wrong, for people.")]
    path: Annotated[list[str | int], Meta(description="Names and numbers of items, from the top of the document down.")]
    line: Annotated[int | None, Meta(description="The line, counted from 1; null if it is about no line.")]
    column: Annotated[int | None, Meta(description="The column, counted from 1; null if it is about no line.")]
