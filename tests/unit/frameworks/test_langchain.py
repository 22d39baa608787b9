"""Agents of LangChain, with a scripted model: approve, reject, edit, calls in parallel, and a restart."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, Interrupt, interrupt

from cmbs.client import Case, connect_async
from cmbs.errors import InvalidRequest
from cmbs.frameworks.gate import Gate
from cmbs.frameworks.langchain import ProposalMiddleware
from tests.support.agent_frameworks import SPACE, TOKEN, World

# Importing the framework takes seconds.
pytestmark = pytest.mark.slow

CONFIG: Any = {"configurable": {"thread_id": "t1"}}
APPROVE = {"type": "approve"}
REJECT = {"type": "reject", "message": "not now"}


class Scripted(FakeMessagesListChatModel):
    """A model that answers what it was told to, in order, and takes any tools."""

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        return self


def call(name: str, call_id: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def script(*turns: list[dict[str, Any]]) -> Scripted:
    messages: list[BaseMessage] = [AIMessage(content="", tool_calls=calls) for calls in turns]
    return Scripted(responses=[*messages, AIMessage(content="finished")])


def tools_of(world: World) -> list[BaseTool]:
    @tool
    def look(service: str = "all") -> str:
        """Look at a service."""
        return world.act("look", service=service)

    @tool
    def restart(service: str) -> str:
        """Restart a service."""
        return world.act("restart", service=service)

    @tool
    def drop(table: str) -> str:
        """Drop a table."""
        return world.act("drop", table=table)

    @tool
    def ask_user(question: str) -> str:
        """Ask the user."""
        return str(interrupt(question))

    return [look, restart, drop, ask_user]


class Session:
    """An agent over a case, as one process has it."""

    def __init__(self, world: World, case: Case, model: Scripted, saver: Any = None) -> None:
        self.world = world
        self.case = case
        middleware = ProposalMiddleware(world.open_gate(case), exempt=["ask_user"])
        self.agent: Any = create_agent(
            model, tools_of(world), middleware=[middleware], checkpointer=saver or InMemorySaver()
        )

    def start(self) -> dict[str, Any]:
        result: dict[str, Any] = self.agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
        return result

    def resume(self, result: dict[str, Any], *answers: Any) -> dict[str, Any]:
        """Answer each interrupt by its id."""
        asked = {each.id: answer for each, answer in zip(interrupts(result), answers, strict=True)}
        resumed: dict[str, Any] = self.agent.invoke(Command(resume=asked), CONFIG)
        return resumed


def interrupts(result: dict[str, Any]) -> list[Interrupt]:
    return list(result.get("__interrupt__", ()))


def replies(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Status and text of each tool message, as the model sees them."""
    return [(each.status, each.text) for each in result["messages"] if isinstance(each, ToolMessage)]


def begin(world: World, *turns: list[dict[str, Any]]) -> Session:
    return Session(world, world.open_case(), script(*turns))


@pytest.mark.req("FRAME-LC-01")
def test_an_allowed_call_runs_once_and_its_outcome_is_on_record(world: World) -> None:
    session = begin(world, [call("look", "c1", service="web")])
    result = session.start()
    assert replies(result) == [("success", "look of web: done")]
    assert result["messages"][-1].text == "finished"
    assert world.ran == ["look web"]
    (execution,) = world.executions(session.case)
    assert (execution.status, execution.result) == ("succeeded", "look of web: done")


@pytest.mark.req("FRAME-LC-01")
def test_of_calls_in_parallel_the_denied_one_says_why_and_the_others_run(world: World) -> None:
    session = begin(
        world,
        [call("look", "c1", service="web"), call("drop", "c2", table="orders"), call("look", "c3", service="api")],
    )
    looked, dropped, other = replies(session.start())
    assert (looked, other) == (("success", "look of web: done"), ("success", "look of api: done"))
    assert dropped[0] == "error"
    assert dropped[1].startswith("Not done: the call is not allowed. Nothing was changed.\n`NO_ALLOW`: ")
    assert sorted(world.ran) == ["look api", "look web"]


@pytest.mark.req("FRAME-LC-02")
def test_a_call_runs_when_an_operator_has_approved_it_and_not_because_the_user_goes_on(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    (asked,) = interrupts(result)
    assert (asked.value["tool_id"], asked.value["args"]) == ("restart", {"service": "web"})
    result = session.resume(result, APPROVE)
    (again,) = interrupts(result)
    assert again.value["call_id"] == asked.value["call_id"]
    assert world.ran == []
    world.approve(session.case)
    assert replies(session.resume(result, APPROVE)) == [("success", "restart of web: done")]
    assert world.ran == ["restart web"]


@pytest.mark.req("FRAME-LC-02")
def test_a_call_that_the_user_rejects_stays_rejected_where_an_operator_approves_it_meanwhile(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    world.approve(session.case)
    ((status, text),) = replies(session.resume(result, REJECT))
    assert (status, text.startswith("Not done: the user of the agent rejected the call: not now.")) == ("error", True)
    assert world.ran == []
    assert [each.status for each in world.executions(session.case)] == ["not_started"]


@pytest.mark.req("FRAME-LC-02")
def test_a_later_no_counts_also_after_an_earlier_yes(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.resume(session.start(), APPROVE)
    world.approve(session.case)
    assert "rejected the call" in replies(session.resume(result, REJECT))[0][1]
    assert world.ran == []


@pytest.mark.req("FRAME-LC-02")
def test_a_call_that_an_operator_rejects_does_not_run(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    world.reject(session.case, "never")
    ((status, text),) = replies(session.resume(result, APPROVE))
    assert (status, "it is rejected" in text) == ("error", True)
    assert world.ran == []


@pytest.mark.req("FRAME-LC-03")
def test_edited_arguments_are_another_proposal_which_is_asked_about_by_itself(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    result = session.resume(result, {"type": "edit", "args": {"service": "api"}})
    (asked,) = interrupts(result)
    assert asked.value["args"] == {"service": "api"}
    assert sorted(each.status for each in world.proposals(session.case)) == ["asked", "withdrawn"]
    world.approve(session.case)
    assert replies(session.resume(result, APPROVE)) == [("success", "restart of api: done")]
    assert world.ran == ["restart api"]
    # An edit to what the policy allows needs no more.
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.resume(session.start(), {"type": "edit", "args": {"service": "cache"}})
    assert replies(result) == [("success", "restart of cache: done")]


@pytest.mark.req("FRAME-LC-02")
def test_calls_in_parallel_are_asked_about_and_answered_one_by_one(world: World) -> None:
    session = begin(
        world, [call("restart", "c1", service="web"), call("restart", "c2", service="api"), call("look", "c3")]
    )
    result = session.start()
    assert len(interrupts(result)) == 2
    world.approve(session.case)
    by_service = {
        "web": APPROVE,
        "api": REJECT,
    }
    answers = [by_service[each.value["args"]["service"]] for each in interrupts(result)]
    first, second, third = replies(session.resume(result, *answers))
    assert (first, third[0]) == (("success", "restart of web: done"), "success")
    assert second[0] == "error"
    assert sorted(world.ran) == ["look all", "restart web"]


@contextmanager
def saver_at(path: Path) -> Iterator[SqliteSaver]:
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


@pytest.mark.req("FRAME-06")
def test_a_run_is_resumed_by_another_process_from_its_checkpoint(world: World, tmp_path: Path) -> None:
    case = world.open_case()
    turns = [call("look", "c1"), call("restart", "c2", service="web")]
    with saver_at(tmp_path / "graph.db") as saver:
        result = Session(world, case, script(turns), saver).start()
    world.approve(case)
    with saver_at(tmp_path / "graph.db") as saver:
        resumed = Session(world, world.join(str(case.case_id)), script(), saver).resume(result, APPROVE)
    assert replies(resumed) == [("success", "look of all: done"), ("success", "restart of web: done")]
    assert sorted(world.ran) == ["look all", "restart web"]


@pytest.mark.req("FRAME-06")
def test_a_tool_that_was_cut_off_is_unknown_and_does_not_run_again(world: World, tmp_path: Path) -> None:
    case = world.open_case()

    class Killed(BaseException):
        """The process ends here."""

    @tool
    def restart(service: str) -> str:
        """Restart a service."""
        world.act("restart", service=service)
        raise Killed

    with saver_at(tmp_path / "graph.db") as saver:
        middleware = ProposalMiddleware(world.open_gate(case))
        model = script([call("restart", "c1", service="cache")])
        agent: Any = create_agent(model, [restart], middleware=[middleware], checkpointer=saver)
        with pytest.raises(Killed):
            agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)
    with saver_at(tmp_path / "graph.db") as saver:
        resumed = Session(world, world.join(str(case.case_id)), script(), saver).agent.invoke(None, CONFIG)
    ((status, text),) = replies(resumed)
    assert (status, text.startswith("Unknown: this call was begun")) == ("error", True)
    assert world.ran == ["restart cache"]


def test_a_tool_that_fails_is_recorded_as_failed(world: World) -> None:
    session = begin(world, [call("look", "c1", service="broken")])
    with pytest.raises(ZeroDivisionError):
        session.start()
    (execution,) = world.executions(session.case)
    assert (execution.status, execution.error) == ("failed", "ZeroDivisionError: it broke")
    # The model sent what the tool does not take: the framework tells it so.
    session = begin(world, [call("look", "c1", service={"no": "text"})])
    assert replies(session.start())[0][0] == "error"
    assert [each.status for each in world.executions(session.case)] == ["failed"]


def test_a_tool_that_is_exempt_asks_by_itself(world: World) -> None:
    session = begin(world, [call("ask_user", "c1", question="which one?")])
    result = session.resume(session.start(), "the blue one")
    assert replies(result) == [("success", "the blue one")]
    assert world.proposals(session.case) == []


def test_a_tool_may_change_the_state_of_the_graph(world: World) -> None:
    @tool
    def look() -> Command[Any]:
        """Look."""
        return Command(update={"messages": [ToolMessage("seen", tool_call_id="c1")]})

    case = world.open_case()
    model = script([call("look", "c1")])
    agent: Any = create_agent(model, [look], middleware=[ProposalMiddleware(world.open_gate(case))])
    assert replies(agent.invoke({"messages": [HumanMessage("go")]}, CONFIG)) == [("success", "seen")]
    assert [(each.status, each.result) for each in world.executions(case)] == [("succeeded", None)]


def test_an_answer_of_another_shape_is_refused(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    with pytest.raises(InvalidRequest, match="resume with"):
        session.resume(session.start(), "yes")


@pytest.mark.req("FRAME-LC-01")
@pytest.mark.parametrize("awaits", [False, True], ids=["case that blocks", "case that awaits"])
def test_an_agent_that_is_awaited_does_the_same(awaits: bool, world: World) -> None:
    case = world.open_case()

    async def go() -> None:
        async with connect_async(world.address, actor="agent:planner") as client:
            joined = client.case(case.case_id, space=SPACE)
            await joined.open()
            gate = Gate(joined if awaits else case, token=TOKEN)
            turns = [call("look", "c1"), call("drop", "c2", table="t"), call("restart", "c3", service="web")]
            agent: Any = create_agent(
                script(turns), tools_of(world), middleware=[ProposalMiddleware(gate)], checkpointer=InMemorySaver()
            )
            result = await agent.ainvoke({"messages": [HumanMessage("go")]}, CONFIG)
            (asked,) = interrupts(result)
            world.approve(case)
            result = await agent.ainvoke(Command(resume={asked.id: APPROVE}), CONFIG)
            assert [status for status, _ in replies(result)] == ["success", "error", "success"]

    asyncio.run(go())
    assert sorted(world.ran) == ["look all", "restart web"]
