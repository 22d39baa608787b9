"""Proof documents as they are written: JSON, self-contained, versioned. `docs/reference/proofs.md` defines each field.

Hashes, paths and blocks are base64 text. A path is its hashes joined. An entry is its exact bytes as text.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

Format: TypeAlias = Literal["cmbs/1/proof"]
FORMAT: Format = "cmbs/1/proof"
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class TreeHead(_Part, frozen=True):
    """A tree of a stream: how many entries, the root over them, and the hash of the last one with its path."""

    size: Number
    root: bytes
    head: bytes
    head_path: bytes


class StreamHead(_Part, frozen=True):
    """The stream that a proof is about, as it was at `size` entries.

    `anchor` is evidence that the server stood by this root: a signed checkpoint and what leads from it to the root.
    """

    id: str
    size: Number
    root: bytes
    head: bytes
    head_path: bytes
    anchor: dict[str, Any] | None = None


class Included(_Part, frozen=True):
    """An entry, and its way to the root of its stream; its place there is the `seq` in it."""

    entry: str
    path: bytes


class BlockAt(_Part, frozen=True):
    """A block of 1024 bits of a survivor set, and its way to the survivor root."""

    block: bytes
    path: bytes


class UniverseRoot(_Part, frozen=True):
    """The ids of a session: how many, and the root over them, sorted.

    `declaration` is the entry that commits to both, left out where it is too large for a proof.
    """

    size: Number
    root: bytes
    declaration: Included | None = None


class Flip(_Part, frozen=True):
    """Bits that were cleared between two survivor roots: the blocks that held them before, and their way to both."""

    universe_size: Number
    cleared: list[Number]
    blocks: bytes
    path: bytes


class Recorded(_Part, frozen=True):
    """Where an event is recorded, and the way of the ids that it eliminated to the universe root, all at once."""

    stream: StreamHead
    event: Included
    universe: UniverseRoot
    universe_path: bytes


class ReadingEvidence(_Part, frozen=True):
    """What the log of a session says of a reading: the pinned event, and the survivor set that it commits to.

    `bitmap` is one bit for each id of the universe, least significant first, compressed as RFC 1950 (zlib).
    """

    stream: StreamHead
    event: Included
    universe: UniverseRoot
    bitmap: bytes
    # The common way of the survivors that the reading lists to the universe root; empty where it lists none.
    universe_path: bytes


class _Document(_Part, frozen=True, tag_field="kind", tag=str.lower):
    format: Format


class Inclusion(_Document, frozen=True):
    """An entry is in a stream."""

    stream: StreamHead
    event: Included


class Consistency(_Document, frozen=True):
    """A stream began with everything that it had when it was smaller."""

    stream: StreamHead
    old: TreeHead
    path: bytes


class Membership(_Document, frozen=True):
    """A hypothesis survived after an event."""

    stream: StreamHead
    hypothesis_id: str
    event: Included
    universe: UniverseRoot
    position: Number
    universe_path: bytes
    survivors: BlockAt


class Elimination(_Document, frozen=True):
    """A hypothesis was gone after an event, and `cause` is the entry that eliminated it."""

    stream: StreamHead
    hypothesis_id: str
    event: Included
    universe: UniverseRoot
    # The way of the id to the universe root, from the place of the bit that the cause cleared.
    universe_path: bytes
    survivors: BlockAt
    cause: Included
    flip: Flip


class Transition(_Document, frozen=True):
    """An event changed exactly these bits: from one survivor commitment to the other."""

    stream_id: str
    seq: Number
    prev_event_hash: bytes
    before: bytes
    after: bytes
    flip: Flip
    # Without it, the reader compares hash and commitments with an entry that it has.
    recorded: Recorded | None = None


class Refusal(_Document, frozen=True):
    """Something was denied."""

    stream: StreamHead
    event: Included


class Decision(_Document, frozen=True):
    """An action was allowed in a space, on these readings of the belief plane, in the order of the entry."""

    stream: StreamHead
    event: Included
    # None for a reading of a session that did not exist.
    readings: list[ReadingEvidence | None]


Proof: TypeAlias = Inclusion | Consistency | Membership | Elimination | Transition | Refusal | Decision


def write_proof(document: Proof) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document)
