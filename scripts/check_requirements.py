"""Check the manifest both ways: every requirement is claimed by a test, and every claim names a requirement.

A requirement that only tests marked `deep` claim is a fault too: no push would run any of them.
Exits with 1 and one line a fault. The claims, `@pytest.mark.req("<id>")`, are read from the source of the tests.
"""

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FIELDS = {"id", "spec", "behaviour"}


def requirements() -> list[dict[str, str]]:
    entries: list[dict[str, str]] = tomllib.loads((TESTS / "requirements.toml").read_text("utf-8"))["requirement"]
    return entries


class Claim(NamedTuple):
    """A requirement that a test says it shows, where it says so, and whether only `make test-deep` runs it."""

    name: str
    place: str
    deep: bool


def is_marker(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Attribute(attr=attr, value=ast.Attribute(attr="mark", value=ast.Name(id="pytest"))):
            return attr == name
        case _:
            return False


@cache
def nodes_in(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"), str(path))))


def markers_of(node: ast.AST) -> Iterator[ast.AST]:
    """Decorators of a function or class, and what a module or class sets `pytestmark` to."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from node.decorator_list
    if isinstance(node, ast.Module | ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
                value = statement.value
                yield from value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def deep_nodes_in(path: Path) -> set[ast.AST]:
    """All that stands under a marker `deep`. One of a `pytest.param` does not make its test deep."""
    marked = (node for node in nodes_in(path) if any(is_marker(each, "deep") for each in markers_of(node)))
    return {each for node in marked for each in ast.walk(node)}


def claims_in(path: Path) -> Iterator[Claim]:
    """Each claim. An argument that is not a literal is a claim of its source text, so it is reported."""
    deep = deep_nodes_in(path)
    for node in nodes_in(path):
        if not isinstance(node, ast.Call) or not is_marker(node.func, "req"):
            continue
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            name = argument.value if literal else ast.unparse(argument)  # type: ignore[attr-defined]
            yield Claim(name, place, node in deep)


def bare_markers_in(path: Path) -> Iterator[str]:
    """Decorators `@pytest.mark.req` without ids."""
    for node in nodes_in(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                empty_call = isinstance(decorator, ast.Call) and not decorator.args and is_marker(decorator.func, "req")
                if empty_call or is_marker(decorator, "req"):
                    yield f"{path.relative_to(ROOT)}:{decorator.lineno}"


def faults() -> Iterator[str]:
    entries = requirements()
    for entry in entries:
        if set(entry) != FIELDS or not all(entry.values()):
            yield f"an entry must have {', '.join(sorted(FIELDS))}: {entry}"
    names = Counter(entry.get("id", "") for entry in entries)
    yield from (f"{name}: the id stands {count} times" for name, count in names.items() if count > 1)
    paths = [path for path in sorted(TESTS.rglob("*.py")) if "pytest.mark.req" in path.read_text("utf-8")]
    claims = [claim for path in paths for claim in claims_in(path)]
    claimed = {claim.name for claim in claims}
    run_by_pushes = {claim.name for claim in claims if not claim.deep}
    yield from (f"{name}: no test claims it" for name in sorted(names.keys() - claimed))
    yield from (
        f"{name}: every test that claims it is marked `deep`, so no push runs one"
        for name in sorted(claimed & names.keys() - run_by_pushes)
    )
    yield from (f"{claim.place}: {claim.name} is no requirement" for claim in claims if claim.name not in names)
    for path in paths:
        yield from (f"{place}: the marker names no requirement" for place in bare_markers_in(path))


def main() -> int:
    found = [f"{fault}\n" for fault in faults()]
    sys.stdout.writelines(found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
