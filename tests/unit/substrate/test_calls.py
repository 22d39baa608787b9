"""Calls: made on the newest state, joined while open, started by one claim, and decided again when they start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest

from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.call_records import CallRecord, find_call_record
from cmbs.substrate.kernel.arbitration.stages import hash_of_tool
from cmbs.substrate.kernel.calls import MakeCall, hash_of_call, index_open_calls, name_call, read_call_id
from cmbs.substrate.kernel.events import (
    Approve,
    Claim,
    CloseCase,
    Expire,
    ExpiryOf,
    OpenCase,
    OutcomeStatus,
    Propose,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    Start,
    Withdraw,
    hash_of_nonce,
)
from cmbs.substrate.kernel.insight.advice import advise_on_record
from cmbs.substrate.kernel.insight.impact import impact_of
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import Budget, Failure, StateDelta, ToolCall
from cmbs.substrate.kernel.policy.policy import compile_policy, validate_policy
from cmbs.substrate.kernel.proposals import trace_decision
from cmbs.substrate.kernel.words import CallStatus, ExecutionStatus, ProposalStatus
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.turns import Line
from tests.support.cases import open_world
from tests.support.spaces import (
    AGENT,
    ANY,
    ASKING,
    ENCODER,
    ENGINE,
    OTHER_AGENT,
    ROOT,
    SECOND,
    SPACE,
    STREAM,
    TOKEN,
    World,
    assert_replays,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    eventually,
    facts,
    http_tool,
    raw,
    status,
)

GATEWAY = Actor(ActorKind.EXECUTOR, "gateway")
NO_GO = {"op": "missing", "args": ["fact.go"]}
UNMET = constraint(effect="deny", subject={"tool_id": "t"}, when=NO_GO, on_fail="defer")
POLICY = {"constraint.any": ANY, "constraint.ask": ASKING}
WAITING = constraint(effect="deny", subject={"tool_id": "look"}, on_fail="ask")


@pytest.fixture
def cased_world() -> Iterator[World]:
    """A world with a session that can be admitted as a case."""
    with closing(open_world("c")) as world:
        yield world
        assert_replays(world)


def make(world: World, tool_id: str = "t", args: Any = None, actor: Actor = AGENT, **parts: Any) -> SpaceAnswer:
    """Make a call, as an agent does that knows neither snapshot nor token."""
    named = {name: parts.pop(name) for name in ("token", "key", "forwarded") if name in parts}
    forwarded = raw(named["forwarded"]) if "forwarded" in named else msgspec.UNSET
    made = ToolCall(tool_id, raw(args or {}), named.get("token"), named.get("key"), forwarded)
    return world.say(MakeCall(made, **parts), actor)


def read(world: World, answer: SpaceAnswer) -> CallRecord:
    """The call of an answer, as it stands."""
    return find_call_record(world.server.settled, world.space, name_call(answer.event.body.event_id, 0))


def approve(world: World, answer: SpaceAnswer) -> SpaceAnswer:
    (asked,) = answer.event.result.asked
    return world.say(Approve(asked.approval_id, call_hash=asked.call_hash))


def execution_id(world: World, answer: SpaceAnswer) -> str:
    execution = read(world, answer).execution
    assert execution is not None
    return execution.intent.execution_id


# --- made -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("CALL-MAKE-01")
def test_a_call_takes_the_newest_state_and_a_token_that_is_good_for_it(world: World) -> None:
    world.open(caller_tool("t"), budget=Budget(calls=0), token="a spent")
    world.equip(caller_tool("t"), token="good")
    world.equip(caller_tool("other"), token="a other")
    world.propose(delta(a="1"))
    answer = make(world)
    found = read(world, answer)
    assert found.call.capability_token_id == "good"
    assert found.record.message.proposal.state_snapshot_id == world.space.snapshot_id
    assert found.record.message.proposal.provenance.permissions == ["good"]
    assert (found.status, found.executor, found.call_id) == (
        CallStatus.WAITING,
        "caller",
        name_call(found.record.event_id, 0),
    )


@pytest.mark.req("CALL-MAKE-01")
def test_a_call_without_a_good_token_is_refused_for_the_token_that_covers_it_or_for_none(world: World) -> None:
    world.open(caller_tool("t"), budget=Budget(calls=0))
    assert read(world, make(world)).decision.reason_code == "BUDGET_EXHAUSTED"
    refused = read(world, make(world, actor=OTHER_AGENT))
    assert (refused.decision.reason_code, refused.status) == ("CAPABILITY_REQUIRED", CallStatus.DENIED)
    assert read(world, make(world, "unknown")).decision.reason_code == "UNKNOWN_TOOL"
    assert read(world, make(world, token=TOKEN, actor=OTHER_AGENT)).decision.reason_code == "CAPABILITY_OTHER_AGENT"
    assert read(world, make(world, actor=GATEWAY)).decision.reason_code == "AUTHORITY_DENIED"


@pytest.mark.req("CALL-JOIN-01")
def test_the_same_writing_call_joins_the_one_that_is_open_and_no_other(world: World) -> None:
    world.open(caller_tool("t"), caller_tool("read", writes=False))
    first = make(world, args={"x": 1})
    joined = make(world, args={"x": 1})
    assert (joined.repeated, joined.seq) == (True, first.seq)
    for other in (make(world, args={"x": 2}), make(world, "read"), make(world, "read")):
        assert not other.repeated
    world.report(execution_id(world, first))
    again = make(world, args={"x": 1})
    assert (again.repeated, read(world, first).status) == (False, CallStatus.DONE)


@pytest.mark.req("CALL-JOIN-01")
def test_a_call_in_doubt_is_joined_and_not_made_again(world: World) -> None:
    world.open(caller_tool("t"))
    first = make(world)
    world.claim(execution_id(world, first))
    world.advance(minutes=5)
    assert read(world, first).status is CallStatus.IN_DOUBT
    assert make(world).repeated


@pytest.mark.req("CALL-JOIN-01")
def test_a_call_under_a_key_is_one_call_however_it_ended(cased_world: World) -> None:
    world = cased_world
    world.open(caller_tool("t"))
    first = make(world, args={"x": 1}, key="k")
    world.report(execution_id(world, first))
    again = make(world, args={"x": 1}, key="k")
    assert (again.repeated, again.seq) == (True, first.seq)
    assert read(world, make(world, args={"x": 2}, key="k")).decision.reason_code == "IDEMPOTENCY_CONFLICT"
    world.say(OpenCase("c", [AGENT.id]))
    elsewhere = make(world, args={"x": 1}, key="k", case_id="c")
    assert not elsewhere.repeated


@pytest.mark.req("CALL-JOIN-01")
def test_a_call_under_a_key_is_found_while_it_waits_and_joins_another_key_only_where_it_says_so(world: World) -> None:
    world.open(caller_tool("t"), caller_tool("look", writes=False), policy={**POLICY, "constraint.wait": WAITING})
    for tool_id in ("t", "look"):
        first = make(world, tool_id, key="one")
        assert make(world, tool_id, key="one").seq == first.seq
        another = make(world, tool_id, key="two")
        assert not another.repeated
        # The oldest of those that are open; what reads is joined under its own key alone.
        joins = make(world, tool_id, key="three", joins=True)
        assert (joins.repeated, joins.seq) == ((True, first.seq) if tool_id == "t" else (False, joins.seq))
        assert make(world, tool_id, {"x": 1}, key="one").seq > joins.seq
    world.say(Withdraw(read(world, make(world, "look", key="one")).proposal_id))
    assert not make(world, "look", key="one").repeated
    assert not make(world, "nowhere", key="one").repeated


def test_what_names_no_call_is_not_found(world: World) -> None:
    world.open(caller_tool("t"))
    event_id = world.propose(delta(a="1"), call("t")).event.body.event_id
    assert find_call_record(world.server.settled, world.space, name_call(event_id, 1)).call.tool_id == "t"
    for name in ("t", "c-0", f"c-{event_id}-x", name_call(event_id, 0), name_call(event_id, 7), name_call("none", 0)):
        with pytest.raises(RecordNotFound):
            find_call_record(world.server.settled, world.space, name)
    assert read_call_id("x-1-0") is None
    made_at = world.log.read("space:s")[1]
    registered = msgspec.json.decode(made_at.raw)["event_id"]
    with pytest.raises(RecordNotFound):
        find_call_record(world.server.settled, world.space, name_call(registered, 0))


# --- claimed ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("CALL-CLAIM-01")
def test_a_call_that_comes_with_a_claim_starts_with_the_entry_that_allows_it(world: World) -> None:
    world.open(caller_tool("t"), caller_tool("up", executor="gateway"))
    tool_hash = hash_of_tool(world.space, "up") or ""
    own = make(world, claim=Claim(hash_of_nonce("n")))
    relayed = make(world, "up", claim=Claim(hash_of_nonce("n"), tool_hash, GATEWAY))
    for answer, who in ((own, AGENT), (relayed, GATEWAY)):
        found = read(world, answer)
        assert found.status is CallStatus.RUNNING
        assert found.execution is not None
        assert (found.execution.executor, answer.event.body.actor) == (who, AGENT)
        reported = world.say(RecordOutcome(execution_id(world, answer), OutcomeStatus.SUCCEEDED, nonce="n"), who)
        assert reported.event.result.granted
        assert read(world, answer).status is CallStatus.DONE


@pytest.mark.req("CALL-CLAIM-01")
@pytest.mark.parametrize(
    "claim",
    [
        Claim(hash_of_nonce("n")),
        Claim(hash_of_nonce("n"), "0" * 64, GATEWAY),
        Claim(hash_of_nonce("n"), executor=Actor(ActorKind.EXECUTOR, "another")),
        Claim(hash_of_nonce("n"), executor=Actor(ActorKind.AGENT, "gateway")),
    ],
    ids=["the agent's own", "another registration", "another executor", "an agent of that id"],
)
def test_a_claim_of_another_or_of_another_tool_starts_nothing(world: World, claim: Claim) -> None:
    world.open(caller_tool("up", executor="gateway"))
    answer = make(world, "up", claim=claim)
    found = read(world, answer)
    assert (found.status, found.execution and found.execution.nonce_hash) == (CallStatus.WAITING, None)
    assert (found.is_for(GATEWAY), found.is_for(AGENT), found.is_settled_for(AGENT)) == (True, False, False)


@pytest.mark.req("CALL-CLAIM-02")
def test_exactly_one_claim_starts_a_call(world: World) -> None:
    world.open(caller_tool("up", executor="gateway"))
    answer = make(world, "up")
    name = execution_id(world, answer)
    assert world.claim(name, AGENT).event.result.reason_code == "NOT_AUTHORISED"
    for lacking in (Start(name), Start(name, hash_of_nonce("n"))):
        with pytest.raises(InvalidRequest, match="call_hash"):
            world.say(lacking, GATEWAY)
    with pytest.raises(Conflict, match="another than the one that is claimed"):
        world.say(Start(name, hash_of_nonce("n"), "0" * 64), GATEWAY)
    with pytest.raises(Conflict, match="started by its executor"):
        world.say(Start(name), ENGINE)
    claimed = world.claim(name, GATEWAY, "first")
    assert (claimed.repeated, read(world, answer).status) == (False, CallStatus.RUNNING)
    again = world.claim(name, GATEWAY, "first")
    assert (again.repeated, again.seq) == (True, claimed.seq)
    with pytest.raises(Conflict, match="claimed before"):
        world.claim(name, GATEWAY, "second")


@pytest.mark.req("CALL-CLAIM-02")
def test_a_call_claimed_with_its_proposal_repeats_that(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world, claim=Claim(hash_of_nonce("n")))
    again = world.claim(execution_id(world, answer), AGENT, "n")
    assert (again.repeated, again.seq) == (True, answer.seq)


@pytest.mark.req("CALL-CLAIM-03")
def test_only_the_nonce_of_the_claim_reports_an_outcome(world: World) -> None:
    world.open(caller_tool("up", executor="gateway"))
    answer = make(world, "up")
    name = execution_id(world, answer)
    with pytest.raises(Conflict, match="was not started"):
        world.say(RecordOutcome(name, OutcomeStatus.SUCCEEDED), GATEWAY)
    world.claim(name, GATEWAY, "n")

    def report(actor: Actor, nonce: Any = msgspec.UNSET) -> str | None:
        return world.say(
            RecordOutcome(name, OutcomeStatus.SUCCEEDED, raw(1), nonce=nonce), actor
        ).event.result.reason_code

    assert [report(AGENT, "n"), report(ROOT, "n"), report(Actor(ActorKind.TOOL, "up"), "n")] == ["NOT_AUTHORISED"] * 3
    assert [report(GATEWAY), report(GATEWAY, "m")] == ["WRONG_NONCE"] * 2
    world.advance(minutes=5)
    assert [report(AGENT, "n"), read(world, answer).status] == ["NOT_AUTHORISED", CallStatus.IN_DOUBT]
    assert (report(GATEWAY, "n"), read(world, answer).status) == (None, CallStatus.DONE)


@pytest.mark.req("CALL-CLAIM-03")
def test_what_an_agent_ran_without_a_claim_it_does_not_settle_once_it_is_in_doubt(world: World) -> None:
    world.open(caller_tool("t"))
    name = world.start(call("t"))
    world.advance(minutes=5)
    late = world.say(RecordOutcome(name, OutcomeStatus.SUCCEEDED), AGENT)
    assert late.event.result.reason_code == "NOT_AUTHORISED"
    assert world.say(RecordOutcome(name, OutcomeStatus.FAILED), ROOT).event.result.granted


@pytest.mark.req("CALL-CLAIM-03")
def test_an_operator_settles_a_claimed_call_in_doubt_without_its_nonce(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world)
    world.claim(execution_id(world, answer))
    world.advance(minutes=5)
    assert world.say(RecordOutcome(execution_id(world, answer), OutcomeStatus.FAILED), ROOT).event.result.granted
    assert read(world, answer).status is CallStatus.FAILED


@pytest.mark.req("CALL-ID-01")
@pytest.mark.parametrize(
    ("end", "ended"),
    [("approve", "waiting"), ("reject", "denied"), ("withdraw", "withdrawn"), ("expire", "expired")],
)
def test_a_call_waits_and_ends_by_itself_whatever_becomes_of_the_others_of_its_proposal(
    world: World, end: str, ended: str
) -> None:
    asks = constraint(effect="deny", subject={"tool_id": "asked"}, on_fail="ask")
    never = constraint(effect="deny", subject={"tool_id": "never"})
    policy = {"constraint.any": ANY, "constraint.ask": asks, "constraint.never": never}
    world.open(caller_tool("runs"), caller_tool("asked"), caller_tool("never"), policy=policy)
    calls = [call("runs", key="1"), call("asked", key="2"), call("never", key="3")]
    proposed = world.propose(*calls, atomic=False)

    def read_all() -> list[str]:
        event_id = proposed.event.body.event_id
        found = (find_call_record(world.server.settled, world.space, name_call(event_id, place)) for place in range(3))
        return [each.status.value for each in found]

    assert read_all() == ["running", "waiting", "denied"]
    [asked] = proposed.event.result.asked
    match end:
        case "approve":
            world.say(Approve(asked.approval_id))
        case "reject":
            world.say(Reject(asked.approval_id), SECOND)
        case "withdraw":
            world.say(Withdraw(read(world, proposed).proposal_id), AGENT)
        case _:
            world.advance(days=40)
    assert read_all()[1:] == [ended, "denied"]
    world.say(
        RecordOutcome(proposed.event.result.intents[0].execution_id, OutcomeStatus.SUCCEEDED),
        ROOT if end == "expire" else AGENT,
    )
    assert read_all() == ["done", ended, "denied"]


@pytest.mark.req("CALL-ID-01")
def test_a_refusal_by_a_rule_that_is_gone_is_still_told_when_another_call_is_decided_again(world: World) -> None:
    asks = constraint(effect="deny", subject={"tool_id": "asked"}, on_fail="ask")
    never = constraint(effect="deny", subject={"tool_id": "never"})
    policy = {"constraint.any": ANY, "constraint.ask": asks, "constraint.never": never}
    world.open(caller_tool("asked"), caller_tool("never"), policy=policy)
    proposed = world.propose(call("asked", key="1"), call("never", key="2"), atomic=False)
    change_policy(world, {}, ["constraint.never"])
    [asked] = [each for each in world.space.approvals.values() if each.proposal_id == read(world, proposed).proposal_id]
    world.say(Approve(asked.asked.approval_id), SECOND)
    record = read(world, proposed).record
    assert record.decision.policy_hash == world.space.policy.policy_hash
    [refusal, *_] = [each for each in advise_on_record(world.space, record, AGENT) if each.candidate == 1]
    assert "constraint.never" in refusal.message


# --- starting is a decision -------------------------------------------------------------------------------------------

GONE: dict[str, tuple[Callable[[World], object], str]] = {
    "the token is revoked": (lambda world: world.say(RevokeCapability(TOKEN)), "CAPABILITY_REVOKED"),
    "the tool is retired": (lambda world: world.say(RetireTool("t")), "TOOL_RETIRED"),
    "the policy forbids it": (
        lambda world: change_policy(world, {"constraint.no": constraint(effect="deny", subject={"tool_id": "t"})}),
        "CONSTRAINT_DENIED",
    ),
}


@pytest.mark.req("CALL-START-01")
@pytest.mark.parametrize("name", GONE)
def test_a_call_that_is_not_allowed_any_more_does_not_start(world: World, name: str) -> None:
    take_away, reason = GONE[name]
    world.open(caller_tool("t"))
    answer = make(world)
    take_away(world)
    started = world.claim(execution_id(world, answer))
    assert (started.event.result.intents, started.event.result.not_started) == ((), (execution_id(world, answer),))
    found = read(world, answer)
    assert (found.status, found.decision.reason_code) == (CallStatus.DENIED, reason)
    assert not world.space.spent
    with pytest.raises(Conflict, match="waits for no start"):
        world.claim(execution_id(world, answer))
    with pytest.raises(Conflict, match="was not started"):
        world.say(RecordOutcome(execution_id(world, answer), OutcomeStatus.SUCCEEDED), AGENT)


@pytest.mark.req("CALL-START-04")
@pytest.mark.parametrize("name", GONE)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_call_that_is_not_allowed_any_more_ends_without_a_claim(world: World, name: str, *, restarted: bool) -> None:
    take_away, reason = GONE[name]
    world.open(caller_tool("t", executor="gateway"), caller_tool("other", executor="gateway"))
    waiting, other = make(world), make(world, "other")
    world.server.keep()
    assert read(world, waiting).status is CallStatus.WAITING
    if name == "the token is revoked":
        world.equip(caller_tool("other", executor="gateway"), token="another")
        other = make(world, "other", {"x": 1}, token="another")
    take_away(world)
    # A process that took the step looks at once; one that began after it, at its first look.
    server = SubstrateServer(log=world.log, clock=world.clock, keeper_seconds=None) if restarted else world.server
    server.keep()
    found = read(world, waiting)
    assert (found.status, found.decision.reason_code) == (CallStatus.DENIED, reason)
    assert not world.space.spent
    # What it did not concern goes on waiting, and costs no entry.
    assert read(world, other).status is CallStatus.WAITING
    head = world.space.head
    server.keep()
    assert world.space.head == head
    assert world.claim(execution_id(world, other), GATEWAY).event.result.intents
    if restarted:
        server.close()


@pytest.mark.req("CALL-START-04")
def test_a_call_that_is_asked_for_anew_or_lost_its_runner_ends_without_a_claim(world: World) -> None:
    world.open(caller_tool("t", executor="gateway"), caller_tool("u", executor="gateway"))
    asked, moved = make(world), make(world, "u")
    change_policy(world, {"constraint.ask": ASKING})
    world.say(RegisterTool(caller_tool("u")))
    world.server.keep()
    assert (read(world, asked).status, read(world, asked).decision.failure) == (CallStatus.WAITING, Failure.ASK)
    assert read(world, moved).status is CallStatus.WITHDRAWN


@pytest.mark.req("CALL-START-01")
def test_a_call_whose_case_was_closed_is_withdrawn_and_does_not_start(cased_world: World) -> None:
    world = cased_world
    world.open(caller_tool("t"))
    world.say(OpenCase("c", [AGENT.id]))
    answer = make(world, case_id="c")
    closed = world.say(CloseCase("c"))
    assert closed.event.result.not_started == (execution_id(world, answer),)
    assert read(world, answer).status is CallStatus.WITHDRAWN
    # A case that is not there: nothing is started under it either.
    elsewhere = make(world, case_id="c", args={"x": 1})
    started = world.claim(execution_id(world, elsewhere))
    assert (started.event.result.reason_code, read(world, elsewhere).status) == ("NO_CASE", CallStatus.WITHDRAWN)


@pytest.mark.req("CALL-START-01")
def test_a_call_that_needs_an_approval_by_now_asks_for_it_and_starts_afterwards(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world)
    change_policy(world, {"constraint.ask": ASKING})
    first = execution_id(world, answer)
    asking = world.claim(first)
    assert read(world, answer).status is CallStatus.WAITING
    assert world.space.executions[first].status is ExecutionStatus.NOT_STARTED
    approve(world, asking)
    second = execution_id(world, answer)
    assert second != first
    world.claim(second)
    assert read(world, answer).status is CallStatus.RUNNING
    world.report(second)
    assert read(world, answer).status is CallStatus.DONE


@pytest.mark.req("CALL-START-01")
def test_a_call_that_has_to_wait_by_now_is_parked_and_starts_afterwards(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world)
    change_policy(world, {"constraint.wait": UNMET})
    world.claim(execution_id(world, answer))
    found = read(world, answer)
    assert (found.status, list(world.space.parked)) == (CallStatus.WAITING, [found.proposal_id])
    world.know(go="yes")
    world.report(execution_id(world, answer))
    assert read(world, answer).status is CallStatus.DONE


RUNNERS = {"server": http_tool("t"), "executor": caller_tool("t", executor="gateway"), "caller": caller_tool("t")}


@pytest.mark.req("CALL-START-01")
@pytest.mark.parametrize(("before", "now"), list(permutations(RUNNERS, 2)))
def test_a_call_does_not_start_once_its_tool_is_run_by_another(world: World, before: str, now: str) -> None:
    world.open(RUNNERS[before])
    world.server._executor.turns.take(line := _line(), 8)
    answer = make(world)
    world.say(RegisterTool(RUNNERS[now]))
    world.server._executor.release(line, 8)
    if before != "server":
        started = world.claim(execution_id(world, answer), GATEWAY if before == "executor" else AGENT)
        assert started.event.result.reason_code == "RUNNER_CHANGED"
    assert eventually(lambda: read(world, answer).status is CallStatus.WITHDRAWN)
    assert world.runner.calls == []


@pytest.mark.req("CALL-CLAIM-01")
def test_a_claim_starts_nothing_under_a_case_that_was_closed(cased_world: World) -> None:
    world = cased_world
    world.open(caller_tool("t"), http_tool("h"))
    world.say(OpenCase("c", [AGENT.id]))
    world.say(CloseCase("c"))
    assert read(world, make(world, case_id="c", claim=Claim(hash_of_nonce("n")))).status is CallStatus.WAITING
    queued = make(world, "h", case_id="c")
    assert eventually(lambda: read(world, queued).status is CallStatus.WITHDRAWN)
    assert world.runner.calls == []


@pytest.mark.req("CALL-CLAIM-03")
def test_what_came_of_a_call_is_not_for_others_to_guess(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world)
    world.report(execution_id(world, answer), result=1)
    for guess in (1, 2):
        said = world.say(RecordOutcome(execution_id(world, answer), OutcomeStatus.SUCCEEDED, raw(guess)), OTHER_AGENT)
        assert said.event.result.reason_code == "NOT_AUTHORISED"


@pytest.mark.req("CALL-JOIN-01")
def test_what_is_joined_is_open_whatever_became_of_the_tool_meanwhile(world: World) -> None:
    world.open(caller_tool("t"))
    first, second = make(world, key="one"), make(world, key="two")
    world.say(RegisterTool(caller_tool("t", writes=False)))
    world.say(Withdraw(read(world, second).proposal_id), AGENT)
    world.say(RegisterTool(caller_tool("t")))
    assert make(world).seq == first.seq
    world.say(Withdraw(read(world, first).proposal_id), AGENT)
    assert not make(world).repeated
    assert dict(index_open_calls(world.space)) == dict(world.space.open_calls)


@pytest.mark.req("CALL-START-02")
def test_an_approval_and_a_budget_are_used_when_a_call_starts(world: World) -> None:
    world.open(caller_tool("t"), policy=POLICY, budget=Budget(calls=1))
    answer = make(world)
    approve(world, answer)
    assert (len(world.space.grants), dict(world.space.spent)) == (1, {})
    second = make(world, args={"x": 2})
    approve(world, second)
    world.claim(execution_id(world, answer))
    assert (len(world.space.grants), world.space.spent[TOKEN].calls) == (1, 1)
    world.claim(execution_id(world, second))
    assert read(world, second).decision.reason_code == "BUDGET_EXHAUSTED"


@pytest.mark.req("CALL-START-02")
def test_what_is_approved_is_what_was_shown(world: World) -> None:
    world.open(caller_tool("t"), policy=POLICY)
    answer = make(world, args={"note": "harmless"})
    (asked,) = answer.event.result.asked
    space, found = world.space, read(world, answer)
    assert asked.call_hash == hash_of_call(space, AGENT.id, None, "t", asked.args_hash)
    assert asked.call_hash != hash_of_call(space, AGENT.id, "c", "t", asked.args_hash)
    assert world.say(Approve(asked.approval_id, call_hash="0" * 64)).event.result.reason_code == "CALL_CHANGED"
    world.say(RegisterTool(caller_tool("t", description="another")))
    approve(world, answer)
    assert (found.status, read(world, answer).status) == (CallStatus.WAITING, CallStatus.WAITING)
    assert world.space.proposals[found.proposal_id].status is ProposalStatus.ASKED


@pytest.mark.req("CALL-START-03")
def test_a_call_that_is_not_started_expires_and_its_key_is_free_again(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world, key="k", defer_ms=60_000)
    with pytest.raises(Conflict, match="not over"):
        world.say(Expire(ExpiryOf.EXECUTION, execution_id(world, answer)), ENGINE)
    world.clock.advance(timedelta(minutes=1))
    with pytest.raises(Conflict, match="had until"):
        world.claim(execution_id(world, answer))
    world.server.keep()
    assert (read(world, answer).status, list(world.space.running)) == (CallStatus.EXPIRED, [])
    with pytest.raises(Conflict, match="does not wait"):
        world.say(Expire(ExpiryOf.EXECUTION, execution_id(world, answer)), ENGINE)
    assert not make(world, key="k").repeated


@pytest.mark.req("CALL-START-03")
def test_a_call_that_waits_to_be_started_is_withdrawn(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world)
    world.say(Withdraw(read(world, answer).proposal_id), AGENT)
    assert (read(world, answer).status, dict(world.space.loads)) == (CallStatus.WITHDRAWN, {})


def test_of_a_proposal_with_several_calls_each_is_started_by_itself(world: World) -> None:
    policy = {
        **POLICY,
        "constraint.wait": constraint(
            effect="deny", subject={"tool_id": "w"}, when={"op": "missing", "args": ["fact.go"]}, on_fail="defer"
        ),
    }
    world.open(caller_tool("t"), caller_tool("w"), caller_tool("x", executor="gateway"), policy=policy)
    answer = world.propose(
        call("x", key="1"), call("t", key="2"), call("w", key="3"), call("x", {"n": 2}, key="4"),
        atomic=False, proposal_id="p", defer_ms=60_000,
    )  # fmt: skip
    space, event_id = world.space, answer.event.body.event_id
    calls = [find_call_record(world.server.settled, space, name_call(event_id, place)) for place in range(4)]
    assert [each.status for each in calls] == [CallStatus.WAITING] * 4
    world.clock.advance(timedelta(minutes=1))
    first = calls[0].execution
    assert first is not None
    world.say(Expire(ExpiryOf.EXECUTION, first.intent.execution_id), ENGINE)
    assert status(world.space, "p") is ProposalStatus.ASKED
    (asked,) = answer.event.result.asked
    world.say(Reject(asked.approval_id))
    assert status(world.space, "p") is ProposalStatus.READY
    ended = find_call_record(world.server.settled, world.space, name_call(event_id, 1))
    assert ended.status is CallStatus.DENIED


def test_an_atomic_proposal_fails_where_one_of_its_calls_is_not_started(world: World) -> None:
    world.open(caller_tool("t"), caller_tool("x", executor="gateway"))
    world.propose(call("t", key="1"), call("x", key="2"), delta(a="1"), proposal_id="p")
    own, relayed = world.space.proposals["p"].execution_ids
    change_policy(world, {"constraint.no": constraint(effect="deny", subject={"tool_id": "x"})})
    world.claim(relayed, GATEWAY)
    assert status(world.space, "p") is ProposalStatus.RUNNING
    world.report(own)
    assert (status(world.space, "p"), "goal.a" in world.space.state) == (ProposalStatus.FAILED, False)


def test_what_waits_to_be_started_answers_no_other_call(world: World) -> None:
    """It may never run: a proposal that waited for it could never end."""
    world.open(caller_tool("x", executor="gateway"), caller_tool("t"))
    world.propose(call("x"), proposal_id="first")
    world.propose(call("x"), proposal_id="second")
    world.propose(call("x"), call("t", key="own"), atomic=False, proposal_id="third")
    (name,) = world.space.proposals["first"].execution_ids
    refused = world.space.proposals["second"].decision
    assert (refused.verdict.value, refused.reason_code) == ("deny", "IDEMPOTENCY_CONFLICT")
    world.say(Withdraw("first"), AGENT)
    assert world.space.executions[name].status is ExecutionStatus.NOT_STARTED
    standing = [status(world.space, each).value for each in ("first", "second", "third")]
    assert standing == ["withdrawn", "denied", "running"]
    # The key is free again.
    world.propose(call("x"), proposal_id="fourth")
    assert status(world.space, "fourth") is ProposalStatus.READY


# --- what the server runs ---------------------------------------------------------------------------------------------


@pytest.mark.req("CALL-TURN-01")
def test_a_call_whose_turn_comes_after_its_permission_went_is_not_sent(world: World) -> None:
    world.open(http_tool("t"))
    world.server._executor.turns.take(line := _line(), 8)
    answer = make(world)
    assert read(world, answer).status is CallStatus.WAITING
    world.say(RevokeCapability(TOKEN))
    world.server._executor.release(line, 8)
    assert eventually(lambda: read(world, answer).status is CallStatus.DENIED)
    assert world.runner.calls == []


@pytest.mark.req("CALL-TURN-01")
def test_a_call_that_waits_for_its_turn_runs_when_it_comes(world: World) -> None:
    world.open(http_tool("t"))
    world.server._executor.turns.take(line := _line(), 8)
    answers = [make(world, args={"n": number}) for number in range(3)]
    world.server.resume(world.space)
    world.server._executor.release(line, 8)
    assert eventually(lambda: all(read(world, each).status is CallStatus.DONE for each in answers))
    assert len(world.runner.calls) == 3


@pytest.mark.req("CALL-CLAIM-02")
def test_a_claim_of_what_the_server_runs_is_none(world: World) -> None:
    world.open(http_tool("t"))
    answer = make(world, claim=Claim(hash_of_nonce("n")))
    assert eventually(lambda: read(world, answer).status is CallStatus.DONE)
    found = read(world, answer).execution
    assert found is not None
    assert (found.nonce_hash, found.executor, len(world.runner.calls)) == (None, None, 1)


@pytest.mark.req("CALL-TURN-01")
@pytest.mark.parametrize("message", ["approve", "make", "propose"])
def test_the_first_call_of_a_space_that_is_not_in_memory_waits_for_its_turn_too(
    make_world: Callable[..., World], message: str
) -> None:
    before = make_world()
    before.open(http_tool("t"), policy=POLICY if message == "approve" else None)
    asked = make(before) if message == "approve" else None
    proposal = before.proposal(call("t"))
    # Another process, or this one after the space has left its cache.
    world = make_world(before.log, space=1)
    line = _line()
    assert world.server._executor.turns.take(line, 8)
    if asked is not None:
        approve(world, asked)
    elif message == "make":
        asked = make(world)
    else:
        asked = world.say(Propose(proposal), AGENT)
    assert (read(world, asked).status, world.runner.calls) == (CallStatus.WAITING, [])
    world.server._executor.release(line, 8)
    assert eventually(lambda: read(world, asked).status is CallStatus.DONE)
    assert len(world.runner.calls) == 1


def _line() -> Line:
    return Line(SPACE, AGENT.id)


# --- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.req("CALL-FORWARD-01")
def test_fields_beside_the_args_are_dropped_unless_the_policy_lets_them_through(world: World) -> None:
    policy = {**POLICY, "policy.forward.t": '["_meta.ticket"]'}
    world.open(caller_tool("t"), caller_tool("u"), policy=policy)
    fields = {"_meta.ticket": "INC-1", "_meta.secret": "x"}
    let_through, dropped = read(world, make(world, forwarded=fields)), read(world, make(world, "u", forwarded=fields))
    assert let_through.call.forwarded == msgspec.Raw(b'{"_meta.ticket":"INC-1"}')
    assert dropped.call.forwarded is msgspec.UNSET
    (approval,) = world.space.approvals.values()
    plain = read(world, make(world))
    assert {each.asked.call_hash for each in world.space.approvals.values()} != {approval.asked.call_hash}
    assert plain.record.seq != let_through.record.seq
    world.say(Approve(approval.asked.approval_id))
    execution = read(world, make(world, forwarded=fields)).execution
    assert execution is not None
    assert execution.forwarded == b'{"_meta.ticket":"INC-1"}'


@pytest.mark.parametrize("field", ["forwarded", "nonce_hash", "tool_hash"])
def test_what_is_malformed_is_refused_and_changes_nothing(world: World, field: str) -> None:
    world.open(caller_tool("t"))
    before = world.space.head
    claim = Claim("x" if field == "nonce_hash" else "0" * 64, "x" if field == "tool_hash" else msgspec.UNSET)
    with pytest.raises(InvalidRequest, match=field):
        make(world, forwarded=[] if field == "forwarded" else {}, claim=claim)
    assert world.space.head == before


def test_only_tools_that_run_outside_the_server_name_an_executor(world: World) -> None:
    world.open(caller_tool("t", executor="caller"))
    assert world.space.tools["t"].executor is msgspec.UNSET
    with pytest.raises(InvalidRequest, match="runs this tool itself"):
        world.say(RegisterTool(http_tool("h", executor="gateway")))


def test_a_change_of_state_that_waits_is_shown_with_a_hash_of_its_own(world: World) -> None:
    asking = constraint(effect="deny", when={"op": "missing", "args": ["$tool.id"]}, on_fail="ask")
    world.open(caller_tool("t"), policy={"constraint.any": ANY, "constraint.ask": asking})
    (asked,) = world.propose(StateDelta({"fact.a": "1"}), actor=ENCODER).event.result.asked
    assert (asked.tool_id, len(asked.call_hash)) == (None, 64)
    assert world.propose(facts(b="1"), actor=ENCODER).event.result.asked[0].call_hash != asked.call_hash


# --- the rest of what follows -----------------------------------------------------------------------------------------


def test_what_a_start_decided_is_told_again_and_tried_under_another_policy(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world)
    change_policy(world, {"constraint.wait": UNMET})
    started = world.claim(execution_id(world, answer))
    before = world.server.at(SPACE, started.seq - 1)
    assert trace_decision(before, started.event).reason_code == "CONSTRAINT_DENIED"
    found = impact_of(SPACE, world.log.read(STREAM), compile_policy({"constraint.any": ANY}))
    assert [(each.seq, each.kind.value) for each in found.flips] == [(started.seq, "defer→allow")]


@pytest.mark.req("CALL-JOIN-01")
def test_a_call_under_a_key_is_found_however_long_ago_it_ended(short_epochs: None, world: World) -> None:
    world.open(caller_tool("t"))
    first = make(world, args={"x": 1}, key="k")
    world.report(execution_id(world, first))
    for number in range(12):
        world.propose(delta(a=str(number)))
    again = make(world, args={"x": 1}, key="k")
    assert (read(world, first).status, read(world, again).status) == (CallStatus.DONE, CallStatus.DONE)
    assert not make(world, args={"x": 3}).repeated


def test_a_proposal_whose_calls_wait_for_different_things_stands_where_the_nearest_does(world: World) -> None:
    world.open(caller_tool("t"), caller_tool("w"), caller_tool("x", executor="gateway"), policy={
        **POLICY, "constraint.wait": constraint(effect="deny", subject={"tool_id": "w"}, when=NO_GO, on_fail="defer"),
    })  # fmt: skip

    def expire_first(proposal_id: str, *candidates: ToolCall, starts: bool = False) -> ProposalStatus:
        world.propose(*candidates, atomic=False, proposal_id=proposal_id, defer_ms=60_000)
        ready = world.space.proposals[proposal_id].execution_ids
        if starts:
            world.claim(ready[-1], GATEWAY)
        world.clock.advance(timedelta(minutes=1))
        world.say(Expire(ExpiryOf.EXECUTION, ready[0]), ENGINE)
        return status(world.space, proposal_id)

    def relayed(number: str) -> ToolCall:
        return call("x", {"n": number}, key=number)

    assert expire_first("p", relayed("1"), call("w", key="2")) is ProposalStatus.PARKED
    assert expire_first("q", relayed("3"), relayed("4")) is ProposalStatus.READY
    assert expire_first("r", relayed("5"), relayed("6"), starts=True) is ProposalStatus.RUNNING


def test_an_outcome_leaves_a_proposal_ready_where_another_call_waits_to_be_started(world: World) -> None:
    world.open(caller_tool("t"), caller_tool("x", executor="gateway"))
    world.propose(call("t", key="1"), call("x", key="2"), proposal_id="p")
    own, relayed = world.space.proposals["p"].execution_ids
    world.report(own)
    assert status(world.space, "p") is ProposalStatus.READY
    world.claim(relayed, GATEWAY)
    world.say(RecordOutcome(relayed, OutcomeStatus.SUCCEEDED, nonce=f"nonce of {relayed}"), GATEWAY)
    assert status(world.space, "p") is ProposalStatus.COMMITTED


def test_a_queue_is_no_part_of_what_was_asked(world: World) -> None:
    world.open(http_tool("t"))
    proposal = world.proposal(call("t"), proposal_id="p")
    queued = world.say(Propose(proposal, queued=True), AGENT)
    again = world.say(Propose(proposal), AGENT)
    assert (again.repeated, again.seq) == (True, queued.seq)


@pytest.mark.parametrize("text", ["{}", "[1]", '[""]'])
def test_what_is_forwarded_is_a_list_of_names(text: str) -> None:
    [fault] = validate_policy({"policy.forward.t": text})
    assert "list of names of fields" in fault.message


def test_an_executor_that_calls_is_told_whose_credential_to_use(world: World) -> None:
    world.open(caller_tool("t"))
    answer = make(world, actor=GATEWAY)
    [refusal] = advise_on_record(world.space, read(world, answer).record, GATEWAY)
    assert (refusal.field, refusal.accepted) == ("actor.kind", ["agent"])
    assert "agent's credential" in refusal.next
