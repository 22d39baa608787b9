"""The routes of spaces conform to the OpenAPI document, and no request makes the server fail."""

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

from cmbs.api.examples import load_examples
from cmbs.api.operations import OPERATIONS
from cmbs.http.app import BeliefApp
from cmbs.stores.memory import InMemoryStore
from tests.support.effort import EFFORT
from tests.support.error_model import check_error
from tests.support.fuzzing import Case, try_every_operation
from tests.support.in_process import Client, body_events, client_of
from tests.support.space_client import OPS, PLANNER, SpaceClient, app_over, call, delta
from tests.support.transports import ONTOLOGY

CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [400, 403, 404, 405, 409, 412, 413, 415]}}}
)
NUMBERS = count()
# `ci` tries only every fourth case also where nothing is there.
STRIDE = 1 if EFFORT.everything else 4


@cache
def app() -> BeliefApp:
    return app_over(InMemoryStore())


@pytest.fixture(scope="module")
def schema() -> Any:
    whole = schemathesis.openapi.from_asgi("/openapi.json", app(), config=CONFIG)
    # What is followed does not end by itself, and has a file of its own.
    return whole.include(path_regex="/v1/spaces").exclude(path_regex="/events$")


@cache
def create_ids(_: str) -> dict[str, str]:
    """Create a space that has one record of every kind, for one operation to be tried on, and return the ids."""
    with client_of(app()) as client:
        space = SpaceClient(client.request, f"s{next(NUMBERS)}")
        space.create()
        space.equip("safe", "risky")
        claim = {"entry_id": "m", "kind": "hypothesis", "claim": 1, "ttl_ms": 9}
        assert space.post("/memory", claim, PLANNER).json()["granted"]
        change = space.policy_change(set={"policy.value.x": "1"})
        assert space.post("/policy/changes", change).json()["granted"]
        declared = {"ontology": ONTOLOGY, "hypotheses": ["a", "b"]}
        case = {"case_id": space.declare(declared).json()["session_id"], "agents": ["planner"]}
        assert space.post("/cases", case).json()["granted"]
        candidates = [call("safe"), call("risky", key="k2"), delta(goal_x="1")]
        proposed = space.propose(*candidates, proposal_id="p", atomic=False)
    return {
        "space_id": space.space_id,
        "proposal_id": "p",
        "approval_id": proposed["approval_ids"][0],
        "execution_id": proposed["execution_ids"][0],
        "call_id": proposed["calls"]["0"],
        "tool_id": "safe",
        "token_id": "token",
        "entry_id": "m",
        "change_id": "c",
        "case_id": case["case_id"],
    }


def whole(case: Case) -> Case:
    """Ask for the whole answer, which is what the document describes, and for it at once."""
    case.headers.pop("Prefer", None)
    for name in ("fields", "wait"):
        case.query.pop(name, None)
    return case


def check(case: Case, answer: Any) -> None:
    """Check that the document allows the answer. Whether a proposal is accepted cannot be told from its schema."""
    case.validate_response(answer, excluded_checks=[positive_data_acceptance])
    assert answer.status_code < 500, answer.text


@pytest.mark.slow
@pytest.mark.req("SS01-HTTP-09", "BS-8-OPENAPI-02")
def test_every_operation_conforms_to_the_document(subtests: pytest.Subtests, schema: Any) -> None:
    numbers = count()

    def try_it(case: Case) -> None:
        whole(case)
        if next(numbers) % STRIDE == 0:
            check(case, case.call(headers={"X-Cmbs-Actor": PLANNER}))
        ids = create_ids(case.operation.label)
        for name in case.path_parameters.keys() & ids.keys():
            case.path_parameters[name] = ids[name]
        check(case, case.call(headers={"X-Cmbs-Actor": OPS}))

    try_every_operation(subtests, schema, try_it, 24 if EFFORT.everything else 1)


# --- beneath the document: any bytes at all ---------------------------------------------------------------------------

PATHS = sorted({each.path for each in OPERATIONS if each.path.startswith("/v1/spaces")})
POSTED = sorted({each.path for each in OPERATIONS if each.path in PATHS and each.method == "POST"})
PARTS = sorted({part for path in PATHS for part in path.split("/") if part and "{" not in part})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with client_of(app()) as client:
        yield client


@pytest.mark.req("SS01-HTTP-09")
@settings(max_examples=EFFORT.examples_for(200))
@given(data=st.data())
def test_random_requests_never_make_the_server_fail(client: Client, data: st.DataObject) -> None:
    ids = create_ids("random requests")
    body: Any = dict(data.draw(st.sampled_from(list(load_examples().requests.values()))))
    for field in data.draw(st.lists(st.sampled_from(sorted(body)), max_size=2)) if body else []:
        body[field] = data.draw(VALUES)
    parts = data.draw(st.lists(st.sampled_from([*PARTS, *ids.values(), "", "%2F", "%ff"]), max_size=5))
    path = data.draw(st.sampled_from([path.format(**ids) for path in POSTED])) if data.draw(st.booleans()) else ""
    raw_path = (path or "/v1/spaces/" + "/".join(parts)).encode()
    answer = client.exchange(
        method=data.draw(st.sampled_from(["POST", "GET", "HEAD"])),
        raw_path=raw_path,
        headers=[(b"content-type", b"application/json"), (b"x-cmbs-actor", b"operator:ops")],
        events=body_events(json.dumps(body).encode("utf-8", "surrogatepass")),
    )
    assert 200 <= answer.status < 500, answer.body
    if answer.status >= 400 and answer.body:
        check_error(answer, answer.status, answer.json()["error"]["code"])
