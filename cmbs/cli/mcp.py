"""`cmbs mcp`: the MCP server on standard streams, as a host starts it."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import failing_cleanly
from cmbs.cli.serve import StoreOption


def mcp(
    server: Annotated[
        str | None,
        typer.Option(envvar="CMBS_SERVER", help="A cmbs server to use instead of a store.", metavar="URL"),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    actor: Annotated[
        str, typer.Option(help="Who is asking, where the server has no keys.", metavar="KIND:ID")
    ] = "agent:agent",
) -> None:
    """Serve belief and action to an agent, over MCP on standard streams."""
    from cmbs.mcp.asking import identify_caller, open_api
    from cmbs.mcp.gateway.opening import AGENT_KEY
    from cmbs.mcp.server.serving import serve_stdio

    identity = identify_caller(actor, os.environ.get(AGENT_KEY))

    async def serve() -> None:
        async with open_api(store if server is None else server) as api:
            await serve_stdio(api, identity)

    with failing_cleanly():
        asyncio.run(serve())
