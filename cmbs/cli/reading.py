"""Logs of sessions to look at: from a store, or from a server that is running. Each is verified before it is read."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from cmbs.audit.plain_rows import all_sessions
from cmbs.belief.kernel.replay import verify_session
from cmbs.errors import InvalidRequest, SessionNotFound
from cmbs.identity.tokens import key_id_of
from cmbs.ledger import StoredEntry, from_audit_entry, to_audit_entry
from cmbs.messages import AuditEntry
from cmbs.spi import AuditLog

_PAGE_ITEMS = 1000
_TIMEOUT_SECONDS = 60


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
    """Logs from a belief server over HTTP."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InvalidRequest(f"`{url}` is not the address of a server; use `http://host:port`")
        self._base = url.rstrip("/")
        self._key = os.environ.get("CMBS_KEY", "").strip()
        if self._key and key_id_of(self._key) is None:
            raise InvalidRequest("`CMBS_KEY` is set, and not to a key")

    def session_ids(self) -> Iterator[str]:
        """Every session, the oldest first."""
        cursor: dict[str, str] | None = {}
        while cursor is not None:
            page = self._get("/v1/sessions", {"limit": str(_PAGE_ITEMS), **cursor})
            yield from (item["session_id"] for item in page["sessions"])
            cursor = None if page["next_cursor"] is None else {"cursor": page["next_cursor"]}

    def entries(self, session_id: str) -> Sequence[AuditEntry]:
        """The whole log of a session, page by page."""
        path = f"/v1/sessions/{quote(session_id, safe='')}/audit"
        events: list[dict[str, Any]] = []
        cursor: dict[str, str] | None = {}
        while cursor is not None:
            page = self._get(path, {"limit": str(_PAGE_ITEMS), **cursor}, session_id)
            events += page["events"]
            cursor = None if page["next_cursor"] is None else {"cursor": page["next_cursor"]}
        return _verify(session_id, [from_audit_entry(AuditEntry.from_dict(event)) for event in events])

    def _get(self, path: str, query: dict[str, str], session_id: str | None = None) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._base}{path}?{urlencode(query)}")  # noqa: S310 - the scheme was checked
        if self._key:
            # Not for a server that this one redirects to.
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
                answer: Any = msgspec.json.decode(response.read())
        except urllib.error.HTTPError as exc:
            if exc.code == HTTPStatus.NOT_FOUND and session_id is not None:
                raise SessionNotFound(session_id) from exc
            raise InvalidRequest(f"`{self._base}{path}` answered {exc.code}: {_read_message(exc)}") from exc
        except (OSError, msgspec.DecodeError) as exc:
            raise InvalidRequest(f"cannot read from `{self._base}`: {getattr(exc, 'reason', exc)}") from exc
        if not isinstance(answer, dict):
            raise InvalidRequest(f"`{self._base}` is not a belief server: its answer is not a JSON object")
        return answer


def _read_message(failure: urllib.error.HTTPError) -> str:
    """The message of an error of the protocol, or the reason of the HTTP status."""
    try:
        return str(msgspec.json.decode(failure.read())["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return failure.reason


def _verify(session_id: str, stored: Sequence[StoredEntry]) -> list[AuditEntry]:
    verify_session(session_id, stored)
    return [to_audit_entry(entry) for entry in stored]
