"""The ASGI application: one table of operations, inside FastAPI for pages, middleware and mounting."""

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

from cmbs.audit.anchors import anchor_by
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, StoreUnavailable
from cmbs.http.asgi import BoundedBody, Receive, Scope, Send, answer, response_to, send_response
from cmbs.http.belief.routes import Routes
from cmbs.http.checkpoints import CheckpointRoutes
from cmbs.http.errors import METHOD_NOT_ALLOWED, STATUS_OF_CODE, TransportCode, TransportError
from cmbs.http.exchange import Response
from cmbs.http.openapi import openapi_document
from cmbs.http.operations import OPERATIONS
from cmbs.http.pages import add_pages
from cmbs.http.router import Router, method_not_allowed
from cmbs.http.spaces.reading import Spaces
from cmbs.http.spaces.routes import SpaceRoutes
from cmbs.identity import Gate, KeyRegistry
from cmbs.substrate.server import SubstrateServer
from cmbs.transparency.notary import Notary

# So many requests may be in progress in one process before others are told to come again.
MAX_REQUESTS = 1024


class BeliefApp(FastAPI):
    """A FastAPI application that answers the operations of its table itself.

    `gate` decides who may ask; by default it goes by the keys in the server's log. `spaces` are by default those of the
    same log, served from the first request for one. `notary` signs checkpoints, and is closed with the application.
    """

    def __init__(
        self,
        server: BeliefServer,
        gate: Gate | None = None,
        spaces: SubstrateServer | None = None,
        max_requests: int = MAX_REQUESTS,
        notary: Notary | None = None,
    ) -> None:
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
        self.body_bytes = server.requests.limits.body_bytes
        self._max_requests = max_requests
        self._in_progress = 0
        self.notary = notary
        anchor = None if notary is None else anchor_by(notary)
        if notary is not None:
            # What the notary knows to be lost is neither served nor written.
            for each in (server, self.spaces, self.gate):
                notary.observe_faults(each.expect_head)
        self._handlers = Routes(server, self.check_ready, anchor)
        spaces_routes = SpaceRoutes(self.spaces, server.requests.page_size, anchor)
        self.table = Router(OPERATIONS, self._handlers, spaces_routes, CheckpointRoutes(notary))
        add_pages(self)
        # The same table again as ordinary routes, for middleware and for code that walks `app.routes`.
        self.router.routes.extend(_TableRoute(path, self) for path in _paths())
        self.add_exception_handler(HTTPException, _answer_http_exception)
        self.add_exception_handler(BeliefServerError, _answer_exception)
        self.add_exception_handler(Exception, _answer_exception)

    def close(self) -> None:
        """Let what runs come to its end, write what waits, and let go of the server."""
        self._handlers.close()
        self.spaces.close()
        if self.notary is not None:
            self.notary.close()
        self.belief_server.close()

    def check_ready(self) -> None:
        """StoreUnavailable where the store does not answer, lacks what was seen of it, or has no register to go by."""
        self.belief_server.list_sessions(limit=1)
        behind = [*self.belief_server.find_behind(), *self.spaces.find_behind()]
        if behind:
            named = ", ".join(f"`{stream_id}`" for stream_id in behind)
            raise StoreUnavailable(
                f"the store is behind what this process has seen of it, or its past does not verify: {named}",
                {"behind": behind},
            )
        self.gate.check_register()
        if self.notary is not None:
            self.notary.check_ready()

    def openapi(self) -> dict[str, Any]:
        """The document that `api/openapi.yaml` holds."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi_document()
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection: a request, or the life of the server."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        body = BoundedBody(self.gate, self.body_bytes, scope, receive, send)
        if self._in_progress >= self._max_requests:
            await send_response(response_to(_too_many(self._max_requests)), body.send)
            return
        self._in_progress += 1
        try:
            # With middleware around them, the operations are reached through the framework.
            match = None if self.user_middleware else self.table.find(scope)
            if match is not None:
                await answer(match, self.gate, self.body_bytes, scope, body.receive, body.send)
            else:
                await super().__call__(scope, body.receive, body.send)
        finally:
            self._in_progress -= 1


class _TableRoute(Route):
    """A path of the table. It is matched as it was sent: decoded, an id with a slash would be two parts of a path."""

    def __init__(self, path: str, app: BeliefApp) -> None:
        super().__init__(path, _Endpoint(app.gate, app.body_bytes))
        self._table = app.table

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the request is for this path, whatever its method."""
        match = self._table.find(scope) if scope["type"] == "http" else None
        if match is None or match.path != self.path:
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "path_params": dict(match.params), "cmbs.match": match}


class _Endpoint:
    """An endpoint that Starlette treats as an application of its own: any method, no request object."""

    def __init__(self, gate: Gate, body_bytes: int) -> None:
        self._gate = gate
        self._body_bytes = body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(scope["cmbs.match"], self._gate, self._body_bytes, scope, receive, send)


def _paths() -> list[str]:
    return list(dict.fromkeys(operation.path for operation in OPERATIONS))


def _closing(close: Callable[[], None]) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        close()

    return lifespan


def _too_many(maximum: int) -> TransportError:
    return TransportError(
        TransportCode.BUSY,
        f"`max_requests` allows {maximum} requests at a time, and as many are in progress; try again",
        {"limit": "max_requests", "maximum": maximum},
    )


async def _answer_http_exception(request: StarletteRequest, exc: Exception) -> StarletteResponse:
    """Unknown paths and wrong methods in the shape of the protocol; any other is as the framework answers it."""
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


async def _answer_exception(_: StarletteRequest, exc: Exception) -> StarletteResponse:
    return _as_starlette(response_to(exc))


def _as_starlette(answer: Response) -> StarletteResponse:
    return StarletteResponse(answer.body, answer.status, dict(answer.headers), media_type="application/json")
