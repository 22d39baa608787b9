"""Rows of the graph in Neo4j: reading and writing within a transaction that its caller began."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import msgspec
import neo4j

from cmbs.errors import GraphUnavailable, IncidentNotFound
from cmbs.tee.batches import batches
from cmbs.tee.kernel.lattice import (
    Delta,
    Edge,
    EdgeKey,
    Node,
    NodeType,
    Provenance,
    Timestamp,
    edge_id,
    merge_provenance,
)
from cmbs.tee.kernel.merge import Change, find_unknown
from cmbs.tee.kernel.pages import refuse_token
from cmbs.tee.kernel.store import (
    GraphPage,
    GraphView,
    Identity,
    Incident,
    Universe,
    UniverseKind,
)
from cmbs.tee.kernel.wire import (
    decode,
    edge_entry,
    encode_edge,
    encode_node,
    frame_edge,
    frame_node,
    provenance_message,
)
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores import _neo4j_cypher as cypher

T = TypeVar("T")

_MAX_ROWS = 10_000
# A key of an index has at most some 8,000 bytes, and three of ours may have to fit one.
_MAX_KEY_CHARS = 256
# A node whose key is shorter is the owner of its provenance under that very key.
_MAX_OWNER_CHARS = _MAX_KEY_CHARS - 8
_MAX_PART_BYTES = 1 << 20
# What provenance is of; also where the key of its owner begins.
_NODE, _EDGE = "node ", "edge "
# Of a node or edge, as a property for people.
MAX_SOURCES = 100
# Of edges of one source, in a token.
_MAX_SKIP = 1 << 32


def run_statement(tx: neo4j.ManagedTransaction, statement: str, **parameters: Any) -> None:
    """Run a statement for what it does."""
    tx.run(statement, parameters).consume()


class GraphGone(GraphUnavailable):
    """The database has no graph any more: it was emptied since the store was opened."""


def read_identity(tx: neo4j.ManagedTransaction) -> Identity:
    tee_id, stands_in_for = read_row_of_graph(tx, cypher.IDENTITY)
    return Identity(tee_id, tuple(stands_in_for))


def read_row(tx: neo4j.ManagedTransaction, statement: str, **parameters: Any) -> Sequence[Any]:
    """The one row that a statement answers with."""
    return tx.run(statement, parameters).single(strict=True).values()


def read_row_of_graph(tx: neo4j.ManagedTransaction, statement: str, **parameters: Any) -> Sequence[Any]:
    record = tx.run(statement, parameters).single()
    if record is None:
        raise GraphGone("the database has no graph of Tee")
    return record.values()


def read_row_of_incident(
    tx: neo4j.ManagedTransaction, statement: str, incident_id: str, **parameters: Any
) -> Sequence[Any]:
    record = tx.run(statement, parameters, incident=shorten_key(incident_id)).single()
    if record is None:
        raise IncidentNotFound(incident_id)
    return record.values()


def read_known(tx: neo4j.ManagedTransaction, delta: Delta) -> tuple[dict[str, Node], dict[EdgeKey, Edge]]:
    """What of a delta is in the graph already: of its provenance only what the delta proposes."""
    pieces: list[bytes] = []
    for ids in split_rows([shorten_key(node_id) for node_id in {node.id: None for node in delta.nodes}]):
        pieces += read_row(tx, cypher.KNOWN_NODES, ids=ids)[0]
    for edges in split_rows([shorten_edge_key(key) for key in {edge.key: None for edge in delta.edges}]):
        pieces += read_row(tx, cypher.KNOWN_EDGES, edges=edges)[0]
    born_nodes, born_edges = decode(pieces)
    nodes, relations = {node.id: node for node in born_nodes}, {edge.key: edge for edge in born_edges}
    proposed = [(provenance_owner(node.id), node.provenance) for node in delta.nodes if node.id in nodes]
    proposed += [(provenance_owner(edge.key), edge.provenance) for edge in delta.edges if edge.key in relations]
    keys = [[owner, provenance_key(each)] for owner, said in proposed for each in said]
    later = {tuple(key) for batch in split_rows(keys) for key in read_row(tx, cypher.KNOWN_PROVENANCE, keys=batch)[0]}
    for node in delta.nodes:
        if node.id in nodes:
            known = nodes[node.id]
            said = merge_provenance(known.provenance, select_known(node.id, node.provenance, later))
            nodes[node.id] = msgspec.structs.replace(known, provenance=said)
    for edge in delta.edges:
        if edge.key in relations:
            said = relations[edge.key].provenance
            relations[edge.key] = Edge(edge.key, merge_provenance(said, select_known(edge.key, edge.provenance, later)))
    return nodes, relations


def select_known(
    thing: str | EdgeKey, proposed: Iterable[Provenance], later: Container[tuple[str, str]]
) -> list[Provenance]:
    owner = provenance_owner(thing)
    return [each for each in proposed if (owner, provenance_key(each)) in later]


def put_change(tx: neo4j.ManagedTransaction, change: Change, version: int) -> None:
    """Write a change; the lock of the graph is held."""
    run_statement(tx, cypher.GROW, version=version)
    by_type = sorted(change.created_nodes, key=lambda node: node.type)
    for kind, group in groupby(by_type, key=lambda node: node.type):
        rows = [
            [shorten_key(node.id), encode_node(node), node.label, node.hypothetical, list_sources(node.provenance)]
            for node in group
        ]
        for batch in split_rows(rows):
            run_statement(tx, cypher.CREATE_NODES % _LABELS[kind], rows=batch, version=version, type=kind.name)
    ends = {shorten_key(end): None for edge in change.created_edges for end in (edge.key.source, edge.key.target)}
    for ids in split_rows(list(ends)):
        run_statement(tx, cypher.PUT_ENDS, ids=ids)
    edges_by_type = sorted(change.created_edges, key=lambda edge: edge.key.type)
    for sort, edge_group in groupby(edges_by_type, key=lambda edge: edge.key.type):
        edge_rows = [
            [*shorten_edge_key(edge.key)[:2], encode_edge(edge), list_sources(edge.provenance)] for edge in edge_group
        ]
        for edge_batch in split_rows(edge_rows):
            run_statement(tx, cypher.CREATE_EDGES % sort.name, rows=edge_batch, version=version)
    add_to_known(tx, change, version)


def add_to_known(tx: neo4j.ManagedTransaction, change: Change, version: int) -> None:
    """Write what is new of things that were there."""
    certain = [node.id for node in change.added_to_nodes if not node.hypothetical]
    for ids in split_rows([shorten_key(node_id) for node_id in certain]):
        born, _ = decode(read_row(tx, cypher.KNOWN_NODES, ids=ids)[0])
        rows = [[shorten_key(node.id), encode_node(msgspec.structs.replace(node, hypothetical=False))] for node in born]
        run_statement(tx, cypher.MAKE_CERTAIN, rows=rows)
    said = [(_NODE, node.id, node.provenance) for node in change.added_to_nodes]
    add_provenance(tx, said, version)
    add_provenance(tx, [(_EDGE, edge.key, edge.provenance) for edge in change.added_to_edges], version)
    node_rows = [
        [shorten_key(node.id), list_sources(node.provenance)] for node in change.added_to_nodes if node.provenance
    ]
    for batch in split_rows(node_rows):
        run_statement(tx, cypher.ADD_NODE_SOURCES, rows=batch, most=MAX_SOURCES)
    by_type = sorted(change.added_to_edges, key=lambda edge: edge.key.type)
    for sort, group in groupby(by_type, key=lambda edge: edge.key.type):
        rows = [[*shorten_edge_key(edge.key)[:2], list_sources(edge.provenance)] for edge in group]
        for edge_batch in split_rows(rows):
            run_statement(tx, cypher.ADD_EDGE_SOURCES % sort.name, rows=edge_batch, most=MAX_SOURCES)


def add_provenance(
    tx: neo4j.ManagedTransaction, said: Sequence[tuple[str, str | EdgeKey, Sequence[Provenance]]], version: int
) -> None:
    rows: list[list[Any]] = []
    for kind, thing, provenance in said:
        for each in provenance:
            message = provenance_message(each)
            wire = (
                pb.Node(provenance=[message]) if kind == _NODE else pb.Edge(provenance=[message])
            ).SerializeToString()
            owner = provenance_owner(thing)
            rows.append([owner, provenance_key(each), each.source, each.trigger, *each.timestamp, wire, len(rows)])
    for batch in split_rows(rows):
        run_statement(tx, cypher.ADD_PROVENANCE, rows=batch, version=version, kind=said[0][0])


def list_sources(provenance: Iterable[Provenance]) -> list[str]:
    """The distinct sources, for people."""
    return list(dict.fromkeys(each.source for each in provenance))


def provenance_owner(thing: str | EdgeKey) -> str:
    """What provenance is of, as a key that no other thing has."""
    if isinstance(thing, EdgeKey):
        return shorten_key(f"{_EDGE}{edge_id(thing)}")
    return shorten_key(f"{_NODE}{thing}")


def provenance_key(provenance: Provenance) -> str:
    """What tells provenance of one thing apart: its length frames the source."""
    return shorten_key(f"{len(provenance.source)}:{provenance.source}:{provenance.trigger}")


def find_unknown_things(
    tx: neo4j.ManagedTransaction, universe: Universe | None, version: int
) -> tuple[str | EdgeKey, ...]:
    if universe is None or universe.kind is not UniverseKind.LISTED:
        return ()
    nodes: set[str] = set()
    for ids in split_rows([shorten_key(node_id) for node_id in universe.node_ids]):
        nodes.update(read_row(tx, cypher.BORN, ids=ids, version=version)[0])
    edges: set[tuple[str, str, str]] = set()
    for keys in split_rows([shorten_edge_key(key) for key in universe.edges]):
        edges.update(map(tuple, read_row(tx, cypher.BORN_EDGES, edges=keys, version=version)[0]))
    return find_unknown(
        universe, lambda node_id: shorten_key(node_id) in nodes, lambda key: shorten_edge_key(key) in edges
    )


def split_universe(universe: Universe) -> Iterator[bytes]:
    """A listed universe in messages that a property can hold."""
    for node_ids in batches(universe.node_ids, lambda each: len(each.encode()), max_bytes=_MAX_PART_BYTES):
        yield pb.Universe(node_ids=node_ids).SerializeToString()
    for entries in batches(map(edge_entry, universe.edges), pb.EdgeTombstoneEntry.ByteSize, max_bytes=_MAX_PART_BYTES):
        yield pb.Universe(edge_entries=entries).SerializeToString()


def read_incident(incident_id: str, seconds: int, nanos: int, anchor: int, universe: int | None) -> Incident:
    kind = None if universe is None else UniverseKind(universe)
    return Incident(incident_id, Timestamp(seconds, nanos), anchor, kind)


def put_tombstones(
    tx: neo4j.ManagedTransaction,
    statements: Sequence[str],
    incident_id: str,
    rows: list[Any],
    provenance: Provenance,
) -> None:
    """Write tombstones; the lock of the incident is held."""
    if not rows:
        return
    incident = shorten_key(incident_id)
    said = {"source": provenance.source, "trigger": provenance.trigger, **provenance.timestamp._asdict()}
    run_statement(tx, cypher.COUNT, incident=incident, new=len(rows))
    for batch in split_rows(rows):
        for statement in statements:
            run_statement(tx, statement, rows=batch, incident=incident, **said)


def read_view(tx: neo4j.ManagedTransaction, version: int, *, edges: bool = True) -> GraphView:
    """What was born up to a version. Collected: one value is read much faster than as many rows."""
    ids, nodes = read_row(tx, cypher.NODES, version=version)
    pieces = add_later_provenance(tx, _NODE, nodes, ids)
    if not edges:
        return GraphView(version, pieces, ())
    (relations,) = read_row(tx, cypher.RELATIONS, version=version)
    return GraphView(version, pieces, add_later_provenance(tx, _EDGE, relations))


def read_live_view(tx: neo4j.ManagedTransaction, anchor: int, incident: str) -> GraphView:
    """What an incident sees and has not ruled out.

    Dead edges are named by their bytes, which never change: that costs less than to ask Neo4j about every single edge.
    """
    (dead,) = read_row(tx, cypher.DEAD_NODES, incident=incident)
    ids, nodes = read_row(tx, cypher.NODES, version=anchor)
    if dead:
        gone = frozenset(dead)
        live = [place for place, node_id in enumerate(ids) if node_id not in gone]
        ids, nodes = [ids[place] for place in live], [nodes[place] for place in live]
    (relations,) = read_row(tx, cypher.RELATIONS, version=anchor)
    (beside,) = read_row(tx, cypher.DEAD_RELATIONS, incident=incident)
    (cut,) = read_row(tx, cypher.TOMBSTONED_RELATIONS, incident=incident)
    if dead_edges := frozenset(beside).union(cut):
        relations = [piece for piece in relations if piece not in dead_edges]
    return GraphView(anchor, add_later_provenance(tx, _NODE, nodes, ids), add_later_provenance(tx, _EDGE, relations))


def read_page(tx: neo4j.ManagedTransaction, version: int, token: str, size: int) -> GraphPage:
    """A page of what was born up to a version: nodes by key, then edges by the key of their source.

    A token is JSON: the key of the last node, or that of a source and how many of its edges came before.
    """
    place = read_token(token)
    ids: list[str] = []
    pieces: list[bytes] = []
    if isinstance(place, str):
        ids, pieces = read_row(tx, cypher.NODE_PAGE, after=place, version=version, limit=size)
        place = ids[-1] if len(ids) == size else ("", 0)
    following: str | tuple[str, int] | None = place
    if not isinstance(place, str):
        (source, skip), room = place, size - len(ids)
        # One more than there is room for tells whether others follow.
        sources, wires = read_row(tx, cypher.EDGE_PAGE, source=source, skip=skip, version=version, limit=room + 1)
        pieces += wires[:room]
        following = _find_place(sources[:room], source, skip) if len(sources) > room else None
    nodes, edges = decode(pieces)
    next_token = "" if following is None else msgspec.json.encode(following).decode()
    return GraphPage(tuple(nodes), tuple(edge.key for edge in edges), next_token)


def _find_place(sources: list[str], first: str, skipped: int) -> tuple[str, int]:
    """Where the edges behind these begin, which are in the order of their sources."""
    last = sources[-1]
    return last, sources.count(last) + (skipped if last == first else 0)


def read_token(token: str) -> str | tuple[str, int]:
    """The place that a token names: behind a node, or behind some edges of a source."""
    try:
        place: str | tuple[str, int] = msgspec.json.decode(token, type=str | tuple[str, int]) if token else ""
    except msgspec.DecodeError as exc:
        raise refuse_token() from exc
    if not isinstance(place, str) and not 0 <= place[1] <= _MAX_SKIP:
        raise refuse_token()
    return place


def add_later_provenance(
    tx: neo4j.ManagedTransaction, kind: str, pieces: list[bytes], keys: list[str] | None = None
) -> list[bytes]:
    """Things with what was said of them after their birth. `keys` are those of nodes, in the same order."""
    (later,) = read_row(tx, cypher.LATER_PROVENANCE, kind=kind)
    if not later:
        return pieces
    added: dict[str, list[bytes]] = {}
    for owner, wire in later:
        added.setdefault(owner, []).append(wire)
    whole = []
    for place, piece in enumerate(pieces):
        # The key of a node tells quickly whether anything was said of it; an edge has to be read.
        if keys is not None and len(keys[place]) < _MAX_OWNER_CHARS and f"{kind}{keys[place]}" not in added:
            whole.append(piece)
            continue
        nodes, edges = decode([piece])
        said = added.get(provenance_owner(nodes[0].id if nodes else edges[0].key), ())
        whole.append(extend_piece(piece, said) if said else piece)
    return whole


def extend_piece(piece: bytes, said: Sequence[bytes]) -> bytes:
    """A thing with provenance more behind what it was born with."""
    graph = pb.CausalGraph.FromString(piece)
    if graph.nodes:
        return frame_node(graph.nodes[0].SerializeToString() + b"".join(said))
    return frame_edge(graph.edges[0].SerializeToString() + b"".join(said))


_LABELS = {kind: kind.name.capitalize() for kind in NodeType}


def split_rows(rows: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(rows), _MAX_ROWS):
        yield rows[start : start + _MAX_ROWS]


def shorten_key(text: str) -> str:
    """What an id is looked up by: itself, or its beginning and a digest where it is too long for an index.

    The latter is longer than any id that stands for itself, so no two ids have one key.
    """
    if len(text) <= _MAX_KEY_CHARS:
        return text
    digest = hashlib.sha256(b"cmbs/1 id\0" + text.encode()).hexdigest()
    return f"{text[: _MAX_KEY_CHARS - len(digest)]}…{digest}"


def find_full_id(text: str) -> str | None:
    """The id itself where its key is another."""
    return text if len(text) > _MAX_KEY_CHARS else None


def shorten_edge_key(edge: EdgeKey) -> tuple[str, str, str]:
    return shorten_key(edge.source), shorten_key(edge.target), edge.type.name


def build_provenance(source: str, trigger: str, seconds: int, nanos: int) -> Provenance:
    return Provenance(source, trigger, Timestamp(seconds, nanos))
