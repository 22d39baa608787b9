"""Plays kits, webhooks and records of heads, and goes on with streams until their entries carry state digests."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from cmbs.audit.plain_rows import all_sessions, all_streams
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.server import BeliefServer
from cmbs.messages import Actor, ActorKind
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_PREFIX, RESERVED_PREFIXES
from cmbs.spi.journal import JournalLog
from cmbs.substrate.kernel.events import Mode as SpaceMode
from cmbs.substrate.kernel.events import SetMode
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.testing.fakes.environment import ManualClock, SequentialIds
from cmbs.transparency.notary import Notary
from cmbs.webhooks.kernel.model import SUBSCRIBABLE, EventNote, EventType, Filters, Settings
from cmbs.webhooks.keys import WebhookKey
from cmbs.webhooks.registry import WebhookRegistry
from cmbs.webhooks.sending import Sent
from tests.support.signing import files_in
from tests.support.spaces import AGENT, ROOT, SECOND, SPACE

# An entry with a state digest, and one that follows it.
LONG = 1_002
KIT = """id: coin
version: "1"
title: "Which side is up \\U0001F600"
soundness: sound
hypotheses: [{id: heads, label: Heads}, {id: tails, attributes: {side: back}}, edge]
probes:
  - id: toss
    outcomes:
      - {id: heads, eliminates: [tails]}
      - {id: tails, eliminates: [heads]}
"""
ANN = Actor(ActorKind.OPERATOR, "ann", authenticated=True)


def play_kit(log: AuditLog, clock: ManualClock) -> str:
    """A kit with two contents, and the id of a session that observes with it and has some of everything."""
    server = BeliefServer(store=log, clock=clock, ids=SequentialIds(6))  # type: ignore[arg-type]
    for document in (KIT, f"{KIT}# second\n"):
        server.kits.put(document, MediaType.YAML, ROOT)
    session_id = server.declare_session(kit="coin", title="a toss", labels={"team": "sre"}).session_id
    server.enter_obligation(session_id, "look", 1, idempotency_key="enter")
    server.observe(session_id, "toss", "heads", seen_at="2026-01-01T00:00:00Z")
    server.observe(session_id, "toss", None, "bob")
    server.request_exit(session_id, "look")
    server.enter_obligation(session_id, "look again", 5)
    server.declare_conclusion(session_id, "heads")
    message = server.requests.eliminate("s", "by an operator", ["edge"], None)
    server._sessions.perform(server.requests.command(session_id, message, "key", actor=ANN))
    server.declare_conclusion(session_id, "heads", {"by": "on-call"})
    return session_id


def play_webhooks(log: AuditLog, clock: ManualClock) -> None:
    """A webhook that lives through every verb, and one that stays."""
    assert isinstance(log, JournalLog)
    registry = WebhookRegistry(log, WebhookKey(bytes(32)), clock=clock, ids=SequentialIds(7))
    with closing(registry):
        events = tuple(sorted(each.value for each in SUBSCRIBABLE))
        filters = Filters(space_ids=(SPACE,), labels={"team": "sre"})
        registry.create(Settings("pager", "https://pager.example/cmbs", events, filters, "on-call \U0001f600"), ROOT)
        registry.create(Settings("chat", "https://chat.example/cmbs", events), ROOT)
        session_id = next(each.session_id for each in all_sessions(log) if each.terminated)
        note = EventNote(EventType.SESSION_CONCLUDED, session_id, 3, clock.now(), msgspec.Raw(b'{"hypothesis_id":"c"}'))
        registry.record_found(registry.get("pager"), log.journal_end(), [note])
        registry.rotate("pager", 2, SECOND)
        delivery_id = registry.test("pager", ROOT).delivery_id
        for number, sent in enumerate((Sent(None, 10_000, "no answer"), Sent(204, 12, "")), 1):
            registry.begin("pager", delivery_id, "process 1", 30_000)
            registry.end("pager", delivery_id, number, sent, 5_000)
            clock.advance(timedelta(seconds=6))
        registry.redeliver("pager", delivery_id, SECOND)
        registry.disable("pager", "maintenance", ROOT)
        registry.enable("pager", ROOT, skip=True)
        registry.delete("pager", "moved", SECOND)


def go_on(log: AuditLog, clock: ManualClock, session_id: str) -> None:
    """Make a session and the space so long that an entry of each carries the digest of its state."""
    server = BeliefServer(store=log, clock=clock, ids=SequentialIds(8))  # type: ignore[arg-type]
    for number in count():
        if server.current_session(session_id).head.seq >= LONG:
            break
        server.observe(session_id, "toss", None, "on", observation_id=str(number))
    with closing(SubstrateServer(log=log, clock=clock, ids=SequentialIds(9), keeper_seconds=None)) as spaces:
        while spaces.current(SPACE).head.seq < LONG:
            spaces.perform(SpaceCommand(SPACE, AGENT, SetMode(SpaceMode.ENFORCE)))


def record_heads(log: AuditLog, clock: ManualClock) -> None:
    """Record the head of every stream, as a server does that signs them."""
    with TemporaryDirectory() as directory:
        notary = Notary(log, files_in(Path(directory)), clock=clock, ids=SequentialIds(10))
        with closing(notary):
            for stream_id in list_streams(log):
                notary.note_change(stream_id)
            notary.publish()


def list_streams(log: AuditLog) -> list[str]:
    """The name of every stream but those of heads."""
    prefixes = [prefix for prefix in RESERVED_PREFIXES if prefix != HEADS_PREFIX]
    others = [stream_id for prefix in prefixes for stream_id in all_streams(log, prefix)]
    return [*(each.session_id for each in all_sessions(log)), *others]
