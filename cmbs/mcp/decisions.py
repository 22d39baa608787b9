"""Decisions for the gateways and hooks of others: one call in, allowed or not out, and every one of them on record.

The call is proposed in a space as a `caller` tool that is its peer's to run. Whatever goes wrong on the way is a no.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from cmbs.api.spaces import StepResponse
from cmbs.client import AsyncClient
from cmbs.errors import CmbsError, Forbidden, RecordNotFound
from cmbs.ledger import canonical
from cmbs.ledger.tagged_hash import describe_large_result
from cmbs.mcp.asking import describe_failure, require_agent
from cmbs.mcp.gateway.answers import describe_refusals
from cmbs.spi import Clock, IdSource

# What a peer's tool is registered as where the space does not know it: anything goes as arguments.
_ANY_ARGS = {"type": "object"}
_MAX_RESULT_BYTES = 65_536
_WAITING = ("asked", "parked")
# Another call may change the state between the look at it and the proposal on it.
_STALE = ("STALE_SNAPSHOT", "UNKNOWN_SNAPSHOT")
_MAX_PROPOSALS = 5
_MAX_TOKENS = 10_000


class Verdict(msgspec.Struct, frozen=True):
    """What was decided. `reason` is for the model, with what to do next."""

    allowed: bool
    reason: str
    proposal_id: str | None = None


class DecisionPoint:
    """A space that decides about calls which others make.

    `operator` registers tools that the space does not know yet, so that a policy can be written about them, and issues
    the token for them. What the peer does not report is in doubt after its time: here it is only known to be allowed.
    """

    def __init__(
        self, operator: AsyncClient, space_id: str, clock: Clock, ids: IdSource, wait_seconds: int = 0
    ) -> None:
        """`wait_seconds` is how long a call that waits, for an approval or for belief, is waited for."""
        self._operator = operator
        self._space_id = space_id
        self._clock = clock
        self._ids = ids
        self._wait_seconds = wait_seconds
        # The tokens of agents and tools that are known to be there.
        self._tokens: dict[tuple[str, str], str] = {}

    async def decide(
        self,
        agent: AsyncClient,
        tool_id: str,
        args: Mapping[str, Any],
        call_id: str = "",
        case_id: str | None = None,
        *,
        waits: bool = True,
    ) -> Verdict:
        """Propose the call; allowed only where the space says so, and never where it cannot be asked.

        `call_id` is the peer's own id of the call, by which its outcome can be reported. Without `waits` a call that
        needs an approval is denied at once.
        """
        try:
            return await self._propose(agent, tool_id, args, call_id, case_id, self._wait_seconds if waits else 0)
        except CmbsError as exc:
            return Verdict(allowed=False, reason=describe_failure(exc))

    async def report(self, agent: AsyncClient, call_id: str, result: Any, error: str | None = None) -> None:
        """Record the outcome of a call that was let through; RecordNotFound where there is none of that id."""
        status = "succeeded" if error is None else "failed"
        told, space_id = agent.with_options(minimal=True), self._space_id
        for number in range(_MAX_PROPOSALS):
            record = await agent.request("get_proposal", space_id=space_id, proposal_id=_proposal_id(call_id, number))
            for execution_id in record["execution_ids"]:
                await told.report_outcome(space_id, execution_id, status, result=_shorten_result(result), error=error)
            if record["decision"]["reason_code"] not in _STALE:
                return

    async def _propose(
        self,
        agent: AsyncClient,
        tool_id: str,
        args: Mapping[str, Any],
        call_id: str,
        case_id: str | None,
        wait_seconds: int,
    ) -> Verdict:
        agent_id = await require_agent(agent)
        token_id = await self._ensure(tool_id, agent_id)
        name = call_id or self._ids.new_id()
        space_id, proposing = self._space_id, agent.with_options(minimal=True)
        record: dict[str, Any] = {}
        for number in range(_MAX_PROPOSALS):
            proposal = await self._describe(agent_id, tool_id, args, token_id, _proposal_id(name, number))
            record = await proposing.request("propose", space_id=space_id, case_id=case_id, **proposal)
            if record["decision"]["reason_code"] not in _STALE:
                break
        proposal_id = str(record["proposal_id"])
        if record["status"] in _WAITING and wait_seconds:
            record = await agent.request("get_proposal", space_id=space_id, proposal_id=proposal_id, wait=wait_seconds)
        if record["status"] == "running":
            return Verdict(allowed=True, reason="allowed", proposal_id=proposal_id)
        reason = describe_refusals(record)
        if record["status"] in _WAITING:
            # The peer does not come back for the answer: nothing is to run later that nothing waits for.
            await agent.withdraw_proposal(space_id, proposal_id, reason="the caller does not wait")
            reason += (
                "; it was withdrawn, since the call is not waited for any longer: make it again when it is allowed"
            )
        return Verdict(allowed=False, reason=reason, proposal_id=proposal_id)

    async def _describe(
        self, agent_id: str, tool_id: str, args: Mapping[str, Any], token_id: str, proposal_id: str
    ) -> dict[str, Any]:
        """The proposal of a call, on the newest state."""
        space = await self._operator.request("get_space", fields=["state_snapshot_id"], space_id=self._space_id)
        call = {
            "type": "tool_call",
            "tool_id": tool_id,
            "args": dict(args),
            "capability_token_id": token_id,
            "idempotency_key": proposal_id,
        }
        return {
            "proposal_id": proposal_id,
            "state_snapshot_id": space["state_snapshot_id"],
            "provenance": {"source": agent_id, "timestamp": self._clock.now(), "permissions": [token_id]},
            "candidates": [call],
        }

    async def _ensure(self, tool_id: str, agent_id: str) -> str:
        """The token by which the agent may ask for the tool, which is registered where the space does not know it."""
        known = self._tokens.get((agent_id, tool_id))
        if known is not None:
            return known
        operator, space_id = self._operator, self._space_id
        try:
            await operator.request("get_tool", fields=["tool_id"], space_id=space_id, tool_id=tool_id)
        except RecordNotFound:
            _require(await operator.register_tool(space_id, tool_id, "caller", _ANY_ARGS))
        token_id = f"call-{sha256(canonical.encode([agent_id, tool_id])).hexdigest()[:24]}"
        step = await operator.issue_capability(space_id, token_id, agent_id, [tool_id])
        if step.reason_code != "ALREADY_ISSUED":
            _require(step)
        self._tokens[agent_id, tool_id] = token_id
        while len(self._tokens) > _MAX_TOKENS:
            del self._tokens[next(iter(self._tokens))]
        return token_id


def _proposal_id(call_id: str, number: int) -> str:
    return f"call-{call_id}-{number}" if number else f"call-{call_id}"


def _shorten_result(result: Any) -> Any:
    """A result as it is kept: all of it, or its hash where it is too large."""
    data = msgspec.json.encode(result)
    return result if len(data) <= _MAX_RESULT_BYTES else describe_large_result(data)


def _require(step: StepResponse) -> None:
    if not step.granted:
        raise Forbidden(f"the space does not take the tool of the call: {step.reason_code}")
