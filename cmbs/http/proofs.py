"""Proofs over HTTP: `GET …/proofs/{kind}`, for sessions and for spaces. One table of kinds, one handler each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cmbs.audit.history import HistoryOfSession
from cmbs.audit.kernel.documents import Proof, write_proof
from cmbs.audit.proofs import AnchorSource, Prover
from cmbs.belief.kernel.views import seq_at
from cmbs.belief.server import BeliefServer
from cmbs.errors import EventNotFound
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.server import SubstrateServer

_MAX_SEQ_DIGITS = 16


def prove_session(
    server: BeliefServer, session_id: str, kind: str, query: Mapping[str, Any], anchor: AnchorSource | None = None
) -> bytes:
    """A proof about a session, from its cached state and its log."""
    session = server.current_session(session_id)
    seq = seq_at(session, _read_moment(query.get("at")))
    prover = Prover(server.log, lambda *_: HistoryOfSession(session), anchor, tree=lambda _: session.tree)
    prove: dict[str, Callable[[], Proof]] = {
        "inclusion": lambda: prover.inclusion(session_id, seq),
        "consistency": lambda: prover.consistency(session_id, query["old_size"]),
        "membership": lambda: prover.membership(session_id, query["hypothesis_id"], seq),
        "elimination": lambda: prover.elimination(session_id, query["hypothesis_id"], seq),
        "transition": lambda: prover.transition(session_id, seq, recorded=query.get("entry") == "true"),
        "refusal": lambda: prover.refusal(session_id, seq),
    }
    return write_proof(prove[kind]())


def prove_space(
    server: SubstrateServer,
    belief: BeliefServer,
    space_id: str,
    kind: str,
    query: Mapping[str, Any],
    anchor: AnchorSource | None = None,
) -> bytes:
    """A proof about a space, and the sessions that a decision rests on."""
    space = server.current(space_id)
    stream_id = STREAM_PREFIX + space_id
    at = _read_moment(query.get("at"))
    seq = at if isinstance(at, int) else space.head.seq if at is None else server.settled.find_seq(space, at)
    if seq is None:
        raise EventNotFound(str(at))
    prover = Prover(
        server.log,
        lambda session_id, _until: HistoryOfSession(belief.current_session(session_id)),
        anchor,
        session_log=belief.log,
        tree=lambda name: space.tree if name == stream_id else belief.current_session(name).tree,
    )
    prove: dict[str, Callable[[], Proof]] = {
        "inclusion": lambda: prover.inclusion(stream_id, seq),
        "consistency": lambda: prover.consistency(stream_id, query["old_size"]),
        "refusal": lambda: prover.refusal(stream_id, seq),
        "decision": lambda: prover.decision(space_id, seq),
    }
    return write_proof(prove[kind]())


def _read_moment(at: str | None) -> int | str | None:
    is_seq = at is not None and at.isascii() and at.isdigit() and len(at) <= _MAX_SEQ_DIGITS
    return int(at) if at is not None and is_seq else at
