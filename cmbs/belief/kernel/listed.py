"""A session as a list has it: what a log is given to keep beside an entry. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cmbs.belief.kernel.events import Declare, Eliminate, Event
from cmbs.belief.kernel.looks import Applied, Observation
from cmbs.belief.kernel.session import Session
from cmbs.ledger.listing import MAX_LISTED_NAMES, Listing, Reports, terms_of_declaration, terms_of_report


def list_session(after: Session, event: Event) -> Listing:
    """What a list says of a session right after its newest event."""
    provider, n_conclusions = after.provider, len(after.conclusions)
    return Listing(
        after.title,
        dict(after.labels),
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
    )


def reports_of(declared: Session, observations: Iterable[tuple[Observation, Applied]]) -> Reports:
    """What a list says of these eliminations of a session that was declared so."""
    reports, left = declared.reports, len(declared.universe)
    for (source_id, _), record in observations:
        drop = (left, left - len(record.applied))
        reports, left = reports.hear(source_id, record.actor_id, record.seq, drop), drop[1]
    return reports


def find_new_terms(after: Session, event: Event) -> Sequence[bytes]:
    """By what a session is found since its newest event; some of it may have been known before."""
    match event.message:
        case Declare():
            kit = None if after.provider is None else after.provider.id
            return terms_of_declaration(kit, after.labels, next(iter(after.reports.agents), None))
        case Eliminate(source_id=source_id, observation_id=observation_id):
            record = after.observations.get((source_id, observation_id))
            return terms_of_report(source_id, None if record is None else record.actor_id)
        case _:
            return ()
