"""What every step in a space shares: who may take it, what tells two requests apart, and how it is written down."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import Conflict
from cmbs.ledger import GENESIS, Head, canonical, seal
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    STREAM_PREFIX,
    VERB_OF,
    Approve,
    CreateSpace,
    OpenCase,
    PromoteMemory,
    Propose,
    PutMemory,
    RecordOutcome,
    SpaceEntry,
    SpaceEvent,
    SpaceMessage,
    SpaceVerb,
    Start,
    StepResult,
    Wake,
)

# Characters for which the order of bytes is not the one of RFC 8785.
_BEYOND_THE_PLANE = re.compile(rb"[\xf0-\xf4]")
# Levels that an entry adds around what a caller may nest.
_FRAMES = 8


class StepReason(StrEnum):
    """Why a step other than a proposal did not do what it asks for; those of memory are in `memory.MemoryReason`."""

    NOT_AUTHORISED = "NOT_AUTHORISED"
    # Recorded, and in force once another operator says the same.
    SECOND_OPERATOR_NEEDED = "SECOND_OPERATOR_NEEDED"
    SELF_APPROVAL = "SELF_APPROVAL"
    APPROVAL_EXPIRED = "APPROVAL_EXPIRED"
    CALL_CHANGED = "CALL_CHANGED"
    WRONG_NONCE = "WRONG_NONCE"
    RUNNER_CHANGED = "RUNNER_CHANGED"
    POLICY_MOVED = "POLICY_MOVED"
    FACTS_REFUSED = "FACTS_REFUSED"


def refuse(reason: StrEnum) -> StepResult:
    """A step that is recorded, and changes nothing."""
    return StepResult(granted=False, reason_code=reason.value)


def is_operator(actor: Actor) -> bool:
    """Whether the actor governs the space."""
    return actor.kind is ActorKind.OPERATOR


def require_engine(actor: Actor, verb: SpaceVerb) -> None:
    """Raise Conflict for a step that only the space itself takes. No transport offers these."""
    if actor.kind is not ActorKind.POLICY_ENGINE:
        raise Conflict(f"{verb} is a step of the policy engine", {"verb": verb.value})


def same_person(one: Actor, other: Actor) -> bool:
    """Whether two actors go by the same id, whatever kind each says that it is."""
    return one.id == other.id


def is_same_actor(one: Actor, other: Actor) -> bool:
    """Whether two actors are one: what one may do of its own, another of the same id and another kind may not."""
    return (one.kind, one.id) == (other.kind, other.id)


def fingerprint(message: SpaceMessage, actor: Actor) -> bytes:
    """What tells two requests apart: who asked for what, and nothing that the server added."""
    asked = "\x00".join((VERB_OF[type(message)], actor.kind, actor.id, "")).encode()
    return hash_tagged(Domain.REQUEST, asked + encode(without_additions(message)))


def without_additions(message: SpaceMessage) -> SpaceMessage:
    """The message as it was sent."""
    if isinstance(message, Propose) and message.snapshot_seq is not msgspec.UNSET:
        message = msgspec.structs.replace(message, snapshot_seq=msgspec.UNSET)
    if isinstance(message, (Propose, Wake, Approve)) and message.known_calls is not msgspec.UNSET:
        message = msgspec.structs.replace(message, known_calls=msgspec.UNSET)
    if isinstance(message, (Propose, Wake, Approve)) and message.queued is not msgspec.UNSET:
        message = msgspec.structs.replace(message, queued=msgspec.UNSET)
    if isinstance(message, (Propose, Wake, Approve, Start, RecordOutcome, OpenCase)):
        return msgspec.structs.replace(message, belief=[]) if message.belief else message
    if isinstance(message, (PutMemory, PromoteMemory)) and message.confirming_event_found:
        return msgspec.structs.replace(message, confirming_event_found=False)
    if isinstance(message, CreateSpace) and message.operators_needed is not msgspec.UNSET:
        return msgspec.structs.replace(message, operators_needed=msgspec.UNSET)
    return message


def encode(frame: msgspec.Struct) -> bytes:
    """The RFC 8785 bytes of one of our records. Unlike those of a session, these may have a caller's texts as keys."""
    raw = canonical.encode_frame(frame)
    # Asked first, because it is much quicker to tell of a long text.
    if raw.isascii() or _BEYOND_THE_PLANE.search(raw) is None:
        return raw
    return canonical.encode(msgspec.json.decode(raw), canonical.MAX_DEPTH + _FRAMES)


def record(
    space_id: str, previous: Head | None, message: SpaceMessage, result: StepResult, actor: Actor, stamp: Stamp
) -> SpaceEvent:
    """The event of a step that was decided."""
    seq, prev_event_hash = (0, GENESIS) if previous is None else (previous.seq + 1, previous.event_hash)
    body = SpaceEntry(
        actor,
        stamp.event_id,
        msgspec.Raw(encode(result)),
        msgspec.Raw(encode(message)),
        prev_event_hash.hex(),
        seq,
        STREAM_PREFIX + space_id,
        stamp.ts,
        VERB_OF[type(message)],
        stamp.idempotency_key,
    )
    return SpaceEvent(message, result, body, seal(body))
