"""The space behind a gateway, by the API: tools as they are pinned, tokens, proposals, outcomes, and notes on what was
noticed. Everything that a gateway must know again after a restart is here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from cmbs.ledger import canonical
from cmbs.mcp.api import ACTOR, MAX_WAIT_SECONDS, Api, ApiError, path
from cmbs.mcp.gateway.definitions import Definition, is_idempotent, is_read_only
from cmbs.spi import Clock

# A keyword that schemas do not know, under which a registered tool keeps the definition that it was pinned from.
PIN = "x-mcp-definition"
SERVER = "x-mcp-server"
_ALLOWED = "gateway_allowed"
_TITLE = "starter policy of an MCP gateway"
_BECAUSE = "only tools that say that they read, and are named so, are allowed from the start"
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


class GatewayLedger:
    """One space of a cmbs server. `operator` acts for those who run the gateway; agents act for themselves."""

    def __init__(self, operator: Api, space_id: str, clock: Clock) -> None:
        self.operator = operator
        self.space_id = space_id
        self._clock = clock
        self._tokens: set[str] = set()
        # The token of each agent, for the pins that it covers.
        self._token_of: dict[str, tuple[Sequence[Pin], str]] = {}
        # The newest state that was seen: a proposal is based on it.
        self._snapshot_id = ""

    def _path(self, *segments: str) -> str:
        return path("spaces", self.space_id, *segments)

    # --- the space and its tools ---

    async def ensure_space(self, tools: Sequence[Pin]) -> bool:
        """Create the space with the starter policy where it is not there yet; whether it was created."""
        try:
            await self.refresh()
        except ApiError as exc:
            if exc.code != "SPACE_NOT_FOUND":
                raise
        else:
            return False
        body = {"space_id": self.space_id, "policy_file": build_starter_policy(tools)}
        self._snapshot_id = (await self.operator.post(path("spaces"), body))["state_snapshot_id"]
        return True

    async def refresh(self) -> None:
        """Look at the newest state."""
        self._snapshot_id = (await self.operator.get(self._path()))["state_snapshot_id"]

    async def pins(self) -> tuple[list[Pin], dict[str, dict[str, Any]]]:
        """The tools that are pinned, and what is pinned of each server itself."""
        pins: list[Pin] = []
        servers: dict[str, dict[str, Any]] = {}
        async for tool in self.operator.pages(self._path("tools"), "tools"):
            schema = tool["args_schema"]
            if tool["retired"] or not isinstance(schema, Mapping):
                continue
            upstream, _, name = tool["tool_id"].partition(".")
            if SERVER in schema:
                servers[upstream] = schema[SERVER]
            elif PIN in schema:
                fields = (tool["writes"], tool["idempotent"], tool["timeout_ms"])
                pins.append(Pin(upstream, name, tool["tool_id"], schema[PIN], *fields))
        return pins, servers

    async def pin_tool(self, upstream: str, definition: Definition, timeout_ms: int) -> Pin:
        """Register a tool from its definition, all of which is kept."""
        pin = build_pin(upstream, definition, timeout_ms)
        schema = {key: value for key, value in dict(definition.get("inputSchema") or {}).items() if key != "$schema"}
        try:
            await self._register(pin, {**schema, PIN: pin.definition})
        except ApiError as exc:
            if exc.code != "INVALID_REQUEST":
                raise
            # A schema of another dialect, or beyond our bounds: the server itself checks the args by it.
            await self._register(pin, {"type": "object", PIN: pin.definition})
        return pin

    async def pin_server(self, upstream: str, said: Mapping[str, Any]) -> None:
        """Keep what a server says of itself: instructions and prompts. Such a tool cannot be called."""
        body = {"tool_id": f"{upstream}.", "kind": "caller", "args_schema": {"not": {}, SERVER: dict(said)}}
        await self._step("tools", body)

    async def retire(self, tool_id: str) -> None:
        """Take a pin back."""
        await self._step(f"tools/{tool_id}/retire", {}, ("tools", tool_id, "retire"))

    async def _register(self, pin: Pin, schema: Mapping[str, Any]) -> None:
        body = {
            "tool_id": pin.tool_id,
            "kind": "caller",
            "args_schema": schema,
            "description": str(pin.definition.get("description") or "")[:_MAX_DESCRIPTION],
            "writes": pin.writes,
            "idempotent": pin.idempotent,
            "timeout_ms": pin.timeout_ms,
            "max_result_bytes": MAX_RESULT_BYTES,
        }
        await self._step("tools", body)

    async def _step(self, what: str, body: Mapping[str, Any], segments: Sequence[str] = ()) -> None:
        step = await self.operator.post(self._path(*(segments or (what,))), body)
        if not step["granted"]:
            refusal = step.get("refusal") or {}
            told = refusal.get("message") or step["reason_code"]
            raise ApiError(403, step["reason_code"] or "FORBIDDEN", f"`{what}` is not granted: {told}", refusal)

    # --- notes ---

    async def note(self, subject: str, claim: Mapping[str, Any]) -> str:
        """Record something that was noticed, once for the same words; the id of the entry in memory."""
        digest = sha256(canonical.encode(dict(claim))).hexdigest()[:24]
        entry_id = f"mcp-{subject}-{digest}"
        body = {"entry_id": entry_id, "kind": "derived", "claim": dict(claim), "ttl_ms": _NOTE_TTL_MS}
        step = await self.operator.post(self._path("memory"), body)
        if not step["granted"] and step["reason_code"] != "MEMORY_EXISTS":
            raise ApiError(403, step["reason_code"], "what was noticed cannot be recorded", step.get("refusal") or {})
        return entry_id

    async def use_once(self, entry_id: str, claim: Mapping[str, Any]) -> bool:
        """Record that something was used; whether this was the first time."""
        body = {"entry_id": entry_id, "kind": "derived", "claim": dict(claim), "ttl_ms": _NOTE_TTL_MS}
        step = await self.operator.post(self._path("memory"), body)
        return bool(step["granted"])

    async def notes(self, subject: str) -> list[dict[str, Any]]:
        """What was noted of a subject and has not expired, the oldest first."""
        prefix = f"mcp-{subject}-"
        found = [entry async for entry in self.operator.pages(self._path("memory"), "memory")]
        return [entry for entry in found if entry["entry_id"].startswith(prefix) and not entry["expired"]]

    # --- calls ---

    async def token(self, agent_id: str, pins: Sequence[Pin]) -> str:
        """The token by which an agent may ask for these tools; issued where there is none."""
        known = self._token_of.get(agent_id)
        if known is not None and known[0] is pins:
            return known[1]
        tool_ids = sorted(pin.tool_id for pin in pins)
        digest = sha256(canonical.encode([agent_id, tool_ids])).hexdigest()[:24]
        token_id = f"mcp-{digest}"
        if token_id not in self._tokens:
            body = {"token_id": token_id, "agent_id": agent_id, "tool_ids": tool_ids}
            step = await self.operator.post(self._path("capabilities"), body)
            if not step["granted"] and step["reason_code"] != "ALREADY_ISSUED":
                raise ApiError(403, step["reason_code"], "no token can be issued for the agent", {})
            self._tokens.add(token_id)
        self._token_of.pop(agent_id, None)
        self._token_of[agent_id] = (pins, token_id)
        while len(self._token_of) > _MAX_AGENTS:
            del self._token_of[next(iter(self._token_of))]
        return token_id

    async def propose(
        self, agent: Api, agent_id: str, pin: Pin, proposal_id: str, args: Any, token_id: str, case_id: str | None
    ) -> dict[str, Any]:
        """Propose one call; the proposal as it stands then."""
        call = {
            "type": "tool_call",
            "tool_id": pin.tool_id,
            "args": args,
            "capability_token_id": token_id,
            "idempotency_key": proposal_id,
        }
        body: dict[str, Any] = {
            "proposal_id": proposal_id,
            "state_snapshot_id": self._snapshot_id,
            "provenance": {"source": agent_id, "timestamp": self._clock.now(), "permissions": [token_id]},
            "candidates": [call],
        }
        if case_id is not None:
            body["case_id"] = case_id
        return await agent.post(self._path("proposals"), body, minimal=True)

    async def proposal(self, agent: Api, proposal_id: str, wait: int | None = None) -> dict[str, Any]:
        """A proposal, at once or when nothing more is to be waited for."""
        return await agent.get(self._path("proposals", proposal_id), wait=wait)

    async def wait(self, agent: Api, proposal_id: str) -> dict[str, Any]:
        """A proposal once it has moved on, or as it is after a while."""
        return await self.proposal(agent, proposal_id, MAX_WAIT_SECONDS)

    async def execution(self, agent: Api, execution_id: str) -> dict[str, Any]:
        """One run of a tool."""
        return await agent.get(self._path("executions", execution_id))

    async def report(self, agent: Api, execution_id: str, outcome: Mapping[str, Any]) -> None:
        """Record what came of a run."""
        path_of = self._path("executions", execution_id, "outcome")
        answer = await agent.post(path_of, outcome, minimal=True)
        self._snapshot_id = answer["step"]["state_snapshot_id"]


def build_pin(upstream: str, definition: Definition, timeout_ms: int) -> Pin:
    """The pin of a definition. A tool that says it reads only is taken at its word where its name agrees."""
    writes = not is_read_only(definition)
    name = str(definition["name"])
    idempotent = not writes or is_idempotent(definition)
    return Pin(upstream, name, f"{upstream}.{name}", dict(definition), writes, idempotent, timeout_ms)


def build_starter_policy(tools: Sequence[Pin]) -> dict[str, Any]:
    """A policy file: what reads is allowed, and everything else asks."""
    return {
        "format": 2,
        "title": _TITLE,
        "values": {_ALLOWED: sorted(pin.tool_id for pin in tools if not pin.writes)},
        "rules": [
            {
                "name": "gateway",
                "allow": "*",
                "when": f"tool.id in policy.value.{_ALLOWED}",
                "otherwise": "ask",
                "because": _BECAUSE,
            }
        ],
    }


def claim_actor(kind: str, actor_id: str) -> dict[str, str]:
    """How a caller is named to a server without keys."""
    return {ACTOR: f"{kind}:{actor_id}"}
