"""The contract of a graph store as tests, for every driver. Needs `pytest`, and the `tee` extra.

A driver's test is a class with one fixture, `opened`: a function that opens the graph, which is empty at first, and
opens the same graph again each time it is called (or returns the same object, where the store is the process's own)::

    class TestMine(GraphStoreContract):
        @pytest.fixture
        def opened(self, tmp_path: Path) -> Opened:
            return lambda: MyGraphStore(tmp_path / "graph")
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest

from cmbs.errors import IncidentNotFound, InvalidGraph
from cmbs.tee import (
    Delta,
    Edge,
    EdgeKey,
    EdgeTombstones,
    EdgeType,
    GraphStore,
    MergeConflict,
    Node,
    NodeTombstones,
    NodeType,
    Provenance,
    Timestamp,
    Universe,
    UniverseKind,
)
from cmbs.testing.contracts.graph_growth import GraphGrowthContract
from cmbs.testing.contracts.graph_model import GraphModel, random_delta
from cmbs.testing.contracts.graph_samples import (
    ALSO,
    HOSTILE,
    LATER,
    NOW,
    SAID,
    Opened,
    contents,
    edge,
    edges_in,
    key,
    node,
    nodes_in,
    together,
)


class GraphStoreContract(GraphGrowthContract):
    """Everything that `GraphStore` guarantees."""

    # --- merging ---

    def test_a_new_graph_is_empty_and_at_version_0(self, store: GraphStore) -> None:
        assert isinstance(store, GraphStore)
        assert store.version() == 0
        view = store.main_graph()
        assert (view.version, contents(view)) == (0, (set(), set()))

    def test_what_is_new_is_created_and_comes_back_whole(self, store: GraphStore) -> None:
        delta = Delta((node("a"), node("b", [SAID, ALSO], hypothetical=False)), (edge("a", "b", [ALSO]),))
        result = store.merge(delta)
        assert result[:5] == (("a", "b"), (key("a", "b"),), (), (), ())
        view = store.main_graph()
        assert view.version == result.version == store.version() > 0
        assert nodes_in(view) == {each.id: each for each in delta.nodes}
        assert edges_in(view) == {each.key: each for each in delta.edges}

    def test_the_same_again_is_merged_and_changes_nothing(self, store: GraphStore) -> None:
        delta = Delta((node("a"),), (edge("a", "b"),))
        first = store.merge(delta)
        again = store.merge(delta)
        assert again == ((), (), ("a",), (key("a", "b"),), (), first.version)

    def test_type_and_label_stay_and_another_proposal_is_reported_with_both_values(self, store: GraphStore) -> None:
        store.merge(Delta((node("a", label="first"),)))
        other = Node("a", NodeType.MECHANISM, "second", hypothetical=False, provenance=(ALSO,))
        result = store.merge(Delta((other,)))
        assert set(result.conflicts) == {
            MergeConflict("a", "type", "SERVICE", "MECHANISM"),
            MergeConflict("a", "label", "first", "second"),
        }
        assert result.merged_nodes == ("a",)
        # What does not conflict is taken.
        kept = nodes_in(store.main_graph())["a"]
        assert (kept.type, kept.label, kept.hypothetical) == (NodeType.SERVICE, "first", False)
        assert set(kept.provenance) == {SAID, ALSO}

    def test_a_conflict_inside_one_delta_is_one_too(self, store: GraphStore) -> None:
        result = store.merge(Delta((node("a", label="first"), node("a", label="second"))))
        assert result.created_nodes == ("a",)
        assert result.merged_nodes == ()
        assert result.conflicts == (MergeConflict("a", "label", "first", "second"),)

    def test_hypothetical_once_false_stays_false(self, store: GraphStore) -> None:
        first = store.merge(Delta((node("a"),)))
        second = store.merge(Delta((node("a", hypothetical=False),)))
        third = store.merge(Delta((node("a"),)))
        assert first.version < second.version == third.version
        assert nodes_in(store.main_graph())["a"].hypothetical is False

    def test_provenance_is_a_set_and_its_first_timestamp_stays(self, store: GraphStore) -> None:
        earlier = Provenance(SAID.source, SAID.trigger, Timestamp(0, 0))
        first = store.merge(Delta((node("a"),), (edge("a", "b"),)))
        assert store.merge(Delta((node("a", [earlier]),), (edge("a", "b", [earlier]),))).version == first.version
        assert store.merge(Delta((node("a", [ALSO]),), (edge("a", "b", [ALSO]),))).version > first.version
        view = store.main_graph()
        assert set(nodes_in(view)["a"].provenance) == {SAID, ALSO}
        assert set(edges_in(view)[key("a", "b")].provenance) == {SAID, ALSO}

    def test_source_and_trigger_are_a_pair_not_a_joined_string(self, store: GraphStore) -> None:
        said = [Provenance("a::b", "c", NOW), Provenance("a", "b::c", NOW), Provenance("a", "", NOW)]
        store.merge(Delta((node("n", said),)))
        assert set(nodes_in(store.main_graph())["n"].provenance) == set(said)

    def test_edges_differ_by_direction_and_type(self, store: GraphStore) -> None:
        keys = {EdgeKey(*ends, kind) for ends in (("a", "b"), ("b", "a")) for kind in EdgeType}
        store.merge(Delta((), tuple(Edge(each, (SAID,)) for each in keys)))
        assert set(edges_in(store.main_graph())) == keys

    def test_ids_are_opaque(self, store: GraphStore) -> None:
        edges = [edge(source, target) for source, target in pairwise(HOSTILE)]
        store.merge(Delta(tuple(map(node, HOSTILE)), tuple(edges)))
        assert contents(store.main_graph()) == (set(HOSTILE), {each.key for each in edges})
        for incident_id in HOSTILE:
            assert store.create_incident(incident_id, NOW).created
            result = store.merge_node_tombstones(incident_id, [incident_id], SAID)
            assert result == NodeTombstones((incident_id,), (), (), 1)
            assert set(nodes_in(store.live_view(incident_id))) == {*HOSTILE} - {incident_id}

    def test_any_moment_of_the_calendar_comes_back(self, store: GraphStore) -> None:
        moments = [Timestamp(-62_135_596_800, 0), Timestamp(-1, 999_999_999), Timestamp(253_402_300_799, 999_999_999)]
        said = [Provenance("s", str(number), moment) for number, moment in enumerate(moments)]
        store.merge(Delta((node("a", said),)))
        assert set(nodes_in(store.main_graph())["a"].provenance) == set(said)
        for moment in moments:
            assert store.create_incident(str(moment), moment).incident.created_at == moment

    # --- incidents ---

    def test_an_incident_is_created_once_and_keeps_its_anchor(self, store: GraphStore) -> None:
        version = store.merge(Delta((node("a"),))).version
        first = store.create_incident("i", NOW)
        assert (first.created, first.incident) == (True, ("i", NOW, version, None))
        store.merge(Delta((node("b"),)))
        again = store.create_incident("i", LATER)
        assert (again.created, again.incident) == (False, first.incident)
        assert store.incident("i") == first.incident

    def test_an_incident_that_was_not_created_is_not_found(self, store: GraphStore) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.incident("missing"),
            lambda: store.live_view("missing"),
            lambda: store.tombstones("missing"),
            lambda: store.merge_node_tombstones("missing", ["a"], SAID),
            lambda: store.merge_edge_tombstones("missing", [key("a", "b")], SAID),
        ]
        for call in calls:
            with pytest.raises(IncidentNotFound, match="missing"):
                call()

    def test_tombstones_are_applied_once_and_then_already_there(self, store: GraphStore) -> None:
        store.merge(Delta((node("a"), node("b")), (edge("a", "b"), edge("b", "a"))))
        store.create_incident("i", NOW)
        assert store.merge_node_tombstones("i", ["a", "x", "a"], SAID) == NodeTombstones(("a",), (), ("x",), 2)
        assert store.merge_node_tombstones("i", ["b", "a", "x"], ALSO) == NodeTombstones(("b",), ("a",), ("x",), 3)
        ab, ba, xy = key("a", "b"), key("b", "a"), key("x", "y")
        assert store.merge_edge_tombstones("i", [ab, xy, ab], SAID) == EdgeTombstones((ab,), (), (xy,), 5)
        assert store.merge_edge_tombstones("i", [ba, ab, xy], ALSO) == EdgeTombstones((ba,), (ab,), (xy,), 6)
        # The unmatched are kept, and each with who said so first.
        assert store.tombstones("i") == (
            {"a": SAID, "x": SAID, "b": ALSO},
            {ab: SAID, xy: SAID, ba: ALSO},
        )

    def test_a_live_view_has_no_tombstoned_node_and_no_edge_of_one(self, store: GraphStore) -> None:
        chain = "abcde"
        edges = [edge(*ends) for ends in pairwise(chain)]
        version = store.merge(Delta(tuple(map(node, chain)), (*edges, edge("a", "ghost")))).version
        store.create_incident("i", NOW)
        store.merge_node_tombstones("i", ["b", "ghost"], SAID)
        store.merge_edge_tombstones("i", [key("d", "e")], SAID)
        view = store.live_view("i")
        assert view.version == version
        assert contents(view) == (set("acde"), {key("c", "d")})
        # The main graph and other incidents do not notice.
        assert len(nodes_in(store.main_graph())) == len(chain)
        store.create_incident("j", NOW)
        assert len(nodes_in(store.live_view("j"))) == len(chain)

    def test_what_is_born_during_an_incident_neither_appears_nor_disappears_in_it(self, store: GraphStore) -> None:
        store.merge(Delta((node("a"), node("b")), (edge("a", "b"),)))
        anchor = store.create_incident("i", NOW).incident.anchor
        store.merge(Delta((node("c"), node("a", [ALSO])), (edge("a", "c"), edge("b", "a"))))
        store.create_incident("j", NOW)
        view = store.live_view("i")
        assert (view.version, contents(view)) == (anchor, ({"a", "b"}, {key("a", "b")}))
        # Membership is as of the anchor, content is the newest.
        assert set(nodes_in(view)["a"].provenance) == {SAID, ALSO}
        # A tombstone for the newborn has nothing to match here, and does elsewhere.
        assert store.merge_node_tombstones("i", ["c"], SAID) == NodeTombstones((), (), ("c",), 1)
        assert store.merge_edge_tombstones("i", [key("b", "a")], SAID).unmatched == (key("b", "a"),)
        assert store.merge_node_tombstones("j", ["c"], SAID) == NodeTombstones(("c",), (), (), 1)
        assert contents(store.live_view("i")) == ({"a", "b"}, {key("a", "b")})
        assert contents(store.live_view("j")) == ({"a", "b"}, {key("a", "b"), key("b", "a")})

    def test_an_incident_on_an_empty_graph_stays_empty(self, store: GraphStore) -> None:
        assert store.create_incident("i", NOW).incident.anchor == 0
        store.merge(Delta((node("a"),)))
        assert contents(store.live_view("i")) == (set(), set())

    def test_what_a_store_hands_out_is_not_its_own(self, store: GraphStore) -> None:
        store.merge(Delta((node("a"), node("b"))))
        store.create_incident("i", NOW)
        store.merge_node_tombstones("i", ["a"], SAID)
        before = store.tombstones("i")
        view = store.live_view("i")
        store.merge_node_tombstones("i", ["b"], SAID)
        assert set(before.nodes) == {"a"}
        assert set(nodes_in(view)) == {"b"}

    # --- laws ---

    @pytest.mark.parametrize("seed", range(6))
    def test_any_history_gives_what_the_plain_model_gives(self, opened: Opened, seed: int) -> None:
        chance, model, stores = random.Random(seed), GraphModel(), [opened(), opened()]  # noqa: S311 - reproducible
        for _ in range(40):
            store = chance.choice(stores)
            model.step(store, chance)
        for incident_id in model.anchors:
            assert contents(stores[0].live_view(incident_id)) == model.live(incident_id)
        view = stores[1].main_graph()
        assert (nodes_in(view), edges_in(view)) == (model.nodes_now(), model.edges_now())

    def test_thousands_at_once(self, store: GraphStore) -> None:
        ids = [f"n{number}" for number in range(3_000)]
        edges = tuple(edge(*ends) for ends in pairwise(ids))
        assert len(store.merge(Delta(tuple(map(node, ids)), edges)).created_nodes) == len(ids)
        store.create_incident("i", NOW)
        gone = ids[::2]
        assert store.merge_node_tombstones("i", gone, SAID).applied == tuple(gone)
        assert contents(store.live_view("i")) == (set(ids[1::2]), set())

    # --- identity ---

    def test_a_graph_has_an_identity_from_its_creation_on(self, opened: Opened) -> None:
        store = opened()
        made = store.identity()
        assert made.tee_id
        assert made.stands_in_for == ()
        store.merge(Delta((node("a"),)))
        assert opened().identity() == made

    def test_what_a_graph_stands_in_for_is_only_added_to(self, opened: Opened) -> None:
        store = opened()
        tee_id = store.identity().tee_id
        assert store.stand_in_for(["lost", tee_id, "lost"]) == (tee_id, ("lost",))
        assert store.stand_in_for(["older", "lost"]) == (tee_id, ("lost", "older"))
        assert store.stand_in_for([]) == opened().identity() == (tee_id, ("lost", "older"))

    # --- anchors and universes ---

    def test_an_incident_may_be_anchored_at_an_earlier_version(self, store: GraphStore) -> None:
        first = store.merge(Delta((node("a"), node("b")), (edge("a", "b"),))).version
        second = store.merge(Delta((node("c"),), (edge("b", "c"),))).version
        created = store.create_incident("i", NOW, first)
        assert (created.created, created.incident.anchor) == (True, first)
        assert contents(store.live_view("i")) == ({"a", "b"}, {key("a", "b")})
        assert store.merge_node_tombstones("i", ["a", "c"], SAID) == NodeTombstones(("a",), (), ("c",), 2)
        # An existing one stays where it is, whatever is asked for.
        assert store.create_incident("i", LATER, second).incident == created.incident
        with pytest.raises(InvalidGraph, match=f"has no version {second + 1}"):
            store.create_incident("j", NOW, second + 1)
        with pytest.raises(IncidentNotFound):
            store.incident("j")

    def test_the_graph_as_of_a_version_stays_as_it_is(self, store: GraphStore) -> None:
        first = store.merge(Delta((node("a"),), (edge("a", "b"),))).version
        seen = contents(store.graph_at(first))
        store.merge(Delta((node("b"), node("c")), (edge("b", "c"),)))
        assert contents(store.graph_at(first)) == seen == ({"a"}, {key("a", "b")})
        assert contents(store.graph_at(store.version())) == contents(store.main_graph())
        assert contents(store.graph_at(0)) == (set(), set())
        bare = store.graph_at(store.version(), edges=False)
        assert (contents(bare), bare.version) == (({"a", "b", "c"}, set()), store.version())
        with pytest.raises(InvalidGraph, match="has no version"):
            store.graph_at(store.version() + 1)

    def test_a_universe_is_written_with_its_incident_or_never(self, opened: Opened) -> None:
        store = opened()
        version = store.merge(Delta(tuple(map(node, ["a", "b", *HOSTILE])), (edge("a", "b"),))).version
        listed = Universe(UniverseKind.LISTED, ("a", *HOSTILE), (key("a", "b"),))
        for name, universe in {
            "l": listed,
            "n": Universe(UniverseKind.NODES),
            "g": Universe(UniverseKind.GRAPH),
        }.items():
            assert store.create_incident(name, NOW, None, universe).incident.universe is universe.kind
        store.create_incident("none", NOW)
        assert store.create_incident("none", NOW, None, listed).incident.universe is None
        store.merge(Delta((node("late"),)))
        for each in (store, opened()):
            known = each.universe("l")
            assert known is not None
            assert (known.kind, set(known.node_ids), set(known.edges)) == (
                listed.kind,
                set(listed.node_ids),
                {key("a", "b")},
            )
            assert each.universe("n") == Universe(UniverseKind.NODES)
            assert each.incident("g") == ("g", NOW, version, UniverseKind.GRAPH)
            assert each.universe("none") is None
        with pytest.raises(IncidentNotFound):
            store.universe("nothing")

    def test_a_universe_of_what_the_graph_does_not_have_creates_nothing(self, store: GraphStore) -> None:
        version = store.merge(Delta((node("a"),))).version
        store.merge(Delta((node("late"),)))
        universe = Universe(UniverseKind.LISTED, ("a", "late", "ghost"), (key("a", "b"),))
        refused = store.create_incident("i", NOW, version, universe)
        assert (refused.created, refused.unknown) == (False, ("late", "ghost", key("a", "b")))
        with pytest.raises(IncidentNotFound):
            store.incident("i")

    # --- provenance ---

    def test_provenance_is_a_set_however_it_arrives(self, store: GraphStore) -> None:
        said = [Provenance(f"source {number}", "scan", NOW) for number in range(30)]
        for number, each in enumerate(said):
            store.merge(Delta((node("a", (each,)),), (edge("a", "b", (each, said[0])),)))
            # Said again, at another time: nothing changes.
            before = store.version()
            store.merge(
                Delta((node("a", (Provenance(each.source, each.trigger, LATER), said[0])),), (edge("a", "b", (each,)),))
            )
            assert store.version() == before, number
        view = store.main_graph()
        assert set(nodes_in(view)["a"].provenance) == set(said)
        assert set(edges_in(view)[key("a", "b")].provenance) == set(said)

    def test_what_becomes_certain_stays_so_whatever_else_is_said(self, store: GraphStore) -> None:
        store.merge(Delta((node("a"),)))
        store.create_incident("i", NOW)
        store.merge(Delta((node("a", (ALSO,), hypothetical=False),)))
        store.merge(Delta((node("a"),)))
        for view in (store.main_graph(), store.live_view("i")):
            assert nodes_in(view)["a"].hypothetical is False
            assert set(nodes_in(view)["a"].provenance) == {SAID, ALSO}

    # --- one step of a search ---

    def test_a_step_sees_the_edges_of_nodes_as_of_a_version(self, store: GraphStore) -> None:
        first = store.merge(Delta((node("a"), node("b")), (edge("a", "b"), edge("c", "a")))).version
        second = store.merge(Delta((node("c"),), (edge("b", "c"),))).version
        assert store.edges_at(0, ["a"]) == []
        assert sorted(store.edges_at(first, ["a"])) == [key("a", "b"), key("c", "a")]
        assert store.edges_at(first, ["b"]) == [key("a", "b")]
        assert sorted(store.edges_at(second, ["a", "b", "nothing"])) == [key("a", "b"), key("b", "c"), key("c", "a")]
        assert store.edges_at(second, []) == []
        # An end of an edge is a node once it was proposed.
        assert store.find_nodes(first, ["a", "c", "nothing"]) == {"a"}
        assert store.find_nodes(second, ["a", "c", "nothing"]) == {"a", "c"}
        assert [each.id for each in store.nodes_at(first, ["a", "a", "c"])] == ["a"]
        assert store.nodes_at(second, ["c"])[0].label == "label"

    def test_steps_take_any_id_that_the_wire_carries(self, store: GraphStore) -> None:
        ids = [*HOSTILE, "x" * 2_000, "x" * 2_000 + "y"]
        version = store.merge(Delta(tuple(map(node, ids)), tuple(edge("hub", each) for each in ids))).version
        assert store.find_nodes(version, ids) == set(ids)
        assert {each.target for each in store.edges_at(version, ["hub"])} == set(ids)
        for each in ids:
            assert key("hub", each) in store.edges_at(version, [each])

    @pytest.mark.parametrize("seed", range(3))
    def test_steps_at_random_are_those_of_the_model(self, store: GraphStore, seed: int) -> None:
        chance, model = random.Random(seed), GraphModel()  # noqa: S311 - reproducible
        for _ in range(30):
            model.step(store, chance)
        for version in (0, store.version() // 2, store.version()):
            nodes, edges = model.list_born(version)
            assert store.find_nodes(version, list("abcdefgh")) == nodes
            for each in "abcdefgh":
                assert set(store.edges_at(version, [each])) == {one for one in edges if each in one[:2]}

    # --- several at a time ---

    def test_what_one_handle_wrote_another_sees(self, opened: Opened) -> None:
        first, second = opened(), opened()
        version = first.merge(Delta((node("a"),))).version
        assert second.version() == version
        assert second.merge(Delta((node("a"), node("b")))).merged_nodes == ("a",)
        second.create_incident("i", NOW)
        assert first.merge_node_tombstones("i", ["a"], SAID).applied == ("a",)
        assert second.merge_node_tombstones("i", ["a"], SAID).already == ("a",)
        assert set(nodes_in(second.live_view("i"))) == {"b"}
        assert set(nodes_in(first.live_view("i"))) == {"b"}

    def test_of_concurrent_writers_exactly_one_creates_and_one_applies(self, opened: Opened) -> None:
        stores = [opened(), opened()]
        ids = [f"n{number}" for number in range(40)]
        edges = [edge(*ends) for ends in pairwise(ids)]
        delta = Delta(tuple(map(node, ids)), tuple(edges))
        merged = together([partial(each.merge, delta) for each in stores * 2])
        assert sorted(each for result in merged for each in result.created_nodes) == sorted(ids)
        assert sorted(each for result in merged for each in result.created_edges) == sorted(each.key for each in edges)
        opening = together([partial(each.create_incident, "i", NOW) for each in stores * 2])
        assert sum(each.created for each in opening) == 1
        gone = together([partial(each.merge_node_tombstones, "i", ids, SAID) for each in stores * 2])
        assert sorted(each for result in gone for each in result.applied) == sorted(ids)
        cut = together(
            [partial(each.merge_edge_tombstones, "i", [one.key for one in edges], SAID) for each in stores * 2]
        )
        assert sorted(each for result in cut for each in result.applied) == sorted(each.key for each in edges)

    def test_concurrent_merges_lose_nothing(self, opened: Opened) -> None:
        stores = [opened(), opened()]
        deltas = [random_delta(random.Random(seed)) for seed in range(8)]  # noqa: S311 - reproducible
        together([partial(stores[n % 2].merge, each) for n, each in enumerate(deltas)])
        view = stores[0].main_graph()
        assert set(nodes_in(view)) == {each.id for delta in deltas for each in delta.nodes}
        for delta in deltas:
            for each in delta.nodes:
                said = {(one.source, one.trigger) for one in nodes_in(view)[each.id].provenance}
                assert {(one.source, one.trigger) for one in each.provenance} <= said
