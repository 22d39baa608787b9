"""Which MCP servers there are: a file on the server's side, because one of them is a program that it starts.

`{"servers": {"<name>": {"transport": "stdio", "command": ["…"]} | {"transport": "http", "url": "…"}}}`. Credentials are
named, not written: `env` and `headers` give the variables of our own environment that hold them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import msgspec

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.ledger import canonical
from cmbs.substrate.kernel.targets import check_header, check_url, lower_first

VARIABLE = "CMBS_TOOL_SERVERS"
_MAX_FILE_BYTES = 1_048_576
_MAX_START_SECONDS = 600
_MAX_MESSAGE_BYTES = 1 << 30
# What one message may have where nothing else is said.
MESSAGE_BYTES = 16_777_216


class StdioServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="transport", tag="stdio"):
    """A program that speaks MCP on its standard streams. Its environment is that of a login shell and what `env` adds.

    `max_message_bytes` bounds one message of it; beyond that it is stopped.
    """

    command: list[str]
    env: dict[str, str] = {}
    cwd: str | None = None
    start_seconds: int = 30
    max_message_bytes: int = MESSAGE_BYTES


class HttpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="transport", tag="http"):
    """A server that speaks MCP over streamable HTTP."""

    url: str
    headers: dict[str, str] = {}


McpServer: TypeAlias = StdioServer | HttpServer


class McpServers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The servers by name, and what single actors present to them."""

    servers: dict[str, McpServer]
    # By actor, server, and header or variable: our variable that holds the value.
    credentials: dict[str, dict[str, dict[str, str]]] = {}

    def server_for(self, name: str, actor_id: str) -> tuple[McpServer, bool]:
        """The server as an actor reaches it, and whether that is a way of the actor's own."""
        server, own = self.servers[name], self.credentials.get(actor_id, {}).get(name)
        if own is None:
            return server, False
        if isinstance(server, HttpServer):
            return msgspec.structs.replace(server, headers={**server.headers, **own}), True
        return msgspec.structs.replace(server, env={**server.env, **own}), True

    def variables(self) -> set[str]:
        """The variables of our environment that hold what the servers need."""
        shared = (each.headers if isinstance(each, HttpServer) else each.env for each in self.servers.values())
        own = (each for servers in self.credentials.values() for each in servers.values())
        return {variable for named in (*shared, *own) for variable in named.values()}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    servers: dict[str, McpServer]


def read_servers(path: str) -> dict[str, McpServer]:
    """The servers that a file names; InvalidRequest says what is wrong with it."""
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise _refusal(f"cannot read `{path}`: {exc.strerror}") from exc
    if len(data) > _MAX_FILE_BYTES:
        raise _refusal(f"`{path}` is larger than {_MAX_FILE_BYTES} bytes")
    try:
        servers = msgspec.convert(canonical.decode(data), _File).servers
    except BeliefServerError as exc:
        raise _refusal(f"`{path}`: {exc.message}") from exc
    except msgspec.ValidationError as exc:
        raise _refusal(f"`{path}`: {lower_first(str(exc))}") from exc
    for name, server in servers.items():
        try:
            check_server(server)
        except InvalidRequest as exc:
            raise _refusal(f"`{path}`: server `{name}`: {exc.message}") from exc
    return servers


def variables_of(servers: dict[str, McpServer]) -> set[str]:
    """The variables of our environment that hold what they need."""
    return {
        variable
        for server in servers.values()
        for variable in (server.env if isinstance(server, StdioServer) else server.headers).values()
    }


def check_server(server: McpServer) -> None:
    """InvalidRequest where a server cannot be reached as it is described."""
    if isinstance(server, HttpServer):
        check_url(server.url, "url")
        if "{" in server.url:
            raise InvalidRequest("`url` has no arguments to stand in it")
        for header in server.headers:
            check_header(header)
        return
    if not server.command or not server.command[0]:
        raise InvalidRequest("`command` must name a program")
    if any("\0" in word for word in (*server.command, *server.env, server.cwd or "")):
        raise InvalidRequest("a zero byte is in the command, its environment or its directory")
    if not 1 <= server.start_seconds <= _MAX_START_SECONDS:
        raise InvalidRequest(f"`start_seconds` must be from 1 to {_MAX_START_SECONDS}")
    if not 1 <= server.max_message_bytes <= _MAX_MESSAGE_BYTES:
        raise InvalidRequest(f"`max_message_bytes` must be from 1 to {_MAX_MESSAGE_BYTES}")


def _refusal(message: str) -> InvalidRequest:
    return InvalidRequest(message, {"variable": VARIABLE})
