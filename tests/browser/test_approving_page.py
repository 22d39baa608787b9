"""Approving in a real browser: what is shown is all that is sent, and a press counts for the card it was aimed at."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.support.browser import open_page
from tests.support.console_inbox import POLICY as PAYMENTS_POLICY
from tests.support.console_inbox import SECOND, Payments
from tests.support.console_space import CASE, Space, tell_space
from tests.support.console_story import TITLE, Incident, tell
from tests.support.http_server import ServerProcess, serving

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-12")]

ROLLBACK = "deployment.rollback"
OTHER = {"x-cmbs-actor": "operator:night-shift"}


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
def incident(client: httpx2.Client) -> Incident:
    return tell(client)


@pytest.fixture
def space(client: httpx2.Client, incident: Incident) -> Space:
    return tell_space(client, incident)


def find_card(page: Page, text: str | None = None) -> Locator:
    cards = page.get_by_role("group", name=f"Approval of {ROLLBACK}")
    # A cause may have the name of a service: what is quoted is an argument.
    return cards if text is None else cards.filter(has_text=f'"{text}"')


def find_approval(space: Space, proposal_id: str) -> dict[str, Any]:
    (found,) = [each for each in space.get("/approvals")["approvals"] if each["proposal_id"] == proposal_id]
    return dict(found)


def find_top(row: Locator) -> float:
    box = row.bounding_box()
    assert box is not None
    return box["y"]


def test_an_approval_shows_each_argument_with_its_type_why_and_in_which_case(page: Page, space: Space) -> None:
    args = {"percent": "50", "share": 50, "dry": False, "hosts": ["a"], "note": None}
    space.propose(ROLLBACK, args, "typed", CASE)
    page.goto("/inbox?space=ops&proposal=p-typed")
    card = find_card(page)
    rows = card.get_by_label("Exact arguments", exact=True).get_by_role("listitem")
    expect(rows).to_have_text(
        [
            "dry true or false false",
            "hosts list of 1",
            '[0] text "a"',
            "note null null",
            'percent text "50"',
            "share number 50",
        ],
        use_inner_text=True,
    )
    expect(card).to_contain_text("agent metrics asks")
    expect(card).to_contain_text("Because a rollback is a person's call (rollback_by_a_person)")
    expect(card).to_contain_text(f"case {CASE} {TITLE}")
    expect(card).to_contain_text("No call of this tool was approved before.")


def test_characters_that_are_not_seen_or_look_like_others_are_shown(page: Page, space: Space) -> None:
    args = {"service": "prod\u202egnigats", "na\u200bme": "p\u0430yments", "plain": "two lines\nof text"}
    space.propose(ROLLBACK, args, "hostile", CASE)
    page.goto("/inbox?space=ops&proposal=p-hostile")
    card = find_card(page)
    shown = card.get_by_label("Exact arguments", exact=True)
    for text in ("prodU+202Egnigats", "naU+200Bme", "p\u0430U+0430yments", "two lines↵"):
        expect(shown).to_contain_text(text)
    expect(card.get_by_role("note")).to_have_text(
        "2 hidden characters and 1 look-alike character are marked by number."
    )


@pytest.mark.parametrize("width", [1440, 400])
def test_large_arguments_are_read_to_their_end_before_they_are_approved(
    browser: Browser, server: ServerProcess, space: Space, width: int
) -> None:
    space.propose(ROLLBACK, {f"host-{number:03}": "drain" for number in range(150)}, "large", CASE)
    with open_page(browser, server.url, width=width) as page:
        page.goto("/inbox?space=ops&proposal=p-large")
        card = find_card(page)
        approve = card.get_by_role("button", name="Approve once")
        approve.scroll_into_view_if_needed()
        expect(card).to_contain_text("Read it to the end first.")
        expect(card.get_by_role("button", name="Reject")).to_be_enabled()
        expect(approve).to_be_disabled()
        card.get_by_label("Exact arguments", exact=True).evaluate("box => box.scrollTo(0, box.scrollHeight)")
        card.get_by_label("Exact arguments", exact=True).get_by_text("host-149").scroll_into_view_if_needed()
        approve.scroll_into_view_if_needed()
        approve.click()
        expect(page.get_by_role("note", name=f"Ended: {ROLLBACK}")).to_contain_text("approved by you (console)")
    assert find_approval(space, "p-large")["status"] == "approved"


def test_more_arguments_than_are_drawn_at_first_have_to_be_opened(page: Page, space: Space) -> None:
    space.propose(ROLLBACK, {"hosts": [f"host-{number:03}" for number in range(400)]}, "long", CASE)
    page.goto("/inbox?space=ops&proposal=p-long")
    card = find_card(page)
    box = card.get_by_label("Exact arguments", exact=True)
    expect(box.get_by_role("listitem")).to_have_count(200)
    card.get_by_role("button", name="Unfold exact arguments").click()
    box.get_by_role("listitem").last.scroll_into_view_if_needed()
    expect(card).to_contain_text("Read it to the end first.")
    card.get_by_role("button", name="Show more of 401 values").click()
    box.get_by_text('"host-399"').scroll_into_view_if_needed()
    approve = card.get_by_role("button", name="Approve once")
    approve.scroll_into_view_if_needed()
    expect(approve).to_be_enabled()


def press_at(page: Page, button: Locator) -> tuple[float, float]:
    box = button.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


# A row of the page that grows above the cards, as late content does.
GROW = """height => {
  const row = document.createElement("p");
  row.style.height = `${height}px`;
  // The button stays under the pointer: less the gap of the grid.
  row.style.marginBottom = "-12px";
  document.querySelector("main").prepend(row);
}"""


# Whether a button was off: a test may be too late to see it.
NOTE_OFF = """button => {
  const note = () => button.disabled && button.setAttribute("data-was-off", "true");
  new MutationObserver(note).observe(button, {attributes: true, attributeFilter: ["disabled"]});
}"""


def test_a_press_on_a_card_that_moved_just_now_does_not_count(page: Page, space: Space) -> None:
    space.propose(ROLLBACK, {"service": "orders", "to_revision": 3}, "second", CASE)
    page.goto("/inbox")
    approve = find_card(page, "catalogue").get_by_role("button", name="Approve once")
    expect(approve).to_be_enabled()
    approve.evaluate(NOTE_OFF)
    page.mouse.move(*press_at(page, approve))
    page.evaluate(GROW, 6)
    page.mouse.down()
    page.mouse.up()
    # It stands where it is for a second, and then a press counts.
    expect(approve).to_have_attribute("data-was-off", "true")
    expect(approve).to_be_enabled()
    assert find_approval(space, "p-rollback")["status"] == "pending"
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_role("note", name=f"Ended: {ROLLBACK}")).to_be_visible()
    assert find_approval(space, "p-second")["status"] == "pending"


def test_a_press_that_began_on_another_card_does_not_count(page: Page, space: Space) -> None:
    space.propose(ROLLBACK, {"service": "orders", "to_revision": 3}, "second", CASE)
    page.goto("/inbox")
    first = find_card(page, "catalogue").get_by_role("button", name="Approve once")
    second = find_card(page, "orders").get_by_role("button", name="Approve once")
    for button in (first, second):
        expect(button).to_be_enabled()
    page.mouse.move(*press_at(page, first))
    page.mouse.down()
    page.mouse.move(*press_at(page, second))
    page.mouse.up()
    # What would have been sent is there before the next answer.
    page.reload()
    expect(find_card(page)).to_have_count(2)
    assert [find_approval(space, each)["status"] for each in ("p-rollback", "p-second")] == ["pending", "pending"]


def test_a_key_that_is_held_down_approves_one(page: Page, space: Space) -> None:
    space.propose(ROLLBACK, {"service": "orders", "to_revision": 3}, "second", CASE)
    page.goto("/inbox")
    approve = find_card(page, "orders").get_by_role("button", name="Approve once")
    expect(approve).to_be_enabled()
    approve.evaluate(
        "button => { window.pressed = []; button.addEventListener('keydown', e => pressed.push(e.defaultPrevented)); }"
    )
    approve.focus()
    page.keyboard.down("Shift")
    page.keyboard.up("Shift")
    approve.dispatch_event("keydown", {"key": "Enter", "repeat": True, "bubbles": True, "cancelable": True})
    assert page.evaluate("pressed.at(-1)") is True
    assert find_approval(space, "p-second")["status"] == "pending"


def test_a_card_that_ends_is_a_note_in_its_place_that_says_who_was_first(page: Page, space: Space) -> None:
    for number in range(4):
        space.propose(ROLLBACK, {"service": f"service-{number}", "to_revision": 3}, f"more-{number}", CASE)
    page.goto("/inbox")
    cards = find_card(page)
    expect(cards).to_have_count(5)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_label("Loading")).to_have_count(0)
    last = find_card(page, "service-3")
    last.get_by_role("button", name="Approve once").scroll_into_view_if_needed()
    expect(last.get_by_role("button", name="Approve once")).to_be_enabled()
    before = find_top(last)
    first = find_approval(space, "p-rollback")
    body = {"uses": 1, "call_hash": first["call_hash"]}
    space.post(f"{space.path}/approvals/{first['approval_id']}/approve", body, OTHER)
    note = page.get_by_role("note", name=f"Ended: {ROLLBACK}")
    expect(note).to_contain_text("approved by night-shift")
    expect(note).to_contain_text("The call waits to be started.")
    assert find_top(last) == pytest.approx(before, abs=1)
    # What is new waits behind a chip, and comes last.
    space.propose(ROLLBACK, {"service": "late", "to_revision": 3}, "late", CASE)
    page.get_by_role("button", name="1 new").click()
    expect(find_card(page, "late")).to_be_focused()
    assert find_top(last) == pytest.approx(before, abs=1)
    note.get_by_role("link", name="See its outcome").click()
    expect(page.get_by_role("region", name="Proposal", exact=True)).to_contain_text("p-rollback")


def test_the_second_of_two_operators_sees_that_another_was_first(
    browser: Browser, server: ServerProcess, space: Space
) -> None:
    context = browser.new_context(base_url=server.url)  # the conflict is an error on Chromium's console
    page = context.new_page()
    page.goto("/inbox")
    approve = find_card(page).get_by_role("button", name="Approve once")
    expect(approve).to_be_enabled()
    # The other is first, and this page does not hear of it before its own request.
    first = find_approval(space, "p-rollback")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/approve", hold)
    with page.expect_request("**/approve"):
        approve.click()
    space.post(f"{space.path}/approvals/{first['approval_id']}/reject", {"reason": "not tonight"}, OTHER)
    assert len(held) == 1
    held[0].continue_()
    expect(page.get_by_role("note", name=f"Ended: {ROLLBACK}")).to_contain_text("rejected by night-shift")
    context.close()


def test_a_call_is_compared_with_the_last_one_that_was_approved(page: Page, space: Space) -> None:
    first = find_approval(space, "p-rollback")
    space.post(f"{space.path}/approvals/{first['approval_id']}/approve", {"uses": 1}, OTHER)
    space.propose(ROLLBACK, {"service": "catalogue", "to_revision": "41", "force": True}, "next", CASE)
    page.goto("/inbox?space=ops&proposal=p-next")
    card = find_card(page)
    expect(card).to_contain_text("Compared with the last one that was approved, by night-shift.")
    rows = card.get_by_label("Exact arguments", exact=True).get_by_role("listitem")
    expect(rows.filter(has_text="to_revision")).to_contain_text('"41" was 41')
    expect(rows.filter(has_text="force")).to_contain_text("not in the last one")
    expect(rows.filter(has_text="service")).not_to_contain_text("last one")


def test_what_was_shown_is_what_is_approved(browser: Browser, server: ServerProcess, space: Space) -> None:
    """A page that was shown something else is refused by the server, and says so."""
    context = browser.new_context(base_url=server.url)  # the refusal is an error on Chromium's console
    page = context.new_page()

    def forge(route: Route) -> None:
        content = route.fetch().json()
        for each in content["waiting"]:
            each["approval"]["call_hash"] = "0" * 64
        route.fulfill(json=content)

    page.route("**/v1/inbox*", forge)
    page.goto("/inbox")
    card = find_card(page)
    card.get_by_role("button", name="Approve once").click()
    expect(card.get_by_role("alert")).to_contain_text("CALL_CHANGED")
    assert find_approval(space, "p-rollback")["status"] == "pending"
    page.unroute_all(behavior="ignoreErrors")
    context.close()


def test_a_policy_change_is_read_to_its_end_before_it_is_put_in_force(page: Page, client: httpx2.Client) -> None:
    payments = Payments(client)
    payments.create()
    payments.post(f"{payments.path}/governance", {"operators_needed": 2})
    rules = "".join(f"  - name: rule_{number:02}\n    allow: refund.send\n" for number in range(40))
    draft = PAYMENTS_POLICY.replace("n_survivors == 1", "n_survivors <= 9").replace(
        "  - name: refunds\n", f"{rules}  - name: refunds\n"
    )
    payments.put_policy(draft, SECOND)
    page.goto("/inbox")
    card = page.get_by_role("group", name="Policy change")
    expect(card.get_by_role("button", name="Put in force")).to_have_count(0)
    card.get_by_role("link", name="Review").click()
    card = page.get_by_role("group", name="Policy change")
    shown, put = card.get_by_label("What it changes"), card.get_by_role("button", name="Put in force")
    expect(shown.get_by_role("listitem")).to_have_count(41)
    expect(shown.get_by_role("listitem").filter(has_text="drain_when_known")).to_contain_text(
        re.compile(r'− .*"eq".*\+ .*"le"', re.DOTALL)
    )
    expect(card).to_contain_text("Read it to the end first.")
    expect(put).to_be_disabled()
    shown.get_by_role("listitem").last.scroll_into_view_if_needed()
    shown.evaluate("box => box.scrollTo(0, box.scrollHeight)")
    put.click()
    expect(page.get_by_role("region", name="A change to review")).to_contain_text("applied, by console")


def test_a_case_shows_its_own_approvals_of_all_spaces_and_no_others(
    page: Page, client: httpx2.Client, incident: Incident, space: Space
) -> None:
    other = Incident(client, "Search is slow")
    space.open_case(other, "INC-9")
    space.propose(ROLLBACK, {"service": "search", "to_revision": 1}, "of-another", "INC-9")
    payments = Payments(client)
    payments.create()
    payments.open_case(incident)
    payments.propose("traffic.drain", {"pool": "eu"}, "drain", CASE)
    page.goto(f"/cases/{incident.id}/actions")
    panel = page.get_by_role("region", name="Waits for you")
    expect(panel.get_by_role("group", name="Approval of")).to_have_count(2)
    expect(panel.get_by_role("group", name="Approval of traffic.drain")).to_contain_text("space payments")
    expect(panel).not_to_contain_text("search")
    page.get_by_label("Space", exact=True).select_option("payments")
    expect(page.get_by_role("region", name="Proposals", exact=True)).to_contain_text("traffic.drain")


def test_a_row_that_cannot_be_shown_hides_no_other(page: Page, space: Space) -> None:
    space.propose(ROLLBACK, {"service": "orders", "to_revision": 3}, "second", CASE)

    def break_one(route: Route) -> None:
        content = route.fetch().json()
        content["waiting"][0]["approval"]["constraints"] = None
        route.fulfill(json=content)

    page.route("**/v1/inbox*", break_one)
    page.goto("/inbox")
    expect(page.get_by_text("This one cannot be shown.")).to_be_visible()
    approve = find_card(page, "orders").get_by_role("button", name="Approve once")
    approve.click()
    expect(page.get_by_role("note", name=f"Ended: {ROLLBACK}")).to_be_visible()
    assert find_approval(space, "p-second")["status"] == "approved"
    page.unroute_all(behavior="ignoreErrors")
