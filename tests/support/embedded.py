"""A server inside the process of a test, and a guard on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cmbs.messages import Actor
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.guard import Guard
from cmbs.substrate.kernel.events import CreateSpace, Mode, Propose, SpaceMessage
from cmbs.substrate.kernel.model import Proposal, Provenance, StateDelta, ToolKind
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.tools.python import PythonTools
from cmbs.substrate.tools.runner import Runner
from cmbs.testing.fakes.environment import ManualClock, SequentialIds
from tests.support.spaces import AGENT, ANY, ENCODER, ROOT

SPACE = "ops"


class Embedded:
    """A server inside this process, and a guard on it."""

    def __init__(self, policy: dict[str, str] | None = None, mode: Mode = Mode.ENFORCE, **more: Any) -> None:
        self.tools = PythonTools()
        self.clock = ManualClock()
        runner = more.pop("runner", None) or Runner({ToolKind.PYTHON: lambda: self.tools})
        self.server = SubstrateServer(
            log=InMemoryStore(), clock=self.clock, ids=SequentialIds(), runner=runner, keeper_seconds=None
        )
        self.say(CreateSpace(SPACE, mode, {"constraint.any": ANY} if policy is None else policy))
        clock = self.clock
        self.guard = Guard(self.server, self.tools, SPACE, AGENT, "token", clock=clock, ids=SequentialIds(1), **more)
        self.ran: list[Any] = []

    def say(self, message: SpaceMessage, actor: Actor = ROOT) -> Any:
        return self.server.perform(SpaceCommand(SPACE, actor, message))

    def guard_tool(self, **more: Any) -> Callable[..., Any]:
        """A tool that notes that it ran."""

        @self.guard.tool("restart", **more)
        def restart(service: str, grace: int = 5) -> dict[str, Any]:
            self.ran.append(service)
            return {"restarted": service, "grace": grace}

        self.guard.enrol(ROOT)
        return restart

    def know(self, **facts: str) -> None:
        space = self.server.current(SPACE)
        pairs = {f"fact.{name}": text for name, text in facts.items()}
        provenance = Provenance(ENCODER.id, "2026-01-01T00:00:00Z")
        proposal = Proposal(f"know-{space.head.seq}", space.snapshot_id, provenance, [StateDelta(pairs)])
        self.say(Propose(proposal), ENCODER)
        self.server.keep()

    def entries(self) -> int:
        return self.server.current(SPACE).head.seq
