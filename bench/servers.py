"""Servers as processes of their own, on free loopback ports, always stopped."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

HOST = "127.0.0.1"
REPOSITORY = Path(__file__).parents[1]
START_SECONDS = 30.0
STOP_SECONDS = 10.0


@contextmanager
def cmbs_serve(store_url: str, *options: str, **variables: str) -> Iterator[int]:
    """`cmbs serve` over a store; the port it listens on."""
    port = _free_port()
    cmbs = str(Path(sys.executable).with_name("cmbs"))
    command = [cmbs, "serve", "--store", store_url, "--port", str(port), *options]
    with _running(command, port, variables):
        yield port


@contextmanager
def tee_serve(store_url: str) -> Iterator[int]:
    """`cmbs tee serve` over a graph store; the port it listens on."""
    port = _free_port()
    cmbs = str(Path(sys.executable).with_name("cmbs"))
    with _running([cmbs, "tee", "serve", "--store", store_url, "--port", str(port)], port):
        yield port


@contextmanager
def baseline(module: str) -> Iterator[int]:
    """The `app` of a module in `bench.baselines`, under the ASGI server and the settings of `cmbs serve`."""
    port = _free_port()
    options = ["--interface", "asgi", "--http", "1", "--no-ws", "--log-level", "warning", "--port", str(port)]
    with _running([sys.executable, "-m", "granian", *options, f"bench.baselines.{module}:app"], port):
        yield port


@contextmanager
def disk_directory() -> Iterator[str]:
    """A directory on the disk of the checkout: the system's temporary one may be in memory, where commits are free."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=REPOSITORY) as directory:
        yield directory


@contextmanager
def _running(command: list[str], port: int, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    with tempfile.TemporaryFile() as log:
        environment = {**os.environ, **(variables or {})}
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            if not _accepts(process, port):
                log.seek(0)
                raise RuntimeError(f"`{' '.join(command)}` did not start: {log.read().decode(errors='replace')}")
            yield
        finally:
            _stop(process)


def _accepts(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the server accepts connections; false where it ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def post_all(port: int, path: str, bodies: list[bytes]) -> list[bytes]:
    """Send each body over one connection, one after the other; the answers."""
    connection = http.client.HTTPConnection(HOST, port, timeout=START_SECONDS)
    answers = []
    try:
        for body in bodies:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status not in (200, 201):
                raise RuntimeError(f"POST {path} answered {response.status}: {answer[:400]!r}")
            answers.append(answer)
    finally:
        connection.close()
    return answers
