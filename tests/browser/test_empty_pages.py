"""Pages of a server in which nothing has happened yet: what they say to type works."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import open_page
from tests.support.http_server import ServerProcess, run_cmbs, serving

pytestmark = pytest.mark.browser


@pytest.fixture
def empty_server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path, "--store", "memory:") as server:
        yield server


@pytest.fixture
def empty(empty_server: ServerProcess, browser: Browser) -> Iterator[Page]:
    with open_page(browser, empty_server.url) as page:
        yield page


def read_command(page: Page) -> str:
    expect(page.get_by_label("To copy")).to_be_visible()
    return page.get_by_label("To copy").inner_text()


@pytest.mark.req("CONSOLE-05")
def test_the_list_of_cases_says_how_to_open_one(empty: Page) -> None:
    empty.goto("/")
    subprocess.run(["bash", "-c", read_command(empty)], check=True, capture_output=True, timeout=60)
    empty.reload()
    row = empty.get_by_role("region", name="Open").get_by_role("link")
    expect(row).to_contain_text("Untitled session")
    expect(row).to_contain_text("of 3")


@pytest.mark.req("CONSOLE-05")
def test_the_policy_page_says_how_to_make_a_space(empty: Page, tmp_path: Path) -> None:
    empty.goto("/policy")
    program, *arguments = shlex.split(read_command(empty))
    made = run_cmbs(*arguments, directory=tmp_path)
    assert (program, made.returncode) == ("cmbs", 0), made.stderr
    empty.reload()
    expect(empty.get_by_label("Space", exact=True)).to_have_value("ops")


@pytest.mark.req("CONSOLE-05")
def test_a_session_that_is_not_there_leads_back_to_the_list(empty_server: ServerProcess, browser: Browser) -> None:
    page = browser.new_page(base_url=empty_server.url)  # Chromium notes every 404 as an error
    page.goto("/cases/nope")
    failure = page.get_by_role("alert")
    expect(failure).to_contain_text("no session nope")  # what the server quotes is shown as code
    expect(failure.locator("code")).to_have_text("nope")
    page.get_by_role("link", name="All cases").click()
    expect(page.get_by_role("heading", name="Cases", exact=True)).to_be_visible()
    page.close()
