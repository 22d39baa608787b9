"""Pages for a browser: the console, or what this is where there is none, and the API docs; and the OpenAPI document.

They load nothing from other hosts.
"""

from __future__ import annotations

from html import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from cmbs.console import PAGES, ConsoleFiles
from cmbs.http.router import no_such_path

_DOCUMENT = "/openapi.json"
_PAGE = "/docs"
# The files of the viewer, which the console brings, and the one that starts it.
_SCRIPT, _STYLE, _START = "swagger-ui-bundle.js", "swagger-ui.css", "start.js"
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

_DOCS = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>cmbs API docs</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{root}/docs/swagger-ui.css">
<script src="{root}/docs/swagger-ui-bundle.js" defer></script>
<script src="{root}/docs/start.js" defer></script>
</head>
<body>
<div id="docs" data-document="{root}/openapi.json"></div>
</body>
</html>
"""
# No validator: that would be a request to another host.
_START_VIEWER = """"use strict";
const place = document.getElementById("docs");
SwaggerUIBundle({
  domNode: place,
  url: place.dataset.document,
  validatorUrl: null,
  deepLinking: true,
  showExtensions: true,
  showCommonExtensions: true,
});
"""
_NO_DOCS = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>cmbs API docs</title>
</head>
<body>
<h1>cmbs API docs</h1>
<p>The viewer of this page comes with the console, which was not built: <code>make console</code> builds it.</p>
<p>The <a href="{root}/openapi.json">OpenAPI document</a> is here all the same, for any viewer and for programs.</p>
</body>
</html>
"""


def add_pages(app: Starlette) -> None:
    """Give the application its pages, what they load, and its document; none of it is part of the API."""
    app.add_route(_DOCUMENT, _document, include_in_schema=False)
    app.add_route("/", _console, include_in_schema=False)
    for page in PAGES:
        app.add_route(f"/{page}", _console, include_in_schema=False)
        app.add_route(f"/{page}/{{rest:path}}", _console, include_in_schema=False)
    app.add_route("/assets/{name}", _asset, include_in_schema=False)
    app.add_route(_PAGE, _docs, include_in_schema=False)
    app.add_route(f"{_PAGE}/{_START}", _start_viewer, include_in_schema=False)
    for name in (_SCRIPT, _STYLE):
        app.add_route(f"{_PAGE}/{name}", _viewer_file, include_in_schema=False)


async def _document(request: Request) -> Response:
    """The document; where we are mounted below a path, that is the first of its servers."""
    document, root = request.app.openapi(), _root_of(request)
    if root:
        servers = document.get("servers", [])
        named = [] if root in {server["url"] for server in servers} else [{"url": root}]
        document = {**document, "servers": [*named, *servers]}
    return JSONResponse(document)


async def _console(request: Request) -> Response:
    """The one page of the console, whose script shows what the path names; without a console, what this server is."""
    root = _root_of(request)
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


async def _docs(request: Request) -> Response:
    page = _NO_DOCS if _files_of(request).find_viewer_file(_SCRIPT) is None else _DOCS
    # The viewer is named without a hash of its content, so what the page loads may change.
    headers = {**_GUARDED, "cache-control": "no-cache"}
    return HTMLResponse(page.format(root=escape(_root_of(request))), headers=headers)


async def _start_viewer(_: Request) -> Response:
    return Response(_START_VIEWER, media_type="text/javascript", headers={**_GUARDED, **_CACHED})


async def _viewer_file(request: Request) -> Response:
    found = _files_of(request).find_viewer_file(request.url.path.rpartition("/")[2])
    if found is None:
        raise no_such_path(request.scope["path"])
    return Response(found.content, media_type=found.media_type, headers={**_GUARDED, **_CACHED})


def _root_of(request: Request) -> str:
    """The path that we are mounted below. Not an address: a proxy may be between us and the browser."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")
