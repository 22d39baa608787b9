"""From a log back to a space: how a recorded message is decided again.

What the belief plane said is part of the messages; `verify_belief_pins` holds it against the logs of the sessions
themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from cmbs.belief.kernel.events import Stamp
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.session import Session
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import Head, StoredEntry, canonical, replay, seal
from cmbs.ledger.replay import StateDigests
from cmbs.substrate.belief_source import reading_of
from cmbs.substrate.kernel.checkpoint import STATE_DIGESTS, freeze_space
from cmbs.substrate.kernel.decide import advance, decide, evolve
from cmbs.substrate.kernel.events import (
    MESSAGE_OF,
    STREAM_PREFIX,
    Approve,
    CreateSpace,
    OpenCase,
    PromoteMemory,
    Propose,
    PutMemory,
    RecordOutcome,
    SpaceEntry,
    SpaceEvent,
    SpaceMessage,
    Start,
    StepResult,
    Wake,
)
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.retention import find_false_recall
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.steps import encode

_ENTRY = msgspec.json.Decoder(SpaceEntry)
_RESULT = msgspec.json.Decoder(StepResult)
_MESSAGE: dict[str, msgspec.json.Decoder[SpaceMessage]] = {
    verb.value: msgspec.json.Decoder(kind) for verb, kind in MESSAGE_OF.items()
}


def verify_space(space_id: str, entries: Iterable[StoredEntry], head: Head | None = None) -> Space:
    """The state that a whole log proves; LedgerCorrupt names the first bad event and why.

    A log cannot tell that its tail was cut off: pass the `head` recorded elsewhere to notice that too.
    """
    return replay.verify_stream(_WHOLE_RULES, STREAM_PREFIX + space_id, entries, head).space


def catch_up_whole(space_id: str, state: WholeSpace | None, entries: Iterable[StoredEntry]) -> WholeSpace | None:
    """As `catch_up_space`, but with everything that there ever was: what messages carry of the past is verified too."""
    return replay.catch_up(_WHOLE_RULES, STREAM_PREFIX + space_id, state, entries)


def catch_up_space(space_id: str, space: Space | None, entries: Iterable[StoredEntry]) -> Space | None:
    """Verify `entries` as what follows `space`, and fold them in. None where there is neither.

    What their messages carry of the past, of what had left the state, is taken from them.
    """
    return replay.catch_up(_RULES, STREAM_PREFIX + space_id, space, entries)


def read_space_event(stored: StoredEntry) -> SpaceEvent:
    """The event that stored bytes hold; ValueError where they are not one of a space."""
    try:
        body = _ENTRY.decode(stored.raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ValueError(f"not an entry of a space: {exc}") from exc
    decoder = _MESSAGE.get(body.verb)
    if decoder is None:
        raise ValueError(f"unknown verb `{body.verb}`")
    try:
        return SpaceEvent(decoder.decode(body.payload), _RESULT.decode(body.outcome), body, stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ValueError(f"malformed {body.verb} entry: {exc}") from exc


def _decide_again(stream_id: str, space: Space | None, recorded: SpaceEvent) -> SpaceEvent:
    message, body = recorded.message, recorded.body
    space_id = stream_id.removeprefix(STREAM_PREFIX)
    if not canonical.is_canonical(bytes(body.payload)):
        raise ValueError("the payload is not canonical JSON")
    if space is None:
        if not isinstance(message, CreateSpace):
            raise ValueError(f"the first event creates the space, not {body.verb}")
        if message.space_id != space_id:
            raise ValueError(f"it creates `{message.space_id}`, and the log is that of `{space_id}`")
    elif body.event_id in space.events:
        raise ValueError(f"its event id is that of event {space.events[body.event_id][0]}")
    stamp = Stamp(body.event_id, body.ts, body.idempotency_key)
    body.actor.require_sorted()
    again = decide(space, message, body.actor, stamp, space_id)
    if isinstance(again, SpaceEvent):
        return again
    raise ValueError(f"it repeats event {again.seq}, and a repeat is never recorded")


def _keep_texts(again: SpaceEvent, recorded: SpaceEvent) -> SpaceEvent:
    """The notes of a trace are the one text for people in an entry of a space.

    The reason of a constraint is another: its words are those of the recorded policy, so that no software changes them.
    """
    decided, known = again.result.decision, recorded.result.decision
    if decided is None or known is None or len(decided.trace) != len(known.trace):
        return again
    trace = tuple(
        step if step.note is None or then.note is None else msgspec.structs.replace(step, note=then.note)
        for step, then in zip(decided.trace, known.trace, strict=True)
    )
    result = msgspec.structs.replace(again.result, decision=msgspec.structs.replace(decided, trace=trace))
    body = msgspec.structs.replace(again.body, outcome=msgspec.Raw(encode(result)))
    return SpaceEvent(again.message, result, body, seal(body))


_RULES = replay.ReplayRules(read_space_event, _decide_again, evolve, _keep_texts, STATE_DIGESTS)


class WholeSpace(msgspec.Struct, frozen=True):
    """A space as it is, and with everything that ever was in it, on which its whole log is decided again."""

    space: Space
    everything: Space

    @property
    def head(self) -> Head:
        """Where the stream ends."""
        return self.space.head


def _decide_on_everything(stream_id: str, state: WholeSpace | None, recorded: SpaceEvent) -> SpaceEvent:
    if state is None:
        return _decide_again(stream_id, None, recorded)
    problem = find_false_recall(state.everything, recorded.message)
    if problem is not None:
        raise ValueError(problem)
    return _decide_again(stream_id, state.everything, recorded)


def _evolve_everything(state: WholeSpace | None, event: SpaceEvent) -> WholeSpace:
    if state is None:
        return WholeSpace(evolve(None, event), advance(None, event))
    return WholeSpace(evolve(state.space, event), advance(state.everything, event))


_WHOLE_RULES = replay.ReplayRules(
    read_space_event,
    _decide_on_everything,
    _evolve_everything,
    _keep_texts,
    StateDigests[WholeSpace](lambda state: freeze_space(state.space), STATE_DIGESTS.spacing),
)


# --- what the belief plane said ---------------------------------------------------------------------------------------


def readings_in(event: SpaceEvent) -> list[BeliefReading]:
    """What the belief plane said, as it was recorded with a step."""
    message = event.message
    return message.belief if isinstance(message, (Propose, Wake, Approve, Start, RecordOutcome, OpenCase)) else []


def belief_sessions_in(entries: Iterable[StoredEntry]) -> list[str]:
    """The sessions whose logs are needed to check the readings of a space's log."""
    found: set[str] = set()
    for stored in entries:
        event = read_space_event(stored)
        found.update(reading.session_id for reading in readings_in(event))
        concluded = _find_conclusion(event)
        if concluded is not None:
            found.add(concluded[0])
    return sorted(found)


def _find_conclusion(event: SpaceEvent) -> tuple[str, str] | None:
    """The session and the event in it that are recorded as a conclusion which confirms a claim."""
    message = event.message
    if not isinstance(message, (PutMemory, PromoteMemory)) or not message.confirming_event_found:
        return None
    session_id, event_id = message.evidence.confirmed_in_session_id, message.evidence.confirmed_by_event_id
    return None if session_id is None or event_id is None else (session_id, event_id)


class _Place(NamedTuple):
    """Where an event of a space is: of a long one, not all events are held together."""

    stream_id: str
    seq: int
    event_id: str
    ts: str


def verify_belief_pins(
    entries: Iterable[StoredEntry],
    session_logs: Mapping[str, Sequence[StoredEntry]],
    among: Collection[str] | None = None,
) -> int:
    """Hold every recorded reading, and every conclusion that confirms a claim, against the log of its session.

    With `among`, those of these sessions alone.

    How many there were. Each session is verified whole. LedgerCorrupt names the first step that recorded something else
    than the session said at the audit head that the step pins, or a session whose log is not there.
    """
    pins: dict[str, list[tuple[_Place, BeliefReading]]] = {}
    conclusions: dict[str, list[tuple[_Place, str]]] = {}
    for stored in entries:
        event = read_space_event(stored)
        body = event.body
        place = _Place(body.stream_id, body.seq, body.event_id, body.ts)
        for reading in readings_in(event):
            pins.setdefault(reading.session_id, []).append((place, reading))
        concluded = _find_conclusion(event)
        if concluded is not None:
            conclusions.setdefault(concluded[0], []).append((place, concluded[1]))
    for session_id in sorted({*pins, *conclusions}):
        if among is not None and session_id not in among:
            continue
        log = session_logs.get(session_id, ())
        session = verify_session(session_id, log) if log else None
        _check_pins(session_id, session, log, sorted(pins.get(session_id, ()), key=lambda each: each[1].head_seq))
        for place, event_id in conclusions.get(session_id, ()):
            _check_conclusion(session_id, session, place, event_id)
    return sum(map(len, pins.values())) + sum(map(len, conclusions.values()))


def _check_conclusion(session_id: str, session: Session | None, place: _Place, event_id: str) -> None:
    if session is None:
        raise _bad_pin(place, f"the log of session `{session_id}` is not there")
    seq = session.events.position(event_id)
    if seq is None or session.conclusions.get(seq) is None:
        raise _bad_pin(place, f"session `{session_id}` has no conclusion `{event_id}`")


def _check_pins(
    session_id: str,
    session: Session | None,
    log: Sequence[StoredEntry],
    pinned: Sequence[tuple[_Place, BeliefReading]],
) -> None:
    for place, reading in pinned:
        if not reading.found:
            # A session may be declared later, never earlier.
            if session is not None and _read_ts(log[0]) < place.ts:
                raise _bad_pin(place, f"session `{session_id}` was there, and was recorded as not found")
            continue
        if session is None:
            raise _bad_pin(place, f"the log of session `{session_id}` is not there")
        if not 0 <= reading.head_seq <= session.head.seq:
            raise _bad_pin(place, f"session `{session_id}` has no event {reading.head_seq}")
        without = None if isinstance(reading.independent, msgspec.UnsetType) else reading.independent.actor_id
        if reading != reading_of(session, reading.head_seq, log[reading.head_seq].event_hash, without):
            raise _bad_pin(place, f"session `{session_id}` said something else at event {reading.head_seq}")


def _read_ts(declaration: StoredEntry) -> str:
    return str(msgspec.json.decode(declaration.raw)["ts"])


def _bad_pin(place: _Place, reason: str) -> LedgerCorrupt:
    return LedgerCorrupt(place.stream_id, place.seq, reason, place.event_id)
