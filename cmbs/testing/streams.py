"""What a server hands to its log, for tests of logs alone."""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Raw, structs

from cmbs.belief.server import BeliefServer
from cmbs.ledger import Head, StoredEntry, canonical, hash_entry
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.spi import Append
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.events import (
    CreateSpace,
    IssueCapability,
    OutcomeStatus,
    Propose,
    RecordOutcome,
    RegisterTool,
)
from cmbs.substrate.kernel.model import Capability, Proposal, Provenance, Tool, ToolCall, ToolKind
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.testing.fakes.environment import ManualClock, SequentialIds

_ONTOLOGY = OntologyBundle("space", "1", "graph://incidents", "17")


class CatchingStore(InMemoryStore):
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
    store = CatchingStore()
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


def space_stream(events: int = 6) -> list[Append]:
    """A space of its own: a tool, a token, calls under idempotency keys and their outcomes in turn."""
    store = CatchingStore()
    server = SubstrateServer(log=store, clock=ManualClock(), ids=SequentialIds(9), keeper_seconds=None)
    root, agent = Actor(ActorKind.OPERATOR, "root"), Actor(ActorKind.AGENT, "agent")
    allow = {"constraint.any": '{"v":1,"effect":"allow","subject":null}'}
    space = server.perform(SpaceCommand("s", root, CreateSpace("s", policy=allow))).space
    server.perform(SpaceCommand("s", root, RegisterTool(Tool("t", ToolKind.CALLER, Raw(b"{}"))), "register"))
    server.perform(SpaceCommand("s", root, IssueCapability(Capability("token", agent.id, ["t"]))))
    while len(store.caught) < events:
        number = len(store.caught)
        provenance = Provenance(agent.id, "2026-01-01T00:00:00Z")
        call = ToolCall("t", Raw(b"{}"), "token", f"key-{number}")
        proposal = Proposal(f"proposal-{number}", space.snapshot_id, provenance, [call])
        (intent,) = server.perform(SpaceCommand("s", agent, Propose(proposal))).event.result.intents
        server.perform(SpaceCommand("s", agent, RecordOutcome(intent.execution_id, OutcomeStatus.SUCCEEDED)))
    server.close()
    return store.caught[:events]
