"""What the core guarantees beyond its numbered contract: refusals, its stored state, and laws for every history."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.core import CMBSCore, Obligation, ProbeResult, entropy, is_stable
from tests.support.subtests import for_each


def eventful_core() -> CMBSCore:
    core = CMBSCore(["a", "b", "c", 4], stability_window=2)
    core.enter_obligation("left", 1)
    core.enter_obligation("kept", 5)
    core.submit_probe_result("p2", "o", ["b", 4])
    core.submit_probe_result("p1", "o", [])
    core.request_obligation_exit("left")
    core.submit_probe_result("p3", "o", ["a"])
    core.declare_conclusion("x")
    core.declare_conclusion("c")
    return core


def test_the_sets_handed_out_are_copies() -> None:
    core = eventful_core()
    before = core.serialize()
    core.survivors.clear()
    core.consumed_probes.clear()
    core.active_obligations.clear()
    assert core.serialize() == before


def test_the_callers_container_of_ids_is_not_kept() -> None:
    hypothesis_ids = ["a", "b", "b"]
    core = CMBSCore(hypothesis_ids)
    hypothesis_ids.clear()
    assert core.survivors == {"a", "b"}


def test_an_elimination_that_cannot_be_read_changes_nothing() -> None:
    core = CMBSCore(["a", "b"])
    before = core.serialize()
    unhashable: Any = ["a", ["b"]]
    with pytest.raises(TypeError):
        core.submit_probe_result("p", "o", unhashable)
    assert core.serialize() == before
    assert core.submit_probe_result("p", "o", ["a"]).accepted


def test_a_probe_after_termination_is_refused_and_changes_nothing() -> None:
    core = CMBSCore(["a", "b"])
    core.request_termination()
    before = core.serialize()
    assert core.submit_probe_result("p", "o", ["a"]) == ProbeResult(
        accepted=False, error="probe `p` came after termination"
    )
    assert core.serialize() == before


def test_termination_once_granted_stays_granted() -> None:
    core = CMBSCore(["a"], stability_window=2)
    core.declare_conclusion("x")
    core.declare_conclusion("x")
    assert core.request_termination().permitted
    core.declare_conclusion("y")
    assert core.request_termination().permitted
    assert core.is_terminated


def test_an_active_obligation_cannot_be_entered_again() -> None:
    core = CMBSCore(["a", "b"])
    core.enter_obligation("ob", 3)
    with pytest.raises(ValueError, match="obligation `ob` is already active"):
        core.enter_obligation("ob", 0)
    assert not core.request_obligation_exit("ob").permitted


def test_an_obligation_entered_again_after_exit_counts_from_zero() -> None:
    core = CMBSCore(["a", "b", "c"])
    core.enter_obligation("ob", 1)
    core.submit_probe_result("p1", "o", ["a"])
    core.request_obligation_exit("ob")
    core.submit_probe_result("p2", "o", ["b"])
    core.enter_obligation("ob", 1)
    assert core.request_obligation_exit("ob").error == "obligation `ob` needs 1 eliminations and has 0"


def test_a_negative_threshold_is_refused() -> None:
    core = CMBSCore(["a"])
    with pytest.raises(ValueError, match="threshold of obligation `ob` must not be negative, got `-1`"):
        core.enter_obligation("ob", -1)
    assert core.active_obligations == set()


def test_a_negative_stability_window_is_refused() -> None:
    with pytest.raises(ValueError, match="stability window must not be negative, got `-2`"):
        CMBSCore(["a"], stability_window=-2)


def test_an_obligation_that_was_left_is_credited_no_more() -> None:
    left = Obligation("ob", 1).credit(2).exit()
    assert left == Obligation("ob", min_eliminations=1, eliminations=2, active=False)
    assert left.credit(3) == left


@for_each(("n", "bits"), [(0, 0.0), (1, 0.0), (2, 1.0), (8, 3.0)])
def test_entropy_of_a_count_is_log2_and_zero_up_to_one(n: int, bits: float) -> None:
    assert entropy(n) == bits


def test_stability_reads_the_tail_of_the_history_alone() -> None:
    class TailOnly(list[str]):
        def __iter__(self) -> Any:
            raise AssertionError("the whole history was read")

    assert is_stable(TailOnly(["y", *["x"] * 10]), 10)
    assert not is_stable(TailOnly(["y", *["x"] * 9]), 10)
    assert not is_stable(TailOnly(["x"] * 9), 10)


def test_equal_states_serialise_equal_whatever_the_order_of_ids() -> None:
    one, other = CMBSCore(["a", "b", 2, 1]), CMBSCore([1, 2, "b", "a"])
    for core, probes in ((one, ["p", "q"]), (other, ["q", "p"])):
        for probe_id in probes:
            core.submit_probe_result(probe_id, "o", [])
            core.enter_obligation(f"ob-{probe_id}", 0)
    assert json.dumps(one.serialize()) == json.dumps(other.serialize())


def test_integers_are_listed_before_strings_and_never_taken_for_them() -> None:
    state = CMBSCore(["a", "1", 10, 1, 9]).serialize()
    assert state["universe"] == [1, 9, 10, "1", "a"]
    assert CMBSCore.deserialize(state).survivors == {1, 9, 10, "1", "a"}


def test_ids_that_json_cannot_carry_are_refused_by_serialisation() -> None:
    with pytest.raises(ValueError, match="is not an id that JSON can carry"):
        CMBSCore([("a", "pair")]).serialize()


def replace_field(field: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda state: state | {field: value}


OBLIGATION = {"obligation_id": "ob", "min_eliminations": 1, "eliminations": 0, "active": True}
EVENT = {"probe_id": "p2", "observable_id": "o", "eliminated": ["b", 4]}


@for_each(
    ("edit", "reason"),
    [
        (lambda _: ["not", "a", "state"], "expected an object with field `v`, got list"),
        (lambda state: {key: state[key] for key in state if key != "history"}, "field `history` is missing"),
        (replace_field("v", 2), "unknown state version `2`, expected 1"),
        (replace_field("v", "1"), "field `v` must be int, got str"),
        (replace_field("terminated", 1), "field `terminated` must be bool, got int"),
        (replace_field("stability_window", True), "field `stability_window` must be int, got bool"),
        (replace_field("stability_window", -1), "field `stability_window` must not be negative, got `-1`"),
        (replace_field("survivors", "c"), "field `survivors` must be list, got str"),
        (replace_field("survivors", ["c", "other"]), "survivors are not in the universe: `other`"),
        (replace_field("survivors", []), "hypotheses are missing from survivors and history: `c`"),
        (replace_field("survivors", ["a", "c"]), "history of probe `p3` disagrees with the survivors"),
        (replace_field("consumed_probes", ["p1", "p2"]), "probe `p3` is in the history but was not consumed"),
        (replace_field("consumed_probes", [["p1"]]), r"`\['p1'\]` is not an id that JSON can carry"),
        (replace_field("history", [EVENT, EVENT]), "history of probe `p2` disagrees with the survivors"),
        (replace_field("history", [EVENT | {"eliminated": []}]), "history of probe `p2` disagrees with the survivors"),
        (replace_field("history", ["p2"]), "expected an object with field `probe_id`, got str"),
        (replace_field("obligations", [{}]), "field `obligation_id` is missing"),
        (
            replace_field("obligations", [OBLIGATION | {"eliminations": -1}]),
            "field `eliminations` must not be negative",
        ),
        (replace_field("obligations", [OBLIGATION, OBLIGATION]), "an obligation is listed twice"),
    ],
)
def test_a_state_that_no_core_can_have_is_refused_with_the_reason(
    edit: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        CMBSCore.deserialize(edit(eventful_core().serialize()))


IDS = st.one_of(st.text(max_size=3), st.integers(-3, 6))
NAMES = st.sampled_from(["x", "y", "z"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("probe"), st.text(max_size=2), st.sets(IDS, max_size=5)),
        st.tuples(st.just("enter"), NAMES, st.integers(0, 3)),
        st.tuples(st.just("exit"), NAMES, st.none()),
        st.tuples(st.just("conclude"), NAMES, st.none()),
        st.tuples(st.just("terminate"), st.none(), st.none()),
    ),
    max_size=20,
)


def take(core: CMBSCore, step: tuple[Any, ...]) -> object:
    match step:
        case ("probe", probe_id, eliminated):
            return core.submit_probe_result(probe_id, "o", eliminated)
        case ("enter", obligation_id, threshold):
            if not core.is_obligation_active(obligation_id):
                core.enter_obligation(obligation_id, threshold)
            return core.active_obligations
        case ("exit", obligation_id, _):
            return core.request_obligation_exit(obligation_id)
        case ("conclude", conclusion_id, _):
            core.declare_conclusion(conclusion_id)
            return core.serialize()["conclusions"]
        case _:
            return core.request_termination()


@given(st.sets(IDS), st.integers(0, 2), STEPS)
def test_survivors_only_ever_become_fewer(universe: set[Any], window: int, steps: list[tuple[Any, ...]]) -> None:
    core = CMBSCore(universe, window)
    for step in steps:
        before, bits = core.survivors, core.entropy
        take(core, step)
        assert core.survivors <= before
        assert core.entropy <= bits
    gone = [each for event in core.get_elimination_history() for each in event.eliminated]
    assert core.survivors == universe - set(gone)
    assert len(gone) == len(set(gone))


@given(st.sets(IDS), st.integers(0, 2), STEPS, STEPS)
def test_a_core_restored_at_any_point_goes_on_like_the_original(
    universe: set[Any], window: int, before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    core = CMBSCore(universe, window)
    for step in before:
        take(core, step)
    restored = CMBSCore.deserialize(json.loads(json.dumps(core.serialize())))
    assert restored.serialize() == core.serialize()
    assert [take(restored, step) for step in after] == [take(core, step) for step in after]
    assert restored.serialize() == core.serialize()


@given(st.sets(IDS), st.lists(st.sets(IDS, max_size=5), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_probes_does_not_change_what_survives(
    universe: set[Any], eliminations: list[set[Any]], random: Any
) -> None:
    probes = [(f"p{number}", "o", eliminated) for number, eliminated in enumerate(eliminations)]
    shuffled = random.sample(probes, len(probes))
    one, other = CMBSCore(universe), CMBSCore(universe)
    for probe in probes:
        one.submit_probe_result(*probe)
    for probe in shuffled:
        other.submit_probe_result(*probe)
    assert one.survivors == other.survivors
