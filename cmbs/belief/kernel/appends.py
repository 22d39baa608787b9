"""What a log is given to write of an event."""

from __future__ import annotations

from collections.abc import Sequence

from cmbs.belief.kernel.events import Declare, Eliminate, Event
from cmbs.belief.kernel.session import Session
from cmbs.spi.audit_log import Append


def append_of(after: Session, event: Event) -> Append:
    """The entry of an event, and what it makes of its session, which is as it is after it."""
    body, message = event.body, event.message
    source_id = observation_id = None
    universe: Sequence[str] = ()
    if type(message) is Eliminate:
        source_id, observation_id = message.source_id, message.observation_id
    elif type(message) is Declare:
        universe = after.universe.ids
    return Append(
        body.stream_id,
        body.seq,
        body.event_id,
        bytes.fromhex(body.prev_event_hash),
        event.stored,
        body.ts,
        source_id,
        observation_id,
        body.delta.eliminated,
        universe,
        len(after.survivors),
        after.terminated_seq is not None,
    )
