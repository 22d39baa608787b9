"""ToolHive: an authorisation of type `httpv1`, which posts to `URL/decision`.

`{"operation": "mcp:tool:call", "resource": "mrn:mcp:SERVER:tool:NAME", "context": {"mcp": …}, …}` is answered with
`{"allow": …}`. ToolHive tells its client that and no more: `reason` is for its log's reader, and in the ledger.
To filter a list it asks about every tool without arguments, which cannot be told from a call: that is not waited for.
"""

from __future__ import annotations

import msgspec

from cmbs.mcp.deciders.calls import (
    MalformedMessage,
    PeerCall,
    read_object,
    require_object,
    require_text,
)
from cmbs.mcp.decisions import Verdict

PATH = "/toolhive/decision"
_PREFIX = "toolhive"
_RESOURCE = "mrn:mcp:"
# Operations that are decided about, and the field that names what is read, of those that are no tools.
_FIELDS = {"mcp:tool:call": None, "mcp:prompt:get": "name", "mcp:resource:read": "uri"}
_METHODS = {"mcp:prompt:get": "prompts/get", "mcp:resource:read": "resources/read"}


def read(body: bytes) -> PeerCall:
    """What ToolHive asks about; MalformedMessage where that cannot be told."""
    message = read_object(body, "the body")
    operation = require_text(message.get("operation"), "`operation`")
    if operation not in _FIELDS:
        raise MalformedMessage(f"`{operation}` is not decided about")
    resource = require_text(message.get("resource"), "`resource`")
    server, separator, name = resource.removeprefix(_RESOURCE).partition(f":{operation.split(':')[1]}:")
    if not (resource.startswith(_RESOURCE) and separator and server and name):
        raise MalformedMessage(f"`resource` is not of the operation `{operation}`")
    context = require_object(message.get("context"), "`context`").get("mcp")
    if not isinstance(context, dict) or context.get("resource_id") != name:
        raise MalformedMessage("`context.mcp` is missing; set `include_args` and `include_operation` in ToolHive")
    args = require_object(context.get("args", {}), "`context.mcp.args`")
    field = _FIELDS[operation]
    if field is None:
        return PeerCall(f"{_PREFIX}.{server}.{name}", args, waits=bool(args))
    more = {"arguments": args} if args else {}
    return PeerCall(f"{_PREFIX}.{server}.{_METHODS[operation]}", {field: name, **more}, waits=False)


def answer(verdict: Verdict) -> bytes:
    """The decision."""
    told = {"allow": verdict.allowed}
    return msgspec.json.encode(told if verdict.allowed else {**told, "reason": verdict.reason})
