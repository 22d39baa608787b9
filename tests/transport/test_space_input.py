"""Malformed, oversized and unsafe requests are refused before anything is recorded in a space."""

import httpx2
import pytest

from cmbs.stores.memory import InMemoryStore
from tests.support.error_model import check_error
from tests.support.space_client import OPS, PLANNER, SpaceClient, call

NESTED = b"[" * 10_000 + b"]" * 10_000
BAD_BODIES = {
    "not JSON": b"{",
    "a list": b"[]",
    "an unknown field": b'{"mode":"observe","why":"so"}',
    "a field twice": b'{"mode":"observe","mode":"enforce"}',
    "an unknown mode": b'{"mode":"asleep"}',
    "not UTF-8": b'{"mode":"\xff"}',
    "nested": b'{"mode":' + NESTED + b"}",
}


@pytest.mark.req("SS01-HTTP-07")
def test_a_malformed_body_is_refused(subtests: pytest.Subtests, space: SpaceClient, log: InMemoryStore) -> None:
    for case, body in BAD_BODIES.items():
        with subtests.test(case=case):
            before = log.head("space:s")
            answer = space.post_raw("/mode", body)
            check_error(answer, answer.status_code, answer.json()["error"]["code"])
            assert answer.status_code in (400, 413)
            assert log.head("space:s") == before


BAD_ARGS = {
    "a number that is not exact": b'{"n":9007199254740993}',
    "a key twice": b'{"a":1,"a":2}',
    "a list": b"[1]",
    "text": b'"x"',
    "nested": b'{"a":' + NESTED + b"}",
    "a lone surrogate": b'{"a":"\\ud800"}',
    "a number that is none": b'{"a":NaN}',
    "too much": b'{"a":"' + b"x" * 2_000_000 + b'"}',
}


@pytest.mark.req("SS01-HTTP-07")
def test_args_that_are_not_i_json_are_refused(
    subtests: pytest.Subtests, space: SpaceClient, log: InMemoryStore
) -> None:
    space.equip("safe")
    for case, args in BAD_ARGS.items():
        with subtests.test(case=case):
            before = log.head("space:s")
            body = httpx2.Request("POST", "http://x", json=space.proposal(call("safe", {"HERE": 1}))).content
            for path in ("/proposals", "/explain"):
                answer = space.post_raw(path, body.replace(b'{"HERE":1}', args), PLANNER)
                assert answer.status_code in (400, 413), answer.text
                check_error(answer, answer.status_code, answer.json()["error"]["code"])
            assert log.head("space:s") == before


@pytest.mark.req("SS01-HTTP-07")
def test_a_constraint_of_ten_megabytes_is_refused(space: SpaceClient) -> None:
    large = '{"v":1,"effect":"deny","subject":null,"reason":"' + "x" * 10_000_000 + '"}'
    answer = space.post("/policy/changes", space.policy_change(set={"constraint.x": large}))
    assert check_error(answer, 413, "LIMIT_EXCEEDED")["limit"] == "space_value_bytes"
    deep = '{"v":1,"effect":"deny","subject":null,"when":' + '{"op":"not","args":[' * 10_000 + "]}" * 10_000 + "}"
    answer = space.post("/policy/changes", space.policy_change(set={"constraint.x": deep}))
    assert answer.status_code in (400, 413)


@pytest.mark.req("SS01-HTTP-07")
def test_ids_of_spaces_fit_into_a_path(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for space_id in ["", " ", "a/b", "x" * 129, "_a", "ü", "..", "a\n"]:
        with subtests.test(space_id=space_id):
            answer = space._request("POST", "/v1/spaces", json={"space_id": space_id}, headers={"x-cmbs-actor": OPS})
            check_error(answer, 400, "INVALID_REQUEST")


@pytest.mark.req("SS01-HTTP-07")
def test_a_schema_that_is_unsafe_or_none_is_refused(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for schema in [{"$ref": "https://example.org/x"}, {"pattern": "(a+)+\\1"}, {"type": 7}, "x"]:
        with subtests.test(schema=schema):
            tool = {"tool_id": "t", "kind": "caller", "args_schema": schema}
            check_error(space.post("/tools", tool), 400, "INVALID_REQUEST")
