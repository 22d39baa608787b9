"""Write the operations of both Python clients from the table: `python -m scripts.generate_client [--check]`.

`cmbs/client/operations.py` has those of the client that blocks, `cmbs/client/async_operations.py` those of the one that
awaits. What else a client that blocks is made of is written from the modules of the one that awaits.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import textwrap
from pathlib import Path

from cmbs.api.arguments import Argument, list_arguments
from cmbs.api.operation import Operation
from cmbs.api.operations import ALL_OPERATIONS

CLIENT = Path(__file__).resolve().parent.parent / "cmbs" / "client"
_WRITTEN = "Written by scripts/generate_client.py from the table of operations: do not edit."
_WIDTH = 116
_RESUMED = "Handed out are the entries alone. Lost connections are made again; each entry comes once, in order."
# What has another name in code that blocks.
_SYNC_NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncCase": "Case",
    "AsyncClient": "Client",
    "AsyncGenerator": "Generator",
    "AsyncHttpTransport": "HttpTransport",
    "AsyncIterator": "Iterator",
    "AsyncOperations": "Operations",
    "AsyncTransport": "Transport",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aiter_bytes": "iter_bytes",
    "anyio": "time",
    "aread": "read",
    "asynccontextmanager": "contextmanager",
}
_SYNC_WORDS = {
    **_SYNC_NAMES,
    "async with": "with",
    "client that awaits": "client that blocks",
    "It belongs to one event loop. Made by `connect_async`": "It may be used by several threads. Made by `connect`",
}
# What is generated from a module that awaits, beside the operations.
_BLOCKING = ("cases", "clients", "transports")


def write_method(operation: Operation, *, awaits: bool) -> str:
    """The method of an operation, as source."""
    arguments = list_arguments(operation)
    required = [f"{each.name}: {each.kind}" for each in arguments if each.is_required]
    # Any JSON is also null.
    optional = [
        f"{each.name}: {each.kind}{'' if each.kind == 'Json' else ' | None'} = None"
        for each in arguments
        if not each.is_required
    ]
    signature = ", ".join(["self", *required, *(["*", *optional] if optional else [])])
    answer = write_answer(operation)
    given = "".join(f", {each.name}={each.name}" for each in arguments)
    prefix, wait = ("async ", "await ") if awaits else ("", "")
    send = "_call"
    if operation.is_followed:
        # What goes on is not awaited but gone through.
        answer = f"{'AsyncGenerator' if awaits else 'Generator'}[{answer}]"
        prefix, wait, send = "", "", "_follow"
    return "\n".join(
        [
            f"    {prefix}def {operation.operation_id}({signature}) -> {answer}:",
            textwrap.indent(write_docstring(operation, arguments), " " * 8),
            f'        answer: {answer} = {wait}self.{send}("{operation.operation_id}"{given})',
            "        return answer",
        ]
    )


def write_answer(operation: Operation) -> str:
    """The type of an answer, as text."""
    return operation.response.__name__ if operation.answer is operation.response else "dict[str, Any]"


def write_docstring(operation: Operation, arguments: list[Argument]) -> str:
    """What an operation does, and what its arguments are."""
    lines = [f'"""{operation.summary}.', "", *_wrap(operation.description, "")]
    if operation.is_followed:
        lines += ["", *_wrap(_RESUMED, "")]
    explained = [each for each in arguments if each.description]
    if explained:
        lines += ["", "Args:"]
        for each in explained:
            lines += _wrap(f"{each.name}: {each.description}", "    ", "        ")
    return "\n".join([*lines, '"""'])


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    text = " ".join(text.split()).replace("\\", "\\\\")
    return textwrap.wrap(
        text,
        _WIDTH - 8,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def write_operations(*, awaits: bool) -> str:
    """The module of the operations of one client."""
    title = "when awaited" if awaits else "and waits for its answer"
    modules: dict[str, set[str]] = {}
    for operation in ALL_OPERATIONS:
        if operation.answer is operation.response:
            modules.setdefault(operation.response.__module__, set()).add(operation.response.__name__)
    imports = [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(modules.items())]
    name, abstract = ("AsyncOperations", "async def") if awaits else ("Operations", "def")
    generator = "AsyncGenerator" if awaits else "Generator"
    methods = "\n\n".join(write_method(operation, awaits=awaits) for operation in ALL_OPERATIONS)
    return "\n".join(
        [
            f'"""Every operation of the API as a method, which sends it {title}.\n\n{_WRITTEN}\n"""',
            "",
            "from __future__ import annotations",
            "",
            "from abc import abstractmethod",
            f"from collections.abc import {generator}, Iterable, Mapping, Sequence",
            "from typing import Any",
            "",
            "from cmbs.api.call import Json, Moment",
            *imports,
            "",
            "",
            f"class {name}:",
            '    """Every operation of the API, by the name that the OpenAPI document gives it."""',
            "",
            "    @abstractmethod",
            f"    {abstract} _call(self, operation_id: str, **arguments: Any) -> Any:",
            '        """Send an operation with what a caller gave for it."""',
            "",
            "    @abstractmethod",
            f"    def _follow(self, operation_id: str, **arguments: Any) -> {generator}[Any]:",
            '        """Follow a stream with what a caller gave for it."""',
            "",
            methods,
            "",
        ]
    )


class _Blocking(ast.NodeTransformer):
    """Turns a module that awaits into one that blocks."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """A function that awaits nothing."""
        self.generic_visit(node)
        fields = dict(ast.iter_fields(node))
        fields["name"] = _SYNC_NAMES.get(node.name, node.name)
        return ast.copy_location(ast.FunctionDef(**fields), node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """What was awaited."""
        self.generic_visit(node)
        return node.value

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        """A `with` block."""
        self.generic_visit(node)
        return ast.copy_location(ast.With(items=node.items, body=node.body), node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        """A loop."""
        self.generic_visit(node)
        return ast.copy_location(ast.For(target=node.target, iter=node.iter, body=node.body, orelse=node.orelse), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """What would be awaited is there."""
        self.generic_visit(node)
        return node.slice if isinstance(node.value, ast.Name) and node.value.id == "Awaitable" else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """An attribute by its other name."""
        self.generic_visit(node)
        node.attr = _SYNC_NAMES.get(node.attr, node.attr)
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST:
        """An import of what blocks."""
        for alias in node.names:
            alias.name = _SYNC_NAMES.get(alias.name, alias.name)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """A class by its other name."""
        self.generic_visit(node)
        node.name = _SYNC_NAMES.get(node.name, node.name)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A name by its other name."""
        node.id = _SYNC_NAMES.get(node.id, node.id)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """An import of what blocks."""
        node.module = (node.module or "").replace("async_", "")
        for alias in node.names:
            alias.name = _SYNC_NAMES.get(alias.name, alias.name)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """A docstring that speaks of what blocks."""
        if isinstance(node.value, str):
            for old, new in _SYNC_WORDS.items():
                node.value = node.value.replace(old, new)
        return node


def write_blocking(source: Path) -> str:
    """A module that blocks, of one that awaits. Comments are left out."""
    tree = _Blocking().visit(ast.parse(source.read_text("utf-8")))
    document = ast.get_docstring(tree) or ""
    tree.body = tree.body[1:]
    head = f'"""{document}\n\nWritten by scripts/generate_client.py from {source.name}: do not edit.\n"""\n\n'
    return head + ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def write_all() -> dict[Path, str]:
    """What every generated module holds, formatted."""
    texts = {
        CLIENT / "operations.py": write_operations(awaits=False),
        CLIENT / "async_operations.py": write_operations(awaits=True),
        **{CLIENT / f"{name}.py": write_blocking(CLIENT / f"async_{name}.py") for name in _BLOCKING},
    }
    return {path: _format(text, path) for path, text in texts.items()}


def _format(text: str, path: Path) -> str:
    for command in (("check", "--select", "I,D2,F401", "--fix-only", "--quiet"), ("format", "--quiet")):
        text = subprocess.run(
            [Path(sys.executable).parent / "ruff", *command, "--stdin-filename", str(path), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def main(arguments: list[str] | None = None) -> int:
    """Write the modules, or say which of them are not what would be written."""
    parser = argparse.ArgumentParser(description="Write the operations of the Python clients.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something would change")
    options = parser.parse_args(arguments)
    stale = [path for path, text in write_all().items() if not path.exists() or path.read_text("utf-8") != text]
    if options.check:
        for path in stale:
            sys.stdout.write(f"{path.name} is out of date: run `make generate`\n")
        return 1 if stale else 0
    for path, text in write_all().items():
        path.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
