"""The belief server most people would write first: plain `def` FastAPI routes, pydantic models, state in a dict.

It holds the same state as `cmbs serve` (survivors, an audit list with the spec's literal survivor hashes) and answers
DECLARE_SESSION and ELIMINATE in the same shape, but keeps nothing on disk and proves nothing.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

app = FastAPI()


class Ontology(BaseModel):
    """The ontology bundle of a session."""

    hypothesis_space_id: str
    hypothesis_version: str
    causal_graph_ref: str
    causal_graph_version: str


class Declare(BaseModel):
    """DECLARE_SESSION."""

    ontology: Ontology
    hypotheses: list[str]
    metadata: dict[str, Any] | None = None


class Eliminate(BaseModel):
    """ELIMINATE."""

    session_id: str | None = None
    source_id: str
    observation_id: str
    eliminated: list[str]
    justification: dict[str, Any] | None = None


class Snapshot(BaseModel):
    """What is believed now."""

    session_id: str
    ontology: Ontology
    survivors: list[str]
    n_survivors: int
    entropy_proxy: float
    terminated: bool
    active_obligation_id: str | None
    audit_head_event_id: str | None


class Declared(BaseModel):
    """The answer to DECLARE_SESSION."""

    session_id: str
    snapshot: Snapshot


class Eliminated(BaseModel):
    """The answer to ELIMINATE."""

    applied_eliminated: list[str]
    ignored_eliminated: list[str]
    snapshot: Snapshot
    audit_event_id: str


@dataclass
class Session:
    """What is held for one session."""

    session_id: str
    ontology: Ontology
    survivors: set[str]
    audit: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


sessions: dict[str, Session] = {}


def hash_survivors(survivors: set[str]) -> str:
    """The survivor hash as the spec's sketch has it."""
    return hashlib.sha256("\n".join(sorted(survivors)).encode()).hexdigest()


def snapshot_of(session: Session) -> Snapshot:
    """The snapshot of a session as it is now."""
    count = len(session.survivors)
    return Snapshot(
        session_id=session.session_id,
        ontology=session.ontology,
        survivors=sorted(session.survivors),
        n_survivors=count,
        entropy_proxy=math.log2(count) if count > 1 else 0.0,
        terminated=False,
        active_obligation_id=None,
        audit_head_event_id=session.audit[-1]["event_id"] if session.audit else None,
    )


@app.post("/v1/sessions", status_code=201)
def declare_session(message: Declare) -> Declared:
    """Create a session."""
    session = Session(str(uuid.uuid4()), message.ontology, set(message.hypotheses))
    sessions[session.session_id] = session
    return Declared(session_id=session.session_id, snapshot=snapshot_of(session))


@app.post("/v1/sessions/{session_id}/eliminate")
def eliminate(session_id: str, message: Eliminate) -> Eliminated:
    """Remove hypotheses from a session's survivors."""
    session = sessions.get(session_id)
    if session is None:
        raise HTTPException(404, "SESSION_NOT_FOUND")
    with session.lock:
        before = hash_survivors(session.survivors)
        asked = set(message.eliminated)
        applied = asked & session.survivors
        session.survivors -= applied
        entry = {
            "event_id": str(uuid.uuid4()),
            "ts": time.time(),
            "verb": "ELIMINATE",
            "payload": message.model_dump(),
            "survivors_before_hash": before,
            "survivors_after_hash": hash_survivors(session.survivors),
            "delta": {"eliminated": sorted(applied)},
        }
        session.audit.append(entry)
        return Eliminated(
            applied_eliminated=sorted(applied),
            ignored_eliminated=sorted(asked - applied),
            snapshot=snapshot_of(session),
            audit_event_id=str(entry["event_id"]),
        )
