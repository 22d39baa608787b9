"""Refusals as values: one sentence, the same in fields, never longer than a reader can use."""

import msgspec

from cmbs.refusals import (
    MAX_FAULTS,
    MAX_LISTED,
    MAX_SHOWN_CHARACTERS,
    Fault,
    Refusal,
    find_nearest,
    quote,
    refuse_faults,
    show_value,
)
from tests.support.subtests import for_each


def test_a_refusal_is_one_sentence_and_leaves_out_what_it_does_not_say() -> None:
    refusal = Refusal(code="UNKNOWN_TOOL", message="`x` is not a tool", next="call `y` instead")
    assert refusal.sentence == "`x` is not a tool; call `y` instead"
    assert msgspec.to_builtins(refusal) == {
        "code": "UNKNOWN_TOOL",
        "message": "`x` is not a tool",
        "next": "call `y` instead",
    }


@for_each("number", [1, 3, 4, 30])
def test_several_faults_are_one_refusal_of_which_the_sentence_names_a_few(number: int) -> None:
    faults = [Fault(f"args.a{place}", f"fault {place}", place, {"minimum": 5}) for place in range(number)]
    refusal = refuse_faults("ARGS_INVALID", faults, "correct them", candidate=2)
    assert (refusal.field, refusal.found, refusal.accepted, refusal.candidate) == ("args.a0", 0, {"minimum": 5}, 2)
    assert len(refusal.faults) == (0 if number == 1 else min(number, MAX_FAULTS))
    assert refusal.message.startswith("fault 0")
    assert refusal.message.endswith(f"and {number - 3} more") is (number > 3)


def test_the_nearest_names_are_found_and_long_ones_are_not_compared() -> None:
    known = ["service.restart", "service.status", "db.query", "x" * 500]
    assert find_nearest("service.restat", known) == ["service.restart", "service.status"]
    assert find_nearest("entirely other", known) == []
    assert find_nearest("x" * 500, known) == []


def test_names_are_quoted_shortened_and_counted() -> None:
    assert quote(["a", "b"]) == "`a`, `b`"
    assert quote([]) == ""
    assert quote(str(each) for each in range(MAX_LISTED + 2)).endswith("`19` and 2 more")
    assert quote(["x" * 1_000]) == f"`{'x' * MAX_SHOWN_CHARACTERS}…`"


def test_a_long_value_is_shown_by_its_beginning() -> None:
    assert show_value({"a": [1]}) == {"a": [1]}
    assert show_value("short") == "short"
    shown = show_value({"a": "x" * 1_000})
    assert shown.startswith('{"a":"xxx')
    assert len(shown) == MAX_SHOWN_CHARACTERS + 1
