"""The headers of a request, looked up the same way whatever server read them."""

from __future__ import annotations

from functools import partial

from cmbs.errors import InvalidRequest
from cmbs.http.exchange import sent_twice
from cmbs.identity.gate import Lookup

_AMBIGUOUS = b"\r\n"  # no header can hold this


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

    def plain(self) -> Headers:
        """The same, for headers of ASCII that do not repeat: nothing is asked of their values any more."""
        same = Headers(self.pairs)
        same.value = {name.decode(): value.decode() for name, value in self.pairs}.get
        return same


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
