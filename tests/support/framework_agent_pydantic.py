"""An agent of Pydantic-AI as a process of its own, from messages in a file; see `framework_agent`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    FunctionToolset,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from cmbs.client import connect
from cmbs.frameworks.gate import Gate
from cmbs.frameworks.pydantic_ai import ProposalToolset
from tests.support.agent_frameworks import SPACE, TOKEN, build_restart

REQUESTS = TypeAdapter(DeferredToolRequests)
CRASH = {"service": "cache", "crash": True}
TURNS: list[Any] = [
    ToolCallPart("restart", {"service": "web"}, "c1"),
    ToolCallPart("restart", CRASH, "c2"),
    ToolCallPart("restart", CRASH, "c3"),
    TextPart("finished"),
]


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TURNS[sum(isinstance(message, ModelResponse) for message in messages)]])


def main(server: str, case_id: str, directory: str, what: str) -> None:
    kept, asked = Path(directory, "messages.json"), Path(directory, "asked.json")
    with connect(server, actor="agent:planner") as client:
        case = client.case(case_id, space=SPACE)
        case.open()
        tools: FunctionToolset[None] = FunctionToolset([build_restart(directory)])
        toolset = ProposalToolset(tools, gate=Gate(case, token=TOKEN))
        agent = Agent(FunctionModel(answer), toolsets=[toolset], output_type=[str, DeferredToolRequests])
        if what == "start":
            result: Any = asyncio.run(agent.run("go"))
        else:
            messages = ModelMessagesTypeAdapter.validate_json(kept.read_bytes())
            decided = asyncio.run(toolset.resolve(REQUESTS.validate_json(asked.read_bytes())))
            result = asyncio.run(agent.run(message_history=messages, deferred_tool_results=decided))
    for message in result.all_messages():
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                sys.stdout.write(str(part.content).partition("\n")[0] + "\n")
    is_waiting = isinstance(result.output, DeferredToolRequests)
    if is_waiting:
        kept.write_bytes(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
        asked.write_bytes(REQUESTS.dump_json(result.output))
    sys.stdout.write("waits\n" if is_waiting else "finished\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
