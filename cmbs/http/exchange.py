"""One HTTP exchange as the routes see it, whatever interface the web server speaks."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UnsetType

from cmbs.api.errors import TransportCode, TransportError
from cmbs.api.operation import FIELDS, FILE_MEDIA_TYPES, Operation, TextFile
from cmbs.errors import InvalidRequest
from cmbs.http.faults import explain_body, explain_query
from cmbs.http.shaping import Selection, includes, parse_fields
from cmbs.identity.gate import Lookup, refuse_keys_in
from cmbs.identity.kernel.scopes import Grants, grants_of
from cmbs.ledger import StoredEntry, canonical
from cmbs.messages import Actor

T = TypeVar("T")
AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)

# The bytes of an answer, which is a value of its type and no text that was written elsewhere.
encode_answer: Callable[[msgspec.Struct], bytes] = msgspec.json.Encoder().encode

# Characters of what was sent that an error shows.
_SHOWN = 64
# One entity tag, weak or not; the quotes are often forgotten, and an audit head has none.
_ENTITY_TAG = re.compile(r'(?:W/)?(?:"([^"]*)"|([^",\s]+))')
NOT_MODIFIED = 304
TEXT = "text/plain; charset=utf-8"
# What an answer says from which the bulk was left out, because the caller can do without.
MINIMAL = ("preference-applied", "return=minimal")


class Response(NamedTuple):
    """What goes back."""

    status: int
    body: bytes
    headers: list[tuple[str, str]] = []  # noqa: RUF012 - never changed in place


class Chunks(Protocol):
    """A body that goes on: what is sent, one piece after the other."""

    def chunks(self, leaving: asyncio.Future[None]) -> AsyncGenerator[bytes]:
        """The pieces; no more once the caller has left."""
        ...

    def close(self) -> None:
        """Let go of what it holds, whether or not anything was sent."""
        ...


class EventStream(NamedTuple):
    """What goes back where the answer goes on."""

    body: Chunks
    headers: list[tuple[str, str]]


class Request:
    """What came in, whatever carried it here.

    `message` is the body as the type that the table of operations names: None where the operation has none. `query` are
    the parameters that were sent, by name, each as the type that the table gives it.
    """

    __slots__ = ("actor", "admit", "gone", "header", "message", "operation", "params", "query", "selection", "size")

    def __init__(
        self,
        operation: Operation,
        params: dict[str, str],
        query: Sequence[tuple[str, str]],
        header: Lookup,
        actor: Actor,
        body: bytes,
        gone: Callable[[], Awaitable[None]],
        admit: Callable[[], Awaitable[Actor]],
    ) -> None:
        self.operation = operation
        self.params = params
        # Of headers, or of what a caller in this process says in their place.
        self.header = header
        # From the credential, never from the body.
        self.actor = actor
        # Ends when the caller goes away.
        self.gone = gone
        # Asks again whether the caller may, and who it is.
        self.admit = admit
        self.size = len(body)
        if actor.authenticated:
            # A key where it does not belong is refused before it is recorded.
            refuse_keys_in("the body", body)
            for name, value in (*params.items(), *query):
                refuse_keys_in(f"`{name}`", value.encode())
        # The fields of the answer that the caller wants; empty for all. Refused before anything is done.
        self.selection: Selection = {}
        self.query: dict[str, Any] = {}
        if query:
            self.query = read_query(operation, query)
            if FIELDS in self.query:
                self.selection = parse_fields(self.query.pop(FIELDS), operation.response)
        elif operation.required:
            read_query(operation, query)
        self.message: Any = None if operation.body is None else read_body(operation.body, body, header)

    @property
    def authenticated(self) -> Actor | None:
        """Who asks, where that is known and not merely said."""
        return self.actor if self.actor.authenticated else None

    @property
    def grants(self) -> Grants:
        """What the caller may do, by its key."""
        return grants_of(self.actor)

    @property
    def wants_minimal(self) -> bool:
        """Whether the caller can do without the bulk of the answer; of contradicting preferences, the first counts."""
        said = self.header("prefer")
        for preference in said.lower().split(",") if said else ():
            name, _, value = preference.partition(";")[0].partition("=")
            if name.strip() == "return":
                return value.strip().strip('"') == "minimal"
        return False

    def after_of(self, parts: int) -> list[str] | None:
        """The parts of the cursor: where the page before ended; None for the first page."""
        cursor = self.query.get("cursor")
        return None if cursor is None else from_cursor(cursor, parts)

    @property
    def after(self) -> str | None:
        """The same, where the cursor has one part."""
        parts = self.after_of(1)
        return None if parts is None else parts[0]

    def wants(self, path: str) -> bool:
        """Whether a bulky part of the answer is wanted: by the choice of fields, or else by the preference."""
        return includes(self.selection, path) if self.selection else not self.wants_minimal

    def has_seen(self, tag: str) -> bool:
        """Whether `If-None-Match` names this tag: the caller has what it asks for."""
        value = self.header("if-none-match")
        if value is None:
            return False
        return tag in (quoted or bare for quoted, bare in _ENTITY_TAG.findall(value))

    @property
    def if_match(self) -> str | None:
        """The audit head that the caller saw; None where it does not matter."""
        value = self.header("if-match")
        if value is None or value.strip() == "*":
            return None
        tag = _ENTITY_TAG.fullmatch(value.strip())
        if tag is None:
            raise InvalidRequest(
                "`If-Match` must name one audit head",
                {"header": "if-match", "found": value[:_SHOWN], "accepted": "the `ETag` of a read, or `*`"},
            )
        return tag[1] if tag[2] is None else tag[2]

    @property
    def idempotency_key(self) -> str | None:
        """The key of the request. An empty one is refused: all callers who send one would share it."""
        value = self.header("idempotency-key")
        if value is not None and not value.strip():
            raise InvalidRequest(
                "`Idempotency-Key` must not be empty",
                {"header": "idempotency-key", "found": value[:_SHOWN], "accepted": "a text that names this request"},
            )
        if value is not None and self.actor.authenticated:
            refuse_keys_in("`Idempotency-Key`", value.encode())
        return value


def read_body(kind: type[T], body: bytes, header: Lookup) -> T | TextFile:
    """A body as its type; an absent one is an empty object."""
    if kind is TextFile:
        media_type = _refuse_other_media_types(header, *FILE_MEDIA_TYPES)
        try:
            return TextFile(media_type, body.decode())
        except UnicodeDecodeError as exc:
            raise InvalidRequest("the file is not valid UTF-8", {"accepted": "text in UTF-8"}) from exc
    document: Any = {}
    if body:
        _refuse_other_media_types(header, "application/json")
        document = canonical.decode(body)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as exc:
        raise explain_body(kind, document, len(body), exc) from exc


def _refuse_other_media_types(header: Lookup, *known: str) -> str:
    """The media type of the body, which is one of these."""
    media_type = (header("content-type") or "").partition(";")[0].strip().lower()
    if media_type not in known:
        raise TransportError(
            TransportCode.UNSUPPORTED_MEDIA_TYPE,
            f"send the body as {' or '.join(f'`{each}`' for each in known)}, not `{media_type or 'nothing'}`",
            {
                "content_type": media_type or None,
                "field": "content-type",
                "found": media_type or "nothing",
                "accepted": list(known),
                "next": f"send it with `Content-Type: {known[0]}`",
            },
        )
    return media_type


def split_query(query_string: bytes) -> list[tuple[str, str]]:
    """The parameters of a query, in their order."""
    if not query_string:
        return []
    try:
        return parse_qsl(query_string.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as exc:
        raise InvalidRequest("the query is not valid UTF-8", {"field": "query", "accepted": "UTF-8"}) from exc


def read_query(operation: Operation, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The parameters by name, each as the type that the table gives it; InvalidRequest for any that it refuses."""
    known = operation.parameters
    unknown = [name for name, _ in pairs if name not in known]
    if unknown:
        raise explain_query(list(dict.fromkeys(unknown)), tuple(known))
    found: dict[str, Any] = {}
    for name, text in pairs:
        schema = known[name].schema
        if schema["type"] == "array":
            found.setdefault(name, []).append(_read_value(name, text, schema["items"]))
            continue
        if name in found:
            raise InvalidRequest(
                f"query parameter `{name}` was sent twice",
                {"parameter": name, "found": [str(found[name])[:_SHOWN], text[:_SHOWN]], "accepted": "one value"},
            )
        found[name] = _read_value(name, text, schema)
    for name in operation.required:
        if name not in found:
            what = known[name].description
            raise InvalidRequest(
                f"send `{name}`: {what[:1].lower()}{what[1:].removesuffix('.')}",
                {"parameter": name, "accepted": known[name].schema, "next": f"add `{name}` to the query"},
            )
    return found


def _read_value(name: str, text: str, schema: dict[str, Any]) -> str | int:
    """One value of a parameter."""
    value: str | int = whole_number(name, text) if schema.get("type") == "integer" else text
    if "enum" in schema and value not in schema["enum"]:
        words = [str(each) for each in schema["enum"]]
        raise InvalidRequest(
            f"`{name}` must be {'one of ' if len(words) > 1 else ''}{', '.join(words)}, not `{text[:_SHOWN]}`",
            {"parameter": name, "field": name, "found": text[:_SHOWN], "accepted": words},
        )
    if schema.get("minLength") and not text:
        raise InvalidRequest(
            f"`{name}` must not be empty", {"parameter": name, "found": text, "accepted": {"minLength": 1}}
        )
    return value


def value_of(field: T | UnsetType) -> T | None:
    """A field of a body that may be left out; None where it was."""
    return None if isinstance(field, UnsetType) else field


def prefers(accept: str | None, wanted: str, other: str) -> bool:
    """Whether `Accept` names a media type before another one, or alone."""
    for item in (accept or "").lower().split(","):
        media_type = item.partition(";")[0].strip()
        if media_type in (wanted, other):
            return media_type == wanted
    return False


def not_modified(tag: str, *varies: str) -> Response:
    """The answer to a caller who has what it asks for."""
    headers = [("etag", tag)]
    for name in varies:
        add_vary(headers, name)
    return Response(NOT_MODIFIED, b"", headers)


def add_vary(headers: list[tuple[str, str]], name: str) -> None:
    """Say that the answer depends on a header of the request, beside those that are said already."""
    for number, (header, value) in enumerate(headers):
        if header == "vary":
            if name not in value.split(", "):
                headers[number] = (header, f"{value}, {name}")
            return
    headers.append(("vary", name))


def whole_number(name: str, text: str) -> int:
    """A query parameter that is a whole number."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(canonical.MAX_SAFE_INTEGER))):
        raise InvalidRequest(
            f"`{name}` must be a whole number, got `{text[:_SHOWN]}`",
            {"parameter": name, "found": text[:_SHOWN], "accepted": {"type": "integer", "minimum": 0}},
        )
    return int(text)


def read_moment(at: str | None) -> int | str | None:
    """A query parameter that names an event: a seq, or else an id."""
    return int(at) if at is not None and at.isascii() and at.isdigit() and len(at) < len("1" * 17) else at


def build_answer(kind: type[AnswerT], *sources: object, **fields: Any) -> AnswerT:
    """Build an answer: each field is taken from `fields`, or else from the first source that has it."""
    for name in kind.__struct_fields__:
        if name not in fields:
            fields[name] = next(getattr(source, name) for source in sources if hasattr(source, name))
    return kind(**fields)


def encode_entry(stored: StoredEntry) -> bytes:
    """An entry as a reader gets it: the stored bytes as they are, and their hash."""
    return b'%b,"event_hash":"%b"}' % (stored.raw[:-1], stored.event_hash.hex().encode())


def cursor_of(*parts: str) -> str:
    """Where a page ended, for the next one to begin. Opaque to callers."""
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def from_cursor(cursor: str, parts: int) -> list[str]:
    """The inverse of `cursor_of`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=list[str])
    except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError) as exc:
        raise _strange_cursor(cursor) from exc
    if len(found) != parts:
        raise _strange_cursor(cursor)
    return found


def _strange_cursor(cursor: str) -> InvalidRequest:
    return InvalidRequest(
        "`cursor` is not one that this server gave out",
        {
            "parameter": "cursor",
            "found": cursor[:_SHOWN],
            "accepted": "the `next_cursor` of the page before",
            "next": "begin again without a cursor",
        },
    )
