"""The causal graph of an incident in a real browser, over a Tee that listens on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from cmbs.tee.stores.memory import MemoryGraphStore
from tests.browser.test_pages import IMAGES, find_violations
from tests.support.browser import open_page
from tests.support.console_graph import (
    FAULTS,
    HEAD,
    LEFT,
    TRACES,
    GraphIncident,
    merge_webshop,
    tell_over_graph,
)
from tests.support.console_story import tell
from tests.support.http_server import ServerProcess, serving
from tests.support.tee import listening

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-GRAPH-01")]
# Of the web shop.
NODES, EDGES = len(FAULTS) + 21, 56


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
def graph_incident(client: httpx2.Client) -> GraphIncident:
    return tell_over_graph(client)


def open_graph(page: Page, incident: GraphIncident, query: str = "") -> Locator:
    """Open the page of a graph; its list of nodes, once the graph is there."""
    page.goto(f"/cases/{incident.id}/graph{query}")
    expect(page.get_by_role("img", name="Causal graph at event")).to_be_visible()
    return page.get_by_role("list", name="Nodes")


def expect_counts(page: Page, at: int, gone: int) -> None:
    counted = f"Causal graph at event {at}: {NODES} nodes, {gone} ruled out"
    expect(page.get_by_role("img", name=counted)).to_be_visible()


def find(page: Page, text: str) -> None:
    """Find a node by keyboard, which brings it into the middle of the graph."""
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")


def click_middle(page: Page) -> None:
    """Click into the middle of the graph, where a node is that was found."""
    box = page.get_by_role("img", name="Causal graph at event").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_a_node_that_is_ruled_out_meanwhile_stays_in_its_place_and_says_why(
    page: Page, graph_incident: GraphIncident
) -> None:
    nodes = open_graph(page, graph_incident)
    expect_counts(page, HEAD, len(FAULTS) - len(LEFT))
    expect(nodes.get_by_role("img", name="could be the cause")).to_have_count(len(LEFT))
    chosen = page.get_by_role("region", name="Chosen node")
    find(page, "traffic-surge")
    expect(chosen).to_contain_text("could be the cause")
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)
    graph_incident.eliminate(TRACES, "VisitorsHigh@edge", ["fault/traffic-surge"])
    expect_counts(page, HEAD + 1, len(FAULTS) - len(LEFT) + 1)
    click_middle(page)
    expect(chosen).to_contain_text("fault/traffic-surge")
    expect(chosen).to_contain_text("was ruled out")
    expect(chosen).to_contain_text("what is ruled out is on no path")
    why = page.get_by_role("region", name="Why ruled out?")
    expect(why).to_contain_text("VisitorsHigh@edge speaks against it")
    chosen.get_by_role("link", name=f"event {HEAD + 1}").click()
    expect(page.get_by_role("region", name="Why ruled out?")).to_contain_text("agent://traces")
    expect(page).to_have_url(f"/cases/{graph_incident.id}?why=fault%2Ftraffic-surge")


def test_the_slider_brings_nodes_back_where_they_were(page: Page, graph_incident: GraphIncident) -> None:
    nodes = open_graph(page, graph_incident)
    find(page, "card-provider-outage")
    expect(page.get_by_role("region", name="Chosen node")).to_contain_text("was ruled out")
    page.get_by_role("slider", name="Event").focus()
    page.keyboard.press("Home")
    expect_counts(page, 0, 0)
    expect(nodes.get_by_role("img", name="ruled out")).to_have_count(0)
    page.keyboard.press("Escape")
    click_middle(page)
    expect(page.get_by_role("region", name="Chosen node")).to_contain_text("fault/card-provider-outage")
    expect(page.get_by_role("region", name="Chosen node")).to_contain_text("could be the cause")
    page.keyboard.press("ArrowRight")
    expect_counts(page, 1, 6)
    expect(page.get_by_role("region", name="Ruled out last").get_by_role("listitem")).to_have_count(5)
    expect(page).to_have_url(f"{page.url.split('?')[0]}?at=1&node=fault%2Fcard-provider-outage")


def test_nodes_are_found_and_hidden_by_state_and_type(page: Page, graph_incident: GraphIncident) -> None:
    nodes = open_graph(page, graph_incident)
    panel = page.get_by_role("region", name="Nodes")
    expect(panel).to_contain_text(str(NODES))
    page.get_by_role("group", name="Ruled-out nodes").get_by_role("button", name="Hidden").click()
    expect(panel).to_contain_text(f"{NODES - len(FAULTS) + len(LEFT)} of {NODES}")
    expect(nodes.get_by_role("img", name="ruled out")).to_have_count(0)
    page.get_by_role("button", name="service 9").click()
    expect(panel).to_contain_text(f"{NODES - len(FAULTS) + len(LEFT) - 9} of {NODES}")
    page.get_by_label("Find a node").fill("orders")
    expect(nodes.get_by_role("listitem")).to_have_count(3)
    page.get_by_label("Find a node").fill("nothing like it")
    expect(panel).to_contain_text("No node matches")


def test_symptoms_are_explained_along_the_graph_by_keyboard_alone(page: Page, graph_incident: GraphIncident) -> None:
    open_graph(page, graph_incident)
    for symptom in ("the storefront", "accounts and sign-in"):
        find(page, symptom)
        expect(page.get_by_role("region", name="Chosen node")).to_contain_text(symptom)
        page.keyboard.press("s")
    explained = page.get_by_role("list", name="What can explain the symptoms")
    expect(explained.get_by_role("listitem").first).to_contain_text("2 of 2")
    # The graph is a list too: the first possible cause, and what it can affect.
    page.keyboard.press("/")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    chosen = page.get_by_role("region", name="Chosen node")
    expect(chosen).to_contain_text("fault/basket-cache-too-small")
    expect(chosen.get_by_role("list", name="What it can affect").get_by_role("listitem").first).to_contain_text(
        "the cache of baskets"
    )
    page.keyboard.press("h")
    expect(page.get_by_role("button", name="Faint")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Cases", level=1)).to_be_visible()


def test_a_session_without_a_graph_says_so_and_what_to_do(
    browser: Browser, server: ServerProcess, client: httpx2.Client, tmp_path: Path
) -> None:
    incident = tell(client)
    with open_page(browser, server.url) as page:
        page.goto(f"/cases/{incident.id}/graph")
        empty = page.get_by_role("region", name="No graph")
        expect(empty).to_contain_text("This session has no causal graph")
        expect(empty).to_contain_text("webshop-closed")
        empty.get_by_role("link", name="Back to the session").click()
        expect(page.get_by_test_id("left")).to_have_text("4")
    with serving(tmp_path, "--store", "memory:") as plain, plain.client() as other:
        bare = GraphIncident(other, hypotheses=["a", "b"])
        context = browser.new_context(base_url=plain.url)
        try:
            # Not `open_page`: the browser itself complains about an answer that refuses.
            page = context.new_page()
            page.goto(f"/cases/{bare.id}/graph")
            expect(page.get_by_role("region", name="No graph")).to_contain_text("`cmbs serve --tee`")
        finally:
            context.close()


@pytest.mark.req("CONSOLE-06")
@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.deep)])
def test_axe_finds_nothing_on_the_graph_page(
    browser: Browser, server: ServerProcess, client: httpx2.Client, scheme: str
) -> None:
    incident = tell_over_graph(client)
    with open_page(browser, server.url, scheme=scheme) as page:
        open_graph(page, incident, "?node=fault%2Fmail-rejected&symptoms=%5B%22storefront%22%5D")
        expect(page.get_by_role("region", name="Why ruled out?")).to_contain_text("agent://traces")
        expect(page.get_by_label("Loading")).to_have_count(0)
        assert find_violations(page) == []


@pytest.mark.req("CONSOLE-06")
def test_a_phone_shows_the_graph_and_nothing_else_pans_sideways(
    browser: Browser, server: ServerProcess, client: httpx2.Client
) -> None:
    incident = tell_over_graph(client)
    with open_page(browser, server.url, width=400, height=900) as page:
        open_graph(page, incident)
        expect(page.get_by_role("button", name="Whole graph")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_graph_page_can_be_photographed_for_the_documents(
    browser: Browser, server: ServerProcess, client: httpx2.Client, tmp_path: Path
) -> None:
    """With CMBS_SCREENSHOTS=1 the picture of the documents is made again."""
    incident = tell_over_graph(client)
    directory = IMAGES if os.environ.get("CMBS_SCREENSHOTS") == "1" else tmp_path
    symptoms = "%5B%22storefront%22%2C%22event-queue%22%5D"
    with open_page(browser, server.url) as page:
        open_graph(page, incident, f"?node=fault%2Forders-db-lock-contention&symptoms={symptoms}")
        explained = page.get_by_role("list", name="What can explain the symptoms")
        expect(explained.get_by_role("listitem").first).to_be_visible()
        expect(page.get_by_role("list", name="What it can affect")).to_be_visible()
        expect(page.get_by_label("Loading")).to_have_count(0)
        file = directory / "console-graph.png"
        page.screenshot(path=file)
        assert file.stat().st_size > 10_000
