"""Forking sessions: the messages of a prefix, decided again as the beginning of another session."""

from __future__ import annotations

from collections.abc import Iterable

from cmbs.belief.kernel.events import Declare, read_event
from cmbs.belief.kernel.kind import BeliefKind
from cmbs.belief.kernel.requests import Command
from cmbs.belief.kernel.session import Session
from cmbs.ledger import StoredEntry


def repeat_prefix(kind: BeliefKind, declared: Command, prefix: Iterable[StoredEntry]) -> list[StoredEntry]:
    """The entries of a fork: its own declaration, and the messages that followed the one of its origin."""
    state: Session | None = None
    entries: list[StoredEntry] = []
    for stored in prefix:
        event, command = read_event(stored), declared
        if not isinstance(event.message, Declare):
            command = Command(declared.session_id, event.message, actor=declared.actor)
        _, step = kind.decide(state, command)
        if step is None:  # pragma: no cover - a log holds no repeats
            raise TypeError(f"event {event.body.seq} repeats an earlier one")
        state, append = step
        entries.append(append.entry)
    return entries
