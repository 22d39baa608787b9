"""The table of tools: a row has what a host shows of a tool, the types of its arguments and of its answer, and the
function that asks the API for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from cmbs.client import AsyncClient
from cmbs.documents.json_schemas import describe_types
from cmbs.mcp.server.answers import Json

Run = Callable[[AsyncClient, Any], Awaitable[Json]]


class ToolRow(NamedTuple):
    """One tool. `reads`: it changes nothing. `idempotent`: the same call again changes nothing more."""

    name: str
    title: str
    description: str
    args: type[msgspec.Struct]
    answer: type[msgspec.Struct]
    run: Run
    reads: bool = False
    idempotent: bool = True

    def describe(self) -> Json:
        """The definition as it goes over the wire."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": build_schema(self.args),
            "outputSchema": build_schema(self.answer),
            "annotations": {
                "title": self.title,
                "readOnlyHint": self.reads,
                "destructiveHint": False,
                "idempotentHint": self.reads or self.idempotent,
                "openWorldHint": False,
            },
        }


def build_schema(kind: type[msgspec.Struct]) -> Json:
    """The JSON Schema of a type, with the object itself at its root, as MCP wants it."""
    (reference,), components = describe_types([kind], ref_template="#/$defs/{name}")
    name = reference["$ref"].rpartition("/")[2]
    root = dict(components.pop(name))
    return {**root, "$defs": components} if components else root
