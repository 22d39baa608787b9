"""The causal graph that the benchmarks of Tee run on."""

from __future__ import annotations

import random
from collections.abc import Iterator

from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, Timestamp

NODES, EDGES, TOMBSTONES = 100_000, 400_000, 1_000
NOW = Timestamp(1_790_000_000, 0)
SAID = Provenance("agent://bench", "scan", NOW)
MAX_BATCH = 50_000


def node_ids(count: int = NODES) -> list[str]:
    """Ids of twelve characters."""
    return [f"svc-{number:08d}" for number in range(count)]


def tombstone_ids() -> list[str]:
    """Every hundredth node."""
    return node_ids()[:: NODES // TOMBSTONES]


def deltas(batch_size: int = MAX_BATCH) -> Iterator[Delta]:
    """The graph in batches; the same every time."""
    ids = node_ids()
    for start in range(0, NODES, batch_size):
        batch = ids[start : start + batch_size]
        yield Delta(tuple(Node(each, NodeType.SERVICE, f"service {each}", True, (SAID,)) for each in batch))
    chance = random.Random(7)
    keys: dict[EdgeKey, None] = {}
    while len(keys) < EDGES:
        source, target = chance.randrange(NODES), chance.randrange(NODES)
        if source != target:
            keys[EdgeKey(ids[source], ids[target], EdgeType.DEPENDS_ON)] = None
    listed = list(keys)
    for start in range(0, EDGES, batch_size):
        yield Delta((), tuple(Edge(key, (SAID,)) for key in listed[start : start + batch_size]))
