"""Finding, in the journal of a log, what endpoints are told of. What is told is verified as its stream is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from cmbs.belief.kernel.session import Session
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, LedgerCorrupt, SessionNotFound, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.messages import Verb
from cmbs.spi.audit_log import SPACE_PREFIX, is_reserved
from cmbs.spi.journal import JournalPlace
from cmbs.streams.reading import read_entries, read_pages
from cmbs.substrate.kernel.events import Asked, Propose, SpaceEvent, SpaceVerb
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.server import SubstrateServer
from cmbs.webhooks.kernel.model import EventNote, EventType, Subject
from cmbs.webhooks.kernel.payload import note_entry

_log = logging.getLogger("cmbs.webhooks")
# Of several things that one entry wants or lets through, so many are named.
_MAX_NAMED = 20
_VERBS = {
    Verb.ELIMINATE.value: {EventType.SESSION_CONTRADICTION},
    Verb.DECLARE_CONCLUSION.value: {EventType.SESSION_CONCLUDED},
    Verb.REQUEST_EXIT.value: {EventType.GATE_OPENED},
    SpaceVerb.PROPOSE.value: {EventType.APPROVAL_WANTED},
    SpaceVerb.APPROVE.value: {EventType.APPROVAL_WANTED},
    SpaceVerb.START.value: {EventType.APPROVAL_WANTED},
    SpaceVerb.WAKE.value: {EventType.APPROVAL_WANTED, EventType.GATE_OPENED},
}


class Found(NamedTuple):
    """Something to tell, where it stands in the journal, and what filters go by."""

    place: JournalPlace
    note: EventNote
    subject: Subject


class _Delta(msgspec.Struct):
    eliminated: list[str] = []


class _Outcome(msgspec.Struct):
    accepted: bool = False
    approved: bool = False
    asked: list[msgspec.Raw] = []
    ran: list[int] = []


class _Entry(msgspec.Struct):
    verb: str
    payload: msgspec.Raw
    delta: _Delta | None = None
    outcome: _Outcome | None = None


class _Payload(msgspec.Struct):
    conclusion_id: str = ""
    obligation_id: str = ""


_DECODE = msgspec.json.Decoder(_Entry).decode
_DECODE_PAYLOAD = msgspec.json.Decoder(_Payload).decode


class Finder:
    """Reads entries that the journal names. `notice` is told of streams that do not verify."""

    def __init__(self, belief: BeliefServer, spaces: SubstrateServer, notice: Callable[[LedgerCorrupt], None]) -> None:
        self._belief = belief
        self._spaces = spaces
        self._notice = notice

    def find(self, places: Sequence[JournalPlace], wanted: frozenset[EventType]) -> list[Found]:
        """What is to be told of these entries, in their order; only of what is wanted, entries are read whole."""
        found: list[Found] = []
        by_stream = sorted(places, key=lambda place: (place.stream_id, place.seq))
        for stream_id, group in groupby(by_stream, key=lambda place: place.stream_id):
            if not stream_id.startswith(SPACE_PREFIX) and is_reserved(stream_id):
                continue
            try:
                found += self._find_in(stream_id, list(group), wanted)
            except LedgerCorrupt as exc:
                # The streams of others go on; of this one it is told where it broke.
                self._notice(exc)
            except StoreUnavailable:
                raise
            except BeliefServerError as exc:
                # One stream that cannot be read must not keep from endpoints what happens in all others.
                _log.error("what was written to `%s` is not told: %s", stream_id, exc)
        return sorted(found, key=lambda each: each.place)

    def _find_in(self, stream_id: str, places: list[JournalPlace], wanted: frozenset[EventType]) -> Iterator[Found]:
        first, last = places[0].seq, places[-1].seq
        # As far as there are entries: one that is missing is looked for below, and its stream found to be bad.
        pages = read_pages(self._belief.log, stream_id, first - 1, last - first + 1)
        may_tell = [_may_tell(stored, wanted) for page in pages for stored in page]
        likely = [place for place in places if place.seq - first >= len(may_tell) or may_tell[place.seq - first]]
        if not likely:
            return
        if stream_id.startswith(SPACE_PREFIX):
            space = self._spaces.current(stream_id.removeprefix(SPACE_PREFIX))
            for place in likely:
                yield from self._tell_of_space(space, place, self._read(stream_id, space, place.seq))
        else:
            session = self._belief.current_session(stream_id)
            for place in likely:
                yield from _tell_of_session(session, place, self._read(stream_id, session, place.seq))

    def _read(self, stream_id: str, state: Session | Space, seq: int) -> StoredEntry:
        stored = next(read_entries(self._belief.log, stream_id, state.tree, seq - 1, 1), None)
        if stored is None:
            raise LedgerCorrupt(stream_id, seq, "the journal names it, and the stream does not reach it")
        return stored

    def _tell_of_space(self, space: Space, place: JournalPlace, stored: StoredEntry) -> Iterator[Found]:
        event = read_space_event(stored)
        proposal_id = next(iter(event.result.statuses), "")
        subject, case_id = self._find_subject(space, event, proposal_id)
        named: dict[str, Any] = {"proposal_id": proposal_id}
        named |= {} if case_id is None else {"case_id": case_id, "session_id": subject.session_id}
        if event.body.verb == SpaceVerb.WAKE and event.result.ran:
            details = {"gate": "proposal", **named, "candidates": list(event.result.ran[:_MAX_NAMED])}
            note = note_entry(EventType.GATE_OPENED, place.stream_id, stored, details, _path("proposals", proposal_id))
            yield Found(place, note, subject)
        if event.result.asked:
            approvals = [_describe_asked(each) for each in event.result.asked[:_MAX_NAMED]]
            details = {**named, "approvals": approvals, "n_approvals": len(event.result.asked)}
            path = _path("proposals", proposal_id)
            yield Found(place, note_entry(EventType.APPROVAL_WANTED, place.stream_id, stored, details, path), subject)

    def _find_subject(self, space: Space, event: SpaceEvent, proposal_id: str) -> tuple[Subject, str | None]:
        """What filters go by, and the case: that of the proposal, which may have left the state."""
        if isinstance(event.message, Propose):
            named = event.message.proposal.case_id
            case_id = None if isinstance(named, msgspec.UnsetType) else named
        else:
            case_id = self._spaces.settled.with_proposal(space, proposal_id).proposals[proposal_id].case_id
        case = None if case_id is None else space.cases.get(case_id)
        if case is None:
            return Subject(None, space.space_id, {}), None
        labels = self._read_labels(case.case_id)
        if labels is not None and not isinstance(case.labels, msgspec.UnsetType):
            labels |= case.labels
        return Subject(case.case_id, space.space_id, labels), case.case_id

    def _read_labels(self, session_id: str) -> dict[str, str] | None:
        """The labels of a session; None where they cannot be read."""
        try:
            return dict(self._belief.current_session(session_id).case.labels)
        except LedgerCorrupt as exc:
            self._notice(exc)
            return None
        except SessionNotFound:
            return {}


def _may_tell(stored: StoredEntry, wanted: frozenset[EventType]) -> bool:
    """Whether an entry may be something to tell; it is verified where it may."""
    try:
        entry = _DECODE(stored.raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    if not _VERBS.get(entry.verb, set()) & wanted:
        return False
    outcome = entry.outcome or _Outcome()
    eliminates = entry.delta is not None and bool(entry.delta.eliminated)
    return eliminates or outcome.accepted or outcome.approved or bool(outcome.asked) or bool(outcome.ran)


def _tell_of_session(session: Session, place: JournalPlace, stored: StoredEntry) -> Iterator[Found]:
    origin = session.origin
    if origin is not None and place.seq <= origin.seq - len(origin.left_out):
        # What a fork repeats was told when it happened.
        return
    entry = _DECODE(stored.raw)
    payload, outcome = _DECODE_PAYLOAD(entry.payload), entry.outcome or _Outcome()
    told: tuple[EventType, dict[str, Any], str]
    if entry.verb == Verb.DECLARE_CONCLUSION and outcome.accepted:
        told = (EventType.SESSION_CONCLUDED, {"conclusion_id": payload.conclusion_id}, "")
    elif entry.verb == Verb.REQUEST_EXIT and outcome.approved:
        told = (
            EventType.GATE_OPENED,
            {"gate": "obligation", "obligation_id": payload.obligation_id},
            "/obligations",
        )
    elif entry.verb == Verb.ELIMINATE and session.reports.trail.last == (place.seq, 0):
        # Nothing is eliminated after the last one: the report that left nothing is the last that left less.
        told = (EventType.SESSION_CONTRADICTION, {"n_universe": len(session.universe)}, "/contradiction")
    else:
        return
    kind, details, path = told
    named = {"title": session.case.title} if session.case.title else {}
    note = note_entry(kind, place.stream_id, stored, {**named, **details}, path)
    yield Found(place, note, Subject(place.stream_id, None, dict(session.case.labels)))


def _describe_asked(asked: Asked) -> dict[str, Any]:
    tool = {} if asked.tool_id is None else {"tool_id": asked.tool_id}
    return {
        "approval_id": asked.approval_id,
        "candidate": asked.candidate,
        "expires_at": asked.expires_at,
        **tool,
    }


def _path(collection: str, name: str) -> str:
    return f"/{collection}/{quote(name, safe='')}"
