"""The MCP server at `/mcp` of the HTTP server: admitted by the same gate, answered by the same operations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cmbs.errors import BeliefServerError
from cmbs.http import BeliefApp
from cmbs.http.asgi import response_to, send_response
from cmbs.http.headers import header_lookup
from cmbs.identity import Scope
from cmbs.mcp.api import open_local
from cmbs.mcp.server.serving import open_http

MCP_PATH = "/mcp"
# RFC 9728: where a host reads what kind of credential this resource takes.
METADATA_PATH = f"/.well-known/oauth-protected-resource{MCP_PATH}"
_UNAUTHENTICATED = 401


class _Endpoint:
    """The endpoint as an application: the gate first, then MCP."""

    def __init__(self, app: BeliefApp) -> None:
        self._app = app
        self.inner: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app.gate.admit(header_lookup(scope["headers"]), scope.get("client"), None)
        except BeliefServerError as exc:
            response = response_to(exc)
            if response.status == _UNAUTHENTICATED:
                metadata = f"{_base_url(Request(scope))}{METADATA_PATH}"
                challenge = ("www-authenticate", f'Bearer realm="cmbs", resource_metadata="{metadata}"')
                kept = [pair for pair in response.headers if pair[0] != challenge[0]]
                response = response._replace(headers=[*kept, challenge])
            await send_response(response, send)
            return
        await self.inner(scope, receive, send)


def mount_mcp(app: BeliefApp) -> None:
    """Serve MCP at `/mcp` from the start of the application to its end."""
    endpoint = _Endpoint(app)
    before = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(whole: Any) -> AsyncIterator[Any]:
        async with open_http(open_local(app)) as endpoint.inner, before(whole) as state:
            yield state

    async def describe(request: Request) -> JSONResponse:
        base = _base_url(request)
        return JSONResponse(
            {
                "resource": f"{base}{MCP_PATH}",
                "resource_name": "cmbs",
                "bearer_methods_supported": ["header"],
                "scopes_supported": [scope.value for scope in Scope],
            }
        )

    app.router.lifespan_context = lifespan
    app.router.routes[:0] = [Route(MCP_PATH, endpoint), Route(METADATA_PATH, describe)]


def _base_url(request: Request) -> str:
    return str(request.base_url).rstrip("/")
