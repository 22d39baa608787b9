"""Durable appends through the belief server: many waiting threads share a commit, a lone one pays for its own."""

from __future__ import annotations

import threading
import time
from itertools import count

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_least, belief_server, hypothesis_ids, interleaved, shown
from bench.servers import disk_directory
from cmbs.belief.server import BeliefServer

NAME = "sqlite_group_commit"
WAITERS = 32
SESSION_SIZE = 1_000

_observation = count()


def run(effort: Effort) -> list[Result]:
    """Compare 32 threads, each with a session of its own, with one thread."""
    alone, together = effort.operations // 10, effort.operations // 2
    with (
        disk_directory() as directory,
        belief_server(f"sqlite:///{directory}/bench.db") as server,
    ):
        rates = interleaved(
            {
                "alone": lambda: append_rate(server, 1, alone),
                "together": lambda: append_rate(server, WAITERS, together // WAITERS),
            },
            effort.rounds,
        )
    return [
        Result(
            NAME,
            f"ELIMINATE on SQLite with {WAITERS} waiting threads: {shown(rates['together'])}/s",
            f"one thread, one commit each: {shown(rates['alone'])}/s",
            rates["together"] / rates["alone"],
            at_least(3),
        )
    ]


def append_rate(server: BeliefServer, threads: int, appends: int) -> float:
    """Appends in a second while `threads` of them wait at a time, each thread doing `appends` one after the other."""
    ids = hypothesis_ids(SESSION_SIZE)
    sessions = [server.declare_session(ONTOLOGY, ids).session_id for _ in range(threads)]
    start_line = threading.Barrier(threads + 1)
    failures: list[BaseException] = []

    def work(session_id: str) -> None:
        start_line.wait()
        try:
            for number in range(appends):
                observation_id = f"observation-{next(_observation)}"
                server.eliminate(session_id, SOURCE, observation_id, [ids[number % SESSION_SIZE]])
        except BaseException as exc:  # noqa: BLE001 - it is raised again where it can be seen
            failures.append(exc)

    workers = [threading.Thread(target=work, args=(session_id,)) for session_id in sessions]
    for worker in workers:
        worker.start()
    start_line.wait()
    start = time.perf_counter()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    if failures:
        raise failures[0]
    return threads * appends / seconds
