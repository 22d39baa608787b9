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
# Of a schema, what a model does not need to call a tool or to read its answer.
_SPARED_OF_ARGUMENTS = frozenset({"title", "minLength"})
_SPARED_OF_ANSWERS = frozenset({"title", "description", "default"})
# The branches of a schema of what may be null.
_WITH_NULL = 2
# Of every answer, and said once: in the instructions of the server.
_SAID_ONCE = ("left_out", "more", "next", "warning")


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
        """The definition as it goes over the wire, without what hosts take for granted: the list has to be short."""
        arguments = _spare(_build_schema(self.args), _SPARED_OF_ARGUMENTS)
        arguments.pop("description", None)
        answer = _spare(_build_schema(self.answer), _SPARED_OF_ANSWERS)
        for name in _SAID_ONCE:
            del answer["properties"][name]
        repeats = {} if self.reads else {"idempotentHint": self.idempotent}
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": arguments,
            "outputSchema": answer,
            "annotations": {
                "readOnlyHint": self.reads,
                "destructiveHint": False,
                **repeats,
                "openWorldHint": False,
            },
        }


def _build_schema(kind: type[msgspec.Struct]) -> Json:
    """The JSON Schema of a type, with the object itself at its root, as MCP wants it."""
    (reference,), components = describe_types([kind], ref_template="#/$defs/{name}")
    name = reference["$ref"].rpartition("/")[2]
    root = dict(components.pop(name))
    return {**root, "$defs": components} if components else root


def _spare(schema: Json, keywords: frozenset[str]) -> Json:
    """A schema without some keywords, and what may be null in the shortest way; a property may have any name."""
    spared: Json = {}
    for keyword, value in schema.items():
        if keyword in ("properties", "$defs"):
            spared[keyword] = {name: _spare(each, keywords) for name, each in value.items()}
        elif keyword == "anyOf" and len(value) == _WITH_NULL and value[1] == {"type": "null"} and "type" in value[0]:
            some = _spare(value[0], keywords)
            spared |= {**some, "type": [some["type"], "null"]}
        elif keyword not in keywords and not (keyword == "default" and value is None):
            spared[keyword] = _spare(value, keywords) if isinstance(value, dict) else value
    return spared
