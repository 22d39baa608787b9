"""Write what the MCP server offers to api/mcp-tools.json; tests/system/test_contracts.py fails if it is out of date."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client._memory import InMemoryTransport
from pydantic import BaseModel

from cmbs.bootstrap import Settings, build_app
from cmbs.mcp.asking import open_api
from cmbs.mcp.server.serving import McpServer

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "api" / "mcp-tools.json"


def mcp_tools_text() -> str:
    """Return what the file must hold."""
    return json.dumps(asyncio.run(_list_offers()), indent=2, ensure_ascii=False) + "\n"


async def _list_offers() -> dict[str, Any]:
    """The tools, prompts, resources and resource templates as a client of an empty server gets them."""
    app = build_app(Settings(store="memory:"), {})
    try:
        async with Client(InMemoryTransport(McpServer(open_api(app)).build()), cache=None) as client:
            listed: dict[str, Sequence[BaseModel]] = {
                "tools": (await client.list_tools()).tools,
                "prompts": (await client.list_prompts()).prompts,
                "resources": (await client.list_resources()).resources,
                "resourceTemplates": (await client.list_resource_templates()).resource_templates,
            }
    finally:
        app.close()
    return {
        name: [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in items]
        for name, items in listed.items()
    }


def main() -> int:
    TARGET.write_text(mcp_tools_text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
