"""The merge laws of the causal graph as properties: associative, commutative, idempotent, conflicts included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidGraph
from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, MergeConflict, Node, NodeType, Provenance, Timestamp, edge_id
from cmbs.tee.kernel.graph import Graph
from cmbs.tee.kernel.lattice import (
    conflicts_between,
    merge_edges,
    merge_nodes,
    merge_provenance,
    validate_timestamp,
)
from cmbs.tee.kernel.merge import decide_merge, decide_tombstones
from cmbs.tee.kernel.wire import decode, encode_change
from cmbs.testing.strategies.belief import ids
from tests.support.subtests import for_each

# Few values, so that most examples agree on some things and contradict each other on others.
one_said = st.builds(
    Provenance,
    st.sampled_from(["s", "s::t"]),
    st.sampled_from(["t", ""]),
    st.builds(Timestamp, st.integers(0, 3), st.just(0)),
)
said = st.lists(one_said, max_size=4).map(lambda drawn: merge_provenance((), tuple(drawn)))
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


def keys_of(provenance: tuple[Provenance, ...]) -> set[tuple[str, str]]:
    return {(each.source, each.trigger) for each in provenance}


def order_free(thing: Node) -> tuple[object, ...]:
    """All of a node that does not depend on who was first."""
    return thing.id, thing.hypothetical, keys_of(thing.provenance)


@pytest.mark.req("TEE-LAW-01")
@given(said, said, said)
def test_provenance_merges_as_a_set_whose_first_timestamps_stay(
    a: tuple[Provenance, ...], b: tuple[Provenance, ...], c: tuple[Provenance, ...]
) -> None:
    assert merge_provenance(a, a) == a
    assert merge_provenance(merge_provenance(a, b), c) == merge_provenance(a, merge_provenance(b, c))
    both = merge_provenance(a, b)
    assert keys_of(both) == keys_of(merge_provenance(b, a)) == keys_of(a) | keys_of(b)
    assert len(both) == len(keys_of(both))
    assert both[: len(a)] == a


@pytest.mark.req("TEE-LAW-01")
@given(opinions, opinions, opinions)
def test_merging_nodes_is_associative_and_idempotent_conflicts_included(a: Node, b: Node, c: Node) -> None:
    assert merge_nodes(merge_nodes(a, b), c) == merge_nodes(a, merge_nodes(b, c))
    assert merge_nodes(a, a) == a
    assert merge_nodes(merge_nodes(a, b), b) == merge_nodes(a, b)


@pytest.mark.req("TEE-LAW-01", "TEE-LAW-02")
@given(opinions, opinions)
def test_merging_nodes_is_commutative_but_for_the_first_write(a: Node, b: Node) -> None:
    ab, ba = merge_nodes(a, b), merge_nodes(b, a)
    assert order_free(ab) == order_free(ba)
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
    grouped = merge_edges(first, merge_edges(second, third))
    assert merge_edges(merge_edges(first, second), third) == grouped
    assert keys_of(merge_edges(first, second).provenance) == keys_of(merge_edges(second, first).provenance)
    assert merge_edges(first, first) == first


def content(graph: Graph) -> tuple[dict[str, Node], dict[EdgeKey, Edge]]:
    view = graph.view(graph.version)
    found, _ = decode(view.nodes)
    _, found_edges = decode(view.edges)
    return {each.id: each for each in found}, {each.key: each for each in found_edges}


def grow(*parts: Delta) -> Graph:
    graph = Graph()
    for delta in parts:
        change = graph.decide(delta)
        if change.grows:
            graph.absorb(graph.version + 1, *encode_change(change))
    return graph


def join(*parts: Delta) -> Delta:
    return Delta(tuple(each for part in parts for each in part.nodes), tuple(e for part in parts for e in part.edges))


@pytest.mark.req("TEE-LAW-01")
@given(deltas, deltas, deltas)
def test_how_deltas_are_grouped_makes_no_difference(a: Delta, b: Delta, c: Delta) -> None:
    one_by_one = content(grow(a, b, c))
    assert content(grow(join(a, b), c)) == content(grow(a, join(b, c))) == one_by_one
    assert content(grow(join(a, b, c))) == one_by_one


@pytest.mark.req("TEE-LAW-01", "TEE-LAW-02")
@given(deltas, deltas)
def test_the_order_of_deltas_shows_only_in_what_the_first_write_decides(a: Delta, b: Delta) -> None:
    (nodes_ab, edges_ab), (nodes_ba, edges_ba) = content(grow(a, b)), content(grow(b, a))
    assert {key: order_free(each) for key, each in nodes_ab.items()} == {
        key: order_free(each) for key, each in nodes_ba.items()
    }
    assert {key: keys_of(each.provenance) for key, each in edges_ab.items()} == {
        key: keys_of(each.provenance) for key, each in edges_ba.items()
    }
    for part, graph in ((a, nodes_ab), (b, nodes_ba)):
        first: dict[str, Node] = {}
        for each in part.nodes:
            first.setdefault(each.id, each)
        assert all((graph[key].type, graph[key].label) == (each.type, each.label) for key, each in first.items())


@pytest.mark.req("TEE-LAW-01")
@given(deltas)
def test_the_same_delta_again_changes_nothing_and_reports_the_same_conflicts_at_most(delta: Delta) -> None:
    graph = grow(delta)
    again = graph.decide(delta)
    assert not again.grows
    assert (again.created_nodes, again.created_edges) == ((), ())
    assert set(again.merged_nodes) == {each.id for each in delta.nodes}
    assert set(again.merged_edges) == {each.key for each in delta.edges}
    assert set(again.conflicts) == set(decide_merge({}, {}, delta).conflicts)


@given(deltas, deltas)
def test_every_thing_of_a_delta_is_created_or_merged_once(before: Delta, delta: Delta) -> None:
    change = grow(before).decide(delta)
    told = [*(each.id for each in change.created_nodes), *change.merged_nodes]
    assert sorted(told) == sorted({each.id for each in delta.nodes})
    told_edges = [*(each.key for each in change.created_edges), *change.merged_edges]
    assert sorted(told_edges) == sorted({each.key for each in delta.edges})


@pytest.mark.req("TEE-TOMB-01")
@given(st.lists(st.sampled_from("abcdef")), st.sets(st.sampled_from("abcd")), st.sets(st.sampled_from("abcdef")))
def test_every_tombstone_is_in_exactly_one_class(asked: list[str], present: set[str], known: set[str]) -> None:
    merge, new = decide_tombstones(asked, present.__contains__, known, len(known))
    assert merge.total == len(known | set(asked))
    assert set(merge.applied) == (set(asked) & present) - known
    assert set(merge.already) == set(asked) & present & known
    assert set(merge.unmatched) == set(asked) - present
    assert set(new) == set(asked) - known
    assert len(merge.applied + merge.already + merge.unmatched) == len(set(asked))


@given(ids(), ids(), ids(), ids(), st.sampled_from(EdgeType), st.sampled_from(EdgeType))
def test_two_edges_never_have_one_name(a: str, b: str, c: str, d: str, one: EdgeType, other: EdgeType) -> None:
    first, second = EdgeKey(a, b, one), EdgeKey(c, d, other)
    assert (edge_id(first) == edge_id(second)) == (first == second)


def test_the_name_of_an_edge_is_the_convention_and_escapes_what_would_break_it() -> None:
    assert edge_id(EdgeKey("svc-a", "svc-b", EdgeType.DEPENDS_ON)) == "edge:svc-a|svc-b|DEPENDS_ON"
    assert edge_id(EdgeKey("a|b", "c%d", EdgeType.MANIFESTS_AS)) == "edge:a%7Cb|c%25d|MANIFESTS_AS"


@pytest.mark.req("TEE-WIRE-02")
@for_each(("seconds", "nanos"), [(253_402_300_800, 0), (-62_135_596_801, 0), (0, -1), (0, 10**9)])
def test_a_moment_outside_the_calendar_is_refused(seconds: int, nanos: int) -> None:
    with pytest.raises(InvalidGraph, match="not a timestamp of the years 1 to 9999"):
        validate_timestamp(seconds, nanos)
