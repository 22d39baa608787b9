"""Decisions for the gateways and hooks of others: one call in, allowed or not out, and every one of them on record.

The call is one of a `caller` tool, which its peer is to run: it is claimed before it is let through. What goes wrong on
the way is a no.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from cmbs.api.spaces import StepResponse
from cmbs.calls.gated_call import CallRequest, GatedCall
from cmbs.calls.sentences import (
    describe_call,
    describe_error,
    describe_not_made,
    describe_refusal,
    describe_unrecorded,
    describe_withdrawn,
)
from cmbs.client import AsyncClient
from cmbs.errors import CmbsError, Forbidden, RecordNotFound
from cmbs.ledger import canonical
from cmbs.mcp.asking import require_agent
from cmbs.mcp.claims import Claims, KeptClaim, MemoryClaims
from cmbs.spi import IdSource

# What a peer's tool is registered as where the space does not know it: anything goes as arguments.
_ANY_ARGS = {"type": "object"}
_MAX_TOKENS = 10_000


class Verdict(msgspec.Struct, frozen=True):
    """What was decided. `reason` is for the model: whole sentences, with what to do next."""

    allowed: bool
    reason: str
    call_id: str | None = None


class DecisionPoint:
    """A space that decides about calls which others make.

    `operator` registers tools that the space does not know yet, so that a policy can be written about them, and issues
    the token for them. What the peer does not report is in doubt after its time: here it is only known to be allowed.
    """

    def __init__(
        self,
        operator: AsyncClient,
        space_id: str,
        ids: IdSource,
        wait_seconds: int = 0,
        claims: Claims | None = None,
    ) -> None:
        """`wait_seconds` is how long a call that waits, for an approval or for belief, is waited for."""
        self._operator = operator
        self._space_id = space_id
        self._ids = ids
        self._wait_seconds = wait_seconds
        self._claims = claims or MemoryClaims()
        # The tokens of agents and tools that are known to be there.
        self._tokens: dict[tuple[str, str], str] = {}

    async def decide(
        self,
        agent: AsyncClient,
        tool_id: str,
        args: Mapping[str, Any],
        name: str = "",
        case_id: str | None = None,
        *,
        waits: bool = True,
    ) -> Verdict:
        """Make the call, and claim it for the peer; allowed only where the space starts it for this process.

        `name` is the peer's own id of the call, by which its outcome can be reported; else that is the id of the call.
        Without `waits` a call that needs an approval is denied at once.
        """
        try:
            token_id = await self._ensure(tool_id, await require_agent(agent))
            request = CallRequest(
                tool_id=tool_id,
                args=args,
                case_id=case_id,
                token=token_id,
                # Two calls of a peer are two, also where they are alike.
                idempotency_key=f"call-{name or self._ids.new_id()}",
            )
            return await self._decide(agent, request, name, self._wait_seconds if waits else 0)
        except CmbsError as exc:
            return Verdict(allowed=False, reason=describe_error(exc))

    async def report(self, agent: AsyncClient, name: str, result: Any, error: str | None = None) -> None:
        """Record the outcome of a call that was let through; RecordNotFound where there is none of that name."""
        kept = self._claims.find(name)
        if kept is None:
            raise RecordNotFound("call", name)
        call = GatedCall(self._space_id, nonce=kept.nonce)
        await agent.run(call.resume(kept.call_id))
        await agent.run(call.report("succeeded" if error is None else "failed", result=result, error=error))
        if not call.is_over:
            raise Forbidden(describe_unrecorded(call.answer, describe_refusal(call.answer)))
        self._claims.drop(name)

    async def _decide(self, agent: AsyncClient, request: CallRequest, name: str, wait_seconds: int) -> Verdict:
        call = GatedCall(self._space_id, request)
        await agent.run(call.begin())
        await agent.run(call.proceed(wait_seconds))
        if call.may_run:
            return await self._let_through(agent, call, name or call.call_id)
        if not call.waits:
            return Verdict(allowed=False, reason=describe_call(call.answer), call_id=call.call_id)
        # The peer does not come back for the answer: nothing is to run later that nothing waits for.
        await agent.run(call.withdraw("the caller does not wait"))
        reason = describe_withdrawn(call.answer, "what it waited for did not come in time, so it was withdrawn")
        reason += "\nMake it again when an operator can approve it meanwhile, or once what it depends on has changed."
        return Verdict(allowed=False, reason=reason, call_id=call.call_id)

    async def _let_through(self, agent: AsyncClient, call: GatedCall, name: str) -> Verdict:
        """Let a call through that is claimed, once the secret of its outcome is kept."""
        try:
            self._claims.keep(name, KeptClaim(call.call_id, call.nonce))
        except OSError as exc:
            why = f"its outcome could not be reported later, since its claim cannot be kept ({exc})"
            await agent.run(call.report("failed", error=f"not done: {why}"))
            return Verdict(allowed=False, reason=describe_not_made(why), call_id=call.call_id)
        return Verdict(allowed=True, reason="allowed", call_id=call.call_id)

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


def _require(step: StepResponse) -> None:
    if not step.granted:
        raise Forbidden(f"the space does not take the tool of the call: {step.reason_code}")
