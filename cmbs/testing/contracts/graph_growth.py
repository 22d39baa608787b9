"""What a graph store guarantees while its graph grows: a part of its contract as tests. Needs `pytest`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from threading import Event, Thread

import pytest

from cmbs.errors import InvalidGraph
from cmbs.tee import Delta, EdgeKey, GraphStore, NodeTombstones, Provenance, Universe, UniverseKind
from cmbs.testing.contracts.graph_samples import (
    HOSTILE,
    NOW,
    SAID,
    Opened,
    contents,
    edge,
    key,
    node,
)

_MERGES_FIRST = 3


@contextmanager
def growing(store: GraphStore) -> Iterator[None]:
    """Merge into a graph for as long as the block lasts: new nodes and edges, and more provenance of known ones."""
    over, begun, failures = Event(), Event(), list[Exception]()

    def merge() -> None:
        number = 0
        try:
            while not over.is_set():
                number += 1
                name, said = f"grown {number}", Provenance(f"scan {number}", "growth", NOW)
                # What is known is named first, so that the newborn hang on it.
                store.merge(Delta((node("a", [said]), node(name, [said])), (edge("a", name, [said]),)))
                if number == _MERGES_FIRST:
                    begun.set()
        except Exception as exc:  # noqa: BLE001 - raised by the block
            failures.append(exc)
            begun.set()

    thread = Thread(target=merge, name="growth")
    thread.start()
    try:
        assert begun.wait(30)
        yield
    finally:
        over.set()
        thread.join(30)
    if failures:
        raise failures[0]


def read_pages(store: GraphStore, version: int, size: int) -> tuple[list[str], list[EdgeKey]]:
    """All pages, one after the other; each but the last is full, and no node comes behind an edge."""
    nodes: list[str] = []
    edges: list[EdgeKey] = []
    token = ""
    while True:
        page = store.page_at(version, token, size)
        assert not (edges and page.nodes)
        nodes += [each.id for each in page.nodes]
        edges += page.edges
        token = page.next_token
        if not token:
            return nodes, edges
        assert len(page.nodes) + len(page.edges) == size


class GraphGrowthContract:
    """What membership as of a version means: whatever is merged meanwhile, it stays what it is."""

    @pytest.fixture
    def store(self, opened: Opened) -> GraphStore:
        """The graph, opened once."""
        return opened()

    def test_what_an_incident_sees_stays_the_same_while_the_graph_grows(self, opened: Opened) -> None:
        store, other = opened(), opened()
        version = store.merge(Delta(tuple(map(node, "abcd")), (edge("a", "b"), edge("c", "d")))).version
        store.create_incident("i", NOW, None, Universe(UniverseKind.GRAPH))
        with growing(other):
            for number in range(5):
                created = store.create_incident(f"late {number}", NOW, version, Universe(UniverseKind.NODES))
                assert (created.created, created.incident.anchor) == (True, version)
                assert contents(store.live_view(f"late {number}"))[0] == set("abcd")
                assert contents(store.graph_at(version)) == (set("abcd"), {key("a", "b"), key("c", "d")})
                assert store.edges_at(version, ["a"]) == [key("a", "b")]
                assert read_pages(store, version, 2) == read_pages(store, version, 100)
            merged = store.merge_node_tombstones("i", ["b", "grown 1"], SAID)
            assert merged == NodeTombstones(("b",), (), ("grown 1",), 2)
            view = store.live_view("i")
            assert (view.version, contents(view)) == (version, (set("acd"), {key("c", "d")}))
            # An incident without an anchor of its own sees what was there when it was made.
            now = store.create_incident("now", NOW).incident.anchor
            assert now > version
            assert contents(store.live_view("now")) == contents(store.graph_at(now))

    def test_pages_have_everything_of_a_version_once(self, store: GraphStore) -> None:
        ids = [*HOSTILE, *"abc", "x" * 2_000, "x" * 2_000 + "y"]
        edges = (*(edge("hub", each) for each in ids), *(edge(*ends) for ends in pairwise(ids)))
        first = store.merge(Delta(tuple(map(node, ids)), edges)).version
        seen = contents(store.graph_at(first))
        store.merge(Delta((node("hub"), node("late")), (edge("late", "a"), edge("a", "late"))))
        for size in (1, 2, len(ids), 1_000):
            for version, expected in ((first, seen), (store.version(), contents(store.main_graph()))):
                found = read_pages(store, version, size)
                assert (set(found[0]), set(found[1])) == expected
                assert (len(found[0]), len(found[1])) == (len(expected[0]), len(expected[1]))
        assert store.page_at(0, "", 10) == ((), (), "")
        page = store.page_at(first, "", 1_000)
        assert {each.id: (each.type, each.label) for each in page.nodes}["a"] == (node("a").type, "label")

    @pytest.mark.parametrize("token", ["x", "-1", "[]", "{", '["a", "b"]', '["a", -1]'])
    def test_a_token_that_no_page_gave_out_is_refused(self, store: GraphStore, token: str) -> None:
        store.merge(Delta((node("a"),)))
        with pytest.raises(InvalidGraph, match="`page_token` must be"):
            store.page_at(store.version(), token, 10)
