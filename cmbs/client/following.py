"""Following streams as they grow: server-sent events, resumed after the last one that was seen.

`Follow` holds where a follower is and decides what comes next; it does no I/O. A connection may end anywhere: no entry
is skipped, and none is handed out twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any, Generic, TypeVar

import msgspec
from httpx2 import ServerSentEvent

from cmbs.api.call import Call
from cmbs.api.entries import AuditEvent
from cmbs.api.spaces import SpaceEvent
from cmbs.api.streams import EndReason, Event, EventName, StreamEnd, StreamEntry, StreamEvent, StreamFault, StreamKind
from cmbs.client.errors import UnreadableAnswer
from cmbs.client.exchange import Answer, Environment, Patience, find_decoder, may_pass, read_answer
from cmbs.errors import BeliefServerError, CmbsError, Forbidden, LedgerCorrupt

EVENT_STREAM = "text/event-stream"
# A server sends a heartbeat every few seconds; where nothing comes for so long, the connection is lost.
SILENCE_SECONDS = 60.0
# None: an entry may be as large as the request that it records.
MAX_EVENT_BYTES = None
_OK = 200
# Of those that are followed at once, the streams whose last seq is kept.
_MAX_STREAMS = 10_000

T = TypeVar("T")
E = TypeVar("E", AuditEvent, SpaceEvent)


class Follow(ABC, Generic[T]):
    """One follower: the call to begin with, and after each loss the call to go on with. `T` is what it hands out."""

    def __init__(self, call: Call[Any], patience: Patience, environment: Environment) -> None:
        self._call = call
        self._patience = patience
        self._environment = environment
        self._place: str | None = None
        # Connections that were lost since the server last showed that it lives, and when the first of them was.
        self._failures = 0
        self._lost_at = 0.0

    def begin(self) -> Call[Any]:
        """The call for what comes after the last entry that was handed out."""
        return self._call.with_headers(accept=EVENT_STREAM, last_event_id=self._place)

    def accept(self, answer: Answer) -> None:
        """Look at the head of an answer; the server's error where it is one."""
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status != _OK or kind != EVENT_STREAM:
            read_answer(self._call, answer)
            raise UnreadableAnswer(answer.status, f"the answer is `{kind}`, not `{EVENT_STREAM}`")

    def take(self, event: ServerSentEvent) -> T | None:
        """What an event says, if it is an entry; an error where the server ends the stream for a reason that lasts."""
        found = self._read(event)
        if found is not None or event.event == EventName.HEARTBEAT:
            # A stream on which nothing is written lives too. A `head` alone is no sign: what fails at once sends one.
            self._failures = 0
        if found is not None:
            self._place = event.id
        elif event.event == EventName.END:
            _refuse_for_good(_decode(event.data, StreamEnd))
        elif event.id and self._goes_on_from(event):
            self._place = event.id
        return found

    @abstractmethod
    def _read(self, event: ServerSentEvent) -> T | None:
        """What an event hands out; an error where something came twice, or is missing."""

    def _goes_on_from(self, event: ServerSentEvent) -> bool:  # noqa: ARG002 - for those who follow many streams
        """Whether an event that is no entry says where to go on after a loss.

        The first one does, to a follower that did not say where to begin: from there, and not from a later now.
        """
        return self._place is None

    def judge(self, failure: CmbsError | None) -> float:
        """How long to wait before going on; raises `failure` where it is for good, or outlasts all patience.

        A server that starts again takes its time: attempts are made until both their number and the deadline are over.
        """
        if failure is not None and not may_pass(failure):
            raise failure
        now = self._environment.now()
        if self._failures == 0:
            self._lost_at = now
        self._failures += 1
        is_over = self._failures >= self._patience.attempts and now - self._lost_at >= self._patience.deadline
        if failure is not None and is_over:
            raise failure
        bound = min(self._patience.longest_pause, self._patience.first_pause * 2.0**self._failures)
        return bound * self._environment.chance()


class StreamFollow(Follow[E]):
    """One follower of a session or a space."""

    _last_seq: int | None = None

    def _read(self, event: ServerSentEvent) -> E | None:
        if event.event != EventName.ENTRY:
            return None
        entry: E = _decode(event.data, self._call.answer)
        if self._last_seq is not None and entry.seq != self._last_seq + 1:
            raise UnreadableAnswer(
                _OK,
                f"entry {entry.seq} of `{self._call.stream_id}` came after entry {self._last_seq}: some are missing",
            )
        self._last_seq = entry.seq
        return entry


class JournalFollow(Follow[StreamEvent]):
    """One follower of all streams. What a filter leaves out is not missed; what comes twice is noticed."""

    def __init__(self, call: Call[Any], patience: Patience, environment: Environment) -> None:
        super().__init__(call, patience, environment)
        self._last_seqs: OrderedDict[tuple[StreamKind, str], int] = OrderedDict()

    def _read(self, event: ServerSentEvent) -> StreamEvent | None:
        if event.event == EventName.CORRUPT:
            fault: StreamFault = _decode(event.data, StreamFault)
            return StreamEvent(fault.stream_kind, fault.stream_id, event.id, fault=fault)
        if event.event != EventName.ENTRY:
            return None
        told: StreamEntry = _decode(event.data, StreamEntry)
        stream = (told.stream_kind, told.stream_id)
        kind: type[Event] = AuditEvent if told.stream_kind is StreamKind.SESSION else SpaceEvent
        entry: Event = _decode(told.entry, kind)
        last = self._last_seqs.pop(stream, -1)
        if entry.seq <= last:
            raise UnreadableAnswer(_OK, f"entry {entry.seq} of `{told.stream_id}` came after entry {last}")
        self._last_seqs[stream] = entry.seq
        if len(self._last_seqs) > _MAX_STREAMS:
            self._last_seqs.popitem(last=False)
        return StreamEvent(*stream, event.id, entry)

    def _goes_on_from(self, event: ServerSentEvent) -> bool:
        """Every one does: what a filter left out on the way need not be read again."""
        return event.event in (EventName.HEAD, EventName.HEARTBEAT)


def open_follow(call: Call[Any], patience: Patience, environment: Environment) -> Follow[Any]:
    """The follower that a call begins."""
    kind = JournalFollow if call.answer is StreamEvent else StreamFollow
    return kind(call, patience, environment)


def _decode(data: str | msgspec.Raw, kind: type[Any]) -> Any:
    try:
        return find_decoder(kind).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise UnreadableAnswer(_OK, f"an event is not as the protocol has it: {exc}") from exc


def _refuse_for_good(end: StreamEnd) -> None:
    """The error for an end that another connection would not change."""
    if end.reason == EndReason.PERMISSION_LOST:
        raise Forbidden(end.message or "the key may not follow this any more", {"reason": end.reason})
    if end.reason == EndReason.LEDGER_CORRUPT:
        error = LedgerCorrupt.__new__(LedgerCorrupt)
        BeliefServerError.__init__(error, end.message or end.reason, {"reason": end.reason})
        raise error
