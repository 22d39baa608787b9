"""The documented configuration of every host: in that host's format, and what it names speaks MCP.

Formats are those of the hosts' own documents and sources. Fields that a host does not know are refused here, though
some hosts ignore them.
"""

import asyncio
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx2
import msgspec
import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.stores import open_store
from scripts.check_docs import ROOT, read_document
from tests.support.http_server import serving

GUIDE = ROOT / "docs/guides/mcp-hosts.md"
DOCUMENTED = ("http://127.0.0.1:8080", "sqlite:////home/me")
KEY_VARIABLE = "CMBS_KEY"


class Program(NamedTuple):
    """What a host starts."""

    command: str
    args: list[str]


class Remote(NamedTuple):
    """What a host connects to, with its headers as the host sends them."""

    url: str
    headers: dict[str, str]


Servers = dict[str, Program | Remote]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Command(Strict):
    """`command`, `args`, `env`: Claude Code, Claude Desktop, Cursor."""

    command: str
    args: list[str] = []
    env: dict[str, str] = {}

    def read(self, _: Callable[[str], str]) -> Program:
        return Program(self.command, self.args)


class TypedUrl(Strict):
    """Claude Code and VS Code: without `type` a URL is no server to them."""

    type: Literal["http"]
    url: str
    headers: dict[str, str] = {}

    def read(self, expand: Callable[[str], str]) -> Remote:
        return Remote(self.url, {name: expand(value) for name, value in self.headers.items()})


class PlainUrl(Strict):
    """Cursor."""

    url: str
    headers: dict[str, str] = {}

    def read(self, expand: Callable[[str], str]) -> Remote:
        return Remote(self.url, {name: expand(value) for name, value in self.headers.items()})


class TypedCommand(Command, tag_field="type", tag="stdio"):
    """VS Code."""


class VsCodeUrl(PlainUrl, tag_field="type", tag="http"):
    """VS Code."""


class VsCodeInput(Strict):
    type: Literal["promptString"]
    id: str
    description: str
    password: bool


class CodexServer(Strict):
    """Codex: one table for both kinds; the key is named, never written."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    url: str | None = None
    bearer_token_env_var: str | None = None
    http_headers: dict[str, str] = {}
    startup_timeout_sec: float = 10
    tool_timeout_sec: float = 60

    def read(self, expand: Callable[[str], str]) -> Program | Remote:
        if self.command is not None:
            assert self.url is None
            return Program(self.command, self.args)
        assert self.url is not None
        assert self.bearer_token_env_var is not None
        return Remote(self.url, {"Authorization": f"Bearer {expand(f'${{{self.bearer_token_env_var}}}')}"})


class GeminiServer(Strict):
    """Gemini CLI: `url` would be the older transport."""

    command: str | None = None
    args: list[str] = []
    httpUrl: str | None = None  # noqa: N815 - the host's name
    headers: dict[str, str] = {}
    timeout: int = 600_000

    def read(self, expand: Callable[[str], str]) -> Program | Remote:
        if self.command is not None:
            assert self.httpUrl is None
            return Program(self.command, self.args)
        assert self.httpUrl is not None
        return Remote(self.httpUrl, {name: expand(value) for name, value in self.headers.items()})


class HolmesProgram(Strict, tag_field="mode", tag="stdio"):
    command: str
    args: list[str] = []
    env: dict[str, str] = {}

    def read(self, _: Callable[[str], str]) -> Program:
        return Program(self.command, self.args)


class HolmesUrl(Strict, tag_field="mode", tag="streamable-http"):
    url: str
    headers: dict[str, str] = {}

    def read(self, expand: Callable[[str], str]) -> Remote:
        return Remote(self.url, {name: expand(value) for name, value in self.headers.items()})


class HolmesServer(Strict):
    description: str
    config: HolmesProgram | HolmesUrl
    llm_instructions: str = ""

    def read(self, expand: Callable[[str], str]) -> Program | Remote:
        return self.config.read(expand)


class GooseProgram(Strict, tag_field="type", tag="stdio"):
    enabled: bool
    name: str
    description: str
    cmd: str
    args: list[str]
    timeout: int
    env_keys: list[str] = []

    def read(self, _: Callable[[str], str]) -> Program:
        return Program(self.cmd, self.args)


class GooseUrl(Strict, tag_field="type", tag="streamable_http"):
    enabled: bool
    name: str
    description: str
    uri: str
    timeout: int
    headers: dict[str, str] = {}
    env_keys: list[str] = []

    def read(self, expand: Callable[[str], str]) -> Remote:
        # Goose puts in what `env_keys` names, and nothing else of the environment.
        assert self.env_keys == [KEY_VARIABLE]
        return Remote(self.uri, {name: expand(value) for name, value in self.headers.items()})


class Host(NamedTuple):
    """A host: how its file is read, the tables in it, what its entries are, and how it writes a variable."""

    parse: Callable[[str], Any]
    tables: dict[str, Any]
    variable: str = "${CMBS_KEY}"


HOSTS = {
    "Claude Code": Host(json.loads, {"mcpServers": dict[str, dict[str, Any]]}),
    "Claude Desktop": Host(json.loads, {"mcpServers": dict[str, Command]}, ""),
    "Cursor": Host(json.loads, {"mcpServers": dict[str, dict[str, Any]]}, "${env:CMBS_KEY}"),
    "VS Code": Host(
        json.loads, {"inputs": list[VsCodeInput], "servers": dict[str, TypedCommand | VsCodeUrl]}, "${input:cmbs-key}"
    ),
    "Codex": Host(tomllib.loads, {"mcp_servers": dict[str, CodexServer]}),
    "Gemini CLI": Host(json.loads, {"mcpServers": dict[str, GeminiServer]}),
    "HolmesGPT": Host(yaml.safe_load, {"mcp_servers": dict[str, HolmesServer]}, "{{ env.CMBS_KEY }}"),
    "Goose": Host(yaml.safe_load, {"extensions": dict[str, GooseProgram | GooseUrl]}),
}
# Where the presence of a field tells the kinds apart.
URLS = {"Claude Code": TypedUrl, "Cursor": PlainUrl}


def documented() -> dict[str, str]:
    """The block below each heading of the guide."""
    document = read_document(GUIDE)
    headings = [(number, line[3:]) for number, line in enumerate(document.prose, 1) if line.startswith("## ")]
    found = {}
    for block in document.blocks:
        above = [title for number, title in headings if number < block.line]
        if above:
            assert above[-1] not in found
            found[above[-1]] = block.text
    return found


def read_host(name: str, key: str = "the-key") -> Servers:
    """The servers of a host's file; an error where it is not of the host's format."""
    host = HOSTS[name]
    file = host.parse(documented()[name])
    assert set(file) == set(host.tables)
    tables = {table: msgspec.convert(file[table], kind) for table, kind in host.tables.items()}

    def expand(text: str) -> str:
        assert host.variable in text
        return text.replace(host.variable, key)

    def convert(entry: Any) -> Any:
        if isinstance(entry, dict):
            return msgspec.convert(entry, Command if "command" in entry else URLS[name])
        return entry

    entries = list(tables.values())[-1]
    if name == "VS Code":
        assert [f"${{input:{each.id}}}" for each in tables["inputs"]] == [host.variable]
    return {server: convert(entry).read(expand) for server, entry in entries.items()}


@pytest.mark.req("MCP-HOST-01")
def test_the_documented_file_of_a_host_is_in_its_format(subtests: pytest.Subtests) -> None:
    for name in HOSTS:
        with subtests.test(name=name):
            servers = read_host(name)
            expected = {"cmbs": Program, "git": Program, "cmbs-remote": Remote}
            if name == "Claude Desktop":
                del expected["cmbs-remote"]
            assert {server: type(entry) for server, entry in servers.items()} == expected
            remote = servers.get("cmbs-remote")
            if isinstance(remote, Remote):
                assert remote.headers == {"Authorization": "Bearer the-key"}


@pytest.mark.req("MCP-HOST-01")
def test_every_heading_of_the_guide_is_a_host_and_all_start_the_same_programs() -> None:
    assert list(documented()) == list(HOSTS)
    programs = {str(read_host(name)[server]) for name in HOSTS for server in ("cmbs", "git")}
    assert len(programs) == 2


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server with keys, and the key of an agent."""
    directory = tmp_path_factory.mktemp("hosts")
    store = f"sqlite:///{directory / 'keyed.db'}"
    with closing(open_store(store)) as opened:
        key = KeyRegistry(opened).create(None, "planner", roles=[Role.AGENT]).text
    with serving(directory, "--store", store) as running:
        yield running.url, key


def run(work: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(120):
            return await work

    return asyncio.run(bounded())


@pytest.mark.slow
@pytest.mark.req("MCP-HOST-01")
@pytest.mark.parametrize("name", [name for name in HOSTS if name != "Claude Desktop"])
def test_what_a_host_connects_to_takes_it_for_its_agent(name: str, served: tuple[str, str]) -> None:
    base, key = served
    remote = read_host(name, key)["cmbs-remote"]
    assert isinstance(remote, Remote)

    async def ask() -> Any:
        url = remote.url.replace(DOCUMENTED[0], base)
        async with (
            httpx2.AsyncClient(headers=remote.headers, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            return (await client.call_tool("whoami", {})).structured_content

    me = run(ask())
    assert (me["id"], me["authenticated"]) == ("planner", True)


@pytest.mark.deep
@pytest.mark.req("MCP-HOST-01")
def test_what_a_host_starts_speaks_mcp(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    async def use(server: str, tool: str, args: dict[str, Any]) -> Any:
        program = read_host("Claude Desktop")[server]
        assert isinstance(program, Program)
        arguments = [each.replace(DOCUMENTED[1], f"sqlite:///{tmp_path}") for each in program.args]
        parameters = StdioServerParameters(
            command=program.command, args=arguments, cwd=tmp_path, env={**os.environ, "PATH": path}
        )
        async with Client(parameters) as client:
            return await client.call_tool(tool, args)

    opened = run(use("cmbs", "open_case", {"hypotheses": ["a", "b"]}))
    assert opened.structured_content["survivors"] == ["a", "b"]
    status = run(use("git", "git_status", {"repo_path": str(repository)}))
    assert "No commits yet" in status.content[0].text
    assert "good space:mcp" in verify(tmp_path)


def verify(directory: Path) -> str:
    command = [sys.executable, "-m", "cmbs", "verify", "--store", f"sqlite:///{directory / 'cmbs.db'}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
