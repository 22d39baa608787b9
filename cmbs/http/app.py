"""The ASGI application: one table of operations, inside FastAPI for pages, middleware and mounting."""

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

from fastapi import FastAPI
from fastapi.exception_handlers import http_exception_handler
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response as StarletteResponse
from starlette.routing import Match, Route

from cmbs.audit.anchors import anchor_by
from cmbs.belief.server import BeliefServer
from cmbs.console import ConsoleFiles
from cmbs.errors import BeliefServerError, LedgerCorrupt, StoreUnavailable
from cmbs.http.asgi import BoundedBody, Receive, Scope, Send, answer, response_to, send_response
from cmbs.http.belief.graph import GraphRoutes
from cmbs.http.belief.kits import KitRoutes
from cmbs.http.belief.routes import Routes
from cmbs.http.checkpoints import CheckpointRoutes
from cmbs.http.errors import METHOD_NOT_ALLOWED, STATUS_OF_CODE, TransportCode, TransportError
from cmbs.http.exchange import EventStream, Request, Response
from cmbs.http.live.followers import HEARTBEAT_SECONDS, MAX_FOLLOWERS, Followers
from cmbs.http.live.routes import EVENT_OPERATIONS, EventRoutes
from cmbs.http.openapi import openapi_document
from cmbs.http.operation import Operation
from cmbs.http.operations import OPERATIONS
from cmbs.http.pages import add_pages
from cmbs.http.router import Handler, Router, method_not_allowed, no_such_path
from cmbs.http.spaces.policy_files import PolicyFileRoutes
from cmbs.http.spaces.policy_impact import PolicyImpactRoutes
from cmbs.http.spaces.reading import Spaces
from cmbs.http.spaces.routes import SpaceRoutes
from cmbs.http.tagging import tag_answers
from cmbs.http.waiting import MAX_WAIT_SECONDS, Waiting
from cmbs.http.webhooks import WebhookRoutes
from cmbs.http.work_queue import WorkQueue
from cmbs.identity import Gate, KeyRegistry
from cmbs.substrate.server import SubstrateServer
from cmbs.transparency.notary import Notary
from cmbs.webhooks.dispatcher import Dispatcher
from cmbs.webhooks.registry import WebhookRegistry

# Smaller answers are not worth compressing. At this level it takes about a third of the time that the best one does.
MIN_BYTES_COMPRESSED = 1024
COMPRESSION_LEVEL = 5
_REFUSED_GZIP = re.compile(rb"gzip\s*;\s*q=0(?:\.0*)?\s*(?:,|$)", re.IGNORECASE)
# So many requests may be in progress in one process before others are told to come again.
MAX_REQUESTS = 1024


class BeliefApp(FastAPI):
    """A FastAPI application that answers the operations of its table itself.

    `gate` decides who may ask; by default it goes by the keys in the server's log. `spaces` are by default those of the
    same log, served from the first request for one. `notary` signs checkpoints and `dispatcher` sends webhooks; both
    are closed with the application.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what an application is built from
        self,
        server: BeliefServer,
        gate: Gate | None = None,
        spaces: SubstrateServer | None = None,
        max_requests: int = MAX_REQUESTS,
        notary: Notary | None = None,
        max_wait_seconds: int = MAX_WAIT_SECONDS,
        max_followers: int = MAX_FOLLOWERS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        super().__init__(
            title="cmbs belief server",
            version=version("cmbs"),
            lifespan=_closing(self),
            redirect_slashes=False,  # an id may be empty, so a slash at the end is not a slip
            docs_url=None,  # the framework's pages load their viewers from somewhere else
            redoc_url=None,
        )
        self.belief_server = server
        # The web console as it was built; another one can be put in its place.
        self.console = ConsoleFiles()
        self.gate = gate or Gate(KeyRegistry(server.log))
        self.spaces = Spaces(server, spaces, self.gate.count_operators)
        self.body_bytes = server.requests.limits.body_bytes
        self._max_requests = max_requests
        self._in_progress = 0
        self.notary = notary
        # Half of the requests at most: those that are answered at once go on.
        self.waiting = Waiting(max_wait_seconds, max(1, max_requests // 2))
        self.followers = Followers(self.waiting, max_followers=max_followers, heartbeat_seconds=heartbeat_seconds)
        self.dispatcher = dispatcher
        self.webhook_registry = WebhookRegistry(server.log) if dispatcher is None else dispatcher.registry
        self._observe()
        # Outside of everything, so that the table is reached as before.
        self._compressed = GZipMiddleware(self._respond, MIN_BYTES_COMPRESSED, COMPRESSION_LEVEL)
        anchor = None if notary is None else anchor_by(notary)
        self._analyses = WorkQueue(server.requests.limits.analyses_waiting)
        self._handlers = Routes(server, self.check_ready, self.waiting, self._analyses, anchor)
        spaces_routes = SpaceRoutes(self.spaces, server.requests.page_size, self.waiting, anchor)

        def wrap(operation: Operation, handler: Handler) -> Handler:
            find_head = (spaces_routes if operation.on_space else self._handlers).find_head
            return self._noticing(tag_answers(operation, handler, find_head))

        policies = PolicyFileRoutes(self.spaces)
        impact = PolicyImpactRoutes(self.spaces, server.requests.page_size, self._analyses)
        events = EventRoutes(server, self.spaces, self.followers)
        webhooks = WebhookRoutes(self.webhook_registry, server.requests.page_size)
        others = (policies, impact, GraphRoutes(server), CheckpointRoutes(notary), webhooks, events)
        routes = (self._handlers, self._handlers.observations, KitRoutes(server), spaces_routes, *others)
        self.table = Router((*OPERATIONS, *EVENT_OPERATIONS), *routes, wrap=wrap)
        add_pages(self)
        # The same table again as ordinary routes, for middleware and for code that walks `app.routes`.
        self.router.routes.extend(_TableRoute(path, self) for path in _paths())
        self.add_exception_handler(HTTPException, _answer_http_exception)
        self.add_exception_handler(BeliefServerError, _answer_exception)
        self.add_exception_handler(Exception, _answer_exception)

    def _observe(self) -> None:
        """Have what waits, and what sends webhooks, hear what is written; and all that serves, what is lost."""
        dispatcher, notary = self.dispatcher, self.notary
        for observe in (self.belief_server.observe_appends, self.spaces.observe_appends):
            observe(self.waiting.note_appends)
            if dispatcher is not None:
                observe(dispatcher.note_appends)
        if notary is None:
            return
        # What the notary knows to be lost is neither served nor written.
        for each in (self.belief_server, self.spaces, self.gate, self.webhook_registry):
            notary.observe_faults(each.expect_head)
        self.webhook_registry.observe_appends(notary.note_appends)
        if dispatcher is not None:
            notary.observe_faults(dispatcher.notice_lost)

    def close(self) -> None:
        """Let what runs come to its end, write what waits, and let go of the server."""
        self.drain()
        self._analyses.close()
        if self.dispatcher is not None:
            self.dispatcher.close()
        else:
            self.webhook_registry.close()
        self.spaces.close()
        if self.notary is not None:
            self.notary.close()
        self.belief_server.close()

    def _noticing(self, handler: Handler) -> Handler:
        """The same handler; damage that it meets is told to the endpoints that want to know."""
        dispatcher = self.dispatcher
        if dispatcher is None:
            return handler

        async def handle(request: Request) -> Response | EventStream:
            try:
                return await handler(request)
            except LedgerCorrupt as exc:
                dispatcher.notice(exc)
                raise

        return handle

    def drain(self) -> None:
        """Answer the requests that wait, end the streams that are followed, and let no other begin."""
        self.waiting.drain()
        self.followers.drain()

    def check_ready(self) -> None:
        """StoreUnavailable where the store does not answer, lacks what was seen of it, or has no register to go by."""
        self.belief_server.list_sessions(limit=1)
        behind = [*self.belief_server.find_behind(), *self.spaces.find_behind(), *self.webhook_registry.find_behind()]
        if behind:
            named = ", ".join(f"`{stream_id}`" for stream_id in behind)
            raise StoreUnavailable(
                f"the store is behind what this process has seen of it, or its past does not verify: {named}",
                {"behind": behind},
            )
        disagreeing = self.belief_server.find_disagreeing()
        if disagreeing:
            named = ", ".join(f"`{session_id}`" for session_id in disagreeing)
            raise StoreUnavailable(
                f"the elimination store does not agree with the log: {named}",
                {"disagreeing": disagreeing, "next": "rebuild it from the log with `cmbs tee repair`"},
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
        # Followers are counted by themselves: they stay for hours, and cost little.
        if self._in_progress - self.followers.count >= self._max_requests:
            await send_response(response_to(_too_many(self._max_requests)), body.send)
            return
        self._in_progress += 1
        try:
            await self._compressed(_with_honest_encoding(scope), body.receive, body.send)
        finally:
            self._in_progress -= 1

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        # With middleware around them, the operations are reached through the framework.
        match = None if self.user_middleware else self.table.find(scope)
        if match is not None:
            await answer(match, self.gate, self.body_bytes, scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


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
    return list(dict.fromkeys(operation.path for operation in (*OPERATIONS, *EVENT_OPERATIONS)))


def _closing(app: BeliefApp) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
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
    """Unknown paths and wrong methods in the shape of the protocol; any other is as the framework answers it."""
    if not isinstance(exc, HTTPException):  # pragma: no cover - it is registered for nothing else
        raise exc
    if exc.status_code == METHOD_NOT_ALLOWED:
        allowed = sorted(method.strip() for method in (exc.headers or {}).get("Allow", "").split(","))
        error = method_not_allowed(request.method, allowed)
    elif exc.status_code == STATUS_OF_CODE[TransportCode.NOT_FOUND]:
        error = no_such_path(request.scope["path"])
    else:
        return await http_exception_handler(request, exc)
    return _as_starlette(response_to(error))


async def _answer_exception(_: StarletteRequest, exc: Exception) -> StarletteResponse:
    return _as_starlette(response_to(exc))


def _as_starlette(answer: Response) -> StarletteResponse:
    return StarletteResponse(answer.body, answer.status, dict(answer.headers), media_type="application/json")
