"""What a server hands to its log, for tests of logs alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import structs

from cmbs.belief.server import BeliefServer
from cmbs.ledger import Head, StoredEntry, canonical, hash_entry
from cmbs.messages import OntologyBundle
from cmbs.spi import Append
from cmbs.stores.memory import InMemoryStore
from cmbs.testing.fakes.environment import ManualClock, SequentialIds

_ONTOLOGY = OntologyBundle("space", "1", "graph://incidents", "17")


class _CatchingStore(InMemoryStore):
    """A memory store that keeps what was appended."""

    def __init__(self) -> None:
        super().__init__()
        self.caught: list[Append] = []

    def append(self, appends: Sequence[Append]) -> None:
        """Write, then keep what was written."""
        super().append(appends)
        self.caught.extend(appends)


def stream(space: int = 0, hypotheses: Sequence[str] = "abcd", events: int = 3) -> list[Append]:
    """A session of its own: its declaration, and eliminations one id at a time, then of nothing.

    The same arguments give the same bytes; streams of another `space` are other sessions.
    """
    store = _CatchingStore()
    server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds(space))
    session_id = server.declare_session(_ONTOLOGY, list(hypotheses)).session_id
    for number in range(1, events):
        server.eliminate(session_id, "source", f"observation {number}", list(hypotheses[number - 1 : number]))
    return store.caught


def continuing(head: Head, item: Append, observation_id: str) -> Append:
    """The elimination `item` as another observation, on top of `head`. Its bytes say so too, and hash to their hash."""
    event_id = hash_entry(f"{head.seq}: {observation_id}".encode()).hex()
    content = json.loads(item.entry.raw)
    content.update(seq=head.seq + 1, prev_event_hash=head.event_hash.hex(), event_id=event_id)
    content["payload"]["observation_id"] = observation_id
    raw = canonical.encode(content)
    return structs.replace(
        item,
        seq=head.seq + 1,
        event_id=event_id,
        prev_event_hash=head.event_hash,
        unique_key=("source", observation_id),
        entry=StoredEntry(raw, hash_entry(raw)),
    )
