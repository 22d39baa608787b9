"""The MCP server over an empty store, and a client of it: an operator is beside them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jsonschema_rs
from mcp import Client
from mcp.client._memory import InMemoryTransport

from cmbs.bootstrap import Settings, build_app
from cmbs.client import AsyncClient
from cmbs.mcp.asking import identify_caller, open_api
from cmbs.mcp.server.serving import TOOLS, McpServer
from tests.support.mcp_upstream import text_of

Wire = dict[str, Any]
OPERATOR = identify_caller("operator:boss")
AGENT = identify_caller("agent:scout")
# By the rule of the server: four bytes are a token.
MAX_BYTES = 4_000 * 4


@asynccontextmanager
async def served(*, modern: bool = True, **options: Any) -> AsyncIterator[tuple[Client, AsyncClient]]:
    """A client of the server, and an operator's client of the API. `options` are those of the MCP client."""
    app = build_app(Settings(store="memory:"), {})
    api = open_api(app)
    try:
        server = McpServer(api, AGENT).build()
        mode = "auto" if modern else "legacy"
        async with Client(InMemoryTransport(server), mode=mode, cache=None, **options) as client:
            yield client, api.acting_as(OPERATOR)
    finally:
        app.close()


async def call(client: Client, name: str, /, **args: Any) -> Wire:
    """The answer of a tool, which is of its schema, whole in both forms, and no longer than was asked for."""
    result = await client.call_tool(name, args)
    assert not result.is_error, result.content
    answer = result.structured_content
    assert isinstance(answer, dict)
    jsonschema_rs.Draft202012Validator(TOOLS[name].describe()["outputSchema"]).validate(answer)
    assert len(text_of(result).encode()) <= max(MAX_BYTES, args.get("max_tokens", 0) * 4)
    assert json.loads(text_of(result)) == answer
    assert "handles" in answer
    return answer


async def follow(client: Client, more: Wire) -> Wire:
    """The answer to the call that an answer names."""
    return await call(client, more["tool"], **more["arguments"])


async def refuse(client: Client, name: str, /, **args: Any) -> tuple[str, Wire]:
    """What a model reads of a call that fails: the text, and what is beside it."""
    result = await client.call_tool(name, args)
    assert result.is_error
    assert len(text_of(result).encode()) <= MAX_BYTES
    assert isinstance(result.structured_content, dict)
    return text_of(result), result.structured_content
