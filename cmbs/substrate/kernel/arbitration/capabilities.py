"""Capability tokens: what a call needs of one, and what a new one may be.

A token is judged with every token above it. A child that is issued as it should be is narrower in any case; judging the
whole line means that nothing is lost where one above it runs out, expires or is revoked.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import unquote

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.model import REASON_ORDER, Budget, Capability, ReasonCode, Scope, ScopeMatch, Spent
from cmbs.substrate.kernel.policy.operators import same
from cmbs.substrate.kernel.policy.references import walk
from cmbs.substrate.kernel.state import Space

MAX_LINE = 16
MAX_TOOL_IDS = 1_000
MAX_NAMES = 100
MAX_SCOPES = 100
MAX_TEXT_CHARACTERS = 1_000
# How often a path may be escaped on top of itself, and still be within a scope.
MAX_ESCAPES = 8
UNBOUNDED = Budget()
_WIDE_ESCAPE = re.compile("%[uU][0-9a-fA-F]{4}")
# White space, control characters, and characters that are not seen.
_INVISIBLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")


class Demand(NamedTuple):
    """What the calls of one proposal ask of a token, all of them together."""

    calls: int
    bytes: int


class TokenLine(NamedTuple):
    """A token in use: all tokens from itself up to its root, and the names by which constraints mean it.

    `permitting` are its own; `denying` are those of the whole line.
    """

    tokens: tuple[Capability, ...]
    permitting: tuple[str, ...]
    denying: tuple[str, ...]


NO_TOKEN = TokenLine((), (), ())


def token_line(capabilities: Mapping[str, Capability], token_id: str | None) -> TokenLine:
    """The token and those above it; NO_TOKEN where it, or one above it, does not exist."""
    tokens: list[Capability] = []
    while token_id is not None:
        token = capabilities.get(token_id)
        if token is None or len(tokens) >= MAX_LINE:
            return NO_TOKEN
        tokens.append(token)
        token_id = token.parent_id
    if not tokens:
        return NO_TOKEN
    denying = sorted({name for each in tokens for name in each.capabilities})
    return TokenLine(tuple(tokens), tuple(tokens[0].capabilities), tuple(denying))


def use_fault(space: Space, line: TokenLine, actor: Actor, tool_id: str, args: Any, now: str) -> ReasonCode | None:
    """Why this actor may not use this token for this call; None where it may, its budget aside."""
    if not line.tokens:
        return ReasonCode.CAPABILITY_UNKNOWN
    if line.tokens[0].agent_id != actor.id or actor.kind is not ActorKind.AGENT:
        return ReasonCode.CAPABILITY_OTHER_AGENT
    worst = None
    for token in line.tokens:
        fault = _token_fault(space, token, tool_id, args, now)
        if fault is not None and (worst is None or REASON_ORDER[fault] < REASON_ORDER[worst]):
            worst = fault
    return worst


def _token_fault(space: Space, token: Capability, tool_id: str, args: Any, now: str) -> ReasonCode | None:
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
    """Whether a path leads out again: it begins with the prefix then, and may not stay under it.

    Readers of a path differ: some decode escapes, some twice, some take other characters for dots and slashes, end at a
    NUL, or take off parameters and white space. So it leads out if any of them may see a `..` in it.
    """
    if value.isascii() and ".." not in value and "%" not in value and "\0" not in value:
        return False
    plain = _decode(value)
    if plain is None or "\0" in plain:
        return True
    segments = re.split(r"[/\\]", unicodedata.normalize("NFKC", plain))
    return any(_INVISIBLE.sub("", segment.partition(";")[0]) == ".." for segment in segments)


def _decode(value: str) -> str | None:
    """A text without the escapes of URLs, however often they were escaped; None where that is ambiguous."""
    for _ in range(MAX_ESCAPES):
        decoded = unquote(value)
        if "\ufffd" in decoded or _WIDE_ESCAPE.search(decoded):
            # No UTF-8, such as a dot in two bytes, or an escape that only some decode.
            return None
        if decoded == value:
            return decoded
        value = decoded
    return None


def is_exhausted(space: Space, token: Capability, demand: Demand) -> bool:
    """Whether what is left of a token's budget is too little for what the calls of a proposal demand."""
    budget, spent = token.budget, space.spent.get(token.token_id, Spent())
    if budget.calls is not None and spent.calls + demand.calls > budget.calls:
        return True
    if budget.bytes is not None and spent.bytes + demand.bytes > budget.bytes:
        return True
    # How long a call will take is not known before it ran.
    return budget.wall_ms is not None and spent.wall_ms >= budget.wall_ms


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
    line = token_line(space.capabilities, capability.parent_id)
    is_holder = bool(line.tokens) and issuer.kind is ActorKind.AGENT and line.tokens[0].agent_id == issuer.id
    if not is_operator and not is_holder:
        # Only operators and the holder of a token may learn that it exists.
        return IssueRefusal.NOT_PERMITTED
    return _child_refusal(space, capability, line, now)


def _child_refusal(space: Space, child: Capability, line: TokenLine, now: str) -> IssueRefusal | None:
    if not line.tokens:
        return IssueRefusal.PARENT_UNKNOWN
    if any(each.expires_at is not None and now >= each.expires_at for each in line.tokens):
        return IssueRefusal.PARENT_EXPIRED
    if any(each.token_id in space.revoked for each in line.tokens):
        return IssueRefusal.PARENT_REVOKED
    if len(line.tokens) >= MAX_LINE:
        return IssueRefusal.LINE_TOO_LONG
    return wider_than(line.tokens[0], child)


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
