"""What is read of the session of a case: recorded, pinned, checked, and shown in explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cmbs.audit.fsck import check_space
from cmbs.audit.proof_check import verify_proof
from cmbs.audit.proofs import Prover
from cmbs.audit.transfer import export_lines
from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import LedgerCorrupt, RecordNotFound, SessionNotFound
from cmbs.messages import ActorKind
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.decide import decide
from cmbs.substrate.kernel.events import (
    OpenCase,
    Propose,
    SpaceEvent,
)
from cmbs.substrate.kernel.insight.explanation import explain
from cmbs.substrate.kernel.model import BeliefReading, ReasonCode, Verdict
from cmbs.substrate.kernel.proposals import BeliefUnread
from cmbs.substrate.kernel.replay import read_space_event, readings_in, verify_belief_pins, verify_space
from cmbs.substrate.kernel.words import FlipStatus, ProposalStatus
from tests.support.cases import (
    AGENT,
    ATTRIBUTES,
    CAUSES,
    DEFERRED,
    GATE,
    KNOWN,
    ONTOLOGY,
    OTHER,
    PROBE,
    WITNESSED,
    Incidents,
    attributes_of,
    equal,
    every,
    gated,
    outcome,
)
from tests.support.exports import check_export, fit_stream, read_streams, refuse_export, write_export
from tests.support.spaces import (
    ENGINE,
    SPACE,
    World,
    call,
    caller_tool,
    change_policy,
)


@pytest.fixture
def incidents() -> Iterator[Incidents]:
    with closing(Incidents()) as found:
        yield found
        found.assert_replays()


# --- readings ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("CASE-READ-01")
def test_a_reading_has_what_the_policy_asks_for_and_is_pinned_to_the_audit_head(incidents: Incidents) -> None:
    session_id = incidents.begin("c")
    incidents.rule_out("c", "dns", actor=AGENT)
    incidents.rule_out("c", "cache")
    incidents.restart("p", "c")
    (reading,) = readings_in(_decided(incidents, "p"))
    assert (reading.session_id, reading.head_seq, reading.survivors) == (session_id, 2, ["checkout"])
    assert attributes_of(reading.survivor_attributes) == ATTRIBUTES["checkout"]
    assert not isinstance(reading.independent, msgspec.UnsetType)
    assert (reading.independent.actor_id, reading.independent.survivors) == ("agent", ["checkout", "dns"])
    assert reading.independent.survivor_attributes is msgspec.UNSET
    change_policy(incidents.world, {"constraint.restart": gated()})
    incidents.restart("q", "c")
    (plain,) = readings_in(_decided(incidents, "q"))
    assert plain == msgspec.structs.replace(reading, independent=msgspec.UNSET)
    pins = verify_belief_pins(incidents.log.read(f"space:{SPACE}"), {session_id: incidents.log.read(session_id)})
    # Those of the two decisions, and that of the admission.
    assert pins == 3
    assert [incidents.status(each) for each in "pq"] == [ProposalStatus.COMMITTED] * 2


def _decided(incidents: Incidents, proposal_id: str) -> SpaceEvent:
    """The event of the newest decision on a proposal."""
    seq = incidents.world.space.proposals[proposal_id].decided_seq
    return read_space_event(incidents.log.read(f"space:{SPACE}")[seq])


@pytest.mark.req("CASE-READ-01")
def test_a_wake_and_an_approval_are_read_for_the_agent_that_proposed(incidents: Incidents) -> None:
    incidents.begin("c")
    incidents.rule_out("c", "dns", actor=AGENT)
    incidents.restart("p", "c")
    incidents.rule_out("c", "cache", actor=AGENT)
    incidents.world.server.keep()
    assert incidents.status("p") is ProposalStatus.PARKED
    incidents.rule_out("c", "cache", actor=PROBE)
    assert incidents.status("p") is ProposalStatus.COMMITTED
    woken = _decided(incidents, "p")
    (reading,) = readings_in(woken)
    assert woken.body.actor == ENGINE
    assert not isinstance(reading.independent, msgspec.UnsetType)
    assert (reading.independent.actor_id, reading.independent.n_survivors) == ("agent", 2)
    assert check_space(incidents.log, SPACE).findings == []


class Lying(ServedBelief):
    """A belief plane that says of the proposing agent that it eliminated nothing itself, or forgets attributes."""

    def __init__(self, plane: Any, change: Callable[[BeliefReading], BeliefReading]) -> None:
        super().__init__(plane)
        self._change = change

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        return self._change(super().read(session_id, independent_of))


def _deny_own(reading: BeliefReading) -> BeliefReading:
    left = reading.independent
    assert not isinstance(left, msgspec.UnsetType)
    few = msgspec.structs.replace(left, n_survivors=1, survivors=["checkout"])
    return msgspec.structs.replace(reading, independent=few)


def _other_attributes(reading: BeliefReading) -> BeliefReading:
    return msgspec.structs.replace(reading, survivor_attributes=msgspec.Raw(b'{"component":"another"}'))


@pytest.mark.req("CASE-READ-01")
@pytest.mark.parametrize("change", [_deny_own, _other_attributes])
def test_a_server_that_makes_up_what_others_eliminated_is_found_out(
    incidents: Incidents, change: Callable[[BeliefReading], BeliefReading]
) -> None:
    session_id = incidents.begin("c")
    incidents.rule_out("c", "cache", "dns", actor=AGENT)
    liar = World(incidents.log, belief=Lying(incidents.belief, change), runner=incidents.runner, space=7)
    liar.propose(call("restart", key="p"), proposal_id="p", case_id="c")
    liar.close()
    entries = incidents.log.read(f"space:{SPACE}")
    verify_space(SPACE, entries)
    with pytest.raises(LedgerCorrupt, match="said something else"):
        verify_belief_pins(entries, {session_id: incidents.log.read(session_id)})
    assert check_space(incidents.log, SPACE).findings != []


def test_a_decision_is_not_made_on_a_session_that_was_read_for_another_actor(incidents: Incidents) -> None:
    session_id = incidents.begin("c")
    source = ServedBelief(incidents.belief)
    proposal = incidents.world.proposal(call("restart"), proposal_id="p", case_id="c")
    for reading in (source.read(session_id), source.read(session_id, OTHER.id)):
        with pytest.raises(BeliefUnread):
            decide(
                incidents.world.space, Propose(proposal, [reading]), AGENT, Stamp("e", "2026-01-01T00:00:00.000000Z")
            )
    good = decide(
        incidents.world.space,
        Propose(proposal, [source.read(session_id, AGENT.id)]),
        AGENT,
        Stamp("e", "2026-01-01T00:00:00.000000Z"),
    )
    assert not isinstance(good, Repeat)


def test_a_case_of_a_session_that_does_not_exist_permits_nothing(incidents: Incidents) -> None:
    with pytest.raises(SessionNotFound, match="never-declared"):
        incidents.world.say(OpenCase("never-declared", [AGENT.id]))
    incidents.open_case("c")
    incidents.source.lost.add("c")
    assert outcome(incidents.restart("p", "c")) == DEFERRED
    assert readings_in(_decided(incidents, "p")) == [BeliefReading("c", found=False)]


def test_without_a_belief_plane_a_case_permits_nothing(world: World) -> None:
    world.open(caller_tool("restart"), policy=GATE)
    with pytest.raises(SessionNotFound):
        world.say(OpenCase("c", [AGENT.id]))
    with pytest.raises(RecordNotFound):
        world.decide(call("restart"), case_id="c")


def test_all_attributes_of_the_one_that_is_left_are_read(incidents: Incidents) -> None:
    long = {"checkout": {"notes": "x" * 65_000}}
    for gone, expected in ((["cache", "dns"], long["checkout"]), (["cache", "checkout"], None)):
        session_id, _ = incidents.belief.declare_session(ONTOLOGY, CAUSES, hypothesis_attributes=long)
        incidents.belief.eliminate(session_id, "probe", "1", gone)
        reading = ServedBelief(incidents.belief).read(session_id)
        assert attributes_of(reading.survivor_attributes) == expected


def test_cases_survive_a_restart_of_everything(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cases.db'}"
    before = Incidents(log=open_store(url))
    session_id = before.begin("c", tier=1)
    before.restart("p", "c")
    before.close()
    with closing(open_store(url)) as log:
        space = verify_space(SPACE, log.read(f"space:{SPACE}"))
    assert space.proposals["p"].case_id == session_id == space.cases["c"].case_id
    assert space.parked["p"].waits_for == (f"$belief.{session_id}", "$case.c")


# --- proofs and exports -----------------------------------------------------------------------------------------------


@pytest.fixture
def decided(incidents: Incidents) -> Incidents:
    """A call that was allowed on what others eliminated, and on what is declared of the one cause that is left."""
    incidents.begin("c")
    incidents.rule_out("c", "dns", "unknown", actor=AGENT)
    incidents.rule_out("c", "cache")
    incidents.restart("p", "c")
    assert incidents.status("p") is ProposalStatus.COMMITTED
    return incidents


@pytest.mark.req("CASE-READ-02")
def test_a_proof_of_the_decision_rests_on_what_the_reading_says_of_others(decided: Incidents) -> None:
    seq = decided.world.space.proposals["p"].decided_seq
    checked = verify_proof(Prover(decided.log).decision(SPACE, seq))
    (rest,) = checked.not_checked
    assert '"independent":{"actor_id":"agent","n_survivors":2' in rest
    assert '"survivor_attributes":{"component":"checkout"}' in rest


def _forge(lines: list[bytes], **members: Any) -> bytes:
    """An export whose reading says something else, made to fit."""
    streams = read_streams(lines)
    entries = streams.pop(f"space:{SPACE}")
    *_, place = [at for at, entry in enumerate(entries) if entry["payload"].get("belief")]
    entries[place]["payload"]["belief"][0].update(members)
    return write_export(*map(fit_stream, streams.values()), fit_stream(entries[: place + 1]))


@pytest.mark.req("CASE-READ-02")
@pytest.mark.parametrize(
    "members",
    [
        {"independent": {"actor_id": "agent", "n_survivors": 1, "survivors": ["checkout"]}},
        {"independent": {"actor_id": "agent", "n_survivors": 2, "survivors": ["cache", "checkout"]}},
        {"independent": {"actor_id": "probe", "n_survivors": 2, "survivors": ["checkout", "dns"]}},
        {"independent": {"actor_id": 1, "n_survivors": 2, "survivors": ["checkout", "dns"]}},
        {"independent": {"actor_id": "agent"}},
        {"independent": None},
        {"survivor_attributes": {"component": "dns"}},
        {"survivor_attributes": None},
        {"agents": ["agent"]},
        {"agents": None},
    ],
    ids=str,
)
def test_an_export_with_cases_is_checked_offline(decided: Incidents, members: dict[str, Any]) -> None:
    lines = list(export_lines(decided.log, [*decided.sessions.values(), f"space:{SPACE}"]))
    assert check_export(b"\n".join(lines) + b"\n").figures["readings"] == 2
    assert check_export(_forge(lines)).figures["readings"] == 2
    refused = refuse_export(_forge(lines, **members))
    assert (refused.place["stream"], refused.place["field"].split(".")[1]) == (f"space:{SPACE}", "belief")


# --- explanations -----------------------------------------------------------------------------------------------------


@pytest.mark.req("CASE-EXPLAIN-01")
def test_an_explanation_shows_what_was_found_in_the_case_and_what_would_turn_it() -> None:
    with closing(Incidents({"constraint.restart": gated()})) as incidents:
        session_id = incidents.begin("c")
        proposal = incidents.world.proposal(call("restart"), case_id="c")
        found = explain(incidents.world.server.hypothetical(SPACE, AGENT, proposal), ActorKind.OPERATOR)
        steps = {step.reference: (step.found, step.note) for step in found.because[0].speakers[0].steps}
        head = incidents.belief.current_session(session_id).head
        assert steps["$case.belief.n_survivors"] == ("3", f"at audit head 0 {head.event_hash.hex()}")
        assert (found.flip.status, found.flip.verdict) == (FlipStatus.SMALLEST, Verdict.ALLOW)
        assert [(each.reference, each.now, each.to) for each in found.flip.changes] == [
            (f"$belief.{session_id}.n_survivors", "3", "1")
        ]
        lost = incidents.world.proposal(call("restart"))
        none = explain(incidents.world.server.hypothetical(SPACE, AGENT, lost), ActorKind.OPERATOR)
        assert (none.decision.reason_code, none.flip.status) == (ReasonCode.NO_CASE, FlipStatus.NONE)
        assert {step.note for step in none.because[0].speakers[0].steps} == {"no case"}


@pytest.mark.req("CASE-EXPLAIN-01")
def test_no_flip_is_claimed_of_what_others_eliminated_or_what_is_declared_of_the_survivor() -> None:
    tied = every(KNOWN, equal("$case.belief.survivor.component", "checkout"), equal("$case.attributes.tier", 1))
    for when in (WITNESSED, tied):
        with closing(Incidents({"constraint.restart": gated(when=when)})) as incidents:
            incidents.begin("c", tier=1)
            proposal = incidents.world.proposal(call("restart"), case_id="c")
            found = explain(incidents.world.server.hypothetical(SPACE, AGENT, proposal), ActorKind.OPERATOR)
            assert found.flip.status in (FlipStatus.UNKNOWN, FlipStatus.BOUND)
