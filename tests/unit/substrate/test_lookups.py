"""What a lookup leads to is believed only as far as the verified state goes, and only if it is about what was asked."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

import cmbs.ledger.lookup_keys
import cmbs.substrate.settled
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry, hash_entry
from cmbs.ledger.lookup_keys import Lookup, lookup_key
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.events import CloseCase, OpenCase, Propose
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, ProposalStatus
from tests.support.cases import open_world
from tests.support.epochs import epochs_of
from tests.support.spaces import (
    AGENT,
    ANY,
    ROOT,
    SPACE,
    STREAM,
    World,
    assert_replays,
    call,
    caller_tool,
    constraint,
    delta,
)


@pytest.fixture
def world() -> Iterator[World]:
    with epochs_of(4):
        world = World()
        world.open(caller_tool("t"), caller_tool("u"))
        yield world
        world.close()


def pass_epochs(world: World) -> None:
    for _ in range(8):
        world.propose(delta(passing=str(world.space.head.seq)))


@pytest.mark.req("SS01-SCALE-03")
def test_keys_that_all_are_the_same_find_what_was_asked_for_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is a short hash: here everything has the same one."""
    for module in (cmbs.ledger.lookup_keys, cmbs.substrate.settled):
        monkeypatch.setattr(module, "lookup_key", lambda *_: 7)
    with epochs_of(4):
        world = World()
        world.open(caller_tool("t"), caller_tool("u"))
        find_among_all(world)
        assert_replays(world)
        world.close()


def find_among_all(world: World) -> None:
    execution_id = world.start(call("t", {"n": 1}), proposal_id="p")
    world.report(execution_id, result=1)
    world.say(Propose(world.proposal(delta(a="1"), proposal_id="q")), AGENT, idempotency_key="r")
    pass_epochs(world)
    settled, space = world.server.settled, world.space
    assert settled.keys.find(space, [7]) == list(range(space.head.seq + 1))
    found = settled.with_proposal(space, "p")
    assert list(found.proposals["p"].execution_ids) == [execution_id]
    assert found.executions[execution_id].status is ExecutionStatus.SUCCEEDED
    assert settled.find_proposal(space, "never") is None
    assert settled.find_seq(space, "never") is None
    answered = world.propose(call("t", {"n": 1}), proposal_id="again").event.result
    assert (answered.intents, answered.answered_by) == ((), {"0": execution_id})
    assert len(world.propose(call("u", {"n": 1}), proposal_id="other").event.result.intents) == 1
    fresh = world.say(Propose(world.proposal(delta(b="1"), proposal_id="s")), ROOT, idempotency_key="other")
    assert not fresh.repeated


@pytest.mark.req("SS01-SCALE-03", "READ-02")
def test_an_entry_that_was_rewritten_is_no_record(world: World) -> None:
    world.propose(delta(a="1"), proposal_id="p")
    pass_epochs(world)
    space = world.space
    (seq,) = world.server.settled.keys.find(space, [lookup_key(Lookup.PROPOSAL, "p")])
    stream = world.log._streams[STREAM]  # type: ignore[attr-defined]
    raw = stream.entries[seq].raw.replace(b'"goal.a":"1"', b'"goal.a":"2"')
    stream.entries[seq] = StoredEntry(raw, hash_entry(raw))
    with pytest.raises(LedgerCorrupt):
        world.server.settled.with_proposal(space, "p")
    with pytest.raises(LedgerCorrupt):
        world.propose(delta(a="1"), proposal_id="p")


def test_a_log_that_keeps_no_keys_is_searched() -> None:
    """So a log that only fulfils the SPI serves long spaces too, slowly."""

    class PlainLog(InMemoryStore):
        find_keys = None  # type: ignore[assignment]
        find_hashes = None  # type: ignore[assignment]

    with epochs_of(4):
        world = World(PlainLog())
        world.open(caller_tool("t"))
        snapshot_id = world.space.snapshot_id
        world.propose(delta(a="1"), proposal_id="p")
        pass_epochs(world)
        found = world.server.settled.with_proposal(world.space, "p")
        assert found.proposals["p"].status is ProposalStatus.COMMITTED
        assert world.server.settled.find_commit(world.space, snapshot_id) == 0
        assert world.server.state_at(SPACE, snapshot_id).seq == 0
        world.close()


def test_what_a_case_withdrew_is_put_together_again() -> None:
    with epochs_of(4):
        world = open_world("c")
        asks = constraint(effect="deny", subject={"tool_id": "t"}, on_fail="ask")
        world.open(caller_tool("t"), policy={"constraint.any": ANY, "constraint.ask": asks})
        world.say(OpenCase("c", agents=[AGENT.id]))
        proposal = msgspec.structs.replace(world.proposal(call("t"), proposal_id="p"), case_id="c")
        (asked,) = world.say(Propose(proposal), AGENT).event.result.asked
        world.say(CloseCase("c"))
        pass_epochs(world)
        found = world.server.settled.with_approval(world.space, asked.approval_id)
        assert found.proposals["p"].status is ProposalStatus.WITHDRAWN
        assert found.approvals[asked.approval_id].status is ApprovalStatus.WITHDRAWN
        assert_replays(world)
        world.close()
