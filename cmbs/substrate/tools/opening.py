"""A runner as the environment asks for. HTTP and MCP tools load their dependencies with the first call of one."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.model import ToolKind
from cmbs.substrate.tools import mcp_servers
from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.python import PythonTools, discover_python_tools
from cmbs.substrate.tools.runner import Executor, Runner, ToolFailed

HOSTS_VARIABLE = "CMBS_TOOL_HOSTS"
CA_VARIABLE = "CMBS_TOOL_CA"
_NEEDED = "install `cmbs[tools]` to run them"


def open_tools(environment: Mapping[str, str], python: PythonTools | None = None) -> Runner:
    """Everything that this server can run.

    `CMBS_TOOL_SERVERS` names a file of MCP servers; `CMBS_TOOL_HOSTS` bounds the hosts of HTTP tools, separated by
    commas; `CMBS_TOOL_CA` names a file of further certificates to trust; `CMBS_TOOL_SECRET_…` are credentials. Python
    tools are those that installed distributions offer, and `python`. InvalidRequest where one is broken.
    """
    path = environment.get(mcp_servers.VARIABLE, "")
    servers = mcp_servers.read_servers(path) if path else {}
    credentials = Credentials(environment, mcp_servers.variables_of(servers))
    listed = environment.get(HOSTS_VARIABLE, "").lower()
    hosts = frozenset(host.strip() for host in listed.split(",") if host.strip()) or None
    tls = _trusting(environment.get(CA_VARIABLE, ""))
    tools = PythonTools() if python is None else python
    for name, function in discover_python_tools().items():
        tools.register(name, function)

    def http() -> Executor:
        try:
            from cmbs.substrate.tools.http import HttpTools  # noqa: PLC0415 - loads when used
        except ImportError as exc:
            raise ToolFailed(f"HTTP tools are not available: {_NEEDED}") from exc
        return HttpTools(credentials, hosts, tls)

    def mcp() -> Executor:
        try:
            from cmbs.substrate.tools.mcp import McpTools  # noqa: PLC0415 - loads when used
        except ImportError as exc:
            raise ToolFailed(f"MCP tools are not available: {_NEEDED}") from exc
        return McpTools(servers, environment, tls)

    return Runner({ToolKind.PYTHON: lambda: tools, ToolKind.HTTP: http, ToolKind.MCP: mcp}, credentials)


def _trusting(path: str) -> ssl.SSLContext | None:
    """TLS that trusts these certificates too; None where no file is named."""
    if not path:
        return None
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(path)
    except OSError as exc:
        why = exc.strerror if exc.strerror and not isinstance(exc, ssl.SSLError) else "no certificates in PEM"
        raise InvalidRequest(f"cannot read `{path}`: {why}", {"variable": CA_VARIABLE}) from exc
    return context
