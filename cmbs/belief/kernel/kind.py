"""Belief sessions as a kind of stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cmbs.belief.kernel.appends import append_of
from cmbs.belief.kernel.checkpoint import freeze, thaw
from cmbs.belief.kernel.events import EnterObligation, Event, Message, Repeat, Stamp, read_event
from cmbs.belief.kernel.replay import catch_up
from cmbs.belief.kernel.requests import Command, Limits
from cmbs.belief.kernel.session import Session, decide, evolve
from cmbs.errors import HeadMismatch, LimitExceeded, SessionNotFound
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor
from cmbs.spi.audit_log import Append, is_reserved


class Answer(msgspec.Struct, frozen=True):
    """Where a message stands in the log, and the session right after it."""

    session: Session
    message: Message
    seq: int


class BeliefFolding:
    """How sessions follow from their entries."""

    def owns(self, stream_id: str) -> bool:
        """Any id that is not set aside for another kind."""
        return not is_reserved(stream_id)

    def not_found(self, stream_id: str) -> SessionNotFound:
        """No such session."""
        return SessionNotFound(stream_id)

    def catch_up(self, stream_id: str, state: Session | None, entries: Sequence[StoredEntry]) -> Session | None:
        """Every message is decided again."""
        return catch_up(stream_id, state, entries)

    def freeze(self, state: Session) -> bytes:
        """The session as bytes."""
        return freeze(state)

    def thaw(self, stream_id: str, data: bytes, first: StoredEntry, at: StoredEntry) -> Session | None:
        """The session, if it fits its log."""
        session = thaw(data, first, at)
        return session if session is not None and session.session_id == stream_id else None


class BeliefKind(BeliefFolding):
    """Sessions, and what the messages of the protocol come to."""

    def __init__(self, stamp: Callable[[str | None, Actor | None], Stamp], limits: Limits) -> None:
        self._stamp = stamp
        self._limits = limits

    def opens(self, command: Command) -> bool:
        """A declaration does."""
        return command.declared is not None

    def decided(self, state: Session | None, command: Command) -> tuple[Answer, Session | None, Append | None]:
        """Decide on the newest state."""
        message = command.message
        if state is None:
            if command.declared is None:
                raise SessionNotFound(command.session_id)
            decided: Event = command.declared
        else:
            event = decide(state, message, self._stamp(command.idempotency_key, command.actor))
            if isinstance(event, Repeat):
                return Answer(state, message, event.seq), None, None
            decided = event
            if command.if_match is not None and state.head_event_id != command.if_match:
                raise HeadMismatch(command.if_match, state.head_event_id)
        after = evolve(state, decided)
        if type(message) is EnterObligation and len(after.obligations) > self._limits.obligations_per_session:
            raise LimitExceeded("obligations_per_session", self._limits.obligations_per_session, len(after.obligations))
        return Answer(after, message, after.head.seq), after, append_of(after, decided)

    def appended(self, state: Session | None, stored: StoredEntry) -> tuple[Session, Append]:
        """Fold one entry in."""
        event = read_event(stored)
        after = evolve(state, event)
        return after, append_of(after, event)
