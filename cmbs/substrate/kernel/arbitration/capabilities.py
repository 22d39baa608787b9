"""Capability tokens: what a call needs of one, and what a new one may be.

A token is judged with every token above it. A child that is issued as it should be is narrower in any case; judging the
whole line means that nothing is lost where one above it runs out, expires or is revoked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.model import Budget, Capability, ReasonCode, Scope, ScopeMatch, Spent
from cmbs.substrate.kernel.policy.predicates import same
from cmbs.substrate.kernel.policy.references import walk
from cmbs.substrate.kernel.state import Space

MAX_LINE = 16
MAX_TOOL_IDS = 1_000
MAX_NAMES = 100
MAX_SCOPES = 100
MAX_TEXT_CHARACTERS = 1_000
_NOTHING_SPENT = Spent()
_UNBOUNDED = Budget()
# A member of an enumeration takes longer to look up than all else that is asked of most tokens.
_AGENT = ActorKind.AGENT


class Demand(NamedTuple):
    """What the calls of one proposal ask of a token, all of them together."""

    calls: int = 0
    bytes: int = 0


_NO_DEMAND = Demand()


class Held(msgspec.Struct, frozen=True):
    """A token in use: the line from itself up to its root, and the names by which constraints mean it.

    `permitting` are its own; `denying` are those of the whole line. `bounded`: some budget of the line has an end.
    """

    line: tuple[Capability, ...]
    permitting: tuple[str, ...]
    denying: tuple[str, ...]
    bounded: bool


NOT_HELD = Held((), (), (), False)


def held(capabilities: Mapping[str, Capability], token_id: str | None) -> Held:
    """The token and those above it; NOT_HELD where it, or one above it, does not exist."""
    token = None if token_id is None else capabilities.get(token_id)
    if token is None:
        return NOT_HELD
    names = tuple(token.capabilities)
    if token.parent_id is None:
        return Held((token,), names, names, token.budget != _UNBOUNDED)
    line = [token]
    while line[-1].parent_id is not None:
        above = capabilities.get(line[-1].parent_id)
        if above is None or len(line) >= MAX_LINE:
            return NOT_HELD
        line.append(above)
    denying = tuple(sorted({name for each in line for name in each.capabilities}))
    return Held(tuple(line), names, denying, any(each.budget != _UNBOUNDED for each in line))


def use_fault(space: Space, holding: Held, actor: Actor, tool_id: str, args: Any, now: str) -> ReasonCode | None:
    """Why this actor may not use this token for this call; None where it may, its budget aside."""
    line = holding.line
    if not line:
        return ReasonCode.CAPABILITY_UNKNOWN
    if line[0].agent_id != actor.id or actor.kind is not _AGENT:
        return ReasonCode.CAPABILITY_OTHER_AGENT
    if len(line) == 1:
        return _fault_of(space, line[0], tool_id, args, now)
    faults = {_fault_of(space, each, tool_id, args, now) for each in line}
    return next((reason for reason in ReasonCode if reason in faults), None)


def _fault_of(space: Space, token: Capability, tool_id: str, args: Any, now: str) -> ReasonCode | None:
    """Why one token of the line is not good for the call, in the order of the reason codes."""
    if token.expires_at is not None and now >= token.expires_at:
        return ReasonCode.CAPABILITY_EXPIRED
    if token.token_id in space.revoked:
        return ReasonCode.CAPABILITY_REVOKED
    if tool_id not in token.tool_ids:
        return ReasonCode.CAPABILITY_TOOL
    for scope in token.scopes:
        if not in_scope(scope, args):
            return ReasonCode.CAPABILITY_SCOPE
    return None


def in_scope(scope: Scope, args: Any) -> bool:
    """Whether the argument that a scope is about is there, and within it."""
    return _covers(scope, walk(args, tuple(scope.path.split("."))))


def _covers(scope: Scope, value: object) -> bool:
    if scope.match is ScopeMatch.EXACT:
        return same(value, scope.value)
    if not isinstance(value, str) or not isinstance(scope.value, str) or not value.startswith(scope.value):
        return False
    return not _climbs(value)


def _climbs(value: str) -> bool:
    """Whether a path leads out again: it begins with the prefix then, and does not stay under it.

    Also where dots are escaped as in a URL, or a segment has parameters, which some take off before they look.
    """
    plain = re.sub("%2[eE]", ".", value) if "%2" in value else value
    if ".." not in plain:
        return False
    segments = re.split(r"[/\\]|%2[fF]|%5[cC]", plain)
    return any(segment.partition(";")[0] == ".." for segment in segments)


def is_exhausted(space: Space, holding: Held, demands: Mapping[str, Demand]) -> bool:
    """Whether a budget of the line is too small for what the proposal asks of it."""
    return any(
        _is_beyond(each.budget, space.spent.get(each.token_id, _NOTHING_SPENT), demands[each.token_id])
        for each in holding.line
    )


def _is_beyond(budget: Budget, spent: Spent, demand: Demand) -> bool:
    if budget.calls is not None and spent.calls + demand.calls > budget.calls:
        return True
    if budget.bytes is not None and spent.bytes + demand.bytes > budget.bytes:
        return True
    # How long a call will take is not known before it ran.
    return budget.wall_ms is not None and spent.wall_ms >= budget.wall_ms


def demands_of(calls: Iterable[tuple[Held, msgspec.Raw]]) -> dict[str, Demand]:
    """What calls, each with its args, ask of every token of their lines."""
    demands: dict[str, Demand] = {}
    for holding, args in calls:
        for each in holding.line:
            known = demands.get(each.token_id, _NO_DEMAND)
            demands[each.token_id] = Demand(known.calls + 1, known.bytes + len(bytes(args)))
    return demands


# --- issuing ----------------------------------------------------------------------------------------------------------


class IssueRefusal(StrEnum):
    """Why a token is not issued. Where several hold, the first in this order is given."""

    MALFORMED = "MALFORMED"
    ALREADY_ISSUED = "ALREADY_ISSUED"
    # Roots are issued by operators, children by operators and by the agent that holds the parent.
    NOT_PERMITTED = "NOT_PERMITTED"
    PARENT_UNKNOWN = "PARENT_UNKNOWN"
    PARENT_EXPIRED = "PARENT_EXPIRED"
    PARENT_REVOKED = "PARENT_REVOKED"
    LINE_TOO_LONG = "LINE_TOO_LONG"
    WIDER_TOOLS = "WIDER_TOOLS"
    WIDER_CAPABILITIES = "WIDER_CAPABILITIES"
    WIDER_SCOPES = "WIDER_SCOPES"
    WIDER_BUDGET = "WIDER_BUDGET"
    WIDER_EXPIRY = "WIDER_EXPIRY"


def issue_refusal(space: Space, capability: Capability, issuer: Actor, now: str) -> IssueRefusal | None:
    """Why this token may not be issued by this actor; None where it may."""
    if _is_malformed(capability) or (capability.expires_at is not None and capability.expires_at <= now):
        return IssueRefusal.MALFORMED
    if capability.token_id in space.capabilities:
        return IssueRefusal.ALREADY_ISSUED
    is_operator = issuer.kind is ActorKind.OPERATOR
    if capability.parent_id is None:
        return None if is_operator else IssueRefusal.NOT_PERMITTED
    holding = held(space.capabilities, capability.parent_id)
    is_holder = bool(holding.line) and issuer.kind is ActorKind.AGENT and holding.line[0].agent_id == issuer.id
    if not is_operator and not is_holder:
        # What tokens there are is nobody's business but an operator's and their holders'.
        return IssueRefusal.NOT_PERMITTED
    return _child_refusal(space, capability, holding, now)


def _child_refusal(space: Space, child: Capability, holding: Held, now: str) -> IssueRefusal | None:
    if not holding.line:
        return IssueRefusal.PARENT_UNKNOWN
    if any(each.expires_at is not None and now >= each.expires_at for each in holding.line):
        return IssueRefusal.PARENT_EXPIRED
    if any(each.token_id in space.revoked for each in holding.line):
        return IssueRefusal.PARENT_REVOKED
    if len(holding.line) >= MAX_LINE:
        return IssueRefusal.LINE_TOO_LONG
    return wider_than(holding.line[0], child)


def wider_than(parent: Capability, child: Capability) -> IssueRefusal | None:
    """In which respect a child reaches further than its parent; None where it does not."""
    if not set(child.tool_ids) <= set(parent.tool_ids):
        return IssueRefusal.WIDER_TOOLS
    if not set(child.capabilities) <= set(parent.capabilities):
        return IssueRefusal.WIDER_CAPABILITIES
    if not all(any(_implies(narrow, wide) for narrow in child.scopes) for wide in parent.scopes):
        return IssueRefusal.WIDER_SCOPES
    of_parent, of_child = parent.budget, child.budget
    if not (
        _within(of_child.calls, of_parent.calls)
        and _within(of_child.bytes, of_parent.bytes)
        and _within(of_child.wall_ms, of_parent.wall_ms)
    ):
        return IssueRefusal.WIDER_BUDGET
    if parent.expires_at is not None and (child.expires_at is None or child.expires_at > parent.expires_at):
        return IssueRefusal.WIDER_EXPIRY
    return None


def _implies(narrow: Scope, wide: Scope) -> bool:
    """Whether whatever is within `narrow` is within `wide`."""
    if narrow.path != wide.path:
        return False
    if narrow.match is ScopeMatch.EXACT or wide.match is ScopeMatch.PREFIX:
        return _covers(wide, narrow.value)
    return False


def _within(narrow: int | None, wide: int | None) -> bool:
    return wide is None or (narrow is not None and narrow <= wide)


def _is_malformed(capability: Capability) -> bool:
    budget = capability.budget
    texts = [capability.token_id, capability.agent_id, *capability.tool_ids, *capability.capabilities]
    return (
        not capability.tool_ids
        or len(capability.tool_ids) > MAX_TOOL_IDS
        or len(capability.capabilities) > MAX_NAMES
        or len(capability.scopes) > MAX_SCOPES
        or not all(0 < len(text) <= MAX_TEXT_CHARACTERS for text in texts)
        or any(map(_is_malformed_scope, capability.scopes))
        or any(bound is not None and bound < 0 for bound in (budget.calls, budget.bytes, budget.wall_ms))
    )


def _is_malformed_scope(scope: Scope) -> bool:
    if not all(scope.path.split(".")) or len(scope.path) > MAX_TEXT_CHARACTERS:
        return True
    if isinstance(scope.value, str):
        return len(scope.value) > MAX_TEXT_CHARACTERS
    # Only text has a beginning.
    return scope.match is ScopeMatch.PREFIX
