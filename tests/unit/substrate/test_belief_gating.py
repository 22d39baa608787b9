"""Actions gated on belief: deferred while several causes are possible or an obligation is open, then run by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cmbs.audit.fsck import check_space
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.messages import OntologyBundle
from cmbs.stores import Store, open_store
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import BeliefSource, ServedBelief
from cmbs.substrate.kernel.events import Evidence as MemoryEvidence
from cmbs.substrate.kernel.events import MemoryKind, Propose, PutMemory
from cmbs.substrate.kernel.model import MAX_READ_SURVIVORS, BeliefReading, ReasonCode, Verdict
from cmbs.substrate.kernel.replay import (
    belief_sessions_in,
    read_space_event,
    readings_in,
    verify_belief_pins,
    verify_space,
)
from cmbs.substrate.kernel.words import ProposalStatus
from cmbs.testing import ManualClock
from tests.support.spaces import AGENT, SPACE, ScriptedRunner, World, call, constraint, eventually, http_tool
from tests.support.subtests import for_each

ROOT = Path(__file__).resolve().parents[3]
ONTOLOGY = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
CAUSES = ["bad-deploy", "disk-full", "dns"]
TIMEOUT_SECONDS = 30.0


def gate(session_id: str) -> dict[str, str]:
    """Restart only with one survivor and no open obligation."""
    known = {
        "op": "all",
        "args": [
            {"op": "schema", "args": [f"$belief.{session_id}.n_survivors", {"const": 1}]},
            {"op": "eq", "args": [f"$belief.{session_id}.active_obligation_id", None]},
        ],
    }
    restart = constraint(subject={"tool_id": "restart"}, when=known, on_fail="defer")
    return {"constraint.restart_when_known": restart}


class Incident:
    """A session and a space over one log, and an agent that wants to restart something."""

    def __init__(self, log: Store, **more: Any) -> None:
        self.belief = BeliefServer(store=log)
        self.runner = ScriptedRunner()
        self.world = World(log, belief=ServedBelief(self.belief), runner=self.runner, **more)

    def declare(self, min_total_eliminations: int = 2) -> str:
        self.session_id, _ = self.belief.declare_session(ONTOLOGY, CAUSES)
        self.belief.enter_obligation(self.session_id, "look", min_total_eliminations)
        self.world.open(http_tool("restart"), policy=gate(self.session_id))
        return self.session_id

    def want_restart(self) -> None:
        self.world.propose(call("restart", {"service": "checkout"}), proposal_id="p")

    def rule_out(self, cause: str) -> None:
        self.belief.eliminate(self.session_id, "probe", cause, [cause])

    def leave_obligation(self) -> None:
        self.belief.request_exit(self.session_id, "look")

    def status(self) -> ProposalStatus:
        """Where the proposal stands once everything that can be looked after has been."""
        self.world.server.keep()
        record = self.world.space.proposals["p"]
        if record.status is ProposalStatus.RUNNING:
            record = self.world.server.wait_for(SPACE, "p", TIMEOUT_SECONDS)
        return record.status

    def close(self) -> None:
        self.world.close()
        self.belief.close()


@pytest.fixture
def incident() -> Iterator[Incident]:
    incident = Incident(InMemoryStore())
    incident.declare()
    yield incident
    incident.close()


@pytest.mark.req("SS01-BELIEF-01")
@for_each(
    ("min_total_eliminations", "steps", "end"),
    [
        (2, ["want", "disk-full", "dns", "leave"], ProposalStatus.COMMITTED),
        (2, ["want", "dns", "disk-full", "leave"], ProposalStatus.COMMITTED),
        (1, ["disk-full", "leave", "want", "dns"], ProposalStatus.COMMITTED),
        # When it is already known, the call runs at once.
        (2, ["disk-full", "dns", "leave", "want"], ProposalStatus.COMMITTED),
        # No survivor at all is not one survivor.
        (2, ["want", *CAUSES, "leave"], ProposalStatus.PARKED),
    ],
)
def test_the_call_is_deferred_until_one_cause_is_left_and_no_obligation_is_open(
    min_total_eliminations: int, steps: list[str], end: ProposalStatus
) -> None:
    with closing(Incident(InMemoryStore())) as incident:
        incident.declare(min_total_eliminations)
        actions = {"want": incident.want_restart, "leave": incident.leave_obligation}
        for place, step in enumerate(steps, 1):
            actions.get(step, partial(incident.rule_out, step))()
            if "want" in steps[:place] and place < len(steps):
                decision = incident.world.space.proposals["p"].decision
                assert (decision.verdict, decision.reason_code) == (Verdict.DEFER, ReasonCode.ALLOW_UNMET)
                assert (incident.status(), incident.runner.calls) == (ProposalStatus.PARKED, [])
        assert incident.status() is end
        assert [tool_id for tool_id, _, _ in incident.runner.calls] == ["restart"] * (end is ProposalStatus.COMMITTED)


def test_a_session_that_does_not_exist_permits_nothing() -> None:
    incident = Incident(InMemoryStore())
    incident.world.open(http_tool("restart"), policy=gate("never-declared"))
    incident.want_restart()
    assert incident.status() is ProposalStatus.PARKED
    reading = readings_in(read_space_event(incident.world.server.stored_entries(SPACE)[-1]))[0]
    assert reading == BeliefReading("never-declared", found=False)
    assert check_space(incident.world.log, SPACE).findings == []
    incident.close()


def test_without_a_belief_plane_nothing_that_reads_it_is_permitted(world: World) -> None:
    world.open(http_tool("restart"), policy=gate("s"))
    event = world.propose(call("restart")).event
    assert event.result.decision is not None
    assert event.result.decision.verdict is Verdict.DEFER
    assert readings_in(event) == [BeliefReading("s", found=False)]


@pytest.mark.req("SS01-BELIEF-01")
def test_a_deferred_call_survives_a_restart_of_everything(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gated.db'}"
    before = Incident(open_store(url))
    session_id = before.declare()
    before.want_restart()
    assert before.status() is ProposalStatus.PARKED
    before.close()
    after = Incident(open_store(url), space=1)
    after.session_id = session_id
    after.rule_out("disk-full")
    after.rule_out("dns")
    after.leave_obligation()
    assert after.status() is ProposalStatus.COMMITTED
    assert len(after.runner.calls) == 1
    after.close()


@pytest.mark.req("SS01-BELIEF-01")
def test_a_session_that_another_server_writes_wakes_the_call_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'gated.db'}"
    incident = Incident(open_store(url), keeper_seconds=0.05)
    session_id = incident.declare()
    incident.want_restart()
    elsewhere = BeliefServer(store=open_store(url))
    elsewhere.eliminate(session_id, "probe", "1", ["dns", "disk-full"])
    elsewhere.request_exit(session_id, "look")
    elsewhere.close()
    assert incident.world.server.wait_for(SPACE, "p", TIMEOUT_SECONDS).status is ProposalStatus.COMMITTED
    incident.close()


def test_a_call_that_waits_is_woken_at_once_by_a_session_of_the_same_process() -> None:
    incident = Incident(InMemoryStore(), keeper_seconds=3_600)
    incident.declare()
    incident.want_restart()
    assert eventually(lambda: bool(incident.world.server._scheduler._watching))
    incident.belief.eliminate(incident.session_id, "probe", "1", ["dns", "disk-full"])
    incident.leave_obligation()
    assert incident.world.server.wait_for(SPACE, "p", TIMEOUT_SECONDS).status is ProposalStatus.COMMITTED
    incident.close()


def test_what_a_caller_claims_that_the_belief_plane_said_is_not_believed(incident: Incident) -> None:
    claimed = BeliefReading(incident.session_id, found=True, n_survivors=1)
    incident.world.say(Propose(incident.world.proposal(call("restart"), proposal_id="p"), [claimed]), AGENT)
    assert incident.status() is ProposalStatus.PARKED


def test_a_reading_of_many_survivors_counts_them_and_names_none(incident: Incident) -> None:
    causes = [f"h{number}" for number in range(MAX_READ_SURVIVORS + 1)]
    session_id, _ = incident.belief.declare_session(ONTOLOGY, causes)
    reading = ServedBelief(incident.belief).read(session_id)
    assert (reading.n_survivors, reading.survivors) == (MAX_READ_SURVIVORS + 1, None)


# --- what was believed is recorded, and can be checked ----------------------------------------------------------------


@pytest.mark.req("SS01-BELIEF-02")
def test_each_decision_pins_the_audit_head_that_it_was_read_at_and_a_verifier_checks_it_offline(
    incident: Incident,
) -> None:
    incident.want_restart()
    incident.rule_out("disk-full")
    incident.status()
    incident.rule_out("dns")
    incident.leave_obligation()
    incident.status()
    entries = incident.world.server.stored_entries(SPACE)
    verify_space(SPACE, entries, incident.world.server.head(SPACE))
    log = list(incident.belief.stored_entries(incident.session_id))
    hashes = {stored.event_hash.hex(): seq for seq, stored in enumerate(log)}
    readings = [reading for stored in entries for reading in readings_in(read_space_event(stored))]
    assert [(hashes[reading.head_event_hash], reading.n_survivors) for reading in readings] == [(1, 3), (4, 1)]
    assert belief_sessions_in(entries) == [incident.session_id]
    assert verify_belief_pins(entries, {incident.session_id: log}) == 2
    report = check_space(incident.world.log, SPACE)
    assert (report.findings, report.summary, report.events) == ([], "2 belief readings", len(entries))


@pytest.mark.req("SS01-BELIEF-02")
@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_session_log_that_is_missing_or_cut_off_does_not_pass(incident: Incident, keep: int) -> None:
    incident.rule_out("disk-full")
    incident.rule_out("dns")
    incident.leave_obligation()
    incident.want_restart()
    log = list(incident.belief.stored_entries(incident.session_id))
    with pytest.raises(LedgerCorrupt):
        verify_belief_pins(incident.world.server.stored_entries(SPACE), {incident.session_id: log[:keep]})


class Lying:
    """A belief plane that says that everything is known, under heads that are real."""

    def __init__(self, source: BeliefSource) -> None:
        self._source = source

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        true = self._source.read(session_id, independent_of)
        return msgspec.structs.replace(true, n_survivors=1, active_obligation_id=None, survivors=["bad-deploy"])

    def is_conclusion(self, session_id: str, event_id: str) -> bool:
        return self._source.is_conclusion(session_id, event_id)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        self._source.subscribe(changed)


@pytest.mark.req("SS01-BELIEF-02")
def test_a_session_that_was_there_must_not_be_recorded_as_missing(incident: Incident) -> None:
    class Blind(ServedBelief):
        def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
            return BeliefReading(session_id, found=False)

    # The clock of the space is that of the test, and must not be behind the one that the session was declared by.
    clock = ManualClock("2999-01-01T00:00:00Z")
    blind = World(incident.world.log, belief=Blind(incident.belief), space=1, clock=clock)
    blind.propose(call("restart"), proposal_id="p")
    blind.close()
    assert "recorded as not found" in str(check_space(incident.world.log, SPACE).findings[0])


@pytest.mark.req("SS01-BELIEF-02")
def test_a_server_that_makes_up_what_was_believed_is_found_out() -> None:
    log = InMemoryStore()
    belief = BeliefServer(store=log)
    session_id, _ = belief.declare_session(ONTOLOGY, CAUSES)
    world = World(log, belief=Lying(ServedBelief(belief)))
    world.open(http_tool("restart"), policy=gate(session_id))
    decision = world.decide(call("restart"))
    assert decision.verdict is Verdict.ALLOW
    world.close()
    entries = world.server.stored_entries(SPACE)
    verify_space(SPACE, entries)
    with pytest.raises(LedgerCorrupt):
        verify_belief_pins(entries, {session_id: list(belief.stored_entries(session_id))})
    # Of other sessions it has said nothing.
    assert verify_belief_pins(entries, {}, among={"another"}) == len(belief_sessions_in(entries))
    belief.close()


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-MEM-05")
def test_an_accepted_conclusion_confirms_a_claim_and_no_other_event_does(incident: Incident) -> None:
    incident.rule_out("disk-full")
    eliminated = incident.belief.eliminate(incident.session_id, "probe", "dns", ["dns"])
    incident.leave_obligation()
    concluded = incident.belief.declare_conclusion(incident.session_id, "cause:bad-deploy")
    assert concluded.accepted

    def put(entry_id: str, event_id: str) -> Any:
        evidence = MemoryEvidence(confirmed_by_event_id=event_id, confirmed_in_session_id=incident.session_id)
        message = PutMemory(entry_id, MemoryKind.FACT, msgspec.Raw(b'"the deploy was bad"'), evidence)
        return incident.world.say(message, AGENT).event.result

    for event_id in (eliminated.audit_event_id, "made-up"):
        refused = put(f"by {event_id}", event_id)
        assert (refused.granted, refused.reason_code) == (False, "CONFIRMING_EVENT_UNKNOWN")
    assert put("m", concluded.audit_event_id).granted
    assert incident.world.space.memory["m"].confirmed
    # A verifier finds the conclusion in the log of the session.
    report = check_space(incident.world.log, SPACE)
    assert (report.findings, report.summary) == ([], "1 belief reading")


# --- the example ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("SS01-BELIEF-01", "SS01-BELIEF-02", "SS01-TOOL-01")
def test_the_example_with_a_real_endpoint_and_a_real_mcp_server_runs_as_it_says(tmp_path: Path) -> None:
    example = ROOT / "examples" / "gated_actions.py"
    ran = subprocess.run([sys.executable, example, tmp_path], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "service.restart: defer, ALLOW_UNMET" in ran.stdout
    assert "database.drop: deny, ALLOW_UNMET" in ran.stdout
    assert ran.stdout.endswith("everything is as it should be\n")
