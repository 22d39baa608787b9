"""One session that eight processes write to at once.

The baseline does per append what one does without thinking further: lock the row of the head, insert, move the head,
commit. Both have as many processes and as many waiting callers; `run` starts this module once for each process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path

import psycopg

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_least, belief_server, hypothesis_ids, interleaved, shown
from bench.postgres import database
from bench.waiters import calls_per_second
from cmbs.belief.kernel.replay import verify_session

NAME = "postgres_hot_session"
PROCESSES = 8
WAITERS = 8
SESSION_SIZE = 100
_LINES = """
CREATE TABLE heads (stream_id text PRIMARY KEY, seq bigint NOT NULL, hash bytea NOT NULL);
CREATE TABLE lines (stream_id text, seq bigint, prev_hash bytea, hash bytea, entry bytea,
    PRIMARY KEY (stream_id, seq), UNIQUE (stream_id, prev_hash));
"""


def run(effort: Effort) -> list[Result]:
    """Compare eliminations by eight servers with plain transactions by eight processes."""
    # Enough for each that what comes first, connections and the first conflict, is a small part.
    calls = effort.operations // (PROCESSES * WAITERS)
    with database() as url, belief_server(url) as server, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_LINES.encode())
        session_id = server.declare_session(ONTOLOGY, hypothesis_ids(SESSION_SIZE)).session_id
        server.eliminate(session_id, SOURCE, "first", ["hyp-00000000"])
        row_size = len(server.stored_entries(session_id)[-1].raw)
        connection.execute("INSERT INTO heads VALUES ('hot', 0, %b)", (b"\0" * 32,))
        rates = interleaved(
            {
                "server": lambda: _rate("server", url, session_id, calls),
                "plain": lambda: _rate("plain", url, str(row_size), calls // 2),
            },
            effort.rounds,
        )
        entries = server.stored_entries(session_id)
        verify_session(session_id, entries, server.log.head(session_id))
        expected = 2 + effort.rounds * PROCESSES * WAITERS * calls
        if len(entries) != expected:
            raise AssertionError(f"{len(entries)} entries where {expected} were acknowledged")
    each = f"{PROCESSES} processes with {WAITERS} waiting threads each"
    return [
        Result(
            NAME,
            f"ELIMINATE on PostgreSQL, one session, {each}: {shown(rates['server'])}/s, one chain of {expected:,}",
            f"lock, insert, commit per append, {each}: {shown(rates['plain'])}/s",
            rates["server"] / rates["plain"],
            at_least(2),
        )
    ]


def _rate(what: str, url: str, argument: str, calls: int) -> float:
    """Start all processes, let them go at the same moment, add up what they did; the slowest one decides the time."""
    command = [sys.executable, "-m", "bench.postgres_hot_session", what, url, argument, str(calls)]
    root = Path(__file__).parents[1]
    processes = [
        subprocess.Popen([*command, str(number)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in range(PROCESSES)
    ]
    for process in processes:
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise RuntimeError("a process did not come up")
    for process in processes:
        if process.stdin is not None:
            process.stdin.write(b"go\n")
            process.stdin.flush()
    rates = [float(process.communicate()[0]) for process in processes]
    # All of them made as many calls, so the time of the slowest one is that of all.
    return PROCESSES * min(rates)


def _eliminating(url: str, session_id: str, calls: int, number: str) -> float:
    ids, numbers = hypothesis_ids(SESSION_SIZE), count()
    with belief_server(url) as server:
        server.query_belief(session_id)

        def eliminate(waiter: int) -> None:
            this = next(numbers)
            observation_id = f"{os.getpid()} {number} {waiter} {this}"
            server.eliminate(session_id, SOURCE, observation_id, [ids[this % SESSION_SIZE]])

        return _when_told([partial(eliminate, waiter) for waiter in range(WAITERS)], calls)


def _inserting(url: str, row_size: str, calls: int, _number: str) -> float:
    connections = [psycopg.connect(url) for _ in range(WAITERS)]
    entry = b"x" * int(row_size)

    def insert(connection: psycopg.Connection[tuple[int, bytes]]) -> None:
        with connection.transaction():
            row = connection.execute("SELECT seq, hash FROM heads WHERE stream_id = 'hot' FOR UPDATE").fetchone()
            if row is None:
                raise AssertionError("the head is gone")
            seq, previous = row[0] + 1, row[1]
            this = sha256(previous + entry).digest()
            connection.execute("INSERT INTO lines VALUES ('hot', %s, %b, %b, %b)", (seq, previous, this, entry))
            connection.execute("UPDATE heads SET seq = %s, hash = %b WHERE stream_id = 'hot'", (seq, this))

    try:
        return _when_told([partial(insert, connection) for connection in connections], calls)
    finally:
        for connection in connections:
            connection.close()


def _when_told(callers: list[Callable[[], object]], calls: int) -> float:
    print("ready", flush=True)
    sys.stdin.readline()
    return calls_per_second(callers, calls)


if __name__ == "__main__":
    kind, where, what, how_many, mine = sys.argv[1:]
    print((_eliminating if kind == "server" else _inserting)(where, what, int(how_many), mine))
