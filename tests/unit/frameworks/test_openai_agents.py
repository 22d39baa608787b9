"""Agents of OpenAI's SDK, with its scripted model: approve, reject, another call, calls in parallel, and a restart."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    ToolCallOutputItem,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    UserError,
    function_tool,
    tool_input_guardrail,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from cmbs.client import Case
from cmbs.errors import InvalidRequest
from cmbs.frameworks.openai_agents import ProposalTools
from tests.support.agent_frameworks import World

# Importing the framework takes seconds.
pytestmark = pytest.mark.slow

CONFIG = RunConfig(tracing_disabled=True)


def call(name: str, call_id: str, **args: Any) -> Any:
    return function_call(name, json.dumps(args), call_id=call_id)


def script(*turns: list[Any]) -> ScriptedModel:
    return ScriptedModel([*turns, [assistant_message("finished")]])


def tools_of(world: World) -> list[FunctionTool]:
    @function_tool
    def look(service: str = "all") -> str:
        """Look at a service."""
        return world.act("look", service=service)

    @function_tool
    async def restart(service: str) -> str:
        """Restart a service."""
        return world.act("restart", service=service)

    @function_tool
    def drop(table: str) -> str:
        """Drop a table."""
        return world.act("drop", table=table)

    return [look, restart, drop]


class Session:
    """An agent over a case, as one process has it."""

    def __init__(self, world: World, case: Case, model: ScriptedModel) -> None:
        self.world = world
        self.case = case
        self.tools = ProposalTools(world.open_gate(case))
        self.agent = Agent(name="planner", model=model, tools=self.tools.wrap(tools_of(world)))

    async def run(self, what: Any = "go") -> RunResult:
        return await Runner.run(self.agent, what, run_config=CONFIG)


def begin(world: World, *turns: list[Any]) -> Session:
    return Session(world, world.open_case(), script(*turns))


def replies(result: RunResult) -> list[str]:
    """What the model is told of its calls."""
    return [str(item.output) for item in result.new_items if isinstance(item, ToolCallOutputItem)]


@pytest.mark.req("FRAME-OA-01")
def test_an_allowed_call_runs_once_and_its_outcome_is_on_record(world: World) -> None:
    session = begin(world, [call("look", "c1", service="web")])
    result = asyncio.run(session.run())
    assert (replies(result), result.final_output) == (["look of web: done"], "finished")
    assert world.ran == ["look web"]
    (execution,) = world.executions(session.case)
    assert (execution.status, execution.result) == ("succeeded", "look of web: done")


@pytest.mark.req("FRAME-OA-01")
def test_of_calls_in_parallel_the_denied_one_says_why_and_the_others_run(world: World) -> None:
    session = begin(world, [call("look", "c1"), call("drop", "c2", table="orders"), call("look", "c3", service="api")])
    looked, dropped, other = replies(asyncio.run(session.run()))
    assert (looked, other) == ("look of all: done", "look of api: done")
    assert dropped.startswith("Not done: the call is not allowed. Nothing was changed.\n`NO_ALLOW`: ")
    assert sorted(world.ran) == ["look all", "look api"]


@pytest.mark.req("FRAME-OA-02")
def test_a_call_runs_when_an_operator_has_approved_it(world: World) -> None:
    session = begin(world, [call("look", "c0"), call("restart", "c1", service="web")])

    async def go() -> RunResult:
        result = await session.run()
        assert [item.name for item in result.interruptions] == ["restart"]
        state = result.to_state()
        assert [item.call_id for item in await session.tools.resolve(state)] == ["c1"]
        world.approve(session.case)
        assert await session.tools.resolve(state) == []
        return await session.run(state)

    assert sorted(replies(asyncio.run(go()))) == ["look of all: done", "restart of web: done"]
    assert sorted(world.ran) == ["look all", "restart web"]


@pytest.mark.req("FRAME-OA-02")
def test_what_the_user_approves_alone_does_not_run(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])

    async def go() -> RunResult:
        state = (await session.run()).to_state()
        for item in state.get_interruptions():
            state.approve(item)
        return await session.run(state)

    (told,) = replies(asyncio.run(go()))
    assert told.startswith("Not done: the agent went on before the call was approved on the server")
    assert world.ran == []
    assert [each.status for each in world.proposals(session.case)] == ["withdrawn"]


@pytest.mark.req("FRAME-OA-02")
@pytest.mark.parametrize("is_approved", [False, True])
def test_a_call_that_the_user_rejects_stays_rejected(is_approved: bool, world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])

    async def go() -> RunResult:
        state = (await session.run()).to_state()
        if is_approved:
            world.approve(session.case)
        assert await session.tools.resolve(state, {"c1": "not now"}) == []
        return await session.run(state)

    (told,) = replies(asyncio.run(go()))
    assert told.startswith("Not done: the user of the agent rejected the call: not now. Nothing was changed.")
    assert world.ran == []
    assert [each.status for each in world.executions(session.case)] == (["not_started"] if is_approved else [])
    world.approve(session.case)
    assert world.ran == []


@pytest.mark.req("FRAME-OA-02")
def test_a_call_that_an_operator_rejects_does_not_run_and_the_next_one_is_another_proposal(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")], [call("restart", "c2", service="cache")])

    async def go() -> RunResult:
        state = (await session.run()).to_state()
        world.reject(session.case, "the cache, if anything")
        assert await session.tools.resolve(state) == []
        return await session.run(state)

    refused, restarted = replies(asyncio.run(go()))
    assert "it is rejected" in refused
    assert restarted == "restart of cache: done"
    assert world.ran == ["restart cache"]
    assert [each.status for each in world.proposals(session.case)] == ["rejected", "committed"]


@pytest.mark.req("FRAME-06")
def test_a_run_is_resumed_by_another_process_from_its_state(world: World) -> None:
    case = world.open_case()
    turn = [call("look", "c1"), call("restart", "c2", service="web"), call("restart", "c3", service="api")]

    async def interrupt() -> str:
        return (await Session(world, case, script(turn)).run()).to_state().to_string()

    async def go_on(kept: str) -> RunResult:
        session = Session(world, world.join(str(case.case_id)), script())
        state = await RunState.from_string(session.agent, kept)
        assert await session.tools.resolve(state, {"c3": ""}) == []
        return await session.run(state)

    kept = asyncio.run(interrupt())
    world.approve(case)
    refused, *done = sorted(replies(asyncio.run(go_on(kept))))
    assert refused.startswith("Not done: the user of the agent rejected the call.")
    assert done == ["look of all: done", "restart of web: done"]
    assert sorted(world.ran) == ["look all", "restart web"]


@pytest.mark.req("FRAME-06")
def test_a_state_that_is_resumed_twice_runs_a_call_once(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])

    async def go() -> list[str]:
        kept = (await session.run()).to_state().to_string()
        world.approve(session.case)
        told = []
        for _ in range(2):
            again = Session(world, world.join(str(session.case.case_id)), script())
            state = await RunState.from_string(again.agent, kept)
            assert await again.tools.resolve(state) == []
            told += replies(await again.run(state))
        return told

    assert asyncio.run(go()) == ["restart of web: done"] * 2
    assert world.ran == ["restart web"]


def test_a_tool_that_fails_is_recorded_as_failed_though_the_model_is_told_in_words(world: World) -> None:
    session = begin(world, [call("look", "c1", service="broken")], [call("look", "c2", service={"no": "text"})])
    broken, invalid = replies(asyncio.run(session.run()))
    assert broken.startswith("An error occurred while running the tool.")
    assert invalid.startswith("An error occurred while running the tool.")
    first, second = world.executions(session.case)
    assert (first.status, first.error) == ("failed", "ZeroDivisionError: it broke")
    assert second.status == "failed"


def test_a_tool_whose_errors_end_the_run_is_recorded_as_failed(world: World) -> None:
    @function_tool(failure_error_function=None)
    def look() -> str:
        """Look."""
        raise ZeroDivisionError("it broke")

    case = world.open_case()
    tools = ProposalTools(world.open_gate(case)).wrap([look])
    agent = Agent(name="planner", model=script([call("look", "c1")]), tools=tools)
    with pytest.raises(UserError, match="it broke"):
        asyncio.run(Runner.run(agent, "go", run_config=CONFIG))
    assert [each.status for each in world.executions(case)] == ["failed"]


def test_arguments_that_are_no_object_are_told_to_the_model(world: World) -> None:
    session = begin(world, [function_call("look", "no json", call_id="c1")])

    async def go(rejected: dict[str, str]) -> RunResult:
        state = (await session.run()).to_state()
        assert len(state.get_interruptions()) == 1
        assert await session.tools.resolve(state, rejected) == []
        return await session.run(state)

    assert replies(asyncio.run(go({}))) == ["Not done: the arguments must be a JSON object. Nothing was changed."]
    session = begin(world, [function_call("look", "no json", call_id="c1")])
    (told,) = replies(asyncio.run(go({"c1": "no"})))
    assert told == "Not done: the user of the agent rejected the call: no. Nothing was changed."
    assert world.proposals(session.case) == []


def test_guardrails_of_a_tool_come_first_and_what_they_refuse_is_not_begun(world: World) -> None:
    @tool_input_guardrail
    def refuse(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("no secrets")

    look, *_ = tools_of(world)
    look.tool_input_guardrails = [refuse]
    case = world.open_case()
    agent = Agent(
        name="planner", model=script([call("look", "c1")]), tools=ProposalTools(world.open_gate(case)).wrap([look])
    )
    assert replies(asyncio.run(Runner.run(agent, "go", run_config=CONFIG))) == ["no secrets"]
    assert world.ran == []


def test_a_tool_that_asks_by_itself_is_refused(world: World) -> None:
    @function_tool(needs_approval=True)
    def look() -> str:
        """Look."""
        return "seen"

    with pytest.raises(InvalidRequest, match="leave it to the policy"):
        ProposalTools(world.open_gate()).wrap([look])
