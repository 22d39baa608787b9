"""Names of any length in a real browser: they widen no page, at any width, and axe finds nothing wrong with them."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import open_page
from tests.support.console_inbox import tell_inbox
from tests.support.console_space import AGENT, OPERATOR, Space
from tests.support.console_story import Incident
from tests.support.effort import EFFORT
from tests.support.http_server import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-06")]

AXE = Path(__file__).resolve().parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
# 720 is what 1,440 pixels are at a zoom of 200 %.
WIDTHS = (1440, 720, 400, 320) if EFFORT.everything else (1440, 720, 400)
CASE = f"INC-{'9' * 50}"


def repeat(length: int) -> str:
    """A name without a place to break it at."""
    return "W" * length


@pytest.fixture(scope="module")
def paths(client: httpx2.Client) -> list[str]:
    """Pages about things whose names are as long as they may be."""
    incident = Incident(client, repeat(200), labels={"team": repeat(60)}, owner=repeat(60))
    incident.eliminate(f"agent://{repeat(180)}", repeat(200), "payments-certificate-expired")
    incident.enter(repeat(200), 21)
    incident.conclude(repeat(200))
    ontology = ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version")
    body: dict[str, Any] = {"ontology": dict.fromkeys(ontology, repeat(100)), "hypotheses": [repeat(200), "b"]}
    body |= {"title": repeat(200), "hypothesis_attributes": {repeat(200): {repeat(60): repeat(200)}}}
    other = client.post("/v1/sessions", json=body, headers=AGENT).json()["session_id"]
    tell_inbox(client, incident)
    space = Space(client, "s" * 60)
    space.create()
    tool = f"t.{repeat(100)}"
    space.post(f"{space.path}/tools", {"tool_id": tool, "kind": "caller", "args_schema": {"type": "object"}})
    space.open_case(incident, CASE)
    space.propose("deployment.rollback", {repeat(200): repeat(2000)}, "k" * 60, CASE)
    space.propose(tool, {repeat(200): repeat(2000)}, "z" * 60, CASE)
    waiting = client.get("/v1/inbox", headers=OPERATOR).json()["waiting"]
    (change,) = [each["id"] for each in waiting if each["kind"] == "policy_change"]
    session = f"/cases/{incident.id}"
    return [
        "/",
        f"{session}?why=payments-certificate-expired",
        f"/cases/{other}?why={repeat(200)}",
        f"{session}/actions?space={space.id}",
        f"{session}/graph",
        "/inbox",
        f"/compare?a={incident.id}&b={other}",
        f"/compare?a={incident.id}&by=source",
        f"/spaces/{space.id}/policy",
        f"/spaces/payments/policy/changes/{change}",
        f"/ledger/{incident.id}",
        f"/ledger/space%3A{space.id}",
        "/ledger",
    ]


def wait_for(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).not_to_have_text("")
    expect(page.get_by_label("Loading")).to_have_count(0)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_widens_a_page(browser: Browser, server: ServerProcess, paths: list[str], width: int) -> None:
    with open_page(browser, server.url, width=width, height=900 if width != 720 else 450) as page:
        for path in paths:
            wait_for(page, path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.deep)])
def test_axe_finds_nothing_on_a_phone(browser: Browser, server: ServerProcess, paths: list[str], scheme: str) -> None:
    with open_page(browser, server.url, width=400, scheme=scheme) as page:
        for path in paths:
            wait_for(page, path)
            page.evaluate(AXE.read_text("utf-8"))
            found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run()).violations")
            assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == [], path


@pytest.mark.parametrize("width", [400, 720])
def test_every_action_is_reached_on_a_phone_and_at_double_size(
    browser: Browser, server: ServerProcess, paths: list[str], width: int
) -> None:
    """What stands beside a page elsewhere: search, the key, the colours, what waits, and the buttons of a card."""
    with open_page(browser, server.url, width=width, height=800 if width == 400 else 450) as page:
        page.goto("/")
        expect(page.get_by_text("Approve?").first).to_be_visible()
        expect(page.get_by_role("searchbox", name="Name, title or id")).to_be_visible()
        page.goto("/inbox")
        card = page.get_by_role("group", name="Approval of traffic.drain")
        expect(page.get_by_label("Loading")).to_have_count(0)
        for name in ("Approve once", "Reject", "Withdraw"):
            button = card.get_by_role("button", name=name)
            button.scroll_into_view_if_needed()
            expect(button).to_be_visible()
        expect(page.get_by_role("button", name="Light colours")).to_be_in_viewport()
        expect(page.get_by_title("Sign in with a key")).to_be_in_viewport()
        find = page.get_by_role("link", name="Find a case") if width == 400 else page.get_by_label("Find a case").first
        expect(find).to_be_in_viewport()
