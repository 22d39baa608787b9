"""The calls that make up a session's life, as data: one history can be played to any server, over any transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.messages import (
    ConclusionOutcome,
    EliminateOutcome,
    EnterOutcome,
    ExitOutcome,
    OntologyBundle,
    SessionPolicy,
    TerminationOutcome,
    Verb,
)

Answer: TypeAlias = (
    EliminateOutcome | EnterOutcome | ExitOutcome | ConclusionOutcome | TerminationOutcome | BeliefServerError
)

METHOD_OF: Mapping[Verb, str] = {
    Verb.ELIMINATE: "eliminate",
    Verb.ENTER_OBLIGATION: "enter_obligation",
    Verb.REQUEST_EXIT: "request_exit",
    Verb.DECLARE_CONCLUSION: "declare_conclusion",
    Verb.REQUEST_TERMINATION: "request_termination",
}


class Call(NamedTuple):
    """One message to a session. `arguments` have the names that they have in `BeliefServer` and in JSON."""

    verb: Verb
    arguments: Mapping[str, Any]
    idempotency_key: str | None = None


class History(NamedTuple):
    """A declaration, and the calls that follow it."""

    ontology: OntologyBundle
    hypotheses: list[str]
    metadata: dict[str, Any] | None
    policy: SessionPolicy
    calls: list[Call]


class Played(NamedTuple):
    """What became of a history: the session, and an answer for each call."""

    session_id: str
    answers: list[Answer]


def declare(server: BeliefServer, history: History) -> str:
    """Declare the session of a history; its id."""
    outcome = server.declare_session(history.ontology, history.hypotheses, history.metadata, policy=history.policy)
    return outcome.session_id


def perform(server: BeliefServer, session_id: str, call: Call) -> Answer:
    """Make one call. An error of the protocol is an answer like any other; whatever else is raised goes through."""
    method = getattr(server, METHOD_OF[call.verb])
    try:
        return cast("Answer", method(session_id, **call.arguments, idempotency_key=call.idempotency_key))
    except BeliefServerError as exc:
        return exc


def play(server: BeliefServer, history: History) -> Played:
    """Declare a session and make all the calls of a history."""
    session_id = declare(server, history)
    return Played(session_id, [perform(server, session_id, call) for call in history.calls])
