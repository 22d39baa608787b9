"""LangChain and LangGraph: a middleware that makes every tool call of an agent a proposal.

A call that waits is a LangGraph `interrupt`, so that the agent needs a checkpointer. The node runs again from its top
when it is resumed; what was decided is then read from the server, by the id of the proposal, and not worked out anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from cmbs.api.steps import Steps
from cmbs.calls.gated_call import GatedCall
from cmbs.errors import InvalidRequest
from cmbs.frameworks.answers import Answer, Question, build_question
from cmbs.frameworks.gate import Gate, ToolRequest
from cmbs.frameworks.missing import MissingFramework

try:
    from langchain.agents.middleware import AgentMiddleware, AgentState
    from langchain.tools.tool_node import ToolCallRequest
    from langchain_core.messages import ToolMessage
    from langgraph.errors import GraphInterrupt
    from langgraph.types import Command, interrupt
except ImportError as exc:
    raise MissingFramework("langchain", exc) from exc

Reply = ToolMessage | Command[Any]
_REJECTED = "the user of the agent rejected the call"
_EDITED = "the user of the agent changed its arguments"


class ProposalMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Proposes every tool call; runs what is let through, once, and records its outcome.

    A call that waits interrupts the graph with a `Question`. Resume it by `Command(resume={interrupt.id: answer})`:

    - `{"type": "approve"}` to go on. That approves nothing: where the server still waits, the graph interrupts again.
    - `{"type": "reject", "message": …}` to call it off, whatever the server says.
    - `{"type": "edit", "args": …}` to make another call of it, which is another proposal.

    Args:
        gate: The gate of the agent. With a case that awaits, the agent is run by `ainvoke` and `astream` alone.
        exempt: Names of tools that are not proposed, such as one that asks the user by an interrupt of its own.
    """

    def __init__(self, gate: Gate, *, exempt: Collection[str] = ()) -> None:
        super().__init__()
        self._gate = gate
        self._exempt = frozenset(exempt)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Reply]) -> Reply:
        """Decide about a call, run it, and record what came of it."""
        if request.tool_call["name"] in self._exempt:
            return handler(request)
        args, begun = self._gate.run(self._decide(self._read(request)))
        if isinstance(begun, Answer):
            return _tell(request, begun)
        try:
            reply = handler(_with_args(request, args))
        except Exception as exc:
            self._gate.run(self._gate.fail(begun, exc))
            raise
        unrecorded = self._gate.run(self._record(begun, reply))
        return reply if unrecorded is None else _tell(request, unrecorded)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Reply]]
    ) -> Reply:
        """The same, awaited."""
        if request.tool_call["name"] in self._exempt:
            return await handler(request)
        args, begun = await self._gate.run_async(self._decide(self._read(request)))
        if isinstance(begun, Answer):
            return _tell(request, begun)
        try:
            reply = await handler(_with_args(request, args))
        except Exception as exc:
            await self._gate.run_async(self._gate.fail(begun, exc))
            raise
        unrecorded = await self._gate.run_async(self._record(begun, reply))
        return reply if unrecorded is None else _tell(request, unrecorded)

    def _read(self, request: ToolCallRequest) -> ToolRequest:
        call = request.tool_call
        thread = request.runtime.config.get("configurable", {}).get("thread_id")
        return self._gate.request(call["name"], call["args"], call["id"], None if thread is None else str(thread))

    def _decide(self, asked: ToolRequest) -> Steps[tuple[dict[str, Any], GatedCall | Answer]]:
        """The arguments to run with, and the call that may be run, or what the model is told.

        All answers of the user are read first, in their order, each time the node runs, whatever the server says now:
        a rejected call stays rejected if it is approved later.
        """
        gate = self._gate
        for kind, told in _read_answers():
            # It was asked about before, perhaps by another process.
            known = yield from gate.find(asked)
            if kind == "reject":
                reason = f"{_REJECTED}: {told}" if told else _REJECTED
                return {}, (yield from gate.withdraw(known, reason))
            if kind == "edit":
                yield from gate.withdraw(known, _EDITED)
                asked = asked._replace(args=told)
        while True:
            begun = yield from gate.begin(asked)
            if isinstance(begun, Answer) or begun.may_run:
                return dict(asked.args), begun
            interrupt(build_question(begun.answer))

    def _record(self, run: GatedCall, reply: Reply) -> Steps[Answer | None]:
        if not isinstance(reply, ToolMessage):
            # It changes the state of the graph, which is in the checkpoint and not for the ledger.
            return (yield from self._gate.succeed(run, None))
        if reply.status == "error":
            return (yield from self._gate.fail(run, reply.text))
        return (yield from self._gate.succeed(run, reply.content))


def _read_answers() -> list[tuple[str, Any]]:
    """What the user answered so far to what was asked about this call, in order."""
    answers = []
    while True:
        try:
            # With no answer left it raises, and nothing is asked by that.
            answers.append(_parse(interrupt(None)))
        except GraphInterrupt:
            return answers


def _parse(answer: Any) -> tuple[str, Any]:
    """The kind of an answer, and the reason or the arguments in it; InvalidRequest for another shape."""
    match answer:
        case {"type": "approve"}:
            return "approve", None
        case {"type": "reject"}:
            return "reject", str(answer.get("message") or "")
        case {"type": "edit", "args": dict() as args}:
            return "edit", args
        case _:
            pass
    raise InvalidRequest(
        'resume with {"type": "approve"}, {"type": "reject", "message": …} or {"type": "edit", "args": {…}}'
    )


def _with_args(request: ToolCallRequest, args: dict[str, Any]) -> ToolCallRequest:
    """The request as it was approved. Arguments that were not changed stay the objects that they are."""
    return (
        request
        if args == request.tool_call["args"]
        else request.override(tool_call={**request.tool_call, "args": args})
    )


def _tell(request: ToolCallRequest, answer: Answer) -> ToolMessage:
    return ToolMessage(
        content=answer.text,
        name=request.tool_call["name"],
        tool_call_id=request.tool_call["id"],
        status="success" if answer.has_value else "error",
    )


__all__ = ["ProposalMiddleware", "Question"]
