"""The causal graph in Neo4j: any number of Tee processes over one database act as one.

What is kept::

    (:TeeGraph {version})                                       one; its lock orders the merges
    (:TeeNode:Service {id, label, type, hypothetical, born, sources, wire})
    (:TeeNode)-[:DEPENDS_ON {born, sources, wire}]->(:TeeNode)  an end that was not proposed yet has an id and no more
    (:TeeProvenance {of, source, trigger, version, wire})       what was said of a thing after its birth
    (:TeeIncident {id, created_at, anchor, universe, tombstones})  its lock orders the tombstones of the incident
    (:TeeIncident)-[:ANCHORED_AT]->(:TeeVersion {version})
    (:TeeIncident)-[:RULED_OUT {provenance_source, ...}]->(:TeeNode)
    (:TeeTombstone {incident, id, ...})
    (:TeeEdgeTombstone {incident, source, target, type, ...})
    (:TeeUniverse {incident, part, wire})                       the parts of a listed universe

`wire` is the truth: a node or edge as it was born, as a field of a graph message, so that a view is a list of such
values and little is encoded to answer. The other properties and relations are for lookups and for people. Of an edge
the wire never changes, of a node only once, when it becomes certain.

Neo4j reads what is committed, but not as of one moment, and a commit becomes visible piece by piece. Taking the lock of
the graph (or of the incident) waits until earlier commits are there as a whole. What was born up to a version that was
read under the lock is there from then on and never changes, so that a long reader need not hold off merges.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

import neo4j
from neo4j.exceptions import DriverError, Neo4jError

from cmbs.errors import GraphUnavailable, IncidentNotFound, InvalidGraph
from cmbs.spi.stored_format import StoreRefused, graph_marks, refuse_earlier, refuse_other_marks, refuse_unmarked
from cmbs.tee.kernel.lattice import (
    Delta,
    EdgeKey,
    EdgeType,
    Node,
    Provenance,
    Timestamp,
)
from cmbs.tee.kernel.merge import choose_anchor, decide_merge, decide_tombstones
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
    decode,
    universe_of,
)
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores import _neo4j_cypher as cypher
from cmbs.tee.stores._neo4j_rows import (
    GraphGone,
    build_provenance,
    find_full_id,
    find_unknown_things,
    put_change,
    put_tombstones,
    read_identity,
    read_incident,
    read_known,
    read_live_view,
    read_page,
    read_row,
    read_row_of_graph,
    read_row_of_incident,
    read_view,
    run_statement,
    shorten_edge_key,
    shorten_key,
    split_rows,
    split_universe,
)

T = TypeVar("T")

_SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
_CONNECT_SECONDS = 5.0
_ACQUIRE_SECONDS = 15.0
_RETRY_SECONDS = 5.0
_TRANSACTION_SECONDS = 120.0
_IDLE_SECONDS = 30.0
_MAX_UNLOCKED_READS = 3


class _Moment(NamedTuple):
    """How many tombstones an incident had at some moment, and where it is anchored."""

    tombstones: int
    anchor: int


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
        """Make the constraints and the empty graph, safely while other processes do the same.

        GraphUnavailable for a graph of another format, or of none, of which nothing is changed.
        """
        self._refuse_other_format()
        for constraint in cypher.CONSTRAINTS:
            self._write("cannot make the constraints", partial(run_statement, statement=constraint))
        name, fingerprint = _expect_marks()
        tee_id = secrets.token_hex(16)
        create = partial(
            run_statement, statement=cypher.CREATE_GRAPH, format=name, fingerprint=fingerprint, tee_id=tee_id
        )
        self._write("cannot open the graph", create)
        # Another process may have been first.
        self._refuse_other_format()

    def _refuse_other_format(self) -> None:
        # In this order: content is written after the marks, perhaps by another process and between these two.
        (has_content,) = self._write("cannot open the graph", lambda tx: read_row(tx, cypher.HAS_CONTENT))
        (marked,) = self._write("cannot open the graph", lambda tx: read_row(tx, cypher.MARKS))
        with _translate_errors("cannot open the graph"):
            if has_content and not marked:
                raise refuse_unmarked()
            for marks in marked:
                # Before the first format was fixed it was a number.
                if not isinstance(marks[0], str):
                    raise refuse_earlier()
                refuse_other_marks(tuple(marks), _expect_marks())

    def _write(self, failing: str, work: Callable[[neo4j.ManagedTransaction], T]) -> T:
        """Do `work` in a transaction, again where Neo4j asks for that; reads too, since they take locks.

        Where the database was emptied meanwhile, a new graph is made first, as when a Tee is started: its identity is
        another one, by which callers notice.
        """
        try:
            return self._transact(failing, work)
        except GraphGone:
            self._create_schema()
            return self._transact(failing, work)

    def _transact(self, failing: str, work: Callable[[neo4j.ManagedTransaction], T]) -> T:
        timed = neo4j.unit_of_work(timeout=_TRANSACTION_SECONDS)(work)
        # Each answer is one row, so that there is nothing to fetch in parts.
        with _translate_errors(failing), self._driver.session(database=self._database, fetch_size=-1) as session:
            return session.execute_write(timed)

    def identity(self) -> Identity:
        """Which Tee this is."""
        return self._write("cannot read the identity", read_identity)

    def stand_in_for(self, tee_ids: Sequence[str]) -> Identity:
        """Add Tees that were lost to those that this one stands in for."""

        def work(tx: neo4j.ManagedTransaction) -> Identity:
            known = read_identity(tx)
            new = [each for each in dict.fromkeys(tee_ids) if each not in (known.tee_id, *known.stands_in_for)]
            run_statement(tx, cypher.STAND_IN, tee_ids=new)
            return read_identity(tx)

        return self._write("cannot write the identity", work)

    # --- the main graph ---

    def merge(self, delta: Delta) -> MergeResult:
        """Merge a delta, alone in the graph."""

        def work(tx: neo4j.ManagedTransaction) -> MergeResult:
            (version,) = read_row_of_graph(tx, cypher.VERSION)
            nodes, edges = read_known(tx, delta)
            change = decide_merge(nodes, edges, delta)
            if change.grows:
                version += 1
                put_change(tx, change, version)
            return change.result(version)

        return self._write("cannot merge", work)

    def version(self) -> int:
        """The present version."""
        version: int = self._write("cannot read the version", lambda tx: read_row_of_graph(tx, cypher.VERSION))[0]
        return version

    def main_graph(self) -> GraphView:
        """Everything, as of one moment."""
        return self.graph_at(self.version())

    def graph_at(self, version: int, *, edges: bool = True) -> GraphView:
        """What was born up to a version."""
        choose_anchor(version, self.version())
        return self._write("cannot read the graph", lambda tx: read_view(tx, version, edges=edges))

    # --- incidents ---

    def create_incident(
        self, incident_id: str, now: Timestamp, anchor: int | None = None, universe: Universe | None = None
    ) -> CreatedIncident:
        """Create an incident, unless it is there; alone in the graph, which decides what it sees."""
        call = secrets.token_hex(16)
        parameters = {"incident": shorten_key(incident_id), "call": call, "seconds": now.seconds, "nanos": now.nanos}

        def work(tx: neo4j.ManagedTransaction) -> CreatedIncident:
            (present,) = read_row_of_graph(tx, cypher.VERSION)
            known = tx.run(cypher.INCIDENT, incident=parameters["incident"]).single()
            if known is not None:
                return CreatedIncident(read_incident(incident_id, *known.values()), created=False)
            version = choose_anchor(anchor, present)
            unknown = find_unknown_things(tx, universe, version)
            kind = None if universe is None else int(universe.kind)
            if unknown:
                return CreatedIncident(
                    read_incident(incident_id, now.seconds, now.nanos, version, kind), False, unknown
                )
            *found, created = read_row(tx, cypher.CREATE_INCIDENT, **parameters, anchor=version, universe=kind)
            if universe is not None and universe.kind is UniverseKind.LISTED:
                rows = [[part, wire] for part, wire in enumerate(split_universe(universe))]
                run_statement(tx, cypher.PUT_UNIVERSE, rows=rows, incident=parameters["incident"])
            return CreatedIncident(read_incident(incident_id, *found), created)

        return self._write("cannot create the incident", work)

    def universe(self, incident_id: str) -> Universe | None:
        """The universe that an incident was created with."""
        kind, parts = self._write(
            "cannot read the universe", lambda tx: read_row_of_incident(tx, cypher.UNIVERSE, incident_id)
        )
        if kind is None:
            return None
        return universe_of(pb.Universe.FromString(b"".join(parts) + pb.Universe(kind=kind).SerializeToString()))

    def incident(self, incident_id: str) -> Incident:
        """An incident."""
        found = self._write(
            "cannot read the incident", lambda tx: read_row_of_incident(tx, cypher.INCIDENT, incident_id)
        )
        return read_incident(incident_id, *found)

    def merge_node_tombstones(
        self, incident_id: str, node_ids: Sequence[str], provenance: Provenance
    ) -> NodeTombstones:
        """Tombstone nodes, alone in the incident."""
        keys = {node_id: shorten_key(node_id) for node_id in node_ids}

        def work(tx: neo4j.ManagedTransaction) -> NodeTombstones:
            wanted = [[key] for key in keys.values()]
            count, graph, tombstoned = read_row_of_incident(tx, cypher.NODE_TOMBSTONED, incident_id, keys=wanted)
            in_the_graph, there = {key for (key,) in graph}, {key for (key,) in tombstoned}
            merge, new = decide_tombstones(
                keys,
                lambda node_id: keys[node_id] in in_the_graph,
                {each for each in keys if keys[each] in there},
                count,
            )
            rows = [[keys[node_id], find_full_id(node_id)] for node_id in new]
            put_tombstones(tx, (cypher.PUT_NODE_TOMBSTONES, cypher.POINT_AT_NODES), incident_id, rows, provenance)
            return merge

        return self._write("cannot merge tombstones", work)

    def merge_edge_tombstones(
        self, incident_id: str, edges: Sequence[EdgeKey], provenance: Provenance
    ) -> EdgeTombstones:
        """Tombstone edges, alone in the incident."""
        keys = {edge: shorten_edge_key(edge) for edge in edges}

        def work(tx: neo4j.ManagedTransaction) -> EdgeTombstones:
            wanted = list(keys.values())
            count, graph, tombstoned = read_row_of_incident(tx, cypher.EDGE_TOMBSTONED, incident_id, keys=wanted)
            in_the_graph, there = set(map(tuple, graph)), set(map(tuple, tombstoned))
            merge, new = decide_tombstones(
                keys, lambda edge: keys[edge] in in_the_graph, {each for each in keys if keys[each] in there}, count
            )
            rows = [[*keys[edge], find_full_id(edge.source), find_full_id(edge.target)] for edge in new]
            put_tombstones(tx, (cypher.PUT_EDGE_TOMBSTONES,), incident_id, rows, provenance)
            return merge

        return self._write("cannot merge tombstones", work)

    def tombstones(self, incident_id: str) -> Tombstones:
        """All tombstones of an incident."""
        nodes, edges = self._write(
            "cannot read the tombstones", lambda tx: read_row_of_incident(tx, cypher.TOMBSTONES, incident_id)
        )
        return Tombstones(
            {node_id: build_provenance(*said) for node_id, *said in nodes},
            {EdgeKey(source, target, EdgeType[kind]): build_provenance(*said) for source, target, kind, *said in edges},
        )

    def live_view(self, incident_id: str) -> GraphView:
        """The graph as of the anchor less the tombstones.

        Merges may go on: what was born up to the anchor stays the same. A view in which tombstones were added is read
        again; after three times with the incident locked.
        """
        failing, incident = "cannot read the graph", shorten_key(incident_id)

        def look(tx: neo4j.ManagedTransaction) -> _Moment:
            _, tombstones, anchor = read_row_of_graph(tx, cypher.MOMENT, incident=incident)
            if anchor is None:
                raise IncidentNotFound(incident_id)
            return _Moment(tombstones, anchor)

        before = self._write(failing, look)
        for _ in range(_MAX_UNLOCKED_READS):
            view = self._write(failing, partial(read_live_view, anchor=before.anchor, incident=incident))
            after = self._write(failing, look)
            if after == before:
                return view
            before = after
        return self._write(failing, lambda tx: read_live_view(tx, look(tx).anchor, incident))

    def find_nodes(self, version: int, node_ids: Sequence[str]) -> frozenset[str]:
        """Those of the ids that are nodes born up to a version."""
        ids = {shorten_key(node_id): node_id for node_id in node_ids}

        def work(tx: neo4j.ManagedTransaction) -> list[str]:
            return [
                key for keys in split_rows(list(ids)) for key in read_row(tx, cypher.BORN, ids=keys, version=version)[0]
            ]

        return frozenset(ids[key] for key in self._write("cannot read nodes", work))

    def nodes_at(self, version: int, node_ids: Sequence[str]) -> list[Node]:
        """Those of the nodes that were born up to a version."""
        keys = [shorten_key(node_id) for node_id in dict.fromkeys(node_ids)]

        def work(tx: neo4j.ManagedTransaction) -> list[bytes]:
            return [
                piece
                for ids in split_rows(keys)
                for piece in read_row(tx, cypher.NODES_AT, ids=ids, version=version)[0]
            ]

        nodes, _ = decode(self._write("cannot read nodes", work))
        return nodes

    def edges_at(self, version: int, node_ids: Sequence[str]) -> list[EdgeKey]:
        """The edges, born up to a version, that have one of these nodes at either end."""
        keys = [shorten_key(node_id) for node_id in dict.fromkeys(node_ids)]

        def work(tx: neo4j.ManagedTransaction) -> set[bytes]:
            found: set[bytes] = set()
            for ids in split_rows(keys):
                found.update(*read_row(tx, cypher.EDGES_AT, ids=ids, version=version))
            return found

        _, edges = decode(self._write("cannot read edges", work))
        return [edge.key for edge in edges]

    def page_at(self, version: int, token: str, size: int) -> GraphPage:
        """A page of what was born up to a version."""
        return self._write("cannot read the graph", lambda tx: read_page(tx, version, token, size))

    def close(self) -> None:
        """Close every connection."""
        self._driver.close()


def _expect_marks() -> tuple[str, str]:
    return graph_marks("\n".join(cypher.WRITES))


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


@contextmanager
def _translate_errors(failing: str) -> Iterator[None]:
    """Errors of the driver and of the database as ours; what they say may name hosts, never passwords."""
    try:
        yield
    except StoreRefused as exc:
        raise GraphUnavailable(f"{failing}: {exc.what}; nothing was changed", {"next": exc.next_step}) from exc
    except (DriverError, Neo4jError, OSError) as exc:
        raise GraphUnavailable(f"{failing}: {exc}") from exc
