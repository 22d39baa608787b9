"""Check the manifest both ways: every requirement is claimed by a test, and every claim names a requirement.

Exits with 1 and one line a fault. The claims, `@pytest.mark.req("<id>")`, are read from the source of the tests.
"""

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
FIELDS = {"id", "spec", "behaviour"}


def requirements() -> list[dict[str, str]]:
    entries: list[dict[str, str]] = tomllib.loads((TESTS / "requirements.toml").read_text("utf-8"))["requirement"]
    return entries


def is_req_marker(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="req", value=ast.Attribute(attr="mark", value=ast.Name(id="pytest"))):
            return True
        case _:
            return False


@cache
def nodes_in(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"), str(path))))


def claims_in(path: Path) -> Iterator[tuple[str, str]]:
    """Each claim as (id, place). An argument that is not a literal is a claim of its source text, so it is reported."""
    for node in nodes_in(path):
        if not isinstance(node, ast.Call) or not is_req_marker(node.func):
            continue
        place = f"{path.relative_to(ROOT)}:{node.lineno}"
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            yield (argument.value if literal else ast.unparse(argument)), place  # type: ignore[attr-defined]


def bare_markers_in(path: Path) -> Iterator[str]:
    """Decorators `@pytest.mark.req` without ids."""
    for node in nodes_in(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in node.decorator_list:
                empty_call = isinstance(decorator, ast.Call) and not decorator.args and is_req_marker(decorator.func)
                if empty_call or is_req_marker(decorator):
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
    yield from (f"{name}: no test claims it" for name in sorted(names.keys() - {claim for claim, _ in claims}))
    yield from (f"{place}: {claim} is no requirement" for claim, place in claims if claim not in names)
    for path in paths:
        yield from (f"{place}: the marker names no requirement" for place in bare_markers_in(path))


def main() -> int:
    found = [f"{fault}\n" for fault in faults()]
    sys.stdout.writelines(found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
