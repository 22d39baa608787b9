"""The HTTP API as MCP needs it: of an application in this process, or of a server elsewhere. One route for both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

import httpx2
import msgspec
from starlette.types import ASGIApp

AUTHORIZATION = "authorization"
ACTOR = "x-cmbs-actor"
# The longest that the server holds a request with `wait`, and what the connection allows beyond it.
MAX_WAIT_SECONDS = 20
_TIMEOUT_SECONDS = 60.0
_MAX_IDLE_CONNECTIONS = 100
_PAGE = 500
_FIRST_ERROR = 400
# Answers in this process are not compressed, and those of a server nearby need not be.
_HEADERS = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
_MINIMAL = {"prefer": "return=minimal"}
# Only loopback names are good where there are no keys.
_LOCAL_HOST = (b"host", b"localhost")
_LOCAL_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    "scheme": "http",
    "root_path": "",
    "server": ("localhost", 80),
    "client": ("127.0.0.1", 0),
}


class ApiError(Exception):
    """An answer that is an error, in the words of the API."""

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details)

    @property
    def sentence(self) -> str:
        """What is wrong and what to do next, as far as the API says it."""
        following = self.details.get("next")
        return f"{self.message}; {following}" if isinstance(following, str) else self.message


# Sends a request: method, path with its query, headers, body; the status and the body of the answer.
Send = Callable[[str, str, Mapping[str, str], bytes], Awaitable[tuple[int, bytes]]]


class Api:
    """Requests as one caller; `acting_as` gives the same server for another. The caller's headers say who that is."""

    def __init__(
        self,
        send: Send,
        identity: Mapping[str, str] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._send_request = send
        self._identity = dict(identity or {})
        self._close = close

    def acting_as(self, identity: Mapping[str, str]) -> Api:
        """The same server, asked by another caller."""
        return Api(self._send_request, identity)

    async def get(self, path: str, **query: str | int | None) -> dict[str, Any]:
        """Read; `query` without those that are None."""
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        return await self._send("GET", f"{path}?{asked}" if asked else path, b"")

    async def post(self, path: str, body: Mapping[str, Any] | None = None, *, minimal: bool = False) -> dict[str, Any]:
        """Write a JSON object, by default an empty one; where that is enough, the answer comes without its bulk."""
        return await self._send("POST", path, msgspec.json.encode(body or {}), minimal=minimal)

    async def pages(self, path: str, collection: str, **query: str | int | None) -> AsyncIterator[dict[str, Any]]:
        """All items of a list, page after page."""
        cursor: str | None = None
        while True:
            page = await self.get(path, cursor=cursor, limit=_PAGE, **query)
            for item in page[collection]:
                yield item
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def aclose(self) -> None:
        """Let go of the connections."""
        if self._close is not None:
            await self._close()

    async def _send(self, method: str, path: str, body: bytes, *, minimal: bool = False) -> dict[str, Any]:
        headers = {**self._identity, **_HEADERS, **(_MINIMAL if minimal else {})}
        status, answer = await self._send_request(method, path, headers, body)
        try:
            content = msgspec.json.decode(answer)
        except msgspec.DecodeError as exc:
            raise ApiError(status, "INTERNAL_ERROR", "the answer is not JSON", {}) from exc
        if not isinstance(content, dict):
            raise ApiError(status, "INTERNAL_ERROR", "the answer is not a JSON object", {})
        if status >= _FIRST_ERROR:
            error = content.get("error")
            if not isinstance(error, dict) or not {"code", "message"} <= error.keys():
                raise ApiError(status, "INTERNAL_ERROR", f"the answer is an error of no known form ({status})", {})
            raise ApiError(status, error["code"], error["message"], error.get("details") or {})
        return content


def open_local(app: ASGIApp) -> Api:
    """The API of an ASGI application in this process.

    Called as a web server calls it, without a client of HTTP around it: that would take longer than most operations.
    """

    async def send(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        target, _, query = path.partition("?")
        scope = {
            **_LOCAL_SCOPE,
            "method": method,
            "path": unquote(target),
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "headers": [_LOCAL_HOST, *((name.encode(), value.encode("latin-1")) for name, value in headers.items())],
        }
        sent = iter([{"type": "http.request", "body": body}])
        status, parts = 0, []

        async def receive() -> MutableMapping[str, Any]:
            for message in sent:
                return message
            # The caller stays until it has its answer; one that goes away cancels the call.
            never: asyncio.Future[MutableMapping[str, Any]] = asyncio.get_running_loop().create_future()
            return await never

        async def take(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await app(scope, receive, take)
        return status, b"".join(parts)

    return Api(send)


def open_remote(url: str) -> Api:
    """The API of a server elsewhere."""
    # Requests that wait hold a connection each, and must not keep the others from having one: the server has a bound.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_MAX_IDLE_CONNECTIONS)
    client = httpx2.AsyncClient(base_url=url.rstrip("/"), timeout=_TIMEOUT_SECONDS, trust_env=False, limits=limits)

    async def send(method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        try:
            response = await client.request(method, path, headers=headers, content=body)
        except httpx2.HTTPError as exc:
            why = str(exc) or type(exc).__name__
            raise ApiError(503, "STORE_UNAVAILABLE", f"the cmbs server does not answer: {why}", {}) from exc
        return response.status_code, response.content

    return Api(send, close=client.aclose)


def path(*segments: str) -> str:
    """A path of the API from its segments, each of which may hold any characters."""
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)
