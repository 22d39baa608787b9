"""Universes in a Tee that has no place for them, because it is not ours: a second incident of the session holds them.

Its tombstones are all ids of the universe, and a mark, written last.
"""

from __future__ import annotations

from typing import NamedTuple

from cmbs.errors import Conflict, InvalidHypothesisId, SessionNotFound
from cmbs.spi import AnchoredUniverse, EliminationProvenance
from cmbs.stores._tee_incidents import RESERVED, Incidents, MergeOutcome, split_by_kind
from cmbs.tee.proto import tee_pb2 as pb

_NOTHING: frozenset[str] = frozenset()
_OURS = EliminationProvenance("cmbs", "universe")
_COMPLETE = f"{RESERVED}listed"


class MarkedUniverse(NamedTuple):
    """A universe as the second incident has it."""

    ids: frozenset[str]
    is_complete: bool


def read_marked(incidents: Incidents, session_id: str) -> MarkedUniverse | None:
    """The universe in the second incident of a session; None where there is no such incident."""
    try:
        found = incidents.tombstones(session_id, RESERVED + session_id)
    except SessionNotFound:
        return None
    return MarkedUniverse(found - {_COMPLETE}, _COMPLETE in found)


def anchor_marked(incidents: Incidents, session_id: str, expected_version: str, *, edges: bool) -> AnchoredUniverse:
    """The universe of a session in such a Tee: as it was created with, or else the graph as it is now."""
    if incidents.find(session_id) is None:
        # What will be refused anyway must not pin the session to a graph that it cannot be declared from.
        now = incidents.version()
        if now is not None and (now == "0" or expected_version not in ("", now)):
            return AnchoredUniverse(_NOTHING, now)
    incident = incidents.create(pb.CreateIncidentRequest(incident_id=session_id))
    version = str(incident.causal_graph_version) if incident.HasField("causal_graph_version") else None
    stored = read_marked(incidents, session_id)
    if stored is not None and stored.is_complete:
        return AnchoredUniverse(stored.ids, version)
    offered = incidents.offer(session_id, session_id, edges=edges)
    return AnchoredUniverse(offered.ids, version, offered.attributes)


def create_marked(
    incidents: Incidents, session_id: str, universe: frozenset[str], first: pb.CreateIncidentResult
) -> None:
    """Write the universe of a session, whose incident is there, as a list.

    `InvalidHypothesisId` names what is not in the graph.
    """
    second = incidents.create(pb.CreateIncidentRequest(incident_id=RESERVED + session_id))
    stored = None if second.created else read_marked(incidents, session_id)
    if stored is not None and stored.is_complete:
        if stored.ids != universe:
            raise Conflict(f"session `{session_id}` was created with another universe", {"session_id": session_id})
        return
    if stored is not None and not stored.ids <= universe:
        raise Conflict(f"another universe was begun for session `{session_id}`", {"session_id": session_id})
    if first.causal_graph_version != second.causal_graph_version:
        _refuse_unborn(incidents, session_id, universe)
    nodes, edges = split_by_kind(universe)
    outcome = MergeOutcome()
    incidents.merge_nodes(session_id, RESERVED + session_id, nodes, _OURS, outcome)
    incidents.merge_edges(session_id, RESERVED + session_id, edges, _OURS, outcome)
    unknown = universe - outcome.applied - outcome.already
    if unknown:
        raise InvalidHypothesisId(sorted(unknown))
    incidents.merge_nodes(session_id, RESERVED + session_id, {_COMPLETE: _COMPLETE}, _OURS, MergeOutcome())


def _refuse_unborn(incidents: Incidents, session_id: str, universe: frozenset[str]) -> None:
    """Refuse what is not in the graph as of the session's own incident, which may be older than its second one.

    To that incident it would never be there: what the session rules out, Tee would not.
    """
    has_edges = bool(split_by_kind(universe)[1])
    there = incidents.view(session_id, session_id, edges=has_edges) | incidents.tombstones(session_id, session_id)
    if not universe <= there:
        raise InvalidHypothesisId(sorted(universe - there))
