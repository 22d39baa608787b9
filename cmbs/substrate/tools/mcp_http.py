"""Requests of MCP over HTTP, each by itself: what goes wrong with one is told to that one alone.

The SDK ends a whole session, with all calls under way, where a request raises an error of the network, and makes up
answers of its own for others. So nothing reaches it but proper messages, and what came of a request is noted beside
them: no text of a server can be taken for it.
"""

from __future__ import annotations

import asyncio
import enum
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, cast

import anyio
import httpx2
import mcp_types
import msgspec
from mcp.client.streamable_http import LAST_EVENT_ID, MCP_SESSION_ID
from pydantic import ValidationError

from cmbs.substrate.tools.mcp_servers import MESSAGE_BYTES

_MAX_CONNECTIONS, _MAX_IDLE = 200, 20
# For a connection: to be opened, or to become free.
_CONNECT_SECONDS = 10.0
# For a message that takes no answer, and for the end of a session.
_ASIDE_SECONDS = 5.0
# Messages without an answer that are on their way at once.
_MAX_ASIDE = 100
# How long a server may go on about a request after it was called off.
_GRACE_SECONDS = 5.0
# Between two tries to go on with a stream.
_MIN_RETRY_MS, _MAX_RETRY_MS = 100, 60_000
_SENDING = "send_request_headers.started"
_INITIALIZED = "notifications/initialized"
# Statuses that say that the server did not do it.
_REFUSALS = range(300, 500)
_Answered = mcp_types.JSONRPCResponse | mcp_types.JSONRPCError
_JSON, _EVENTS = "application/json", "text/event-stream"


class Fault(enum.Enum):
    """Why a request has no proper answer."""

    NOT_REACHED = "nothing was sent"
    BROKE_OFF = "it was sent, and no answer came"
    GARBLED = "the answer is not one of MCP"
    UNFIT = "the answer has text or numbers that cannot be kept"
    TOO_LARGE = "the answer has too many bytes"
    FORGOTTEN = "the server does not know the session, and did not take the request"


class Exchange:
    """One request and what came of it, as the transport sees it."""

    def __init__(self) -> None:
        # Until a proper answer to it has come.
        self.fault: Fault | None = Fault.NOT_REACHED
        self.words = ""
        self.is_taken = False
        self.is_over = False
        self._scope: anyio.CancelScope | None = None

    def tell(self, fault: Fault, words: str) -> None:
        """Note what went wrong."""
        self.fault, self.words = fault, words

    def leave(self) -> None:
        """Nobody waits for it any more: it ends now where nothing was sent, and else after a grace."""
        if self.fault is Fault.NOT_REACHED:
            self._end()
        elif self.fault is not None:
            asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._end)

    def _end(self) -> None:
        self.is_over = True
        if self._scope is not None:
            self._scope.cancel()

    async def wait(self, step: Callable[[], Awaitable[Any]]) -> Any:
        """Do a step of it; httpx2.StreamError once it is over."""
        if not self.is_over:
            with anyio.CancelScope() as self._scope:
                return await step()
        raise httpx2.StreamError("the request is over")

    async def trace(self, event: str, _: Any) -> None:
        """Take note of the moment from which on the request may have arrived."""
        if event.endswith(_SENDING):
            if self.is_over:
                raise httpx2.ConnectError("the request is over")
            if self.fault is Fault.NOT_REACHED:
                self.tell(Fault.BROKE_OFF, "no answer")


# Of the request in whose context something runs. The SDK sends each in the context of who asked for it.
EXCHANGE: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def build_http_client(headers: dict[str, str], tls: ssl.SSLContext | None) -> httpx2.AsyncClient:
    """A client for the requests of one session; `tls` says whom to trust."""
    return httpx2.AsyncClient(
        # Compressed, a little of it could become anything.
        headers={**headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(None, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS),
        transport=_Separate(tls or ssl.create_default_context()),
        # Not from the environment: a proxy there is not for what an operator put here.
        trust_env=False,
    )


class _Separate(httpx2.AsyncHTTPTransport):
    """A transport that hands the SDK answers of MCP and nothing else, and ends requests that are over."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        limits = httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_IDLE)
        super().__init__(verify=tls, limits=limits)
        self._aside: set[asyncio.Task[None]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """What the SDK may see of the answer."""
        if request.method == "GET":
            exchange = EXCHANGE.get()
            if LAST_EVENT_ID in request.headers and exchange is not None:
                return await self._resume(request, exchange)
            return await self._listen(request)
        message = msgspec.json.decode(request.content) if request.method == "POST" else {}
        if "id" in message and "method" in message:
            return await self._ask(request, message["id"])
        if request.method == "DELETE" or message.get("method") == _INITIALIZED or len(self._aside) >= _MAX_ASIDE:
            await self._send_aside(request)
        else:
            # The SDK sends nothing else meanwhile: a server that does not take it must not hold up the others.
            sending = asyncio.create_task(self._send_aside(request))
            self._aside.add(sending)
            sending.add_done_callback(self._aside.discard)
        return httpx2.Response(HTTPStatus.OK if request.method == "DELETE" else HTTPStatus.ACCEPTED)

    async def aclose(self) -> None:
        """End what is still on its way."""
        sending = list(self._aside)
        for each in sending:
            each.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        await super().aclose()

    async def _send_aside(self, request: httpx2.Request) -> None:
        with suppress(Exception):  # no answer is taken, and none is missed
            async with asyncio.timeout(_ASIDE_SECONDS):
                response = await super().handle_async_request(request)
                await response.aclose()

    async def _listen(self, request: httpx2.Request) -> httpx2.Response:
        """The stream of what a server says by itself."""
        response = await super().handle_async_request(request)
        if response.status_code == HTTPStatus.OK and not _is_encoded(response):
            return response
        await response.aclose()
        return httpx2.Response(HTTPStatus.METHOD_NOT_ALLOWED)

    async def _ask(self, request: httpx2.Request, request_id: Any) -> httpx2.Response:
        exchange = EXCHANGE.get()
        if exchange is None or exchange.is_taken:
            exchange = Exchange()
            EXCHANGE.set(exchange)
        exchange.is_taken = True
        request.extensions = {**request.extensions, "trace": exchange.trace}
        send = super().handle_async_request
        try:
            response = await exchange.wait(lambda: send(request))
            return await _Answer(exchange, request, response, request_id).read()
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is the end of this request alone
            exchange.words = str(exc) or type(exc).__name__
        return _refuse(request_id, exchange.words)

    async def _resume(self, request: httpx2.Request, exchange: Exchange) -> httpx2.Response:
        """The rest of an answer whose stream broke off."""
        send = super().handle_async_request
        with suppress(httpx2.StreamError):
            response = await exchange.wait(lambda: send(request))
            answer = _Answer(exchange, request, response, None)
            if answer.is_stream:
                return answer.stream()
            await response.aclose()
            return httpx2.Response(HTTPStatus.METHOD_NOT_ALLOWED)
        return httpx2.Response(HTTPStatus.OK, headers={"content-type": _EVENTS}, content=_last_event(exchange))


class _Answer:
    """What a server answers to one request, for the SDK."""

    def __init__(self, exchange: Exchange, request: httpx2.Request, response: httpx2.Response, request_id: Any) -> None:
        self._exchange = exchange
        self._response = response
        self._request = request
        self._request_id = request_id
        self._status = response.status_code
        self._kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.is_stream = self._status == HTTPStatus.OK and self._kind == _EVENTS and not _is_encoded(response)

    async def read(self) -> httpx2.Response:
        """The answer, or an error in its place; the exchange then knows which."""
        if self.is_stream:
            return self.stream()
        try:
            message, content, fault = await self._read_message()
        finally:
            await self._response.aclose()
        status, exchange = self._status, self._exchange
        is_own = message is not None and str(message.id) == str(self._request_id)
        words = f"HTTP {status}"
        if MCP_SESSION_ID in self._request.headers and (
            status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and not is_own)
        ):
            exchange.tell(Fault.FORGOTTEN, words)
        elif isinstance(message, mcp_types.JSONRPCError) and (
            is_own or message.id is None or status >= _REFUSALS.start
        ):
            exchange.fault = None
            message.id = self._request_id
            return self._give(message.model_dump_json(by_alias=True, exclude_unset=True))
        elif isinstance(message, mcp_types.JSONRPCResponse) and is_own and status == HTTPStatus.OK:
            exchange.fault = None
            return self._give(content)
        elif status in _REFUSALS and status != HTTPStatus.REQUEST_TIMEOUT:
            exchange.fault = None
            if status < HTTPStatus.BAD_REQUEST:
                words += ", a redirect, which is not followed"
            code = mcp_types.METHOD_NOT_FOUND if status == HTTPStatus.NOT_FOUND else mcp_types.INTERNAL_ERROR
            return _refuse(self._request_id, words, code)
        elif status == HTTPStatus.OK:
            exchange.tell(fault, words)
        else:
            exchange.tell(Fault.BROKE_OFF, words)
        return _refuse(self._request_id, words)

    def stream(self) -> httpx2.Response:
        """The answer in a stream, with what comes before it."""
        return httpx2.Response(HTTPStatus.OK, headers=self._headers(_EVENTS), stream=_Chunks(self._read_events, self))

    async def aclose(self) -> None:
        """Hear no more of it."""
        await self._response.aclose()

    def _give(self, content: str | bytes) -> httpx2.Response:
        return httpx2.Response(HTTPStatus.OK, headers=self._headers(_JSON), content=content)

    def _headers(self, kind: str) -> dict[str, str]:
        session = self._response.headers.get(MCP_SESSION_ID)
        return {"content-type": kind} | ({} if session is None else {MCP_SESSION_ID: session})

    async def _read_message(self) -> tuple[_Answered | None, bytes, Fault]:
        """The answer in the body as it is and as it came, or None, and why there is none."""
        if self._kind != _JSON or _is_encoded(self._response):
            return None, b"", Fault.GARBLED
        content = bytearray()
        try:
            async for chunk in self._read_chunks():
                content += chunk
                if len(content) > MESSAGE_BYTES:
                    return None, b"", Fault.TOO_LARGE
            message = mcp_types.jsonrpc_message_adapter.validate_json(bytes(content), by_name=False)
        except ValidationError:
            return None, b"", _read_unfit(bytes(content), self._request_id)
        except (httpx2.TransportError, httpx2.StreamError):
            return None, b"", Fault.BROKE_OFF
        return (message if isinstance(message, _Answered) else None), bytes(content), Fault.GARBLED

    async def _read_chunks(self) -> AsyncIterator[bytes]:
        chunks = aiter(cast("AsyncIterator[bytes]", self._response.stream))
        with suppress(StopAsyncIteration):
            while True:
                yield await self._exchange.wait(lambda: anext(chunks))

    async def _read_events(self) -> AsyncIterator[bytes]:
        """The events up to the answer. Where it breaks off the SDK goes on with it, if the server offers that."""
        exchange = self._exchange
        stream = _Chunks(self._read_chunks, self)
        events = httpx2.Response(HTTPStatus.OK, headers={"content-type": _EVENTS}, stream=stream, request=self._request)
        data = ""
        try:
            async for event in httpx2.EventSource(events, max_event_size=MESSAGE_BYTES):
                if event.event != "message":
                    continue
                data, is_answer = event.data, False
                if data:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(data, by_name=False)
                    is_answer = isinstance(message, _Answered)
                if is_answer:
                    exchange.fault = None
                yield _write_event(data, event.id, event.retry)
                if is_answer:
                    return
            exchange.words = "the stream ended without an answer"
        except ValidationError:
            exchange.tell(_read_unfit(data, None), "an event is no message")
        except httpx2.SSEError:
            exchange.tell(Fault.TOO_LARGE, "an event is too large")
        except (httpx2.TransportError, httpx2.StreamError) as exc:
            exchange.words = str(exc) or type(exc).__name__
        if exchange.is_over or exchange.fault is not Fault.BROKE_OFF:
            yield _last_event(exchange)


class _Chunks(httpx2.AsyncByteStream):
    """The content of an answer, as `read` gives it."""

    def __init__(self, read: Callable[[], AsyncIterator[bytes]], answer: _Answer) -> None:
        self._read = read
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._read()

    async def aclose(self) -> None:
        await self._answer.aclose()


def _read_unfit(content: str | bytes, request_id: Any) -> Fault:
    """What it means that a message cannot be read."""
    with suppress(ValueError, RecursionError):
        # Takes halves of characters, for example.
        message = json.loads(content)
        if isinstance(message, dict) and isinstance(message.get("result"), dict):
            return Fault.UNFIT if request_id in (None, message.get("id")) else Fault.GARBLED
    return Fault.GARBLED


def _is_encoded(response: httpx2.Response) -> bool:
    return bool(response.headers.get("content-encoding", "identity") != "identity")


def _error(request_id: Any, words: str, code: int) -> str:
    error = mcp_types.ErrorData(code=code, message=words)
    return mcp_types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error).model_dump_json(exclude_unset=True)


def _refuse(request_id: Any, words: str, code: int = mcp_types.CONNECTION_CLOSED) -> httpx2.Response:
    content = _error(request_id, words, code)
    return httpx2.Response(HTTPStatus.OK, headers={"content-type": _JSON}, content=content)


def _last_event(exchange: Exchange) -> bytes:
    """The end of a stream. The SDK knows to which request it belongs, whatever the id."""
    return _write_event(_error(0, exchange.words, mcp_types.CONNECTION_CLOSED))


def _write_event(data: str, event_id: str = "", retry: int | None = None) -> bytes:
    lines = [f"data: {line}" for line in data.split("\n")]
    if event_id:
        lines.append(f"id: {event_id}")
    if retry is not None:
        lines.append(f"retry: {min(max(retry, _MIN_RETRY_MS), _MAX_RETRY_MS)}")
    return ("\n".join(lines) + "\n\n").encode()
