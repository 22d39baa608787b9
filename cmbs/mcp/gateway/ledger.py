"""The space behind a gateway, by the API: tools as they are pinned, tokens, calls, and notes on what was
noticed. Everything that a gateway must know again after a restart is here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from cmbs.api.spaces import StepResponse
from cmbs.client import AsyncClient
from cmbs.errors import Forbidden, InvalidRequest, SpaceNotFound
from cmbs.ledger import canonical
from cmbs.mcp.gateway.definitions import Definition, is_idempotent, is_read_only
from cmbs.substrate.kernel.events import Mode

# A keyword that schemas do not know, under which a registered tool keeps the definition that it was pinned from.
PIN = "x-mcp-definition"
SERVER = "x-mcp-server"
# What is allowed is not listed: the registration of a tool says whether it writes, when it is pinned and when a change
# of it is accepted.
STARTER_POLICY: dict[str, Any] = {
    "format": 2,
    "title": "starter policy of an MCP gateway",
    "rules": [
        {
            "name": "gateway",
            "allow": "*",
            "when": "!tool.writes",
            "otherwise": "ask",
            "because": "only tools that say that they read, and are named so, run without an approval",
        }
    ],
}
_NOTE_TTL_MS = 30 * 86_400_000
_MAX_DESCRIPTION = 4_000
# Beyond this a result is recorded by its hash alone.
MAX_RESULT_BYTES = 1_048_576
_MAX_AGENTS = 10_000


class Pin(msgspec.Struct, frozen=True):
    """A tool as an operator pinned it: `tool_id` is its name in the space."""

    upstream: str
    name: str
    tool_id: str
    definition: dict[str, Any]
    writes: bool
    idempotent: bool
    timeout_ms: int
    # The hash of the registration.
    tool_hash: str = ""


class NotGranted(Forbidden):
    """The space recorded a request and did not grant it; `code` is the reason."""

    def __init__(self, message: str, step: StepResponse) -> None:
        super().__init__(message, {} if step.refusal is None else msgspec.to_builtins(step.refusal))
        self.code = step.reason_code or self.code


async def ensure_space(operator: AsyncClient, space_id: str) -> bool:
    """Create a space with the starter policy where it is not there yet; whether it was created."""
    try:
        await operator.request("get_space", fields=["space_id"], space_id=space_id)
    except SpaceNotFound:
        await operator.create_space(space_id, policy_file=STARTER_POLICY)
        return True
    return False


class GatewayLedger:
    """One space of a cmbs server.

    `operator` acts for those who run the gateway, `executor` for the gateway itself, which claims and reports calls;
    agents act for themselves. `executor_id` is who the executor is to the server.
    """

    def __init__(self, operator: AsyncClient, space_id: str, executor: AsyncClient, executor_id: str) -> None:
        self.operator = operator
        self.executor = executor
        self.executor_id = executor_id
        self.space_id = space_id
        self._tokens: set[str] = set()
        # The pins for which each agent has a token.
        self._token_of: dict[str, Sequence[Pin]] = {}

    # --- the space and its tools ---

    async def policy_version(self) -> tuple[str, Mode]:
        """The hash of the policy in force, and whether it is enforced."""
        space = await self.operator.request("get_space", fields=["policy_hash", "mode"], space_id=self.space_id)
        return str(space["policy_hash"]), Mode(space["mode"])

    async def policy(self) -> dict[str, str]:
        """The policy in force, by key."""
        return dict([pair async for pair in self.operator.each(self.operator.read_policy, self.space_id)])

    async def pins(self) -> tuple[list[Pin], dict[str, dict[str, Any]]]:
        """The tools that are pinned, and what is pinned of each server itself."""
        pins: list[Pin] = []
        servers: dict[str, dict[str, Any]] = {}
        async for tool in self.operator.each(self.operator.list_tools, self.space_id):
            schema = tool.args_schema
            if tool.retired or not isinstance(schema, Mapping):
                continue
            upstream, _, name = tool.tool_id.partition(".")
            if SERVER in schema:
                servers[upstream] = schema[SERVER]
            elif PIN in schema:
                pins.append(
                    Pin(
                        upstream,
                        name,
                        tool.tool_id,
                        schema[PIN],
                        tool.writes,
                        tool.idempotent,
                        tool.timeout_ms,
                        tool.tool_hash,
                    )
                )
        return pins, servers

    async def pin_tool(self, upstream: str, definition: Definition, timeout_ms: int) -> Pin:
        """Register a tool from its definition, all of which is kept."""
        pin = build_pin(upstream, definition, timeout_ms)
        schema = {key: value for key, value in dict(definition.get("inputSchema") or {}).items() if key != "$schema"}
        try:
            await self._register(pin, {**schema, PIN: pin.definition})
        except InvalidRequest:
            # A schema of another dialect, or beyond our bounds: the server itself checks the args by it.
            await self._register(pin, {"type": "object", PIN: pin.definition})
        registered = await self.operator.get_tool(self.space_id, pin.tool_id)
        return msgspec.structs.replace(pin, tool_hash=registered.tool_hash)

    async def pin_server(self, upstream: str, said: Mapping[str, Any]) -> None:
        """Keep what a server says of itself: instructions and prompts. Such a tool cannot be called."""
        schema = {"not": {}, SERVER: dict(said)}
        _require("register_tool", await self.operator.register_tool(self.space_id, f"{upstream}.", "caller", schema))

    async def retire(self, tool_id: str) -> None:
        """Take a pin back."""
        _require("retire_tool", await self.operator.retire_tool(self.space_id, tool_id))

    async def _register(self, pin: Pin, schema: Mapping[str, Any]) -> None:
        step = await self.operator.register_tool(
            self.space_id,
            pin.tool_id,
            "caller",
            schema,
            description=str(pin.definition.get("description") or "")[:_MAX_DESCRIPTION],
            writes=pin.writes,
            idempotent=pin.idempotent,
            timeout_ms=pin.timeout_ms,
            max_result_bytes=MAX_RESULT_BYTES,
            executor=self.executor_id,
        )
        _require("register_tool", step)

    # --- notes ---

    async def note(self, subject: str, claim: Mapping[str, Any]) -> str:
        """Record something that was noticed, once for the same words; the id of the entry in memory."""
        digest = sha256(canonical.encode(dict(claim))).hexdigest()[:24]
        entry_id = f"mcp-{subject}-{digest}"
        step = await self._remember(entry_id, claim)
        if not step.granted and step.reason_code != "MEMORY_EXISTS":
            raise NotGranted("what was noticed cannot be recorded", step)
        return entry_id

    async def use_once(self, entry_id: str, claim: Mapping[str, Any]) -> bool:
        """Record that something was used; whether this was the first time."""
        return (await self._remember(entry_id, claim)).granted

    async def _remember(self, entry_id: str, claim: Mapping[str, Any]) -> StepResponse:
        return await self.operator.put_memory(self.space_id, entry_id, "derived", claim, ttl_ms=_NOTE_TTL_MS)

    # --- calls ---

    async def ensure_token(self, agent_id: str, pins: Sequence[Pin]) -> None:
        """Issue a token by which an agent may ask for these tools, where there is none."""
        known = self._token_of.get(agent_id)
        if known is not None and known is pins:
            return
        tool_ids = sorted(pin.tool_id for pin in pins)
        digest = sha256(canonical.encode([agent_id, tool_ids])).hexdigest()[:24]
        token_id = f"mcp-{digest}"
        if token_id not in self._tokens:
            step = await self.operator.issue_capability(self.space_id, token_id, agent_id, tool_ids)
            if not step.granted and step.reason_code != "ALREADY_ISSUED":
                raise NotGranted("no token can be issued for the agent", step)
            self._tokens.add(token_id)
        self._token_of.pop(agent_id, None)
        self._token_of[agent_id] = pins
        while len(self._token_of) > _MAX_AGENTS:
            del self._token_of[next(iter(self._token_of))]


def _require(operation_id: str, step: StepResponse) -> None:
    if not step.granted:
        told = step.reason_code if step.refusal is None else step.refusal.message
        raise NotGranted(f"`{operation_id}` is not granted: {told}", step)


def build_pin(upstream: str, definition: Definition, timeout_ms: int) -> Pin:
    """The pin of a definition. A tool that says it reads only is taken at its word where its name agrees."""
    writes = not is_read_only(definition)
    name = str(definition["name"])
    idempotent = not writes or is_idempotent(definition)
    return Pin(upstream, name, f"{upstream}.{name}", dict(definition), writes, idempotent, timeout_ms)
