"""Spaces as a kind of stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cmbs.belief_events import Repeat, Stamp
from cmbs.errors import BeliefServerError, HeadMismatch, SpaceNotFound
from cmbs.ledger import StoredEntry
from cmbs.spi.audit_log import Append
from cmbs.substrate.checkpoint import freeze_space, thaw_space
from cmbs.substrate.door import SpaceCommand
from cmbs.substrate.events import STREAM_PREFIX, CreateSpace, Propose, SpaceEvent
from cmbs.substrate.replay import catch_up_space, read_space_event
from cmbs.substrate.space import decide, evolve
from cmbs.substrate.state import Space

_PROPOSAL = "proposal"


class SpaceAnswer(msgspec.Struct, frozen=True, gc=False):
    """What a message came to.

    `space` is the state right after it; for a message that was recorded before, the newest one. `event` is the one
    that records it, the first one for a repeat, and `seq` is its place.
    """

    space: Space
    seq: int
    event: SpaceEvent
    repeated: bool = False


class Undelivered(msgspec.Struct, frozen=True, gc=False):
    """An answer on its way: the event of a repeat has to be read first."""

    space: Space
    seq: int
    event: SpaceEvent | None


class Ahead(msgspec.Struct, frozen=True, gc=False):
    """A decision that was made before its turn came: good for exactly the state that it was made on.

    The state after it is not made ahead: versions of a space share what they grow by, and only whoever holds the
    space's lock may let it grow.
    """

    before: Space
    event: SpaceEvent
    append: Append


class SpaceKind:
    """Spaces, and what messages to them come to."""

    def __init__(self, stamp: Callable[[str | None], Stamp]) -> None:
        self._stamp = stamp

    def owns(self, stream_id: str) -> bool:
        """Whether this is the stream of a space."""
        return stream_id.startswith(STREAM_PREFIX)

    def not_found(self, stream_id: str) -> SpaceNotFound:
        """No such space."""
        return SpaceNotFound(space_id_of(stream_id))

    def catch_up(self, stream_id: str, state: Space | None, entries: Sequence[StoredEntry]) -> Space | None:
        """Every message is decided again."""
        return catch_up_space(space_id_of(stream_id), state, entries)

    def freeze(self, state: Space) -> bytes:
        """The space as bytes."""
        return freeze_space(state)

    def thaw(self, stream_id: str, data: bytes, first: StoredEntry, at: StoredEntry) -> Space | None:  # noqa: ARG002
        """The space, if it fits its log."""
        space = thaw_space(data, at)
        return space if space is not None and STREAM_PREFIX + space.space_id == stream_id else None

    def opens(self, command: SpaceCommand) -> bool:
        """A creation does."""
        return isinstance(command.message, CreateSpace)

    def decided(self, state: Space | None, command: SpaceCommand) -> tuple[Undelivered, Space | None, Append | None]:
        """Decide on the newest state."""
        ahead = command.ahead
        if type(ahead) is Ahead and ahead.before is state:
            after = evolve(state, ahead.event)
            return Undelivered(after, after.head.seq, ahead.event), after, ahead.append
        event = self._decided(state, command)
        if isinstance(event, Repeat):
            if state is None:  # pragma: no cover - what repeats was there before
                raise SpaceNotFound(command.space_id)
            return Undelivered(state, event.seq, None), None, None
        after = evolve(state, event)
        return Undelivered(after, after.head.seq, event), after, append_of_space(event)

    def decided_ahead(self, state: Space, command: SpaceCommand) -> SpaceCommand:
        """The command with what it comes to on this state; as it is, where that is an error or a repeat.

        A state is a value, so deciding needs no lock and no turn. Whoever waits for the log does it in the meantime.
        """
        try:
            event = self._decided(state, command)
        except BeliefServerError:
            return command
        if isinstance(event, Repeat):
            return command
        return msgspec.structs.replace(command, ahead=Ahead(state, event, append_of_space(event)))

    def _decided(self, state: Space | None, command: SpaceCommand) -> SpaceEvent | Repeat:
        stamp = self._stamp(command.idempotency_key)
        event = decide(state, command.message, command.actor, stamp, command.space_id)
        if isinstance(event, Repeat) or command.if_match is None or state is None:
            return event
        if state.head_event_id != command.if_match:
            raise HeadMismatch(command.if_match, state.head_event_id)
        return event

    def appended(self, state: Space | None, stored: StoredEntry) -> tuple[Space, Append]:
        """Fold one entry in."""
        event = read_space_event(stored)
        return evolve(state, event), append_of_space(event)


def space_id_of(stream_id: str) -> str:
    """The id of the space whose stream this is."""
    return stream_id.removeprefix(STREAM_PREFIX)


def append_of_space(event: SpaceEvent) -> Append:
    """The entry of an event as a log is given it: a proposal is recorded once, whoever writes."""
    body, message = event.body, event.message
    proposal_id = message.proposal.proposal_id if isinstance(message, Propose) else None
    return Append(
        body.stream_id,
        body.seq,
        body.event_id,
        bytes.fromhex(body.prev_event_hash),
        event.stored,
        body.ts,
        None if proposal_id is None else _PROPOSAL,
        proposal_id,
        (),
        (),
        0,
        False,
    )
