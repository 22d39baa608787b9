"""The observations of a session, held against the kit on record that they name: what each outcome rules out."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UnsetType

from cmbs.belief.kernel.events import Eliminate, read_event
from cmbs.belief.kernel.kit_stream import KitFolding, MediaType, read_kit_event
from cmbs.belief.kernel.session import Session
from cmbs.documents.findings import InvalidDocument
from cmbs.errors import LedgerCorrupt
from cmbs.kit.model import Kit
from cmbs.kit.parse import parse_kit
from cmbs.messages import ProviderRef
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import KIT_PREFIX
from cmbs.spi.stored_rows import EVENTS, Finding

_PAGE = 500
_FILE_NAMES = {MediaType.YAML: "kit.yaml", MediaType.JSON: "kit.json"}


def check_observations(log: AuditLog, session: Session) -> list[Finding]:
    """Where an observation of a verified session ruled out other ids than the outcome that it was read as does.

    Nothing where the session is over no kit, or over one that is not on record here. A session verifies by itself;
    this finds one that was written by a process that did not ask the kit.
    """
    kit = _find_kit(log, session.provider)
    return [] if kit is None else list(_compare(log, session, kit))


def _compare(log: AuditLog, session: Session, kit: Kit) -> Iterator[Finding]:
    for after in range(-1, session.head.seq, _PAGE):
        for stored in log.read(session.session_id, after, min(_PAGE, session.head.seq - after)):
            event = read_event(stored)
            message = event.message
            if not isinstance(message, Eliminate) or message.probe is None:
                continue
            what = _judge(kit, message)
            if what is not None:
                yield Finding(what, EVENTS, session.session_id, event.body.seq, "entry")


def _judge(kit: Kit, message: Eliminate) -> str | None:
    asked = message.probe
    if asked is None or isinstance(asked.outcome_id, UnsetType):
        return "observation: it names no outcome, and the session is over a kit on record"
    probe = kit.probe(asked.probe_id)
    if probe is None:
        return f"observation: kit `{kit.kit_id}` has no probe `{asked.probe_id}`"
    outcome = None if asked.outcome_id is None else probe.outcome(asked.outcome_id)
    if outcome is None and asked.outcome_id is not None:
        return f"observation: probe `{asked.probe_id}` has no outcome `{asked.outcome_id}`"
    expected = frozenset() if outcome is None else outcome.eliminates
    if expected != frozenset(message.eliminated):
        return (
            f"observation: it rules out {len(message.eliminated)} ids, and `{asked.outcome_id}` of probe"
            f" `{asked.probe_id}` rules out {len(expected)}, which are others"
        )
    return None


def _find_kit(log: AuditLog, reference: ProviderRef | None) -> Kit | None:
    """The kit that a session is over; None where it is not on record, or its own stream is bad, which is a finding."""
    if reference is None or isinstance(reference.content_hash, UnsetType):
        return None
    stream_id = KIT_PREFIX + reference.id
    try:
        entries = log.read(stream_id)
        shelf = KitFolding().catch_up(stream_id, None, entries)
        record = None if shelf is None else shelf.find(reference.content_hash)
        if record is None or record.content_hash != reference.content_hash:
            return None
        document = read_kit_event(entries[record.seq]).message.document
        return parse_kit(document.encode(), _FILE_NAMES[record.media_type]).kit
    except (LedgerCorrupt, InvalidDocument):
        return None
