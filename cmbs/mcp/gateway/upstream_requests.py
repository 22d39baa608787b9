"""What an upstream is sent: built here and nowhere else, so that nothing reaches it that was not decided.

Three sources, and no other: the fields that a decision was about, the fields beside them that were let through, and
what the gateway adds of its own (a trace; the SDK adds the protocol's fields and the token of progress).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from cmbs.mcp.gateway.definitions import COMPLETE, GET_PROMPT, READ_RESOURCE
from cmbs.substrate.tools.mcp_connection import Wire

CALL_TOOL = "tools/call"

# The fields of each request that its decision is about.
_DECIDED = {
    CALL_TOOL: ("name", "arguments"),
    GET_PROMPT: ("name", "arguments"),
    READ_RESOURCE: ("uri",),
    COMPLETE: ("ref", "argument", "context"),
}
# Between a client and the gateway, or between the gateway and an upstream: never forwarded.
_OWN_FIELDS = frozenset({"_meta", "inputResponses", "requestState"})
CASE_META = "cmbs/case-id"
_OWN_META = frozenset({CASE_META, "progressToken", "traceparent", "tracestate", "baggage"})
_META = "_meta."
_PROTOCOL_META = "io.modelcontextprotocol/"


def select_decided(method: str, params: Mapping[str, Any]) -> Wire:
    """The fields of a client's request that the decision on it is about."""
    return {name: params[name] for name in _DECIDED[method] if name in params}


def select_forwarded(method: str, params: Mapping[str, Any]) -> Wire:
    """What is let through of a client's request beside what is decided."""
    forwarded = {
        name: value for name, value in params.items() if name not in _OWN_FIELDS and name not in _DECIDED[method]
    }
    meta = params.get("_meta")
    if isinstance(meta, Mapping):
        kept = {name: value for name, value in meta.items() if _is_forwarded_meta(name)}
        if kept:
            forwarded["_meta"] = kept
    return forwarded


def find_method(name: str, args: Mapping[str, Any]) -> tuple[str, Wire]:
    """The request that a call of a pin of this name is, and the fields that were decided of it, from its args."""
    if name == GET_PROMPT:
        return name, dict(args)
    if name in (READ_RESOURCE, COMPLETE):
        return name, dict(args)
    return CALL_TOOL, {"name": name, "arguments": dict(args)}


def flatten(forwarded: Mapping[str, Any]) -> Wire:
    """The fields beside what is decided, by their names in a policy: `_meta.<name>` for those of `_meta`."""
    fields = {name: value for name, value in forwarded.items() if name != "_meta"}
    return fields | {f"{_META}{name}": value for name, value in forwarded.get("_meta", {}).items()}


def unflatten(fields: Mapping[str, Any]) -> Wire:
    """The fields of a request again, from what a decision let through."""
    forwarded = {name: value for name, value in fields.items() if not name.startswith(_META)}
    meta = {name.removeprefix(_META): value for name, value in fields.items() if name.startswith(_META)}
    return {**forwarded, "_meta": meta} if meta else forwarded


def build_params(method: str, decided: Mapping[str, Any], forwarded: Mapping[str, Any]) -> Wire:
    """The params of a request to an upstream."""
    unknown = decided.keys() - set(_DECIDED[method])
    overlap = forwarded.keys() & (set(_DECIDED[method]) | (_OWN_FIELDS - {"_meta"}))
    if unknown or overlap:
        raise AssertionError(f"`{method}` cannot be sent with {sorted(unknown | overlap)}")
    meta = {name: value for name, value in forwarded.get("_meta", {}).items() if _is_forwarded_meta(name)}
    return {**forwarded, **decided, "_meta": {**meta, "traceparent": _make_trace()}}


def answer_question(params: Wire, responses: Wire, state: object) -> Wire:
    """The same request again, with the answers to what the upstream asked and the state that it gave."""
    answered = {**params, "inputResponses": responses}
    return answered if state is None else {**answered, "requestState": state}


def _is_forwarded_meta(name: str) -> bool:
    return name not in _OWN_META and not name.startswith(_PROTOCOL_META)


def _make_trace() -> str:
    """A W3C trace of our own, not sampled: the client's names its own operations, which are none of the upstream's."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"
