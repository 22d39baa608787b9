"""The headers of a request, by name."""

from __future__ import annotations

from collections.abc import Iterable

from cmbs.errors import InvalidRequest
from cmbs.identity.gate import Lookup


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
        # Of the headers that are read here, only `Prefer` is a list, which may be spread over several lines.
        if name != "prefer" and any(value != sent[0] for value in sent):
            raise InvalidRequest(f"header `{name}` was sent twice", {"header": name})
        try:
            return b",".join(sent).decode() if name == "prefer" else sent[0].decode()
        except UnicodeDecodeError as exc:
            raise InvalidRequest(f"header `{name}` is not valid UTF-8", {"header": name}) from exc

    return look_up
