"""Work that an agent can ask for ends at a bound in processor time, and when its caller has left."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from cmbs.api.errors import TransportError
from cmbs.http.work_queue import MAX_PIECES_PER_ACTOR, WorkQueue
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.insight.explanation import explain
from cmbs.substrate.kernel.insight.flips import smallest_flip
from cmbs.substrate.kernel.insight.lint import lint
from cmbs.substrate.kernel.insight.policy_tests import run_tests
from cmbs.substrate.kernel.insight.satisfiability import Scope, Term, never
from cmbs.substrate.kernel.policy.constraints import Constraint
from cmbs.substrate.kernel.policy.file import compile_file
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.words import FlipStatus
from cmbs.substrate.pace import Pace
from cmbs.testing.spaces import payload, predicate
from tests.support.policies import allow, ask, call, eq, op, pairs_for

pytestmark = pytest.mark.req("BOUND-WORK-01")

AGENT = Actor(ActorKind.AGENT, "agent", authenticated=True)


class Asked:
    """Lets work go on a number of times, and counts how often it was asked."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        self.left -= 1
        return self.left >= 0


def hard_rules(number: int) -> dict[str, str]:
    """Rules over the same eight facts, of which hardly any two can be told apart without a long search."""
    facts = [f"fact.k{place}" for place in range(8)]
    rules = {}
    for rule in range(number):
        pairs = [
            op("any", *(eq(each, (rule + shift + place) % 7) for place, each in enumerate(facts))) for shift in range(4)
        ]
        rules[f"r{rule}"] = allow("one", op("all", *pairs))
    return pairs_for(rules)


def test_lint_stops_when_it_is_told_to_and_says_that_it_is_not_complete() -> None:
    asked = Asked(500)
    report = lint(hard_rules(60), may_go_on=asked)
    assert not report.complete
    # Once it was told to stop it asks no more.
    assert asked.asked == 501
    assert lint(pairs_for({"x": allow("one")}), may_go_on=Asked(500)).complete


def test_lint_that_was_stopped_says_nothing_that_it_would_not_say_otherwise() -> None:
    pairs = pairs_for({"x": allow("one", op("all", eq("fact.a", 1), eq("fact.a", 2))), "y": allow("one")}) | {
        "policy.invariant.one": '{"op":"eq","args":["fact.a",1]}',
        "policy.invariant.two": '{"op":"eq","args":["fact.a",2]}',
        "constraint.gate": payload(
            v=2, subject={"tool_id": "one"}, when=predicate("schema", "$belief.S.n_survivors", {"maximum": 1})
        ),
        "constraint.text": payload(subject={"tool_id": "one"}, when=predicate("schema", "fact.n", {"maximum": 1})),
    }
    whole = lint(pairs, ["one"]).findings
    assert {each.rule.value for each in whole} >= {"never-true", "contradicting", "no-survivor", "text-passes"}
    stopped = [lint(pairs, ["one"], Asked(times)) for times in range(60)]
    assert not stopped[0].complete
    assert stopped[-1].complete
    for report in stopped:
        proved = [each for each in report.findings if each.rule.value != "shadowed"]
        assert all(each in whole for each in proved)


def test_a_proof_that_was_stopped_is_none() -> None:
    pairs = hard_rules(2)
    compiled = [each for _, each in compile_policy(pairs).compiled.values() if isinstance(each, Constraint)]
    terms = [Term(compiled[0].when.root), Term(compiled[1].when.root, holds=False)]  # type: ignore[union-attr]
    contradiction = [terms[0], Term(compiled[0].when.root, holds=False)]  # type: ignore[union-attr]
    asked = Asked(3)
    assert not never(contradiction, Scope(), pairs, may_go_on=asked)
    assert asked.asked == 4
    assert not never(terms, Scope(), pairs, may_go_on=Asked(0))


def test_an_explanation_says_how_far_it_came() -> None:
    facts = [f"fact.k{place}" for place in range(9)]
    asked = ask(compile_policy(pairs_for({"ok": allow("one", op("all", *(eq(each, 1) for each in facts)))})), [call()])
    found = smallest_flip(asked, may_go_on=Asked(100))
    assert (found.status, found.decisions) == (FlipStatus.UNKNOWN, 101)
    explained = explain(asked, ActorKind.OPERATOR, may_go_on=Asked(0))
    assert explained.flip.status is FlipStatus.UNKNOWN
    # What is asked about is decided and explained in any case.
    assert explained.because[0].reason_code == "ALLOW_UNMET"


def test_tests_that_were_not_decided_make_a_report_incomplete() -> None:
    proposal = {"candidates": [{"type": "state_delta", "set": {"goal.a": "1"}}]}
    tests = [{"name": name, "proposal": proposal, "expect": {"verdict": "deny"}} for name in "abc"]
    text = json.dumps({"format": 2, "rules": [], "tests": tests})
    compiled = compile_file(text.encode(), "policy.json")
    report = run_tests(compiled, Asked(2))
    assert (len(report.results), report.complete) == (2, False)
    assert run_tests(compiled).complete


# --- the pace ---------------------------------------------------------------------------------------------------------


class Processor:
    """A processor whose time passes by a millisecond whenever it is looked at, and not while it rests."""

    def __init__(self) -> None:
        self._ticks = count()
        self.rested: list[float] = []

    def used(self) -> float:
        return next(self._ticks) / 1_000


def pace_of(seconds: float) -> tuple[Pace, Processor]:
    processor = Processor()
    pace = Pace(seconds, used=processor.used, rest=processor.rested.append)
    pace.begin()
    return pace, processor


def test_work_stops_when_its_processor_time_is_used_and_rests_as_long_as_it_works() -> None:
    pace, processor = pace_of(0.1)
    went_on = sum(1 for _ in iter(pace.may_go_on, False))
    assert 70 < went_on <= 100
    assert sum(processor.rested) == pytest.approx(0.1, rel=0.25)
    assert not pace.may_go_on()
    assert pace.has_stopped


def test_work_stops_when_its_caller_has_left() -> None:
    pace, _ = pace_of(100)
    assert pace.may_go_on()
    pace.leave()
    assert not pace.may_go_on()


# --- the queue --------------------------------------------------------------------------------------------------------


@pytest.fixture
def queue() -> Iterator[WorkQueue]:
    made = WorkQueue(3, 60_000)
    yield made
    made.close()


def request_of(actor: Actor, gone: Callable[[], Any]) -> Any:
    return SimpleNamespace(actor=actor, gone=gone)


async def never_gone() -> None:
    await asyncio.Event().wait()


def test_work_in_a_queue_stops_when_its_caller_leaves(queue: WorkQueue) -> None:
    begun = threading.Event()

    def work(pace: Pace) -> int:
        begun.set()
        return sum(1 for _ in iter(pace.may_go_on, False))

    async def leave() -> None:
        await asyncio.to_thread(begun.wait, 60)

    async def run() -> None:
        # The answer reaches no caller; that there is one at all shows that the work has ended.
        assert await queue.run(request_of(AGENT, leave), work) > 0
        begun.clear()
        asked = asyncio.ensure_future(queue.run(request_of(AGENT, never_gone), work))
        await asyncio.to_thread(begun.wait, 60)
        asked.cancel()
        assert await queue.run(request_of(AGENT, never_gone), lambda _: "next") == "next"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_work_whose_caller_left_before_it_began_is_not_done(queue: WorkQueue) -> None:
    go_on = threading.Event()

    left = threading.Event()

    async def at_once() -> None:
        left.set()

    async def run() -> None:
        first = asyncio.ensure_future(queue.run(request_of(AGENT, never_gone), lambda _: go_on.wait(60)))
        await asyncio.sleep(0)
        late = asyncio.ensure_future(queue.run(request_of(AGENT, at_once), lambda _: pytest.fail("it was done")))
        await asyncio.to_thread(left.wait, 60)
        # The queue hears of it in the same turn of the loop, before it goes on with what was waiting.
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(TransportError, match="before the work began"):
            await late
        assert await first

    asyncio.run(asyncio.wait_for(run(), 60))


def test_one_actor_has_its_share_of_a_queue_and_no_more(queue: WorkQueue) -> None:
    go_on = threading.Event()
    other = Actor(ActorKind.AGENT, "other", authenticated=True)

    async def run() -> None:
        ask_as = [AGENT] * (MAX_PIECES_PER_ACTOR + 1) + [other]
        made = [
            asyncio.ensure_future(queue.run(request_of(actor, never_gone), lambda _: go_on.wait(60)))
            for actor in ask_as
        ]
        with pytest.raises(TransportError) as refused:
            await made[MAX_PIECES_PER_ACTOR]
        assert refused.value.details["limit"] == "analyses_of_one_actor"
        go_on.set()
        assert all([await each for each in made if each is not made[MAX_PIECES_PER_ACTOR]])

    asyncio.run(asyncio.wait_for(run(), 60))
