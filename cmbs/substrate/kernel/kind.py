"""Spaces as a kind of stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import HeadMismatch, SpaceNotFound
from cmbs.ledger import StoredEntry
from cmbs.ledger.state_digest import bind_state, digest_of, is_digest_point
from cmbs.spi.audit_log import Append
from cmbs.substrate.kernel.checkpoint import STATE_DIGESTS, freeze_space, thaw_space
from cmbs.substrate.kernel.decide import decide, evolve
from cmbs.substrate.kernel.events import STREAM_PREFIX, CreateSpace, Propose, SpaceEvent
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.loads import check_load
from cmbs.substrate.kernel.lookups import require_lookup
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.retention import with_records
from cmbs.substrate.kernel.state import Space

_PROPOSAL = "proposal"


class SpaceAnswer(msgspec.Struct, frozen=True):
    """What a message came to.

    `space` is the state right after it; for a message that was recorded before, the newest one. `event` is the one
    that records it, the first one for a repeat, and `seq` is its place.
    """

    space: Space
    seq: int
    event: SpaceEvent
    repeated: bool = False
    # Of a proposal that was made before: what the belief plane says now of the sessions that were read for it then.
    belief_now: tuple[BeliefReading, ...] = ()


class RepeatAnswer(msgspec.Struct, frozen=True):
    """That a message was recorded before, at `seq`. Its event has to be read from the log for a whole answer."""

    space: Space
    seq: int


class SpaceFolding:
    """How spaces follow from their entries, and how they are kept in checkpoints."""

    spacing = STATE_DIGESTS.spacing

    def owns(self, stream_id: str) -> bool:
        """Whether this is the stream of a space."""
        return stream_id.startswith(STREAM_PREFIX)

    def not_found(self, stream_id: str) -> SpaceNotFound:
        """No such space."""
        return SpaceNotFound(space_id_of(stream_id))

    def catch_up(self, stream_id: str, state: Space | None, entries: Sequence[StoredEntry]) -> Space | None:
        """Every message is decided again."""
        return catch_up_space(space_id_of(stream_id), state, entries)

    def fold(self, state: Space | None, stored: StoredEntry) -> tuple[Space, Append]:
        """The space after one entry more."""
        event = read_space_event(stored)
        return evolve(state, event), append_of_space(event)

    def freeze(self, state: Space) -> bytes:
        """The space as bytes."""
        return freeze_space(state)

    def thaw(self, stream_id: str, data: bytes, first: StoredEntry, at: StoredEntry) -> Space | None:  # noqa: ARG002
        """The space right before `at`, if that entry carries its digest."""
        space = thaw_space(data, at)
        return space if space is not None and STREAM_PREFIX + space.space_id == stream_id else None


class SpaceKind(SpaceFolding):
    """Spaces, and what messages to them come to, as far as limits per agent permit."""

    def __init__(self, stamp: Callable[[str | None], Stamp], limits: SpaceLimits | None = None) -> None:
        self._stamp = stamp
        self._limits = limits or SpaceLimits()

    def opens(self, command: SpaceCommand) -> bool:
        """A creation does."""
        return isinstance(command.message, CreateSpace)

    def decide(
        self, state: Space | None, command: SpaceCommand
    ) -> tuple[SpaceAnswer | RepeatAnswer, tuple[Space, Append] | None]:
        """Decide on the newest state."""
        seen = state
        if state is not None:
            require_lookup(state, command)
            seen = state if command.recalled is None else with_records(state, command.recalled)
        stamp = self._stamp(command.idempotency_key)
        event = decide(seen, command.message, command.actor, stamp, command.space_id)
        if isinstance(event, SpaceEvent) and seen is not state:
            # What is recorded rests on the state and on the message alone, so that replay finds the same.
            event = decide(state, command.message, command.actor, stamp, command.space_id)
        if not isinstance(event, SpaceEvent):
            if seen is None:  # pragma: no cover - what repeats was there before
                raise SpaceNotFound(command.space_id)
            return RepeatAnswer(seen, event.seq), None
        if command.if_match is not None and state is not None and state.head_event_id != command.if_match:
            raise HeadMismatch(command.if_match, state.head_event_id)
        after, checkpoint = evolve(state, event), None
        if state is not None:
            check_load(state, after, command.actor, self._limits, proposes=isinstance(command.message, Propose))
            # After the check: a message that is refused must not cost the time to freeze a space.
            if is_digest_point(event.body.seq, self.spacing):
                checkpoint = freeze_space(state)
                event = bind_state(event, digest_of(checkpoint))
                after = evolve(state, event)
        return SpaceAnswer(after, event.body.seq, event), (after, append_of_space(event, checkpoint))


def space_id_of(stream_id: str) -> str:
    """The id of the space whose stream this is."""
    return stream_id.removeprefix(STREAM_PREFIX)


def append_of_space(event: SpaceEvent, checkpoint: bytes | None = None) -> Append:
    """The entry of an event as a log is given it: a proposal is recorded once.

    `checkpoint` is the space before it, frozen, where the entry carries the digest of that.
    """
    body, message = event.body, event.message
    return Append(
        body.stream_id,
        body.seq,
        body.event_id,
        bytes.fromhex(body.prev_event_hash),
        event.stored,
        body.ts,
        unique_key=(_PROPOSAL, message.proposal.proposal_id) if isinstance(message, Propose) else None,
        checkpoint=checkpoint,
    )
