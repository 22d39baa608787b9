"""The names of cases: which name is whose, one case each. Pure.

A name is taken by the entry that claims it, so of two processes one has it. Upper and lower case do not tell two names
apart. Names are not ids: an id is recognised first, and no name has the form of an id that this software makes.
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec
from immutables import Map

from cmbs.belief.kernel.case_fields import CASE_NAME_PATTERN
from cmbs.errors import Conflict, Forbidden, InvalidRequest, LimitExceeded, RecordNotFound
from cmbs.ledger import Head
from cmbs.ledger.register_entry import RegisterEntry
from cmbs.messages import Actor, ActorKind
from cmbs.spi.audit_log import NAMES_STREAM

MAX_NAME_LENGTH = 64
# At a time, in one server: all of them are in memory.
MAX_NAMES = 100_000
_NAME = re.compile(CASE_NAME_PATTERN)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHOWN = 100


class NameVerb(StrEnum):
    """What can be done to names."""

    CLAIM_NAME = "CLAIM_NAME"
    RELEASE_NAME = "RELEASE_NAME"


class ClaimName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case takes a name. `instead_of` is the one that it had, which it gives up with this; None where it had none."""

    name: str
    session_id: str
    instead_of: str | None = None


class ReleaseName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case gives its name up; the name may be taken by another."""

    name: str
    session_id: str


NameMessage = ClaimName | ReleaseName
NAME_MESSAGES: dict[str, type[NameMessage]] = {
    NameVerb.CLAIM_NAME: ClaimName,
    NameVerb.RELEASE_NAME: ReleaseName,
}


class CaseNames(msgspec.Struct, frozen=True):
    """All names in use, and where the stream ends that says so."""

    # By the name in lower case.
    sessions: Map[str, str]
    # The name as it was claimed, by session.
    names: Map[str, str]
    head: Head

    def find(self, name: str) -> str | None:
        """The session that has a name."""
        return self.sessions.get(name.lower())

    def name_of(self, session_id: str) -> str | None:
        """The name of a session."""
        return self.names.get(session_id)

    def search(self, text: str, limit: int) -> list[str]:
        """Sessions that have this text in their name, in any case; so many at most."""
        wanted, found = text.casefold(), []
        for name, session_id in self.sessions.items():
            if wanted in name:
                found.append(session_id)
                if len(found) == limit:
                    break
        return sorted(found)


def may_be_name(text: str) -> bool:
    """Whether a text could be the name of a case: it has not the form of an id that this software makes."""
    return _NAME.fullmatch(text) is not None and _UUID.fullmatch(text) is None


def check_name(name: object) -> str:
    """A name, or a clear error."""
    if not isinstance(name, str) or not may_be_name(name):
        shown = name[:_SHOWN] if isinstance(name, str) else type(name).__name__
        raise InvalidRequest(
            f"`{shown}` cannot be the name of a case",
            {
                "field": "name",
                "found": shown,
                "accepted": f"1 to {MAX_NAME_LENGTH} letters, digits, `.`, `_` or `-`, the first a letter or a digit,"
                " and not of the form of a session id",
            },
        )
    return name


def refuse_taken(name: str, session_id: str) -> Conflict:
    """The error of a name that another case has."""
    return Conflict(
        f"the name `{name}` is taken by case `{session_id}`",
        {
            "name": name,
            "session_id": session_id,
            "field": "name",
            "found": name,
            "accepted": "a name that no case has",
            "next": "work on that case, or choose another name",
        },
    )


def decide_name(stream_id: str, names: CaseNames | None, message: NameMessage, by: Actor) -> bool:
    """Whether a message changes anything. Conflict where another case has the name.

    A name may be claimed for a case that has none; giving a name up, for another or for none, is for operators.
    """
    if stream_id != NAMES_STREAM:
        raise ValueError(f"names are in `{NAMES_STREAM}`")
    check_name(message.name)
    current = None if names is None else names.name_of(message.session_id)
    if isinstance(message, ReleaseName):
        if current != message.name:
            raise RecordNotFound("name", message.name, where=f"the case `{message.session_id}`")
        _require_operator(by)
        return True
    if current == message.name:
        return False
    holder = None if names is None else names.find(message.name)
    if holder not in (None, message.session_id):
        raise refuse_taken(message.name, f"{holder}")
    if current != message.instead_of:
        raise Conflict(
            f"case `{message.session_id}` has the name `{current}`" if current else "the case has no name",
            {
                "field": "name",
                "session_id": message.session_id,
                "found": message.name,
                "accepted": current,
                "next": "use the name that it has, or have an operator rename the case",
            },
        )
    if message.instead_of is not None:
        _require_operator(by)
    elif names is not None and len(names.sessions) >= MAX_NAMES:
        raise LimitExceeded("case_names", MAX_NAMES, len(names.sessions) + 1, "name")
    return True


def evolve_names(
    names: CaseNames | None,
    message: NameMessage,
    body: RegisterEntry,  # noqa: ARG001 - names have no history
    head: Head,
) -> CaseNames:
    """The names after a message that was recorded."""
    sessions: Map[str, str] = Map() if names is None else names.sessions
    by_session: Map[str, str] = Map() if names is None else names.names
    given_up = message.name if isinstance(message, ReleaseName) else message.instead_of
    if given_up is not None:
        sessions = sessions.delete(given_up.lower())
        by_session = by_session.delete(message.session_id)
    if isinstance(message, ClaimName):
        sessions = sessions.set(message.name.lower(), message.session_id)
        by_session = by_session.set(message.session_id, message.name)
    return CaseNames(sessions, by_session, head)


def _require_operator(by: Actor) -> None:
    if by.authenticated and by.kind is not ActorKind.OPERATOR:
        raise Forbidden(
            "only operators rename cases and release names",
            {
                "reason": "not_an_operator",
                "field": "name",
                "found": by.kind.value,
                "accepted": [ActorKind.OPERATOR.value],
                "next": "have an operator do it",
            },
        )
