"""Every way in which a request reaches the application, in one place: a test that takes `carrier` runs over each."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2

from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings
from tests.support.client_carrier import carry_by_client
from tests.support.command_carrier import CommandCarrier
from tests.support.http_server import TIMEOUT_SECONDS, environment_with, free_port, open_client, serving
from tests.support.in_process import client_of
from tests.support.warm import start

Send = Callable[..., httpx2.Response]
# Signs on demand: what a timer would sign first depends on how fast the machine is.
SIGNING = ("--signing-key", "signing.key", "--checkpoint-interval", "3600", "--webhook-key", "webhook.key")
CARRIERS = ("asgi", "uvicorn", "http/1.1 on memory", "http/1.1 on sqlite", "unix socket", "tls and http/2")
# The same through the operations of the client, of a server elsewhere and in this process.
CLIENT_CARRIERS = ("client", "async client", "embedded client", "embedded async client")
COMMAND = "command line"
TLS = Path(__file__).parent / "tls"
TLS_OPTIONS = ("--tls-cert", str(TLS / "certificate.pem"), "--tls-key", str(TLS / "key.pem"))


def client_context(*, with_certificate: bool) -> ssl.SSLContext:
    """What a client needs to trust the server of the tests, and to be trusted by it."""
    context = ssl.create_default_context(cafile=TLS / "certificate.pem")
    if with_certificate:
        context.load_cert_chain(TLS / "client.pem", TLS / "client_key.pem")
    return context


@contextmanager
def carry(carrier: str, directory: Path, tee: str = "") -> Iterator[Send]:
    """A new server, with the Tee at an endpoint if there is one, and a way to send requests to it."""
    behind = ("--tee", tee) if tee else ()
    match carrier:
        case "asgi":
            with closing(create_app(settings=_build_settings(directory, tee))) as app, client_of(app) as client:
                yield client.request
        case "uvicorn":
            with _uvicorn(directory, tee) as url, open_client(url) as client:
                yield client.request
        case "http/1.1 on memory" | "http/1.1 on sqlite":
            store = "memory:" if "memory" in carrier else "sqlite:///cmbs.db"
            with serving(directory, "--store", store, *SIGNING, *behind) as server, server.client() as client:
                yield client.request
        case "client" | "async client":
            with (
                serving(directory, "--store", "memory:", *SIGNING, *behind) as server,
                carry_by_client(carrier, server.url) as send,
            ):
                yield send
        case "command line":
            with serving(directory, "--store", "memory:", *SIGNING, *behind) as server, server.client() as client:
                yield CommandCarrier(server.url, client.request)
        case "embedded client" | "embedded async client":
            with (
                closing(create_app(settings=_build_settings(directory, tee))) as app,
                carry_by_client(carrier, app) as send,
            ):
                yield send
        case "unix socket":
            options = ("--store", "memory:", "--uds", "cmbs.sock", *SIGNING, *behind)
            with serving(directory, *options) as server, server.client() as client:
                yield client.request
        case _:
            connection = {"http2": True, "verify": client_context(with_certificate=True)}
            secure = (*TLS_OPTIONS, "--tls-client-ca", str(TLS / "client_ca.pem"), *behind)
            with (
                serving(directory, "--store", "memory:", *secure, *SIGNING, connection=connection) as server,
                server.client() as client,
            ):
                yield client.request


def _build_settings(directory: Path, tee: str) -> Settings:
    return Settings(
        store="memory:",
        tee=tee,
        signing_key=str(directory / "signing.key"),
        checkpoint_interval=3600,
        webhook_key=str(directory / "webhook.key"),
    )


@contextmanager
def _uvicorn(directory: Path, tee: str) -> Iterator[str]:
    """The application of the module under another ASGI server."""
    port = free_port()
    words = ("uvicorn", "--port", str(port), "--log-level", "error", "cmbs.belief_api:app")
    variables = {"CMBS_STORE": "memory:", "CMBS_SIGNING_KEY": "signing.key", "CMBS_CHECKPOINT_INTERVAL": "3600"}
    variables |= {"CMBS_WEBHOOK_KEY": "webhook.key"}
    process = start(*words, cwd=directory, env=environment_with({**variables, "CMBS_TEE": tee}))
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(int(TIMEOUT_SECONDS * 50)):
            with suppress(httpx2.TransportError), open_client(url) as client:
                client.get("/readyz")
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
