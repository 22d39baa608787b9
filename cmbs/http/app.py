"""The ASGI application: FastAPI for what people know (docs, middleware, mounting), our own dispatch for what is hot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response as StarletteResponse
from starlette.routing import Match, Route

from cmbs.belief.server import BeliefServer
from cmbs.http import asgi
from cmbs.http.asgi import Receive, Scope, Send
from cmbs.http.belief.routes import Routes
from cmbs.http.docs_page import add_viewer
from cmbs.http.errors import METHOD_NOT_ALLOWED, STATUS_OF_CODE, TransportCode, TransportError
from cmbs.http.exchange import Response
from cmbs.http.openapi import openapi_document
from cmbs.http.operations import OPERATIONS
from cmbs.http.router import Dispatcher, method_not_allowed, response_to
from cmbs.http.spaces.reading import Spaces
from cmbs.http.spaces.routes import SpaceRoutes
from cmbs.identity import Gate, KeyRegistry
from cmbs.substrate.server import SubstrateServer


class BeliefApp(FastAPI):
    """A FastAPI application whose own routes are answered before FastAPI's machinery is entered.

    `gate` decides who may ask; by default it goes by the keys in the server's log. `spaces` are by default those of the
    same log, served from the first time that somebody asks for one.
    """

    def __init__(self, server: BeliefServer, gate: Gate | None = None, spaces: SubstrateServer | None = None) -> None:
        super().__init__(
            title="cmbs belief server",
            version=version("cmbs"),
            lifespan=_closing(self.close),
            redirect_slashes=False,  # an id may be empty, so a slash at the end is not a slip
            docs_url=None,  # the framework's pages load their viewers from somewhere else
            redoc_url=None,
        )
        self.belief_server = server
        self.gate = gate or Gate(KeyRegistry(server.log))
        self.spaces = Spaces(server, spaces)
        self._handlers = Routes(server)
        self.dispatcher = Dispatcher(self._handlers, SpaceRoutes(self.spaces, server.requests.page_size))
        self.body_bytes = server.requests.limits.body_bytes
        add_viewer(self)
        # The same table again as ordinary routes, for whoever adds middleware or walks `app.routes`.
        self.router.routes.extend(_TableRoute(path, self) for path in _paths())
        self.add_exception_handler(HTTPException, _transport_failure)
        self.add_exception_handler(Exception, _unexpected_failure)

    def close(self) -> None:
        """Let what runs come to its end, write what waits, and let go of the server."""
        self._handlers.close()
        self.spaces.close()
        self.belief_server.close()

    def openapi(self) -> dict[str, Any]:
        """The document that `api/openapi.yaml` holds."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi_document()
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        if scope["type"] == "http" and not self.user_middleware:
            found = self.dispatcher.find(scope)
            if found is not None:
                await asgi.answer(found, self.gate, self.body_bytes, scope, receive, send)
                return
        await super().__call__(scope, receive, send)


class _TableRoute(Route):
    """A path of the table. It is matched as it was sent: decoded, an id with a slash would be two parts of a path."""

    def __init__(self, path: str, app: BeliefApp) -> None:
        super().__init__(path, _Endpoint(app.gate, app.body_bytes))
        self._dispatcher = app.dispatcher

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the request is for this path, whatever its method."""
        found = self._dispatcher.find(scope) if scope["type"] == "http" else None
        if found is None or found.path != self.path:
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "path_params": dict(found.params), "cmbs.found": found}


class _Endpoint:
    """An endpoint that Starlette treats as an application of its own: any method, no request object."""

    def __init__(self, gate: Gate, body_bytes: int) -> None:
        self._gate = gate
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await asgi.answer(scope["cmbs.found"], self._gate, self._body_bytes, scope, receive, send)


def _paths() -> list[str]:
    return list(dict.fromkeys(operation.path for operation in OPERATIONS))


def _closing(close: Callable[[], None]) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        close()

    return lifespan


async def _transport_failure(request: StarletteRequest, exc: Exception) -> StarletteResponse:
    """Unknown paths and wrong methods in the shape of the protocol; what else a route of yours raises is its own."""
    if not isinstance(exc, HTTPException):  # pragma: no cover - it is registered for nothing else
        raise exc
    if exc.status_code == METHOD_NOT_ALLOWED:
        allowed = sorted(method.strip() for method in (exc.headers or {}).get("Allow", "").split(","))
        error = method_not_allowed(request.method, allowed)
    elif exc.status_code == STATUS_OF_CODE[TransportCode.NOT_FOUND]:
        error = TransportError(TransportCode.NOT_FOUND, f"no such path: `{request.scope['path']}`")
    else:
        return await http_exception_handler(request, exc)
    return _as_starlette(response_to(error))


async def _unexpected_failure(_: StarletteRequest, exc: Exception) -> StarletteResponse:
    return _as_starlette(response_to(exc))


def _as_starlette(answer: Response) -> StarletteResponse:
    return StarletteResponse(answer.body, answer.status, dict(answer.headers), media_type="application/json")
