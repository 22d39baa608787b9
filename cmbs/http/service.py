"""What the connections of one server share."""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol, cast
from weakref import WeakKeyDictionary

from uvicorn.server import ServerState

from cmbs.http.app import BeliefApp

# The names of RFC 9110, whatever the standard library calls them in this version.
_RENAMED = {413: b"Content Too Large", 422: b"Unprocessable Content"}
_PHRASES: dict[int, bytes] = {status.value: status.phrase.encode() for status in HTTPStatus} | _RENAMED


class Ticking(Protocol):
    """A connection, as far as it matters here."""

    def tick(self) -> None:
        """Some time has passed."""
        ...


class Service:
    """What all connections of one server share."""

    def __init__(self, app: BeliefApp, state: ServerState, tick_seconds: float) -> None:
        self.app = app
        self.gate = app.gate
        self.body_bytes = app.body_bytes
        # With middleware around them, the routes are found by the framework.
        self.at = app.dispatcher.at if not app.user_middleware else _nowhere
        self.tasks = state.tasks
        self.is_ending = False
        # Everything up to the length of the body, by status, for an answer in JSON.
        self.heads: dict[int, bytes] = {}
        self._connections: set[Ticking] = cast("set[Ticking]", state.connections)
        self._tick_seconds = tick_seconds
        self._ticking = False
        self._date = b""

    def add(self, connection: Ticking) -> None:
        """A connection was made."""
        self._connections.add(connection)
        if not self._ticking:
            self._tick()

    def discard(self, connection: Ticking) -> None:
        """A connection is gone."""
        self._connections.discard(connection)

    def _tick(self) -> None:
        """What is done now and then: one timer for all connections, and a date that is made once in a second."""
        self._date = formatdate(usegmt=True).encode()
        self.heads.clear()
        for connection in list(self._connections):
            connection.tick()
        self._ticking = bool(self._connections)
        if self._ticking:
            asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def json_head(self, status: int) -> bytes:
        """The head of an answer in JSON, up to its length."""
        head = self.heads[status] = self.head(status) + b"content-type: application/json\r\ncontent-length: "
        return head

    def head(self, status: int) -> bytes:
        """The first lines of any answer."""
        return b"HTTP/1.1 %d %b\r\ndate: %b\r\n" % (status, _PHRASES.get(status, b""), self._date)


_services: WeakKeyDictionary[ServerState, Service] = WeakKeyDictionary()


def service_of(app: BeliefApp, state: ServerState, tick_seconds: float) -> Service:
    """What the connections of this server share, made for the first of them."""
    service = _services.get(state)
    if service is None:
        service = _services[state] = Service(app, state, tick_seconds)
    return service


def _nowhere(_: bytes) -> None:
    return None
