"""Proofs over HTTP: `GET …/proofs/{kind}`, for sessions and for spaces. One table of kinds, one handler each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec

from cmbs.audit.history import HistoryOfSession
from cmbs.audit.kernel.documents import Format, Proof, write_proof
from cmbs.audit.proofs import AnchorSource, Prover
from cmbs.belief.kernel.views import seq_at
from cmbs.belief.server import BeliefServer
from cmbs.errors import ErrorCode, EventNotFound, InvalidRequest
from cmbs.http.exchange import whole_number
from cmbs.http.operation import Operation, Parameter
from cmbs.http.spaces.resources import describe_read
from cmbs.ledger import canonical
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.server import SubstrateServer

_MAX_SEQ_DIGITS = 16
_AT = Parameter("at", "A seq or an event id; without it, the newest event.", {"type": "string"}, "2")
_OLD_SIZE = Parameter(
    "old_size",
    "How many events there were.",
    {"type": "integer", "minimum": 1, "maximum": canonical.MAX_SAFE_INTEGER},
    1,
    required=True,
)
_HYPOTHESIS = Parameter("hypothesis_id", "The hypothesis.", {"type": "string"}, "slow-dns", required=True)
_ENTRY = Parameter(
    "entry",
    "With `true`, the entry and its place in the stream are part of the proof.",
    {"type": "string", "enum": ["true", "false"]},
    "true",
)
_LOG = (ErrorCode.STORE_UNAVAILABLE, ErrorCode.LEDGER_CORRUPT, ErrorCode.LIMIT_EXCEEDED, ErrorCode.EVENT_NOT_FOUND)
_OF_A_HYPOTHESIS = (ErrorCode.INVALID_HYPOTHESIS_ID, ErrorCode.CONFLICT)


class ProofDocument(msgspec.Struct, frozen=True):
    """A proof. Its other fields depend on its kind: the reference of proofs defines them."""

    format: Format
    kind: Literal["inclusion", "consistency", "membership", "elimination", "transition", "refusal", "decision"]


class ProofKind(NamedTuple):
    """What can be proven of a stream, and what a caller gives for it."""

    kind: str
    summary: str
    description: str
    query: tuple[Parameter, ...]
    errors: tuple[ErrorCode, ...] = ()

    def of_session(self) -> Operation:
        """The operation on a session."""
        return Operation(
            "GET",
            f"/v1/sessions/{{session_id}}/proofs/{self.kind}",
            f"prove_session_{self.kind}",
            self.summary,
            f"{self.description} The document can be checked without this server.",
            ProofDocument,
            query=self.query,
            errors=(*_LOG, ErrorCode.SESSION_NOT_FOUND, *self.errors),
            indivisible=True,
            beyond_stream=True,
        )

    def of_space(self) -> Operation:
        """The operation on a space."""
        described = describe_read(
            f"proofs/{self.kind}",
            f"prove_space_{self.kind}",
            self.summary,
            f"{self.description} The document can be checked without this server. For operators.",
            ProofDocument,
            self.query,
            (ErrorCode.EVENT_NOT_FOUND, *self.errors),
        )
        return replace(described, indivisible=True, beyond_stream=True)


_INCLUSION = ProofKind("inclusion", "Prove that an event is in the log", "As it was hashed, byte for byte.", (_AT,))
_CONSISTENCY = ProofKind(
    "consistency",
    "Prove that the log only grew",
    "It begins with every event that it had when it had `old_size` of them.",
    (_OLD_SIZE,),
)
_REFUSAL = ProofKind(
    "refusal", "Prove that a request was denied", "A conflict if it was not.", (_AT,), (ErrorCode.CONFLICT,)
)
SESSION_PROOFS = (
    _INCLUSION,
    _CONSISTENCY,
    ProofKind(
        "membership",
        "Prove that a hypothesis survived",
        "Right after an event. A conflict if it was eliminated, which names the event that did it.",
        (_HYPOTHESIS, _AT),
        _OF_A_HYPOTHESIS,
    ),
    ProofKind(
        "elimination",
        "Prove that a hypothesis was eliminated",
        "It was gone right after an event, and which event eliminated it. A conflict if it survived.",
        (_HYPOTHESIS, _AT),
        _OF_A_HYPOTHESIS,
    ),
    ProofKind(
        "transition",
        "Prove what an event changed",
        "It changed exactly this, from one survivor commitment to the next.",
        (_AT, _ENTRY),
    ),
    _REFUSAL,
)
SPACE_PROOFS = (
    _INCLUSION,
    _CONSISTENCY,
    _REFUSAL,
    ProofKind(
        "decision",
        "Prove that a proposal was allowed",
        "With the belief readings that the decision rests on, and the events of the sessions that they pin. A conflict"
        " if the event allows nothing.",
        (_AT,),
        (ErrorCode.CONFLICT,),
    ),
)


def prove_session(
    server: BeliefServer, session_id: str, kind: str, query: Mapping[str, str], anchor: AnchorSource | None = None
) -> bytes:
    """A proof about a session, from its cached state and its log."""
    _require_parameters(SESSION_PROOFS, kind, query)
    session = server.current_session(session_id)
    seq = seq_at(session, _read_moment(query.get("at")))
    prover = Prover(server.log, lambda *_: HistoryOfSession(session), anchor, tree=lambda _: session.tree)
    prove: dict[str, Callable[[], Proof]] = {
        "inclusion": lambda: prover.inclusion(session_id, seq),
        "consistency": lambda: prover.consistency(session_id, whole_number("old_size", query["old_size"])),
        "membership": lambda: prover.membership(session_id, query["hypothesis_id"], seq),
        "elimination": lambda: prover.elimination(session_id, query["hypothesis_id"], seq),
        "transition": lambda: prover.transition(session_id, seq, recorded=_read_flag("entry", query)),
        "refusal": lambda: prover.refusal(session_id, seq),
    }
    return write_proof(prove[kind]())


def prove_space(
    server: SubstrateServer,
    belief: BeliefServer,
    space_id: str,
    kind: str,
    query: Mapping[str, str],
    anchor: AnchorSource | None = None,
) -> bytes:
    """A proof about a space, and the sessions that a decision rests on."""
    _require_parameters(SPACE_PROOFS, kind, query)
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
        "consistency": lambda: prover.consistency(stream_id, whole_number("old_size", query["old_size"])),
        "refusal": lambda: prover.refusal(stream_id, seq),
        "decision": lambda: prover.decision(space_id, seq),
    }
    return write_proof(prove[kind]())


def _require_parameters(kinds: Iterable[ProofKind], kind: str, query: Mapping[str, str]) -> None:
    for parameter in next(each.query for each in kinds if each.kind == kind):
        if parameter.required and parameter.name not in query:
            raise InvalidRequest(
                f"`{parameter.name}` is missing", {"parameter": parameter.name, "accepted": parameter.schema}
            )


def _read_moment(at: str | None) -> int | str | None:
    is_seq = at is not None and at.isascii() and at.isdigit() and len(at) <= _MAX_SEQ_DIGITS
    return int(at) if at is not None and is_seq else at


def _read_flag(name: str, query: Mapping[str, str]) -> bool:
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise InvalidRequest(
            f"`{name}` must be `true` or `false`, got `{text[:64]}`",
            {"parameter": name, "found": text[:64], "accepted": ["true", "false"]},
        )
    return text == "true"
