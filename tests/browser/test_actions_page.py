"""Gates, traces and the inbox in a real browser."""

import httpx2
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.support.browser import open_page
from tests.support.console_space import CASE, Space, tell_space
from tests.support.console_story import TRACES, Incident, tell
from tests.support.http_server import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-03")]


@pytest.fixture
def told(client: httpx2.Client) -> tuple[Incident, Space]:
    """An incident and a space of its own for each test, because tests change them."""
    incident = tell(client)
    return incident, tell_space(client, incident, f"ops-{incident.id}")


def test_a_call_that_waits_shows_the_lines_of_the_policy_and_what_was_found(
    page: Page, told: tuple[Incident, Space]
) -> None:
    incident, _ = told
    page.goto(f"/cases/{incident.id}/actions?proposal=p-restart")
    trace = page.get_by_role("region", name="Proposal", exact=True)
    lines = trace.get_by_role("group", name="Lines 6 to 13 of the policy file")
    expect(lines).to_contain_text("case.belief.n_survivors == 1")
    expect(lines).to_contain_text("found 4")
    expect(lines).to_contain_text("found look-before-concluding")
    expect(trace).to_contain_text("Belief read at event 11")
    gates = page.get_by_role("region", name="Gates of this case")
    for tool, word in (("service.restart", "closed"), ("ticket.file", "open"), ("database.drop", "nothing allows it")):
        expect(gates.locator(".gate").filter(has_text=tool)).to_contain_text(word)


def test_a_denied_call_says_why_and_what_to_do_next(page: Page, told: tuple[Incident, Space]) -> None:
    incident, _ = told
    page.goto(f"/cases/{incident.id}/actions?proposal=p-drop")
    trace = page.get_by_role("region", name="Proposal", exact=True)
    expect(trace).to_contain_text("ALLOW_UNMET: constraint.goals does not allow it as things are")
    expect(trace).to_contain_text("Next: ask an operator")


def test_a_gate_stands_as_the_policy_says_now(page: Page, told: tuple[Incident, Space]) -> None:
    incident, space = told
    # The last ticket is denied for its arguments: the gate is not shut for others.
    space.propose("ticket.file", {"severity": 9}, "too-small", CASE)
    space.post(f"{space.path}/proposals/p-restart/withdraw", {"reason": "later"})
    page.goto(f"/cases/{incident.id}/actions")
    gates = page.get_by_role("region", name="Gates of this case").locator(".gate")
    expect(gates.filter(has_text="ticket.file")).to_contain_text("depends on arguments")
    expect(gates.filter(has_text="ticket.file")).to_contain_text("The last call was denied.")
    restart = gates.filter(has_text="service.restart")
    expect(restart).to_contain_text("closed")
    # What opens it is seen, although the last call was withdrawn.
    incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    incident.leave("look-before-concluding")
    expect(restart).to_contain_text("open")


def test_the_session_page_says_what_waits(page: Page, told: tuple[Incident, Space]) -> None:
    incident, _ = told
    page.goto(f"/cases/{incident.id}")
    strip = page.get_by_role("region", name="Where this stands")
    expect(strip).to_contain_text("service.restart waits")
    expect(strip).to_contain_text("1 approval waits for you")
    strip.get_by_role("link", name="Review").click()
    expect(page).to_have_url(f"{page.url.split('/cases')[0]}/cases/{incident.id}/actions")


# When the button to approve was there, and when it could be pressed: a test may be too late to see it disabled.
NOTE_APPROVE = """
new MutationObserver(() => {
  const button = document.querySelector("[data-approve]");
  if (!button) return;
  window.approveShown ??= performance.now();
  if (!button.disabled) window.approveEnabled ??= performance.now();
}).observe(document, {subtree: true, childList: true, attributes: true});
"""
LEAST_VIEW_MS = 990


def test_an_approval_is_given_for_exactly_what_was_shown(page: Page, told: tuple[Incident, Space]) -> None:
    incident, space = told
    page.add_init_script(NOTE_APPROVE)
    page.goto(f"/cases/{incident.id}/actions")
    card = page.get_by_role("group", name="Approval of deployment.rollback")
    expect(card).to_contain_text("to_revision number 41")
    approve = card.get_by_role("button", name="Approve once")
    expect(approve).to_be_enabled()
    assert page.evaluate("approveEnabled - approveShown") >= LEAST_VIEW_MS
    page.keyboard.press("a")
    expect(approve).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing is waiting for you in this case.")).to_be_visible()
    (approval,) = space.get("/approvals")["approvals"]
    assert (approval["status"], approval["args"]) == ("approved", {"service": "catalogue", "to_revision": 41})
    proposals = page.get_by_role("region", name="Proposals")
    expect(proposals.get_by_role("listitem").filter(has_text="deployment.rollback")).to_contain_text("ready")


def test_what_is_proposed_meanwhile_appears_and_can_be_rejected(page: Page, told: tuple[Incident, Space]) -> None:
    incident, space = told
    page.goto(f"/cases/{incident.id}/actions")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    space.propose("deployment.rollback", {"service": "payments", "to_revision": 7}, "second", CASE)
    page.get_by_role("button", name="1 new").click()
    card = page.get_by_role("group", name="Approval of deployment.rollback").filter(has_text='"payments"')
    expect(card).to_be_visible()
    card.get_by_label("Reason of a rejection").fill("not this one")
    expect(page.get_by_label("Loading")).to_have_count(0)
    card.get_by_role("button", name="Reject").scroll_into_view_if_needed()
    card.get_by_role("button", name="Reject").click()
    expect(card).to_have_count(0)
    assert space.get("/proposals/p-second")["status"] == "rejected"


def test_what_is_proposed_before_the_page_follows_appears_too(page: Page, told: tuple[Incident, Space]) -> None:
    incident, space = told
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/events*", hold)
    page.goto(f"/cases/{incident.id}/actions")
    expect(page.get_by_role("group", name="Approval of deployment.rollback")).to_be_visible()
    expect(page.get_by_text("connecting", exact=True)).to_be_visible()
    space.propose("deployment.rollback", {"service": "payments", "to_revision": 7}, "second", CASE)
    for route in held:
        route.continue_()
    page.get_by_role("button", name="1 new").click()
    card = page.get_by_role("group", name="Approval of deployment.rollback").filter(has_text='"payments"')
    expect(card).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()


def test_a_waiting_call_can_be_withdrawn(page: Page, told: tuple[Incident, Space]) -> None:
    incident, space = told
    page.goto(f"/cases/{incident.id}/actions?proposal=p-restart")
    proposal = page.get_by_role("region", name="Proposal", exact=True)
    proposal.get_by_role("button", name="Withdraw").click()
    expect(proposal).to_contain_text("withdrawn")
    assert space.get("/proposals/p-restart")["status"] == "withdrawn"


@pytest.mark.parametrize("page_of", ["/cases/{}", "/cases/{}/actions", "/inbox"])
def test_a_page_asks_the_same_whatever_the_number_of_spaces(
    page: Page, client: httpx2.Client, told: tuple[Incident, Space], page_of: str
) -> None:
    incident, _ = told
    for number in range(12):
        Space(client).post("/v1/spaces", {"space_id": f"empty-{incident.id}-{number}", "operators_needed": 1})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_of.format(incident.id))
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_label("Loading")).to_have_count(0)
    assert [url for url in asked if "/v1/spaces/empty-" in url] == []
    assert any("/v1/inbox" in url for url in asked)


@pytest.mark.req("CONSOLE-04")
def test_the_actions_of_a_case_follow_what_is_believed(page: Page, told: tuple[Incident, Space]) -> None:
    incident, space = told
    space.propose("deployment.rollback", {"service": "orders", "to_revision": 3}, "third", CASE)
    page.goto(f"/cases/{incident.id}/actions")
    card = page.get_by_role("group", name="Approval of deployment.rollback").filter(has_text='"orders"')
    expect(card).to_contain_text("4 causes left")
    expect(page.get_by_role("banner").get_by_text("4 causes left")).to_be_visible()
    incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    expect(page.get_by_role("banner").get_by_text("1 cause left")).to_be_visible()
    expect(card).to_contain_text("1 cause left")


# What the figure said whenever it was underlined: a test may be too late to see it.
NOTE_UNDERLINE = """
window.underlined = [];
new MutationObserver(() => {
  const figure = document.querySelector("[data-testid=left]");
  if (figure && getComputedStyle(figure).textDecorationLine === "underline") underlined.push(figure.textContent);
}).observe(document, {subtree: true, childList: true, attributes: true});
"""


@pytest.mark.req("CONSOLE-04")
def test_a_session_page_follows_what_is_written_elsewhere(page: Page, client: httpx2.Client) -> None:
    incident = tell(client)
    page.add_init_script(NOTE_UNDERLINE)
    page.goto(f"/cases/{incident.id}")
    expect(page.get_by_text("11 / 11, live")).to_be_visible()
    assert page.evaluate("underlined") == []
    incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    expect(page.get_by_test_id("left")).to_have_text("1")
    expect(page.get_by_text("12 / 12, live")).to_be_visible()
    # The figure that changed is underlined for a moment.
    expect(page.get_by_test_id("left")).not_to_have_css("text-decoration-line", "underline")
    assert set(page.evaluate("underlined")) == {"1"}


@pytest.mark.req("CONSOLE-04")
def test_a_page_behind_live_stays_where_it_is(page: Page, client: httpx2.Client) -> None:
    incident = tell(client)
    page.goto(f"/cases/{incident.id}?at=3")
    expect(page.get_by_test_id("left")).to_have_text("14")
    incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    expect(page.get_by_text("3 / 12")).to_be_visible()
    expect(page.get_by_test_id("left")).to_have_text("14")


@pytest.mark.req("CONSOLE-04")
def test_a_page_without_its_server_says_that_it_is_stale_and_comes_back(
    browser: Browser, server: ServerProcess, client: httpx2.Client
) -> None:
    incident = tell(client)
    with open_page(browser, server.url) as page:
        cut = {"is_cut": True}
        # The first stream ends at once, and the next ones too, until the connection is there again.
        page.route(
            "**/v1/sessions/*/events*",
            lambda route: (
                route.fulfill(status=200, content_type="text/event-stream", body="")
                if cut["is_cut"]
                else route.continue_()
            ),
        )
        page.goto(f"/cases/{incident.id}")
        stale = page.get_by_role("button", name="stale")
        expect(stale).to_be_visible()
        expect(page.get_by_role("button", name="Record what you saw")).to_be_disabled()
        incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
        cut["is_cut"] = False
        stale.click()
        expect(page.get_by_text("12 / 12, live")).to_be_visible()
        expect(page.get_by_test_id("left")).to_have_text("1")
