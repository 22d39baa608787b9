"""The headers of a request, by name."""

from __future__ import annotations

from collections.abc import Iterable

from cmbs.errors import InvalidRequest
from cmbs.identity.gate import Lookup

# Of the headers that are read here, those that are lists, which may be spread over several lines.
_LISTS = ("prefer", "if-none-match")
# Of an answer that a request got before: nothing was done again.
REPLAYED = ("idempotent-replayed", "true")
HEAD = "cmbs-head"


def say_head(seq: int, event_id: str) -> tuple[str, str]:
    """The header that names the head of the stream that an answer was read from, so that a caller can order answers."""
    return HEAD, f"{seq}:{event_id}"


def header_lookup(pairs: Iterable[tuple[bytes, bytes]]) -> Lookup:
    """A function from a lower-case name to the header's value, or None.

    InvalidRequest where a header that is asked for came twice with two values, or is not UTF-8: taken for absent, or
    for other text, a key or a condition would be ignored.
    """
    values: dict[bytes, list[bytes]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)

    def look_up(name: str) -> str | None:
        sent = values.get(name.encode())
        if sent is None:
            return None
        if name not in _LISTS and any(value != sent[0] for value in sent):
            raise InvalidRequest(
                f"header `{name}` was sent twice",
                {"header": name, "found": f"{len(sent)} values", "accepted": "one value"},
            )
        try:
            return b",".join(sent).decode() if name in _LISTS else sent[0].decode()
        except UnicodeDecodeError as exc:
            raise InvalidRequest(f"header `{name}` is not valid UTF-8", {"header": name, "accepted": "UTF-8"}) from exc

    return look_up
