"""api/openapi.yaml is current, complete, valid, and true to its own schemas."""

import json
import re
from collections.abc import Iterator
from functools import cache, reduce
from operator import getitem
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
import yaml
from schemathesis.core.result import Ok

from cmbs.api.errors import PRECONDITION_FAILED, STATUS_OF_CODE, TransportCode
from cmbs.api.examples import load_examples
from cmbs.api.operation import Operation, TextFile
from cmbs.api.operations import ALL_OPERATIONS, EVENT_OPERATIONS, OPERATIONS
from cmbs.api.operations.webhooks import WEBHOOK_OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import ErrorCode
from cmbs.http.openapi import openapi_document
from scripts.generate_openapi import TARGET
from tests.support.in_process import client_of

COMPONENT_NAME = re.compile(r"^[A-Za-z0-9._-]+$")


@cache
def document() -> dict[str, Any]:
    """Return the document, generated once."""
    return openapi_document()


def resolve(node: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference leads to; anything else as it is."""
    while "$ref" in node:
        node = reduce(getitem, node["$ref"].removeprefix("#/").split("/"), document())
    return node


def describe(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][operation.path][operation.method.lower()]
    return found


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Every object of the document, the examples apart: they are data."""
    if isinstance(node, dict):
        yield node
        for key, value in node.items():
            if key not in {"example", "examples"}:
                yield from nodes(value)
    elif isinstance(node, list):
        for value in node:
            yield from nodes(value)


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return compile_schema(json.dumps(schema))


@cache
def compile_schema(text: str) -> jsonschema_rs.Draft202012Validator:
    schema = {**json.loads(text), "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


def media_types(operation: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each body that goes in or out."""
    content = describe(operation)
    if "requestBody" in content:
        yield "request", content["requestBody"]["content"]["application/json"]
    for status, response in content["responses"].items():
        if status != "304":
            yield status, resolve(response)["content"]["application/json"]


def list_failures(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The errors that an answer is one of, each as a reference to its type."""
    error = schema["properties"]["error"]
    assert [each["$ref"] for each in error["oneOf"]] == [*error["discriminator"]["mapping"].values()]
    failures: list[dict[str, Any]] = error["oneOf"]
    return failures


def values(described: dict[str, Any]) -> list[Any]:
    """The examples of a body, a parameter or a header."""
    if "example" in described:
        return [described["example"]]
    return [example["value"] for example in described["examples"].values()]


WEBHOOKS = {operation.operation_id for operation in WEBHOOK_OPERATIONS}
UNRECORDED = {"name_case", "explain_proposal", "sign_checkpoint", "check_policy", "policy_impact", "put_kit"} | WEBHOOKS


def is_recorded(operation: Operation) -> bool:
    return operation.method != "GET" and operation.operation_id not in UNRECORDED


def is_conditional(operation: Operation) -> bool:
    return is_recorded(operation) and ("{session_id}" in operation.path or "{space_id}" in operation.path)


def is_tagged(operation: Operation) -> bool:
    is_of_stream = "{session_id}" in operation.path or "{space_id}" in operation.path
    depends_on_more = "/proofs/" in operation.path or operation.path.endswith(
        ("/analysis", "/case", "/graph", "/explain", "/impact")
    )
    depends_on_more &= is_of_belief(operation) or "/proofs/" in operation.path
    return operation.method == "GET" and is_of_stream and not depends_on_more


def takes_preference(operation: Operation) -> bool:
    return operation.method in {"POST", "PUT"} or bool(operation.bulk)


def is_of_belief(operation: Operation) -> bool:
    return operation.path.startswith("/v1/sessions")


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("BS-8-OPENAPI-01")
def test_the_file_is_what_the_code_generates() -> None:
    # `make lint` compares the text; here a parser in C reads what it says.
    assert yaml.load(TARGET.read_text("utf-8"), yaml.CSafeLoader) == document(), "run scripts/generate_openapi.py"


@pytest.mark.req("BS-8-OPENAPI-01")
def test_the_server_serves_the_same_document() -> None:
    with client_of(create_app(BeliefServer())) as client:
        assert [client.get("/openapi.json").json() for _ in range(2)] == [document(), document()]


# --- its structure ----------------------------------------------------------------------------------------------------


def test_it_is_openapi_3_1_that_a_tool_can_load() -> None:
    assert document()["openapi"] == "3.1.0"
    loaded = schemathesis.openapi.from_dict(document())
    results = list(loaded.get_all_operations())
    found = [result.ok() for result in results if isinstance(result, Ok)]
    assert len(found) == len(results)
    assert {(operation.method.upper(), operation.path) for operation in found} == {
        (operation.method, operation.path) for operation in ALL_OPERATIONS
    }


def test_every_reference_leads_somewhere_and_every_component_is_used() -> None:
    references = {node["$ref"] for node in nodes(document()) if "$ref" in node}
    components = {
        f"#/components/{kind}/{name}"
        for kind, named in document()["components"].items()
        for name in named
        if kind != "securitySchemes"
    }
    # All errors in one, for clients who read an answer before they know which operation it was for.
    assert components - references == {"#/components/schemas/ErrorResponse"}
    assert references <= components


@pytest.mark.req("ID-HTTP-05")
def test_an_operation_names_the_scope_that_it_needs(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation=operation.operation_id):
            needed = describe(operation)["security"]
            if not operation.path.startswith("/v1/"):
                assert needed == []
                continue
            if operation.scope is None:
                assert needed == [{"key": []}, {}]
                continue
            assert operation.scope.value.endswith(":read") == (operation.method == "GET")
            assert needed == [{"key": [operation.scope.value]}, {}]
            assert document()["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def test_every_schema_is_valid_json_schema_under_a_name_that_openapi_allows() -> None:
    names = [name for named in document()["components"].values() for name in named]
    assert [name for name in names if not COMPONENT_NAME.match(name)] == []
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schemas = document()["components"]["schemas"].values()
    assert [schema for schema in schemas if not jsonschema_rs.meta.is_valid({**dialect, **schema})] == []


def test_every_schema_and_every_tag_has_a_description() -> None:
    schemas = document()["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description") and "enum" not in schema] == []
    tags = {tag["name"] for tag in document()["tags"] if tag["description"]}
    assert {tag for operation in OPERATIONS for tag in describe(operation)["tags"]} == tags


def test_links_lead_to_operations_and_name_their_parameters() -> None:
    links = {
        name: link
        for operation in OPERATIONS
        for name, link in describe(operation)["responses"][str(operation.status)].get("links", {}).items()
    }
    assert links.keys() == {operation.operation_id for operation in OPERATIONS if "{session_id}" in operation.path}
    for operation in OPERATIONS:
        if operation.operation_id in links:
            link = links[operation.operation_id]
            assert link["operationId"] == operation.operation_id
            assert set(link["parameters"]) == set(re.findall(r"{(\w+)}", operation.path))


def test_requests_take_no_unknown_fields() -> None:
    for operation in OPERATIONS:
        if operation.body is not None and operation.body is not TextFile:
            schema = document()["components"]["schemas"][operation.body.__name__]
            assert schema["additionalProperties"] is False


# --- its operations ---------------------------------------------------------------------------------------------------


@pytest.mark.req("BS-8-OPENAPI-03")
def test_an_operation_says_what_it_does_and_what_comes_back(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation=operation.operation_id):
            content = describe(operation)
            assert content["operationId"] == operation.operation_id
            assert all(content[name] for name in ("summary", "description", "tags"))
            assert ("requestBody" in content) == (operation.method in {"POST", "PUT"})
            for name, media in media_types(operation):
                named = [media["schema"]] if "$ref" in media["schema"] else list_failures(media["schema"])
                assert named, name
                assert all(each["$ref"].startswith("#/components/schemas/") for each in named), name
                assert values(media), name


@pytest.mark.req("BS-8-OPENAPI-03")
def test_an_operation_documents_its_parameters(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation=operation.operation_id):
            content = describe(operation)
            parameters = {(parameter["in"], parameter["name"]): parameter for parameter in content["parameters"]}
            in_path = {name for place, name in parameters if place == "path"}
            assert in_path == set(re.findall(r"{(\w+)}", operation.path))
            headers = {name for place, name in parameters if place == "header"}
            expected = {"Prefer"} if takes_preference(operation) else set()
            expected |= {"If-None-Match"} if is_tagged(operation) else set()
            if is_recorded(operation):
                expected |= {"Idempotency-Key"} | ({"If-Match"} if is_conditional(operation) else set())
            assert headers == expected
            chosen = operation.path.startswith("/v1/") and "/proofs/" not in operation.path
            assert (("query", "fields") in parameters) == chosen
            for parameter in parameters.values():
                assert parameter["description"]
                for value in values(parameter):
                    validator(parameter["schema"]).validate(value)


@pytest.mark.req("BS-8-OPENAPI-03", "BS-3.2-ERR-15")
def test_an_operation_documents_every_error_that_it_can_answer_with(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation=operation.operation_id):
            responses = {
                int(status): resolve(response) for status, response in describe(operation)["responses"].items()
            }
            expected: set[ErrorCode | TransportCode] = {
                *operation.errors,
                ErrorCode.INVALID_REQUEST,
                TransportCode.METHOD_NOT_ALLOWED,
                TransportCode.INTERNAL_ERROR,
            }
            if operation.method != "GET":
                expected |= {TransportCode.UNSUPPORTED_MEDIA_TYPE, ErrorCode.LIMIT_EXCEEDED}
            if is_recorded(operation):
                expected |= {ErrorCode.CONFLICT}
            if "{space_id}" in operation.path:
                expected |= {ErrorCode.SPACE_NOT_FOUND, ErrorCode.LIMIT_EXCEEDED}
                if operation.path.count("{") > 1:
                    expected |= {ErrorCode.RECORD_NOT_FOUND}
            if operation.operation_id != "healthz":
                expected |= {ErrorCode.STORE_UNAVAILABLE}
            if operation.path.startswith("/v1/"):
                expected |= {ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN, ErrorCode.LEDGER_CORRUPT}
            if "{session_id}" in operation.path:
                expected |= {ErrorCode.SESSION_NOT_FOUND, ErrorCode.LEDGER_CORRUPT, ErrorCode.LIMIT_EXCEEDED}
            shown = {
                (value["error"]["code"], status)
                for status, response in responses.items()
                if status >= 400
                for value in values(response["content"]["application/json"])
            }
            assert shown == {(code.value, STATUS_OF_CODE[code]) for code in expected} | (
                {("CONFLICT", PRECONDITION_FAILED)} if is_conditional(operation) else set()
            )
            seen = {304} if is_tagged(operation) else set()
            assert set(responses) == {operation.status} | seen | {status for _, status in shown}


@pytest.mark.req("BS-8-OPENAPI-03")
def test_an_operation_documents_the_headers_of_its_answers(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation=operation.operation_id):
            responses = {
                int(status): resolve(response) for status, response in describe(operation)["responses"].items()
            }
            headers = {status: set(response.get("headers", {})) for status, response in responses.items()}
            minimal = {"Preference-Applied"} if takes_preference(operation) else set()
            tagged = {"ETag"} if is_tagged(operation) else set()
            by_caller = tagged and not is_of_belief(operation)
            by_preference = operation.method == "GET" and operation.bulk
            by_accept = operation.operation_id in {"get_checkpoint", "get_kit", "read_policy"}
            tagged |= {"Vary"} if by_caller or by_preference or by_accept else set()
            assert headers.pop(304, {"ETag"} if not is_tagged(operation) else None) == {"ETag"}
            creating = {"declare_session", "fork_session", "create_space", "put_kit", "create_webhook"}
            created = {"Location"} if operation.operation_id in creating else set()
            replayed = {"Idempotent-Replayed"} if is_recorded(operation) else set()
            writes = is_conditional(operation) and operation.operation_id not in {"fork_session", "put_policy"}
            whole = {"declare_session", "query_belief", "create_space", "get_space"}
            placed = {"Cmbs-Head"} if writes or operation.operation_id in whole else set()
            assert headers.pop(operation.status) == minimal | tagged | created | replayed | placed
            assert headers.pop(405) == {"Allow"}
            assert headers.pop(503, {"Retry-After"}) == {"Retry-After"}
            assert headers.pop(401, set()) == ({"WWW-Authenticate"} if operation.path.startswith("/v1/") else set())
            assert set().union(*headers.values()) == set()


@pytest.mark.req("BS-3.2-ERR-18")
def test_a_failure_is_one_of_the_errors_that_its_status_may_mean() -> None:
    components = document()["components"]
    whole = components["schemas"]["ErrorResponse"]["properties"]["error"]["discriminator"]["mapping"]
    assert list(whole) == [code.value for code in (*ErrorCode, *TransportCode)]
    for code, reference in whole.items():
        assert resolve({"$ref": reference})["properties"]["code"]["enum"] == [code]
    for name, response in components["responses"].items():
        error = response["content"]["application/json"]["schema"]["properties"]["error"]
        assert error["discriminator"]["mapping"] == {code: whole[code] for code in name.split(".")[1:]}
        assert [each["$ref"] for each in error["oneOf"]] == [*error["discriminator"]["mapping"].values()]


# --- its examples -----------------------------------------------------------------------------------------------------


@pytest.mark.req("BS-8-OPENAPI-03")
def test_every_example_of_an_operation_is_valid_and_a_changed_one_is_not(subtests: pytest.Subtests) -> None:
    for operation in OPERATIONS:
        with subtests.test(operation=operation.operation_id):
            for name, media in media_types(operation):
                check = validator(media["schema"])
                for value in values(media):
                    assert check.is_valid(value), name
                    if value:
                        changed = {**value, next(iter(value)): None}
                        lenient = name == "request" and not operation.body_required and is_of_belief(operation)
                        assert check.is_valid(changed) == lenient, name


@pytest.mark.req("BS-8-OPENAPI-03", "LIVE-01")
def test_the_data_of_each_event_is_as_the_document_says() -> None:
    for operation in EVENT_OPERATIONS:
        media = describe(operation)["responses"]["200"]["content"]["text/event-stream"]
        lines = [line for line in media["example"].splitlines() if line.startswith(("event: ", "data: "))]
        sent = {lines[n].removeprefix("event: "): lines[n + 1].removeprefix("data: ") for n in range(0, len(lines), 2)}
        assert list(sent) == ["head", "entry", "end"]
        for name, data in sent.items():
            assert validator(media["x-cmbs-events"][name]).is_valid(json.loads(data)), (operation.operation_id, name)


def test_the_examples_of_headers_are_valid() -> None:
    headers = document()["components"]["headers"].values()
    assert [header for header in headers if not validator(header["schema"]).is_valid(header["example"])] == []


@pytest.mark.req("BS-8-OPENAPI-03", "SS01-HTTP-01")
def test_every_operation_has_examples() -> None:
    # `make lint` records them again and compares them down to the hashes.
    examples = load_examples()
    assert examples.responses.keys() == {operation.operation_id for operation in ALL_OPERATIONS}
    assert examples.requests.keys() == {each.operation_id for each in OPERATIONS if each.method != "GET"}
