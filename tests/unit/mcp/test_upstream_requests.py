"""What an upstream is sent: what was decided, what is forwarded, and what is the gateway's own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.mcp.gateway.upstream_requests import (
    CALL_TOOL,
    CASE_META,
    answer_question,
    build_params,
    select_decided,
    select_forwarded,
)
from tests.support.subtests import for_each

NAMES = st.sampled_from(
    ["name", "arguments", "uri", "ref", "argument", "context", "_meta", "inputResponses", "requestState", "x-own"]
)
META = st.dictionaries(
    st.sampled_from(["progressToken", "traceparent", "tracestate", "io.modelcontextprotocol/any", CASE_META, "x-own"]),
    st.integers(),
)
METHODS = st.sampled_from(["tools/call", "prompts/get", "resources/read", "completion/complete"])


@pytest.mark.req("MCP-GW-21")
@given(METHODS, st.dictionaries(NAMES, st.integers() | META))
def test_a_request_has_what_was_decided_what_is_forwarded_and_nothing_else(method: str, params: dict[str, Any]) -> None:
    decided, forwarded = select_decided(method, params), select_forwarded(method, params)
    built = build_params(method, decided, forwarded)
    assert decided.keys().isdisjoint(forwarded)
    assert {name: each for name, each in built.items() if name != "_meta"} == {
        **decided,
        **{name: each for name, each in forwarded.items() if name != "_meta"},
    }
    assert built["_meta"].keys() <= {"traceparent", "x-own"}
    assert not {"inputResponses", "requestState"} & built.keys()


@pytest.mark.req("MCP-GW-21")
def test_the_trace_is_the_gateways_own_and_another_one_each_time() -> None:
    theirs = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    params = {"name": "t", "_meta": {"traceparent": theirs, "baggage": "user=ann", "x-own": 1}}
    decided, forwarded = select_decided(CALL_TOOL, params), select_forwarded(CALL_TOOL, params)
    first, second = (build_params(CALL_TOOL, decided, forwarded)["_meta"] for _ in range(2))
    assert first.keys() == {"traceparent", "x-own"}
    assert len({theirs, first["traceparent"], second["traceparent"]}) == 3


@pytest.mark.req("MCP-GW-21")
@for_each(
    ("decided", "forwarded"),
    [({"uri": "file:///a"}, {}), ({}, {"arguments": {"a": 1}}), ({}, {"requestState": "s"})],
)
def test_what_was_not_decided_cannot_be_sent_as_if_it_were(decided: dict[str, Any], forwarded: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="cannot be sent"):
        build_params(CALL_TOOL, {"name": "t", **decided}, forwarded)


@pytest.mark.req("MCP-GW-21")
def test_an_answer_to_a_question_goes_with_the_same_request() -> None:
    sent = build_params(CALL_TOOL, {"name": "t"}, {})
    assert answer_question(sent, {"sure": {}}, None) == {**sent, "inputResponses": {"sure": {}}}
    assert answer_question(sent, {}, "s") == {**sent, "inputResponses": {}, "requestState": "s"}
