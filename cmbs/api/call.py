"""A request as a value: one operation of the table with what a caller gave for it. Nothing is sent here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec

from cmbs.api.operation import FIELDS, Operation, TextFile
from cmbs.api.operations import OPERATION_OF
from cmbs.errors import InvalidRequest
from cmbs.refusals import find_nearest

T = TypeVar("T")
Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"
# What a reader names a moment of a stream by: a seq, or the id of an event.
Moment: TypeAlias = int | str

JSON_TYPE = "application/json"
_SPACE_PREFIX = "space:"
# Parameters that are the seconds which the server may hold an answer back.
_WAITS = ("wait", "wait_seconds")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request. `answer` is the type that its answer is decoded as."""

    operation: Operation
    params: dict[str, str]
    answer: type[T]
    pairs: Sequence[tuple[str, str]] = ()
    content: bytes | None = None
    media_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def path(self) -> str:
        """The path of a request over HTTP, quoted."""
        return self.operation.path.format(**{name: quote(value, safe="") for name, value in self.params.items()})

    @cached_property
    def stream_id(self) -> str | None:
        """The stream that the answer is about, by whose head it shows whether a server went back."""
        if self.operation.on_session:
            return self.params["session_id"]
        return _SPACE_PREFIX + self.params["space_id"] if self.operation.on_space else None

    @cached_property
    def wait(self) -> float:
        """Seconds that the server may hold the answer back."""
        return float(next((text for name, text in self.pairs if name in _WAITS), 0))

    def with_headers(self, **headers: str | None) -> Call[T]:
        """The call with these headers as well; an underscore stands for a hyphen, None leaves one out."""
        named = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        return replace(self, headers={**self.headers, **named})

    def with_query(self, **query: Any) -> Call[T]:
        """The call with these parameters in the place of any that have their names."""
        kept = [(name, text) for name, text in self.pairs if name not in query]
        return replace(self, pairs=[*kept, *_write_pairs(query)])

    def picking(self, fields: Sequence[str]) -> Call[dict[str, Any]]:
        """The call for a part of the answer alone, which then is plain JSON."""
        picked: Any = replace(self, answer=dict[str, Any])  # type: ignore[arg-type]
        call: Call[dict[str, Any]] = picked.with_query(**{FIELDS: ",".join(fields)})
        return call


def find_operation(operation_id: str) -> Operation:
    """The operation of this name; InvalidRequest where there is none."""
    operation = OPERATION_OF.get(operation_id)
    if operation is None:
        nearest = find_nearest(operation_id, OPERATION_OF)
        hint = f"; did you mean {', '.join(f'`{each}`' for each in nearest)}?" if nearest else ""
        raise InvalidRequest(
            f"there is no operation `{operation_id}`{hint}", {"accepted": nearest or sorted(OPERATION_OF)}
        )
    return operation


def build_call(operation: Operation, arguments: Mapping[str, Any]) -> Call[Any]:
    """The call of an operation; InvalidRequest for arguments that it does not have.

    Those that are None are left out, but for those that the body must have. A name may end in an underscore, where it
    is a word of Python (`from_`).
    """
    needed = operation.required_fields.difference(operation.made_up)
    given = {name.rstrip("_"): value for name, value in arguments.items()}
    given = {name: value for name, value in given.items() if value is not None or name in needed}
    try:
        params = {name: str(given.pop(name)) for name in operation.path_names}
    except KeyError as exc:
        raise InvalidRequest(f"`{operation.operation_id}` needs `{exc.args[0]}`", {"field": exc.args[0]}) from exc
    pairs = _write_pairs({name: given.pop(name) for name in operation.parameters if name in given})
    if operation.body is TextFile:
        text, media_type = given.pop("text", ""), given.pop("media_type", "application/yaml")
        _refuse_rest(operation, given)
        return Call(operation, params, operation.answer, pairs, text.encode(), media_type)
    if operation.body is None:
        _refuse_rest(operation, given)
        return Call(operation, params, operation.answer, pairs)
    for name in operation.made_up:
        given.setdefault(name, str(uuid4()))
    return Call(operation, params, operation.answer, pairs, encode(given))


def encode(content: Any) -> bytes:
    """The bytes of a JSON text; InvalidRequest for what JSON has no words for, such as NaN."""
    try:
        return json.dumps(
            content, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_to_plain
        ).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidRequest(f"this cannot be sent as JSON: {exc}") from exc


def _to_plain(value: Any) -> Any:
    return list(value) if isinstance(value, Iterable) else msgspec.to_builtins(value)


def _write_pairs(query: Mapping[str, Any]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for name, value in query.items():
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, str) or not isinstance(value, Iterable):
            pairs.append((name, str(value)))
        else:
            pairs += [(name, str(each)) for each in value]
    return pairs


def _refuse_rest(operation: Operation, given: Mapping[str, Any]) -> None:
    if given:
        known = [*operation.path_names, *operation.parameters]
        raise InvalidRequest(
            f"`{operation.operation_id}` has no argument `{next(iter(given))}`", {"accepted": known, "found": [*given]}
        )
