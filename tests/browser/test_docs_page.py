"""The API docs in a real browser: they are there, they can be tried, and nothing comes from elsewhere."""

import re

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


@pytest.mark.req("CONSOLE-01")
def test_the_api_is_browsed_and_tried_under_a_strict_policy(page: Page) -> None:
    """The fixture fails where the policy refused something, or another host was asked."""
    page.goto("/docs")
    expect(page.get_by_role("heading", name=re.compile("^cmbs"))).to_be_visible()
    for operation in ("belief-declare_session", "health-healthz"):
        page.locator(f"#operations-{operation}").get_by_role("button").first.click()
        expect(page.locator(f"#operations-{operation} .responses-inner")).to_be_visible()
    health = page.locator("#operations-health-healthz")
    health.get_by_role("button", name="Try it out").click()
    health.get_by_role("button", name="Execute").click()
    expect(health.locator(".live-responses-table .response-col_status").last).to_contain_text("200")
    page.get_by_role("button", name="Schemas").click()
