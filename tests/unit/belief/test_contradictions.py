"""Why nothing is left: laws of the explanation, held against brute force on small sessions."""

from __future__ import annotations

from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel import contradictions
from cmbs.belief.kernel.contradictions import (
    NO_CONTRADICTION,
    explain_contradiction,
    find_shortest_list,
)
from cmbs.belief.server import BeliefServer
from cmbs.stores.memory import InMemoryStore
from tests.support.store_fixture import declared

CAUSES = "abcdef"
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
    assert shown["explanations"] == [{"reports": [report], "causes": list(CAUSES), "n_causes": len(CAUSES)}]
    assert (shown["look_again"], shown["shortest"], shown["exhaustive"]) == ([report], True, True)
    assert shown["alone"][0] == {"hypothesis_id": "a", "report": report}
