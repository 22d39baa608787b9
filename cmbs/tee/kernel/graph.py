"""The main graph in memory: every node and edge as the bytes that the wire carries, in order of birth.

Births are monotone, so "as of version v" is a prefix; a live view is that prefix less a few places. Bytes are joined in
blocks, each once until something in it changes, so that a view costs little more than copying it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import compress

from cmbs.tee.kernel.lattice import NODE_TYPES, Delta, Edge, EdgeKey, Node, Provenance, merge_provenance
from cmbs.tee.kernel.merge import Change, decide_merge
from cmbs.tee.kernel.pages import parse_place
from cmbs.tee.kernel.store import GraphPage, GraphView, Incident, Tombstones, Universe
from cmbs.tee.kernel.wire import (
    decode,
    encode_edge_provenance,
    encode_node_provenance,
    frame_edge,
    frame_node,
    read_edge_key,
)
from cmbs.tee.proto import tee_pb2 as pb

# Few enough for a change to be cheap, enough for a view to be made of few pieces.
_BLOCK_ITEMS = 1024
# From so many on, the keys of a thing's provenance are cached.
_MANY_PROVENANCES = 8


class _Items:
    """Encoded things in order of birth. Only the content of a thing ever changes, never its place.

    A thing is the message that it was born with, and apart from it the provenance that came later: so what is added
    costs what it is, however much there is already.
    """

    __slots__ = ("_added", "_blocks", "_frame", "_joined", "_said")

    def __init__(self, frame: Callable[[bytes], bytes]) -> None:
        self._frame = frame
        self._blocks: list[list[bytes]] = []
        self._joined: list[bytes | None] = []
        # By place, only of things that something was added to: encoded provenance, in order of arrival.
        self._added: dict[int, list[bytes]] = {}
        # By place, only of things with much provenance: its keys.
        self._said: dict[int, set[tuple[str, str]]] = {}

    def append(self, body: bytes) -> None:
        if not self._blocks or len(self._blocks[-1]) == _BLOCK_ITEMS:
            self._blocks.append([])
            self._joined.append(None)
        self._blocks[-1].append(body)
        self._joined[-1] = None

    def add_provenance(self, place: int, encoded: bytes, keys: Iterable[tuple[str, str]]) -> None:
        self._added.setdefault(place, []).append(encoded)
        self._joined[place // _BLOCK_ITEMS] = None
        if place in self._said:
            self._said[place].update(keys)

    def body(self, place: int) -> bytes:
        """The message that the thing was born with."""
        return self._blocks[place // _BLOCK_ITEMS][place % _BLOCK_ITEMS]

    def replace(self, place: int, body: bytes) -> None:
        self._blocks[place // _BLOCK_ITEMS][place % _BLOCK_ITEMS] = body
        self._joined[place // _BLOCK_ITEMS] = None

    def whole(self, place: int) -> bytes:
        """The thing with all that was added, as a graph of its own."""
        return self._frame(self.body(place) + b"".join(self._added.get(place, ())))

    def provenance_keys(self, place: int, read: Callable[[bytes], Iterable[pb.Provenance]]) -> set[tuple[str, str]]:
        """The keys of all provenance of a thing; `read` takes it out of a message."""
        known = self._said.get(place)
        if known is None:
            message = self.body(place) + b"".join(self._added.get(place, ()))
            known = {(each.source, each.trigger) for each in read(message)}
            if len(known) > _MANY_PROVENANCES:
                self._said[place] = known
        return known

    def pieces(self, live: bytearray) -> list[bytes]:
        """What is live: `live` has a byte for each place of the prefix, 1 or 0."""
        found = []
        for number, start in enumerate(range(0, len(live), _BLOCK_ITEMS)):
            mask = live[start : start + _BLOCK_ITEMS]
            # A mask may be shorter than its block, where the prefix ends inside of it.
            if len(mask) == len(self._blocks[number]) and 0 not in mask:
                found.append(self._whole_block(number))
            elif piece := b"".join(map(self.whole, compress(range(start, start + len(mask)), mask))):
                found.append(piece)
        return found

    def _whole_block(self, number: int) -> bytes:
        joined = self._joined[number]
        if joined is None:
            start = number * _BLOCK_ITEMS
            joined = b"".join(map(self.whole, range(start, start + len(self._blocks[number]))))
            self._joined[number] = joined
        return joined


class Graph:
    """The main graph at its present version, with all earlier ones as prefixes. Not safe for threads by itself."""

    __slots__ = (
        "_edge_items",
        "_edge_keys",
        "_edge_places",
        "_edges_of",
        "_history",
        "_node_items",
        "_node_places",
        "version",
    )

    def __init__(self) -> None:
        self.version = 0
        self._node_places: dict[str, int] = {}
        self._edge_places: dict[EdgeKey, int] = {}
        # The same keys by place, for searches that go from edge to edge.
        self._edge_keys: list[EdgeKey] = []
        self._node_items = _Items(frame_node)
        self._edge_items = _Items(frame_edge)
        # Places of the edges at each end, whether or not that end is a node.
        self._edges_of: defaultdict[str, list[int]] = defaultdict(list)
        # (version, number of nodes, number of edges), in order.
        self._history: list[tuple[int, int, int]] = [(0, 0, 0)]

    def decide(self, delta: Delta) -> Change:
        """What merging a delta would do."""
        nodes: dict[str, Node] = {}
        edges: dict[EdgeKey, Edge] = {}
        for node in delta.nodes:
            place = self._node_places.get(node.id)
            if place is not None:
                keys = self._node_items.provenance_keys(place, _read_node_provenance)
                known = pb.Node.FromString(self._node_items.body(place))
                before = nodes[node.id].provenance if node.id in nodes else ()
                said = merge_provenance(before, _select_known(node.provenance, keys))
                kind, hypothetical = NODE_TYPES[known.type], known.hypothetical
                nodes[node.id] = Node(node.id, kind, known.label, hypothetical, said)
        for edge in delta.edges:
            place = self._edge_places.get(edge.key)
            if place is not None:
                keys = self._edge_items.provenance_keys(place, _read_edge_provenance)
                before = edges[edge.key].provenance if edge.key in edges else ()
                edges[edge.key] = Edge(edge.key, merge_provenance(before, _select_known(edge.provenance, keys)))
        return decide_merge(nodes, edges, delta)

    def absorb(self, version: int, nodes: bytes, edges: bytes) -> None:
        """Take in what a version changed, as `encode_change` writes it: new things, and what is new of known ones."""
        for node in pb.CausalGraph.FromString(nodes).nodes:
            place = self._node_places.get(node.id)
            if place is None:
                self._node_places[node.id] = len(self._node_places)
                self._node_items.append(node.SerializeToString())
            else:
                self._add_to_node(place, node)
        for edge in pb.CausalGraph.FromString(edges).edges:
            key = read_edge_key(edge)
            place = self._edge_places.get(key)
            if place is None:
                self._edge_places[key] = place = len(self._edge_places)
                self._edge_keys.append(key)
                self._edge_items.append(edge.SerializeToString())
                for end in key[:2]:
                    self._edges_of[end].append(place)
            else:
                self._edge_items.add_provenance(place, encode_edge_provenance(edge), _keys_of(edge.provenance))
        self.version = version
        self._history.append((version, len(self._node_places), len(self._edge_places)))

    def _add_to_node(self, place: int, addition: pb.Node) -> None:
        if addition.provenance:
            encoded = encode_node_provenance(addition)
            self._node_items.add_provenance(place, encoded, _keys_of(addition.provenance))
        if not addition.hypothetical:
            node = pb.Node.FromString(self._node_items.body(place))
            node.hypothetical = False
            self._node_items.replace(place, node.SerializeToString())

    def has_node(self, version: int) -> Callable[[str], bool]:
        """Membership of nodes as of a version."""
        places, stop = self._node_places, self._sizes(version)[0]
        return lambda node_id: places.get(node_id, stop) < stop

    def has_edge(self, version: int) -> Callable[[EdgeKey], bool]:
        """Membership of edges as of a version."""
        places, stop = self._edge_places, self._sizes(version)[1]
        return lambda key: places.get(key, stop) < stop

    def nodes_at(self, version: int, node_ids: Iterable[str]) -> list[Node]:
        """Those of the nodes that were born up to a version, with their newest content."""
        has_node = self.has_node(version)
        places = [self._node_places[node_id] for node_id in dict.fromkeys(node_ids) if has_node(node_id)]
        nodes, _ = decode(map(self._node_items.whole, places))
        return nodes

    def edges_at(self, version: int, node_ids: Sequence[str]) -> list[EdgeKey]:
        """The edges, born up to a version, that have one of these nodes at either end; each once."""
        stop = self._sizes(version)[1]
        places = {place for node_id in node_ids for place in self._edges_of.get(node_id, ()) if place < stop}
        return [self._edge_keys[place] for place in places]

    def page_at(self, version: int, token: str, size: int) -> GraphPage:
        """A page of what was born up to a version: nodes, then edges, in order of birth."""
        n_nodes, n_edges = self._sizes(version)
        start = parse_place(token)
        stop = start + size
        nodes, _ = decode(map(self._node_items.whole, range(start, min(stop, n_nodes))))
        edges = self._edge_keys[max(start - n_nodes, 0) : min(max(stop - n_nodes, 0), n_edges)]
        return GraphPage(tuple(nodes), tuple(edges), str(stop) if stop < n_nodes + n_edges else "")

    def view(self, version: int, dead_nodes: Iterable[str] = (), dead_edges: Iterable[EdgeKey] = ()) -> GraphView:
        """The graph as of a version less dead nodes, dead edges and the edges of dead nodes."""
        n_nodes, n_edges = self._sizes(version)
        live_nodes, live_edges = bytearray(b"\1") * n_nodes, bytearray(b"\1") * n_edges
        for node_id in dead_nodes:
            place = self._node_places.get(node_id, n_nodes)
            if place < n_nodes:
                live_nodes[place] = 0
            for edge_place in self._edges_of.get(node_id, ()):
                if edge_place >= n_edges:
                    break  # they are in order of birth
                live_edges[edge_place] = 0
        for key in dead_edges:
            place = self._edge_places.get(key, n_edges)
            if place < n_edges:
                live_edges[place] = 0
        return GraphView(version, self._node_items.pieces(live_nodes), self._edge_items.pieces(live_edges))

    def _sizes(self, version: int) -> tuple[int, int]:
        _, nodes, edges = self._history[bisect_right(self._history, version, key=lambda entry: entry[0]) - 1]
        return nodes, edges


def _keys_of(provenance: Iterable[pb.Provenance]) -> list[tuple[str, str]]:
    return [(each.source, each.trigger) for each in provenance]


def _select_known(proposed: Iterable[Provenance], keys: Container[tuple[str, str]]) -> list[Provenance]:
    """What of the proposed provenance is there already; its first timestamp is kept apart and does not matter here."""
    return [each for each in proposed if (each.source, each.trigger) in keys]


def _read_node_provenance(message: bytes) -> Iterable[pb.Provenance]:
    return pb.Node.FromString(message).provenance


def _read_edge_provenance(message: bytes) -> Iterable[pb.Provenance]:
    return pb.Edge.FromString(message).provenance


class IncidentState:
    """An incident and its tombstones, which only become more."""

    def __init__(self, incident: Incident, universe: Universe | None = None) -> None:
        self.incident = incident
        self.universe = universe
        self.nodes: dict[str, Provenance] = {}
        self.edges: dict[EdgeKey, Provenance] = {}

    @property
    def count(self) -> int:
        """How many tombstones there are, nodes and edges together."""
        return len(self.nodes) + len(self.edges)

    def tombstones(self) -> Tombstones:
        """A copy that stays as it is."""
        return Tombstones(dict(self.nodes), dict(self.edges))
