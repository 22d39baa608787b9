"""The whole analysis: regret that telescopes, truth, resolution, and sessions that a kit only partly explains."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis import Analysis, KitStudy, Method, Redundancy, analyse, trajectory_of
from cmbs.analysis.appraisal import Move, Study
from cmbs.analysis.findings import Choice, KitFinding
from cmbs.analysis.optimum import Greedy, Steps, classes_of
from cmbs.analysis.table import Table, table_of
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidHypothesisId, InvalidRequest
from cmbs.kit import NO_DATA, CutPoints, Kit, KitHypothesis, KitOutcome, KitProbe, KitProvider, Soundness, ontology_of
from cmbs.messages import OntologyBundle
from cmbs.testing import ManualClock, SequentialIds
from tests.support.domains import kit_of, kits, tables, walk, worlds
from tests.support.subtests import for_each

YES, NO, OPEN = frozenset({0}), frozenset({1}), frozenset({0, 1})
STEPS = 100_000
# Four causes told apart by two halvings; the third probe tells what the other two already say, the fourth nothing.
HALVES = kit_of(
    [[YES, YES, NO, NO], [YES, NO, YES, NO], [YES, NO, NO, NO], [YES, YES, YES, YES]],
    [1.0] * 4,
)


def session(kit: Kit, asked: Sequence[tuple[str, Any]], source_id: str = "agent") -> Analysis:
    """The analysis of a session in which these probes were answered so."""
    server = server_of(kit)
    session_id, _ = server.declare_session(ontology_of(kit))
    for probe_id, response in asked:
        server.apply_probe(session_id, probe_id, response, source_id)
    return analysis_of(server, session_id, kit)


def server_of(kit: Kit) -> BeliefServer:
    return BeliefServer(
        belief_provider=KitProvider(kit), clock=ManualClock(tick=timedelta(seconds=2)), ids=SequentialIds()
    )


def analysis_of(server: BeliefServer, session_id: str, kit: Kit | None, truth: str | None = None) -> Analysis:
    study = None if kit is None else KitStudy(kit)
    return analyse(trajectory_of(server.audit_trace(session_id)), study, truth)


# --- regret ---


def kit_of_session(analysis: Analysis) -> KitFinding:
    assert analysis.kit is not None
    return analysis.kit


def choice_of(analysis: Analysis, number: int = 0) -> Choice:
    choice = analysis.timeline[number].choice
    assert choice is not None
    return choice


@st.composite
def paths(draw: st.DrawFn, *, deterministic: bool = True) -> tuple[Table, list[Move]]:
    """A path through a table: probes asked in some world, no data now and then, and events from outside."""
    table = draw(tables(hypotheses=6, probes=5, deterministic=deterministic))
    moves = []
    alive = table.everything
    order = draw(st.lists(st.sampled_from(table.probes), max_size=6)) if table.probes else []
    for probe in order:
        kind = draw(st.sampled_from(["answer", "answer", "answer", "no data", "outside"]))
        if kind == "outside":
            after = alive & draw(st.integers(0, table.everything))
            moves.append(Move(alive, after, None, None))
        elif kind == "no data":
            after = alive
            moves.append(Move(alive, after, probe, None))
        else:
            outcome = draw(st.sampled_from(probe.outcomes))
            after = alive & outcome.consistent
            moves.append(Move(alive, after, probe, outcome.outcome_id))
        alive = after
    return table, moves


@pytest.mark.req("AN-05")
@given(st.booleans().flatmap(lambda each: paths(deterministic=each)), st.sampled_from([0, 40, STEPS]))
def test_regret_telescopes_whatever_happened_and_whatever_it_is_measured_against(
    path: tuple[Table, list[Move]], steps: int
) -> None:
    table, moves = path
    found = Study(table).appraise(moves, steps).regret
    assert found.probes == sum(move.probe is not None for move in moves)
    if found.method is Method.HUFFMAN:
        return
    assert None not in (found.probes_left, found.optimum, found.regret, found.luck, found.outside)
    assert found.probes + (found.probes_left or 0) == pytest.approx(
        (found.optimum or 0) + (found.regret or 0) - (found.luck or 0) - (found.outside or 0), abs=1e-9
    )


@pytest.mark.req("WORTH-01")
@given(st.booleans().flatmap(lambda each: paths(deterministic=each)))
def test_where_only_a_bound_is_known_nothing_is_said_to_be_lost_and_what_is_said_holds(
    path: tuple[Table, list[Move]],
) -> None:
    table, moves = path
    choices, _, bound, _ = Study(table).appraise(moves, 0, Method.HUFFMAN)
    _, _, exact, _ = Study(table).appraise(moves, STEPS)
    assert (bound.method, exact.method) == (Method.HUFFMAN, Method.EXACT)
    assert (bound.optimum, bound.probes_left, bound.regret, bound.luck, bound.outside) == (None,) * 5
    assert all((choice.regret, choice.probe_luck) == (None, None) for choice in choices if choice is not None)
    assert exact.beyond_at_most is None
    assert bound.beyond_at_most is not None
    assert exact.optimum is not None
    assert exact.probes_left is not None
    assert bound.optimum_at_least == exact.optimum_at_least <= exact.optimum + 1e-9
    assert exact.probes + exact.probes_left - exact.optimum <= bound.beyond_at_most + 1e-9


@pytest.mark.req("AN-05")
@given(paths())
def test_against_the_exact_optimum_no_choice_has_a_regret_below_zero(path: tuple[Table, list[Move]]) -> None:
    table, moves = path
    choices, _, regret, _ = Study(table).appraise(moves, STEPS)
    assert (regret.method, regret.reason) == (Method.EXACT, "")
    assert all(choice.regret is not None and choice.regret >= 0 for choice in choices if choice is not None)


@given(tables(hypotheses=6, probes=5), st.data())
def test_the_mean_number_of_probes_is_the_optimum_and_the_mean_regret(table: Table, data: st.DataObject) -> None:
    """For any fixed order that goes on until all is resolved."""
    order = data.draw(st.permutations([probe.probe_id for probe in table.probes]))
    study = Study(table)
    asked = regret = 0.0
    for world in worlds(table):
        moves = walk(table, world, order)
        until = next(
            (number for number, move in enumerate(moves) if len(table.classes_in(move.before)) == 1), len(moves)
        )
        found = study.appraise(moves[:until], STEPS).regret
        asked += float(world.chance) * until
        assert found.regret is not None
        regret += float(world.chance) * found.regret
        assert found.probes_left == 0.0
    optimum = study.appraise([], STEPS).regret.optimum
    assert optimum is not None
    assert asked == pytest.approx(optimum + regret, abs=1e-9)


@pytest.mark.req("AN-05")
def test_a_study_says_what_it_compares_with() -> None:
    columns = [[frozenset({number % base}) for number in range(40)] for base in (7, 11)]
    table = table_of(kit_of(columns, [1.0] * 40))
    classes, steps = classes_of(table), Steps(STEPS)
    Greedy(classes, steps).cost(classes.everything)
    enough_for_greedy = STEPS - steps.left
    told = [Study(table).appraise([], allowed).regret for allowed in (0, enough_for_greedy, STEPS)]
    assert [(found.method, found.reason) for found in told] == [
        (Method.HUFFMAN, "the exact optimum, and the greedy one, take more steps than were allowed"),
        (Method.GREEDY, "the exact optimum takes more steps than were allowed"),
        (Method.EXACT, ""),
    ]
    assert told[0].optimum is None
    greedy, best = told[1].optimum, told[2].optimum
    assert greedy is not None
    assert best is not None
    assert told[0].optimum_at_least <= best <= greedy


def test_what_was_too_much_work_is_not_tried_again_with_no_more_steps() -> None:
    table = table_of(HALVES)
    study = Study(table)
    first = study.appraise([], 0).regret
    assert (first.method, study.appraise([], 0).regret) == (Method.HUFFMAN, first)
    assert study.appraise([], STEPS).regret.method is Method.EXACT


def test_a_session_that_takes_more_work_than_others_makes_do_with_less() -> None:
    """Something from outside cuts through a class, so that trees have to be found anew."""
    table = table_of(kit_of([[YES, YES, NO, NO, NO], [YES, YES, YES, NO, NO], [YES, YES, NO, YES, NO]], [1.0] * 5))
    study = Study(table)
    needed = next(steps for steps in range(STEPS) if Study(table).appraise([], steps).regret.method is Method.EXACT)
    study.appraise([], needed)
    cut = Move(table.everything, table.everything ^ 1, None, None)
    assert study.appraise([cut], 1).regret.method is not Method.EXACT
    assert study.appraise([], needed).regret.method is Method.EXACT


def test_a_kit_that_leaves_answers_open_has_an_optimum_too() -> None:
    kit = kit_of([[YES, OPEN, NO]], [1.0] * 3)
    found = kit_of_session(session(kit, [("p0", "o0")]))
    assert not found.deterministic
    assert (found.regret.method, found.regret.optimum, found.regret.regret) == (Method.EXACT, 1.0, 0.0)
    assert (found.regret.probes_left, found.classes_left) == (0.0, 2)


def test_best_probes_that_would_take_too_long_to_find_are_left_out() -> None:
    server = server_of(HALVES)
    session_id, _ = server.declare_session(ontology_of(HALVES))
    server.apply_probe(session_id, "p0", "o0")
    trajectory = trajectory_of(server.audit_trace(session_id))
    finding = analyse(trajectory, KitStudy(HALVES), steps=0)
    choice = choice_of(finding)
    assert (choice.best_gain, choice.best_probe_id, choice.value_ratio) == (None, None, None)
    assert (kit_of_session(finding).shortfall, kit_of_session(finding).value_ratio) == (None, None)


# --- a session on its kit ---


def test_a_good_path_has_no_regret_and_full_value() -> None:
    analysis = session(HALVES, [("p0", "o0"), ("p1", "o1")])
    found = kit_of_session(analysis)
    assert (found.regret.regret, found.regret.luck, found.regret.optimum) == (0.0, 0.0, 2.0)
    assert (found.value_ratio, found.shortfall, found.luck) == (1.0, 0.0, 0.0)
    assert (found.gain, found.expected_gain, found.remaining) == (2.0, 2.0, [])
    assert analysis.resolution.resolved
    assert (analysis.resolution.seq, analysis.resolution.eliminations, analysis.resolution.seconds) == (2, 2, 4.0)


def test_a_poor_choice_that_turns_out_well_is_luck_and_not_skill() -> None:
    analysis = session(HALVES, [("p2", "o0")])
    choice = choice_of(analysis)
    assert analysis.resolution.resolved
    assert choice.expected_gain == pytest.approx(1 / 4 * 2 + 3 / 4 * math.log2(4 / 3))
    assert choice.gain == 2.0
    assert choice.luck == pytest.approx(2.0 - choice.expected_gain)
    assert (choice.best_probe_id, choice.best_gain) == ("p0", 1.0)
    assert choice.value_ratio == pytest.approx(choice.expected_gain)
    # Asked first, it takes 1 + 3/4 × 5/3 probes on average, where two are enough; and then it took only one.
    assert choice.regret == pytest.approx(0.25)
    assert choice.probe_luck == pytest.approx(1.25)


def test_probes_that_can_still_rule_something_out_are_listed_the_best_first() -> None:
    found = kit_of_session(session(HALVES, []))
    assert [each.probe_id for each in found.remaining] == ["p0", "p1", "p2"]
    assert [each.expected_gain for each in found.remaining][:2] == [1.0, 1.0]


def test_asking_what_is_known_costs_a_whole_probe() -> None:
    analysis = session(HALVES, [("p0", "o0"), ("p1", "o0"), ("p2", "o0"), ("p3", "o0")])
    kinds = [event.redundancy for event in analysis.timeline]
    assert kinds == [None, None, Redundancy.RECALL_FAILURE, Redundancy.PREDICTABLE]
    last = choice_of(analysis, -1)
    assert (last.regret, last.expected_gain, last.best_gain, last.value_ratio) == (1.0, 0.0, 0.0, None)
    assert analysis.redundancy.predictable == 1
    assert analysis.redundancy.share == 0.5


def test_silence_that_might_have_been_otherwise_has_no_effect_and_is_predictable_once_known() -> None:
    kit = kit_of([[YES, OPEN, OPEN]], [1.0] * 3)
    server = server_of(kit)
    session_id, _ = server.declare_session(ontology_of(kit))
    for source_id in ("one", "two"):
        server.apply_probe(session_id, "p0", "o0", source_id)
    kinds = [event.redundancy for event in analysis_of(server, session_id, kit).timeline]
    assert kinds == [Redundancy.NO_EFFECT, Redundancy.PREDICTABLE]


def test_no_data_is_a_probe_spent_and_no_answer() -> None:
    analysis = session(HALVES, [("p0", NO_DATA), ("p1", "o0")])
    first, second = choice_of(analysis), choice_of(analysis, 1)
    assert (first.outcome_id, first.gain, first.probe_luck) == (None, 0.0, -1.0)
    assert analysis.timeline[0].redundancy is Redundancy.NO_EFFECT
    assert (second.best_probe_id, second.best_gain) == ("p0", 1.0)


def test_numbers_are_read_as_the_kit_reads_them() -> None:
    outcomes = tuple(
        KitOutcome(name, frozenset(gone), Soundness.STATISTICAL) for name, gone in (("low", "b"), ("high", "a"))
    )
    probe = KitProbe("load", "", outcomes, CutPoints((0.5,), ("low", "high")))
    kit = Kit("load", "1", "", (KitHypothesis("a"), KitHypothesis("b")), (probe,))
    assert choice_of(session(kit, [("load", 0.7)])).outcome_id == "high"


def test_hypotheses_that_nothing_tells_apart_are_one_class_and_resolved_together() -> None:
    kit = kit_of([[YES, YES, NO]], [1.0] * 3)
    analysis = session(kit, [("p0", "o0")])
    found = kit_of_session(analysis)
    assert (analysis.resolution.resolved, analysis.n_survivors) == (True, 2)
    assert (found.classes, found.classes_left, found.undecided) == (2, 1, [["h0", "h1"]])
    assert found.residual_bits == pytest.approx(2 / 3)
    assert found.residual_bits_left == 1.0


def test_priors_weigh_what_is_gained() -> None:
    kit = kit_of([[YES, NO]], [3.0, 1.0])
    choice = choice_of(session(kit, [("p0", "o1")]))
    assert choice.gain == 2.0
    assert choice.expected_gain == pytest.approx(3 / 4 * math.log2(4 / 3) + 1 / 4 * 2)


# --- eliminations that are not, or not quite, of the kit ---


def plain_session(eliminations: Sequence[tuple[str, Sequence[str], dict[str, Any] | None]]) -> Analysis:
    """A session over `HALVES` that was declared by hand; each elimination is (observation, ids, justification)."""
    server = BeliefServer()
    session_id, _ = server.declare_session(OntologyBundle("any", "1", "", ""), [each.id for each in HALVES.hypotheses])
    for observation_id, gone, why in eliminations:
        server.eliminate(session_id, "agent", observation_id, gone, why)
    return analysis_of(server, session_id, HALVES)


def answers(analysis: Analysis) -> list[tuple[str, str | None] | None]:
    return [
        None if each.choice is None else (each.choice.probe_id, each.choice.outcome_id) for each in analysis.timeline
    ]


def test_an_adapters_justification_names_the_probe() -> None:
    why = {"probe_id": "p0", "outcome_id": "o0"}
    assert answers(plain_session([("any name", ["h2", "h3"], why)])) == [("p0", "o0")]


def test_an_observation_named_for_a_probe_is_an_answer_where_its_ids_fit_one_outcome() -> None:
    looks = [("p0", ["h2", "h3"], None), ("p1", ["h0"], None), ("p2", [], None)]
    assert answers(plain_session(looks)) == [("p0", "o0"), None, None]


@for_each(
    "why",
    [
        {"probe_id": "p0", "outcome_id": "o1"},
        {"probe_id": "p0", "outcome_id": "no such outcome"},
        {"probe_id": "no such probe", "outcome_id": "o0"},
        {"probe_id": "p0", "response": [1]},
    ],
)
def test_an_answer_with_another_effect_than_the_kits_is_no_answer_of_the_kit(why: dict[str, Any]) -> None:
    analysis = plain_session([("look", ["h2", "h3"], why)])
    assert answers(analysis) == [None]
    found = kit_of_session(analysis)
    assert (found.unmatched, found.regret.outside) == (1, 1.0)


def test_what_outside_events_saved_is_told_apart_also_where_they_cut_through_a_class() -> None:
    kit = kit_of([[YES, YES, NO]], [1.0] * 3)
    server = BeliefServer()
    session_id, _ = server.declare_session(ontology_of(kit), ["h0", "h1", "h2"])
    server.eliminate(session_id, "agent", "hunch", ["h0"])
    server.eliminate(session_id, "agent", "p0", ["h2"], {"probe_id": "p0", "outcome_id": "o0"})
    found = kit_of_session(analysis_of(server, session_id, kit))
    assert (found.unmatched, found.regret.probes, found.regret.probes_left) == (1, 1, 0.0)
    assert (found.regret.optimum, found.regret.outside, found.regret.regret) == (1.0, 0.0, 0.0)


def test_a_session_over_part_of_a_kit_is_held_against_that_part() -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(ontology_of(HALVES), ["h0", "h1"])
    server.eliminate(session_id, "agent", "p1", ["h1", "h3"], {"probe_id": "p1", "outcome_id": "o0"})
    analysis = analysis_of(server, session_id, HALVES)
    found = kit_of_session(analysis)
    assert answers(analysis) == [("p1", "o0")]
    assert (found.classes, found.regret.optimum, found.regret.regret) == (2, 1.0, 0.0)


def test_a_kit_that_does_not_know_the_hypotheses_is_refused() -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(ontology_of(HALVES), ["h0", *(f"x{number}" for number in range(7))])
    with pytest.raises(InvalidRequest, match=r"kit `domain` does not know `x0`, .* and 2 more of session") as caught:
        analysis_of(server, session_id, HALVES)
    assert len(caught.value.details["unknown"]) == 7


def test_a_study_is_made_once_for_each_set_of_hypotheses() -> None:
    study = KitStudy(HALVES)
    server = BeliefServer()
    studies = []
    for universe in (["h0", "h1"], ["h0", "h1", "h2"], ["h0", "h1", "h2", "h3"], ["h1", "h0"]):
        session_id, _ = server.declare_session(ontology_of(HALVES), universe)
        studies.append(study.of(trajectory_of(server.audit_trace(session_id))))
    assert [len(each.table.hypotheses) for each in studies] == [2, 3, 4, 2]
    assert studies[0] is studies[3]


# --- truth and resolution ---


def truth_of(server: BeliefServer, session_id: str, truth: str) -> tuple[Any, ...]:
    found = analysis_of(server, session_id, HALVES, truth).truth
    assert found is not None
    return msgspec.structs.astuple(found)


@pytest.mark.req("AN-07")
def test_the_truth_is_found_once_resolved_and_the_event_that_killed_it_is_named() -> None:
    server = server_of(HALVES)
    session_id, _ = server.declare_session(ontology_of(HALVES))
    server.apply_probe(session_id, "p0", "o0", "careless")
    killer = server.audit_trace(session_id)[1].event_id
    assert truth_of(server, session_id, "h0") == ("h0", True, False, None, None, None)
    assert truth_of(server, session_id, "h3") == ("h3", False, False, killer, 1, "careless")
    server.apply_probe(session_id, "p1", "o0")
    assert truth_of(server, session_id, "h0") == ("h0", True, True, None, None, None)
    with pytest.raises(InvalidHypothesisId, match="`absent`"):
        analysis_of(server, session_id, None, "absent")


@pytest.mark.req("AN-07")
def test_without_a_kit_one_survivor_is_resolved() -> None:
    server = BeliefServer(clock=ManualClock(tick=timedelta(seconds=2)))
    session_id, _ = server.declare_session(OntologyBundle("any", "1", "", ""), ["a", "b", "c"])
    assert not analysis_of(server, session_id, None).resolution.resolved
    for number, gone in enumerate(["a", "b", "b"]):
        server.eliminate(session_id, "agent", str(number), [gone])
    found = analysis_of(server, session_id, None).resolution
    assert (found.resolved, found.seq, found.eliminations, found.seconds) == (True, 2, 2, 4.0)
    # What was never open is resolved from the start.
    session_id, _ = server.declare_session(OntologyBundle("any", "1", "", ""), ["a"])
    found = analysis_of(server, session_id, None).resolution
    assert (found.resolved, found.seq, found.eliminations, found.seconds) == (True, 0, 0, 0.0)


def test_a_session_with_nothing_left_is_not_resolved() -> None:
    analysis = session(kit_of([[YES, NO]], [1.0, 1.0]), [("p0", "o0")])
    assert analysis.resolution.resolved
    contradictory = plain_session([("a", ["h0", "h1"], None), ("b", ["h2", "h3"], None)])
    assert not contradictory.resolution.resolved
    found = kit_of_session(contradictory)
    assert (found.classes_left, found.residual_bits_left, found.regret.probes_left) == (0, 0.0, 0.0)


@given(kits(hypotheses=5, probes=4), st.data())
def test_a_kits_gain_is_expected_gain_and_luck(kit: Kit, data: st.DataObject) -> None:
    truth = data.draw(st.sampled_from(kit.hypotheses)).id
    order = (
        data.draw(st.lists(st.sampled_from(kit.probes), max_size=4, unique_by=lambda each: each.probe_id))
        if kit.probes
        else []
    )
    asked = [
        (probe.probe_id, next(each.outcome_id for each in probe.outcomes if truth not in each.eliminates))
        for probe in order
    ]
    found = kit_of_session(session(kit, asked))
    assert found.luck is not None
    assert found.gain == pytest.approx(found.expected_gain + found.luck)
    assert found.unmatched == 0


def test_a_session_that_is_cut_over_and_over_is_held_against_the_optimum_all_along() -> None:
    """Every event from outside takes a part of a class, and makes other trees of what is left."""
    size = 60
    table = table_of(kit_of([[YES if number % 2 else NO for number in range(size)]], [1.0] * size))
    moves, alive = [], table.everything
    for bit in range(size - 2):
        moves.append(Move(alive, alive ^ 1 << bit, None, None))
        alive ^= 1 << bit
    found = Study(table).appraise(moves, STEPS).regret
    assert (found.method, found.optimum, found.probes_left, found.outside) == (Method.EXACT, 1.0, 1.0, 0.0)
