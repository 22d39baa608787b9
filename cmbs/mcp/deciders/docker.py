"""Docker's MCP gateway: `--interceptor before:http:URL`.

The gateway posts `{"method": "tools/call", "params": …}`. An empty answer lets the call through; any other is taken for
the result of the call, and one that is no result stops it. The status does not count, so an error must have a body.
Its `after` interceptor is sent a result without the call that it belongs to: outcomes stay unknown.
"""

from __future__ import annotations

import msgspec

from cmbs.mcp.deciders.calls import PeerCall, read_object, read_params, require_object
from cmbs.mcp.decisions import Verdict
from cmbs.mcp.gateway.answers import build_error

PATH = "/docker/before"
_PREFIX = "docker"


def read(body: bytes) -> PeerCall:
    """What the gateway asks about; MalformedMessage where that cannot be told."""
    message = read_object(body, "the body")
    params = require_object(message.get("params"), "`params`")
    return read_params(str(message.get("method")), params, _PREFIX)


def answer(verdict: Verdict) -> bytes:
    """Nothing, or the result that the model sees instead."""
    if verdict.allowed:
        return b""
    handles = {"call_id": verdict.call_id} if verdict.call_id else None
    return msgspec.json.encode(build_error(verdict.reason, handles))
