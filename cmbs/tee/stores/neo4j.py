"""The causal graph in Neo4j: any number of Tee processes over one database act as one.

What is kept::

    (:TeeGraph {version})                                       one; its lock orders the merges
    (:TeeNode:Service {id, label, type, hypothetical, born, wire})
    (:TeeNode)-[:DEPENDS_ON {born, wire}]->(:TeeNode)           an end that was not proposed yet has an id and no more
    (:TeeIncident {id, created_at, anchor, stamp})              its lock orders the tombstones of the incident
    (:TeeTombstone {incident, id, ...})
    (:TeeEdgeTombstone {incident, source, target, type, ...})

`wire` is the truth: the whole node or edge as a field of a graph message, so that a view is a list of such values and
nothing is encoded to answer. The other properties are for lookups and for people.

Neo4j reads what is committed, but not as of one moment, and a commit becomes visible piece by piece. Taking the lock of
the graph (or of the incident) waits until earlier commits are there as a whole. Writers hold it; a long reader takes it
before and after, and reads again where something has changed between.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from cmbs.errors import GraphUnavailable, IncidentNotFound, InvalidGraph
from cmbs.tee.kernel.lattice import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, Timestamp
from cmbs.tee.kernel.merge import Change, decide_merge, decide_tombstones
from cmbs.tee.kernel.store import (
    CreatedIncident,
    EdgeTombstones,
    GraphView,
    Incident,
    MergeResult,
    NodeTombstones,
    Tombstones,
)
from cmbs.tee.kernel.wire import decode, encode_edge, encode_node

T = TypeVar("T")

FORMAT = 1
_SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
_CONNECT_SECONDS = 5.0
_ACQUIRE_SECONDS = 15.0
_RETRY_SECONDS = 5.0
_TRANSACTION_SECONDS = 120.0
_IDLE_SECONDS = 30.0
_MAX_ROWS = 10_000
_MAX_UNLOCKED_READS = 3
# A key of an index has at most some 8,000 bytes, and three of ours may have to fit one.
_MAX_KEY_CHARS = 256

_EDGES = "|".join(each.name for each in EdgeType)
_UNIQUE = {
    "tee_graph": "(x:TeeGraph) REQUIRE x.id",
    "tee_node": "(x:TeeNode) REQUIRE x.id",
    "tee_incident": "(x:TeeIncident) REQUIRE x.id",
    "tee_tombstone": "(x:TeeTombstone) REQUIRE (x.incident, x.id)",
    "tee_edge_tombstone": "(x:TeeEdgeTombstone) REQUIRE (x.incident, x.source, x.target, x.type)",
}
_CONSTRAINTS = [f"CREATE CONSTRAINT {name} IF NOT EXISTS FOR {what} IS UNIQUE" for name, what in _UNIQUE.items()]
_CREATE_GRAPH = "MERGE (g:TeeGraph {id: 0}) ON CREATE SET g.version = 0, g.format = $format RETURN g.format"

# Setting a property takes the lock of its node; the value stays, so nothing is written. Only what is read after that
# is sure to be the newest, which is why the counters are never set from a value that was read in the same breath.
_LOCK_GRAPH = "MATCH (g:TeeGraph {id: 0}) SET g.locked = true WITH g"
_LOCK_INCIDENT = "MATCH (i:TeeIncident {id: $incident}) SET i.locked = true WITH i"

_VERSION = f"{_LOCK_GRAPH} RETURN g.version"
_KNOWN_NODES = "UNWIND $ids AS id MATCH (n:TeeNode {id: id}) RETURN collect(n.wire)"
_KNOWN_EDGES = f"""
UNWIND $edges AS edge
MATCH (s:TeeNode {{id: edge[0]}}) MATCH (t:TeeNode {{id: edge[1]}}) MATCH (s)-[r:{_EDGES}]->(t)
WHERE type(r) = edge[2] RETURN collect(r.wire)
"""
_GROW = "MATCH (g:TeeGraph {id: 0}) SET g.version = $version"
_PUT_NODES = """
UNWIND $rows AS row MERGE (n:TeeNode {id: row[0]})
SET n:%s, n.born = coalesce(n.born, $version), n.wire = row[1], n.type = $type, n.label = row[2],
  n.hypothetical = row[3]
"""
_PUT_ENDS = "UNWIND $ids AS id MERGE (:TeeNode {id: id})"
_CREATE_EDGES = """
UNWIND $rows AS row MATCH (s:TeeNode {id: row[0]}) MATCH (t:TeeNode {id: row[1]})
CREATE (s)-[:%s {born: $version, wire: row[2]}]->(t)
"""
_CHANGE_EDGES = """
UNWIND $rows AS row MATCH (s:TeeNode {id: row[0]}) MATCH (t:TeeNode {id: row[1]})
MATCH (s)-[r:%s]->(t) SET r.wire = row[2]
"""

_CREATE_INCIDENT = f"""
{_LOCK_GRAPH} MERGE (i:TeeIncident {{id: $incident}})
ON CREATE SET i.locked = true, i.created_by = $call, i.anchor = g.version, i.stamp = 0, i.seconds = $seconds,
  i.nanos = $nanos, i.created_at = datetime({{epochSeconds: $seconds, nanosecond: $nanos}})
RETURN i.seconds, i.nanos, i.anchor, i.created_by = $call
"""
_INCIDENT = f"{_LOCK_INCIDENT} RETURN i.seconds, i.nanos, i.anchor"
_NODE_TOMBSTONED = f"""
{_LOCK_INCIDENT} RETURN
COLLECT {{ UNWIND $keys AS key MATCH (n:TeeNode {{id: key[0]}}) WHERE n.born <= i.anchor RETURN key }},
COLLECT {{ UNWIND $keys AS key MATCH (:TeeTombstone {{incident: $incident, id: key[0]}}) RETURN key }}
"""
_EDGE_TOMBSTONED = f"""
{_LOCK_INCIDENT} RETURN
COLLECT {{ UNWIND $keys AS key
  MATCH (s:TeeNode {{id: key[0]}}) MATCH (t:TeeNode {{id: key[1]}}) MATCH (s)-[r:{_EDGES}]->(t)
  WHERE type(r) = key[2] AND r.born <= i.anchor RETURN key }},
COLLECT {{ UNWIND $keys AS key
  MATCH (:TeeEdgeTombstone {{incident: $incident, source: key[0], target: key[1], type: key[2]}}) RETURN key }}
"""
_SAID = "t.provenance_source = $source, t.provenance_trigger = $trigger, t.seconds = $seconds, t.nanos = $nanos"
_PUT_NODE_TOMBSTONES = f"""
UNWIND $rows AS row CREATE (t:TeeTombstone {{incident: $incident, id: row[0]}}) SET t.full_id = row[1], {_SAID}
"""
_PUT_EDGE_TOMBSTONES = f"""
UNWIND $rows AS row
CREATE (t:TeeEdgeTombstone {{incident: $incident, source: row[0], target: row[1], type: row[2]}})
SET t.full_source = row[3], t.full_target = row[4], {_SAID}
"""
_STAMP = "MATCH (i:TeeIncident {id: $incident}) SET i.stamp = i.stamp + 1"
_SAYS = "t.provenance_source, t.provenance_trigger, t.seconds, t.nanos"
_TOMBSTONES = f"""
{_LOCK_INCIDENT} RETURN
COLLECT {{ MATCH (t:TeeTombstone {{incident: $incident}}) WHERE t.id IS NOT NULL
  RETURN [coalesce(t.full_id, t.id), {_SAYS}] }},
COLLECT {{ MATCH (t:TeeEdgeTombstone {{incident: $incident}})
  WHERE t.source IS NOT NULL AND t.target IS NOT NULL AND t.type IS NOT NULL
  RETURN [coalesce(t.full_source, t.source), coalesce(t.full_target, t.target), t.type, {_SAYS}] }}
"""

_MOMENT = f"""
{_LOCK_GRAPH} OPTIONAL MATCH (i:TeeIncident {{id: $incident}}) SET i.locked = true
WITH g, i RETURN g.version, i.stamp, i.anchor
"""
_NODES = "MATCH (n:TeeNode) WHERE n.born <= $version RETURN collect(n.wire)"
_RELATIONS = f"MATCH ()-[r:{_EDGES}]->() WHERE r.born <= $version RETURN collect(r.wire)"
_DEAD_NODES = """
MATCH (t:TeeTombstone {incident: $incident}) WHERE t.id IS NOT NULL MATCH (n:TeeNode {id: t.id}) RETURN collect(n.wire)
"""
_DEAD_RELATIONS = f"""
MATCH (t:TeeTombstone {{incident: $incident}}) WHERE t.id IS NOT NULL
MATCH (:TeeNode {{id: t.id}})-[r:{_EDGES}]-() RETURN collect(r.wire)
"""
_TOMBSTONED_RELATIONS = f"""
MATCH (d:TeeEdgeTombstone {{incident: $incident}})
WHERE d.source IS NOT NULL AND d.target IS NOT NULL AND d.type IS NOT NULL
MATCH (s:TeeNode {{id: d.source}}) MATCH (t:TeeNode {{id: d.target}}) MATCH (s)-[r:{_EDGES}]->(t)
WHERE type(r) = d.type RETURN collect(r.wire)
"""


class _Moment(NamedTuple):
    """What was newest at some moment; `stamp` and `anchor` are of an incident, where one is meant."""

    version: int
    stamp: int | None
    anchor: int | None


class _Reading(Protocol):
    """Something that reads the graph as of a moment."""

    def __call__(self, tx: neo4j.ManagedTransaction, moment: _Moment) -> GraphView: ...


class Neo4jGraphStore:
    """A `GraphStore` in one database of a Neo4j server, 5.26 or newer, Community or Enterprise."""

    def __init__(self, url: str) -> None:
        self._driver, self._database = connect(url)
        try:
            self._create_schema()
        except BaseException:
            self.close()
            raise

    def _create_schema(self) -> None:
        """Make the constraints and the empty graph; safe while other processes do the same."""
        for constraint in _CONSTRAINTS:
            self._write("cannot make the constraints", partial(_run, statement=constraint))
        found = self._write("cannot open the graph", lambda tx: _row(tx, _CREATE_GRAPH, format=FORMAT))[0]
        if found != FORMAT:
            raise GraphUnavailable(f"the graph has format {found}, and only {FORMAT} is known here")

    def _write(self, failing: str, work: Callable[[neo4j.ManagedTransaction], T]) -> T:
        """Do `work` in a transaction, again where Neo4j asks for that; reads too, since they take locks."""
        timed = neo4j.unit_of_work(timeout=_TRANSACTION_SECONDS)(work)
        # Each answer is one row, so that there is nothing to fetch in parts.
        with _translate_errors(failing), self._driver.session(database=self._database, fetch_size=-1) as session:
            return session.execute_write(timed)

    # --- the main graph ---

    def merge(self, delta: Delta) -> MergeResult:
        """Merge a delta, alone in the graph."""

        def work(tx: neo4j.ManagedTransaction) -> MergeResult:
            (version,) = _row(tx, _VERSION)
            nodes, edges = _read_known(tx, delta)
            change = decide_merge(nodes, edges, delta)
            if change.grows:
                version += 1
                _put(tx, change, version)
            return change.result(version)

        return self._write("cannot merge", work)

    def version(self) -> int:
        """The present version."""
        version: int = self._write("cannot read the version", lambda tx: _row(tx, _VERSION))[0]
        return version

    def main_graph(self) -> GraphView:
        """Everything, as of one moment."""

        def read(tx: neo4j.ManagedTransaction, moment: _Moment) -> GraphView:
            return GraphView(moment.version, *_graph(tx, moment.version))

        return self._at_one_moment(None, read)

    # --- incidents ---

    def create_incident(self, incident_id: str, now: Timestamp) -> CreatedIncident:
        """Create an incident, unless it is there."""
        parameters = {"incident": _key(incident_id), "call": secrets.token_hex(16)}
        seconds, nanos, anchor, created = self._write(
            "cannot create the incident",
            lambda tx: _row(tx, _CREATE_INCIDENT, **parameters, seconds=now.seconds, nanos=now.nanos),
        )
        return CreatedIncident(Incident(incident_id, Timestamp(seconds, nanos), anchor), created)

    def incident(self, incident_id: str) -> Incident:
        """An incident."""
        seconds, nanos, anchor = self._write(
            "cannot read the incident", lambda tx: _row_of_incident(tx, _INCIDENT, incident_id)
        )
        return Incident(incident_id, Timestamp(seconds, nanos), anchor)

    def merge_node_tombstones(
        self, incident_id: str, node_ids: Sequence[str], provenance: Provenance
    ) -> NodeTombstones:
        """Tombstone nodes, alone in the incident."""
        keys = {node_id: _key(node_id) for node_id in node_ids}

        def work(tx: neo4j.ManagedTransaction) -> NodeTombstones:
            wanted = [[key] for key in keys.values()]
            graph, tombstoned = _row_of_incident(tx, _NODE_TOMBSTONED, incident_id, keys=wanted)
            in_the_graph, there = {key for (key,) in graph}, {key for (key,) in tombstoned}
            merge, new = decide_tombstones(
                keys, lambda node_id: keys[node_id] in in_the_graph, {each for each in keys if keys[each] in there}
            )
            rows = [[keys[node_id], _full(node_id)] for node_id in new]
            _put_tombstones(tx, _PUT_NODE_TOMBSTONES, incident_id, rows, provenance)
            return merge

        return self._write("cannot merge tombstones", work)

    def merge_edge_tombstones(
        self, incident_id: str, edges: Sequence[EdgeKey], provenance: Provenance
    ) -> EdgeTombstones:
        """Tombstone edges, alone in the incident."""
        keys = {edge: _edge_key(edge) for edge in edges}

        def work(tx: neo4j.ManagedTransaction) -> EdgeTombstones:
            wanted = list(keys.values())
            graph, tombstoned = _row_of_incident(tx, _EDGE_TOMBSTONED, incident_id, keys=wanted)
            in_the_graph, there = set(map(tuple, graph)), set(map(tuple, tombstoned))
            merge, new = decide_tombstones(
                keys, lambda edge: keys[edge] in in_the_graph, {each for each in keys if keys[each] in there}
            )
            rows = [[*keys[edge], _full(edge.source), _full(edge.target)] for edge in new]
            _put_tombstones(tx, _PUT_EDGE_TOMBSTONES, incident_id, rows, provenance)
            return merge

        return self._write("cannot merge tombstones", work)

    def tombstones(self, incident_id: str) -> Tombstones:
        """All tombstones of an incident."""
        nodes, edges = self._write(
            "cannot read the tombstones", lambda tx: _row_of_incident(tx, _TOMBSTONES, incident_id)
        )
        return Tombstones(
            {node_id: _provenance(*said) for node_id, *said in nodes},
            {EdgeKey(source, target, EdgeType[kind]): _provenance(*said) for source, target, kind, *said in edges},
        )

    def live_view(self, incident_id: str) -> GraphView:
        """The graph as of the anchor less the tombstones."""

        def read(tx: neo4j.ManagedTransaction, moment: _Moment) -> GraphView:
            if moment.anchor is None:
                raise IncidentNotFound(incident_id)
            nodes, edges = _graph(tx, moment.anchor)
            # Nothing changes between here and the next look at the moment, or all is read again: what is dead has the
            # same bytes here as there. To name it by its bytes costs less than to ask Neo4j about every single thing.
            incident = _key(incident_id)
            (dead,) = _row(tx, _DEAD_NODES, incident=incident)
            if dead_nodes := frozenset(dead):
                nodes = [piece for piece in nodes if piece not in dead_nodes]
            (beside,) = _row(tx, _DEAD_RELATIONS, incident=incident)
            (dead,) = _row(tx, _TOMBSTONED_RELATIONS, incident=incident)
            if dead_edges := frozenset(beside).union(dead):
                edges = [piece for piece in edges if piece not in dead_edges]
            return GraphView(moment.anchor, nodes, edges)

        return self._at_one_moment(incident_id, read)

    def _at_one_moment(self, incident_id: str | None, read: _Reading) -> GraphView:
        """Read without holding the lock, again where something has changed meanwhile; after three times, holding it."""
        failing, incident = "cannot read the graph", _key(incident_id) if incident_id else None

        def look(tx: neo4j.ManagedTransaction) -> _Moment:
            return _Moment(*_row(tx, _MOMENT, incident=incident))

        before = self._write(failing, look)
        for _ in range(_MAX_UNLOCKED_READS):
            view = self._write(failing, partial(read, moment=before))
            after = self._write(failing, look)
            if after == before:
                return view
            before = after
        return self._write(failing, lambda tx: read(tx, look(tx)))

    def close(self) -> None:
        """Close every connection."""
        self._driver.close()


def connect(url: str) -> tuple[neo4j.Driver, str | None]:
    """A driver for `scheme://user:password@host:port/database`, and the name of the database, where there is one.

    The environment has what the URL has not: `NEO4J_USERNAME`, `NEO4J_PASSWORD`. Nothing is asked of the server yet.
    """
    parts = _split(url)
    user = unquote(parts.username or "") or os.environ.get("NEO4J_USERNAME", "")
    password = unquote(parts.password or "") or os.environ.get("NEO4J_PASSWORD", "")
    with _translate_errors("cannot open the database"):
        driver = neo4j.GraphDatabase.driver(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            auth=neo4j.basic_auth(user, password) if user else None,
            user_agent="cmbs",
            connection_timeout=_CONNECT_SECONDS,
            connection_acquisition_timeout=_ACQUIRE_SECONDS,
            max_transaction_retry_time=_RETRY_SECONDS,
            liveness_check_timeout=_IDLE_SECONDS,
            notifications_min_severity=neo4j.NotificationMinimumSeverity.OFF,
        )
    return driver, unquote(parts.path.strip("/")) or None


def _split(url: str) -> SplitResult:
    """The parts of a URL. One that is refused is not quoted, nor is a cause that quotes it: it may hold a password.

    A password with `/`, `?` or `#` that is not escaped ends the host too early, and would be looked up as one.
    """
    with suppress(ValueError):
        parts = urlsplit(url)
        # Asking for a port that is no number raises.
        named = parts.scheme in _SCHEMES and parts.hostname and parts.port != 0
        if named and "@" not in f"{parts.path}{parts.query}{parts.fragment}":
            return parts
    raise InvalidGraph("not a URL of the kind `neo4j://user@host:7687/database`")


# --- statements -------------------------------------------------------------------------------------------------------


def _run(tx: neo4j.ManagedTransaction, statement: str, **parameters: Any) -> None:
    """Run a statement for what it does."""
    tx.run(statement, parameters).consume()


def _row(tx: neo4j.ManagedTransaction, statement: str, **parameters: Any) -> Sequence[Any]:
    """The one row that a statement answers with."""
    return tx.run(statement, parameters).single(strict=True).values()


def _row_of_incident(
    tx: neo4j.ManagedTransaction, statement: str, incident_id: str, **parameters: Any
) -> Sequence[Any]:
    record = tx.run(statement, parameters, incident=_key(incident_id)).single()
    if record is None:
        raise IncidentNotFound(incident_id)
    return record.values()


def _read_known(tx: neo4j.ManagedTransaction, delta: Delta) -> tuple[dict[str, Node], dict[EdgeKey, Edge]]:
    """What of a delta is in the graph already."""
    pieces: list[bytes] = []
    for ids in _batches([_key(node_id) for node_id in {node.id: None for node in delta.nodes}]):
        pieces += _row(tx, _KNOWN_NODES, ids=ids)[0]
    for edges in _batches([_edge_key(key) for key in {edge.key: None for edge in delta.edges}]):
        pieces += _row(tx, _KNOWN_EDGES, edges=edges)[0]
    known_nodes, known_edges = decode(pieces)
    return {node.id: node for node in known_nodes}, {edge.key: edge for edge in known_edges}


def _put(tx: neo4j.ManagedTransaction, change: Change, version: int) -> None:
    """Write a change; the lock of the graph is held."""
    _run(tx, _GROW, version=version)
    nodes = sorted((*change.created_nodes, *change.changed_nodes), key=lambda node: node.type)
    for kind, group in groupby(nodes, key=lambda node: node.type):
        rows = [[_key(node.id), encode_node(node), node.label, node.hypothetical] for node in group]
        for batch in _batches(rows):
            _run(tx, _PUT_NODES % _LABELS[kind], rows=batch, version=version, type=kind.name)
    ends = {_key(end): None for edge in change.created_edges for end in (edge.key.source, edge.key.target)}
    for ids in _batches(list(ends)):
        _run(tx, _PUT_ENDS, ids=ids)
    for statement, edges in ((_CREATE_EDGES, change.created_edges), (_CHANGE_EDGES, change.changed_edges)):
        by_type = sorted(edges, key=lambda edge: edge.key.type)
        for sort, edge_group in groupby(by_type, key=lambda edge: edge.key.type):
            edge_rows = [[*_edge_key(edge.key)[:2], encode_edge(edge)] for edge in edge_group]
            for edge_batch in _batches(edge_rows):
                _run(tx, statement % sort.name, rows=edge_batch, version=version)


def _put_tombstones(
    tx: neo4j.ManagedTransaction, statement: str, incident_id: str, rows: list[Any], provenance: Provenance
) -> None:
    """Write tombstones; the lock of the incident is held."""
    if not rows:
        return
    incident = _key(incident_id)
    said = {"source": provenance.source, "trigger": provenance.trigger, **provenance.timestamp._asdict()}
    _run(tx, _STAMP, incident=incident)
    for batch in _batches(rows):
        _run(tx, statement, rows=batch, incident=incident, **said)


def _graph(tx: neo4j.ManagedTransaction, version: int) -> tuple[list[bytes], list[bytes]]:
    """What was born up to a version. Collected: one value is read much faster than as many rows."""
    (nodes,) = _row(tx, _NODES, version=version)
    (edges,) = _row(tx, _RELATIONS, version=version)
    return nodes, edges


_LABELS = {kind: kind.name.capitalize() for kind in NodeType}


def _batches(rows: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(rows), _MAX_ROWS):
        yield rows[start : start + _MAX_ROWS]


def _key(text: str) -> str:
    """What an id is looked up by: itself, or its beginning and a digest where it is too long for an index.

    The latter is longer than any id that stands for itself, so no two ids have one key.
    """
    if len(text) <= _MAX_KEY_CHARS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: _MAX_KEY_CHARS - len(digest)]}…{digest}"


def _full(text: str) -> str | None:
    """The id itself where its key is another."""
    return text if len(text) > _MAX_KEY_CHARS else None


def _edge_key(edge: EdgeKey) -> tuple[str, str, str]:
    return _key(edge.source), _key(edge.target), edge.type.name


def _provenance(source: str, trigger: str, seconds: int, nanos: int) -> Provenance:
    return Provenance(source, trigger, Timestamp(seconds, nanos))


@contextmanager
def _translate_errors(failing: str) -> Iterator[None]:
    """Errors of the driver and of the database as ours; what they say may name hosts, never passwords."""
    try:
        yield
    except (DriverError, Neo4jError, OSError) as exc:
        raise GraphUnavailable(f"{failing}: {exc}") from exc
