"""How a proposal of one call is built for an agent: with its provenance, and a token that covers the call."""

from __future__ import annotations

from cmbs.client import AsyncClient
from cmbs.mcp.server.answers import Json
from cmbs.system import SystemClock

_CLOCK = SystemClock()


def build_call(agent_id: str, tool_id: str, args: Json, token_id: str | None, idempotency_key: str) -> Json:
    """Provenance and candidates of a proposal of one call."""
    return {
        "provenance": {
            "source": agent_id,
            "timestamp": _CLOCK.now(),
            "permissions": [] if token_id is None else [token_id],
        },
        "candidates": [
            {
                "type": "tool_call",
                "tool_id": tool_id,
                "args": args,
                "capability_token_id": token_id,
                "idempotency_key": idempotency_key,
            }
        ],
    }


async def list_tokens(api: AsyncClient, space_id: str, agent_id: str) -> dict[str, str]:
    """A token of an agent for each tool that it has one for: the first that was not revoked."""
    found: dict[str, str] = {}
    async for token in api.each(api.list_capabilities, space_id):
        if token.agent_id == agent_id and not token.revoked:
            for tool_id in token.tool_ids:
                found.setdefault(tool_id, token.token_id)
    return found
