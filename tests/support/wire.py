"""HTTP by hand, over a connection: what no client would send, and nothing that a client would hide."""

from __future__ import annotations

import json
import socket
from typing import BinaryIO

from tests.support import transports
from tests.support.http_server import TIMEOUT_SECONDS
from tests.support.in_process import Exchanged

HOST = b"host: localhost\r\n"
LAST = HOST + b"connection: close\r\n"
# Beginnings of requests; headers and an empty line are to follow.
DECLARATION = json.dumps(transports.DECLARATION).encode()
DECLARE = b"POST /v1/sessions HTTP/1.1\r\ncontent-type: application/json\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n"


def declaring(headers: bytes = HOST, body: bytes = DECLARATION) -> bytes:
    """A whole declaration."""
    return b"%b%bcontent-length: %d\r\n\r\n%b" % (DECLARE, headers, len(body), body)


def statuses(answered: list[Exchanged]) -> list[int]:
    """What each answer was."""
    return [answer.status for answer in answered]


def answers(connection: socket.socket) -> list[Exchanged]:
    """Everything that is answered until the server hangs up, and nothing else."""
    with connection.makefile("rb") as received:
        return list(iter(lambda: next_answer(received), None))


def next_answer(received: BinaryIO, *, bare: bool = False) -> Exchanged | None:
    """One answer; None where the server hung up instead. `bare` is for one that has no body, whatever its head says."""
    line = received.readline()
    if not line:
        return None
    version, status = line.split()[:2]
    assert version == b"HTTP/1.1"
    lines = iter(received.readline, b"\r\n")
    headers = {name.decode(): value.strip().decode() for name, _, value in (line.partition(b":") for line in lines)}
    return Exchanged(int(status), headers, b"" if bare else received.read(int(headers.get("content-length", 0))))


def connected(port: int) -> socket.socket:
    """A connection to a server on this machine."""
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)


def exchanged(port: int, sent: bytes) -> Exchanged:
    """Send these bytes, then listen until the server hangs up."""
    with connected(port) as connection:
        connection.sendall(sent)
        (answer,) = answers(connection)
    return answer
