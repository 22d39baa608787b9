"""The list of cases in a real browser: each filter by itself, all together, and none."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from cmbs.belief.server import BeliefServer
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import open_store
from tests.support.console_story import TRACES, Incident, tell
from tests.support.http_server import ServerProcess, serving

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-05")]

OPEN, CONCLUDED, CONTRADICTION, CLOSED = "Checkout is slow", "Cards are refused", "Search is down", "Mail is late"
ALL = {OPEN, CONCLUDED, CONTRADICTION, CLOSED}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str]]:
    """A server with keys and the key of an operator: four sessions in four states, of two agents and two kits."""
    directory = tmp_path_factory.mktemp("cases")
    store = BeliefServer(store=open_store(f"sqlite:///{directory / 'keys.db'}"))
    registry = KeyRegistry(store.log)
    operator = registry.create(ActorKind.OPERATOR, "on-call", roles=[Role.OPERATOR]).text
    one, two = (registry.create(ActorKind.AGENT, name, scopes=["belief:write"]).text for name in ("one", "two"))
    store.close()
    with serving(directory, "--store", "sqlite:///keys.db") as server:
        with server.client(headers={"authorization": f"Bearer {one}"}) as client:
            tell(client, OPEN)
            found = Incident(client, CONCLUDED, labels={"team": "payments"})
            found.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
            found.conclude("orders-db-lock-contention")
        with server.client(headers={"authorization": f"Bearer {two}"}) as client:
            blank = dict.fromkeys(
                ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version"), "x"
            )
            body = {"ontology": blank, "hypotheses": ["a", "b"], "title": CONTRADICTION}
            session = client.post("/v1/sessions", json=body).json()["session_id"]
            report = {"source_id": "agent://two", "observation_id": "all", "eliminated": ["a", "b"]}
            assert client.post(f"/v1/sessions/{session}/eliminate", json=report).is_success
            closed = Incident(client, CLOSED)
            closed.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
            closed.close()
        yield server, operator


@pytest.fixture
def cases(browser: Browser, keyed: tuple[ServerProcess, str]) -> Iterator[Page]:
    """The list, four days after everything was written."""
    server, operator = keyed
    context = browser.new_context(base_url=server.url, viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.clock.set_fixed_time(datetime.now(UTC) + timedelta(days=4))
        page.goto("/")
        page.get_by_label("Key").fill(operator)
        page.get_by_role("button", name="Sign in").click()
        expect_titles(page, ALL)
        yield page
    finally:
        context.close()


def expect_titles(page: Page, titles: set[str]) -> None:
    """These cases are listed, and no others."""
    rows = page.locator("a.case")
    for title in titles:
        expect(rows.filter(has_text=title)).to_be_visible()
    expect(rows).to_have_count(len(titles))


@pytest.mark.parametrize(
    ("state", "title"),
    [("Open", OPEN), ("Concluded", CONCLUDED), ("Contradiction", CONTRADICTION), ("Closed", CLOSED)],
)
def test_cases_are_found_by_state(cases: Page, state: str, title: str) -> None:
    states = cases.get_by_role("group", name="State")
    states.get_by_role("button", name=state).click()
    expect_titles(cases, {title})
    states.get_by_role("button", name="All").click()
    expect_titles(cases, ALL)


def test_cases_are_found_by_text(cases: Page) -> None:
    cases.get_by_label("Title or id").fill("is ")
    expect_titles(cases, {OPEN, CONTRADICTION, CLOSED})
    cases.get_by_label("Title or id").fill("SEARCH")
    expect_titles(cases, {CONTRADICTION})


def test_cases_are_found_by_kit(cases: Page) -> None:
    cases.get_by_label("Kit").fill("webshop-closed")
    cases.keyboard.press("Enter")
    expect_titles(cases, {OPEN, CONCLUDED, CLOSED})
    expect(cases).to_have_url(f"{cases.url.split('?')[0]}?kit=webshop-closed")


def test_cases_are_found_by_agent(cases: Page) -> None:
    cases.get_by_label("Agent").fill("two")
    cases.keyboard.press("Enter")
    expect_titles(cases, {CONTRADICTION, CLOSED})


def test_cases_are_found_by_time(cases: Page) -> None:
    when = cases.get_by_label("When")
    when.select_option("Last day")
    expect(cases.get_by_text("No case matches")).to_be_visible()
    when.select_option("Last 7 days")
    expect_titles(cases, ALL)


def test_filters_hold_together_and_are_dropped_together(cases: Page) -> None:
    cases.get_by_label("Agent").fill("one")
    cases.keyboard.press("Enter")
    expect_titles(cases, {OPEN, CONCLUDED})
    cases.get_by_role("group", name="State").get_by_role("button", name="Concluded").click()
    expect_titles(cases, {CONCLUDED})
    # Its label stands in the row.
    expect(cases.locator("a.case")).to_contain_text("team:payments")
    cases.get_by_label("Kit").fill("no-such-kit")
    cases.keyboard.press("Enter")
    cases.get_by_role("button", name="Show all").click()
    expect_titles(cases, ALL)


@pytest.mark.req("CASE-NAME-03")
def test_a_case_is_found_and_shown_by_its_name_with_owner_severity_and_labels(
    page: Page, client: httpx2.Client
) -> None:
    body = {
        "ontology": dict.fromkeys(
            ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version"), "x"
        ),
        "hypotheses": ["a", "b"],
        "title": "Queues grow",
        "labels": {"team": "web"},
        "owner": "ann",
        "severity": "high",
        "name": "OPS-77",
    }
    assert client.post("/v1/sessions", json=body).status_code == 201
    page.goto("/")
    page.get_by_role("searchbox", name="Name, title or id").fill("ops-7")
    row = page.get_by_role("link", name="Queues grow")
    expect(row).to_contain_text("OPS-77 · high · ann · team:web")
    row.click()
    expect(page).to_have_url(re.compile("/cases/OPS-77$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues grow")
    for text in ("OPS-77", "high", "owner ann", "team:web"):
        expect(page.get_by_role("banner").get_by_text(text, exact=True)).to_be_visible()
