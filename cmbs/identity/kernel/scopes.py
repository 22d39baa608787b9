"""Scopes and roles: what a key is good for, everywhere or for single sessions and spaces. Pure.

`belief:write` holds for every session, `belief:write@incident-7` for that one, `spaces:propose@team-a-*` for the spaces
whose id begins so. A scope of the belief plane names sessions, one of spaces names spaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import UnsetType

from cmbs.errors import Forbidden, InvalidRequest, LimitExceeded
from cmbs.messages import Actor, ActorKind

AT = "@"
ANY_REST = "*"
MAX_SCOPES = 100
MAX_PATTERN_LENGTH = 1024
_LEAVE_OUT = "leave the kind out, or choose another role"
# Characters of an id that an error shows.
_SHOWN = 128


class Scope(StrEnum):
    """What a key is good for. Every route names the one that it needs."""

    BELIEF_READ = "belief:read"
    BELIEF_WRITE = "belief:write"
    SPACES_READ = "spaces:read"
    SPACES_PROPOSE = "spaces:propose"
    # Claims calls of tools that run outside the server, and reports what came of them.
    SPACES_EXECUTE = "spaces:execute"
    SPACES_APPROVE = "spaces:approve"
    SPACES_OPERATE = "spaces:operate"
    SPACES_CASES = "spaces:cases"


class Role(StrEnum):
    """A name for scopes that go together."""

    READER = "reader"
    AGENT = "agent"
    APPROVER = "approver"
    OPERATOR = "operator"
    # What runs calls outside the server, such as a gateway.
    EXECUTOR = "executor"
    # What starts agents: it opens sessions, and the cases that join them to spaces.
    HARNESS = "harness"


_READING = frozenset({Scope.BELIEF_READ, Scope.SPACES_READ})
SCOPES_OF: dict[Role, frozenset[Scope]] = {
    Role.READER: _READING,
    Role.AGENT: _READING | {Scope.BELIEF_WRITE, Scope.SPACES_PROPOSE, Scope.SPACES_EXECUTE},
    Role.APPROVER: _READING | {Scope.SPACES_APPROVE},
    Role.OPERATOR: frozenset(Scope),
    Role.EXECUTOR: frozenset({Scope.SPACES_READ, Scope.SPACES_EXECUTE}),
    Role.HARNESS: _READING | {Scope.BELIEF_WRITE, Scope.SPACES_CASES},
}
# The roles whose scopes are of use to one kind of actor alone: spaces let no other approve or govern.
KIND_OF: dict[Role, ActorKind] = {
    Role.APPROVER: ActorKind.OPERATOR,
    Role.OPERATOR: ActorKind.OPERATOR,
    Role.EXECUTOR: ActorKind.EXECUTOR,
}


class Reach(StrEnum):
    """How far a scope must reach for an operation."""

    ONE = "one"  # the session or space that is asked about
    ANY = "any"  # at least one: the answer is about those that it reaches
    ALL = "all"  # every one, also those that are not there yet


class Need(NamedTuple):
    """What an operation asks of a key. `target` is the id of the session or space where the reach is one."""

    scope: Scope
    reach: Reach = Reach.ALL
    target: str = ""


class Grants(msgspec.Struct, frozen=True):
    """What a key is good for: scopes that hold everywhere, and the patterns of ids for which others hold."""

    everywhere: frozenset[Scope] = frozenset()
    patterns: Mapping[Scope, tuple[str, ...]] = {}

    def cover(self, need: Need) -> bool:
        """Whether a key with these may do what needs that."""
        if need.scope in self.everywhere:
            return True
        patterns = self.patterns.get(need.scope, ())
        if need.reach is Reach.ONE:
            return any(_fits(pattern, need.target) for pattern in patterns)
        return need.reach is Reach.ANY and bool(patterns)

    def reach(self, scope: Scope, target: str) -> bool:
        """Whether a scope reaches one session or space."""
        return self.cover(Need(scope, Reach.ONE, target))

    def require(self, need: Need) -> None:
        """Forbidden, with the scope that is missing, where these do not cover a need."""
        if self.cover(need):
            return
        wanted = need.scope.value if need.reach is not Reach.ONE else f"{need.scope}{AT}{need.target[:_SHOWN]}"
        where = f" for `{need.target[:_SHOWN]}`" if need.reach is Reach.ONE and need.scope in self.patterns else ""
        everywhere = " for all ids" if need.reach is Reach.ALL and need.scope in self.patterns else ""
        raise Forbidden(
            f"this key lacks the scope `{need.scope}`{where}{everywhere}",
            {
                "reason": "missing_scope",
                "scope": need.scope.value,
                "found": self.to_texts(),
                "accepted": list(dict.fromkeys([need.scope.value, wanted])),
                "next": f"send the request with a key that has `{wanted}`",
            },
        )

    def to_texts(self) -> list[str]:
        """The scopes as they are written, sorted."""
        single = (f"{scope}{AT}{pattern}" for scope, patterns in self.patterns.items() for pattern in patterns)
        return sorted({*(scope.value for scope in self.everywhere), *single})


ALL = Grants(frozenset(Scope))


def grants_of(actor: Actor) -> Grants:
    """What an actor may do: what its credential says; everything where the server knows no credentials."""
    if not actor.authenticated:
        return ALL
    roles = () if isinstance(actor.roles, UnsetType) else actor.roles
    return grant(roles, () if isinstance(actor.scopes, UnsetType) else actor.scopes)


@lru_cache(maxsize=1024)
def grant(roles: tuple[str, ...], scopes: tuple[str, ...]) -> Grants:
    """What roles and scopes come to; the scopes were validated before."""
    everywhere = {scope for role in roles for scope in SCOPES_OF[Role(role)]}
    patterns: dict[Scope, tuple[str, ...]] = {}
    for text in scopes:
        name, _, pattern = text.partition(AT)
        if pattern:
            patterns[Scope(name)] = (*patterns.get(Scope(name), ()), pattern)
        else:
            everywhere.add(Scope(name))
    return Grants(frozenset(everywhere), patterns)


def validate_scopes(scopes: Iterable[str]) -> list[str]:
    """The scopes sorted and single; InvalidRequest for one that cannot be."""
    chosen = sorted(set(scopes))
    if len(chosen) > MAX_SCOPES:
        raise LimitExceeded("scopes", MAX_SCOPES, len(chosen))
    for text in chosen:
        name, at, pattern = text.partition(AT)
        if name not in {scope.value for scope in Scope}:
            known = [scope.value for scope in Scope]
            raise InvalidRequest(
                f"`{text[:_SHOWN]}` is no scope; those are {', '.join(known)}, each also as `<scope>@<id>`",
                {"field": "scopes", "found": text[:_SHOWN], "accepted": known},
            )
        if at:
            _validate_pattern(name, pattern)
    return chosen


def choose_kind(kind: ActorKind | None, roles: Collection[Role]) -> ActorKind:
    """The kind that was asked for, or else the one that the roles are for; InvalidRequest where the two disagree."""
    for role in sorted(roles):
        fitting = KIND_OF.get(role)
        if fitting is not None and kind is not None and kind is not fitting:
            raise InvalidRequest(
                f"the role `{role}` is for the kind `{fitting}`, not `{kind}`; {_LEAVE_OUT}",
                {
                    "field": "kind",
                    "found": kind.value,
                    "accepted": [fitting.value],
                    "next": _LEAVE_OUT,
                },
            )
        kind = kind or fitting
    if kind is None and set(roles) == {Role.HARNESS}:
        # Spaces let no agent open a case, and that is what a harness is for.
        return ActorKind.ENCODER
    return kind or ActorKind.AGENT


def _validate_pattern(name: str, pattern: str) -> None:
    shape = f"`{name}{AT}<id>`, or `{name}{AT}<beginning of ids>{ANY_REST}`"
    if not pattern or pattern == ANY_REST:
        raise InvalidRequest(f"write `{name}` for all ids, or else {shape}", {"field": "scopes"})
    if ANY_REST in pattern[:-1] or not pattern.isprintable():
        raise InvalidRequest(f"`{name}{AT}{pattern[:_SHOWN]}` must be {shape}", {"field": "scopes"})
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise LimitExceeded("scope_length", MAX_PATTERN_LENGTH, len(pattern))


def _fits(pattern: str, target: str) -> bool:
    return target.startswith(pattern[:-1]) if pattern.endswith(ANY_REST) else target == pattern
