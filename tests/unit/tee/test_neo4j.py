"""The graph store in a real Neo4j: the whole contract, and what is particular to it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import neo4j
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import GraphUnavailable, IncidentNotFound, InvalidGraph, StoreDisagrees
from cmbs.messages import OntologyBundle
from cmbs.stores.sqlite import SQLiteStore
from cmbs.stores.tee import TeeStore
from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, edge_id
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores import _neo4j_cypher as cypher
from cmbs.tee.stores import _neo4j_rows as rows
from cmbs.tee.stores.neo4j import Neo4jGraphStore
from cmbs.testing.contracts.graph_samples import ALSO, NOW, SAID, Opened, contents, edge, key, node, nodes_in, together
from cmbs.testing.contracts.graph_store import GraphStoreContract
from tests.support import tee as messages
from tests.support.http_server import TIMEOUT_SECONDS, run_cmbs
from tests.support.neo4j import fresh_graph, run
from tests.support.tee_process import tee_serving

pytestmark = pytest.mark.neo4j

CONSTRAINTS = [
    "tee_edge_tombstone",
    "tee_graph",
    "tee_incident",
    "tee_node",
    "tee_provenance",
    "tee_tombstone",
    "tee_universe",
    "tee_version",
]
UNMARKED = "it does not say which format it has, as every store of cmbs does"


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


@pytest.mark.req("STORE-FORMAT-01", "STORE-FORMAT-02")
@pytest.mark.parametrize(
    ("change", "said", "step"),
    [
        ("SET g.format = 2", "before its first format was fixed", "use the cmbs that wrote it"),
        ("REMOVE g.format", "before its first format was fixed", "use the cmbs that wrote it"),
        ("SET g.fingerprint = 'others'", "with other types of entries or other tables", "use the cmbs that wrote it"),
        ("REMOVE g.fingerprint", "with other types of entries or other tables", "use the cmbs that wrote it"),
        ("SET g.format = 'cmbs/2'", "it has the format `cmbs/2`, which is newer than this software", "or a newer one"),
        ("DELETE g", UNMARKED, "restore a backup"),
        ("DELETE g WITH g MATCH (n:TeeNode) DETACH DELETE n", UNMARKED, "restore a backup"),
    ],
    ids=["earlier", "earliest", "other statements", "no fingerprint", "newer", "no marks", "incidents without marks"],
)
def test_a_graph_with_another_format_is_refused_and_left_as_it_was(
    url: str, store: Neo4jGraphStore, change: str, said: str, step: str
) -> None:
    store.merge(Delta((node("a"),)))
    store.create_incident("i", NOW)
    assert run(url, "MATCH (g:TeeGraph) RETURN g.format") == [["cmbs/1"]]
    run(url, f"MATCH (g:TeeGraph) {change}")
    # Neither is put back.
    run(url, "DROP CONSTRAINT tee_universe")
    run(url, "MATCH (g:TeeGraph) REMOVE g.tee_id")
    asked = (
        "MATCH (n) RETURN labels(n), properties(n) ORDER BY labels(n)",
        "SHOW CONSTRAINTS YIELD name ORDER BY name",
    )
    before = [run(url, question) for question in asked]
    with pytest.raises(GraphUnavailable) as refused:
        Neo4jGraphStore(url)
    assert refused.value.message.startswith("cannot open the graph: it ")
    assert said in refused.value.message
    assert refused.value.message.endswith("; nothing was changed")
    assert step in refused.value.details["next"]
    assert [run(url, question) for question in asked] == before


@pytest.mark.req("STORE-FORMAT-01", "STORE-FORMAT-02")
def test_a_graph_that_other_statements_wrote_is_refused(
    url: str, store: Neo4jGraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = [each.replace("trigger: row[3]", "cause: row[3]") for each in cypher.WRITES]
    assert writes != cypher.WRITES
    monkeypatch.setattr(cypher, "WRITES", writes)
    with pytest.raises(GraphUnavailable, match="with other types of entries or other tables"):
        Neo4jGraphStore(url)


def test_the_fingerprint_covers_all_statements_that_write() -> None:
    texts = {each for each in vars(cypher).values() if isinstance(each, str)}
    lock = re.compile(r"SET [gi]\.locked = true(?!,)")
    writing = {each for each in texts if re.search(r"\b(CREATE|MERGE|SET|DELETE|REMOVE)\b", lock.sub("", each))}
    assert writing | {*cypher.CONSTRAINTS} == {*cypher.WRITES}


@pytest.mark.req("STORE-FORMAT-01")
def test_a_database_that_was_emptied_is_filled_with_another_graph(url: str, store: Neo4jGraphStore) -> None:
    store.merge(Delta((node("a"),)))
    before = store.identity()
    run(url, "MATCH (x) DETACH DELETE x")
    with closing(Neo4jGraphStore(url)) as filled:
        assert contents(filled.main_graph()) == (set(), set())
        assert filled.identity() != before


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


# --- a database that is changed behind a running Tee ---


@pytest.mark.req("TEE-NEO-06")
def test_a_database_that_is_emptied_behind_an_open_store_is_filled_with_another_graph(
    url: str, store: Neo4jGraphStore
) -> None:
    store.merge(Delta((node("a"),)))
    store.create_incident("i", NOW)
    before = store.identity()
    for (name,) in run(url, "SHOW CONSTRAINTS YIELD name RETURN name"):
        run(url, f"DROP CONSTRAINT {name}")
    run(url, "MATCH (x) DETACH DELETE x")
    with pytest.raises(IncidentNotFound):
        store.merge_node_tombstones("i", ["a"], SAID)
    assert store.identity().tee_id not in (before.tee_id, *before.stands_in_for)
    assert run(url, "SHOW CONSTRAINTS YIELD name RETURN name ORDER BY name") == [[name] for name in CONSTRAINTS]
    # Any call that needs the graph makes it anew.
    for call in (store.main_graph, lambda: store.merge(Delta((node("b"),))), lambda: store.create_incident("j", NOW)):
        run(url, "MATCH (x) DETACH DELETE x")
        call()
    # One that is being put back has content before it says what it is: nothing is written over that.
    run(url, "MATCH (g:TeeGraph) DELETE g")
    with pytest.raises(GraphUnavailable, match=UNMARKED):
        store.identity()
    assert run(url, "MATCH (g:TeeGraph) RETURN count(*)") == [[0]]


@pytest.mark.req("TEE-NEO-06")
def test_a_restored_and_an_emptied_database_are_noticed_and_repaired_without_a_restart(
    url: str, tmp_path: Path
) -> None:
    with tee_serving(tmp_path, url) as tee, ExitStack() as stack:
        tee.grow("abcd")
        log = SQLiteStore(tmp_path / "cmbs.db")
        store = TeeStore(tee.endpoint, timeout_seconds=TIMEOUT_SECONDS)
        server = stack.enter_context(closing(BeliefServer(store=store, audit_log=log, store_timeout_seconds=60)))
        session_id = server.declare_session(OntologyBundle("space", "1", "tee://main", "")).session_id
        server.eliminate(session_id, "s", "1", ["a"])
        (tmp_path / "graph.json").write_text(tee.run("show", "--json").stdout)

        def repair(*arguments: str) -> None:
            done = run_cmbs(
                *("tee", "repair", "--tee", tee.endpoint, *arguments),
                directory=tmp_path,
                variables={"CMBS_STORE": "sqlite:///cmbs.db"},
            )
            assert done.returncode == 0, done.stderr

        # As of a backup from before the first elimination.
        run(url, "MATCH (t:TeeTombstone) DETACH DELETE t")
        run(url, "MATCH (i:TeeIncident) SET i.tombstones = 0")
        with pytest.raises(StoreDisagrees, match="lacks tombstones: it has 1, and the log has 2"):
            server.eliminate(session_id, "s", "2", ["b"])
        repair()
        assert server.eliminate(session_id, "s", "2", ["b"]).snapshot.survivors == ["c", "d"]

        run(url, "MATCH (x) DETACH DELETE x")
        with pytest.raises(StoreDisagrees, match="does not know the session"):
            server.eliminate(session_id, "s", "3", ["c"])
        with pytest.raises(StoreDisagrees, match="sessions are in the elimination store"):
            server.check_store_ready()
        repair("--accept-identity", "--with-graph", "graph.json")
        assert server.eliminate(session_id, "s", "3", ["c"]).snapshot.survivors == ["d"]
        server.check_store_ready()


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
def test_an_end_becomes_a_node_when_it_is_proposed(url: str, store: Neo4jGraphStore) -> None:
    store.merge(Delta((node("a"),), (edge("a", "b"),)))
    assert contents(store.main_graph()) == ({"a"}, {key("a", "b")})
    assert store.merge(Delta((node("b"),))).created_nodes == ("b",)
    assert contents(store.main_graph()) == ({"a", "b"}, {key("a", "b")})
    assert run(url, "MATCH (n:TeeNode) RETURN count(*)") == [[2]]


def test_ids_that_no_index_can_hold_are_kept_whole(store: Neo4jGraphStore) -> None:
    ids = ["x" * size + end for size in (255, 256, 257, 20_000) for end in ("", "é", "😀")]
    # What such an id is looked up by is itself an id like any other.
    ids += [rows.shorten_key(ids[-1])]
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


@pytest.mark.deep
@pytest.mark.req("TEE-NEO-02")
def test_of_two_tees_exactly_one_creates_and_one_applies_and_both_are_recorded(
    url: str, store: Neo4jGraphStore, tmp_path: Path
) -> None:
    with (
        tee_serving(tmp_path, url) as one,
        tee_serving(tmp_path, url) as other,
        open_channel(one.endpoint) as to_one,
        open_channel(other.endpoint) as to_other,
    ):
        tees = [stub_on(to_one), stub_on(to_other)] * 2
        said = [pb.Provenance(source=source, trigger="race") for source in "0123"]
        for number in range(12):
            incident, ids = f"i{number}", [f"{number}.{each}" for each in range(20)]
            ends = list(pairwise(ids))
            edges = [edge_id(key(*each)) for each in ends]
            deltas = [
                pb.HypothesisDelta(
                    nodes=[messages.node(each, provenance=[by]) for each in ids],
                    edges=[messages.edge(*each, provenance=[by]) for each in ends],
                )
                for by in said
            ]
            merged = call_together([tee.MergeHypothesis for tee in tees], deltas)
            assert sorted(each for result in merged for each in result.created_ids) == sorted(ids + edges)
            created = call_together(
                [tee.CreateIncident for tee in tees], [pb.CreateIncidentRequest(incident_id=incident)] * 4
            )
            assert [each.created for each in created].count(True) == 1
            gone = [pb.NodeTombstoneRequest(incident_id=incident, node_ids=ids, provenance=by) for by in said]
            entries = [
                pb.EdgeTombstoneEntry(source=source, target=target, type=pb.EDGE_TYPE_DEPENDS_ON)
                for source, target in ends
            ]
            cut = [pb.EdgeTombstoneRequest(incident_id=incident, entries=entries, provenance=by) for by in said]
            results = call_together([tee.MergeNodeTombstones for tee in tees], gone)
            results += call_together([tee.MergeEdgeTombstones for tee in tees], cut)
            assert sorted(each for result in results for each in result.applied_ids) == sorted(ids + edges)
            for tee in tees[:2]:
                view = tee.GetLiveView(pb.LiveViewRequest(incident_id=incident), timeout=TIMEOUT_SECONDS)
                assert len(view.nodes) == 20 * number
    nodes = nodes_in(store.main_graph()).values()
    assert {frozenset(by.source for by in each.provenance) for each in nodes} == {frozenset("0123")}
    assert run(url, "MATCH (n:TeeNode) RETURN count(*)") == [[12 * 20]]


def call_together(calls: list[Any], requests: list[Any]) -> list[Any]:
    return together([partial(call, each, timeout=TIMEOUT_SECONDS) for call, each in zip(calls, requests, strict=True)])


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


# --- for people ---


@pytest.mark.req("TEE-NEO-02")
def test_an_incident_points_at_what_it_ruled_out_and_at_its_anchor(url: str, store: Neo4jGraphStore) -> None:
    version = store.merge(Delta((node("a"), node("b")))).version
    store.create_incident("i", NOW)
    store.merge(Delta((node("late"),)))
    store.merge_node_tombstones("i", ["a", "late", "ghost"], SAID)
    found = run(
        url,
        "MATCH (v:TeeVersion)<-[:ANCHORED_AT]-(i:TeeIncident)-[r:RULED_OUT]->(n)"
        " RETURN i.id, v.version, n.id, r.provenance_source, r.provenance_trigger",
    )
    assert found == [["i", version, "a", SAID.source, SAID.trigger]]


@pytest.mark.req("TEE-NEO-02")
def test_sources_are_properties_and_later_provenance_can_be_asked_for(url: str, store: Neo4jGraphStore) -> None:
    store.merge(Delta((node("a"), node("b")), (edge("a", "b"),)))
    other = Provenance("traces", "scan", NOW)
    store.merge(Delta((node("a", (other, ALSO)),), (edge("a", "b", (other,)),)))
    assert run(url, "MATCH (n:TeeNode {id: 'a'}) RETURN n.sources") == [[["agent", "traces"]]]
    assert run(url, "MATCH (:TeeNode {id: 'a'})-[r]->() RETURN r.sources") == [[["agent", "traces"]]]
    asked = "MATCH (p:TeeProvenance) RETURN p.kind, p.source, p.trigger ORDER BY p.kind, p.source"
    assert run(url, asked) == [["edge ", "traces", "scan"], ["node ", "agent", "alert"], ["node ", "traces", "scan"]]


@pytest.mark.req("TEE-NEO-02")
def test_merges_add_sources_up_to_a_bound_and_all_of_them_can_be_asked_for(url: str, store: Neo4jGraphStore) -> None:
    store.merge(Delta((node("a"), node("b")), (edge("a", "b"),)))
    for first in (0, 60, 120):
        said = tuple(Provenance(f"source {first + each:03}", "scan", NOW) for each in range(60))
        store.merge(Delta((node("a", said),), (edge("a", "b", said),)))
    expected = ["agent", *(f"source {each:03}" for each in range(rows.MAX_SOURCES - 1))]
    assert run(url, "MATCH (n:TeeNode {id: 'a'}) RETURN n.sources") == [[expected]]
    assert run(url, "MATCH (:TeeNode {id: 'a'})-[r]->() RETURN r.sources") == [[expected]]
    assert run(url, "MATCH (p:TeeProvenance) RETURN p.kind, count(*) ORDER BY p.kind") == [
        ["edge ", 180],
        ["node ", 180],
    ]


@pytest.mark.req("TEE-NEO-02")
def test_the_queries_of_the_documents_answer(url: str, store: Neo4jGraphStore) -> None:
    store.merge(Delta((node("web"), node("orders"), node("db"), node("disk"), node("alert")), (edge("web", "orders"),)))
    more = Edge(EdgeKey("disk", "db", EdgeType.PROPAGATES_TO), (SAID,))
    shows = Edge(EdgeKey("web", "alert", EdgeType.MANIFESTS_AS), (SAID,))
    store.merge(Delta((node("web", (Provenance("traces", "scan", NOW),)),), (edge("orders", "db"), more, shows)))
    store.create_incident("i", NOW)
    store.merge(Delta((node("late"),), (edge("web", "late"),)))
    store.merge_node_tombstones("i", ["disk"], SAID)
    text = (Path(__file__).parents[3] / "docs" / "operating" / "neo4j.md").read_text("utf-8")
    queries = re.findall(r"```cypher\n(.*?)```", text, re.DOTALL)
    answers = [run(url, query, incident="i", alert="alert") for query in queries]
    assert len(answers) == 5
    explained, ruled_out, left, vouched, often = answers
    assert [row[::2] for row in explained] == [["alert", 0], ["web", 1], ["orders", 2], ["db", 3]]
    assert ruled_out == [["disk", "label", SAID.source, SAID.trigger]]
    assert [row[0]["id"] for row in left] == ["alert", "db", "orders", "web"]
    assert vouched == [[False, 5], [True, 1]]
    assert often == [["disk", "label", 1]]


# --- cost ---


def test_no_plan_sorts_the_ids_that_a_page_begins_at(url: str, store: Neo4jGraphStore) -> None:
    parameters = {"after": "", "source": "", "skip": 0, "version": 1, "limit": 3}
    # The planner goes by how much there is: an empty graph, a small and a larger one.
    for size in (0, 3, 300):
        ids = [f"{size} {number}" for number in range(size)]
        store.merge(Delta(tuple(map(node, ids)), tuple(edge(*ends) for ends in pairwise(ids))))
        run(url, "CALL db.clearQueryCaches()")
        with store._driver.session(database=store._database) as outsider:
            for statement, sorted_in_subquery in ((cypher.NODE_PAGE, []), (cypher.EDGE_PAGE, ["Sort@neo4j"])):
                plan = outsider.run(f"EXPLAIN {statement}", parameters).consume().plan
                assert [each for each in operators(plan) if re.search("Sort|Top", each)] == sorted_in_subquery
                assert "NodeUniqueIndexSeekByRange@neo4j" in operators(plan)


@pytest.mark.req("TEE-NEO-05")
def test_nothing_but_a_view_reads_what_it_was_not_asked_for_whatever_the_statistics(url: str) -> None:
    for (name,) in run(url, "SHOW CONSTRAINTS YIELD name RETURN name"):
        run(url, f"DROP CONSTRAINT {name}")
    # Statistics of a graph that is new, of one with so little in it that reading all of it looks cheap, and of one node
    # that everything depends on: where its edges are read for each of them, a merge takes a thousand times as long.
    with closing(Neo4jGraphStore(url)) as store:
        scanning, expanding = find_wasteful(store)
        for size in (1, 10, 300):
            ids = [f"{size} {number}" for number in range(size)]
            ends = [(each, f"hub {size}") for each in ids]
            store.merge(Delta(tuple(map(node, ids)), tuple(edge(*each) for each in ends)))
            found = find_wasteful(store)
            scanning, expanding = scanning | found[0], expanding | found[1]
    assert scanning == {"NODES", "RELATIONS", "LATER_PROVENANCE"}
    # Those that ask for all edges of a node.
    assert expanding - scanning == {"EDGES_AT", "EDGE_PAGE", "DEAD_RELATIONS"}


def find_wasteful(store: Neo4jGraphStore) -> tuple[set[str], set[str]]:
    """The statements whose plan reads all of something, and those whose plan reads all edges of a node."""
    statements = {
        name: text.replace("%s", "DEPENDS_ON")
        for name, text in vars(cypher).items()
        if isinstance(text, str) and re.match("(?!LOCK)[A-Z]", name) and re.search("MATCH|MERGE", text)
    }
    assert {"KNOWN_EDGES", "CREATE_NODES", "EDGE_TOMBSTONED"} < statements.keys()
    names = ["ids", "edges", "keys", "rows", "incident", "version", "type", "call", "format", "anchor", "universe"]
    parameters: dict[str, Any] = dict.fromkeys([*names, "kind", "source", "trigger", "seconds", "nanos"])
    scanning, expanding = set(), set()
    with store._driver.session(database=store._database) as outsider:
        outsider.run("CALL db.clearQueryCaches()").consume()
        for name, text in statements.items():
            used = set(operators(outsider.run(f"EXPLAIN {text}", parameters).consume().plan))
            if any("Scan" in operator for operator in used):
                scanning.add(name)
            if "Expand(All)@neo4j" in used:
                expanding.add(name)
    return scanning, expanding


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

    def count(tx: neo4j.ManagedTransaction, statement: Any, *arguments: Any, **parameters: Any) -> neo4j.Result:
        asked.append(statement)
        return original(tx, statement, *arguments, **parameters)

    monkeypatch.setattr(neo4j.ManagedTransaction, "run", count)
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
