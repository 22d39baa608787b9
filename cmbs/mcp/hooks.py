"""Hooks of coding agents: what the host says before a call, turned into a decision, in the host's own words.

Claude Code: `PreToolUse` decides, `PostToolUse` and `PostToolUseFailure` report, and `SessionStart` after a compaction
hands the belief back.
Cursor: `beforeShellExecution` and `beforeMCPExecution` decide. Whatever cannot be understood or asked is denied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cmbs.calls.sentences import describe_not_made
from cmbs.client import AsyncClient
from cmbs.errors import CmbsError
from cmbs.mcp.decisions import DecisionPoint, Verdict
from cmbs.mcp.server.belief_tools import NextProbesArgs, ReadBeliefArgs, next_probes, read_belief

Json = dict[str, Any]
_COMPACTED = ("compact", "resume")
# Events of a call that has been made.
_AFTER = ("PostToolUse", "PostToolUseFailure")


class HookFailed(Exception):
    """The host said something that this hook does not understand."""


class ClaudeHook:
    """The hook of Claude Code. `session_id` is the investigation whose belief is handed back after a compaction."""

    def __init__(self, point: DecisionPoint, agent: AsyncClient, case_id: str | None, session_id: str | None) -> None:
        self._point = point
        self._agent = agent
        self._case_id = case_id
        self._session_id = session_id

    async def answer(self, event: Mapping[str, Any]) -> Json:
        """What the host is told; HookFailed where the event makes no sense."""
        name = _text(event, "hook_event_name")
        if name == "PreToolUse":
            args = event.get("tool_input")
            if not isinstance(args, Mapping):
                raise HookFailed("`tool_input` must be an object")
            tool_id = f"claude.{_text(event, 'tool_name')}"
            call_id = str(event.get("tool_use_id") or "")
            verdict = await self._point.decide(self._agent, tool_id, args, call_id, self._case_id)
            return _tell_claude(verdict)
        if name in _AFTER:
            call_id = str(event.get("tool_use_id") or "")
            error = None if name == "PostToolUse" else str(event.get("error") or "it failed")
            if call_id:
                await self._point.report(self._agent, call_id, event.get("tool_response"), error)
            return {}
        if name == "SessionStart" and event.get("source") in _COMPACTED and self._session_id is not None:
            told = await describe_belief(self._agent, self._session_id)
            return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": told}}
        return {}


class CursorHook:
    """The hook of Cursor."""

    def __init__(self, point: DecisionPoint, agent: AsyncClient, case_id: str | None) -> None:
        self._point = point
        self._agent = agent
        self._case_id = case_id

    async def answer(self, event: Mapping[str, Any]) -> Json:
        """What the host is told; HookFailed where the event makes no sense."""
        name = _text(event, "hook_event_name")
        if name == "beforeShellExecution":
            args: Mapping[str, Any] = {"command": _text(event, "command"), "cwd": str(event.get("cwd") or "")}
            tool_id = "cursor.shell"
        elif name == "beforeMCPExecution":
            args, tool_id = _parse_input(event.get("tool_input")), f"cursor.mcp.{_text(event, 'tool_name')}"
        else:
            raise HookFailed(f"this hook decides about shell commands and MCP calls, and got `{name}`")
        verdict = await self._point.decide(self._agent, tool_id, args, case_id=self._case_id)
        permission = "allow" if verdict.allowed else "deny"
        return {"permission": permission, "user_message": verdict.reason, "agent_message": verdict.reason}


def deny_claude(why: str, event: Any = None) -> Json:
    """The answer to Claude Code where nothing could be decided; a warning to its user where there was nothing to."""
    if isinstance(event, Mapping) and event.get("hook_event_name") in (*_AFTER, "SessionStart"):
        return {"systemMessage": why}
    return _tell_claude(Verdict(allowed=False, reason=describe_not_made(why)))


def deny_cursor(why: str, event: Any = None) -> Json:  # noqa: ARG001 - every event that it is asked about is decided
    """The answer to Cursor where nothing could be decided."""
    told = describe_not_made(why)
    return {"permission": "deny", "user_message": told, "agent_message": told}


async def describe_belief(agent: AsyncClient, session_id: str) -> str:
    """What an agent is to know after its context was cut: what is left, and what it has seen."""
    belief = await read_belief(agent, ReadBeliefArgs(session_id, limit=20))
    lines = [
        f"You are investigating; the session of cmbs is `{session_id}`. Everything else was ruled out on record.",
        f"{belief['n_survivors']} hypotheses are left: {', '.join(belief['survivors'])}.",
    ]
    try:
        probes = await next_probes(agent, NextProbesArgs(session_id=session_id, limit=5))
    except CmbsError:
        # A session without a kit has no probes.
        return "\n".join(lines)
    if probes["asked"]:
        seen = ", ".join(f"{each['probe_id']} = {each['response']}" for each in probes["asked"])
        lines.append(f"You have seen already, and need not look again: {seen}.")
    if probes["probes"]:
        worth = ", ".join(each["probe_id"] for each in probes["probes"])
        lines.append(f"Worth asking next: {worth}.")
    return "\n".join(lines)


def _tell_claude(verdict: Verdict) -> Json:
    decision = "allow" if verdict.allowed else "deny"
    told = {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": verdict.reason,
    }
    return {"hookSpecificOutput": told}


def _parse_input(given: Any) -> Json:
    """The arguments of an MCP call, which Cursor hands over as JSON text."""
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as exc:
            raise HookFailed("`tool_input` is not JSON") from exc
    if not isinstance(given, Mapping):
        raise HookFailed("`tool_input` must be an object")
    return dict(given)


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not value:
        raise HookFailed(f"`{name}` must be a text")
    return value
