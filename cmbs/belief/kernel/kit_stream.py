"""The stream of a kit: every content that it had, as it was written, by whom and when. Pure.

It has one verb. A content is named by its hash, so that a session that names it can always be read beside it. Deciding
again must give the recorded bytes; a document is not read again for that, so that kits stay valid when the rules for
new ones change.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from cmbs.errors import InvalidRequest, RecordNotFound
from cmbs.ledger import Head
from cmbs.ledger.register_entry import RegisterEntry
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import Actor, KitRef
from cmbs.spi.audit_log import KIT_PREFIX


class KitVerb(StrEnum):
    """What can be done to kits."""

    PUT_KIT = "PUT_KIT"


class MediaType(StrEnum):
    """The languages of kits."""

    YAML = "application/yaml"
    JSON = "application/json"


class PutKit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A content of a kit: the document as it was written, and what a list says of it."""

    kit_id: str
    version: str
    title: str
    media_type: MediaType
    document: str
    content_hash: str
    # 0 where they come from a causal graph; the probes are then those that can be asked of each component.
    hypotheses: int
    probes: int


class KitRecord(msgspec.Struct, frozen=True):
    """A content of a kit that is on record; its document is in the entry."""

    kit_id: str
    version: str
    title: str
    media_type: MediaType
    content_hash: str
    n_hypotheses: int
    n_probes: int
    n_bytes: int
    seq: int
    event_id: str
    ts: str
    put_by: Actor

    @property
    def reference(self) -> KitRef:
        """How events name it."""
        return KitRef(self.kit_id, self.content_hash)


class KitShelf(msgspec.Struct, frozen=True):
    """Every content of one kit, the oldest first, and where the stream ends that says so."""

    kit_id: str
    contents: tuple[KitRecord, ...]
    head: Head

    @property
    def newest(self) -> KitRecord:
        """The content that was put last."""
        return self.contents[-1]

    def find(self, version: str | None) -> KitRecord | None:
        """The content of this hash, or else the newest of this version; without either, the newest of all."""
        if version is None:
            return self.newest
        newest_first = self.contents[::-1]
        exact = (each for each in newest_first if each.content_hash == version)
        named = (each for each in newest_first if each.version == version)
        return next(exact, None) or next(named, None)


def hash_document(document: str) -> str:
    """What names a document: its hash under the tag of kits, in hex."""
    return hash_tagged(Domain.KIT, document.encode()).hex()


def decide_put(stream_id: str, shelf: KitShelf | None, message: PutKit, by: Actor) -> bool:  # noqa: ARG001 - anybody may
    """Whether a content becomes the newest one: one that is on record stays where it is."""
    if KIT_PREFIX + message.kit_id != stream_id:
        raise ValueError(f"it puts kit `{message.kit_id}`, which is not that of its stream")
    if message.hypotheses < 0 or message.probes < 0:
        raise ValueError("a kit has no negative number of hypotheses or probes")
    if message.content_hash != hash_document(message.document):
        raise InvalidRequest("the hash is not that of the document", {"field": "content_hash"})
    return shelf is None or find_content(shelf, message) is None


def evolve_kit(shelf: KitShelf | None, message: PutKit, body: RegisterEntry, head: Head) -> KitShelf:
    """The contents after one more."""
    record = KitRecord(
        message.kit_id,
        message.version,
        message.title,
        message.media_type,
        message.content_hash,
        message.hypotheses,
        message.probes,
        len(message.document.encode()),
        body.seq,
        body.event_id,
        body.ts,
        body.actor,
    )
    earlier = () if shelf is None else shelf.contents
    return KitShelf(message.kit_id, (*earlier, record), head)


def kit_not_found(stream_id: str) -> RecordNotFound:
    """No such kit."""
    return RecordNotFound("kit", stream_id.removeprefix(KIT_PREFIX), where="this server")


def find_content(shelf: KitShelf, message: PutKit) -> KitRecord | None:
    """The record of a content, in the language that it was written in; None where it is not there."""
    named = (message.content_hash, message.media_type)
    return next((each for each in shelf.contents if (each.content_hash, each.media_type) == named), None)
