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
from cmbs.client import AsyncClient, connect
from cmbs.mcp.asking import identify_caller, open_api
from cmbs.mcp.claims import STATE_DIRECTORY, Claims, FileClaims, KeptClaim, MemoryClaims, find_state_directory
from cmbs.mcp.decisions import DecisionPoint
from cmbs.mcp.hooks import ClaudeHook, CursorHook, HookFailed, deny_claude, deny_cursor
from cmbs.system import RandomIds
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


async def open_point(claims: Claims | None = None) -> tuple[Any, AsyncClient, AsyncClient, DecisionPoint]:
    app = build_app(Settings(store="memory:"), {})
    api = open_api(app)
    operator = api.acting_as(identify_caller("operator:boss"))
    await operator.create_space("hooks", policy_file=POLICY)
    point = DecisionPoint(operator, "hooks", RandomIds(), claims=claims)
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
        point = DecisionPoint(operator, "hooks", RandomIds(), wait_seconds=20)
        deciding = asyncio.create_task(point.decide(agent, "claude.Bash", {"command": "ls"}))
        pending: list[ApprovalItem] = []
        while not pending:  # the proposal is made by the other task
            await asyncio.sleep(0)
            pending = (await operator.list_approvals("hooks", status="pending")).approvals
        await operator.approve("hooks", pending[0].approval_id)
        assert (await deciding).allowed
        app.close()

    asyncio.run(test())


@pytest.mark.req("CALL-CLAIM-02", "CALL-CLAIM-03", "MCP-HOOK-04")
def test_of_two_hook_processes_with_one_call_one_lets_it_through_and_its_outcome_is_reported_by_a_third(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        app, operator, agent, _ = await open_point()
        hooks = [
            ClaudeHook(DecisionPoint(operator, "hooks", RandomIds(), claims=claims), agent, None, None)
            for claims in (FileClaims(tmp_path / "claims", ("here",)) for _ in range(3))
        ]
        event = claude("Read", {"file_path": "a"})
        told = [(await hook.answer(event))["hookSpecificOutput"] for hook in hooks[:2]]
        assert [each["permissionDecision"] for each in told] == ["allow", "deny"]
        assert "begun by another process" in told[1]["permissionDecisionReason"]
        (kept,) = (tmp_path / "claims").iterdir()
        assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        (call_id,) = (await operator.list_proposals("hooks")).proposals[0].calls.values()
        # What the agent says of itself, beside the hook, is not believed.
        forged = await agent.report_call("hooks", call_id, "succeeded", result="never ran")
        assert (forged.status, forged.refusal and forged.refusal.code) == ("running", "WRONG_NONCE")
        assert await hooks[2].answer(claude("Read", {}, event="PostToolUse", tool_response={"content": "x"})) == {}
        done = await operator.get_call("hooks", call_id)
        assert (done.status, done.result) == ("done", {"content": "x"})
        assert list((tmp_path / "claims").iterdir()) == []
        app.close()

    asyncio.run(test())


@pytest.mark.req("MCP-HOOK-04")
def test_a_call_whose_claim_cannot_be_kept_is_not_let_through(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("no directory")

    async def test() -> None:
        app, operator, agent, point = await open_point(FileClaims(tmp_path / "claims", ()))
        verdict = await point.decide(agent, "claude.Read", {}, "toolu_1")
        assert not verdict.allowed
        assert verdict.call_id is not None
        assert "its claim cannot be kept" in verdict.reason
        failed = await operator.get_call("hooks", verdict.call_id)
        assert (failed.status, str(failed.error).startswith("not done: ")) == ("failed", True)
        app.close()

    asyncio.run(test())


@pytest.mark.req("MCP-HOOK-04")
def test_claims_are_kept_where_the_user_says_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_state_directory({STATE_DIRECTORY: "/s"}) == Path("/s")
    assert find_state_directory({"XDG_STATE_HOME": "/x"}) == Path("/x/cmbs")
    assert find_state_directory({}) == Path.home() / ".local/state/cmbs"
    monkeypatch.setattr("cmbs.mcp.claims._MAX_KEPT", 2)
    for claims in (MemoryClaims(), FileClaims(tmp_path, ("a",))):
        for number in range(3):
            claims.keep(f"c{number}", KeptClaim(f"c-{number}-0", "secret"))
        kept = [claims.find(f"c{number}") is not None for number in range(3)]
        assert (sum(kept), kept[2]) == (2, True)
        claims.drop("c2")
        claims.drop("c2")
        assert claims.find("c2") is None
    taken = FileClaims(tmp_path, ("b",))
    taken.keep("c", KeptClaim("c", "s"))
    with pytest.raises(FileExistsError):
        taken.keep("c", KeptClaim("c", "another"))


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


@pytest.mark.req("MCP-HOOK-01", "MCP-HOOK-04")
def test_the_process_after_a_call_reports_what_the_process_before_it_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from cmbs.cli.app import app

    monkeypatch.setenv(STATE_DIRECTORY, str(tmp_path / "state"))
    store = f"sqlite:///{tmp_path / 'h.db'}"
    with connect(store, actor="operator:boss") as operator:
        operator.create_space("hooks", policy_file=POLICY)

        def run(event: Json) -> Json:
            done = CliRunner().invoke(app, ["hook", "claude", "--store", store], input=json.dumps(event))
            answer: Json = json.loads(done.stdout)
            return answer

        before = run(claude("Read", {"file_path": "a"}))
        assert before["hookSpecificOutput"]["permissionDecision"] == "allow"
        after = claude("Read", {"file_path": "a"}, event="PostToolUse", tool_response={"content": "x"})
        assert run(after) == {}
        assert [each.result for each in operator.list_executions("hooks").executions] == [{"content": "x"}]
        # Once: the secret is gone with the outcome.
        assert run(after).keys() == {"systemMessage"}
