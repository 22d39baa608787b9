"""Agents of Pydantic-AI, with a scripted model: approve, reject, edit, calls in parallel, and a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    AgentRunResult,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from cmbs.client import Case
from cmbs.frameworks.pydantic_ai import ProposalToolset
from tests.support.agent_frameworks import World

# Importing the framework takes seconds.
pytestmark = pytest.mark.slow

Turn = list[ToolCallPart]
Result = AgentRunResult[Any]


def call(name: str, call_id: str, **args: Any) -> ToolCallPart:
    return ToolCallPart(name, args, call_id)


def script(*turns: Turn) -> FunctionModel:
    """A model that answers by how often it has answered in the conversation so far."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=turns[number] if number < len(turns) else [TextPart("finished")])

    return FunctionModel(answer)


class Place(BaseModel):
    service: str
    zone: str = "eu"


def tools_of(world: World) -> FunctionToolset[None]:
    toolset: FunctionToolset[None] = FunctionToolset()

    @toolset.tool_plain
    def look(service: str = "all") -> str:
        return world.act("look", service=service)

    @toolset.tool_plain
    def restart(service: str) -> ToolReturn[str]:
        return ToolReturn(world.act("restart", service=service), metadata={"kept": "by the framework"})

    @toolset.tool_plain
    def drop(table: str) -> str:
        return world.act("drop", table=table)

    @toolset.tool_plain
    def scale(place: Place) -> Place:
        world.act("scale", service=place.service)
        return place

    return toolset


class Session:
    """An agent over a case, as one process has it."""

    def __init__(self, world: World, case: Case, *turns: Turn) -> None:
        self.case = case
        self.toolset = ProposalToolset(tools_of(world), gate=world.open_gate(case))
        self.agent = Agent(script(*turns), toolsets=[self.toolset], output_type=[str, DeferredToolRequests])

    def start(self) -> Result:
        return asyncio.run(self.agent.run("go"))

    def resume(self, result: Result, decisions: dict[str, Any] | None = None) -> Result:
        return self.go_on(result.all_messages(), asyncio.run(self.toolset.resolve(result.output, decisions)))

    def go_on(self, messages: Sequence[ModelMessage], results: DeferredToolResults) -> Result:
        return asyncio.run(self.agent.run(message_history=messages, deferred_tool_results=results))


def begin(world: World, *turns: Turn) -> Session:
    return Session(world, world.open_case(), *turns)


def replies(result: Result) -> list[tuple[str, Any]]:
    """How each call came out and what was returned, as the model sees it."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return [(part.outcome, part.content) for part in parts if isinstance(part, ToolReturnPart)]


@pytest.mark.req("FRAME-PA-01")
def test_an_allowed_call_runs_once_and_its_outcome_is_on_record(world: World) -> None:
    session = begin(world, [call("look", "c1", service="web")])
    result = session.start()
    assert (replies(result), result.output) == ([("success", "look of web: done")], "finished")
    assert world.ran == ["look web"]
    (execution,) = world.executions(session.case)
    assert (execution.status, execution.result) == ("succeeded", "look of web: done")


@pytest.mark.req("FRAME-PA-01")
def test_of_calls_in_parallel_the_denied_one_says_why_and_the_others_run(world: World) -> None:
    session = begin(world, [call("look", "c1"), call("drop", "c2", table="orders"), call("look", "c3", service="api")])
    looked, dropped, other = replies(session.start())
    assert (looked, other) == (("success", "look of all: done"), ("success", "look of api: done"))
    assert dropped[0] == "denied"
    assert dropped[1].startswith("Not done: the call is not allowed. Nothing was changed.\n`NO_ALLOW`: ")
    assert sorted(world.ran) == ["look all", "look api"]


@pytest.mark.req("FRAME-PA-02")
def test_a_call_runs_when_an_operator_has_approved_it_and_not_because_the_user_goes_on(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    assert (result.output.metadata["c1"]["tool_id"], result.output.metadata["c1"]["args"]) == (
        "restart",
        {"service": "web"},
    )
    asked_again = session.resume(result, {"c1": True})
    assert isinstance(asked_again.output, DeferredToolRequests)
    assert asked_again.output.metadata["c1"]["call_id"] == result.output.metadata["c1"]["call_id"]
    assert world.ran == []
    world.approve(session.case)
    done = session.resume(asked_again)
    assert (replies(done), done.output) == ([("success", "restart of web: done")], "finished")
    assert world.ran == ["restart web"]
    assert [each.result for each in world.executions(session.case)] == ["restart of web: done"]


@pytest.mark.req("FRAME-PA-02")
@pytest.mark.parametrize("decision", [False, ToolDenied("not now")])
@pytest.mark.parametrize("is_approved", [False, True])
def test_a_call_that_the_user_rejects_stays_rejected(is_approved: bool, decision: Any, world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    if is_approved:
        world.approve(session.case)
    ((outcome, told),) = replies(session.resume(result, {"c1": decision}))
    assert outcome == "denied"
    assert told.startswith("Not done: the user of the agent rejected the call")
    world.approve(session.case)
    assert world.ran == []
    assert [each.status for each in world.executions(session.case)] == (["not_started"] if is_approved else [])


@pytest.mark.req("FRAME-PA-02")
def test_a_call_that_an_operator_rejects_does_not_run(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    world.reject(session.case, "never")
    ((outcome, told),) = replies(session.resume(result))
    assert (outcome, "it is rejected" in told) == ("denied", True)
    assert world.ran == []


@pytest.mark.req("FRAME-PA-03")
def test_edited_arguments_are_another_proposal_which_is_asked_about_by_itself(world: World) -> None:
    session = begin(world, [call("restart", "c1", service="web")])
    result = session.start()
    edited = session.resume(result, {"c1": ToolApproved(override_args={"service": "api"})})
    assert edited.output.metadata["c1"]["args"] == {"service": "api"}
    assert sorted(each.status for each in world.proposals(session.case)) == ["asked", "withdrawn"]
    world.approve(session.case)
    done = session.resume(edited)
    assert replies(done) == [("success", "restart of api: done")]
    assert world.ran == ["restart api"]
    assert sorted(each.status for each in world.proposals(session.case)) == ["committed", "withdrawn"]


@pytest.mark.req("FRAME-PA-02")
def test_calls_in_parallel_are_asked_about_and_answered_one_by_one(world: World) -> None:
    session = begin(
        world, [call("restart", "c1", service="web"), call("restart", "c2", service="api"), call("look", "c3")]
    )
    result = session.start()
    assert [each.tool_call_id for each in result.output.approvals] == ["c1", "c2"]
    world.approve(session.case)
    outcomes = dict.fromkeys(outcome for outcome, _ in replies(session.resume(result, {"c2": False})))
    assert sorted(outcomes) == ["denied", "success"]
    assert sorted(world.ran) == ["look all", "restart web"]


@pytest.mark.req("FRAME-06")
def test_a_run_is_resumed_by_another_process_from_its_messages(world: World) -> None:
    case = world.open_case()
    turn = [call("look", "c1"), call("restart", "c2", service="web")]
    first = Session(world, case, turn)
    result = first.start()
    kept = ModelMessagesTypeAdapter.dump_json(result.all_messages())
    world.approve(case)
    for _ in range(2):
        again = Session(world, world.join(str(case.case_id)), turn)
        results = asyncio.run(again.toolset.resolve(result.output))
        resumed = again.go_on(ModelMessagesTypeAdapter.validate_json(kept), results)
        assert replies(resumed) == [("success", "look of all: done"), ("success", "restart of web: done")]
    # The second time its value came from the ledger.
    assert sorted(world.ran) == ["look all", "restart web"]


@pytest.mark.req("FRAME-06")
def test_a_tool_that_was_cut_off_is_unknown_and_does_not_run_again(world: World) -> None:
    case = world.open_case()
    tools: FunctionToolset[None] = FunctionToolset()

    @tools.tool_plain
    async def restart(service: str) -> str:
        world.act("restart", service=service)
        raise asyncio.CancelledError

    turns = ([call("restart", "c1", service="cache")], [call("restart", "c2", service="cache")])
    agent = Agent(script(*turns), toolsets=[ProposalToolset(tools, gate=world.open_gate(case))])
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(agent.run("go", conversation_id="k1"))
    # The same conversation from its beginning, and then the model tries it once more under another id.
    again = Session(world, world.join(str(case.case_id)), *turns)
    result = asyncio.run(again.agent.run("go", conversation_id="k1"))
    assert [told.partition(":")[0] for _, told in replies(result)] == ["Unknown", "Unknown"]
    assert world.ran == ["restart cache"]


def test_arguments_and_results_of_other_types_are_recorded_as_json(world: World) -> None:
    case = world.open_case()
    case.rule_out("agent://planner", ["cpu"])
    session = Session(world, case, [call("scale", "c1", place={"service": "web"})])
    assert replies(session.start()) == [("success", Place(service="web"))]
    (execution,) = world.executions(case)
    assert execution.args == {"place": {"service": "web", "zone": "eu"}}
    assert execution.result == {"service": "web", "zone": "eu"}


def test_a_tool_that_fails_is_recorded_as_failed(world: World) -> None:
    session = begin(world, [call("look", "c1", service="broken")])
    with pytest.raises(ZeroDivisionError):
        session.start()
    (execution,) = world.executions(session.case)
    assert (execution.status, execution.error) == ("failed", "ZeroDivisionError: it broke")


def test_requests_of_other_toolsets_are_left_to_them(world: World) -> None:
    session = begin(world)
    requests = DeferredToolRequests(approvals=[call("other", "c1")])
    assert asyncio.run(session.toolset.resolve(requests)).approvals == {}
