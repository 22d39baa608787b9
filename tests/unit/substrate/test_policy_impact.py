"""Another policy on the same past: what flips, in which order, with what it would have touched."""

import json
from typing import Any

import pytest

from cmbs.errors import LedgerCorrupt
from cmbs.messages import ActorKind
from cmbs.substrate.kernel.events import Approve, Wake
from cmbs.substrate.kernel.insight.explanation import explain, recall
from cmbs.substrate.kernel.insight.findings import TimelinePart
from cmbs.substrate.kernel.insight.impact import Impact, impact_of
from cmbs.substrate.kernel.model import StateDelta, Verdict
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import FlipKind
from tests.support.policies import allow, deny, eq, op
from tests.support.spaces import AGENT, ENCODER, ENGINE, SECOND, SPACE, World, call, caller_tool

DELTAS = allow(None, op("missing", "$tool.id"))


def pairs(**constraints: Any) -> dict[str, str]:
    return {f"constraint.{name}": json.dumps(content) for name, content in constraints.items()}


def world(**constraints: Any) -> World:
    made = World()
    made.open(caller_tool("one", writes=False), caller_tool("two", writes=False), policy=pairs(**constraints))
    return made


def impact(made: World, **constraints: Any) -> Impact:
    return impact_of(SPACE, made.server.stored_entries(SPACE), compile_policy(pairs(**constraints)))


def impact_on(found: Impact) -> list[tuple[str, str]]:
    return [(flip.kind.value, flip.proposal_id) for flip in found.flips]


def test_the_same_policy_flips_nothing() -> None:
    made = world(d=DELTAS, one=allow("one"))
    made.propose(call("one", key=None))
    made.propose(call("two", key=None))
    found = impact(made, d=DELTAS, one=allow("one"))
    assert (found.decisions, found.flips, found.otherwise) == (2, [], 0)
    assert found.old_policy_hash == found.new_policy_hash


def test_what_would_now_be_let_through_comes_first_with_what_it_touches() -> None:
    made = world(d=DELTAS, one=allow("one"))
    made.propose(call("one", key=None), proposal_id="allowed")
    made.propose(call("two", key=None), StateDelta({"goal.x": "1"}), proposal_id="denied")
    found = impact(made, d=DELTAS, two=allow("two"))
    assert impact_on(found) == [("deny→allow", "denied"), ("allow→deny", "allowed")]
    first, second = found.flips
    assert (first.touched.changes.set, first.touched.tool_ids) == ({"goal.x": "1"}, ["two"])
    assert (second.touched.changes.set, second.touched.tool_ids) == ({}, ["one"])
    assert (first.before.verdict, first.after.verdict) == (Verdict.DENY, Verdict.ALLOW)
    assert first.actor.id == AGENT.id
    counts = {kind: number for kind, number in found.counts().items() if number}
    assert counts == {"deny→allow": 1, "allow→deny": 1}


def test_each_kind_of_flip_has_its_place() -> None:
    made = world(d=DELTAS, one=allow("one", eq("fact.a", "p"), on_fail="defer"), two=allow("two"))
    made.propose(call("one", key=None), proposal_id="deferred")
    made.propose(call("two", key=None), proposal_id="allowed")
    assert impact_on(
        impact(made, d=DELTAS, one=allow("one"), two=allow("two", eq("fact.a", "p"), on_fail="defer"))
    ) == [("defer→allow", "deferred"), ("allow→defer", "allowed")]
    assert impact_on(impact(made, d=DELTAS, two=allow("two"))) == [("defer→deny", "deferred")]
    denied = world(d=DELTAS)
    denied.propose(call("one", key=None), proposal_id="denied")
    found = impact(denied, d=DELTAS, one=allow("one", eq("fact.a", "p"), on_fail="defer"))
    assert impact_on(found) == [("deny→defer", "denied")]
    assert found.flips[0].touched.tool_ids == []
    assert [kind.value for kind in FlipKind][:3] == ["deny→allow", "defer→allow", "deny→defer"]


def test_the_same_verdict_for_another_reason_is_counted() -> None:
    made = world(d=DELTAS)
    made.propose(call("one", key=None))
    assert impact(made, d=DELTAS, no=deny("one")).otherwise == 1


def test_history_stays_what_it_was() -> None:
    made = world(d=DELTAS, one=allow("one", eq("fact.a", "p")))
    made.propose(call("one", key=None), proposal_id="before")
    made.propose(StateDelta({"fact.a": "q"}), actor=ENCODER, proposal_id="fact")
    made.propose(call("one", key=None), proposal_id="after")
    # Under the new policy the fact would have been refused; what came after it is still decided on it.
    found = impact(made, one=allow("one", eq("fact.a", "q")))
    assert impact_on(found) == [("deny→allow", "after"), ("allow→deny", "fact")]


def world_of_what_waited() -> World:
    """One proposal was parked and woken, another one asked for and approved."""
    made = world(
        d=DELTAS, one=allow("one", eq("fact.a", "p"), on_fail="defer"), two=allow("two"), ask=deny("two", on_fail="ask")
    )
    made.propose(call("one", key=None), proposal_id="parked")
    (asked,) = made.propose(call("two", key=None), proposal_id="asked").event.result.asked
    made.propose(StateDelta({"fact.a": "p"}), actor=ENCODER, proposal_id="fact")
    made.say(Wake("parked", ["fact.a"]), ENGINE)
    made.say(Approve(asked.approval_id), SECOND)
    return made


def test_what_was_woken_and_what_was_approved_is_decided_again_too() -> None:
    made = world_of_what_waited()
    entries = made.server.stored_entries(SPACE)
    verbs = [read_space_event(stored).body.verb for stored in entries]
    assert {"WAKE", "APPROVE"} <= set(verbs)
    same = {"d": DELTAS, "two": allow("two"), "ask": deny("two", on_fail="ask")}
    # An approval counts where what asked for it says the same; where it says something else, it was not given.
    assert impact_on(impact(made, **same, one=allow("one"))) == [("defer→allow", "parked")]
    harder = {**same, "ask": deny("two", on_fail="ask", reason="twice")}
    found = impact(made, **harder, one=allow("one", eq("fact.a", "p"), on_fail="defer"))
    assert impact_on(found) == [("allow→defer", "asked")]
    assert found.flips[0].verb == "APPROVE"
    assert impact_on(impact(made, d=DELTAS, two=allow("two"))) == [
        ("defer→allow", "asked"),
        ("allow→deny", "parked"),
        ("defer→deny", "parked"),
    ]


def test_approvals_with_uses_left_are_taken_over() -> None:
    made = world(d=DELTAS, two=allow("two"), ask=deny("two", on_fail="ask"))
    made.propose(call("two", key=None), proposal_id="asked")
    approval_id = made.server.current(SPACE).proposals["asked"].approval_ids[0]
    made.say(Approve(approval_id, uses=3), SECOND)
    made.propose(call("two", key=None), proposal_id="again")
    same = {"two": allow("two"), "ask": deny("two", on_fail="ask")}
    assert impact_on(impact(made, **same, d=DELTAS, other=allow("one"))) == []


def test_the_timeline_has_every_decision_by_its_verdict_from_the_first_to_the_last() -> None:
    made = world(d=DELTAS, one=allow("one"))
    assert impact(made, d=DELTAS).timeline is None
    made.propose(call("one", key=None))
    alone = impact(made, d=DELTAS).timeline
    assert alone is not None
    assert alone.first_ts == alone.last_ts
    assert alone.parts == [TimelinePart(0, allow=1, defer=0, deny=0)]
    for _ in range(3):
        made.propose(call("two", key=None))
    timeline = impact(made, d=DELTAS).timeline
    assert timeline is not None
    assert timeline.first_ts == alone.first_ts < timeline.last_ts
    assert timeline.parts[0] == alone.parts[0]
    assert timeline.parts[-1] == TimelinePart(timeline.n_parts - 1, allow=0, defer=0, deny=1)
    assert sum(each.deny for each in timeline.parts) == 3


def test_a_log_that_does_not_verify_is_no_past() -> None:
    made = world(d=DELTAS)
    entries = made.server.stored_entries(SPACE)
    with pytest.raises(LedgerCorrupt):
        impact_of(SPACE, entries[1:], compile_policy({}))
    with pytest.raises(LedgerCorrupt, match="empty"):
        impact_of(SPACE, [], compile_policy({}))


def test_every_recorded_decision_can_be_explained_as_it_was_made() -> None:
    made = world_of_what_waited()
    space: Space | None = None
    explained = 0
    for stored in made.server.stored_entries(SPACE):
        before, event = space, read_space_event(stored)
        space = catch_up_space(SPACE, space, [stored])
        if before is None or event.result.decision is None:
            continue
        explanation = explain(recall(before, event), ActorKind.OPERATOR)
        recorded = event.result.decision
        assert (explanation.decision.verdict, explanation.decision.reason_code) == (
            recorded.verdict,
            recorded.reason_code,
        )
        explained += 1
    assert explained >= 4


def test_an_event_that_decided_nothing_has_nothing_to_explain() -> None:
    made = world(d=DELTAS)
    entries = made.server.stored_entries(SPACE)
    space = catch_up_space(SPACE, None, entries[:1])
    assert space is not None
    with pytest.raises(TypeError, match="REGISTER_TOOL decides no proposal"):
        recall(space, read_space_event(entries[1]))
