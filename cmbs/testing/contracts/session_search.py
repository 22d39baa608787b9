"""The contract of a log that finds sessions, as tests. Needs `pytest`.

::

    class TestMySearch(SessionSearchContract):
        @pytest.fixture
        def open_log(self, tmp_path):
            return lambda: MyLog(tmp_path / "my.db")
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec import structs

from cmbs.belief.kernel.queries import build_session_query
from cmbs.belief.server import BeliefServer
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.spi import Append, AuditLog, SessionSummary, StaleHead
from cmbs.spi.session_search import ListedSession, SessionQuery, find_among, find_sessions
from cmbs.testing.fakes.environment import ManualClock, SequentialIds
from cmbs.testing.streams import CatchingStore

PAGE = 2
MANY = 100
_ONTOLOGY = OntologyBundle("space", "1", "graph://incidents", "17")
_AGENT = Actor(ActorKind.AGENT, "planner\x00", authenticated=True, key_id="k")
QUERIES: dict[str, dict[str, Any]] = {
    "all": {},
    "the newest": {"order": "newest"},
    "open": {"state": "open"},
    "concluded": {"state": "concluded", "order": "newest"},
    "terminated": {"state": "terminated"},
    "contradictions": {"state": "contradiction"},
    "a label": {"labels": ["team:payments"]},
    "two labels": {"labels": ["team:payments", "severity:2"], "order": "newest"},
    "no such label": {"labels": ["team:none:other"]},
    "an owner": {"owner": "ann"},
    "an owner of old": {"owner": "ben"},
    "a severity": {"severity": "high", "order": "newest"},
    "a label that was changed": {"labels": ["team:moved"]},
    "one of the agents": {"agent": "medic"},
    "text in a title that was changed": {"text": "RENAMED"},
    "a source": {"source": "logs\x00\U0001f600"},
    "an agent": {"agent": "planner\x00"},
    "a label and a source": {"labels": ["team:payments"], "source": "metrics", "order": "newest"},
    "a label and a state": {"labels": ["team:payments"], "state": "contradiction"},
    "text in a title": {"text": "SLOW ß"},
    "text of SQL": {"text": "%_'\\"},
    "no such text": {"text": "\x00"},
    "since": {"since": "2026-01-01T00:00:03Z"},
    "until": {"until": "2026-01-01T00:00:05Z", "order": "newest"},
    "between": {"since": "2026-01-01T00:00:02Z", "until": "2026-01-01T00:00:06Z", "state": "open"},
}


class _PlainLog:
    """Of a log, no more than what any log has."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        return self._log.sessions(after, limit)

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        return self._log.read(stream_id, after, limit, max_bytes)


def write_sessions(count: int, ids: int = 0, start: str = "2026-01-01T00:00:00Z") -> list[Append]:
    """What a server hands to its log of sessions that differ in all that they are found by."""
    store, clock = CatchingStore(), ManualClock(start, timedelta(seconds=1))
    server = BeliefServer(store=store, clock=clock, ids=SequentialIds(ids))
    for number in range(count):
        labels = {"team": "payments" if number % 2 else "search", "severity": str(number % 3)}
        command = server.declaration(
            _ONTOLOGY,
            ["a", "b", "c"],
            title=f"Slow ẞ checkout {number}" if number % 3 else None,
            owner="ann" if number % 2 else "ben",
            severity="low" if number % 2 else None,
            agents=["medic"] if number % 4 == 1 else None,
            labels=labels if number % 4 else None,
            actor=_AGENT if number % 2 else None,
        )
        asyncio.run(server.perform_async(command))
        session_id, source = command.session_id, "metrics" if number % 2 else "logs\x00\U0001f600"
        for step in range(number % 5):
            eliminated = ["a", "b", "c"] if number % 7 == 3 else ["abc"[step % 2]]  # noqa: PLR2004
            server.eliminate(session_id, source, f"{step}", eliminated)
        if number % 3 == 0:
            server.update_case(session_id, {"owner": "ann", "severity": "high", "labels": {"team": "moved"}})
        if number % 6 == 3:  # noqa: PLR2004
            server.update_case(session_id, {"title": "Renamed", "labels": labels, "agents": ["medic", "probes"]})
        if number % 3 == 1:
            server.enter_obligation(session_id, "gate", 9)
            server.declare_conclusion(session_id, "c")
        if number % 6 == 2:  # noqa: PLR2004
            server.declare_conclusion(session_id, "c")
            server.request_termination(session_id)
    server.close()
    return store.caught


class SessionSearchContract:
    """Subclass it as `Test…` and supply the fixture `open_log`: a function that opens an empty log."""

    @pytest.fixture
    def log(self, open_log: Callable[[], AuditLog]) -> Iterator[AuditLog]:
        """An empty log."""
        log = open_log()
        yield log
        log.close()

    def test_what_is_found_is_what_the_entries_say(self, log: AuditLog) -> None:
        """Whatever is asked for, in pages as in a whole, after several appends."""
        items, plain = write_sessions(12), cast("AuditLog", _PlainLog(log))
        for start in range(0, len(items), 9):
            log.append(items[start : start + 9])
        for name, asked in QUERIES.items():
            query = build_session_query(**asked)
            found = find_sessions(log, query, None, MANY)
            assert found == find_sessions(plain, query, None, MANY), name
            assert read_pages(log, query) == found, name
            ids = [each.summary.session_id for each in found]
            assert find_among(log, query, {*ids[::2], "unknown"}) == set(ids[::2]), name
            named = structs.replace(query, text="no such text", named=tuple(ids[:2]))
            assert find_sessions(log, named, None, MANY) == found[:2], name
            assert find_sessions(log, structs.replace(query, session_ids=()), None, MANY) == [], name

    def test_pages_stay_right_while_sessions_are_declared(self, log: AuditLog) -> None:
        """What was there at first comes once, and in order; what is new comes where it belongs."""
        log.append(write_sessions(5))
        for newest_first in (True, False):
            query = SessionQuery(newest_first=newest_first)
            before = find_sessions(log, query, None, MANY)
            seen = find_sessions(log, query, None, PAGE)
            later = write_sessions(3, ids=7 + newest_first, start=f"{2028 - newest_first}-01-01T00:00:00Z")
            log.append(later)
            seen += read_pages(log, query, seen[-1])
            added = [each for each in seen if each not in before]
            assert [each for each in seen if each in before] == before
            assert added == ([] if newest_first else seen[-len(added) :])
            assert len(added) == (0 if newest_first else 3)

    def test_what_was_not_written_is_not_found(self, log: AuditLog) -> None:
        """A group that fails leaves no trace in any list."""
        first, *rest = write_sessions(3)
        log.append([first])
        stale = structs.replace(rest[-1], prev_event_hash=bytes(range(32)))
        with pytest.raises(StaleHead):
            log.append([*rest[:-1], stale])
        assert [each.summary.session_id for each in find_sessions(log, SessionQuery(), None, MANY)] == [first.stream_id]


def read_pages(log: AuditLog, query: SessionQuery, last: ListedSession | None = None) -> list[ListedSession]:
    """All pages from beyond a session on."""
    found: list[ListedSession] = []
    while True:
        after = None if last is None else (last.summary.created_ts, last.summary.session_id)
        page = find_sessions(log, query, after, PAGE)
        found += page
        if len(page) < PAGE:
            return found
        last = page[-1]
