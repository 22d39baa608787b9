"""Followers of streams in tests: in process, where httpx2 would wait for the end of an answer, and over a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import httpx2

from cmbs.http import BeliefApp
from tests.support.http_server import TIMEOUT_SECONDS


class Told(NamedTuple):
    """An event as a test compares it."""

    name: str
    id: str
    data: Any


def told(event: httpx2.ServerSentEvent) -> Told:
    return Told(event.event, event.id, json.loads(event.data))


class StreamingTransport(httpx2.AsyncBaseTransport):
    """An application in process, whose answers are read as they are sent. One piece waits to be read, no more."""

    def __init__(self, app: BeliefApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        scope = {
            "type": "http",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        started: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        left = asyncio.Event()
        coming = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            for event in coming:
                return event
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(event: Any) -> None:
            if event["type"] == "http.response.start":
                started.set_result(event)
            else:
                await pieces.put(event.get("body", b""))
                if not event.get("more_body", False):
                    await pieces.put(None)

        task = asyncio.ensure_future(self._app(scope, receive, send))
        start = await started
        stream = _Pieces(pieces, left, task)
        return httpx2.Response(start["status"], headers=start["headers"], stream=stream)


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, pieces: asyncio.Queue[bytes | None], left: asyncio.Event, task: asyncio.Future[None]) -> None:
        self._pieces = pieces
        self._left = left
        self._task = task

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def aclose(self) -> None:
        """The caller goes away: what was on its way is lost."""
        self._left.set()
        dropping = asyncio.ensure_future(self._drop())
        await self._task
        dropping.cancel()

    async def _drop(self) -> None:
        while True:
            await self._pieces.get()


def client_of(app: BeliefApp) -> httpx2.AsyncClient:
    """A client in process, on the running loop."""
    return httpx2.AsyncClient(transport=StreamingTransport(app), base_url="http://localhost", timeout=TIMEOUT_SECONDS)


@asynccontextmanager
async def following(client: httpx2.AsyncClient, path: str, **options: Any) -> AsyncIterator[AsyncIterator[Told]]:
    """The events of a stream, until the block is left."""
    async with client.stream("GET", path, **options) as answer:
        assert answer.status_code == 200, (await answer.aread()).decode()
        yield (told(event) async for event in httpx2.EventSource(answer))


@contextmanager
def following_sync(client: httpx2.Client, path: str, **options: Any) -> Iterator[Iterator[Told]]:
    """The same over a network."""
    with client.stream("GET", path, **options) as answer:
        assert answer.status_code == 200, answer.read().decode()
        yield (told(event) for event in httpx2.EventSource(answer))


async def take_entries(events: AsyncIterator[Told], count: int) -> list[Told]:
    """The next entries, without what else comes."""
    found: list[Told] = []
    while len(found) < count:
        event = await anext(events)
        assert event.name != "end", event
        found += [event] if event.name == "entry" else []
    return found
