"""The first page: the console where it was built, else what this server is. Neither gets in the way of the API."""

import json
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

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


def add_viewer(directory: Path) -> None:
    (directory / "docs").mkdir()
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "LICENSE"):
        (directory / "docs" / name).write_text(name, "utf-8")


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Client]:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(PAGE, "utf-8")
    (tmp_path / "assets" / "index-1a2b.js").write_text("let first;", "utf-8")
    add_viewer(tmp_path)
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


class Parts(HTMLParser):
    """What a page loads and links, and what stands between its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.inline: list[str] = []
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        named = {name: value or "" for name, value in attrs}
        self.inline += [name for name in named if name.startswith("on") or name == "style"]
        addresses = [named[name] for name in ("src", "href", "data-document") if name in named]
        (self.linked if tag == "a" else self.loaded).extend(addresses)

    def handle_data(self, data: str) -> None:
        if self._within in {"script", "style"} and data.strip():
            self.inline.append(data)


def test_the_document_can_be_browsed_without_other_hosts(subtests: pytest.Subtests, tmp_path: Path) -> None:
    add_viewer(tmp_path)
    for mounted_at in ["", "/below", "/a/b"]:
        app = with_console(tmp_path)
        outer = Starlette(routes=[Mount(mounted_at, app)]) if mounted_at else app
        with subtests.test(mounted_at=mounted_at), client_of(outer) as client:
            page = client.get(f"{mounted_at}/docs")
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert "unsafe" not in page.headers["content-security-policy"]
            assert page.headers["cache-control"] == "no-cache"
            parts = Parts(page.text)
            # The policy refuses what is inline. An empty icon, so that a browser does not ask for one.
            assert (parts.inline, parts.linked, parts.loaded[0]) == ([], [], "data:,")
            kinds = {}
            for path in parts.loaded[1:]:
                assert path.startswith(f"{mounted_at}/")
                answer = client.get(path)
                assert answer.status_code == 200
                kinds[path.removeprefix(mounted_at)] = answer.headers["content-type"].partition(";")[0]
            assert kinds == {
                "/docs/swagger-ui.css": "text/css",
                "/docs/swagger-ui-bundle.js": "text/javascript",
                "/docs/start.js": "text/javascript",
                "/openapi.json": "application/json",
            }
            # What lies beside them is not served.
            check_error(client.get(f"{mounted_at}/docs/LICENSE"), 404, "NOT_FOUND")


def test_without_a_console_the_docs_say_so_and_link_the_document(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for mounted_at in ["", "/below"]:
        app = with_console(tmp_path)
        outer = Starlette(routes=[Mount(mounted_at, app)]) if mounted_at else app
        with subtests.test(mounted_at=mounted_at), client_of(outer) as client:
            page = client.get(f"{mounted_at}/docs")
            parts = Parts(page.text)
            assert (page.status_code, parts.loaded, parts.inline) == (200, [], [])
            assert parts.linked == [f"{mounted_at}/openapi.json"]
            assert "`make console`" in page.text.replace("<code>", "`").replace("</code>", "`")
            assert client.get(parts.linked[0]).json()["openapi"].startswith("3.")
            check_error(client.get(f"{mounted_at}/docs/swagger-ui.css"), 404, "NOT_FOUND")
