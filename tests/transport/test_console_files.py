"""The first page: the console where it was built, else what this server is. Neither gets in the way of the API."""

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.console import PAGES, ConsoleFiles
from cmbs.http import BeliefApp
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of

PAGE = '<!doctype html><base href="/"><script type="module" src="./assets/index-1a2b.js"></script>'


def with_console(directory: Path) -> BeliefApp:
    app = BeliefApp(BeliefServer())
    app.console = ConsoleFiles(directory)
    return app


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(PAGE, "utf-8")
    (tmp_path / "assets" / "index-1a2b.js").write_text("let first;", "utf-8")
    with client_of(with_console(tmp_path)) as client:
        yield client


def test_without_a_console_the_first_page_says_where_to_go_and_loads_nothing(
    subtests: pytest.Subtests, tmp_path: Path
) -> None:
    for host in ["localhost:8080", '"><script>alert(1)</script>']:
        with subtests.test(host=host), client_of(with_console(tmp_path)) as client:
            page = client.get("/", headers={"host": host})
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert "<script" not in page.text
            assert re.findall(r'(?:src|href)="([^"]+)"', page.text) == [
                "/docs",
                "/openapi.json",
                "/healthz",
                "/readyz",
            ]
            example = unescape(page.text.split("<pre>")[1].split("</pre>")[0])
            assert f"http://{host}/v1/sessions" in example
            body = json.loads(example.split("-d '")[1].rstrip("'"))
            assert client.post("/v1/sessions", body).status_code == 201
            check_error(client.get("/assets/index-1a2b.js"), 404, "NOT_FOUND")


@pytest.mark.req("CONSOLE-01")
def test_every_page_of_the_console_is_the_same_file_under_a_strict_policy(
    subtests: pytest.Subtests, built: Client
) -> None:
    for path in ["/", *(f"/{page}" for page in PAGES), "/cases/some-id/actions", "/spaces/a%2Fb/policy"]:
        with subtests.test(path=path):
            page = built.get(path)
            assert (page.status_code, page.text) == (200, PAGE)
            rules = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
            assert rules["default-src"] == "'none'"
            assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
            assert "unsafe" not in page.headers["content-security-policy"]
            assert page.headers["cache-control"] == "no-cache"
            assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.req("CONSOLE-01")
def test_files_with_a_hash_in_their_name_are_kept_by_browsers(built: Client) -> None:
    asset = built.get("/assets/index-1a2b.js")
    assert (asset.status_code, asset.text) == (200, "let first;")
    assert asset.headers["content-type"].startswith("text/javascript")
    assert "immutable" in asset.headers["cache-control"]


@pytest.mark.req("CONSOLE-01")
def test_paths_that_are_not_the_consoles_stay_what_they_were(subtests: pytest.Subtests, built: Client) -> None:
    for path in ["/assets/none-1a2b.js", "/assets/..%2Findex.html", "/nowhere", "/v1/cases"]:
        with subtests.test(path=path):
            check_error(built.get(path), 404, "NOT_FOUND")


@pytest.mark.req("CONSOLE-01")
def test_below_a_path_the_page_knows_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(PAGE, "utf-8")
    assert ConsoleFiles(tmp_path).find_page("/belief") == PAGE.replace('href="/"', 'href="/belief/"')
