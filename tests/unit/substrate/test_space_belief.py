"""Constraints that read the belief plane: what was read is pinned, parked calls wake by themselves, readings verify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cmbs.audit.spaces import check_space, verified_space
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.stores import InMemoryStore
from cmbs.substrate.belief_source import MAX_SURVIVORS, ServedBelief
from cmbs.substrate.kernel.events import Evidence, MemoryKind, PromoteMemory, Propose, PutMemory
from cmbs.substrate.kernel.model import BeliefReading, ReasonCode, Verdict
from cmbs.substrate.kernel.replay import belief_sessions_in, read_space_event, verify_belief_pins
from cmbs.substrate.kernel.state import ProposalStatus
from cmbs.testing import ManualClock
from tests.support.homes import Home, declared
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    SPACE,
    World,
    assert_replays,
    call,
    constraint,
    delta,
    eventually,
    facts,
    http_tool,
    raw,
    status,
    wait_until_settled,
)

STREAM = f"space:{SPACE}"


class Planes:
    """A belief server and a space over one store, and a call that needs a sure diagnosis."""

    def __init__(self, store: InMemoryStore | None = None, *, keeper_seconds: float | None = None) -> None:
        self.store = store or InMemoryStore()
        self.belief = BeliefServer(store=self.store)
        self.world = World(self.store, belief=ServedBelief(self.belief), keeper_seconds=keeper_seconds)

    def gate(self, session_id: str) -> None:
        """Restart only with one survivor and no open obligation."""
        sure = {
            "op": "all",
            "args": [
                {"op": "schema", "args": [f"$belief.{session_id}.n_survivors", {"maximum": 1}]},
                {"op": "eq", "args": [f"$belief.{session_id}.active_obligation_id", None]},
            ],
        }
        allow = constraint(subject={"tool_id": "restart"}, when=sure, on_fail="defer")
        deltas = constraint(when={"op": "missing", "args": ["$tool.id"]})
        self.world.create({"constraint.sure": allow, "constraint.deltas": deltas})
        self.world.equip(http_tool("restart"))

    def close(self) -> None:
        self.world.close()
        assert_replays(self.world)


@pytest.fixture
def planes() -> Iterator[Planes]:
    planes = Planes()
    yield planes
    planes.close()


def test_a_call_is_deferred_until_the_last_alternative_is_gone_and_then_runs_by_itself(planes: Planes) -> None:
    session_id = declared(planes.belief, "abc")
    planes.gate(session_id)
    answer = planes.world.propose(call("restart"), delta(done="1"), proposal_id="p")
    decision = answer.event.result.decision
    assert decision is not None
    assert (decision.verdict, decision.reason_code) == (Verdict.DEFER, ReasonCode.ALLOW_UNMET)
    assert answer.event.result.waits_for == (f"$belief.{session_id}",)
    planes.world.server.keep()
    assert planes.world.space.head.seq == answer.seq
    planes.belief.enter_obligation(session_id, "o", 1)
    planes.belief.eliminate(session_id, "s", "1", ["a", "b"])
    planes.world.server.keep()
    assert status(planes.world.space, "p") is ProposalStatus.PARKED
    planes.belief.request_exit(session_id, "o")
    planes.world.server.keep()
    assert wait_until_settled(planes.world, "p") is ProposalStatus.COMMITTED
    assert (planes.world.space.state["goal.done"], len(planes.world.runner.calls)) == ("1", 1)


def test_a_waiting_call_hears_of_it_in_the_same_process_at_once() -> None:
    planes = Planes(keeper_seconds=3_600)
    session_id = declared(planes.belief, "ab")
    planes.gate(session_id)
    planes.world.propose(call("restart"), proposal_id="p")
    assert eventually(lambda: bool(planes.world.server._scheduler._watching))
    planes.belief.eliminate(session_id, "s", "1", ["a"])
    assert eventually(lambda: status(planes.world.space, "p") is ProposalStatus.COMMITTED)
    planes.close()


def test_every_decision_pins_the_audit_head_that_it_read_and_a_verifier_checks_it(planes: Planes) -> None:
    session_id = declared(planes.belief, "abc")
    planes.gate(session_id)
    planes.world.propose(call("restart"), proposal_id="p")
    planes.belief.eliminate(session_id, "s", "1", ["a", "b"])
    planes.world.server.keep()
    assert wait_until_settled(planes.world, "p") is ProposalStatus.COMMITTED
    entries = planes.store.read(STREAM)
    (pinned,) = read_space_event(entries[3]).message.belief  # type: ignore[union-attr]
    assert (pinned.head_seq, pinned.n_survivors, pinned.survivors) == (0, 3, ["a", "b", "c"])
    assert pinned.head_event_hash == planes.store.read(session_id)[0].event_hash.hex()
    assert belief_sessions_in(entries) == [session_id]
    logs = {session_id: planes.store.read(session_id)}
    assert verify_belief_pins(entries, logs) == 2
    report = check_space(planes.store, SPACE)
    assert (report.findings, report.pins, report.events) == ([], 2, len(entries))
    with pytest.raises(LedgerCorrupt, match="is not there"):
        verify_belief_pins(entries, {})
    with pytest.raises(LedgerCorrupt, match="has no event 1"):
        verify_belief_pins(entries, {session_id: logs[session_id][:1]})


def test_a_reading_that_the_session_never_gave_is_found_out(planes: Planes) -> None:
    session_id = declared(planes.belief, "abc")
    planes.gate(session_id)

    class Liar(ServedBelief):
        def read(self, session_id: str) -> BeliefReading:
            truth = super().read(session_id)
            return BeliefReading(
                **{**{name: getattr(truth, name) for name in truth.__struct_fields__}, "n_survivors": 1}
            )

    liar = World(planes.store, belief=Liar(planes.belief), space=1)
    liar.propose(call("restart"), proposal_id="p")
    assert wait_until_settled(liar, "p") is ProposalStatus.COMMITTED
    liar.close()
    report = verified_space(planes.store, SPACE)
    assert len(report.findings) == 1
    assert "said something else at event 0" in report.findings[0]


def test_a_session_that_does_not_exist_says_nothing_and_the_call_is_not_allowed(planes: Planes) -> None:
    planes.gate("nowhere")
    answer = planes.world.propose(call("restart"), proposal_id="p")
    assert status(answer.space, "p") is ProposalStatus.PARKED
    (pinned,) = planes.world.space.parked["p"].belief
    assert not pinned.found
    assert verify_belief_pins(planes.store.read(STREAM), {}) == 1


def test_a_session_that_was_there_must_not_be_recorded_as_missing(planes: Planes) -> None:
    class Blind(ServedBelief):
        def read(self, session_id: str) -> BeliefReading:
            return BeliefReading(session_id, found=False)

    session_id = declared(planes.belief, "abc")
    planes.gate(session_id)
    # The clock of the space is that of the test, and behind the one that the session was declared by.
    clock = ManualClock("2999-01-01T00:00:00Z")
    blind = World(planes.store, belief=Blind(planes.belief), space=1, clock=clock)
    blind.propose(call("restart"), proposal_id="p")
    blind.close()
    assert "recorded as not found" in verified_space(planes.store, SPACE).findings[0]


def test_what_a_caller_claims_that_the_belief_plane_said_is_not_believed(planes: Planes) -> None:
    session_id = declared(planes.belief, "abc")
    planes.gate(session_id)
    claimed = BeliefReading(session_id, True, n_survivors=1)
    answer = planes.world.say(Propose(planes.world.proposal(call("restart"), proposal_id="p"), [claimed]), AGENT)
    assert status(answer.space, "p") is ProposalStatus.PARKED


def test_a_reading_of_many_survivors_counts_them_and_names_none(planes: Planes) -> None:
    session_id = declared(planes.belief, [f"h{number}" for number in range(MAX_SURVIVORS + 1)])
    reading = ServedBelief(planes.belief).read(session_id)
    assert (reading.n_survivors, reading.survivors) == (MAX_SURVIVORS + 1, None)


def test_a_claim_is_confirmed_by_a_conclusion_that_was_accepted(planes: Planes) -> None:
    world, belief = planes.world, planes.belief
    world.create({"constraint.any": ANY})
    session_id = declared(belief, "abc")
    refused_id = belief.enter_obligation(session_id, "o", 3).audit_event_id
    for event_id, session in ((refused_id, session_id), ("nothing", session_id), (refused_id, "nowhere")):
        evidence = Evidence(confirmed_by_event_id=event_id, confirmed_in_session_id=session)
        answer = world.say(PutMemory("m", MemoryKind.FACT, raw("it is b"), evidence), AGENT)
        assert (answer.event.result.granted, answer.event.result.reason_code) == (False, "CONFIRMING_EVENT_UNKNOWN")
    belief.eliminate(session_id, "s", "1", ["a", "b", "c"])
    belief.request_exit(session_id, "o")
    conclusion = belief.declare_conclusion(session_id, "b")
    world.say(PutMemory("m", MemoryKind.HYPOTHESIS, raw("it is b"), ttl_ms=1_000), AGENT)
    evidence = Evidence(confirmed_by_event_id=conclusion.audit_event_id, confirmed_in_session_id=session_id)
    entry = world.say(PromoteMemory("m", MemoryKind.FACT, evidence), AGENT).space.memory["m"]
    assert (entry.kind, entry.confirmed, entry.expires_at) == (MemoryKind.FACT, True, None)
    seen = world.propose(facts(seen="1"), actor=ENCODER)
    here = Evidence(confirmed_by_event_id=seen.event.body.event_id)
    assert world.say(PutMemory("n", MemoryKind.FACT, raw("it happened"), here), AGENT).space.memory["n"].confirmed
    # The conclusion is held against the session, as readings are.
    report = verified_space(world.log, SPACE)
    assert (report.findings, report.pins) == ([], 1)


def test_a_restarted_server_wakes_what_an_earlier_one_parked(tmp_path: Path) -> None:
    with Home.at("sqlite", tmp_path) as home:
        belief = home.open()
        session_id = declared(belief, "ab")
        first = Planes.__new__(Planes)
        first.store, first.belief = home.store(), belief  # type: ignore[assignment]
        first.world = World(first.store, belief=ServedBelief(belief))
        first.gate(session_id)
        first.world.propose(call("restart"), proposal_id="p")
        first.world.close()
        belief.eliminate(session_id, "s", "1", ["a"])
        again = World(home.store(), belief=ServedBelief(home.open()), space=1, clock=first.world.clock)
        again.server.keep()
        assert wait_until_settled(again, "p") is ProposalStatus.COMMITTED
        again.close()
        assert verified_space(again.log, SPACE).findings == []
