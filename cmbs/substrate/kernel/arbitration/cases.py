"""The case that a proposal is decided in, and what of the belief plane is read for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.model import BeliefReading, Proposal
from cmbs.substrate.kernel.policy.references import CaseContext, CaseUse, independent_reading
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import CaseStatus


def find_case(space: Space, proposal: Proposal, actor: Actor) -> CaseContext | None:
    """The case that a proposal of `actor` names; None where that is not open, or not one that the actor may act under.

    An agent acts under the cases that name it. Other actors have no gate to open for themselves, and act under any.
    """
    case_id = proposal.case_id
    case = None if isinstance(case_id, msgspec.UnsetType) else space.cases.get(case_id)
    if case is None or case.status is not CaseStatus.OPEN:
        return None
    if actor.kind is ActorKind.AGENT and actor.id not in case.agents:
        return None
    return CaseContext(case.case_id, case.session_id, case.attributes.decode(), actor.id)


# The belief sessions to read, and for each the actor without whose eliminations it is to be read too, if any.
NeededReadings = Mapping[str, str | None]


def list_readings(
    session_ids: Iterable[str], uses: Iterable[tuple[CaseContext | None, CaseUse]] = ()
) -> dict[str, str | None]:
    """What has to be read: these sessions, and those of cases as far as each is used."""
    needed: dict[str, str | None] = dict.fromkeys(session_ids)
    for case, use in uses:
        if case is None or use < CaseUse.BELIEF:
            continue
        if use is CaseUse.INDEPENDENT:
            needed[case.session_id] = case.actor_id
        else:
            needed.setdefault(case.session_id, None)
    return needed


def is_read(needed_of: str | None, reading: BeliefReading | None) -> bool:
    """Whether a reading has what a decision needs of its session."""
    if reading is None:
        return False
    return needed_of is None or not reading.found or independent_reading(reading, needed_of) is not None
