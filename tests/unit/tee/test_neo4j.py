"""The graph store in a real Neo4j: the whole contract, and what is particular to it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import neo4j
import pytest

import cmbs.tee.stores.neo4j as driver
from cmbs.errors import GraphUnavailable, InvalidGraph
from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, edge_id
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores.neo4j import Neo4jGraphStore
from cmbs.testing.contracts.graph_store import (
    NOW,
    SAID,
    GraphStoreContract,
    Opened,
    contents,
    edge,
    key,
    node,
    nodes_in,
    together,
)
from tests.support import neo4j_writer
from tests.support import tee as messages
from tests.support.http_server import CMBS, PATIENCE, free_port
from tests.support.neo4j import fresh_graph, run

pytestmark = pytest.mark.neo4j

CONSTRAINTS = ["tee_edge_tombstone", "tee_graph", "tee_incident", "tee_node", "tee_tombstone"]


class TestNeo4j(GraphStoreContract):
    @pytest.fixture
    def opened(self) -> Iterator[Opened]:
        with fresh_graph() as url, ExitStack() as opened:
            yield lambda: opened.enter_context(closing(Neo4jGraphStore(url)))


@pytest.fixture
def url() -> Iterator[str]:
    with fresh_graph() as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[Neo4jGraphStore]:
    with closing(Neo4jGraphStore(url)) as store:
        yield store


# --- opening ---


@pytest.mark.req("TEE-NEO-01")
def test_several_processes_may_open_a_new_database_at_once(url: str) -> None:
    for (name,) in run(url, "SHOW CONSTRAINTS YIELD name RETURN name"):
        run(url, f"DROP CONSTRAINT {name}")
    opening = "import sys; from cmbs.tee.stores.neo4j import Neo4jGraphStore; Neo4jGraphStore(sys.argv[1]).close()"
    processes = [subprocess.Popen([sys.executable, "-c", opening, url]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert run(url, "SHOW CONSTRAINTS YIELD name RETURN name ORDER BY name") == [[name] for name in CONSTRAINTS]
    assert run(url, "MATCH (g:TeeGraph) RETURN count(*), max(g.version)") == [[1, 0]]


@pytest.mark.req("TEE-NEO-01")
def test_a_graph_of_another_format_is_refused(url: str, store: Neo4jGraphStore) -> None:
    run(url, "MATCH (g:TeeGraph) SET g.format = 999")
    with pytest.raises(GraphUnavailable, match="format 999"):
        Neo4jGraphStore(url)


@pytest.mark.parametrize(
    "wrong",
    [
        "https://me:secret@localhost/",
        "bolt:///graph",
        "me:secret@localhost",
        "neo4j://me:secret/word@localhost",
        "neo4j://me:7687/secret@localhost",
        "neo4j://me:1#secret@localhost",
        "neo4j://me:1?secret@localhost",
        "neo4j://[me:secret@localhost",
        "neo4j://me@localhost:secret",
        "neo4j://me:secret@localhost:99999",
    ],
)
def test_a_url_of_another_kind_is_refused_and_not_repeated(wrong: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        Neo4jGraphStore(wrong)
    # Nor in what a traceback would tell as the cause.
    assert "secret" not in "".join(map(str, (refused.value, refused.value.__cause__, refused.value.__context__)))


# --- what people find ---


@pytest.mark.req("TEE-NEO-03")
def test_people_can_walk_the_graph(url: str, store: Neo4jGraphStore) -> None:
    cause = Node("disk", NodeType.MECHANISM, "disk is full", hypothetical=False, provenance=(SAID,))
    propagates = EdgeKey("disk", "db", EdgeType.PROPAGATES_TO)
    store.merge(Delta((node("web", label="the web"), node("db"), cause), (edge("web", "db"),)))
    store.merge(Delta((), (Edge(propagates, (SAID,)), edge("db", "unknown yet"))))
    path = "MATCH (w:Service {id: 'web'})-[:DEPENDS_ON]->(d)<-[:PROPAGATES_TO]-(m:Mechanism) RETURN w.label, d.id, m"
    ((label, between, mechanism),) = run(url, path)
    assert (label, between) == ("the web", "db")
    assert dict(mechanism).items() >= {"id": "disk", "label": "disk is full", "hypothetical": False}.items()
    assert run(url, "MATCH (:TeeNode {id: 'db'})-[:DEPENDS_ON]->(n) RETURN n.id, n.born") == [["unknown yet", None]]


@pytest.mark.req("TEE-NEO-03")
def test_an_end_becomes_a_node_when_somebody_proposes_it(url: str, store: Neo4jGraphStore) -> None:
    store.merge(Delta((node("a"),), (edge("a", "b"),)))
    assert contents(store.main_graph()) == ({"a"}, {key("a", "b")})
    assert store.merge(Delta((node("b"),))).created_nodes == ("b",)
    assert contents(store.main_graph()) == ({"a", "b"}, {key("a", "b")})
    assert run(url, "MATCH (n:TeeNode) RETURN count(*)") == [[2]]


def test_ids_that_no_index_can_hold_are_kept_whole(store: Neo4jGraphStore) -> None:
    ids = ["x" * size + end for size in (255, 256, 257, 20_000) for end in ("", "é", "😀")]
    # What such an id is looked up by is itself an id like any other.
    ids += [driver._key(ids[-1])]
    edges = [edge(*ends) for ends in pairwise(ids)]
    assert store.merge(Delta(tuple(map(node, ids)), tuple(edges))).created_nodes == tuple(ids)
    assert contents(store.main_graph()) == (set(ids), {each.key for each in edges})
    for incident_id in ids:
        assert store.create_incident(incident_id, NOW).created
    incident_id = ids[-2]
    assert store.merge_node_tombstones(incident_id, ids[::2], SAID).applied == tuple(ids[::2])
    cut = [each.key for each in edges]
    assert store.merge_edge_tombstones(incident_id, cut, SAID).applied == tuple(cut)
    assert store.tombstones(incident_id) == (dict.fromkeys(ids[::2], SAID), dict.fromkeys(cut, SAID))
    assert set(nodes_in(store.live_view(incident_id))) == set(ids[1::2])


# --- several at a time ---


@pytest.mark.req("TEE-NEO-02")
def test_of_two_processes_exactly_one_creates_and_one_applies(url: str) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.neo4j_writer", url, f"writer-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(2) as pool:
        told = [json.loads(text) for text, _ in pool.map(lambda each: each.communicate("go\n"), processes)]
    edges = [
        edge_id(key(f"{number}.{each}", f"{number}.{each + 1}"))
        for number in range(neo4j_writer.ROUNDS)
        for each in range(neo4j_writer.SIZE - 1)
    ]
    ids = [f"{number}.{each}" for number in range(neo4j_writer.ROUNDS) for each in range(neo4j_writer.SIZE)]
    assert sorted(told[0]["created"] + told[1]["created"]) == sorted(ids + edges)
    assert sorted(told[0]["applied"] + told[1]["applied"]) == sorted(ids + edges)
    assert sorted(told[0]["incidents"] + told[1]["incidents"]) == sorted(
        f"i{number}" for number in range(neo4j_writer.ROUNDS)
    )
    # And both were heard.
    ((hypotheses, relations),) = run(
        url, "MATCH (n:TeeNode) WITH count(n) AS nodes MATCH ()-[r:DEPENDS_ON]->() RETURN nodes, count(r)"
    )
    assert (hypotheses, relations) == (len(ids), len(edges))
    with closing(Neo4jGraphStore(url)) as store:
        for each in nodes_in(store.main_graph()).values():
            assert {said.source for said in each.provenance} == {"writer-0", "writer-1"}


@contextmanager
def tee_process(url: str, directory: Path) -> Iterator[Any]:
    """Calls to a `cmbs tee serve` on the graph."""
    port = free_port()
    command = [str(CMBS), "tee", "serve", "--port", str(port), "--store", url]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout:
        try:
            # It prints once it listens.
            assert str(port) in process.stdout.readline()
            with open_channel(f"127.0.0.1:{port}") as channel:
                yield stub_on(channel)
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.mark.req("TEE-NEO-02")
def test_two_tees_on_one_neo4j_are_one(url: str, tmp_path: Path) -> None:
    with tee_process(url, tmp_path) as first, tee_process(url, tmp_path) as second:
        tees, ids = [first, second] * 2, [f"n{number}" for number in range(30)]
        delta = pb.HypothesisDelta(
            nodes=map(messages.node, ids), edges=[messages.edge(*ends) for ends in pairwise(ids)]
        )
        merged = together([partial(tee.MergeHypothesis, delta, timeout=PATIENCE) for tee in tees])
        edges = [edge_id(key(*ends)) for ends in pairwise(ids)]
        assert sorted(each for result in merged for each in result.created_ids) == sorted(ids + edges)
        incident = pb.CreateIncidentRequest(incident_id="i")
        opened = together([partial(tee.CreateIncident, incident, timeout=PATIENCE) for tee in tees])
        assert [each.created for each in opened].count(True) == 1
        gone = pb.NodeTombstoneRequest(incident_id="i", node_ids=ids[:20], provenance=messages.SAID)
        results = together([partial(tee.MergeNodeTombstones, gone, timeout=PATIENCE) for tee in tees])
        assert sorted(each for result in results for each in result.applied_ids) == sorted(ids[:20])
        for tee in (first, second):
            view = tee.GetLiveView(pb.LiveViewRequest(incident_id="i"), timeout=PATIENCE)
            assert {each.id for each in view.nodes} == set(ids[20:])


@pytest.mark.req("TEE-NEO-02")
def test_a_view_is_of_one_moment_while_others_write(store: Neo4jGraphStore) -> None:
    ids = [f"n{number}" for number in range(150)]
    store.merge(Delta(tuple(map(node, ids))))
    store.create_incident("i", NOW)

    def grow() -> None:
        for number in range(12):
            said = Provenance("writer", str(number), NOW)
            store.merge(Delta(tuple(node(each, [said]) for each in ids)))
            store.merge_node_tombstones("i", ids[number * 10 : number * 10 + 10], SAID)

    with ThreadPoolExecutor(1) as pool:
        growing = pool.submit(grow)
        while not growing.done():
            view = store.live_view("i")
            live = nodes_in(view).values()
            assert len({len(each.provenance) for each in live}) == 1
            assert len(live) % 10 == 0
            assert len({len(each.provenance) for each in nodes_in(store.main_graph()).values()}) == 1
        growing.result()
    assert len(nodes_in(store.live_view("i"))) == 30


# --- cost ---


@pytest.mark.req("TEE-NEO-05")
def test_nothing_but_a_view_reads_what_it_was_not_asked_for(url: str, store: Neo4jGraphStore) -> None:
    statements = {
        name: text.replace("%s", "DEPENDS_ON")
        for name, text in vars(driver).items()
        if isinstance(text, str) and name.isupper() and re.search("MATCH|MERGE", text) and not name.startswith("_LOCK")
    }
    assert {"_KNOWN_EDGES", "_PUT_NODES", "_EDGE_TOMBSTONED"} < statements.keys()
    names = ["ids", "edges", "keys", "rows", "incident", "version", "type", "call", "format"]
    parameters: dict[str, Any] = dict.fromkeys([*names, "source", "trigger", "seconds", "nanos"])
    scanning = set()
    with store._driver.session(database=store._database) as outsider:
        for name, text in statements.items():
            plan = outsider.run(f"EXPLAIN {text}", parameters).consume().plan
            if any("Scan" in operator for operator in operators(plan)):
                scanning.add(name)
    assert scanning == {"_NODES", "_RELATIONS"}


def operators(plan: Any) -> Iterator[str]:
    yield plan["operatorType"]
    for child in plan.get("children", []):
        yield from operators(child)


@pytest.mark.req("TEE-NEO-05")
def test_a_call_asks_as_often_for_a_thousand_ids_as_for_two(
    store: Neo4jGraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = neo4j.ManagedTransaction.run

    def counted(tx: neo4j.ManagedTransaction, statement: Any, *arguments: Any, **parameters: Any) -> neo4j.Result:
        asked.append(statement)
        return original(tx, statement, *arguments, **parameters)

    monkeypatch.setattr(neo4j.ManagedTransaction, "run", counted)
    often = []
    for size in (2, 1_000):
        asked.clear()
        ids = [f"{size}.{number}" for number in range(size)]
        edges = [edge(*ends) for ends in pairwise(ids)]
        store.merge(Delta(tuple(map(node, ids)), tuple(edges)))
        store.create_incident(f"i{size}", NOW)
        store.merge_node_tombstones(f"i{size}", ids, SAID)
        store.merge_edge_tombstones(f"i{size}", [each.key for each in edges], SAID)
        store.live_view(f"i{size}")
        often.append(list(asked))
    assert often[0] == often[1] != []
