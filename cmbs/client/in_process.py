"""How a client reaches a server in the same process: it calls the operations of the server, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import aclosing, asynccontextmanager, contextmanager
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

import httpx2

from cmbs.api.call import JSON_TYPE, Call
from cmbs.api.errors import TransportError, status_of
from cmbs.client.errors import RequestFailed, Unreachable
from cmbs.client.exchange import Answer, Attempt

T = TypeVar("T")

_CLOSED = "the client is closed"


class Service(Protocol):
    """The operations of a server, by `cmbs.http.service.Service`, which is above a client in the order of imports."""

    async def call(self, call: Call[Any], identity: Mapping[str, str], gone: Callable[[], Awaitable[None]]) -> Any:
        """Carry out a call; `gone` ends with the caller."""


class AsyncInProcessTransport:
    """Carries the calls of a client that awaits, on the event loop of its server."""

    def __init__(self, service: Service, close: Callable[[], None] | None = None) -> None:
        """`close` is called, in a thread, when the client is closed."""
        self._service = service
        self._close = close
        self._is_closed = False

    async def send(self, attempt: Attempt) -> Answer:
        """The answer; the server's error, or Unreachable where none comes in time."""
        try:
            async with asyncio.timeout(attempt.timeout):
                response = await self._call(attempt, _stay)
        except TimeoutError as exc:
            raise Unreachable("the server in this process did not answer in time") from exc
        return Answer(response.status, {"content-type": JSON_TYPE, **dict(response.headers)}, response.body)

    @asynccontextmanager
    async def follow(self, attempt: Attempt) -> AsyncIterator[httpx2.Response]:
        """An answer that goes on, until its reader leaves."""
        leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stream = await self._call(attempt, _stay)
        try:
            async with aclosing(stream.body.chunks(leaving)) as chunks:
                yield _respond(stream.headers, _Chunks(chunks))
        finally:
            leaving.cancel()
            stream.body.close()

    async def close(self) -> None:
        """Close what was opened for this client alone."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._close is not None:
            await asyncio.to_thread(self._close)

    async def _call(self, attempt: Attempt, gone: Callable[[], Awaitable[None]]) -> Any:
        if self._is_closed:
            raise RuntimeError(_CLOSED)
        try:
            return await self._service.call(attempt.call, attempt.headers, gone)
        except TransportError as exc:
            raise RequestFailed(status_of(exc), exc.code, exc.message, exc.details) from exc


class InProcessTransport:
    """The same for a client that blocks, with an event loop in a thread of its own.

    The thread is a daemon: a program that does not close its client ends all the same.
    """

    def __init__(self, service: Service, close: Callable[[], None] | None = None) -> None:
        self._inner = AsyncInProcessTransport(service)
        self._close = close
        self._lock = Lock()
        self._is_closed = False
        self._followed: set[Any] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="cmbs-client", daemon=True)
        self._thread.start()

    def send(self, attempt: Attempt) -> Answer:
        """The answer; the server's error, or Unreachable where none comes in time."""
        return self._wait_for(self._inner.send(attempt))

    @contextmanager
    def follow(self, attempt: Attempt) -> Iterator[httpx2.Response]:
        """An answer that goes on, until its reader leaves."""
        following = self._inner.follow(attempt)
        response = self._wait_for(_enter(following))
        self._followed.add(following)
        try:
            yield _respond(response.headers, _LoopStream(self._wait_for, response))
        finally:
            if not self._is_closed:
                self._followed.discard(following)
                self._wait_for(_leave(following))

    def close(self) -> None:
        """Close what was opened for this client alone, and end the thread. What still waits in other threads ends."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._close is not None:
            self._close()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """End what still runs on the event loop."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        while self._followed:
            await _leave(self._followed.pop())
        await asyncio.get_running_loop().shutdown_default_executor()

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            coroutine.close()
            raise RuntimeError(_CLOSED)
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except CancelledError as exc:
            raise Unreachable("the client was closed before the answer was complete") from exc


def _respond(headers: Any, stream: httpx2.AsyncByteStream | httpx2.SyncByteStream) -> httpx2.Response:
    """What a reader of server-sent events reads from; it asks for the request too, to name it in errors."""
    return httpx2.Response(200, headers=headers, stream=stream, request=httpx2.Request("GET", "in-process:"))


async def _stay() -> None:
    """Wait for ever: a caller in this process who goes away cancels the call."""
    await asyncio.get_running_loop().create_future()


async def _enter(following: Any) -> httpx2.Response:
    response: httpx2.Response = await following.__aenter__()
    return response


async def _leave(following: Any) -> None:
    await following.__aexit__(None, None, None)


class _Chunks(httpx2.AsyncByteStream):
    """The parts of an answer that goes on."""

    def __init__(self, chunks: AsyncGenerator[bytes]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


class _LoopStream(httpx2.SyncByteStream):
    """The parts of an answer, each fetched from the event loop that it comes from."""

    def __init__(self, wait_for: Callable[[Coroutine[Any, Any, bytes | None]], bytes | None], response: Any) -> None:
        self._wait_for = wait_for
        self._parts = aiter(response.stream)

    def __iter__(self) -> Iterator[bytes]:
        while (part := self._wait_for(self._next_part())) is not None:
            yield part

    async def _next_part(self) -> bytes | None:
        part: bytes | None = await anext(self._parts, None)
        return part
