"""The stream of a kit: every content that it had, as it was written, by whom and when. Pure.

It has one verb. A content is named by its hash, so that a session that names it can always be read beside it. Deciding
again must give the recorded bytes; a document is not read again for that, so that kits stay valid when the rules for
new ones change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from cmbs.errors import InvalidRequest, RecordNotFound
from cmbs.ledger import GENESIS, Head, StoredEntry, replay, seal
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.format import FORMAT
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import Actor, KitRef
from cmbs.spi.audit_log import KIT_PREFIX, Append


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


class KitEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT):
    """The content of an entry."""

    actor: Actor
    event_id: str
    outcome: None
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str
    verb: KitVerb


class KitStamp(NamedTuple):
    """What the outside world adds to a decision."""

    actor: Actor
    event_id: str
    ts: str


class KitEvent(NamedTuple):
    """A decision, ready to be written: the message, the content of its entry, and the exact bytes."""

    message: PutKit
    body: KitEntry
    stored: StoredEntry


class KitCommand(NamedTuple):
    """A content on its way to its stream, and who sends it."""

    message: PutKit
    by: Actor

    @property
    def stream_id(self) -> str:
        """The stream of the kit."""
        return KIT_PREFIX + self.message.kit_id


class KitAnswer(NamedTuple):
    """A content on record; `repeated` where it was before."""

    record: KitRecord
    repeated: bool


class KitFolding:
    """How the contents of a kit follow from the entries of its stream."""

    def owns(self, stream_id: str) -> bool:
        """Every stream under the prefix of kits."""
        return stream_id.startswith(KIT_PREFIX)

    def not_found(self, stream_id: str) -> RecordNotFound:
        """No such kit."""
        return RecordNotFound("kit", stream_id.removeprefix(KIT_PREFIX), where="this server")

    def catch_up(self, stream_id: str, state: KitShelf | None, entries: Sequence[StoredEntry]) -> KitShelf | None:
        """Every message is decided again."""
        return replay.catch_up(_RULES, stream_id, state, entries)

    def fold(self, state: KitShelf | None, stored: StoredEntry) -> tuple[KitShelf, Append]:
        """The contents after one entry more."""
        event = read_kit_event(stored)
        return evolve(state, event), _append_of(event)


class KitKind(KitFolding):
    """The streams of kits, and what commands come to."""

    def __init__(self, stamp: Callable[[Actor], KitStamp]) -> None:
        self._stamp = stamp

    def opens(self, command: KitCommand) -> bool:  # noqa: ARG002 - the first content does
        """Any content may be the first."""
        return True

    def decide(self, state: KitShelf | None, command: KitCommand) -> tuple[KitAnswer, tuple[KitShelf, Append] | None]:
        """Decide on the newest state. A content that is on record stays where it is."""
        known = None if state is None else _find_content(state, command.message)
        if known is not None:
            return KitAnswer(known, repeated=True), None
        event = decide_put(state, command.message, self._stamp(command.by))
        after = evolve(state, event)
        return KitAnswer(after.newest, repeated=False), (after, _append_of(event))


def hash_document(document: str) -> str:
    """What names a document: its hash under the tag of kits, in hex."""
    return hash_tagged(Domain.KIT, document.encode()).hex()


def decide_put(shelf: KitShelf | None, message: PutKit, stamp: KitStamp) -> KitEvent:
    """A content that is not on record yet becomes the newest one."""
    if message.content_hash != hash_document(message.document):
        raise InvalidRequest("the hash is not that of the document", {"field": "content_hash"})
    seq, previous = (0, GENESIS) if shelf is None else (shelf.head.seq + 1, shelf.head.event_hash)
    payload = msgspec.Raw(encode_frame(message))
    stream_id = KIT_PREFIX + message.kit_id
    body = KitEntry(
        stamp.actor,
        stamp.event_id,
        None,
        payload,
        previous.hex(),
        seq,
        stream_id,
        stamp.ts,
        KitVerb.PUT_KIT,
    )
    return KitEvent(message, body, seal(body))


def evolve(shelf: KitShelf | None, event: KitEvent) -> KitShelf:
    """The contents after an event."""
    message, body = event.message, event.body
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
    return KitShelf(message.kit_id, (*earlier, record), Head(body.seq, event.stored.event_hash))


# Made here, by one thread: msgspec crashes where several meet a type for the first time.
_ENTRIES, _MESSAGES = msgspec.json.Decoder(KitEntry), msgspec.json.Decoder(PutKit)


def read_kit_event(stored: StoredEntry) -> KitEvent:
    """The event that stored bytes hold; ValueError where they hold none."""
    body = _ENTRIES.decode(stored.raw)
    return KitEvent(_MESSAGES.decode(body.payload), body, stored)


def _find_content(shelf: KitShelf, message: PutKit) -> KitRecord | None:
    named = (message.content_hash, message.media_type)
    return next((each for each in shelf.contents if (each.content_hash, each.media_type) == named), None)


def _decide_again(stream_id: str, shelf: KitShelf | None, recorded: KitEvent) -> KitEvent:
    message, body = recorded.message, recorded.body
    if KIT_PREFIX + message.kit_id != stream_id:
        raise ValueError(f"it puts kit `{message.kit_id}`, which is not that of its stream")
    if message.hypotheses < 0 or message.probes < 0:
        raise ValueError("a kit has no negative number of hypotheses or probes")
    if shelf is not None and _find_content(shelf, message) is not None:
        raise ValueError("it puts a content that was there before")
    return decide_put(shelf, message, KitStamp(body.actor, body.event_id, body.ts))


_RULES = replay.ReplayRules(read_kit_event, _decide_again, evolve)


def _append_of(event: KitEvent) -> Append:
    body = event.body
    previous = bytes.fromhex(body.prev_event_hash)
    return Append(body.stream_id, body.seq, body.event_id, previous, event.stored, body.ts)
