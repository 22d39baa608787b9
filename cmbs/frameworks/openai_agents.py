"""OpenAI Agents: function tools of which every call is a proposal.

Two hooks are needed. `needs_approval` can ask, and runs before the framework's approval alone. The tool input guardrail
runs after it and cannot ask; it decides by what the server says then.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from cmbs.calls.gated_call import GatedCall
from cmbs.calls.sentences import describe_not_made
from cmbs.errors import InvalidRequest
from cmbs.frameworks.answers import Answer
from cmbs.frameworks.gate import Gate, ToolRequest
from cmbs.frameworks.missing import MissingFramework

try:
    from agents import (
        FunctionTool,
        RunContextWrapper,
        RunState,
        Tool,
        ToolApprovalItem,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        ToolInputGuardrailData,
        default_tool_error_function,
    )
    from agents.tool_context import ToolContext
except ImportError as exc:
    raise MissingFramework("openai-agents", exc) from exc

_REJECTED = "the user of the agent rejected the call"
_EARLY = "the agent went on before the call was approved on the server; make it again, and go on when it is approved"


class ProposalTools:
    """Proposes every call of its tools; lets what is allowed run, once, and records its outcome.

    A call that waits is an interruption of the run: `resolve` the state of the run, and run it again. Ids of calls must
    differ within a case, as those of OpenAI's models do.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._names: set[str] = set()
        self._runs: dict[tuple[str, ...], GatedCall] = {}
        # The errors of the call that runs in this context.
        self._noted: ContextVar[list[Exception]] = ContextVar("noted")

    def wrap(self, tools: Iterable[FunctionTool]) -> list[Tool]:
        """Copies of function tools whose calls are proposed. Their own guardrails come first.

        InvalidRequest for a tool with `needs_approval` of its own: whether to ask about a call is the policy's to say.
        """
        return [self._wrap(tool) for tool in tools]

    async def resolve(
        self, state: RunState[Any, Any], rejected: Mapping[str, str] | None = None
    ) -> list[ToolApprovalItem]:
        """Decide the interruptions of a state by what the server says, so that it can be run; those that still wait.

        What the server let through then runs, and what it refused is told to the model. A call whose id is in
        `rejected`, with a reason, is rejected by the user of the agent: it is withdrawn, whatever the server says.
        """
        waiting = []
        for item in state.get_interruptions():
            if item.name not in self._names:
                continue
            request = self._parse(item.name, item.arguments, item.call_id)
            reason = (rejected or {}).get(item.call_id or "")
            if reason is not None:
                await self._reject(state, item, request, reason)
            elif await self._waits(request):
                waiting.append(item)
            else:
                state.approve(item)
        return waiting

    async def _waits(self, request: ToolRequest | None) -> bool:
        """Whether a call waits, for an approval or for what it depends on."""
        call = None if request is None else await self._gate.run_async(self._gate.look(request))
        return isinstance(call, GatedCall) and call.waits

    async def _reject(
        self, state: RunState[Any, Any], item: ToolApprovalItem, request: ToolRequest | None, message: str
    ) -> None:
        gate, reason = self._gate, f"{_REJECTED}: {message}" if message else _REJECTED
        call_id = None if request is None else await gate.run_async(gate.find(request))
        answer = await gate.run_async(gate.withdraw(call_id, reason))
        state.reject(item, rejection_message=answer.text)

    def _wrap(self, tool: FunctionTool) -> FunctionTool:
        if tool.needs_approval is not False:
            raise InvalidRequest(f"`{tool.name}` has `needs_approval` of its own; leave it to the policy")
        self._names.add(tool.name)
        spied = self._spy(tool)

        async def needs_approval(_: RunContextWrapper[Any], args: dict[str, Any], call_id: str) -> bool:
            return await self._waits(self._gate.request(tool.name, args, call_id))

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            return await self._invoke(spied, context, arguments)

        guardrail: ToolInputGuardrail[Any] = ToolInputGuardrail(self._judge, name="cmbs")
        return replace(
            tool,
            on_invoke_tool=invoke,
            needs_approval=needs_approval,
            # The last of them: what it lets through is begun.
            tool_input_guardrails=[*(tool.tool_input_guardrails or ()), guardrail],
        )

    def _spy(self, tool: FunctionTool) -> FunctionTool:
        """The tool, with its errors noted on their way to the model: else a failure would look like a result."""
        tell = default_tool_error_function if tool._use_default_failure_error_function else tool._failure_error_function  # noqa: SLF001
        if tell is None:
            return tool

        async def note(context: RunContextWrapper[Any], error: Exception) -> str:
            self._noted.get().append(error)
            told = tell(context, error)
            return await told if inspect.isawaitable(told) else told

        return replace(tool, _failure_error_function=note, _use_default_failure_error_function=False)

    async def _judge(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        gate, context = self._gate, data.context
        request = self._parse(context.tool_name, context.tool_arguments, context.tool_call_id)
        if request is None:
            return ToolGuardrailFunctionOutput.reject_content(describe_not_made("the arguments must be a JSON object"))
        begun = await gate.run_async(gate.begin(request))
        if isinstance(begun, GatedCall) and not begun.may_run:
            begun = await gate.run_async(gate.withdraw(begun.call_id, _EARLY))
        if isinstance(begun, Answer):
            return ToolGuardrailFunctionOutput.reject_content(begun.text)
        self._runs[context.tool_call_id, context.tool_name, context.tool_arguments] = begun
        return ToolGuardrailFunctionOutput.allow({"call_id": begun.call_id})

    async def _invoke(self, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
        gate = self._gate
        run = self._runs.pop((context.tool_call_id, context.tool_name, arguments), None)
        if run is None:
            raise InvalidRequest(f"`{context.tool_name}` is called without its guardrail, so that nothing was decided")
        noted: list[Exception] = []
        self._noted.set(noted)
        try:
            result = await tool.on_invoke_tool(context, arguments)
        except Exception as exc:
            await gate.run_async(gate.fail(run, exc))
            raise
        unrecorded = await gate.run_async(gate.fail(run, noted[0]) if noted else gate.succeed(run, result))
        return result if unrecorded is None else unrecorded.text

    def _parse(self, name: str | None, arguments: str | None, call_id: str | None) -> ToolRequest | None:
        """The call, as the model wrote it; None where its arguments are no object."""
        try:
            args = json.loads(arguments or "{}")
        except ValueError:
            return None
        return self._gate.request(str(name), args, call_id) if isinstance(args, dict) else None
