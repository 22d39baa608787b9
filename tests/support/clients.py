"""The client in every shape: one that blocks and one that awaits, of a server elsewhere and of one in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cmbs.client import AsyncClient, Client, connect, connect_async
from tests.support.cli import invoke
from tests.support.http_server import serving

CLIENTS = ("client", "async client", "embedded client", "embedded async client", "command line")
# Calls an operation by its name, with options, and waits for its result.
CallOperation = Callable[..., Any]


def call_blocking(client: Client) -> CallOperation:
    def call(name: str, options: dict[str, Any], **arguments: Any) -> Any:
        return getattr(client.with_options(**options), name)(**arguments)

    return call


def call_awaiting(client: AsyncClient, runner: asyncio.Runner) -> CallOperation:
    async def send(name: str, options: dict[str, Any], arguments: dict[str, Any]) -> Any:
        return await getattr(client.with_options(**options), name)(**arguments)

    def call(name: str, options: dict[str, Any], **arguments: Any) -> Any:
        return runner.run(send(name, options, arguments))

    return call


def call_command(server: str, name: str, options: dict[str, Any], /, **arguments: Any) -> Any:
    """The answer that `cmbs api` prints, an error included."""
    said = [part for option, value in options.items() for part in (f"--{option.replace('_', '-')}", value)]
    ran = invoke("api", name, "--server", server, "--input", "-", *said, given=json.dumps(arguments))
    answer: dict[str, Any] = json.loads(ran.stdout)
    assert ran.exit_code == int(answer.keys() == {"error"}), ran
    return answer


@contextmanager
def call_over(kind: str, directory: Path) -> Iterator[CallOperation]:
    """A new server, and a client of it."""
    if kind.startswith("embedded"):
        with connect_to("sqlite:///" + str(directory / "cmbs.db"), kind) as call:
            yield call
    elif kind == "command line":
        with serving(directory, "--store", "sqlite:///cmbs.db") as server:
            yield partial(call_command, server.url)
    else:
        with serving(directory, "--store", "sqlite:///cmbs.db") as server, connect_to(server.url, kind) as call:
            yield call


@contextmanager
def connect_to(server: Any, kind: str, **options: Any) -> Iterator[CallOperation]:
    """A client of a server."""
    if "async" not in kind:
        with connect(server, **options) as client:
            yield call_blocking(client)
        return
    with asyncio.Runner() as runner:

        async def open_client() -> AsyncClient:
            return connect_async(server, **options)

        client_async = runner.run(open_client())
        try:
            yield call_awaiting(client_async, runner)
        finally:
            runner.run(client_async.close())
