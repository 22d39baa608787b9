"""A space to test with: its policy, its tools, its actors, and short ways to ask for things."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from threading import Event
from typing import Any

import msgspec

from cmbs.messages import Actor, ActorKind
from cmbs.spi import AuditLog
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import BeliefSource
from cmbs.substrate.kernel.calls import SpaceRequest, hash_of_call
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.events import (
    CreateSpace,
    IssueCapability,
    Mode,
    OutcomeStatus,
    Propose,
    ProposePolicy,
    RecordOutcome,
    RegisterTool,
    SettlePolicy,
    Start,
    hash_of_nonce,
)
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import (
    Candidate,
    Capability,
    Decision,
    Proposal,
    Provenance,
    StateDelta,
    Tool,
    ToolCall,
    ToolKind,
)
from cmbs.substrate.kernel.replay import verify_space
from cmbs.substrate.kernel.requests import SpaceCommand, SpaceLimits
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import ExecutionStatus, ProposalStatus
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.tools.runner import CallContext, OutcomeUnknown, ToolReply
from cmbs.testing.fakes.environment import ManualClock, SequentialIds

ROOT = Actor(ActorKind.OPERATOR, "root")
SECOND = Actor(ActorKind.OPERATOR, "second")
AGENT = Actor(ActorKind.AGENT, "agent")
OTHER_AGENT = Actor(ActorKind.AGENT, "other")
ENCODER = Actor(ActorKind.ENCODER, "encoder")
ENGINE = Actor(ActorKind.POLICY_ENGINE, "policy_engine", authenticated=True)

ANY = '{"v":1,"effect":"allow","subject":null}'
SPACE = "s"
STREAM = f"space:{SPACE}"
TOKEN = "token"


def raw(value: Any) -> msgspec.Raw:
    """A value as JSON text."""
    return msgspec.Raw(json.dumps(value).encode())


def constraint(**parts: Any) -> str:
    """A constraint as it stands in the state."""
    return json.dumps({"v": 1, "effect": "allow", "subject": None, **parts})


# No agent calls `t` without an approval.
ASKING = constraint(effect="deny", subject={"tool_id": "t"}, on_fail="ask")


def http_tool(tool_id: str, **parts: Any) -> Tool:
    """A tool that a server runs; the address is never called, because tests bring their own runner."""
    target = raw({"url": f"https://tools.invalid/{tool_id}", "method": "POST"})
    return Tool(tool_id, ToolKind.HTTP, raw({"type": "object"}), target=target, **parts)


def caller_tool(tool_id: str, **parts: Any) -> Tool:
    """A tool that the agent runs itself."""
    return Tool(tool_id, ToolKind.CALLER, raw({"type": "object"}), **parts)


class ScriptedRunner:
    """A tool runner that answers what it is told to, and records what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes, CallContext]] = []
        self.result: Any = {"ok": True}
        self.status = OutcomeStatus.SUCCEEDED
        self.unknown = False

    def run(self, tool: Tool, args: bytes, call: CallContext) -> ToolReply:
        self.calls.append((tool.tool_id, args, call))
        if self.unknown:
            raise OutcomeUnknown("the line went dead")
        result = raw(self.result) if self.status is OutcomeStatus.SUCCEEDED else raw(None)
        error = None if self.status is OutcomeStatus.SUCCEEDED else "it said no"
        return ToolReply(self.status, result, error, 7, len(bytes(result)))

    def close(self) -> None:
        pass


class BlockingStore(InMemoryStore):
    """A memory store that is written to in groups, as one on a disk is."""

    blocking = True


class World:
    """A server, and its callers."""

    def __init__(
        self,
        log: AuditLog | None = None,
        *,
        belief: BeliefSource | None = None,
        runner: ScriptedRunner | None = None,
        clock: ManualClock | None = None,
        space: int = 0,
        keeper_seconds: float | None = None,
        limits: SpaceLimits | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.runner = ScriptedRunner() if runner is None else runner
        self.log = InMemoryStore() if log is None else log
        self._numbers = count(1 + 1_000_000 * space)
        self.server = SubstrateServer(
            log=self.log,
            clock=self.clock,
            ids=SequentialIds(space),
            belief=belief,
            runner=self.runner,
            keeper_seconds=keeper_seconds,
            limits=limits,
        )

    def say(self, message: SpaceRequest, actor: Actor = ROOT, **parts: Any) -> SpaceAnswer:
        return self.server.perform(SpaceCommand(SPACE, actor, message, **parts))

    def create(self, policy: dict[str, str] | None = None, mode: Mode = Mode.ENFORCE) -> Space:
        """Create the space; without a policy of its own, one that allows everything."""
        return self.say(CreateSpace(SPACE, mode, {"constraint.any": ANY} if policy is None else policy)).space

    def equip(self, *tools: Tool, token: str = TOKEN, agent: Actor = AGENT, **parts: Any) -> None:
        """Register tools, and issue a token for all of them."""
        for tool in tools:
            self.say(RegisterTool(tool))
        self.say(IssueCapability(Capability(token, agent.id, [tool.tool_id for tool in tools], **parts)))

    def open(
        self, *tools: Tool, policy: dict[str, str] | None = None, mode: Mode = Mode.ENFORCE, **token_parts: Any
    ) -> None:
        """Create the space with tools, and a token for all of them."""
        self.create(policy, mode)
        self.equip(*tools, **token_parts)

    def proposal(self, *candidates: Candidate, actor: Actor = AGENT, atomic: bool = True, **parts: Any) -> Proposal:
        """A proposal on the newest snapshot."""
        case_id = parts.pop("case_id", msgspec.UNSET)
        return Proposal(
            parts.pop("proposal_id", None) or f"p{next(self._numbers)}",
            parts.pop("snapshot_id", None) or self.space.snapshot_id,
            Provenance(actor.id, "2026-01-01T00:00:00Z", **parts),
            list(candidates),
            atomic,
            case_id,
        )

    def propose(self, *candidates: Candidate, actor: Actor = AGENT, **parts: Any) -> SpaceAnswer:
        waits = {name: parts.pop(name) for name in ("defer_ms", "ask_ms") if name in parts}
        return self.say(Propose(self.proposal(*candidates, actor=actor, **parts), **waits), actor)

    def decide(self, *candidates: Candidate, **parts: Any) -> Decision:
        decision = self.propose(*candidates, **parts).event.result.decision
        assert decision is not None
        return decision

    def start(self, *candidates: Candidate, **parts: Any) -> str:
        """Propose what holds one call that runs, and return the id of its execution."""
        (intent,) = self.propose(*candidates, **parts).event.result.intents
        return intent.execution_id

    def report(
        self, execution_id: str, status: OutcomeStatus = OutcomeStatus.SUCCEEDED, result: Any = None
    ) -> SpaceAnswer:
        """Record an outcome, as the agent that ran the call; what waits to be started is claimed first."""
        execution = self.space.executions.get(execution_id)
        if execution is not None and execution.status is ExecutionStatus.READY:
            execution = self.claim(execution_id).space.executions[execution_id]
        claimed = execution is not None and execution.nonce_hash is not None
        nonce = f"nonce of {execution_id}" if claimed else msgspec.UNSET
        return self.say(RecordOutcome(execution_id, status, raw(result), nonce=nonce), AGENT)

    def claim(self, execution_id: str, actor: Actor = AGENT, nonce: str | None = None) -> SpaceAnswer:
        """Claim an execution, as the one who runs it."""
        space = self.space
        execution = space.executions[execution_id]
        intent, case_id = execution.intent, space.proposals[execution.proposal_id].case_id
        call_hash = hash_of_call(space, execution.agent_id, case_id, intent.tool_id, intent.args_hash)
        nonce_hash = hash_of_nonce(nonce or f"nonce of {execution_id}")
        return self.say(Start(execution_id, nonce_hash, call_hash), actor)

    def know(self, **pairs: str) -> None:
        """Set facts, as an encoder, and wake what waits for them."""
        self.propose(facts(**pairs), actor=ENCODER)
        self.server.keep()

    def advance(self, **parts: float) -> None:
        """Let time pass, and look after what is due."""
        self.clock.advance(timedelta(**parts))
        self.server.keep()

    @property
    def space(self) -> Space:
        return self.server.current(SPACE)

    def close(self) -> None:
        """Stop the server; the log stays."""
        self.server.close()


def call(tool_id: str, args: Any = None, *, key: str | None = "k1", token: str | None = TOKEN) -> ToolCall:
    return ToolCall(tool_id, raw({} if args is None else args), token, key)


def delta(unset: list[str] | None = None, /, **pairs: str) -> StateDelta:
    """A delta of goals, by their names."""
    return StateDelta({f"goal.{name}": text for name, text in pairs.items()}, unset or [])


def facts(**pairs: str) -> StateDelta:
    """A delta of facts, by their names."""
    return StateDelta({f"fact.{name}": text for name, text in pairs.items()})


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether something that other threads bring about comes to hold; False where it takes so long that it will not."""
    bell, until = Event(), time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        bell.wait(0.005)
    return True


def assert_replays(world: World) -> None:
    """Deciding everything again gives the same bytes, and so the same space."""
    entries = world.log.read(STREAM)
    if entries:
        assert freeze_space(verify_space(SPACE, entries, world.log.head(STREAM))) == freeze_space(world.space)


def wait_until_settled(world: World, proposal_id: str) -> ProposalStatus:
    """Where a proposal stands once nothing more happens to it by itself."""
    return world.server.wait_for(SPACE, proposal_id, 10).status


def status(space: Space, proposal_id: str) -> ProposalStatus:
    return space.proposals[proposal_id].status


def change_policy(world: World, pairs: dict[str, str], unset: list[str] | None = None) -> Space:
    """Change the policy, as two operators may."""
    change_id = f"change {world.space.head.seq}"
    changed = world.say(ProposePolicy(change_id, world.space.policy.policy_hash, pairs, unset or []), ROOT).space
    if changed.operators_needed == 1:
        return changed
    return world.say(SettlePolicy(change_id, True), SECOND).space
