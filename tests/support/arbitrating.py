"""Arbitration in tests: a space in which a call has all that it needs, and what a proposal is decided as."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cmbs.messages import Actor
from cmbs.substrate.kernel.arbitration.arbitrate import Arbitration, arbitrate
from cmbs.substrate.kernel.model import Candidate, ReasonCode
from cmbs.substrate.kernel.state import Space
from cmbs.testing.spaces import AGENT, NOW, payload, proposal, space, token, tool

ALLOW_ALL = {"constraint.all": payload()}
TOOLS = (tool(), tool("email.send", writes=False))
NEEDS_PATH = tool(args_schema=msgspec.Raw(b'{"required":["path"]}'))
# One call asks, another one waits.
MIXED = {
    "constraint.ask": payload(effect="deny", subject={"tool_id": "fs.write"}, on_fail="ask"),
    "constraint.defer": payload(effect="deny", subject={"tool_id": "email.send"}, on_fail="defer"),
    "constraint.all": payload(),
}


def ready(pairs: Mapping[str, str] | None = None, state: Mapping[str, str] | None = None, **fields: Any) -> Space:
    """A space in which a call of `fs.write` has everything that it needs, but for what the policy says."""
    return space(ALLOW_ALL if pairs is None else pairs, state, **({"tools": TOOLS, "tokens": (token(),)} | fields))


def decide(kept: Space, *candidates: Candidate, actor: Actor = AGENT, belief: Any = None, **fields: Any) -> Arbitration:
    """The arbitration of a proposal with these candidates, which always has a trace."""
    found = arbitrate(kept, proposal(*candidates, actor=actor, **fields), actor, NOW, belief or {})
    assert found.decision.trace or not candidates
    return found


def reason(*arguments: Any, **fields: Any) -> ReasonCode:
    return decide(*arguments, **fields).decision.reason_code
