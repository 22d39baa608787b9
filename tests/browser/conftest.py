"""One server and one browser for each module of tests; a profile of its own for each page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import open_browser, open_page
from tests.support.console_story import Incident, tell
from tests.support.http_server import ServerProcess, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory: Path = tmp_path_factory.mktemp("console")
    with serving(directory, "--store", "memory:") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[httpx2.Client]:
    with server.client() as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with open_page(browser, server.url) as page:
        yield page


@pytest.fixture
def incident(client: httpx2.Client) -> Incident:
    return tell(client)
