"""The MCP side of a gateway: one server for clients of both eras, whose lists are the pins and whose calls are gated.

Requests are answered in a middleware, before the SDK makes models of them: what it does not know would be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import mcp_types
from mcp import MCPError
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from cmbs.client import AsyncClient
from cmbs.mcp.asking import ACTOR
from cmbs.mcp.gateway.callers import Caller, Callers, GatewaySettings
from cmbs.mcp.gateway.calls import Calls
from cmbs.mcp.gateway.clients import Clients, Context, is_modern
from cmbs.mcp.gateway.definitions import COMPLETE, GET_PROMPT, READ_RESOURCE
from cmbs.mcp.gateway.ledger import GatewayLedger
from cmbs.mcp.gateway.offers import Offers
from cmbs.mcp.gateway.pinning import Pinning
from cmbs.mcp.gateway.requests import Requests
from cmbs.mcp.gateway.subscriptions import Subscriptions
from cmbs.mcp.gateway.upstream_requests import CALL_TOOL
from cmbs.substrate.tools.mcp_connection import Wire
from cmbs.substrate.tools.mcp_connections import Connections

NAME = "cmbs-gateway"
_CHANGE_SECONDS = 2.0
_IDLE_SECONDS = 600.0


class Gateway:
    """Everything behind one endpoint. `start` before the first request, `aclose` after the last."""

    def __init__(
        self, api: AsyncClient, ledger: GatewayLedger, connections: Connections, settings: GatewaySettings | None = None
    ) -> None:
        self._ledger = ledger
        self._connections = connections
        self._settings = settings or GatewaySettings()
        self.pinning = Pinning(ledger, connections, self._settings.timeout_ms)
        offers = Offers(ledger, self._settings.console)
        self._calls = Calls(
            ledger,
            connections,
            lambda: self.pinning.pins,
            self._settings.wait_seconds,
            offers,
            self.pinning.reload,
            lambda pin: self.pinning.find_suspension(pin) is not None,
        )
        self._clients = Clients()
        self._callers = Callers(api, self._settings)
        requests = Requests(ledger, connections, self.pinning, self._calls, self._callers, self._clients)
        self._subscriptions = Subscriptions(connections, self._callers, self._clients, requests)
        self._tasks: set[asyncio.Task[None]] = set()
        # Servers that are about to be looked at, and how long the wait for the last look was, and when that was.
        self._due: set[str] = set()
        self._looked: dict[str, tuple[float, float]] = {}
        self._methods: dict[str, Callable[[Context, Wire], Awaitable[Wire]]] = {
            "tools/list": requests.list_tools,
            CALL_TOOL: requests.call_tool,
            "prompts/list": requests.list_prompts,
            GET_PROMPT: requests.get_prompt,
            "resources/list": requests.list_resources,
            "resources/templates/list": requests.list_templates,
            READ_RESOURCE: requests.read_resource,
            COMPLETE: requests.complete,
            "resources/subscribe": self._subscriptions.subscribe,
            "resources/unsubscribe": self._subscriptions.unsubscribe,
            "logging/setLevel": self._subscriptions.set_level,
        }

    @property
    def servers(self) -> list[str]:
        """The names of the servers that it stands in front of."""
        return sorted(self._connections.config.servers)

    async def start(self) -> None:
        """Connect, pin what is new, and look at the servers from now on."""
        self._connections.on_list_changed = self._take_list_change
        self._connections.on_resource_updated = self._take_resource_change
        for task in await self.pinning.start(self._settings.start_seconds):
            self._keep(task)
        # What is found until now is what clients see first.
        self.pinning.on_changed = lambda kind: self._spawn(self._clients.announce(kind))
        for upstream in self.servers:
            self._spawn(self._keep_checking(upstream))
        self._spawn(self._calls.run_approved())

    async def aclose(self) -> None:
        """Stop looking, stop calls, and close the connections."""
        for task in list(self._tasks):
            task.cancel()
        await self._subscriptions.aclose()
        await self._calls.aclose()
        await self._connections.aclose()

    async def admit(self, headers: Mapping[str, str]) -> Caller:
        """Who sends a request over HTTP; Unauthenticated or Forbidden where it may not."""
        return await self._callers.admit(headers)

    def describe_upstreams(self) -> dict[str, Wire]:
        """The state of each server, without a word of the server's own."""
        changes = self.pinning.list_changes()
        return {
            name: {
                "state": self._connections.describe(name),
                "seen": name not in self.pinning.unseen,
                "tools": sum(pin.upstream == name for pin in self.pinning.tools.values()),
                "changes_waiting": len(changes.get(name, ())),
            }
            for name in self.servers
        }

    def build_server(self) -> Server[Any]:
        """The server for clients. What it declares is what its upstreams have, at the time of asking."""
        server: Server[Any] = Server(
            NAME,
            version="1",
            get_tool_input_schema=self._find_schema,
            on_list_tools=_refuse_unanswered,
            on_call_tool=_refuse_unanswered,
            on_list_prompts=_refuse_unanswered,
            on_get_prompt=_refuse_unanswered,
            on_list_resources=_refuse_unanswered,
            on_list_resource_templates=_refuse_unanswered,
            on_read_resource=_refuse_unanswered,
            on_subscribe_resource=_refuse_unanswered,
            on_unsubscribe_resource=_refuse_unanswered,
            on_completion=_refuse_unanswered,
            on_subscriptions_listen=self._subscriptions.listen,
        )
        # Not by the constructor, which warns of it: clients up to 2025-11-25 have nothing else.
        server.add_request_handler("logging/setLevel", mcp_types.SetLevelRequestParams, _refuse_unanswered)
        keys = self._settings.state_keys
        security = (
            RequestStateSecurity(keys=list(keys), bind_principal=self._callers.principal)
            if keys
            else RequestStateSecurity.ephemeral()
        )
        security.bind_principal = self._callers.principal
        boundary = RequestStateBoundary(security, default_audience=f"{NAME}:{self._ledger.space_id}")
        server.middleware += [self._note_forgery, boundary, self._answer]
        return server

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._keep(asyncio.ensure_future(work))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_resource_change(self, upstream: str, uri: str) -> None:
        for watched in self._subscriptions.watches.find(upstream, uri):
            self._spawn(self._clients.announce_resource(upstream, watched, uri))

    def _take_list_change(self, upstream: str, kind: str) -> None:
        """Look at a server that says its lists changed: once for all that it says within a few seconds.

        A server that says so all the time is looked at less and less often, down to how often all of them are.
        """
        if kind == "resources":
            # Not pinned: each list is asked of the server.
            self._spawn(self._clients.announce("resources"))
            return
        loop = asyncio.get_running_loop()
        seconds, last = self._looked.get(upstream, (_CHANGE_SECONDS, 0.0))
        if upstream in self._due:
            return
        was_quiet = loop.time() - last > self._settings.check_seconds
        seconds = _CHANGE_SECONDS if was_quiet else min(seconds * 2, self._settings.check_seconds)
        self._looked[upstream] = (seconds, loop.time() + seconds)
        self._due.add(upstream)
        self._spawn(self._check_due(upstream, seconds))

    async def _check_due(self, upstream: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._due.discard(upstream)
        await self.pinning.check(upstream)

    async def _keep_checking(self, upstream: str) -> None:
        while True:
            await asyncio.sleep(self._settings.check_seconds)
            await self.pinning.check(upstream)
            self._connections.close_idle(_IDLE_SECONDS)

    # --- middleware ---

    async def _note_forgery(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Record that a request state was presented which is not one of ours, or is for something else."""
        try:
            return await call_next(ctx)
        except MCPError as exc:
            if exc.code == mcp_types.INVALID_PARAMS and (ctx.params or {}).get("requestState") is not None:
                agent = self._callers.identify(ctx).get(ACTOR, "a caller with a key")
                await self._ledger.note(
                    "forged", {"noticed": "forged request state", "agent": agent, "method": ctx.method}
                )
            raise

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method in ("initialize", "server/discover"):
            return self._describe_itself(await call_next(ctx))
        if not is_modern(ctx):
            # From now on it is told of changes.
            self._clients.client_of(ctx)
        method = self._methods.get(ctx.method)
        if method is None:
            return await call_next(ctx)
        result = await method(ctx, dict(ctx.params or {}))
        if is_modern(ctx):
            return result if "resultType" in result else {"resultType": "complete", **result}
        return {name: value for name, value in result.items() if name != "resultType"}

    def _describe_itself(self, result: HandlerResult) -> HandlerResult:
        """What the SDK says of the server, with the instructions of the upstreams, and only what one of them has."""
        if not isinstance(result, dict):
            return result
        serving, declared = self.pinning.serving, self.pinning.declared.values()
        capabilities = {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True} if serving(GET_PROMPT) else None,
            "resources": {
                "listChanged": True,
                "subscribe": any(each.resources is not None and each.resources.subscribe for each in declared),
            }
            if serving(READ_RESOURCE)
            else None,
            "completions": {} if serving(COMPLETE) else None,
            "logging": {} if any(each.logging is not None for each in declared) else None,
        }
        offered = {
            **result["capabilities"],
            **capabilities,
        }
        said = {**result, "capabilities": {name: each for name, each in offered.items() if each is not None}}
        return said if self.pinning.instructions is None else {**said, "instructions": self.pinning.instructions}

    def _find_schema(self, name: str) -> Mapping[str, Any] | None:
        pin = self.pinning.tools.get(name)
        schema = None if pin is None else pin.definition.get("inputSchema")
        return schema if isinstance(schema, Mapping) else None


async def _refuse_unanswered(ctx: Any, params: Any) -> Any:  # noqa: ARG001
    """Registered so that the server declares the method; the middleware answers before it is reached."""
    raise MCPError(code=mcp_types.INTERNAL_ERROR, message="the gateway has no such handler")
