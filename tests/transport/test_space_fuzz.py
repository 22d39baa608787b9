"""The routes of spaces do what the OpenAPI document says, whatever they are sent: never a failure of the server."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from cmbs.http.spaces.examples import space_examples
from cmbs.stores.memory import InMemoryStore
from tests.support.effort import EFFORT
from tests.support.error_model import check_error
from tests.support.in_process import Client, body_events, client_of
from tests.support.space_client import POLICY, app_over, call, delta

LOG = InMemoryStore()
APP = app_over(LOG)
CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [400, 403, 404, 405, 409, 412, 413, 415]}}}
)
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP, config=CONFIG).include(path_regex="/v1/spaces")
NUMBERS = count()
OPERATOR = {"X-Cmbs-Actor": "operator:ops"}
AGENT = {"X-Cmbs-Actor": "agent:planner"}
Case = schemathesis.Case[Any]


@cache
def made(_: str) -> dict[str, str]:
    """The ids of a space that has one of everything, for one operation to be tried on."""
    space_id = f"s{next(NUMBERS)}"
    with client_of(APP) as client:

        def post(path: str, body: dict[str, Any], headers: dict[str, str] = OPERATOR) -> dict[str, Any]:
            answer = client.post(path, body, headers=headers)
            assert not answer.is_error, answer.text
            told: dict[str, Any] = answer.json()
            return told

        space = f"/v1/spaces/{space_id}"
        snapshot = post("/v1/spaces", {"space_id": space_id, "policy": POLICY})
        for tool_id in ("safe", "risky"):
            post(f"{space}/tools", {"tool_id": tool_id, "kind": "caller", "args_schema": {"type": "object"}})
        post(f"{space}/capabilities", {"token_id": "token", "agent_id": "planner", "tool_ids": ["safe", "risky"]})
        post(f"{space}/memory", {"entry_id": "m", "kind": "hypothesis", "claim": 1, "ttl_ms": 9}, AGENT)
        base = {"base_policy_hash": snapshot["policy_hash"], "set": {"policy.value.x": "1"}}
        post(f"{space}/policy/changes", {"change_id": "c", **base})
        proposal = {
            "proposal_id": "p",
            "state_snapshot_id": snapshot["state_snapshot_id"],
            "provenance": {"source": "planner", "timestamp": "2026-01-01T00:00:00Z"},
            "candidates": [call("safe"), call("risky", key="k2"), delta(goal_x="1")],
            "atomic": False,
        }
        proposed = post(f"{space}/proposals", proposal, AGENT)
    return {
        "space_id": space_id,
        "proposal_id": "p",
        "approval_id": proposed["approval_ids"][0],
        "execution_id": proposed["execution_ids"][0],
        "tool_id": "safe",
        "token_id": "token",
        "entry_id": "m",
        "change_id": "c",
    }


def check(case: Case, answer: Any) -> None:
    """That the answer is one that the document knows. What is right of a proposal no schema can say."""
    case.validate_response(answer, excluded_checks=[positive_data_acceptance])
    assert answer.status_code < 500, answer.text


@pytest.mark.req("SS01-HTTP-09", "BS-8-OPENAPI-02")
@SCHEMA.parametrize()
@settings(max_examples=EFFORT.examples_for(8))
def test_every_operation_conforms_to_the_document(case: Case) -> None:
    check(case, case.call(headers=AGENT))
    there = made(case.operation.label)
    for name in case.path_parameters.keys() & there.keys():
        case.path_parameters[name] = there[name]
    check(case, case.call(headers=OPERATOR))


# --- beneath the document: any bytes at all ---------------------------------------------------------------------------

PATHS = {path: methods for path, methods in SCHEMA.raw_schema["paths"].items() if path.startswith("/v1/spaces")}
PARTS = sorted({part for path in PATHS for part in path.split("/") if part and "{" not in part})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with client_of(APP) as client:
        yield client


@pytest.fixture(scope="module")
def there() -> dict[str, str]:
    return made("spoilt")


@pytest.mark.req("SS01-HTTP-09")
@settings(max_examples=EFFORT.examples_for(200))
@given(data=st.data())
def test_spoilt_requests_get_an_answer_that_is_no_failure_of_ours(
    client: Client, there: dict[str, str], data: st.DataObject
) -> None:
    told = space_examples().requests
    name = data.draw(st.sampled_from(sorted(told)))
    body: Any = dict(told[name])
    for field in data.draw(st.lists(st.sampled_from(sorted(body)), max_size=2)) if body else []:
        body[field] = data.draw(VALUES)
    parts = data.draw(st.lists(st.sampled_from([*PARTS, *there.values(), "", "%2F", "%ff"]), max_size=5))
    paths = [path for path, methods in PATHS.items() if "post" in methods]
    path = data.draw(st.sampled_from([path.format(**there) for path in paths])) if data.draw(st.booleans()) else ""
    raw_path = (path or "/v1/spaces/" + "/".join(parts)).encode()
    answer = client.exchange(
        method=data.draw(st.sampled_from(["POST", "GET", "HEAD"])),
        raw_path=raw_path,
        headers=[(b"content-type", b"application/json"), (b"x-cmbs-actor", b"operator:ops")],
        events=body_events(_written(body)),
    )
    assert 200 <= answer.status < 500, answer.body
    if answer.status >= 400 and answer.body:
        check_error(answer, answer.status, answer.json()["error"]["code"])


def _written(body: Any) -> bytes:
    return json.dumps(body).encode("utf-8", "surrogatepass")
