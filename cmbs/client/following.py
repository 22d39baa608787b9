"""Following a stream as it grows: server-sent events, resumed after the last one that was seen.

`Follow` holds where a follower is and decides what comes next; it does no I/O. A connection may end anywhere: no entry
is skipped, and none is handed out twice.
"""

from __future__ import annotations

from typing import Any

import msgspec
from httpx_sse import ServerSentEvent

from cmbs.client.calls import Call
from cmbs.client.errors import RequestFailed, Unreachable, UnreadableAnswer
from cmbs.client.exchange import RETRIED, Answer, Environment, Patience, read_answer
from cmbs.client.results.belief import Event
from cmbs.errors import BeliefServerError, CmbsError, Forbidden, LedgerCorrupt, StoreUnavailable

EVENT_STREAM = "text/event-stream"
# A server sends a heartbeat every few seconds; where nothing comes for so long, the connection is lost.
SILENCE_SECONDS = 60.0
_OK = 200


class End(msgspec.Struct):
    """What an `end` event says."""

    reason: str
    code: str = ""
    message: str = ""


class Follow:
    """One follower of a stream: the call to begin with, and after each loss the call to go on with."""

    def __init__(self, call: Call[Any], patience: Patience, environment: Environment) -> None:
        self._call = call
        self._patience = patience
        self._environment = environment
        self._last_seq: int | None = None
        self._place: str | None = None
        self._failures = 0

    def begin(self) -> Call[Any]:
        """The call for what comes after the last entry that was handed out."""
        return self._call.with_headers(accept=EVENT_STREAM, last_event_id=self._place)

    def accept(self, answer: Answer) -> None:
        """Look at the head of an answer; the server's error where it is one."""
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status != _OK or kind != EVENT_STREAM:
            read_answer(self._call, answer)
            raise UnreadableAnswer(answer.status, f"the answer is `{kind}`, not `{EVENT_STREAM}`")

    def take(self, event: ServerSentEvent) -> Event | None:
        """The entry of an event, if it is one; an error where the server ends the stream for a reason that lasts."""
        if event.event == "entry":
            entry: Event = _decode(event.data, Event)
            self._check_order(entry)
            self._last_seq, self._place = entry.seq, event.id
            self._failures = 0
            return entry
        if event.event == "end":
            _refuse_for_good(_decode(event.data, End))
        elif self._place is None and event.id:
            # Where a follower begins that did not say where: after a loss it goes on from there, not from a later now.
            self._place = event.id
        return None

    def _check_order(self, entry: Event) -> None:
        if self._last_seq is not None and entry.seq != self._last_seq + 1:
            raise UnreadableAnswer(
                _OK,
                f"entry {entry.seq} of `{self._call.stream_id}` came after entry {self._last_seq}: some are missing",
            )

    def judge(self, failure: CmbsError | None) -> float:
        """How long to wait before going on; raises `failure` where it lasts, or comes again and again."""
        if failure is not None and not _passes(failure):
            raise failure
        self._failures += 1
        if failure is not None and self._failures >= self._patience.attempts:
            raise failure
        bound = min(self._patience.longest_pause, self._patience.first_pause * 2.0**self._failures)
        return bound * self._environment.chance()


def _passes(failure: CmbsError) -> bool:
    """Whether another attempt may end otherwise."""
    if isinstance(failure, RequestFailed):
        return failure.status in RETRIED
    return isinstance(failure, Unreachable | StoreUnavailable)


def _decode(data: str, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise UnreadableAnswer(_OK, f"an event is not as the protocol has it: {exc}") from exc


def _refuse_for_good(end: End) -> None:
    """The error for an end that another connection would not change."""
    if end.reason == "permission_lost":
        raise Forbidden(end.message or "the key may not follow this any more", {"reason": end.reason})
    if end.reason == "ledger_corrupt":
        error = LedgerCorrupt.__new__(LedgerCorrupt)
        BeliefServerError.__init__(error, end.message, {"reason": end.reason})
        raise error
