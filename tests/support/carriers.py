"""Every way in which a request reaches the application, in one place: a test that takes `carrier` runs over each."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings
from tests.support.http_server import TIMEOUT_SECONDS, environment_with, free_port, serving
from tests.support.in_process import client_of

Send = Callable[..., httpx.Response]
CARRIERS = ("asgi", "uvicorn", "http/1.1 on memory", "http/1.1 on sqlite", "unix socket", "tls and http/2")
TLS = Path(__file__).parent / "tls"
TLS_OPTIONS = ("--tls-cert", str(TLS / "certificate.pem"), "--tls-key", str(TLS / "key.pem"))


def client_context(*, with_certificate: bool) -> ssl.SSLContext:
    """What a client needs to trust the server of the tests, and to be trusted by it."""
    context = ssl.create_default_context(cafile=TLS / "certificate.pem")
    if with_certificate:
        context.load_cert_chain(TLS / "client.pem", TLS / "client_key.pem")
    return context


@contextmanager
def carry(carrier: str, directory: Path) -> Iterator[Send]:
    """A new server, and a way to send requests to it."""
    match carrier:
        case "asgi":
            with client_of(create_app(settings=Settings(store="memory:"))) as client:
                yield client.request
        case "uvicorn":
            with _uvicorn(directory) as url, httpx.Client(base_url=url, timeout=TIMEOUT_SECONDS) as client:
                yield client.request
        case "http/1.1 on memory" | "http/1.1 on sqlite":
            store = "memory:" if "memory" in carrier else "sqlite:///cmbs.db"
            with serving(directory, "--store", store) as server, server.client() as client:
                yield client.request
        case "unix socket":
            with serving(directory, "--store", "memory:", "--uds", "cmbs.sock") as server, server.client() as client:
                yield client.request
        case _:
            connection = {"http2": True, "verify": client_context(with_certificate=True)}
            options = (*TLS_OPTIONS, "--tls-client-ca", str(TLS / "client_ca.pem"))
            with (
                serving(directory, "--store", "memory:", *options, connection=connection) as server,
                server.client() as client,
            ):
                yield client.request


@contextmanager
def _uvicorn(directory: Path) -> Iterator[str]:
    """The application of the module under another ASGI server."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "--log-level", "error", "cmbs.belief_api:app"]
    process = subprocess.Popen(command, cwd=directory, env=environment_with({"CMBS_STORE": "memory:"}))
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(int(TIMEOUT_SECONDS * 50)):
            with suppress(httpx.TransportError):
                httpx.get(f"{url}/readyz")
                break
            assert process.poll() is None
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        yield url
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT_SECONDS)
