"""A gateway from its options: over a store of its own, or over a cmbs server elsewhere; on standard streams or HTTP."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from cmbs.addresses import is_remote
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.client import AsyncClient
from cmbs.errors import InvalidRequest, Unauthenticated
from cmbs.mcp.asking import identify_caller, open_api, require_executor
from cmbs.mcp.bodies import BoundedMessages
from cmbs.mcp.gateway.admission import Admission
from cmbs.mcp.gateway.callers import GatewaySettings
from cmbs.mcp.gateway.config import build_config
from cmbs.mcp.gateway.ledger import GatewayLedger
from cmbs.mcp.gateway.server import Gateway
from cmbs.substrate.kernel.targets import check_url
from cmbs.substrate.tools.mcp_connections import Connections

OPTIONS = "CMBS_GATEWAY_OPTIONS"
OPERATOR_KEY = "CMBS_OPERATOR_KEY"
EXECUTOR_KEY = "CMBS_EXECUTOR_KEY"
AGENT_KEY = "CMBS_KEY"
DEFAULT_SPACE = "mcp"
MCP_PATH = "/mcp"
HEALTH_PATH = "/healthz"


class GatewayOptions(msgspec.Struct, frozen=True):
    """What the command line chooses. Keys come from the environment: the operator's, and that of a client on stdio."""

    upstreams: tuple[str, ...] = ()
    config: str | None = None
    space: str = DEFAULT_SPACE
    server: str | None = None
    store: str = DEFAULT_STORE
    operator: str = "gateway"
    executor: str = "gateway"
    agent: str = "agent"
    case_id: str | None = None
    wait_seconds: float = 20.0
    timeout_seconds: float = 60.0
    check_seconds: float = 60.0
    host: str = "127.0.0.1"
    console: str | None = None
    # Of clients with sessions, over HTTP: how long one lasts without a request, and how many there are at once.
    idle_seconds: float = 600.0
    max_sessions: int = 500


@asynccontextmanager
async def open_gateway(options: GatewayOptions, environment: Mapping[str, str]) -> AsyncIterator[Gateway]:
    """A gateway that has not started: its servers are not asked anything yet."""
    config = build_config(options.upstreams, options.config)
    console = find_console(options)
    async with AsyncExitStack() as stack:
        server = options.store if options.server is None else options.server
        api = await stack.enter_async_context(open_api(server))
        identity = identify_caller(f"operator:{options.operator}", environment.get(OPERATOR_KEY))
        own = identify_caller(f"executor:{options.executor}", environment.get(EXECUTOR_KEY))
        executor = api.acting_as(own)
        gateway = Gateway(
            api,
            GatewayLedger(api.acting_as(identity), options.space, executor, await _find_executor(executor)),
            Connections(config, environment),
            GatewaySettings(
                agent=options.agent,
                key=environment.get(AGENT_KEY),
                executor=next(iter(own.values())),
                case_id=options.case_id,
                wait_seconds=options.wait_seconds,
                timeout_ms=round(options.timeout_seconds * 1_000),
                check_seconds=options.check_seconds,
                console=console,
            ),
        )
        stack.push_async_callback(gateway.aclose)
        await refuse_remote_callers(api, options.host)
        yield gateway


async def _find_executor(executor: AsyncClient) -> str:
    """Who the gateway is to the server, as the one who runs calls."""
    try:
        return await require_executor(executor)
    except Unauthenticated as exc:
        raise InvalidRequest(
            f"a gateway runs calls with a key of its own: {exc.message}",
            {
                "field": EXECUTOR_KEY,
                "next": "make one with `cmbs keys create --role executor`, and set `CMBS_EXECUTOR_KEY`",
            },
        ) from exc


def find_console(options: GatewayOptions) -> str | None:
    """Where operators sign in: as it is named, or else the server, which serves the console too."""
    if options.console is None:
        if options.server is None:
            return None
        # A host shows the address to its user: no credential of ours may stand in it.
        parts = urlsplit(options.server)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    check_url(options.console, "console")
    if "?" in options.console:
        raise InvalidRequest("`console` must have no query", {"field": "console", "found": options.console})
    return options.console


async def serve_stdio(options: GatewayOptions, environment: Mapping[str, str]) -> None:
    """Serve the client on standard streams until it goes."""
    async with open_gateway(options, environment) as gateway:
        await gateway.start()
        server = gateway.build_server()
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


def build_app(options: GatewayOptions, environment: Mapping[str, str]) -> Starlette:
    """The ASGI application: MCP under `/mcp`, for clients of both eras."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_gateway(options, environment) as gateway:
            await gateway.start()
            inner = gateway.build_server().streamable_http_app(
                streamable_http_path=MCP_PATH,
                host=options.host,
                session_idle_timeout=options.idle_seconds,
                max_sessions=options.max_sessions,
            )
            async with inner.router.lifespan_context(inner):
                app.state.gateway = gateway
                app.state.inner = Admission(gateway, BoundedMessages(inner))
                yield

    async def describe(request: Request) -> JSONResponse:
        """The state of each server, without a key, for what watches processes: names and numbers alone."""
        upstreams = request.app.state.gateway.describe_upstreams()
        is_whole = all(each["state"] == "ready" and each["seen"] for each in upstreams.values())
        return JSONResponse({"status": "ok" if is_whole else "degraded", "upstreams": upstreams})

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        await scope["app"].state.inner(scope, receive, send)

    routes = [Route(HEALTH_PATH, describe), Mount("/", app=dispatch)]
    return Starlette(routes=routes, lifespan=lifespan)


def load_app() -> Starlette:
    """The application of the options in the environment, in a worker process."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s", level=logging.WARNING)
    return build_app(msgspec.json.decode(os.environ[OPTIONS], type=GatewayOptions), os.environ)


async def refuse_remote_callers(api: AsyncClient, host: str) -> None:
    """InvalidRequest where other machines could call, and the server knows no keys to tell them apart by."""
    if not is_remote(host):
        return
    try:
        await api.acting_as({}).whoami()
    except Unauthenticated:
        return
    raise InvalidRequest(
        f"without keys only this machine may be served, and `{host}` is open to others",
        {"field": "host", "found": host, "next": "make a key first: `cmbs keys create`"},
    )
