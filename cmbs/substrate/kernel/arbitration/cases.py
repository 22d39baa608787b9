"""The case that a proposal is decided in, and what of the belief plane is read for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.model import BeliefReading, Proposal
from cmbs.substrate.kernel.policy.references import CaseContext, CaseUse, is_read_without
from cmbs.substrate.kernel.state import Case, Space
from cmbs.substrate.kernel.words import CaseStatus


def find_case(
    space: Space, proposal: Proposal, actor: Actor, belief: Mapping[str, BeliefReading] | None = None
) -> CaseContext | None:
    """The case that a proposal of `actor` names; None where that is not open, or not one that the actor may act under.

    An agent acts under cases whose session lists it, and that were admitted for it. Other actors have no gate to open
    for themselves, and act under any. Without `belief`, whom the session lists is not asked.
    """
    case_id = proposal.case_id
    case = None if isinstance(case_id, msgspec.UnsetType) else space.cases.get(case_id)
    if case is None or case.status is not CaseStatus.OPEN:
        return None
    if actor.kind is ActorKind.AGENT:
        if case.agents and actor.id not in case.agents:
            return None
        if belief is not None and not _is_listed(case, belief.get(case.case_id), actor):
            return None
    return CaseContext(case.case_id, case.attributes.decode(), actor.id)


def _is_listed(case: Case, reading: BeliefReading | None, actor: Actor) -> bool:
    """Whether a session lets an agent work on it. Where it lists none, those count that the case was admitted for."""
    listed = None if reading is None else agents_of([reading])
    return actor.id in (case.agents if listed is None else listed)


def agents_of(belief: Sequence[BeliefReading]) -> list[str] | None:
    """Who may work on the first of these sessions; None where that is not restricted, or not known."""
    agents = belief[0].agents if belief else msgspec.UNSET
    return None if isinstance(agents, msgspec.UnsetType) else agents


def has_lost_case(space: Space, proposal: Proposal, actor: Actor) -> bool:
    """Whether a proposal names a case of the space under which its actor may not act, or not any more."""
    is_known = not isinstance(proposal.case_id, msgspec.UnsetType) and proposal.case_id in space.cases
    return is_known and find_case(space, proposal, actor) is None


# The belief sessions to read, and for each the actor without whose eliminations it is to be read too, if any.
NeededReadings = Mapping[str, str | None]


def list_readings(
    session_ids: Iterable[str], uses: Iterable[tuple[CaseContext | None, CaseUse]] = ()
) -> dict[str, str | None]:
    """What has to be read: these sessions, and that of each case that is used, which says who may act under it."""
    needed: dict[str, str | None] = dict.fromkeys(session_ids)
    for case, use in uses:
        if case is None or use is CaseUse.NONE:
            continue
        if use is CaseUse.INDEPENDENT:
            needed[case.case_id] = case.actor_id
        else:
            needed.setdefault(case.case_id, None)
    return needed


def is_read(needed_of: str | None, reading: BeliefReading | None) -> bool:
    """Whether a reading has what a decision needs of its session."""
    if reading is None:
        return False
    return needed_of is None or not reading.found or is_read_without(reading, needed_of)
