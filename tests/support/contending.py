"""A process that contends for one session with others like it. Told what to do by lines, it answers by lines.

hammer      write without pause; each write is told as `wrote OBSERVATION EVENT SURVIVORS`, until
stop        end that; answers `stopped`
write NAME  write one observation; answers as above
read        answers `read EVENT SURVIVORS`: the head, as this process sees it
"""

from __future__ import annotations

import sys
import threading
from itertools import count

from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store

UNIVERSE = [f"h{number:04}" for number in range(2_000)]
# Every so many writes of its own, a process makes one that all the others make too.
SHARED_EVERY = 4


class Contender:
    """One of many over a session."""

    def __init__(self, store_url: str, session_id: str, number: int) -> None:
        self._server = BeliefServer(store=open_store(store_url))
        self._session_id = session_id
        self._number = number
        self._stopping = threading.Event()
        self._hammering = threading.Thread(target=self._hammer)

    def obey(self) -> None:
        """Do as told until there is nothing more to do."""
        say("ready")
        for line in sys.stdin:
            match line.split():
                case ["hammer"]:
                    self._hammering.start()
                case ["stop"]:
                    self._stopping.set()
                    self._hammering.join()
                    say("stopped")
                case ["write", name]:
                    self._write(name, UNIVERSE[-1])
                case _:
                    belief = self._server.query_belief(self._session_id)
                    say(f"read {belief.audit_head_event_id} {belief.n_survivors}")
        self._server.close()

    def _hammer(self) -> None:
        for step in count():
            if self._stopping.is_set():
                return
            self._write(f"{self._number}.{step}", UNIVERSE[(8 * step + self._number) % (len(UNIVERSE) // 2)])
            if step % SHARED_EVERY == 0:
                self._write(f"shared.{step}", UNIVERSE[len(UNIVERSE) // 2 + step % 100])

    def _write(self, observation_id: str, hypothesis_id: str) -> None:
        outcome = self._server.eliminate(self._session_id, "contender", observation_id, [hypothesis_id])
        say(f"wrote {observation_id} {outcome.audit_event_id} {outcome.snapshot.n_survivors}")


def say(line: str) -> None:
    """Print a line now."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Contender(sys.argv[1], sys.argv[2], int(sys.argv[3])).obey()
