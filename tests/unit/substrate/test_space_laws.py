"""Whatever is sent to a space, in whatever order: replay is the same byte for byte, and what fails never happens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import UNSET, UnsetType

from cmbs.errors import CmbsError, Conflict
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.checkpoint import freeze_space, thaw_space
from cmbs.substrate.kernel.events import (
    Approve,
    CloseCase,
    ConflictState,
    DisputeMemory,
    Evidence,
    IssueCapability,
    MemoryKind,
    Mode,
    OpenCase,
    OutcomeStatus,
    PromoteMemory,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetGovernance,
    SetMode,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.loads import count_loads, measure_state
from cmbs.substrate.kernel.model import Candidate, Capability, StateDelta, Verdict
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event, verify_space
from cmbs.substrate.kernel.waiting import is_waiting
from cmbs.substrate.kernel.words import ApprovalStatus, CaseStatus, ExecutionStatus, ProposalStatus
from tests.support.cases import open_world
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    ENGINE,
    ROOT,
    SECOND,
    SPACE,
    STREAM,
    call,
    caller_tool,
    change_policy,
    constraint,
    raw,
)

NAMES = st.sampled_from("abc")
ACTORS = st.sampled_from([AGENT, ENCODER, ROOT, SECOND, Actor(ActorKind.AGENT, "other")])
POLICIES = {
    "constraint.ask": constraint(effect="deny", subject={"tool_id": "asked"}, on_fail="ask"),
    "constraint.wait": constraint(
        effect="deny", subject={"tool_id": "parked"}, when={"op": "missing", "args": ["fact.a"]}, on_fail="defer"
    ),
    "constraint.case": constraint(
        v=2,
        effect="deny",
        subject={"tool_id": "parked"},
        when={"op": "eq", "args": ["$case.attributes.stop", True]},
        on_fail="defer",
    ),
    "constraint.never": constraint(effect="deny", subject={"tool_id": "denied"}),
    "policy.exclusive.goals": '["goal.a","goal.b"]',
    "policy.invariant.c": '{"op":"missing","args":["fact.c"]}',
}
TOOLS = ("plain", "asked", "parked", "denied")
ENDED_WITHOUT_EFFECT = (
    ProposalStatus.DENIED,
    ProposalStatus.REJECTED,
    ProposalStatus.EXPIRED,
    ProposalStatus.WITHDRAWN,
)


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    kind = draw(st.sampled_from(["goal", "fact", "call", "call", "call"]))
    if kind == "call":
        args = {"n": draw(st.integers(0, 2))}
        return call(draw(st.sampled_from(TOOLS)), args, key=draw(st.sampled_from(["1", "2", "3"])))
    keys = draw(st.dictionaries(NAMES, st.sampled_from(["x", "y"]), max_size=2))
    unset = draw(st.lists(NAMES, max_size=1))
    return StateDelta({f"{kind}.{name}": text for name, text in keys.items()}, [f"{kind}.{name}" for name in unset])


class SpaceMachine(RuleBasedStateMachine):
    """A space that gets random messages of all actors."""

    def __init__(self) -> None:
        super().__init__()
        self.world = open_world("stopped", "free", "c")
        self.world.open(
            *(caller_tool(name, caller_facts=True, facts={"fact.b": "b"} if name == "plain" else {}) for name in TOOLS),
            policy={"constraint.any": ANY, **POLICIES},
        )
        self.snapshots = [self.world.space.snapshot_id]

    @rule(
        wanted=st.lists(candidates(), min_size=1, max_size=3),
        actor=ACTORS,
        atomic=st.booleans(),
        back=st.integers(0, 2),
        name=st.sampled_from("pqrstuvw"),
        case_id=st.sampled_from([UNSET, "stopped", "free"]),
    )
    def propose(
        self, wanted: list[Candidate], actor: Actor, atomic: bool, back: int, name: str, case_id: str | UnsetType
    ) -> None:
        snapshot_id = self.snapshots[-1 - min(back, len(self.snapshots) - 1)]
        parts = {"snapshot_id": snapshot_id, "proposal_id": name, "case_id": case_id}
        try:
            self.world.propose(*wanted, actor=actor, atomic=atomic, **parts)
        except CmbsError:
            return
        if self.world.space.snapshot_id != self.snapshots[-1]:
            self.snapshots.append(self.world.space.snapshot_id)

    @precondition(lambda self: self.world.space.approvals)
    @rule(data=st.data(), actor=ACTORS, yes=st.booleans(), uses=st.integers(1, 2))
    def answer(self, data: st.DataObject, actor: Actor, yes: bool, uses: int) -> None:
        approval_id = data.draw(st.sampled_from(sorted(self.world.space.approvals)))
        self._try(Approve(approval_id, uses) if yes else Reject(approval_id), actor)

    @precondition(lambda self: self.world.space.executions)
    @rule(data=st.data(), actor=ACTORS, ended=st.sampled_from(OutcomeStatus))
    def report(self, data: st.DataObject, actor: Actor, ended: OutcomeStatus) -> None:
        execution_id = data.draw(st.sampled_from(sorted(self.world.space.executions)))
        self._try(RecordOutcome(execution_id, ended, raw({"b": "seen"})), actor)

    @rule(seconds=st.sampled_from([1, 40, 4_000]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(timedelta(seconds=seconds))
        self.world.server.keep()

    @rule(key=st.sampled_from(sorted(POLICIES)), there=st.booleans())
    def policy(self, key: str, there: bool) -> None:
        is_there = key in self.world.space.policy.pairs
        if is_there != there:
            change_policy(self.world, {key: POLICIES[key]} if there else {}, [] if there else [key])

    @rule(case_id=st.sampled_from(["stopped", "free"]), actor=ACTORS, agent=st.sampled_from(["agent", "other"]))
    def open_case(self, case_id: str, actor: Actor, agent: str) -> None:
        self._try(OpenCase(case_id, [agent], raw({"stop": case_id == "stopped"})), actor)

    @rule(case_id=st.sampled_from(["stopped", "free"]), actor=ACTORS)
    def close_case(self, case_id: str, actor: Actor) -> None:
        self._try(CloseCase(case_id), actor)

    @rule(mode=st.sampled_from(Mode), actor=ACTORS)
    def mode(self, mode: Mode, actor: Actor) -> None:
        self._try(SetMode(mode), actor)

    @rule(tool_id=st.sampled_from(TOOLS), actor=ACTORS)
    def retire(self, tool_id: str, actor: Actor) -> None:
        self._try(RetireTool(tool_id), actor)

    @rule(tool_id=st.sampled_from(TOOLS), actor=ACTORS, description=st.sampled_from(["", "new"]))
    def register(self, tool_id: str, actor: Actor, description: str) -> None:
        self._try(RegisterTool(caller_tool(tool_id, description=description)), actor)

    @precondition(lambda self: self.world.space.proposals)
    @rule(data=st.data(), actor=ACTORS)
    def withdraw(self, data: st.DataObject, actor: Actor) -> None:
        proposal_id = data.draw(st.sampled_from(sorted(self.world.space.proposals)))
        self._try(Withdraw(proposal_id), actor)

    @precondition(lambda self: self.world.space.proposals)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        """What was just decided again stands where it stands: a second look records nothing."""
        proposal_id = data.draw(st.sampled_from(sorted(self.world.space.proposals)))
        self._try(Wake(proposal_id, ["$policy"]), ENGINE)
        head = self.world.space.head
        with pytest.raises(Conflict):
            self.world.say(Wake(proposal_id, ["$policy"]), ENGINE)
        assert self.world.space.head == head

    @rule(needed=st.integers(0, 3), actor=ACTORS)
    def governance(self, needed: int, actor: Actor) -> None:
        self._try(SetGovernance(needed), actor)

    @rule(token_id=st.sampled_from(["token", "child"]), actor=ACTORS, issue=st.booleans())
    def tokens(self, token_id: str, actor: Actor, issue: bool) -> None:
        child = Capability("child", "agent", ["plain"], parent_id="token")
        self._try(IssueCapability(child) if issue else RevokeCapability(token_id), actor)

    @rule(entry_id=NAMES, kind=st.sampled_from(MemoryKind), actor=ACTORS, what=st.integers(0, 3), sure=st.booleans())
    def remember(self, entry_id: str, kind: MemoryKind, actor: Actor, what: int, sure: bool) -> None:
        event_id = self.world.space.head_event_id if sure else None
        evidence = Evidence(["chunk"], 900, event_id)
        messages = (
            PutMemory(entry_id, kind, raw("claim"), evidence, ttl_ms=5_000),
            PromoteMemory(entry_id, kind, evidence),
            DisputeMemory(entry_id, ConflictState.CONTRADICTORY),
            DisputeMemory(entry_id, ConflictState.NONE),
        )
        self._try(messages[what], actor)

    def _try(self, message: object, actor: Actor) -> None:
        head = self.world.space.head
        try:
            self.world.say(message, actor)  # type: ignore[arg-type]
        except CmbsError:
            assert self.world.space.head == head

    # --- what always holds ---

    @invariant()
    def nothing_that_failed_happened(self) -> None:
        space = self.world.space
        for record in space.proposals.values():
            if record.decision.observed:
                continue
            allowed = {each.candidate for each in record.decision.candidates if each.verdict is Verdict.ALLOW}
            assert set(record.done) <= allowed
            started = {space.executions[known].intent.candidate for known in record.execution_ids}
            assert started <= set(record.done) or record.answered_by
            if record.message.proposal.atomic:
                assert not record.done or len(record.done) == len(record.message.proposal.candidates)
            if record.status in ENDED_WITHOUT_EFFECT:
                assert not record.done or not record.message.proposal.atomic

    @invariant()
    def indices_say_what_the_records_say(self) -> None:
        space = self.world.space
        assert dict(space.running) == {
            known: each.intent.deadline
            for known, each in space.executions.items()
            if each.status in (ExecutionStatus.READY, ExecutionStatus.RUNNING)
        }
        waiting: dict[str, set[str]] = {}
        for proposal_id, parked in space.parked.items():
            for key in parked.waits_for:
                waiting.setdefault(key, set()).add(proposal_id)
        assert {key: set(ids) for key, ids in space.waiting.items()} == waiting
        good = {known for known, each in space.approvals.items() if each.uses_left > 0}
        assert set(space.grants.values()) <= good
        assert all(
            each.status is ApprovalStatus.APPROVED
            for each in space.approvals.values()
            if each.approver and each.uses_left
        )
        assert {key for key in space.state if key.startswith(("policy.", "constraint."))} == set(space.policy.pairs)

    @invariant()
    def nothing_waits_under_a_case_that_it_needs_and_that_is_closed(self) -> None:
        space = self.world.space
        closed = {case_id for case_id, case in space.cases.items() if case.status is CaseStatus.CLOSED}
        assert not [key for key in space.waiting if key.removeprefix("$case.") in closed]
        for case in space.cases.values():
            assert (case.closed_seq is None) is (case.status is CaseStatus.OPEN)

    @invariant()
    def loads_are_what_the_records_add_up_to(self) -> None:
        assert self.world.space.loads == count_loads(self.world.space)
        assert self.world.space.state_bytes == measure_state(self.world.space.state)

    @invariant()
    def a_proposal_that_ended_waits_for_nothing(self) -> None:
        space = self.world.space
        for proposal_id, record in space.proposals.items():
            if record.status in ENDED_WITHOUT_EFFECT:
                assert not is_waiting(space, proposal_id, record)

    @invariant()
    def a_snapshot_id_names_exactly_one_state(self) -> None:
        space = self.world.space
        assert len(space.snapshots) == len(set(space.snapshots.values()))
        assert space.snapshots.get(space.snapshot_id) == max(space.changed.values(), default=0)

    def teardown(self) -> None:
        self.world.close()
        entries, space = self.world.log.read(STREAM), self.world.space
        assert freeze_space(verify_space(SPACE, entries, space.head)) == freeze_space(space)
        middle = len(entries) // 2
        half = catch_up_space(SPACE, None, entries[:middle])
        if half is not None:
            thawed = thaw_space(freeze_space(half), entries[middle])
            assert thawed is not None
            assert freeze_space(thawed) == freeze_space(half)
            resumed = catch_up_space(SPACE, thawed, entries[middle:])
            assert resumed is not None
            assert freeze_space(resumed) == freeze_space(space)
        for stored in entries:
            event = read_space_event(stored)
            if not event.result.granted:
                assert not event.result.changes.set
                assert not event.result.intents


TestSpaces = pytest.mark.usefixtures("digests_in_module")(
    pytest.mark.req("SS01-REPLAY-01", "SS01-FAIL-01")(SpaceMachine.TestCase)
)
TestSpaces.settings = settings(stateful_step_count=30)
