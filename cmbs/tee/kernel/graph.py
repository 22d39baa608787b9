"""The main graph in memory: every node and edge as the bytes that the wire carries, in order of birth.

Births are monotone, so "as of version v" is a prefix; a live view is that prefix less a few places. Bytes are joined in
blocks, each once until something in it changes, so that a view costs little more than copying it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import compress

from cmbs.tee.kernel.lattice import Delta, EdgeKey, Provenance
from cmbs.tee.kernel.merge import Change, decide_merge
from cmbs.tee.kernel.store import GraphView, Incident, Tombstones
from cmbs.tee.kernel.wire import decode, edge_key_of, encode_edge, encode_node, extend_edge, extend_node
from cmbs.tee.proto import tee_pb2 as pb

# Few enough for a change to be cheap, enough for a view to be made of few pieces.
_BLOCK_ITEMS = 1024


class _Items:
    """Encoded things in order of birth. Only the content of a thing ever changes, never its place."""

    __slots__ = ("_blocks", "_joined")

    def __init__(self) -> None:
        self._blocks: list[list[bytes]] = []
        self._joined: list[bytes | None] = []

    def append(self, item: bytes) -> None:
        if not self._blocks or len(self._blocks[-1]) == _BLOCK_ITEMS:
            self._blocks.append([])
            self._joined.append(None)
        self._blocks[-1].append(item)
        self._joined[-1] = None

    def __getitem__(self, place: int) -> bytes:
        return self._blocks[place // _BLOCK_ITEMS][place % _BLOCK_ITEMS]

    def __setitem__(self, place: int, item: bytes) -> None:
        self._blocks[place // _BLOCK_ITEMS][place % _BLOCK_ITEMS] = item
        self._joined[place // _BLOCK_ITEMS] = None

    def pieces(self, live: bytearray) -> list[bytes]:
        """What is live: `live` has a byte for each place of the prefix, 1 or 0."""
        found = []
        for number, start in enumerate(range(0, len(live), _BLOCK_ITEMS)):
            items = self._blocks[number]
            mask = live[start : start + _BLOCK_ITEMS]
            # A mask may be shorter than its block, where the prefix ends inside of it.
            if len(mask) == len(items) and 0 not in mask:
                found.append(self._whole(number))
            elif piece := b"".join(compress(items, mask)):
                found.append(piece)
        return found

    def _whole(self, number: int) -> bytes:
        joined = self._joined[number]
        if joined is None:
            joined = self._joined[number] = b"".join(self._blocks[number])
        return joined


class Graph:
    """The main graph at its present version, with all earlier ones as prefixes. Not safe for threads by itself."""

    __slots__ = ("_edge_items", "_edge_places", "_edges_of", "_history", "_node_items", "_node_places", "version")

    def __init__(self) -> None:
        self.version = 0
        self._node_places: dict[str, int] = {}
        self._edge_places: dict[EdgeKey, int] = {}
        self._node_items = _Items()
        self._edge_items = _Items()
        # Places of the edges at each end, whether or not that end is a node.
        self._edges_of: dict[str, list[int]] = {}
        # (version, number of nodes, number of edges), in order.
        self._history: list[tuple[int, int, int]] = [(0, 0, 0)]

    def decide(self, delta: Delta) -> Change:
        """What merging a delta would do."""
        known_nodes = {node.id for node in delta.nodes if node.id in self._node_places}
        known_edges = {edge.key for edge in delta.edges if edge.key in self._edge_places}
        nodes, _ = decode([self._node_items[self._node_places[node_id]] for node_id in known_nodes])
        _, edges = decode([self._edge_items[self._edge_places[key]] for key in known_edges])
        return decide_merge({node.id: node for node in nodes}, {edge.key: edge for edge in edges}, delta)

    def absorb(self, version: int, nodes: bytes, edges: bytes) -> None:
        """Take in what a version changed, as `encode_change` writes it: new things, and what is new of known ones."""
        for node in pb.CausalGraph.FromString(nodes).nodes:
            place = self._node_places.get(node.id)
            if place is None:
                self._node_places[node.id] = len(self._node_places)
                self._node_items.append(encode_node(node))
            else:
                self._node_items[place] = extend_node(self._node_items[place], node)
        for edge in pb.CausalGraph.FromString(edges).edges:
            key = edge_key_of(edge)
            place = self._edge_places.get(key)
            if place is None:
                self._edge_places[key] = place = len(self._edge_places)
                self._edge_items.append(encode_edge(edge))
                for end in (key.source, key.target):
                    self._edges_of.setdefault(end, []).append(place)
            else:
                self._edge_items[place] = extend_edge(self._edge_items[place], edge)
        self.version = version
        self._history.append((version, len(self._node_places), len(self._edge_places)))

    def has_node(self, version: int) -> Callable[[str], bool]:
        """Membership of nodes as of a version."""
        places, stop = self._node_places, self._sizes(version)[0]
        return lambda node_id: places.get(node_id, stop) < stop

    def has_edge(self, version: int) -> Callable[[EdgeKey], bool]:
        """Membership of edges as of a version."""
        places, stop = self._edge_places, self._sizes(version)[1]
        return lambda key: places.get(key, stop) < stop

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


class IncidentState:
    """An incident and its tombstones, which only become more."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.nodes: dict[str, Provenance] = {}
        self.edges: dict[EdgeKey, Provenance] = {}

    def tombstones(self) -> Tombstones:
        """A copy that stays as it is."""
        return Tombstones(dict(self.nodes), dict(self.edges))
