"""Which servers a gateway stands in front of: options of the command line, or a file.

`{"servers": {"<name>": …}, "credentials": {"<actor>": {"<name>": {"<header or variable>": "<our variable>"}}}}`, with
servers as in the file of tool servers. Credentials are named, not written, and are those of one actor at one server.
The key by which an actor is known here is never handed on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.ledger import canonical
from cmbs.substrate.kernel.targets import check_header, lower_first
from cmbs.substrate.tools.mcp_servers import HttpServer, McpServer, McpServers, StdioServer, check_server

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
_MAX_FILE_BYTES = 1_048_576
_MAX_SERVERS = 100


def build_config(upstreams: Sequence[str], path: str | None) -> McpServers:
    """The servers of `--upstream` options and of a file together; InvalidRequest says what is wrong."""
    config = McpServers({}) if path is None else _read_file(path)
    servers = dict(config.servers)
    for text in upstreams:
        name, server = parse_upstream(text)
        if name in servers:
            raise _refusal(f"`{name}` names two servers", text, "another name before the `=`")
        servers[name] = server
    if not servers:
        raise _refusal(
            "a gateway needs a server to stand in front of",
            "",
            "`--upstream NAME=COMMAND`, or `--config` with a file of servers",
        )
    if len(servers) > _MAX_SERVERS:
        raise InvalidRequest(f"a gateway has at most {_MAX_SERVERS} servers, got {len(servers)}")
    checked = msgspec.structs.replace(config, servers=servers)
    _check(checked)
    return checked


def parse_upstream(text: str) -> tuple[str, McpServer]:
    """`NAME=COMMAND WORDS…` or `NAME=http://…`."""
    name, separator, rest = text.partition("=")
    if not separator or _NAME.fullmatch(name) is None or not rest.strip():
        raise _refusal(
            "an upstream is a name and a command or URL",
            text,
            "a name before it, as in `--upstream git=mcp-server-git` or `--upstream docs=https://…`",
        )
    if rest.startswith(("http://", "https://")):
        return name, HttpServer(rest)
    try:
        return name, StdioServer(shlex.split(rest))
    except ValueError as exc:
        raise _refusal(f"the command cannot be read: {lower_first(str(exc))}", text, "words as in a shell") from exc


def _read_file(path: str) -> McpServers:
    try:
        data = Path(path).read_bytes()
    except OSError as exc:
        raise InvalidRequest(f"cannot read `{path}`: {exc.strerror}") from exc
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidRequest(f"`{path}` is larger than {_MAX_FILE_BYTES} bytes")
    try:
        return msgspec.convert(canonical.decode(data), McpServers)
    except BeliefServerError as exc:
        raise InvalidRequest(f"`{path}`: {exc.message}") from exc
    except msgspec.ValidationError as exc:
        raise InvalidRequest(f"`{path}`: {lower_first(str(exc))}") from exc


def _check(config: McpServers) -> None:
    for name, server in config.servers.items():
        if _NAME.fullmatch(name) is None:
            raise _refusal("that is no name of a server", name, "up to 24 lower-case letters, digits and hyphens")
        try:
            check_server(server)
        except InvalidRequest as exc:
            raise InvalidRequest(f"server `{name}`: {exc.message}") from exc
    for actor_id, servers in config.credentials.items():
        for name, named in servers.items():
            if name not in config.servers:
                raise _refusal(
                    f"credentials of `{actor_id}` are for an unknown server",
                    name,
                    f"the name of one of its servers: {', '.join(sorted(config.servers))}",
                )
            _check_names(config.servers[name], named)


def _check_names(server: McpServer, named: Mapping[str, str]) -> None:
    if isinstance(server, HttpServer):
        for header in named:
            check_header(header)


def _refusal(message: str, found: str, accepted: str) -> InvalidRequest:
    told = f"{message}, got `{found}`" if found else message
    return InvalidRequest(told, {"field": "upstream", "found": found, "accepted": accepted, "next": f"give {accepted}"})
