"""Tools and calls of them, with everything that a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cmbs.ledger import canonical
from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.kernel.model import Tool, ToolKind
from cmbs.substrate.tools.runner import CallContext, ToolReply, ToolRunner

CALL = CallContext("ops", "execution-1", "key-1", 1)


def tool_of(kind: ToolKind, target: Any = None, tool_id: str = "probe", **more: Any) -> Tool:
    """A tool that takes anything."""
    schema = more.pop("result_schema", None)
    return Tool(
        tool_id=tool_id,
        kind=kind,
        args_schema=msgspec.Raw(b"{}"),
        target=msgspec.Raw(canonical.encode(target)),
        result_schema=msgspec.Raw(canonical.encode(schema)),
        **more,
    )


def run(runner: ToolRunner, tool: Tool, args: Mapping[str, Any] | None = None, call: CallContext = CALL) -> ToolReply:
    return runner.run(tool, canonical.encode(dict(args or {})), call)


def result_of(reply: ToolReply) -> Any:
    """What a call that succeeded came to."""
    assert reply.status is OutcomeStatus.SUCCEEDED, reply.error
    return msgspec.json.decode(reply.result)
