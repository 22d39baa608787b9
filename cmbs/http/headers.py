"""The headers of a request, looked up the same way whatever server read them."""

from __future__ import annotations

from cmbs.errors import InvalidRequest
from cmbs.http.exchange import sent_twice

_AMBIGUOUS = b"\r\n"  # no header can hold this


class Headers:
    """The headers of a request, from pairs of a lower-case name and a value."""

    __slots__ = ("by_name", "pairs")

    def __init__(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self.pairs = pairs
        self.by_name = dict(pairs)
        if len(self.by_name) != len(pairs):
            self._mark_repeated()

    def _mark_repeated(self) -> None:
        for name, value in self.pairs:
            if self.by_name[name] != value:
                # A list may be spread over several headers; of ours, only the preferences are one.
                preferences = b",".join(said for key, said in self.pairs if key == b"prefer")
                self.by_name[name] = preferences if name == b"prefer" else _AMBIGUOUS

    def value(self, name: str) -> str | None:
        """A header's value; InvalidRequest where it cannot be told."""
        value = self.by_name.get(name.encode())
        if value is None:
            return None
        if value is _AMBIGUOUS:
            raise sent_twice(name)
        try:
            return value.decode()
        except UnicodeDecodeError as exc:
            # Taken for absent, or for other text, a key or a condition would not be kept.
            raise InvalidRequest(f"header `{name}` is not valid UTF-8", {"header": name}) from exc
