"""One gated call, driven by clients of a server in this process: who may run it, once, and who reports it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cmbs.api.spaces import CallResponse
from cmbs.api.steps import advance
from cmbs.belief.server import BeliefServer
from cmbs.calls.gated_call import MAX_RESULT_BYTES, CallRequest, GatedCall
from cmbs.client import Client, connect
from cmbs.errors import BeliefServerError, Conflict, InvalidRequest
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.replay import verify_space
from cmbs.substrate.kernel.words import CallStatus
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds
from tests.support.space_client import ALLOW

SPACE = "s"
ASK = '{"v":1,"effect":"deny","subject":{"tool_id":"asked"},"on_fail":"ask"}'
# By who runs them: the agent itself, after an approval too, or an executor.
TOOLS = {"own": None, "asked": None, "remote": "gateway"}


class Workplace:
    """A server in this process with its operator, an agent and an executor of it, and a clock that tests own."""

    def __init__(self) -> None:
        self.log, self.clock, self._opened = InMemoryStore(), ManualClock(), ExitStack()
        belief = BeliefServer(store=self.log)
        self.spaces = SubstrateServer(
            log=self.log, clock=self.clock, ids=SequentialIds(), belief=ServedBelief(belief), keeper_seconds=None
        )
        self.app = BeliefApp(Service(belief, spaces=self.spaces))
        self.operator = self.connect("operator:ops")
        self.agent = self.connect("agent:planner")
        self.gateway = self.connect("executor:gateway")
        # Who may do nothing with the calls of the others, and tries.
        self.outsiders = [self.connect("agent:other"), self.connect("executor:outsider")]
        self.operator.create_space(SPACE, policy={"constraint.any": ALLOW, "constraint.asked": ASK})
        for tool_id, executor in TOOLS.items():
            self.operator.register_tool(SPACE, tool_id, "caller", {"type": "object"}, executor=executor)
        self.operator.issue_capability(SPACE, "t", "planner", list(TOOLS))

    def connect(self, actor: str) -> Client:
        return self._opened.enter_context(connect(self.app, actor=actor))

    def make(self, tool_id: str, n: int = 0, **parts: Any) -> GatedCall:
        """A call that the agent made, and did not claim."""
        call = GatedCall(SPACE, CallRequest(tool_id=tool_id, args={"n": n}, **parts))
        self.agent.run(call.make())
        return call

    def approve_all(self) -> None:
        for approval in self.operator.list_approvals(SPACE, status="pending").approvals:
            self.operator.approve(SPACE, approval.approval_id)

    def advance(self, minutes: int) -> None:
        self.clock.advance(timedelta(minutes=minutes))
        self.spaces.keep()

    def close(self) -> None:
        self._opened.close()
        self.app.close()


@pytest.fixture
def work() -> Iterator[Workplace]:
    made = Workplace()
    yield made
    made.close()


@pytest.mark.req("CALL-CLAIM-02")
def test_what_is_allowed_is_claimed_with_the_call_and_run_by_one(work: Workplace) -> None:
    call = GatedCall(SPACE, CallRequest(tool_id="own", args={"n": 1}))
    with pytest.raises(InvalidRequest, match="not made yet"):
        _ = call.answer
    work.agent.run(call.begin())
    assert (call.may_run, call.is_over, call.waits, call.is_ready) == (True, False, False, False)
    other = GatedCall(SPACE, call.request)
    work.agent.run(other.begin())
    assert (other.call_id, other.may_run, other.answer.status) == (call.call_id, False, "running")
    work.agent.run(call.report("succeeded", result={"up": True}, duration_ms=3))
    assert (call.is_over, call.may_run, call.answer.result, call.answer.duration_ms) == (True, False, {"up": True}, 3)
    assert work.agent.run(other.wait(60)).result == {"up": True}


@pytest.mark.req("CALL-CLAIM-02")
def test_a_claim_whose_answer_was_lost_is_made_again_and_is_the_same(work: Workplace) -> None:
    call = GatedCall(SPACE, CallRequest(tool_id="own", args={}))
    # Sent, and the answer never came.
    work.agent.send(advance(call.begin(), None))  # type: ignore[arg-type]
    work.agent.run(call.begin())
    assert call.may_run
    waiting = work.make("own", 1)
    work.agent.send(advance(waiting.claim(), None))  # type: ignore[arg-type]
    assert work.agent.run(waiting.claim())


@pytest.mark.req("CALL-CLAIM-01", "CALL-START-01")
def test_what_waits_is_claimed_when_it_is_the_holders_and_decided_again(work: Workplace) -> None:
    call = work.make("asked")
    assert (call.waits, call.is_ready, work.agent.run(call.claim())) == (True, False, False)
    work.approve_all()
    assert work.agent.run(call.wait(20)).status is CallStatus.WAITING
    assert (call.is_ready, call.waits) == (True, False)
    work.operator.revoke_capability(SPACE, "t")
    assert not work.agent.run(call.claim())
    assert (call.answer.status, call.answer.reason_code) == ("denied", "CAPABILITY_REVOKED")
    assert work.agent.run(call.withdraw("too late")).status == "denied"


@pytest.mark.req("CALL-CLAIM-01", "CALL-CLAIM-03")
def test_an_executor_goes_on_with_calls_by_their_ids_and_reports_by_a_nonce_that_was_kept(work: Workplace) -> None:
    made = work.make("remote")
    assert (made.is_ready, made.waits, work.agent.run(made.claim())) == (False, True, False)
    runner = GatedCall(SPACE, runner="gateway")
    with pytest.raises(InvalidRequest, match="resume it"):
        work.gateway.run(runner.begin())
    work.gateway.run(runner.resume(made.call_id))
    work.gateway.run(runner.proceed(0))
    assert runner.may_run
    forged = work.agent.run(made.report("succeeded", result="never ran"))
    assert (forged.status, forged.refusal and forged.refusal.code) == ("running", "NOT_AUTHORISED")
    restarted = GatedCall(SPACE, runner="gateway", nonce=runner.nonce)
    work.gateway.run(restarted.resume(made.call_id))
    assert not restarted.may_run
    work.gateway.run(restarted.report("failed", error="x" * 10_000))
    assert (restarted.answer.status, len(restarted.answer.error or "")) == ("failed", 4_000)


@pytest.mark.req("CALL-CLAIM-01")
def test_a_claim_that_is_refused_lets_no_one_run_a_call_that_another_has_claimed(work: Workplace) -> None:
    runner = GatedCall(SPACE, CallRequest(tool_id="own", args={}))
    work.agent.run(runner.begin())
    # Others are not shown what a claim has to name; an operator is, and is refused.
    for client, refusal in ((work.outsiders[0], None), (work.operator, "NOT_AUTHORISED")):
        outsider = GatedCall(SPACE)
        client.run(outsider.resume(runner.call_id))
        assert not client.run(outsider.claim())
        assert (outsider.answer.refusal and outsider.answer.refusal.code, outsider.may_run) == (refusal, False)
    assert runner.may_run


@pytest.mark.req("CALL-ID-01")
def test_an_answer_about_another_call_is_an_error_and_never_run(work: Workplace) -> None:
    harmless, wanted = work.make("own", 1), GatedCall(SPACE, CallRequest(tool_id="own", args={"n": 2}))
    with pytest.raises(Conflict, match="is another call"):
        work.agent.run(wanted.resume(harmless.call_id))
    for name, other in (("tool_id", "drop"), ("case_id", "INC"), ("args", {"n": 3})):
        steps = wanted.begin()
        next(steps)
        with pytest.raises(Conflict, match="is another call"):
            steps.send(_change(harmless.answer, **{"args": {"n": 2}, name: other}))


def _change(answer: CallResponse, **changes: Any) -> CallResponse:
    return msgspec.structs.replace(answer, **changes)


def test_results_are_kept_as_far_as_the_ledger_can_hold_them(work: Workplace) -> None:
    for number, (result, kept) in enumerate(((2**70, {"text": str(2**70)}), ("é", "é"), (None, None))):
        call = GatedCall(SPACE, CallRequest(tool_id="own", args={"n": number}))
        work.agent.run(call.begin())
        assert work.agent.run(call.report("succeeded", result=result)).result == kept
    large = GatedCall(SPACE, CallRequest(tool_id="own", args={}))
    work.agent.run(large.begin())
    work.agent.run(large.report("succeeded", result="x" * MAX_RESULT_BYTES))
    assert large.answer.result["bytes"] == MAX_RESULT_BYTES + 2


class CallsOfManyProcesses(RuleBasedStateMachine):
    """Processes of one agent and of one executor make, claim, run, report and forge; each effect happens once."""

    def __init__(self) -> None:
        super().__init__()
        self.work = Workplace()
        work = self.work
        self.processes = [work.agent, work.agent, work.gateway, work.gateway, *work.outsiders]
        self.runners = ["caller", "caller", "gateway", "gateway", "caller", "gateway"]
        # What each process holds, by call.
        self.held: list[dict[str, GatedCall]] = [{} for _ in self.processes]
        self.known: list[str] = []
        self.effects: Counter[str] = Counter()
        self.ran: dict[str, int] = {}
        self.settled_by_operator: set[str] = set()
        self.revoked = False

    def teardown(self) -> None:
        entries, head = self.work.log.read(f"space:{SPACE}"), self.work.log.head(f"space:{SPACE}")
        live = self.work.spaces.current(SPACE)
        assert freeze_space(verify_space(SPACE, entries, head)) == freeze_space(live)
        self.work.close()

    def run_if_allowed(self, process: int, call: GatedCall) -> None:
        """What a process does with a call: run it, if it may and has not."""
        if call.may_run and self.held[process].get(call.call_id) is not call:
            assert not self.revoked
            assert self.processes[process] not in self.work.outsiders
            self.effects[call.call_id] += 1
            self.ran[call.call_id] = process
            self.held[process][call.call_id] = call

    @rule(process=st.integers(0, 1), tool_id=st.sampled_from(sorted(TOOLS)), n=st.integers(0, 1), key=st.booleans())
    def make(self, process: int, tool_id: str, n: int, key: bool) -> None:
        asked = CallRequest(tool_id=tool_id, args={"n": n}, idempotency_key=f"key-{n}" if key else None)
        call = GatedCall(SPACE, asked)
        self.processes[process].run(call.begin())
        if call.call_id not in self.known:
            self.known.append(call.call_id)
        self.run_if_allowed(process, call)

    @precondition(lambda self: self.known)
    @rule(process=st.integers(0, 5), data=st.data())
    def go_on(self, process: int, data: st.DataObject) -> None:
        call_id = data.draw(st.sampled_from(self.known))
        call = GatedCall(SPACE, runner=self.runners[process])
        self.processes[process].run(call.resume(call_id))
        self.processes[process].run(call.proceed(0))
        self.run_if_allowed(process, call)

    @precondition(lambda self: self.ran)
    @rule(data=st.data(), status=st.sampled_from(["succeeded", "failed"]))
    def report(self, data: st.DataObject, status: str) -> None:
        call_id = data.draw(st.sampled_from(sorted(self.ran)))
        process = self.ran[call_id]
        before = self.read(call_id)
        try:
            after = self.processes[process].run(self.held[process][call_id].report(status, result=1))
        except Conflict:
            assert before.outcome is not None
        else:
            assert after.outcome == (before.outcome or status)

    @precondition(lambda self: self.known)
    @rule(process=st.integers(0, 5), data=st.data())
    def forge(self, process: int, data: st.DataObject) -> None:
        """Report a call without the nonce of its claim."""
        call_id = data.draw(st.sampled_from(self.known))
        forger, before = GatedCall(SPACE, runner=self.runners[process]), self.read(call_id)
        self.processes[process].run(forger.resume(call_id))
        with suppress(BeliefServerError):
            self.processes[process].run(forger.report("succeeded", result="forged"))
        after = self.read(call_id)
        assert (after.status, after.outcome, after.result) == (before.status, before.outcome, before.result)

    @rule()
    def approve(self) -> None:
        self.work.approve_all()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        call = GatedCall(SPACE)
        self.work.agent.run(call.resume(data.draw(st.sampled_from(self.known))))
        self.work.agent.run(call.withdraw("changed its mind"))

    @rule(minutes=st.sampled_from([1, 90]))
    def advance(self, minutes: int) -> None:
        self.work.advance(minutes)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """An operator has looked, and says what came of a call in doubt."""
        call_id = data.draw(st.sampled_from(self.known))
        if self.read(call_id).status is CallStatus.IN_DOUBT:
            assert self.work.operator.report_call(SPACE, call_id, "failed", error="it never arrived").status == "failed"
            self.settled_by_operator.add(call_id)

    @precondition(lambda self: not self.revoked)
    @rule()
    def revoke(self) -> None:
        self.work.operator.revoke_capability(SPACE, "t")
        self.revoked = True

    @invariant()
    def every_effect_happened_once_and_is_on_record(self) -> None:
        assert all(count == 1 for count in self.effects.values())
        for call_id in self.known:
            found = self.read(call_id)
            assert found.is_claimed == (call_id in self.effects)
            if found.outcome is not None:
                assert call_id in self.effects

    def read(self, call_id: str) -> CallResponse:
        return self.work.operator.get_call(SPACE, call_id)


TestCallsOfManyProcesses = pytest.mark.req("CALL-LAW-01")(CallsOfManyProcesses.TestCase)
