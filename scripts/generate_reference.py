"""Write docs/reference/operations.md from the table of operations, and the tables of docs/reference/export.md.

With `--check`, fail where one of them is out of date.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from cmbs.api.arguments import Argument, list_arguments
from cmbs.api.operation import Operation
from cmbs.api.operations import ALL_OPERATIONS
from cmbs.identity.kernel.scopes import Reach, Scope
from scripts.export_fields import write_tables

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference" / "operations.md"
EXPORT = ROOT / "docs" / "reference" / "export.md"
_HEAD = """# Operations

<!-- Written by scripts/generate_reference.py from the table of operations: do not edit. -->

Every operation of the API, by the name that it has in [api/openapi.yaml](../../api/openapi.yaml), in the
[Python client](client.md) and in [`cmbs api`](cli.md#cmbs-api). The scope is what a [key](../operating/identity.md)
must have where the server has keys. Requests, answers and headers are explained in [HTTP](http.md), `details` of errors
in [Errors](errors.md). What a request must have is bold; the client makes up an `observation_id` if it is given none.
"""
# What the first part of a path is about.
_TITLES = {
    "sessions": "Sessions",
    "kits": "Kits",
    "spaces": "Spaces",
    "inbox": "What waits for a person",
    "checkpoint": "Signed checkpoints",
    "webhooks": "Webhooks",
    "events": "All streams",
    "whoami": "The server",
}


def reference_text() -> str:
    """What the page must hold."""
    ordered = sorted(ALL_OPERATIONS, key=lambda each: list(_TITLES).index(_topic_of(each)))
    sections = [_write_section(_TITLES[topic], list(group)) for topic, group in groupby(ordered, _topic_of)]
    return "\n".join([_HEAD, *sections, _write_matrix()])


def _topic_of(operation: Operation) -> str:
    first = operation.path.removeprefix("/v1/").split("/")[0]
    return first if first in _TITLES else "whoami"


def _write_section(title: str, operations: Sequence[Operation]) -> str:
    rows = [
        (f"`{each.operation_id}`", each.summary, f"`{each.method} {each.path}`", _name_scope(each), _list_body(each),
         _list_query(each))
        for each in operations
    ]  # fmt: skip
    return _write_table(title, ("operation", "what it does", "request", "scope", "body", "query"), rows)


def _write_table(title: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows)]
    return "\n".join([f"## {title}", "", *lines, ""])


def _name_scope(operation: Operation) -> str:
    if operation.scope is None:
        return "any key" if operation.any_key else "none"
    return f"`{operation.scope}`"


def _list_body(operation: Operation) -> str:
    if operation.body is None:
        return ""
    asked = {parameter.name for parameter in operation.query}
    arguments = [each for each in list_arguments(operation) if each.name.rstrip("_") not in asked]
    return _name_arguments(operation, arguments)


def _list_query(operation: Operation) -> str:
    asked = {parameter.name for parameter in operation.query}
    return _name_arguments(operation, [each for each in list_arguments(operation) if each.name.rstrip("_") in asked])


def _name_arguments(operation: Operation, arguments: Iterable[Argument]) -> str:
    names = [each for each in arguments if each.name not in operation.path_names]
    return ", ".join(_name_argument(each, operation) for each in names)


def _name_argument(argument: Argument, operation: Operation) -> str:
    name = f"`{argument.name.rstrip('_')}`"
    return f"**{name}**" if argument.is_required or argument.name in operation.made_up else name


def _write_matrix() -> str:
    rows = [(f"`{scope}`", ", ".join(_list_reached(scope))) for scope in Scope]
    told = (
        "What a key with one scope may call. A scope that is limited to single sessions or spaces is enough for all of"
        " it but what is in italics.\n"
    )
    table = _write_table("Scopes", ("scope", "operations"), rows)
    return table.replace("## Scopes\n", f"## Scopes\n\n{told}", 1).rstrip("\n") + "\n"


def _list_reached(scope: Scope) -> Iterator[str]:
    for operation in ALL_OPERATIONS:
        needs = [need.scope for _, need in operation.need_of_prefix]
        if scope in (operation.scope, *needs):
            name = f"`{operation.operation_id}`"
            yield f"_{name}_" if operation.reach is Reach.ALL else name


def main() -> int:
    pages = {TARGET: reference_text(), EXPORT: write_tables(EXPORT.read_text("utf-8"))}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            sys.stdout.write(f"{path.relative_to(ROOT)} is out of date: run `make generate`\n")
        return int(bool(stale))
    for path in stale:
        path.write_text(pages[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
