"""The decision point as an application: paths for the peers that ask over HTTP, and a gRPC server beside it."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.http.headers import header_lookup
from cmbs.identity.gate import refuse_foreign
from cmbs.mcp.asking import AUTHORIZATION, identify_caller, open_api
from cmbs.mcp.deciders import docker, toolhive
from cmbs.mcp.deciders.calls import MAX_MESSAGE_BYTES, Decider, Identity, MalformedMessage, PeerCall, identify
from cmbs.mcp.decisions import DecisionPoint, Verdict
from cmbs.mcp.gateway.ledger import ensure_space
from cmbs.mcp.gateway.opening import DEFAULT_SPACE, OPERATOR_KEY, refuse_remote_callers
from cmbs.system import RandomIds

OPTIONS = "CMBS_DECIDE_OPTIONS"
_JSON = "application/json"
# That a decision has, beside what an approval is waited for. agentgateway gives up after ten in all.
_DECIDING_SECONDS = 4.0


class DecideOptions(msgspec.Struct, frozen=True):
    """What the command line chooses. The operator's key comes from the environment, that of a peer from the peer."""

    space: str = DEFAULT_SPACE
    server: str | None = None
    store: str = DEFAULT_STORE
    operator: str = "decide"
    agent: str = "agent"
    case_id: str | None = None
    wait_seconds: int = 5
    host: str = "127.0.0.1"
    grpc_port: int | None = None


class HttpPeer(NamedTuple):
    """A gateway that asks over HTTP."""

    path: str
    read: Callable[[bytes], PeerCall]
    answer: Callable[[Verdict], bytes]


HTTP_PEERS = (
    HttpPeer(docker.PATH, docker.read, docker.answer),
    HttpPeer(toolhive.PATH, toolhive.read, toolhive.answer),
)


@asynccontextmanager
async def open_decider(options: DecideOptions, environment: Mapping[str, str]) -> AsyncIterator[Decider]:
    """A decider over a store or a server; its space is made where it is not there, and then everything asks."""
    async with open_api(options.store if options.server is None else options.server) as api:
        await refuse_remote_callers(api, options.host)
        operator = api.acting_as(identify_caller(f"operator:{options.operator}", environment.get(OPERATOR_KEY)))
        await ensure_space(operator, options.space)
        point = DecisionPoint(operator, options.space, RandomIds(), options.wait_seconds)
        yield Decider(api, point, options.wait_seconds + _DECIDING_SECONDS, options.case_id)


def build_app(options: DecideOptions, environment: Mapping[str, str]) -> Starlette:
    """The ASGI application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            decider = app.state.decider = await stack.enter_async_context(open_decider(options, environment))
            if options.grpc_port is not None:
                from cmbs.mcp.deciders.agentgateway import (  # noqa: PLC0415 - gRPC is an extra
                    serve_grpc,
                    stop_grpc,
                )

                host = f"[{options.host}]" if ":" in options.host else options.host
                server = await serve_grpc(decider, options.agent, f"{host}:{options.grpc_port}")
                stack.push_async_callback(stop_grpc, server)
            yield

    routes = [Route(peer.path, _build_endpoint(peer, options.agent), methods=["POST"]) for peer in HTTP_PEERS]
    return Starlette(routes=routes, lifespan=lifespan)


def _build_endpoint(peer: HttpPeer, agent: str) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        async def read() -> tuple[Identity, PeerCall]:
            header = header_lookup(request.scope["headers"])
            authorization = header(AUTHORIZATION)
            if authorization is None:
                refuse_foreign(request.client.host if request.client else "", header("host"), header("origin"))
            return identify(authorization, agent), peer.read(await _read_body(request))

        verdict = await request.app.state.decider.decide(read)
        return Response(peer.answer(verdict), media_type=_JSON)

    return endpoint


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_MESSAGE_BYTES:
            raise MalformedMessage(f"a message has at most {MAX_MESSAGE_BYTES} bytes")
    return bytes(body)


def load_app() -> Starlette:
    """The application of the options in the environment, in a worker process."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s", level=logging.WARNING)
    return build_app(msgspec.json.decode(os.environ[OPTIONS], type=DecideOptions), os.environ)
