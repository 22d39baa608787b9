"""The causal graph in an SQLite file: durable when acknowledged, shared by any number of processes.

The file holds a log of changes; a mirror of it in memory answers. Every call first takes in what others wrote since,
and a write does that under the file's write lock, so that its decision holds when it is written.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cmbs.errors import GraphUnavailable, IncidentNotFound, InvalidRequest
from cmbs.tee._sqlite_schema import migrate
from cmbs.tee.graph import Graph
from cmbs.tee.graph_store import (
    CreatedIncident,
    EdgeTombstones,
    GraphView,
    Incident,
    MergeResult,
    NodeTombstones,
    Tombstones,
)
from cmbs.tee.incident import IncidentState, merge_result
from cmbs.tee.lattice import Delta, EdgeKey, Provenance, Timestamp
from cmbs.tee.merging import decide_tombstones
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.wire import (
    edge_entry,
    edge_key_of,
    encoded_addition,
    encoded_edge,
    encoded_node,
    keyed_edges,
    keyed_nodes,
    provenance_message,
    provenance_of,
)

_BUSY_SECONDS = 10.0
_WAL_ATTEMPTS = 100
# Incidents whose tombstones are kept in memory; any other is read again when it is asked for.
_MIRRORED_INCIDENTS = 256


class _Mirrored(IncidentState):
    """An incident as far as it was read."""

    __slots__ = ("seq",)

    def __init__(self, incident: Incident) -> None:
        super().__init__(incident)
        self.seq = 0


class SQLiteGraphStore:
    """A `GraphStore` in one file."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        if "\0" in self._path or self._path == ":memory:":
            raise InvalidRequest(f"`{self._path!r}` is not a file; for a graph in memory use `memory:`")
        self._lock = threading.Lock()
        self._graph = Graph()
        self._incidents: OrderedDict[str, _Mirrored] = OrderedDict()
        with _translated(f"cannot open `{self._path}`"):
            self._connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._connection.execute("PRAGMA synchronous = FULL")
                migrate(self._connection)
                # After the file is known to be ours: the mode is written into it.
                _enter_wal(self._connection)
                self._catch_up()
            except BaseException:
                self._connection.close()
                raise

    # --- the main graph ---

    def merge(self, delta: Delta) -> MergeResult:
        """Merge a delta into the main graph."""
        with self._writing("cannot merge"):
            change = self._graph.decide(delta)
            version = self._graph.version
            if change.grows:
                version += 1
                created, added = map(encoded_node, change.created_nodes), map(encoded_addition, change.added_to_nodes)
                nodes = b"".join([*created, *added])
                edges = b"".join(map(encoded_edge, change.created_edges + change.added_to_edges))
                self._connection.execute("INSERT INTO graph_changes VALUES (?, ?, ?)", (version, nodes, edges))
        return merge_result(change, version)

    def version(self) -> int:
        """The present version of the main graph."""
        with self._reading():
            return self._graph.version

    def main_graph(self) -> GraphView:
        """The main graph with its present version."""
        with self._reading():
            return self._graph.view(self._graph.version)

    # --- incidents ---

    def create_incident(self, incident_id: str, now: Timestamp) -> CreatedIncident:
        """Create an incident, anchored at the present version; an existing one is returned as it is."""
        with self._writing("cannot create an incident"):
            known = self._found(incident_id)
            if known is not None:
                return CreatedIncident(known, created=False)
            incident = Incident(incident_id, now, self._graph.version)
            self._connection.execute("INSERT INTO incidents VALUES (?, ?, ?, ?)", (incident_id, *now, incident.anchor))
        return CreatedIncident(incident, created=True)

    def incident(self, incident_id: str) -> Incident:
        """An incident."""
        with self._reading():
            return self._state(incident_id).incident

    def merge_node_tombstones(
        self, incident_id: str, node_ids: Sequence[str], provenance: Provenance
    ) -> NodeTombstones:
        """Tombstone nodes for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._writing("cannot merge tombstones"):
            state = self._state(incident_id)
            decided = decide_tombstones(node_ids, self._graph.has_node(state.incident.anchor), state.nodes)
            if decided.new:
                self._append(state, provenance, pb.TombstoneSet(node_ids=decided.new))
        return NodeTombstones(decided.applied, decided.already, decided.unmatched)

    def merge_edge_tombstones(
        self, incident_id: str, edges: Sequence[EdgeKey], provenance: Provenance
    ) -> EdgeTombstones:
        """Tombstone edges for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._writing("cannot merge tombstones"):
            state = self._state(incident_id)
            decided = decide_tombstones(edges, self._graph.has_edge(state.incident.anchor), state.edges)
            if decided.new:
                self._append(state, provenance, pb.TombstoneSet(edge_entries=map(edge_entry, decided.new)))
        return EdgeTombstones(decided.applied, decided.already, decided.unmatched)

    def tombstones(self, incident_id: str) -> Tombstones:
        """All tombstones of an incident, the unmatched included."""
        with self._reading():
            return self._state(incident_id).tombstones()

    def live_view(self, incident_id: str) -> GraphView:
        """The graph as of the incident's anchor less its tombstones."""
        with self._reading():
            state = self._state(incident_id)
            return self._graph.view(state.incident.anchor, state.nodes, state.edges)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    # --- the mirror ---

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One moment of the file, with the mirror brought up to it."""
        with self._lock, _translated(f"cannot read `{self._path}`"), self._transaction("BEGIN"):
            self._catch_up()
            yield

    @contextmanager
    def _writing(self, doing: str) -> Iterator[None]:
        """The file to ourselves. The mirror takes in what was written only when it is read back, so after the commit:
        what was not committed was never in it.
        """
        with self._lock, _translated(doing), self._transaction("BEGIN IMMEDIATE"):
            self._catch_up()
            yield

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # SQLite rolls back by itself after some errors.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _catch_up(self) -> None:
        rows = self._connection.execute(
            "SELECT version, nodes, edges FROM graph_changes WHERE version > ? ORDER BY version", (self._graph.version,)
        )
        for version, nodes, edges in rows:
            self._graph.absorb(version, keyed_nodes(nodes), keyed_edges(edges))

    def _found(self, incident_id: str) -> Incident | None:
        row = self._connection.execute(
            "SELECT created_seconds, created_nanos, anchor FROM incidents WHERE incident_id = ?", (incident_id,)
        ).fetchone()
        return None if row is None else Incident(incident_id, Timestamp(row[0], row[1]), row[2])

    def _state(self, incident_id: str) -> _Mirrored:
        """The incident with all its tombstones."""
        state = self._incidents.get(incident_id)
        if state is None:
            incident = self._found(incident_id)
            if incident is None:
                raise IncidentNotFound(incident_id)
            state = self._incidents[incident_id] = _Mirrored(incident)
            if len(self._incidents) > _MIRRORED_INCIDENTS:
                self._incidents.popitem(last=False)
        self._incidents.move_to_end(incident_id)
        rows = self._connection.execute(
            "SELECT seq, provenance, tombstones FROM tombstone_merges WHERE incident_id = ? AND seq > ? ORDER BY seq",
            (incident_id, state.seq),
        )
        for seq, provenance_bytes, tombstone_bytes in rows:
            provenance = provenance_of(pb.Provenance.FromString(provenance_bytes))
            tombstones = pb.TombstoneSet.FromString(tombstone_bytes)
            state.nodes.update(dict.fromkeys(tombstones.node_ids, provenance))
            state.edges.update(dict.fromkeys(map(edge_key_of, tombstones.edge_entries), provenance))
            state.seq = seq
        return state

    def _append(self, state: _Mirrored, provenance: Provenance, tombstones: pb.TombstoneSet) -> None:
        said = provenance_message(provenance).SerializeToString()
        self._connection.execute(
            "INSERT INTO tombstone_merges VALUES (?, ?, ?, ?)",
            (state.incident.incident_id, state.seq + 1, said, tombstones.SerializeToString()),
        )


def _enter_wal(connection: sqlite3.Connection) -> None:
    """SQLite answers `locked` at once while another process does the same, so first wait for that one."""
    for _ in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as exc:
        raise GraphUnavailable(f"{doing}: {exc}") from exc
