"""Logs of sessions to look at: from a store, or from a server that is running. Each is verified before it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from cmbs.audit.plain_rows import all_sessions
from cmbs.belief.kernel.replay import verify_session
from cmbs.client import Client
from cmbs.errors import SessionNotFound
from cmbs.ledger import StoredEntry, from_audit_entry, to_audit_entry
from cmbs.messages import AuditEntry
from cmbs.spi import AuditLog

_PAGE_ITEMS = 1000


class Logs(Protocol):
    """Where logs come from."""

    def session_ids(self) -> Iterator[str]:
        """Every session, the oldest first."""
        ...

    def entries(self, session_id: str) -> Sequence[AuditEntry]:
        """The whole log of a session; SessionNotFound, or LedgerCorrupt where it does not verify."""
        ...


class LogsOfStore:
    """Logs from a store."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def session_ids(self) -> Iterator[str]:
        """Every session, the oldest first."""
        return (summary.session_id for summary in all_sessions(self._log))

    def entries(self, session_id: str) -> Sequence[AuditEntry]:
        """The whole log of a session, compared with the head that the store has recorded."""
        head = self._log.head(session_id)
        if head is None:
            raise SessionNotFound(session_id)
        return _verify(session_id, self._log.read(session_id)[: head.seq + 1])


class LogsOfServer:
    """Logs from a server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def session_ids(self) -> Iterator[str]:
        """Every session, the oldest first."""
        return (item.session_id for item in self._client.each(self._client.list_sessions, limit=_PAGE_ITEMS))

    def entries(self, session_id: str) -> Sequence[AuditEntry]:
        """The whole log of a session, page by page."""
        stored: list[StoredEntry] = []
        cursor: str | None = None
        while True:
            # Plain JSON: the hash is over members that this client need not know.
            page = self._client.request("audit_trace", session_id=session_id, limit=_PAGE_ITEMS, cursor=cursor)
            stored += [from_audit_entry(AuditEntry.from_dict(event)) for event in page["events"]]
            cursor = page["next_cursor"]
            if cursor is None:
                return _verify(session_id, stored)


def _verify(session_id: str, stored: Sequence[StoredEntry]) -> list[AuditEntry]:
    verify_session(session_id, stored)
    return [to_audit_entry(entry) for entry in stored]
