"""The headers of a request, looked up the same way whatever server read them."""

from __future__ import annotations

from functools import partial

from cmbs.errors import InvalidRequest
from cmbs.http.exchange import sent_twice
from cmbs.identity.gate import Lookup
from cmbs.identity.tokens import holds_key

_AMBIGUOUS = b"\r\n"  # no header can hold this

# What a caller says with every request in the same words, and what is no secret: heads of nothing else are remembered.
_STEADY = frozenset(
    b"accept accept-encoding accept-language connection content-length content-type host prefer user-agent x-cmbs-actor"
    b"".split()
)
_REMEMBERED = 1024
_REMEMBERED_BYTES = 1024


class Headers:
    """The headers of a request, from pairs of a lower-case name and a value."""

    __slots__ = ("by_name", "pairs", "value")

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.pairs = pairs
        self.by_name = dict(pairs)
        if len(self.by_name) != len(pairs):
            self._mark_repeated()
        # A header's value, by its name; InvalidRequest where it cannot be told.
        self.value: Lookup = partial(_told, self.by_name)

    def _mark_repeated(self) -> None:
        for name, value in self.pairs:
            if self.by_name[name] != value:
                # A list may be spread over several headers; of ours, only the preferences are one.
                preferences = b",".join(said for key, said in self.pairs if key == b"prefer")
                self.by_name[name] = preferences if name == b"prefer" else _AMBIGUOUS

    @property
    def is_steady(self) -> bool:
        """Whether the next request of the same caller may well have the very same headers."""
        return (
            _STEADY.issuperset(self.by_name)
            and len(self.by_name) == len(self.pairs)
            and all(value.isascii() and not holds_key(value) for value in self.by_name.values())
            and sum(len(name) + len(value) for name, value in self.pairs) <= _REMEMBERED_BYTES
        )


_remembered: dict[tuple[tuple[bytes, bytes], ...], Headers] = {}


def headers_of(sent: list[tuple[bytes, bytes]]) -> Headers:
    """The headers of a request, from pairs as they were sent. What a caller says again is not read again."""
    key = tuple(sent)
    headers = _remembered.get(key)
    if headers is None:
        headers = Headers([(name.lower(), value) for name, value in sent])
        if headers.is_steady:
            headers.value = {name.decode(): value.decode() for name, value in headers.pairs}.get
            if len(_remembered) >= _REMEMBERED:
                _remembered.clear()
            _remembered[key] = headers
    return headers


def _told(by_name: dict[bytes, bytes], name: str) -> str | None:
    value = by_name.get(name.encode())
    if value is None:
        return None
    if value is _AMBIGUOUS:
        raise sent_twice(name)
    try:
        return value.decode()
    except UnicodeDecodeError as exc:
        # Taken for absent, or for other text, a key or a condition would not be kept.
        raise InvalidRequest(f"header `{name}` is not valid UTF-8", {"header": name}) from exc
