"""The `details` of errors: the type of each code has every field that the code sends with it, and no other.

The code is read and not run: of a call such as `Conflict(message, {...})` the keys of the dictionary, nested ones as
`eliminated_by.seq`. They belong to the error that is made there: that another error has the same name does not count.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from cmbs import errors
from cmbs.api.error_answers import FAILURES, ErrorResponse
from cmbs.api.error_details import DETAILS_OF, ClientErrorDetails, ConflictDetails, EliminatedBy, ForbiddenDetails
from cmbs.api.errors import STATUS_OF_CODE, TransportCode, complete_details
from cmbs.api.examples import ERRORS
from cmbs.errors import BeliefServerError, ErrorCode
from scripts.check_contracts import read_pages
from scripts.contracts import read_error_fields
from scripts.error_fields import list_fields_of, list_unknown
from tests.support.subtests import for_each
from tests.unit.test_errors import EXAMPLES

ROOT = Path(__file__).parents[2]
CODE_OR_STATUS = re.compile(r"`([A-Z_]{4,})`|\b([45]\d\d)\b")
CLASS = re.compile(r"^class (\w+)\((\w+)\):", re.MULTILINE)
# It shows what errors look like, and sends none.
SHOWN = ROOT / "cmbs/api/examples.py"

KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
CODES = {
    name: kind.default_code.value
    for name, kind in KINDS.items()
    if issubclass(kind, BeliefServerError) and kind is not BeliefServerError
} | {code.name: code.value for code in TransportCode}
# Errors whose details are what they are made with; the others put them together themselves.
TAKE_DETAILS = {name for name in CODES if name in KINDS and "__init__" not in vars(KINDS[name])}
# Sent, and nowhere written out in a call: taken over from another error, or added to one.
PUT_TOGETHER = {"INVALID_REQUEST": {"what", "id", "allowed"}}
# Raised in this process alone: while a server starts, by steps that it takes itself, and of what it repeats in silence.
IN_PYTHON = {
    "INVALID_REQUEST": {"callable", "endpoint", "stream_id", "tool", "url", "variable"},
    "CONFLICT": {"delivery_id", "due", "entry_id", "generation", "webhook_id"},
}


def paths_of(node: ast.expr | None, scope: ast.AST, known: frozenset[str] = frozenset()) -> Iterator[str]:
    """The keys of a dictionary that is written out, nested ones with those above; names are looked up in `scope`."""
    match node:
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                below = paths_of(value, scope, known)
                if key is None:
                    yield from below
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value
                    yield from (f"{key.value}.{path}" for path in below)
        case ast.IfExp():
            yield from paths_of(node.body, scope, known)
            yield from paths_of(node.orelse, scope, known)
        case ast.ListComp():
            yield from paths_of(node.elt, scope, known)
        case ast.Name(name) if name not in known:
            for each in ast.walk(scope):
                if isinstance(each, ast.Assign | ast.AnnAssign) and name in map(name_of, targets_of(each)):
                    yield from paths_of(each.value, scope, known | {name})


def targets_of(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def list_calls(scope: ast.AST, kinds: dict[str, str]) -> Iterator[tuple[str, list[ast.expr]]]:
    """The errors that are made somewhere, each with the expressions of its details."""
    for call in ast.walk(scope):
        if not isinstance(call, ast.Call):
            continue
        name, details = name_of(call.func), call.args[1:]
        if name == "TransportError" and details:
            yield name_of(call.args[0]), details[1:]
        elif name in kinds:
            yield kinds[name], details


def read_errors(function: ast.AST, kinds: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The errors that are made in a function, each with every field of its details."""
    for name, details in list_calls(function, kinds):
        yield from ((name, path) for given in details for path in paths_of(given, function))


@cache
def read_kinds() -> dict[str, str]:
    """The errors that take their details, and the classes below them elsewhere, each with the error that it is."""
    kinds = {name: name for name in TAKE_DETAILS}
    classes = [each for _, text in read_package() for each in CLASS.findall(text)]
    while below := {name: kinds[base] for name, base in classes if base in kinds and name not in kinds}:
        kinds |= below
    return kinds


@cache
def read_package() -> list[tuple[Path, str]]:
    """The files of the package, without the one that shows what errors look like and sends none."""
    return [(file, file.read_text("utf-8")) for file in (ROOT / "cmbs").rglob("*.py") if file != SHOWN]


def read_functions() -> Iterator[ast.AST]:
    """The functions in which errors are made."""
    made = re.compile(rf"\b({'|'.join(read_kinds())}|TransportError)\(")
    for _, text in read_package():
        for function in ast.walk(ast.parse(text)) if made.search(text) else ():
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                yield function


def read_reasons(error: str) -> set[str]:
    """The values of `reason` that are written out in details of an error."""
    return {
        str(value.value)
        for function in read_functions()
        for name, details in list_calls(function, read_kinds())
        for given in details
        if name == error and isinstance(given, ast.Dict)
        for key, value in zip(given.keys, given.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "reason" and isinstance(value, ast.Constant)
    }


def read_own_details() -> Iterator[tuple[str, str]]:
    """The errors that put their details together themselves."""
    for kind in ast.parse((ROOT / "cmbs/errors.py").read_text("utf-8")).body:
        if isinstance(kind, ast.ClassDef) and kind.name in CODES.keys() - TAKE_DETAILS:
            for call in ast.walk(kind):
                if isinstance(call, ast.Call) and name_of(call.func) == "__init__":
                    yield from ((kind.name, path) for path in paths_of(call.args[1], kind))


@cache
def read_code() -> dict[str, set[str]]:
    """The fields that the package sends, by the error that has them."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in read_own_details():
        found[name].add(path)
    for function in read_functions():
        for name, path in read_errors(function, read_kinds()):
            found[name].add(path)
    for name, code in CODES.items():
        found[name] |= complete_details(code, {}).keys()
    return found


def sent_with(code: str) -> set[str]:
    """The fields of all errors with a code. What is inside of `found` and `accepted` is any value."""
    fields = set().union(*(read_code()[name] for name, each in CODES.items() if each == code))
    return {path for path in fields if not path.startswith(("found.", "accepted."))}


def known_of_any(named: list[str]) -> set[str]:
    """The fields of the types of any of these codes or statuses; of all where none is named."""
    codes = [code for code, status in STATUS_OF_CODE.items() if not named or {code.value, str(status)} & set(named)]
    return {path for code in codes for path in list_fields_of(code)}


def read_texts() -> Iterator[tuple[str, list[str], str]]:
    """The fields that prose names, each with the codes and statuses of its line."""
    for page, text in read_pages().items():
        for number, line in enumerate(text.splitlines(), 1):
            codes = [
                code or status for code, status in CODE_OR_STATUS.findall(line) if status or code in CODES.values()
            ]
            for path in read_error_fields(line):
                yield f"{page}:{number}", codes, path


@pytest.mark.req("BS-3.2-ERR-18")
def test_every_code_has_details_and_an_error_of_its_own() -> None:
    assert DETAILS_OF.keys() == FAILURES.keys() == {*ErrorCode, *TransportCode}
    for code, status in STATUS_OF_CODE.items():
        kind = DETAILS_OF[code]
        assert kind.__name__ == f"{code.title().replace('_', '')}Details"
        assert get_args(vars(FAILURES[code])["__orig_bases__"][0]) == (kind,)
        assert issubclass(kind, ClientErrorDetails) == (status < 500)


@pytest.mark.req("BS-3.2-ERR-18")
@for_each("code", DETAILS_OF)
def test_the_details_of_a_code_have_every_field_that_is_sent_and_no_other(code: str) -> None:
    known, sent = list_fields_of(code).keys(), sent_with(code) | PUT_TOGETHER.get(code, frozenset())
    assert sent - known == IN_PYTHON.get(code, frozenset())
    assert {each for each in known if "." not in each} - sent == set()


def test_every_reason_of_a_request_that_is_forbidden_is_in_its_schema() -> None:
    schema = msgspec.json.schema(ForbiddenDetails)["$defs"]["ForbiddenDetails"]["properties"]["reason"]
    assert sorted(schema["enum"]) == sorted(read_reasons("Forbidden"))


@pytest.mark.req("BS-3.2-ERR-17")
def test_prose_names_fields_that_there_are() -> None:
    texts = list(read_texts())
    assert "eliminated_by.event_id" in {field for _, _, field in texts}, "prose is not understood"
    assert [each for each in texts if each[2] not in known_of_any(each[1])] == []


@pytest.mark.req("BS-3.2-ERR-18")
@for_each("example", [*ERRORS.values()], ids=lambda each: str(each["code"]))
def test_the_examples_are_as_their_types_say(example: dict[str, Any]) -> None:
    assert list_unknown(example["code"], example["details"]) == []
    answer = msgspec.json.decode(msgspec.json.encode({"error": example}), type=ErrorResponse)
    assert type(answer.error) is FAILURES[example["code"]]


@pytest.mark.req("BS-3.2-ERR-18")
@for_each("error", [error for error, _, _ in EXAMPLES], ids=lambda error: type(error).__name__)
def test_an_error_has_no_field_that_its_type_does_not_have(error: BeliefServerError) -> None:
    assert list_unknown(error.code, complete_details(error.code, error.details)) == []


def test_a_field_that_a_type_does_not_have_is_found() -> None:
    details = complete_details("CONFLICT", {"eliminated_by": {"seq": 1, "event_id": "e", "by": 1}, "found": {"a": 1}})
    assert list_unknown("CONFLICT", details | {"group": 1}) == ["eliminated_by.by", "group"]
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int \| null`"):
        list_unknown("CONFLICT", details | {"seq": "1"})
    assert msgspec.convert(details | {"group": 1}, ConflictDetails).eliminated_by == EliminatedBy(1, "e")


def test_fields_are_read_with_the_error_that_has_them() -> None:
    function = ast.parse(
        "def refuse():\n"
        "    more = {'id': 1} if x else {}\n"
        "    raise Conflict('', {'by': {'seq': 1}, 'all': [{'name': n} for n in x], **more})\n"
        "    raise TransportError(TransportCode.BUSY, '', {'limit': 1})\n"
    )
    found = [*read_errors(function, {"Conflict": "Conflict"})]
    assert found == [
        *(("Conflict", path) for path in ("by", "by.seq", "all", "all.name", "id")),
        ("BUSY", "limit"),
    ]
