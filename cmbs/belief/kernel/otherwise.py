"""A session as it would have been, had some of its messages been others. Pure, and never recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cmbs.belief.kernel.events import Declare, Event, Message, Stamp, read_event
from cmbs.belief.kernel.session import Session, decide, decide_declare, evolve
from cmbs.errors import BeliefServerError
from cmbs.ledger import StoredEntry


def replay_otherwise(
    session_id: str, entries: Iterable[StoredEntry], change: Callable[[Event], Message | None]
) -> Iterator[tuple[Event, Session]]:
    """Each recorded event, and the session after what `change` makes of it; nothing at all where that is None.

    A message that would have been an error then changes nothing. ValueError where the first is no declaration.
    """
    session: Session | None = None
    for stored in entries:
        recorded = read_event(stored)
        message, body = change(recorded), recorded.body
        stamp = Stamp(body.event_id, body.ts, body.idempotency_key, body.actor)
        if session is None:
            if not isinstance(message, Declare):
                raise ValueError(f"the first event declares the session, not {body.verb}")
            session = evolve(None, decide_declare(session_id, message, stamp))
        elif message is not None:
            session = _take(session, message, stamp)
        yield recorded, session


def _take(session: Session, message: Message, stamp: Stamp) -> Session:
    try:
        event = decide(session, message, stamp)
    except BeliefServerError:
        return session
    return evolve(session, event) if isinstance(event, Event) else session
