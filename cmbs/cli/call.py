"""`cmbs call`: any operation of the API, through the client."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import failing_cleanly, read_input
from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.refusals import find_nearest

if TYPE_CHECKING:
    from cmbs.client.calls import Call

_MAX_BYTES = 67_108_864
_FAILED = 1
# Names that are words of Python, or hide one.
_NAMES = {"from": "from_", "set": "set_"}


def call(
    operation: Annotated[
        str, typer.Argument(help="What to call, by the name in the OpenAPI document.", metavar="OPERATION")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="NAME=TEXT, NAME:=JSON, or NAME=@FILE for the text of a file.", metavar="[ARGUMENT]…"),
    ] = None,
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
        built: Call[Any] = _build(operation, {**_read_file(input_), **_read_arguments(arguments or [])})
        built = built.with_headers(
            if_match=None if if_match is None else f'"{if_match}"',
            idempotency_key=idempotency_key,
            prefer="return=minimal" if minimal else None,
        )
        if fields:
            built = built.with_query(fields=fields)
        with connect(server, actor=actor) as client:
            try:
                # As it was sent, to the last byte.
                answer = client.send(replace(built, answer=msgspec.Raw))
            except BeliefServerError as exc:
                error = {"code": exc.code, "message": exc.message, "details": exc.details or None}
                sys.stdout.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
                raise typer.Exit(_FAILED) from exc
    sys.stdout.write(bytes(answer).decode() + "\n")


def _build(operation: str, arguments: dict[str, Any]) -> Call[Any]:
    from cmbs.client.calls import PageCall
    from cmbs.client.clients import Operations
    from cmbs.client.operations import listing
    from cmbs.client.operations import operation as described

    found = getattr(Operations, operation, None)
    if not isinstance(found, described | listing):
        known = [name for name in dir(Operations) if isinstance(getattr(Operations, name), described | listing)]
        nearest = find_nearest(operation, known)
        hint = f"; did you mean {', '.join(f'`{each}`' for each in nearest)}?" if nearest else ""
        raise InvalidRequest(f"there is no operation `{operation}`{hint}", {"accepted": nearest or known})
    try:
        built = found.build(**{_NAMES.get(name, name): value for name, value in arguments.items()})
    except TypeError as exc:
        text = str(exc).partition(") ")[2] or str(exc)
        raise InvalidRequest(f"`{operation}` {text}", {"field": "arguments"}) from exc
    return built.call if isinstance(built, PageCall) else built


def _read_file(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    content: dict[str, Any] = _read_json(read_input(file, _MAX_BYTES).decode(errors="replace"), dict)
    return content


def _read_arguments(arguments: list[str]) -> dict[str, Any]:
    return dict(map(_read_argument, arguments))


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
