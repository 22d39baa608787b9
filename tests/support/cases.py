"""Incidents to test cases with: sessions, cases and agents over one log, and one gate for all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cmbs.belief.server import BeliefServer
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.stores import Store
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import CloseCase, IssueCapability, OpenCase
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import BeliefReading, Capability, Decision, Failure, ReasonCode, Verdict
from cmbs.substrate.kernel.words import ExecutionStatus, ProposalStatus
from cmbs.system import RandomIds
from tests.support.spaces import (
    OTHER_AGENT,
    ROOT,
    SPACE,
    ScriptedRunner,
    World,
    assert_replays,
    call,
    constraint,
    http_tool,
    raw,
)

ONTOLOGY = OntologyBundle("services", "1", "graph://services", "1")
CAUSES = ["cache", "checkout", "dns"]
ATTRIBUTES = {cause: {"component": cause} for cause in CAUSES}
HARNESS = Actor(ActorKind.ENCODER, "harness", scopes=("spaces:cases",))
AGENT = Actor(ActorKind.AGENT, "agent", authenticated=True)
OTHER = Actor(ActorKind.AGENT, "other", authenticated=True)
DECLARER = Actor(ActorKind.OPERATOR, "declarer", authenticated=True)
PROBE = Actor(ActorKind.TOOL, "probe", authenticated=True)
OTHER_TOKEN = "token of other"


def every(*predicates: Mapping[str, Any]) -> dict[str, Any]:
    """All of them."""
    return {"op": "all", "args": list(predicates)}


def equal(reference: str, value: Any) -> dict[str, Any]:
    """What a reference finds is this."""
    return {"op": "eq", "args": [reference, value]}


def at_most(reference: str, number: int) -> dict[str, Any]:
    """What a reference finds is a number no larger than this."""
    return {"op": "schema", "args": [reference, {"type": "integer", "maximum": number}]}


KNOWN = every(equal("$case.belief.n_survivors", 1), equal("$case.belief.active_obligation_id", None))
# And known without what the proposing agent eliminated itself: the others left two causes at most.
WITNESSED = every(KNOWN, at_most("$case.belief.independent.n_survivors", 2))


def gated(**parts: Any) -> str:
    """A constraint on restarts: with nothing else said, they wait until the cause is known."""
    whole = {"v": 2, "subject": {"tool_id": "restart"}, "when": KNOWN, "on_fail": "defer"}
    return constraint(**(whole | parts))


# One policy for every incident.
GATE = {"constraint.restart": gated(when=WITNESSED)}


NO_CASE = (Verdict.DENY, ReasonCode.NO_CASE, Failure.BLOCK)
DEFERRED = (Verdict.DEFER, ReasonCode.ALLOW_UNMET, Failure.DEFER)
ALLOWED = (Verdict.ALLOW, ReasonCode.ALLOWED, None)


def outcome(decision: Decision) -> tuple[Verdict, ReasonCode, Failure | None]:
    """What a decision came to."""
    return decision.verdict, decision.reason_code, decision.failure


class NamedIds:
    """Random ids, but that the next one may be said: a session then has it."""

    def __init__(self) -> None:
        self._random = RandomIds()
        self.next_id: str | None = None

    def new_id(self) -> str:
        said, self.next_id = self.next_id, None
        return self._random.new_id() if said is None else said


class LosingBelief(ServedBelief):
    """Readings of a belief server, which forgets some sessions: as if they had stayed in another store."""

    def __init__(self, plane: BeliefServer) -> None:
        super().__init__(plane)
        self.lost: set[str] = set()

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        if session_id in self.lost:
            return BeliefReading(session_id, found=False)
        return super().read(session_id, independent_of)


def declare_as(
    belief: BeliefServer, ids: NamedIds, session_id: str, hypotheses: Sequence[str] = (), **said: Any
) -> str:
    """Declare a session that has this id."""
    ids.next_id = session_id
    attributes = None if hypotheses else ATTRIBUTES
    said = {"hypothesis_attributes": attributes, "actor": DECLARER, **said}
    declared = belief.declaration(ONTOLOGY, hypotheses or CAUSES, **said)
    asyncio.run(belief.perform_async(declared))
    return declared.session_id


def open_world(*session_ids: str, **more: Any) -> World:
    """A world over a log with these sessions."""
    log, ids = InMemoryStore(), NamedIds()
    belief = BeliefServer(store=log, ids=ids)
    for session_id in session_ids:
        declare_as(belief, ids, session_id)
    return World(log, belief=ServedBelief(belief), **more)


class Incidents:
    """A belief plane and a space over one log, one tool that restarts a service, and agents with a token for it."""

    def __init__(self, policy: Mapping[str, str] | None = None, log: Store | None = None, **more: Any) -> None:
        self.log = InMemoryStore() if log is None else log
        self.ids = NamedIds()
        self.belief = BeliefServer(store=self.log, ids=self.ids)
        self.source = LosingBelief(self.belief)
        self.runner = ScriptedRunner()
        self.world = World(self.log, belief=self.source, runner=self.runner, **more)
        self.sessions: dict[str, str] = {}
        self.world.open(http_tool("restart"), policy=dict(GATE if policy is None else policy))
        self.world.say(IssueCapability(Capability(OTHER_TOKEN, OTHER_AGENT.id, ["restart"])))

    def begin(self, case_id: str, agents: list[str] | None = None, **attributes: Any) -> str:
        """A new incident: its session and its case."""
        self.open_case(case_id, agents, **attributes)
        return case_id

    def declare(self, case_id: str, **said: Any) -> str:
        """The session of a case, if it is not there yet."""
        if case_id not in self.sessions:
            self.sessions[case_id] = declare_as(self.belief, self.ids, case_id, **said)
        return case_id

    def open_case(
        self, case_id: str, agents: list[str] | None = None, actor: Actor = HARNESS, **attributes: Any
    ) -> SpaceAnswer:
        """Admit a case; its session is declared if it is not there."""
        return self.world.say(OpenCase(self.declare(case_id), agents or [AGENT.id], raw(attributes)), actor)

    def close_case(self, case_id: str, actor: Actor = ROOT, reason: str = "") -> SpaceAnswer:
        return self.world.say(CloseCase(case_id, reason), actor)

    def rule_out(self, case_id: str, *causes: str, actor: Actor | None = PROBE, source_id: str = "probe") -> None:
        """An elimination, recorded as that of an actor."""
        session_id = self.sessions[case_id]
        observation_id = str(self.belief.current_session(session_id).head.seq)
        message = self.belief.requests.eliminate(source_id, observation_id, list(causes), None)
        asyncio.run(self.belief.perform_async(self.belief.requests.command(session_id, message, actor=actor)))

    def restart(
        self, proposal_id: str, case_id: str | None = None, actor: Actor = AGENT, token: str = "token", **parts: Any
    ) -> Decision:
        """A proposal to restart a service."""
        if case_id is not None:
            parts["case_id"] = case_id
        made = call("restart", {"service": "checkout"}, key=proposal_id, token=token)
        return self.world.decide(made, actor=actor, proposal_id=proposal_id, **parts)

    def status(self, proposal_id: str) -> ProposalStatus:
        """Where a proposal stands once everything that can be looked after has been."""
        self.world.server.keep()
        record = self.world.space.proposals[proposal_id]
        if record.status is ProposalStatus.RUNNING:
            record = self.world.server.wait_for(SPACE, proposal_id, 20)
        return record.status

    @property
    def ran(self) -> list[str]:
        """The keys of the calls that really ran: the ids of their proposals."""
        return [context.idempotency_key or "" for _, _, context in self.runner.calls]

    def assert_replays(self) -> None:
        """Deciding everything again gives the same bytes, once the calls that the server runs have ended."""
        running = [each for each in self.world.space.executions.values() if each.tool.tool_id == "restart"]
        for execution in running:
            if execution.status is ExecutionStatus.RUNNING and not self.runner.unknown:
                self.world.server.wait_for(SPACE, execution.proposal_id, 20)
        assert_replays(self.world)

    def close(self) -> None:
        self.world.close()
        self.belief.close()


def attributes_of(reading: msgspec.Raw | msgspec.UnsetType) -> Any:
    """Attributes in a reading as plain data; None where there are none."""
    return None if isinstance(reading, msgspec.UnsetType) else json.loads(bytes(reading))
