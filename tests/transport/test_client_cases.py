"""A case through the client: observe, what next, why, conclude, act, wait, withdraw."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cmbs.audit.proof_check import verify_proof
from cmbs.client import Case, Client, connect, connect_async
from cmbs.errors import Conflict, Forbidden, InvalidHypothesisId, InvalidRequest, SessionNotFound, UnknownProbe
from tests.support.transports import ONTOLOGY

KIT = """
id: checkout
version: "1"
title: Checkout is slow
soundness: sound
hypotheses: [{id: disk-full}, {id: dns}, {id: bad-deploy}]
probes:
  - id: disk-free
    prompt: Has the disk more than 5 % free?
    outcomes: [{id: "yes", eliminates: [disk-full]}, {id: "no", keeps: [disk-full]}]
  - id: resolves
    prompt: Does the name of the payment provider resolve?
    outcomes: [{id: "yes", eliminates: [dns]}, {id: "no", keeps: [dns]}]
"""
POLICY: dict[str, Any] = {
    "format": 2,
    "title": "restart only when one cause is left",
    "rules": [
        {
            "name": "restart",
            "allow": "service.restart",
            "when": "case.belief.n_survivors == 1",
            "otherwise": "defer",
            "because": "restart only what is known to be the cause",
        }
    ],
}
TOOL = {"tool_id": "service.restart", "kind": "caller", "args_schema": {"type": "object"}}


class Incident:
    """A store with a kit and a space in it, and clients of an operator and of an agent."""

    def __init__(self, operator: Client, agent: Client) -> None:
        self.operator = operator
        self.agent = agent

    def case(self, name: str) -> Case:
        """A case that the operator's harness opened for the agent, joined by the agent."""
        with (
            pytest.raises(KeyboardInterrupt),
            self.operator.case(kit="checkout", space="shop", name=name, agents=["planner"]),
        ):
            # So that it stays open.
            raise KeyboardInterrupt
        return self.agent.case(name, space="shop")


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Incident]:
    store = f"sqlite:///{tmp_path_factory.mktemp('incident') / 'cmbs.db'}"
    with ExitStack() as opened:
        operator = opened.enter_context(connect(store, actor="operator:ops"))
        agent = opened.enter_context(connect(store, actor="agent:planner"))
        operator.put_kit(KIT)
        operator.create_space("shop", policy_file=POLICY)
        operator.register_tool("shop", **TOOL)  # type: ignore[arg-type]
        operator.issue_capability("shop", token_id="t", agent_id="planner", tool_ids=["service.restart"])
        yield Incident(operator, agent)


@pytest.mark.req("CLIENT-09")
def test_a_case_goes_from_a_look_to_a_conclusion(incident: Incident) -> None:
    with incident.agent.case(kit="checkout") as case:
        first = case.next_probes(limit=1)
        assert (first.n_survivors, first.n_probes, len(first.probes)) == (3, 2, 1)
        guess = case.conclude("dns")
        assert (guess.reason, guess.refusal and guess.refusal.next) == (
            "not_singleton",
            "observe `disk-free`, which can tell them apart",
        )
        seen = case.observe("disk-free", "yes", source_id="probe://df", justification={"free": 0.4})
        assert seen.applied_eliminated == ["disk-full"]
        assert [probe.probe_id for probe in case.next_probes().probes] == ["resolves"]
        again = case.observe("disk-free", "yes", source_id="probe://df", justification={"free": 0.4})
        assert (again.replayed, again.audit_event_id) == (True, seen.audit_event_id)
        refused = case.conclude("disk-full")
        assert (refused.accepted, refused.refusal and refused.refusal.accepted) == (False, ["bad-deploy", "dns"])
        case.observe("resolves", "yes")
        assert case.conclude("bad-deploy").accepted
        assert case.belief().survivors == ["bad-deploy"]
        assert case.belief(at=2).n_survivors == 2
        assert case.case_id == case.session_id


@pytest.mark.req("CLIENT-09")
def test_why_goes_down_to_what_was_seen_and_to_a_proof(incident: Incident) -> None:
    with incident.agent.case(kit="checkout") as case:
        seen = case.observe("disk-free", "yes", source_id="probe://df", justification={"free": 0.4})
        why = case.why("disk-full")
        assert (why.survives, why.event_id, why.seq) == (False, seen.audit_event_id, 1)
        assert (why.source_id, why.observation_id, why.justification) == ("probe://df", "disk-free", {"free": 0.4})
        assert why.probe is not None
        assert (why.probe["probe_id"], why.probe["response"]) == ("disk-free", "yes")
        assert why.sentence == '`disk-full` was ruled out at seq 1 by `probe://df`, which saw `"yes"` at `disk-free`'
        assert "disk-full" in verify_proof(msgspec.json.encode(why.proof)).statement
        alive = case.why("dns")
        assert (alive.survives, alive.seq, alive.proof["kind"]) == (True, None, "membership")
        assert alive.sentence == "`dns` survives: nothing that was seen speaks against it"
        with pytest.raises(InvalidHypothesisId):
            case.why("no such thing")


@pytest.mark.req("CLIENT-09")
def test_an_act_waits_for_belief_and_runs_once_it_is_allowed(incident: Incident) -> None:
    with incident.case("INC-1") as case:
        assert case.case_id == incident.operator.describe_case("INC-1").session_id
        early = case.act("service.restart", {"service": "orders"}, token="t", wait=0)
        assert early.status == "waiting"
        assert early.waits_for is not None
        assert early.waits_for.kind == "change"
        assert early.refusal is not None
        assert early.refusal.next
        assert case.explain(early.call_id).decision.verdict == "defer"
        assert case.withdraw(early.call_id, reason="too early").status == "withdrawn"
        assert not case.claim(early.call_id)
        for probe_id in ("disk-free", "resolves"):
            case.observe(probe_id, "yes")
        allowed = case.act("service.restart", {"service": "orders"}, wait=0)
        assert (allowed.status, allowed.executor, allowed.case_id) == ("waiting", "caller", case.case_id)
        assert allowed.waits_for is not None
        assert allowed.waits_for.kind == "executor"
        assert case.claim(allowed.call_id)
        assert not case.claim(allowed.call_id)
        case.report(allowed.call_id, "succeeded", result={"restarted": True})
        done = case.wait(allowed.call_id)
        assert (done.status, done.result) == ("done", {"restarted": True})
    # The agent did not open it, so it stays open.
    assert incident.operator.get_case("shop", "INC-1").status == "open"


@pytest.mark.req("CALL-CLAIM-02", "CALL-CLAIM-03")
def test_of_two_clients_with_one_call_one_runs_it_and_the_other_cannot_report_it(incident: Incident) -> None:
    with incident.case("INC-two") as one, incident.agent.case("INC-two", space="shop") as other:
        for probe_id in ("disk-free", "resolves"):
            one.observe(probe_id, "yes")
        first, second = (case.act("service.restart", {"service": "orders"}, wait=0) for case in (one, other))
        assert (second.call_id, second.joined) == (first.call_id, True)
        assert [case.claim(first.call_id) for case in (one, other)] == [True, False]
        forged = other.report(first.call_id, "succeeded", result="never ran")
        assert (forged.status, forged.refusal and forged.refusal.code) == ("running", "WRONG_NONCE")
        assert one.report(first.call_id, "failed", error="no such service").status == "failed"
        assert other.wait(first.call_id).error == "no such service"


@pytest.mark.req("CLIENT-09")
def test_a_case_that_was_opened_is_closed_at_the_end_and_stays_open_after_an_exception(incident: Incident) -> None:
    with incident.operator.case(kit="checkout", space="shop", attributes={"service": "orders"}) as case:
        opened = case.case_id
        record = incident.operator.get_case("shop", opened)
        assert (record.status, record.case_id, record.agents) == ("open", case.session_id, ["ops"])
    assert incident.operator.get_case("shop", opened).status == "closed"

    def fail() -> None:
        with incident.operator.case(kit="checkout", space="shop", name="INC-2"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert incident.operator.get_case("shop", "INC-2").status == "open"


@pytest.mark.req("CLIENT-09")
def test_an_agent_that_may_not_admit_a_case_is_told_so_and_declares_nothing(incident: Incident) -> None:
    before = len(list(incident.operator.each(incident.operator.list_sessions)))
    with pytest.raises(Forbidden, match="may not admit a new case to space `shop`"):
        incident.agent.case(kit="checkout", space="shop").open()
    assert len(list(incident.operator.each(incident.operator.list_sessions))) == before
    with incident.agent.case(kit="checkout") as alone:
        pass
    with pytest.raises(Forbidden, match="may not admit case"):
        incident.agent.case(alone.case_id, space="shop").open()


@pytest.mark.req("CLIENT-09", "CASE-NAME-03")
def test_a_case_is_found_by_its_name_and_goes_on_where_it_was(incident: Incident) -> None:
    with incident.agent.case(
        kit="checkout", name="INC-7", owner="ann", severity="high", labels={"team": "web"}
    ) as case:
        case.observe("resolves", "yes")
    with incident.agent.case("inc-7") as again:
        assert (again.case_id, again.belief().n_survivors) == (case.case_id, 2)
    (listed,) = incident.operator.list_sessions(name="INC-7").sessions
    assert (listed.session_id, listed.name, listed.owner, listed.severity) == (case.case_id, "INC-7", "ann", "high")
    for filters in ({"owner": "ann"}, {"severity": "high"}, {"text": "nc-7"}):
        found = [each.session_id for each in incident.operator.list_sessions(**filters).sessions]  # type: ignore[arg-type]
        assert found == [case.case_id]
    assert incident.operator.list_sessions(name="INC-8").sessions == []
    with pytest.raises(Conflict) as taken:
        incident.agent.case(kit="checkout", name="INC-7").open()
    assert taken.value.details["session_id"] == case.case_id
    with pytest.raises(InvalidRequest, match="is there already"):
        incident.agent.case("INC-7", kit="checkout").open()
    with pytest.raises(SessionNotFound):
        incident.agent.case("INC-8").open()
    incident.operator.update_case("INC-7", owner="ben", severity="")
    assert incident.operator.name_case("INC-7", name="INC-70").name == "INC-70"
    described = incident.agent.describe_case("INC-70")
    assert (described.name, described.owner, described.severity) == ("INC-70", "ben", None)
    assert incident.operator.name_case("INC-70").name is None
    with pytest.raises(SessionNotFound):
        incident.agent.describe_case("INC-70")


@pytest.mark.req("CLIENT-09")
def test_a_case_without_a_kit_rules_out_by_hand_and_one_that_is_not_open_says_so(incident: Incident) -> None:
    with incident.agent.case(ontology=ONTOLOGY, hypotheses=["a", "b"]) as case:
        assert case.rule_out("me", ["a"], justification={"because": "seen"}).snapshot.survivors == ["b"]
        with pytest.raises(InvalidRequest, match="no space to act in"):
            case.act("service.restart", {})
        with pytest.raises(InvalidRequest):
            case.observe("none", "yes")
        with incident.agent.case(case.session_id) as again:
            assert again.belief().survivors == ["b"]
    with pytest.raises(InvalidRequest, match="not open"):
        incident.agent.case(kit="checkout").belief()
    with incident.agent.case(kit="checkout") as other, pytest.raises(UnknownProbe):
        other.observe("disk-fre", "yes")


@pytest.mark.req("CLIENT-09")
def test_a_case_is_worked_on_by_awaiting_too(tmp_path: Path) -> None:
    async def work() -> tuple[bool, str, str | None]:
        async with connect_async(f"sqlite:///{tmp_path / 'cmbs.db'}", actor="operator:ops") as client:
            await client.put_kit(KIT)
            await client.create_space("shop", policy_file=POLICY)
            async with client.case(kit="checkout", space="shop") as case:
                await case.observe("disk-free", "no")
                why = await case.why("dns")
                concluded = await case.conclude("disk-full")
                record = await client.get_case("shop", case.case_id)
                return concluded.accepted, record.status, why.source_id

    assert asyncio.run(work()) == (True, "open", "observer")
