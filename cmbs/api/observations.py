"""Types of observations, of probes that are worth asking, and of kits on record."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.api.answers import Answer, Count, Current, DocumentFinding, Page, Partial, Replayed
from cmbs.api.sessions import NextCursor, Opaque, SessionIdInBody, Sha256, Snapshot
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.kernel.looks import DEFAULT_PROBES, MAX_PROBES, LookItem
from cmbs.belief.kernel.prospects import ProbeItem
from cmbs.ledger.instants import Timestamp
from cmbs.messages import Id

_ANY_JSON = {"type": ["string", "number", "boolean", "object", "array", "null"]}
_READING = (
    "How sound the outcome is (`soundness`), and how numbers were read: the score against a baseline, or how a window"
    " of samples was reduced."
)
KitHash: TypeAlias = Annotated[
    Sha256, Meta(description="SHA-256 of `cmbs/1/kit`, a zero byte, and the document as it was written.")
]


class ObserveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A probe, and what was seen."""

    probe_id: Annotated[Id, Meta(description="A probe of the session's kit.")]
    response: Annotated[
        Any,
        Meta(
            description="What was seen: the id of an outcome, a number where the probe reads numbers, a list of samples"
            " where the kit says how to reduce them, or null for no data.",
            extra_json_schema=_ANY_JSON,
        ),
    ]
    source_id: Annotated[
        Id | UnsetType, Meta(description="The source; by default the actor of the key, or `observer`.")
    ] = UNSET
    observation_id: Annotated[
        Id | UnsetType,
        Meta(
            description="With the source, the key under which this is recorded once; by default the probe. A new look"
            " at the same probe needs an id of its own."
        ),
    ] = UNSET
    justification: Opaque = UNSET
    seen_at: Annotated[
        str | UnsetType,
        Meta(description="When it was seen, RFC 3339.", extra_json_schema={"format": "date-time"}),
    ] = UNSET
    session_id: SessionIdInBody = UNSET


class KitReference(Answer, frozen=True):
    """One content of a kit."""

    id: str
    content_hash: KitHash


class ObservationItem(Partial, frozen=True):
    """What was made of an observation."""

    probe_id: str
    source_id: str
    observation_id: str
    ruled_out: Annotated[int, Meta(ge=0, description="How many hypotheses it speaks against, alive or not.")]
    kit: Annotated[KitReference | None, Meta(description="The kit that said so.")] = None
    outcome_id: Annotated[
        str | UnsetType | None, Meta(description="The outcome that the response was read as; null for no data.")
    ] = UNSET
    reading: Annotated[dict[str, Any] | None, Meta(description=_READING)] = None
    seen_at: Timestamp | None = None


class ObserveResponse(Partial, frozen=True):
    """Answer to an observation."""

    applied_eliminated: Annotated[list[str], Meta(description="The hypotheses that had survived until now.")]
    ignored_eliminated: Annotated[list[str], Meta(description="The others that it speaks against: gone before.")]
    snapshot: Snapshot
    audit_event_id: str
    observation: ObservationItem
    seen_before: Annotated[
        list[LookItem],
        Meta(description="The newest looks at the probe that were recorded before this request, the newest first."),
    ]
    replayed: Replayed = False
    current: Current = None


class ProbesPage(Page[ProbeItem], frozen=True):
    """A page of the probes that are worth asking, the best first. Nothing here decides: any probe may be asked."""

    collection: ClassVar[str] = "probes"
    probes: list[ProbeItem]
    n_probes: Annotated[int, Meta(ge=0, description="The number on all pages together.")]
    n_survivors: Count
    audit_head_event_id: Annotated[str, Meta(description="The event that the page is as of.")]
    asked: Annotated[
        list[LookItem], Meta(description="What was asked already, the newest first; on the first page alone.")
    ]
    n_asked: Annotated[int, Meta(ge=0, description="How many looks there were in all.")]
    next_cursor: NextCursor


class KitContent(Answer, frozen=True):
    """A content of a kit that is on record."""

    kit_id: str
    version: Annotated[str, Meta(description="As the document has it.")]
    content_hash: KitHash
    title: str
    media_type: MediaType
    n_hypotheses: Count
    n_probes: Count
    n_bytes: Count
    ts: Timestamp
    put_by: Annotated[str, Meta(description="The id of the actor.")]
    audit_event_id: str


class KitsPage(Page[KitContent], frozen=True):
    """A page of kits by id, each in its newest content."""

    collection: ClassVar[str] = "kits"
    kits: list[KitContent]
    next_cursor: NextCursor


class PutKitResponse(Partial, frozen=True):
    """Answer to a kit that was put on record."""

    kit: KitContent
    warnings: list[DocumentFinding]
    replayed: Annotated[bool, Meta(description="True where this content was on record before.")] = False


class KitSource(Answer, frozen=True):
    """A kit as it was written."""

    media_type: MediaType
    text: str


class KitResponse(Answer, frozen=True):
    """A kit: one content of it, the document, and every content by age."""

    kit: KitContent
    source: KitSource
    contents: Annotated[list[KitContent], Meta(description="Every content of the kit, the oldest first.")]


PROBES_LIMIT = {"type": "integer", "minimum": 1, "maximum": MAX_PROBES, "default": DEFAULT_PROBES}
