"""An agent of LangChain as a process of its own: it starts a run or resumes one, from a checkpoint in a file.

Arguments: the server, the case, the directory, and `start` or `resume`. It prints what the model was told. The tool
`crash` ends the process in the middle of the call.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from cmbs.client import connect
from cmbs.frameworks.gate import Gate
from cmbs.frameworks.langchain import ProposalMiddleware
from tests.support.agent_frameworks import SPACE, TOKEN, build_restart

CONFIG: Any = {"configurable": {"thread_id": "t1"}}
CALLS: list[Any] = [
    {"name": "restart", "args": {"service": "web"}, "id": "c1"},
    {"name": "restart", "args": {"service": "cache", "crash": True}, "id": "c2"},
]


class Scripted(FakeMessagesListChatModel):
    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self


def main(server: str, case_id: str, directory: str, what: str) -> None:
    responses = [AIMessage("", tool_calls=[each]) for each in (CALLS if what == "start" else CALLS[1:])]
    with (
        closing(sqlite3.connect(Path(directory, "graph.db"), check_same_thread=False)) as connection,
        connect(server, actor="agent:planner") as client,
    ):
        case = client.case(case_id, space=SPACE)
        case.open()
        agent: Any = create_agent(
            Scripted(responses=[*responses, AIMessage("finished")]),
            [build_restart(directory)],
            middleware=[ProposalMiddleware(Gate(case, token=TOKEN))],
            checkpointer=SqliteSaver(connection),
        )
        given: Any = {"messages": [HumanMessage("go")]} if what == "start" else None
        waiting = agent.get_state(CONFIG).interrupts
        if waiting:
            given = Command(resume={each.id: {"type": "approve"} for each in waiting})
        result = agent.invoke(given, CONFIG)
    for message in result["messages"]:
        if isinstance(message, ToolMessage):
            sys.stdout.write(message.text.partition("\n")[0] + "\n")
    sys.stdout.write("waits\n" if result.get("__interrupt__") else "finished\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
