"""A graph that grows while incidents are declared, viewed and explained: what growth costs, on SQLite and on Neo4j.

Growth is twenty merges a second, each of a new node and an edge to it, over a channel of its own. Neo4j is started and
filled, which takes minutes; `CMBS_BENCH_NEO4J_URL` names an empty one to use instead.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.harness import Effort, Result, at_most, interleaved, microseconds
from bench.servers import START_SECONDS, disk_directory, tee_serve
from bench.tee_graphs import EDGES, NODES, NOW, SAID, deltas, node_ids, tombstone_ids
from bench.tee_neo4j import neo4j_serve
from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle
from cmbs.stores import open_store, open_tee
from cmbs.tee import Delta, GraphStore, Node, NodeType, Provenance, UniverseKind
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.service import TeeService
from cmbs.tee.stores import open_graph_store
from cmbs.tee.stores.sqlite import SQLiteGraphStore
from scripts.neo4j_server import Neo4jMissing

NAME, NEO4J_NAME = "tee_growth", "tee_growth_neo4j"
MERGES_PER_SECOND = 20
FORMER_MERGES = 10_000
MERGES_PER_ROUND = 20
SYMPTOMS = 4
INCIDENT = "explained"
FROM_THE_GRAPH = OntologyBundle("bench-space", "v1", "tee://bench", "")
# What Neo4j takes in one transaction, on a machine with other work too.
_NEO4J_BATCH = 10_000
_PROVENANCE_PER_MERGE = 1_000
_number = count()


def run(effort: Effort) -> list[Result]:
    """The graph in SQLite."""
    rounds = min(effort.rounds, 5)
    with disk_directory() as directory:
        place = f"{directory}/tee.db"
        with closing(SQLiteGraphStore(place)) as store:
            _fill(store, 50_000)
            results = [_merge_again(store, "SQLite", rounds), _explain(store, "SQLite", rounds)]
        return [*results, _declare(f"sqlite:///{place}", Path(directory), "SQLite", rounds)]


def run_on_neo4j(effort: Effort) -> list[Result]:
    """The graph in Neo4j, where there is one."""
    rounds = min(effort.rounds, 5)
    try:
        with neo4j_serve() as url, closing(open_graph_store(url)) as store, disk_directory() as directory:
            _fill(store, _NEO4J_BATCH)
            results = [_merge_again(store, "Neo4j", rounds), _explain(store, "Neo4j", rounds)]
            with tee_serve(url) as port:
                results.append(_live_view(store, port, rounds))
            return [*results, _declare(url, Path(directory), "Neo4j", rounds)]
    except Neo4jMissing as exc:
        print(f"  not measured: {exc}", file=sys.stderr)
        return []


def _fill(store: GraphStore, batch: int) -> None:
    for delta in deltas(batch):
        store.merge(delta)
    store.create_incident(INCIDENT, NOW)
    store.merge_node_tombstones(INCIDENT, tombstone_ids(), SAID)


# --- growth -----------------------------------------------------------------------------------------------------------


@contextmanager
def _growing(port: int) -> Iterator[None]:
    """Twenty merges a second for as long as the block lasts, by another process; tells where they were far fewer."""
    spawning = get_context("spawn")
    over, begun, merged = spawning.Event(), spawning.Event(), spawning.Value("i", 0)
    grower = spawning.Process(target=_grow, args=(port, over, begun, merged), daemon=True)
    grower.start()
    try:
        if not begun.wait(START_SECONDS):
            raise AssertionError("the graph does not grow")
        before, start = merged.value, time.perf_counter()
        yield
        grown, seconds = merged.value - before, time.perf_counter() - start
    finally:
        over.set()
        grower.join()
    if grown < (seconds - 1) * MERGES_PER_SECOND / 2:
        print(f"  the machine was too busy: {grown} merges in {seconds:.1f} s", file=sys.stderr)


def _grow(port: int, over: Any, begun: Any, merged: Any) -> None:
    with open_channel(f"127.0.0.1:{port}") as channel:
        call = stub_on(channel).MergeHypothesis
        due = time.perf_counter()
        while not over.wait(max(due - time.perf_counter(), 0)):
            due += 1 / MERGES_PER_SECOND
            call(_newborn(), timeout=60)
            merged.value += 1
            begun.set()


def _newborn() -> pb.HypothesisDelta:
    name, said = f"new-{secrets.token_hex(6)}", pb.Provenance(source="agent://growth", trigger="scan")
    node = pb.Node(id=name, type=pb.NODE_TYPE_SERVICE, label=name, hypothetical=True, provenance=[said])
    edge = pb.Edge(source=node_ids(1)[0], target=name, type=pb.EDGE_TYPE_DEPENDS_ON, provenance=[said])
    return pb.HypothesisDelta(nodes=[node], edges=[edge])


def _against_quiet(measure: Callable[[], float], port: int, rounds: int) -> dict[str, float]:
    def measure_growing() -> float:
        with _growing(port):
            return measure()

    # Once before it counts: plans are made and pages are read.
    measure()
    return interleaved({"growing": measure_growing, "quiet": measure}, rounds)


def _declare(url: str, directory: Path, where: str, rounds: int) -> Result:
    """A declaration over the whole graph, through a belief server; nothing is listed for it in Tee."""
    with ExitStack() as stack:
        port = stack.enter_context(tee_serve(url))
        tee = open_tee(f"127.0.0.1:{port}", timeout_seconds=60)
        log = open_store(f"sqlite:///{directory}/{where}.db")
        server = stack.enter_context(
            closing(BeliefServer(store=tee, audit_log=log, store_timeout_seconds=60, checks_in_background=False))
        )
        stub = stub_on(stack.enter_context(open_channel(f"127.0.0.1:{port}")))

        def declare() -> float:
            start = time.perf_counter()
            session_id, snapshot = server.declare_session(FROM_THE_GRAPH)
            seconds = time.perf_counter() - start
            found = stub.GetIncidentContext(pb.IncidentContextRequest(incident_id=session_id))
            if found.universe != int(UniverseKind.NODES) or found.tombstones.ByteSize():
                raise AssertionError("the universe was written as a list")
            if snapshot.n_survivors < NODES:
                raise AssertionError("the session is not over the whole graph")
            return seconds

        times = _against_quiet(declare, port, rounds)
    return Result(
        NEO4J_NAME if where == "Neo4j" else NAME,
        f"DECLARE over {NODES:,} nodes in Tee on {where}, {MERGES_PER_SECOND} merges a second: "
        f"{microseconds(times['growing'])}",
        f"the same while nothing is merged: {microseconds(times['quiet'])}",
        times["growing"] / times["quiet"],
        at_most(1.5),
    )


def _live_view(store: GraphStore, port: int, rounds: int) -> Result:
    times = _against_quiet(lambda: _seconds(lambda: store.live_view(INCIDENT)), port, rounds)
    return Result(
        NEO4J_NAME,
        f"live view of {NODES:,} nodes and {EDGES:,} edges in Neo4j, {MERGES_PER_SECOND} merges a second: "
        f"{microseconds(times['growing'])}",
        f"the same while nothing is merged: {microseconds(times['quiet'])}",
        times["growing"] / times["quiet"],
        at_most(1.5),
    )


# --- the same again ---------------------------------------------------------------------------------------------------


def _merge_again(store: GraphStore, where: str, rounds: int) -> Result:
    """A merge of a node that was merged ten thousand times, against one that was merged once."""
    old, young = f"merged often in {where}", f"merged once in {where}"
    # Born as nodes are, with one provenance. The others come by the thousand, which saves an hour.
    store.merge(Delta((_node(old, ["first scan"]),)))
    for start in range(0, FORMER_MERGES, _PROVENANCE_PER_MERGE):
        store.merge(Delta((_node(old, [f"scan {start + each}" for each in range(_PROVENANCE_PER_MERGE)]),)))
    store.merge(Delta((_node(young, ["scan"]),)))

    def merge(name: str) -> float:
        return _seconds(
            lambda: [store.merge(Delta((_node(name, [f"later {next(_number)}"]),))) for _ in range(MERGES_PER_ROUND)]
        )

    def merge_young() -> float:
        # Another one each time, so that it stays young.
        name = f"{young} {next(_number)}"
        store.merge(Delta((_node(name, ["scan"]),)))
        return merge(name)

    times = interleaved({"old": lambda: merge(old), "young": merge_young}, rounds)
    return Result(
        NEO4J_NAME if where == "Neo4j" else NAME,
        f"a merge of a node with {FORMER_MERGES:,} provenances on {where}: "
        f"{microseconds(times['old'] / MERGES_PER_ROUND)}",
        f"of a node with one: {microseconds(times['young'] / MERGES_PER_ROUND)}",
        times["old"] / times["young"],
        at_most(1.5),
    )


def _node(name: str, sources: list[str]) -> Node:
    return Node(name, NodeType.SERVICE, name, True, tuple(Provenance(each, "scan", NOW) for each in sources))


# --- searches ---------------------------------------------------------------------------------------------------------


def _explain(store: GraphStore, where: str, rounds: int) -> Result:
    service = TeeService(store)
    ids = node_ids()
    # Not among the tombstones, which are every hundredth.
    request = pb.ExplainRequest(
        incident_id=INCIDENT, symptoms=[ids[NODES // SYMPTOMS * n + 1] for n in range(SYMPTOMS)]
    )
    found = service.explain(request)
    times = interleaved(
        {
            "explain": lambda: _seconds(lambda: service.explain(request)),
            "view": lambda: _seconds(lambda: list(service.stream_live_view(pb.LiveViewRequest(incident_id=INCIDENT)))),
        },
        rounds,
    )
    return Result(
        NEO4J_NAME if where == "Neo4j" else NAME,
        f"explain {SYMPTOMS} symptoms by {found.total:,} of {NODES:,} nodes and {EDGES:,} edges on {where}: "
        f"{microseconds(times['explain'])}",
        f"one live view of the same incident: {microseconds(times['view'])}",
        times["explain"] / times["view"],
        at_most(1),
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = work()
    seconds = time.perf_counter() - start
    del kept
    return seconds
