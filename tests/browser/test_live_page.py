"""What a page says while it does not follow the server, and what it refuses to do then, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import open_page
from tests.support.console_inbox import tell_inbox
from tests.support.console_space import Space, tell_space
from tests.support.console_story import TRACES, Incident, tell
from tests.support.http_server import ServerProcess, serving

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-04")]

# The first stream of a session is one that the test speaks on; later ones are the server's.
SPEAK = """
const real = window.fetch;
window.fetch = (request, init) => {
  if (window.speak || !/sessions\\/[^/]+\\/events/.test(request.url)) return real(request, init);
  const stream = new ReadableStream({
    start(controller) {
      window.speak = (text) => controller.enqueue(new TextEncoder().encode(text));
      request.signal.addEventListener("abort", () => controller.error(request.signal.reason));
    },
  });
  return Promise.resolve(new Response(stream, { headers: { "content-type": "text/event-stream" } }));
};
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One for each test: what one of them asks for would wait in the inbox of the others."""
    with serving(tmp_path, "--store", "memory:") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    with server.client() as client:
        yield client


def open_incident(page: Page, client: httpx2.Client) -> Incident:
    """A session of eleven events on a page whose stream says what the test has it say."""
    incident = tell(client)
    page.add_init_script(SPEAK)
    page.goto(f"/cases/{incident.id}")
    expect(page.get_by_text("11 / 11, live")).to_be_visible()
    return incident


def test_a_gap_in_what_is_sent_is_fetched(page: Page, client: httpx2.Client) -> None:
    incident = open_incident(page, client)
    incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    incident.leave("look-before-concluding")
    last = client.get(f"{incident.path}/audit", params={"limit": 100}).json()["events"][-1]
    assert last["seq"] == 13
    page.evaluate("event => speak(`event: entry\\nid: 13\\ndata: ${JSON.stringify(event)}\\n\\n`)", last)
    expect(page.get_by_text("13 / 13, live")).to_be_visible()
    expect(page.get_by_test_id("left")).to_have_text("1")


def test_a_stream_that_falls_silent_is_stale_and_is_left_for_another(page: Page, client: httpx2.Client) -> None:
    incident = open_incident(page, client)
    incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    # Nothing is said for ten seconds; then the page says so, and asks again by itself.
    expect(page.get_by_role("button", name="stale")).to_be_visible()
    expect(page.get_by_text("12 / 12, live")).to_be_visible()


def test_a_page_that_may_follow_no_more_says_so(browser: Browser, server: ServerProcess, client: httpx2.Client) -> None:
    incident = tell(client)

    def end(route: Route) -> None:
        body = 'event: end\ndata: {"reason": "permission_lost", "code": "FORBIDDEN"}\n\n'
        route.fulfill(status=200, content_type="text/event-stream", body=body)

    with open_page(browser, server.url) as page:
        page.route("**/v1/sessions/*/events*", end)
        page.goto(f"/cases/{incident.id}")
        expect(page.get_by_text("not live", exact=True)).to_be_visible()
        expect(page.get_by_text("11 / 11, live")).to_have_count(0)


def test_a_server_that_is_too_busy_is_asked_again(
    browser: Browser, server: ServerProcess, client: httpx2.Client
) -> None:
    incident = tell(client)
    asked: list[str] = []

    def refuse_once(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=429, content_type="application/json", body="{}")
        else:
            route.continue_()

    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.route("**/v1/sessions/*/events*", refuse_once)
        page.goto(f"/cases/{incident.id}")
        expect(page.get_by_text("11 / 11, live")).to_be_visible()
    finally:
        context.close()


@pytest.fixture
def told(client: httpx2.Client) -> Incident:
    incident = tell(client)
    tell_space(client, incident)
    tell_inbox(client, incident)
    return incident


@pytest.mark.parametrize("path", ["/inbox", "/cases/{}/actions?proposal=p-restart"])
def test_nothing_can_be_settled_on_a_page_that_is_stale(
    browser: Browser, server: ServerProcess, told: Incident, path: str
) -> None:
    with open_page(browser, server.url) as page:
        cut = {"is_cut": True}

        def answer(route: Route) -> None:
            if cut["is_cut"]:
                route.fulfill(status=200, content_type="text/event-stream", body="")
            else:
                route.continue_()

        page.route("**/events*", answer)
        page.goto(path.format(told.id))
        expect(page.get_by_role("button", name="stale")).to_be_visible()
        card = page.get_by_role("group", name="Approval of deployment.rollback")
        expect(card).to_be_visible()
        for name in ("Approve once", "Reject", "Withdraw"):
            expect(card.get_by_role("button", name=name)).to_be_disabled()
        for button in page.get_by_role("button", name="Withdraw").all():
            expect(button).to_be_disabled()
        # It comes back by itself.
        cut["is_cut"] = False
        expect(card.get_by_role("button", name="Approve once")).to_be_enabled()
        expect(card.get_by_role("button", name="Reject")).to_be_enabled()


@pytest.mark.req("CONSOLE-06")
def test_an_approval_interrupts_a_screen_reader_once(page: Page, client: httpx2.Client, told: Incident) -> None:
    space = Space(client)
    page.goto("/")
    urgent = page.locator("[aria-live=assertive]")
    expect(urgent).to_contain_text("Waits for you: approval of deployment.rollback, and 2 more approvals.")
    page.get_by_role("link", name="Inbox").click()
    expect(page.get_by_role("group", name="Approval of deployment.rollback")).to_be_visible()
    space.propose("deployment.rollback", {"service": "payments", "to_revision": 7}, "second")
    # Those that were said are not said again.
    expect(urgent).to_have_text("Waits for you: approval of deployment.rollback.")
