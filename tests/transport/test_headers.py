"""Conditions, keys and preferences: what a request may say besides what it asks for."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.stores import SQLiteStore
from tests.support.error_model import check_error
from tests.support.in_process import Client, body_events, client_of
from tests.support.requests_of import ON_A_SESSION, WRITES, open_session, path_of
from tests.support.transports import DECLARATION


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("headers") / "cmbs.db"
    server = BeliefServer(store=SQLiteStore(path) if request.param == "sqlite" else None)
    with client_of(create_app(server)) as client:
        yield client
    server.close()


@pytest.fixture
def session_id(client: Client) -> str:
    return open_session(client, 0)


def head_of(client: Client, session_id: str) -> str:
    head: str = client.get(f"/v1/sessions/{session_id}").json()["audit_head_event_id"]
    return head


def events_of(client: Client, session_id: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = client.get(f"/v1/sessions/{session_id}/audit").json()["events"]
    return events


def first_answer_of(repeat: httpx2.Response) -> Any:
    """What a repeat says of the first time."""
    assert repeat.headers["idempotent-replayed"] == "true"
    answer = repeat.json()
    assert answer.pop("replayed") is True
    assert answer.pop("current").keys() == {"n_survivors", "audit_head_event_id", "terminated"}
    return answer


# --- If-Match ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-08")
def test_a_write_on_the_head_that_was_seen_goes_through(subtests: pytest.Subtests, client: Client) -> None:
    for written in ['"{head}"', "{head}", 'W/"{head}"', ' "{head}" ', "*", " * "]:
        for name in ON_A_SESSION:
            with subtests.test(written=written, name=name):
                session_id = open_session(client, 0)
                head = head_of(client, session_id)
                headers = {"If-Match": written.format(head=head)}
                assert client.post(path_of(name, session_id), WRITES[name].body, headers=headers).status_code == 200
                assert head_of(client, session_id) != head


@pytest.mark.req("HTTP-EXT-09")
def test_a_write_on_another_head_is_refused_and_leaves_no_trace(subtests: pytest.Subtests, client: Client) -> None:
    for written in ['"{first}"', "{first}", 'W/"{first}"', '""', '"*"', "none-such", '"é"']:
        for name in ON_A_SESSION:
            with subtests.test(written=written, name=name):
                session_id = open_session(client, 0)
                events = events_of(client, session_id)
                headers = {"If-Match": written.format(first=events[0]["event_id"]).encode()}
                answer = client.post(path_of(name, session_id), WRITES[name].body, headers=headers)
                details = check_error(answer, 412, "CONFLICT")
                assert details["actual"] == events[-1]["event_id"]
                assert events_of(client, session_id) == events


def test_a_condition_that_does_not_name_one_head_is_refused(subtests: pytest.Subtests, client: Client) -> None:
    for written in ['"{head}", "x"', '"{head}","{head}"', '"{head}', "a b", "", '"a"b"', "*, *"]:
        with subtests.test(written=written):
            session_id = open_session(client, 0)
            events = events_of(client, session_id)
            headers = {"If-Match": written.format(head=events[-1]["event_id"])}
            answer = client.post(path_of("request_termination", session_id), {}, headers=headers)
            assert check_error(answer, 400, "INVALID_REQUEST")["header"] == "if-match"
            assert events_of(client, session_id) == events


def test_a_repeat_gets_its_first_answer_though_its_condition_no_longer_holds(
    subtests: pytest.Subtests, client: Client
) -> None:
    for name, key in [("eliminate", {}), ("declare_conclusion", {"Idempotency-Key": "once"})]:
        with subtests.test(name=name, key=key):
            session_id = open_session(client, 0)
            condition = {"If-Match": f'"{head_of(client, session_id)}"'}
            path, body = path_of(name, session_id), WRITES[name].body
            first = client.post(path, body, headers=condition | key)
            other = {**WRITES["eliminate"].body, "observation_id": "2"}
            assert client.post(path_of("eliminate", session_id), other, headers=condition).status_code == 412
            again = client.post(path, body, headers=condition | key)
            assert (again.status_code, first_answer_of(again)) == (200, first.json())


def test_a_condition_on_a_session_that_is_not_there_is_not_found(subtests: pytest.Subtests, client: Client) -> None:
    for name in ON_A_SESSION:
        with subtests.test(name=name):
            answer = client.post(path_of(name, "nowhere"), WRITES[name].body, headers={"If-Match": "*"})
            check_error(answer, 404, "SESSION_NOT_FOUND")


# --- Idempotency-Key --------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-10", "HTTP-EXT-12")
def test_a_repeat_under_the_same_key_gets_the_first_answer_and_leaves_no_trace(
    subtests: pytest.Subtests, client: Client
) -> None:
    for name in ON_A_SESSION:
        with subtests.test(name=name):
            session_id = open_session(client, 0)
            path, body, headers = path_of(name, session_id), WRITES[name].body, {"Idempotency-Key": f"{name} 1"}
            first = client.post(path, body, headers=headers)
            assert first.status_code == 200
            client.post(path_of("declare_conclusion", session_id), {"conclusion_id": "in between"})
            events = events_of(client, session_id)
            again = client.post(path, body, headers=headers)
            assert (again.status_code, first_answer_of(again)) == (200, first.json())
            assert events_of(client, session_id) == events
            keyed = [event["event_id"] for event in events if event.get("idempotency_key") == f"{name} 1"]
            assert keyed == [first.json()["audit_event_id"]]


@pytest.mark.req("HTTP-EXT-11", "HTTP-EXT-12", "BS-3.2-ERR-06")
def test_another_body_under_the_same_key_is_a_conflict_and_leaves_no_trace(
    subtests: pytest.Subtests, client: Client
) -> None:
    for name in ON_A_SESSION:
        with subtests.test(name=name):
            session_id = open_session(client, 0)
            path, body, headers = path_of(name, session_id), WRITES[name].body, {"Idempotency-Key": "k"}
            assert client.post(path, body, headers=headers).status_code == 200
            events = events_of(client, session_id)
            others: dict[str, dict[str, Any]] = {
                "eliminate": {"eliminated": ["b"]},
                "enter_obligation": {"min_total_eliminations": 7},
                "request_exit": {"context": {"again": True}},
                "declare_conclusion": {"conclusion_id": "b"},
                "request_termination": {"context": {"again": True}},
            }
            check_error(client.post(path, {**body, **others[name]}, headers=headers), 409, "CONFLICT")
            another = "request_termination" if name != "request_termination" else "declare_conclusion"
            check_error(
                client.post(path_of(another, session_id), WRITES[another].body, headers=headers), 409, "CONFLICT"
            )
            assert events_of(client, session_id) == events


@pytest.mark.req("HTTP-EXT-12")
def test_a_declaration_under_the_same_key_is_the_same_session(client: Client) -> None:
    headers = {"Idempotency-Key": "the incident of monday"}
    first = client.post("/v1/sessions", DECLARATION, headers=headers)
    session_id = first.json()["session_id"]
    client.post(path_of("eliminate", session_id), WRITES["eliminate"].body)
    again = client.post("/v1/sessions", {**DECLARATION, "hypotheses": list("dcba")}, headers=headers)
    assert (again.status_code, first_answer_of(again), again.headers["location"]) == (
        201,
        first.json(),
        first.headers["location"],
    )
    other = client.post("/v1/sessions", {**DECLARATION, "hypotheses": list("abc")}, headers=headers)
    check_error(other, 409, "CONFLICT")
    assert [event["verb"] for event in events_of(client, session_id)] == ["DECLARE_SESSION", "ELIMINATE"]


def test_the_same_key_in_two_sessions_is_two_keys(client: Client) -> None:
    opened = [client.post("/v1/sessions", DECLARATION).json()["session_id"] for _ in range(2)]
    for number, session_id in enumerate(opened):
        body = {"conclusion_id": str(number)}
        answer = client.post(path_of("declare_conclusion", session_id), body, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 200


def test_a_key_survives_a_write_that_was_refused(client: Client, session_id: str) -> None:
    path, headers = path_of("declare_conclusion", session_id), {"Idempotency-Key": "k"}
    check_error(client.post(path, {"conclusion_id": 1}, headers=headers), 400, "INVALID_REQUEST")
    check_error(
        client.post(path, {"conclusion_id": "a"}, headers={**headers, "If-Match": "none-such"}), 412, "CONFLICT"
    )
    assert client.post(path, {"conclusion_id": "b"}, headers=headers).status_code == 200


def test_a_key_that_is_no_key_is_refused(subtests: pytest.Subtests, client: Client) -> None:
    for key, status, code in [("", 400, "INVALID_REQUEST"), ("x" * 1025, 413, "LIMIT_EXCEEDED")]:
        for name in WRITES:
            with subtests.test(key=key, status=status, code=code, name=name):
                session_id = open_session(client, 0)
                events = events_of(client, session_id)
                headers = {"Idempotency-Key": key}
                check_error(client.post(path_of(name, session_id), WRITES[name].body, headers=headers), status, code)
                assert events_of(client, session_id) == events


def test_any_other_key_works_byte_for_byte(subtests: pytest.Subtests, client: Client) -> None:
    for key in [b"k", b'"quoted"', b"a, b", b"cl\xc3\xa9", b"x" * 1024, b"::"]:
        with subtests.test(key=key):
            session_id = open_session(client, 0)
            path, headers = path_of("declare_conclusion", session_id), {"Idempotency-Key": key}
            first = client.post(path, {"conclusion_id": "a"}, headers=headers).json()
            assert first_answer_of(client.post(path, {"conclusion_id": "a"}, headers=headers)) == first
            assert events_of(client, session_id)[-1]["idempotency_key"].encode() == key


# --- Prefer -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-13")
def test_a_minimal_answer_lacks_the_survivors_and_nothing_else(subtests: pytest.Subtests, client: Client) -> None:
    for name in WRITES:
        with subtests.test(name=name):
            replies = []
            for headers in ({}, {"Prefer": "return=minimal"}):
                opened = open_session(client, 0)
                answer = client.post(path_of(name, opened), WRITES[name].body, headers=headers)
                assert answer.headers.get("preference-applied") == headers.get("Prefer")
                replies.append(answer.json())
            whole, minimal = replies
            assert whole["snapshot"].pop("survivors") == whole_ids(name)
            assert set(minimal) == set(whole)
            assert set(minimal["snapshot"]) == set(whole["snapshot"])
            assert minimal["snapshot"]["n_survivors"] == whole["snapshot"]["n_survivors"]


def whole_ids(name: str) -> list[str]:
    return {"declare_session": ["a"], "eliminate": list("bcd")}.get(name, list("abcd"))


@pytest.mark.req("HTTP-EXT-13")
def test_a_snapshot_can_be_read_without_its_survivors(client: Client, session_id: str) -> None:
    whole = client.get(f"/v1/sessions/{session_id}")
    minimal = client.get(f"/v1/sessions/{session_id}", headers={"Prefer": "return=minimal"})
    assert minimal.headers["preference-applied"] == "return=minimal"
    assert "preference-applied" not in whole.headers
    assert whole.headers["vary"] == minimal.headers["vary"] == "prefer"
    assert {**minimal.json(), "survivors": list("abcd")} == whole.json()


def test_a_preference_is_read_as_a_list_of_which_the_first_counts(subtests: pytest.Subtests, client: Client) -> None:
    for said, applied in [
        ([b"return=minimal"], True),
        ([b"Return=Minimal"], True),
        ([b'return="minimal"'], True),
        ([b" return = minimal "], True),
        ([b"respond-async, return=minimal; foo=bar"], True),
        ([b"respond-async", b"return=minimal"], True),
        ([b"return=minimal", b"return=minimal"], True),
        ([b"return=minimal, return=representation"], True),
        ([b"return=representation, return=minimal"], False),
        ([b"return=representation", b"return=minimal"], False),
        ([b"return=minimalistic"], False),
        ([b"x-return=minimal"], False),
        ([b"return"], False),
        ([b""], False),
        ([b'foo="return=minimal"'], False),
    ]:
        with subtests.test(said=said, applied=applied):
            session_id = open_session(client, 0)
            headers = [(b"prefer", value) for value in said]
            answer = client.exchange("GET", f"/v1/sessions/{session_id}".encode(), headers)
            assert answer.status == 200
            assert ("preference-applied" in answer.headers) == applied
            assert ("survivors" in answer.json()) != applied


# --- ETag, Location, HEAD ---------------------------------------------------------------------------------------------


def test_the_tag_of_a_snapshot_is_its_audit_head_and_works_as_a_condition(client: Client, session_id: str) -> None:
    belief = client.get(f"/v1/sessions/{session_id}")
    assert belief.headers["etag"] == f'"{belief.json()["audit_head_event_id"]}"'
    headers = {"If-Match": belief.headers["etag"]}
    path = path_of("declare_conclusion", session_id)
    assert client.post(path, {"conclusion_id": "a"}, headers=headers).status_code == 200
    assert client.get(f"/v1/sessions/{session_id}").headers["etag"] != belief.headers["etag"]
    earlier = client.get(f"/v1/sessions/{session_id}", params={"at": "1"})
    assert earlier.headers["etag"] == belief.headers["etag"]


def test_a_new_session_is_where_the_answer_says(client: Client) -> None:
    opened = client.post("/v1/sessions", DECLARATION)
    found = client.get(urljoin("/v1/sessions", opened.headers["location"]))
    assert found.json() == opened.json()["snapshot"]


def test_head_of_what_is_not_there_is_an_error_without_a_body(client: Client) -> None:
    bare = client.request("HEAD", "/v1/sessions/nowhere")
    assert (bare.status_code, bare.content) == (404, b"")


# --- a caller that goes away ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_caller_that_goes_away_in_the_middle_of_a_body_changed_nothing(
    subtests: pytest.Subtests, client: Client
) -> None:
    for chunks in [[], [b'{"conclusion_id"'], [b'{"conclusion_id"', b':"a"', b"}"]]:
        with subtests.test(chunks=chunks):
            session_id = open_session(client, 0)
            events = events_of(client, session_id)
            cut_off = [{**event, "more_body": True} for event in body_events(*chunks)]
            path = path_of("declare_conclusion", session_id).encode()
            answer = client.exchange("POST", path, [(b"content-type", b"application/json")], cut_off)
            check_error(answer, 400, "INVALID_REQUEST")
            assert events_of(client, session_id) == events
