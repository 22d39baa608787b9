"""What `cmbs api` says of the operations: which there are, and what one of them takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand

from cmbs.cli.output import failing_cleanly, out

if TYPE_CHECKING:
    from cmbs.api.arguments import Argument

# A terminal that is narrower has no room for the paths beside the rest.
_WIDE = 120
# How an argument is written, by its type in Python.
_FORMS = {
    "str": "=TEXT",
    "int": ":=NUMBER",
    "float": ":=NUMBER",
    "bool": ":=true|false",
    "Moment": "=EVENT_ID or {name}:=SEQ",
    "Json": ":=JSON",
    "str | Mapping[str, Json]": "=TEXT or {name}:=OBJECT",
}
_FILE = "text"
_OPERATION = f"{__name__}.operation"


class ApiCommand(TyperCommand):
    """`cmbs api`. Help that is asked for beside the name of an operation is about that operation."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments. Help is printed before they are known, so the operation is looked up first."""
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[_OPERATION] = found.get("operation")
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        operation = ctx.meta.get(_OPERATION)
        if operation is None:
            super().format_help(ctx, formatter)
            return
        with failing_cleanly():
            print_operation(operation)


def print_operations() -> None:
    """Print every operation, one to a line where the output is no terminal."""
    from cmbs.api.operations import ALL_OPERATIONS

    is_wide = not out.is_terminal or out.width >= _WIDE
    rows = [
        (each.operation_id, each.scope or "", *([f"{each.method} {each.path}"] if is_wide else []), each.summary)
        for each in ALL_OPERATIONS
    ]
    _print_table(("operation", "scope", *(["request"] if is_wide else []), "what it does"), rows)


def print_operation(operation_id: str) -> None:
    """Print what an operation does, its request, and its arguments."""
    from cmbs.api.call import find_operation

    operation = find_operation(operation_id)
    out.print(f"Usage: cmbs api {operation_id} [ARGUMENT]... [OPTIONS]\n")
    out.print(f"{operation.summary}.\n\n{operation.description}\n")
    out.print(f"Request: {operation.method} {operation.path}")
    if operation.scope is not None:
        out.print(f"Scope: {operation.scope}")
    if operation.is_followed:
        out.print("\nIt goes on without end: follow it with `cmbs follow`.")
        return
    out.print()
    print_arguments(operation_id)
    out.print("\n`NAME=@FILE` sends the text of a file. `cmbs api --help` explains the options.")


def print_arguments(operation_id: str) -> None:
    """Print the arguments of an operation as they are written."""
    from cmbs.api.arguments import list_arguments
    from cmbs.api.call import find_operation

    rows = [
        (_write_form(each), "required" if each.is_required else "", each.description)
        for each in list_arguments(find_operation(operation_id))
    ]
    if rows:
        _print_table(("argument", "", "what it is"), rows)
    else:
        out.print("It takes no arguments.")


def _write_form(argument: Argument) -> str:
    name = argument.name.rstrip("_")
    if name == _FILE and argument.is_required:
        return f"{name}=@FILE"
    form = _FORMS.get(argument.kind, ":=OBJECT" if argument.kind.startswith("Mapping") else ":=LIST")
    return f"{name}{form.format(name=name)}"


def _print_table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table; where there is no terminal, each row on one line, for programs to read."""
    from rich import box
    from rich.table import Table

    if out.is_terminal:
        table = Table(*titles, box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*row)
        out.print(table)
        return
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        out.print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
