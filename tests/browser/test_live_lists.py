"""Lists that grow while they are read, in a real browser: what is new waits, and nothing moves under the pointer."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import open_page
from tests.support.console_space import CASE, Space, tell_space
from tests.support.console_story import TITLE, TRACES, Incident, tell
from tests.support.http_server import ServerProcess, serving

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-04")]

MANY = 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One for each test: each of them adds to lists that the others count."""
    with serving(tmp_path, "--store", "memory:") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def told(client: httpx2.Client) -> tuple[Incident, Space]:
    """A case with so many proposals, and so many of them for a person, that no screen holds them."""
    incident = tell(client)
    space = tell_space(client, incident)
    for number in range(MANY):
        space.propose("ticket.file", {"severity": 2}, f"ticket-{number}", CASE)
    for number in range(6):
        ask(space, f"ask-{number}")
    return incident, space


def ask(space: Space, key: str) -> None:
    """A call that waits for a person."""
    space.propose("deployment.rollback", {"service": key, "to_revision": 7}, key, CASE)


def find_y(row: Locator) -> float:
    box = row.bounding_box()
    assert box is not None
    return box["y"]


def test_new_proposals_wait_behind_a_chip_unless_the_list_is_at_its_top(
    page: Page, told: tuple[Incident, Space]
) -> None:
    incident, space = told
    page.goto(f"/cases/{incident.id}/actions")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    proposals = page.get_by_role("region", name="Proposals", exact=True)
    rows, fresh = proposals.get_by_role("listitem"), proposals.get_by_role("button", name="new")
    trace = page.get_by_role("region", name="Proposal", exact=True)
    expect(rows).to_have_count(MANY + 10)
    # At its top the list shows what is new at once; what is read beside it stays.
    expect(trace).to_contain_text("p-restart")
    space.propose("ticket.file", {"severity": 1}, "at-the-top", CASE)
    expect(rows).to_have_count(MANY + 11)
    expect(fresh).to_have_count(0)
    # Further down what is new waits, and a row that is looked at stays where it is, with its status as it is now.
    oldest = rows.last
    oldest.scroll_into_view_if_needed()
    before = find_y(oldest)
    for number in range(2):
        space.propose("ticket.file", {"severity": 1}, f"further-down-{number}", CASE)
    space.post(f"{space.path}/proposals/p-restart/withdraw", {"reason": "not needed"})
    expect(fresh).to_have_text("2 new")
    expect(fresh).to_be_in_viewport()
    expect(proposals).to_contain_text(f"{MANY + 13} in this case")
    expect(rows).to_have_count(MANY + 11)
    expect(rows.filter(has_text="service.restart")).to_contain_text("withdrawn")
    assert find_y(oldest) == pytest.approx(before, abs=1)
    fresh.click()
    expect(fresh).to_have_count(0)
    expect(rows).to_have_count(MANY + 13)
    expect(rows.first).to_be_in_viewport()


def test_a_card_that_comes_to_the_inbox_moves_none_that_is_read(
    browser: Browser, server: ServerProcess, told: tuple[Incident, Space]
) -> None:
    _, space = told
    with open_page(browser, server.url, width=800, height=500) as page:
        page.goto("/inbox")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        cards, fresh = page.get_by_role("group", name="Approval of"), page.get_by_role("button", name="new")
        expect(cards).to_have_count(7)
        expect(page.get_by_label("Loading")).to_have_count(0)
        cards.last.scroll_into_view_if_needed()
        before = find_y(cards.last)
        ask(space, "while-it-is-read")
        expect(page.get_by_text("8 things wait")).to_be_visible()
        expect(fresh).to_have_text("1 new")
        expect(cards).to_have_count(7)
        assert find_y(cards.last) == pytest.approx(before, abs=1)
        # It is shown for a click, after those that are there.
        fresh.click()
        expect(fresh).to_have_count(0)
        expect(cards).to_have_count(8)
        expect(cards.last).to_contain_text("while-it-is-read")


def test_cases_that_moved_wait_for_a_click(page: Page, client: httpx2.Client, told: tuple[Incident, Space]) -> None:
    _, space = told
    first, second = tell(client, "Told first"), tell(client, "Told then")
    page.goto("/")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    rows = page.locator("a.case")
    expect(rows.filter(has_text="Told first")).to_contain_text("of 24 · 2.00 bits")
    # What waits is read beside the list: the order is settled once both are there.
    waits = page.get_by_role("region", name="Waits for a person")
    expect(waits).to_contain_text(TITLE)
    titles = rows.locator(".title")
    order = titles.all_text_contents()
    first.probe(TRACES, "LockWaitsHigh@orders-db", "firing")
    moved = page.get_by_role("button", name="moved")
    expect(moved).to_have_text("1 case moved")
    Incident(client, "Declared meanwhile")
    expect(moved).to_have_text("2 cases moved")
    # Nor does a row go to another section: that it waits for a person is said in its place.
    then = rows.filter(has_text="Told then")
    expect(then).not_to_contain_text("Approve?")
    space.open_case(second, "INC-2292")
    space.propose("deployment.rollback", {"service": "orders", "to_revision": 3}, "elsewhere", "INC-2292")
    expect(then).to_contain_text("Approve?")
    expect(moved).to_have_text("3 cases moved")
    assert titles.all_text_contents() == order
    expect(waits).not_to_contain_text("Told then")
    moved.click()
    expect(waits).to_contain_text("Told then")
    expect(rows.filter(has_text="Declared meanwhile")).to_be_visible()
    expect(rows.filter(has_text="Told first")).not_to_contain_text("2.00 bits")
    expect(moved).to_have_count(0)
