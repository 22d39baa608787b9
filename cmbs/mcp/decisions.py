"""Decisions for the gateways and hooks of others: one call in, allowed or not out, and every one of them on record.

The call is proposed in a space as a `caller` tool that is its peer's to run. Whatever goes wrong on the way is a no.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from cmbs.ledger import canonical
from cmbs.mcp.api import Api, ApiError, path
from cmbs.mcp.gateway.answers import describe_refusals
from cmbs.spi import Clock, IdSource

# What a peer's tool is registered as where the space does not know it: anything goes as arguments.
_ANY_ARGS = {"type": "object"}
_MAX_RESULT_BYTES = 65_536
_WAITING = ("asked", "parked")


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

    def __init__(self, operator: Api, space_id: str, clock: Clock, ids: IdSource, wait_seconds: int = 0) -> None:
        """`wait_seconds` is how long a call that waits, for an approval or for belief, is waited for."""
        self._operator = operator
        self._space_id = space_id
        self._clock = clock
        self._ids = ids
        self._wait_seconds = wait_seconds

    async def decide(
        self, agent: Api, tool_id: str, args: Mapping[str, Any], call_id: str = "", case_id: str | None = None
    ) -> Verdict:
        """Propose the call; allowed only where the space says so, and never where it cannot be asked.

        `call_id` is the peer's own id of the call, by which its outcome can be reported.
        """
        try:
            return await self._propose(agent, tool_id, args, call_id, case_id)
        except ApiError as exc:
            return Verdict(allowed=False, reason=f"{exc.code}: {exc.sentence}")

    async def report(self, agent: Api, call_id: str, result: Any) -> None:
        """Record the outcome of a call that was let through; ApiError where there is none of that id."""
        record = await agent.get(self._path("proposals", f"call-{call_id}"))
        for execution_id in record["execution_ids"]:
            outcome = {"status": "succeeded", "result": _shorten_result(result)}
            await agent.post(self._path("executions", execution_id, "outcome"), outcome, minimal=True)

    async def _propose(
        self, agent: Api, tool_id: str, args: Mapping[str, Any], call_id: str, case_id: str | None
    ) -> Verdict:
        me = await agent.get("/v1/whoami")
        token_id = await self._ensure(tool_id, str(me["id"]))
        space = await self._operator.get(self._path(), fields="state_snapshot_id")
        proposal_id = f"call-{call_id or self._ids.new_id()}"
        call = {
            "type": "tool_call",
            "tool_id": tool_id,
            "args": dict(args),
            "capability_token_id": token_id,
            "idempotency_key": proposal_id,
        }
        body: dict[str, Any] = {
            "proposal_id": proposal_id,
            "state_snapshot_id": space["state_snapshot_id"],
            "provenance": {"source": me["id"], "timestamp": self._clock.now(), "permissions": [token_id]},
            "candidates": [call],
        }
        if case_id is not None:
            body["case_id"] = case_id
        record = await agent.post(self._path("proposals"), body, minimal=True)
        if record["status"] in _WAITING and self._wait_seconds:
            record = await agent.get(self._path("proposals", proposal_id), wait=self._wait_seconds)
        if record["status"] == "running":
            return Verdict(allowed=True, reason="allowed", proposal_id=proposal_id)
        reason = describe_refusals(record)
        if record["status"] in _WAITING:
            # The peer does not come back for the answer: nothing is to run later that nothing waits for.
            place = self._path("proposals", proposal_id, "withdraw")
            await agent.post(place, {"reason": "the caller does not wait"})
            reason += (
                "; it was withdrawn, since the call is not waited for any longer: make it again when it is allowed"
            )
        return Verdict(allowed=False, reason=reason, proposal_id=proposal_id)

    async def _ensure(self, tool_id: str, agent_id: str) -> str:
        """The token by which the agent may ask for the tool, which is registered where the space does not know it."""
        try:
            await self._operator.get(self._path("tools", tool_id), fields="tool_id")
        except ApiError as exc:
            if exc.code != "RECORD_NOT_FOUND":
                raise
            tool = {"tool_id": tool_id, "kind": "caller", "args_schema": _ANY_ARGS}
            _require(await self._operator.post(self._path("tools"), tool))
        token_id = f"call-{sha256(canonical.encode([agent_id, tool_id])).hexdigest()[:24]}"
        token = {"token_id": token_id, "agent_id": agent_id, "tool_ids": [tool_id]}
        step = await self._operator.post(self._path("capabilities"), token)
        if step["reason_code"] != "ALREADY_ISSUED":
            _require(step)
        return token_id

    def _path(self, *segments: str) -> str:
        return path("spaces", self._space_id, *segments)


def _shorten_result(result: Any) -> Any:
    """A result as it is kept: all of it, or its hash where it is too large."""
    data = msgspec.json.encode(result)
    return result if len(data) <= _MAX_RESULT_BYTES else {"sha256": sha256(data).hexdigest(), "bytes": len(data)}


def _require(step: Mapping[str, Any]) -> None:
    if not step["granted"]:
        raise ApiError(403, str(step["reason_code"]), "the space does not take the tool of the call", {})
