"""What a session would believe if one actor had eliminated nothing: so that no actor opens a gate of its own. Pure.

The eliminations of all other authenticated actors are applied to the universe, also of ids that were ignored because
the actor's own came first. An elimination of an entry without an authenticated actor counts as the actor's own, for
every actor. What a fork repeats is of who sent it first. An actor that chose what there is to rule out, or what answers
rule out, has a part in every elimination: then what the others ruled out cannot be known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.speakers import Speakers, speakers_of
from cmbs.belief.kernel.survivors import Universe
from cmbs.errors import EventNotFound
from cmbs.messages import SortedIds, UnknownIndependence


class IndependentSurvivors(SortedIds):
    """The hypotheses that survive without one actor: counted at once, found when they are read."""

    __slots__ = ("_actor_id", "_speakers", "_universe")

    def __init__(self, universe: Universe, speakers: Speakers, actor_id: str) -> None:
        self._universe = universe
        self._speakers = speakers
        self._actor_id = actor_id

    def __len__(self) -> int:
        return self._speakers.count_without(self._actor_id)

    def __iter__(self) -> Iterator[str]:
        return self._speakers.ids_without(self._actor_id)

    def __contains__(self, hypothesis_id: object) -> bool:
        if not isinstance(hypothesis_id, str) or hypothesis_id not in self._universe:
            return False
        return not self._speakers.is_listed_without(self._actor_id, hypothesis_id)


class IndependentBelief(NamedTuple):
    """What survives without one actor. It holds all that survives, and maybe more.

    `unknown` says why this counts for nothing, where it does.
    """

    n_survivors: int
    survivors: IndependentSurvivors
    unknown: UnknownIndependence | None = None


def survivors_without(session: Session, actor_id: str, at: int | None = None) -> IndependentBelief:
    """What would survive, now or right after event `at`, if the actor had eliminated nothing.

    EventNotFound beyond the head. The count takes no time; the ids of an earlier event take a pass over all
    eliminations up to there.
    """
    if at is None or at == session.head.seq:
        speakers = session.speakers
    elif 0 <= at < session.head.seq:
        speakers = speakers_of(session.universe, (record for _, record in session.observations if record.seq <= at))
    else:
        raise EventNotFound(str(at), session.head.seq)
    survivors = IndependentSurvivors(session.universe, speakers, actor_id)
    return IndependentBelief(len(survivors), survivors, explain_unknown(session, actor_id))


def explain_unknown(session: Session, actor_id: str) -> UnknownIndependence | None:
    """Why it cannot be known what others than this actor ruled out; None where it can."""
    earlier = () if session.origin is None else session.origin.declared_by
    if actor_id in earlier:
        return UnknownIndependence.DECLARED
    if session.declared_by == actor_id:
        return UnknownIndependence.FORKED if earlier else UnknownIndependence.DECLARED
    if session.provider is not None and session.provider.put_by == actor_id:
        return UnknownIndependence.PUT_KIT
    return UnknownIndependence.NO_KEYS if None in (*earlier, session.declared_by) else None
