"""How a space learns what the belief plane says: a reading, pinned to the audit head that it was taken at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.belief.kernel.independence import survivors_without
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.views import snapshot
from cmbs.errors import SessionNotFound
from cmbs.substrate.kernel.model import MAX_READ_CONCLUSIONS, MAX_READ_SURVIVORS, BeliefReading, IndependentReading


class BeliefSource(Protocol):
    """What a space needs of the belief plane."""

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        """What a session says now; `found` is false where there is none.

        With `independent_of` also what it would say if nothing that this actor eliminated had been eliminated.
        """
        ...

    def is_conclusion(self, session_id: str, event_id: str) -> bool:
        """Whether an event of a session is a conclusion that was accepted."""
        ...

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the id of every session that this process writes. It is quick and does not raise."""
        ...


class BeliefPlane(Protocol):
    """What a belief server offers of this."""

    def current_session(self, session_id: str) -> Session:
        """The session as a value, as the log has it now."""
        ...

    def observe_states(self, observer: Callable[[str, Session], None]) -> None:
        """Tell of every session that is written."""
        ...


class ServedBelief:
    """Readings from a belief server in this process, over the same log or another."""

    def __init__(self, plane: BeliefPlane) -> None:
        self._plane = plane

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        """What the session says now."""
        try:
            session = self._plane.current_session(session_id)
        except SessionNotFound:
            return BeliefReading(session_id, found=False)
        return reading_of(session, session.head.seq, session.head.event_hash, independent_of)

    def is_conclusion(self, session_id: str, event_id: str) -> bool:
        """Whether the session accepted this conclusion."""
        try:
            session = self._plane.current_session(session_id)
        except SessionNotFound:
            return False
        seq = session.events.position(event_id)
        return seq is not None and session.conclusions.get(seq) is not None

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Hear of every session that the server writes."""
        self._plane.observe_states(lambda session_id, _: changed(session_id))


def reading_of(session: Session, seq: int, event_hash: bytes, independent_of: str | None = None) -> BeliefReading:
    """What a session said right after its event `seq`, of this hash; where an actor is named, also without it."""
    belief = snapshot(session, seq)
    # Named only where they are few: a million are not even listed.
    survivors = belief.survivors if belief.n_survivors <= MAX_READ_SURVIVORS else None
    concluded = [conclusion_id for at, conclusion_id in session.conclusions if at <= seq]
    return BeliefReading(
        session_id=session.session_id,
        found=True,
        head_seq=seq,
        head_event_id=session.events.at(seq)[0],
        head_event_hash=event_hash.hex(),
        n_survivors=belief.n_survivors,
        terminated=belief.terminated,
        active_obligation_id=belief.active_obligation_id,
        survivors=survivors,
        concluded=concluded[-MAX_READ_CONCLUSIONS:],
        survivor_attributes=_attributes_of(session, survivors),
        independent=UNSET if independent_of is None else _read_without(session, seq, independent_of),
        agents=_agents_at(session, seq),
    )


def _agents_at(session: Session, seq: int) -> list[str] | UnsetType:
    agents = session.case.agents_at(seq)
    return UNSET if agents is None else list(agents)


def _read_without(session: Session, seq: int, actor_id: str) -> IndependentReading:
    left = survivors_without(session, actor_id, seq)
    survivors = list(left.survivors) if left.n_survivors <= MAX_READ_SURVIVORS else None
    unknown = UNSET if left.unknown is None else left.unknown
    return IndependentReading(actor_id, left.n_survivors, survivors, _attributes_of(session, survivors), unknown)


def _attributes_of(session: Session, survivors: list[str] | None) -> msgspec.Raw | UnsetType:
    """What was declared of the one hypothesis that is left, if there is one."""
    if survivors is None or len(survivors) != 1:
        return UNSET
    declared = session.attributes.get(survivors[0])
    return UNSET if declared is None else msgspec.Raw(declared)
