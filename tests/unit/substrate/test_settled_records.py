"""What has left the state of a space still counts, and can still be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from cmbs.audit.fsck import check_space
from cmbs.belief.kernel.events import Stamp
from cmbs.errors import Conflict, EventNotFound, LedgerCorrupt, RecordNotFound
from cmbs.ledger.state_digest import is_digest_point
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.decide import decide
from cmbs.substrate.kernel.events import (
    Approve,
    Evidence,
    KnownCall,
    MemoryKind,
    Mode,
    OutcomeStatus,
    Propose,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    SetMode,
    SpaceEvent,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.key_digests import BucketDigests
from cmbs.substrate.kernel.kind import append_of_space
from cmbs.substrate.kernel.lookups import PastUnread, find_unknown, require_lookup
from cmbs.substrate.kernel.model import Decision, ReasonCode
from cmbs.substrate.kernel.rebuilding import find_tool, rebuild
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event, verify_space
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.retention import EPOCH_EVENTS, KEPT_EVENTS, Recalled, Unknown, last_dropped, outline_of
from cmbs.substrate.kernel.state import CallKey
from cmbs.substrate.kernel.steps import fingerprint
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, ProposalStatus
from tests.support.epochs import epochs_of
from tests.support.spaces import (
    AGENT,
    ANY,
    ROOT,
    SPACE,
    STREAM,
    BlockingStore,
    World,
    assert_replays,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    facts,
    raw,
)
from tests.support.subtests import for_each

ASK = {"constraint.any": ANY, "constraint.ask": constraint(effect="deny", subject={"tool_id": "asked"}, on_fail="ask")}


@pytest.fixture
def world() -> Iterator[World]:
    """A space of which nothing that is settled stays for more than a few events."""
    with epochs_of(4):
        world = World()
        world.open(caller_tool("t"), caller_tool("asked"), policy=ASK)
        yield world
        assert_replays(world)
        assert check_space(world.log, SPACE).findings == []
        world.close()


def pass_epochs(world: World) -> None:
    """Let everything that is settled leave the state."""
    for _ in range(8):
        world.propose(delta(passing=str(world.space.head.seq)))


def decision_of(world: World, event: SpaceEvent) -> Decision:
    assert event.result.decision is not None
    return event.result.decision


@pytest.mark.slow
@pytest.mark.req("SS01-SCALE-01")
def test_the_state_holds_what_is_open_and_what_was_settled_a_moment_ago() -> None:
    world = World()
    world.open(caller_tool("t"), policy=ASK)
    open_id = world.start(call("t", key="open"))
    sizes = []
    for number in range(2 * EPOCH_EVENTS):
        answer = world.propose(delta(now=str(number)), proposal_id=f"n{number}")
        if is_digest_point(answer.seq + 1):
            # Without the digests of buckets, of which there are so many in the end, and no more.
            sizes.append(
                len(
                    freeze_space(
                        msgspec.structs.replace(answer.space, key_digests=BucketDigests(), hash_digests=BucketDigests())
                    )
                )
            )
        assert f"n{number}" in answer.space.proposals
    space = world.space
    assert len(space.proposals) <= EPOCH_EVENTS + KEPT_EVENTS
    assert (space.n_proposals, list(space.running)) == (2 * EPOCH_EVENTS + 1, [open_id])
    assert max(len(space.events), len(space.snapshots)) <= EPOCH_EVENTS + KEPT_EVENTS
    # No larger after two epochs than after one.
    assert sizes[1] < 1.1 * sizes[0]
    assert_replays(world)
    world.close()


@for_each(("head_seq", "expected"), [(0, -1), (998, -1), (999, 743), (1998, 743), (1999, 1743)])
def test_what_may_have_left_is_known_from_the_length_of_the_stream(head_seq: int, expected: int) -> None:
    assert last_dropped(head_seq) == expected


# --- decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-SCALE-01")
def test_a_proposal_that_has_left_is_repeated_and_contradicted_as_ever(world: World) -> None:
    proposal = world.proposal(delta(a="1"), proposal_id="p")
    first = world.say(Propose(proposal), AGENT)
    pass_epochs(world)
    assert "p" not in world.space.proposals
    again = world.say(Propose(proposal), AGENT)
    assert (again.repeated, again.event) == (True, first.event)
    # The answer shows the proposal.
    assert again.space.proposals["p"].status is ProposalStatus.COMMITTED
    with pytest.raises(Conflict, match="said something else"):
        world.propose(delta(a="2"), proposal_id="p")


@pytest.mark.req("SS01-SCALE-01", "SS01-EXEC-02")
def test_a_call_never_runs_twice_however_long_ago_it_ran(world: World) -> None:
    execution_id = world.start(call("t", {"n": 1}))
    world.report(execution_id, result={"b": 2})
    pass_epochs(world)
    assert execution_id not in world.space.executions
    again = world.propose(call("t", {"n": 1}), delta(with_it="1"), proposal_id="again")
    assert (again.event.result.intents, again.event.result.answered_by) == ((), {"0": execution_id})
    assert again.space.proposals["again"].status is ProposalStatus.COMMITTED
    message = again.event.message
    assert isinstance(message, Propose)
    assert isinstance(message.known_calls, list)
    assert [known.execution_id for known in message.known_calls] == [execution_id]
    other = world.propose(call("t", {"n": 2}))
    assert decision_of(world, other.event).reason_code is ReasonCode.IDEMPOTENCY_CONFLICT
    # What came back to answer is an outline: the execution itself is read from the ledger.
    assert again.space.executions[execution_id].is_outline
    found = world.server.settled.with_execution(world.space, execution_id).executions[execution_id]
    assert (found.result, found.args, found.is_outline) == (b'{"b":2}', b'{"n":1}', False)
    assert world.report(execution_id, result={"b": 2}).repeated


def test_a_failed_call_of_long_ago_fails_what_it_answers(world: World) -> None:
    world.report(world.start(call("t")), OutcomeStatus.FAILED)
    pass_epochs(world)
    answer = world.propose(call("t"), delta(with_it="1"), proposal_id="p")
    assert (answer.space.proposals["p"].status, "goal.with_it" in answer.space.state) == (ProposalStatus.FAILED, False)


@pytest.mark.req("SS01-SCALE-01")
def test_a_snapshot_of_long_ago_is_as_fresh_as_what_it_is_about(world: World) -> None:
    world.propose(delta(a="1", b="1"))
    snapshot_id = world.space.snapshot_id
    world.propose(delta(a="2"))
    pass_epochs(world)
    assert snapshot_id not in world.space.snapshots
    fresh = world.propose(delta(b="2"), snapshot_id=snapshot_id)
    assert decision_of(world, fresh.event).reason_code is ReasonCode.ALLOWED
    stale = world.propose(delta(a="3"), snapshot_id=snapshot_id)
    assert decision_of(world, stale.event).reason_code is ReasonCode.STALE_SNAPSHOT
    never = [snapshot_id[:-1], "x" * 64, "00" * 32, snapshot_id.upper(), world.log.read(STREAM)[1].event_hash.hex()]
    for unknown in never:
        answer = world.propose(delta(b="3"), snapshot_id=unknown)
        assert decision_of(world, answer.event).reason_code is ReasonCode.UNKNOWN_SNAPSHOT
    assert world.server.state_at(SPACE, snapshot_id).state["goal.a"] == "1"
    with pytest.raises(EventNotFound):
        world.server.state_at(SPACE, "00" * 32)


@pytest.mark.req("SS01-SCALE-01")
def test_an_idempotency_key_of_long_ago_is_still_used(world: World) -> None:
    answers = [
        world.say(SetMode(Mode.ENFORCE), ROOT, idempotency_key="mode"),
        world.say(Propose(world.proposal(delta(a="1"), proposal_id="p")), AGENT, idempotency_key="propose"),
    ]
    execution_id = world.start(call("t"))
    outcome = RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED)
    answers.append(world.say(outcome, AGENT, idempotency_key="outcome"))
    (asked,) = world.propose(call("asked", key="ask")).event.result.asked
    answers.append(world.say(Reject(asked.approval_id), ROOT, idempotency_key="reject"))
    pass_epochs(world)
    messages = [(answer.event.message, answer.event.body) for answer in answers]
    for answer, (message, body) in zip(answers, messages, strict=True):
        again = world.say(message, body.actor, idempotency_key=body.idempotency_key)
        assert (again.repeated, again.seq) == (True, answer.seq)
        with pytest.raises(Conflict, match="used for another request"):
            world.say(RegisterTool(caller_tool("v")), body.actor, idempotency_key=body.idempotency_key)
    assert asked.approval_id in world.say(Reject(asked.approval_id), ROOT, idempotency_key="reject").space.approvals


@pytest.mark.req("SS01-SCALE-01")
def test_outcomes_and_approvals_of_long_ago_are_settled(world: World) -> None:
    execution_id = world.start(call("t"))
    settled = world.report(execution_id, result=1)
    (asked,) = world.propose(call("asked", key="ask"), proposal_id="asking").event.result.asked
    world.say(Reject(asked.approval_id), ROOT)
    pass_epochs(world)
    assert not world.space.approvals
    again = world.report(execution_id, result=1)
    assert (again.repeated, again.seq) == (True, settled.seq)
    with pytest.raises(Conflict, match="another outcome already"):
        world.report(execution_id, OutcomeStatus.FAILED)
    with pytest.raises(Conflict, match="rejected already"):
        world.say(Approve(asked.approval_id), ROOT)
    for unknown in ("a-x-0", "a", asked.approval_id.replace("a-", "x-")):
        with pytest.raises(RecordNotFound):
            world.say(Reject(unknown), ROOT)
        with pytest.raises(RecordNotFound):
            world.report(unknown)
    assert (
        world.server.settled.with_approval(world.space, asked.approval_id).approvals[asked.approval_id].approver == ROOT
    )


@pytest.mark.req("SS01-SCALE-01")
def test_an_event_of_long_ago_confirms_what_it_always_did(world: World) -> None:
    world.equip(caller_tool("u"), token="other", agent=Actor(ActorKind.AGENT, "other"))
    observed = world.propose(facts(a="1"), actor=Actor(ActorKind.ENCODER, "encoder")).event.body.event_id
    claimed = world.propose(delta(b="1")).event.body.event_id
    pass_epochs(world)
    for event_id, confirmed in ((observed, True), (claimed, False), ("never", False)):
        message = PutMemory(event_id, MemoryKind.FACT, raw(event_id), Evidence(confirmed_by_event_id=event_id))
        assert world.say(message, AGENT).event.result.granted is confirmed


def test_what_was_withdrawn_long_ago_is_withdrawn(world: World) -> None:
    world.propose(call("asked", key="ask"), proposal_id="p")
    first = world.say(Withdraw("p"), AGENT)
    world.propose(delta(a="1"), proposal_id="q")
    pass_epochs(world)
    again = world.say(Withdraw("p"), AGENT)
    assert (again.repeated, again.seq, again.space.proposals["p"].withdrawn_seq) == (True, first.seq, first.seq)
    with pytest.raises(Conflict, match="waits for nothing"):
        world.say(Withdraw("q"), ROOT)
    # A refusal would be on record, and replay could not tell whose it is.
    with pytest.raises(RecordNotFound):
        world.say(Withdraw("p"), Actor(ActorKind.AGENT, "another"))


def test_keys_belong_to_actors_for_ever(world: World) -> None:
    other = Actor(ActorKind.AGENT, "other")
    world.equip(caller_tool("t"), token="theirs", agent=other)
    execution_id = world.start(call("t"))
    world.report(execution_id)
    world.say(Propose(world.proposal(delta(a="1"))), AGENT, idempotency_key="r")
    pass_epochs(world)
    theirs = world.propose(call("t", token="theirs"), actor=other)
    assert len(theirs.event.result.intents) == 1
    answer = world.say(Propose(world.proposal(delta(b="1"), actor=other)), other, idempotency_key="r")
    assert not answer.repeated


def test_what_waits_is_never_dropped_and_recalls_what_it_needs(world: World) -> None:
    """While a call waits for an approval, another proposal makes it, and is forgotten."""
    (asked,) = world.propose(call("asked", key="k"), proposal_id="waits").event.result.asked
    change_policy(world, {}, ["constraint.ask"])
    execution_id = world.start(call("asked", key="k"))
    world.report(execution_id)
    pass_epochs(world)
    assert "waits" in world.space.proposals
    change_policy(world, {"constraint.ask": ASK["constraint.ask"]})
    answer = world.say(Approve(asked.approval_id), ROOT)
    assert answer.event.result.answered_by == {"0": execution_id}
    assert answer.space.proposals["waits"].status is ProposalStatus.COMMITTED


def test_an_approval_stays_for_as_long_as_it_can_be_used(world: World) -> None:
    (asked,) = world.propose(call("asked", {"n": 1}, key="1")).event.result.asked
    world.report(world.say(Approve(asked.approval_id, uses=2), ROOT).event.result.intents[0].execution_id)
    pass_epochs(world)
    assert world.space.approvals[asked.approval_id].uses_left == 1
    # Its proposal has left; the request for approval is shown with it all the same.
    assert world.server.settled.with_approval(world.space, asked.approval_id).proposals
    world.report(world.start(call("asked", {"n": 1}, key="2")))
    pass_epochs(world)
    assert asked.approval_id not in world.space.approvals
    found = world.server.settled.with_approval(world.space, asked.approval_id).approvals[asked.approval_id]
    assert (found.status, found.uses_left) == (ApprovalStatus.APPROVED, 0)


# --- what a sender or an intruder says --------------------------------------------------------------------------------


def known_call(world: World, execution_id: str, **fields: object) -> KnownCall:
    execution = world.server.settled.with_execution(world.space, execution_id).executions[execution_id]
    known = outline_of(execution, execution.call_key)
    assert known is not None
    return msgspec.structs.replace(known, **fields)


@pytest.mark.req("SS01-SCALE-03")
def test_what_a_sender_says_of_the_past_is_replaced(world: World) -> None:
    execution_id = world.start(call("t", key="1"))
    world.report(execution_id)
    forged = known_call(world, execution_id, idempotency_key="2")
    proposal = world.proposal(call("t", key="2"))
    answer = world.say(Propose(proposal, known_calls=[forged], snapshot_seq=0), AGENT)
    assert len(answer.event.result.intents) == 1
    message = answer.event.message
    assert isinstance(message, Propose)
    assert (message.known_calls, message.snapshot_seq) == (msgspec.UNSET, msgspec.UNSET)
    command = SpaceCommand(SPACE, AGENT, Propose(world.proposal(delta(a="1"))), recalled=Recalled())
    assert not world.server.perform(command).repeated


@pytest.mark.req("SS01-SCALE-03")
@for_each(
    ("change", "problem"),
    [
        (lambda message, _: msgspec.structs.replace(message, known_calls=[]), "outcome"),
        (lambda message, _: msgspec.structs.replace(message, known_calls=msgspec.UNSET), "outcome"),
        (
            lambda message, known: msgspec.structs.replace(
                message, known_calls=[msgspec.structs.replace(known, outcome=OutcomeStatus.FAILED)]
            ),
            "is not as it says",
        ),
        (
            lambda message, known: msgspec.structs.replace(
                message, known_calls=[msgspec.structs.replace(known, execution_id="x-never-0")]
            ),
            "is not as it says",
        ),
        (lambda message, _: msgspec.structs.replace(message, snapshot_seq=3), "is not that of event 3"),
    ],
    ids=["nothing known", "not looked up", "another outcome", "no such execution", "another snapshot"],
)
def test_a_whole_log_is_decided_on_what_really_was(
    change: Callable[[Propose, KnownCall], Propose], problem: str
) -> None:
    """A writer that is not ours may say anything of the past. Verification does not take it from there."""
    with epochs_of(4):
        world = World()
        world.open(caller_tool("t"), policy=ASK)
        execution_id = world.start(call("t"))
        world.report(execution_id)
        known = known_call(world, execution_id)
        pass_epochs(world)
        space = world.space
        message = change(Propose(world.proposal(call("t")), known_calls=[known]), known)
        event = decide(space, message, AGENT, Stamp("forged", world.clock.now()))
        assert isinstance(event, SpaceEvent)
        world.log.append([append_of_space(event)])
        entries = world.log.read(STREAM)
        # One who only continues a state cannot tell.
        assert catch_up_space(SPACE, None, entries) is not None
        with pytest.raises(LedgerCorrupt, match=problem):
            verify_space(SPACE, entries)
        assert check_space(world.log, SPACE).findings
        world.close()


@pytest.mark.req("SS01-SCALE-03")
def test_a_command_that_was_prepared_before_something_left_is_prepared_again(world: World) -> None:
    pass_epochs(world)
    head, limit = world.space.head.seq, last_dropped(world.space.head.seq)
    command = SpaceCommand(SPACE, AGENT, Propose(world.proposal(delta(a="1"), call("t"))))
    unknown = find_unknown(world.space, command)
    others = (
        Unknown(unknown.proposal_id),
        Unknown(calls=unknown.calls),
        Unknown("another", calls=unknown.calls),
        None,
    )
    for seq, looked_up in ((head, unknown), (limit, unknown)):
        require_lookup(world.space, msgspec.structs.replace(command, looked_up=looked_up, looked_up_seq=seq))
    for seq, missing in ((limit - 1, unknown), *((head, each) for each in others)):
        with pytest.raises(PastUnread):
            require_lookup(world.space, msgspec.structs.replace(command, looked_up=missing, looked_up_seq=seq))
    # What names nothing that could have left needs no lookup.
    for message in (RegisterTool(caller_tool("v")), Wake("never", [])):
        require_lookup(world.space, SpaceCommand(SPACE, ROOT, message))


@pytest.mark.req("SS01-SCALE-03", "SS01-EXEC-02")
def test_of_many_that_make_the_same_call_one_runs_it_while_everything_leaves() -> None:
    with epochs_of(2, 1):
        world = World(BlockingStore())
        world.open(caller_tool("t"), policy=ASK)

        def make(number: int) -> str:
            """Make a call, and report its outcome if it is ours to run."""
            result = world.propose(call("t", key=str(number % 5))).event.result
            for intent in result.intents:
                world.report(intent.execution_id)
            return "ran" if result.intents else "answered"

        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(make, range(60)))
        assert outcomes.count("ran") == 5
        assert_replays(world)
        world.close()


# --- reading ----------------------------------------------------------------------------------------------------------


def test_what_never_was_is_not_found(world: World) -> None:
    pass_epochs(world)
    server, space = world.server, world.space
    for find in (server.settled.with_proposal, server.settled.with_approval, server.settled.with_execution):
        with pytest.raises(RecordNotFound):
            find(space, "never")
    assert (server.settled.find_seq(space, "never"), server.settled.find_commit(space, "never")) == (None, None)


def test_a_proposal_that_awaited_the_call_of_another_is_put_together_again(world: World) -> None:
    execution_id = world.start(call("t"), proposal_id="first")
    world.propose(call("t"), proposal_id="second")
    world.report(execution_id)
    pass_epochs(world)
    found = world.server.settled.with_proposal(world.space, "second").proposals["second"]
    assert (found.status, found.answered_by) == (ProposalStatus.COMMITTED, ((0, execution_id),))
    assert world.server.decision(SPACE, "second").trace
    assert world.server.wait_for(SPACE, "second", 0).status is ProposalStatus.COMMITTED


def test_an_execution_has_the_tool_that_it_was_begun_with(world: World) -> None:
    execution_id = world.start(call("t"))
    world.report(execution_id)
    world.say(RegisterTool(caller_tool("t", description="a later one")))
    pass_epochs(world)
    found = world.server.settled.with_execution(world.space, execution_id).executions[execution_id]
    assert (found.tool.description, world.space.tools["t"].description) == ("", "a later one")


def test_a_doubt_and_what_came_of_it_are_put_together_again(world: World) -> None:
    execution_id = world.start(call("t"))
    world.advance(hours=1)
    assert world.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT
    world.say(RecordOutcome(execution_id, OutcomeStatus.FAILED, error="gone"), ROOT)
    pass_epochs(world)
    found = world.server.settled.with_execution(world.space, execution_id)
    assert (
        found.executions[execution_id].error,
        found.proposals[found.executions[execution_id].proposal_id].status,
    ) == (
        "gone",
        ProposalStatus.FAILED,
    )


def test_what_expired_is_put_together_again(world: World) -> None:
    (asked,) = world.propose(call("asked", key="1"), proposal_id="asks").event.result.asked
    execution_id = world.start(call("t", key="2"))
    assert outline_of(world.space.executions[execution_id], CallKey("t", "2", (AGENT.kind, AGENT.id))) is None
    world.advance(hours=2)
    pass_epochs(world)
    found = world.server.settled.with_approval(world.space, asked.approval_id)
    assert found.approvals[asked.approval_id].status is ApprovalStatus.EXPIRED
    assert found.proposals["asks"].status is ProposalStatus.EXPIRED


def test_parts_of_the_past_are_put_together_from_what_is_there(world: World) -> None:
    """Keys are short: they may lead to entries that are about something else."""
    events = [read_space_event(stored) for stored in world.log.read(STREAM)]
    assert find_tool(events, "t", 0) is None
    assert find_tool(events, "t", len(events)) == world.space.tools["t"]
    proposed = world.propose(delta(a="1"), proposal_id="p").event
    elsewhere = world.propose(delta(b="1"), proposal_id="q").event
    found = rebuild(world.space, "p", [proposed, elsewhere, events[0]], {})
    assert list(found.proposals) == ["p"]


def test_what_the_server_looks_up_makes_no_other_request_of_a_proposal(world: World) -> None:
    sent = Propose(world.proposal(delta(a="1")))
    looked_up = msgspec.structs.replace(sent, snapshot_seq=3, known_calls=[])
    assert fingerprint(looked_up, AGENT) == fingerprint(sent, AGENT)
