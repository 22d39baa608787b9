"""What a server hands to its log, caught on the way, for tests of logs alone."""

from __future__ import annotations

from collections.abc import Sequence

from cmbs.belief_server import BeliefServer
from cmbs.spi import Append, InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from tests.support.homes import declared


class CatchingStore(InMemoryStore):
    """A memory store that keeps what was appended."""

    def __init__(self) -> None:
        super().__init__()
        self.caught: list[Append] = []

    def append(self, appends: Sequence[Append]) -> None:
        """Write, then remember."""
        super().append(appends)
        self.caught.extend(appends)


def stream(space: int = 0, hypotheses: str = "abcd", events: int = 3) -> list[Append]:
    """A session of its own: its declaration, and eliminations one id at a time, then of nothing."""
    store = CatchingStore()
    server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds(space))
    session_id = declared(server, hypotheses)
    for number in range(1, events):
        server.eliminate(session_id, "source", f"observation {number}", list(hypotheses[number - 1 : number]))
    return store.caught
