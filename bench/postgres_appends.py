"""Durable appends on PostgreSQL to many sessions: one process, 32 callers that wait.

The baseline is the `eventsourcing` library, saving one event per call to the same database: by one caller, and by as
many as the subject has.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_least, belief_server, hypothesis_ids, interleaved, shown
from bench.postgres import database
from bench.waiters import calls_per_second
from cmbs.belief.server import BeliefServer

NAME = "postgres_appends"
WAITERS = 32
SESSION_SIZE = 1_000

_observation = count()


class Session(Aggregate):
    """What the baseline keeps of a session: nothing but its events."""

    @event("Declared")
    def __init__(self) -> None: ...

    @event("Eliminated")
    def eliminate(self, source_id: str, observation_id: str, eliminated: list[str]) -> None: ...


def run(effort: Effort) -> list[Result]:
    """Compare eliminations through the server with events saved through the library."""
    together, alone = effort.operations // WAITERS, effort.operations // 10
    with database() as url, belief_server(url) as server:
        library = _library(url)
        try:
            rates = interleaved(
                {
                    "server": lambda: calls_per_second([_eliminating(server) for _ in range(WAITERS)], together),
                    "alone": lambda: calls_per_second([_saving(library)], alone),
                    "together": lambda: calls_per_second([_saving(library) for _ in range(WAITERS)], alone // WAITERS),
                },
                effort.rounds,
            )
        finally:
            library.close()
    measured = f"ELIMINATE on PostgreSQL, {WAITERS} waiting threads, a session each: {shown(rates['server'])}/s"
    return [
        Result(
            NAME,
            measured,
            f"`eventsourcing` saving one event per call, {callers}: {shown(rates[baseline])}/s",
            rates["server"] / rates[baseline],
            at_least(5),
        )
        for baseline, callers in (("alone", "one thread"), ("together", f"{WAITERS} threads"))
    ]


def _eliminating(server: BeliefServer) -> Callable[[], object]:
    ids = hypothesis_ids(SESSION_SIZE)
    session_id = server.declare_session(ONTOLOGY, ids).session_id
    numbers = count()
    return lambda: server.eliminate(
        session_id, SOURCE, f"observation-{next(_observation)}", [ids[next(numbers) % SESSION_SIZE]]
    )


def _library(url: str) -> Application[UUID]:
    parts = urlsplit(url)
    environment = {
        "PERSISTENCE_MODULE": "eventsourcing.postgres",
        "POSTGRES_DBNAME": parts.path[1:],
        "POSTGRES_HOST": parts.hostname or parse_qs(parts.query)["host"][0],
        "POSTGRES_PORT": str(parts.port or 5432),
        "POSTGRES_USER": parts.username or "postgres",
        "POSTGRES_PASSWORD": parts.password or "unused",
        "POSTGRES_POOL_SIZE": str(WAITERS),
    }
    return Application(environment)


def _saving(library: Application[UUID]) -> Callable[[], object]:
    session = Session()
    library.save(session)
    ids, numbers = hypothesis_ids(SESSION_SIZE), count()

    def save() -> None:
        session.eliminate(SOURCE, f"observation-{next(_observation)}", [ids[next(numbers) % SESSION_SIZE]])
        library.save(session)

    return save
