"""Every short history of two incidents, enumerated at the kernels: no gate opens that its own case does not open.

Three hypotheses, two agents, two cases, one gated tool. What the kernels decide is held against a model of a few lines
that knows nothing of them. A message that changes nothing (a repeat, a conflict) is not followed further: what comes
after it is a shorter history, and that one is enumerated too. Of two neighbouring steps that have nothing in common
(a message to a session, and one that neither goes to it nor reads it) one order is followed: the other comes to the
same logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import pytest
from immutables import Map

from cmbs.belief.kernel import session as belief
from cmbs.belief.kernel.events import Declare, Eliminate, EnterObligation, Event, Message, Stamp
from cmbs.belief.kernel.session import Session
from cmbs.errors import Conflict
from cmbs.messages import Actor, ActorKind, OntologyBundle, SessionPolicy
from cmbs.substrate.belief_source import reading_of
from cmbs.substrate.kernel.arbitration.arbitrate import belief_sessions
from cmbs.substrate.kernel.decide import decide, evolve
from cmbs.substrate.kernel.events import (
    CloseCase,
    CreateSpace,
    IssueCapability,
    OpenCase,
    Propose,
    RegisterTool,
    SpaceEvent,
    SpaceMessage,
    Wake,
)
from cmbs.substrate.kernel.model import BeliefReading, Capability, Proposal, Provenance, ReasonCode, Verdict
from cmbs.substrate.kernel.state import Space
from tests.support.cases import DECLARER, WITNESSED, equal, every, gated
from tests.support.effort import EFFORT
from tests.support.spaces import ENGINE, ROOT, call, caller_tool

LONGEST = 5 if EFFORT.everything else 3
HYPOTHESES = ["x", "y", "z"]
# Each case is for one agent; the tool restarts `x`, and may do so where `x` is the cause of the case.
AGENT_OF = {"c1": "one", "c2": "two"}
TIED = every(WITNESSED, equal("$case.belief.survivor.component", "x"))
AGENTS = {name: Actor(ActorKind.AGENT, name, authenticated=True) for name in ("one", "two")}
PROBE = Actor(ActorKind.TOOL, "probe", authenticated=True)
FRAME = ("head", "head_event_id", "tree", "key_digests", "hash_digests", "events")


class Moment(NamedTuple):
    """Both planes, and the model of what they must hold."""

    space: Space
    sessions: Map[str, Session]
    # By case: what each actor spoke against.
    gone: Map[str, Map[str, frozenset[str]]]
    obliged: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    # The agent that each case was admitted for.
    agents: Map[str, str] = Map(AGENT_OF)
    ran: frozenset[str] = frozenset()

    def is_open(self, case_id: str, agent: str) -> bool:
        """The model of the gate: whether a call of this agent may run under this case."""
        if self.agents[case_id] != agent or case_id in self.closed or case_id in self.obliged:
            return False
        spoken = self.gone[case_id]
        left = set(HYPOTHESES).difference(*spoken.values())
        others = set(HYPOTHESES).difference(*(ids for name, ids in spoken.items() if name != agent))
        return left == {"x"} and len(others) <= 2


class Say(NamedTuple):
    """A message to the session of a case."""

    case_id: str
    message: Message
    actor: Actor


class Ask(NamedTuple):
    """A message to the space."""

    message: SpaceMessage
    actor: Actor


class Look(NamedTuple):
    """What waits is looked at again."""


Step: TypeAlias = Say | Ask | Look


def _eliminate(case_id: str, actor: Actor, *gone: str) -> Say:
    # One of them is sent under a source id that is not the agent's own.
    return Say(case_id, Eliminate("monitor", f"{actor.id} {gone}", list(gone)), actor)


def _restart(agent: str, case_id: str | None) -> Proposal:
    name = f"{agent} in {case_id}"
    made = call("restart", {"service": "x"}, key=name, token=agent)
    provenance = Provenance(agent, "2026-01-01T00:00:00.000000Z")
    return Proposal(name, "", provenance, [made], case_id=msgspec.UNSET if case_id is None else case_id)


STEPS: tuple[Step, ...] = (
    _eliminate("c1", AGENTS["one"], "y"),
    _eliminate("c1", AGENTS["one"], "y", "z"),
    _eliminate("c1", AGENTS["two"], "z"),
    _eliminate("c1", PROBE, "y"),
    _eliminate("c1", PROBE, "x"),
    _eliminate("c2", PROBE, "y", "z"),
    Say("c1", EnterObligation("look", 1), PROBE),
    *(Ask(Propose(_restart(agent, case_id)), AGENTS[agent]) for agent in AGENTS for case_id in AGENT_OF),
    Ask(Propose(_restart("one", None)), AGENTS["one"]),
    Ask(OpenCase("c1", ["two"]), ROOT),
    Ask(OpenCase("c2", ["one"]), AGENTS["one"]),
    Ask(CloseCase("c1"), ROOT),
    Look(),
)


def _begin() -> Moment:
    space: Space | None = None
    setup: list[SpaceMessage] = [
        CreateSpace("s", policy={"constraint.restart": gated(when=TIED)}),
        RegisterTool(caller_tool("restart")),
        *(IssueCapability(Capability(agent, agent, ["restart"])) for agent in AGENTS),
        *(
            OpenCase(case_id, [agent], belief=[BeliefReading(case_id, found=True)])
            for case_id, agent in AGENT_OF.items()
        ),
    ]
    for message in setup:
        event = decide(space, message, ROOT, _stamp(space))
        assert isinstance(event, SpaceEvent)
        space = evolve(space, event)
    assert space is not None
    attributes = msgspec.Raw(msgspec.json.encode({each: {"component": each} for each in HYPOTHESES}))
    ontology = OntologyBundle("services", "1", "graph://services", "1")
    declared = Declare(ontology, HYPOTHESES, SessionPolicy(), hypothesis_attributes=attributes)
    sessions = {
        case_id: belief.evolve(None, belief.decide_declare(case_id, declared, Stamp("e0", _ts(0), actor=DECLARER)))
        for case_id in AGENT_OF
    }
    return Moment(space, Map(sessions), Map({case_id: Map() for case_id in AGENT_OF}))


def _stamp(space: Space | None) -> Stamp:
    seq = 0 if space is None else space.head.seq + 1
    return Stamp(f"e{seq}", _ts(seq))


def _ts(seq: int) -> str:
    return f"2026-01-01T00:00:{seq:02}.000000Z"


# --- taking a step ----------------------------------------------------------------------------------------------------


def _take(now: Moment, step: Step) -> Moment | None:
    """The moment after a step, every law checked; None where it changes nothing."""
    match step:
        case Say():
            return _say(now, step)
        case Ask():
            return _ask(now, step)
        case Look():
            return _look(now)


def _say(now: Moment, step: Say) -> Moment | None:
    before = now.sessions[step.case_id]
    stamp = Stamp(f"e{before.head.seq + 1}", _ts(before.head.seq + 1), actor=step.actor)
    try:
        event = belief.decide(before, step.message, stamp)
    except Conflict:
        return None
    if not isinstance(event, Event):
        return None
    after = belief.evolve(before, event)
    # No survivor returns.
    assert set(after.survivors) <= set(before.survivors)
    moment = now._replace(sessions=now.sessions.set(step.case_id, after))
    if isinstance(step.message, EnterObligation):
        return moment._replace(obliged=now.obliged | {step.case_id})
    assert isinstance(step.message, Eliminate)
    spoken = now.gone[step.case_id]
    known = spoken.get(step.actor.id, frozenset()) | frozenset(step.message.eliminated)
    return moment._replace(gone=now.gone.set(step.case_id, spoken.set(step.actor.id, known)))


def _ask(now: Moment, step: Ask) -> Moment | None:
    message = step.message
    if isinstance(message, Propose):
        proposal = msgspec.structs.replace(message.proposal, state_snapshot_id=now.space.snapshot_id)
        message = Propose(proposal, _readings(now, proposal, step.actor))
    if isinstance(message, OpenCase):
        session = now.sessions[message.case_id]
        reading = reading_of(session, session.head.seq, session.head.event_hash)
        message = msgspec.structs.replace(message, belief=[reading])
    after = _decide(now, message, step.actor)
    if after is not None and isinstance(message, CloseCase):
        return after._replace(closed=now.closed | {message.case_id})
    if after is not None and isinstance(message, OpenCase) and step.actor is ROOT:
        agents = now.agents.set(message.case_id, message.agents[0])
        return after._replace(closed=now.closed - {message.case_id}, agents=agents)
    return after


def _look(now: Moment) -> Moment | None:
    """All that waits, one after the other; what would stay as it is, is not recorded."""
    moment, changed = now, False
    for proposal_id in sorted(now.space.parked):
        record = moment.space.proposals[proposal_id]
        readings = _readings(moment, record.message.proposal, record.actor)
        after = _decide(moment, Wake(proposal_id, ["looked"], readings), ENGINE)
        moment, changed = (moment, changed) if after is None else (after, True)
    return moment if changed else None


def _readings(now: Moment, proposal: Proposal, actor: Actor) -> list[BeliefReading]:
    needed = belief_sessions(now.space, proposal, actor)
    # `_touches` goes by it.
    assert set(needed) <= {proposal.case_id}
    sessions = {each: now.sessions[each] for each in sorted(needed)}
    return [reading_of(each, each.head.seq, each.head.event_hash, needed[name]) for name, each in sessions.items()]


def _decide(now: Moment, message: SpaceMessage, actor: Actor) -> Moment | None:
    before = now.space
    try:
        event = decide(before, message, actor, _stamp(before))
    except Conflict:
        return None
    if not isinstance(event, SpaceEvent):
        return None
    after = evolve(before, event)
    _check_refusal(before, after, event)
    ran = {after.executions[intent.execution_id].proposal_id for intent in event.result.intents}
    for proposal_id in ran:
        agent, _, case_id = proposal_id.partition(" in ")
        assert now.is_open(case_id, agent), proposal_id
    assert set(after.executions) - set(before.executions) == {each.execution_id for each in event.result.intents}
    if isinstance(message, Propose):
        _check_proposal(now, message.proposal, event)
    return now._replace(space=after, ran=now.ran | ran)


def _check_proposal(now: Moment, proposal: Proposal, event: SpaceEvent) -> None:
    """What is allowed is what the model allows, and without a case that is the reason."""
    decision = event.result.decision
    assert decision is not None
    agent, _, case_id = proposal.proposal_id.partition(" in ")
    usable = now.agents.get(case_id) == agent and case_id not in now.closed
    assert (decision.reason_code is ReasonCode.NO_CASE) is not usable
    assert (decision.verdict is Verdict.ALLOW) is (usable and now.is_open(case_id, agent))


def _check_refusal(before: Space, after: Space, event: SpaceEvent) -> None:
    """What is refused changes nothing but the log; what is not allowed runs nothing and writes nothing."""
    result = event.result
    changed = [
        name
        for name in Space.__struct_fields__
        if name not in FRAME and getattr(before, name) is not getattr(after, name)
    ]
    if not result.granted:
        assert changed == []
    elif result.decision is not None and result.decision.verdict is not Verdict.ALLOW:
        for name in ("state", "executions", "running", "spent", "cases", "policy"):
            assert getattr(before, name) == getattr(after, name)


# --- all of them ------------------------------------------------------------------------------------------------------


def _touches(step: Step, case_id: str) -> bool:
    """Whether a step writes to the session of a case, or may read it."""
    match step:
        case Say():
            return step.case_id == case_id
        case Ask(Propose(proposal)):
            return proposal.case_id == case_id
        case Ask():
            return False
        case Look():
            return True


def _commute(one: Step, other: Step) -> bool:
    """Whether one of them is a message to a session that the other one does not touch."""
    return any(isinstance(a, Say) and not _touches(b, a.case_id) for a, b in ((one, other), (other, one)))


# By step: those that may follow it. What commutes with it and is listed before it comes before it.
FOLLOWING = [
    [later for later, step in enumerate(STEPS) if later >= number or not _commute(taken, step)]
    for number, taken in enumerate(STEPS)
]


def _play(now: Moment, left: int, following: Sequence[int] = range(len(STEPS))) -> Iterator[Moment]:
    yield now
    if left:
        for number in following:
            after = _take(now, STEPS[number])
            if after is not None:
                yield from _play(after, left - 1, FOLLOWING[number])


@pytest.mark.req("CASE-GATE-06")
def test_no_short_history_opens_a_gate_that_its_own_case_does_not_open() -> None:
    histories = 0
    ran: set[str] = set()
    for moment in _play(_begin(), LONGEST):
        histories += 1
        ran |= moment.ran
    # The gates do open, for their own agents and in their own cases.
    assert ran == {"one in c1", "two in c2"}
    assert histories > len(STEPS) ** (LONGEST - 1)
