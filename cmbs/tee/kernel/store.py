"""Where the causal graph lives: the contract of a graph store, and what its methods answer.

`cmbs.testing.contracts.graph_store.GraphStoreContract` is this contract as tests; a driver passes it whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from cmbs.tee.kernel.lattice import Delta, EdgeKey, MergeConflict, Node, Provenance, Timestamp

K = TypeVar("K", str, EdgeKey)


class MergeResult(NamedTuple):
    """What became of a delta; every distinct thing in it is in one of `created_*` and `merged_*`."""

    created_nodes: tuple[str, ...]
    created_edges: tuple[EdgeKey, ...]
    merged_nodes: tuple[str, ...]
    merged_edges: tuple[EdgeKey, ...]
    conflicts: tuple[MergeConflict, ...]
    version: int


class UniverseKind(IntEnum):
    """What a session was declared over; the numbers are those of the wire."""

    NODES = 1
    GRAPH = 2
    LISTED = 3


class Universe(NamedTuple):
    """What a session was declared over: all nodes, all nodes and edges, or those that are listed."""

    kind: UniverseKind
    node_ids: tuple[str, ...] = ()
    edges: tuple[EdgeKey, ...] = ()


class Incident(NamedTuple):
    """An incident: `anchor` is the version of the graph that it sees, `universe` what it was created with."""

    incident_id: str
    created_at: Timestamp
    anchor: int
    universe: UniverseKind | None = None


class CreatedIncident(NamedTuple):
    """The incident, and whether this very call created it.

    `unknown` is what of a listed universe is not in the graph as of the anchor: then nothing was created.
    """

    incident: Incident
    created: bool
    unknown: tuple[str | EdgeKey, ...] = ()


class TombstoneMerge(NamedTuple, Generic[K]):
    """What became of each distinct id; exactly one list has it.

    `total` is how many tombstones the incident has now, nodes and edges together: a caller that knows of more has found
    an older copy of the incident.
    """

    applied: tuple[K, ...]
    already: tuple[K, ...]
    unmatched: tuple[K, ...]
    total: int


NodeTombstones: TypeAlias = TombstoneMerge[str]
EdgeTombstones: TypeAlias = TombstoneMerge[EdgeKey]


class Identity(NamedTuple):
    """Which Tee this is: an id that was made with the graph, and the ids of lost ones that it stands in for."""

    tee_id: str
    stands_in_for: tuple[str, ...] = ()


class Tombstones(NamedTuple):
    """The tombstones of an incident, each with the provenance that it was first given; never a live container."""

    nodes: Mapping[str, Provenance]
    edges: Mapping[EdgeKey, Provenance]


class GraphView(NamedTuple):
    """A graph, encoded.

    A piece is one or more whole fields of a `tee.CausalGraph` message on the wire (tag, length and message): pieces of
    `nodes` hold its field 1, those of `edges` its field 2. Since repeated fields concatenate, any pieces joined in any
    order are again such a message. `cmbs.tee.kernel.wire` encodes and decodes them.
    """

    version: int
    nodes: Sequence[bytes]
    edges: Sequence[bytes]


class GraphPage(NamedTuple):
    """Some nodes and edges. `next_token` asks for those behind them, and is empty on the last page."""

    nodes: tuple[Node, ...]
    edges: tuple[EdgeKey, ...]
    next_token: str


@runtime_checkable
class GraphStore(Protocol):
    """One main graph that only grows, and incidents that tombstone parts of it for themselves.

    What MUST hold:

    - Nothing is ever removed or replaced: nodes, edges, provenance, incidents and tombstones stay. The merge laws are
      those of `cmbs.tee.kernel.lattice`; a store decides with `cmbs.tee.kernel.merge` or does exactly the same.
    - The graph begins at version 0, empty. A merge that changes anything (a new node or edge, new provenance,
      `hypothetical` become false) makes the version larger; one that changes nothing leaves it as it is. Versions MAY
      skip numbers. All that one merge creates is born at the version that the merge results in.
    - An incident is anchored when it is created, for good: at the version that the graph has then, or at an earlier one
      that the caller names. It sees the nodes and edges that were born up to there: membership is as of the anchor, and
      never changes. Their content (provenance, hypothetical) is the newest. Its universe is written with it, or never.
    - A live view is that graph less the tombstoned nodes, less the tombstoned edges, less every edge of which an end
      is tombstoned, whether or not that end is a node of the graph.
    - Every call is atomic: all of it or nothing, in the order of some sequence of calls. What is new and what was
      there is decided inside the transaction that writes it, so that of two writers, in whatever processes, never
      both create one thing or both get `applied` for one id.
    - A call that returns is as durable as the store gets. One that raises has changed nothing, or can be repeated
      safely: every write is idempotent.
    - The identity is made with the graph, by chance, and stays. What the graph stands in for is only added to.
    - Ids are opaque text; whatever protobuf can carry is kept as it is, NUL and normal forms included. They are
      looked up exactly.
    - Cost: no round trip for each id, however many a call names.

    What MAY differ: the order of nodes, edges and tombstones; where pieces of a view end.

    The caller has validated the arguments with the `validate_*` functions of the lattice. A method that names an
    incident raises `IncidentNotFound` where there is none. A store that cannot be reached raises `GraphUnavailable`.
    Methods may be called from several threads at once.
    """

    def identity(self) -> Identity:
        """Which Tee this is."""
        ...

    def stand_in_for(self, tee_ids: Sequence[str]) -> Identity:
        """Add Tees that were lost to those that this one stands in for; its own id and repeats are left out."""
        ...

    def merge(self, delta: Delta) -> MergeResult:
        """Merge a delta into the main graph."""
        ...

    def version(self) -> int:
        """The present version of the main graph."""
        ...

    def main_graph(self) -> GraphView:
        """The main graph with its present version."""
        ...

    def graph_at(self, version: int, *, edges: bool = True) -> GraphView:
        """The main graph as of a version; InvalidGraph where that is beyond the present one."""
        ...

    def create_incident(
        self, incident_id: str, now: Timestamp, anchor: int | None = None, universe: Universe | None = None
    ) -> CreatedIncident:
        """Create an incident, anchored at a version or at the present one; an existing one is returned as it is.

        InvalidGraph where the anchor is beyond the present version.
        """
        ...

    def universe(self, incident_id: str) -> Universe | None:
        """The universe that an incident was created with, ids included; None where it has none."""
        ...

    def incident(self, incident_id: str) -> Incident:
        """An incident."""
        ...

    def merge_node_tombstones(
        self, incident_id: str, node_ids: Sequence[str], provenance: Provenance
    ) -> NodeTombstones:
        """Tombstone nodes for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        ...

    def merge_edge_tombstones(
        self, incident_id: str, edges: Sequence[EdgeKey], provenance: Provenance
    ) -> EdgeTombstones:
        """Tombstone edges for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        ...

    def tombstones(self, incident_id: str) -> Tombstones:
        """All tombstones of an incident, the unmatched included."""
        ...

    def live_view(self, incident_id: str) -> GraphView:
        """The graph as of the incident's anchor (which is the view's version) less its tombstones."""
        ...

    def find_nodes(self, version: int, node_ids: Sequence[str]) -> frozenset[str]:
        """Those of the ids that are nodes born up to a version."""
        ...

    def nodes_at(self, version: int, node_ids: Sequence[str]) -> list[Node]:
        """Those of the nodes that were born up to a version, each once; their later provenance may be left out."""
        ...

    def edges_at(self, version: int, node_ids: Sequence[str]) -> list[EdgeKey]:
        """The edges, born up to a version, that have one of these nodes at either end; each once.

        Neither tombstones nor whether the other end is a node are looked at. One step of a search: see
        `cmbs.tee.kernel.paths`.
        """
        ...

    def page_at(self, version: int, token: str, size: int) -> GraphPage:
        """So many of the nodes, and behind the last node of the edges, that were born up to a version.

        All pages together have each thing once, however the graph grows meanwhile. Later provenance may be left out.
        The first page has an empty token; InvalidGraph for one that no page has given out.
        """
        ...

    def close(self) -> None:
        """Let go of what the store holds; it is not used afterwards."""
        ...
