"""What the connections of one server share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

from uvicorn.server import ServerState

from cmbs.http.app import BeliefApp
from cmbs.http.incoming import Incoming

# The names of RFC 9110, whatever the standard library calls them in this version.
_RENAMED = {413: b"Content Too Large", 422: b"Unprocessable Content"}
_PHRASES: dict[int, bytes] = {status.value: status.phrase.encode() for status in HTTPStatus} | _RENAMED


class Member(Protocol):
    """A connection, as far as it matters here."""

    # What is being answered.
    running: Incoming | None

    def tick(self) -> None:
        """Some time has passed."""
        ...

    def take_turn(self) -> None:
        """Begin to answer one request."""
        ...

    def step(self, incoming: Incoming, answering: Coroutine[Any, None, None]) -> None:
        """Go on answering."""
        ...

    def end_turn(self) -> None:
        """Go on with whatever else there is to do."""
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
        # Connections with a request to answer; who waits for the others to come as far, and answers that are about to
        # be sent: None while there are no others, and answers are sent at once.
        self._ready: list[Member] = []
        self.later: list[tuple[Member, Incoming, Coroutine[Any, None, None]]] | None = None
        self._answers: list[tuple[asyncio.WriteTransport, bytes]] | None = None
        self._connections: set[Member] = cast("set[Member]", state.connections)
        self._tick_seconds = tick_seconds
        self._ticking = False
        self._date = b""

    def add(self, connection: Member) -> None:
        """A connection was made."""
        self._connections.add(connection)
        if not self._ticking:
            self._tick()

    def discard(self, connection: Member) -> None:
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

    def enqueue(self, connection: Member) -> None:
        """Let a connection have its turn once everybody who has sent something was read.

        What many ask at a time is answered in one go, step by step: all requests are read, all are understood, all are
        carried out, all answers written, and then sent. The processor then finds the code of a step in its caches.
        """
        self._ready.append(connection)
        if len(self._ready) == 1:
            asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        ready, self._ready = self._ready, []
        self._answers, self.later = [], []
        try:
            for connection in ready:
                connection.take_turn()
            while self.later:
                waiting, self.later = self.later, []
                for connection, incoming, answering in waiting:
                    connection.step(incoming, answering)
                    if connection.running is None:
                        connection.end_turn()
        finally:  # whatever happens here, answers are sent
            self.flush()
            self._answers = self.later = None

    def send(self, transport: asyncio.WriteTransport, data: bytes) -> None:
        """Send an answer, with those of the others whose turn it is."""
        if self._answers is None:
            transport.write(data)
        else:
            self._answers.append((transport, data))

    def flush(self) -> None:
        """Send what was put off, before anything else is sent or a connection closed."""
        if self._answers:
            for transport, data in self._answers:
                transport.write(data)
            self._answers.clear()

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
