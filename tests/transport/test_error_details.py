"""The `details` of errors: what documents and the console name is what the code sends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE_CELL, DETAILS_CELL = 1, 4
# A field of `details`, in a document (`details.field`) and in TypeScript (`details.field`, `details["field"]`).
IN_TEXT = re.compile(r"`details\.(\w+)`")
IN_CONSOLE = re.compile(r"\bdetails(?:\??\.(?=\w+\b(?!\())|\[\")(\w+)")
# What a class of an error, or a function that makes one, is called.
MAKES_ERROR = re.compile(
    r"(Error|Exceeded|Found|Mismatch|Refused|Conflict|Unavailable|Disagrees|Corrupt|Request|Forbidden|Unauthenticated"
    r"|Terminated)$|^(Invalid|Unknown)"
)


def read_error_table() -> dict[str, set[str]]:
    """The fields that the table of `docs/reference/errors.md` names, by code; values in parentheses are none."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "docs/reference/errors.md").read_text("utf-8").splitlines():
        cells = line.split("|")
        if re.match(r"\| `[A-Z_]+` \|", line):
            fields = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", cells[DETAILS_CELL]))
            found.setdefault(cells[CODE_CELL].strip(" `"), set()).update(fields)
    return found


def read_texts() -> set[str]:
    """The fields that prose names."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    pages = [page for page in pages if "adr" not in page.parts and page.name != "CHANGELOG.md"]
    return {field for page in pages for field in IN_TEXT.findall(page.read_text("utf-8"))}


def read_console() -> set[str]:
    """The fields that the console reads."""
    sources = [path for kind in ("*.ts", "*.tsx") for path in (ROOT / "console/src").rglob(kind)]
    return {field for path in sources for field in IN_CONSOLE.findall(path.read_text("utf-8"))}


def keys_of(node: ast.AST) -> Iterator[str]:
    """The keys of every dictionary that is written out in an expression, and the names of keyword arguments."""
    for each in ast.walk(node):
        if isinstance(each, ast.Dict):
            yield from (key.value for key in each.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "dict":
            yield from (keyword.arg for keyword in each.keywords if keyword.arg)


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


@cache
def read_code() -> set[str]:
    """The fields that the package sends: written out where an error is made, or where `details` are put together."""
    found: set[str] = set()
    for path in (ROOT / "cmbs").rglob("*.py"):
        text = path.read_text("utf-8")
        if "details" not in text and not re.search(r"\berrors\b", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and MAKES_ERROR.search(name_of(node.func)):
                found.update(keys_of(node))
            elif isinstance(node, ast.Assign) and any("details" in name_of(target) for target in node.targets):
                found.update(keys_of(node.value))
            elif isinstance(node, ast.FunctionDef) and ("details" in node.name or path.name == "errors.py"):
                found.update(keys_of(node))
            elif isinstance(node, ast.Subscript) and name_of(node.value) == "details":
                found.update(str(each.value) for each in [node.slice] if isinstance(each, ast.Constant))
    return found


@pytest.mark.req("BS-3.2-ERR-17")
def test_every_field_of_details_that_is_documented_or_read_is_sent() -> None:
    table, texts, console, code = read_error_table(), read_texts(), read_console(), read_code()
    assert table["LIMIT_EXCEEDED"] >= {"limit", "maximum", "actual"}, "the table is not understood"
    assert texts, "no document names a field as `details.field`"
    assert console, "the console reads no field"
    documented = texts.union(*table.values())
    assert documented - code == set(), "documented, and sent nowhere"
    assert console - code == set(), "read by the console, and sent nowhere"
    assert console - documented - {"next"} == set(), "read by the console, and documented nowhere"


@pytest.mark.req("BS-3.2-ERR-17")
def test_a_field_that_nothing_sends_would_be_noticed() -> None:
    assert "group_eliminated" not in read_code()
    assert IN_CONSOLE.findall('error.details["eliminated_by"]; error.details.next; error.details?.seq') == [
        "eliminated_by",
        "next",
        "seq",
    ]
