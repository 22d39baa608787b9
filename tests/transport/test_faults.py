"""What is wrong with a request is said of every field at once: what was found, and what is accepted."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.api.examples import load_examples
from cmbs.api.operation import TextFile
from cmbs.api.operations import OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.http.faults import MAX_BYTES_EXPLAINED, MAX_FAULTS, explain_body
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.transports import DECLARATION, ONTOLOGY

BODIES = {each.operation_id: each.body for each in OPERATIONS if each.body not in (None, TextFile)}
EXAMPLES = load_examples().requests
PROPOSAL = EXAMPLES["propose"]
CALL = PROPOSAL["candidates"][0]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with client_of(create_app(BeliefServer())) as client:
        yield client


def faults_of(client: Client, path: str, body: Any) -> dict[str, dict[str, Any]]:
    details = check_error(client.post(path, body), 400, "INVALID_REQUEST")
    first = details["faults"][0]
    assert {name: details[name] for name in ("field", "found", "accepted")} == {
        name: first[name] for name in ("field", "found", "accepted")
    }
    assert details["next"]
    assert details["message"].startswith(first["message"])
    return {fault["field"]: fault for fault in details["faults"]}


@pytest.mark.req("HTTP-EXT-26")
def test_several_faults_are_told_at_once(client: Client) -> None:
    body = {"ontology": {**ONTOLOGY, "hypothesis_version": 4}, "hypotheses": ["a", 1], "polcy": {}, "metadata": 3}
    faults = faults_of(client, "/v1/sessions", body)
    assert faults.keys() == {"ontology.hypothesis_version", "hypotheses.1", "polcy", "metadata"}
    assert (faults["hypotheses.1"]["found"], faults["hypotheses.1"]["accepted"]) == (1, ["a string"])
    assert faults["metadata"]["accepted"] == ["an object", "null"]
    assert faults["polcy"]["message"] == "unknown field `polcy`: did you mean `policy`"
    assert faults["polcy"]["accepted"] == [
        "agents",
        "hypotheses",
        "hypothesis_attributes",
        "kit",
        "labels",
        "metadata",
        "name",
        "ontology",
        "owner",
        "policy",
        "provider",
        "severity",
        "symptoms",
        "title",
    ]


@pytest.mark.req("HTTP-EXT-26")
def test_a_fault_says_where_what_was_found_and_what_is_accepted(subtests: pytest.Subtests, client: Client) -> None:
    cases: list[tuple[dict[str, Any], str, Any, list[str]]] = [
        ({"proposal_id": ""}, "proposal_id", "", ["a string that is not empty"]),
        ({"proposal_id": {}}, "proposal_id", "an empty object", ["a string that is not empty"]),
        ({"atomic": "yes"}, "atomic", "yes", ["true or false"]),
        ({"defer_ms": 0}, "defer_ms", 0, ["a whole number of at least 1"]),
        ({"candidates": {}}, "candidates", "an empty object", ["a list"]),
        ({"candidates": [[1]]}, "candidates.0", "a list", ["an object"]),
        ({"candidates": [{"tool_id": "x"}]}, "candidates.0.type", "nothing", ["state_delta", "tool_call"]),
        ({"candidates": [{**CALL, "type": "call"}]}, "candidates.0.type", "call", ["state_delta", "tool_call"]),
        ({"candidates": [{**CALL, "args": 1}, CALL | {"tool_id": 2}]}, "candidates.0.args", 1, ["an object"]),
        ({"candidates": [{**CALL, "idempotency_key": 1}]}, "candidates.0.idempotency_key", 1, ["a string", "null"]),
        ({"candidates": [{**CALL, "toolid": 1}]}, "candidates.0.toolid", "toolid", sorted([*CALL])),
    ]
    for change, field, found, accepted in cases:
        with subtests.test(change=change, field=field, found=found, accepted=accepted):
            fault = faults_of(client, "/v1/spaces/default/proposals", {**PROPOSAL, **change})[field]
            assert (fault["found"], fault["accepted"]) == (found, accepted)


@pytest.mark.req("HTTP-EXT-26")
def test_an_enumeration_lists_its_values_and_the_nearest(client: Client) -> None:
    answer = client.post("/v1/spaces", {"space_id": "a b", "mode": "enforse"}, headers={"x-cmbs-actor": "operator:x"})
    details = check_error(answer, 400, "INVALID_REQUEST")
    assert (details["field"], details["accepted"]) == ("mode", ["enforce", "observe"])
    assert details["next"] == "did you mean `enforce`"
    assert "that matches" in details["faults"][1]["message"]
    tool = {**EXAMPLES["register_tool"], "kind": "shell"}
    answer = client.post("/v1/spaces/default/tools", tool, headers={"x-cmbs-actor": "operator:x"})
    assert check_error(answer, 400, "INVALID_REQUEST")["next"].startswith("send one of `caller`")


@pytest.mark.req("HTTP-EXT-26")
def test_unknown_query_parameters_are_told_with_the_nearest(client: Client) -> None:
    details = check_error(client.get("/v1/sessions?limt=1&colour=red"), 400, "INVALID_REQUEST")
    assert [fault["field"] for fault in details["faults"]] == ["limt", "colour"]
    known = [
        "cursor",
        "limit",
        "order",
        "state",
        "kit",
        "agent",
        "name",
        "owner",
        "severity",
        "source",
        "label",
        "text",
        "since",
        "until",
        "include",
        "fields",
    ]
    assert (details["parameter"], details["allowed"], details["next"]) == ("limt", known, "write `limit`")
    details = check_error(client.get("/healthz?x=1"), 400, "INVALID_REQUEST")
    assert "there are none" in details["message"]


@pytest.mark.req("HTTP-EXT-26")
def test_the_faults_of_one_answer_are_bounded(client: Client) -> None:
    many = client.post("/v1/sessions", {**DECLARATION, "hypotheses": list(range(1000))})
    assert len(check_error(many, 400, "INVALID_REQUEST")["faults"]) == MAX_FAULTS
    names = {f"unknown-{number}": 1 for number in range(1000)}
    assert len(check_error(client.post("/v1/sessions", names), 400, "INVALID_REQUEST")["faults"]) == MAX_FAULTS
    long = client.post("/v1/sessions", {**DECLARATION, "x" * 100_000: 1})
    assert len(long.content) < 2000
    huge = client.post("/v1/sessions", {**DECLARATION, "hypotheses": [1] * MAX_BYTES_EXPLAINED})
    assert "faults" not in check_error(huge, 400, "INVALID_REQUEST")


def test_what_only_the_decoder_refuses_is_told_in_its_words(client: Client) -> None:
    answer = client.post_raw("/v1/sessions/x/obligations", b'{"obligation_id":"o","min_total_eliminations":1.0}')
    assert "got `float`" in check_error(answer, 400, "INVALID_REQUEST")["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(data=st.data())
def check_refusals_are_explained(name: str, data: st.DataObject) -> None:
    body = dict(EXAMPLES[name])
    for field in data.draw(st.lists(st.sampled_from([*body, "unknown"]), min_size=1, max_size=3)):
        body[field] = data.draw(json_values)
    if data.draw(st.booleans()) and body:
        body.pop(data.draw(st.sampled_from(sorted(body))))
    encoded = msgspec.json.encode(body)
    try:
        msgspec.json.decode(encoded, type=BODIES[name])
    except msgspec.DecodeError as exc:
        error = explain_body(BODIES[name], body, len(encoded), exc)
        assert 1 <= len(error.details["faults"]) <= MAX_FAULTS
        assert all(fault["accepted"] is not None and fault["message"] for fault in error.details["faults"])
        named = {fault["field"].partition(".")[0] for fault in error.details["faults"]}
        assert named & {*body, *(each.name for each in msgspec.structs.fields(BODIES[name]))}


@pytest.mark.req("HTTP-EXT-26")
def test_whatever_the_decoder_refuses_is_explained(subtests: pytest.Subtests) -> None:
    for name in BODIES:
        with subtests.test(name=name):
            check_refusals_are_explained(name)
