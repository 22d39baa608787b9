"""The v0 core contract, one test for each of its 49 ids; laws for every history are in `test_core_laws.py`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.core import CMBSCore, EliminationEvent, ObligationExitResult, ProbeResult, TerminationResult
from tests.support.subtests import for_each

ODD_IDS = ["", " ", "\t\n", "héllo", "\U0001f525", "a::b", "null", "0", "../x", "\x00", "x" * 5000]


def core_of(*hypothesis_ids: Hashable, stability_window: int = 0) -> CMBSCore:
    return CMBSCore(hypothesis_ids, stability_window)


def conclude(core: CMBSCore, *conclusion_ids: str) -> CMBSCore:
    for conclusion_id in conclusion_ids:
        core.declare_conclusion(conclusion_id)
    return core


@pytest.mark.req("T-INV3-01")
def test_probes_with_distinct_ids_are_all_accepted() -> None:
    core = core_of("a", "b", "c")
    results = [core.submit_probe_result(probe_id, "o", [gone]) for probe_id, gone in [("p1", "a"), ("p2", "b")]]
    assert results == [ProbeResult(accepted=True), ProbeResult(accepted=True)]
    assert core.consumed_probes == {"p1", "p2"}


@pytest.mark.req("T-INV3-02")
def test_a_probe_id_seen_before_is_rejected_with_the_reason() -> None:
    core = core_of("a", "b")
    core.submit_probe_result("p", "o", ["a"])
    accepted, error = core.submit_probe_result("p", "o", ["a"])
    assert not accepted
    assert error == "probe `p` was already consumed"


@pytest.mark.req("T-INV3-03")
def test_uniqueness_is_of_the_probe_id_and_not_of_what_it_brings() -> None:
    core = core_of("a", "b")
    assert core.submit_probe_result("p1", "o", ["a"]).accepted
    assert core.submit_probe_result("p2", "o", ["a"]).accepted
    assert not core.submit_probe_result("p1", "other", ["b"]).accepted


@pytest.mark.req("T-INV3-04")
def test_a_rejected_probe_changes_nothing() -> None:
    core = core_of("a", "b", "c")
    core.enter_obligation("ob", 2)
    core.submit_probe_result("p", "o", ["a"])
    before = core.serialize()
    core.submit_probe_result("p", "o2", ["b", "c"])
    assert core.serialize() == before


@pytest.mark.req("T-INV3-05")
def test_no_order_is_assumed_among_probe_ids() -> None:
    probes = [("p-9", ["a"]), ("p-1", ["b"]), ("p-10", ["c"])]
    forwards, backwards = core_of("a", "b", "c", "d"), core_of("a", "b", "c", "d")
    assert all(forwards.submit_probe_result(probe_id, "o", gone).accepted for probe_id, gone in probes)
    assert all(backwards.submit_probe_result(probe_id, "o", gone).accepted for probe_id, gone in reversed(probes))
    assert forwards.survivors == backwards.survivors == {"d"}
    assert forwards.consumed_probes == backwards.consumed_probes


@pytest.mark.req("T-INV5A-01")
@for_each("n", [2, 3, 8, 1000])
def test_entropy_starts_at_log2_of_the_number_of_hypotheses(n: int) -> None:
    assert CMBSCore(range(n)).entropy == math.log2(n)


@pytest.mark.req("T-INV5A-02")
def test_entropy_falls_when_a_hypothesis_is_eliminated() -> None:
    core = core_of("a", "b", "c", "d")
    core.submit_probe_result("p", "o", ["a", "b"])
    assert core.entropy == 1.0


@pytest.mark.req("T-INV5A-03")
def test_entropy_is_zero_for_one_survivor() -> None:
    core = core_of("a", "b", "c")
    core.submit_probe_result("p", "o", ["a", "c"])
    assert core.survivors == {"b"}
    assert core.entropy == 0.0


@pytest.mark.req("T-INV5A-04")
def test_entropy_is_unchanged_by_an_empty_elimination() -> None:
    core = core_of("a", "b", "c")
    before = core.entropy
    assert core.submit_probe_result("p", "o", []).accepted
    assert core.entropy == before


@pytest.mark.req("T-INV5A-05")
@given(st.lists(st.sets(st.integers(-2, 12)), max_size=12))
def test_entropy_never_rises(eliminations: list[set[int]]) -> None:
    core = CMBSCore(range(10))
    seen = [core.entropy]
    for number, eliminated in enumerate(eliminations):
        core.submit_probe_result(f"p{number}", "o", eliminated)
        seen.append(core.entropy)
    assert seen == sorted(seen, reverse=True)


@pytest.mark.req("T-INV6-01")
def test_exit_is_permitted_after_an_elimination() -> None:
    core = core_of("a", "b")
    core.enter_obligation("ob")
    core.submit_probe_result("p", "o", ["a"])
    assert core.request_obligation_exit("ob") == ObligationExitResult(permitted=True)
    assert not core.is_obligation_active("ob")


@pytest.mark.req("T-INV6-02")
def test_exit_is_refused_when_nothing_was_eliminated() -> None:
    core = core_of("a", "b")
    core.enter_obligation("ob")
    core.submit_probe_result("p", "o", [])
    permitted, error = core.request_obligation_exit("ob")
    assert not permitted
    assert error == "obligation `ob` needs 1 eliminations and has 0"
    assert core.is_obligation_active("ob")


@pytest.mark.req("T-INV6-03")
def test_exit_is_refused_below_the_threshold() -> None:
    core = core_of("a", "b", "c", "d")
    core.enter_obligation("ob", min_eliminations=3)
    core.submit_probe_result("p1", "o", ["a", "b"])
    core.submit_probe_result("p2", "o", ["a", "b", "unknown"])
    assert core.request_obligation_exit("ob").error == "obligation `ob` needs 3 eliminations and has 2"


@pytest.mark.req("T-INV6-04")
def test_exit_is_permitted_at_the_threshold() -> None:
    core = core_of("a", "b", "c", "d")
    core.enter_obligation("ob", min_eliminations=3)
    core.submit_probe_result("p1", "o", ["a", "b"])
    assert not core.request_obligation_exit("ob").permitted
    core.submit_probe_result("p2", "o", ["c"])
    assert core.request_obligation_exit("ob").permitted


@pytest.mark.req("T-INV6-05")
def test_eliminations_before_entry_do_not_count() -> None:
    core = core_of("a", "b", "c")
    core.submit_probe_result("p1", "o", ["a"])
    core.enter_obligation("ob")
    assert not core.request_obligation_exit("ob").permitted
    core.submit_probe_result("p2", "o", ["b"])
    assert core.request_obligation_exit("ob").permitted


@pytest.mark.req("T-INV6-06")
def test_each_of_several_obligations_counts_from_its_own_entry() -> None:
    core = core_of("a", "b", "c", "d")
    core.enter_obligation("early", 2)
    core.submit_probe_result("p1", "o", ["a"])
    core.enter_obligation("late", 2)
    core.submit_probe_result("p2", "o", ["b"])
    assert core.request_obligation_exit("early").permitted
    assert not core.request_obligation_exit("late").permitted
    core.submit_probe_result("p3", "o", ["c"])
    assert core.request_obligation_exit("late").permitted


@pytest.mark.req("T-BND-01")
def test_hypothesis_ids_are_opaque() -> None:
    core = CMBSCore([*ODD_IDS, 7, ("pair", 1), None])
    assert core.survivors == {*ODD_IDS, 7, ("pair", 1), None}
    core.submit_probe_result("p", "o", ["", ("pair", 1), "\U0001f525"])
    assert core.survivors == {*ODD_IDS, 7, None} - {"", "\U0001f525"}


@pytest.mark.req("T-BND-02")
def test_probe_ids_are_opaque() -> None:
    core = core_of("a")
    assert all(core.submit_probe_result(probe_id, "o", []).accepted for probe_id in ODD_IDS)
    assert not any(core.submit_probe_result(probe_id, "o", []).accepted for probe_id in ODD_IDS)
    assert core.consumed_probes == set(ODD_IDS)


@pytest.mark.req("T-BND-03")
def test_observable_ids_are_opaque_and_may_repeat() -> None:
    observables = [*ODD_IDS, "", "\U0001f525"]
    core = CMBSCore(range(len(observables)))
    for number, observable_id in enumerate(observables):
        assert core.submit_probe_result(f"p{number}", observable_id, [number]).accepted
    assert [event.observable_id for event in core.get_elimination_history()] == observables


@pytest.mark.req("T-BND-04")
@for_each("conclusion_id", ODD_IDS)
def test_conclusion_ids_are_opaque(conclusion_id: str) -> None:
    core = conclude(core_of("a", stability_window=2), conclusion_id)
    assert not core.request_termination().permitted
    assert conclude(core, conclusion_id).request_termination().permitted


@pytest.mark.req("T-BND-05")
@for_each("word", ["root_cause", "TERMINATE", "eliminated", "survivors", "resolved", "healthy", "None"])
def test_ids_that_look_like_domain_words_are_ordinary(word: str) -> None:
    core = core_of(word, "other")
    core.enter_obligation(word)
    core.declare_conclusion(word)
    assert core.submit_probe_result(word, word, [word]).accepted
    assert (core.survivors, core.active_obligations, core.is_terminated) == ({"other"}, {word}, False)
    assert core.get_elimination_history() == [EliminationEvent(word, word, frozenset({word}))]


@pytest.mark.req("T-BND-06")
def test_termination_is_permitted_with_many_survivors() -> None:
    core = CMBSCore(range(100))
    assert core.request_termination() == TerminationResult(permitted=True)
    assert len(core.survivors) == 100


@pytest.mark.req("T-BND-07")
@pytest.mark.parametrize("hypothesis_ids", [["a"], []])
def test_termination_is_permitted_with_no_survivor(hypothesis_ids: list[str]) -> None:
    core = CMBSCore(hypothesis_ids)
    core.submit_probe_result("p", "o", ["a"])
    assert (core.survivors, core.entropy) == (set(), 0.0)
    assert core.request_termination().permitted


@pytest.mark.req("T-BND-08")
def test_more_than_two_different_conclusions_can_be_declared() -> None:
    core = conclude(core_of("a", stability_window=1), "yes", "no", "maybe", "unknown")
    assert core.serialize()["conclusions"] == ["yes", "no", "maybe", "unknown"]
    assert core.request_termination().permitted


@pytest.mark.req("T-BND-09")
@given(st.text(), st.integers(1, 5))
def test_any_conclusion_can_become_stable(conclusion_id: str, window: int) -> None:
    core = conclude(core_of("a", "b", stability_window=window + 1), conclusion_id + "?", *[conclusion_id] * window)
    assert not core.request_termination().permitted
    assert conclude(core, conclusion_id).request_termination().permitted


def members_naming(pattern: str) -> list[str]:
    return [name for name in dir(CMBSCore) if not name.startswith("__") and re.search(rf"(^|_)({pattern})", name)]


@pytest.mark.req("T-BND-10")
def test_the_core_knows_no_states_of_execution() -> None:
    states = "execut|run|pending|attempt|retr|fail|success|timeout|progress|start|stop"
    assert members_naming(states) == []
    assert not any(re.search(states, field) for field in core_of("a").serialize())


@pytest.mark.req("T-BND-11")
def test_the_core_speaks_of_observation_alone() -> None:
    readings = {"active", "consumed", "entropy", "get", "is", "survivors", "serialize", "deserialize"}
    statements = {"submit", "declare", "enter", "request"}
    first_words = {name.split("_")[0] for name in dir(CMBSCore) if not name.startswith("_")}
    assert first_words == readings | statements


@pytest.mark.req("T-BND-12")
def test_the_core_chooses_and_schedules_no_probe() -> None:
    assert members_naming("schedul|select|choose|next|queue|plan|priorit|rank|recommend|suggest") == []
    assert members_naming("probe") == ["_consumed_probes", "consumed_probes", "submit_probe_result"]


@pytest.mark.req("T-OBL-01")
def test_an_obligation_is_active_once_the_caller_enters_it() -> None:
    core = core_of("a", "b")
    assert not core.is_obligation_active("ob")
    core.enter_obligation("ob")
    assert core.is_obligation_active("ob")


@pytest.mark.req("T-OBL-02")
def test_no_obligation_is_ever_entered_or_left_by_itself() -> None:
    core = core_of("a", "b", "c")
    core.submit_probe_result("p1", "o", ["a"])
    core.declare_conclusion("x")
    assert core.active_obligations == set()
    core.enter_obligation("ob", 1)
    core.submit_probe_result("p2", "o", ["b"])
    core.request_termination()
    assert core.active_obligations == {"ob"}


@pytest.mark.req("T-OBL-03")
@for_each("threshold", [0, 1, 4, 10])
def test_the_threshold_is_the_one_that_the_caller_gave(threshold: int) -> None:
    core = CMBSCore(range(20))
    core.enter_obligation("ob", threshold)
    for number in range(threshold):
        assert not core.request_obligation_exit("ob").permitted
        core.submit_probe_result(f"p{number}", "o", [number])
    assert core.request_obligation_exit("ob").permitted


@pytest.mark.req("T-OBL-04")
def test_nested_obligations_are_left_independently_in_any_order() -> None:
    core = core_of("a", "b", "c")
    core.enter_obligation("outer", 1)
    core.enter_obligation("inner", 2)
    core.submit_probe_result("p1", "o", ["a"])
    assert core.request_obligation_exit("outer").permitted
    assert core.active_obligations == {"inner"}
    core.submit_probe_result("p2", "o", ["b"])
    assert core.request_obligation_exit("inner").permitted
    assert core.active_obligations == set()


@pytest.mark.req("T-OBL-05")
def test_leaving_an_obligation_that_does_not_exist_is_refused_without_a_crash() -> None:
    core = core_of("a", "b")
    assert core.request_obligation_exit("ghost") == ObligationExitResult(
        permitted=False, error="obligation `ghost` is not active"
    )
    core.enter_obligation("ob", 0)
    core.request_obligation_exit("ob")
    assert "not active" in str(core.request_obligation_exit("ob").error)


@pytest.mark.req("T-ENT-01")
def test_entropy_is_readable_at_any_time_and_reading_changes_nothing() -> None:
    core = core_of("a", "b", "c", "d")
    readings = [core.entropy]
    core.submit_probe_result("p", "o", ["a", "b"])
    readings.append(core.entropy)
    core.request_termination()
    before = core.serialize()
    readings.append(core.entropy)
    assert readings == [2.0, 1.0, 1.0]
    assert core.serialize() == before


@pytest.mark.req("T-ENT-02")
def test_high_entropy_does_not_keep_termination_from_being_permitted() -> None:
    core = conclude(CMBSCore(range(1024), stability_window=1), "x")
    assert core.entropy == 10.0
    assert core.request_termination().permitted


@pytest.mark.req("T-ENT-03")
def test_entropy_neither_permits_nor_refuses_an_exit() -> None:
    high = CMBSCore(range(1024))
    high.enter_obligation("ob", 1)
    high.submit_probe_result("p", "o", [0])
    assert high.request_obligation_exit("ob").permitted
    low = core_of("a")
    low.enter_obligation("ob", 1)
    assert low.entropy == 0.0
    assert not low.request_obligation_exit("ob").permitted


@pytest.mark.req("T-ENT-04")
def test_zero_entropy_does_not_terminate() -> None:
    core = core_of("a", "b")
    core.submit_probe_result("p", "o", ["a"])
    assert core.entropy == 0.0
    assert not core.is_terminated
    assert core.submit_probe_result("p2", "o", ["b"]).accepted


@pytest.mark.req("T-TERM-01")
def test_termination_happens_only_on_request() -> None:
    core = core_of("a", "b", stability_window=1)
    core.submit_probe_result("p", "o", ["a"])
    conclude(core, "b", "b")
    assert not core.is_terminated
    core.request_termination()
    assert core.is_terminated


@pytest.mark.req("T-TERM-02")
@for_each("conclusions", [[], ["x"], ["x", "x"], ["x", "y", "x"], ["x", "x", "y"]])
def test_termination_is_refused_while_conclusions_are_unstable(conclusions: list[str]) -> None:
    core = conclude(core_of("a", stability_window=3), *conclusions)
    assert core.request_termination() == TerminationResult(
        permitted=False, error="the last 3 conclusions are not stable"
    )
    assert not core.is_terminated


@pytest.mark.req("T-TERM-03")
def test_termination_is_permitted_once_conclusions_are_stable() -> None:
    core = conclude(core_of("a", stability_window=3), "y", "x", "x")
    assert not core.request_termination().permitted
    assert conclude(core, "x").request_termination() == TerminationResult(permitted=True)


@pytest.mark.req("T-TERM-04")
def test_a_changed_conclusion_restarts_the_window() -> None:
    core = core_of("a", stability_window=2)
    answers = [conclude(core, each).request_termination().permitted for each in ["x", "y", "x", "x"]]
    assert answers == [False, False, False, True]


@pytest.mark.req("T-TERM-05")
@pytest.mark.parametrize("conclusions", [[], ["x"], ["x", "y"]])
def test_a_window_of_zero_asks_for_no_stability(conclusions: list[str]) -> None:
    core = conclude(core_of("a", "b", stability_window=0), *conclusions)
    assert core.request_termination().permitted


@pytest.mark.req("T-TERM-06")
def test_an_active_obligation_does_not_keep_the_core_from_terminating() -> None:
    core = core_of("a", "b")
    core.enter_obligation("ob", 5)
    assert core.request_termination().permitted
    assert core.is_obligation_active("ob")


LEGACY_EVENTS: list[tuple[str, str, list[str]]] = [
    ("PROBE-0001", "metric/cpu@host-1", ["H-001", "H-002"]),
    ("3f0c6f0e-9d8f-4a83-8a0b-6a7cb8d2f1aa", "urn:log:42", []),
    ("check#7", "dns:lookup", ["H-002", "svc/db:timeout", "H-404"]),
]
LEGACY_UNIVERSE = ["H-001", "H-002", "svc/db:timeout", "urn:cause:net", "17"]


def core_fed_with_legacy_events() -> CMBSCore:
    core = CMBSCore(LEGACY_UNIVERSE)
    assert all(core.submit_probe_result(*event).accepted for event in LEGACY_EVENTS)
    return core


@pytest.mark.req("T-MIG-01")
def test_legacy_id_formats_are_taken_as_they_are() -> None:
    core = core_fed_with_legacy_events()
    assert core.survivors == {"urn:cause:net", "17"}
    assert core.consumed_probes == {probe_id for probe_id, _, _ in LEGACY_EVENTS}


@pytest.mark.req("T-MIG-02")
def test_the_known_and_alive_part_of_an_elimination_is_applied() -> None:
    core = core_of("a", "b", "c")
    core.submit_probe_result("p1", "o", ["a"])
    assert core.submit_probe_result("p2", "o", ["a", "b", "never declared"]).accepted
    assert core.survivors == {"c"}
    assert core.get_elimination_history()[-1].eliminated == {"b"}


@pytest.mark.req("T-MIG-03")
def test_a_core_comes_back_from_json_as_it_was_and_goes_on() -> None:
    core = conclude(core_of("a", "b", "c", stability_window=2), "x", "c")
    core.enter_obligation("left", 1)
    core.enter_obligation("kept", 5)
    core.submit_probe_result("p", "o", ["a", "b"])
    core.request_obligation_exit("left")
    restored = CMBSCore.deserialize(json.loads(json.dumps(core.serialize())))
    assert (restored.survivors, restored.consumed_probes) == ({"c"}, {"p"})
    assert restored.get_elimination_history() == core.get_elimination_history()
    assert not restored.submit_probe_result("p", "o", ["c"]).accepted
    assert "has 2" in str(restored.request_obligation_exit("kept").error)
    assert "not active" in str(restored.request_obligation_exit("left").error)
    assert not restored.request_termination().permitted
    assert conclude(restored, "c").request_termination().permitted
    assert CMBSCore.deserialize(restored.serialize()).is_terminated


@pytest.mark.req("T-MIG-04")
def test_replaying_the_history_gives_the_same_belief() -> None:
    core = core_fed_with_legacy_events()
    replayed = CMBSCore(LEGACY_UNIVERSE)
    for elimination in core.get_elimination_history():
        assert replayed.submit_probe_result(*elimination).accepted
    assert replayed.survivors == core.survivors
    assert replayed.get_elimination_history() == core.get_elimination_history()


@pytest.mark.req("T-MIG-05")
def test_a_core_beside_a_legacy_system_agrees_with_it_at_every_step() -> None:
    candidates, core = set(LEGACY_UNIVERSE), CMBSCore(LEGACY_UNIVERSE)
    for probe_id, observable_id, ruled_out in LEGACY_EVENTS:
        candidates -= set(ruled_out)
        core.submit_probe_result(probe_id, observable_id, ruled_out)
        assert core.survivors == candidates
    assert candidates == {"urn:cause:net", "17"}


@pytest.mark.req("T-MIG-06")
def test_the_history_is_an_audit_trail_to_compare_with() -> None:
    core = core_fed_with_legacy_events()
    expected = [
        EliminationEvent("PROBE-0001", "metric/cpu@host-1", frozenset({"H-001", "H-002"})),
        EliminationEvent("check#7", "dns:lookup", frozenset({"svc/db:timeout"})),
    ]
    trail = core.get_elimination_history()
    assert trail == expected
    trail.clear()
    assert core.get_elimination_history() == expected
