"""The causal graph in an SQLite file: durable when acknowledged, shared by any number of processes.

The file holds a log of changes; a mirror of it in memory answers. Every call first takes in what other
processes wrote since, and a write does that under the file's write lock, so that its decision holds when it is written.
Reads have their own connection, so that they do not wait while a write waits for another process.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from cmbs.errors import GraphUnavailable, IncidentNotFound, InvalidRequest
from cmbs.spi.stored_format import StoreRefused
from cmbs.sqlite_files import prepare_file, refuse_other_file, transaction
from cmbs.tee.kernel.graph import Graph, IncidentState
from cmbs.tee.kernel.lattice import Delta, EdgeKey, Node, Provenance, Timestamp
from cmbs.tee.kernel.merge import choose_anchor, decide_tombstones, find_unknown
from cmbs.tee.kernel.store import (
    CreatedIncident,
    EdgeTombstones,
    GraphPage,
    GraphView,
    Identity,
    Incident,
    MergeResult,
    NodeTombstones,
    Tombstones,
    Universe,
    UniverseKind,
)
from cmbs.tee.kernel.wire import (
    edge_entry,
    edge_key_of,
    encode_change,
    provenance_message,
    provenance_of,
    universe_message,
    universe_of,
)
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores._sqlite_schema import GRAPH_FILE

_BUSY_SECONDS = 10.0
_WAL_ATTEMPTS = 100
# Incidents are cached with their tombstones; one that was evicted is read again when it is needed.
_MAX_CACHED_BYTES = 128 << 20
# About what an incident takes in memory, and a tombstone besides its id.
_INCIDENT_BYTES = 1_000
_TOMBSTONE_BYTES = 150


class _CachedIncident(IncidentState):
    """An incident up to the tombstone merge `seq`; `size` estimates its bytes in memory."""

    def __init__(self, incident: Incident) -> None:
        super().__init__(incident)
        self.seq = 0
        self.size = _INCIDENT_BYTES


class SQLiteGraphStore:
    """A `GraphStore` in one file."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        if "\0" in self._path or self._path == ":memory:":
            raise InvalidRequest(f"`{self._path!r}` is not a file; for a graph in memory use `memory:`")
        # Taken in this order. The first is held while waiting for the file, the second only while the mirror is used.
        self._writing_lock, self._lock = threading.Lock(), threading.Lock()
        self._graph = Graph()
        self._incidents: OrderedDict[str, _CachedIncident] = OrderedDict()
        self._cached_bytes = 0
        with ExitStack() as connections, _translate_errors(f"cannot open `{self._path}`"):
            refuse_other_file(self._path, GRAPH_FILE, _BUSY_SECONDS)
            self._writer = connections.enter_context(closing(_connect(self._path)))
            self._writer.execute("PRAGMA synchronous = FULL")
            prepare_file(self._writer, GRAPH_FILE)
            # After the file is known to be ours: the mode is written into it.
            _enter_wal(self._writer)
            self._reader = connections.enter_context(closing(_connect(self._path)))
            self._reader.execute("PRAGMA query_only = ON")
            self._catch_up(self._reader)
            # Nothing went wrong: they stay open.
            connections.pop_all()

    def identity(self) -> Identity:
        """Which Tee this is."""
        with self._reading():
            return _read_identity(self._reader)

    def stand_in_for(self, tee_ids: Sequence[str]) -> Identity:
        """Add Tees that were lost to those that this one stands in for."""
        with self._writing("cannot write the identity"):
            known = _read_identity(self._writer)
            for tee_id in dict.fromkeys(tee_ids):
                if tee_id not in (known.tee_id, *known.stands_in_for):
                    self._writer.execute("INSERT INTO identities (tee_id) VALUES (?)", (tee_id,))
            return _read_identity(self._writer)

    # --- the main graph ---

    def merge(self, delta: Delta) -> MergeResult:
        """Merge a delta into the main graph."""
        with self._writing("cannot merge"):
            change = self._graph.decide(delta)
            version = self._graph.version
            if change.grows:
                version += 1
                row = (version, *encode_change(change))
                self._writer.execute("INSERT INTO graph_changes VALUES (?, ?, ?)", row)
        return change.result(version)

    def version(self) -> int:
        """The present version of the main graph."""
        with self._reading():
            return self._graph.version

    def main_graph(self) -> GraphView:
        """The main graph with its present version."""
        with self._reading():
            return self._graph.view(self._graph.version)

    def graph_at(self, version: int, *, edges: bool = True) -> GraphView:
        """The main graph as of a version."""
        with self._reading():
            view = self._graph.view(choose_anchor(version, self._graph.version))
        return view if edges else view._replace(edges=())

    # --- incidents ---

    def create_incident(
        self, incident_id: str, now: Timestamp, anchor: int | None = None, universe: Universe | None = None
    ) -> CreatedIncident:
        """Create an incident; an existing one is returned as it is."""
        with self._writing("cannot create an incident"):
            known = _read_incident(self._writer, incident_id)
            if known is not None:
                return CreatedIncident(known, created=False)
            version = choose_anchor(anchor, self._graph.version)
            incident = Incident(incident_id, now, version, None if universe is None else universe.kind)
            unknown = find_unknown(universe, self._graph.has_node(version), self._graph.has_edge(version))
            if unknown:
                return CreatedIncident(incident, False, unknown)
            self._writer.execute("INSERT INTO incidents VALUES (?, ?, ?, ?)", (incident_id, *now, version))
            if universe is not None:
                row = (incident_id, universe_message(universe).SerializeToString())
                self._writer.execute("INSERT INTO universes VALUES (?, ?)", row)
        return CreatedIncident(incident, created=True)

    def universe(self, incident_id: str) -> Universe | None:
        """The universe that an incident was created with."""
        with self._reading():
            if self._state(self._reader, incident_id).incident.universe is None:
                return None
            row = self._reader.execute("SELECT universe FROM universes WHERE incident_id = ?", (incident_id,))
            return universe_of(pb.Universe.FromString(row.fetchone()[0]))

    def incident(self, incident_id: str) -> Incident:
        """An incident."""
        with self._reading():
            return self._state(self._reader, incident_id).incident

    def merge_node_tombstones(
        self, incident_id: str, node_ids: Sequence[str], provenance: Provenance
    ) -> NodeTombstones:
        """Tombstone nodes for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._writing("cannot merge tombstones"):
            state = self._state(self._writer, incident_id)
            merge, new = decide_tombstones(
                node_ids, self._graph.has_node(state.incident.anchor), state.nodes, state.count
            )
            if new:
                self._append(state, provenance, pb.TombstoneSet(node_ids=new))
        return merge

    def merge_edge_tombstones(
        self, incident_id: str, edges: Sequence[EdgeKey], provenance: Provenance
    ) -> EdgeTombstones:
        """Tombstone edges for an incident; those outside the graph (as of the anchor) are kept and unmatched."""
        with self._writing("cannot merge tombstones"):
            state = self._state(self._writer, incident_id)
            merge, new = decide_tombstones(edges, self._graph.has_edge(state.incident.anchor), state.edges, state.count)
            if new:
                self._append(state, provenance, pb.TombstoneSet(edge_entries=map(edge_entry, new)))
        return merge

    def tombstones(self, incident_id: str) -> Tombstones:
        """All tombstones of an incident, the unmatched included."""
        with self._reading():
            return self._state(self._reader, incident_id).tombstones()

    def live_view(self, incident_id: str) -> GraphView:
        """The graph as of the incident's anchor less its tombstones."""
        with self._reading():
            state = self._state(self._reader, incident_id)
            return self._graph.view(state.incident.anchor, state.nodes, state.edges)

    def find_nodes(self, version: int, node_ids: Sequence[str]) -> frozenset[str]:
        """Those of the ids that are nodes born up to a version."""
        with self._reading():
            return frozenset(filter(self._graph.has_node(version), node_ids))

    def nodes_at(self, version: int, node_ids: Sequence[str]) -> list[Node]:
        """Those of the nodes that were born up to a version."""
        with self._reading():
            return self._graph.nodes_at(version, node_ids)

    def edges_at(self, version: int, node_ids: Sequence[str]) -> list[EdgeKey]:
        """The edges, born up to a version, that have one of these nodes at either end."""
        with self._reading():
            return self._graph.edges_at(version, node_ids)

    def page_at(self, version: int, token: str, size: int) -> GraphPage:
        """A page of what was born up to a version."""
        with self._reading():
            return self._graph.page_at(version, token, size)

    def close(self) -> None:
        """Close the file."""
        with self._writing_lock, self._lock:
            self._reader.close()
            self._writer.close()

    # --- the mirror ---

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One moment of the file, with the mirror brought up to it."""
        with self._lock, _translate_errors(f"cannot read `{self._path}`"), transaction(self._reader, "BEGIN"):
            self._catch_up(self._reader)
            yield

    @contextmanager
    def _writing(self, doing: str) -> Iterator[None]:
        """The file's write lock. The mirror takes in what was written only when it is read back after the commit."""
        with self._writing_lock, _translate_errors(doing), transaction(self._writer, "BEGIN IMMEDIATE"), self._lock:
            self._catch_up(self._writer)
            yield

    def _catch_up(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(
            "SELECT version, nodes, edges FROM graph_changes WHERE version > ? ORDER BY version", (self._graph.version,)
        )
        for version, nodes, edges in rows:
            self._graph.absorb(version, nodes, edges)

    def _state(self, connection: sqlite3.Connection, incident_id: str) -> _CachedIncident:
        """The incident with all its tombstones."""
        state = self._incidents.get(incident_id)
        if state is None:
            incident = _read_incident(connection, incident_id)
            if incident is None:
                raise IncidentNotFound(incident_id)
            state = self._incidents[incident_id] = _CachedIncident(incident)
            self._cached_bytes += state.size
        self._incidents.move_to_end(incident_id)
        rows = connection.execute(
            "SELECT seq, provenance, tombstones FROM tombstone_merges WHERE incident_id = ? AND seq > ? ORDER BY seq",
            (incident_id, state.seq),
        )
        for seq, provenance_bytes, tombstone_bytes in rows:
            provenance = provenance_of(pb.Provenance.FromString(provenance_bytes))
            tombstones = pb.TombstoneSet.FromString(tombstone_bytes)
            state.nodes.update(dict.fromkeys(tombstones.node_ids, provenance))
            state.edges.update(dict.fromkeys(map(edge_key_of, tombstones.edge_entries), provenance))
            state.seq = seq
            number = len(tombstones.node_ids) + len(tombstones.edge_entries)
            size = len(provenance_bytes) + len(tombstone_bytes) + number * _TOMBSTONE_BYTES
            state.size += size
            self._cached_bytes += size
        # The incident that was used last stays, whatever its size.
        while len(self._incidents) > 1 and self._cached_bytes > _MAX_CACHED_BYTES:
            _, evicted = self._incidents.popitem(last=False)
            self._cached_bytes -= evicted.size
        return state

    def _append(self, state: _CachedIncident, provenance: Provenance, tombstones: pb.TombstoneSet) -> None:
        encoded = provenance_message(provenance).SerializeToString(), tombstones.SerializeToString()
        row = (state.incident.incident_id, state.seq + 1, *encoded)
        self._writer.execute("INSERT INTO tombstone_merges VALUES (?, ?, ?, ?)", row)


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _read_incident(connection: sqlite3.Connection, incident_id: str) -> Incident | None:
    row = connection.execute(
        "SELECT created_seconds, created_nanos, anchor, universe FROM incidents LEFT JOIN universes USING (incident_id)"
        " WHERE incident_id = ?",
        (incident_id,),
    ).fetchone()
    if row is None:
        return None
    kind = None if row[3] is None else UniverseKind(pb.Universe.FromString(row[3]).kind)
    return Incident(incident_id, Timestamp(row[0], row[1]), row[2], kind)


def _read_identity(connection: sqlite3.Connection) -> Identity:
    first, *others = connection.execute("SELECT tee_id FROM identities ORDER BY place").fetchall()
    return Identity(first[0], tuple(each[0] for each in others))


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. SQLite answers `locked` at once while another process does so: wait for it."""
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
def _translate_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except StoreRefused as exc:
        raise GraphUnavailable(f"{doing}: {exc.what}; nothing was changed", {"next": exc.next_step}) from exc
    except sqlite3.Error as exc:
        raise GraphUnavailable(f"{doing}: {exc}") from exc
