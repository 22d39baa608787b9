"""One HTTP exchange as the routes see it, whatever interface the web server speaks."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from cmbs.errors import InvalidRequest
from cmbs.http.errors import TransportCode, TransportError
from cmbs.http.faults import explain_body, explain_query
from cmbs.http.operation import Operation
from cmbs.http.shaping import FIELDS, Selection, includes, parse_fields
from cmbs.identity.gate import Lookup, refuse_keys_in
from cmbs.identity.kernel.scopes import Grants, grants_of
from cmbs.ledger import StoredEntry, canonical
from cmbs.messages import Actor

T = TypeVar("T")

# One entity tag, weak or not; the quotes are often forgotten, and an audit head has none.
# Characters of what was sent that an error shows.
_SHOWN = 64
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


class TextFile(NamedTuple):
    """A body that is a file in one of several languages: which, and the text as it was sent."""

    media_type: str
    text: str


# The languages of files. JSON is sent as a document of its own, never as a text inside of another.
FILE_MEDIA_TYPES = ("application/yaml", "application/json")


class Request:
    """What came in.

    `message` is the body as the type that the table of operations names, `document` the same as plain JSON values, for
    the parts that are opaque to us. Without a body they are None and empty.
    """

    __slots__ = (
        "_repeatable",
        "actor",
        "admit",
        "body",
        "document",
        "gone",
        "header",
        "message",
        "params",
        "query_string",
        "selection",
    )

    def __init__(
        self,
        operation: Operation,
        params: dict[str, str],
        query_string: bytes,
        header: Lookup,
        actor: Actor,
        body: bytes,
        gone: Callable[[], Awaitable[None]],
        admit: Callable[[], Awaitable[Actor]],
    ) -> None:
        self.params = params
        self._repeatable = operation.repeatable
        # Ends when the caller goes away.
        self.gone = gone
        # Asks again whether the caller may, and who it is.
        self.admit = admit
        self.query_string = query_string
        self.header = header
        # From the credential, never from the body.
        self.actor = actor
        self.body = body
        if actor.authenticated:
            # A key where it does not belong is refused before it is recorded.
            refuse_keys_in("the body", body)
            refuse_keys_in("the query", query_string)
            for value in params.values():
                refuse_keys_in("the path", value.encode())
        # The fields of the answer that the caller wants; empty for all. Refused before anything is done.
        self.selection = self._read_fields(operation)
        self.document: Any = {}
        if operation.body is TextFile:
            self.message: Any = self._read_file()
        else:
            self.message = None if operation.body is None else self._decode(operation.body)

    @property
    def authenticated(self) -> Actor | None:
        """Who asks, where that is known and not merely said."""
        return self.actor if self.actor.authenticated else None

    @property
    def grants(self) -> Grants:
        """What the caller may do, by its key."""
        return grants_of(self.actor)

    def _refuse_other_media_types(self, *known: str) -> str:
        """The media type of the body, which is one of these."""
        media_type = (self.header("content-type") or "").partition(";")[0].strip().lower()
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

    def _read_file(self) -> TextFile:
        media_type = self._refuse_other_media_types(*FILE_MEDIA_TYPES)
        try:
            return TextFile(media_type, self.body.decode())
        except UnicodeDecodeError as exc:
            raise InvalidRequest("the file is not valid UTF-8", {"accepted": "text in UTF-8"}) from exc

    def _decode(self, kind: type[T]) -> T:
        """The body as a message; an absent body is an empty object."""
        if self.body:
            self._refuse_other_media_types("application/json")
            # Strictly first: what is wrong with it as JSON comes before what is wrong with it as a message.
            self.document = canonical.decode(self.body)
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except UnicodeDecodeError as exc:  # pragma: no cover - the strict decoder has refused such a body before
            raise InvalidRequest("the body is not valid UTF-8") from exc
        except msgspec.DecodeError as exc:
            raise explain_body(kind, self.document, len(self.body), exc) from exc

    def query(self, *allowed: str) -> dict[str, str]:
        """The query parameters, without the choice of fields; unknown ones and repeated single ones are refused."""
        if not self.query_string:
            return {}
        # Where fields can be chosen they were, and where not, the parameter is an unknown one.
        known = (*allowed, FIELDS) if self.selection else allowed
        found = self._parse_query(known)
        found.pop(FIELDS, None)
        return found

    def query_list(self, name: str) -> list[str]:
        """Every value of a query parameter that may be sent more than once, in their order."""
        return [value for each, value in self._split_query() if each == name]

    def _read_fields(self, operation: Operation) -> Selection:
        if FIELDS.encode() not in self.query_string or not operation.takes_fields:
            return {}
        text = self._parse_query(None).get(FIELDS)
        return {} if text is None else parse_fields(text, operation.response)

    def _parse_query(self, allowed: tuple[str, ...] | None) -> dict[str, str]:
        """The parameters by name; where none are listed, any is allowed."""
        pairs = self._split_query()
        unknown = [] if allowed is None else [name for name, _ in pairs if name not in allowed]
        if allowed is not None and unknown:
            raise explain_query(list(dict.fromkeys(unknown)), allowed)
        found: dict[str, str] = {}
        for name, value in pairs:
            if name in found and name not in self._repeatable:
                raise InvalidRequest(
                    f"query parameter `{name}` was sent twice",
                    {"parameter": name, "found": [found[name][:_SHOWN], value[:_SHOWN]], "accepted": "one value"},
                )
            found[name] = value
        return found

    def _split_query(self) -> list[tuple[str, str]]:
        try:
            return parse_qsl(self.query_string.decode(), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError as exc:
            raise InvalidRequest("the query is not valid UTF-8", {"field": "query", "accepted": "UTF-8"}) from exc

    @property
    def wants_minimal(self) -> bool:
        """Whether the caller can do without the bulk of the answer; of contradicting preferences, the first counts."""
        said = self.header("prefer")
        for preference in said.lower().split(",") if said else ():
            name, _, value = preference.partition(";")[0].partition("=")
            if name.strip() == "return":
                return value.strip().strip('"') == "minimal"
        return False

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
