"""Why nothing is left: laws of the explanation, held against brute force on small sessions."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cmbs.belief.kernel import contradictions
from cmbs.belief.kernel.contradictions import (
    NO_CONTRADICTION,
    Known,
    explain_contradiction,
    find_shortest_list,
    read_soundness,
)
from cmbs.belief.kernel.events import Eliminate, Probe, read_event
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.server import BeliefServer
from cmbs.kit import KitProvider
from cmbs.kit.model import Soundness
from cmbs.kit.parse import parse_kit
from cmbs.stores.memory import InMemoryStore
from tests.support.store_fixture import declared

CAUSES = "abcdef"
KIT = """
id: pumps
version: "1"
soundness: sound
hypotheses: [{id: bearing, prior: 2}, {id: valve, prior: 7}, fuse]
probes:
  - {id: noise, outcomes: [{id: quiet, eliminates: [bearing], soundness: heuristic}, {id: loud, eliminates: []}]}
  - {id: pressure, outcomes: [{id: steady, eliminates: [valve]}, {id: falls, eliminates: []}]}
  - {id: power, outcomes: [{id: "on", eliminates: [fuse]}, {id: "off", eliminates: []}]}
"""
REPORTS = st.lists(st.sets(st.sampled_from(CAUSES + "?"), max_size=5), max_size=7)

pytestmark = pytest.mark.req("CONTRA-01")


def report_all(reports: list[set[str]]) -> tuple[BeliefServer, str]:
    server = BeliefServer(store=InMemoryStore())
    session_id = declared(server, CAUSES)
    for number, ids in enumerate(reports):
        server.eliminate(session_id, f"source {number % 2}", f"{number}", sorted(ids))
    return server, session_id


def left_without(reports: list[set[str]], wrong: frozenset[int]) -> set[str]:
    """What would be left if these reports had not been made."""
    gone = {each for number, ids in enumerate(reports) if number not in wrong for each in ids}
    return set(CAUSES) - gone


def smallest_explanations(reports: list[set[str]]) -> list[frozenset[int]]:
    """Every set of reports without which something is left, and no part of which does the same."""
    found: list[frozenset[int]] = []
    for size in range(len(reports) + 1):
        for chosen in map(frozenset, combinations(range(len(reports)), size)):
            if left_without(reports, chosen) and not any(each <= chosen for each in found):
                found.append(chosen)
    return found


@given(reports=REPORTS)
def test_explanations_are_the_smallest_sets_without_which_something_is_left(reports: list[set[str]]) -> None:
    server, session_id = report_all(reports)
    found = server.contradiction(session_id)
    assert found.contradiction is (not left_without(reports, frozenset()))
    assert server.query_belief(session_id).contradiction is found.contradiction
    if not found.contradiction:
        assert found == NO_CONTRADICTION
        return
    expected = smallest_explanations(reports)
    seqs = {frozenset(report.seq - 1 for report in each.reports): set(each.causes) for each in found.explanations}
    assert set(seqs) == set(expected)
    for wrong, causes in seqs.items():
        assert left_without(reports, wrong) == causes
        for one in wrong:
            assert not left_without(reports, wrong - {one})
    assert found.exhaustive
    assert found.smallest == min(map(len, expected)) == len(found.explanations[0].reports)
    lone = {(cause, next(iter(each))) for each in expected if len(each) == 1 for cause in left_without(reports, each)}
    assert {(each.hypothesis_id, each.report.seq - 1) for each in found.alone} == lone
    assert found.n_alone == len(lone)


@given(reports=REPORTS)
def test_the_list_to_look_at_again_has_one_of_every_smallest_explanation_and_none_is_shorter(
    reports: list[set[str]],
) -> None:
    server, session_id = report_all(reports)
    found = server.contradiction(session_id)
    if not found.contradiction:
        return
    smallest = [each for each in smallest_explanations(reports) if len(each) == found.smallest]
    again = {report.seq - 1 for report in found.look_again}
    assert found.shortest
    assert all(again & each for each in smallest)
    for shorter in combinations(range(len(reports)), len(again) - 1):
        assert not all(set(shorter) & each for each in smallest)


SOUNDNESS = st.sampled_from([None, *Soundness])


def count_by_strength(wrong: frozenset[int], sound: list[Soundness | None]) -> tuple[int, ...]:
    """How many of the reports are of each soundness, from the strongest to the weakest; one that says none is weak."""
    said = [sound[each] or Soundness.HEURISTIC for each in wrong]
    return tuple(said.count(each) for each in Soundness)


@given(data=st.data(), reports=REPORTS)
def test_reports_of_weaker_soundness_are_doubted_first_and_then_priors_decide(
    data: st.DataObject, reports: list[set[str]]
) -> None:
    server, session_id = report_all(reports)
    sound = data.draw(st.lists(SOUNDNESS, min_size=len(reports), max_size=len(reports)))
    priors: dict[str, int] = data.draw(
        st.just({}) | st.fixed_dictionaries({each: st.integers(1, 9) for each in CAUSES})
    )
    said = {place + 1: each for place, each in enumerate(sound) if each is not None}
    found = explain_contradiction(server.current_session(session_id), Known(said, priors))
    if not found.contradiction:
        return
    expected = smallest_explanations(reports)
    order = [
        (
            count_by_strength(frozenset(report.seq - 1 for report in each.reports), sound),
            -sum(priors.get(cause, 0) for cause in each.causes),
        )
        for each in found.explanations
    ]
    assert order == sorted(order)
    assert {frozenset(report.seq - 1 for report in each.reports) for each in found.explanations} == set(expected)
    for each in found.explanations:
        assert [report.soundness for report in each.reports] == [sound[report.seq - 1] for report in each.reports]
        assert (each.prior is None) is (not priors)
        if each.prior is not None:
            share = sum(priors[cause] for cause in each.causes) / sum(priors.values())
            assert each.prior == pytest.approx(share)
    assert found.smallest == min(map(len, expected))
    again = {report.seq - 1 for report in found.look_again}
    least = [wrong for wrong in expected if count_by_strength(wrong, sound) == order[0][0]]
    assert all(again & wrong for wrong in least)


def test_a_kit_says_which_observation_to_doubt_and_which_cause_to_expect() -> None:
    log = InMemoryStore()
    server = BeliefServer(store=log)
    server.kits.put(KIT, MediaType.YAML)
    session_id = server.declare_session(kit="pumps").session_id
    # A rule of thumb against the one, and what is sure against the others.
    server.observe(session_id, "noise", "quiet")
    server.observe(session_id, "pressure", "steady")
    server.observe(session_id, "power", "on")
    found = server.contradiction(session_id)
    assert [(each.causes, [report.soundness for report in each.reports]) for each in found.explanations] == [
        (["bearing"], ["heuristic"]),
        (["valve"], ["sound"]),
        (["fuse"], ["sound"]),
    ]
    assert [each.prior for each in found.explanations] == pytest.approx([0.2, 0.7, 0.1])
    assert [each.hypothesis_id for each in found.alone] == ["bearing", "valve", "fuse"]
    assert [(report.probe_id, report.soundness) for report in found.look_again] == [("noise", "heuristic")]


def test_the_largest_priors_of_a_kit_make_no_sum_overflow() -> None:
    server, session_id = report_all([{each} for each in CAUSES])
    session = server.current_session(session_id)
    found = explain_contradiction(session, Known(priors=dict.fromkeys(CAUSES, 1e308)))
    assert [each.prior for each in found.explanations] == pytest.approx([1 / len(CAUSES)] * len(CAUSES))


def test_without_its_kit_a_session_says_how_sound_observations_are_and_has_no_priors() -> None:
    kit = parse_kit(KIT.encode(), "pumps.yaml").kit
    log = InMemoryStore()
    server = BeliefServer(store=log, belief_provider=KitProvider(kit))
    session_id = server.declare_session().session_id
    for probe_id, response in (("power", "on"), ("pressure", "steady"), ("noise", "quiet")):
        server.observe(session_id, probe_id, response)
    assert [each.prior for each in server.contradiction(session_id).explanations] == pytest.approx([0.2, 0.7, 0.1])
    found = BeliefServer(store=log).contradiction(session_id)
    assert [(each.causes, each.prior) for each in found.explanations] == [
        (["bearing"], None),
        (["fuse"], None),
        (["valve"], None),
    ]


def test_soundness_is_read_from_observations_alone() -> None:
    server, session_id = report_all([set("a")])
    declared_message, message = (read_event(each).message for each in server.stored_entries(session_id))
    assert (read_soundness(declared_message), read_soundness(message)) == (None, None)
    assert isinstance(message, Eliminate)
    reading: msgspec.Raw | msgspec.UnsetType
    for reading, sound in (
        (UNSET, None),
        (msgspec.Raw(b"{}"), None),
        (msgspec.Raw(b'{"soundness":[]}'), None),
        (msgspec.Raw(b'{"soundness":"certain"}'), None),
        (msgspec.Raw(b'{"soundness":"statistical"}'), Soundness.STATISTICAL),
    ):
        probe = Probe("p", msgspec.Raw(b"1"), reading=reading)
        assert read_soundness(msgspec.structs.replace(message, probe=probe)) is sound


def test_the_report_after_which_nothing_was_left_is_named() -> None:
    server, session_id = report_all([set("abc"), set("de"), set("f"), set("a"), set()])
    found = server.contradiction(session_id)
    assert found.left_none is not None
    assert (found.left_none.seq, found.left_none.source_id, found.left_none.observation_id) == (3, "source 0", "2")
    assert found.left_none.event_id == server.audit_trace(session_id)[3].event_id
    assert [each.hypothesis_id for each in found.alone] == list("bcdef")
    assert [report.seq for report in found.look_again] == [1, 2, 3]


def test_a_search_that_is_cut_says_so_and_still_has_one_of_every_set(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [(number, number + 1, 9) if number % 3 else (number, number + 2) for number in range(8)]
    whole, is_shortest = find_shortest_list(sets)
    cut, is_cut_shortest = find_shortest_list(sets, max_steps=0)
    assert (is_shortest, is_cut_shortest) == (True, False)
    for found in (whole, cut):
        assert all(set(found) & set(each) for each in sets)
    monkeypatch.setattr(contradictions, "MAX_KEPT", 2)
    reports = [{cause} for cause in CAUSES]
    server, session_id = report_all(reports)
    found_few = server.contradiction(session_id)
    assert (found_few.n_explanations, found_few.exhaustive, len(found_few.look_again)) == (2, False, 6)


def test_causes_with_many_reports_are_left_out_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contradictions, "MAX_GROUPED", 1)
    server, session_id = report_all([set("a"), set("bcdef"), set("bcdef")])
    found = explain_contradiction(server.current_session(session_id))
    assert [each.causes for each in found.explanations] == [["a"]]
    assert not found.exhaustive


def test_a_contradiction_as_json_has_every_field() -> None:
    server, session_id = report_all([set("abcdef")])
    shown = msgspec.to_builtins(server.contradiction(session_id))
    report = shown["left_none"]
    assert shown["explanations"] == [
        {"reports": [report], "causes": list(CAUSES), "n_causes": len(CAUSES), "prior": None}
    ]
    assert (shown["look_again"], shown["shortest"], shown["exhaustive"]) == ([report], True, True)
    assert shown["alone"][0] == {"hypothesis_id": "a", "report": report}
