"""Hypotheses found by a text: among survivors and among what was eliminated, in bounded pages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel import comparisons, search
from cmbs.belief.kernel.comparisons import ChangeKind, Place
from cmbs.belief.kernel.queries import MAX_TEXT_LENGTH
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest
from cmbs.messages import OntologyBundle
from tests.support.subtests import for_each

pytestmark = pytest.mark.req("SEARCH-01")
ONTOLOGY = OntologyBundle("hosts", "1", "none", "1")


def declared(server: BeliefServer, ids: list[str]) -> str:
    attributes: dict[str, dict[str, Any]] = {
        "db-1": {"team": "Payments", "rack": 7},
        "web-2": {"zones": ["north", "Süd"]},
    }
    known = {name: attributes[name] for name in ids if name in attributes}
    return server.declare_session(ONTOLOGY, ids, hypothesis_attributes=known)[0]


def find(server: BeliefServer, session_id: str, text: str, limit: int = 100) -> list[str]:
    """All pages of a search among survivors."""
    found: list[str] = []
    after: str | None = None
    while True:
        page, _ = server.find_survivors(session_id, text, after, limit)
        assert len(page.ids) <= limit
        found += page.ids
        after = page.next_after
        if after is None:
            return found


@for_each(
    ("text", "expected"),
    [
        ("DB", ["db-1", "db-2"]),
        ("payments", ["db-1"]),
        ("7", ["db-1"]),
        ("SÜD", ["web-2"]),
        ("team", []),
        ("", ["db-1", "db-2", "web-1", "web-2"]),
    ],
)
def test_a_text_is_looked_for_in_ids_and_in_values_in_any_case(text: str, expected: list[str]) -> None:
    server = BeliefServer()
    session_id = declared(server, ["db-1", "db-2", "web-1", "web-2"])
    assert find(server, session_id, text) == expected
    server.eliminate(session_id, "s", "o", ["db-1", "db-2", "web-1", "web-2"])
    server.enter_obligation(session_id, "web-gate", 1)
    assert find(server, session_id, text) == []
    changes = server.diff(session_id, 0, text=text).changes
    assert [each.id for each in changes if each.kind is ChangeKind.ELIMINATED] == expected


def test_other_changes_are_found_by_their_ids() -> None:
    server = BeliefServer()
    session_id = declared(server, ["a"])
    server.enter_obligation(session_id, "gate", 0)
    server.request_exit(session_id, "gate")
    server.request_termination(session_id)
    diff = server.diff(session_id, 0, text="GAT")
    assert [each.id for each in diff.changes] == ["gate", "gate"]
    assert diff.counts["terminated"] == 1


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, unique=True), st.text("ab", max_size=2), st.data())
def test_pages_put_together_are_the_whole_however_few_ids_a_page_looks_at(
    ids: list[str], text: str, data: st.DataObject
) -> None:
    server = BeliefServer()
    session_id = declared(server, ids)
    gone = data.draw(st.sets(st.sampled_from(ids)))
    server.eliminate(session_id, "s", "o", sorted(gone))
    limit, most = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "MAX_IDS_SEARCHED", most)
        patch.setattr(comparisons, "MAX_IDS_SEARCHED", most)
        assert find(server, session_id, text, limit) == [
            each for each in sorted(ids) if text in each and each not in gone
        ]
        found: list[str | None] = []
        place: Place | None = None
        while True:
            page = server.diff(session_id, 0, after=place, limit=limit, text=text)
            found += [each.id for each in page.changes]
            place = page.next_place
            if place is None:
                break
        assert sorted(map(str, found)) == sorted(each for each in gone if text in each)


def test_a_text_that_is_too_long_is_refused() -> None:
    server = BeliefServer()
    session_id = declared(server, ["a"])
    with pytest.raises(InvalidRequest, match="longer than"):
        server.find_survivors(session_id, "x" * (MAX_TEXT_LENGTH + 1))
    with pytest.raises(InvalidRequest, match="longer than"):
        server.diff(session_id, 0, text="x" * (MAX_TEXT_LENGTH + 1))


def test_a_page_begins_after_an_id_and_at_a_moment() -> None:
    server = BeliefServer()
    session_id = declared(server, ["a1", "a2", "a3"])
    server.eliminate(session_id, "s", "o", ["a3"])
    page, belief = server.find_survivors(session_id, "a", "a1", at=0)
    assert (page.ids, page.next_after, belief.n_survivors) == (["a2", "a3"], None, 3)
