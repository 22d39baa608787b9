"""What was declared of hypotheses: for some of them, a few named values. Part of the declaration, never interpreted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Attributes(Mapping[str, bytes]):
    """The hypotheses that have attributes, each with an object of them as canonical JSON. Immutable.

    `n_bytes` is how long these are in all.
    """

    __slots__ = ("_by_id", "n_bytes")

    def __init__(self, by_id: Mapping[str, bytes]) -> None:
        self._by_id = dict(by_id)
        self.n_bytes = sum(map(len, self._by_id.values()))

    def __getitem__(self, hypothesis_id: str) -> bytes:
        return self._by_id[hypothesis_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, hypothesis_id: str) -> dict[str, Any]:
        """The attributes of one hypothesis as plain data of the caller's own; empty where it has none."""
        found: dict[str, Any] = msgspec.json.decode(self._by_id.get(hypothesis_id, b"{}"))
        return found

    def choose(self, hypothesis_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The attributes of those of these hypotheses that have any."""
        return {each: self.of(each) for each in hypothesis_ids if each in self._by_id}


NO_ATTRIBUTES = Attributes({})


def read_attributes(recorded: msgspec.Raw | msgspec.UnsetType) -> Attributes:
    """The attributes that a declaration records; ValueError where they are not an object."""
    if isinstance(recorded, msgspec.UnsetType):
        return NO_ATTRIBUTES
    return Attributes({name: bytes(raw) for name, raw in _DECODER.decode(recorded).items()})
