"""A record of things that happened, in order, each under its own key: immutable to its holders, cheap to extend."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Chronicle(msgspec.Struct, Generic[K, V], frozen=True, eq=False):
    """An append-only mapping of which older versions stay valid.

    Versions of one line share their storage: a version sees only its first `len` items, so extending the newest costs
    O(1). Extending an older one (after a failed write, or in a fork) copies what it sees and starts a line of its own.
    One thread at a time may extend the versions of a line; any number may read them meanwhile.
    Keys and values are two lists and not one of pairs: a long record is then far fewer objects to make and to visit.
    """

    _keys: list[K] = msgspec.field(default_factory=list)
    _values: list[V] = msgspec.field(default_factory=list)
    _index: dict[K, int] = msgspec.field(default_factory=dict)
    _length: int = 0

    @classmethod
    def of(cls, keys: list[K], values: list[V]) -> Chronicle[K, V]:
        """A record of these keys, which must differ, and what was recorded under each; the lists are taken over."""
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values are no record")
        index = dict(zip(keys, range(len(keys)), strict=True))
        if len(index) != len(keys):
            raise ValueError("two items have the same key")
        return cls(keys, values, index, len(keys))

    def columns(self) -> tuple[list[K], list[V]]:
        """The keys and the values, as `of` takes them."""
        return self._keys[: self._length], self._values[: self._length]

    def __len__(self) -> int:
        return self._length

    def position(self, key: K) -> int | None:
        """Where `key` was recorded; None where it was not."""
        position = self._index.get(key)
        return None if position is None or position >= self._length else position

    def get(self, key: K) -> V | None:
        """What was recorded under `key`; None where nothing was."""
        position = self._index.get(key)
        return None if position is None or position >= self._length else self._values[position]

    def at(self, position: int) -> tuple[K, V]:
        """The item recorded at this position; IndexError beyond the end."""
        if not 0 <= position < self._length:
            raise IndexError(position)
        return self._keys[position], self._values[position]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        keys, values = self._keys, self._values
        for position in range(self._length):
            yield keys[position], values[position]

    def newest_first(self) -> Iterator[tuple[K, V]]:
        """The items, last one first."""
        keys, values = self._keys, self._values
        for position in range(self._length - 1, -1, -1):
            yield keys[position], values[position]

    def extended(self, key: K, value: V) -> Chronicle[K, V]:
        """This record and one more item; `key` must be new."""
        length, keys = self._length, self._keys
        if len(keys) != length:
            return Chronicle.of(*self.columns()).extended(key, value)
        if self._index.setdefault(key, length) != length:
            raise KeyError(key)
        keys.append(key)
        self._values.append(value)
        return Chronicle(keys, self._values, self._index, length + 1)
