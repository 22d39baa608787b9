"""The API docs in a browser. Their viewer comes from here: where servers run, nobody else may be within reach."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import Response

_PAGE = "/docs"
# The name of a file of the viewer, and what it is.
_SCRIPT, _STYLE, _ICON = "swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"
_FILES = {_SCRIPT: "text/javascript", _STYLE: "text/css", _ICON: "image/png"}
# The files change with the version that is installed, which a browser cannot see.
_CACHED = {"cache-control": "public, max-age=3600"}


def add_viewer(app: FastAPI) -> None:
    """Give the application its page, and what the page loads; none of it is part of the API."""
    app.add_route(_PAGE, _page, include_in_schema=False)
    for name in _FILES:
        app.add_route(f"{_PAGE}/{name}", _file, include_in_schema=False)


async def _page(request: Request) -> Response:
    app: FastAPI = request.app
    # Where somebody mounted us; and a path, not an address: who else is between us and the browser is not known.
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
