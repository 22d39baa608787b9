"""A process that writes to a graph at a word from its parent: `python -m tests.support.neo4j_writer URL NAME`.

It says `ready`, waits for a line, merges what every such process merges, and prints what the store made of it.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from itertools import pairwise

from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, Timestamp, edge_id
from cmbs.tee.stores.neo4j import Neo4jGraphStore

ROUNDS = 12
SIZE = 20


def main(url: str, name: str) -> None:
    """Grow one graph and eliminate from one incident, as the others do."""
    said = Provenance(name, "race", Timestamp(0, 0))
    found: dict[str, list[str]] = {"created": [], "applied": [], "incidents": []}
    with closing(Neo4jGraphStore(url)) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        for number in range(ROUNDS):
            ids = [f"{number}.{each}" for each in range(SIZE)]
            keys = [EdgeKey(*ends, EdgeType.DEPENDS_ON) for ends in pairwise(ids)]
            nodes = tuple(Node(each, NodeType.SERVICE, "label", hypothetical=True, provenance=(said,)) for each in ids)
            merged = store.merge(Delta(nodes, tuple(Edge(key, (said,)) for key in keys)))
            found["created"] += [*merged.created_nodes, *map(edge_id, merged.created_edges)]
            if store.create_incident(f"i{number}", Timestamp(0, 0)).created:
                found["incidents"].append(f"i{number}")
            found["applied"] += store.merge_node_tombstones(f"i{number}", ids, said).applied
            found["applied"] += map(edge_id, store.merge_edge_tombstones(f"i{number}", keys, said).applied)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
