"""The graph in Neo4j: a live view against the fastest bare query, tombstones together against one by one.

A server of its own is started and filled, which takes a minute or two; `CMBS_BENCH_NEO4J_URL` names an empty one to
use instead.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count

from bench.harness import Effort, Result, at_least, at_most, interleaved, microseconds, shown
from bench.tee_graphs import NOW, SAID, deltas, node_ids, tombstone_ids
from cmbs.tee import GraphView
from cmbs.tee.stores.neo4j import Neo4jGraphStore
from scripts.neo4j_server import Neo4jMissing, temporary_server

NAME = "tee_neo4j"
MERGED_TOGETHER = 10_000
MERGED_ALONE = 100

INCIDENT = "incident"
RELATIONS = "DEPENDS_ON|PROPAGATES_TO|MANIFESTS_AS"

# The view in Cypher alone: everything that was born up to the anchor and is not dead. Of the ways
# that were tried, these are the fastest: nodes are compared rather than ids, or dead relations are found by walking.
BARE_NODES = """
MATCH (i:TeeIncident {id: $incident}) MATCH (t:TeeTombstone {incident: $incident}) WHERE t.id IS NOT NULL
MATCH (d:TeeNode {id: t.id}) WITH i.anchor AS anchor, collect(d) AS dead
MATCH (n:TeeNode) WHERE n.born <= anchor AND NOT n IN dead RETURN collect(n.wire)
"""
BARE_EDGES = {
    "by its ends": f"""
MATCH (i:TeeIncident {{id: $incident}}) MATCH (t:TeeTombstone {{incident: $incident}}) WHERE t.id IS NOT NULL
MATCH (d:TeeNode {{id: t.id}}) WITH i.anchor AS anchor, collect(d) AS dead
MATCH (n:TeeNode) WHERE NOT n IN dead
MATCH (n)-[r:{RELATIONS}]->(m) WHERE r.born <= anchor AND NOT m IN dead RETURN collect(r.wire)
""",
    "by what is dead": f"""
MATCH (i:TeeIncident {{id: $incident}}) MATCH (t:TeeTombstone {{incident: $incident}}) WHERE t.id IS NOT NULL
MATCH (:TeeNode {{id: t.id}})-[d:{RELATIONS}]-() WITH i.anchor AS anchor, collect(d) AS dead
MATCH ()-[r:{RELATIONS}]->() WHERE r.born <= anchor AND NOT r IN dead RETURN collect(r.wire)
""",
}

_number = count()


def run(effort: Effort) -> list[Result]:
    """Fill a graph, view it, and eliminate from it."""
    try:
        with neo4j_serve() as url, closing(Neo4jGraphStore(url)) as store:
            # In smaller batches, for a machine that has other work too: a transaction may take two minutes.
            for delta in deltas(10_000):
                store.merge(delta)
            return [_live_view(store, min(effort.rounds, 5)), _tombstones(store)]
    except Neo4jMissing as exc:
        print(f"  not measured: {exc}", file=sys.stderr)
        return []


@contextmanager
def neo4j_serve() -> Iterator[str]:
    """The URL of an empty database."""
    given = os.environ.get("CMBS_BENCH_NEO4J_URL")
    if given:
        yield given
        return
    with temporary_server() as server:
        yield server.url


def _live_view(store: Neo4jGraphStore, rounds: int) -> Result:
    store.create_incident(INCIDENT, NOW)
    store.merge_node_tombstones(INCIDENT, tombstone_ids(), SAID)
    subjects: dict[str, Callable[[], GraphView]] = {"store": lambda: store.live_view(INCIDENT)}
    for name, edges in BARE_EDGES.items():
        subjects[name] = lambda edges=edges: _bare(store, edges)  # type: ignore[misc]
    # Once before it counts: plans are made, pages are read, and all have to say the same.
    views = [subject() for subject in subjects.values()]
    for view in views:
        if (set(view.nodes), set(view.edges)) != (set(views[0].nodes), set(views[0].edges)):
            raise AssertionError("the bare query and the store do not answer the same")
    size = f"{shown(len(views[0].nodes))} nodes and {shown(len(views[0].edges))} edges"
    del views
    times = interleaved({name: _timer(subject) for name, subject in subjects.items()}, rounds)
    fastest = min(BARE_EDGES, key=lambda name: times[name])
    return Result(
        NAME,
        f"live view of {size} in Neo4j: {microseconds(times['store'])}",
        f"the fastest bare Cypher ({fastest}): {microseconds(times[fastest])}",
        times["store"] / times[fastest],
        at_most(2),
    )


def _bare(store: Neo4jGraphStore, edges: str) -> GraphView:
    """The same view by Cypher alone."""
    with store._driver.session(database=store._database, fetch_size=-1) as session:
        (live_nodes,) = session.run(BARE_NODES, incident=INCIDENT).single(strict=True).values()
        (live_edges,) = session.run(edges, incident=INCIDENT).single(strict=True).values()
    return GraphView(0, live_nodes, live_edges)


def _timer(subject: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        start = time.perf_counter()
        subject()
        return time.perf_counter() - start

    return measure


def _tombstones(store: Neo4jGraphStore) -> Result:
    """Seconds for each id: many in one call, against a transaction for each."""
    ids = node_ids(MERGED_TOGETHER)

    def each(groups: list[list[str]]) -> float:
        incident_id = f"tombstones-{next(_number)}"
        store.create_incident(incident_id, NOW)
        start = time.perf_counter()
        for group in groups:
            if len(store.merge_node_tombstones(incident_id, group, SAID).applied) != len(group):
                raise AssertionError("not all were applied")
        return (time.perf_counter() - start) / sum(map(len, groups))

    alone = [[node_id] for node_id in ids[:MERGED_ALONE]]
    times = interleaved({"together": lambda: each([ids]), "alone": lambda: each(alone)}, rounds=3)
    return Result(
        NAME,
        f"{shown(MERGED_TOGETHER)} tombstones in one call to Neo4j: {microseconds(times['together'])} each",
        f"a transaction for each id: {microseconds(times['alone'])} each",
        times["alone"] / times["together"],
        at_least(20),
    )
