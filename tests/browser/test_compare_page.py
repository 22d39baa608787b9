"""Two sessions, sources or agents side by side, in a real browser."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from cmbs.belief.server import BeliefServer
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import open_store
from tests.support.console_story import TRACES, Incident, tell, tell_again
from tests.support.http_server import ServerProcess, serving

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-09")]


@pytest.fixture(scope="module")
def runs(client: httpx2.Client) -> tuple[Incident, Incident]:
    first = tell(client)
    return first, tell_again(first)


def test_two_sessions_share_a_prefix_and_part_at_a_named_event(page: Page, runs: tuple[Incident, Incident]) -> None:
    first, second = runs
    page.goto(f"/compare?a={first.id}&b={second.id}")
    chart = page.get_by_role("region", name="Where they part")
    expect(chart).to_contain_text("the same 4 events")
    expect(chart).to_contain_text("they part at #4")
    expect(chart).to_contain_text("A: a refused conclusion · B: CpuSaturated@node-pool of agent://metrics, −2")
    expect(chart).to_contain_text("B: nothing left")
    ruled_out = page.get_by_role("region", name="Ruled out")
    expect(ruled_out.get_by_role("img", name="0 only by A, 20 by both, 4 only by B")).to_be_visible()
    only_b = ruled_out.get_by_role("list", name="Only B ruled out")
    expect(only_b.get_by_role("listitem")).to_have_count(4)
    expect(only_b).to_contain_text("orders-db-lock-contention")
    expect(only_b).to_contain_text("B #5")
    figures = page.get_by_role("region", name="Figures")
    expect(figures.get_by_role("row", name="causes left")).to_contain_text("40")
    expect(figures.get_by_role("row", name="bits gained")).to_contain_text("2.58none: nothing is left")
    expect(figures.get_by_role("row", name="refused")).to_contain_text("30")
    wrong = page.get_by_role("region", name="Contradiction of B")
    expect(wrong).to_contain_text("SlowResponses@storefront")
    page.get_by_role("button", name="Verify both").click()
    expect(figures.get_by_role("row", name="log, recomputed")).to_contain_text("verified verified")


def test_the_address_holds_the_choice_and_a_swap_turns_it(page: Page, runs: tuple[Incident, Incident]) -> None:
    first, second = runs
    page.goto(f"/compare?a={first.id}&b={second.id}")
    page.get_by_role("button", name="Swap").click()
    expect(page).to_have_url(f"{page.url.split('?')[0]}?a={second.id}&b={first.id}")
    expect(page.get_by_role("region", name="Ruled out")).to_contain_text("only A: 4, still possible in B")
    expect(page.get_by_label("Session A")).to_have_value(second.id)


def test_two_sources_are_compared_as_if_each_alone_had_reported(page: Page, runs: tuple[Incident, Incident]) -> None:
    first, _ = runs
    page.goto(f"/compare?a={first.id}")
    page.get_by_role("button", name="Sources").click()
    expect(page.get_by_label("Source A")).to_have_value("agent://metrics")
    page.get_by_label("Source B").select_option("human://on-call")
    expect(page).to_have_url(f"{page.url.split('?')[0]}?a={first.id}&by=source&of_b=human%3A%2F%2Fon-call")
    ruled_out = page.get_by_role("region", name="Ruled out")
    expect(ruled_out.get_by_role("list", name="Only B ruled out")).to_contain_text("payments-certificate-expired")
    expect(page.get_by_role("region", name="Figures").get_by_role("row", name="causes left")).to_contain_text("1823")


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str, str]]:
    """A server with keys, the key of an operator, and a session in which two agents reported as one source."""
    directory = tmp_path_factory.mktemp("keyed")
    server = BeliefServer(store=open_store(f"sqlite:///{directory / 'keys.db'}"))
    registry = KeyRegistry(server.log)
    operator = registry.create(ActorKind.OPERATOR, "on-call", roles=[Role.OPERATOR]).text
    keys = [registry.create(ActorKind.AGENT, name, scopes=["belief:write"]).text for name in ("one", "two")]
    server.close()
    names = ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version")
    with serving(directory, "--store", "sqlite:///keys.db") as process, process.client() as client:

        def post(path: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = client.post(path, json=body, headers={"authorization": f"Bearer {key}"})
            assert answer.is_success, answer.text
            content: dict[str, Any] = answer.json()
            return content

        declaration = {"ontology": dict.fromkeys(names, "x"), "hypotheses": ["a", "b", "c"]}
        session = str(post("/v1/sessions", operator, declaration)["session_id"])
        for key, gone in zip(keys, (["a"], ["a", "b"]), strict=True):
            report = {"source_id": "shared", "observation_id": "".join(gone), "eliminated": gone}
            post(f"/v1/sessions/{session}/eliminate", key, report)
        yield process, operator, session


def test_two_agents_are_told_apart_by_their_keys(browser: Browser, keyed: tuple[ServerProcess, str, str]) -> None:
    server, operator, session = keyed
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto(f"/compare?a={session}&by=agent")
        page.get_by_label("Key").fill(operator)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_label("Agent A")).to_have_value("agent:one")
        expect(page.get_by_label("Agent B")).to_have_value("agent:two")
        expect(page.get_by_role("list", name="Only B ruled out").get_by_role("listitem")).to_have_count(1)
    finally:
        context.close()


def test_a_comparison_is_reached_from_the_list_and_from_a_session_and_follows_live(
    page: Page, client: httpx2.Client
) -> None:
    first = tell(client, "Seen twice")
    tell_again(first)
    page.goto("/")
    page.get_by_role("main").get_by_role("link", name="Compare", exact=True).click()
    expect(page.get_by_role("region", name="Where they part")).to_be_visible()
    page.goto(f"/cases/{first.id}")
    page.get_by_role("link", name="Compare this session with another").click()
    expect(page.get_by_label("Session A")).to_have_value(first.id)
    other = Incident(client, "Not the same")
    page.goto(f"/compare?a={first.id}&b={other.id}")
    figures = page.get_by_role("region", name="Figures")
    expect(figures.get_by_role("row", name="causes left")).to_contain_text("424")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    other.probe(TRACES, "ErrorRateHigh@storefront", "silent")
    expect(figures.get_by_role("row", name="causes left")).to_contain_text("418")


def test_without_two_sessions_the_page_says_what_to_choose(page: Page, runs: tuple[Incident, Incident]) -> None:
    page.goto("/compare")
    expect(page.get_by_text("Choose two sessions")).to_be_visible()
    page.get_by_label("Session A").select_option(runs[0].id)
    page.get_by_label("Session B").select_option(runs[1].id)
    expect(page.get_by_role("region", name="Where they part")).to_contain_text("they part at #4")
