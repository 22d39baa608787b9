"""How long a connection of `cmbs serve` waits for its caller, and what becomes of it when the server stops."""

import asyncio
import gc
import json
import socket
import struct
import threading
from pathlib import Path
from typing import ClassVar
from weakref import WeakSet

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.http.connection import Connection
from tests.support.error_model import check_error
from tests.support.http_server import PATIENCE, serving
from tests.support.in_thread import Hurried, served
from tests.support.transports import ONTOLOGY
from tests.support.wire import DECLARE, HEALTH, HOST, LAST, answers, connected, declaring, exchanged, statuses

# --- patience ---------------------------------------------------------------------------------------------------------

NEVER = 10**9


def send_for_ever(connection: socket.socket, sent: bytes) -> None:
    while True:
        connection.sendall(sent)


class Idle(Hurried):
    request_ticks = linger_ticks = NEVER


class Slow(Hurried):
    idle_ticks = linger_ticks = NEVER


class Lingering(Hurried):
    idle_ticks = request_ticks = NEVER


@pytest.mark.parametrize("before", [b"", HEALTH + HOST + b"\r\n"], ids=["nothing", "a request"])
def test_a_connection_that_nobody_uses_is_closed(before: bytes) -> None:
    with served(create_app(BeliefServer()), Idle) as running, connected(running.port) as connection:
        connection.sendall(before)
        assert len(answers(connection)) == bool(before)


@pytest.mark.parametrize(
    "part",
    [
        b"GET /heal",
        HEALTH + b"host: loc",
        declaring()[:-1],
        DECLARE + HOST + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
    ],
    ids=["line", "head", "body", "chunk"],
)
def test_a_request_that_does_not_arrive_is_given_up(part: bytes) -> None:
    with served(create_app(BeliefServer()), Slow) as running:
        check_error(exchanged(running.port, part), 408, "REQUEST_TIMEOUT")


def test_the_rest_of_a_body_that_nobody_wants_is_not_waited_for_without_end() -> None:
    with served(create_app(BeliefServer()), Slow) as running:
        answer = exchanged(running.port, DECLARE + b"host: rebound.example\r\ncontent-length: 10\r\n\r\n12345")
        assert answer.status == 403


def test_a_caller_that_never_fetches_its_answers_is_hung_up_on() -> None:
    app = create_app(BeliefServer())
    with served(app, Slow) as running:
        body = json.dumps({"ontology": ONTOLOGY, "hypotheses": [f"{number:08}" for number in range(50_000)]}).encode()
        session_id = exchanged(running.port, declaring(LAST, body)).json()["session_id"]
        asking = f"GET /v1/sessions/{session_id} HTTP/1.1\r\n".encode() + HOST + b"\r\n"
        with connected(running.port) as connection:
            # More than any buffer on the way holds. A server that waits for ever would have to be killed to stop.
            connection.sendall(asking * 100)
            with pytest.raises(OSError, match=r"reset|pipe"):
                send_for_ever(connection, asking)


def test_a_caller_that_does_not_hang_up_after_the_last_answer_is_not_waited_for_without_end() -> None:
    with served(create_app(BeliefServer()), Lingering) as running, connected(running.port) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        assert statuses(answers(connection)) == [400]
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_for_ever(connection, b"more of it")


# --- stopping ---------------------------------------------------------------------------------------------------------


class Held:
    """An application with a route that answers when it is let."""

    def __init__(self) -> None:
        self.app = create_app(BeliefServer())
        self.asked = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._let = asyncio.Event()
        self.app.add_api_route("/held", self._held)

    async def _held(self) -> dict[str, str]:
        self._loop = asyncio.get_running_loop()
        self.asked.set()
        await self._let.wait()
        return {"held": "no more"}

    def let(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._let.set)


ASK = b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n"


def test_what_runs_is_answered_before_the_server_stops_and_nobody_else_is_waited_for() -> None:
    held = Held()
    with served(held.app) as running, connected(running.port) as busy, connected(running.port) as idle:
        with connected(running.port) as half, connected(running.port) as unread:
            half.sendall(HEALTH + b"host: loc")
            unread.sendall(declaring()[:-1])
            idle.sendall(HEALTH + HOST + b"\r\n")
            busy.sendall(ASK + HEALTH + HOST + b"\r\n")
            assert held.asked.wait(PATIENCE)
            running.begin_to_stop()
            assert answers(half) == []
            assert statuses(answers(idle)) == [200]
            (refused,) = answers(unread)
            check_error(refused, 503, "BUSY")
            assert refused.headers["connection"] == "close"
        held.let()
        (answer,) = answers(busy)
        assert answer.json() == {"held": "no more"}
        assert answer.headers["connection"] == "close"


def test_what_never_ends_is_cancelled_in_the_end() -> None:
    held = Held()
    with served(held.app, stop_seconds=0) as running, connected(running.port) as busy:
        busy.sendall(ASK)
        assert held.asked.wait(PATIENCE)
        running.stop()
        assert answers(busy) == []


def test_callers_that_went_away_in_the_middle_are_not_waited_for() -> None:
    held = Held()
    with served(held.app) as running:
        with connected(running.port) as busy:
            busy.sendall(ASK)
            assert held.asked.wait(PATIENCE)
            busy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        held.let()


@pytest.mark.parametrize("part", [b"GET /heal", declaring()[:-1]], ids=["head", "body"])
def test_a_half_sent_request_does_not_hold_up_a_signal(tmp_path: Path, part: bytes) -> None:
    with serving(tmp_path) as server, connected(server.port) as connection:
        connection.sendall(part)
        # An answer on another connection means that the one before has been seen.
        assert exchanged(server.port, HEALTH + LAST + b"\r\n").status == 200
        assert server.stop() == 0
        # It says so where it had to give up waiting.
        assert server.output.count("\n") == 4, server.output


class Remembered(Connection):
    """Connections of which those that are still in memory are known."""

    alive: ClassVar[WeakSet[Connection]] = WeakSet()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.alive.add(self)
        super().connection_made(transport)


@pytest.mark.parametrize(
    "sent",
    [
        HEALTH + LAST + b"\r\n",
        b"GET /nowhere HTTP/1.1\r\n" + LAST + b"\r\n",
        declaring(LAST),
        declaring()[:-1],
        b"nonsense\r\n\r\n",
    ],
    ids=["answered", "passed on", "written", "cut off", "refused"],
)
def test_a_connection_that_is_over_does_not_wait_for_the_garbage_collector(sent: bytes) -> None:
    gc.disable()
    try:
        with served(create_app(BeliefServer()), Remembered) as running:
            for _ in range(10):
                with connected(running.port) as connection:
                    connection.sendall(sent)
                    connection.shutdown(socket.SHUT_WR)
                    assert len(answers(connection)) == 1
        assert list(Remembered.alive) == []
    finally:
        gc.enable()
