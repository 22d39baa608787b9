"""One call of an agent's tool loop: proposed once, begun once, and its outcome on record."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from hashlib import sha256
from threading import Barrier
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.calls.gated_call import GatedCall
from cmbs.client import Case, Client, connect, connect_async
from cmbs.errors import InvalidRequest
from cmbs.frameworks.answers import Answer, build_question
from cmbs.frameworks.gate import Gate, ToolRequest
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock
from tests.support.agent_frameworks import SPACE, TOKEN, World, set_up

pytestmark = pytest.mark.slow


def ask(gate: Gate, tool: str, call_id: str = "c1", **args: Any) -> ToolRequest:
    return gate.request(tool, args, call_id, "thread")


def begin(gate: Gate, request: ToolRequest) -> GatedCall | Answer:
    return gate.run(gate.begin(request))


def begin_run(gate: Gate, request: ToolRequest) -> GatedCall:
    begun = begin(gate, request)
    assert isinstance(begun, GatedCall), begun
    assert begun.may_run, begun.answer
    return begun


def begin_waiting(gate: Gate, request: ToolRequest) -> GatedCall:
    begun = begin(gate, request)
    assert isinstance(begun, GatedCall), begun
    assert begun.waits, begun.answer
    return begun


def begin_answer(gate: Gate, request: ToolRequest) -> Answer:
    begun = begin(gate, request)
    assert isinstance(begun, Answer), begun
    return begun


@pytest.mark.req("FRAME-01")
def test_an_allowed_call_runs_once_and_is_answered_from_the_ledger_afterwards(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    request = ask(gate, "look", service="web")
    run = begin_run(gate, request)
    assert gate.run(gate.succeed(run, {"up": True})) is None
    again = begin_answer(world.open_gate(case), request)
    assert (again.has_value, again.value, again.text) == (True, {"up": True}, '{"up":true}')
    (execution,) = world.executions(case)
    assert (execution.status, execution.result, execution.args) == ("succeeded", {"up": True}, {"service": "web"})


@pytest.mark.req("FRAME-01")
def test_another_call_with_the_same_arguments_runs_again_once_the_first_is_settled(world: World) -> None:
    gate = world.open_gate()
    first = begin_run(gate, ask(gate, "look", "c1"))
    gate.run(gate.succeed(first, 1))
    second = begin_run(gate, ask(gate, "look", "c2"))
    assert second.call_id != first.call_id


@pytest.mark.req("FRAME-02")
def test_a_denied_call_says_why_and_what_to_do_next(world: World) -> None:
    gate = world.open_gate()
    denied = begin_answer(gate, ask(gate, "drop", table="orders"))
    assert not denied.has_value
    assert denied.text.startswith("Not done: the call is not allowed. Nothing was changed.\n`NO_ALLOW`: ")
    unknown = begin_answer(gate, ask(gate, "nowhere"))
    assert "UNKNOWN_TOOL" in unknown.text
    bare = Gate(world.open_case())
    begin_run(bare, ask(bare, "look"))


@pytest.mark.req("FRAME-03")
def test_an_approved_call_is_begun_by_one_process_alone(world: World) -> None:
    case = world.open_case()
    gate, restarted = world.open_gate(case), world.open_gate(case)
    request = ask(gate, "restart", service="web")
    question = build_question(begin_waiting(gate, request).answer)
    assert (question["tool_id"], question["args"]) == ("restart", {"service": "web"})
    assert len(question["approval_ids"]) == 1
    world.approve(case)
    run = begin_run(restarted, request)
    # The process that asked first comes back, and so does one that starts now.
    for late in (gate, world.open_gate(case)):
        assert begin_answer(late, request).text.startswith("Unknown: ")
    restarted.run(restarted.succeed(run, "done"))
    assert begin_answer(gate, request).value == "done"
    assert len(world.executions(case)) == 1


@pytest.mark.req("CALL-ID-01", "FRAME-03")
def test_what_an_agent_had_approved_under_the_name_of_another_call_is_not_what_runs(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    request = ask(gate, "restart", service="web")
    # The agent works out how the gate names the call, and has something harmless approved under that name.
    key = gate._name(request)
    harmless = world.agent.make_call(
        SPACE, "restart", args={"service": "a toy"}, case_id=case.case_id, idempotency_key=key
    )
    assert gate.run(gate.find(request)) is None
    waiting = begin_waiting(gate, request)
    assert (waiting.call_id != harmless.call_id, waiting.answer.args) == (True, {"service": "web"})
    gate.run(gate.withdraw(waiting.call_id, "next"))
    world.approve(case)
    # It only gets in its own way.
    late = world.open_gate(case)
    assert "IDEMPOTENCY_CONFLICT" in begin_answer(late, request).text
    assert world.ran == []


@pytest.mark.req("CALL-CLAIM-03")
def test_an_agent_cannot_report_what_its_framework_runs(world: World) -> None:
    gate = world.open_gate()
    run = begin_run(gate, ask(gate, "restart", service="cache"))
    for nonce in (None, "guessed"):
        forged = world.agent.report_call(SPACE, run.call_id, "succeeded", result="never ran", nonce=nonce)
        assert (forged.status, forged.refusal and forged.refusal.code) == ("running", "WRONG_NONCE")
    assert gate.run(gate.succeed(run, "done")) is None


@pytest.mark.req("FRAME-03")
def test_a_rejected_call_is_told_so(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    request = ask(gate, "restart", service="web")
    begin(gate, request)
    world.reject(case, "not in the afternoon")
    for late in (gate, world.open_gate(case)):
        late.run(late.find(request))
        told = begin_answer(late, request).text
        assert told.startswith("Not done: the call is not allowed.")
        assert "it is rejected" in told
    assert world.executions(case) == []


@pytest.mark.req("FRAME-04")
def test_a_call_whose_outcome_was_lost_is_unknown_and_is_not_run_again_under_any_id(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    lost = begin_run(gate, ask(gate, "restart", service="cache"))
    restarted = world.open_gate(case)
    for call_id in ("c1", "c2"):
        told = begin_answer(restarted, ask(restarted, "restart", call_id, service="cache"))
        assert told.text.startswith("Unknown: this call was begun")
        assert lost.call_id in told.text
    # Other arguments are another call.
    begin_run(restarted, ask(restarted, "look", service="cache"))
    gate.run(gate.fail(lost, TimeoutError("no answer")))
    told = begin_answer(restarted, ask(restarted, "restart", "c2", service="cache"))
    assert told.text == f"Failed: TimeoutError: no answer. It is on record as call `{lost.call_id}`."
    assert [each.status for each in world.executions(case) if each.tool_id == "restart"] == ["timed_out"]
    begin_run(restarted, ask(restarted, "restart", "c3", service="cache"))


@pytest.mark.req("FRAME-04")
def test_a_call_that_was_proposed_and_not_begun_by_this_process_is_its_to_run(world: World) -> None:
    gate = world.open_gate()
    request = ask(gate, "look")
    call = gate.run(gate.look(request))
    assert isinstance(call, GatedCall)
    assert (call.waits, call.is_ready, call.may_run) == (False, True, False)
    begin_run(gate, request)


def test_a_call_that_waits_for_belief_runs_when_the_belief_is_there(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case, wait=1)
    request = ask(gate, "scale", service="web")
    assert build_question(begin_waiting(gate, request).answer)["waits_for"]
    case.rule_out("agent://planner", ["cpu"])
    begin_run(gate, request)


@pytest.mark.req("FRAME-05")
def test_a_withdrawn_call_stays_withdrawn_also_where_it_was_approved_in_between(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    one, other = ask(gate, "restart", "c1", service="web"), ask(gate, "restart", "c2", service="api")
    for request, is_approved in ((one, False), (other, True)):
        waiting = begin_waiting(gate, request)
        if is_approved:
            world.approve(case)
        told = gate.run(gate.withdraw(waiting.call_id, "the user said no"))
        assert told.text.startswith("Not done: the user said no.")
        world.approve(case)
        late = world.open_gate(case)
        late.run(late.find(request))
        assert begin_answer(late, request).text.startswith("Not done: the call was withdrawn.")
    assert [each.status for each in world.executions(case)] == ["not_started"]


@pytest.mark.req("FRAME-03")
def test_an_approval_that_comes_back_too_late_starts_nothing() -> None:
    clock, log = ManualClock(), InMemoryStore()
    belief = BeliefServer(store=log)
    spaces = SubstrateServer(log=log, clock=clock, belief=ServedBelief(belief), keeper_seconds=None)
    app = BeliefApp(Service(belief, spaces=spaces))
    with connect(app, actor="operator:ops") as operator, connect(app, actor="agent:planner") as agent:
        set_up(operator)
        world = World("", operator, agent)
        case = world.open_case()
        gate = world.open_gate(case)
        request = ask(gate, "restart", service="web")
        begin(gate, request)
        world.approve(case)
        clock.advance(timedelta(hours=2))
        spaces.keep()
        assert [each.status for each in world.executions(case)] == ["not_started"]
        assert "did not come in time" in begin_answer(gate, request).text
        begin_waiting(gate, ask(gate, "restart", "c2", service="web"))
        world.approve(case)
        begin_run(gate, request := ask(gate, "restart", "c2", service="web"))
        clock.advance(timedelta(minutes=10))
        spaces.keep()
        # This one was begun: it stays in doubt, for an operator to look.
        assert begin_answer(world.open_gate(case), request).text.startswith("Unknown: ")


@pytest.mark.req("FRAME-04")
def test_of_two_processes_with_the_same_call_one_runs_it(world: World) -> None:
    case = world.open_case()
    gates = [world.open_gate(case) for _ in range(4)]
    at_once = Barrier(len(gates))

    def race(gate: Gate) -> GatedCall | Answer:
        request = ask(gate, "restart", service="cache")
        at_once.wait(30)
        return begin(gate, request)

    with ThreadPoolExecutor(len(gates)) as threads:
        begun = list(threads.map(race, gates))
    assert [isinstance(each, GatedCall) and each.may_run for each in begun].count(True) == 1
    assert len(world.executions(case)) == 1


@pytest.mark.req("CALL-CLAIM-02", "FRAME-03")
def test_of_servers_over_one_store_one_starts_an_approved_call(world: World) -> None:
    case = world.open_case()
    request = ask(world.open_gate(case), "restart", service="web")
    begin_waiting(world.open_gate(case), request)
    world.approve(case)
    with ExitStack() as opened:
        clients = [opened.enter_context(connect(world.address, actor="agent:planner")) for _ in range(3)]
        gates = [Gate(join(each, case), token=TOKEN) for each in clients]
        at_once = Barrier(len(gates))

        def race(gate: Gate) -> GatedCall | Answer:
            at_once.wait(30)
            return begin(gate, request)

        with ThreadPoolExecutor(len(gates)) as threads:
            begun = list(threads.map(race, gates))
    assert [isinstance(each, GatedCall) and each.may_run for each in begun].count(True) == 1
    assert len(world.executions(case)) == 1


def join(client: Client, case: Case) -> Case:
    joined = client.case(case.case_id, space=SPACE)
    joined.open()
    return joined


def test_what_is_begun_cannot_be_withdrawn(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    request = ask(gate, "restart", service="web")
    waiting = begin_waiting(gate, request)
    world.approve(case)
    begin_run(gate, request)
    told = gate.run(gate.withdraw(waiting.call_id, "the user said no"))
    assert told.text.startswith("Unknown: ")


def test_results_are_recorded_as_far_as_the_ledger_can_hold_them(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    results = (2**70, "x" * 100_000, {"at": object}, {1, 2})
    for number, result in enumerate(results):
        run = begin_run(gate, ask(gate, "look", f"c{number}"))
        assert gate.run(gate.succeed(run, result)) is None
    kept = [execution.result for execution in world.executions(case)]
    assert kept[0] == {"text": str(2**70)}
    hashed = sha256(b"cmbs/1/large-result\0" + json.dumps(results[1]).encode()).hexdigest()
    assert kept[1] == {"hash": hashed, "bytes": 100_002}
    assert kept[2] == {"at": "<class 'object'>"}
    assert kept[3] == [1, 2]


def test_an_outcome_that_the_server_does_not_take_is_unknown(world: World) -> None:
    gate = world.open_gate()
    run = begin_run(gate, ask(gate, "look"))
    gate.run(gate.succeed(run, 1))
    told = gate.run(gate.succeed(run, 2))
    assert told is not None
    assert told.text.startswith("Unknown: the call was made, and its outcome is not on record")


def test_a_call_needs_an_id_and_a_case_that_awaits_needs_to_be_awaited(world: World) -> None:
    gate = world.open_gate()
    with pytest.raises(InvalidRequest, match="has no id"):
        gate.request("look", {}, None)

    async def look() -> None:
        async with connect_async("memory:") as client:
            awaiting = Gate(client.case(space=SPACE), token=TOKEN)
            with pytest.raises(InvalidRequest, match="cannot serve code that blocks"):
                awaiting.run(awaiting.look(awaiting.request("look", {}, "c1")))

    asyncio.run(look())


@pytest.mark.req("FRAME-02")
def test_what_the_server_does_not_take_is_told_to_the_model(world: World) -> None:
    case = world.open_case()
    gate = world.open_gate(case)
    told = begin_answer(gate, ask(gate, "look", number=2**70))
    assert told.text.startswith("Not done: ")
    assert told.text.endswith(". Nothing was changed.")
    assert world.proposals(case) == []


def test_a_case_that_blocks_can_be_awaited(world: World) -> None:
    gate = world.open_gate()

    async def go() -> None:
        begun = await gate.run_async(gate.begin(ask(gate, "look")))
        assert isinstance(begun, GatedCall)
        assert begun.may_run
        assert await gate.run_async(gate.succeed(begun, "seen")) is None

    asyncio.run(go())
