"""A page of a hundred thousand sessions, beside plain reads of the same database: by an index, and of every name."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg

from bench.harness import Effort, Result, at_most, interleaved, microseconds
from bench.postgres import database
from bench.servers import disk_directory
from bench.stored import store_listed_sessions
from cmbs.belief.kernel.queries import build_session_query
from cmbs.spi.session_search import SessionQuery, find_sessions
from cmbs.stores import open_store

NAME = "session_lists"
SESSIONS = 100_000
PAGE = 50
BY_INDEX = {
    "the newest": build_session_query(order="newest"),
    "the newest open ones of a label": build_session_query(order="newest", state="open", labels=["team:7"]),
    "those of an agent and a source": build_session_query(agent="agent-3", source="source-3"),
}
BY_SCAN = {
    "those with a text that few have": build_session_query(text="Incident 5432", order="newest"),
    "those of an agent and a source that never met": build_session_query(agent="agent-3", source="source-1"),
}
_PLAIN = "SELECT * FROM {}sessions WHERE created_ts < '2026-01-01T00:30:00' ORDER BY created_ts DESC LIMIT 50"
_SCAN = "SELECT count(*) FROM {}sessions WHERE session_id LIKE '%54321%' OR head_event_id LIKE '%54321%'"


def run(effort: Effort) -> list[Result]:
    """Pages of every kind, and the baselines in turn, on SQLite and on PostgreSQL."""
    return [*_run("SQLite", effort), *_run("PostgreSQL", effort)]


def _run(kind: str, effort: Effort) -> Iterator[Result]:
    with _place(kind) as (url, select), closing(open_store(url)) as log:
        store_listed_sessions(log, SESSIONS)
        select("ANALYZE")
        schema = "cmbs." if kind == "PostgreSQL" else ""

        def page(query: SessionQuery) -> Callable[[], float]:
            return lambda: _time(lambda: find_sessions(log, query, None, PAGE))

        def read(statement: str) -> Callable[[], float]:
            return lambda: _time(lambda: select(statement))

        for queries, plain, about, bar in (
            (BY_INDEX, _PLAIN, f"a plain indexed read of {PAGE} rows", at_most(20)),
            (BY_SCAN, _SCAN, "a plain search of all names", at_most(10)),
        ):
            for name, query in queries.items():
                subjects = {"page": page(query), "plain": read(plain.format(schema))}
                found = interleaved(subjects, 3 * effort.rounds)
                yield Result(
                    NAME,
                    f"{kind}, {SESSIONS:,} sessions, {name}: {microseconds(found['page'])}",
                    f"{about}: {microseconds(found['plain'])}",
                    found["page"] / found["plain"],
                    bar,
                )


def _time(read: Callable[[], object]) -> float:
    began = time.perf_counter()
    read()
    return time.perf_counter() - began


@contextmanager
def _place(kind: str) -> Iterator[tuple[str, Callable[[str], object]]]:
    """A database, and a way to ask it something without a store."""
    if kind == "PostgreSQL":
        with database() as url, psycopg.connect(url, autocommit=True) as connection:

            def select(statement: str) -> object:
                cursor = connection.execute(statement.encode())
                return cursor.fetchall() if cursor.description else None

            yield url, select
        return
    with disk_directory() as directory:
        path = f"{directory}/bench.db"
        open_store(f"sqlite:///{path}").close()
        with closing(sqlite3.connect(path)) as file:
            yield f"sqlite:///{path}", lambda statement: file.execute(statement).fetchall()
