"""A space that is decided step by step, without a server."""

from __future__ import annotations

from itertools import count
from typing import Any

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.ledger import StoredEntry
from cmbs.ledger.instants import later
from cmbs.messages import Actor
from cmbs.substrate.kernel.calls import SpaceRequest
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.decide import decide, evolve
from cmbs.substrate.kernel.events import (
    CreateSpace,
    IssueCapability,
    Propose,
    RegisterTool,
    SpaceEvent,
    SpaceMessage,
    StepResult,
)
from cmbs.substrate.kernel.model import Candidate, Capability, Proposal, Provenance, Tool
from cmbs.substrate.kernel.replay import verify_space
from cmbs.substrate.kernel.requests import SpaceCommand, SpaceLimits, SpaceRequestValidator
from cmbs.substrate.kernel.state import Space
from tests.support.spaces import AGENT, ANY, ROOT, SPACE

START = "2026-01-01T00:00:00.000000Z"


class DecidedSpace:
    """Decides, evolves and keeps the entries."""

    def __init__(self, policy: dict[str, str] | None = None, **parts: Any) -> None:
        self.now = START
        self.entries: list[StoredEntry] = []
        self._numbers = count(1)
        self.space: Space | None = None
        self.say(CreateSpace(SPACE, policy={"constraint.any": ANY} if policy is None else policy, **parts))

    @property
    def state(self) -> Space:
        assert self.space is not None
        return self.space

    def decide(self, message: SpaceRequest, actor: Actor = ROOT, key: str | None = None) -> SpaceEvent | Repeat:
        """What a message comes to; nothing is recorded."""
        message = SpaceRequestValidator(SpaceLimits()).validate(SpaceCommand(SPACE, actor, message)).message
        stamp = Stamp(f"00000000-0000-4000-8000-{len(self.entries):012}", self.now, key)
        return decide(self.space, message, actor, stamp, SPACE)

    def say(self, message: SpaceMessage, actor: Actor = ROOT, key: str | None = None) -> StepResult:
        """Record a message, which is no repeat, a moment after the one before."""
        event = self.decide(message, actor, key)
        assert isinstance(event, SpaceEvent), event
        self.space = evolve(self.space, event)
        self.entries.append(event.stored)
        self.now = later(self.now, 1)
        return event.result

    def equip(self, *tools: Tool, agent: Actor = AGENT, token: str = "token") -> None:
        """Register tools, and issue a token for all of them."""
        for tool in tools:
            self.say(RegisterTool(tool))
        self.say(IssueCapability(Capability(token, agent.id, [tool.tool_id for tool in tools])))

    def propose(self, *candidates: Candidate, actor: Actor = AGENT, **parts: Any) -> StepResult:
        """A proposal on the newest snapshot."""
        proposal_id = parts.pop("proposal_id", None) or f"p{next(self._numbers)}"
        message = parts.pop("message", {})
        provenance = Provenance(actor.id, START)
        proposal = Proposal(proposal_id, self.state.snapshot_id, provenance, list(candidates), **parts)
        return self.say(Propose(proposal, **message), actor)

    def verify(self) -> None:
        """Deciding everything again gives the same bytes, and so the same space."""
        assert freeze_space(verify_space(SPACE, self.entries)) == freeze_space(self.state)
