"""What an operator may register as a target, and what the file of tool servers may say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.model import ToolKind
from cmbs.substrate.kernel.targets import check_target, http_target, mcp_target
from cmbs.substrate.tools.mcp_servers import HttpServer, StdioServer, read_servers, variables_of
from cmbs.substrate.tools.opening import open_tools
from tests.support.subtests import for_each
from tests.support.tool_calls import tool_of

URL = "https://tools.example/act"


@for_each(
    ("kind", "target"),
    [
        (ToolKind.HTTP, {"url": URL}),
        (ToolKind.HTTP, {"url": "http://[::1]:8080/services/{name}/restart?v=2", "method": "PUT"}),
        (ToolKind.HTTP, {"url": URL, "headers": {"Authorization": "CMBS_TOOL_SECRET_TOKEN"}}),
        (ToolKind.MCP, {"server": "files"}),
        (ToolKind.MCP, {"server": "files", "tool": "read"}),
        (ToolKind.PYTHON, None),
        (ToolKind.PYTHON, {"callable": "restart"}),
        (ToolKind.CALLER, None),
    ],
)
def test_what_makes_sense_is_taken(kind: ToolKind, target: Any) -> None:
    tool = tool_of(kind, target)
    check_target(tool)
    if kind is ToolKind.HTTP:
        assert http_target(tool).url == target["url"]
    if kind is ToolKind.MCP:
        assert mcp_target(tool).server == "files"


@pytest.mark.req("SS01-TOOL-05")
@for_each(
    ("kind", "target", "said"),
    [
        (ToolKind.HTTP, None, "`target` of a tool of kind `http`: expected `object`"),
        (ToolKind.HTTP, {}, "missing required field `url`"),
        (ToolKind.HTTP, {"url": URL, "body": "x"}, "unknown field `body`"),
        (ToolKind.HTTP, {"url": URL, "method": "TRACE"}, "invalid enum value 'TRACE'"),
        (ToolKind.HTTP, {"url": "file:///etc/passwd"}, "must start with `http://` or `https://`"),
        (ToolKind.HTTP, {"url": "gopher://host/"}, "must start with `http://` or `https://`"),
        (ToolKind.HTTP, {"url": "https:///act"}, "must start with `http://` or `https://`"),
        (ToolKind.HTTP, {"url": "act"}, "must start with `http://` or `https://`"),
        (ToolKind.HTTP, {"url": "https://user:password@host/"}, "must hold no credential"),
        (ToolKind.HTTP, {"url": "https://host:99999/"}, "is not a URL"),
        (ToolKind.HTTP, {"url": "https://[::1/"}, "is not a URL"),
        (ToolKind.HTTP, {"url": "https://host/a b"}, "printable ASCII"),
        (ToolKind.HTTP, {"url": "https://host/\r\nX: y"}, "printable ASCII"),
        (ToolKind.HTTP, {"url": "https://höst/"}, "printable ASCII"),
        (ToolKind.HTTP, {"url": "https://host/" + "a" * 3_000}, "at most 2048 characters"),
        (ToolKind.HTTP, {"url": URL + "#part"}, "must have no fragment"),
        (ToolKind.HTTP, {"url": "https://{host}/act"}, "in the path of `target.url` only"),
        (ToolKind.HTTP, {"url": URL + "?q={name}"}, "in the path of `target.url` only"),
        (ToolKind.HTTP, {"url": URL + "/{not a name}"}, "printable ASCII"),
        (ToolKind.HTTP, {"url": URL + "/{1}"}, "in the path of `target.url` only"),
        (ToolKind.HTTP, {"url": URL, "headers": {"X-Token": "PATH"}}, "that starts with `CMBS_TOOL_SECRET_`"),
        (ToolKind.HTTP, {"url": URL, "headers": {"X-Token": "CMBS_TOOL_SECRET_"}}, "that starts with"),
        (ToolKind.HTTP, {"url": URL, "headers": {"X Token": "CMBS_TOOL_SECRET_A"}}, "is not the name of a header"),
        (ToolKind.HTTP, {"url": URL, "headers": {"Host": "CMBS_TOOL_SECRET_A"}}, "is not for a target to set"),
        (ToolKind.HTTP, {"url": URL, "headers": {"IDEMPOTENCY-key": "CMBS_TOOL_SECRET_A"}}, "not for a target to set"),
        (ToolKind.HTTP, {"url": URL, "headers": {f"H{n}": "CMBS_TOOL_SECRET_A" for n in range(21)}}, "at most 20"),
        (ToolKind.MCP, {"command": ["sh"]}, "unknown field `command`"),
        (ToolKind.MCP, {"server": ""}, "from 1 to 200 characters"),
        (ToolKind.MCP, {"server": "s", "tool": "t" * 201}, "from 1 to 200 characters"),
        (ToolKind.PYTHON, {"callable": 1}, "expected `str | null`"),
        (ToolKind.PYTHON, {"module": "os"}, "unknown field `module`"),
        (ToolKind.CALLER, {}, "is run by its caller, and has no target"),
    ],
)
def test_what_does_not_is_refused_by_name(kind: ToolKind, target: Any, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_target(tool_of(kind, target))
    assert said in refused.value.message
    assert refused.value.details == {"field": "target"}


# --- the file of servers ----------------------------------------------------------------------------------------------


def write(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return str(path)


@pytest.mark.req("SS01-TOOL-05")
def test_servers_are_read_from_a_file(tmp_path: Path) -> None:
    servers = {
        "files": {"transport": "stdio", "command": ["files", "--ro"], "env": {"TOKEN": "FILES_TOKEN"}, "cwd": "."},
        "web": {"transport": "http", "url": URL, "headers": {"Authorization": "WEB_TOKEN"}},
    }
    read = read_servers(write(tmp_path / "servers.json", {"servers": servers}))
    assert read == {
        "files": StdioServer(["files", "--ro"], {"TOKEN": "FILES_TOKEN"}, "."),
        "web": HttpServer(URL, {"Authorization": "WEB_TOKEN"}),
    }
    assert variables_of(read) == {"FILES_TOKEN", "WEB_TOKEN"}


def stdio(**more: Any) -> dict[str, Any]:
    return {"servers": {"s": {"transport": "stdio", "command": ["x"]} | more}}


@pytest.mark.req("SS01-TOOL-05")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "malformed JSON"),
        ('{"servers": {}, "servers": {}}', "duplicate key `servers`"),
        ("[]", "expected `object`, got `array`"),
        ({"servers": {"s": {"command": ["x"]}}}, "missing required field `transport`"),
        ({"servers": {"s": {"transport": "carrier pigeon"}}}, "invalid value 'carrier pigeon'"),
        (stdio(shell=True), "unknown field `shell`"),
        (stdio(command=[]), "server `s`: `command` must name a program"),
        (stdio(command=["x", "a\0b"]), "server `s`: a zero byte"),
        (stdio(start_seconds=0), "`start_seconds` must be from 1 to 600"),
        (stdio(max_message_bytes=0), "`max_message_bytes` must be from 1 to"),
        ({"servers": {"s": {"transport": "http", "url": "ftp://host/"}}}, "server `s`: `url` must start with"),
        ({"servers": {"s": {"transport": "http", "url": URL + "/{name}"}}}, "server `s`: `url` has no arguments"),
        (
            {"servers": {"s": {"transport": "http", "url": URL, "headers": {"Host": "X"}}}},
            "server `s`: the header `Host`",
        ),
        (" " * 1_048_577, "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_makes_no_sense_stops_the_start_and_is_named(tmp_path: Path, content: Any, said: str) -> None:
    path = write(tmp_path / "servers.json", content)
    with pytest.raises(InvalidRequest) as refused:
        open_tools({"CMBS_TOOL_SERVERS": path})
    assert path in refused.value.message
    assert said in refused.value.message
    assert refused.value.details == {"variable": "CMBS_TOOL_SERVERS"}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read `.*none\.json`: No such file"):
        read_servers(str(tmp_path / "none.json"))
