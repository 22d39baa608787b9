"""Arbitration as laws: deny wins, order never matters, absent or malformed denies, the same gives the same bytes."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cmbs.ledger import canonical
from cmbs.messages import Actor
from cmbs.substrate.kernel.arbitration.arbitrate import Arbitration, arbitrate, belief_sessions
from cmbs.substrate.kernel.arbitration.conflicts import after
from cmbs.substrate.kernel.events import Mode
from cmbs.substrate.kernel.model import (
    BeliefReading,
    CandidateDecision,
    Decision,
    Failure,
    Proposal,
    ReasonCode,
    StateDelta,
    Verdict,
)
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.state import Space
from cmbs.testing.spaces import AGENT, NOW, payload, proposal
from cmbs.testing.strategies.substrate import (
    MALFORMED,
    actors,
    any_spaces,
    calls,
    candidates,
    constraints,
    deltas,
    invariants,
    proposals,
    readings,
)

Belief = Mapping[str, BeliefReading]


def decide_on(kept: Space, asked: Proposal, belief: Belief, actor: Actor = AGENT) -> Arbitration:
    return arbitrate(kept, asked, actor, NOW, belief)


def with_policy(kept: Space, pairs: Mapping[str, str]) -> Space:
    return msgspec.structs.replace(kept, policy=compile_policy(pairs))


def placeless(decided: CandidateDecision) -> CandidateDecision:
    return msgspec.structs.replace(decided, candidate=0)


def is_permitted(decision: Decision) -> bool:
    return decision.verdict is Verdict.ALLOW


@pytest.mark.req("SS01-DENY-WINS")
@given(any_spaces(), candidates(), readings(), st.sampled_from(["", "a", "zzz"]))
def test_a_deny_that_matches_wins_wherever_it_stands_among_the_others(
    kept: Space, drawn: list[Any], belief: Belief, name: str
) -> None:
    assume(drawn)
    denying = with_policy(kept, {**kept.policy.pairs, f"constraint.{name}deny": payload(effect="deny")})
    decision = decide_on(denying, proposal(*drawn), belief).decision
    assert not is_permitted(decision)
    assert all(each.verdict is not Verdict.ALLOW for each in decision.candidates)


@given(any_spaces(), proposals(), readings(), constraints(), st.sampled_from(["constraint.0", "constraint.zz"]))
def test_one_more_denial_never_permits_more(kept: Space, asked: Proposal, belief: Belief, text: str, key: str) -> None:
    more = payload(**(json.loads(text) | {"effect": "deny"}))
    before = decide_on(kept, asked, belief).decision
    after_it = decide_on(with_policy(kept, {**kept.policy.pairs, key: more}), asked, belief).decision
    assert is_permitted(before) or not is_permitted(after_it)
    for one, other in zip(before.candidates, after_it.candidates, strict=True):
        assert one.reason_code in {ReasonCode.ALLOWED, ReasonCode.HELD_BACK} or other.verdict is not Verdict.ALLOW


@pytest.mark.req("SS01-ORDER-FREE")
@given(any_spaces(), proposals(), readings(), actors(), st.randoms())
def test_the_order_of_candidates_never_matters(
    kept: Space, asked: Proposal, belief: Belief, actor: Actor, random: Any
) -> None:
    order = list(range(len(asked.candidates)))
    random.shuffle(order)
    shuffled = msgspec.structs.replace(asked, candidates=[asked.candidates[place] for place in order])
    one, other = decide_on(kept, asked, belief, actor), decide_on(kept, shuffled, belief, actor)
    for name in ("verdict", "reason_code", "failure", "stage"):
        assert getattr(one.decision, name) == getattr(other.decision, name)
    assert [placeless(one.decision.candidates[place]) for place in order] == [
        placeless(decided) for decided in other.decision.candidates
    ]
    assert [msgspec.structs.replace(one.candidates[place], candidate=0) for place in order] == [
        msgspec.structs.replace(each, candidate=0) for each in other.candidates
    ]
    assert (one.changes, one.parks, one.waits_for) == (other.changes, other.parks, other.waits_for)


@given(any_spaces(), proposals(), readings(), st.randoms())
def test_the_order_of_constraints_never_matters(kept: Space, asked: Proposal, belief: Belief, random: Any) -> None:
    shuffled = list(kept.policy.pairs.items())
    random.shuffle(shuffled)
    other = with_policy(kept, dict(shuffled))
    assert decide_on(kept, asked, belief) == decide_on(other, asked, belief)


@pytest.mark.req("SS01-ABSENT-DENIES")
@given(any_spaces(), candidates(), readings(), st.booleans())
def test_without_a_constraint_nothing_is_permitted(kept: Space, drawn: list[Any], belief: Belief, atomic: bool) -> None:
    decision = decide_on(with_policy(kept, {}), proposal(*drawn, atomic=atomic), belief).decision
    assert decision.verdict is Verdict.DENY


@pytest.mark.req("SS01-ABSENT-DENIES")
@given(any_spaces(), calls(), readings(), st.sampled_from(MALFORMED) | st.text(max_size=30))
def test_a_constraint_that_cannot_be_read_denies(kept: Space, made: Any, belief: Belief, text: str) -> None:
    # Those with a subject that can be read are about this tool or everything.
    about_this = msgspec.structs.replace(made, tool_id="fs.write")
    broken = with_policy(kept, {**kept.policy.pairs, "constraint.broken": text})
    assert decide_on(broken, proposal(about_this), belief).decision.verdict is not Verdict.ALLOW


@pytest.mark.req("SS01-DETERMINISTIC")
@given(any_spaces(), proposals(), readings(), actors())
def test_the_same_gives_the_same_bytes(kept: Space, asked: Proposal, belief: Belief, actor: Actor) -> None:
    again = with_policy(kept, dict(kept.policy.pairs))
    first, second = (decide_on(each, asked, belief, actor).decision for each in (kept, again))
    assert canonical.encode_frame(first) == canonical.encode_frame(second)
    assert msgspec.json.decode(canonical.encode_frame(first), type=Decision) == first


@pytest.mark.req("SS01-FAILURES-DO-NOTHING")
@given(any_spaces(), proposals(), readings(), actors())
def test_nothing_that_fails_runs_or_commits(kept: Space, asked: Proposal, belief: Belief, actor: Actor) -> None:
    enforcing = msgspec.structs.replace(kept, mode=Mode.ENFORCE)
    ruling = decide_on(enforcing, asked, belief, actor)
    for decided, ruled in zip(ruling.decision.candidates, ruling.candidates, strict=True):
        assert ruled.runs is (decided.verdict is Verdict.ALLOW)
        assert (decided.failure is None) is (decided.verdict is Verdict.ALLOW)
        assert ruled.runs or not ruled.used_approvals
    written = {
        key
        for candidate, ruled in zip(asked.candidates, ruling.candidates, strict=True)
        if isinstance(candidate, StateDelta) and ruled.runs
        for key in (*candidate.set, *candidate.unset)
    }
    assert {*ruling.changes.set, *ruling.changes.unset} <= written
    assert is_permitted(ruling.decision) is any(ruled.runs for ruled in ruling.candidates)
    if asked.atomic:
        assert len({ruled.runs for ruled in ruling.candidates}) <= 1


@given(any_spaces(), proposals(), readings())
def test_observing_says_what_enforcing_would_do(kept: Space, asked: Proposal, belief: Belief) -> None:
    enforcing = msgspec.structs.replace(kept, mode=Mode.ENFORCE)
    observing = msgspec.structs.replace(kept, mode=Mode.OBSERVE)
    observed = decide_on(observing, asked, belief)
    enforced = decide_on(enforcing, asked, belief)
    assert msgspec.structs.replace(observed.decision, observed=False) == enforced.decision
    for one, other in zip(enforced.candidates, observed.candidates, strict=True):
        assert other.runs or not one.runs
    assert not observed.parks
    assert not any(each.asks for each in observed.candidates)


@given(any_spaces(), proposals(), readings())
def test_only_sessions_that_were_announced_are_read(kept: Space, asked: Proposal, belief: Belief) -> None:
    announced = belief_sessions(kept, asked, AGENT)
    only = {session_id: reading for session_id, reading in belief.items() if session_id in announced}
    assert decide_on(kept, asked, only) == decide_on(kept, asked, belief)


@given(any_spaces(), proposals(), readings())
def test_a_proposal_that_waits_can_be_told_what_for_and_others_do_not(
    kept: Space, asked: Proposal, belief: Belief
) -> None:
    ruling = decide_on(kept, asked, belief)
    waiting = [each for each in ruling.decision.candidates if each.failure is Failure.DEFER]
    assert not ruling.parks or waiting
    assert not ruling.parks or not asked.atomic or ruling.decision.failure is Failure.DEFER
    assert not ruling.waits_for or ruling.parks
    assert set(ruling.waits_for) <= {key for each in waiting for key in each.waits_for}
    assert ruling.decision.reason_code is not ReasonCode.STALE_SNAPSHOT or not asked.atomic or not ruling.parks
    for decided, ruled in zip(ruling.decision.candidates, ruling.candidates, strict=True):
        assert not ruled.asks or decided.failure is Failure.ASK
        assert not ruled.asks or len(ruled.args_hash) == 64


@given(any_spaces(), st.lists(deltas(), min_size=1, max_size=3), invariants(), readings())
def test_what_was_committed_leaves_a_state_that_it_could_be_committed_on_again(
    kept: Space, drawn: list[StateDelta], invariant: str, belief: Belief
) -> None:
    pairs = {"constraint.all": payload(), "policy.exclusive.g": '["goal.a","goal.b"]', "policy.invariant.i": invariant}
    enforcing = msgspec.structs.replace(with_policy(kept, pairs), mode=Mode.ENFORCE)
    ruling = decide_on(enforcing, proposal(*drawn, atomic=False), belief)
    then = msgspec.structs.replace(enforcing, state=after(enforcing.state, ruling.changes))
    again = decide_on(then, proposal(*drawn, atomic=False), belief)
    assert again.decision.verdict == ruling.decision.verdict
    if is_permitted(ruling.decision):
        assert not again.changes.set
        assert not again.changes.unset
    else:
        assert then.state == enforcing.state
