"""Titles and labels: lines of text and names, refused where they are not, and part of the first event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cmbs.belief.kernel.queries import MAX_TERMS, MAX_TEXT_LENGTH, build_session_query, describe_session
from cmbs.belief.kernel.titles import MAX_LABELS, MAX_TITLE_LENGTH, build_titles, require_titles
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, InvalidRequest, LimitExceeded
from cmbs.messages import OntologyBundle
from cmbs.stores.memory import InMemoryStore
from tests.support.store_fixture import declared
from tests.support.subtests import for_each

ONTOLOGY = OntologyBundle("s", "1", "g", "1")


@pytest.mark.req("FIND-TITLE-01")
@for_each("title", ["", " ", "a\nb", "\x00", "\x85", "a\u2028b", "\ud800", 1, ["a"], {}])
def test_what_is_no_line_of_text_is_no_title(title: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        build_titles(title, None)
    assert refused.value.details["field"] == "title"


@pytest.mark.req("FIND-TITLE-01")
@for_each(
    "labels",
    [[], "a:b", {"": "x"}, {"a b": "x"}, {"a:": "x"}, {"-a": "x"}, {"a" * 64: "x"}, {1: "x"}, {"a": ""}, {"a": 1}],
)
def test_what_is_no_name_or_no_text_is_no_label(labels: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        build_titles(None, labels)
    assert str(refused.value.details["field"]).startswith("labels")


@pytest.mark.req("FIND-TITLE-01")
def test_titles_and_labels_are_bounded() -> None:
    for arguments, limit in (
        (("x" * (MAX_TITLE_LENGTH + 1), None), "title_length"),
        ((None, {f"a{number}": "x" for number in range(MAX_LABELS + 1)}), "labels"),
        ((None, {"a": "x" * 201}), "label_value_length"),
    ):
        with pytest.raises(LimitExceeded) as refused:
            build_titles(*arguments)
        assert refused.value.details["limit"] == limit
    build_titles("x" * MAX_TITLE_LENGTH, {f"a{number}": "x" for number in range(MAX_LABELS)})


@pytest.mark.req("FIND-TITLE-01")
def test_a_recorded_title_that_no_request_could_have_had_does_not_verify() -> None:
    good = build_titles("a title", {"b": "2", "a": "1"})
    require_titles(*good)
    for title, labels in (
        ("", good.labels),
        (good.title, msgspec.Raw(b'{"b":"2","a":"1"}')),
        (good.title, msgspec.Raw(b"{}")),
        (good.title, msgspec.Raw(b"[1]")),
        (good.title, msgspec.Raw(b'{"a":1}')),
        (good.title, msgspec.Raw(b"{")),
    ):
        with pytest.raises(ValueError, match="its "):
            require_titles(title, labels)


@pytest.mark.req("FIND-TITLE-01")
def test_a_repeat_with_another_title_is_a_conflict() -> None:
    server = BeliefServer(store=InMemoryStore())
    first = server.declare_session(ONTOLOGY, ["a"], title="one", labels={}, idempotency_key="k")
    assert server.declare_session(ONTOLOGY, ["a"], title="one", idempotency_key="k") == first
    with pytest.raises(Conflict):
        server.declare_session(ONTOLOGY, ["a"], title="two", idempotency_key="k")


@pytest.mark.req("FIND-SESSIONS-01")
@for_each(
    ("asked", "field"),
    [
        ({"order": "up"}, "order"),
        ({"state": "done"}, "state"),
        ({"labels": ["team"]}, "label"),
        ({"labels": [":x"]}, "label"),
        ({"labels": ["x:"]}, "label"),
        ({"labels": [f"a:{number}" for number in range(MAX_TERMS + 1)]}, "label"),
        ({"text": "x" * (MAX_TEXT_LENGTH + 1)}, "text"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026"}, "until"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_and_says_where(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        build_session_query(**asked)
    assert refused.value.details["field"] == field


@pytest.mark.req("FIND-SESSIONS-01", "FIND-TITLE-01")
def test_a_session_is_found_in_python_with_what_a_list_says() -> None:
    server = BeliefServer(store=InMemoryStore())
    declared(server)
    session_id = declared(server, title="Slow checkout", labels={"team": "payments"})
    server.eliminate(session_id, "s", "1", ["a", "b", "c", "d"])
    (found,) = server.find_sessions(build_session_query(labels=["team:payments"], text="CHECK"))
    shown = describe_session(found, with_trail=True)
    assert (shown["session_id"], shown["title"], shown["labels"]) == (session_id, "Slow checkout", {"team": "payments"})
    assert (shown["state"], shown["contradiction"], shown["trail"]) == ("contradiction", True, [(0, 4), (1, 0)])
    assert "trail" not in describe_session(found)
    assert len(server.find_sessions()) == 2
