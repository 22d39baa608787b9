"""`cmbs api`: any operation of the API, through the client."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.api_help import print_arguments, print_operations
from cmbs.cli.output import failing_cleanly, read_input
from cmbs.errors import BeliefServerError, InvalidRequest

if TYPE_CHECKING:
    from cmbs.api.call import Call

_MAX_BYTES = 67_108_864
_FAILED = 1


def call(
    operation: Annotated[
        str | None,
        typer.Argument(
            help="What to call, by the name in the OpenAPI document; `--help` after it explains it.",
            metavar="OPERATION",
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="NAME=TEXT, NAME:=JSON, or NAME=@FILE for the text of a file.", metavar="ARGUMENT"),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the operations, or the arguments of the one that is named.")
    ] = False,
    server: Annotated[
        str,
        typer.Option(
            envvar="CMBS_SERVER", help="An address, or a store, over which a server then runs here.", metavar="URL"
        ),
    ] = DEFAULT_STORE,
    input_: Annotated[
        str | None,
        typer.Option("--input", help="A file with arguments as a JSON object; `-` is standard input.", metavar="FILE"),
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Who is asking, of a server without keys.", metavar="KIND:ID")
    ] = None,
    if_match: Annotated[str | None, typer.Option(help="The head that a write continues.", metavar="EVENT_ID")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The key under which a write is applied once.", metavar="KEY")
    ] = None,
    fields: Annotated[
        str | None, typer.Option(help="The fields that the answer is to have, with commas between them.")
    ] = None,
    minimal: Annotated[bool, typer.Option(help="Leave the bulk out of the answer.")] = False,
) -> None:
    """Call an operation of the API, and print the answer as JSON. The key comes from `CMBS_KEY`."""
    from cmbs.client import connect

    with failing_cleanly():
        if operation is None:
            print_operations()
            return
        if list_:
            print_arguments(operation)
            return
        built = _build(operation, {**_read_file(input_), **_read_arguments(arguments or [])})
        if fields:
            built = built.with_query(fields=fields)
        with connect(server, actor=actor) as client:
            asking = client.with_options(if_match=if_match, idempotency_key=idempotency_key, minimal=minimal)
            try:
                # As it was sent, to the last byte.
                answer = asking.send(replace(built, answer=msgspec.Raw))
            except BeliefServerError as exc:
                error = {"code": exc.code, "message": exc.message, "details": exc.details or None}
                sys.stdout.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
                raise typer.Exit(_FAILED) from exc
    sys.stdout.write(bytes(answer).decode() + "\n")


def _build(operation_id: str, arguments: dict[str, Any]) -> Call[Any]:
    from cmbs.api.call import build_call, find_operation

    step = "`cmbs api --list` lists the operations"
    try:
        operation = find_operation(operation_id)
        if operation.is_followed:
            raise InvalidRequest(f"`{operation_id}` goes on without end: follow it with `cmbs follow`")
        step = f"`cmbs api {operation_id} --help` explains its arguments"
        return build_call(operation, arguments)
    except InvalidRequest as exc:
        exc.details.setdefault("next", step)
        raise


def _read_file(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    content: dict[str, Any] = _read_json(read_input(file, _MAX_BYTES).decode(errors="replace"), dict)
    return content


def _read_arguments(arguments: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in map(_read_argument, arguments):
        if name in found:
            raise InvalidRequest(f"`{name}` is there twice: write several values as a list, `{name}:=[…]`")
        found[name] = value
    return found


def _read_argument(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InvalidRequest(f"`{text[:64]}` is no argument: write NAME=TEXT, NAME:=JSON or NAME=@FILE")
    if name.endswith(":"):
        return name[:-1], _read_json(value, object)
    return name, _read_text(value[1:]) if value.startswith("@") else value


def _read_text(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except UnicodeDecodeError as exc:
        raise InvalidRequest(f"`{file}` is no text in UTF-8") from exc


def _read_json(text: str, kind: type) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequest(f"`{text[:64]}` is not JSON: {exc}") from exc
    if not isinstance(value, kind):
        raise InvalidRequest("arguments must be a JSON object")
    return value
