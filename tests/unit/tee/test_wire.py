"""Bytes: names and numbers that other software relies on, the checked-in stubs, and what stores keep encoded."""

import sys
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, Timestamp
from cmbs.tee.kernel.lattice import merged_nodes, merged_provenance
from cmbs.tee.kernel.merge import decide_merge
from cmbs.tee.kernel.wire import (
    decoded,
    encoded_addition,
    encoded_edge,
    encoded_node,
    grown_edge,
    grown_node,
    keyed_edges,
    keyed_nodes,
    split,
)
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
    .map(lambda drawn: merged_provenance((), drawn))
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
    assert set(messages) == set(FIELDS)
    for name, expected in FIELDS.items():
        fields = messages[name].fields
        shared = [f"{each.number} {each.name}" for each in fields if each.number < ADDED_FROM]
        assert ", ".join(shared) == expected
        assert all(each.has_presence for each in fields if each.number >= ADDED_FROM)
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
    assert unary == CALLS
    assert not any(each.client_streaming for each in calls)


def test_the_stubs_are_those_that_the_proto_file_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from scripts.generate_stubs import generate

    monkeypatch.chdir(ROOT)
    made = generate(tmp_path)
    assert [path.name for path in made] == ["tee_pb2.py", "tee_pb2.pyi", "tee_pb2_grpc.py"]
    for path in made:
        kept = ROOT / path.relative_to(tmp_path)
        assert path.read_text("utf-8") == kept.read_text("utf-8"), f"run `{sys.executable} scripts/generate_stubs.py`"


@given(st.lists(nodes, max_size=3), st.lists(edges, max_size=3))
def test_what_is_encoded_piece_by_piece_is_one_message_and_comes_back(some: list[Node], more: list[Edge]) -> None:
    pieces = [*map(encoded_node, some), *map(encoded_edge, more)]
    assert decoded(pieces) == (some, more)
    # Any order of pieces is the same graph.
    assert decoded(reversed(pieces)) == (some[::-1], more[::-1])
    assert split(b"".join(pieces)) == pieces
    assert keyed_nodes(b"".join(map(encoded_node, some))) == [(each.id, encoded_node(each)) for each in some]
    assert keyed_edges(b"".join(map(encoded_edge, more))) == [(each.key, encoded_edge(each)) for each in more]


@given(nodes, st.booleans(), said)
def test_a_node_grown_by_what_is_new_is_encoded_as_the_whole(first: Node, hypothetical: bool, more: Said) -> None:
    opinion = Node(first.id, NodeType.SERVICE, "another", hypothetical, more)
    change = decide_merge({first.id: first}, {}, Delta((opinion,)))
    for whole, addition in zip(change.changed_nodes, change.added_to_nodes, strict=True):
        assert grown_node(encoded_node(first), encoded_addition(addition)) == encoded_node(whole)
        assert not keyed(addition.provenance) & keyed(first.provenance)
    assert bool(change.changed_nodes) == (merged_nodes(first, opinion) != first)


@given(edges, said)
def test_an_edge_grown_by_what_is_new_is_encoded_as_the_whole(first: Edge, more: Said) -> None:
    change = decide_merge({}, {first.key: first}, Delta((), (Edge(first.key, more),)))
    for whole, addition in zip(change.changed_edges, change.added_to_edges, strict=True):
        assert grown_edge(encoded_edge(first), encoded_edge(addition)) == encoded_edge(whole)
        assert not keyed(addition.provenance) & keyed(first.provenance)


def keyed(provenance: Said) -> set[tuple[str, str]]:
    return {(each.source, each.trigger) for each in provenance}


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_383, 16_384, 2_100_000])
def test_lengths_of_any_size_are_framed(size: int) -> None:
    big = Node(
        "n", NodeType.SERVICE, "x" * (size + 1), hypothetical=False, provenance=(Provenance("s", "", Timestamp(0, 0)),)
    )
    assert decoded([encoded_node(big)]) == ([big], [])
    assert split(encoded_node(big) * 2) == [encoded_node(big)] * 2
