"""Cases: one policy serves every incident, each opens its own gate alone, and no agent opens its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from cmbs.audit.fsck import check_space
from cmbs.belief.kernel.events import Stamp
from cmbs.errors import Conflict, InvalidRequest, LimitExceeded, RecordNotFound, SessionNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import Refusal
from cmbs.substrate.kernel import cases
from cmbs.substrate.kernel.cases import may_manage_cases
from cmbs.substrate.kernel.decide import decide
from cmbs.substrate.kernel.events import (
    CloseCase,
    Mode,
    OpenCase,
    Propose,
    SetMode,
)
from cmbs.substrate.kernel.insight.advice import advise_on_record
from cmbs.substrate.kernel.model import BeliefReading, Decision, ReasonCode, Stage
from cmbs.substrate.kernel.proposals import BeliefUnread
from cmbs.substrate.kernel.replay import read_space_event, readings_in
from cmbs.substrate.kernel.requests import SpaceLimits
from cmbs.substrate.kernel.words import CaseStatus, ProposalStatus
from tests.support.cases import (
    AGENT,
    ALLOWED,
    CAUSES,
    DEFERRED,
    HARNESS,
    KNOWN,
    NO_CASE,
    OTHER,
    OTHER_TOKEN,
    Incidents,
    equal,
    every,
    gated,
    outcome,
)
from tests.support.spaces import (
    ANY,
    ENCODER,
    ROOT,
    SECOND,
    SPACE,
    call,
    change_policy,
    constraint,
    delta,
    facts,
    raw,
)
from tests.support.subtests import for_each


@pytest.fixture
def incidents() -> Iterator[Incidents]:
    with closing(Incidents()) as found:
        yield found
        found.assert_replays()


# --- opening and closing ----------------------------------------------------------------------------------------------


@pytest.mark.req("CASE-OPEN-01")
@pytest.mark.parametrize(
    ("actor", "may"),
    [
        (ROOT, True),
        (HARNESS, True),
        (Actor(ActorKind.TOOL, "t", scopes=("belief:write", f"spaces:cases@{SPACE}")), True),
        (Actor(ActorKind.ENCODER, "e", roles=("harness",)), True),
        (Actor(ActorKind.ENCODER, "e", roles=("reader", "unheard of")), False),
        (Actor(ActorKind.TOOL, "t", scopes=("spaces:cases@another", "unheard of")), False),
        (ENCODER, False),
        (Actor(ActorKind.TOOL, "t", scopes=("spaces:propose",)), False),
        (AGENT, False),
        # Whatever its key says.
        (Actor(ActorKind.AGENT, "agent", authenticated=True, roles=("harness",), scopes=("spaces:cases",)), False),
    ],
)
def test_operators_and_keys_of_that_scope_open_and_close_cases_and_agents_never_do(
    incidents: Incidents, actor: Actor, may: bool
) -> None:
    assert may_manage_cases(SPACE, actor) is may
    incidents.begin("known")
    head = incidents.world.space.head
    for message in (OpenCase(incidents.declare("new"), ["agent"]), CloseCase("known")):
        result = incidents.world.say(message, actor).event.result
        assert (result.granted, result.reason_code) == ((True, None) if may else (False, "NOT_AUTHORISED"))
    cases_now = incidents.world.space.cases
    assert (set(cases_now), cases_now["known"].status) == (
        ({"known", "new"}, CaseStatus.CLOSED) if may else ({"known"}, CaseStatus.OPEN)
    )
    # A refusal is on record like everything else.
    assert incidents.world.space.head.seq == head.seq + 2


@pytest.mark.req("CASE-OPEN-01")
def test_a_case_says_what_it_was_opened_with(incidents: Incidents) -> None:
    answer = incidents.open_case("c", ["other", "agent", "agent"], services=["checkout"])
    case = answer.space.cases["c"]
    assert (case.attributes, case.agents) == (
        b'{"services":["checkout"]}',
        frozenset({"agent", "other"}),
    )
    assert (case.opened_by, case.seq, case.ts) == (HARNESS, answer.seq, answer.event.body.ts)
    closed = incidents.close_case("c", reason="solved").space.cases["c"]
    assert (closed.status, closed.closed_by, closed.reason) == (CaseStatus.CLOSED, ROOT, "solved")
    assert closed.closed_seq == answer.seq + 1


@pytest.mark.req("CASE-OPEN-02")
def test_the_same_case_again_is_the_same_event_and_another_one_a_conflict(incidents: Incidents) -> None:
    first = incidents.open_case("c", ["a", "b"], n=1)
    again = incidents.open_case("c", ["b", "a"], ROOT, n=1)
    assert (again.repeated, again.seq) == (True, first.seq)
    for agents, number in ((["a"], 1), (["a", "b"], 2)):
        with pytest.raises(Conflict, match="was admitted with other content"):
            incidents.open_case("c", agents, n=number)
    closed = incidents.close_case("c", reason="done")
    repeated = incidents.close_case("c", HARNESS, reason="done")
    assert (repeated.repeated, repeated.seq) == (True, closed.seq)
    with pytest.raises(Conflict, match="for another reason"):
        incidents.close_case("c", reason="other")
    with pytest.raises(RecordNotFound):
        incidents.close_case("unknown")


@pytest.mark.req("CASE-OPEN-03")
def test_a_case_names_an_agent_and_stays_within_its_limits() -> None:
    limits = SpaceLimits(case_attribute_bytes=20, agents_per_case=2)
    with closing(Incidents(limits=limits)) as incidents:
        for agents, attributes, error in (
            ([], {}, InvalidRequest),
            (["a", "b", "c"], {}, LimitExceeded),
            ([""], {}, InvalidRequest),
            (["a"], {"text": "x" * 20}, LimitExceeded),
            (["a"], [1], InvalidRequest),
        ):
            with pytest.raises(error):
                incidents.world.say(OpenCase(incidents.declare("c"), agents, raw(attributes)), ROOT)
        for message in (OpenCase("", ["a"]), CloseCase("")):
            with pytest.raises(InvalidRequest):
                incidents.world.say(message, ROOT)
        with pytest.raises(InvalidRequest):
            incidents.restart("p", "")
        assert incidents.open_case("c", ["a", "b"], t="x").event.result.granted


@pytest.mark.req("CASE-OPEN-03")
def test_there_are_only_so_many_open_cases(incidents: Incidents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MAX_OPEN_CASES", 1)
    incidents.open_case("c1")
    with pytest.raises(LimitExceeded, match="open_cases"):
        incidents.open_case("c2")
    incidents.close_case("c1")
    assert incidents.open_case("c2").event.result.granted


@pytest.mark.req("CASE-OPEN-02")
def test_a_closed_case_is_admitted_again_and_the_history_shows_both(incidents: Incidents) -> None:
    first = incidents.open_case("c", ["a", "agent"], n=1)
    incidents.close_case("c", reason="solved")
    again = incidents.open_case("c", n=2)
    assert (again.repeated, again.event.result.granted) == (False, True)
    case = again.space.cases["c"]
    assert (case.status, case.seq, case.closed_seq) == (CaseStatus.OPEN, again.seq, None)
    assert case.agents == {"agent"}
    assert outcome(incidents.restart("p", "c")) == DEFERRED
    verbs = [read_space_event(each).body.verb for each in incidents.log.read(f"space:{SPACE}")]
    assert verbs.count("OPEN_CASE") == 2
    assert first.seq < case.seq
    # A repeat under the key of the first admission stays that repeat.
    keyed = OpenCase(incidents.declare("d"), ["agent"])
    first = incidents.world.say(keyed, ROOT, idempotency_key="k")
    incidents.close_case("d")
    repeat = incidents.world.say(keyed, ROOT, idempotency_key="k")
    assert (repeat.repeated, repeat.seq, repeat.space.cases["d"].status) == (True, first.seq, CaseStatus.CLOSED)


@pytest.mark.req("CASE-OPEN-04")
def test_a_space_narrows_the_agents_of_a_case_and_never_widens_them(incidents: Incidents) -> None:
    incidents.declare("c", agents=["agent", "other"])
    with pytest.raises(InvalidRequest) as refused:
        incidents.open_case("c", ["agent", "stranger"])
    assert (refused.value.details["found"], refused.value.details["accepted"]) == (["stranger"], ["agent", "other"])
    incidents.open_case("c", ["agent"])
    assert outcome(incidents.restart("p", "c")) == DEFERRED
    assert outcome(incidents.restart("q", "c", OTHER, OTHER_TOKEN)) == NO_CASE
    incidents.close_case("c")
    whole = incidents.world.say(OpenCase("c"), ROOT).space.cases["c"]
    assert (whole.agents, whole.known_agents) == (frozenset[str](), frozenset({"agent", "other"}))
    assert outcome(incidents.restart("r", "c", OTHER, OTHER_TOKEN)) == DEFERRED
    with pytest.raises(InvalidRequest, match="lists no agents"):
        incidents.world.say(OpenCase(incidents.declare("free")), ROOT)
    with pytest.raises(SessionNotFound):
        incidents.world.say(OpenCase("nowhere", ["agent"]), ROOT)


@pytest.mark.req("CASE-OPEN-05")
def test_who_is_taken_off_the_list_of_a_case_may_not_act_under_it_any_more(incidents: Incidents) -> None:
    incidents.declare("c", agents=["agent"])
    incidents.world.say(OpenCase("c"), ROOT)
    assert outcome(incidents.restart("p", "c")) == DEFERRED
    assert outcome(incidents.restart("early", "c", OTHER, OTHER_TOKEN)) == NO_CASE
    incidents.belief.update_case("c", {"agents": ["other"]})
    incidents.rule_out("c", "cache", "dns")
    # What waited is decided again, and is no longer the agent's to do.
    assert incidents.status("p") is ProposalStatus.DENIED
    assert outcome(incidents.restart("q", "c")) == NO_CASE
    assert outcome(incidents.restart("r", "c", OTHER, OTHER_TOKEN)) == ALLOWED
    incidents.belief.update_case("c", {"agents": []})
    assert outcome(incidents.restart("s", "c", OTHER, OTHER_TOKEN)) == NO_CASE
    assert incidents.status("r") is ProposalStatus.COMMITTED
    assert incidents.ran == ["r"]
    assert check_space(incidents.log, SPACE).findings == []


@pytest.mark.req("CASE-OPEN-05")
def test_a_case_that_begins_to_list_agents_closes_to_those_that_it_does_not(incidents: Incidents) -> None:
    incidents.open_case("c", ["agent", "other"])
    assert outcome(incidents.restart("p", "c")) == DEFERRED
    incidents.belief.update_case("c", {"agents": ["other", "stranger"]})
    assert outcome(incidents.restart("q", "c")) == NO_CASE
    assert outcome(incidents.restart("r", "c", OTHER, OTHER_TOKEN)) == DEFERRED


@pytest.mark.req("CASE-OPEN-06")
def test_a_proposal_in_an_unknown_case_is_an_error_and_not_recorded(incidents: Incidents) -> None:
    incidents.begin("checkout-1")
    head = incidents.world.space.head
    with pytest.raises(RecordNotFound, match="did you mean `checkout-1`"):
        incidents.restart("p", "checkout-2")
    proposal = incidents.world.proposal(call("restart"), proposal_id="p", case_id="checkout-2")
    with pytest.raises(RecordNotFound):
        incidents.world.server.explain(SPACE, AGENT, proposal)
    assert incidents.world.space.head == head


@pytest.mark.req("CASE-OPEN-04")
def test_an_admission_is_not_decided_without_a_reading_of_its_session(incidents: Incidents) -> None:
    stamp = Stamp("e", "2026-01-01T00:00:00.000000Z")
    for belief in ([], [BeliefReading("another", found=True)]):
        with pytest.raises(BeliefUnread):
            decide(incidents.world.space, OpenCase("c", ["agent"], belief=belief), ROOT, stamp)


# --- one policy, several incidents ------------------------------------------------------------------------------------


@pytest.mark.req("CASE-GATE-01")
def test_of_three_incidents_at_a_time_only_the_action_of_the_solved_one_runs(incidents: Incidents) -> None:
    names = ["c1", "c2", "c3"]
    for case_id in names:
        incidents.begin(case_id)
        incidents.rule_out(case_id, "cache")
        assert outcome(incidents.restart(f"p of {case_id}", case_id)) == DEFERRED
    incidents.rule_out("c2", "dns")
    statuses = [incidents.status(f"p of {each}") for each in names]
    assert statuses == [ProposalStatus.PARKED, ProposalStatus.COMMITTED, ProposalStatus.PARKED]
    assert incidents.ran == ["p of c2"]
    assert check_space(incidents.log, SPACE).findings == []


@pytest.mark.req("CASE-GATE-01")
def test_a_call_may_be_tied_to_what_is_known_of_the_one_cause_that_is_left() -> None:
    tied = gated(when=every(KNOWN, equal("$args.service", {"ref": "$case.belief.survivor.component"})))
    with closing(Incidents({"constraint.restart": tied})) as incidents:
        for case_id, gone in (("c1", ["cache", "dns"]), ("c2", ["checkout", "dns"]), ("c3", CAUSES)):
            incidents.begin(case_id)
            incidents.rule_out(case_id, *gone)
            incidents.restart(case_id, case_id)
        assert [incidents.status(each) for each in ("c1", "c2", "c3")] == [
            ProposalStatus.COMMITTED,
            ProposalStatus.PARKED,
            # With nothing left, nothing is known of it.
            ProposalStatus.PARKED,
        ]
        assert incidents.ran == ["c1"]
        incidents.assert_replays()


def test_a_deferred_call_waits_for_its_case_and_for_the_session_of_that(incidents: Incidents) -> None:
    session_id = incidents.begin("c")
    incidents.restart("p", "c")
    parked = incidents.world.space.parked["p"]
    assert parked.waits_for == (f"$belief.{session_id}", "$case.c")
    only_record = gated(when=equal("$case.attributes.tier", 1))
    change_policy(incidents.world, {"constraint.restart": only_record})
    incidents.restart("q", "c")
    assert incidents.world.space.parked["q"].waits_for == ("$case.c",)
    # Read all the same, for whether the agent may act under the case.
    (reading,) = readings_in(read_space_event(incidents.log.read(f"space:{SPACE}")[-1]))
    assert reading.session_id == session_id


def test_a_call_that_waits_is_not_woken_before_its_session_moves(incidents: Incidents) -> None:
    incidents.begin("c")
    incidents.restart("p", "c")
    head = incidents.world.space.head
    for _ in range(3):
        incidents.world.server.keep()
    assert incidents.world.space.head == head
    incidents.rule_out("c", "cache")
    incidents.rule_out("c", "dns")
    assert incidents.status("p") is ProposalStatus.COMMITTED


# --- no case ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("CASE-GATE-02")
def test_without_an_open_case_of_the_agent_what_needs_one_is_not_allowed(incidents: Incidents) -> None:
    incidents.begin("mine")
    incidents.begin("theirs", [OTHER.id])
    incidents.begin("closed")
    for case_id in ("mine", "theirs", "closed"):
        incidents.rule_out(case_id, "cache", "dns")
    incidents.close_case("closed")
    incidents.declare("elsewhere")
    for number, without in enumerate((None, "elsewhere", "theirs", "closed")):
        decision = incidents.restart(f"p{number}", without)
        assert outcome(decision) == NO_CASE
        assert (decision.stage, decision.candidates[0].matched) == (Stage.CONSTRAINTS, ("constraint.restart",))
    assert outcome(incidents.restart("other", "theirs", OTHER, OTHER_TOKEN)) == ALLOWED
    assert outcome(incidents.restart("mine", "mine")) == ALLOWED
    assert [incidents.status(each) for each in ("other", "mine")] == [ProposalStatus.COMMITTED] * 2
    assert sorted(incidents.ran) == ["mine", "other"]


@pytest.mark.req("CASE-GATE-02", "GATES-REFUSAL-01")
def test_a_refusal_for_want_of_a_case_names_those_that_the_agent_may_act_under(incidents: Incidents) -> None:
    incidents.begin("theirs", [OTHER.id])

    def advise(proposal_id: str, case_id: str | None) -> Refusal:
        incidents.restart(proposal_id, case_id)
        space = incidents.world.space
        (refusal,) = advise_on_record(space, space.proposals[proposal_id], AGENT)
        return refusal

    none = advise("p", None)
    assert (none.code, none.field, none.found, none.accepted) == ("NO_CASE", "case_id", None, None)
    assert none.next == "ask an operator to open a case for it"
    shut = advise("o", "theirs")
    assert (shut.accepted, shut.next) == (
        None,
        f"ask an operator to admit the case, or to add `{AGENT.id}` to its `agents`",
    )
    incidents.begin("mine")
    other = advise("q", "theirs")
    assert (other.found, other.accepted) == ("theirs", ["mine"])
    assert other.message == f"case `theirs` is not open, or `{AGENT.id}` may not act under it"
    assert other.next == "name an open case that you may act under as `case_id`"


WITHOUT = [
    # Whatever the operators say of what is missing.
    gated(when={"op": "missing", "args": ["$case.id"]}),
    gated(when={"op": "not", "args": [equal("$case.belief.n_survivors", 3)]}),
    gated(when={"op": "any", "args": [equal("$tool.id", "restart"), equal("$case.id", "c")]}),
    gated(on_fail="ask"),
    gated(on_fail="block"),
]


@pytest.mark.req("CASE-GATE-02")
@for_each("allow", WITHOUT)
def test_an_allow_that_reads_a_case_permits_nothing_without_one(allow: str) -> None:
    with closing(Incidents({"constraint.restart": allow})) as incidents:
        assert outcome(incidents.restart("p")) == NO_CASE
        # It says nothing where another permission is given.
        change_policy(incidents.world, {"constraint.restart_too": constraint(subject={"tool_id": "restart"})})
        assert outcome(incidents.restart("q")) == ALLOWED


@pytest.mark.req("CASE-GATE-02")
@for_each("allow", WITHOUT)
def test_a_deny_that_reads_a_case_denies_without_one(allow: str) -> None:
    deny = msgspec.json.decode(allow) | {"effect": "deny", "reason": "because"}
    policy = {"constraint.any": ANY, "constraint.deny": msgspec.json.encode(deny).decode()}
    with closing(Incidents(policy)) as incidents:
        decision = incidents.restart("p")
        assert outcome(decision) == NO_CASE
        assert (decision.candidates[0].matched, decision.candidates[0].reason) == (("constraint.deny",), "because")


@pytest.mark.req("CASE-GATE-02")
def test_no_case_comes_after_what_is_malformed_and_before_what_is_denied() -> None:
    policy = {"constraint.any": ANY, "constraint.case": gated(effect="deny"), "constraint.no": gated(effect="deny")}
    policy["constraint.no"] = constraint(effect="deny", subject={"tool_id": "restart"})
    with closing(Incidents(policy)) as incidents:
        decision = incidents.restart("p")
        assert (outcome(decision), decision.candidates[0].matched) == (NO_CASE, ("constraint.case",))
    assert list(ReasonCode).index(ReasonCode.NO_CASE) == 1 + list(ReasonCode).index(ReasonCode.MALFORMED_CONSTRAINT)


def test_the_most_specific_permission_decides_whether_a_case_is_missing() -> None:
    policy = {
        "constraint.all": gated(subject=None),
        "constraint.restart": constraint(subject={"tool_id": "restart"}, when=equal("fact.x", 1)),
    }
    with closing(Incidents(policy)) as incidents:
        assert incidents.restart("p").reason_code is ReasonCode.ALLOW_UNMET


@pytest.mark.req("CASE-GATE-02")
def test_actors_of_other_kinds_act_under_any_open_case() -> None:
    gate = constraint(v=2, when={"op": "exists", "args": ["$case.id"]})
    with closing(Incidents({"constraint.all": gate})) as incidents:
        incidents.begin("c", [OTHER.id])
        assert outcome(incidents.world.decide(delta(x="1"), case_id="c")) == NO_CASE
        assert outcome(incidents.world.decide(facts(x="1"), actor=ENCODER, case_id="c")) == ALLOWED
        incidents.close_case("c")
        assert outcome(incidents.world.decide(facts(x="2"), actor=ENCODER, case_id="c")) == NO_CASE


def test_what_reads_no_case_needs_none_and_may_name_any() -> None:
    with closing(Incidents({"constraint.any": ANY})) as incidents:
        incidents.begin("c", [OTHER.id])
        for case_id in (None, "c", incidents.declare("elsewhere")):
            assert outcome(incidents.restart(f"p of {case_id}", case_id)) == ALLOWED


def test_observing_records_that_there_is_no_case_and_lets_the_call_run() -> None:
    with closing(Incidents()) as incidents:
        for operator in (ROOT, SECOND):
            incidents.world.say(SetMode(Mode.OBSERVE), operator)
        decision = incidents.restart("p")
        assert (decision.reason_code, decision.observed) == (ReasonCode.NO_CASE, True)
        assert incidents.status("p") is ProposalStatus.COMMITTED


# --- an agent and its own gate ----------------------------------------------------------------------------------------


@pytest.mark.req("CASE-GATE-03")
@pytest.mark.parametrize("source_id", ["agent", "another source"])
def test_what_an_agent_rules_out_itself_does_not_open_its_gate(incidents: Incidents, source_id: str) -> None:
    session_id = incidents.begin("c")
    incidents.rule_out("c", "cache", "dns", actor=AGENT, source_id=source_id)
    assert incidents.belief.query_belief(session_id).n_survivors == 1
    decision = incidents.restart("p", "c")
    assert outcome(decision) == DEFERRED
    found = {step.reference: step.found for step in decision.trace if step.reference is not None}
    assert (found["$case.belief.n_survivors"], found["$case.belief.independent.n_survivors"]) == ("1", "3")
    # Once another has seen it too, it counts, although nothing more is eliminated by that.
    incidents.rule_out("c", "cache")
    assert incidents.status("p") is ProposalStatus.COMMITTED
    assert check_space(incidents.log, SPACE).findings == []


@pytest.mark.req("CASE-GATE-03")
def test_what_has_no_author_counts_as_the_agents_own(incidents: Incidents) -> None:
    incidents.begin("c")
    incidents.rule_out("c", "cache", "dns", actor=None)
    assert outcome(incidents.restart("p", "c")) == DEFERRED


@pytest.mark.req("CASE-GATE-03")
def test_the_key_of_another_agent_opens_no_gate_either(incidents: Incidents) -> None:
    incidents.begin("c")
    incidents.rule_out("c", "cache", "dns", actor=AGENT)
    # Another agent is not of this case, whatever it holds; and the token of one is of no use to the other.
    assert outcome(incidents.restart("p", "c", OTHER, OTHER_TOKEN)) == NO_CASE
    assert incidents.restart("q", "c", OTHER, "token").reason_code is ReasonCode.CAPABILITY_OTHER_AGENT
    forged = incidents.world.proposal(call("restart", key="r"), actor=OTHER, proposal_id="r", case_id="c")
    assert _decide(incidents, forged, AGENT).reason_code is ReasonCode.FORGED_PROVENANCE
    assert incidents.ran == []
    assert set(incidents.world.space.proposals) == {"p", "q", "r"}


@pytest.mark.req("CASE-GATE-03")
def test_a_solved_incident_opens_no_other_one(incidents: Incidents) -> None:
    incidents.begin("solved", [OTHER.id])
    incidents.begin("open")
    incidents.rule_out("solved", "cache", "dns")
    assert outcome(incidents.restart("p", "solved")) == NO_CASE
    assert outcome(incidents.restart("q", "open")) == DEFERRED
    for message in (OpenCase(incidents.declare("own"), [AGENT.id]), CloseCase("open")):
        assert incidents.world.say(message, AGENT).event.result.reason_code == "NOT_AUTHORISED"
    assert outcome(incidents.restart("r", "own")) == NO_CASE
    assert incidents.status("q") is ProposalStatus.PARKED
    assert incidents.ran == []


def _decide(incidents: Incidents, proposal: Any, actor: Actor) -> Decision:
    decision = incidents.world.say(Propose(proposal), actor).event.result.decision
    assert decision is not None
    return decision
