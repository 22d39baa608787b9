"""What a space may keep in memory, and as what: SS-01 §4.1 as rules that decide and change nothing.

Each rule gives the entry as it is from now on, or the reason why the step is refused; evolving asks the same
rule again to carry it out. A confirmed claim is one that an event confirms, or that rests on sources with enough
confidence while nothing contradicts it. `MemoryEntry.confirmed` is that and nothing else, at every moment: where a
dispute or a stricter policy ends it, the claim is from then on a hypothesis that is due for review.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
from immutables import Map

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.instants import later, parse_instant
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import ConflictState, DisputeMemory, Evidence, MemoryKind, PromoteMemory, PutMemory
from cmbs.substrate.kernel.state import EvidenceKind, MemoryEntry, SeenEvidence

MAX_SOURCES = 1_000
MAX_CONFIDENCE_MILLI = 1_000
_SEVERITY = list(ConflictState)
# What a claim may be while nothing confirms it.
UNCONFIRMED_KINDS = frozenset({MemoryKind.HYPOTHESIS, MemoryKind.DERIVED})


class MemoryReason(StrEnum):
    """Why a step on memory is refused. Where several hold, the first in this order is given."""

    MEMORY_EXISTS = "MEMORY_EXISTS"
    MEMORY_UNKNOWN = "MEMORY_UNKNOWN"
    MEMORY_EXPIRED = "MEMORY_EXPIRED"
    DISPUTE_OF_ANOTHER = "DISPUTE_OF_ANOTHER"
    NOT_DUE = "NOT_DUE"
    NOT_A_PROMOTION = "NOT_A_PROMOTION"
    CONFIRMING_EVENT_UNKNOWN = "CONFIRMING_EVENT_UNKNOWN"
    NO_NEW_EVIDENCE = "NO_NEW_EVIDENCE"
    CLAIM_UNCONFIRMED = "CLAIM_UNCONFIRMED"
    REVIEW_REQUIRED = "REVIEW_REQUIRED"


# --- the rules --------------------------------------------------------------------------------------------------------


def is_confirmed(evidence: Evidence, conflict_state: ConflictState, threshold_milli: int | None) -> bool:
    """SS-01 §4.1, word for word. Without a threshold in the policy no confidence is enough, and only events confirm."""
    if evidence.confirmed_by_event_id is not None:
        return True
    return (
        bool(evidence.source_chunk_ids)
        and threshold_milli is not None
        and evidence.confidence_milli >= threshold_milli
        and conflict_state is not ConflictState.CONTRADICTORY
    )


def put(
    entries: Map[str, MemoryEntry],
    claims: Map[bytes, frozenset[str]],
    message: PutMemory,
    author: Actor,
    seq: int,
    ts: str,
    threshold_milli: int | None,
) -> MemoryEntry | MemoryReason:
    """A new claim.

    One that nothing confirms is a hypothesis or derived, with an end or a review. One that is put as more than that,
    and was a hypothesis or derived under another id, needs evidence that was not there, as a promotion does.
    """
    if message.entry_id in entries:
        return MemoryReason.MEMORY_EXISTS
    if _names_unknown_event(message.evidence, found=message.confirming_event_found):
        return MemoryReason.CONFIRMING_EVENT_UNKNOWN
    claim = bytes(message.claim)
    evidence = evidence_of(message.evidence)
    confirmed = is_confirmed(message.evidence, message.conflict_state, threshold_milli)
    if message.kind not in UNCONFIRMED_KINDS:
        guesses = [entries[entry_id] for entry_id in claims.get(claim, ())]
        seen = [entry.seen_evidence for entry in guesses if entry.kind in UNCONFIRMED_KINDS]
        if seen and not evidence.difference(*seen):
            return MemoryReason.NO_NEW_EVIDENCE
        if not confirmed:
            return MemoryReason.CLAIM_UNCONFIRMED
    if not confirmed and message.ttl_ms is None and message.review_at is None:
        return MemoryReason.REVIEW_REQUIRED
    return MemoryEntry(
        entry_id=message.entry_id,
        kind=message.kind,
        claim=claim,
        author=author,
        evidence=message.evidence,
        conflict_state=message.conflict_state,
        confirmed=confirmed,
        seq=seq,
        ts=ts,
        changed_seq=seq,
        expires_at=None if message.ttl_ms is None else later(ts, message.ttl_ms),
        review_at=message.review_at,
        seen_evidence=evidence,
        disputes=_standing({author.id: message.conflict_state}),
    )


def promote(
    entries: Map[str, MemoryEntry], message: PromoteMemory, seq: int, ts: str, threshold_milli: int | None
) -> MemoryEntry | MemoryReason:
    """A hypothesis or derived claim becomes a fact, a preference or a decision: on evidence that was not there before.

    What is then known confirms it or not: sources add up, the confidence is that of the promotion. A promoted claim has
    no end and no review any more.
    """
    entry = _live(entries, message.entry_id, ts)
    if isinstance(entry, MemoryReason):
        return entry
    if entry.kind not in UNCONFIRMED_KINDS or message.kind in UNCONFIRMED_KINDS:
        return MemoryReason.NOT_A_PROMOTION
    if _names_unknown_event(message.evidence, found=message.confirming_event_found):
        return MemoryReason.CONFIRMING_EVENT_UNKNOWN
    brought = evidence_of(message.evidence)
    if brought <= entry.seen_evidence:
        return MemoryReason.NO_NEW_EVIDENCE
    evidence = _together(entry.evidence, message.evidence)
    if not is_confirmed(evidence, entry.conflict_state, threshold_milli):
        return MemoryReason.CLAIM_UNCONFIRMED
    return msgspec.structs.replace(
        entry,
        kind=message.kind,
        evidence=evidence,
        confirmed=True,
        changed_seq=seq,
        expires_at=None,
        review_at=None,
        seen_evidence=entry.seen_evidence | brought,
    )


def dispute(
    entries: Map[str, MemoryEntry],
    message: DisputeMemory,
    actor: Actor,
    seq: int,
    ts: str,
    threshold_milli: int | None,
) -> MemoryEntry | MemoryReason:
    """Other claims speak against it, or no longer do. A claim that this leaves unconfirmed is a hypothesis from now on.

    When they no longer do, it is confirmed again as far as §4.1 says so, and still a hypothesis: the way back to a fact
    is a promotion. Each actor takes back its own dispute alone, and an operator those of all.
    """
    entry = _live(entries, message.entry_id, ts)
    if isinstance(entry, MemoryReason):
        return entry
    said = message.conflict_state
    kept = entry.disputes
    if actor.kind is ActorKind.OPERATOR:
        kept = {who: min(state, said, key=_SEVERITY.index) for who, state in kept.items()}
    elif said is ConflictState.NONE and kept and actor.id not in kept:
        return MemoryReason.DISPUTE_OF_ANOTHER
    disputes = _standing(kept | {actor.id: said})
    worst = max(disputes.values(), key=_SEVERITY.index, default=ConflictState.NONE)
    disputed = msgspec.structs.replace(entry, conflict_state=worst, changed_seq=seq, disputes=disputes)
    return _judge(disputed, ts, threshold_milli)


def _standing(disputes: dict[str, ConflictState]) -> dict[str, ConflictState]:
    """Those that say something, by who says it."""
    return {who: state for who, state in sorted(disputes.items()) if state is not ConflictState.NONE}


def expire(entries: Map[str, MemoryEntry], entry_id: str, seq: int, ts: str) -> MemoryEntry | MemoryReason:
    """The time of an entry is over. It stays readable, marked, and what it was based on stays known."""
    entry = entries.get(entry_id)
    if entry is None:
        return MemoryReason.MEMORY_UNKNOWN
    if entry.expired:
        return MemoryReason.MEMORY_EXPIRED
    if entry.expires_at is None or ts < entry.expires_at:
        return MemoryReason.NOT_DUE
    return msgspec.structs.replace(entry, expired=True, changed_seq=seq)


def judge_again(
    entries: Iterable[MemoryEntry], seq: int, ts: str, threshold_milli: int | None
) -> Iterator[MemoryEntry]:
    """The entries that a new threshold confirms, or no longer does, as they are under it."""
    for entry in entries:
        if not entry.expired and is_confirmed(entry.evidence, entry.conflict_state, threshold_milli) != entry.confirmed:
            yield _judge(msgspec.structs.replace(entry, changed_seq=seq), ts, threshold_milli)


def keep(
    entries: Map[str, MemoryEntry], claims: Map[bytes, frozenset[str]], entry: MemoryEntry
) -> tuple[Map[str, MemoryEntry], Map[bytes, frozenset[str]]]:
    """The memory of a space with this entry, new or changed, in it."""
    known = claims.get(entry.claim, frozenset())
    if entry.entry_id not in known:
        claims = claims.set(entry.claim, known | {entry.entry_id})
    return entries.set(entry.entry_id, entry), claims


def evidence_of(evidence: Evidence) -> frozenset[SeenEvidence]:
    """The single things that a claim rests on."""
    seen = {SeenEvidence(EvidenceKind.CHUNK, chunk_id) for chunk_id in evidence.source_chunk_ids}
    if evidence.confirmed_by_event_id is not None:
        session_id = evidence.confirmed_in_session_id or ""
        seen.add(SeenEvidence(EvidenceKind.EVENT, evidence.confirmed_by_event_id, session_id))
    return frozenset(seen)


def _names_unknown_event(evidence: Evidence, *, found: bool) -> bool:
    return evidence.confirmed_by_event_id is not None and not found


def _live(entries: Map[str, MemoryEntry], entry_id: str, ts: str) -> MemoryEntry | MemoryReason:
    entry = entries.get(entry_id)
    if entry is None:
        return MemoryReason.MEMORY_UNKNOWN
    # Its time is over when it is over, whether or not that was recorded.
    if entry.expired or (entry.expires_at is not None and ts >= entry.expires_at):
        return MemoryReason.MEMORY_EXPIRED
    return entry


def _together(before: Evidence, brought: Evidence) -> Evidence:
    event = brought if brought.confirmed_by_event_id is not None else before
    return Evidence(
        source_chunk_ids=sorted({*before.source_chunk_ids, *brought.source_chunk_ids}),
        confidence_milli=brought.confidence_milli,
        confirmed_by_event_id=event.confirmed_by_event_id,
        confirmed_in_session_id=event.confirmed_in_session_id,
    )


def _judge(entry: MemoryEntry, ts: str, threshold_milli: int | None) -> MemoryEntry:
    """The entry with what §4.1 says of it now; where that is nothing good, no more than it may be."""
    if is_confirmed(entry.evidence, entry.conflict_state, threshold_milli):
        return msgspec.structs.replace(entry, confirmed=True)
    return msgspec.structs.replace(
        entry,
        confirmed=False,
        kind=entry.kind if entry.kind in UNCONFIRMED_KINDS else MemoryKind.HYPOTHESIS,
        review_at=ts if entry.review_at is None and entry.expires_at is None else entry.review_at,
    )


# --- what may enter ---------------------------------------------------------------------------------------------------


def validate_put(message: PutMemory) -> PutMemory:
    """The message with single, sorted sources and a review date in the ledger's form."""
    if message.ttl_ms is not None and not 1 <= message.ttl_ms <= MAX_SAFE_INTEGER:
        raise InvalidRequest(f"`ttl_ms` must be at least 1, got `{message.ttl_ms}`", {"field": "ttl_ms"})
    return msgspec.structs.replace(
        message,
        evidence=_validate_evidence(message.evidence),
        review_at=None if message.review_at is None else parse_instant(message.review_at, "review_at"),
    )


def validate_promotion(message: PromoteMemory) -> PromoteMemory:
    """The message with single, sorted sources."""
    return msgspec.structs.replace(message, evidence=_validate_evidence(message.evidence))


def _validate_evidence(evidence: Evidence) -> Evidence:
    if not 0 <= evidence.confidence_milli <= MAX_CONFIDENCE_MILLI:
        raise InvalidRequest(
            f"`confidence_milli` must be from 0 to {MAX_CONFIDENCE_MILLI}, got `{evidence.confidence_milli}`",
            {"field": "evidence.confidence_milli"},
        )
    if len(evidence.source_chunk_ids) > MAX_SOURCES:
        raise LimitExceeded(
            "sources_per_claim", MAX_SOURCES, len(evidence.source_chunk_ids), "evidence.source_chunk_ids"
        )
    if "" in evidence.source_chunk_ids:
        raise InvalidRequest("an id in `source_chunk_ids` is empty", {"field": "evidence.source_chunk_ids"})
    if evidence.confirmed_by_event_id == "":
        raise InvalidRequest("`confirmed_by_event_id` is empty", {"field": "evidence.confirmed_by_event_id"})
    if evidence.confirmed_in_session_id is not None and evidence.confirmed_by_event_id is None:
        raise InvalidRequest(
            "`confirmed_in_session_id` says where an event is, and there is no `confirmed_by_event_id`",
            {"field": "evidence.confirmed_in_session_id"},
        )
    return msgspec.structs.replace(evidence, source_chunk_ids=sorted(set(evidence.source_chunk_ids)))
