"""Functions behind a guard: what is denied does not run, what is allowed runs once, and every refusal says why."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.guard import guard as guard_module
from cmbs.substrate.guard.refusals import (
    CallAsked,
    CallDeferred,
    CallDegraded,
    CallDenied,
    CallExpired,
    CallFailed,
    CallInDoubt,
    CallRejected,
    GuardError,
    ProposalPending,
)
from cmbs.substrate.kernel.events import Approve, Mode, Reject
from cmbs.substrate.kernel.model import Failure, ReasonCode, Verdict
from cmbs.substrate.kernel.words import ExecutionStatus
from cmbs.substrate.tools.python import current_call, enter_call
from cmbs.substrate.tools.runner import CallContext
from tests.support.embedded import SPACE, Embedded
from tests.support.spaces import AGENT, ANY, ROOT, ScriptedRunner, constraint, eventually

TIMEOUT_SECONDS = 30.0
READY = constraint(subject={"tool_id": "restart"}, when={"op": "eq", "args": ["fact.ready", "yes"]})


# --- what is allowed --------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-GUARD-01")
def test_an_allowed_call_runs_and_gives_its_result(make: Callable[..., Embedded]) -> None:
    embedded = make()
    restart = embedded.guard_tool()
    assert restart("api", grace=2) == {"restarted": "api", "grace": 2}
    assert restart(service="web") == {"restarted": "web", "grace": 5}
    assert embedded.ran == ["api", "web"]
    calls = embedded.server.current(SPACE).executions.values()
    assert sorted(execution.args for execution in calls) == [
        b'{"grace":2,"service":"api"}',
        b'{"grace":5,"service":"web"}',
    ]


@pytest.mark.req("SS01-GUARD-01")
def test_an_async_function_runs_on_the_loop_of_its_caller(make: Callable[..., Embedded]) -> None:
    embedded = make()
    loops: list[asyncio.AbstractEventLoop] = []

    @embedded.guard.tool("restart")
    async def restart(service: str) -> list[Any]:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return [service, current_call().attempt]

    embedded.guard.enrol(ROOT)

    async def main() -> list[Any]:
        loops.append(asyncio.get_running_loop())
        return list(await asyncio.gather(*(restart(f"s{n}") for n in range(20))))

    assert asyncio.run(main()) == [[f"s{n}", 1] for n in range(20)]
    assert len(set(loops)) == 1


def test_a_guarded_function_is_still_itself(make: Callable[..., Embedded]) -> None:
    embedded = make()

    @embedded.guard.tool("restart", writes=False)
    def restart(service: str) -> str:
        """Restart a service."""
        return service

    assert (restart.__name__, restart.__doc__) == ("restart", "Restart a service.")
    assert (restart.tool.description, restart.tool.writes) == ("Restart a service.", False)
    with pytest.raises(TypeError, match="missing a required argument: 'service'"):
        restart()  # type: ignore[call-arg]


def test_there_is_no_way_around_a_guard_by_unwrapping_it(make: Callable[..., Embedded]) -> None:
    embedded = make()
    restart = embedded.guard_tool()
    assert inspect.unwrap(restart) is restart
    assert list(inspect.signature(restart).parameters) == ["service", "grace"]
    keyed = restart.under_key("k")
    assert inspect.unwrap(keyed) is keyed
    assert list(inspect.signature(keyed).parameters) == ["service", "grace"]
    with pytest.raises(GuardError, match="only where a call of it was allowed in space"):
        restart.carry_out(service="api")
    assert embedded.ran == []


def test_a_guarded_function_does_not_run_for_another_space(make: Callable[..., Embedded]) -> None:
    embedded = make()
    restart = embedded.guard_tool()
    carry_out = restart.carry_out  # type: ignore[attr-defined]

    def call_from(space_id: str) -> Any:
        enter_call(CallContext(space_id, "x", None, 1))
        return carry_out(service="api")

    with pytest.raises(GuardError, match="only where a call of it was allowed in space"):
        contextvars.copy_context().run(call_from, "elsewhere")
    assert embedded.ran == []
    contextvars.copy_context().run(call_from, SPACE)
    assert embedded.ran == ["api"]


@pytest.mark.req("SS01-GUARD-02")
def test_under_one_key_a_function_runs_once(make: Callable[..., Embedded]) -> None:
    embedded = make()
    restart = embedded.guard_tool()
    once = restart.under_key("incident-7")  # type: ignore[attr-defined]
    assert once("api") == once("api") == {"restarted": "api", "grace": 5}
    assert embedded.ran == ["api"]
    with pytest.raises(CallDenied) as refused:
        once("web")
    assert refused.value.decision.reason_code is ReasonCode.IDEMPOTENCY_CONFLICT
    assert embedded.ran == ["api"]


@pytest.mark.req("SS01-GUARD-02")
def test_many_callers_of_one_key_get_one_result(make: Callable[..., Embedded]) -> None:
    embedded = make()
    once = embedded.guard_tool().under_key("incident-7")  # type: ignore[attr-defined]
    with ThreadPoolExecutor(8) as callers:
        results = list(callers.map(once, ["api"] * 8))
    assert results == [{"restarted": "api", "grace": 5}] * 8
    assert embedded.ran == ["api"]


# --- what is not ------------------------------------------------------------------------------------------------------

ONLY_DELTAS = {"op": "missing", "args": ["$tool.id"]}
FACTS = {"constraint.facts": constraint(when=ONLY_DELTAS)}


@pytest.mark.req("SS01-GUARD-03")
def test_a_denied_call_does_not_run_and_says_why(make: Callable[..., Embedded]) -> None:
    no = constraint(effect="deny", subject={"tool_id": "restart"}, reason="not on a friday")
    embedded = make({"constraint.any": ANY, "constraint.no": no})
    restart = embedded.guard_tool()
    with pytest.raises(CallDenied) as refused:
        restart("api")
    decision = refused.value.decision
    assert (decision.verdict, decision.failure) == (Verdict.DENY, Failure.BLOCK)
    refusal = refused.value.refusal
    assert refusal is not None
    assert (refusal.code, refusal.rules, refusal.candidate) == ("CONSTRAINT_DENIED", ("constraint.no",), 0)
    assert str(refused.value) == (
        "the call is denied: CONSTRAINT_DENIED: `constraint.no` denies it (not on a friday);"
        " ask an operator what would be allowed"
    )
    assert embedded.ran == []


def test_a_degraded_call_comes_with_its_offer(make: Callable[..., Embedded]) -> None:
    no = constraint(effect="deny", subject={"tool_id": "restart"})
    offer = '{"tool_id":"reload"}'
    embedded = make({"constraint.any": ANY, "constraint.no": no, "policy.degrade.restart": offer})
    restart = embedded.guard_tool()
    with pytest.raises(CallDegraded) as refused:
        restart("api")
    assert (refused.value.offer, embedded.ran) == (offer, [])


def ready(on_fail: str) -> dict[str, str]:
    return {**FACTS, "constraint.ready": READY.replace('"v"', f'"on_fail": "{on_fail}", "v"')}


@pytest.mark.req("SS01-GUARD-03")
def test_a_deferred_call_says_what_it_waits_for_and_then_runs_by_itself(make: Callable[..., Embedded]) -> None:
    embedded = make(ready("defer"))
    restart = embedded.guard_tool()
    with pytest.raises(CallDeferred) as deferred:
        restart("api")
    assert deferred.value.waits_for == ["fact.ready"]
    assert embedded.ran == []
    embedded.know(ready="yes")
    assert embedded.guard.wait(deferred.value.proposal_id, TIMEOUT_SECONDS) == {"restarted": "api", "grace": 5}
    assert embedded.ran == ["api"]


@pytest.mark.req("SS01-GUARD-03")
def test_a_call_may_wait_for_what_defers_it(make: Callable[..., Embedded]) -> None:
    embedded = make(ready("defer"), wait_seconds=TIMEOUT_SECONDS)
    with ThreadPoolExecutor() as callers:
        result = callers.submit(embedded.guard_tool(), "api")
        assert eventually(lambda: bool(embedded.server.current(SPACE).parked))
        embedded.know(ready="yes")
        assert result.result(TIMEOUT_SECONDS) == {"restarted": "api", "grace": 5}


def test_a_call_that_waits_in_vain_expires_and_one_that_was_rejected_says_so(make: Callable[..., Embedded]) -> None:
    deferring, asking = make(ready("defer")), make(ready("ask"))
    with pytest.raises(CallDeferred) as deferred:
        deferring.guard_tool()("api")
    deferring.clock.advance(timedelta(days=1))
    deferring.server.keep()
    with pytest.raises(CallExpired):
        deferring.guard.wait(deferred.value.proposal_id, TIMEOUT_SECONDS)
    with pytest.raises(CallAsked) as asked:
        asking.guard_tool()("api")
    asking.say(Reject(asked.value.approval_ids[0]))
    with pytest.raises(CallRejected):
        asking.guard.wait(asked.value.proposal_id, TIMEOUT_SECONDS)
    assert deferring.ran == asking.ran == []


@pytest.mark.req("SS01-GUARD-03")
def test_a_call_that_needs_an_approval_runs_by_itself_once_it_is_given(make: Callable[..., Embedded]) -> None:
    embedded = make(ready("ask"))
    restart = embedded.guard_tool()
    with pytest.raises(CallAsked) as asked:
        restart("api")
    (approval_id,) = asked.value.approval_ids
    assert embedded.ran == []
    embedded.say(Approve(approval_id), Actor(ActorKind.OPERATOR, "second"))
    assert embedded.guard.wait(asked.value.proposal_id, TIMEOUT_SECONDS) == {"restarted": "api", "grace": 5}


def test_in_observe_mode_what_would_be_denied_runs(make: Callable[..., Embedded]) -> None:
    embedded = make({}, Mode.OBSERVE)
    restart = embedded.guard_tool()
    assert restart("api") == {"restarted": "api", "grace": 5}
    (record,) = embedded.server.current(SPACE).proposals.values()
    assert (record.decision.verdict, record.decision.observed) == (Verdict.DENY, True)


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-GUARD-04")
def test_what_a_function_raises_is_the_cause_of_what_its_caller_gets(make: Callable[..., Embedded]) -> None:
    embedded = make()

    @embedded.guard.tool("restart")
    def restart(service: str) -> None:
        raise LookupError(f"no service {service}")

    embedded.guard.enrol(ROOT)
    with pytest.raises(CallFailed) as failed:
        restart("api")
    assert isinstance(failed.value.__cause__, LookupError)
    assert str(failed.value) == "the call failed: LookupError: no service api"
    assert failed.value.execution.status is ExecutionStatus.FAILED


def test_a_result_that_is_no_json_fails(make: Callable[..., Embedded]) -> None:
    embedded = make()

    @embedded.guard.tool("restart")
    def restart() -> object:
        return object()

    embedded.guard.enrol(ROOT)
    with pytest.raises(CallFailed):
        restart()


def test_a_function_that_takes_too_long_is_told_so(make: Callable[..., Embedded]) -> None:
    embedded = make()
    release = threading.Event()

    @embedded.guard.tool("restart", timeout_ms=50)
    def restart() -> None:
        release.wait(TIMEOUT_SECONDS)

    embedded.guard.enrol(ROOT)
    with pytest.raises(CallFailed, match="the call timed out: `restart` gave no answer within 50 ms"):
        restart()
    release.set()


def test_a_call_of_unknown_outcome_is_in_doubt(make: Callable[..., Embedded]) -> None:
    runner = ScriptedRunner()
    runner.unknown = True
    embedded = make(runner=runner)
    with ThreadPoolExecutor() as callers:
        result = callers.submit(embedded.guard_tool(), "api")
        assert eventually(lambda: bool(runner.calls))
        embedded.clock.advance(timedelta(days=1))
        embedded.server.keep()
        with pytest.raises(CallInDoubt, match=r"^the call is in doubt: it may or may not have taken place$"):
            result.result(TIMEOUT_SECONDS)


@pytest.mark.req("SS01-GUARD-04")
def test_an_async_call_raises_where_it_is_awaited(make: Callable[..., Embedded]) -> None:
    embedded = make(ready("defer"))

    @embedded.guard.tool("restart")
    async def restart(service: str) -> str:
        await asyncio.sleep(0)
        raise LookupError(f"no service {service}")

    embedded.guard.enrol(ROOT)
    with pytest.raises(CallDeferred) as deferred:
        asyncio.run(restart("api"))
    # Its loop is gone: it runs on one of its own.
    embedded.know(ready="yes")
    with pytest.raises(CallFailed) as failed:
        embedded.guard.wait(deferred.value.proposal_id, TIMEOUT_SECONDS)
    assert isinstance(failed.value.__cause__, LookupError)


def test_an_async_call_that_is_no_longer_awaited_is_carried_out_all_the_same(make: Callable[..., Embedded]) -> None:
    embedded = make()
    began, go_on = threading.Event(), threading.Event()

    @embedded.guard.tool("restart")
    async def restart(service: str) -> str:
        began.set()
        await asyncio.to_thread(go_on.wait, TIMEOUT_SECONDS)
        embedded.ran.append(service)
        return service

    embedded.guard.enrol(ROOT)

    async def main() -> None:
        call = asyncio.ensure_future(restart("api"))
        await asyncio.to_thread(began.wait, TIMEOUT_SECONDS)
        call.cancel()
        await asyncio.wait({call})
        go_on.set()
        (proposal_id,) = embedded.server.current(SPACE).proposals
        assert await asyncio.to_thread(embedded.guard.wait, proposal_id, TIMEOUT_SECONDS) == "api"
        await asyncio.gather(*(asyncio.to_thread(each.join, TIMEOUT_SECONDS) for each in threads_of_calls()))

    asyncio.run(main())
    assert embedded.ran == ["api"]


def threads_of_calls() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "guarded call"]


def test_what_functions_raise_is_not_kept_for_ever(
    make: Callable[..., Embedded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "_MAX_RAISED", 1)
    embedded = make(ready("defer"))

    @embedded.guard.tool("restart")
    def restart(n: int) -> None:
        raise LookupError(n)

    embedded.guard.enrol(ROOT)
    deferred = []
    for n in range(3):
        with pytest.raises(CallDeferred) as each:
            restart(n)
        deferred.append(each.value.proposal_id)
    embedded.know(ready="yes")
    causes = []
    for proposal_id in deferred:
        embedded.server.wait_for(SPACE, proposal_id, TIMEOUT_SECONDS)
    for proposal_id in deferred:
        with pytest.raises(CallFailed) as failed:
            embedded.guard.wait(proposal_id, TIMEOUT_SECONDS)
        causes.append(failed.value.__cause__)
    assert len([cause for cause in causes if cause is not None]) == 1


# --- enrolling --------------------------------------------------------------------------------------------------------


def test_enrolling_again_records_nothing(make: Callable[..., Embedded]) -> None:
    embedded = make()
    embedded.guard_tool()
    before = embedded.entries()
    embedded.guard.enrol(ROOT)
    assert embedded.entries() == before


def test_only_an_operator_enrols(make: Callable[..., Embedded]) -> None:
    embedded = make()

    @embedded.guard.tool("restart")
    def restart() -> None:
        """Never runs."""

    with pytest.raises(GuardError, match="the space refuses `RegisterTool`"):
        embedded.guard.enrol(AGENT)
    embedded.guard.enrol(ROOT, issue=False)
    with pytest.raises(CallDenied) as refused:
        restart()
    assert refused.value.decision.reason_code in (ReasonCode.CAPABILITY_UNKNOWN, ReasonCode.FORGED_PROVENANCE)


def test_a_proposal_without_a_call_has_no_result_to_wait_for(make: Callable[..., Embedded]) -> None:
    embedded = make(FACTS)
    embedded.know(ready="yes")
    (proposal_id,) = embedded.server.current(SPACE).proposals
    with pytest.raises(ProposalPending, match="has no result yet: ALLOWED"):
        embedded.guard.wait(proposal_id, TIMEOUT_SECONDS)
