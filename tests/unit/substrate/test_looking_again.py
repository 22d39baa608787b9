"""Looking again at what waits: nothing is recorded unless the outcome changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, StoreUnavailable
from cmbs.messages import OntologyBundle
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import Approve, RegisterTool, RetireTool, SpaceVerb, Wake
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.requests import SpaceLimits
from cmbs.substrate.kernel.waiting import OutcomeUnchanged, would_change
from cmbs.substrate.kernel.words import ProposalStatus
from cmbs.substrate.looking import SharedReadings, WaitingWatch
from tests.support.decided_space import DecidedSpace
from tests.support.spaces import (
    ANY,
    ASKING,
    ENCODER,
    ENGINE,
    SPACE,
    World,
    call,
    caller_tool,
    change_policy,
    constraint,
    facts,
    http_tool,
    status,
    wait_until_settled,
)

ONTOLOGY = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
CAUSES = [f"cause-{number}" for number in range(6)]
WAITING = constraint(
    effect="deny",
    subject={"tool_id": "t"},
    on_fail="defer",
    when={"op": "not", "args": [{"op": "eq", "args": ["fact.go", "1"]}]},
)
POLICY = {"constraint.any": ANY, "constraint.wait": WAITING}
ASKED = {"constraint.any": ANY, "constraint.ask": ASKING}


THERE = {"op": "exists", "args": ["fact.a"]}


def list_wakes(world: World) -> list[list[str]]:
    """Why proposals were woken, in the order of the log."""
    return [list(each.because) for each in recorded(world, SpaceVerb.WAKE) if isinstance(each, Wake)]


def recorded(world: World, verb: SpaceVerb) -> list[object]:
    events = map(read_space_event, world.server.stored_entries(SPACE))
    return [event.message for event in events if event.body.verb == verb]


# --- what is recorded -------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-WAKE-01")
def test_a_look_that_changes_nothing_is_not_recorded(world: World) -> None:
    world.open(http_tool("t"), policy=POLICY)
    world.propose(call("t"), proposal_id="p")
    for text in ("2", "3", "4"):
        world.know(go=text)
    assert (status(world.space, "p"), list_wakes(world)) == (ProposalStatus.PARKED, [])
    world.know(go="1")
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
    assert list_wakes(world) == [["fact.go"]]


@pytest.mark.req("GATES-WAKE-01")
def test_a_wake_that_changes_nothing_is_refused_by_the_rules_themselves(world: World) -> None:
    world.open(http_tool("t"), policy=POLICY)
    world.propose(call("t"), proposal_id="p")
    before = world.space
    with pytest.raises(OutcomeUnchanged):
        world.say(Wake("p", ["fact.go"]), ENGINE)
    assert world.space.head == before.head
    assert not would_change(world.space, "p", [], "2026-01-01T00:00:01.000000Z")
    assert not would_change(world.space, "unknown", [], "2026-01-01T00:00:01.000000Z")


@pytest.mark.req("GATES-WAKE-01")
@pytest.mark.parametrize(
    "change",
    [
        # Another reason, another thing to wait for, another failure, a verdict.
        {
            "constraint.wait": constraint(
                subject={"tool_id": "t"}, on_fail="defer", when={"op": "exists", "args": ["fact.a"]}
            )
        },
        {"constraint.wait": WAITING.replace("fact.go", "fact.went")},
        {"constraint.wait": WAITING.replace('"defer"', '"ask"')},
        {"constraint.never": constraint(effect="deny", subject={"tool_id": "t"})},
    ],
)
def test_every_change_of_the_outcome_is_recorded(world: World, change: dict[str, str]) -> None:
    world.open(http_tool("t"), policy={**POLICY, "constraint.wait": WAITING})
    world.propose(call("t"), proposal_id="p")
    before = world.space.proposals["p"]
    change_policy(world, change, ["constraint.any"] if "exists" in str(change) else [])
    world.server.keep()
    after = world.space.proposals["p"]
    assert (len(list_wakes(world)), after.decision != before.decision) == (1, True)
    world.server.keep()
    assert len(list_wakes(world)) == 1


# --- what is looked at ------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-LOOK-01")
def test_a_changed_policy_looks_at_what_is_parked_and_at_what_is_asked_for(world: World) -> None:
    asking = ASKING.replace('"t"', '"a"')
    world.open(http_tool("t"), http_tool("a"), policy={**POLICY, "constraint.ask": asking})
    world.propose(call("t"), proposal_id="parked")
    world.propose(call("a"), proposal_id="asked")
    world.server.keep()
    change_policy(world, {}, ["constraint.wait", "constraint.ask"])
    world.server.keep()
    assert [wait_until_settled(world, each) for each in ("parked", "asked")] == [ProposalStatus.COMMITTED] * 2
    assert list_wakes(world) == [["$policy"], ["$policy"]]


@pytest.mark.req("GATES-LOOK-01")
def test_another_policy_under_which_it_is_still_asked_for_asks_again(world: World) -> None:
    world.open(http_tool("t"), policy=ASKED)
    (first,) = world.propose(call("t"), proposal_id="p").event.result.asked
    change_policy(world, {"policy.value.x": "1"})
    world.server.keep()
    pending = [each for each in world.space.approvals.values() if each.status == "pending"]
    assert [each.asked.approval_id != first.approval_id for each in pending] == [True]
    assert world.space.approvals[first.approval_id].status == "withdrawn"
    world.say(Approve(pending[0].asked.approval_id))
    assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED


@pytest.mark.req("GATES-LOOK-01")
@pytest.mark.parametrize("policy", [POLICY, ASKED])
def test_a_tool_that_changes_or_retires_looks_at_what_waits(world: World, policy: dict[str, str]) -> None:
    world.open(http_tool("t"), http_tool("u"), policy=policy)
    world.propose(call("t"), proposal_id="p")
    world.server.keep()
    world.say(RegisterTool(http_tool("u", description="of no concern")))
    world.server.keep()
    assert list_wakes(world) == []
    world.say(RegisterTool(http_tool("t", description="another")))
    world.server.keep()
    # An approval is of one registration; what waits for a fact does not mind.
    assert len(list_wakes(world)) == (1 if policy is ASKED else 0)
    world.say(RetireTool("t"))
    world.server.keep()
    assert status(world.space, "p") is ProposalStatus.DENIED


@pytest.mark.req("GATES-LOOK-01")
def test_an_approval_with_uses_left_looks_at_others_that_ask_for_the_same(world: World) -> None:
    world.open(http_tool("t"), policy=ASKED)
    (asked,) = world.propose(call("t"), proposal_id="p").event.result.asked
    world.propose(call("t", key="k2"), proposal_id="q")
    world.propose(call("t", {"other": "args"}, key="k3"), proposal_id="r")
    world.server.keep()
    world.say(Approve(asked.approval_id, uses=2))
    world.server.keep()
    assert [wait_until_settled(world, each) for each in "pq"] == [ProposalStatus.COMMITTED] * 2
    assert (status(world.space, "r"), list_wakes(world)) == (ProposalStatus.ASKED, [["$approvals"]])


@pytest.mark.req("GATES-LOOK-01")
def test_a_process_that_begins_looks_at_everything_that_waits_once(make_world: Callable[..., World]) -> None:
    first = make_world()
    first.open(http_tool("t"), policy=ASKED)
    first.propose(call("t"), proposal_id="p")
    change_policy(first, {}, ["constraint.ask"])
    # The first one ends without another look.
    second = make_world(first.log, space=1)
    second.server.keep()
    assert wait_until_settled(second, "p") is ProposalStatus.COMMITTED
    assert list_wakes(second) == [["$start"]]


# --- how much is looked at --------------------------------------------------------------------------------------------


class CountingBelief(ServedBelief):
    """Counts how often sessions are read."""

    reads = 0

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        self.reads += 1
        return super().read(session_id, independent_of)


@pytest.fixture
def belief() -> Iterator[BeliefServer]:
    server = BeliefServer(store=InMemoryStore())
    yield server
    server.close()


PARKED = 1_200


@pytest.mark.slow
@pytest.mark.req("GATES-WAKE-02")
def test_an_event_on_a_session_that_many_wait_for_reads_it_once_a_portion_and_records_only_what_changed(
    belief: BeliefServer, make_world: Callable[..., World]
) -> None:
    session_id, _ = belief.declare_session(ONTOLOGY, CAUSES)
    few = {"op": "schema", "args": [f"$belief.{session_id}.n_survivors", {"maximum": 4}]}
    none = {"op": "eq", "args": [f"$belief.{session_id}.n_survivors", 0]}
    which = {"op": "any", "args": [{"op": "all", "args": [few, {"op": "eq", "args": ["$args.n", 7]}]}, none]}
    source = CountingBelief(belief)
    world = make_world(belief=source, limits=SpaceLimits(agent_parked=PARKED))
    world.open(
        caller_tool("t"), policy={"constraint.t": constraint(subject={"tool_id": "t"}, when=which, on_fail="defer")}
    )
    for number in range(PARKED):
        world.propose(call("t", {"n": number}, key=f"k{number}"), proposal_id=f"p{number:05}")
    drain(world)
    before, source.reads = world.space.head.seq, 0
    belief.eliminate(session_id, "probe", "one", CAUSES[:1])
    drain(world)
    assert (world.space.head.seq, source.reads <= 20) == (before, True)
    # Looked at already, and nothing has moved since.
    source.reads = 0
    world.server.keep()
    assert source.reads <= 1
    belief.eliminate(session_id, "probe", "two", CAUSES[1:2])
    drain(world)
    assert (world.space.head.seq - before, len(world.space.parked)) == (1, PARKED - 1)
    assert status(world.space, "p00007") is ProposalStatus.READY


def drain(world: World) -> None:
    """Look as often as it takes until all that waits was looked at."""
    for _ in range(3 + PARKED // 500):
        world.server.keep()


def test_what_could_not_be_sent_is_looked_at_again() -> None:
    watch, space = WaitingWatch(), DecidedSpace(policy=POLICY)
    space.equip(caller_tool("t"))
    space.propose(call("t"), proposal_id="p")
    space.propose(facts(go="1"), actor=ENCODER)
    readings = SharedReadings(None)
    watch.search(space.state, readings)
    (wake,) = watch.look(space.state, lambda *_: [], readings, space.now, 10, list)
    assert (wake.proposal_id, watch.has_more) == ("p", False)
    watch.put_back([wake])
    assert (watch.has_more, watch.look(space.state, lambda *_: [], readings, space.now, 10, list)) == (True, [wake])


def test_a_proposal_that_cannot_be_read_for_is_left_to_the_rules() -> None:
    def fail(*_: object) -> list[BeliefReading]:
        raise Conflict("not now")

    watch, space = WaitingWatch(), DecidedSpace(policy=POLICY)
    space.equip(caller_tool("t"))
    space.propose(call("t"), proposal_id="p")
    watch.search(space.state, SharedReadings(None))
    assert [each.proposal_id for each in watch.look(space.state, fail, SharedReadings(None), space.now, 10, list)] == [
        "p"
    ]
    # One that is gone meanwhile is not looked at.
    watch.put_back([Wake("gone", [])])
    assert watch.look(space.state, fail, SharedReadings(None), space.now, 10, list) == []


def test_readings_without_a_belief_plane_are_of_sessions_that_do_not_exist() -> None:
    readings = SharedReadings(None)
    assert (readings.read("s").found, readings.heads()) == (False, {"s": ""})
    with pytest.raises(StoreUnavailable):
        SharedReadings(Unreachable()).read("s")


class Unreachable:
    """A belief plane whose store is away."""

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        raise StoreUnavailable(session_id)

    def is_conclusion(self, session_id: str, event_id: str) -> bool:
        return False

    def subscribe(self, changed: Callable[[str], None]) -> None: ...
