"""A plain model of the causal graph, slow and easy to believe, that real stores are compared with."""

from __future__ import annotations

import random

from cmbs.tee import (
    Delta,
    Edge,
    EdgeKey,
    EdgeTombstones,
    EdgeType,
    GraphStore,
    Node,
    NodeTombstones,
    NodeType,
    Provenance,
    Timestamp,
)
from cmbs.tee.kernel.lattice import merge_edges, merge_nodes

_NODES = "abcdefgh"
_INCIDENTS = "ijk"


def random_delta(chance: random.Random) -> Delta:
    """A delta that often repeats, confirms or contradicts another one."""
    nodes = [
        Node(
            chance.choice(_NODES),
            chance.choice(list(NodeType)),
            chance.choice(["one", "two"]),
            chance.random() < 0.8,
            (_provenance(chance),),
        )
        for _ in range(chance.randrange(4))
    ]
    edges = [
        Edge(_key(chance, chance.choice(list(EdgeType))), (_provenance(chance),)) for _ in range(chance.randrange(4))
    ]
    return Delta(tuple(nodes), tuple(edges))


def _key(chance: random.Random, kind: EdgeType) -> EdgeKey:
    source, target = chance.sample(_NODES, 2)
    return EdgeKey(source, target, kind)


def _provenance(chance: random.Random) -> Provenance:
    return Provenance(chance.choice("st"), chance.choice("uv"), Timestamp(chance.randrange(100), 0))


class GraphModel:
    """What a store should hold: births, newest content, anchors and tombstones in plain dictionaries."""

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[int, Node]] = {}
        self._edges: dict[EdgeKey, tuple[int, Edge]] = {}
        self.anchors: dict[str, int] = {}
        self._dead: dict[str, set[str | EdgeKey]] = {}

    def step(self, store: GraphStore, chance: random.Random) -> None:
        """Do something at random to the store, and the same here."""
        incident_id = chance.choice(_INCIDENTS)
        now, said = Timestamp(0, 0), _provenance(chance)
        choice = chance.randrange(4) if incident_id in self.anchors else chance.randrange(2)
        if choice == 0:
            anchor = store.create_incident(incident_id, now).incident.anchor
            assert self.anchors.setdefault(incident_id, anchor) == anchor
            self._dead.setdefault(incident_id, set())
        elif choice == 1:
            delta = random_delta(chance)
            self._merge(delta, store.merge(delta).version)
        elif choice == 2:
            ids = chance.sample(_NODES, chance.randrange(1, 4))
            result = store.merge_node_tombstones(incident_id, ids, said)
            present = {each for each, (born, _) in self._nodes.items() if born <= self.anchors[incident_id]}
            self._tombstone(incident_id, ids, present, result)
        else:
            keys = [_key(chance, EdgeType.DEPENDS_ON) for _ in range(2)]
            cut = store.merge_edge_tombstones(incident_id, keys, said)
            there = {each for each, (born, _) in self._edges.items() if born <= self.anchors[incident_id]}
            self._tombstone(incident_id, keys, there, cut)

    def _merge(self, delta: Delta, version: int) -> None:
        for node in delta.nodes:
            born, known = self._nodes.get(node.id, (version, node))
            self._nodes[node.id] = (born, merge_nodes(known, node))
        for edge in delta.edges:
            edge_born, known_edge = self._edges.get(edge.key, (version, edge))
            self._edges[edge.key] = (edge_born, merge_edges(known_edge, edge))

    def _tombstone(
        self,
        incident_id: str,
        asked: list[str] | list[EdgeKey],
        present: set[str] | set[EdgeKey],
        result: NodeTombstones | EdgeTombstones,
    ) -> None:
        dead = self._dead[incident_id]
        applied, already, unmatched = set(result.applied), set(result.already), set(result.unmatched)
        assert applied == {each for each in asked if each in present and each not in dead}
        assert already == {each for each in asked if each in present and each in dead}
        assert unmatched == {each for each in asked if each not in present}
        dead.update(asked)
        assert result.total == len(dead)

    def live(self, incident_id: str) -> tuple[set[str], set[EdgeKey]]:
        """What an incident should see."""
        anchor, dead = self.anchors[incident_id], self._dead[incident_id]
        nodes = {each for each, (born, _) in self._nodes.items() if born <= anchor and each not in dead}
        edges = {
            each
            for each, (born, _) in self._edges.items()
            if born <= anchor and not {each, each.source, each.target} & dead
        }
        return nodes, edges

    def list_born(self, version: int) -> tuple[set[str], set[EdgeKey]]:
        """What the main graph had at a version."""
        nodes = {each for each, (born, _) in self._nodes.items() if born <= version}
        return nodes, {each for each, (born, _) in self._edges.items() if born <= version}

    def nodes_now(self) -> dict[str, Node]:
        """The nodes of the main graph."""
        return {node_id: node for node_id, (_, node) in self._nodes.items()}

    def edges_now(self) -> dict[EdgeKey, Edge]:
        """The edges of the main graph."""
        return {edge_key: edge for edge_key, (_, edge) in self._edges.items()}
