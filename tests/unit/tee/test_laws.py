"""The merge laws of the causal graph as properties: associative, commutative, idempotent, conflicts included."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidGraph
from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, MergeConflict, Node, NodeType, Provenance, Timestamp, edge_id
from cmbs.tee.kernel.graph import Graph
from cmbs.tee.kernel.lattice import (
    checked_edge,
    checked_edge_key,
    checked_incident_id,
    checked_node,
    checked_provenance,
    checked_timestamp,
    conflicts_between,
    merged_edges,
    merged_nodes,
    merged_provenance,
)
from cmbs.tee.kernel.merge import decide_merge, decide_tombstones
from cmbs.tee.kernel.wire import decoded
from cmbs.testing.strategies.belief import ids

NOW = Timestamp(0, 0)
SAID = Provenance("s", "t", NOW)

# Few values, so that most examples agree on some things and contradict each other on others.
one_said = st.builds(
    Provenance,
    st.sampled_from(["s", "s::t"]),
    st.sampled_from(["t", ""]),
    st.builds(Timestamp, st.integers(0, 3), st.just(0)),
)
said = st.lists(one_said, max_size=4).map(lambda drawn: merged_provenance((), tuple(drawn)))
opinions = st.builds(
    Node, st.just("n"), st.sampled_from(NodeType), st.sampled_from(["one", "two"]), st.booleans(), said
)
some_said = said.filter(bool)
nodes = st.builds(
    Node, st.sampled_from("abc"), st.sampled_from(NodeType), st.sampled_from(["one", "two"]), st.booleans(), some_said
)
keys = st.builds(EdgeKey, st.sampled_from("ab"), st.sampled_from("cd"), st.sampled_from(EdgeType))
edges = st.builds(Edge, keys, some_said)
deltas = st.builds(Delta, st.lists(nodes, max_size=3).map(tuple), st.lists(edges, max_size=3).map(tuple))


def keyed(provenance: tuple[Provenance, ...]) -> set[tuple[str, str]]:
    return {(each.source, each.trigger) for each in provenance}


def unordered(thing: Node) -> tuple[object, ...]:
    """All of a node that does not depend on who was first."""
    return thing.id, thing.hypothetical, keyed(thing.provenance)


@pytest.mark.req("TEE-LAW-01")
@given(said, said, said)
def test_provenance_merges_as_a_set_whose_first_timestamps_stay(
    a: tuple[Provenance, ...], b: tuple[Provenance, ...], c: tuple[Provenance, ...]
) -> None:
    assert merged_provenance(a, a) is a
    assert merged_provenance(a, (*a[:1], *a[1:])) is a
    assert merged_provenance(merged_provenance(a, b), c) == merged_provenance(a, merged_provenance(b, c))
    both = merged_provenance(a, b)
    assert keyed(both) == keyed(merged_provenance(b, a)) == keyed(a) | keyed(b)
    assert len(both) == len(keyed(both))
    assert both[: len(a)] == a


@pytest.mark.req("TEE-LAW-01")
@given(opinions, opinions, opinions)
def test_merging_nodes_is_associative_and_idempotent_conflicts_included(a: Node, b: Node, c: Node) -> None:
    assert merged_nodes(merged_nodes(a, b), c) == merged_nodes(a, merged_nodes(b, c))
    assert merged_nodes(a, a) is a
    assert merged_nodes(merged_nodes(a, b), b) == merged_nodes(a, b)


@pytest.mark.req("TEE-LAW-01", "TEE-LAW-02")
@given(opinions, opinions)
def test_merging_nodes_is_commutative_but_for_the_first_write(a: Node, b: Node) -> None:
    ab, ba = merged_nodes(a, b), merged_nodes(b, a)
    assert unordered(ab) == unordered(ba)
    assert (ab.type, ab.label) == (a.type, a.label)
    assert (ba.type, ba.label) == (b.type, b.label)
    assert ab.hypothetical == (a.hypothetical and b.hypothetical)


@pytest.mark.req("TEE-LAW-02")
@given(opinions, opinions)
def test_a_conflict_names_both_values_and_mirrors_itself(a: Node, b: Node) -> None:
    expected = set()
    if a.type != b.type:
        expected.add(MergeConflict("n", "type", a.type.name, b.type.name))
    if a.label != b.label:
        expected.add(MergeConflict("n", "label", a.label, b.label))
    assert set(conflicts_between(a, b)) == expected
    swapped = {MergeConflict(each.id, each.field, each.proposed_value, each.existing_value) for each in expected}
    assert set(conflicts_between(b, a)) == swapped


@pytest.mark.req("TEE-LAW-01")
@given(keys, said, said, said)
def test_merging_edges_is_associative_commutative_and_idempotent(
    key: EdgeKey, a: tuple[Provenance, ...], b: tuple[Provenance, ...], c: tuple[Provenance, ...]
) -> None:
    first, second, third = Edge(key, a), Edge(key, b), Edge(key, c)
    grouped = merged_edges(first, merged_edges(second, third))
    assert merged_edges(merged_edges(first, second), third) == grouped
    assert keyed(merged_edges(first, second).provenance) == keyed(merged_edges(second, first).provenance)
    assert merged_edges(first, first) is first


def content(graph: Graph) -> tuple[dict[str, Node], dict[EdgeKey, Edge]]:
    view = graph.view(graph.version)
    found, _ = decoded(view.nodes)
    _, found_edges = decoded(view.edges)
    return {each.id: each for each in found}, {each.key: each for each in found_edges}


def grown(*parts: Delta) -> Graph:
    graph = Graph()
    for delta in parts:
        change = graph.decide(delta)
        if change.grows:
            graph.evolve(change, graph.version + 1)
    return graph


def joined(*parts: Delta) -> Delta:
    return Delta(tuple(each for part in parts for each in part.nodes), tuple(e for part in parts for e in part.edges))


@pytest.mark.req("TEE-LAW-01")
@given(deltas, deltas, deltas)
def test_how_deltas_are_grouped_makes_no_difference(a: Delta, b: Delta, c: Delta) -> None:
    one_by_one = content(grown(a, b, c))
    assert content(grown(joined(a, b), c)) == content(grown(a, joined(b, c))) == one_by_one
    assert content(grown(joined(a, b, c))) == one_by_one


@pytest.mark.req("TEE-LAW-01", "TEE-LAW-02")
@given(deltas, deltas)
def test_the_order_of_deltas_shows_only_in_what_the_first_write_decides(a: Delta, b: Delta) -> None:
    (nodes_ab, edges_ab), (nodes_ba, edges_ba) = content(grown(a, b)), content(grown(b, a))
    assert {key: unordered(each) for key, each in nodes_ab.items()} == {
        key: unordered(each) for key, each in nodes_ba.items()
    }
    assert {key: keyed(each.provenance) for key, each in edges_ab.items()} == {
        key: keyed(each.provenance) for key, each in edges_ba.items()
    }
    for part, graph in ((a, nodes_ab), (b, nodes_ba)):
        first: dict[str, Node] = {}
        for each in part.nodes:
            first.setdefault(each.id, each)
        assert all((graph[key].type, graph[key].label) == (each.type, each.label) for key, each in first.items())


@pytest.mark.req("TEE-LAW-01")
@given(deltas)
def test_the_same_delta_again_changes_nothing_and_reports_the_same_conflicts_at_most(delta: Delta) -> None:
    graph = grown(delta)
    again = graph.decide(delta)
    assert not again.grows
    assert (again.created_nodes, again.created_edges) == ((), ())
    assert set(again.merged_nodes) == {each.id for each in delta.nodes}
    assert set(again.merged_edges) == {each.key for each in delta.edges}
    assert set(again.conflicts) == set(decide_merge({}, {}, delta).conflicts)


@given(deltas, deltas)
def test_every_thing_of_a_delta_is_created_or_merged_once(before: Delta, delta: Delta) -> None:
    change = grown(before).decide(delta)
    told = [*(each.id for each in change.created_nodes), *change.merged_nodes]
    assert sorted(told) == sorted({each.id for each in delta.nodes})
    told_edges = [*(each.key for each in change.created_edges), *change.merged_edges]
    assert sorted(told_edges) == sorted({each.key for each in delta.edges})


@pytest.mark.req("TEE-TOMB-01")
@given(st.lists(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcdef")))
def test_every_tombstone_is_in_exactly_one_class(asked: list[str], present: set[str], known: set[str]) -> None:
    merge = decide_tombstones(asked, present.__contains__, known)
    assert set(merge.applied) == (set(asked) & present) - known
    assert set(merge.already) == set(asked) & present & known
    assert set(merge.unmatched) == set(asked) - present
    assert set(merge.new) == set(asked) - known
    assert len(merge.applied + merge.already + merge.unmatched) == len(set(asked))


@given(ids(), ids(), ids(), ids(), st.sampled_from(EdgeType), st.sampled_from(EdgeType))
def test_two_edges_never_have_one_name(a: str, b: str, c: str, d: str, one: EdgeType, other: EdgeType) -> None:
    first, second = EdgeKey(a, b, one), EdgeKey(c, d, other)
    assert (edge_id(first) == edge_id(second)) == (first == second)


def test_the_name_of_an_edge_is_the_convention_and_escapes_what_would_break_it() -> None:
    assert edge_id(EdgeKey("svc-a", "svc-b", EdgeType.DEPENDS_ON)) == "edge:svc-a|svc-b|DEPENDS_ON"
    assert edge_id(EdgeKey("a|b", "c%d", EdgeType.MANIFESTS_AS)) == "edge:a%7Cb|c%25d|MANIFESTS_AS"


@pytest.mark.req("TEE-WIRE-02")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: checked_node("", 1, "l", [SAID], hypothetical=True), "a node must have an id"),
        (lambda: checked_node("n", 0, "l", [SAID], hypothetical=True), "node `n` has no known type: `0`"),
        (lambda: checked_node("n", 5, "l", [SAID], hypothetical=True), "node `n` has no known type: `5`"),
        (lambda: checked_node("n", 1, "", [SAID], hypothetical=True), "node `n` must have a label"),
        (lambda: checked_node("n", 1, "l", [], hypothetical=True), "node `n` must have provenance"),
        (lambda: checked_edge_key("", "b", 1), "an edge must have a source and a target"),
        (lambda: checked_edge_key("a", "", 1), "an edge must have a source and a target"),
        (lambda: checked_edge_key("a", "a", 1), "an edge from `a` to itself is not allowed"),
        (lambda: checked_edge_key("a", "b", 0), "the edge from `a` to `b` has no known type: `0`"),
        (
            lambda: checked_edge(EdgeKey("a", "b", EdgeType.DEPENDS_ON), []),
            "the edge from `a` to `b` must have provenance",
        ),
        (lambda: checked_provenance("", "t", NOW), "provenance must name its source"),
        (lambda: checked_incident_id(""), "an incident must have an id"),
        (lambda: checked_timestamp(253_402_300_800, 0), "not a timestamp of the years 1 to 9999"),
        (lambda: checked_timestamp(0, -1), "not a timestamp of the years 1 to 9999"),
    ],
    ids=range(14),
)
def test_what_may_not_enter_is_refused_with_a_reason(make: Callable[[], object], why: str) -> None:
    with pytest.raises(InvalidGraph, match=re.escape(why)):
        make()
