"""A valid request for every operation that writes, to be spoilt in one way at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.in_process import Client
from tests.support.transports import DECLARATION, ONTOLOGY


class Write(NamedTuple):
    """A request that succeeds on a session over `abcd` that has entered the obligation `gate`."""

    path: str
    body: dict[str, Any]
    required: tuple[str, ...]
    opaque: str


WRITES: dict[str, Write] = {
    "declare_session": Write(
        "/v1/sessions",
        {"ontology": ONTOLOGY, "hypotheses": ["a"], "metadata": {}, "policy": {}},
        ("ontology", "hypotheses"),
        "metadata",
    ),
    "eliminate": Write(
        "/v1/sessions/{session_id}/eliminate",
        {"source_id": "s", "observation_id": "o", "eliminated": ["a"], "justification": {}},
        ("source_id", "observation_id", "eliminated"),
        "justification",
    ),
    "enter_obligation": Write(
        "/v1/sessions/{session_id}/obligations",
        {"obligation_id": "another", "min_total_eliminations": 1},
        ("obligation_id", "min_total_eliminations"),
        "",
    ),
    "request_exit": Write("/v1/sessions/{session_id}/obligations/gate/exit", {"context": {}}, (), "context"),
    "declare_conclusion": Write(
        "/v1/sessions/{session_id}/conclusions",
        {"conclusion_id": "a", "context": {}},
        ("conclusion_id",),
        "context",
    ),
    "request_termination": Write("/v1/sessions/{session_id}/terminate", {"context": {}}, (), "context"),
    "fork_session": Write("/v1/sessions/{session_id}/fork", {"at": 0}, (), ""),
}
ON_A_SESSION = [name for name in WRITES if name not in {"declare_session", "fork_session"}]
READS: dict[str, str] = {
    "list_sessions": "/v1/sessions",
    "query_belief": "/v1/sessions/{session_id}",
    "list_survivors": "/v1/sessions/{session_id}/survivors",
    "audit_trace": "/v1/sessions/{session_id}/audit",
    "list_obligations": "/v1/sessions/{session_id}/obligations",
    "session_diff": "/v1/sessions/{session_id}/diff",
    "compare_sources": "/v1/sessions/{session_id}/sources",
    "session_analysis": "/v1/sessions/{session_id}/analysis",
    "prove_session_inclusion": "/v1/sessions/{session_id}/proofs/inclusion",
    "healthz": "/healthz",
    "readyz": "/readyz",
}
# What a field may hold; every other value is a wrong one.
FIELD_KINDS: dict[str, str] = {
    "ontology": "ontology",
    "hypotheses": "ids",
    "metadata": "object",
    "policy": "policy",
    "source_id": "text",
    "observation_id": "text",
    "eliminated": "ids",
    "justification": "object",
    "obligation_id": "text",
    "min_total_eliminations": "count",
    "context": "object",
    "conclusion_id": "text",
    "session_id": "text",
    "at": "place",
}
_ALL = [None, True, 1, -1, 1.5, 2**53, "text", [], ["a"], [1], [None], [["a"]], {}, {"odd": 1}]
WRONG_VALUES: dict[str, list[Any]] = {
    "text": [value for value in _ALL if not isinstance(value, str)],
    "ids": [value for value in _ALL if value not in ([], ["a"])],
    "object": [value for value in _ALL if not isinstance(value, dict | None)],
    "count": [value for value in _ALL if value is True or value != 1],
    "place": [value for value in _ALL if value is True or not isinstance(value, int | str | None)],
    "ontology": _ALL,
    "policy": [value for value in _ALL if value != {}],
}


def path_of(name: str, session_id: str) -> str:
    """Where an operation on this session is."""
    return (WRITES[name].path if name in WRITES else READS[name]).format(session_id=session_id)


def request_of(name: str, session_id: str) -> dict[str, Any]:
    """What a client sends for an operation on this session."""
    written = name in WRITES
    body = WRITES[name].body if written else None
    return {"method": "POST" if written else "GET", "path": path_of(name, session_id), "json": body}


def open_session(client: Client, min_total_eliminations: int = 1) -> str:
    """Declare a session over `abcd` that has entered the obligation `gate`; its id."""
    session_id: str = client.post("/v1/sessions", DECLARATION).json()["session_id"]
    obligation = {"obligation_id": "gate", "min_total_eliminations": min_total_eliminations}
    client.post(f"/v1/sessions/{session_id}/obligations", obligation)
    return session_id
