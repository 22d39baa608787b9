"""Laws of belief that hold for any history, and the rules against a plain model of them with sets and dicts."""

from __future__ import annotations

import json
import pickle
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UnsetType

from cmbs.belief.kernel.events import Event, Repeat
from cmbs.belief.kernel.session import decide
from cmbs.belief.kernel.views import obligations, seq_at, snapshot, survivors_at
from cmbs.errors import BeliefServerError, ErrorCode, EventNotFound
from cmbs.ledger import to_audit_entry
from cmbs.messages import BeliefSnapshot, Verb
from cmbs.testing import Call, History
from cmbs.testing.strategies import belief as strategies
from tests.support.kernel import Line, describe, line_of, message_of, replay_steps


class Expected(NamedTuple):
    """What a message comes to: an error code, the seq that it repeats, or an event with this content."""

    error: str | None = None
    repeats: int | None = None
    applied: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    outcome: dict[str, Any] | None = None
    notes: bool = False


class Model:
    """The rules once more, as a reader of the specification would write them down: slow and plain."""

    def __init__(self, history: History) -> None:
        self.policy = history.policy
        self.universe = set(history.hypotheses)
        self.survivors = set(history.hypotheses)
        self.observations: dict[tuple[str, str], tuple[int, set[str]]] = {}
        self.keys: dict[str, tuple[int, str]] = {}
        # Entered so far, in order: threshold, eliminations so far, still open.
        self.obligations: dict[str, tuple[int, int, bool]] = {}
        self.conclusions: list[str] = []
        self.terminated = False
        self.seq = 0

    def tell(self, call: Call) -> Expected:
        arguments = dict(call.arguments)
        if call.verb is Verb.ELIMINATE:
            arguments["eliminated"] = sorted(set(arguments["eliminated"]))
        body = json.dumps([call.verb, arguments], sort_keys=True)
        if call.idempotency_key in self.keys:
            seq, first = self.keys[call.idempotency_key]
            return Expected(repeats=seq) if first == body else Expected(error=ErrorCode.CONFLICT)
        expected = self.eliminate(arguments) if call.verb is Verb.ELIMINATE else self.other(call.verb, arguments)
        if expected.error is None and expected.repeats is None:
            self.seq += 1
            if call.idempotency_key is not None:
                self.keys[call.idempotency_key] = (self.seq, body)
        return expected

    def eliminate(self, arguments: dict[str, Any]) -> Expected:
        key, asked = (arguments["source_id"], arguments["observation_id"]), set(arguments["eliminated"])
        if key in self.observations:
            seq, first = self.observations[key]
            return Expected(repeats=seq) if first == asked else Expected(error=ErrorCode.CONFLICT)
        if self.terminated:
            return Expected(error=ErrorCode.SESSION_TERMINATED)
        if self.policy.validate_hypotheses and not asked <= self.universe:
            return Expected(error=ErrorCode.INVALID_HYPOTHESIS_ID)
        applied = asked & self.survivors
        self.survivors -= applied
        self.observations[key] = (self.seq + 1, asked)
        for name, (threshold, count, is_open) in self.obligations.items():
            self.obligations[name] = (threshold, count + len(applied) if is_open else count, is_open)
        return Expected(applied=tuple(sorted(applied)), ignored=tuple(sorted(asked - applied)))

    def other(self, verb: Verb, arguments: dict[str, Any]) -> Expected:
        if self.terminated:
            return Expected(error=ErrorCode.SESSION_TERMINATED)
        if verb is Verb.ENTER_OBLIGATION:
            return self.enter(arguments["obligation_id"], arguments["min_total_eliminations"])
        if verb is Verb.REQUEST_EXIT:
            return self.leave(arguments["obligation_id"])
        if verb is Verb.DECLARE_CONCLUSION:
            return self.conclude(arguments["conclusion_id"])
        context = arguments["context"]
        return self.terminate(forced=context is not None and context.get("force") is True)

    def enter(self, name: str, threshold: int) -> Expected:
        if name in self.obligations:
            return Expected(error=ErrorCode.CONFLICT)
        self.obligations[name] = (threshold, 0, True)
        return Expected()

    def leave(self, name: str) -> Expected:
        if name not in self.obligations:
            return Expected(error=ErrorCode.OBLIGATION_NOT_FOUND)
        threshold, count, is_open = self.obligations[name]
        if not is_open:
            return Expected(outcome={"approved": False, "reason": "obligation_not_active"})
        if count < threshold:
            return Expected(outcome={"approved": False, "reason": "below_threshold"})
        self.obligations[name] = (threshold, count, False)
        return Expected(outcome={"approved": True, "reason": "approved"})

    def conclude(self, name: str) -> Expected:
        if self.active():
            return Expected(outcome={"accepted": False, "reason": "obligation_active"})
        rule, alive = self.policy.conclusions, name in self.survivors
        wrong = {"survivors": not alive, "decided": not alive, "not_eliminated": not alive and name in self.universe}
        if not isinstance(rule, UnsetType) and wrong.get(rule, False):
            return Expected(outcome={"accepted": False, "reason": "not_a_survivor"})
        if rule == "decided" and len(self.survivors) > 1:
            return Expected(outcome={"accepted": False, "reason": "not_singleton"})
        self.conclusions.append(name)
        return Expected(outcome={"accepted": True, "reason": "accepted"})

    def terminate(self, *, forced: bool) -> Expected:
        window = self.policy.stability_window
        tail = self.conclusions[len(self.conclusions) - window :] if window <= len(self.conclusions) else []
        if self.active():
            reason = "obligation_active"
        elif len(self.survivors) != 1:
            reason = "not_singleton"
        elif window and len(set(tail)) != 1:
            reason = "conclusion_unstable"
        else:
            reason = "approved"
        denied = forced and reason != "approved"
        if denied and self.policy.allow_force:
            reason, denied = "forced", False
        self.terminated = reason in {"approved", "forced"}
        return Expected(outcome={"approved": self.terminated, "reason": reason}, notes=denied)

    def active(self) -> list[str]:
        return [name for name, (_, _, is_open) in self.obligations.items() if is_open]


def tell(line: Line, call: Call) -> Expected:
    """What the kernel makes of a call, in the words of the model."""
    try:
        decided = line.tell(message_of(call), call.idempotency_key)
    except BeliefServerError as exc:
        return Expected(error=exc.code)
    if isinstance(decided, Repeat):
        return Expected(repeats=decided.seq)
    entry = to_audit_entry(decided.stored)
    ignored: tuple[str, ...] = ()
    if call.verb is Verb.ELIMINATE:
        *_, (_, record) = line.session.observations
        assert list(record.applied) == entry.delta_eliminated
        ignored = record.ignored
    return Expected(None, None, tuple(entry.delta_eliminated), ignored, entry.outcome, entry.notes is not None)


@pytest.mark.req(
    "BS-4.1-MONO-01", "BS-2.1-ELIM-04", "BS-1.1-MODEL-01", "ARCH-2-05", "BS-2.1-QUERY-01", "BS-2.2-SNAP-04"
)
@given(strategies.histories())
def test_every_answer_and_every_state_is_what_the_plain_model_says(history: History) -> None:
    line, model = line_of(history), Model(history)
    for call in history.calls:
        before = set(line.session.survivors)
        assert tell(line, call) == model.tell(call)
        session = line.session
        assert set(session.survivors) == model.survivors <= before
        assert [(view[0], view[2], view[3], view[1] == "active") for view in obligations(session)] == [
            (name, *state) for name, state in model.obligations.items()
        ]
        active = model.active()
        assert snapshot(session) == BeliefSnapshot(
            session.session_id,
            history.ontology,
            sorted(model.survivors),
            model.terminated,
            active[-1] if active else None,
            to_audit_entry(line.log[-1]).event_id,
        )


@pytest.mark.req("ARCH-2-01")
@given(strategies.histories(min_calls=1))
def test_deciding_changes_nothing_and_says_the_same_again(history: History) -> None:
    line = line_of(history)
    for call in history.calls:
        message, stamp = message_of(call), line.stamp(call.idempotency_key)
        # All that the session reaches, private parts too: a cache that a decision filled would show.
        before = pickle.dumps(line.session)
        answers: list[object] = []
        for _ in range(2):
            try:
                decided = decide(line.session, message, stamp)
            except BeliefServerError as exc:
                answers.append(str(exc))
            else:
                answers.append(decided.stored if isinstance(decided, Event) else decided)
        assert pickle.dumps(line.session) == before
        assert answers[0] == answers[1]
        tell(line, call)


@pytest.mark.req("ARCH-2-01", "BS-2.2-SNAP-05")
@given(strategies.histories(min_calls=1))
def test_an_earlier_state_stays_what_it_was_whatever_comes_after_it(history: History) -> None:
    line = line_of(history)
    seen = [describe(line.session)]
    for call in history.calls:
        tell(line, call)
        if len(line.states) > len(seen):
            seen.append(describe(line.session))
    assert [describe(state) for state in line.states] == seen


@pytest.mark.req("ARCH-2-06", "BS-4.1-REPLAY-01")
@given(strategies.histories())
def test_the_belief_at_any_place_in_the_log_is_that_of_its_prefix(history: History) -> None:
    line = replay_steps(history)
    for seq, state in enumerate(line.states):
        then = snapshot(line.session, seq)
        assert then == snapshot(state)
        survivors = survivors_at(line.session, seq)
        assert (list(survivors), survivors.root) == (list(state.survivors), state.survivors.root)
        event_id = to_audit_entry(line.log[seq]).event_id
        assert seq_at(line.session, event_id) == seq_at(line.session, seq) == seq
    assert seq_at(line.session, None) == line.session.head.seq


@given(strategies.histories(max_calls=4), st.integers(1, 5))
def test_there_is_no_belief_outside_the_log(history: History, far: int) -> None:
    line = replay_steps(history)
    head = line.session.head.seq
    for place in (head + far, -far, 2**80):
        for read in (snapshot, survivors_at, seq_at):
            with pytest.raises(EventNotFound, match=f"no event `{place}`"):
                read(line.session, place)
    for event_id in ("no such event", "", "0"):
        with pytest.raises(EventNotFound, match=f"no event `{event_id}`"):
            seq_at(line.session, event_id)


@pytest.mark.req("BS-4.1-ORDER-01")
@given(strategies.hypotheses(max_size=8), st.data())
def test_eliminations_in_any_order_leave_the_same_survivors(universe: list[str], data: st.DataObject) -> None:
    batches = data.draw(st.lists(st.lists(st.sampled_from(universe) | strategies.ids(2), max_size=4), max_size=5))
    order = data.draw(st.permutations(range(len(batches))))
    lines = [Line.over(*universe), Line.over(*universe)]
    for line, numbers in zip(lines, (range(len(batches)), order), strict=True):
        for number in numbers:
            line.eliminate(str(number), *batches[number])
    first, second = (line.session.survivors for line in lines)
    assert (list(first), first.root) == (list(second), second.root)


@pytest.mark.req("ARCH-2-01")
@given(strategies.histories(min_calls=2), strategies.histories(min_calls=2))
def test_two_futures_of_one_state_do_not_disturb_each_other(history: History, other: History) -> None:
    trunk = line_of(history)
    tell(trunk, history.calls[0])
    branch = trunk.fork()
    alone = line_of(history)
    tell(alone, history.calls[0])
    for mine, theirs in zip(history.calls[1:], other.calls, strict=False):
        tell(trunk, mine)
        tell(branch, theirs)
        tell(alone, mine)
    assert describe(trunk.session) == describe(alone.session)
    assert trunk.log == alone.log
