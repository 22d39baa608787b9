"""Both ways: every requirement of the manifest is claimed by a test, and every claim names a requirement."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
FIELDS = {"id", "spec", "behaviour"}


def requirements() -> list[dict[str, str]]:
    entries: list[dict[str, str]] = tomllib.loads((TESTS / "requirements.toml").read_text("utf-8"))["requirement"]
    return entries


def requirement_ids() -> set[str]:
    return {entry["id"] for entry in requirements()}


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
        place = f"{path.relative_to(TESTS.parent)}:{node.lineno}"
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
                    yield f"{path.relative_to(TESTS.parent)}:{decorator.lineno}"


def all_claims() -> list[tuple[str, str]]:
    return [claim for path in sorted(TESTS.rglob("*.py")) for claim in claims_in(path)]


def test_every_requirement_has_an_id_a_source_and_a_behaviour() -> None:
    incomplete = [entry for entry in requirements() if set(entry) != FIELDS or not all(entry.values())]
    assert incomplete == []


def test_requirement_ids_are_unique() -> None:
    repeated = [name for name, count in Counter(entry["id"] for entry in requirements()).items() if count > 1]
    assert repeated == []


def test_every_requirement_is_claimed_by_a_test() -> None:
    claimed = {requirement_id for requirement_id, _ in all_claims()}
    assert sorted(requirement_ids() - claimed) == []


def test_every_claim_names_a_requirement() -> None:
    known = requirement_ids()
    assert [f"{place}: {claim}" for claim, place in all_claims() if claim not in known] == []


def test_every_marker_names_at_least_one_requirement() -> None:
    assert [place for path in sorted(TESTS.rglob("*.py")) for place in bare_markers_in(path)] == []
