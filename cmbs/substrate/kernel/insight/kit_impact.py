"""What another version of a kit would have made of the past: eliminations, and the decisions that rested on them.

Every answer of the world stays as it was recorded. What it rules out is asked of the other kit, and the rest of the
session is decided again on that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.belief.kernel.attributes import read_attributes
from cmbs.belief.kernel.events import Declare, Eliminate, Event, Message
from cmbs.belief.kernel.otherwise import replay_otherwise
from cmbs.belief.kernel.provider_mask import find_eliminated
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.session import Session
from cmbs.errors import BeliefServerError
from cmbs.kit.model import Kit
from cmbs.kit.provider import KitProvider
from cmbs.ledger import StoredEntry, canonical
from cmbs.messages import ProviderRef
from cmbs.substrate.belief_source import reading_of
from cmbs.substrate.kernel.insight.impact import Impact
from cmbs.substrate.kernel.model import BeliefReading


class EliminationChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """An elimination that would have been another: what it no longer rules out, and what it would beside the rest.

    `refused` is why the other kit cannot read the answer at all; then nothing would have been eliminated by it.
    """

    seq: int
    event_id: str
    ts: str
    source_id: str
    probe_id: str
    no_longer: list[str] = []
    also: list[str] = []
    refused: str | None = None


class SessionImpact(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is otherwise in one session. `eliminations` is how many came from probes of the kit."""

    session_id: str
    eliminations: int
    changes: list[EliminationChange]
    n_survivors: int
    n_survivors_otherwise: int
    # Hypotheses that only the other kit has, and those that it no longer has.
    hypotheses_added: list[str] = []
    hypotheses_removed: list[str] = []
    # Eliminations that the kit which is said to be the old one does not explain.
    unexplained: list[int] = []

    @property
    def is_other(self) -> bool:
        """Whether anything is."""
        return bool(self.changes or self.hypotheses_added or self.hypotheses_removed)


class KitImpact(msgspec.Struct, frozen=True):
    """What a kit would have changed: `sessions` are those of its old version that would have been others."""

    kit_id: str
    old_version: str
    new_version: str
    sessions_looked_at: int
    sessions: list[SessionImpact]
    # One for each space that was looked at.
    spaces: list[Impact]
    unexplained: dict[str, list[int]] = {}
    # Sessions over another content of the same id and version, which were not looked at.
    sessions_of_other_content: int = 0

    @property
    def is_other(self) -> bool:
        """Whether anything would have been."""
        return bool(self.sessions) or any(each.flips for each in self.spaces)

    @property
    def is_known(self) -> bool:
        """Whether everything is known."""
        passed_over = not self.sessions_looked_at and self.sessions_of_other_content
        return not self.unexplained and not passed_over and not any(each.unknown for each in self.spaces)


class KitOrigin(Enum):
    """What a session was declared from, beside a kit: that content of it, another with its version, or neither."""

    THIS = auto()
    OTHER_CONTENT = auto()
    ELSEWHERE = auto()


def compare_origin(declared: Event, kit: Kit, content_hash: str) -> KitOrigin:
    """Whether a session was declared from a kit: by the hash of its content where it was on record, else by version."""
    message = declared.message
    reference = message.provider if isinstance(message, Declare) else UNSET
    if not isinstance(reference, ProviderRef) or reference.id != kit.kit_id:
        return KitOrigin.ELSEWHERE
    if reference.content_hash == content_hash:
        return KitOrigin.THIS
    if reference.version != kit.version:
        return KitOrigin.ELSEWHERE
    return KitOrigin.THIS if isinstance(reference.content_hash, UnsetType) else KitOrigin.OTHER_CONTENT


class SessionUnderKit:
    """A session, and as it would have been under another version of its kit. LedgerCorrupt where its log is bad."""

    def __init__(self, session_id: str, entries: Sequence[StoredEntry], old: Kit, new: Kit) -> None:
        self._old, self._new = KitProvider(old), KitProvider(new)
        self._changes: list[EliminationChange] = []
        self._unexplained: list[int] = []
        self._eliminations = 0
        self._declared: frozenset[str] = frozenset()
        self._universe: frozenset[str] = frozenset()
        session = verify_session(session_id, entries)
        self._entries = entries
        self._after: list[Session] = [otherwise for _, otherwise in replay_otherwise(session_id, entries, self._change)]
        self.impact = SessionImpact(
            session_id,
            self._eliminations,
            self._changes,
            len(session.survivors),
            len(self._after[-1].survivors),
            sorted(self._universe - self._declared),
            sorted(self._declared - self._universe),
            self._unexplained,
        )

    def reread(self, reading: BeliefReading) -> BeliefReading | None:
        """What a reading would have been; None where the old kit does not explain what it rests on."""
        if not reading.found:
            return reading
        if any(seq <= reading.head_seq for seq in self._unexplained):
            return None
        then = self._after[reading.head_seq]
        without = None if isinstance(reading.independent, msgspec.UnsetType) else reading.independent.actor_id
        other = reading_of(then, then.head.seq, then.head.event_hash, without)
        # The place in the log stays that of the recorded entry.
        return msgspec.structs.replace(
            other,
            head_seq=reading.head_seq,
            head_event_id=reading.head_event_id,
            head_event_hash=reading.head_event_hash,
        )

    def _change(self, recorded: Event) -> Message | None:
        message = recorded.message
        if isinstance(message, Declare):
            self._declared = frozenset(message.hypotheses)
            old, new = self._old.hypothesis_ids(), self._new.hypothesis_ids()
            # Of a part of the kit, what is left of that part.
            self._universe = new if self._declared == old else self._declared - (old - new)
            attributes = self._attributes(message)
            return msgspec.structs.replace(message, hypotheses=sorted(self._universe), hypothesis_attributes=attributes)
        if not isinstance(message, Eliminate):
            return message
        gone = frozenset(message.eliminated)
        if message.probe is not None:
            found = self._ask_again(recorded, message)
            if found is None:
                return None
            gone = found
        return msgspec.structs.replace(message, eliminated=sorted(gone & self._universe))

    def _attributes(self, message: Declare) -> msgspec.Raw | msgspec.UnsetType:
        """What would have been declared of hypotheses: what the new kit says, where it was the old kit that said it."""
        declared: Mapping[str, Any] = read_attributes(message.hypothesis_attributes)
        declared = {name: msgspec.json.decode(text) for name, text in declared.items()}
        if declared == self._old.hypothesis_attributes():
            declared = self._new.hypothesis_attributes()
        kept = {name: declared[name] for name in sorted(self._universe.intersection(declared))}
        return msgspec.Raw(canonical.encode(kept)) if kept else msgspec.UNSET

    def _ask_again(self, recorded: Event, message: Eliminate) -> frozenset[str] | None:
        """What the recorded answer rules out under the new kit; None where that cannot read it."""
        if message.probe is None:  # pragma: no cover - only what came from a probe is asked again
            raise TypeError(message)
        self._eliminations += 1
        before = frozenset(message.eliminated)
        probe_id, response = message.probe.probe_id, msgspec.json.decode(message.probe.response)
        if _find(self._old, probe_id, response) != before:
            self._unexplained.append(recorded.body.seq)
            return before
        after = _find(self._new, probe_id, response)
        refused, gone = (after, frozenset()) if isinstance(after, str) else (None, after)
        if refused is not None or gone != before:
            body = recorded.body
            self._changes.append(
                EliminationChange(
                    body.seq,
                    body.event_id,
                    body.ts,
                    message.source_id,
                    probe_id,
                    sorted(before - gone),
                    sorted(gone - before),
                    refused,
                )
            )
        return None if refused is not None else gone


def _find(kit: KitProvider, probe_id: str, response: Any) -> frozenset[str] | str:
    """What an answer rules out, or why it cannot be read."""
    try:
        return find_eliminated(kit, probe_id, response)
    except BeliefServerError as exc:
        return exc.message
