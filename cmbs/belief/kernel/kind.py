"""Belief sessions as a kind of stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cmbs.belief.kernel.checkpoint import STATE_DIGESTS, freeze, thaw
from cmbs.belief.kernel.events import (
    Declare,
    Eliminate,
    EnterObligation,
    Event,
    Message,
    Repeat,
    Stamp,
    UpdateCase,
    read_event,
)
from cmbs.belief.kernel.listed import find_lost_terms, find_new_terms, list_session
from cmbs.belief.kernel.replay import catch_up
from cmbs.belief.kernel.requests import Command, Limits
from cmbs.belief.kernel.session import Session, decide, evolve
from cmbs.errors import HeadMismatch, LimitExceeded, SessionNotFound
from cmbs.ledger import StoredEntry
from cmbs.ledger.state_digest import bind_state, digest_of, is_digest_point
from cmbs.messages import Actor
from cmbs.spi.audit_log import Append, SessionState, Tombstones, is_reserved
from cmbs.spi.elimination_store import EliminationProvenance


class Answer(msgspec.Struct, frozen=True):
    """Where a message stands in the log, and the session as it is now; `replayed` where it was recorded before."""

    session: Session
    message: Message
    seq: int
    replayed: bool = False


class BeliefFolding:
    """How sessions follow from their entries, and how they are kept in checkpoints."""

    spacing = STATE_DIGESTS.spacing

    def owns(self, stream_id: str) -> bool:
        """Any id that is not set aside for another kind."""
        return not is_reserved(stream_id)

    def not_found(self, stream_id: str) -> SessionNotFound:
        """No such session."""
        return SessionNotFound(stream_id)

    def catch_up(self, stream_id: str, state: Session | None, entries: Sequence[StoredEntry]) -> Session | None:
        """Every message is decided again."""
        return catch_up(stream_id, state, entries)

    def fold(self, state: Session | None, stored: StoredEntry) -> tuple[Session, Append]:
        """The session after one entry more."""
        event = read_event(stored)
        after = evolve(state, event)
        return after, append_of(state, after, event)

    def freeze(self, state: Session) -> bytes:
        """The session as bytes."""
        return freeze(state)

    def thaw(self, stream_id: str, data: bytes, first: StoredEntry, at: StoredEntry) -> Session | None:
        """The session right before `at`, if that entry carries its digest."""
        session = thaw(data, first, at)
        return session if session is not None and session.session_id == stream_id else None


class BeliefKind(BeliefFolding):
    """Sessions, and what the messages of the protocol come to.

    `admit` may refuse an event that is decided, but not recorded yet, by raising what the caller is to be told.
    """

    def __init__(
        self,
        stamp: Callable[[str | None, Actor | None], Stamp],
        limits: Limits,
        admit: Callable[[Session, Event], None] | None = None,
    ) -> None:
        self._stamp = stamp
        self._limits = limits
        self._admit = admit

    def opens(self, command: Command) -> bool:
        """A declaration does."""
        return command.declared is not None

    def decide(self, state: Session | None, command: Command) -> tuple[Answer, tuple[Session, Append] | None]:
        """Decide on the newest state."""
        message, checkpoint = command.message, None
        event: Event | Repeat
        if state is None:
            if command.declared is None:
                raise SessionNotFound(command.session_id)
            event = command.declared
        else:
            event = decide(state, message, self._stamp(command.idempotency_key, command.actor))
            if isinstance(event, Repeat):
                return Answer(state, message, event.seq, replayed=True), None
            if command.if_match is not None and state.head_event_id != command.if_match:
                raise HeadMismatch(command.if_match, state.head_event_id)
            # Before the state is evolved: the logs of a state that is then dropped would be copied by the next append.
            limit = self._limits.obligations_per_session
            if isinstance(message, EnterObligation) and len(state.obligations) >= limit:
                raise LimitExceeded("obligations_per_session", limit, len(state.obligations) + 1)
            if self._admit is not None:
                self._admit(state, event)
            if is_digest_point(event.body.seq, self.spacing):
                checkpoint = freeze(state)
                event = bind_state(event, digest_of(checkpoint))
        after = evolve(state, event)
        return Answer(after, message, after.head.seq), (after, append_of(state, after, event, checkpoint))


def append_of(before: Session | None, after: Session, event: Event, checkpoint: bytes | None = None) -> Append:
    """What a log is given to write of an event; `before` and `after` are the session around it.

    `checkpoint` is the session before it, frozen, where the entry carries the digest of that.
    """
    body, message = event.body, event.message
    unique_key = tombstones = None
    if isinstance(message, Eliminate):
        unique_key = (message.source_id, message.observation_id)
        if body.delta.eliminated:
            tombstones = Tombstones(body.delta.eliminated, EliminationProvenance(*unique_key))
    listing = list_session(after, event)
    universe = after.universe.ids if isinstance(message, Declare) else ()
    return Append(
        body.stream_id,
        body.seq,
        body.event_id,
        bytes.fromhex(body.prev_event_hash),
        event.stored,
        body.ts,
        unique_key,
        tombstones,
        SessionState(
            len(after.survivors),
            after.terminated_seq is not None,
            universe,
            listing,
            find_new_terms(after, listing, event),
            find_lost_terms(before, listing, event) if before is not None and isinstance(message, UpdateCase) else (),
        ),
        checkpoint,
    )
