"""The kits of a server: put on record, listed, shown, and made ready to say what a response rules out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

import msgspec

from cmbs.belief.kernel.kit_stream import (
    KitRecord,
    KitShelf,
    KitVerb,
    MediaType,
    PutKit,
    decide_put,
    evolve_kit,
    find_content,
    hash_document,
    kit_not_found,
)
from cmbs.belief.kernel.nearest import find_nearest
from cmbs.documents.findings import Finding, InvalidDocument
from cmbs.errors import InvalidRequest, LedgerCorrupt, RecordNotFound
from cmbs.kit.graph_kit import GraphKit
from cmbs.kit.model import Kit
from cmbs.kit.parse_graph import ParsedDocument, parse_kit_document
from cmbs.kit.provider import KitProvider
from cmbs.ledger import Head, StoredEntry
from cmbs.ledger.entry import hash_entry
from cmbs.messages import Actor, ActorKind, KitRef, ProviderRef
from cmbs.spi import Append, AuditLog, Clock, IdSource
from cmbs.spi.audit_log import KIT_PREFIX
from cmbs.streams.register import Register, RegisterAnswer, RegisterCommand, RegisterKind
from cmbs.streams.server import StreamServer

# Kits that were read are kept while they hold no more ids than this together: of a kit, its hypotheses and everything
# that its outcomes rule out.
MAX_CACHED_IDS = 20_000_000
_CACHED_SHELVES = 1_000
_MAX_FINDINGS_SHOWN = 20
_MAX_LISTED = 20
_HERE = "this server"
_NEXT = "name a kit that is on record, or have an operator put this one there"
_FILE_NAMES = {MediaType.YAML: "kit.yaml", MediaType.JSON: "kit.json"}
# A process that can write to the store may put kits there.
COMMAND_LINE = Actor(ActorKind.OPERATOR, "command-line")
KITS = Register(KIT_PREFIX, {KitVerb.PUT_KIT: PutKit}, decide_put, evolve_kit, kit_not_found)


class PutAnswer(NamedTuple):
    """A kit on record, what is doubtful about it, and whether it was there before."""

    record: KitRecord
    warnings: tuple[Finding, ...]
    repeated: bool


class ReadyKit(NamedTuple):
    """A kit of the record that was read: what a session over it is declared from, and how the session names it."""

    kit: Kit | GraphKit
    reference: ProviderRef


class KitLibrary:
    """The kits on record in a log. Methods may be called from several threads at once."""

    def __init__(self, log: AuditLog, clock: Clock, ids: IdSource) -> None:
        self._log = log
        self._streams: StreamServer[KitShelf, RegisterCommand[PutKit], RegisterAnswer[KitShelf]] = StreamServer(
            log, RegisterKind(KITS, clock, ids), _CACHED_SHELVES, grouped=False
        )
        self._cache = _KitCache(MAX_CACHED_IDS)

    def put(self, document: str, media_type: MediaType, by: Actor = COMMAND_LINE) -> PutAnswer:
        """Put a kit on record; durable when it returns. The same document again is the one that is there.

        InvalidRequest has everything that is wrong with the document, each with its line and column.
        """
        parsed = self._parse(document, media_type)
        kit = parsed.kit
        message = PutKit(
            kit.kit_id,
            kit.version,
            kit.title,
            media_type,
            document,
            hash_document(document),
            len(kit.hypotheses) if isinstance(kit, Kit) else 0,
            len(kit.probes),
        )
        answer = self._perform(message, by)
        record = find_content(answer.state, message) or answer.state.newest
        self._cache.add(record.reference, kit)
        return PutAnswer(record, parsed.warnings, answer.repeated)

    def import_kit(self, kit_id: str, entries: Sequence[StoredEntry], head: Head) -> None:
        """Take a kit over from its log, byte for byte; LedgerCorrupt where it does not verify to `head`.

        Where the kit is on record with another history, the contents that it lacks are put on record here.
        """
        stream_id = KIT_PREFIX + kit_id
        KITS.verify(stream_id, entries, head)
        if self._streams.peek(stream_id) is None:
            self._streams.adopt(stream_id, entries)
            return
        for stored in entries:
            self._perform(KITS.read(stored).message, COMMAND_LINE)

    def list_kits(self, after: str | None = None, limit: int = 100) -> list[KitShelf]:
        """A page of kits by id; `after` is the last one seen."""
        names = self._log.streams(KIT_PREFIX, None if after is None else KIT_PREFIX + after, limit)
        shelves = map(self._streams.peek, names)
        return [shelf for shelf in shelves if shelf is not None]

    def shelf(self, kit_id: str) -> KitShelf:
        """Every content of a kit; RecordNotFound names the nearest id."""
        shelf = self._streams.peek(KIT_PREFIX + kit_id)
        if shelf is None:
            raise RecordNotFound("kit", kit_id, self._find_like(kit_id), _HERE)
        return shelf

    def find(self, kit_id: str, version: str | None = None) -> KitRecord:
        """A content by its hash or version, by default the newest; RecordNotFound where there is none."""
        shelf = self.shelf(kit_id)
        record = shelf.find(version)
        if record is None:
            known = [each.version for each in shelf.contents]
            raise RecordNotFound("version", f"{version}", known[-_MAX_LISTED:], f"the kit `{kit_id}`")
        return record

    def document(self, record: KitRecord) -> str:
        """The document of a content, as it was written; LedgerCorrupt where the entry is another one."""
        (stored,) = self._log.read(KIT_PREFIX + record.kit_id, record.seq - 1, 1) or (None,)
        if stored is None or hash_entry(stored.raw) != stored.event_hash:
            raise LedgerCorrupt(KIT_PREFIX + record.kit_id, record.seq, "the entry of a kit is gone, or another")
        document = KITS.read(stored).message.document
        if hash_document(document) != record.content_hash:
            raise LedgerCorrupt(KIT_PREFIX + record.kit_id, record.seq, "the document has another hash")
        return document

    def choose(self, kit_id: str, version: str | None = None) -> ReadyKit:
        """A kit to declare a session over; InvalidRequest says which there are."""
        try:
            record = self.find(kit_id, version)
        except RecordNotFound as exc:
            raise InvalidRequest(exc.message, {**exc.details, "field": "kit", "next": _NEXT}) from exc
        return self._ready(record)

    def find_cached(self, reference: ProviderRef) -> KitProvider | None:
        """The kit that a session was declared over, if it was read before; never touches the log."""
        if isinstance(reference.content_hash, msgspec.UnsetType):
            return None
        kit = self._cache.find(KitRef(reference.id, reference.content_hash))
        return KitProvider(kit) if isinstance(kit, Kit) else None

    def provide(self, reference: ProviderRef) -> KitProvider:
        """The kit that a session was declared over; InvalidRequest where it is not on record here, or over a graph."""
        kit = self.find_content(reference)
        if isinstance(kit, Kit):
            return KitProvider(kit)
        raise InvalidRequest(
            f"kit `{kit.kit_id}` is over a causal graph, and has no table of hypotheses and probes", {"field": "kit"}
        )

    def find_content(self, reference: ProviderRef) -> Kit | GraphKit:
        """As `provide`, a kit of either sort."""
        known = self._cache.find(KitRef(reference.id, str(reference.content_hash)))
        if known is not None:
            return known
        try:
            return self._ready(self.find(reference.id, str(reference.content_hash))).kit
        except RecordNotFound as exc:
            raise InvalidRequest(
                f"the kit `{reference.id}` that the session is from is not on record here, in the content"
                f" `{reference.content_hash}`",
                {"field": "kit", "found": reference.id, "next": "put the kit on record again, as it was written"},
            ) from exc

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse a kit until the log contains this head, which was recorded of it and which the log lacks."""
        self._streams.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Write nothing while the database lacks what was signed; None takes writes again."""
        self._streams.refuse_writes(reason)

    def observe_appends(self, observer: Callable[[Sequence[Append]], None]) -> None:
        """Tell `observer` of the entries that this process writes, once they are durable."""
        self._streams.observe_appends(observer)

    def find_behind(self) -> list[str]:
        """The first few kits of which the log lacks what this process has seen of them."""
        return self._streams.find_behind()

    def close(self) -> None:
        """Let go of threads; the log stays open."""
        self._streams.close()

    def _perform(self, message: PutKit, by: Actor) -> RegisterAnswer[KitShelf]:
        return self._streams.perform(RegisterCommand(KIT_PREFIX + message.kit_id, message, by))

    def _ready(self, record: KitRecord) -> ReadyKit:
        kit = self._cache.find(record.reference)
        if kit is None:
            kit = parse_kit_document(self.document(record).encode(), _FILE_NAMES[record.media_type]).kit
            self._cache.add(record.reference, kit)
        return ReadyKit(kit, ProviderRef(record.kit_id, record.version, record.content_hash, record.put_by.id))

    def _parse(self, document: str, media_type: MediaType) -> ParsedDocument:
        try:
            return parse_kit_document(document.encode(), _FILE_NAMES[media_type])
        except InvalidDocument as exc:
            raise _refuse(exc.findings) from exc

    def _find_like(self, kit_id: str) -> list[str]:
        names = [name.removeprefix(KIT_PREFIX) for name in self._log.streams(KIT_PREFIX, None, _CACHED_SHELVES)]
        nearest = find_nearest(kit_id, names)
        return names[:_MAX_LISTED] if nearest is None else [nearest]


def media_type_of(name: str, text: str) -> MediaType:
    """The language of a kit, by the name of its file; without an ending that says so, a brace begins JSON."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("yaml", "yml"):
        return MediaType.YAML
    return MediaType.JSON if ending == "json" or text.lstrip().startswith("{") else MediaType.YAML


class _KitCache:
    """Kits that were read, the least recently used given up first. A content never changes, so none grows stale."""

    def __init__(self, max_ids: int) -> None:
        self._max_ids = max_ids
        self._kits: OrderedDict[KitRef, tuple[Kit | GraphKit, int]] = OrderedDict()
        self._ids = 0
        self._lock = Lock()

    def find(self, reference: KitRef) -> Kit | GraphKit | None:
        with self._lock:
            if reference not in self._kits:
                return None
            self._kits.move_to_end(reference)
            return self._kits[reference][0]

    def add(self, reference: KitRef, kit: Kit | GraphKit) -> None:
        weight = _count_ids(kit)
        with self._lock:
            if reference in self._kits:
                return
            self._kits[reference] = (kit, weight)
            self._ids += weight
            while self._ids > self._max_ids and len(self._kits) > 1:
                _, (_, freed) = self._kits.popitem(last=False)
                self._ids -= freed


def _count_ids(kit: Kit | GraphKit) -> int:
    """The ids that a kit holds; one over a graph holds hardly any."""
    if isinstance(kit, GraphKit):
        return 1
    return len(kit.hypotheses) + sum(len(each.eliminates) for probe in kit.probes for each in probe.outcomes)


def _refuse(findings: tuple[Finding, ...]) -> InvalidRequest:
    more = f"; and {len(findings) - 1} more in `details.findings`" if len(findings) > 1 else ""
    place = findings[0].place
    where = "" if place is None else f"line {place.line}, column {place.column}: "
    return InvalidRequest(
        f"the kit is refused: {where}{findings[0].message}{more}",
        {
            "findings": [each.to_dict() for each in findings[:_MAX_FINDINGS_SHOWN]],
            "next": "correct it and send it again",
        },
    )
