"""`cmbs decide`: the decision point that other gateways ask before they let a call through."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import msgspec
import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import failing_cleanly
from cmbs.cli.serve import StoreOption


def decide(
    port: Annotated[int, typer.Option(help="Where Docker's gateway and ToolHive ask.", min=1, max=65535)] = 8091,
    grpc_port: Annotated[
        int | None, typer.Option(help="Where agentgateway asks; by default nowhere.", min=1, max=65535)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    space: Annotated[str, typer.Option(help="The space in which calls are proposed.", metavar="ID")] = "mcp",
    server: Annotated[
        str | None,
        typer.Option(envvar="CMBS_SERVER", help="A cmbs server to use instead of a store.", metavar="URL"),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    operator: Annotated[
        str, typer.Option(help="Who registers tools, where the server has no keys.", metavar="ID")
    ] = "decide",
    agent: Annotated[str, typer.Option(help="Who calls, where the gateway sends no key.", metavar="ID")] = "agent",
    case: Annotated[str | None, typer.Option(help="The case of calls that name none.", metavar="ID")] = None,
    wait: Annotated[int, typer.Option(help="Seconds that a call waits for its approval.", min=0, max=20)] = 5,
) -> None:
    """Decide for other MCP gateways: Docker's, ToolHive, agentgateway."""
    from cmbs.cli.mcp_serving import serve_app
    from cmbs.mcp.deciders.app import OPTIONS, DecideOptions, load_app, open_decider

    options = DecideOptions(
        space=space,
        server=server,
        store=store,
        operator=operator,
        agent=agent,
        case_id=case,
        wait_seconds=wait,
        host=host,
        grpc_port=grpc_port,
    )
    if grpc_port is not None:
        import grpc as _  # noqa: F401 - here and not in the worker, so that it is said

    async def check() -> None:
        async with open_decider(options, os.environ):
            pass

    with failing_cleanly():
        asyncio.run(check())
        os.environ[OPTIONS] = msgspec.json.encode(options).decode()
        summary = [f"cmbs decide on http://{host}:{port}, space {space}"]
        if grpc_port is not None:
            summary.append(f"and for agentgateway on {host}:{grpc_port}, over gRPC")
        serve_app(load_app, host, port, *summary)
