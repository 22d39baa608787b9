"""What waits for a person over all spaces, and each of it settled, in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.support.console_inbox import CASE, Payments, tell_inbox
from tests.support.console_space import tell_space
from tests.support.console_story import TRACES, Incident, tell
from tests.support.http_server import ServerProcess, serving

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-10")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One for each test: each of them settles something that the others would miss."""
    with serving(tmp_path, "--store", "memory:") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def told(server: ServerProcess, client: httpx2.Client) -> tuple[Incident, Payments]:
    incident = tell(client)
    tell_space(client, incident)
    space = tell_inbox(client, incident)
    server.wait_until(lambda: space.get("/executions?status=in_doubt")["executions"] != [])
    return incident, space


def test_everything_that_waits_is_listed_with_its_space_and_counted_at_the_rail(
    page: Page, told: tuple[Incident, Payments]
) -> None:
    page.goto("/ledger")
    rail = page.get_by_role("navigation", name="Main")
    expect(rail.get_by_role("link", name="Inbox")).to_contain_text("6")
    page.keyboard.press("g")
    page.keyboard.press("i")
    expect(page.get_by_text("6 things wait")).to_be_visible()
    kinds = page.get_by_role("group", name="Kind")
    expect(kinds).to_contain_text("All 6")
    kinds.get_by_role("button", name="Approvals 3").click()
    expect(page.get_by_role("group", name="Approval of deployment.rollback")).to_be_visible()
    expect(page.get_by_role("group", name="In doubt")).to_have_count(0)
    expect(page).to_have_url(f"{page.url.split('?')[0]}?kind=approval")


def test_who_is_sent_to_one_call_sees_that_one(page: Page, told: tuple[Incident, Payments]) -> None:
    _, space = told
    name = space.path.rpartition("/")[2]
    approval = page.get_by_role("group", name="Approval of")
    page.goto(f"/inbox?space={name}&proposal=p-drain")
    expect(page.get_by_role("group", name="Approval of traffic.drain")).to_be_visible()
    expect(approval).to_have_count(1)
    page.goto(f"/inbox?space={name}&proposal=p-none")
    expect(page.get_by_text("This call does not wait any more, or")).to_be_visible()
    page.get_by_role("button", name="Show everything").click()
    expect(approval).to_have_count(3)


def test_an_approval_says_what_would_change_and_what_was_believed_then_and_now(
    page: Page, told: tuple[Incident, Payments]
) -> None:
    incident, space = told
    page.goto("/inbox")
    card = page.get_by_role("group", name="Approval of traffic.drain")
    expect(card.get_by_label("Exact arguments")).to_contain_text('pool text "checkout-eu"')
    expect(card).to_contain_text("fact.drained+ what it answers at /pool")
    expect(card).to_contain_text("4 causes left at event 11")
    expect(card).to_contain_text("nothing more was ruled out")
    expect(page.get_by_role("group", name="Approval of a change of state")).to_contain_text("goal.restore+ checkout")
    # What is believed meanwhile is read again by itself.
    incident.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    expect(card).to_contain_text("3 more ruled out since")
    approve = card.get_by_role("button", name="Approve once")
    expect(approve).to_be_enabled()
    approve.click()
    expect(card).to_have_count(0)
    assert space.get("/proposals/p-drain")["status"] == "ready"


def test_what_is_in_doubt_is_settled_by_a_person_with_evidence(page: Page, told: tuple[Incident, Payments]) -> None:
    _, space = told
    page.goto("/inbox?kind=execution_in_doubt")
    card = page.get_by_role("group", name="In doubt: refund.send")
    expect(card.get_by_role("button", name="It did not")).to_be_disabled()
    card.get_by_label("Evidence").fill("the ledger of refunds has no such entry")
    card.get_by_role("button", name="It did not").click()
    expect(card).to_have_count(0)
    (execution,) = space.get("/executions?tool=refund.send")["executions"]
    assert (execution["status"], execution["error"]) == (
        "failed",
        "console says: the ledger of refunds has no such entry",
    )


def test_a_second_operator_puts_a_mode_in_force(page: Page, told: tuple[Incident, Payments]) -> None:
    _, space = told
    page.goto("/inbox")
    mode = page.get_by_role("group", name="Change to observing")
    expect(mode).to_contain_text("night-shift asks")
    mode.get_by_role("button", name="Confirm").click()
    expect(mode).to_have_count(0)
    assert space.get("")["mode"] == "observe"


def test_a_second_operator_reads_the_file_before_it_is_put_in_force(
    page: Page, told: tuple[Incident, Payments]
) -> None:
    _, space = told
    page.goto("/inbox?kind=policy_change")
    page.get_by_role("group", name="Policy change").get_by_role("link", name="Review").click()
    expect(page).to_have_url(re.compile(r"/spaces/payments/policy/changes/[^/]+$"))
    file = page.get_by_role("textbox", name="The policy file")
    expect(file).to_contain_text("n_survivors <= 2")
    expect(page.get_by_role("region", name="Policy file")).to_contain_text("draft, 1 rule or setting changed")
    expect(page.get_by_role("button", name="Diff")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("region", name="Would flip")).to_contain_text("past decisions")
    # It is on record already: there is nothing to propose.
    expect(page.get_by_role("button", name="Propose change")).to_have_count(0)
    page.get_by_role("group", name="Policy change").get_by_role("button", name="Put in force").click()
    expect(page.get_by_role("region", name="A change to review")).to_contain_text("It waits no more")
    assert "n_survivors <= 2" in space.get("/policy")["source"]["text"]


def test_what_is_asked_meanwhile_appears_and_can_be_withdrawn(page: Page, told: tuple[Incident, Payments]) -> None:
    _, space = told
    page.goto("/inbox")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    space.propose_candidate({"type": "state_delta", "set": {"goal.drain": "no"}, "unset": []}, "late", CASE)
    page.get_by_role("button", name="1 new").click()
    card = page.get_by_role("group", name="Approval of a change of state").filter(has_text="goal.drain")
    expect(card).to_be_visible()
    expect(page.get_by_label("Loading")).to_have_count(0)
    card.get_by_role("button", name="Withdraw").scroll_into_view_if_needed()
    card.get_by_role("button", name="Withdraw").click()
    expect(card).to_have_count(0)
    assert space.get("/proposals/p-late")["status"] == "withdrawn"


def test_the_inbox_is_worked_through_by_keyboard_alone(page: Page, told: tuple[Incident, Payments]) -> None:
    _, space = told
    page.goto("/inbox?kind=approval")
    cards = page.get_by_role("group", name="Approval of")
    expect(cards).to_have_count(3)
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(cards.nth(1)).to_be_focused()
    expect(cards.nth(1).get_by_role("button", name="Reject")).to_be_enabled()
    page.keyboard.press("x")
    page.keyboard.press("Enter")
    expect(cards).to_have_count(2)
    assert space.get("/proposals/p-drain")["status"] == "rejected"
