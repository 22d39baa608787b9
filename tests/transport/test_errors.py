"""Every failure has one shape, under one status, and leaves everything as it was."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from cmbs.api.operations import OPERATIONS
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from tests.support.error_model import check_error
from tests.support.in_process import Client, Event, body_events, client_of
from tests.support.requests_of import (
    FIELD_KINDS,
    ON_A_SESSION,
    READS,
    WRITES,
    WRONG_VALUES,
    open_session,
    path_of,
    request_of,
)
from tests.support.transports import ONTOLOGY

NOWHERE = ["/v1", "/v1/", "/v2/sessions", "//v1/sessions", "/v1//sessions", "/v1/%73essions"]
NOWHERE += ["/v1/sessions/x/nothing", "/v1/sessions/x/eliminate/", "/v1/sessions/x/obligations/o"]
NOWHERE += ["/v1/sessions/x/obligations/o/exit/", "/healthz/", "/metrics", "/%ff", "/\u2713"]
CURSORS = ["", "x", "!", "W10", "WyJhIiwiYiIsImMiXQ", "eyJhIjoxfQ"]
CURSORS += ["WzFd", "W251bGxd", "\u2713", "AAAA", "WyJ", "W1siYSJdXQ"]
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"}
LIMIT = 600
ALL_ON_A_SESSION = [*ON_A_SESSION, "query_belief", "list_survivors", "audit_trace", "list_obligations"]


@pytest.fixture(scope="module")
def server() -> BeliefServer:
    return BeliefServer(limits=Limits(body_bytes=100_000, page_size=50, id_length=100))


@pytest.fixture(scope="module")
def client(server: BeliefServer) -> Iterator[Client]:
    with client_of(create_app(server)) as client:
        yield client


@pytest.fixture
def session_id(client: Client, server: BeliefServer) -> Iterator[str]:
    """A session in which, when the test is over, nothing has changed; nor is there any new one beside it."""
    opened = open_session(client)
    path = f"/v1/sessions/{opened}"

    def all_there_is() -> list[Any]:
        return [client.get(f"{path}/audit").json(), client.get(path).json(), server.log.sessions(None, 10_000)]

    before = all_there_is()
    yield opened
    assert all_there_is() == before


# --- the request line -------------------------------------------------------------------------------------------------


@pytest.mark.req("BS-3.2-ERR-01", "BS-3.2-ERR-07")
def test_an_unknown_path_is_not_found(subtests: pytest.Subtests, client: Client) -> None:
    for path in NOWHERE:
        for method in ["GET", "POST", "DELETE"]:
            with subtests.test(path=path, method=method):
                check_error(client.request(method, path), 404, "NOT_FOUND")


@pytest.mark.req("BS-3.2-ERR-08")
def test_a_wrong_method_is_refused_and_the_right_ones_are_named(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for path in sorted({operation.path for operation in OPERATIONS}):
        with subtests.test(path=path):
            allowed = {operation.method for operation in OPERATIONS if operation.path == path}
            allowed |= {"HEAD"} if "GET" in allowed else set()
            for method in METHODS - allowed - {"HEAD"}:
                answer = client.request(method, re.sub(r"{\w+}", "x", path.replace("{session_id}", session_id)))
                details = check_error(answer, 405, "METHOD_NOT_ALLOWED")
                assert details["allowed"] == sorted(allowed)
                assert answer.headers["allow"] == ", ".join(sorted(allowed))


@pytest.mark.req("BS-3.2-ERR-08")
def test_head_of_what_can_only_be_posted_is_refused_without_a_body(client: Client, session_id: str) -> None:
    answer = client.request("HEAD", f"/v1/sessions/{session_id}/eliminate")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST", b"")


@pytest.mark.req("BS-3.2-ERR-08")
def test_a_wrong_method_on_a_page_of_the_framework_is_refused_alike(subtests: pytest.Subtests, client: Client) -> None:
    for path in ["/docs", "/openapi.json", "/docs/swagger-ui.css"]:
        with subtests.test(path=path):
            answer = client.request("DELETE", path)
            assert check_error(answer, 405, "METHOD_NOT_ALLOWED")["allowed"] == ["GET", "HEAD"]
            assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.req("BS-3.2-ERR-02")
def test_an_unknown_session_is_not_found(subtests: pytest.Subtests, client: Client) -> None:
    for unknown in ["00000000-0000-4000-8000-00000000dead", "", "%2F", "%00", "%E2%9C%93", "a%20b", "%25"]:
        for name in ALL_ON_A_SESSION:
            with subtests.test(unknown=unknown, name=name):
                check_error(client.request(**request_of(name, unknown)), 404, "SESSION_NOT_FOUND")


def test_a_path_that_is_not_utf_8_is_refused(subtests: pytest.Subtests, client: Client) -> None:
    for odd in ["%ff", "%C3", "%ED%A0%80", "x%80y"]:
        for name in ALL_ON_A_SESSION:
            with subtests.test(odd=odd, name=name):
                check_error(client.request(**request_of(name, odd)), 400, "INVALID_REQUEST")


def test_unescaped_bytes_in_a_path_are_read_as_utf_8(client: Client) -> None:
    found = client.exchange("GET", b"/v1/sessions/\xe2\x9c\x93")
    assert check_error(found, 404, "SESSION_NOT_FOUND")["session_id"] == "✓"
    check_error(client.exchange("GET", b"/v1/sessions/\xe2\x9c"), 400, "INVALID_REQUEST")


def test_an_id_beyond_the_limit_is_refused_in_a_path_too(client: Client) -> None:
    details = check_error(client.get(f"/v1/sessions/{'x' * 101}"), 413, "LIMIT_EXCEEDED")
    assert (details["limit"], details["maximum"], details["actual"]) == ("id_length", 100, 101)


# --- the query --------------------------------------------------------------------------------------------------------


def test_a_query_parameter_that_means_nothing_is_refused(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for query in ["unknown=1", "Limit=1", "=", "a=1&b=2", "%ff=1", "x=%ff", "x=%ED%A0%80"]:
        for name in [*WRITES, *READS]:
            with subtests.test(query=query, name=name):
                request = request_of(name, session_id)
                check_error(client.request(**request | {"path": f"{request['path']}?{query}"}), 400, "INVALID_REQUEST")


def test_a_limit_that_is_no_count_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for limit in [
        "",
        "0",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "abc",
        " 1",
        "1_0",
        "0x1",
        "\uff11",
        "\u0663",
        "9" * 17,
        "9" * 5000,
    ]:
        for name in ["list_sessions", "list_survivors", "audit_trace"]:
            with subtests.test(limit=limit, name=name):
                answer = client.get(path_of(name, session_id), params={"limit": limit})
                check_error(answer, 400, "INVALID_REQUEST")


@pytest.mark.req("ARCH-5-LIMIT-05")
def test_a_page_beyond_the_limit_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for limit in [51, 2**53 - 1]:
        for name in ["list_sessions", "list_survivors", "audit_trace"]:
            with subtests.test(limit=limit, name=name):
                details = check_error(
                    client.get(path_of(name, session_id), params={"limit": limit}), 413, "LIMIT_EXCEEDED"
                )
                assert (details["limit"], details["maximum"], details["actual"]) == ("page_size", 50, limit)


def test_a_cursor_of_another_origin_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for cursor in CURSORS:
        for name in ["list_sessions", "list_survivors"]:
            with subtests.test(cursor=cursor, name=name):
                answer = client.get(path_of(name, session_id), params={"cursor": cursor})
                assert check_error(answer, 400, "INVALID_REQUEST")["parameter"] == "cursor"


@pytest.mark.req("HTTP-EXT-05")
def test_a_moment_that_never_was_is_not_found(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for at in ["", "2", "-1", "1.0", " 1", "x", "9" * 16, "9" * 17, "9" * 5000, "\uff11", "a/b"]:
        for name in ["query_belief", "list_survivors"]:
            with subtests.test(at=at, name=name):
                answer = client.get(path_of(name, session_id), params={"at": at})
                check_error(answer, 404, "EVENT_NOT_FOUND")


@pytest.mark.req("BS-2.1-AUDIT-03")
def test_an_unknown_event_is_not_found_and_never_the_whole_log(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for since in ["", "0", "1", "00000000-0000-4000-8000-00000000dead", "' OR 1=1 --"]:
        with subtests.test(since=since):
            answer = client.get(f"/v1/sessions/{session_id}/audit", params={"since_event_id": since})
            assert check_error(answer, 404, "EVENT_NOT_FOUND")["event"] == since


def test_a_query_parameter_that_stands_twice_is_refused(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for name, query in [
        ("list_sessions", "limit=1&limit=1"),
        ("list_survivors", "at=0&at=1"),
        ("query_belief", "at=0&at=0"),
        ("audit_trace", "since_event_id=a&since_event_id=b"),
        ("list_survivors", "cursor=a&cursor=a"),
    ]:
        with subtests.test(name=name, query=query):
            answer = client.get(f"{path_of(name, session_id)}?{query}")
            assert check_error(answer, 400, "INVALID_REQUEST")["parameter"] == query.partition("=")[0]


# --- the fields of a body ---------------------------------------------------------------------------------------------


@pytest.mark.req("BS-3.2-ERR-11")
def test_a_field_that_is_missing_is_named(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for name in WRITES:
        for field in WRITES[name].required:
            with subtests.test(name=name, field=field):
                body = {key: value for key, value in WRITES[name].body.items() if key != field}
                answer = client.post(path_of(name, session_id), body)
                assert f"`{field}`" in check_error(answer, 400, "INVALID_REQUEST")["message"]


@pytest.mark.req("BS-3.2-ERR-11")
def test_a_field_of_the_wrong_type_is_named(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for name in WRITES:
        for field in WRITES[name].body:
            with subtests.test(name=name, field=field):
                for wrong in WRONG_VALUES[FIELD_KINDS[field]]:
                    answer = client.post(path_of(name, session_id), {**WRITES[name].body, field: wrong})
                    message = check_error(answer, 400, "INVALID_REQUEST")["message"]
                    assert field in message or "I-JSON" in message, (wrong, message)


@pytest.mark.req("BS-3.2-ERR-11")
def test_an_unknown_field_is_named(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for name in WRITES:
        with subtests.test(name=name):
            answer = client.post(path_of(name, session_id), {**WRITES[name].body, "forced": True})
            assert "`forced`" in check_error(answer, 400, "INVALID_REQUEST")["message"]


@pytest.mark.req("BS-3.1-HTTP-09")
def test_a_session_id_that_differs_from_the_path_is_refused(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for other in ["", "another", None, 1]:
        for name in ON_A_SESSION:
            with subtests.test(other=other, name=name):
                answer = client.post(path_of(name, session_id), {**WRITES[name].body, "session_id": other})
                assert "session_id" in check_error(answer, 400, "INVALID_REQUEST")["message"]


def test_an_obligation_id_that_differs_from_the_path_is_refused(client: Client, session_id: str) -> None:
    answer = client.post(path_of("request_exit", session_id), {"obligation_id": "another"})
    details = check_error(answer, 400, "INVALID_REQUEST")
    assert (details["body"], details["path"]) == ("another", "gate")


@pytest.mark.req("BS-3.1-HTTP-09")
def test_a_session_id_that_is_that_of_the_path_is_fine(subtests: pytest.Subtests, client: Client) -> None:
    for name in ON_A_SESSION:
        with subtests.test(name=name):
            opened = open_session(client)
            body = {**WRITES[name].body, "session_id": opened}
            if name == "request_exit":
                body["obligation_id"] = "gate"
            assert client.post(path_of(name, opened), body).status_code == 200


def test_a_lone_surrogate_is_no_text(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for name in WRITES:
        with subtests.test(name=name):
            write = WRITES[name]
            for field in [key for key in write.body if FIELD_KINDS[key] in {"text", "object", "ids"}]:
                spoilt: Any = {"text": "\ud800", "object": {"\ud800": 1}, "ids": ["\ud800"]}[FIELD_KINDS[field]]
                content = json.dumps({**write.body, field: spoilt}).encode()
                check_error(client.post_raw(path_of(name, session_id), content), 400, "INVALID_REQUEST")


@pytest.mark.req("ARCH-5-LIMIT-01")
def test_an_id_beyond_the_limit_is_refused_and_the_limit_named(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for name in WRITES:
        with subtests.test(name=name):
            write, long = WRITES[name], "é" * 101
            for field in [key for key in write.body if FIELD_KINDS[key] in {"text", "ids"}]:
                body = {**write.body, field: long if FIELD_KINDS[field] == "text" else ["a", long]}
                details = check_error(client.post(path_of(name, session_id), body), 413, "LIMIT_EXCEEDED")
                assert (details["limit"], details["maximum"], details["actual"]) == ("id_length", 100, 101)


# --- the size of a body -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow() -> Iterator[Client]:
    """A server that takes bodies of so many bytes and no more."""
    with client_of(create_app(BeliefServer(limits=Limits(body_bytes=LIMIT)))) as client:
        yield client


def declaration_of(size: int) -> bytes:
    start = json.dumps({"ontology": ONTOLOGY, "hypotheses": ["a"], "metadata": {"fill": ""}}).encode()
    return start.replace(b'"fill": ""', b'"fill": "%b"' % (b"x" * (size - len(start))))


HEADERS = [(b"content-type", b"application/json")]


@pytest.mark.req("BS-3.2-ERR-10", "ARCH-5-LIMIT-04")
def test_a_body_that_says_it_is_too_large_is_refused_before_any_of_it_is_read(narrow: Client) -> None:
    headers = [*HEADERS, (b"content-length", b"%d" % (LIMIT + 1))]
    body = iter(body_events(b"x" * (LIMIT + 1)))
    details = check_error(narrow.exchange("POST", b"/v1/sessions", headers, body), 413, "LIMIT_EXCEEDED")
    assert (details["limit"], details["maximum"], details["actual"]) == ("body_bytes", LIMIT, LIMIT + 1)
    assert len(list(body)) == 1


@pytest.mark.req("BS-3.2-ERR-10", "ARCH-5-LIMIT-04")
def test_a_body_that_turns_out_too_large_is_refused(subtests: pytest.Subtests, narrow: Client) -> None:
    for chunk in [1, 7, LIMIT, LIMIT + 1, 10 * LIMIT]:
        with subtests.test(chunk=chunk):
            body = declaration_of(LIMIT + 1)
            chunks = [body[start : start + chunk] for start in range(0, len(body), chunk)]
            exchanged = narrow.exchange("POST", b"/v1/sessions", HEADERS, body_events(*chunks))
            assert check_error(exchanged, 413, "LIMIT_EXCEEDED")["limit"] == "body_bytes"


def test_a_body_without_an_end_is_not_read_further_than_the_limit(narrow: Client) -> None:
    asked = []

    def endless() -> Iterator[Event]:
        while True:
            asked.append(1)
            yield {"type": "http.request", "body": b"x" * 100, "more_body": True}

    check_error(narrow.exchange("POST", b"/v1/sessions", HEADERS, endless()), 413, "LIMIT_EXCEEDED")
    assert len(asked) <= LIMIT / 100 + 2


def test_a_body_of_just_the_limit_is_taken(subtests: pytest.Subtests, narrow: Client) -> None:
    for chunk in [1, 7, LIMIT]:
        with subtests.test(chunk=chunk):
            body = declaration_of(LIMIT)
            chunks = [body[start : start + chunk] for start in range(0, len(body), chunk)]
            headers = [*HEADERS, (b"content-length", b"%d" % LIMIT)]
            assert narrow.exchange("POST", b"/v1/sessions", headers, body_events(*chunks)).status == 201


def test_a_read_with_a_body_is_answered_as_if_it_had_none(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for name in READS:
        with subtests.test(name=name):
            assert client.request("GET", path_of(name, session_id), content=b"\xff{").status_code == 200


# --- the type of a body -----------------------------------------------------------------------------------------------


def test_a_body_of_another_type_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for media_type in [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "json",
        "a/json;b",
    ]:
        for name in WRITES:
            with subtests.test(media_type=media_type, name=name):
                headers = {} if media_type is None else {"content-type": media_type}
                answer = client.request("POST", path_of(name, session_id), content=b"{}", headers=headers)
                details = check_error(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
                assert details["content_type"] == ((media_type or "").partition(";")[0] or None)


def test_json_is_json_however_it_is_written(subtests: pytest.Subtests, client: Client) -> None:
    for media_type in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        " application/json ;x",
    ]:
        with subtests.test(media_type=media_type):
            answer = client.exchange(
                "POST", b"/v1/sessions", [(b"content-type", media_type.encode())], body_events(declaration_of(LIMIT))
            )
            assert answer.status == 201


def test_a_header_that_says_two_things_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for name in ["content-type", "idempotency-key", "if-match"]:
        with subtests.test(name=name):
            values = [b"application/json", b"text/plain"] if name == "content-type" else [b"a", b"b"]
            headers = [*HEADERS, *((name.encode(), value) for value in values)]
            exchanged = client.exchange(
                "POST", f"/v1/sessions/{session_id}/terminate".encode(), headers, body_events(b'{"context":null}')
            )
            assert check_error(exchanged, 400, "INVALID_REQUEST")["header"] == name


# --- what may be missing ----------------------------------------------------------------------------------------------


def test_a_body_of_which_every_field_is_optional_may_be_absent(subtests: pytest.Subtests, client: Client) -> None:
    for name in ["request_exit", "request_termination"]:
        with subtests.test(name=name):
            opened = open_session(client)
            assert client.post(path_of(name, opened)).json()["approved"] is False


def test_an_absent_body_lacks_the_fields_that_it_must_have(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for name in ["declare_session", "eliminate", "enter_obligation", "declare_conclusion"]:
        with subtests.test(name=name):
            message = check_error(client.post(path_of(name, session_id)), 400, "INVALID_REQUEST")["message"]
            assert any(f"`{field}`" in message for field in WRITES[name].required)
