"""The report of `cmbs analyse --html`: one file, opened from a disk, that loads nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.test_pages import IMAGES, find_violations
from tests.support.browser import Complaints
from tests.support.cli import invoke
from tests.support.console_story import Incident, tell, tell_again
from tests.support.http_server import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.req("AN-09")]


@pytest.fixture(scope="module")
def report(
    server: ServerProcess, client: httpx2.Client, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Incident, Incident]:
    first = tell(client)
    second = tell_again(first)
    for title in (*(f"Run {number}" for number in range(5)), "</script><script>document.title = 'taken'</script>"):
        tell(client, title).probe("agent://late", "LockWaitsHigh@orders-db", "firing")
    file = tmp_path_factory.mktemp("report") / "report.html"
    ran = invoke("analyse", "--url", server.url, "--html", str(file))
    assert ran.exit_code == 0, ran.output
    return file, first, second


@pytest.fixture(params=["dark", "light"])
def opened(browser: Browser, report: tuple[Path, Incident, Incident], request: pytest.FixtureRequest) -> Iterator[Page]:
    """The file in a browser without a server; the test fails where the page asks for anything else."""
    context = browser.new_context(
        viewport={"width": 1300, "height": 900}, color_scheme=request.param, offline=True, reduced_motion="reduce"
    )
    page = context.new_page()
    complaints = Complaints()
    complaints.watch(page, report[0].as_uri())
    page.goto(report[0].as_uri())
    yield page
    context.close()
    assert not complaints, list(complaints)


def test_the_file_shows_sessions_with_the_components_of_the_console(
    opened: Page, report: tuple[Path, Incident, Incident], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _, first, second = report
    page = opened
    expect(page).to_have_title("8 sessions analysed")
    expect(page.get_by_role("region", name="Together")).to_contain_text("contradictions (nothing left)1")
    page.get_by_role("button", name=f"A: {first.id}").click()
    funnel = page.get_by_role("region", name="Belief funnel")
    expect(funnel.get_by_role("img").first).to_have_attribute(
        "aria-label",
        "Belief funnel. 24 causes at event 0, 4 at event 11; agent://metrics ruled out 5; agent://traces "
        "ruled out 14; human://on-call ruled out 1; obligation look-before-concluding can be left at 3 or fewer; "
        "3 requests were refused",
    )
    page.get_by_role("slider", name="Event").fill("3")
    expect(page.get_by_role("slider", name="Event")).to_have_attribute("aria-valuetext", "event 3 of 11, 14 left")
    page.get_by_role("button", name=f"B: {second.id}").click()
    expect(page.get_by_role("region", name="Where they part")).to_contain_text("they part at #4")
    expect(page.get_by_role("list", name="Only B ruled out").get_by_role("listitem")).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1300
    assert find_violations(page) == []
    dark = "dark" in request.node.name
    directory = IMAGES if os.environ.get("CMBS_SCREENSHOTS") == "1" and dark else tmp_path
    page.screenshot(path=directory / "analysis-report.png", full_page=True)


def test_every_column_of_the_table_can_be_reached_at_any_width(opened: Page) -> None:
    page = opened
    for width in (400, 1300, 3840):
        page.set_viewport_size({"width": width, "height": 900})
        # The page is laid out again some time after the window has another size.
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)
        last = page.get_by_role("columnheader", name="against")
        last.scroll_into_view_if_needed()
        box = last.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
