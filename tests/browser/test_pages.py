"""Every page of the console in a real browser: lists, policy, ledger, keys, keyboard, sizes, and axe."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Response, expect

from cmbs import offline_verifier
from cmbs.belief.server import BeliefServer
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import open_store
from tests.support.browser import open_page
from tests.support.console_inbox import tell_inbox
from tests.support.console_space import Space, tell_space
from tests.support.console_story import TITLE, Incident, tell, tell_again
from tests.support.effort import EFFORT
from tests.support.http_server import ServerProcess, serving

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
IMAGES = ROOT / "docs" / "images"
MAX_FIRST_PAGE_BYTES = 350_000
# Ids of a universe that stays on the server.
MANY = 1_000_000 if EFFORT.everything else 100_000


@pytest.fixture(scope="module")
def told(client: httpx2.Client) -> tuple[Incident, Space]:
    incident = tell(client)
    closed = Incident(client, "Card payments were slow")
    closed.probe("agent://traces", "LockWaitsHigh@orders-db", "firing")
    closed.conclude("orders-db-lock-contention")
    closed.close()
    return incident, tell_space(client, incident)


@pytest.fixture(scope="module")
def again(told: tuple[Incident, Space]) -> Incident:
    """Another run of the incident."""
    return tell_again(told[0])


def find_violations(page: Page) -> list[str]:
    """What axe finds wrong with a page, each with the first element that it is about."""
    page.evaluate(AXE.read_text("utf-8"))
    found: list[dict[str, Any]] = page.evaluate("async () => (await axe.run()).violations")
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]


@pytest.mark.req("CONSOLE-05")
def test_cases_are_found_by_text_and_state(page: Page, told: tuple[Incident, Space]) -> None:
    page.goto("/")
    waits = page.get_by_role("region", name="Waits for a person")
    expect(waits).to_contain_text(TITLE)
    expect(waits).to_contain_text("Approve?")
    expect(waits.get_by_role("img", name="from 24 to 4 in 12 events")).to_be_visible()
    expect(page.get_by_role("region", name="Closed")).to_contain_text("Card payments were slow")
    page.get_by_label("Title or id").fill("card pay")
    expect(page.get_by_role("link", name="Card payments were slow")).to_be_visible()
    expect(page.get_by_role("region", name="Waits for a person")).to_have_count(0)
    page.get_by_role("group", name="State").get_by_role("button", name="Open").click()
    expect(page.get_by_text("No case matches")).to_be_visible()


@pytest.mark.req("CONSOLE-05")
def test_the_ledger_verifies_a_space_and_an_export_that_was_tampered_with(
    page: Page, told: tuple[Incident, Space], tmp_path: Path
) -> None:
    incident, _ = told
    page.goto(f"/ledger/{incident.id}")
    expect(page.get_by_role("region", name="Table of entries")).to_contain_text("DECLARE_SESSION")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export", exact=True).click()
    export = Path(download.value.path()).read_text("utf-8")
    whole = tmp_path / "whole.jsonl"
    whole.write_text(export, "utf-8")
    verdict = page.get_by_test_id("file-verdict")
    page.get_by_label("File of cmbs export").set_input_files(whole)
    expect(verdict).to_contain_text("12 events decided again")
    assert offline_verifier.main([str(whole)]) == offline_verifier.UNANCHORED
    changed = tmp_path / "changed.jsonl"
    changed.write_text(export.replace("the certificate was renewed", "the certificate was changed"), "utf-8")
    page.get_by_label("File of cmbs export").set_input_files(changed)
    expect(verdict).to_contain_text("First bad event: #6.")
    page.goto("/ledger/space%3Aops")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("region", name="This stream")).to_contain_text("hashes and links")


@pytest.mark.req("CONSOLE-06")
@pytest.mark.parametrize("scheme", [pytest.param("dark", marks=pytest.mark.deep), "light"])
def test_axe_finds_nothing_on_any_page(
    browser: Browser, server: ServerProcess, told: tuple[Incident, Space], again: Incident, scheme: str
) -> None:
    incident, _ = told
    pages = {
        "/": "Cases",
        f"/cases/{incident.id}?why=mail-rejected": TITLE,
        f"/cases/{incident.id}/actions": "Actions",
        "/inbox": "Inbox",
        f"/compare?a={incident.id}&b={again.id}": "Compare",
        f"/compare?a={incident.id}&by=source": "Compare",
        "/compare?a=no-such-session": "Compare",
        "/spaces/ops/policy": "Policy",
        f"/ledger/{incident.id}": "Ledger",
    }
    # Not `open_page`: a session that is not there is one of the pages.
    context = browser.new_context(base_url=server.url, color_scheme="light" if scheme == "light" else "dark")
    try:
        page = context.new_page()
        for path, heading in pages.items():
            page.goto(path)
            expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
            page.wait_for_load_state("load")
            expect(page.get_by_label("Loading")).to_have_count(0)
            assert find_violations(page) == [], path
    finally:
        context.close()


@pytest.mark.req("CONSOLE-06")
def test_a_case_is_opened_replayed_and_left_by_keyboard_alone(page: Page, told: tuple[Incident, Space]) -> None:
    page.goto("/")
    expect(page.get_by_text("Approve?")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Actions", level=1)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="Cases", level=1)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("card")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Title or id")).to_have_value("card")


def prepare_policy(page: Page) -> None:
    """A draft that turns a past decision, a call that is explained, and the file from its beginning."""
    page.get_by_role("textbox", name="The policy file").get_by_text("args.severity <= 4").click()
    page.keyboard.press("End")
    page.keyboard.press("Backspace")
    page.keyboard.type("1")
    expect(page.get_by_role("region", name="Would flip")).to_contain_text("1 of 4 past decisions")
    panel = page.get_by_role("region", name="Explain a call")
    panel.get_by_role("button", name="One that was proposed").click()
    panel.get_by_label("Proposal").select_option("p-restart")
    panel.get_by_role("button", name="Explain", exact=True).click()
    expect(panel.get_by_role("group", name="Lines 6 to 13 of the policy file")).to_be_visible()


@pytest.mark.deep
@pytest.mark.req("CONSOLE-05")
def test_pages_can_be_photographed_for_the_documents(
    browser: Browser,
    server: ServerProcess,
    client: httpx2.Client,
    told: tuple[Incident, Space],
    again: Incident,
    tmp_path: Path,
) -> None:
    """With CMBS_SCREENSHOTS=1 the pictures of the documents are made again."""
    incident, _ = told
    directory = IMAGES if os.environ.get("CMBS_SCREENSHOTS") == "1" else tmp_path
    directory.mkdir(exist_ok=True)
    shots = {
        "console-session": (f"/cases/{incident.id}?why=payments-certificate-expired", "dark"),
        "console-actions": (f"/cases/{incident.id}/actions?proposal=p-restart", "dark"),
        "console-policy": ("/spaces/ops/policy", "light"),
        "console-cases": ("/", "dark"),
        "console-compare": (f"/compare?a={incident.id}&b={again.id}", "dark"),
        "console-inbox": ("/inbox", "dark"),
    }
    space = tell_inbox(client, incident)
    server.wait_until(lambda: space.get("/executions?status=in_doubt")["executions"] != [])
    for name, (path, scheme) in shots.items():
        with open_page(browser, server.url, scheme=scheme) as page:
            page.goto(path)
            if name == "console-session":
                page.get_by_role("button", name="Verify").click()
                expect(page.get_by_role("heading", name="Verified in this browser")).to_be_visible()
            # What is loaded when it is first shown has no heading before it is there.
            expect(page.get_by_role("heading", level=1)).not_to_have_text("")
            expect(page.get_by_label("Loading")).to_have_count(0)
            if name in ("console-inbox", "console-actions"):
                expect(page.get_by_role("button", name="Approve once").first).to_be_enabled()
            if name == "console-policy":
                prepare_policy(page)
            page.wait_for_load_state("load")
            file = directory / f"{name}.png"
            page.screenshot(path=file)
            assert file.stat().st_size > 10_000


@pytest.mark.req("CONSOLE-01")
def test_the_first_page_is_small(page: Page, told: tuple[Incident, Space]) -> None:
    loaded: list[Response] = []
    page.on("response", lambda response: loaded.append(response) if "/v1/" not in response.url else None)
    page.goto("/")
    expect(page.get_by_text("Approve?")).to_be_visible()
    page.wait_for_load_state("load")
    sizes = {response.url: len(gzip.compress(response.body())) for response in loaded}
    assert any(url.endswith(".js") for url in sizes)
    assert sum(sizes.values()) < MAX_FIRST_PAGE_BYTES, sizes


@pytest.mark.req("CONSOLE-06")
def test_a_phone_shows_the_answer_and_nothing_pans_sideways(
    browser: Browser, server: ServerProcess, told: tuple[Incident, Space]
) -> None:
    incident, _ = told
    with open_page(browser, server.url, width=400, height=900) as page:
        for path in list_paths(incident):
            page.goto(path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.get_by_label("Loading")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, path


def list_paths(incident: Incident) -> tuple[str, ...]:
    session = f"/cases/{incident.id}"
    sources = f"/compare?a={incident.id}&by=source"
    return "/", session, f"{session}/actions", "/inbox", "/spaces/ops/policy", sources, f"/ledger/{incident.id}"


@pytest.mark.deep
@pytest.mark.req("CONSOLE-06")
def test_a_4k_screen_is_filled_by_charts_and_nothing_is_cut(
    browser: Browser, server: ServerProcess, told: tuple[Incident, Space]
) -> None:
    incident, _ = told
    with open_page(browser, server.url, width=3840, height=2160) as page:
        for path in list_paths(incident):
            page.goto(path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.get_by_label("Loading")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") <= 3840, path
        page.goto(f"/cases/{incident.id}")
        chart = page.get_by_role("region", name="Belief funnel").get_by_role("img").first
        box = chart.bounding_box()
        assert box is not None
        assert box["width"] > 2000


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, str, str]]:
    """A server with keys, one of an operator and one that may only read belief; and a session that it holds."""
    directory = tmp_path_factory.mktemp("guarded")
    server = BeliefServer(store=open_store(f"sqlite:///{directory / 'keys.db'}"))
    registry = KeyRegistry(server.log)
    operator = registry.create(ActorKind.OPERATOR, "on-call", roles=[Role.OPERATOR])
    reader = registry.create(ActorKind.AGENT, "reader", scopes=["belief:read"])
    server.close()
    with serving(directory, "--store", "sqlite:///keys.db") as process:
        yield process, operator.text, reader.text


@pytest.mark.req("CONSOLE-07")
def test_a_large_universe_stays_on_the_server(page: Page, client: httpx2.Client) -> None:
    ids = [f"host-{number:06d}" for number in range(MANY)]
    n_racked, n_gone = MANY * 6 // 10, MANY - 3_812
    ontology = {"hypothesis_space_id": "fleet", "hypothesis_version": "1"}
    ontology |= {"causal_graph_ref": "none", "causal_graph_version": "1"}
    body = {"ontology": ontology, "hypotheses": ids, "title": "Which host leaks connections"}
    declared = client.post("/v1/sessions", json=body, headers={"prefer": "return=minimal"}, timeout=120)
    session = declared.json()["session_id"]
    for observation, gone in (("rack", ids[:n_racked]), ("kernel", ids[n_racked:n_gone])):
        report = {"source_id": "agent://fleet", "observation_id": observation, "eliminated": gone}
        path = f"/v1/sessions/{session}/eliminate"
        assert client.post(path, json=report, headers={"prefer": "return=minimal"}, timeout=120).is_success
    page.goto(f"/cases/{session}")
    expect(page.get_by_test_id("left")).to_have_text("3,812")
    causes = page.get_by_role("region", name="Causes")
    expect(causes.get_by_role("listitem").first).to_contain_text(ids[n_gone])
    expect(causes).to_contain_text("200 loaded, more as you scroll")
    causes.get_by_role("list").evaluate("list => { list.scrollTop = list.scrollHeight; }")
    expect(causes).to_contain_text("400 loaded")
    page.get_by_role("slider", name="Event").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_test_id("left")).to_have_text(f"{MANY - n_racked:,}")
    page.get_by_role("button", name="Ruled out").click()
    expect(causes.get_by_role("button", name=ids[0])).to_be_visible()
    # A search looks through all of them on the server, wherever they stand.
    page.get_by_label("Find a cause").fill(ids[n_racked - 100][:-2].upper())
    expect(causes).to_contain_text("100 found")
    expect(causes.get_by_role("listitem").first).to_contain_text(ids[n_racked - 100])
    page.get_by_role("button", name="Alive").click()
    expect(causes).to_contain_text("No cause matches")
    page.get_by_label("Find a cause").fill(ids[-1])
    expect(causes.get_by_role("listitem")).to_have_count(1)


@pytest.mark.deep
@pytest.mark.req("CONSOLE-07")
def test_a_large_universe_with_many_reports_is_drawn(page: Page, client: httpx2.Client) -> None:
    """So many that they are not counted one by one."""
    ids, reports = [f"host-{number:06d}" for number in range(20_001)], 401
    ontology = {"hypothesis_space_id": "fleet", "hypothesis_version": "1"}
    ontology |= {"causal_graph_ref": "none", "causal_graph_version": "1"}
    minimal = {"prefer": "return=minimal"}
    body = {"ontology": ontology, "hypotheses": ids, "title": "Which host is slow"}
    session = client.post("/v1/sessions", json=body, headers=minimal, timeout=60).json()["session_id"]
    for number in range(reports):
        report = {"source_id": "agent://fleet", "observation_id": f"look-{number}", "eliminated": [ids[number]]}
        assert client.post(f"/v1/sessions/{session}/eliminate", json=report, headers=minimal, timeout=60).is_success
    page.goto(f"/cases/{session}?at=400")
    expect(page.get_by_test_id("left")).to_have_text("19,601")
    expect(page.get_by_role("slider", name="Event")).to_have_attribute("max", str(reports))


@pytest.mark.req("CONSOLE-08")
def test_a_key_is_asked_for_and_stays_in_memory(browser: Browser, guarded: tuple[ServerProcess, str, str]) -> None:
    server, operator, _ = guarded
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto("/")
        page.get_by_label("Key").fill("cmbs_not_a_key")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("does not know this key")
        page.get_by_label("Key").fill(operator)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Cases", level=1)).to_be_visible()
        expect(page.get_by_role("button", name="on-call")).to_be_visible()
        assert not any(operator in url for url in asked)
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        page.reload()
        expect(page.get_by_label("Key")).to_be_visible()
    finally:
        context.close()


@pytest.mark.req("CONSOLE-08")
def test_what_a_key_may_not_do_is_not_offered(browser: Browser, guarded: tuple[ServerProcess, str, str]) -> None:
    server, operator, reader = guarded
    with server.client(headers={"authorization": f"Bearer {operator}"}) as client:
        incident = tell(client, "Seen with a key")
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        for key, offered in ((operator, 1), (reader, 0)):
            page.goto(f"/cases/{incident.id}")
            page.get_by_label("Key").fill(key)
            page.get_by_role("button", name="Sign in").click()
            expect(page.get_by_test_id("left")).to_have_text("4")
            expect(page.get_by_role("button", name="Record what you saw")).to_have_count(offered)
    finally:
        context.close()
