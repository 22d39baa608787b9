"""What a list says of a session, and by what it is found in one: derived from the entries of its log alone.

A store keeps it beside the log, so that a list of a hundred thousand sessions replays none. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

# How many sources, agents and obligations a list names; all of them are found by a filter.
MAX_LISTED_NAMES = 8
# How many points a trail has at most, without the first and the last.
MAX_TRAIL_POINTS = 56
_TERM_BYTES = 16


class SessionStanding(StrEnum):
    """Where a session stands. Where several hold, the first in this order is given."""

    TERMINATED = "terminated"
    CONTRADICTION = "contradiction"
    CONCLUDED = "concluded"
    OPEN = "open"


class Attribute(StrEnum):
    """What sessions can be found by."""

    KIT = "kit"
    AGENT = "agent"
    SOURCE = "source"
    LABEL = "label"
    OWNER = "owner"
    SEVERITY = "severity"


def find_term(attribute: Attribute, *parts: str) -> bytes:
    """What stands for an attribute and its value in an index: short, whatever the value holds."""
    text = "\x00".join((attribute, *(f"{len(part)}:{part}" for part in parts)))
    return sha256(text.encode(errors="surrogatepass")).digest()[:_TERM_BYTES]


class Trail(msgspec.Struct, frozen=True, array_like=True):
    """How many hypotheses were left over time, in a bounded number of points: every `stride`-th drop, and the last."""

    n_drops: int = 0
    stride: int = 1
    # A seq, and how many were left after it.
    points: tuple[tuple[int, int], ...] = ()
    last: tuple[int, int] | None = None

    def drop(self, seq: int, n_survivors: int) -> Trail:
        """The trail after an event that left fewer."""
        n_drops, stride, points, last = self.n_drops + 1, self.stride, self.points, (seq, n_survivors)
        if n_drops % stride == 0:
            points = (*points, last)
            if len(points) > MAX_TRAIL_POINTS:
                points, stride = points[1::2], stride * 2
        return Trail(n_drops, stride, points, last)

    def series(self, n_universe: int) -> list[tuple[int, int]]:
        """The points in order, from the declaration on."""
        newest = [] if self.last is None or self.last in self.points[-1:] else [self.last]
        return [(0, n_universe), *self.points, *newest]


class Reports(msgspec.Struct, frozen=True, array_like=True):
    """What the reports of a session come to in a list: the first sources and agents, and what was left over time."""

    sources: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    trail: Trail = Trail()

    def hear(self, source_id: str, agent_id: str | None, seq: int, drop: tuple[int, int]) -> Reports:
        """The same after one report more; `drop` is how many were left before it, and after."""
        return Reports(
            _name(self.sources, source_id),
            self.agents if agent_id is None else _name(self.agents, agent_id),
            self.trail if drop[0] == drop[1] else self.trail.drop(seq, drop[1]),
        )


def _name(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names or len(names) == MAX_LISTED_NAMES else (*names, name)


class Listing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A session in a list, right after its newest entry."""

    title: str
    labels: dict[str, str]
    kit: str | None
    kit_version: str | None
    n_universe: int
    n_survivors: int
    created_ts: str
    updated_ts: str
    last_verb: str
    # The first of those that are active, and how many are.
    obligations: tuple[str, ...]
    n_obligations: int
    # The last one that was accepted.
    conclusion: str | None
    terminated: bool
    reports: Reports
    owner: str = ""
    severity: str = ""
    # Who may work on it: the first of them, and how many they are; None where that is not restricted.
    case_agents: tuple[str, ...] = ()
    n_case_agents: int | None = None

    @property
    def standing(self) -> SessionStanding:
        """Where the session stands."""
        if self.terminated:
            return SessionStanding.TERMINATED
        if self.n_survivors == 0:
            return SessionStanding.CONTRADICTION
        return SessionStanding.OPEN if self.conclusion is None else SessionStanding.CONCLUDED


def search_text(session_id: str, title: str) -> str:
    """What a search for text looks into."""
    return f"{session_id}\n{title}".casefold()


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(Listing)


def encode_listing(listing: Listing) -> bytes:
    """A listing as a store keeps it: the same bytes for the same listing."""
    return _ENCODER.encode(listing)


def decode_listing(raw: bytes) -> Listing:
    """A listing that a store kept; ValueError where it is none."""
    return _DECODER.decode(raw)


def terms_of_declaration(kit: str | None, agent_id: str | None) -> list[bytes]:
    """What a session is found by from its declaration on, for good."""
    terms = [] if kit is None else [find_term(Attribute.KIT, kit)]
    terms += [] if agent_id is None else [find_term(Attribute.AGENT, agent_id)]
    return terms


def terms_of_case(listing: Listing) -> list[bytes]:
    """What a session is found by until its case is changed."""
    terms = [find_term(Attribute.LABEL, name, value) for name, value in listing.labels.items()]
    terms += [find_term(Attribute.OWNER, listing.owner)] if listing.owner else []
    terms += [find_term(Attribute.SEVERITY, listing.severity)] if listing.severity else []
    return terms


def terms_of_agents(agents: Iterable[str]) -> list[bytes]:
    """What a session is found by since these agents may work on it, for good."""
    return [find_term(Attribute.AGENT, agent_id) for agent_id in agents]


def terms_of_report(source_id: str, agent_id: str | None) -> list[bytes]:
    """What a session is found by from a report on."""
    terms = [find_term(Attribute.SOURCE, source_id)]
    terms += [] if agent_id is None else [find_term(Attribute.AGENT, agent_id)]
    return terms


# --- from the bytes of a log ------------------------------------------------------------------------------------------


class Indexed(NamedTuple):
    """What a store keeps of a whole session beside its log."""

    listing: Listing
    terms: AbstractSet[bytes]


class _Actor(msgspec.Struct, frozen=True):
    id: str
    authenticated: bool = False


class _Delta(msgspec.Struct, frozen=True):
    eliminated: list[str]


class _Entry(msgspec.Struct, frozen=True):
    verb: str
    seq: int
    ts: str
    delta: _Delta
    outcome: msgspec.Raw
    payload: msgspec.Raw
    actor: _Actor | None = None


class _Provider(msgspec.Struct, frozen=True):
    id: str
    version: str


class _Origin(msgspec.Struct, frozen=True):
    seq: int
    without: tuple[int, ...] = ()


class _Declared(msgspec.Struct, frozen=True):
    provider: _Provider | None = None
    origin: _Origin | None = None
    title: str = ""
    labels: dict[str, str] = {}
    owner: str = ""
    severity: str = ""
    agents: tuple[str, ...] | None = None


class _Updated(msgspec.Struct, frozen=True):
    title: str | msgspec.UnsetType | None = msgspec.UNSET
    labels: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType | None = msgspec.UNSET
    severity: str | msgspec.UnsetType | None = msgspec.UNSET
    agents: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class _Payload(msgspec.Struct, frozen=True):
    source_id: str = ""
    obligation_id: str = ""
    conclusion_id: str = ""
    lift_obligation: str = ""
    first_sent_by: str | None = None


class _Outcome(msgspec.Struct, frozen=True):
    universe_size: int = 0
    accepted: bool = False
    approved: bool = False


_ENTRY = msgspec.json.Decoder(_Entry)
_DECLARED = msgspec.json.Decoder(_Declared)
_UPDATED = msgspec.json.Decoder(_Updated)
_PAYLOAD = msgspec.json.Decoder(_Payload)
_OUTCOME = msgspec.json.Decoder(_Outcome | None)


def index_session(raws: Iterable[bytes]) -> Indexed | None:
    """What a store keeps of the session that has these entries, from the first on; None where they are of none."""
    found: Indexed | None = None
    active: dict[str, None] = {}
    last_repeated = -1
    try:
        for raw in raws:
            entry = _ENTRY.decode(raw)
            outcome = _OUTCOME.decode(entry.outcome) or _Outcome()
            if found is None:
                declared = _DECLARED.decode(entry.payload)
                last_repeated = -1 if declared.origin is None else _find_last_repeated(declared.origin)
                found = _index_declaration(entry, declared, outcome.universe_size)
            else:
                found = _index_entry(found, entry, outcome, active, repeated=entry.seq <= last_repeated)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found


def _index_declaration(entry: _Entry, declared: _Declared, n_universe: int) -> Indexed:
    agent_id, provider = _agent_of(entry), declared.provider
    kit = None if provider is None else provider.id
    listing = Listing(
        declared.title,
        declared.labels,
        kit,
        None if provider is None else provider.version,
        n_universe,
        n_universe,
        entry.ts,
        entry.ts,
        entry.verb,
        (),
        0,
        None,
        terminated=False,
        reports=Reports(agents=() if agent_id is None else (agent_id,)),
        owner=declared.owner,
        severity=declared.severity,
        **_list_agents(declared.agents),
    )
    terms = [*terms_of_declaration(kit, agent_id), *terms_of_case(listing), *terms_of_agents(declared.agents or ())]
    return Indexed(listing, frozenset(terms))


def _list_agents(agents: tuple[str, ...] | None) -> dict[str, Any]:
    return {
        "case_agents": (agents or ())[:MAX_LISTED_NAMES],
        "n_case_agents": None if agents is None else len(agents),
    }


def _index_update(found: Indexed, payload: msgspec.Raw) -> Indexed:
    """A session in a list after its case was changed: a text that is taken away is null."""
    update = _UPDATED.decode(payload)
    changes: dict[str, Any] = {
        name: value or ""
        for name, value in (("title", update.title), ("owner", update.owner), ("severity", update.severity))
        if value is not msgspec.UNSET
    }
    agents: tuple[str, ...] = ()
    if not isinstance(update.labels, msgspec.UnsetType):
        changes["labels"] = update.labels
    if not isinstance(update.agents, msgspec.UnsetType):
        agents = update.agents
        changes |= _list_agents(agents)
    listing = msgspec.structs.replace(found.listing, **changes)
    kept = found.terms - set(terms_of_case(found.listing))
    return Indexed(listing, kept | {*terms_of_case(listing), *terms_of_agents(agents)})


def _index_entry(
    found: Indexed, entry: _Entry, outcome: _Outcome, active: dict[str, None], *, repeated: bool
) -> Indexed:
    """`active` are the obligations, which this changes; what a fork repeats is of the actor who sent it first."""
    listing, terms = _index_update(found, entry.payload) if entry.verb == "UPDATE_CASE" else found
    n_survivors, reports = listing.n_survivors - len(entry.delta.eliminated), listing.reports
    payload = _PAYLOAD.decode(entry.payload)
    granted = outcome.accepted or outcome.approved
    if entry.verb == "ELIMINATE":
        agent_id = payload.first_sent_by if repeated else _agent_of(entry)
        reports = reports.hear(payload.source_id, agent_id, entry.seq, (listing.n_survivors, n_survivors))
        terms = terms | set(terms_of_report(payload.source_id, agent_id))
    elif entry.verb == "ENTER_OBLIGATION":
        active[payload.obligation_id] = None
    elif entry.verb == "REQUEST_EXIT" and granted:
        active.pop(payload.obligation_id, None)
    elif entry.verb == "UPDATE_CASE":
        active.pop(payload.lift_obligation, None)
    concludes = entry.verb == "DECLARE_CONCLUSION" and granted
    listing = msgspec.structs.replace(
        listing,
        n_survivors=n_survivors,
        updated_ts=entry.ts,
        last_verb=entry.verb,
        obligations=tuple(list(active)[:MAX_LISTED_NAMES]),
        n_obligations=len(active),
        conclusion=payload.conclusion_id if concludes else listing.conclusion,
        terminated=listing.terminated or (entry.verb == "REQUEST_TERMINATION" and granted),
        reports=reports,
    )
    return Indexed(listing, terms)


def _find_last_repeated(origin: _Origin) -> int:
    return origin.seq - len(origin.without)


def _agent_of(entry: _Entry) -> str | None:
    return entry.actor.id if entry.actor is not None and entry.actor.authenticated else None
