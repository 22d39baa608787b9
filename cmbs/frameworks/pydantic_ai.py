"""Pydantic-AI: a toolset that makes every call of the tools in it a proposal.

A call that waits raises `ApprovalRequired`: the run ends with `DeferredToolRequests`, and another one goes on with the
results that `resolve` makes of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

from cmbs.frameworks.answers import Answer, build_question
from cmbs.frameworks.gate import Gate
from cmbs.frameworks.missing import MissingFramework

try:
    from pydantic_ai import (
        ApprovalRequired,
        DeferredToolRequests,
        DeferredToolResults,
        RunContext,
        ToolApproved,
        ToolDenied,
        ToolReturn,
    )
    from pydantic_ai.tools import AgentDepsT
    from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
except ImportError as exc:
    raise MissingFramework("pydantic-ai", exc) from exc

Decision: TypeAlias = "bool | ToolApproved | ToolDenied"
_REJECTED = "the user of the agent rejected the call"
# In the metadata of a call that waits: what its user made of its arguments.
_EDITED_ARGS = "edited_args"
_EDITED = "the user of the agent changed its arguments"


@dataclass
class ProposalToolset(WrapperToolset[AgentDepsT]):
    """Proposes every call of the wrapped tools; runs what is let through, once, and records its outcome.

    The agent needs `DeferredToolRequests` among its output types where calls may wait.
    """

    _: KW_ONLY
    gate: Gate

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[AgentDepsT], tool: ToolsetTool[AgentDepsT]
    ) -> Any:
        """Decide about a call, run it, and record what came of it. The server alone says whether it is approved."""
        gate = self.gate
        begun = await gate.run_async(gate.begin(gate.request(name, tool_args, ctx.tool_call_id, ctx.conversation_id)))
        if isinstance(begun, Answer):
            return _tell(begun)
        if not begun.may_run:
            edited = (ctx.tool_call_metadata or {}).get(_EDITED_ARGS)
            question = build_question(begun.answer)
            raise ApprovalRequired(metadata={**question, **({} if edited is None else {_EDITED_ARGS: edited})})
        try:
            result = await super().call_tool(name, tool_args, ctx, tool)
        except Exception as exc:
            await gate.run_async(gate.fail(begun, exc))
            raise
        value = result.return_value if isinstance(result, ToolReturn) else result
        unrecorded = await gate.run_async(gate.succeed(begun, value))
        return result if unrecorded is None else _tell(unrecorded)

    async def resolve(
        self, requests: DeferredToolRequests, decisions: Mapping[str, Decision] | None = None
    ) -> DeferredToolResults:
        """The results to go on with, from what the server says of each call that waited, and what the user decided.

        A call that the user denies is withdrawn, whatever the server says. With `override_args` it is another call, and
        so another proposal. One that still waits asks again. Calls of other toolsets are left out.
        """
        results = DeferredToolResults()
        for call in requests.approvals:
            call_id, asked = call.tool_call_id, requests.metadata.get(call.tool_call_id, {})
            if "call_id" not in asked:
                continue
            # The framework forgets an edit; without another one it still holds.
            before = asked.get(_EDITED_ARGS)
            decision = await self._resolve(asked["call_id"], before, (decisions or {}).get(call_id, True))
            results.approvals[call_id] = decision
            if isinstance(decision, ToolApproved):
                results.metadata[call_id] = {_EDITED_ARGS: decision.override_args}
        return results

    async def _resolve(self, call_id: str, before: dict[str, Any] | None, decision: Decision) -> Decision:
        gate = self.gate
        if decision is False or isinstance(decision, ToolDenied):
            reason = f"{_REJECTED}: {decision.message}" if isinstance(decision, ToolDenied) else _REJECTED
            return ToolDenied((await gate.run_async(gate.withdraw(call_id, reason))).text)
        edited = decision.override_args if isinstance(decision, ToolApproved) else None
        if edited is not None and edited != before:
            await gate.run_async(gate.withdraw(call_id, _EDITED))
            return decision
        return True if before is None else ToolApproved(override_args=before)


def _tell(answer: Answer) -> Any:
    return answer.value if answer.has_value else ToolDenied(answer.text)
