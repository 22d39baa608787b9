"""The examples of the OpenAPI document: one small incident, told through every message.

They are what a server answers, to the last hash, when it is asked these things in this order.
"""

from __future__ import annotations

from typing import Any

from cmbs.errors import (
    BeliefServerError,
    Conflict,
    EventNotFound,
    Forbidden,
    HeadMismatch,
    InvalidHypothesisId,
    InvalidRequest,
    KeyRefused,
    LedgerCorrupt,
    LimitExceeded,
    ObligationNotFound,
    RecordNotFound,
    SessionNotFound,
    SessionTerminated,
    SpaceNotFound,
    StoreUnavailable,
    Unauthenticated,
)
from cmbs.http.errors import TransportCode

SESSION_ID = "3f2b8c1e-0d4a-4c39-9d0b-6a1f5e7c2b90"
EVENT_IDS = (
    "9a1c7e42-5b0f-4f0e-8a63-1d2e3f405162",
    "c5d8e0f1-7a26-4b93-8e14-2f6b0a9d3c71",
    "17f4b6a9-3e52-4d08-b7c1-95e0d2a86f34",
    "e80b2d6c-41f7-4a9e-93d5-7c1a60f8b2e5",
    "5b93f7d0-c8a1-4e26-a04f-b6d27e19c358",
    "02ad9e85-6f3b-47c2-8d71-e4f50b1c7a96",
)
STARTED = "2026-03-01T10:40:00.000000Z"
_GATE = "rule-out-one"
_ELIMINATION = 2  # the seq of the event that takes one hypothesis out
_BITS = 0.5849625007211562  # log2(3 / 2)
_NEXT_CURSOR = "WyJkYi1sb2NrLWNvbnRlbnRpb24iXQ"
_ONTOLOGY = {
    "hypothesis_space_id": "checkout-latency",
    "hypothesis_version": "4",
    "causal_graph_ref": "graphstore://shop",
    "causal_graph_version": "v17",
}

# In the order in which they are sent.
REQUESTS: dict[str, dict[str, Any]] = {
    "declare_session": {
        "ontology": _ONTOLOGY,
        "hypotheses": ["cpu-saturation", "db-lock-contention", "slow-dns"],
        "metadata": {"incident": "INC-1042"},
        "policy": {"stability_window": 1},
    },
    "enter_obligation": {"obligation_id": _GATE, "min_total_eliminations": 1},
    "eliminate": {
        "source_id": "adapter://sre",
        "observation_id": "cpu-normal-10:42",
        "eliminated": ["cpu-saturation"],
        "justification": {"query": "node_cpu_seconds_total", "p95": 0.31},
    },
    "request_exit": {"context": {"asked_by": "planner"}},
    "declare_conclusion": {"conclusion_id": "slow-dns", "context": {"confidence": "high"}},
    "request_termination": {"context": {"asked_by": "planner"}},
}


def _snapshot(seq: int, *, active: str | None = None) -> dict[str, Any]:
    """The belief right after an event of the incident."""
    hypotheses = REQUESTS["declare_session"]["hypotheses"]
    survivors = hypotheses if seq < _ELIMINATION else hypotheses[1:]
    return {
        "session_id": SESSION_ID,
        "ontology": _ONTOLOGY,
        "survivors": survivors,
        "n_survivors": len(survivors),
        "entropy_proxy": 1.584962500721156 if seq < _ELIMINATION else 1.0,
        "terminated": False,
        "active_obligation_id": active,
        "audit_head_event_id": EVENT_IDS[seq],
    }


def _recorded(seq: int, *, active: str | None = None) -> dict[str, Any]:
    return {"snapshot": _snapshot(seq, active=active), "audit_event_id": EVENT_IDS[seq]}


RESPONSES: dict[str, dict[str, Any]] = {
    "declare_session": {"session_id": SESSION_ID, "snapshot": _snapshot(0)},
    "enter_obligation": _recorded(1, active=_GATE),
    "eliminate": {
        "applied_eliminated": ["cpu-saturation"],
        "ignored_eliminated": [],
        **_recorded(2, active=_GATE),
    },
    "request_exit": {"approved": True, "reason": "approved", **_recorded(3)},
    "declare_conclusion": {"accepted": True, "reason": "accepted", **_recorded(4)},
    "request_termination": {"approved": False, "reason": "not_singleton", **_recorded(5)},
    "query_belief": _snapshot(5),
    "list_sessions": {
        "sessions": [
            {
                "session_id": SESSION_ID,
                "created_ts": STARTED,
                "universe_size": 3,
                "n_survivors": 2,
                "terminated": False,
                "head_seq": 5,
                "head_event_id": EVENT_IDS[5],
            }
        ],
        "next_cursor": None,
    },
    # With limit=1.
    "list_survivors": {
        "survivors": ["db-lock-contention"],
        "n_survivors": 2,
        "next_cursor": _NEXT_CURSOR,
        "audit_head_event_id": EVENT_IDS[5],
    },
    "list_obligations": {
        "obligations": [
            {"obligation_id": _GATE, "state": "exited", "min_total_eliminations": 1, "eliminations": 1},
        ]
    },
    # With since_event_id of the second event and limit=1.
    "audit_trace": {
        "events": [
            {
                "delta": {"eliminated": ["cpu-saturation"]},
                "event_id": EVENT_IDS[2],
                "outcome": None,
                "payload": {**REQUESTS["eliminate"], "probe": None},
                "prev_event_hash": "aaf0c6f20319d63e004d7c8ae546d12394e56c2afb9b4563c82c81ea9fc2ef07",
                "seq": 2,
                "stream_id": SESSION_ID,
                "survivors_after_hash": "d740d378e21de69c2cf425a4f5654050d92c32418a91943d6954a314af275cf8",
                "survivors_before_hash": "4c9b3e4739c79e16ba7f23411ec19545f4c847858d8bb7ebf163958d4b3f52db",
                "ts": "2026-03-01T10:41:02.500834Z",
                "v": 1,
                "verb": "ELIMINATE",
                "event_hash": "006f92608020e69b408c1ac871259d1d3b59565155571ff721cf447abf0e067b",
            }
        ]
    },
    # With truth=slow-dns.
    "session_analysis": {
        "session_id": SESSION_ID,
        "universe_size": 3,
        "n_survivors": 2,
        "events": 6,
        "refusals": 1,
        "eliminations": 1,
        "bits": _BITS,
        "bits_left": 1.0,
        "efficiency": _BITS,
        "redundancy": {
            "duplicate": 0,
            "recall_failure": 0,
            "cross_agent": 0,
            "no_effect": 0,
            "predictable": 0,
            "total": 0,
            "share": 0.0,
        },
        "resolution": {"resolved": False, "seq": None, "eliminations": None, "seconds": None},
        "truth": {
            "hypothesis_id": "slow-dns",
            "survived": True,
            "found": False,
            "killed_by_event_id": None,
            "killed_by_seq": None,
            "killed_by_source_id": None,
        },
        "certificate": {"size": 1, "event_ids": [EVENT_IDS[2]], "exact": True, "at_least": 1},
        "sources": [{"source_id": "adapter://sre", "eliminations": 1, "redundant": 0, "bits": _BITS}],
        "kit": None,
        "timeline": [
            {
                "seq": 2,
                "event_id": EVENT_IDS[2],
                "ts": "2026-03-01T10:41:02.500834Z",
                "source_id": "adapter://sre",
                "observation_id": "cpu-normal-10:42",
                "before": 3,
                "after": 2,
                "bits": _BITS,
                "redundancy": None,
                "choice": None,
            }
        ],
    },
    "healthz": {"status": "ok"},
    "readyz": {"status": "ok"},
}

AT_EXAMPLES: dict[str, Any] = {"seq": {"value": "2"}, "event": {"value": EVENT_IDS[2]}}
CURSOR_EXAMPLES: dict[str, Any] = {"survivors": {"value": _NEXT_CURSOR}}


def _told(error: BeliefServerError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "details": error.details or None}


_SERVER_ERRORS: tuple[BeliefServerError, ...] = (
    InvalidRequest("object missing required field `source_id`"),
    LimitExceeded("id_length", 1024, 1300),
    Unauthenticated(KeyRefused.REVOKED, "the key `7d1f0c52a9be3846` is revoked"),
    Forbidden("this key lacks the scope `belief:write`", {"reason": "missing_scope", "scope": "belief:write"}),
    InvalidHypothesisId(["slow-dsn"]),
    SessionNotFound("7d3c"),
    SessionTerminated(SESSION_ID),
    ObligationNotFound("rule-out-two"),
    EventNotFound("7"),
    SpaceNotFound("shop"),
    RecordNotFound("proposal", "p-17"),
    Conflict(f"obligation `{_GATE}` was entered before", {"obligation_id": _GATE}),
    StoreUnavailable("cannot append: database is locked"),
    LedgerCorrupt(SESSION_ID, 2, "its hash is not that of its bytes", EVENT_IDS[2]),
)
ERRORS: dict[str, dict[str, Any]] = {
    **{error.code: _told(error) for error in _SERVER_ERRORS},
    # The same code under another status.
    "HEAD_MISMATCH": _told(HeadMismatch(EVENT_IDS[1], EVENT_IDS[2])),
    TransportCode.METHOD_NOT_ALLOWED.value: {
        "code": TransportCode.METHOD_NOT_ALLOWED.value,
        "message": "`DELETE` is not allowed here",
        "details": {"allowed": ["GET", "HEAD"]},
    },
    TransportCode.UNSUPPORTED_MEDIA_TYPE.value: {
        "code": TransportCode.UNSUPPORTED_MEDIA_TYPE.value,
        "message": "send the body as `application/json`, not `text/plain`",
        "details": {"content_type": "text/plain"},
    },
    TransportCode.BUSY.value: {
        "code": TransportCode.BUSY.value,
        "message": "`analyses_waiting` allows at most 8, and as many wait",
        "details": {"limit": "analyses_waiting", "maximum": 8},
    },
    TransportCode.INTERNAL_ERROR.value: {
        "code": TransportCode.INTERNAL_ERROR.value,
        "message": "the server failed; nothing is known to have changed",
        "details": None,
    },
}
