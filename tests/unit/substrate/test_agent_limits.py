"""Limits per agent: what one of them holds of a space, and how much it proposes in a second."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import build_substrate
from cmbs.errors import LimitExceeded
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import Actor, ActorKind
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel import kind
from cmbs.substrate.kernel.events import (
    CreateSpace,
    IssueCapability,
    MemoryKind,
    Propose,
    PutMemory,
    RevokeCapability,
    Withdraw,
)
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.loads import measure_state
from cmbs.substrate.kernel.model import Capability, Proposal, Provenance
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import AgentLoad, Space
from cmbs.substrate.server import SubstrateServer
from tests.support.spaces import (
    AGENT,
    ANY,
    ASKING,
    ENCODER,
    OTHER_AGENT,
    ROOT,
    SPACE,
    World,
    call,
    constraint,
    delta,
    facts,
    http_tool,
    raw,
)

POLICY = {
    "constraint.any": ANY,
    "constraint.ask": ASKING,
    "constraint.wait": constraint(
        effect="deny", subject={"tool_id": "w"}, on_fail="defer", when={"op": "missing", "args": ["fact.go"]}
    ),
}
LIMITS = SpaceLimits(agent_parked=2, agent_asked=2, agent_tokens=2, agent_memory_entries=2)


@pytest.fixture
def bounded(make_world: Callable[..., World]) -> World:
    world = make_world(limits=LIMITS)
    world.open(http_tool("t"), http_tool("w"), policy=POLICY)
    world.equip(http_tool("t"), http_tool("w"), token="theirs", agent=OTHER_AGENT)
    return world


def assert_exceeded(error: pytest.ExceptionInfo[LimitExceeded], limit: str, agent: Actor = AGENT) -> None:
    details = error.value.details
    assert (details["limit"], details["maximum"], details["agent_id"]) == (limit, 2, agent.id)
    assert limit in error.value.message
    assert agent.id in error.value.message


@pytest.mark.req("GATES-LIMIT-01")
@pytest.mark.parametrize(("tool_id", "limit"), [("w", "agent_parked"), ("t", "agent_asked")])
def test_an_agent_has_only_so_much_waiting(bounded: World, tool_id: str, limit: str) -> None:
    for number in range(2):
        bounded.propose(call(tool_id, key=f"k{number}"), proposal_id=f"p{number}")
    head = bounded.space.head
    with pytest.raises(LimitExceeded) as error:
        bounded.propose(call(tool_id, key="k2"), proposal_id="p2")
    assert_exceeded(error, limit)
    # Nothing is recorded, others are not concerned, and what does not wait goes on.
    assert bounded.space.head == head
    bounded.propose(call(tool_id, token="theirs"), actor=OTHER_AGENT, proposal_id="q")
    bounded.propose(delta(a="1"), proposal_id="r")
    # The same proposal again is no more than it was.
    bounded.say(Withdraw("p0"), AGENT)
    bounded.propose(call(tool_id, key="k2"), proposal_id="p2")


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_a_proposal_beyond_a_limit_does_not_freeze_the_space(bounded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        bounded.propose(call("w", key=f"k{number}"), proposal_id=f"p{number}")
    frozen: list[Space] = []
    monkeypatch.setattr(kind, "is_digest_point", lambda _seq, _spacing: True)
    monkeypatch.setattr(kind, "freeze_space", frozen.append)
    with pytest.raises(LimitExceeded):
        bounded.propose(call("w", key="k2"), proposal_id="p2")
    assert frozen == []


@pytest.mark.req("GATES-LIMIT-01")
def test_an_agent_issues_only_so_many_tokens_under_its_own(bounded: World) -> None:
    def issue(name: str, actor: Actor = AGENT) -> None:
        child = Capability(name, OTHER_AGENT.id, ["t"], parent_id="token")
        assert bounded.say(IssueCapability(child), actor).event.result.granted

    issue("a")
    issue("b")
    with pytest.raises(LimitExceeded) as error:
        issue("c")
    assert_exceeded(error, "agent_tokens")
    # What an operator issues under them counts, and is not stopped.
    issue("d", ROOT)
    assert bounded.space.loads[AGENT.id] == AgentLoad(tokens=3)
    for name in ("a", "b"):
        bounded.say(RevokeCapability(name), AGENT)
    issue("c")


@pytest.mark.req("GATES-LIMIT-01")
def test_an_agent_keeps_only_so_much_in_memory(bounded: World) -> None:
    def put(name: str, actor: Actor = AGENT) -> None:
        bounded.say(PutMemory(name, MemoryKind.HYPOTHESIS, raw(name), ttl_ms=1_000), actor)

    put("a")
    put("b")
    with pytest.raises(LimitExceeded) as error:
        put("c")
    assert_exceeded(error, "agent_memory_entries")
    put("c", ENCODER)
    put("d", ROOT)
    bounded.advance(seconds=2)
    put("e")


@pytest.mark.req("GATES-LIMIT-02")
def test_an_agent_proposes_only_so_much_in_a_second(make_world: Callable[..., World]) -> None:
    world = make_world(limits=SpaceLimits(agent_proposals_per_second=2))
    world.create()
    for name in ("a", "b"):
        world.propose(delta(**{name: "1"}), proposal_id=name)
    with pytest.raises(LimitExceeded) as error:
        world.propose(delta(c="1"), proposal_id="c")
    assert_exceeded(error, "agent_proposals_per_second")
    world.propose(facts(x="1"), actor=ENCODER)
    for _ in range(3):
        world.propose(delta(c="1"), actor=ROOT)
    world.clock.advance(timedelta(seconds=1))
    world.propose(delta(c="1"), proposal_id="c")


def test_a_limit_that_was_lowered_takes_nothing_away(make_world: Callable[..., World]) -> None:
    log = InMemoryStore()
    wide = make_world(log)
    wide.open(http_tool("w"), policy=POLICY)
    for number in range(3):
        wide.propose(call("w", key=f"k{number}"), proposal_id=f"p{number}")
    narrow = make_world(log, space=1, limits=LIMITS)
    narrow.propose(delta(a="1"), proposal_id="q")
    with pytest.raises(LimitExceeded):
        narrow.propose(call("w", key="k4"), proposal_id="p4")
    assert len(narrow.space.parked) == 3


# --- how many operators there are -------------------------------------------------------------------------------------


def needed(server: SubstrateServer, space_id: str, **parts: Any) -> int:
    return server.perform(SpaceCommand(space_id, ROOT, CreateSpace(space_id, **parts))).space.operators_needed


@pytest.mark.req("GATES-GOVERN-03")
def test_the_default_is_two_where_more_than_one_operator_holds_a_key() -> None:
    log = InMemoryStore()
    moments = iter(range(0, 1_000, 10))
    registry = KeyRegistry(log, elapsed=lambda: float(next(moments)))
    with closing(BeliefServer(store=log)) as belief, closing(build_substrate(belief, {}, None, registry)) as server:
        assert needed(server, "none") == 1
        first = registry.create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR])
        registry.create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR])
        registry.create(ActorKind.AGENT, "agent", roles=[Role.AGENT])
        assert needed(server, "one") == 1
        second = registry.create(ActorKind.OPERATOR, "lead", roles=[Role.OPERATOR])
        assert (needed(server, "two"), needed(server, "said", operators_needed=1)) == (2, 1)
        registry.revoke(second.key.key_id)
        assert needed(server, "revoked") == 1
        registry.revoke(first.key.key_id)


@pytest.mark.req("GATES-GOVERN-03")
def test_without_keys_one_operator_is_enough_and_without_anything_to_count_by_two_are_needed() -> None:
    log = InMemoryStore()
    with closing(BeliefServer(store=log)) as belief, closing(build_substrate(belief, {})) as server:
        assert (needed(server, "a"), server.ensure().operators_needed) == (1, 1)
    with closing(SubstrateServer(log=InMemoryStore(), keeper_seconds=None)) as bare:
        assert needed(bare, "a") == 2


@pytest.mark.anyio
async def test_a_space_that_is_created_on_an_event_loop_gets_the_same_default() -> None:
    log = InMemoryStore()
    with closing(SubstrateServer(log=log, keeper_seconds=None, count_operator_keys=lambda: 7)) as server:
        answer = await server.perform_async(SpaceCommand(SPACE, ROOT, CreateSpace(SPACE)))
        assert answer.space.operators_needed == 2
        proposal = Proposal("p", answer.space.snapshot_id, Provenance(AGENT.id, "now"), [delta(a="1")])
        assert (await server.perform_async(SpaceCommand(SPACE, AGENT, Propose(proposal)))).seq == 1


# --- bytes ------------------------------------------------------------------------------------------------------------


def exceed(error: pytest.ExceptionInfo[LimitExceeded]) -> tuple[str, int]:
    return error.value.details["limit"], error.value.details["maximum"]


@pytest.mark.req("BOUND-BYTES-01")
@pytest.mark.parametrize("tool_id", ["w", "t"])
def test_what_an_agent_has_waiting_is_bounded_in_bytes_for_itself_and_for_all(
    make_world: Callable[..., World], tool_id: str
) -> None:
    world = make_world(limits=SpaceLimits(agent_waiting_bytes=6_000, space_waiting_bytes=9_000))
    world.open(http_tool("t"), http_tool("w"), policy=POLICY)
    world.equip(http_tool("t"), http_tool("w"), token="theirs", agent=OTHER_AGENT)
    large = {"x": "y" * 4_000}
    world.propose(call(tool_id, large, key="a"), proposal_id="a")
    with pytest.raises(LimitExceeded) as error:
        world.propose(call(tool_id, large, key="b"), proposal_id="b")
    assert exceed(error) == ("agent_waiting_bytes", 6_000)
    assert 4_000 < world.space.loads[AGENT.id].waiting_bytes < 6_000
    world.propose(call(tool_id, {"x": "y" * 3_000}, token="theirs"), actor=OTHER_AGENT, proposal_id="c")
    with pytest.raises(LimitExceeded) as error:
        world.propose(call(tool_id, {"x": "y" * 1_000}, token="theirs", key="d"), actor=OTHER_AGENT, proposal_id="d")
    assert exceed(error) == ("space_waiting_bytes", 9_000)
    # What waits no more counts no more.
    world.say(Withdraw("a"), AGENT)
    assert AGENT.id not in world.space.loads
    world.propose(call(tool_id, large, key="b"), proposal_id="b")


@pytest.mark.req("BOUND-BYTES-01")
def test_the_state_of_a_space_is_bounded_in_bytes_by_namespace(make_world: Callable[..., World]) -> None:
    world = make_world(limits=SpaceLimits(state_bytes=1_000))
    world.open(policy=POLICY)
    world.propose(delta(a="x" * 800), proposal_id="a")
    assert world.space.state_bytes.goal == 806
    with pytest.raises(LimitExceeded) as error:
        world.propose(delta(b="x" * 800), proposal_id="b")
    assert exceed(error) == ("state_bytes", 1_000)
    # Facts are another's to write, and a smaller goal in the place of the large one is no more than there was.
    world.propose(facts(b="x" * 800), actor=ENCODER, proposal_id="c")
    world.propose(delta(a="x" * 700), proposal_id="d")
    world.propose(delta(b="é"), proposal_id="e")
    assert world.space.state_bytes == (706 + 8, 806)
    assert world.space.state_bytes == measure_state(world.space.state)


@pytest.mark.req("BOUND-BYTES-01")
def test_a_delta_is_bounded_in_bytes(make_world: Callable[..., World]) -> None:
    world = make_world(limits=SpaceLimits(delta_bytes=1_000))
    world.open(policy=POLICY)
    with pytest.raises(LimitExceeded) as error:
        world.propose(delta(a="x" * 600, b="x" * 600), proposal_id="a")
    assert exceed(error) == ("delta_bytes", 1_000)


@pytest.mark.req("BOUND-BYTES-01")
def test_claims_in_memory_are_bounded_in_bytes(make_world: Callable[..., World]) -> None:
    world = make_world(limits=SpaceLimits(agent_memory_bytes=100, space_memory_bytes=150))
    world.open(policy=POLICY)

    def put(name: str, length: int, actor: Actor = AGENT) -> None:
        world.say(PutMemory(name, MemoryKind.HYPOTHESIS, raw(name * length), ttl_ms=1_000), actor)

    put("a", 80)
    with pytest.raises(LimitExceeded) as error:
        put("b", 20)
    assert exceed(error) == ("agent_memory_bytes", 100)
    with pytest.raises(LimitExceeded) as error:
        put("c", 80, ENCODER)
    assert exceed(error) == ("space_memory_bytes", 150)
    world.advance(seconds=2)
    put("b", 90)
