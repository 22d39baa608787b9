"""Pages for a browser: what this is, and the API docs. They load nothing from other hosts."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

_PAGE = "/docs"
# The name of a file of the viewer, and what it is.
_SCRIPT, _STYLE, _ICON = "swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"
_FILES = {_SCRIPT: "text/javascript", _STYLE: "text/css", _ICON: "image/png"}
# The files change with the version that is installed, which a browser cannot see.
_CACHED = {"cache-control": "public, max-age=3600"}


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
    app.add_route("/", _home, include_in_schema=False)
    app.add_route(_PAGE, _page, include_in_schema=False)
    for name in _FILES:
        app.add_route(f"{_PAGE}/{name}", _file, include_in_schema=False)


async def _home(request: Request) -> Response:
    origin = f"{request.scope['scheme']}://{request.headers.get('host') or 'localhost'}"
    root = request.scope.get("root_path", "").rstrip("/")
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
