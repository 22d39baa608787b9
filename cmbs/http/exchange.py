"""One HTTP exchange over bare ASGI: only what the routes need of it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.http.statuses import TransportCode, TransportError
from cmbs.ledger import canonical

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
T = TypeVar("T")

_JSON = (b"content-type", b"application/json")
_NO_BODY: dict[str, Any] = {}
# One entity tag, weak or not; the quotes are often forgotten, and an audit head has none.
_ENTITY_TAG = re.compile(r'(?:W/)?(?:"([^"]*)"|([^",\s]+))')
_AMBIGUOUS = b"\r\n"  # no header can hold this


class Response(NamedTuple):
    """What goes back."""

    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]] = []  # noqa: RUF012 - never changed in place

    async def send(self, send: Send, *, with_body: bool = True) -> None:
        """Write it to the connection."""
        headers = [_JSON, (b"content-length", b"%d" % len(self.body)), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body if with_body else b""})


class Request:
    """What came in."""

    __slots__ = ("_headers", "body", "params", "query_string")

    def __init__(self, scope: Scope, params: dict[str, str], body: bytes) -> None:
        self.params = params
        self.body = body
        self.query_string: bytes = scope.get("query_string", b"")
        pairs: list[tuple[bytes, bytes]] = scope["headers"]
        self._headers = dict(pairs)
        if len(self._headers) != len(pairs):
            self._mark_repeated(pairs)

    def _mark_repeated(self, pairs: list[tuple[bytes, bytes]]) -> None:
        for name, value in pairs:
            if self._headers[name] != value:
                # A list may be spread over several headers; of ours, only the preferences are one.
                preferences = b",".join(said for key, said in pairs if key == b"prefer")
                self._headers[name] = preferences if name == b"prefer" else _AMBIGUOUS

    def header(self, name: bytes) -> str | None:
        """A header's value; a header sent twice with different values is refused, guessing would be worse."""
        value = self._headers.get(name)
        if value is None:
            return None
        if value is _AMBIGUOUS:
            raise InvalidRequest(f"header `{name.decode()}` was sent twice", {"header": name.decode()})
        return value.decode("latin-1")

    def decoded(self, kind: type[T]) -> T:
        """The body as a message; an absent body is an empty object."""
        if not self.body:
            return _converted(_NO_BODY, kind)
        media_type = self.header(b"content-type") or ""
        if media_type != "application/json":
            media_type = media_type.partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise TransportError(
                TransportCode.UNSUPPORTED_MEDIA_TYPE,
                f"send the body as `application/json`, not `{media_type or 'nothing'}`",
                {"content_type": media_type or None},
            )
        return decoded_body(self.body, kind)

    def query(self, *allowed: str) -> dict[str, str]:
        """The query parameters; unknown or repeated ones are refused."""
        if not self.query_string:
            return {}
        try:
            pairs = parse_qsl(self.query_string.decode(), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError as exc:
            raise InvalidRequest("the query is not valid UTF-8") from exc
        found: dict[str, str] = {}
        for name, value in pairs:
            if name not in allowed:
                raise InvalidRequest(f"unknown query parameter `{name}`", {"parameter": name, "allowed": list(allowed)})
            if name in found:
                raise InvalidRequest(f"query parameter `{name}` was sent twice", {"parameter": name})
            found[name] = value
        return found

    @property
    def wants_minimal(self) -> bool:
        """Whether the caller can do without the survivors; of contradicting preferences, the first counts."""
        said = self.header(b"prefer")
        for preference in said.lower().split(",") if said else ():
            name, _, value = preference.partition(";")[0].partition("=")
            if name.strip() == "return":
                return value.strip().strip('"') == "minimal"
        return False

    @property
    def if_match(self) -> str | None:
        """The audit head that the caller saw; None where it does not matter."""
        value = self.header(b"if-match")
        if value is None or value.strip() == "*":
            return None
        tag = _ENTITY_TAG.fullmatch(value.strip())
        if tag is None:
            raise InvalidRequest("`If-Match` must name one audit head", {"header": "if-match"})
        return tag[1] if tag[2] is None else tag[2]

    @property
    def idempotency_key(self) -> str | None:
        """The key of the request. An empty one is refused: whoever sends it would share it with everybody else."""
        value = self.header(b"idempotency-key")
        if value is not None and not value.strip():
            raise InvalidRequest("`Idempotency-Key` must not be empty", {"header": "idempotency-key"})
        return value


def decoded_body(body: bytes, kind: type[T]) -> T:
    """A body as a message. Its opaque parts stay text, which the door brings into canonical form."""
    try:
        message = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        canonical.decode(body)  # what is wrong with it as JSON comes first
        raise _invalid(exc) from exc
    if _keys_in(message) != canonical.count_key_tokens(body):
        canonical.decode(body)  # the slow, exact look: it finds a key that stands twice
    return message


def _keys_in(message: Any) -> int:
    """How many keys the text of a message has, given that none stands twice."""
    keys = 0
    for value in msgspec.structs.astuple(message):
        kind = type(value)
        if kind is str or kind is list:
            keys += 1
        elif kind is msgspec.Raw:
            text = bytes(value)
            keys += 1 + canonical.count_key_tokens(text) if text else 0
        elif value is not UNSET:
            keys += 1 + (_keys_in(value) if isinstance(value, msgspec.Struct) else 0)
    return keys


def _converted(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as exc:
        raise _invalid(exc) from exc


def _invalid(exc: Exception) -> InvalidRequest:
    return InvalidRequest(str(exc)[:1].lower() + str(exc)[1:])


def whole_number(name: str, text: str) -> int:
    """A query parameter that is a whole number."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(canonical.MAX_SAFE_INTEGER))):
        raise InvalidRequest(f"`{name}` must be a whole number, got `{text[:64]}`", {"parameter": name})
    return int(text)


def cursor_of(*parts: str) -> str:
    """Where a page ended, for the next one to begin. Opaque to callers."""
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def from_cursor(cursor: str, parts: int) -> list[str]:
    """The inverse of `cursor_of`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=list[str])
    except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError) as exc:
        raise InvalidRequest("`cursor` is not one that this server gave out", {"parameter": "cursor"}) from exc
    if len(found) != parts:
        raise InvalidRequest("`cursor` is not one that this server gave out", {"parameter": "cursor"})
    return found


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. LimitExceeded as soon as it is known to be too large."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise LimitExceeded("body_bytes", limit, int(value))
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _cut_off()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit:
            raise LimitExceeded("body_bytes", limit, len(body))
        return body
    chunks, size = [body], len(body)
    while message.get("more_body", False):
        if size > limit:
            raise LimitExceeded("body_bytes", limit, size)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _cut_off()
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
    if size > limit:
        raise LimitExceeded("body_bytes", limit, size)
    return b"".join(chunks)


def _cut_off() -> InvalidRequest:
    # Nobody may be there any more to hear it; but a caller whose chunks are broken is.
    return InvalidRequest("the body ended before it was complete")
