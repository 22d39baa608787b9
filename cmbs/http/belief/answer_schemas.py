"""What answers say beside outcomes: refusals in full, repeats, and how far obligations are from being exited."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, UnsetType

from cmbs.messages import ObligationState, Reason

Count: TypeAlias = Annotated[int, Meta(ge=0)]


class CurrentBelief(msgspec.Struct):
    """The belief of now, beside that of an event that is answered again."""

    n_survivors: Count
    audit_head_event_id: str
    terminated: bool


Replayed: TypeAlias = Annotated[
    bool | UnsetType, Meta(description="True where the request was recorded before and this is the first answer again.")
]
Current: TypeAlias = Annotated[
    CurrentBelief | UnsetType, Meta(description="Only of a request that was recorded before: the belief of now.")
]


class RefusalDetail(msgspec.Struct, kw_only=True):
    """Why a request was refused, and what to do. It may have further members: the numbers that the reason is about."""

    code: Reason
    message: Annotated[str, Meta(description="The refusal in a sentence.")]
    field: Annotated[str, Meta(description="What of the request or the session is in the way.")]
    found: Any
    accepted: Any
    next: Annotated[str, Meta(description="What to do.")]


Refusal: TypeAlias = Annotated[RefusalDetail | UnsetType, Meta(description="Only of a request that was refused.")]


class ReachDetail(msgspec.Struct):
    """How far an obligation is from being exited, or was when it was."""

    needed: Annotated[int, Meta(ge=0, description="How many eliminations it asks for.")]
    eliminated: Annotated[int, Meta(ge=0, description="How many were made while it was active.")]
    alive: Annotated[int, Meta(ge=0, description="How many hypotheses survive.")]
    reachable: Annotated[
        bool, Meta(description="False where eliminating all that survive would not be enough to exit it.")
    ]


class ObligationItem(msgspec.Struct):
    """An obligation of a session."""

    obligation_id: str
    state: ObligationState
    min_total_eliminations: Count
    eliminations: Annotated[int, Meta(ge=0, description="How many hypotheses were eliminated while it was active.")]
    reach: ReachDetail


class ObligationsResponse(msgspec.Struct):
    """Every obligation of a session, in the order of entry."""

    obligations: list[ObligationItem]
