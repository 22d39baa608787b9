"""Letting an ASGI application answer what a connection read: the API docs, and every path that nobody has."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools

from cmbs.http.asgi import Receive, Scope
from cmbs.http.incoming import Incoming
from cmbs.http.router import response_to

# What the connection says itself, whatever the application says.
_OURS = {b"content-length", b"transfer-encoding", b"connection", b"date"}


class Passed(NamedTuple):
    """What an application answered; `length` is what it says of the body, which a HEAD does not bring along."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    length: int


async def pass_on(app: Any, incoming: Incoming, body: bytes, known: dict[str, Any]) -> Passed:
    """Ask the application; `known` is what its scope says of the connection."""
    # Frameworks want to be in a task, and the first step of an answer is not: this is where it becomes one.
    await asyncio.sleep(0)
    said: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    try:
        await app(_scope(incoming, known), _receiving(body), send)
    except Exception as exc:  # noqa: BLE001 - there is nobody else to tell it to
        if not said:  # else it has been told already
            failed = response_to(exc)
            return Passed(failed.status, [(b"content-type", b"application/json")], failed.body, len(failed.body))
    head = said[0]
    content = b"".join(message.get("body", b"") for message in said[1:])
    headers: list[tuple[bytes, bytes]] = [(name.lower(), value) for name, value in head["headers"]]
    length = next((int(value) for name, value in headers if name == b"content-length"), len(content))
    if incoming.method != "HEAD":
        length = len(content)
    return Passed(head["status"], [pair for pair in headers if pair[0] not in _OURS], content, length)


def _receiving(body: bytes) -> Receive:
    events = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if not events:
            # Whoever asks again wants to hear that the caller went away, and is told to stop once it has answered.
            await asyncio.get_running_loop().create_future()
        return events.pop()

    return receive


def _scope(incoming: Incoming, known: dict[str, Any]) -> Scope:
    path, query = path_and_query(incoming.url)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": incoming.version,
        "method": incoming.method,
        "path": unquote(path.decode("latin-1")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        # A list of its own: what is in the way may change it, and the same headers may be those of another request.
        "headers": list(incoming.headers.pairs),
        **known,
    }


def path_and_query(url: bytes) -> tuple[bytes, bytes]:
    """The path of what a request asks for, and its query. Proxies may be sent a whole URL, and so may we."""
    if not url.startswith((b"/", b"*")):
        try:
            parsed = httptools.parse_url(url)
        except httptools.HttpParserInvalidURLError:  # the address of a CONNECT
            return url, b""
        return parsed.path or b"/", parsed.query or b""
    path, _, query = url.partition(b"?")
    return path, query
