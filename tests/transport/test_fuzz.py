"""The server does what its OpenAPI document says, whatever it is sent."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from cmbs.api.examples import load_examples
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from tests.support.effort import EFFORT
from tests.support.error_model import check_error
from tests.support.fuzzing import Case, try_every_operation
from tests.support.in_process import Client, Event, body_events, client_of
from tests.support.space_client import OPS
from tests.support.store_fixture import declared

CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            "negative_data_rejection": {"expected-statuses": [400, 404, 405, 412, 413, 415]},
            "positive_data_acceptance": {"expected-statuses": ["2xx", 404, 409, 412, 422]},
        }
    }
)
# Spaces have a file of their own: most of what is right or wrong with a proposal is beyond any schema.
# What is followed does not end by itself, and has a file of its own.
OTHERS = "/v1/spaces|/events$"
# What is right by the document and wrong all the same, since no schema can say it: numbers are exact in I-JSON, whole
# ones have no point, a cursor is text that this server gave out, this server has no causal graph, and not every kit, a
# page begins at one place, and a difference ends after it begins. Hypotheses come from the caller, from a provider or
# from a kit, which says the ontology too, and only a session that has one of the two takes responses to probes. Only a
# kit over a causal graph takes symptoms. Most of what is right or wrong with a kit is beyond its schema. Labels are
# counted together with other filters of the list.
BEYOND_SCHEMAS = (
    b"I-JSON",
    b"say what is to change of the case",
    b", got `float`",
    b"not one that this server gave out",
    b"only where the store has a causal graph",
    b"there is no kit",
    b"no kit `",
    b"send `cursor` or `since_event_id`, not both",
    b"a difference goes forward",
    b"send `wait` without it",
    b"`after` says what to `wait` for",
    b"come from the provider",
    b"come from the kit",
    b"only where a kit is named",
    b"name a `provider` or a `kit`, not both",
    b"the kit is refused",
    b"this server has no hypothesis provider",
    b"says what its hypotheses are",
    b"`symptoms` belong to a session over a kit",
    b"probes need a session",
    b"only where a provider says",
    b"not over a causal graph",
    b"labels can be asked for",
    # No webhook is made here: one that is could be told something, and nothing may leave this machine.
    b"this server has no webhook key",
    b"no webhook `",
)


class Host:
    """An application over an empty server, which can be had anew under the same name."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Go on with a server that knows nothing."""
        self.server = BeliefServer()
        # The fuzzer calls the server by a name of its own, `testserver`.
        self._app = create_app(self.server, anyone=True)
        # A read that waits is answered as it is: there is no one to bring news.
        self._app.service.waiting.max_seconds = 0

    async def __call__(self, scope: Event, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def host() -> Host:
    return Host()


@pytest.fixture(scope="module")
def schema(host: Host) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", host, config=CONFIG).exclude(path_regex=OTHERS)


def is_positive(case: Case) -> bool:
    """Whether it is made to be right by the document."""
    return case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE


def consistent(case: Case) -> Case:
    """Say the same in the body as in the path, which no schema can ask for; ask for the whole, which it describes.

    Kits are put by an operator, so that it is the kit that is answered to, and webhooks are for operators.
    """
    case.query.pop("fields", None)
    case.headers.pop("Prefer", None)
    if (case.method == "POST" and case.path == "/v1/kits") or case.path.startswith("/v1/webhooks"):
        case.headers["x-cmbs-actor"] = OPS
    if is_positive(case) and isinstance(case.body, dict):
        both = case.body.keys() & case.path_parameters.keys()
        case.body.update({name: unquote(case.path_parameters[name]) for name in both})
    return case


def check(case: Case, answer: Any) -> None:
    """That the answer is one that the document knows, and right for what was sent."""
    beyond = any(words in answer.content for words in BEYOND_SCHEMAS)
    case.validate_response(answer, excluded_checks=[positive_data_acceptance] if beyond else [])


@pytest.mark.deep
@pytest.mark.req("BS-8-OPENAPI-02")
def test_every_operation_conforms_to_the_document(subtests: pytest.Subtests, schema: Any) -> None:
    def try_it(case: Case) -> None:
        check(case, consistent(case).call())

    try_every_operation(subtests, schema, try_it, 36)


@pytest.mark.slow
@pytest.mark.req("BS-8-OPENAPI-02")
def test_every_operation_on_a_session_that_is_there_conforms_to_the_document(
    subtests: pytest.Subtests, host: Host, schema: Any
) -> None:
    def try_it(case: Case) -> None:
        case.path_parameters["session_id"] = declared(host.server)
        if "obligation_id" in case.path_parameters:
            host.server.enter_obligation(case.path_parameters["session_id"], "gate", 0)
            case.path_parameters["obligation_id"] = "gate"
        check(case, consistent(case).call())

    try_every_operation(subtests, schema.include(path_regex="session_id"), try_it, 36 if EFFORT.everything else 1)


@pytest.mark.slow
@pytest.mark.req("BS-8-OPENAPI-02")
def test_operations_one_after_the_other_conform_to_the_document(host: Host, schema: Any) -> None:
    n_declared = 0

    class Sessions(schema.as_state_machine()):  # type: ignore[misc]
        """Operations one after the other, along the links of the document, each time on a server of their own."""

        def setup(self) -> None:
            host.renew()

        def before_call(self, case: Case) -> None:
            consistent(case)
            # Of random declarations few are good, in some runs none. Without a session no link leads anywhere.
            if (case.method.upper(), case.path) == ("POST", "/v1/sessions") and is_positive(case):
                case.body = load_examples().requests["declare_session"]

        def validate_response(self, response: Any, case: Case, **options: Any) -> None:
            nonlocal n_declared
            n_declared += (case.operation.method.upper(), case.path, response.status_code) == (
                "POST",
                "/v1/sessions",
                201,
            )
            check(case, response)

    Sessions.run(settings=settings(max_examples=EFFORT.examples_for(15), stateful_step_count=6))
    assert n_declared > 0


# --- beneath the document: any bytes at all ---------------------------------------------------------------------------

PARTS = [b"v1", b"sessions", b"eliminate", b"audit", b"survivors"]
PARTS += [b"obligations", b"exit", b"conclusions", b"terminate", b"analysis"]
NAMES = [
    b"if-none-match",
    b"accept-encoding",
    b"if-match",
    b"idempotency-key",
    b"prefer",
    b"content-type",
    b"content-length",
    b"x",
]
QUERIES = [
    b"fields=",
    b"survivors",
    b"wait=",
    b"after=0",
    b"limit=",
    b"cursor=",
    b"at=",
    b"since_event_id=",
    b"truth=",
    b"kit=",
    b"&",
    b"=",
    b"+",
    b";",
    b"%",
]
# What no server lets through: the ends of a line, and in a path also a space, a hash and the begin of the query.
LINE = st.binary(max_size=12).map(lambda value: re.sub(rb"[\x00-\x1f\x7f]", b"", value))
PART = LINE.map(lambda value: re.sub(rb"[ #?/]", b"", value))


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """What a server may hand on to an application, however odd."""
    known = draw(st.sampled_from([b"", b"known", b"%2F", b"%ff", b".."]))
    prefix = draw(st.sampled_from([b"", b"/v1/sessions", b"/v1/sessions/" + known]))
    path = prefix + b"".join(b"/" + part for part in draw(st.lists(st.sampled_from(PARTS) | PART, max_size=4)))
    query = b"".join(draw(st.lists(st.sampled_from(QUERIES) | PART, max_size=5)))
    json_text = st.sampled_from([b"{}", b'{"context":', b'{"eliminated":["a"],"source_id":"s","observation_id":"o"}'])
    return {
        "method": draw(st.sampled_from(["GET", "POST", "HEAD", "PUT", "OPTIONS", "x"])),
        "raw_path": (path or b"/") + (b"?" + query if query else b""),
        "headers": [
            (b"content-type", b"application/json"),
            *draw(st.lists(st.tuples(st.sampled_from(NAMES), LINE), max_size=3)),
        ],
        "events": body_events(*draw(st.lists(json_text | st.binary(max_size=20), min_size=1, max_size=3))),
    }


@pytest.fixture(scope="module")
def client(host: Host) -> Iterator[Client]:
    with client_of(host) as client:
        yield client


@pytest.mark.req("BS-3.2-ERR-01")
@settings(max_examples=EFFORT.examples_for(300))
@given(request=requests())
def test_any_bytes_get_an_answer_that_is_no_failure_of_ours(
    client: Client, host: Host, request: dict[str, Any]
) -> None:
    raw_path = request["raw_path"].replace(b"/known", b"/" + declared(host.server).encode())
    answer = client.exchange(**request | {"raw_path": raw_path})
    assert 200 <= answer.status < 500
    if answer.status >= 400 and request["method"] != "HEAD":
        check_error(answer, answer.status, answer.json()["error"]["code"])


def test_a_server_that_breaks_its_document_is_noticed(host: Host, schema: Any) -> None:
    health = schema.raw_schema["paths"]["/healthz"]["get"]
    promised = {"200": {"description": "", "content": {"application/json": {"schema": {"type": "array"}}}}}
    broken = {**schema.raw_schema, "paths": {"/healthz": {"get": {**health, "responses": promised}}}}
    other = schemathesis.openapi.from_dict(broken)
    other.app = host
    case = other["/healthz"]["GET"].Case()
    with pytest.raises(FailureGroup):
        check(case, case.call())
