"""One event on a session that ten thousand parked proposals wait for: looked at again, and recorded where it matters.

All of them wait for the same session to have few survivors left. Most events on it change nothing, and one lets a
hundred of them through. In the meantime callers of other spaces propose.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count

import msgspec

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_most, interleaved, microseconds, shown
from bench.neighbours import time_calls_during
from bench.servers import disk_directory
from cmbs.belief.server import BeliefServer
from cmbs.errors import CmbsError
from cmbs.messages import Actor, ActorKind
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import CreateSpace, IssueCapability, Propose, RegisterTool, SpaceMessage
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.model import Capability, Proposal, Provenance, StateDelta, Tool, ToolCall, ToolKind
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer

NAME = "parked"
PARKED = 10_000
LET_THROUGH = 100
NEIGHBOURS = 4
_AT_ONCE = 500
_USUAL_SECONDS = 5.0
_CAUSES = [f"cause-{number}" for number in range(100)]
_LIMITS = SpaceLimits(agent_parked=2 * PARKED, agent_proposals_per_second=1_000_000)
_OPERATOR, _AGENT = Actor(ActorKind.OPERATOR, "bench"), Actor(ActorKind.AGENT, "agent")
_PROVENANCE = Provenance(_AGENT.id, "2026-01-31T09:30:00Z")
_ALLOW = json.dumps({"v": 1, "effect": "allow", "subject": None, "when": {"op": "missing", "args": ["$tool.id"]}})


def run(effort: Effort) -> list[Result]:
    """Time looks beside fresh proposals, count entries, and time other spaces meanwhile."""
    with ExitStack() as stack:
        directory = stack.enter_context(disk_directory())
        desk = _Desk(stack, f"sqlite:///{directory}/bench.db")
        seconds = interleaved(
            {"fresh": desk.propose_fresh, "looked at": desk.look_without_change}, max(1, effort.rounds // 3)
        )
        neighbours = [_make_proposer(desk.server, f"neighbour-{number}") for number in range(NEIGHBOURS)]
        usual = time_calls_during(lambda: time.sleep(_USUAL_SECONDS), neighbours)
        meanwhile = time_calls_during(desk.look_without_change, neighbours)
        entries, changed = desk.look_with_changes()
    measured = f"one event on a session with {PARKED:,} parked proposals"
    return [
        Result(
            NAME,
            f"{measured}: looked at in {shown(seconds['looked at'])} s",
            f"as many fresh proposals, decided and recorded: {shown(seconds['fresh'])} s",
            seconds["looked at"] / seconds["fresh"],
            at_most(1),
        ),
        Result(
            NAME,
            f"{measured}, entries written: {entries:,}",
            f"outcomes that changed: {changed:,}",
            entries / changed,
            at_most(1),
        ),
        Result(
            NAME,
            f"{measured}, p99 of proposals of other spaces meanwhile: {microseconds(meanwhile.p99)} ({meanwhile})",
            f"usually: {microseconds(usual.p99)} ({usual})",
            meanwhile.p99 / usual.p99,
            at_most(3),
        ),
    ]


class _Desk:
    """A belief server, a substrate server over the same log, and spaces whose proposals wait for one session."""

    def __init__(self, stack: ExitStack, store_url: str) -> None:
        self._belief = BeliefServer(store=open_store(store_url))
        stack.callback(self._belief.close)
        self._log = stack.enter_context(closing(open_store(store_url)))
        self.server = SubstrateServer(
            log=self._log, belief=ServedBelief(self._belief), limits=_LIMITS, keeper_seconds=None
        )
        stack.callback(self.server.close)
        self._numbers = count()
        self._space_id = self._session_id = ""
        self._left = list(_CAUSES)

    def propose_fresh(self) -> float:
        """Have so many proposals parked in a new space, on a new session; how long that took."""
        self._space_id = f"waiting-{next(self._numbers)}"
        self._left = list(_CAUSES)
        self._session_id = self._belief.declare_session(ONTOLOGY, self._left).session_id
        self._do(CreateSpace(self._space_id, policy={"constraint.gate": self._make_gate()}), _OPERATOR)
        self._do(RegisterTool(Tool("restart", ToolKind.CALLER, msgspec.Raw(b'{"type":"object"}'))), _OPERATOR)
        self._do(IssueCapability(Capability("token", _AGENT.id, ["restart"])), _OPERATOR)
        snapshot_id = self.server.current(self._space_id).snapshot_id
        commands = [self._make_proposal(snapshot_id, number) for number in range(PARKED)]
        start = time.perf_counter()
        for begin in range(0, PARKED, _AT_ONCE):
            answers = self.server.perform_all(commands[begin : begin + _AT_ONCE])
            if any(isinstance(answer, CmbsError) for answer in answers):
                raise RuntimeError("a proposal that should wait was refused")
        seconds = time.perf_counter() - start
        if len(self.server.current(self._space_id).parked) != PARKED:
            raise RuntimeError("proposals that should wait do not")
        self._look()
        return seconds

    def look_without_change(self) -> float:
        """One event that lets nothing through; how long it took until all that waits was looked at."""
        before = self.server.current(self._space_id).head
        self._eliminate(1)
        seconds = self._look()
        if self.server.current(self._space_id).head != before:
            raise RuntimeError("a look that changes nothing was recorded")
        return seconds

    def look_with_changes(self) -> tuple[int, int]:
        """One event that lets some through: the entries that were written, and the outcomes that are others."""
        before = self.server.current(self._space_id)
        self._eliminate(len(self._left) - 1)
        self._look()
        after = self.server.current(self._space_id)
        changed = sum(after.proposals[each].status != before.proposals[each].status for each in before.parked)
        if changed != LET_THROUGH:
            raise RuntimeError(f"{changed} proposals were let through, and not {LET_THROUGH}")
        return after.head.seq - before.head.seq, changed

    def _look(self) -> float:
        start = time.perf_counter()
        self.server.keep()
        while (watch := self.server._scheduler._watches.get(self._space_id)) is not None and watch.has_more:
            self.server.keep()
        return time.perf_counter() - start

    def _eliminate(self, how_many: int) -> None:
        gone, self._left = self._left[:how_many], self._left[how_many:]
        self._belief.eliminate(self._session_id, SOURCE, f"observation-{len(self._left)}", gone)

    def _make_gate(self) -> str:
        """One survivor, and a small number among the args."""
        one = {"op": "eq", "args": [f"$belief.{self._session_id}.n_survivors", 1]}
        small = {"op": "lt", "args": ["$args.number", LET_THROUGH]}
        return json.dumps(
            {
                "v": 2,
                "effect": "allow",
                "subject": {"tool_id": "restart"},
                "when": {"op": "all", "args": [one, small]},
                "on_fail": "defer",
            }
        )

    def _make_proposal(self, snapshot_id: str, number: int) -> SpaceCommand:
        call = ToolCall("restart", msgspec.Raw(b'{"number":%d}' % number), "token", f"call-{number}")
        message = Propose(Proposal(f"proposal-{number}", snapshot_id, _PROVENANCE, [call]))
        return SpaceCommand(self._space_id, _AGENT, message)

    def _do(self, message: SpaceMessage, actor: Actor) -> None:
        self.server.perform(SpaceCommand(self._space_id, actor, message))


def _make_proposer(server: SubstrateServer, space_id: str) -> Callable[[], object]:
    """A caller that proposes one goal after the other in a space of its own."""
    create = CreateSpace(space_id, policy={"constraint.deltas": _ALLOW})
    snapshot_id = server.perform(SpaceCommand(space_id, _OPERATOR, create)).space.snapshot_id
    numbers = count()

    def propose() -> None:
        nonlocal snapshot_id
        number = next(numbers)
        delta = StateDelta({f"goal.{number % 100}": f"value {number}"})
        proposal = Proposal(f"proposal-{number}", snapshot_id, _PROVENANCE, [delta])
        answer = server.perform(SpaceCommand(space_id, _AGENT, Propose(proposal)))
        if not answer.event.result.changes.set:
            raise RuntimeError("a proposal that should have been committed was not")
        snapshot_id = answer.space.snapshot_id

    return propose
