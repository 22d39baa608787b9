"""Streams that are to be taken over into a store: what they say of each other is checked before any of them is there.

Each stream verifies by itself, and so does a store of streams that contradict each other; but nothing that is appended
makes such a store good again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import UnsetType

from cmbs.audit.fsck import find_folding
from cmbs.audit.observations import check_observations
from cmbs.audit.origins import check_origin
from cmbs.audit.plain_rows import all_sessions, all_streams
from cmbs.belief.kernel.events import Declare, read_event
from cmbs.belief.kernel.replay import catch_up
from cmbs.belief.kernel.session import Session
from cmbs.errors import Conflict, InvalidRequest, LedgerCorrupt
from cmbs.ledger import Head, StoredEntry, check_head
from cmbs.spi import Append, AuditLog, is_reserved
from cmbs.spi.audit_log import KIT_PREFIX, NAMES_STREAM, SPACE_PREFIX, EntryLog
from cmbs.stores.sqlite import SQLiteStore
from cmbs.streams.reading import read_pages


class Staging:
    """Verified streams in a file of their own, in the order in which they came."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self.stream_ids: list[str] = []

    def add(self, stream_id: str, entries: Sequence[StoredEntry], head: Head) -> None:
        """Verify a stream by itself, and keep it. InvalidRequest where it was there before, or can be no stream."""
        folding = find_folding(stream_id)
        if folding is None or self._log.head(stream_id) is not None:
            raise InvalidRequest(f"`{stream_id}` comes a second time, or can be no stream", {"stream_id": stream_id})
        verified = folding.catch_up(stream_id, None, entries)
        if verified is None:
            raise LedgerCorrupt(stream_id, 0, "the log is empty")
        check_head(stream_id, verified.head, head)
        state, appends = None, list[Append]()
        for stored in entries:
            state, append = folding.fold(state, stored)
            appends.append(append)
        self._log.append(appends)
        self.stream_ids.append(stream_id)

    def read(self, stream_id: str) -> list[StoredEntry]:
        """The entries of a stream."""
        return self._log.read(stream_id)

    def check(self, target: AuditLog) -> None:
        """Whether the streams fit each other and those of the store that is to take them.

        Conflict where another log of a stream is there; LedgerCorrupt names a stream that contradicts another.
        """
        both = _Both(self._log, target)
        new = {each for each in self.stream_ids if self._adds(target, each)}
        for stream_id in self.stream_ids:
            if stream_id.startswith(SPACE_PREFIX):
                _refuse_contradicted_readings(both, stream_id, None)
            elif not is_reserved(stream_id):
                _check_session(both, target, stream_id)
        if new:
            self._check_what_is_there(both, target, frozenset(new))

    def _adds(self, target: AuditLog, stream_id: str) -> bool:
        """Whether the target has less of a stream; Conflict where it has another log of it."""
        ours, theirs = self._log.head(stream_id), target.head(stream_id)
        # Kits and names are merged: each entry of theirs that is not there is decided again.
        if ours is None or theirs is None or stream_id.startswith(KIT_PREFIX) or stream_id == NAMES_STREAM:
            return True
        last_of_both = min(ours.seq, theirs.seq)
        if self._log.hashes(stream_id, last_of_both - 1, 1) != target.hashes(stream_id, last_of_both - 1, 1):
            raise Conflict(f"another log of `{stream_id}` is here already", {"stream_id": stream_id})
        return ours.seq > theirs.seq

    def _check_what_is_there(self, both: _Both, target: AuditLog, new: frozenset[str]) -> None:
        """What the store has already, and what says something of a stream that comes."""
        for summary in all_sessions(target):
            session_id = summary.session_id
            declared = _read_declaration(target, session_id)
            if session_id in self.stream_ids or declared is None:
                continue
            is_over = None if declared.provider is None else KIT_PREFIX + declared.provider.id
            is_fork = not isinstance(declared.origin, UnsetType) and declared.origin.session_id in new
            if is_over in new or is_fork:
                _check_session(both, target, session_id)
        for stream_id in all_streams(target, SPACE_PREFIX):
            if stream_id not in self.stream_ids:
                _refuse_contradicted_readings(both, stream_id, new)


@contextmanager
def staging() -> Iterator[Staging]:
    """A place for streams, in the directory for temporary files, however many they are."""
    with (
        TemporaryDirectory(prefix="cmbs-import-") as directory,
        closing(SQLiteStore(Path(directory) / "staged.db")) as store,
        # In one transaction, which only this thread sees.
        store.exclusive(()),
    ):
        yield Staging(store)


def _refuse_contradicted_readings(log: EntryLog, space: str, among: frozenset[str] | None) -> None:
    # Here, because the bare install has no spaces.
    from cmbs.audit.spaces import refuse_contradicted_readings

    refuse_contradicted_readings(log, space, among)


class _Both:
    """Two logs read as one: of each stream the longer one."""

    def __init__(self, staged: EntryLog, target: EntryLog) -> None:
        self._staged = staged
        self._target = target

    def head(self, stream_id: str) -> Head | None:
        """Where the longer one ends."""
        return self._find(stream_id).head(stream_id)

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        """Entries of the longer one."""
        return self._find(stream_id).read(stream_id, after, limit, max_bytes)

    def _find(self, stream_id: str) -> EntryLog:
        ours, theirs = self._staged.head(stream_id), self._target.head(stream_id)
        return self._target if theirs is not None and (ours is None or ours.seq < theirs.seq) else self._staged


class _KitsOf:
    """A log whose kits are those of another one."""

    def __init__(self, log: EntryLog, kits: EntryLog) -> None:
        self._log = log
        self._kits = kits

    def head(self, stream_id: str) -> Head | None:
        """Where a stream ends."""
        return (self._kits if stream_id.startswith(KIT_PREFIX) else self._log).head(stream_id)

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        """Its entries."""
        return (self._kits if stream_id.startswith(KIT_PREFIX) else self._log).read(stream_id, after, limit, max_bytes)


def _check_session(both: _Both, target: AuditLog, session_id: str) -> None:
    """LedgerCorrupt where a session does not repeat its origin, or ruled out what its kit does not."""
    declared = _read_declaration(both, session_id)
    if declared is None:
        return
    if not isinstance(declared.origin, UnsetType):
        problem = check_origin(both, session_id, declared.origin).problem
        if problem is not None:
            raise LedgerCorrupt(session_id, 0, problem)
    provider = declared.provider
    if provider is None or isinstance(provider.content_hash, UnsetType):
        return
    session = _replay(both, session_id)
    # A kit may have other contents here than there, and a session is over one of them.
    for log in (both, _KitsOf(both, target)):
        for finding in check_observations(log, session):
            raise LedgerCorrupt(session_id, finding.seq or 0, finding.what)


def _read_declaration(log: EntryLog, session_id: str) -> Declare | None:
    for stored in log.read(session_id, -1, 1):
        message = read_event(stored).message
        return message if isinstance(message, Declare) else None
    return None


def _replay(log: EntryLog, session_id: str) -> Session:
    session: Session | None = None
    for page in read_pages(log, session_id):
        session = catch_up(session_id, session, page)
    if session is None:  # pragma: no cover - its declaration was read before
        raise LedgerCorrupt(session_id, 0, "the log is empty")
    return session
