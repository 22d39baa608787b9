"""The JSON of a graph, as the guide shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cmbs.errors import InvalidGraph
from cmbs.tee.graph_json import JsonEdge, JsonGraph, JsonNode, deltas, read_graph, write_graph
from cmbs.tee.kernel.lattice import EdgeType, NodeType
from cmbs.tee.kernel.wire import decode
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.subtests import for_each

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "fill-and-search-a-graph.md").read_text("utf-8")
LOCAL = '{"source": "s", "timestamp": "2026-01-31T09:30:00"}'
SHOWN = re.findall(r"<<'JSON'\n(.*?)\nJSON\n", GUIDE, re.DOTALL)


def load(graph: JsonGraph) -> MemoryGraphStore:
    store = MemoryGraphStore()
    for delta in deltas(graph):
        TeeService(store).merge_hypothesis(delta)
    return store


@pytest.mark.req("TEE-JSON-01")
def test_the_graph_of_the_guide_loads_and_is_shown_in_the_same_form() -> None:
    (text,) = SHOWN
    store = load(read_graph(text.encode()))
    view = store.main_graph()
    nodes, edges = decode([*view.nodes, *view.edges])
    assert {each.id: (each.type, each.label, each.hypothetical) for each in nodes} == {
        "checkout": (NodeType.SERVICE, "checkout", True),
        "orders-db": (NodeType.DEPENDENCY, "Orders database", False),
        "disk-full": (NodeType.MECHANISM, "disk-full", True),
    }
    assert sorted(each.key for each in edges) == [
        ("checkout", "orders-db", EdgeType.DEPENDS_ON),
        ("disk-full", "orders-db", EdgeType.PROPAGATES_TO),
    ]
    shown = write_graph(nodes, edges)
    view = load(read_graph(shown)).main_graph()
    assert write_graph(*decode([*view.nodes, *view.edges])) == shown


@pytest.mark.req("TEE-JSON-01")
def test_the_guide_names_every_field_and_every_type() -> None:
    part = GUIDE.partition("## Write it as JSON")[2].partition("\n## ")[0]
    names = {*JsonNode.__struct_fields__, *JsonEdge.__struct_fields__, *(each.name for each in (*NodeType, *EdgeType))}
    assert {each for each in names if f"`{each}`" not in part} == set()


@pytest.mark.req("TEE-JSON-01")
@for_each(
    ("text", "said"),
    [
        ('{"nodes": [{"id": "a", "type": "SERVICE", "kind": "x"}]}', "unknown field `kind` - at `$.nodes[0]`"),
        ('{"nodes": [{"id": "a"}]}', "missing required field `type`"),
        ('{"nodes": [{"id": "a", "type": "SERVER", "provenance": ["s"]}]}', "`SERVER` is not a type"),
        ('{"nodes": [{"id": "a", "type": "SERVICE"}]}', "node `a` must have provenance"),
        (f'{{"nodes": [{{"id": "a", "type": "SERVICE", "provenance": [{LOCAL}]}}]}}', "has no time zone"),
        ("[]", "not a graph"),
    ],
)
def test_a_graph_that_is_not_as_the_guide_says_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidGraph) as refused:
        load(read_graph(text.encode()))
    assert said in refused.value.message
