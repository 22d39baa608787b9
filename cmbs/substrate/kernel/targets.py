"""What a tool's `target` says, by kind: checked when an operator registers the tool, read again when it is called.

A target comes through the API and stays in the ledger, so it holds no credential, starts no program and imports no
code. It names: variables of the server's environment, configured tool servers, registered callables.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.model import NULL, Tool, ToolKind

# An operator of a space names variables, and is not to read others through a tool of their own.
SECRET_PREFIX = "CMBS_TOOL_SECRET_"  # noqa: S105 - the beginning of a name

_VARIABLE = re.compile(rf"{SECRET_PREFIX}[A-Z0-9_]{{1,100}}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# Set by us, or by the protocol underneath.
_RESERVED_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-cmbs-execution",
    }
)
PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_URL = 2_048
_MAX_HEADERS = 20
_MAX_NAME = 200


class Method(StrEnum):
    """How an HTTP tool is called. With GET and DELETE the args go into the query, with the others into the body."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class HttpTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An endpoint. `{name}` in the path of the URL stands for an argument, which is then not sent again elsewhere.

    `headers` are names of headers and of the environment variables that hold their values.
    """

    url: str
    method: Method = Method.POST
    headers: dict[str, str] = {}


class McpTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool of a configured MCP server; without `tool`, the one named like the tool's id."""

    server: str
    tool: str | None = None


class PythonTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A callable that the server's own code registered; without one, that named like the tool's id."""

    callable: str | None = None


_T = TypeVar("_T", HttpTarget, McpTarget, PythonTarget)


def check_target(tool: Tool) -> None:
    """InvalidRequest where the target is not what a tool of its kind needs."""
    if tool.kind is ToolKind.HTTP:
        http_target(tool)
    elif tool.kind is ToolKind.MCP:
        mcp_target(tool)
    elif tool.kind is ToolKind.PYTHON:
        python_target(tool)
    elif tool.target != NULL:
        raise _refusal("a `caller` tool is run by its caller, and has no target")


def http_target(tool: Tool) -> HttpTarget:
    """The target of an HTTP tool."""
    target = _decode(tool, HttpTarget)
    check_url(target.url, "target.url")
    if len(target.headers) > _MAX_HEADERS:
        raise _refusal(f"`target.headers` has at most {_MAX_HEADERS} headers")
    for header, variable in target.headers.items():
        check_header(header)
        if _VARIABLE.fullmatch(variable) is None:
            raise _refusal(
                f"`{header[:_MAX_NAME]}` must name an environment variable that starts with `{SECRET_PREFIX}`, "
                f"got `{variable[:_MAX_NAME]}`"
            )
    return target


def mcp_target(tool: Tool) -> McpTarget:
    """The target of an MCP tool. Whether its server is configured shows when it is called."""
    target = _decode(tool, McpTarget)
    for name in (target.server, target.tool or tool.tool_id):
        if not 0 < len(name) <= _MAX_NAME:
            raise _refusal(f"names in `target` have from 1 to {_MAX_NAME} characters")
    return target


def python_target(tool: Tool) -> PythonTarget:
    """The target of a Python tool."""
    return PythonTarget() if tool.target == NULL else _decode(tool, PythonTarget)


def check_url(url: str, field: str) -> None:
    """InvalidRequest where this is no plain http or https URL."""
    if len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise _refusal(f"`{field}` has at most {_MAX_URL} characters, all of them printable ASCII")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as exc:
        raise _refusal(f"`{field}` is not a URL") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise _refusal(f"`{field}` must start with `http://` or `https://` and a host")
    if "@" in parts.netloc:
        raise _refusal(f"`{field}` must hold no credential; name a header and the variable that holds it")
    if parts.fragment or "#" in url:
        raise _refusal(f"`{field}` must have no fragment")
    if re.search(r"[{}]", PLACEHOLDER.sub("", parts.path)) or re.search(r"[{}]", parts.netloc + parts.query):
        raise _refusal(f"`{{name}}` may stand in the path of `{field}` only")


def check_header(header: str) -> None:
    """InvalidRequest where this is no header that a configuration may set."""
    if _HEADER.fullmatch(header) is None:
        raise _refusal(f"`{header[:_MAX_NAME]}` is not the name of a header")
    if header.lower() in _RESERVED_HEADERS:
        raise _refusal(f"the header `{header}` is not for a target to set")


# Made here, by one thread: msgspec crashes where several meet a type for the first time.
_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (HttpTarget, McpTarget, PythonTarget)
}


def _decode(tool: Tool, kind: type[_T]) -> _T:
    try:
        target: _T = _DECODERS[kind].decode(tool.target)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise _refusal(f"`target` of a tool of kind `{tool.kind}`: {lower_first(str(exc))}") from exc
    return target


def lower_first(text: str) -> str:
    """Words of a library, as ours begin."""
    return text[:1].lower() + text[1:]


def _refusal(message: str) -> InvalidRequest:
    return InvalidRequest(message, {"field": "target"})
