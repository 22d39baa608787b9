"""Moments of a session compared with each other, and its sources."""

from __future__ import annotations

from math import log2

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.comparisons import MAX_SOURCES_COMPARED, AgreementItem, ChangeKind, Place, SessionChangeItem
from cmbs.belief.server import BeliefServer
from cmbs.errors import EventNotFound, InvalidRequest
from cmbs.testing import History, play
from cmbs.testing.strategies import belief as strategies
from tests.support.store_fixture import declared


def lived(server: BeliefServer) -> str:
    session_id = declared(server, "abcdefgh")
    server.eliminate(session_id, "logs", "1", ["a", "b"])
    server.enter_obligation(session_id, "gate", 1)
    server.declare_conclusion(session_id, "c")
    server.eliminate(session_id, "metrics", "1", ["b", "c", "unknown"])
    server.request_exit(session_id, "gate")
    server.declare_conclusion(session_id, "c")
    server.eliminate(session_id, "logs", "2", ["a", "d"])
    return session_id


@pytest.mark.req("DIFF-01")
def test_a_difference_tells_everything_that_happened_in_between_and_by_what() -> None:
    server = BeliefServer()
    session_id = lived(server)
    events = [entry.event_id for entry in server.audit_trace(session_id)]
    diff = server.diff(session_id, 1)
    assert [msgspec.structs.astuple(change) for change in diff.changes] == [
        ("obligation_entered", 2, events[2], "gate", None, None),
        ("refused", 3, events[3], "obligation_active", None, None),
        ("eliminated", 4, events[4], "c", "metrics", "1"),
        ("obligation_exited", 5, events[5], "gate", None, None),
        ("concluded", 6, events[6], "c", None, None),
        ("eliminated", 7, events[7], "d", "logs", "2"),
    ]
    assert (diff.n_survivors_before, diff.n_survivors_after, diff.next_place) == (6, 4, None)
    assert diff.counts == {
        "eliminated": 2,
        "obligation_entered": 1,
        "obligation_exited": 1,
        "concluded": 1,
        "terminated": 0,
        "refused": 1,
    }
    assert server.diff(session_id, events[4], events[4]).changes == []
    assert [change.id for change in server.diff(session_id, 3, events[5]).changes] == ["c", "gate"]
    with pytest.raises(InvalidRequest, match="goes forward"):
        server.diff(session_id, 3, 2)
    with pytest.raises(EventNotFound):
        server.diff(session_id, 3, 99)


@pytest.mark.req("DIFF-01")
@given(history=strategies.histories(), data=st.data())
def test_a_difference_in_pages_is_the_whole_and_leads_from_one_belief_to_the_other(
    history: History, data: st.DataObject
) -> None:
    server = BeliefServer()
    session_id, _ = play(server, history)
    last = server.current_session(session_id).head.seq
    end = data.draw(st.integers(0, last))
    start = data.draw(st.integers(0, end))
    whole = server.diff(session_id, start, end)
    size = data.draw(st.integers(1, 4))
    pieces: list[SessionChangeItem] = []
    place: Place | None = None
    while True:
        page = server.diff(session_id, start, end, place, size)
        pieces += page.changes
        assert len(page.changes) <= size
        place = page.next_place
        if place is None:
            break
    assert pieces == whole.changes
    assert sum(whole.counts.values()) == len(pieces)
    gone = {change.id for change in pieces if change.kind is ChangeKind.ELIMINATED}
    before = server.query_belief(session_id, at=start).survivors
    assert [name for name in before if name not in gone] == server.query_belief(session_id, at=end).survivors


@pytest.mark.req("DIFF-01")
def test_a_difference_leaves_out_what_was_concluded_before() -> None:
    server = BeliefServer()
    diff = server.diff(lived(server), 6)
    assert [(change.kind, change.id) for change in diff.changes] == [("eliminated", "d")]


@pytest.mark.req("SOURCES-01")
def test_sources_are_told_apart_by_what_they_took_out_first_again_and_alone() -> None:
    server = BeliefServer()
    found = server.sources(lived(server))
    logs, metrics = found.sources
    assert (logs.source_id, logs.events, logs.eliminated, logs.only_here) == ("logs", 2, 3, 2)
    assert (logs.already_eliminated_by_others, logs.already_eliminated_by_itself) == (0, 1)
    assert logs.bits == pytest.approx(log2(8) - log2(6) + log2(5) - log2(4))
    assert (metrics.eliminated, metrics.already_eliminated_by_others, metrics.only_here) == (1, 1, 1)
    assert (metrics.contradicted_conclusions, logs.contradicted_conclusions) == (["c"], [])
    assert found.agreements == [AgreementItem("logs", "metrics", 1, 0.25)]
    assert (found.n_sources, found.agreed, found.n_survivors) == (2, 1, 4)
    assert not logs.left_none


def test_the_source_that_took_the_last_survivor_is_named() -> None:
    server = BeliefServer()
    session_id = declared(server, "ab")
    server.eliminate(session_id, "one", "1", ["a"])
    server.eliminate(session_id, "two", "1", ["b"])
    assert [(each.source_id, each.left_none) for each in server.sources(session_id).sources] == [
        ("one", False),
        ("two", True),
    ]


@pytest.mark.req("SOURCES-01")
def test_many_sources_come_in_pages_and_their_pairs_are_bounded() -> None:
    server = BeliefServer()
    session_id = declared(server, [f"h{number:02}" for number in range(40)])
    for number in range(30):
        server.eliminate(session_id, f"s{number:02}", "1", [f"h{number:02}", "h39"])
    first = server.sources(session_id, limit=20)
    second = server.sources(session_id, first.next_source_id, 20)
    assert [each.source_id for each in (*first.sources, *second.sources)] == [f"s{number:02}" for number in range(30)]
    assert (first.n_sources, second.next_source_id) == (30, None)
    assert len(first.agreements) == MAX_SOURCES_COMPARED * (MAX_SOURCES_COMPARED - 1) // 2
    assert sum(each.eliminated for each in (*first.sources, *second.sources)) == 31


@given(history=strategies.histories())
def test_what_sources_eliminated_adds_up_to_what_is_gone(history: History) -> None:
    server = BeliefServer()
    session_id, _ = play(server, history)
    session = server.current_session(session_id)
    found = server.sources(session_id)
    assert sum(each.eliminated for each in found.sources) == session.eliminated_total
    assert sum(each.events for each in found.sources) == len(session.observations)
    universe, left = len(session.universe), len(session.survivors)
    assert sum(each.bits for each in found.sources) == pytest.approx(log2(universe) - log2(left or 1))
