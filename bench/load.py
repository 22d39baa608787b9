"""A closed-loop HTTP/1.1 load generator, in a process of its own.

Every connection sends its next request when the previous answer is complete, so the number of connections is the number
of requests in flight. Requests are whole byte strings made before the clock starts, and the loop is raw sockets over
epoll: a generator slower than the server would measure itself.

`drive()` starts the process; `python -m bench.load HOST PORT` is the process, with a MessagePack list of request lists
(one list a connection) on standard input and a JSON report on standard output.
"""

from __future__ import annotations

import selectors
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length:"
READ_SIZE = 1 << 18
STALL_SECONDS = 30.0


class LoadReport(msgspec.Struct, frozen=True):
    """What one run of the generator saw. Latencies are seconds, from the first byte sent to the last one received."""

    requests: int
    seconds: float
    not_ok: int
    p50: float
    p99: float
    cpu_seconds: float
    first_failure: str = ""

    @property
    def rate(self) -> float:
        """Requests answered in a second."""
        return self.requests / self.seconds


@dataclass(slots=True)
class Connection:
    """One keep-alive connection and the requests it still has to send."""

    sock: socket.socket
    requests: list[bytes]
    sent: int = 0
    started: float = 0.0
    expected: int = 0
    received: bytes = b""

    def send_next(self) -> bool:
        """Send the next request; false where none is left."""
        if self.sent == len(self.requests):
            return False
        self.received, self.expected = b"", 0
        self.started = time.perf_counter()
        self.sock.sendall(self.requests[self.sent])
        self.sent += 1
        return True

    def read(self) -> bool:
        """Take what has arrived; true once the answer is complete."""
        chunk = self.sock.recv(READ_SIZE)
        if not chunk:
            raise ConnectionError("the server closed a keep-alive connection")
        self.received = self.received + chunk if self.received else chunk
        if not self.expected:
            self.expected = response_length(self.received)
        return 0 < self.expected <= len(self.received)


@dataclass(slots=True)
class Tally:
    """The answers counted so far."""

    latencies: list[float] = field(default_factory=list)
    not_ok: int = 0
    first_failure: str = ""

    def count(self, connection: Connection) -> None:
        """Record one complete answer."""
        self.latencies.append(time.perf_counter() - connection.started)
        if not connection.received.startswith(b"HTTP/1.1 200"):
            self.not_ok += 1
            self.first_failure = self.first_failure or connection.received[:400].decode("latin-1")


def response_length(received: bytes) -> int:
    """The length of the whole response that begins in `received`, or 0 while its head is incomplete."""
    end = received.find(HEAD_END)
    if end < 0:
        return 0
    head = received[:end].lower()
    at = head.find(LENGTH)
    if at < 0:
        raise ValueError("the response has no content-length")
    stop = head.find(b"\r\n", at)
    value = head[at + len(LENGTH) :] if stop < 0 else head[at + len(LENGTH) : stop]
    return end + len(HEAD_END) + int(value)


def post(path: str, body: bytes) -> bytes:
    """The bytes of one POST with a JSON body."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def run(host: str, port: int, plan: list[list[bytes]]) -> LoadReport:
    """Send every request of the plan and return what was seen."""
    tally = Tally()
    with selectors.EpollSelector() as selector:
        connections = [Connection(_connect(host, port), requests) for requests in plan if requests]
        for connection in connections:
            selector.register(connection.sock, selectors.EVENT_READ, connection)
        cpu, start = time.process_time(), time.perf_counter()
        open_connections = sum(connection.send_next() for connection in connections)
        while open_connections:
            open_connections -= _serve_ready(selector, tally)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        for connection in connections:
            connection.sock.close()
    ordered = sorted(tally.latencies)
    return LoadReport(
        requests=len(ordered),
        seconds=seconds,
        not_ok=tally.not_ok,
        p50=ordered[len(ordered) // 2],
        p99=ordered[len(ordered) * 99 // 100],
        cpu_seconds=cpu,
        first_failure=tally.first_failure,
    )


def _serve_ready(selector: selectors.EpollSelector, tally: Tally) -> int:
    """Handle what is readable now; the number of connections that have finished."""
    ready = selector.select(STALL_SECONDS)
    if not ready:
        raise TimeoutError(f"no answer in {STALL_SECONDS} seconds")
    finished = 0
    for key, _ in ready:
        connection: Connection = key.data
        if connection.read():
            tally.count(connection)
            finished += not connection.send_next()
    return finished


def _connect(host: str, port: int) -> socket.socket:
    sock = socket.create_connection((host, port), timeout=STALL_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def drive(port: int, plan: list[list[bytes]], host: str = "127.0.0.1") -> LoadReport:
    """Run the plan in a process of its own and return its report."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", host, str(port)],
        input=msgspec.msgpack.encode(plan),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=LoadReport)


def main() -> None:
    """Read a plan from standard input, run it, print the report."""
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[list[bytes]])
    report = run(sys.argv[1], int(sys.argv[2]), plan)
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
