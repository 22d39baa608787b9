"""Chromium for tests of the console: one for each module of tests, on loopback alone, with a profile of its own.

`CMBS_CHROMIUM` names a program to use. Where there is none, or the console was not built, the tests are skipped and say
why, unless `CMBS_REQUIRE_BACKENDS=1`: then they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from cmbs.console import ConsoleFiles
from scripts.install_chromium import VARIABLE, find_chromium
from tests.support.effort import REQUIRED, require_marker

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP = {"width": 1440, "height": 900}
# How long anything may take before a test gives up. Nothing waits for it where all is well.
TIMEOUT_MS = 30_000


def _give_up(reason: str) -> NoReturn:
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser; it ends with the block."""
    require_marker("browser")
    program = find_chromium()
    if program is None:
        _give_up(f"there is no Chromium: install it, or set {VARIABLE}")
    if ConsoleFiles().find_page("") is None:
        _give_up("the console was not built: run `make console`")
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Complaints(list[str]):
    """What a page complained about: errors of scripts, refused loads, requests to elsewhere."""

    def watch(self, page: Page, origin: str) -> None:
        """Take in what this page complains about from now on."""
        page.on("pageerror", lambda error: self.append(f"error: {error}"))
        page.on("console", lambda message: self.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((origin, "blob:", "data:")) else self.append(f"request to {request.url}")
            ),
        )


@contextmanager
def open_page(
    browser: Browser, origin: str, *, width: int = 1440, height: int = 900, scheme: str = "dark"
) -> Iterator[Page]:
    """A page in a profile of its own; the test fails where the page complained about anything."""
    context = browser.new_context(
        base_url=origin,
        viewport={"width": width, "height": height},
        color_scheme="light" if scheme == "light" else "dark",
        reduced_motion="reduce",
        accept_downloads=True,
    )
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    complaints = Complaints()
    complaints.watch(page, origin)
    try:
        yield page
        assert not complaints, list(complaints)
    finally:
        context.close()
