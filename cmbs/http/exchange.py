"""One HTTP exchange as the routes see it, whatever interface the web server speaks."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from cmbs.errors import InvalidRequest
from cmbs.http.errors import TransportCode, TransportError
from cmbs.identity.gate import Lookup, refuse_keys_in
from cmbs.ledger import StoredEntry, canonical
from cmbs.messages import Actor

T = TypeVar("T")

# One entity tag, weak or not; the quotes are often forgotten, and an audit head has none.
_ENTITY_TAG = re.compile(r'(?:W/)?(?:"([^"]*)"|([^",\s]+))')


class Response(NamedTuple):
    """What goes back."""

    status: int
    body: bytes
    headers: list[tuple[str, str]] = []  # noqa: RUF012 - never changed in place


class Request:
    """What came in.

    `message` is the body as the type that the table of operations names, `document` the same as plain JSON values, for
    the parts that are opaque to us. Without a body they are None and empty.
    """

    __slots__ = ("actor", "body", "document", "header", "message", "params", "query_string")

    def __init__(
        self,
        params: dict[str, str],
        query_string: bytes,
        header: Lookup,
        actor: Actor,
        body: bytes = b"",
        kind: type | None = None,
    ) -> None:
        self.params = params
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
        self.document: Any = {}
        self.message: Any = None if kind is None else self._decode(kind)

    @property
    def authenticated(self) -> Actor | None:
        """Who asks, where that is known and not merely said."""
        return self.actor if self.actor.authenticated else None

    def _decode(self, kind: type[T]) -> T:
        """The body as a message; an absent body is an empty object."""
        if self.body:
            media_type = (self.header("content-type") or "").partition(";")[0].strip().lower()
            if media_type != "application/json":
                raise TransportError(
                    TransportCode.UNSUPPORTED_MEDIA_TYPE,
                    f"send the body as `application/json`, not `{media_type or 'nothing'}`",
                    {"content_type": media_type or None},
                )
            # Strictly first: what is wrong with it as JSON comes before what is wrong with it as a message.
            self.document = canonical.decode(self.body)
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise InvalidRequest(str(exc)[:1].lower() + str(exc)[1:]) from exc

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
        said = self.header("prefer")
        for preference in said.lower().split(",") if said else ():
            name, _, value = preference.partition(";")[0].partition("=")
            if name.strip() == "return":
                return value.strip().strip('"') == "minimal"
        return False

    @property
    def if_match(self) -> str | None:
        """The audit head that the caller saw; None where it does not matter."""
        value = self.header("if-match")
        if value is None or value.strip() == "*":
            return None
        tag = _ENTITY_TAG.fullmatch(value.strip())
        if tag is None:
            raise InvalidRequest("`If-Match` must name one audit head", {"header": "if-match"})
        return tag[1] if tag[2] is None else tag[2]

    @property
    def idempotency_key(self) -> str | None:
        """The key of the request. An empty one is refused: all callers who send one would share it."""
        value = self.header("idempotency-key")
        if value is not None and not value.strip():
            raise InvalidRequest("`Idempotency-Key` must not be empty", {"header": "idempotency-key"})
        if value is not None and self.actor.authenticated:
            refuse_keys_in("`Idempotency-Key`", value.encode())
        return value


def whole_number(name: str, text: str) -> int:
    """A query parameter that is a whole number."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(canonical.MAX_SAFE_INTEGER))):
        raise InvalidRequest(f"`{name}` must be a whole number, got `{text[:64]}`", {"parameter": name})
    return int(text)


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
        raise InvalidRequest("`cursor` is not one that this server gave out", {"parameter": "cursor"}) from exc
    if len(found) != parts:
        raise InvalidRequest("`cursor` is not one that this server gave out", {"parameter": "cursor"})
    return found
