"""The causal graph of an incident in a real browser, over a Tee that listens on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from cmbs.tee.stores.memory import MemoryGraphStore
from tests.browser.test_pages import IMAGES, find_violations
from tests.support.browser import open_page
from tests.support.console_graph import (
    FAULTS,
    HEAD,
    LARGE_EDGES,
    LARGE_NODES,
    LEFT,
    TRACES,
    GraphIncident,
    merge,
    merge_large,
    merge_webshop,
    tell_over_graph,
)
from tests.support.console_story import tell
from tests.support.http_server import ServerProcess, serving
from tests.support.tee import edge, listening, node

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-GRAPH-01")]
LOCKS = "Orders write locks pile up"


@pytest.fixture(scope="module")
def tee() -> Iterator[int]:
    with listening(MemoryGraphStore()) as port:
        merge_webshop(port)
        yield port


@pytest.fixture(scope="module")
def server(tee: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory: Path = tmp_path_factory.mktemp("graph")
    with serving(directory, "--store", "memory:", "--tee", f"127.0.0.1:{tee}") as server:
        yield server


@pytest.fixture
def graph_incident(client: httpx.Client) -> GraphIncident:
    return tell_over_graph(client)


def open_graph(page: Page, incident: GraphIncident, query: str = "") -> Locator:
    """Open the page of a graph; its list of nodes, once the graph is there."""
    page.goto(f"/cases/{incident.id}/graph{query}")
    expect(page.get_by_role("img", name="Causal graph at event")).to_be_visible()
    return page.get_by_role("list", name="Nodes")


def expect_counts(page: Page, at: int, gone: int) -> None:
    nodes = len(FAULTS) + 21
    expect(page.get_by_role("img", name=f"Causal graph at event {at}: {nodes} nodes, {gone} ruled out")).to_be_visible()


def test_what_is_ruled_out_stays_in_place_and_says_why(page: Page, graph_incident: GraphIncident) -> None:
    nodes = open_graph(page, graph_incident)
    expect_counts(page, HEAD, len(FAULTS) - len(LEFT))
    expect(nodes.get_by_role("img", name="could be the cause")).to_have_count(len(LEFT))
    page.keyboard.press("/")
    page.keyboard.type("card-provider-outage")
    page.keyboard.press("Enter")
    chosen = page.get_by_role("region", name="Chosen node")
    expect(chosen).to_contain_text("mechanism, ruled out")
    expect(chosen).to_contain_text("what is ruled out is on no path")
    why = page.get_by_role("region", name="Why ruled out?")
    expect(why).to_contain_text("QueueBacklog@event-queue speaks against it")
    chosen.get_by_role("link", name="event 1").click()
    expect(page).to_have_url(f"{page.url.split('/cases')[0]}/cases/{graph_incident.id}?why=fault%2Fcard-provider-outage")
