"""Building proof documents from a log. Nothing is replayed: hashes, the entries in question, and what was eliminated.

All of it is held against the verified tree of its stream. Without one, the whole chain is followed first.

Every document is verified by `cmbs.audit.proof_check` before it is handed out. A false statement has no document:
Conflict says what is so instead.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from cmbs.audit.history import BeliefHistory, HistoryOfLog
from cmbs.audit.kernel.documents import (
    FORMAT,
    BlockAt,
    Consistency,
    Decision,
    Elimination,
    Flip,
    Included,
    Inclusion,
    Membership,
    Proof,
    ReadingEvidence,
    Recorded,
    Refusal,
    StreamHead,
    Transition,
    TreeHead,
    UniverseRoot,
)
from cmbs.audit.proof_check import verify_proof
from cmbs.belief.kernel.survivors import BLOCK_BITS, Survivors
from cmbs.errors import (
    Conflict,
    EventNotFound,
    InvalidHypothesisId,
    InvalidProof,
    InvalidRequest,
    LedgerCorrupt,
    SessionNotFound,
    SpaceNotFound,
)
from cmbs.ledger import Head
from cmbs.ledger.event_tree import EventTree
from cmbs.ledger.proofs import BlockTree, TreePaths
from cmbs.offline_verifier import Refused, is_permission, is_refusal, list_readings, look_up, read_entry
from cmbs.spi import AuditLog
from cmbs.streams.reading import read_block, read_chain
from cmbs.streams.reading import read_entry as read_verified_entry
from cmbs.substrate.kernel.events import STREAM_PREFIX

P = TypeVar("P", bound=Proof)

# A larger declaration is left out of proofs: at a million ids it is tens of megabytes.
MAX_DECLARATION_BYTES = 65_536


class Anchored(NamedTuple):
    """Size and root for which something vouches of a stream, and the evidence, as it stands in a document."""

    size: int
    root: bytes
    anchor: dict[str, Any]


# Given a stream, the size that a proof needs at least and the size of now: the evidence to put in, if there is any.
AnchorSource: TypeAlias = Callable[[str, int, int], Anchored | None]
# Given a stream: the tree of its verified state; SessionNotFound or SpaceNotFound where there is none.
TreeSource: TypeAlias = Callable[[str], EventTree]
# Given a session and the last event that matters: its past.
HistorySource: TypeAlias = Callable[[str, int], BeliefHistory]


class Prover:
    """Builds proofs about the streams of a log.

    `history` gives the past of a session, by default from its log; `anchor` what vouches for a stream, by default
    nothing. `tree` is what was verified of a stream, by default the chain that leads to the head of its log.
    `session_log` is the log of the sessions that a decision rests on, where that is another.
    """

    def __init__(
        self,
        log: AuditLog,
        history: HistorySource | None = None,
        anchor: AnchorSource | None = None,
        *,
        session_log: AuditLog | None = None,
        tree: TreeSource | None = None,
    ) -> None:
        self._log = log
        self._session_log = sessions = session_log or log
        self._history = history or (lambda name, until: HistoryOfLog(sessions, name, self._tree(name), until))
        self._anchor = anchor
        self._tree = tree or self._read_tree
        self._trees_read: dict[tuple[str, Head], EventTree] = {}

    def inclusion(self, stream_id: str, seq: int) -> Inclusion:
        """Event `seq` is in the stream."""
        stream = self._open(stream_id, seq + 1)
        return _check(stream_id, seq, Inclusion(FORMAT, stream.head, stream.include(seq)))

    def consistency(self, stream_id: str, old_size: int) -> Consistency:
        """The stream begins with the `old_size` entries that it had once."""
        if old_size < 1:
            raise InvalidRequest("`old_size` must be at least 1: there is nothing before the first event")
        stream = self._open(stream_id, old_size)
        path = _join(stream.tree.consistency_path(old_size, stream.head.size))
        old = TreeHead(old_size, *_head_of(stream.tree, old_size))
        document = Consistency(FORMAT, stream.head, old, path)
        return _check(stream_id, old_size - 1, document)

    def membership(self, session_id: str, hypothesis_id: str, seq: int) -> Membership:
        """The hypothesis survived after event `seq`; Conflict names the event that eliminated it."""
        stream = self._open(session_id, seq + 1)
        history = self._history(session_id, seq)
        position = _find_position(history, hypothesis_id)
        survivors = history.survivors_at(seq)
        if hypothesis_id not in survivors:
            raise self._refuse_eliminated(stream, history, hypothesis_id, seq)
        return _check(
            session_id,
            seq,
            Membership(
                FORMAT,
                stream.head,
                hypothesis_id,
                stream.include(seq),
                stream.universe(),
                position,
                _join(history.universe.path([position])),
                _block_at(survivors, position),
            ),
        )

    def elimination(self, session_id: str, hypothesis_id: str, seq: int) -> Elimination:
        """The hypothesis was gone after event `seq`, and which event eliminated it; Conflict where it survived."""
        stream = self._open(session_id, seq + 1)
        history = self._history(session_id, seq)
        position = _find_position(history, hypothesis_id)
        survivors = history.survivors_at(seq)
        cause = history.find_elimination(hypothesis_id)
        if hypothesis_id in survivors or cause is None:
            raise Conflict(
                f"`{hypothesis_id}` survived after event {seq}", {"hypothesis_id": hypothesis_id, "seq": seq}
            )
        return _check(
            session_id,
            seq,
            Elimination(
                FORMAT,
                stream.head,
                hypothesis_id,
                stream.include(seq),
                stream.universe(),
                _join(history.universe.path([position])),
                _block_at(survivors, position),
                stream.include(cause),
                _flip(history, stream.read(cause)),
            ),
        )

    def transition(self, session_id: str, seq: int, *, recorded: bool = False) -> Transition:
        """Event `seq` changed exactly what it says; with `recorded`, its entry and its place in the stream too."""
        stream, history = self._open(session_id, seq + 1), self._history(session_id, seq)
        entry = stream.read(seq)
        flip = _flip(history, entry)
        evidence = None
        if recorded:
            path = _join(history.universe.path(flip.cleared)) if flip.cleared else b""
            evidence = Recorded(stream.head, stream.include(seq), stream.universe(), path)
        hashes = ("prev_event_hash", "survivors_before_hash", "survivors_after_hash")
        previous, before, after = (bytes.fromhex(entry.get(name, "")) for name in hashes)
        return _check(session_id, seq, Transition(FORMAT, session_id, seq, previous, before, after, flip, evidence))

    def refusal(self, stream_id: str, seq: int) -> Refusal:
        """What event `seq` asked for was denied; Conflict where it was not."""
        stream = self._open(stream_id, seq + 1)
        entry = stream.read(seq)
        if not is_refusal(entry):
            raise _refuse(entry, "is no refusal")
        return _check(stream_id, seq, Refusal(FORMAT, stream.head, stream.include(seq)))

    def decision(self, space_id: str, seq: int) -> Decision:
        """What event `seq` of a space proposed was allowed, on which readings of which sessions; Conflict otherwise."""
        stream_id = STREAM_PREFIX + space_id
        stream = self._open(stream_id, seq + 1)
        entry = stream.read(seq)
        if not is_permission(entry):
            raise _refuse(entry, "allows nothing")
        try:
            readings = [self._prove_reading(stream_id, seq, reading) for reading in list_readings(entry)]
        except (Refused, KeyError, TypeError, ValueError) as exc:
            raise LedgerCorrupt(stream_id, seq, f"its belief readings are malformed: {exc}") from exc
        return _check(stream_id, seq, Decision(FORMAT, stream.head, stream.include(seq), readings))

    def _prove_reading(self, stream_id: str, seq: int, reading: Mapping[str, Any]) -> ReadingEvidence | None:
        if reading.get("found") is not True:
            return None
        session_id, head_seq = str(reading["session_id"]), int(reading["head_seq"])
        try:
            stream = self._open(session_id, head_seq + 1)
        except (SessionNotFound, EventNotFound) as exc:
            raise LedgerCorrupt(stream_id, seq, f"it rests on event {head_seq} of `{session_id}`: {exc}") from exc
        history = self._history(session_id, head_seq)
        survivors = history.survivors_at(head_seq)
        listed = reading.get("survivors") or []
        positions = [history.universe.position(each) for each in listed if each in history.universe]
        return ReadingEvidence(
            stream.head,
            stream.include(head_seq),
            stream.universe(),
            zlib.compress(survivors.bitmap(), 9),
            _join(history.universe.path(sorted(positions))) if positions else b"",
        )

    def _refuse_eliminated(self, stream: _Stream, history: BeliefHistory, hypothesis_id: str, seq: int) -> Conflict:
        cause = history.find_elimination(hypothesis_id)
        if cause is None:
            raise LedgerCorrupt(stream.head.id, seq, f"`{hypothesis_id}` is gone, and no event eliminated it")
        event_id = stream.read(cause)["event_id"]
        return Conflict(
            f"`{hypothesis_id}` did not survive event {seq}: event {cause} (`{event_id}`) eliminated it",
            {"hypothesis_id": hypothesis_id, "seq": seq, "eliminated_by": {"seq": cause, "event_id": event_id}},
        )

    def _open(self, stream_id: str, least: int) -> _Stream:
        """The stream as it is now, or as it was when something vouched for it; EventNotFound where it is too short."""
        events, log = self._tree(stream_id), self._log_of(stream_id)
        if not 1 <= least <= events.size:
            raise EventNotFound(str(least - 1))
        anchored = None if self._anchor is None else self._anchor(stream_id, least, events.size)
        if anchored is None:
            return _Stream(log, stream_id, events, events.size)
        if anchored.size > events.size:
            # The stream has grown since the tree was asked for. The root that is vouched for covers what is new.
            events = events.extend(log.hashes(stream_id, events.size - 1, anchored.size - events.size))
        if events.size < anchored.size:
            raise LedgerCorrupt(stream_id, events.size, f"it is not there, and {anchored.size} events were recorded")
        stream = _Stream(log, stream_id, events, anchored.size, anchored.anchor)
        if stream.tree.root_at(anchored.size) != anchored.root:
            reason = f"the root of the first {anchored.size} events is not the recorded `{anchored.root.hex()}`"
            raise LedgerCorrupt(stream_id, anchored.size - 1, reason)
        return stream

    def _read_tree(self, stream_id: str) -> EventTree:
        """The tree over the chain of a log, which is followed from the first entry to the head, once for each head."""
        log = self._log_of(stream_id)
        head = log.head(stream_id)
        if head is None:
            is_space = stream_id.startswith(STREAM_PREFIX)
            raise SpaceNotFound(stream_id.removeprefix(STREAM_PREFIX)) if is_space else SessionNotFound(stream_id)
        if (stream_id, head) not in self._trees_read:
            chain = read_chain(log, stream_id, head)
            self._trees_read[stream_id, head] = EventTree().extend(entry.event_hash for entry in chain)
        return self._trees_read[stream_id, head]

    def _log_of(self, stream_id: str) -> AuditLog:
        return self._log if stream_id.startswith(STREAM_PREFIX) else self._session_log


class _UniverseOutcome(msgspec.Struct, frozen=True):
    universe_root: str
    universe_size: int


class _Declaration(msgspec.Struct, frozen=True):
    outcome: _UniverseOutcome


_DECLARATION = msgspec.json.Decoder(_Declaration)


class _Stream:
    """A stream at one size: its tree, and the entries that a proof asks for."""

    def __init__(
        self, log: AuditLog, stream_id: str, events: EventTree, size: int, anchor: dict[str, Any] | None = None
    ) -> None:
        self._log = log
        self._id = stream_id
        self._events = events
        self._texts: dict[int, str] = {}
        self._size = size
        self.tree = BlockTree(events, lambda number: read_block(log, stream_id, events, number))
        self.head = StreamHead(stream_id, size, *_head_of(self.tree, size), anchor)

    def text(self, seq: int) -> str:
        """The bytes of an entry, whose hash is the one in the tree."""
        if seq not in self._texts:
            try:
                self._texts[seq] = read_verified_entry(self._log, self._id, self._events, seq).raw.decode()
            except UnicodeDecodeError as exc:
                raise LedgerCorrupt(self._id, seq, str(exc)) from exc
        return self._texts[seq]

    def read(self, seq: int) -> dict[str, Any]:
        """What an entry says."""
        try:
            return read_entry(self.text(seq), "entry")
        except Refused as refused:
            raise LedgerCorrupt(self._id, seq, f"not an entry: {refused.describe()}") from refused

    def include(self, seq: int) -> Included:
        """An entry and its path."""
        return Included(self.text(seq), _join(self.tree.inclusion_path(seq, self._size)))

    def universe(self) -> UniverseRoot:
        """The universe that the declaration commits to."""
        declaration = self.include(0)
        is_small = len(declaration.entry) <= MAX_DECLARATION_BYTES
        try:
            outcome = _DECLARATION.decode(declaration.entry).outcome
            root = bytes.fromhex(outcome.universe_root)
        except (msgspec.DecodeError, ValueError) as exc:
            raise LedgerCorrupt(self._id, 0, f"it commits to no universe: {exc}") from exc
        return UniverseRoot(outcome.universe_size, root, declaration if is_small else None)


def _check(stream_id: str, seq: int, document: P) -> P:
    try:
        verify_proof(document)
    except InvalidProof as exc:
        raise LedgerCorrupt(stream_id, seq, f"no proof can be made: {exc}") from exc
    return document


def _flip(history: BeliefHistory, entry: Mapping[str, Any]) -> Flip:
    """The bits that an entry says it cleared, and the blocks that held them before."""
    ids = look_up(entry, "delta", "eliminated") or []
    if not ids:
        return Flip(len(history.universe), [], b"", b"")
    try:
        cleared = sorted(history.universe.position(each) for each in ids)
    except KeyError as exc:
        reason = f"it eliminated {exc}, which is not in the universe"
        raise LedgerCorrupt(entry["stream_id"], entry["seq"], reason) from exc
    before = history.survivors_at(entry["seq"] - 1)
    numbers = sorted({position // BLOCK_BITS for position in cleared})
    return Flip(len(history.universe), cleared, before.blocks(numbers), _join(before.path(numbers)))


def _block_at(survivors: Survivors, position: int) -> BlockAt:
    number = position // BLOCK_BITS
    return BlockAt(survivors.blocks([number]), _join(survivors.path([number])))


def _find_position(history: BeliefHistory, hypothesis_id: str) -> int:
    if hypothesis_id not in history.universe:
        raise InvalidHypothesisId([hypothesis_id])
    return history.universe.position(hypothesis_id)


def _head_of(tree: TreePaths, size: int) -> tuple[bytes, bytes, bytes]:
    """Root, last hash and its path at a size, as a document has them."""
    return tree.root_at(size), tree.node(0, size - 1), _join(tree.inclusion_path(size - 1, size))


def _join(path: Iterable[bytes]) -> bytes:
    return b"".join(path)


def _refuse(entry: Mapping[str, Any], what: str) -> Conflict:
    details = {name: entry[name] for name in ("seq", "event_id", "verb")}
    return Conflict(f"event {entry['seq']} (`{entry['event_id']}`, {entry['verb']}) {what}", details)
