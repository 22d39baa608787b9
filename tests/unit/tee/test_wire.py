"""Bytes: names and numbers that other software relies on, the checked-in stubs, and what stores keep encoded."""

import sys
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, Timestamp
from cmbs.tee.kernel.graph import Graph
from cmbs.tee.kernel.lattice import merge_edges, merge_nodes, merge_provenance
from cmbs.tee.kernel.wire import decode, encode_change, encode_edge, encode_node, split
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.testing.strategies.belief import ids

ROOT = Path(__file__).resolve().parents[3]

FIELDS = {
    "Provenance": "1 source, 2 timestamp, 3 trigger",
    "Node": "1 id, 2 type, 3 label, 4 hypothetical, 5 provenance",
    "Edge": "1 source, 2 target, 3 type, 4 provenance",
    "CausalGraph": "1 nodes, 2 edges",
    "HypothesisDelta": "1 nodes, 2 edges",
    "CreateIncidentRequest": "1 incident_id",
    "IncidentContextRequest": "1 incident_id",
    "LiveViewRequest": "1 incident_id",
    "TombstoneRequest": "1 incident_id",
    "NodeTombstoneRequest": "1 incident_id, 2 node_ids, 3 provenance",
    "EdgeTombstoneEntry": "1 source, 2 target, 3 type",
    "EdgeTombstoneRequest": "1 incident_id, 2 entries, 3 provenance",
    "HypothesisMergeResult": "1 created_ids, 2 merged_ids, 3 conflicts",
    "MergeConflict": "1 id, 2 field, 3 existing_value, 4 proposed_value",
    "CreateIncidentResult": "1 incident_id, 2 created",
    "IncidentContext": "1 incident_id, 2 created_at, 3 tombstones",
    "TombstoneMergeResult": "1 applied_ids, 2 already_tombstoned_ids, 3 unmatched_ids",
    "TombstoneSet": "1 node_ids, 2 edge_entries",
}
CALLS = {
    "MergeHypothesis": ("tee.HypothesisDelta", "tee.HypothesisMergeResult"),
    "CreateIncident": ("tee.CreateIncidentRequest", "tee.CreateIncidentResult"),
    "GetIncidentContext": ("tee.IncidentContextRequest", "tee.IncidentContext"),
    "MergeNodeTombstones": ("tee.NodeTombstoneRequest", "tee.TombstoneMergeResult"),
    "MergeEdgeTombstones": ("tee.EdgeTombstoneRequest", "tee.TombstoneMergeResult"),
    "GetLiveView": ("tee.LiveViewRequest", "tee.CausalGraph"),
    "GetTombstones": ("tee.TombstoneRequest", "tee.TombstoneSet"),
    "GetMainGraph": ("google.protobuf.Empty", "tee.CausalGraph"),
}
# Our own additions begin here, and each may be missing.
ADDED_FROM = 16

Said: TypeAlias = tuple[Provenance, ...]

moments = st.builds(Timestamp, st.integers(-62_135_596_800, 253_402_300_799), st.integers(0, 999_999_999))
said = (
    st.lists(st.builds(Provenance, ids().filter(bool), ids(), moments), min_size=1, max_size=3)
    .map(tuple)
    .map(lambda drawn: merge_provenance((), drawn))
)
texts = ids(200).filter(bool)
nodes = st.builds(Node, texts, st.sampled_from(NodeType), texts, st.booleans(), said)
edges = st.builds(
    Edge,
    st.builds(EdgeKey, texts, texts, st.sampled_from(EdgeType)).filter(lambda key: key.source != key.target),
    said,
)


@pytest.mark.req("TEE-WIRE-01")
def test_names_and_numbers_are_those_that_others_use() -> None:
    messages = pb.DESCRIPTOR.message_types_by_name
    assert set(FIELDS) <= set(messages)
    for name, expected in FIELDS.items():
        fields = messages[name].fields
        shared = [f"{each.number} {each.name}" for each in fields if each.number < ADDED_FROM]
        assert ", ".join(shared) == expected
        # An addition that is not there can be told from one that is empty.
        assert all(each.has_presence or each.is_repeated for each in fields if each.number >= ADDED_FROM)
    assert pb.DESCRIPTOR.package == "tee"
    node_types = ["UNSPECIFIED", "SERVICE", "DEPENDENCY", "INFRASTRUCTURE", "MECHANISM"]
    assert list(pb.NodeType.items()) == [(f"NODE_TYPE_{name}", number) for number, name in enumerate(node_types)]
    edge_types = ["UNSPECIFIED", "DEPENDS_ON", "PROPAGATES_TO", "MANIFESTS_AS"]
    assert list(pb.EdgeType.items()) == [(f"EDGE_TYPE_{name}", number) for number, name in enumerate(edge_types)]
    calls = pb.DESCRIPTOR.services_by_name["Tee"].methods
    unary = {
        each.name: (each.input_type.full_name, each.output_type.full_name)
        for each in calls
        if not each.server_streaming
    }
    assert {name: unary[name] for name in CALLS} == CALLS
    assert not any(each.client_streaming for each in calls)


def test_the_stubs_are_those_that_the_proto_file_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from scripts.generate_stubs import generate

    monkeypatch.chdir(ROOT)
    made = generate(tmp_path)
    stems = ("ext_mcp", "tee")
    assert [path.name for path in made] == [f"{stem}_pb2{end}" for stem in stems for end in (".py", ".pyi", "_grpc.py")]
    for path in made:
        kept = ROOT / path.relative_to(tmp_path)
        assert path.read_text("utf-8") == kept.read_text("utf-8"), f"run `{sys.executable} scripts/generate_stubs.py`"


@given(st.lists(nodes, max_size=3), st.lists(edges, max_size=3))
def test_what_is_encoded_piece_by_piece_is_one_message_and_comes_back(some: list[Node], more: list[Edge]) -> None:
    pieces = [*map(encode_node, some), *map(encode_edge, more)]
    assert decode(pieces) == (some, more)
    # Any order of pieces is the same graph.
    assert decode(reversed(pieces)) == (some[::-1], more[::-1])
    assert list(split(b"".join(pieces))) == pieces


@given(nodes, edges, st.booleans(), said, said)
def test_an_addition_makes_the_same_bytes_as_the_whole(
    node: Node, edge: Edge, hypothetical: bool, node_said: Said, edge_said: Said
) -> None:
    opinion = Node(node.id, NodeType.SERVICE, "another", hypothetical, node_said)
    graph = Graph()
    graph.absorb(1, *encode_change(graph.decide(Delta((node,), (edge,)))))
    change = graph.decide(Delta((opinion,), (Edge(edge.key, edge_said),)))
    graph.absorb(2, *encode_change(change))
    view = graph.view(2)
    assert list(view.nodes) == [encode_node(merge_nodes(node, opinion))]
    assert list(view.edges) == [encode_edge(merge_edges(edge, Edge(edge.key, edge_said)))]
    assert bool(change.added_to_nodes) == (merge_nodes(node, opinion) != node)
    assert not any(each in node.provenance for addition in change.added_to_nodes for each in addition.provenance)
    assert not any(each in edge.provenance for addition in change.added_to_edges for each in addition.provenance)
