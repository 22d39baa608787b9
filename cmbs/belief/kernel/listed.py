"""A session as a list has it: what a log is given to keep beside an entry. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UnsetType

from cmbs.belief.kernel.events import Declare, Eliminate, Event, UpdateCase
from cmbs.belief.kernel.looks import Applied, Observation
from cmbs.belief.kernel.session import Session
from cmbs.ledger.listing import (
    MAX_LISTED_NAMES,
    Listing,
    Reports,
    terms_of_agents,
    terms_of_case,
    terms_of_declaration,
    terms_of_report,
)


def list_session(after: Session, event: Event) -> Listing:
    """What a list says of a session right after its newest event."""
    provider, n_conclusions, case = after.provider, len(after.conclusions), after.case
    return Listing(
        case.title,
        dict(case.labels),
        None if provider is None else provider.id,
        None if provider is None else provider.version,
        len(after.universe),
        len(after.survivors),
        after.declared_ts,
        event.body.ts,
        event.body.verb,
        after.active[:MAX_LISTED_NAMES],
        len(after.active),
        after.conclusions.at(n_conclusions - 1)[1] if n_conclusions else None,
        after.terminated_seq is not None,
        after.reports,
        case.owner,
        case.severity,
        (case.agents or ())[:MAX_LISTED_NAMES],
        None if case.agents is None else len(case.agents),
    )


def reports_of(declared: Session, observations: Iterable[tuple[Observation, Applied]]) -> Reports:
    """What a list says of these eliminations of a session that was declared so."""
    reports, left = declared.reports, len(declared.universe)
    for (source_id, _), record in observations:
        drop = (left, left - len(record.applied))
        reports, left = reports.hear(source_id, record.actor_id, record.seq, drop), drop[1]
    return reports


def find_lost_terms(before: Session, after: Listing, event: Event) -> Sequence[bytes]:
    """By what a session is no longer found since its newest event, which changed its case."""
    kept = set(terms_of_case(after))
    return [term for term in terms_of_case(list_session(before, event)) if term not in kept]


def find_new_terms(after: Session, listing: Listing, event: Event) -> Sequence[bytes]:
    """By what a session is found since its newest event; some of it may have been known before."""
    match event.message:
        case Declare():
            kit = None if after.provider is None else after.provider.id
            terms = terms_of_declaration(kit, next(iter(after.reports.agents), None))
            return [*terms, *terms_of_case(listing), *terms_of_agents(after.case.agents or ())]
        case UpdateCase(agents=agents):
            added = () if isinstance(agents, UnsetType) else agents
            return [*terms_of_case(listing), *terms_of_agents(added)]
        case Eliminate(source_id=source_id, observation_id=observation_id):
            record = after.observations.get((source_id, observation_id))
            return terms_of_report(source_id, None if record is None else record.actor_id)
        case _:
            return ()
