"""What proofs need to know of the past of a session, from the session itself or from its log alone."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import Protocol

import msgspec

from cmbs.belief.kernel.events import Declare, read_event
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.survivors import Survivors, Universe
from cmbs.belief.kernel.views import survivors_at
from cmbs.errors import LedgerCorrupt
from cmbs.ledger.event_tree import EventTree
from cmbs.spi import AuditLog
from cmbs.streams.reading import read_entries


class BeliefHistory(Protocol):
    """The survivors of a session after each of its events."""

    @property
    def universe(self) -> Universe:
        """The ids of the session."""
        ...

    def survivors_at(self, seq: int) -> Survivors:
        """What survived right after an event that is there."""
        ...

    def find_elimination(self, hypothesis_id: str) -> int | None:
        """The event that eliminated an id; None where none did."""
        ...


class HistoryOfSession:
    """From a session as a server holds it: what was eliminated since is put back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.universe = session.universe

    def survivors_at(self, seq: int) -> Survivors:
        """The survivors of now, and all that was eliminated since."""
        return survivors_at(self._session, seq)

    def find_elimination(self, hypothesis_id: str) -> int | None:
        """Looked for in every observation."""
        found = (record.seq for _, record in self._session.observations if hypothesis_id in record.applied)
        return next(found, None)


class _Change(msgspec.Struct, frozen=True):
    delta: _Delta


class _Delta(msgspec.Struct, frozen=True):
    eliminated: list[str]


_CHANGE = msgspec.json.Decoder(_Change)


class HistoryOfLog:
    """From a log: the declaration, and what each entry says that it changed. Nothing is decided again.

    Every entry up to `until` is read once, and held against `tree`: LedgerCorrupt names the first that does not fit.
    Whether the changes are right is for the commitments in a proof to say.
    """

    def __init__(self, log: AuditLog, session_id: str, tree: EventTree, until: int) -> None:
        entries = enumerate(read_entries(log, session_id, tree, -1, until + 1))
        self._deltas: list[tuple[int, list[str]]] = []
        seq, declaration = next(entries)
        try:
            event = read_event(declaration)
            if not isinstance(event.message, Declare):
                raise ValueError(f"the first event declares the session, not {event.body.verb}")  # noqa: TRY004
            self.universe = Universe(event.message.hypotheses)
            for seq, entry in entries:
                self._deltas.append((seq, _CHANGE.decode(entry.raw).delta.eliminated))
        except (ValueError, msgspec.DecodeError) as exc:
            raise LedgerCorrupt(session_id, seq, str(exc)) from exc

    def survivors_at(self, seq: int) -> Survivors:
        """Everything, less what the entries up to this one eliminated."""
        gone = chain.from_iterable(ids for at, ids in self._deltas if at <= seq)
        return Survivors.all_of(self.universe).eliminate([each for each in gone if each in self.universe])

    def find_elimination(self, hypothesis_id: str) -> int | None:
        """Looked for in every change."""
        return self._seq_of.get(hypothesis_id)

    @cached_property
    def _seq_of(self) -> dict[str, int]:
        return {hypothesis_id: seq for seq, ids in self._deltas for hypothesis_id in ids}
