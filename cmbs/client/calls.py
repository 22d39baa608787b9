"""A request to a server as a value: what to send, and the type of what comes back. Pure; nothing is sent here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar, cast
from urllib.parse import quote

from cmbs.errors import InvalidRequest

T = TypeVar("T")
Item = TypeVar("Item")
Json: TypeAlias = "Mapping[str, Json] | Sequence[Json] | str | int | float | bool | None"
# What a reader names a moment of a stream by: a seq, or the id of an event.
Moment: TypeAlias = int | str

JSON_TYPE = "application/json"
_SPACE_PREFIX = "space:"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `path` is quoted; `answer` is the type that the body of the answer is decoded as."""

    method: str
    path: str
    answer: type[T]
    # A parameter with several values is sent once for each.
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    content: bytes | None = None
    media_type: str = JSON_TYPE
    # The stream that the answer is about, by whose head it can be told that a server went back.
    stream_id: str | None = None
    # Whether it is recorded, so that it takes `If-Match`.
    conditional: bool = False
    # Whether it needs an `Idempotency-Key` to be safe to send again; other writes have a key of their own in the body.
    keyed: bool = False
    # Seconds that the server may hold the answer back.
    wait: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_headers(self, **headers: str | None) -> Call[T]:
        """The call with these headers as well; an underscore stands for a hyphen, None leaves one out."""
        named = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        return replace(self, headers={**self.headers, **named})

    def with_query(self, **query: str | Sequence[str]) -> Call[T]:
        """The call with these parameters as well."""
        return replace(self, query={**self.query, **query})

    def picking(self, fields: Sequence[str]) -> Call[dict[str, Any]]:
        """The call for a part of the answer alone, which then is plain JSON."""
        query = {**self.query, "fields": ",".join(fields)}
        return cast("Call[dict[str, Any]]", replace(cast("Call[Any]", self), answer=dict[str, Any], query=query))


@dataclass(frozen=True, slots=True)
class PageCall(Generic[T, Item]):
    """The call for one page of a list, where its items are, and where the next page begins."""

    call: Call[T]
    items: Callable[[T], Sequence[Item]]
    next_cursor: Callable[[T], str | None]

    def turn(self, page: T) -> Call[T] | None:
        """The call for the page after this one; None after the last."""
        cursor = self.next_cursor(page)
        return None if cursor is None else self.call.with_query(cursor=cursor)


def path_of(template: str, *parts: str) -> str:
    """A path with these parts in place of `{}`; whatever is in them, they stay one part each."""
    return template.format(*(quote(part, safe="") for part in parts))


def omit_none(**values: Any) -> dict[str, Any]:
    """Those that are not None, under the names that the API has: a trailing underscore keeps off a Python word."""
    return {name.rstrip("_"): value for name, value in values.items() if value is not None}


def list_ids(field: str, ids: Iterable[str]) -> list[str]:
    """Ids as a list. A single text is refused: it would be taken for a list of its characters."""
    if isinstance(ids, str):
        raise InvalidRequest(f"`{field}` must be a list of ids, got the text `{ids[:64]}`", {"field": field})
    return list(ids)


def query_of(**values: Any) -> dict[str, str | Sequence[str]]:
    """The parameters of a query that were given."""
    return {name: _write_parameter(value) for name, value in omit_none(**values).items()}


def read(template: str, *parts: str, answer: type[T], **query: Any) -> Call[T]:
    """A GET. Its first part names the session or space that it is about."""
    wait = query.get("wait") or 0
    return Call(
        "GET",
        path_of(template, *parts),
        answer,
        query_of(**query),
        stream_id=_stream_of(template, parts),
        wait=float(wait),
    )


def write(
    template: str, *parts: str, answer: type[T], body: Mapping[str, Any], keyed: bool = True, recorded: bool = True
) -> Call[T]:
    """A POST. What is not `recorded` needs no key: it changes nothing."""
    stream_id = _stream_of(template, parts)
    return Call(
        "POST",
        path_of(template, *parts),
        answer,
        content=encode(body),
        stream_id=stream_id,
        conditional=recorded and stream_id is not None,
        keyed=keyed and recorded,
    )


def put_file(template: str, *parts: str, answer: type[T], text: str, media_type: str) -> Call[T]:
    """A PUT of a file as it was written, which is recorded."""
    return replace(
        post_file(template, *parts, answer=answer, text=text, media_type=media_type),
        method="PUT",
        conditional=True,
        keyed=True,
    )


def post_file(template: str, *parts: str, answer: type[T], text: str, media_type: str) -> Call[T]:
    """A POST of a file as it was written, to learn what would come of it."""
    stream_id = _stream_of(template, parts)
    path = path_of(template, *parts)
    return Call("POST", path, answer, content=text.encode(), media_type=media_type, stream_id=stream_id)


def encode(content: Any) -> bytes:
    """The bytes of a JSON text; InvalidRequest for what JSON has no words for, such as NaN."""
    try:
        return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidRequest(f"this cannot be sent as JSON: {exc}") from exc


def _stream_of(template: str, parts: tuple[str, ...]) -> str | None:
    if template.startswith("/v1/sessions/{}"):
        return parts[0]
    return f"{_SPACE_PREFIX}{parts[0]}" if template.startswith("/v1/spaces/{}") else None


def _write_parameter(value: Any) -> str | Sequence[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return [str(each) for each in value]
    return str(value)
