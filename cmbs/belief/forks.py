"""Forking sessions: the messages of a prefix, decided again as the beginning of another session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from cmbs.belief.kernel.events import Declare, Stamp, read_event
from cmbs.belief.kernel.forks import fork_declaration, list_declarers, origin_of, repeat_message
from cmbs.belief.kernel.kind import Answer, BeliefKind
from cmbs.belief.kernel.requests import Command
from cmbs.belief.kernel.session import Session, decide_declare
from cmbs.errors import Conflict, InvalidRequest, SessionTerminated
from cmbs.ledger import StoredEntry
from cmbs.messages import Origin, Verb
from cmbs.streams.server import StreamServer

Sessions: TypeAlias = StreamServer[Session, Command, Answer]


def find_origin(prefix: Sequence[StoredEntry], without: Iterable[int]) -> Origin:
    """Where a fork of these entries begins, without some reports among them; InvalidRequest for what is none."""
    left_out = sorted(set(without))
    for seq in left_out:
        verb = read_event(prefix[seq]).body.verb if seq < len(prefix) else "beyond what is repeated"
        if verb != Verb.ELIMINATE:
            raise InvalidRequest(
                f"event {seq} is no report that the fork would repeat, so it cannot be left out",
                {"field": "without", "found": verb, "accepted": "events of ELIMINATE up to `at`"},
            )
    declared = read_event(prefix[0])
    return Origin(
        declared.body.stream_id,
        len(prefix) - 1,
        prefix[-1].event_hash.hex(),
        tuple(left_out) or msgspec.UNSET,
        list_declarers(declared),
    )


def declare_fork(fork_id: str, prefix: Sequence[StoredEntry], origin: Origin, stamp: Stamp) -> Command:
    """The declaration of a session that begins as another one was after these entries."""
    message = fork_declaration(read_event(prefix[0]), origin)
    event = decide_declare(fork_id, message, stamp)
    return Command(fork_id, message, stamp.idempotency_key, declared=event, actor=stamp.actor)


def write_fork(sessions: Sessions, kind: BeliefKind, declared: Command, prefix: Sequence[StoredEntry]) -> None:
    """Write a fork, whole or not at all. Under an idempotency key it may be there already, and must be the same."""
    fork_id = declared.session_id
    if declared.idempotency_key is None:
        sessions.adopt(fork_id, repeat_prefix(kind, declared, prefix))
        return
    if sessions.peek(fork_id) is None:
        # Another caller with the same key may be first: what is there then is compared below.
        with suppress(Conflict):
            sessions.adopt(fork_id, repeat_prefix(kind, declared, prefix))
    sessions.perform(declared)


def repeat_prefix(kind: BeliefKind, declared: Command, prefix: Iterable[StoredEntry]) -> list[StoredEntry]:
    """The entries of a fork: its own declaration, and the messages that followed the one of its origin."""
    state: Session | None = None
    entries: list[StoredEntry] = []
    before: Origin | None = None
    for stored in prefix:
        event, command = read_event(stored), declared
        if isinstance(event.message, Declare):
            before = origin_of(event)
        else:
            command = Command(declared.session_id, repeat_message(before, event), actor=declared.actor)
        try:
            _, step = kind.decide(state, command)
        except SessionTerminated as exc:
            raise Conflict(
                f"without what is left out, the session ends before event {event.body.seq}",
                {
                    "field": "without",
                    "found": event.body.event_id,
                    "next": f"fork `at` {event.body.seq - 1} or before, and go on from there",
                },
            ) from exc
        if step is None:  # pragma: no cover - a log holds no repeats
            raise TypeError(f"event {event.body.seq} repeats an earlier one")
        state, append = step
        entries.append(append.entry)
    return entries
