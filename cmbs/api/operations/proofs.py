"""The operations that prove something of a stream: one table of what can be proven of sessions and of spaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from cmbs.api.answers import OpenDocument
from cmbs.api.operation import Operation, Parameter
from cmbs.api.operations.reads import describe_read
from cmbs.errors import ErrorCode
from cmbs.ledger import canonical

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


class ProofDocument(OpenDocument, frozen=True):
    """A proof. Its other fields depend on its kind: the reference of proofs defines them."""

    format: Literal["cmbs/1/proof"]
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
