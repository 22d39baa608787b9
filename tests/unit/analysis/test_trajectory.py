"""Trajectories: bits that add up, five disjoint kinds of redundancy, and what a log says of its session."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis import Redundancy, Trajectory, analyse, trajectory_of
from cmbs.analysis.trajectory import seconds_between
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest
from cmbs.messages import OntologyBundle
from cmbs.testing import ManualClock, SequentialIds
from tests.support.subtests import for_each

ONTOLOGY = OntologyBundle("space", "1", "graph://none", "v1")
UNIVERSE = tuple("abcdef")
IDS = st.frozensets(st.sampled_from([*UNIVERSE, "absent"]))


class Report(NamedTuple):
    """An elimination to send."""

    source_id: str
    eliminated: frozenset[str]
    justification: dict[str, Any] | None = None


ONE = st.tuples(st.sampled_from(["one", "two"]), IDS).map(lambda given: Report(*given))
REPORTS = st.lists(ONE, max_size=8)


def analyse_path(reports: Sequence[Report], universe: Sequence[str] = UNIVERSE) -> Trajectory:
    """The trajectory of a session in which these were reported, each as an observation of its own."""
    server = BeliefServer(clock=ManualClock(), ids=SequentialIds())
    session_id, _ = server.declare_session(ONTOLOGY, universe)
    for number, report in enumerate(reports):
        server.eliminate(session_id, report.source_id, f"look {number}", report.eliminated, report.justification)
    return trajectory_of(server.audit_trace(session_id))


def report(source_id: str, ids: str, **justification: Any) -> Report:
    return Report(source_id, frozenset(ids), justification or None)


# --- bits ---


@pytest.mark.req("AN-01")
@given(REPORTS)
def test_the_bits_of_the_events_add_up_to_the_universe_over_the_survivors(reports: list[Report]) -> None:
    trajectory = analyse_path(reports)
    bits = [step.bits for step in trajectory.steps]
    if not trajectory.survivors:
        assert trajectory.bits is None
        assert None in bits
        return
    total = math.fsum(each for each in bits if each is not None)
    assert trajectory.bits is not None
    assert None not in bits
    assert total == pytest.approx(trajectory.bits)
    assert trajectory.bits == pytest.approx(math.log2(len(UNIVERSE) / len(trajectory.survivors)))


@given(REPORTS)
def test_the_bits_of_the_sources_add_up_to_those_of_the_session(reports: list[Report]) -> None:
    analysis = analyse(analyse_path(reports))
    bits = [source.bits for source in analysis.sources]
    if analysis.bits is None:
        assert None in bits
    else:
        assert math.fsum(each or 0.0 for each in bits) == pytest.approx(analysis.bits)
    assert sum(source.eliminations for source in analysis.sources) == analysis.eliminations
    assert sum(source.redundant for source in analysis.sources) == analysis.redundancy.total


@pytest.mark.req("AN-01")
@given(st.lists(ONE, max_size=4))
def test_the_order_of_events_changes_neither_what_is_left_nor_the_bits_nor_the_size_of_the_certificate(
    reports: list[Report],
) -> None:
    results = set()
    for order in permutations(reports):
        trajectory = analyse_path(order)
        analysis = analyse(trajectory)
        results.add((trajectory.survivors, trajectory.bits, analysis.certificate.size))
    assert len(results) == 1


@pytest.mark.req("AN-06")
@given(REPORTS)
def test_the_events_of_a_certificate_alone_lead_to_the_same_survivors(reports: list[Report]) -> None:
    trajectory = analyse_path(reports)
    certificate = analyse(trajectory).certificate
    numbers = {step.event_id: number for number, step in enumerate(trajectory.steps)}
    enough = [reports[numbers[event_id]] for event_id in certificate.event_ids]
    assert analyse_path(enough).survivors == trajectory.survivors
    assert certificate.exact


def test_an_event_that_leaves_nothing_has_no_number_of_bits_and_those_after_it_gain_nothing() -> None:
    trajectory = analyse_path([report("one", "abc"), report("two", "def"), report("two", "a")])
    assert [step.bits for step in trajectory.steps] == [1.0, None, 0.0]
    analysis = analyse(trajectory)
    assert (analysis.bits, analysis.bits_left, analysis.efficiency) == (None, 0.0, None)
    assert [(source.source_id, source.bits) for source in analysis.sources] == [("one", 1.0), ("two", None)]


def test_efficiency_is_bits_for_each_elimination() -> None:
    assert analyse(analyse_path([report("one", "abc"), report("one", "a")])).efficiency == 0.5
    assert analyse(analyse_path([])).efficiency is None


# --- redundancy ---


@pytest.mark.req("AN-02")
@given(REPORTS)
def test_an_event_is_redundant_for_one_reason_exactly_where_it_eliminates_nothing(reports: list[Report]) -> None:
    trajectory = analyse_path(reports)
    for step in trajectory.steps:
        assert (step.redundancy is None) == bool(step.eliminated)
    found = analyse(trajectory).redundancy
    classes = (found.duplicate, found.recall_failure, found.cross_agent, found.no_effect, found.predictable)
    assert sum(classes) == found.total == sum(not step.eliminated for step in trajectory.steps)
    assert found.share == (found.total / len(reports) if reports else 0.0)


DUPLICATE, NO_EFFECT = Redundancy.DUPLICATE, Redundancy.NO_EFFECT
RECALL, CROSS = Redundancy.RECALL_FAILURE, Redundancy.CROSS_AGENT
CALM, BUSY = (report("one", "", probe_id="cpu", outcome_id=answer) for answer in ("calm", "busy"))


@for_each(
    ("reports", "kinds"),
    [
        ([report("one", "ab"), report("one", "ab")], [None, DUPLICATE]),
        # An id outside the universe does not make it another report.
        ([report("one", "ab"), Report("one", frozenset({"a", "b", "absent"}))], [None, DUPLICATE]),
        # Eliminated by the same source before, in other company.
        ([report("one", "ab"), report("one", "c"), report("one", "bc")], [None, None, RECALL]),
        ([report("one", "ab"), report("two", "ab")], [None, CROSS]),
        ([report("one", "a"), report("two", "b"), report("two", "ab")], [None, None, CROSS]),
        ([report("one", "a"), report("two", "a"), report("two", "a")], [None, CROSS, DUPLICATE]),
        # A look that rules out nothing has no effect each time, unless it is the same answer to the same probe.
        ([report("one", ""), report("one", ""), report("one", "z")], [NO_EFFECT] * 3),
        ([CALM, CALM, BUSY], [NO_EFFECT, DUPLICATE, NO_EFFECT]),
    ],
)
def test_why_a_report_eliminates_nothing(reports: list[Report], kinds: list[Redundancy | None]) -> None:
    assert [step.redundancy for step in analyse_path(reports).steps] == kinds


def test_a_justification_that_names_no_probe_is_none() -> None:
    steps = analyse_path([report("one", "a", probe_id=7), report("one", "b", why="because")]).steps
    assert [step.probe for step in steps] == [None, None]


# --- the session ---


def test_what_took_a_hypothesis_out_is_found() -> None:
    trajectory = analyse_path([report("one", "a"), report("two", "ab")])
    killer = trajectory.killer_of("b")
    assert killer is not None
    assert (killer.seq, killer.source_id) == (2, "two")
    assert trajectory.killer_of("c") is None


def test_requests_that_were_refused_are_counted_and_other_events_are_no_steps() -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(ONTOLOGY, UNIVERSE)
    server.enter_obligation(session_id, "gate", 1)
    server.request_exit(session_id, "gate")
    server.declare_conclusion(session_id, "a")
    server.eliminate(session_id, "one", "look", ["a"])
    server.request_exit(session_id, "gate")
    server.declare_conclusion(session_id, "b")
    server.request_termination(session_id)
    trajectory = trajectory_of(server.audit_trace(session_id))
    assert (trajectory.events, trajectory.refusals, len(trajectory.steps)) == (8, 3, 1)
    assert (trajectory.session_id, trajectory.space_id, trajectory.space_version) == (session_id, "space", "1")


def test_a_log_without_its_beginning_is_no_trajectory() -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(ONTOLOGY, UNIVERSE)
    server.eliminate(session_id, "one", "look", ["a"])
    for cut in (server.audit_trace(session_id)[1:], []):
        with pytest.raises(InvalidRequest, match="begins with the declaration"):
            trajectory_of(cut)


MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=40_000)))
def test_the_time_between_two_events_is_that_of_the_calendar(earlier: datetime, passed: timedelta) -> None:
    written = [f"{each:%Y-%m-%dT%H:%M:%S.%f}Z" for each in (earlier, earlier + passed)]
    assert seconds_between(*written) == passed / timedelta(seconds=1)


def test_a_time_without_a_fraction_is_one_too() -> None:
    assert seconds_between("2026-02-28T23:59:59Z", "2026-03-01T00:00:00.5Z") == 1.5
