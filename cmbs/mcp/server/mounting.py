"""The MCP server at `/mcp` of the HTTP server: admitted by the same gate, answered by the same operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from cmbs.errors import BeliefServerError
from cmbs.http import BeliefApp
from cmbs.http.asgi import response_to, send_response
from cmbs.http.headers import header_lookup
from cmbs.identity.kernel.scopes import Scope

MCP_PATH = "/mcp"
# RFC 9728: where a host reads what kind of credential this resource takes.
METADATA_PATH = f"/.well-known/oauth-protected-resource{MCP_PATH}"
_UNAUTHENTICATED = 401


class _Endpoint:
    """The endpoint as an application: the gate first, then MCP, which the first request that it lets in opens."""

    def __init__(self, app: BeliefApp) -> None:
        self._app = app
        self._opening = anyio.Lock()
        self._inner: Any = None
        # What opened MCP, from the start of the application to its end.
        self.tasks: TaskGroup

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app.service.gate.admit(header_lookup(scope["headers"]), scope.get("client"), None)
        except BeliefServerError as exc:
            response = response_to(exc)
            if response.status == _UNAUTHENTICATED:
                metadata = f"{_base_url(Request(scope))}{METADATA_PATH}"
                challenge = ("www-authenticate", f'Bearer realm="cmbs", resource_metadata="{metadata}"')
                kept = [pair for pair in response.headers if pair[0] != challenge[0]]
                response = response._replace(headers=[*kept, challenge])
            await send_response(response, send)
            return
        async with self._opening:
            if self._inner is None:
                self._inner = await self.tasks.start(self._keep_open)
        await self._inner(scope, receive, send)

    async def _keep_open(self, *, task_status: TaskStatus[Any]) -> None:
        """Open MCP and close it, which has to be done by one task."""
        open_mcp = await run_sync(_import_mcp)
        async with open_mcp(self._app) as inner:
            task_status.started(inner)
            await anyio.sleep_forever()


def _import_mcp() -> Callable[[BeliefApp], AbstractAsyncContextManager[Any]]:
    # It takes as long as everything else that a server starts with, and most servers are never asked for it.
    from cmbs.mcp.asking import open_api  # noqa: PLC0415 - loads when used
    from cmbs.mcp.server.serving import open_http  # noqa: PLC0415

    return lambda app: open_http(open_api(app), lambda: app.service.waiting.is_draining)


def mount_mcp(app: BeliefApp) -> None:
    """Serve MCP at `/mcp` from the start of the application to its end."""
    endpoint = _Endpoint(app)
    before = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(whole: Any) -> AsyncIterator[Any]:
        async with anyio.create_task_group() as endpoint.tasks:
            async with before(whole) as state:
                yield state
            endpoint.tasks.cancel_scope.cancel()

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
