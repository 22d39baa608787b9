"""An ASGI application as the server of a client in the same process: requests go to it without a network.

The transport of httpx2 for that waits for the end of an answer before it hands out its beginning, so what follows a
stream would wait for ever. This one hands on each part as the application sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, MutableMapping
from contextlib import suppress
from threading import Thread
from typing import Any, TypeAlias, TypeVar

import httpx2

T = TypeVar("T")
Event: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]
]

# Parts of an answer that an application may be ahead of its reader.
_MAX_PARTS_AHEAD = 16
# How long an application has to notice that its caller is gone.
_GRACE_SECONDS = 5.0


class _Conversation(httpx2.AsyncByteStream):
    """One request in an application: a task that runs it, and the parts of its answer as they come."""

    def __init__(self, application: Application, scope: Event, body: bytes, timeout: float | None) -> None:
        self._body: bytes | None = body
        self._timeout = timeout
        self._gone = asyncio.Event()
        self._parts: asyncio.Queue[Event | None] = asyncio.Queue(_MAX_PARTS_AHEAD)
        self._task = asyncio.create_task(self._run(application, scope))

    async def _run(self, application: Application, scope: Event) -> None:
        try:
            await application(scope, self._receive, self._send)
        finally:
            if not self._gone.is_set():
                await self._parts.put(None)

    async def _receive(self) -> Event:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Event) -> None:
        if not self._gone.is_set():
            await self._parts.put(event)

    async def begin(self) -> Event:
        """The beginning of the answer."""
        event = await self._next_part()
        if event is None:
            await self._task
            raise httpx2.RemoteProtocolError("the application ended without an answer")
        return event

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (event := await self._next_part()) is not None:
            yield event.get("body", b"")
            if not event.get("more_body", False):
                return
        raise httpx2.RemoteProtocolError("the application ended before its answer was complete")

    async def _next_part(self) -> Event | None:
        try:
            return await asyncio.wait_for(self._parts.get(), self._timeout)
        except TimeoutError as exc:
            raise httpx2.ReadTimeout("the application did not answer in time") from exc

    async def aclose(self) -> None:
        """Let the application know that its caller is gone, and wait for its end."""
        self._gone.set()
        while not self._parts.empty():
            self._parts.get_nowait()
        await asyncio.wait({self._task}, timeout=_GRACE_SECONDS)
        if not self._task.done():
            self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


class AsyncInProcessTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of an asynchronous client to an application on the same event loop."""

    def __init__(self, application: Application, close: Callable[[], None] | None = None) -> None:
        """`close` is called, in a thread, when the client is closed."""
        self._application = application
        self._close = close

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request, to the beginning of its answer."""
        path, _, query = request.url.raw_path.partition(b"?")
        scope: Event = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": path,
            "query_string": query,
            "server": (request.url.host, request.url.port),
            "client": ("127.0.0.1", 0),
            "root_path": "",
        }
        timeout = request.extensions.get("timeout", {}).get("read")
        conversation = _Conversation(self._application, scope, await request.aread(), timeout)
        try:
            start = await conversation.begin()
        except BaseException:
            await conversation.aclose()
            raise
        return httpx2.Response(start["status"], headers=start.get("headers", []), stream=conversation)

    async def aclose(self) -> None:
        """Close what was opened for this client alone."""
        if self._close is not None:
            await asyncio.to_thread(self._close)


class InProcessTransport(httpx2.BaseTransport):
    """Sends the requests of a client that blocks to an application on an event loop in a thread of its own.

    The thread is a daemon: a program that does not close its client ends all the same.
    """

    def __init__(self, application: Application, close: Callable[[], None] | None = None) -> None:
        self._inner = AsyncInProcessTransport(application)
        self._close = close
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="cmbs-client", daemon=True)
        self._thread.start()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """One request, to the beginning of its answer."""
        copy = httpx2.Request(
            request.method,
            request.url,
            headers=request.headers,
            content=request.read(),
            extensions=request.extensions,
        )
        answer = self.wait_for(self._inner.handle_async_request(copy))
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=_LoopStream(self, answer.stream))

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs on the event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Close what was opened for this client alone, and end the thread."""
        if self._close is not None:
            self._close()
        self.wait_for(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _LoopStream(httpx2.SyncByteStream):
    """The parts of an answer, each fetched from the event loop that it comes from."""

    def __init__(self, transport: InProcessTransport, stream: Any) -> None:
        self._transport = transport
        self._stream = stream
        self._parts = aiter(stream)

    def __iter__(self) -> Iterator[bytes]:
        while (part := self._transport.wait_for(self._next_part())) is not None:
            yield part

    async def _next_part(self) -> bytes | None:
        part: bytes | None = await anext(self._parts, None)
        return part

    def close(self) -> None:
        self._transport.wait_for(self._stream.aclose())
