"""The error tree: a code for each class, a sentence for people, details for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cmbs import errors
from cmbs.errors import (
    BeliefServerError,
    CmbsError,
    Conflict,
    ErrorCode,
    EventNotFound,
    Forbidden,
    FreeHandRefused,
    HeadMismatch,
    InvalidHypothesisId,
    InvalidRequest,
    KeyRefused,
    LedgerCorrupt,
    LimitExceeded,
    ObligationNotFound,
    ProviderBroken,
    RecordNotFound,
    SessionNotFound,
    SessionTerminated,
    SpaceNotFound,
    StoreDisagrees,
    StoreRolledBack,
    StoreUnavailable,
    Unauthenticated,
    UnknownProbe,
)
from tests.support.subtests import for_each

FREE_HAND = (
    "session `s` takes no lists of ids: its policy says `eliminations: observations`; send the response to a probe, "
    "and the provider works out what it rules out"
)
EXAMPLES: list[tuple[BeliefServerError, str, dict[str, object]]] = [
    (InvalidRequest("`x` must be a string"), "`x` must be a string", {}),
    (
        LimitExceeded("id_length", 10, 11),
        "`id_length` allows at most 10, got 11",
        {"limit": "id_length", "maximum": 10, "actual": 11},
    ),
    (Unauthenticated(KeyRefused.EXPIRED, "the key is expired"), "the key is expired", {"reason": "expired"}),
    (Forbidden("not you", {"reason": "missing_scope"}), "not you", {"reason": "missing_scope"}),
    (InvalidHypothesisId(["b", "a"]), "not in the declared universe: `b`, `a`", {"unknown": ["b", "a"]}),
    (
        InvalidHypothesisId(["bb"], {"bb": "b"}),
        "not in the declared universe: `bb`; did you mean `b`?",
        {"found": ["bb"], "accepted": {"bb": "b"}},
    ),
    (
        FreeHandRefused("s"),
        FREE_HAND,
        {"session_id": "s", "field": "eliminated", "next": "observe"},
    ),
    (UnknownProbe("p", "q"), "the provider has no probe `p`; did you mean `q`?", {"accepted": "q"}),
    (EventNotFound("7", 3), "no event `7` in this session", {"accepted": "a seq from 0 to 3, or the id of an event"}),
    (UnknownProbe("p"), "the provider has no probe `p`", {"probe_id": "p"}),
    (ProviderBroken("provider `x` raised `KeyError`"), "provider `x` raised `KeyError`", {}),
    (SessionNotFound("s"), "no session `s`", {"session_id": "s"}),
    (SessionTerminated("s"), "session `s` is terminated", {"session_id": "s"}),
    (ObligationNotFound("o"), "no obligation `o` in this session", {"obligation_id": "o"}),
    (EventNotFound("7"), "no event `7` in this session", {"event": "7"}),
    (SpaceNotFound("s"), "no space `s`", {"space_id": "s"}),
    (RecordNotFound("tool", "t"), "no tool `t` in this space", {"what": "tool", "id": "t"}),
    (Conflict("taken", {"obligation_id": "o"}), "taken", {"obligation_id": "o"}),
    (HeadMismatch("e1", "e2"), "the audit head is `e2`, not `e1`", {"expected": "e1", "actual": "e2"}),
    (StoreUnavailable("gone"), "gone", {}),
    (StoreDisagrees("they differ"), "they differ", {}),
    (
        StoreRolledBack("older copy"),
        "nothing is written: the database does not continue what this server has signed (older copy)",
        {
            "reason": "older copy",
            "next": "have an operator put the newest database back; sending it again does not help before that",
        },
    ),
    (
        LedgerCorrupt("s", 3, "seq is `4`, expected `3`", "e"),
        "ledger of `s` is bad at seq 3 (`e`): seq is `4`, expected `3`",
        {"stream_id": "s", "seq": 3, "event_id": "e", "reason": "seq is `4`, expected `3`"},
    ),
]


# What says what to do about an error; the rest of its details say what it is.
ADVICE = frozenset({"field", "found", "accepted", "next"})


@pytest.mark.req("GATES-REFUSAL-06")
@for_each(
    ("error", "field", "found", "accepted"),
    [
        (LimitExceeded("keys", 10, 11, "set"), "set", 11, {"maximum": 10}),
        (LimitExceeded("keys", 10, 11), None, 11, {"maximum": 10}),
        (SpaceNotFound("s"), "space_id", "s", "the id of a space of this server"),
        (
            RecordNotFound("policy change", "c"),
            "policy_change_id",
            "c",
            "the id of a policy change that this space has",
        ),
        (RecordNotFound("tool", "t", ["to", "tu"]), "tool_id", "t", ["to", "tu"]),
        (HeadMismatch("e1", "e2"), "if_match", "e1", "e2"),
    ],
)
def test_an_error_says_what_was_found_what_is_accepted_and_what_to_do(
    error: BeliefServerError, field: str | None, found: object, accepted: object
) -> None:
    details = error.details
    assert (details.get("field"), details.get("found"), details.get("accepted")) == (field, found, accepted)
    assert details["next"]


def test_an_unknown_id_is_answered_with_the_nearest_ones() -> None:
    assert RecordNotFound("tool", "t", ["to", "tu"]).message == "no tool `t` in this space; did you mean `to`, `tu`"


def leaves(kind: type[BeliefServerError]) -> Iterator[type[BeliefServerError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from leaves(below)


@pytest.mark.req("BS-3.2-ERR-16")
def test_every_code_belongs_to_one_class_and_every_class_has_an_example_here() -> None:
    classes = [kind for kind in leaves(BeliefServerError) if kind is not BeliefServerError]
    assert {type(error) for error, _, _ in EXAMPLES} == set(classes)
    direct = [kind for kind in classes if BeliefServerError in kind.__bases__]
    assert sorted(kind.default_code for kind in direct) == sorted(ErrorCode)
    assert all(code.value == code.name for code in ErrorCode)


@pytest.mark.req("BS-3.2-ERR-16")
@for_each(("error", "message", "details"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_an_error_says_its_code_its_sentence_and_its_details(
    error: BeliefServerError, message: str, details: dict[str, object]
) -> None:
    own = {name: value for name, value in error.details.items() if name not in ADVICE or name in details}
    assert (error.code, error.message) == (error.default_code.value, message)
    assert own | details == own
    assert str(error) == f"{error.code}: {message}"
    assert type(error.code) is str
    assert json.loads(json.dumps(error.details)) == error.details
    assert message[0] == message[0].lower()
    assert not message.endswith(".")


def test_a_mismatched_head_is_a_conflict() -> None:
    assert isinstance(HeadMismatch("a", "b"), Conflict)
    assert HeadMismatch("a", "b").code == ErrorCode.CONFLICT


def test_many_unknown_ids_are_counted_in_the_message_and_capped_in_the_details() -> None:
    few = InvalidHypothesisId([f"h{number}" for number in range(5)])
    assert few.message.endswith("`h3`, `h4`")
    many = InvalidHypothesisId([f"h{number}" for number in range(1000)])
    assert many.message.endswith("`h4` and 995 more")
    assert many.details | {"unknown": [f"h{number}" for number in range(100)]} == many.details


def test_a_ledger_is_corrupt_at_a_place_even_where_the_event_has_no_id() -> None:
    error = LedgerCorrupt("s", 0, "the log is empty")
    assert error.message == "ledger of `s` is bad at seq 0: the log is empty"
    assert (error.stream_id, error.seq, error.reason, error.details["event_id"]) == ("s", 0, "the log is empty", None)


def test_details_are_the_errors_own() -> None:
    details = {"a": 1}
    error = Conflict("taken", details)
    details["a"] = 2
    assert error.details["a"] == 1


def test_everything_raised_on_purpose_has_one_root() -> None:
    assert all(issubclass(kind, CmbsError) for kind in leaves(BeliefServerError))
