"""Hooks of coding agents, in the hosts' own messages: decided by the space, on record, and closed where nothing is."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cmbs.api.spaces import ApprovalItem
from cmbs.bootstrap import Settings, build_app
from cmbs.client import AsyncClient
from cmbs.mcp.asking import identify_caller, open_api
from cmbs.mcp.decisions import DecisionPoint
from cmbs.mcp.hooks import ClaudeHook, CursorHook, HookFailed, deny_claude, deny_cursor
from cmbs.system import RandomIds, SystemClock
from tests.support.mcp_upstream import tool_of

Json = dict[str, Any]
POLICY: Json = {
    "format": 2,
    "rules": [
        {"name": "reads", "allow": "claude.Read"},
        {"name": "bash", "allow": "claude.Bash", "when": 'args.command.startsWith("git ")', "otherwise": "ask"},
        {"name": "shell", "allow": "cursor.shell", "when": 'args.command.startsWith("git ")', "otherwise": "ask"},
        {"name": "mcp", "allow": "cursor.mcp.search"},
    ],
}
COMMON = {"session_id": "abc", "transcript_path": "/t.jsonl", "cwd": "/w", "permission_mode": "default"}


def claude(tool: str, args: Json, call: str = "toolu_1", event: str = "PreToolUse", **more: Any) -> Json:
    named = {"hook_event_name": event, "tool_name": tool, "tool_input": args, "tool_use_id": call}
    return {**COMMON, **named, **more}


async def open_point() -> tuple[Any, AsyncClient, AsyncClient, DecisionPoint]:
    app = build_app(Settings(store="memory:"), {})
    api = open_api(app)
    operator = api.acting_as(identify_caller("operator:boss"))
    await operator.create_space("hooks", policy_file=POLICY)
    point = DecisionPoint(operator, "hooks", SystemClock(), RandomIds())
    return app, operator, api.acting_as(identify_caller("agent:coder")), point


@pytest.mark.req("MCP-HOOK-01")
def test_claude_code_is_told_allow_or_deny_and_reports_what_came_of_it() -> None:
    async def test() -> None:
        app, operator, agent, point = await open_point()
        hook = ClaudeHook(point, agent, None, None)
        told = []
        for number, (tool, args) in enumerate(
            [
                ("Read", {"file_path": "a"}),
                ("Bash", {"command": "rm -rf /"}),
                ("Write", {"file_path": "a"}),
                ("Read", {"file_path": "none"}),
            ]
        ):
            answer = (await hook.answer(claude(tool, args, f"toolu_{number}")))["hookSpecificOutput"]
            assert answer["hookEventName"] == "PreToolUse"
            assert answer["permissionDecisionReason"]
            told.append(answer["permissionDecision"])
        assert told == ["allow", "deny", "deny", "allow"]
        assert await hook.answer(claude("Read", {}, "toolu_0", "PostToolUse", tool_response={"content": "x"})) == {}
        assert await hook.answer(claude("Read", {}, "toolu_3", "PostToolUseFailure", error="no such file")) == {}
        executions = [each async for each in operator.each(operator.list_executions, "hooks")]
        assert [(each.status, each.error) for each in executions] == [
            ("succeeded", None),
            ("failed", "no such file"),
        ]
        proposals = [each async for each in operator.each(operator.list_proposals, "hooks")]
        assert [(each.status, tool_of(each)) for each in proposals] == [
            ("committed", "claude.Read"),
            ("withdrawn", "claude.Bash"),
            ("denied", "claude.Write"),
            ("failed", "claude.Read"),
        ]
        app.close()

    asyncio.run(test())


@pytest.mark.req("MCP-HOOK-01")
def test_a_call_that_an_operator_approves_while_the_host_waits_is_let_through() -> None:
    async def test() -> None:
        app, operator, agent, _ = await open_point()
        point = DecisionPoint(operator, "hooks", SystemClock(), RandomIds(), wait_seconds=20)
        deciding = asyncio.create_task(point.decide(agent, "claude.Bash", {"command": "ls"}))
        pending: list[ApprovalItem] = []
        while not pending:  # the proposal is made by the other task
            await asyncio.sleep(0)
            pending = (await operator.list_approvals("hooks", status="pending")).approvals
        await operator.approve("hooks", pending[0].approval_id)
        assert (await deciding).allowed
        app.close()

    asyncio.run(test())


@pytest.mark.req("MCP-HOOK-02")
def test_after_a_compaction_claude_code_is_handed_the_belief_back() -> None:
    async def test() -> None:
        app, operator, agent, point = await open_point()
        ontology = {"hypothesis_space_id": "s", "hypothesis_version": "1"}
        graph = {"causal_graph_ref": "none:", "causal_graph_version": "1"}
        hypotheses = ["disk", "memory", "network"]
        declared = await operator.declare_session(hypotheses=hypotheses, ontology={**ontology, **graph})
        session_id = declared.session_id
        await agent.eliminate(session_id, "me", ["disk"], observation_id="o")
        hook = ClaudeHook(point, agent, None, session_id)
        started = {**COMMON, "hook_event_name": "SessionStart", "source": "compact"}
        told = (await hook.answer(started))["hookSpecificOutput"]
        assert told["hookEventName"] == "SessionStart"
        assert "2 hypotheses are left: memory, network" in told["additionalContext"]
        assert await hook.answer({**started, "source": "startup"}) == {}
        app.close()

    asyncio.run(test())


@pytest.mark.req("MCP-HOOK-01")
def test_cursor_is_told_allow_or_deny_about_commands_and_mcp_calls() -> None:
    async def test() -> None:
        app, _, agent, point = await open_point()
        hook = CursorHook(point, agent, None)
        common = {"conversation_id": "c", "generation_id": "g", "workspace_roots": ["/w"]}
        shell = {**common, "hook_event_name": "beforeShellExecution", "cwd": "/w"}
        call = {**common, "hook_event_name": "beforeMCPExecution", "url": "http://x/mcp"}
        told = [
            (await hook.answer(event))["permission"]
            for event in (
                {**shell, "command": "git status"},
                {**shell, "command": "rm -rf /"},
                {**call, "tool_name": "search", "tool_input": json.dumps({"q": "x"})},
                {**call, "tool_name": "delete", "tool_input": json.dumps({"q": "x"})},
            )
        ]
        assert told == ["allow", "deny", "allow", "deny"]
        for bad in ({**call, "tool_name": "search", "tool_input": "{"}, {**call, "hook_event_name": "stop"}, {**shell}):
            with pytest.raises(HookFailed):
                await hook.answer(bad)
        app.close()

    asyncio.run(test())


@pytest.mark.req("MCP-HOOK-03")
@pytest.mark.parametrize("host", ["claude", "cursor"])
@pytest.mark.parametrize("event", [b"", b"[]", b"{", b'{"hook_event_name": 7}'])
def test_a_hook_that_cannot_decide_denies(host: str, event: bytes, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from cmbs.cli.app import app

    arguments = ["hook", host, "--store", f"sqlite:///{tmp_path / 'h.db'}"]
    done = CliRunner().invoke(app, arguments, input=event)
    answer = json.loads(done.stdout)
    expected = deny_claude("x") if host == "claude" else deny_cursor("x")
    assert done.exit_code == 0
    assert answer.keys() == expected.keys()
    decided = answer["hookSpecificOutput"]["permissionDecision"] if host == "claude" else answer["permission"]
    assert decided == "deny"


@pytest.mark.req("MCP-HOOK-03")
def test_an_outcome_that_cannot_be_recorded_is_a_warning_and_no_decision(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from cmbs.cli.app import app

    event = json.dumps(claude("Read", {}, "toolu_unknown", "PostToolUse", tool_response={}))
    done = CliRunner().invoke(app, ["hook", "claude", "--store", f"sqlite:///{tmp_path / 'h.db'}"], input=event)
    assert (done.exit_code, json.loads(done.stdout).keys()) == (0, {"systemMessage"})


@pytest.mark.slow
@pytest.mark.req("MCP-HOOK-03")
def test_a_hook_as_a_process_asks_the_store_and_denies_where_its_server_is_away(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cmbs", "hook", "claude"]
    event = json.dumps(claude("Bash", {"command": "ls"})).encode()

    def decide(*options: str) -> str:
        environment = {**os.environ, "CMBS_STORE": f"sqlite:///{tmp_path / 'h.db'}"}
        done = subprocess.run([*command, *options], input=event, capture_output=True, check=True, env=environment)
        return str(json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"])

    assert decide("--wait", "0") == "deny"
    assert decide("--server", "http://127.0.0.1:9") == "deny"
