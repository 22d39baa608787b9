"""`cmbs gateway`: in front of MCP servers, and what an operator does about changes of their tools."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any

import msgspec
import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, exiting_with_two, failing_cleanly, format_count, out
from cmbs.cli.serve import StoreOption
from cmbs.errors import InvalidRequest

app = typer.Typer(
    name="gateway",
    help="Stand in front of MCP servers: every call is a proposal first.",
    invoke_without_command=True,
    no_args_is_help=True,
)


@app.callback()
def run(
    context: typer.Context,
    upstream: Annotated[
        list[str] | None,
        typer.Option(help="A server: NAME=COMMAND or NAME=URL; may be given several times.", metavar="NAME=…"),
    ] = None,
    config: Annotated[str | None, typer.Option(help="A file of servers and credentials.", metavar="FILE")] = None,
    space: Annotated[str, typer.Option(help="The space in which calls are proposed.", metavar="ID")] = "mcp",
    server: Annotated[
        str | None,
        typer.Option(envvar="CMBS_SERVER", help="A cmbs server to use instead of a store.", metavar="URL"),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    console: Annotated[
        str | None,
        typer.Option(envvar="CMBS_CONSOLE_URL", help="Where operators approve; by default the server.", metavar="URL"),
    ] = None,
    port: Annotated[int | None, typer.Option(help="Serve HTTP there, not standard streams.", min=1, max=65535)] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    operator: Annotated[str, typer.Option(help="Who pins, where the server has no keys.", metavar="ID")] = "gateway",
    executor: Annotated[
        str, typer.Option(help="Who runs calls, where the server has no keys.", metavar="ID")
    ] = "gateway",
    agent: Annotated[str, typer.Option(help="Who calls, where the client says nothing.", metavar="ID")] = "agent",
    case: Annotated[str | None, typer.Option(help="The case of calls that name none.", metavar="ID")] = None,
    wait: Annotated[float, typer.Option(help="Seconds that a call waits for its approval.", min=0, max=3600)] = 20.0,
    timeout: Annotated[float, typer.Option(help="Seconds that a server has for a call.", min=1, max=3600)] = 60.0,
    check: Annotated[float, typer.Option(help="Seconds between looks at the servers.", min=1, max=86400)] = 60.0,
    idle: Annotated[float, typer.Option(help="Seconds that a session over HTTP lasts idle.", min=1, max=86400)] = 600.0,
    sessions: Annotated[int, typer.Option(help="Sessions over HTTP at once.", min=1, max=100_000)] = 500,
) -> None:
    """Stand in front of MCP servers: every call is a proposal first."""
    from cmbs.mcp.gateway.opening import GatewayOptions

    options = GatewayOptions(
        upstreams=tuple(upstream or ()),
        config=config,
        space=space,
        server=server,
        store=store,
        operator=operator,
        executor=executor,
        agent=agent,
        case_id=case,
        wait_seconds=wait,
        timeout_seconds=timeout,
        check_seconds=check,
        host=host,
        console=console,
        idle_seconds=idle,
        max_sessions=sessions,
    )
    context.obj = options
    if context.invoked_subcommand is None:
        with failing_cleanly():
            _serve(options, port)


def _serve(options: Any, port: int | None) -> None:
    from cmbs.mcp.gateway.config import build_config
    from cmbs.mcp.gateway.opening import OPTIONS, find_console, load_app, serve_stdio

    build_config(options.upstreams, options.config)
    find_console(options)
    if port is None:
        asyncio.run(serve_stdio(options, os.environ))
        return
    from cmbs.cli.mcp_serving import serve_app

    os.environ[OPTIONS] = msgspec.json.encode(options).decode()
    summary = f"cmbs gateway on http://{options.host}:{port}/mcp, space {options.space}"
    serve_app(load_app, options.host, port, summary)


@app.command()
def changes(context: typer.Context) -> None:
    """Print what the servers say that is not what was pinned; exit code 1 where there is anything, or no answer."""
    from cmbs.mcp.gateway.definitions import describe_change
    from cmbs.mcp.gateway.opening import open_gateway

    async def look() -> tuple[dict[str, Any], dict[str, str]]:
        async with open_gateway(context.obj, os.environ) as gateway:
            await gateway.pinning.start()
            return gateway.pinning.list_changes(), gateway.pinning.unseen

    with exiting_with_two():
        found, unseen = asyncio.run(look())
    for upstream, listed in found.items():
        for change in listed:
            out.print(f"{upstream} {change.name}: {describe_change(change)}; now {change.after}")
    count = sum(map(len, found.values()))
    err.print(format_count(count, "change"))
    for upstream, why in unseen.items():
        err.print(f"{upstream} cannot be looked at: {why}")
    if count or unseen:
        raise typer.Exit(1)


@app.command()
def accept(
    context: typer.Context,
    upstream: Annotated[str, typer.Argument(help="The server.", metavar="SERVER")],
    name: Annotated[str, typer.Argument(help="The tool, or `(server)` for instructions and prompts.", metavar="TOOL")],
    now: Annotated[
        str | None, typer.Option("--now", help="Only if this is its hash, as `changes` printed it.", metavar="HASH")
    ] = None,
) -> None:
    """Pin what a server says now of one tool."""
    from cmbs.mcp.gateway.opening import open_gateway

    async def take() -> Any:
        async with open_gateway(context.obj, os.environ) as gateway:
            if upstream not in gateway.servers:
                known = sorted(gateway.servers)
                raise InvalidRequest(f"there is no server `{upstream}`", {"found": upstream, "accepted": known})
            return await gateway.pinning.accept(upstream, name, now)

    with failing_cleanly():
        change = asyncio.run(take())
    if change is None:
        err.print(f"{name} of {upstream} is what was pinned")
    else:
        err.print(f"{name} of {upstream} is pinned as {change.after}")
