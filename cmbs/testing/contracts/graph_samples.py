"""Small graphs, and what is in a view: for the contract of graph stores. Needs the `tee` extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeAlias, TypeVar

from cmbs.tee import Edge, EdgeKey, EdgeType, GraphStore, GraphView, Node, NodeType, Provenance, Timestamp
from cmbs.tee.kernel.wire import decode
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS

Opened: TypeAlias = Callable[[], GraphStore]
T = TypeVar("T")

NOW = Timestamp(1_700_000_000, 5)
LATER = Timestamp(1_800_000_000, 0)
SAID = Provenance("agent", "deploy", NOW)
ALSO = Provenance("agent", "alert", LATER)
# Whatever protobuf can carry is an id.
HOSTILE = [*filter(None, HOSTILE_IDS), "a\0b", "edge:a|b|DEPENDS_ON", "%", "`", "$x", "A"]


def node(
    node_id: str, said: Iterable[Provenance] = (SAID,), *, label: str = "label", hypothetical: bool = True
) -> Node:
    """A service."""
    return Node(node_id, NodeType.SERVICE, label, hypothetical, tuple(said))


def edge(source: str, target: str, said: Iterable[Provenance] = (SAID,)) -> Edge:
    """A dependency."""
    return Edge(key(source, target), tuple(said))


def key(source: str, target: str) -> EdgeKey:
    """The identity of a dependency."""
    return EdgeKey(source, target, EdgeType.DEPENDS_ON)


def nodes_in(view: GraphView) -> dict[str, Node]:
    """The nodes of a view, each there once."""
    nodes, edges = decode(view.nodes)
    assert not edges
    found = {each.id: each for each in nodes}
    assert len(found) == len(nodes)
    return found


def edges_in(view: GraphView) -> dict[EdgeKey, Edge]:
    """The edges of a view, each there once."""
    nodes, edges = decode(view.edges)
    assert not nodes
    found = {each.key: each for each in edges}
    assert len(found) == len(edges)
    return found


def contents(view: GraphView) -> tuple[set[str], set[EdgeKey]]:
    """What is in a view, without its content."""
    return set(nodes_in(view)), set(edges_in(view))


def together(calls: list[Callable[[], T]]) -> list[T]:
    """Make all calls at the same moment, as far as threads can."""
    line = Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        line.wait(timeout=30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))
