"""Saying something twice: observations, idempotency keys, and what a repeat is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.events import Event, Message, Repeat
from cmbs.belief.kernel.request_keys import fingerprint
from cmbs.errors import Conflict, SessionTerminated
from cmbs.messages import SessionPolicy
from cmbs.testing.strategies import belief as strategies
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line, describe
from tests.support.subtests import for_each


def eliminate(
    line: Line, source_id: str, observation_id: str, ids: list[str], justification: Any = None, key: str | None = None
) -> Event | Repeat:
    return line.tell(VALIDATOR.eliminate(source_id, observation_id, ids, justification), key)


# --- observations -----------------------------------------------------------------------------------------------------


@pytest.mark.req("ARCH-5-RULE-01", "BS-4.1-IDEM-01")
@given(strategies.hypotheses(max_size=6), st.data())
def test_the_same_ids_in_any_order_and_number_are_a_repeat(universe: list[str], data: st.DataObject) -> None:
    line = Line.over(*universe)
    ids = data.draw(st.lists(st.sampled_from(universe) | strategies.ids(2), max_size=5))
    line.eliminate("1", *ids)
    line.eliminate("2", *universe[:1])
    before = describe(line.session)
    shuffled = data.draw(st.permutations(ids + data.draw(st.lists(st.sampled_from(ids), max_size=3)) if ids else ids))
    assert line.eliminate("1", *shuffled) == Repeat(1)
    assert describe(line.session) == before


@pytest.mark.req("ARCH-5-RULE-01")
def test_the_justification_makes_no_other_observation() -> None:
    line = Line.over("a", "b")
    eliminate(line, "s", "1", ["a"], {"why": "first"})
    for justification in ({"why": "second"}, None):
        assert eliminate(line, "s", "1", ["a"], justification) == Repeat(1)


@pytest.mark.req("ARCH-5-RULE-02")
@for_each("ids", [[], ["a"], ["a", "b", "c"], ["b", "c"], ["a", "zz"]])
def test_other_ids_under_the_same_observation_are_a_conflict(ids: list[str]) -> None:
    line = Line.over("a", "b", "c")
    first = eliminate(line, "s", "1", ["a", "b"])
    assert isinstance(first, Event)
    before = describe(line.session)
    with pytest.raises(Conflict) as refused:
        eliminate(line, "s", "1", ids)
    assert (
        refused.value.details.items()
        >= {"source_id": "s", "observation_id": "1", "event_id": first.body.event_id}.items()
    )
    assert describe(line.session) == before


@pytest.mark.req("ARCH-5-RULE-01")
@pytest.mark.parametrize(("ids", "others"), [(["a", "zz"], ["a"]), ([], ["a"])], ids=["ignored ids", "no ids"])
def test_what_was_asked_is_what_is_compared(ids: list[str], others: list[str]) -> None:
    line = Line.over("a", "b")
    eliminate(line, "", "", ids)
    assert eliminate(line, "", "", ids[::-1]) == Repeat(1)
    with pytest.raises(Conflict):
        eliminate(line, "", "", others)


@pytest.mark.req("ARCH-5-RULE-03")
@for_each("separator", ["::", "|", "/", ":", "\n", "\x00", ",", " "])
def test_an_observation_is_a_pair_and_never_a_joined_text(separator: str) -> None:
    line = Line.over("a", "b", "c")
    assert isinstance(eliminate(line, f"x{separator}y", "z", ["a"]), Event)
    assert isinstance(eliminate(line, "x", f"y{separator}z", ["b"]), Event)
    assert isinstance(eliminate(line, "", f"x{separator}y{separator}z", ["c"]), Event)
    assert isinstance(eliminate(line, "other", "z", []), Event)
    assert list(line.session.survivors) == []


@pytest.mark.parametrize("validate", [True, False])
def test_a_repeat_is_still_answered_after_termination_and_a_conflict_still_refused(validate: bool) -> None:
    line = Line.over("a", "b", validate_hypotheses=validate)
    eliminate(line, "s", "1", ["a"])
    line.tell(VALIDATOR.request_termination(None))
    assert eliminate(line, "s", "1", ["a"]) == Repeat(1)
    with pytest.raises(Conflict):
        eliminate(line, "s", "1", ["zz"])
    with pytest.raises(SessionTerminated):
        eliminate(line, "s", "2", ["b"])


# --- idempotency keys -------------------------------------------------------------------------------------------------

MESSAGES: list[Message] = [
    VALIDATOR.eliminate("s", "1", ["a"], None),
    VALIDATOR.eliminate("s", "1", ["a"], {"why": 1}),
    VALIDATOR.eliminate("s", "1", ["b"], None),
    VALIDATOR.eliminate("s", "2", ["a"], None),
    VALIDATOR.eliminate("s2", "1", ["a"], None),
    VALIDATOR.enter_obligation("o", 0),
    VALIDATOR.enter_obligation("o", 1),
    VALIDATOR.request_exit("o", None),
    VALIDATOR.request_exit("o", {"x": 1}),
    VALIDATOR.declare_conclusion("o", None),
    VALIDATOR.declare_conclusion("o", {}),
    VALIDATOR.request_termination(None),
    VALIDATOR.request_termination({"force": True}),
    VALIDATOR.declare(ONTOLOGY, ["a"], None, SessionPolicy(), None),
    VALIDATOR.declare(ONTOLOGY, ["a"], None, SessionPolicy(allow_force=True), None),
]


def test_requests_that_differ_in_anything_have_fingerprints_of_their_own() -> None:
    assert len({fingerprint(message) for message in MESSAGES}) == len(MESSAGES)


@for_each(
    "message",
    [message for message in MESSAGES if type(message).__name__ != "Declare"],
    ids=lambda message: type(message).__name__,
)
def test_the_same_request_under_the_same_key_is_a_repeat_for_every_verb(message: Message) -> None:
    line = Line.over("a", "b")
    line.tell(VALIDATOR.enter_obligation("other", 0))
    if type(message).__name__ == "RequestExit":
        line.tell(VALIDATOR.enter_obligation("o", 0))
    first = line.tell(message, "key")
    assert isinstance(first, Event)
    line.eliminate("in between", "b")
    before = describe(line.session)
    assert line.tell(message, "key") == Repeat(first.body.seq)
    assert describe(line.session) == before


@for_each("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_another_request_under_the_same_key_is_a_conflict_also_across_verbs(message: Message) -> None:
    line = Line.over("a", "b")
    line.tell(VALIDATOR.declare_conclusion("first", None), "key")
    with pytest.raises(Conflict, match="idempotency key `key` was used for another request") as refused:
        line.tell(message, "key")
    assert refused.value.details.items() >= {"idempotency_key": "key"}.items()


def test_a_declaration_under_a_key_is_repeated_by_the_same_declaration_only() -> None:
    first = VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), None)
    line = Line(first, key="key")
    assert line.tell(VALIDATOR.declare(ONTOLOGY, ["b", "a", "b"], None, SessionPolicy(), None), "key") == Repeat(0)
    with pytest.raises(Conflict, match="another request"):
        line.tell(VALIDATOR.declare(ONTOLOGY, ["a"], None, SessionPolicy(), None), "key")
    with pytest.raises(Conflict, match="declared before"):
        line.tell(first, "another key")


def test_a_refusal_is_repeated_under_its_key_though_it_would_be_granted_by_now() -> None:
    line = Line.over("a", "b")
    refused = line.tell(VALIDATOR.request_termination(None), "key")
    assert isinstance(refused, Event)
    line.eliminate("1", "a")
    assert line.tell(VALIDATOR.request_termination(None), "key") == Repeat(refused.body.seq)
    assert line.session.terminated_seq is None
    assert isinstance(line.tell(VALIDATOR.request_termination(None), "new key"), Event)
    assert line.session.terminated_seq is not None


def test_a_termination_is_repeated_under_its_key_after_it_happened() -> None:
    line = Line.over("a")
    line.tell(VALIDATOR.request_termination(None), "")  # the empty text is a key like any other
    assert line.tell(VALIDATOR.request_termination(None), "") == Repeat(1)
    with pytest.raises(SessionTerminated):
        line.tell(VALIDATOR.request_termination(None))


def test_a_request_that_was_refused_with_an_error_leaves_its_key_free() -> None:
    line = Line.over("a", "b")
    eliminate(line, "s", "1", ["a"])
    with pytest.raises(Conflict):
        eliminate(line, "s", "1", ["b"], key="key")
    assert isinstance(eliminate(line, "s", "2", ["b"], key="key"), Event)


def test_without_a_key_the_same_request_is_made_again() -> None:
    line = Line.over("a", "b")
    for _ in range(2):
        assert isinstance(line.tell(VALIDATOR.declare_conclusion("x", None)), Event)
    assert [conclusion_id for _, conclusion_id in line.session.conclusions] == ["x", "x"]
