"""Servers over any store, on a clock and ids that tests own: two runs can be compared byte by byte."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.views import snapshot
from cmbs.belief.server import BeliefServer
from cmbs.messages import AuditEntry, BeliefSnapshot, OntologyBundle
from cmbs.stores import InMemoryStore, Store, open_store
from cmbs.testing import ManualClock, SequentialIds
from tests.support.postgres import fresh_database

ONTOLOGY = OntologyBundle("space", "1", "graph://incidents", "17")
# The embedded ones, that cost nothing to make; and all of them.
PLACES = ("memory", "sqlite")
BACKENDS = (*PLACES, "postgres")
NO_SUCH_SESSION = "00000000-0000-4000-8000-ffffffffffff"


class StoreFixture:
    """Where sessions live. Servers come and go; what they acknowledged stays."""

    def __init__(self, place: str, directory: Path) -> None:
        self.place = place
        self.path = directory / "cmbs.db"
        self.clock = ManualClock()
        self.ids = SequentialIds()
        self._memory = InMemoryStore()
        self._opened: list[Store | BeliefServer] = []
        self._database = ExitStack()
        self.url = self._database.enter_context(fresh_database()) if place == "postgres" else f"sqlite:///{self.path}"

    @classmethod
    @contextmanager
    def at(cls, place: str, directory: Path) -> Iterator[StoreFixture]:
        """A store that closes what was opened in it."""
        fixture = cls(place, directory)
        try:
            yield fixture
        finally:
            fixture.close()

    def store(self) -> Store:
        """The store: the same object in memory, elsewhere a new one on the same file or database."""
        store: Store = self._memory if self.place == "memory" else open_store(self.url)
        self._opened.append(store)
        return store

    def open(self, **options: Any) -> BeliefServer:
        """A server that knows nothing yet of what is stored; the ones opened before go on."""
        options.setdefault("store", None if "audit_log" in options else self.store())
        server = BeliefServer(clock=self.clock, ids=self.ids, **options)
        self._opened.append(server)
        return server

    def close(self) -> None:
        """Close whatever was opened, as often as the test did already."""
        while self._opened:
            self._opened.pop().close()
        self._database.close()


def declared(server: BeliefServer, hypotheses: str | list[str] = "abcd", **options: Any) -> str:
    """A new session; its id."""
    return server.declare_session(ONTOLOGY, list(hypotheses), **options).session_id


def verbs(server: BeliefServer, session_id: str) -> list[str]:
    """What the log of a session says happened, in order."""
    return [entry.verb for entry in server.audit_trace(session_id)]


def last_entry(server: BeliefServer, session_id: str) -> AuditEntry:
    """The newest entry of a session."""
    return server.audit_trace(session_id)[-1]


def verified(server: BeliefServer, session_id: str) -> BeliefSnapshot:
    """What the stored bytes of a session prove, recorded head included."""
    log = server.log
    return snapshot(verify_session(session_id, log.read(session_id), log.head(session_id)))


@contextmanager
def tampering(path: Path, *triggers: str) -> Iterator[sqlite3.Connection]:
    """A connection that writes to the file with the guards taken down, and puts them back, as an intruder would."""
    connection = sqlite3.connect(path)
    guards = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall())
    for trigger in triggers:
        connection.execute(f"DROP TRIGGER {trigger}")
    try:
        yield connection
        for trigger in triggers:
            connection.execute(guards[trigger])
        connection.commit()
    finally:
        connection.close()
