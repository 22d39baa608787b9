"""An agent of OpenAI's SDK as a process of its own, from a state in a file; see `framework_agent`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner, RunState, ToolCallOutputItem, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from cmbs.client import connect
from cmbs.frameworks.gate import Gate
from cmbs.frameworks.openai_agents import ProposalTools
from tests.support.agent_frameworks import SPACE, TOKEN, build_restart

FIRST = [function_call("restart", json.dumps({"service": "web"}), call_id="c1")]
CRASH = json.dumps({"service": "cache", "crash": True})
NEXT = [[function_call("restart", CRASH, call_id=call_id)] for call_id in ("c2", "c3")]


async def run(agent: Any, tools: ProposalTools, state: str | None) -> Any:
    given: Any = "go"
    if state is not None:
        given = await RunState.from_string(agent, state)
        await tools.resolve(given)
    return await Runner.run(agent, given, run_config=RunConfig(tracing_disabled=True))


def main(server: str, case_id: str, directory: str, what: str) -> None:
    kept = Path(directory, "state.json")
    turns: list[Any] = [FIRST] if what == "start" else [*NEXT, [assistant_message("finished")]]
    with connect(server, actor="agent:planner") as client:
        case = client.case(case_id, space=SPACE)
        case.open()
        tools = ProposalTools(Gate(case, token=TOKEN))
        wrapped = tools.wrap([function_tool(build_restart(directory))])
        agent: Any = Agent(name="planner", model=ScriptedModel(turns), tools=wrapped)
        result = asyncio.run(run(agent, tools, kept.read_text("utf-8") if what == "resume" else None))
    for item in result.new_items:
        if isinstance(item, ToolCallOutputItem):
            sys.stdout.write(str(item.output).partition("\n")[0] + "\n")
    if result.interruptions:
        kept.write_text(result.to_state().to_string(), "utf-8")
    sys.stdout.write("waits\n" if result.interruptions else "finished\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
