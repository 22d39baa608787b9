"""Where a call is approved, shown to the user of a host that can be shown a URL.

Hosts answer such questions by themselves. So the answer is noted and approves nothing, and it is no confirmation of the
call either: all that it says is whether the host would open an address.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from mcp import MCPError
from pydantic import ValidationError

from cmbs.mcp.gateway.ledger import GatewayLedger
from cmbs.mcp.gateway.open_call import INPUT_REQUIRED, Listener, OpenCall
from cmbs.substrate.tools.mcp_connection import Wire

# Upstreams ask from round 1 on.
OFFER_ROUND = 0
# How long a user has for an answer.
MAX_INPUT_SECONDS = 600
_NAME = "approve"
_ANSWERS = ("accept", "decline", "cancel")
_PROGRESS_SECONDS = 5.0


class Offers:
    """Asks hosts to show their users the console; it never does where no console is known."""

    def __init__(self, ledger: GatewayLedger, console: str | None) -> None:
        self._ledger = ledger
        self._console = console

    def is_due(self, call: OpenCall, listener: Listener) -> bool:
        """Whether this client has still to be shown where its call is approved."""
        can_show = self._console is not None and listener.takes_urls
        return can_show and call.is_asked and not call.is_offer_answered

    def is_open(self, call: OpenCall, proposal_id: str) -> bool:
        """Whether this call was offered, and the answer is still to come."""
        return call.is_offered and not call.is_offer_answered and call.gated.answer.proposal_id == proposal_id

    def build_question(self, call: OpenCall) -> Wire:
        """The result by which a client is asked that then sends its request again."""
        call.is_offered = True
        return {
            "resultType": INPUT_REQUIRED,
            "inputRequests": {_NAME: {"method": "elicitation/create", "params": self._build_params(call)}},
            "requestState": write_state(call.gated.answer.proposal_id, OFFER_ROUND),
        }

    async def take_answer(self, call: OpenCall, responses: Wire) -> None:
        """Note what the host answered; from then on it is not asked again."""
        call.is_offer_answered = True
        answer = responses.get(_NAME)
        action = answer.get("action") if isinstance(answer, Mapping) else None
        claim = {
            "noticed": "answer of the host to where a call is approved",
            "proposal_id": call.gated.answer.proposal_id,
            "action": action if action in _ANSWERS else "none",
        }
        await self._ledger.note("offer", claim)

    async def ask(self, call: OpenCall, listener: Listener, began: float) -> None:
        """Ask in the middle of a request that began then; returns when that is answered, or the call has moved on."""
        params = {**self._build_params(call), "elicitationId": call.gated.answer.proposal_id}
        asking = asyncio.ensure_future(listener.ask("elicitation/create", params))
        asking.add_done_callback(lambda _: call.move())
        until = time.monotonic() + MAX_INPUT_SECONDS
        try:
            while call.is_waiting and not asking.done() and time.monotonic() < until:
                await call.wait_moved(_PROGRESS_SECONDS)
                await listener.progress((time.monotonic() - began) / 1_000, None, "waits: the user was asked")
        finally:
            asking.cancel()
        responses: Wire = {}
        if asking.done():
            try:
                responses = {_NAME: asking.result()}
            except (MCPError, ValidationError):
                # A host that cannot do what it declared: noted as no answer.
                responses = {}
        await self.take_answer(call, responses)

    def _build_params(self, call: OpenCall) -> Wire:
        request, space_id = call.request, self._ledger.space_id
        query = urlencode({"space": space_id, "proposal": call.gated.answer.proposal_id})
        return {
            "mode": "url",
            "message": (
                f"`{request.pin.tool_id}`, called by `{request.agent_id}`, needs the approval of an operator. It is "
                "given in the console, by who signs in there. An answer here approves nothing."
            ),
            "url": f"{(self._console or '').rstrip('/')}/inbox?{query}",
        }


def write_state(proposal_id: str, number: int) -> str:
    """The request state of a question, before it is sealed."""
    return msgspec.json.encode({"p": proposal_id, "r": number}).decode()


def read_state(state: str) -> tuple[str, int]:
    """The proposal and the number of a question; no question has what is given for a state that cannot be read."""
    try:
        told = msgspec.json.decode(state)
        return str(told["p"]), int(told["r"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return "", -1
