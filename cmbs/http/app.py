"""The ASGI application: one table of operations, inside Starlette for pages, middleware and mounting."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version
from types import FrameType
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import JSONResponse
from starlette.responses import Response as StarletteResponse
from starlette.routing import Match, Route

from cmbs.api.errors import METHOD_NOT_ALLOWED, STATUS_OF_CODE, TransportCode, TransportError
from cmbs.api.operations import ALL_OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.console import ConsoleFiles
from cmbs.errors import BeliefServerError
from cmbs.http.asgi import BoundedBody, Receive, Scope, Send, answer, response_to, send_response
from cmbs.http.exchange import Response
from cmbs.http.openapi import openapi_document
from cmbs.http.pages import add_pages
from cmbs.http.router import method_not_allowed, no_such_path
from cmbs.http.service import Service

# Smaller answers are not worth compressing. At this level it takes about a third of the time that the best one does.
MIN_BYTES_COMPRESSED = 1024
COMPRESSION_LEVEL = 5
_REFUSED_GZIP = re.compile(rb"gzip\s*;\s*q=0(?:\.0*)?\s*(?:,|$)", re.IGNORECASE)
# Statuses whose answers have no body.
_WITHOUT_BODY = (204, 205, 304)
# So many requests may be in progress in one process before others are told to come again.
MAX_REQUESTS = 1024


class BeliefApp(Starlette):
    """A Starlette application that carries requests to a service, and answers its operations itself."""

    def __init__(self, service: Service | BeliefServer, max_requests: int = MAX_REQUESTS) -> None:
        super().__init__(lifespan=_closing(self))
        self.router.redirect_slashes = False  # an id may be empty, so a slash at the end is not a slip
        self.version = version("cmbs")
        self._document: dict[str, Any] | None = None
        self.service = service if isinstance(service, Service) else Service(service)
        # The web console as it was built; another one can be put in its place.
        self.console = ConsoleFiles()
        self._max_requests = max_requests
        self._in_progress = 0
        # Outside of everything, so that the table is reached as before.
        self._compressed = GZipMiddleware(self._respond, MIN_BYTES_COMPRESSED, COMPRESSION_LEVEL)
        add_pages(self)
        # The same table again as ordinary routes, for middleware and for code that walks `app.routes`.
        self.router.routes.extend(_TableRoute(path, self.service) for path in _paths())
        self.add_exception_handler(HTTPException, _answer_http_exception)
        self.add_exception_handler(BeliefServerError, _answer_exception)
        self.add_exception_handler(Exception, _answer_exception)

    def drain(self) -> None:
        """Answer the requests that wait, end the streams that are followed, and let no other begin."""
        self.service.drain()

    def close(self) -> None:
        """Let what runs come to its end, write what waits, and let go of the server."""
        self.service.close()

    def openapi(self) -> dict[str, Any]:
        """The document that `api/openapi.yaml` holds."""
        if self._document is None:
            self._document = openapi_document()
        return self._document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection: a request, or the life of the server."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        body = BoundedBody(self.service.gate, self.service.body_bytes, scope, receive, send)
        # Followers are counted by themselves: they stay for hours, and cost little.
        if self._in_progress - self.service.followers.count >= self._max_requests:
            await send_response(response_to(_too_many(self._max_requests)), body.send)
            return
        self._in_progress += 1
        try:
            await self._compressed(_with_honest_encoding(scope), body.receive, body.send)
        finally:
            self._in_progress -= 1

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        # With middleware around them, the operations are reached through the framework.
        match = None if self.user_middleware else self.service.table.find(scope)
        if match is not None:
            await answer(match, self.service, scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _TableRoute(Route):
    """A path of the table. It is matched as it was sent: decoded, an id with a slash would be two parts of a path."""

    def __init__(self, path: str, service: Service) -> None:
        super().__init__(path, _Endpoint(service))
        self._table = service.table

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the request is for this path, whatever its method."""
        match = self._table.find(scope) if scope["type"] == "http" else None
        if match is None or match.path != self.path:
            return Match.NONE, {}
        return Match.FULL, {"endpoint": self.endpoint, "path_params": dict(match.params), "cmbs.match": match}


class _Endpoint:
    """An endpoint that Starlette treats as an application of its own: any method, no request object."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(scope["cmbs.match"], self._service, scope, receive, send)


def _paths() -> list[str]:
    return list(dict.fromkeys(operation.path for operation in ALL_OPERATIONS))


def _closing(app: BeliefApp) -> Any:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with _drain_on_signals(app.drain):
            yield
        app.close()

    return lifespan


@contextmanager
def _drain_on_signals(drain: Callable[[], None]) -> Iterator[None]:
    """Answer the requests that wait, and end those that are followed, as soon as the server is told to stop.

    Servers end the life of an application when no request is in progress any more, which would take as long as the
    longest wait. The server's own handlers run as they did: event loops hear of signals in another way, and a function
    that was there is called. Without a handler of a server, or in a thread where there are none, nothing is done.
    """
    before: dict[int, Callable[..., Any]] = {}
    loop = asyncio.get_running_loop()
    if threading.current_thread() is threading.main_thread():
        for number in (int(signal.SIGTERM), int(signal.SIGINT)):
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                before[number] = handler

    def stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(drain)
        before[number](number, frame)

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)


def _with_honest_encoding(scope: Scope) -> Scope:
    """The request without an `Accept-Encoding` that names gzip to refuse it, which the middleware overlooks."""
    for name, value in scope["headers"]:
        if name == b"accept-encoding" and _REFUSED_GZIP.search(value):
            return {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]}
    return scope


def _too_many(maximum: int) -> TransportError:
    return TransportError(
        TransportCode.BUSY,
        f"`max_requests` allows {maximum} requests at a time, and as many are in progress; try again",
        {"limit": "max_requests", "maximum": maximum},
    )


async def _answer_http_exception(request: StarletteRequest, exc: Exception) -> StarletteResponse:
    """Unknown paths and wrong methods in the shape of the protocol; any other with its `detail`."""
    if not isinstance(exc, HTTPException):  # pragma: no cover - it is registered for nothing else
        raise exc
    if exc.status_code == METHOD_NOT_ALLOWED:
        allowed = sorted(method.strip() for method in (exc.headers or {}).get("Allow", "").split(","))
        error = method_not_allowed(request.method, allowed)
    elif exc.status_code == STATUS_OF_CODE[TransportCode.NOT_FOUND]:
        error = no_such_path(request.scope["path"])
    elif exc.status_code in _WITHOUT_BODY:
        return StarletteResponse(status_code=exc.status_code, headers=exc.headers)
    else:
        return JSONResponse({"detail": exc.detail}, exc.status_code, exc.headers)
    return _as_starlette(response_to(error))


async def _answer_exception(_: StarletteRequest, exc: Exception) -> StarletteResponse:
    return _as_starlette(response_to(exc))


def _as_starlette(answer: Response) -> StarletteResponse:
    return StarletteResponse(answer.body, answer.status, dict(answer.headers), media_type="application/json")
