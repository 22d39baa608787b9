"""What a caller asks of the list of sessions, as a query. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cmbs.errors import InvalidRequest
from cmbs.ledger.instants import parse_instant
from cmbs.ledger.listing import Attribute, SessionStanding, find_term
from cmbs.spi.session_search import ListedSession, SessionQuery

ORDERS = ("oldest", "newest")
MAX_TEXT_LENGTH = 200
MAX_TERMS = 16


def build_session_query(  # noqa: PLR0913 - every filter by its name
    *,
    order: str = "oldest",
    state: str | None = None,
    kit: str | None = None,
    agent: str | None = None,
    source: str | None = None,
    owner: str | None = None,
    severity: str | None = None,
    labels: Iterable[str] = (),
    text: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> SessionQuery:
    """A query of what was given: all of it must hold. Each of `labels` is `name:value`; moments are RFC 3339."""
    attributes = (
        (Attribute.SOURCE, source),
        (Attribute.AGENT, agent),
        (Attribute.OWNER, owner),
        (Attribute.SEVERITY, severity),
        (Attribute.KIT, kit),
    )
    terms = [find_term(Attribute.LABEL, *split_label(label)) for label in labels]
    terms += [find_term(attribute, value) for attribute, value in attributes if value is not None]
    if len(terms) > MAX_TERMS:
        raise InvalidRequest(f"at most {MAX_TERMS} labels can be asked for", {"field": "label", "found": len(terms)})
    return SessionQuery(
        choose_order(order),
        None
        if state is None
        else SessionStanding(choose_word("state", state, [each.value for each in SessionStanding])),
        tuple(dict.fromkeys(terms)),
        check_text(text),
        "" if since is None else parse_instant(since, "since"),
        "" if until is None else parse_instant(until, "until"),
    )


def choose_order(order: str) -> bool:
    """Whether the newest come first."""
    return choose_word("order", order, ORDERS) == "newest"


def choose_word(field: str, word: str, accepted: Iterable[str]) -> str:
    """One of a few words."""
    words = list(accepted)
    if word not in words:
        shown = ", ".join(f"`{each}`" for each in words)
        raise InvalidRequest(
            f"`{field}` must be one of {shown}, not `{word[:MAX_TEXT_LENGTH]}`",
            {"field": field, "found": word[:MAX_TEXT_LENGTH], "accepted": words},
        )
    return word


def split_label(label: str) -> tuple[str, str]:
    """A label as it is asked for: its name and its value."""
    name, colon, value = label.partition(":")
    if not (name and colon and value):
        raise InvalidRequest(
            f"`{label[:MAX_TEXT_LENGTH]}` is no label: write `name:value`",
            {"field": "label", "found": label[:MAX_TEXT_LENGTH], "accepted": "name:value"},
        )
    return name, value


def check_text(text: str | None) -> str:
    """A text to search for."""
    if text is not None and len(text) > MAX_TEXT_LENGTH:
        raise InvalidRequest(
            f"`text` is longer than the {MAX_TEXT_LENGTH} characters that can be searched for",
            {"field": "text", "found": len(text), "accepted": MAX_TEXT_LENGTH},
        )
    return text or ""


def describe_session(found: ListedSession, name: str | None = None, *, with_trail: bool = False) -> dict[str, Any]:
    """A session of a list as JSON, with its name; the trail only where it is asked for."""
    summary, listing = found
    reports = listing.reports
    content = {
        **summary._asdict(),
        "name": name,
        "title": listing.title or None,
        "labels": listing.labels,
        "owner": listing.owner or None,
        "severity": listing.severity or None,
        "case_agents": None if listing.n_case_agents is None else listing.case_agents,
        "n_case_agents": listing.n_case_agents,
        "kit": listing.kit,
        "kit_version": listing.kit_version,
        "state": listing.standing,
        "contradiction": listing.n_survivors == 0,
        "conclusion": listing.conclusion,
        "updated_ts": listing.updated_ts,
        "last_verb": listing.last_verb,
        "active_obligations": listing.obligations,
        "n_active_obligations": listing.n_obligations,
        "sources": reports.sources,
        "agents": reports.agents,
    }
    return {**content, "trail": reports.trail.series(listing.n_universe)} if with_trail else content
