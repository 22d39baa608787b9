"""Searches along causes: compared with a reference that tries every path, over random graphs with tombstones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidGraph
from cmbs.spi.graph_search import MAX_DEPTH
from cmbs.tee import EdgeKey, EdgeType
from cmbs.tee.kernel.pages import select_page
from cmbs.tee.kernel.paths import (
    MAX_SYMPTOMS,
    SearchLimits,
    cause_and_effect,
    explain,
    reach,
    validate_limits,
    validate_symptoms,
    walk,
)
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.tee import SAID, calling, edge, expect_refused, node

NAMES = "abcdef"
FAR = SearchLimits(depth=MAX_DEPTH)


class Drawn(NamedTuple):
    edges: frozenset[EdgeKey]
    dead_nodes: frozenset[str]
    dead_edges: frozenset[EdgeKey]

    def step(self, ids: Sequence[str]) -> list[EdgeKey]:
        return Listed([*self.edges]).step(ids)

    def live(self) -> set[tuple[str, str]]:
        """Causes and effects of all live edges."""
        return {
            cause_and_effect(each)
            for each in self.edges - self.dead_edges
            if not {each.source, each.target} & self.dead_nodes
        }

    def distance(self, cause: str, effect: str) -> int | None:
        """By trying one more edge each time."""
        reached, steps = {cause}, 0
        while effect not in reached:
            wider = reached | {there for here, there in self.live() if here in reached}
            if wider == reached:
                return None
            reached, steps = wider, steps + 1
        return steps


class Listed(NamedTuple):
    """Edges in the order in which a store has them."""

    edges: list[EdgeKey]

    def step(self, ids: Sequence[str]) -> list[EdgeKey]:
        return [each for each in self.edges if {each.source, each.target} & set(ids)]


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    names = st.sampled_from(NAMES)
    keys = st.builds(EdgeKey, names, names, st.sampled_from(EdgeType)).filter(lambda each: each.source != each.target)
    edges = draw(st.frozensets(keys, max_size=14))
    dead = draw(st.frozensets(st.sampled_from(sorted(edges)), max_size=3)) if edges else frozenset()
    return Drawn(edges, draw(st.frozensets(names, max_size=2)), dead)


@pytest.mark.req("TEE-SEARCH-01")
@given(drawn(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
def test_explain_finds_what_reaches_a_symptom_by_shortest_paths(graph: Drawn, symptoms: list[str]) -> None:
    found = explain(graph.step, symptoms, graph.dead_nodes, graph.dead_edges, FAR)
    live = [each for each in symptoms if each not in graph.dead_nodes]
    distances = {
        (each, symptom): graph.distance(each, symptom)
        for each in set(NAMES) - graph.dead_nodes
        for symptom in live
        if graph.distance(each, symptom) is not None
    }
    assert set(found.node_ids) == {each for each, _ in distances}
    assert not found.is_cut
    for each in found.node_ids:
        paths = found.paths_of(each)
        assert {(each, path.end): len(path.edges) for path in paths} == {
            pair: steps for pair, steps in distances.items() if pair[0] == each
        }
        for path in paths:
            steps = [cause_and_effect(key) for key in path.edges]
            assert [cause for cause, _ in steps] + [path.end] == [each] + [effect for _, effect in steps]
            assert set(steps) <= graph.live()
    ranks = [(-len(found.paths_of(each)), sum(len(p.edges) for p in found.paths_of(each))) for each in found.node_ids]
    assert ranks == sorted(ranks)


@pytest.mark.req("TEE-SEARCH-01")
@given(drawn(), st.sampled_from(NAMES))
def test_impact_finds_what_a_node_reaches(graph: Drawn, start: str) -> None:
    ends, found = reach(graph.step, start, graph.dead_nodes, graph.dead_edges, FAR)
    expected = {each: graph.distance(start, each) for each in set(NAMES) - graph.dead_nodes - {start}}
    reached = {each: steps for each, steps in expected.items() if steps is not None and start not in graph.dead_nodes}
    assert {each: len(walk(found, each)) for each in ends} == reached
    assert [reached[each] for each in ends] == sorted(reached.values())


@pytest.mark.req("TEE-SEARCH-01")
def test_of_several_shortest_paths_the_same_one_is_found_however_a_store_orders_edges() -> None:
    edges = [EdgeKey("a", there, EdgeType.DEPENDS_ON) for there in "bc"]
    edges += [EdgeKey(here, "d", EdgeType.DEPENDS_ON) for here in "bc"]
    for ordered in (edges, edges[::-1]):
        graph = Listed(ordered)
        (path,) = explain(graph.step, ["a"], (), (), FAR).paths_of("d")
        assert [each.source for each in path.edges] == ["b", "a"]


@pytest.mark.req("TEE-SEARCH-02")
def test_a_search_ends_at_its_depth_and_at_its_number_of_nodes_and_says_so() -> None:
    chain = frozenset(EdgeKey(f"n{each}", f"n{each + 1}", EdgeType.DEPENDS_ON) for each in range(10))
    graph = Drawn(chain, frozenset(), frozenset())
    near = explain(graph.step, ["n0"], (), (), SearchLimits(depth=3))
    assert (near.node_ids, near.is_cut) == (("n0", "n1", "n2", "n3"), True)
    few = explain(graph.step, ["n0"], (), (), SearchLimits(depth=20, visited=2))
    assert (few.node_ids, few.is_cut) == (("n0", "n1"), True)
    whole = explain(graph.step, ["n0"], (), (), SearchLimits(depth=10))
    assert (len(whole.node_ids), whole.is_cut) == (11, False)


@pytest.mark.req("TEE-SEARCH-02")
def test_bounds_that_are_too_large_are_refused() -> None:
    assert validate_limits(3).depth == 3
    for depth in (0, MAX_DEPTH + 1):
        with pytest.raises(InvalidGraph, match="`max_depth` must be from 1 to 32"):
            validate_limits(depth)
    assert validate_symptoms(["a", "b", "a"]) == ("a", "b")
    for symptoms in ([], [""], ["a", ""]):
        with pytest.raises(InvalidGraph, match="at least one symptom"):
            validate_symptoms(symptoms)
    with pytest.raises(InvalidGraph, match="at most 100 symptoms"):
        validate_symptoms(map(str, range(MAX_SYMPTOMS + 1)))


@pytest.mark.req("TEE-SEARCH-02")
def test_pages_follow_each_other_to_the_end() -> None:
    items = list(range(7))
    seen: list[int] = []
    token, sizes = "", []
    while True:
        page = select_page(items, 3, token)
        seen += page.items
        sizes.append(len(page.items))
        token = page.token_after(len(page.items))
        if not token:
            break
    assert (seen, sizes, page.total) == (items, [3, 3, 1], 7)
    assert len(select_page(list(range(500)), 0, "").items) == 100
    with pytest.raises(InvalidGraph, match="at most 1000"):
        select_page(items, 1001, "")
    for forged in ("x", "-1", "1" * 13, "٣"):
        with pytest.raises(InvalidGraph, match="`page_token` must be"):
            select_page(items, 3, forged)


@pytest.fixture
def tee() -> Any:
    with calling(MemoryGraphStore()) as stub:
        stub.MergeHypothesis(
            pb.HypothesisDelta(
                nodes=map(node, ("web", "orders", "db", "disk", "alert")),
                edges=[
                    edge("web", "orders"),
                    edge("orders", "db"),
                    edge("orders", "unborn"),
                    pb.Edge(source="disk", target="db", type=pb.EDGE_TYPE_PROPAGATES_TO, provenance=[SAID]),
                    pb.Edge(source="web", target="alert", type=pb.EDGE_TYPE_MANIFESTS_AS, provenance=[SAID]),
                ],
            )
        )
        stub.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
        yield stub


@pytest.mark.req("TEE-SEARCH-01", "TEE-SEARCH-02")
def test_searches_over_the_wire_leave_out_what_the_incident_ruled_out(tee: Any) -> None:
    request = pb.ExplainRequest(incident_id="i", symptoms=["alert", "orders"])
    before = tee.Explain(request)
    # What was never proposed as a node is no hypothesis, although an edge names it.
    assert [each.node.id for each in before.explanations] == ["orders", "db", "disk", "alert", "web"]
    assert (before.total, before.cut, before.next_page_token) == (5, False, "")
    disk = next(each for each in before.explanations if each.node.id == "disk")
    assert [(path.end, [key.target for key in path.edges]) for path in disk.paths] == [
        ("alert", ["db", "db", "orders", "alert"]),
        ("orders", ["db", "db"]),
    ]
    first = tee.Explain(pb.ExplainRequest(incident_id="i", symptoms=["alert"], page_size=2))
    rest = tee.Explain(
        pb.ExplainRequest(incident_id="i", symptoms=["alert"], page_size=9, page_token=first.next_page_token)
    )
    assert [each.node.id for each in (*first.explanations, *rest.explanations)] == [
        "alert",
        "web",
        "orders",
        "db",
        "disk",
    ]
    tee.MergeNodeTombstones(pb.NodeTombstoneRequest(incident_id="i", node_ids=["db"], provenance=SAID))
    assert [each.node.id for each in tee.Explain(request).explanations] == ["orders", "alert", "web"]
    # Tombstoned itself, a symptom has no cause any more.
    assert tee.Explain(pb.ExplainRequest(incident_id="i", symptoms=["db"])).total == 0
    assert tee.Impact(pb.ImpactRequest(incident_id="i", node_id="db")).total == 0
    reached = tee.Impact(pb.ImpactRequest(incident_id="i", node_id="orders"))
    assert [(each.node.id, len(each.path.edges)) for each in reached.reached] == [("web", 1), ("alert", 2)]
    near = tee.Impact(pb.ImpactRequest(incident_id="i", node_id="orders", max_depth=1))
    assert ([each.node.id for each in near.reached], near.cut) == (["web"], True)


@pytest.mark.req("TEE-SEARCH-02")
def test_a_search_from_nowhere_is_refused(tee: Any) -> None:
    refused = grpc.StatusCode.INVALID_ARGUMENT
    with expect_refused(refused, "node `nothing` is not in the graph as of version 1"):
        tee.Explain(pb.ExplainRequest(incident_id="i", symptoms=["nothing"]))
    with expect_refused(refused, "at least one symptom"):
        tee.Impact(pb.ImpactRequest(incident_id="i"))
    with expect_refused(refused, "`max_depth` must be from 1 to 32"):
        tee.Explain(pb.ExplainRequest(incident_id="i", symptoms=["db"], max_depth=99))
    with expect_refused(grpc.StatusCode.NOT_FOUND, "j"):
        tee.Explain(pb.ExplainRequest(incident_id="j", symptoms=["db"]))
