"""Pages for a browser: the console, or what this is where there is none, and the API docs.

They load nothing from other hosts.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from cmbs.console import PAGES, ConsoleFiles
from cmbs.http.router import no_such_path

_PAGE = "/docs"
# The name of a file of the viewer, and what it is.
_SCRIPT, _STYLE, _ICON = "swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"
_FILES = {_SCRIPT: "text/javascript", _STYLE: "text/css", _ICON: "image/png"}
# The files change with the version that is installed, which a browser cannot see.
_CACHED = {"cache-control": "public, max-age=3600"}
# A file of the console has a hash of its content in its name.
_IMMUTABLE = {"cache-control": "public, max-age=31536000, immutable"}
# Nothing inline, nothing from elsewhere, in no frame.
_GUARDED = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
        " worker-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_HOME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>cmbs</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1rem; }}
pre {{ background: #eee; color: #111; padding: 1rem; overflow-x: auto; }}
</style>
</head>
<body>
<h1>cmbs {version}</h1>
<p>The epistemic control plane for AI agents: what may still be believed, what may be done about it, and the proof of
both. This server keeps <em>sessions</em> (which hypotheses survive) and <em>spaces</em> (which actions are allowed),
and records every change in a log that anyone can verify.</p>
<ul>
<li><a href="{root}/docs">API docs</a>, to read and to try</li>
<li><a href="{root}/openapi.json">OpenAPI document</a>, for programs</li>
<li><a href="{root}/healthz">/healthz</a> (the process is alive) and
<a href="{root}/readyz">/readyz</a> (the store answers)</li>
</ul>
<p>A first session over three hypotheses:</p>
<pre>curl -s {origin}{root}/v1/sessions -H 'content-type: application/json' -d '{{
  "ontology": {{"hypothesis_space_id": "demo", "hypothesis_version": "1",
               "causal_graph_ref": "demo", "causal_graph_version": "1"}},
  "hypotheses": ["disk", "network", "release"]}}'</pre>
<p>Where the server has keys, add <code>-H "authorization: Bearer $CMBS_KEY"</code>.</p>
</body>
</html>
"""


def add_pages(app: FastAPI) -> None:
    """Give the application its pages, and what they load; none of it is part of the API."""
    app.add_route("/", _console, include_in_schema=False)
    for page in PAGES:
        app.add_route(f"/{page}", _console, include_in_schema=False)
        app.add_route(f"/{page}/{{rest:path}}", _console, include_in_schema=False)
    app.add_route("/assets/{name}", _asset, include_in_schema=False)
    app.add_route(_PAGE, _page, include_in_schema=False)
    for name in _FILES:
        app.add_route(f"{_PAGE}/{name}", _file, include_in_schema=False)


async def _console(request: Request) -> Response:
    """The one page of the console, whose script shows what the path names; without a console, what this server is."""
    root = request.scope.get("root_path", "").rstrip("/")
    page = _files_of(request).find_page(escape(root))
    if page is None:
        return _describe(request, root)
    return HTMLResponse(page, headers={**_GUARDED, "cache-control": "no-cache"})


async def _asset(request: Request) -> Response:
    asset = _files_of(request).find_asset(request.path_params["name"])
    if asset is None:
        raise no_such_path(request.scope["path"])
    return Response(asset.content, media_type=asset.media_type, headers={**_GUARDED, **_IMMUTABLE})


def _files_of(request: Request) -> ConsoleFiles:
    files_of_console: ConsoleFiles = request.app.console
    return files_of_console


def _describe(request: Request, root: str) -> Response:
    origin = f"{request.scope['scheme']}://{request.headers.get('host') or 'localhost'}"
    return HTMLResponse(_HOME.format(version=escape(request.app.version), root=escape(root), origin=escape(origin)))


async def _page(request: Request) -> Response:
    app: FastAPI = request.app
    # A path, not an address: a proxy may be between us and the browser.
    root = request.scope.get("root_path", "").rstrip("/")
    return get_swagger_ui_html(
        openapi_url=f"{root}{app.openapi_url}",
        title=app.title,
        swagger_js_url=f"{root}{_PAGE}/{_SCRIPT}",
        swagger_css_url=f"{root}{_PAGE}/{_STYLE}",
        swagger_favicon_url=f"{root}{_PAGE}/{_ICON}",
    )


async def _file(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    content = files("fastapi_swagger").joinpath("resources", name).read_bytes()
    return Response(content, media_type=_FILES[name], headers=_CACHED)
