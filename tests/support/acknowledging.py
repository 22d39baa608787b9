"""A program that writes to a store as fast as it can, and prints a line for each write, until it is killed.

A line is printed when the server has answered, and never before: session id, event id, observation id.
"""

from __future__ import annotations

import sys
import threading
from itertools import count

from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store
from tests.support.store_fixture import declared

THREADS = 4
UNIVERSE = [f"h{number:05}" for number in range(2_000)]


def work(server: BeliefServer, session_id: str, number: int, printing: threading.Lock) -> None:
    """Eliminate for ever; now and then, something that is no elimination."""
    for step in count():
        observation_id = f"{number}.{step}"
        if step % 5:
            hypothesis_id = UNIVERSE[(step * THREADS + number) % len(UNIVERSE)]
            event_id = server.eliminate(session_id, "writer", observation_id, [hypothesis_id]).audit_event_id
        else:
            event_id = server.enter_obligation(session_id, observation_id, step).audit_event_id
        with printing:
            sys.stdout.write(f"{session_id} {event_id} {observation_id}\n")
            sys.stdout.flush()


def main(store_url: str) -> None:
    """Two sessions of this run, two threads on each."""
    server = BeliefServer(store=open_store(store_url))
    session_ids = [declared(server, UNIVERSE[:1_000]) for _ in range(2)]
    printing = threading.Lock()
    for number in range(THREADS):
        arguments = (server, session_ids[number % 2], number, printing)
        threading.Thread(target=work, args=arguments).start()


if __name__ == "__main__":
    main(sys.argv[1])
