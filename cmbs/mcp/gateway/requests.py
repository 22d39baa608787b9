"""What a gateway answers: lists are the pins and what servers list, calls and reads are gated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import mcp_types
from mcp import MCPError

from cmbs.errors import BeliefServerError, CmbsError
from cmbs.ledger import canonical
from cmbs.mcp.gateway import answers
from cmbs.mcp.gateway.callers import Caller, Callers
from cmbs.mcp.gateway.calls import Calls
from cmbs.mcp.gateway.clients import ClientOfCall, Clients, Context, is_modern, manner_of
from cmbs.mcp.gateway.definitions import COMPLETE, GET_PROMPT, READ_RESOURCE
from cmbs.mcp.gateway.ledger import GatewayLedger, Pin
from cmbs.mcp.gateway.open_call import CallRequest
from cmbs.mcp.gateway.pinning import Pinning, list_all
from cmbs.mcp.gateway.resources import Owners
from cmbs.mcp.gateway.upstream_requests import CALL_TOOL, select_decided, select_forwarded
from cmbs.mcp.gateway.visibility import Visibility
from cmbs.substrate.tools.mcp_connection import Connection, Manner, UpstreamBroke, UpstreamFailed, Wire
from cmbs.substrate.tools.mcp_connections import Connections

_log = logging.getLogger("cmbs.gateway")
_READY_SECONDS = 10.0
_UNKNOWN_RESOURCE = -32002


class Requests:
    """The requests of clients for what upstream servers have."""

    def __init__(
        self,
        ledger: GatewayLedger,
        connections: Connections,
        pinning: Pinning,
        calls: Calls,
        callers: Callers,
        clients: Clients,
    ) -> None:
        self._ledger = ledger
        self._connections = connections
        self._pinning = pinning
        self._calls = calls
        self._callers = callers
        self._clients = clients
        self._visibility = Visibility(ledger)
        self._owners = Owners()

    # --- lists ---

    async def list_tools(self, ctx: Context, _: Wire) -> Wire:
        """The pinned tools that the caller is shown."""
        caller = await self._callers.require(ctx)
        try:
            shown = await self._visibility.select(caller.agent_id, self._pinning.tools, self._pinning.pins)
        except CmbsError as exc:
            # Leaving tools out is a convenience: without it, an agent is shown what it may not call.
            _log.warning("what the policy denies cannot be told, so every tool is listed: %s", exc)
            shown = sorted(self._pinning.tools.items())
        return _listing("tools", [{**pin.definition, "name": name} for name, pin in shown])

    async def list_prompts(self, ctx: Context, _: Wire) -> Wire:
        """The pinned prompts."""
        await self._callers.require(ctx)
        return _listing("prompts", [{**prompt, "name": name} for name, (__, prompt) in self._pinning.prompts.items()])

    async def list_resources(self, ctx: Context, params: Wire) -> Wire:
        """The resources of all servers."""
        return await self._list_upstreams(ctx, "resources/list", "resources", params, self._owners.note)

    async def list_templates(self, ctx: Context, params: Wire) -> Wire:
        """The templates of resources of all servers."""
        note = self._owners.note_templates
        return await self._list_upstreams(ctx, "resources/templates/list", "resourceTemplates", params, note)

    async def _list_upstreams(
        self, ctx: Context, method: str, collection: str, params: Wire, note: Callable[[str, list[Any]], None]
    ) -> Wire:
        caller = await self._callers.require(ctx)
        if params.get("cursor") is not None:
            # Lists are not gated, so nothing that an agent says reaches a server with them; and none has a next page.
            raise MCPError(code=mcp_types.INVALID_PARAMS, message="this list has one page: leave `cursor` out")
        serving, manner = self._pinning.serving(READ_RESOURCE), manner_of(ctx)

        async def list_one(upstream: str) -> list[Wire]:
            try:
                found = await list_all(await self._reach(upstream, caller, manner), method, collection)
            except (UpstreamFailed, UpstreamBroke, MCPError) as exc:
                if len(serving) == 1:
                    code = exc.code if isinstance(exc, MCPError) else mcp_types.INTERNAL_ERROR
                    raise MCPError(code=code, message=str(exc)) from exc
                _log.warning("the %s of %s are not listed: %s", collection, upstream, exc)
                return []
            note(upstream, found)
            return found

        # At once, so that one that hangs is waited for once.
        found = await asyncio.gather(*map(list_one, serving))
        return _listing(collection, [item for items in found for item in items])

    async def _reach(self, upstream: str, caller: Caller, manner: Manner) -> Connection:
        return await self._connections.reach(upstream, caller.agent_id, manner, _READY_SECONDS)

    # --- calls ---

    async def call_tool(self, ctx: Context, params: Wire) -> Wire:
        """Call a tool: gated, and refused in words that a model reads."""
        pin = self._pinning.tools.get(str(params.get("name")))
        if pin is None:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"there is no tool `{params.get('name')}`")
        args = params.get("arguments")
        if args is not None and not isinstance(args, Mapping):
            raise MCPError(code=mcp_types.INVALID_PARAMS, message="`arguments` must be an object")
        return await self._gate(ctx, pin, CALL_TOOL, {**params, "name": pin.name}, dict(args or {}))

    async def get_prompt(self, ctx: Context, params: Wire) -> Wire:
        """Fill in a prompt: gated."""
        upstream, prompt = self._find_prompt(params.get("name"))
        args = {"name": prompt["name"], "arguments": dict(params.get("arguments") or {})}
        return await self._read(ctx, upstream, GET_PROMPT, {**params, "name": prompt["name"]}, args)

    def _find_prompt(self, name: object) -> tuple[str, Wire]:
        found = self._pinning.prompts.get(str(name))
        if found is None:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message=f"there is no prompt `{name}`")
        return found

    async def read_resource(self, ctx: Context, params: Wire) -> Wire:
        """Read a resource: gated."""
        return await self._read(ctx, self.find_owner(params), READ_RESOURCE, params, {"uri": str(params.get("uri"))})

    def find_owner(self, params: Wire) -> str:
        """The server of a resource; MCPError where that is not known."""
        uri = str(params.get("uri"))
        serving = self._pinning.serving(READ_RESOURCE)
        upstream = serving[0] if len(serving) == 1 else self._owners.find(uri)
        if upstream is None:
            raise MCPError(
                code=_UNKNOWN_RESOURCE,
                message=f"`{uri}` is not known to be of one server, and one alone; list the resources first, "
                "and their templates",
            )
        return upstream

    async def complete(self, ctx: Context, params: Wire) -> Wire:
        """Complete an argument: gated."""
        ref = params.get("ref")
        if not isinstance(ref, Mapping):
            raise MCPError(code=mcp_types.INVALID_PARAMS, message="`ref` must be an object")
        serving = self._pinning.serving(COMPLETE)
        if ref.get("type") == "ref/prompt":
            upstream, prompt = self._find_prompt(ref.get("name"))
            params = {**params, "ref": {**ref, "name": prompt["name"]}}
        else:
            owner = serving[0] if len(serving) == 1 else self._owners.find_template(str(ref.get("uri")))
            if owner is None:
                message = f"`{ref.get('uri')}` is not known to be a template of one server; list the templates first"
                raise MCPError(code=mcp_types.INVALID_PARAMS, message=message)
            upstream = owner
        return await self._read(ctx, upstream, COMPLETE, params, select_decided(COMPLETE, params))

    async def _read(self, ctx: Context, upstream: str, method: str, params: Wire, args: Wire) -> Wire:
        """A read beside tools: gated as a call is, and refused as a protocol error, since no model sees the result."""
        pin = self._pinning.beside(upstream, method)
        if pin is None:
            raise MCPError(code=mcp_types.METHOD_NOT_FOUND, message=f"`{upstream}` does not serve `{method}`")
        result = await self._gate(ctx, pin, method, params, args)
        if result.get("isError") is True:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message=result["content"][0]["text"])
        return result

    async def _gate(self, ctx: Context, pin: Pin, method: str, params: Wire, args: Wire) -> Wire:
        _require_recordable(args)
        suspension = self._pinning.find_suspension(pin)
        try:
            caller = await self._callers.find(ctx)
            if suspension is not None:
                noticed = {"noticed": "call of a tool that changed", "agent": caller.agent_id, "tool_id": pin.tool_id}
                await self._ledger.note("suspended", {**noticed, "kind": suspension.kind.value})
                return answers.tell_suspended(pin.name, suspension)
        except CmbsError as exc:
            return answers.tell_failure(exc)
        request = CallRequest(
            caller.api,
            caller.agent_id,
            self._callers.case_of(ctx),
            pin,
            method,
            select_decided(method, params),
            select_forwarded(method, params),
            args,
            manner_of(ctx),
        )
        client = None if is_modern(ctx) else self._clients.client_of(ctx)
        return await self._make(ctx, request, ClientOfCall(ctx, client), params)

    async def _make(self, ctx: Context, request: CallRequest, listener: ClientOfCall, params: Wire) -> Wire:
        try:
            if params.get("requestState") is not None:
                responses = dict(params.get("inputResponses") or {})
                return await self._calls.resume(request, listener, str(params["requestState"]), responses)
            return await self._calls.call(request, listener)
        except CmbsError as exc:
            return answers.tell_failure(exc)
        except anyio.get_cancelled_exc_class():
            # A stream that was closed may be one that broke: what writes goes on, and a retry gets the value.
            if not (is_modern(ctx) and ctx.request is not None and request.pin.writes):
                self._calls.cancel(request)
            raise


def _require_recordable(args: Wire) -> None:
    """MCPError where the ledger has no way to write the arguments of a call, which is then not made."""
    try:
        canonical.encode(args)
    except BeliefServerError as exc:
        message = f"the arguments cannot be recorded, so the call is not made: {exc.message}"
        raise MCPError(code=mcp_types.INVALID_PARAMS, message=message, data=exc.details or None) from exc


def _listing(collection: str, items: list[Wire]) -> Wire:
    return {collection: items, "ttlMs": 0, "cacheScope": "private"}
