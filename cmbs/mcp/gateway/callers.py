"""Who asks a gateway: by the request, or by the configuration where a request cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import mcp_types
import msgspec
from mcp import MCPError

from cmbs.client import AsyncClient
from cmbs.errors import CmbsError
from cmbs.mcp.asking import ACTOR, AUTHORIZATION, EXECUTOR, describe_failure, identify_caller, require_agent
from cmbs.mcp.gateway.clients import Context
from cmbs.mcp.gateway.upstream_requests import CASE_META

# Beside `_meta` of a request: the case that the call belongs to.
CASE_HEADER = "x-cmbs-case"


class GatewaySettings(msgspec.Struct, frozen=True):
    """How a gateway behaves. `agent` and `key` are those of a client on standard streams, or of one without headers."""

    agent: str = "agent"
    key: str | None = None
    # The credential of the gateway itself, as the header `Cmbs-Executor` has it.
    executor: str | None = None
    case_id: str | None = None
    wait_seconds: float = 20.0
    timeout_ms: int = 60_000
    check_seconds: float = 60.0
    # How long a start waits for several servers; the others are looked at meanwhile.
    start_seconds: float = 5.0
    state_keys: tuple[str, ...] = ()
    # Where operators sign in to approve, if that is known.
    console: str | None = None


# In the scope of a request over HTTP: its `Caller`.
ADMITTED = "cmbs.caller"


class Caller(NamedTuple):
    """Who makes a call, and how the API is asked on their behalf."""

    api: AsyncClient
    agent_id: str


class Callers:
    """The agents who ask, each time as the API knows them then."""

    def __init__(self, api: AsyncClient, settings: GatewaySettings) -> None:
        self._api = api
        self._settings = settings
        # Beside the credential of the agent: the gateway's own, since the gateway runs the calls.
        self._executor = {} if settings.executor is None else {EXECUTOR: settings.executor}
        # The client on standard streams, which is always the same.
        self._own: Caller | None = None

    async def admit(self, headers: Mapping[str, str]) -> Caller:
        """Who sends a request over HTTP; Unauthenticated or Forbidden where it may not."""
        api = self._api.acting_as({**_identify(headers, self._settings), **self._executor})
        return Caller(api, await require_agent(api))

    async def find(self, ctx: Context) -> Caller:
        """Who asks for something that the API is asked for next, which knows best who may.

        Over HTTP each request was admitted before it came here.
        """
        if ctx.request is None and self._own is not None:
            return self._own
        admitted = None if ctx.request is None else ctx.request.scope.get(ADMITTED)
        if admitted is not None:
            return cast("Caller", admitted)
        api = self._api.acting_as({**_identity_of(ctx, self._settings), **self._executor})
        caller = Caller(api, await require_agent(api))
        if ctx.request is None:
            self._own = caller
        return caller

    def principal(self, ctx: Context) -> str | None:
        """What a request state is bound to."""
        identity = _identity_of(ctx, self._settings)
        return identity.get(AUTHORIZATION) or identity.get(ACTOR)

    async def require(self, ctx: Context) -> Caller:
        """Who asks for something that the gateway has itself, such as a list; MCPError where it may not ask now."""
        if ctx.request is None:
            self._own = None
        try:
            return await self.find(ctx)
        except CmbsError as exc:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message=describe_failure(exc)) from exc

    def identify(self, ctx: Context) -> dict[str, str]:
        """The headers by which the API knows who asks."""
        return _identity_of(ctx, self._settings)

    def case_of(self, ctx: Context) -> str | None:
        """The case that a request belongs to."""
        meta = (ctx.params or {}).get("_meta")
        named = meta.get(CASE_META) if isinstance(meta, Mapping) else None
        if named is None and ctx.request is not None:
            named = ctx.request.headers.get(CASE_HEADER)
        return str(named) if named is not None else self._settings.case_id


def _identity_of(ctx: Context, settings: GatewaySettings) -> dict[str, str]:
    """The headers by which the API knows the caller: those of the request, or those of the configuration."""
    if ctx.request is not None:
        return _identify(ctx.request.headers, settings)
    return identify_caller(f"agent:{settings.agent}", settings.key)


def _identify(headers: Mapping[str, str], settings: GatewaySettings) -> dict[str, str]:
    """The identity of a request over HTTP. The key of the configuration is not for it: each client sends its own."""
    identity = {name: headers[name] for name in (AUTHORIZATION, ACTOR) if name in headers}
    return identity or identify_caller(f"agent:{settings.agent}")
