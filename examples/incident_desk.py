"""An MCP tool server for `gated_actions.py`: `python examples/incident_desk.py stdio FILE` or `… PORT FILE`.

It files tickets into a file, one JSON object a line, and knows a key that it has seen: asked again, it files nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer

desk = MCPServer("incident desk")


@desk.tool()
def file_ticket(title: str, severity: int, ctx: Context[Any, Any]) -> dict[str, Any]:
    """File a ticket, once for each idempotency key."""
    key = dict(ctx.request_context.meta or {}).get("cmbs/idempotency-key")
    book = Path(sys.argv[2])
    filed = [json.loads(line) for line in book.read_text("utf-8").splitlines()] if book.exists() else []
    for ticket in filed:
        if key is not None and ticket["key"] == key:
            return {"ticket_id": ticket["ticket_id"], "severity": ticket["severity"]}
    ticket = {"ticket_id": f"INC-{len(filed) + 1}", "title": title, "severity": severity, "key": key}
    with book.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(ticket) + "\n")
    return {"ticket_id": ticket["ticket_id"], "severity": severity}


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        desk.run("stdio")
    else:
        desk.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
