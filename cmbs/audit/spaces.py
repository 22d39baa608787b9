"""Checking spaces: every message decided again, and belief readings held against the logs of their sessions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, overload

from cmbs.audit.plain_rows import all_streams
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import PAGE_BYTES, EntryLog
from cmbs.spi.stored_rows import EVENTS, Finding
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.kind import SpaceFolding, space_id_of
from cmbs.substrate.kernel.replay import belief_sessions_in, catch_up_whole, verify_belief_pins

_PAGE = 500


class WholeSpaceFolding(SpaceFolding):
    """Spaces, decided again with everything that ever was in them."""

    def catch_up(self, stream_id: str, state: Any, entries: Sequence[StoredEntry]) -> Any:
        """Every message is decided again, and what it carries of the past is compared with the past."""
        return catch_up_whole(space_id_of(stream_id), state, entries)


def all_spaces(log: AuditLog) -> Iterator[str]:
    """The id of every space of a store, by name."""
    return (name.removeprefix(STREAM_PREFIX) for name in all_streams(log, STREAM_PREFIX))


def check_belief_readings(log: EntryLog, stream_id: str, events: int) -> tuple[int, list[Finding]]:
    """How many readings a space has recorded in its verified events, and what is wrong with the first that is wrong."""
    entries = _PagedLog(log, stream_id, events)
    try:
        return verify_belief_pins(entries, _SessionLogs(log, belief_sessions_in(entries))), []
    except LedgerCorrupt as exc:
        return 0, [Finding(str(exc), EVENTS, stream_id, column="entry")]


def refuse_contradicted_readings(log: EntryLog, stream_id: str, among: Collection[str] | None = None) -> None:
    """LedgerCorrupt where a verified space has recorded of a session what that does not say.

    Sessions that are not in the log are left out: they may come later. With `among`, all but these are.
    """
    head = log.head(stream_id)
    entries = _PagedLog(log, stream_id, 0 if head is None else head.seq + 1)
    named = belief_sessions_in(entries)
    held = [each for each in named if (among is None or each in among) and log.head(each) is not None]
    if held:
        verify_belief_pins(entries, _SessionLogs(log, held), frozenset(held))


class _PagedLog(Sequence[StoredEntry]):
    """A stored log as a sequence, of which one page is in memory at a time."""

    def __init__(self, log: EntryLog, stream_id: str, events: int) -> None:
        self._log = log
        self._stream_id = stream_id
        self._length = events
        self._first = 0
        self._page: list[StoredEntry] = []

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> StoredEntry: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredEntry]: ...
    def __getitem__(self, index: int | slice) -> StoredEntry | Sequence[StoredEntry]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._length))]
        if not 0 <= index < self._length:
            raise IndexError(index)
        if not self._first <= index < self._first + len(self._page):
            self._first = index
            self._page = self._log.read(self._stream_id, index - 1, _PAGE, PAGE_BYTES)
        try:
            return self._page[index - self._first]
        except IndexError:
            raise LedgerCorrupt(self._stream_id, index, "it is not there, and the recorded head is beyond it") from None


class _SessionLogs(Mapping[str, Sequence[StoredEntry]]):
    """The logs of sessions, each read when it is asked for."""

    def __init__(self, log: EntryLog, session_ids: Sequence[str]) -> None:
        self._log = log
        self._session_ids = session_ids

    def __getitem__(self, session_id: str) -> Sequence[StoredEntry]:
        head = self._log.head(session_id)
        # A recorded head may be anything where a row was changed by hand.
        events = head.seq + 1 if head is not None and isinstance(head.seq, int) else 0
        return _PagedLog(self._log, session_id, events)

    def __iter__(self) -> Iterator[str]:
        return iter(self._session_ids)

    def __len__(self) -> int:
        return len(self._session_ids)
