"""The `details` of errors: what documents and the console name of an error is what the code sends with that error.

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
from typing import Any

import pytest

from cmbs import errors
from cmbs.errors import BeliefServerError
from cmbs.http.errors import STATUS_OF_CODE, TransportCode, complete_details
from cmbs.http.examples import ERRORS
from scripts.check_contracts import read_pages
from scripts.contracts import read_error_fields, read_error_table
from tests.support.subtests import for_each

ROOT = Path(__file__).parents[2]
CODE_OR_STATUS = re.compile(r"`([A-Z_]{4,})`|\b([45]\d\d)\b")
# In TypeScript: `details.field` and `details["field"]`, and the fields that it is said to have: `as { one: number }`.
IN_CONSOLE = re.compile(r'\bdetails(?:\??\.(?=\w+\b(?!\())|\[")(\w+)(?:"\] as \{ ([^}]*) \})?')
STATUS_IN_CONSOLE = re.compile(r"status [!=]== ([45]\d\d)")
# It shows what errors look like, and sends none.
EXAMPLES = ROOT / "cmbs/http/examples.py"

KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
CODES = {
    name: kind.default_code.value
    for name, kind in KINDS.items()
    if issubclass(kind, BeliefServerError) and kind is not BeliefServerError
} | {code.name: code.value for code in TransportCode}
# Errors whose details are what they are made with; the others put them together themselves.
TAKE_DETAILS = {name for name in CODES if name in KINDS and "__init__" not in vars(KINDS[name])}


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


def read_errors(function: ast.AST) -> Iterator[tuple[str, str]]:
    """The errors that are made in a function, each with every field of its details."""
    for call in ast.walk(function):
        if not isinstance(call, ast.Call):
            continue
        name, details = name_of(call.func), call.args[1:]
        if name == "TransportError" and details:
            name, details = name_of(call.args[0]), details[1:]
        elif name not in TAKE_DETAILS:
            continue
        yield from ((name, path) for given in details for path in paths_of(given, function))


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
    made = re.compile(rf"\b({'|'.join(TAKE_DETAILS)}|TransportError)\(")
    for name, path in read_own_details():
        found[name].add(path)
    for file in (ROOT / "cmbs").rglob("*.py"):
        text = file.read_text("utf-8")
        if file == EXAMPLES or not made.search(text):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for name, path in read_errors(function):
                    found[name].add(path)
    for name, code in CODES.items():
        found[name] |= complete_details(code, {}).keys()
    return found


def sent_with(code_or_status: str) -> set[str]:
    """The fields of all errors with a code, or with a status."""
    codes = {code.value for code, status in STATUS_OF_CODE.items() if code_or_status in {code.value, str(status)}}
    return set().union(*(read_code()[name] for name, code in CODES.items() if code in codes))


def sent_with_any(named: list[str]) -> set[str]:
    """The fields of errors with any of these codes or statuses; of all errors where none is named."""
    return set().union(*map(sent_with, named or CODES.values()))


@cache
def read_documented() -> dict[str, set[str]]:
    """The errors of `docs/reference/errors.md` with the fields it names."""
    page = (ROOT / "docs/reference/errors.md").read_text("utf-8")
    return {error: fields for _, error, fields in read_error_table(page)}


def read_texts() -> Iterator[tuple[str, list[str], str]]:
    """The fields that prose names, each with the codes and statuses of its line."""
    for page, text in read_pages().items():
        for number, line in enumerate(text.splitlines(), 1):
            codes = [
                code or status for code, status in CODE_OR_STATUS.findall(line) if status or code in CODES.values()
            ]
            for path in read_error_fields(line):
                yield f"{page}:{number}", codes, path


def read_console() -> Iterator[tuple[str, list[str], str]]:
    """The fields that the console reads, each with the statuses that its file asks for."""
    for path in (path for kind in ("*.ts", "*.tsx") for path in (ROOT / "console/src").rglob(kind)):
        text = path.read_text("utf-8")
        for field, members in IN_CONSOLE.findall(text):
            for each in (field, *(f"{field}.{below}" for below in re.findall(r"(\w+)\??:", members))):
                yield str(path.relative_to(ROOT)), STATUS_IN_CONSOLE.findall(text), each


@pytest.mark.req("BS-3.2-ERR-17")
def test_every_error_sends_what_the_table_of_errors_says() -> None:
    table = read_documented()
    assert table.keys() == CODES.keys() - {"StoreDisagrees"}, "the table is not understood"
    assert table["LimitExceeded"] >= {"limit", "maximum", "actual"}
    assert {name: fields - read_code()[name] for name, fields in table.items() if fields - read_code()[name]} == {}


@pytest.mark.req("BS-3.2-ERR-17")
def test_every_error_sends_what_prose_says_of_it() -> None:
    texts = list(read_texts())
    assert "eliminated_by.event_id" in {field for _, _, field in texts}, "prose is not understood"
    assert [each for each in texts if each[2] not in sent_with_any(each[1])] == []


@pytest.mark.req("BS-3.2-ERR-17")
def test_the_console_reads_what_is_sent_and_documented() -> None:
    console = list(read_console())
    assert "eliminated_by.seq" in {field for _, _, field in console}, "the console is not understood"
    assert [each for each in console if each[2] not in sent_with_any(each[1])] == []
    documented = {"next", *(field for _, _, field in read_texts())}.union(*read_documented().values())
    assert {field for _, _, field in console} - documented == set()


@pytest.mark.req("BS-3.2-ERR-17")
@for_each(("code", "example"), ERRORS.items(), ids=lambda each: each if isinstance(each, str) else "")
def test_the_examples_have_what_is_sent(code: str, example: dict[str, Any]) -> None:
    assert example["details"].keys() - sent_with("CONFLICT" if code == "HEAD_MISMATCH" else code) == set()


def test_fields_are_read_with_the_error_that_has_them() -> None:
    function = ast.parse(
        "def refuse():\n"
        "    more = {'id': 1} if x else {}\n"
        "    raise Conflict('', {'by': {'seq': 1}, 'all': [{'name': n} for n in x], **more})\n"
        "    raise TransportError(TransportCode.BUSY, '', {'limit': 1})\n"
    )
    found = [*read_errors(function)]
    assert found == [
        *(("Conflict", path) for path in ("by", "by.seq", "all", "all.name", "id")),
        ("BUSY", "limit"),
    ]
    assert IN_CONSOLE.findall('error.details["by"] as { seq: number }; error.details.next; error.details?.seq') == [
        ("by", "seq: number"),
        ("next", ""),
        ("seq", ""),
    ]
