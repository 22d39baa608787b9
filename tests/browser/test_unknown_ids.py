"""Addresses of things that are not there say so in a real browser: none loads for ever, or shows another."""

import pytest
from playwright.sync_api import Browser, expect

from tests.support.console_space import tell_space
from tests.support.console_story import tell
from tests.support.http_server import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-05")]

# What a page says of an id that nothing has; `{}` is the one case there is.
SAID = {
    "/cases/nope": "No case has this name or id.",
    "/cases/nope/actions": "No case has this name or id.",
    "/cases/{}?at=abc": "The address names event abc, which this case does not have.",
    "/cases/{}?at=999": "The address names event 999, which this case does not have.",
    "/cases/{}?why=nope": "This case has no cause of this id.",
    "/cases/{}/actions?space=nope": "This case is not admitted to the space that the address names",
    "/cases/{}/actions?proposal=nope": "This case has no proposal of this id in this space",
    "/spaces/nope/policy": "no space nope",
    "/spaces/ops/policy/changes/nope": "no policy change nope in this space",
    "/inbox?space=ops&proposal=nope": "nothing of this id was asked for",
    "/ledger/nope": "no session nope",
    "/ledger/space%3Anope": "no space nope",
}


def test_an_address_of_something_that_is_not_there_says_so(browser: Browser, server: ServerProcess) -> None:
    with server.client() as client:
        incident = tell(client)
        tell_space(client, incident)
    context = browser.new_context(base_url=server.url)  # Chromium notes every 404 as an error
    page = context.new_page()
    for path, words in SAID.items():
        page.goto(path.format(incident.id))
        expect(page.locator("main"), path).to_contain_text(words)
        expect(page.get_by_label("Loading"), path).to_have_count(0)
    context.close()
