"""Which tools an agent is shown: not those that the policy denies to it always, whatever the arguments and the state.

A tool is left out only where that is proved, by the prover behind `cmbs policy lint`. A tool that is shown may be
denied, and one that is not shown is gated like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from cmbs.mcp.gateway.ledger import GatewayLedger, Pin
from cmbs.messages import ActorKind
from cmbs.substrate.kernel.events import Mode
from cmbs.substrate.kernel.insight.satisfiability import Pins, Scope, Term, never
from cmbs.substrate.kernel.model import Failure
from cmbs.substrate.kernel.policy.constraints import Constraint
from cmbs.substrate.kernel.policy.operators import Sight
from cmbs.substrate.kernel.policy.policy import Policy, compile_policy

# For all tools of one agent: what is not settled by then is shown.
_PROOF_SECONDS = 0.5
_MAX_AGENTS = 1_000


def is_always_denied(policy: Policy, tool_id: str, agent_id: str, *, writes: bool) -> bool:
    """Whether it is proved that no call of this tool by this agent is ever allowed, nor asked for."""
    matching = policy.matching(tool_id)
    if matching.malformed:
        return False
    scope = Scope(tool_id, deltas=False)
    known: Pins = {
        "$actor.id": (Sight(agent_id),),
        "$actor.kind": (Sight(ActorKind.AGENT.value),),
        "$tool.writes": (Sight(writes),),
    }

    def is_never(each: Constraint, *, holds: bool) -> bool:
        term = Term(None if each.when is None else each.when.root, holds)
        return never([term], scope, policy.pairs, known)

    if any(each.on_fail is Failure.BLOCK and is_never(each, holds=False) for each in matching.denies):
        return True
    return all(each.on_fail is Failure.BLOCK and is_never(each, holds=True) for each in matching.allows)


def list_denied(policy: Policy, agent_id: str, pins: Sequence[Pin]) -> frozenset[str]:
    """The tools that are always denied to an agent, as far as that is proved in the time that there is for it."""
    until = time.monotonic() + _PROOF_SECONDS
    denied = set()
    for pin in pins:
        if time.monotonic() > until:
            break
        if is_always_denied(policy, pin.tool_id, agent_id, writes=pin.writes):
            denied.add(pin.tool_id)
    return frozenset(denied)


class Visibility:
    """What each agent is shown, worked out once for a policy and for the tools that there are."""

    def __init__(self, ledger: GatewayLedger) -> None:
        self._ledger = ledger
        self._loading = asyncio.Lock()
        self._policy_hash = ""
        self._policy: Policy | None = None
        self._denied: dict[str, tuple[Sequence[Pin], frozenset[str]]] = {}

    async def select(self, agent_id: str, tools: Mapping[str, Pin], pins: Sequence[Pin]) -> list[tuple[str, Pin]]:
        """The tools that this agent is shown, by the names that it calls them by."""
        async with self._loading:
            await self._load()
            policy = self._policy
            known = self._denied.get(agent_id)
            if policy is not None and (known is None or known[0] is not pins):
                known = (pins, await asyncio.to_thread(list_denied, policy, agent_id, pins))
                self._denied[agent_id] = known
                while len(self._denied) > _MAX_AGENTS:
                    del self._denied[next(iter(self._denied))]
        denied = known[1] if known is not None and policy is not None else frozenset()
        return [(name, pin) for name, pin in sorted(tools.items()) if pin.tool_id not in denied]

    async def _load(self) -> None:
        policy_hash, mode = await self._ledger.policy_version()
        if mode is not Mode.ENFORCE:
            # Nothing is denied where a policy is only observed.
            policy_hash = ""
        if policy_hash == self._policy_hash:
            return
        self._denied.clear()
        pairs = await self._ledger.policy() if policy_hash else {}
        self._policy = await asyncio.to_thread(compile_policy, pairs) if policy_hash else None
        self._policy_hash = policy_hash
