"""From a log back to a session: how a recorded message is decided again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from itertools import islice
from operator import ge
from typing import assert_never

import msgspec

from cmbs.belief.kernel.attributes import read_attributes
from cmbs.belief.kernel.case_fields import require_case_fields
from cmbs.belief.kernel.checkpoint import STATE_DIGESTS
from cmbs.belief.kernel.events import (
    Declare,
    DeclareConclusion,
    Eliminate,
    EnterObligation,
    Event,
    Message,
    Probe,
    RequestExit,
    RequestTermination,
    Stamp,
    UpdateCase,
    is_repeated,
    read_event,
)
from cmbs.belief.kernel.session import Session, decide, decide_declare, evolve
from cmbs.ledger import Head, StoredEntry, canonical, replay, seal
from cmbs.messages import Origin

_HASH = re.compile("[0-9a-f]{64}")


def verify_session(session_id: str, entries: Iterable[StoredEntry], head: Head | None = None) -> Session:
    """The state that a whole log proves; LedgerCorrupt names the first bad event and why.

    A log cannot tell that its tail was cut off: pass the `head` recorded elsewhere to notice that too.
    """
    return replay.verify_stream(_RULES, session_id, entries, head)


def catch_up(session_id: str, session: Session | None, entries: Iterable[StoredEntry]) -> Session | None:
    """Verify `entries` as what follows `session`, and fold them in. None where there is neither."""
    return replay.catch_up(_RULES, session_id, session, entries)


def _decide_again(session_id: str, session: Session | None, recorded: Event) -> Event:
    message, body = recorded.message, recorded.body
    _require_admissible(message)
    if isinstance(message, Declare):
        _require_declared(message)
    if isinstance(message, Eliminate) and message.probe is not None:
        _require_probe(message.probe)
    if body.actor is not None:
        body.actor.require_sorted()
        if not body.actor.authenticated:
            raise ValueError("it names an actor that was not authenticated")
    stamp = Stamp(body.event_id, body.ts, body.idempotency_key, body.actor)
    if session is None:
        if isinstance(message, Declare):
            # With every member, as it was written: one that was left out of the bytes would be left out again.
            policy = dataclasses.replace(message.policy)
            return decide_declare(session_id, msgspec.structs.replace(message, policy=policy), stamp)
        raise ValueError(f"the first event declares the session, not {body.verb}")
    if session.events.position(stamp.event_id) is not None:
        raise ValueError(f"its event id is that of event {session.events.position(stamp.event_id)}")
    if isinstance(message, Eliminate) and message.first_sent_by is not msgspec.UNSET:
        _require_repeated(session, body.seq)
    again = decide(session, message, stamp)
    if isinstance(again, Event):
        return again
    raise ValueError(f"it repeats event {again.seq}, and a repeat is never recorded")


def _keep_texts(again: Event, recorded: Event) -> Event:
    """`notes` are the one text for people in an entry of a session."""
    notes = recorded.body.notes
    if notes is None or again.body.notes is None:
        return again
    body = msgspec.structs.replace(again.body, notes=notes)
    return msgspec.structs.replace(again, body=body, stored=seal(body))


_RULES = replay.ReplayRules(read_event, _decide_again, evolve, _keep_texts, STATE_DIGESTS)


def _require_admissible(message: Message) -> None:
    """Raise ValueError for a message that request validation would never have let through as it stands."""
    match message:
        case Eliminate():
            _require_sorted(message.eliminated)
            _require_object(message.justification)
        case Declare():
            if not message.hypotheses:
                raise ValueError("it declares no hypotheses")
            _require_sorted(message.hypotheses)
            _require_count(message.policy.stability_window)
            _require_object(message.metadata)
            if not isinstance(message.origin, msgspec.UnsetType):
                _require_origin(message.origin)
        case RequestExit() | DeclareConclusion() | RequestTermination():
            _require_object(message.context)
        case EnterObligation():
            _require_count(message.min_total_eliminations)
        case UpdateCase():
            if message == UpdateCase():
                raise ValueError("it changes nothing of its case")
            require_case_fields(message, is_update=True)
        case _:
            assert_never(message)


def _require_origin(origin: Origin) -> None:
    """Raise ValueError where what a fork says of its origin cannot be so."""
    _require_count(origin.seq)
    _require_left_out(origin)
    if not origin.declared_by:
        raise ValueError("it does not say who declared its origin")
    if _HASH.fullmatch(origin.event_hash) is None:
        raise ValueError("the hash of its origin is not one")


def _require_left_out(origin: Origin) -> None:
    """Raise ValueError where a fork leaves out what is no event of the prefix after the declaration, or nothing."""
    if isinstance(origin.without, msgspec.UnsetType):
        return
    left_out = list(origin.without)
    if not left_out or left_out != sorted(set(left_out)) or not 0 < left_out[0] <= left_out[-1] <= origin.seq:
        raise ValueError("the events that it leaves out are not some of those that it repeats")


def _require_declared(message: Declare) -> None:
    """Raise ValueError where what a declaration says of its session is not as it is validated."""
    recorded = message.hypothesis_attributes
    if message.provider is not None:
        _require_hash(message.provider.content_hash)
    if message.store_id == "":
        raise ValueError("the store of its tombstones has no name")
    observers = message.policy.observers
    if not isinstance(observers, msgspec.UnsetType):
        _require_observers(observers)
    _require_symptoms(message)
    require_case_fields(message, is_update=False)
    if isinstance(recorded, msgspec.UnsetType):
        return
    _require_canonical(bytes(recorded))
    attributes = read_attributes(recorded)
    if not attributes or not attributes.keys() <= set(message.hypotheses):
        raise ValueError("its attributes are not those of hypotheses that it declares")
    if any(raw == b"{}" or raw[:1] != b"{" for raw in attributes.values()):
        raise ValueError("the attributes of a hypothesis are not an object with any")


def _require_repeated(session: Session, seq: int) -> None:
    if not is_repeated(session.origin, seq):
        raise ValueError("it names who sent it first, and repeats nothing")


def _require_observers(observers: tuple[str, ...]) -> None:
    _require_sorted(list(observers))
    if not observers:
        raise ValueError("its policy names no observer")


def _require_symptoms(message: Declare) -> None:
    """Raise ValueError where symptoms are not as they are validated, or of a session that is not over a kit."""
    symptoms = message.symptoms
    if isinstance(symptoms, msgspec.UnsetType):
        return
    _require_sorted(symptoms)
    provider = message.provider
    if not symptoms or provider is None or isinstance(provider.content_hash, msgspec.UnsetType):
        raise ValueError("it has symptoms, and is not over a kit of a causal graph")


def _require_probe(probe: Probe) -> None:
    """Raise ValueError where a look is not as it is validated."""
    _require_canonical(bytes(probe.response))
    if not isinstance(probe.kit, msgspec.UnsetType):
        _require_hash(probe.kit.content_hash)
    if not isinstance(probe.reading, msgspec.UnsetType):
        if bytes(probe.reading) == b"null":
            raise ValueError("the reading of a response is an object")
        _require_object(probe.reading)
    if not isinstance(probe.seen_at, msgspec.UnsetType) and not replay.is_moment(probe.seen_at):
        raise ValueError("when it was seen is not a moment")


def _require_hash(value: str | msgspec.UnsetType) -> None:
    if not isinstance(value, msgspec.UnsetType) and _HASH.fullmatch(value) is None:
        raise ValueError("the hash of its kit is not one")


def _require_sorted(ids: list[str]) -> None:
    if len(ids) > 1 and any(map(ge, ids, islice(ids, 1, None))):
        raise ValueError("the ids are not sorted and single")


def _require_count(number: int) -> None:
    if not 0 <= number <= canonical.MAX_SAFE_INTEGER:
        raise ValueError(f"{number} is not a count")


def _require_object(raw: msgspec.Raw) -> None:
    text = bytes(raw)
    if text == b"null":
        return
    if text[:1] != b"{":
        raise ValueError("what a caller adds must be an object")
    _require_canonical(text)


def _require_canonical(text: bytes) -> None:
    if not canonical.is_canonical(text):
        raise ValueError("the payload is not canonical JSON")
