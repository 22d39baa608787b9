"""Graphs that grow, in a real browser: each test has a Tee and a server of its own, so that no other sees it grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page, expect

from cmbs.tee.stores.memory import MemoryGraphStore
from tests.browser.test_graph_page import EDGES, NODES, click_middle, find, open_graph
from tests.support.console_graph import (
    LARGE_EDGES,
    LARGE_NODES,
    TRACES,
    GraphIncident,
    merge,
    merge_large,
    merge_webshop,
    tell_over_graph,
)
from tests.support.http_server import ServerProcess, serving
from tests.support.tee import edge, listening, node

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-GRAPH-01")]


@pytest.fixture
def tee() -> Iterator[int]:
    with listening(MemoryGraphStore()) as port:
        merge_webshop(port)
        yield port


@pytest.fixture
def server(tee: int, tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path, "--store", "memory:", "--tee", f"127.0.0.1:{tee}") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    with server.client() as client:
        yield client


def test_a_graph_that_grew_since_is_another_anchor(page: Page, tee: int, client: httpx2.Client) -> None:
    graph_incident = tell_over_graph(client)
    version = merge(tee, [node("born-later")], [edge("storefront", "born-later")])
    open_graph(page, graph_incident)
    page.get_by_label("Find a node").fill("born-later")
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("No node matches")
    expect(page.get_by_role("region", name="Anchor")).not_to_contain_text(f"version {version}")


@pytest.mark.deep
def test_two_thousand_nodes_and_eight_thousand_edges_can_be_used(page: Page, tee: int, client: httpx2.Client) -> None:
    ids = merge_large(tee)
    incident = GraphIncident(client, "Large", hypotheses=ids)
    for number in range(20):
        incident.eliminate(TRACES, f"look-{number}", ids[number * 90 : number * 90 + 90])
    nodes = open_graph(page, incident)
    total = f"{LARGE_NODES + NODES:,}"
    counted = f"Causal graph at event 20: {total} nodes, 1,800 ruled out, {LARGE_EDGES + EDGES:,} edges"
    expect(page.get_by_role("img", name=counted)).to_be_visible()
    expect(nodes.get_by_role("listitem").first).to_contain_text("unit-1800")
    find(page, "unit-0042")
    chosen = page.get_by_role("region", name="Chosen node")
    expect(chosen).to_contain_text("was ruled out")
    page.get_by_role("slider", name="Event").focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("img", name=f"Causal graph at event 0: {total} nodes, 0 ruled out")).to_be_visible()
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)
    click_middle(page)
    expect(chosen).to_contain_text("unit-0042")
    expect(chosen).to_contain_text("could be the cause")
