"""The application without a network: requests as httpx2 makes them, and as no client should."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import httpx2

App = Callable[..., Awaitable[None]]
Event = MutableMapping[str, Any]
JSON = {"content-type": "application/json"}


class Client:
    """A client that waits: httpx2 over ASGI, on an event loop of its own."""

    def __init__(self, app: App, runner: asyncio.Runner) -> None:
        self.app = app
        self._runner = runner
        self._client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app, raise_app_exceptions=False), base_url="http://localhost"
        )

    def request(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """One request, to its answer."""
        return self._runner.run(self._client.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx2.Response:
        """GET."""
        return self.request("GET", path, **options)

    def post(self, path: str, json: Any = None, **options: Any) -> httpx2.Response:
        """POST of a JSON body; without one, of none."""
        return self.request("POST", path, **({} if json is None else {"json": json}), **options)

    def post_raw(self, path: str, content: bytes, **headers: str) -> httpx2.Response:
        """POST of bytes that claim to be JSON."""
        return self.request("POST", path, content=content, headers={**JSON, **headers})

    def exchange(self, *arguments: Any, **options: Any) -> Exchanged:
        """As `exchange`, below."""
        return self._runner.run(exchange(self.app, *arguments, **options))

    def close(self) -> None:
        """Let go of the connection pool."""
        self._runner.run(self._client.aclose())


@contextmanager
def client_of(app: App) -> Iterator[Client]:
    """A client for as long as a test needs it."""
    with asyncio.Runner() as runner:
        client = Client(app, runner)
        try:
            yield client
        finally:
            client.close()


class Exchanged(NamedTuple):
    """What an application sent for a request; `status` is 0 where it sent nothing."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as data."""
        return json.loads(self.body)


def scope_of(method: str, raw_path: bytes, headers: Iterable[tuple[bytes, bytes]] = (), root_path: str = "") -> Event:
    """An ASGI scope as a server builds it from a request line and header lines."""
    path, _, query = raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": root_path,
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


def body_events(*chunks: bytes) -> list[Event]:
    """A body in pieces."""
    return [
        {"type": "http.request", "body": chunk, "more_body": number < len(chunks)}
        for number, chunk in enumerate(chunks, 1)
    ]


async def exchange(
    app: App,
    method: str,
    raw_path: bytes,
    headers: Iterable[tuple[bytes, bytes]] = (),
    events: Iterable[Event] = ({"type": "http.request", "body": b"", "more_body": False},),
    root_path: str = "",
) -> Exchanged:
    """One exchange over bare ASGI. The caller goes away in the middle of its body, where its events end there."""
    coming, is_whole = iter(events), False
    sent: list[Event] = []

    async def receive() -> Event:
        nonlocal is_whole
        # What is not asked for is not made.
        for event in coming:
            is_whole = not event.get("more_body", False)
            return event
        if is_whole:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(event: Event) -> None:
        sent.append(event)

    await app(scope_of(method, raw_path, headers, root_path), receive, send)
    started = [event for event in sent if event["type"] == "http.response.start"]
    if not started:
        return Exchanged(0, {}, b"")
    assert len(started) == 1
    return Exchanged(
        started[0]["status"],
        {name.decode(): value.decode() for name, value in started[0]["headers"]},
        b"".join(event.get("body", b"") for event in sent if event["type"] == "http.response.body"),
    )
