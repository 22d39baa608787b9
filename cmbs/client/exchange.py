"""One call to its end, as steps that a transport carries out: attempts, pauses between them, and what they come to.

Nothing is sent and no time is waited here, so both clients run the same steps. To send again is safe: reads change
nothing, and every write has a key under which a server applies it once.
"""

from __future__ import annotations

import email.utils
import math
import random
import re
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from cmbs.api.call import JSON_TYPE, Call
from cmbs.client.errors import (
    ClientError,
    Head,
    HeadWentBack,
    RequestFailed,
    Unreachable,
    UnreadableAnswer,
    rebuild_error,
)
from cmbs.errors import BeliefServerError, CmbsError, InvalidRequest, StoreUnavailable

T = TypeVar("T")

# The head of the stream that an answer was read from: its seq, a colon, and the id of its last event.
HEAD_HEADER = "cmbs-head"
_REPLAYED = "idempotent-replayed"
RETRIED = frozenset({429, 502, 503, 504})
_RESULTS = range(200, 300)
_REDIRECTS = range(300, 400)
_ERRORS = range(400, 600)
_MAX_SHOWN = 200
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
# Of so many streams the head is known; a client may live as long as its server.
_MAX_HEADS = 10_000
_MAX_RETRY_AFTER_SECONDS = 3600.0
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_DECODERS_LOCK = Lock()


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a call may take. `timeout` bounds one attempt, beside what a call asks the server to wait.

    Between attempts there is a random pause below a bound that doubles from `first_pause` up to `longest_pause`, or
    what the server asks for (`Retry-After`) where that is longer. No attempt begins that `deadline` does not allow.
    """

    timeout: float = 10.0
    deadline: float = 30.0
    attempts: int = 10
    first_pause: float = 0.1
    longest_pause: float = 5.0


class Environment(NamedTuple):
    """What differs from run to run: a monotonic clock in seconds, a number from 0 to 1, and a new key."""

    now: Callable[[], float]
    chance: Callable[[], float]
    new_key: Callable[[], str]


# Not the generator of the module `random`, which an application may have seeded.
SYSTEM = Environment(time.monotonic, random.Random().random, lambda: str(uuid4()))  # noqa: S311 - not a secret


class Identity(dict[str, str]):
    """The headers that say who is asking. What they hold is not shown: it may be a key."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        check_headers(headers)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


def check_headers(headers: Mapping[str, str | None]) -> None:
    """InvalidRequest for what no header can hold, also where none is sent: what works here works over HTTP too."""
    for name, value in headers.items():
        if value is not None and _HEADER_VALUE.fullmatch(value) is None:
            field = name.replace("_", "-")
            raise InvalidRequest(f"`{field}` must be printable ASCII", {"header": field, "accepted": "printable ASCII"})


class Attempt(NamedTuple):
    """Send this. `timeout` is for every wait on the network, `until` is when the whole of it must be there.

    Of an answer that goes on, `silence` is how long nothing may come.
    """

    call: Call[Any]
    headers: Mapping[str, str]
    timeout: float
    until: float
    silence: float | None = None


class Pause(NamedTuple):
    """Wait."""

    seconds: float


class Answer(NamedTuple):
    """What came back: the names of the headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# What a transport makes of a step: an answer, or why there is none; None after a pause. A server in this process
# raises what it would otherwise answer with.
Outcome: TypeAlias = Answer | CmbsError | None
Exchange: TypeAlias = Generator[Attempt | Pause, Outcome, T]


class ErrorContent(msgspec.Struct):
    """What is wrong, in the error model of the protocol."""

    code: str
    message: str
    details: dict[str, Any] | None = None


class ErrorBody(msgspec.Struct):
    """The body of an answer that is an error."""

    error: ErrorContent


class Heads:
    """The highest head that was seen of each of the streams used last. For several threads."""

    def __init__(self) -> None:
        self._heads: dict[str, Head] = {}
        self._lock = Lock()

    def find(self, stream_id: str | None) -> Head | None:
        """The highest head of a stream; None where none was seen."""
        if stream_id is None:
            return None
        # A head that is noted is out of the table for a moment.
        with self._lock:
            return self._heads.get(stream_id)

    def note(self, stream_id: str, found: Head, floor: Head | None) -> None:
        """Keep a head; HeadWentBack where it is behind `floor`, which was seen before the request was sent."""
        if floor is not None and (found.seq < floor.seq or (found.seq == floor.seq and found != floor)):
            raise HeadWentBack(stream_id, floor, found)
        with self._lock:
            known = self._heads.pop(stream_id, None)
            self._heads[stream_id] = found if known is None or found.seq > known.seq else known
            if len(self._heads) > _MAX_HEADS:
                del self._heads[next(iter(self._heads))]


def exchange(call: Call[T], patience: Patience, heads: Heads, environment: Environment, *, pin: bool) -> Exchange[T]:
    """The steps of a call, and its result. `pin` lets a write continue the highest head that was seen and no other."""
    headers = _headers_of(call, heads, environment, pin=pin)
    held = _read_wait(call)
    end = environment.now() + patience.deadline + held
    attempt = 0
    while True:
        floor = heads.find(call.stream_id)
        timeout = min(patience.timeout + held, end - environment.now())
        outcome = yield Attempt(call, headers, max(timeout, 0.001), end)
        failure, asked = _judge(outcome)
        if isinstance(outcome, Answer) and failure is None:
            result = read_answer(call, outcome)
            if call.stream_id is not None and HEAD_HEADER in outcome.headers and _REPLAYED not in outcome.headers:
                heads.note(call.stream_id, read_head(outcome), floor)
            return result
        bound = min(patience.longest_pause, patience.first_pause * 2**attempt)
        seconds = max(asked, bound * environment.chance())
        attempt += 1
        if failure is not None and (attempt >= patience.attempts or environment.now() + seconds >= end):
            raise failure
        yield Pause(seconds)


def _read_wait(call: Call[Any]) -> float:
    """Seconds that the server may hold the answer back; 0 for what is no number of seconds, which it then refuses."""
    try:
        return call.wait if math.isfinite(call.wait) else 0.0
    except ValueError:
        return 0.0


def _headers_of(call: Call[Any], heads: Heads, environment: Environment, *, pin: bool) -> dict[str, str]:
    """The headers of every attempt alike: a key is made once, or the server would take a repeat for another request."""
    headers = {"accept": JSON_TYPE, **call.headers}
    if call.content is not None:
        headers["content-type"] = call.media_type
    if call.operation.records and not call.operation.has_own_key:
        headers.setdefault("idempotency-key", environment.new_key())
    seen = heads.find(call.stream_id)
    if pin and call.operation.is_conditional and seen is not None:
        headers.setdefault("if-match", f'"{seen.event_id}"')
    return headers


def _judge(outcome: Outcome) -> tuple[CmbsError | None, float]:
    """Why an attempt is worth another, and how long the server wants to be left alone; None where it is not."""
    if outcome is None:
        return Unreachable("there was no answer"), 0.0
    if isinstance(outcome, CmbsError):
        if not may_pass(outcome):
            raise outcome
        return outcome, 0.0
    if outcome.status in RETRIED:
        return _read_error(outcome), _read_retry_after(outcome.headers.get("retry-after"))
    if outcome.status in _RESULTS and _is_json(outcome) and not _is_whole(outcome.body):
        return UnreadableAnswer(outcome.status, "the answer ends before it is complete"), 0.0
    return None, 0.0


def may_pass(failure: CmbsError) -> bool:
    """Whether another attempt may end otherwise."""
    if isinstance(failure, RequestFailed):
        return failure.status in RETRIED
    return isinstance(failure, Unreachable | StoreUnavailable)


def find_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type. One thread makes it: msgspec crashes where several meet a type for the first time."""
    with _DECODERS_LOCK:
        decoder = _DECODERS.get(kind)
        if decoder is None:
            decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
        return decoder


def read_answer(call: Call[T], answer: Answer) -> T:
    """The result of a call; the server's error, or UnreadableAnswer for what is no answer of this protocol."""
    if answer.status in _REDIRECTS:
        place = answer.headers.get("location", "nowhere")[:_MAX_SHOWN]
        raise UnreadableAnswer(
            answer.status, f"the server sends elsewhere, to `{place}`, and redirects are not followed: use that address"
        )
    if answer.status in _ERRORS:
        raise _read_error(answer)
    if not _is_json(answer):
        kind = answer.headers.get("content-type", "nothing")[:_MAX_SHOWN]
        raise UnreadableAnswer(answer.status, f"the answer is `{kind}`, not `{JSON_TYPE}`: is this a cmbs server?")
    try:
        return find_decoder(call.answer).decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise UnreadableAnswer(answer.status, f"the answer is not as the protocol has it: {exc}") from exc


def read_head(answer: Answer) -> Head:
    """The head that an answer names."""
    seq, _, event_id = answer.headers[HEAD_HEADER].partition(":")
    if not (seq.isascii() and seq.isdigit()):
        raise UnreadableAnswer(answer.status, f"`{HEAD_HEADER}` must be a seq and an event id")
    return Head(int(seq), event_id)


def _read_error(answer: Answer) -> BeliefServerError | ClientError:
    if _is_json(answer):
        try:
            content = find_decoder(ErrorBody).decode(answer.body).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
        else:
            return rebuild_error(answer.status, content.code, content.message, content.details)
    # Not by our server: by a proxy before it, or by another program.
    return RequestFailed(answer.status, f"HTTP_{answer.status}", f"the request failed with HTTP status {answer.status}")


def _is_json(answer: Answer) -> bool:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON_TYPE


def _is_whole(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _read_retry_after(text: str | None) -> float:
    """Seconds; 0 where the header is none. A date is taken as a pause of the shortest length: clocks differ."""
    if text is None:
        return 0.0
    if text.strip().isdigit():
        return min(float(text), _MAX_RETRY_AFTER_SECONDS)
    return 1.0 if email.utils.parsedate_tz(text) else 0.0
