"""Spaces that many write to at once, and that have become large: what must not grow, and must not be mixed up."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from cmbs.belief_events import Stamp
from cmbs.ledger import Chronicle
from cmbs.substrate.door import SpaceCommand
from cmbs.substrate.events import Propose
from cmbs.substrate.kind import Ahead, SpaceKind
from tests.support.spaces import AGENT, SPACE, World, delta


def test_deciding_ahead_lets_no_space_grow() -> None:
    """Versions of a space share what they grow by. Callers that decide in their own threads must leave that alone."""
    world = World()
    space = world.create()
    kind = SpaceKind(lambda key: Stamp("event-1", "2026-01-01T00:00:00.000000Z", key))
    command = SpaceCommand(SPACE, AGENT, Propose(world.proposal(delta(a="1"))))
    grown: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is Chronicle.extended.__code__:
            grown.append(event)

    sys.setprofile(watch)
    try:
        ahead = kind.decided_ahead(space, command)
        before_its_turn = len(grown)
        answer, after, append = kind.decided(space, ahead)
    finally:
        sys.setprofile(None)
    assert isinstance(ahead.ahead, Ahead)
    assert before_its_turn == 0
    assert len(grown) == 2
    assert after is not None
    assert answer.event is ahead.ahead.event
    assert append is ahead.ahead.append
    assert after.snapshots.get(after.snapshot_id) == after.head.seq == 1
    world.close()
