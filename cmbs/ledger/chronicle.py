"""An append-only indexed log in memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Chronicle(msgspec.Struct, Generic[K, V], frozen=True, eq=False):
    """An append-only indexed log: items in order, each under a key of its own. `append` returns a new version.

    A version never changes, but versions are not independent in memory: those that come of one another share their
    lists, of which each sees its first `len` items. Appending to the newest version extends these lists, in O(1).
    Appending to an older one (after a failed write, or in a fork) first copies what that version sees.
    One thread at a time may append to the versions that share lists; any number may read them meanwhile.
    """

    _keys: list[K] = msgspec.field(default_factory=list)
    _values: list[V] = msgspec.field(default_factory=list)
    _index: dict[K, int] = msgspec.field(default_factory=dict)
    _length: int = 0

    @classmethod
    def of(cls, keys: list[K], values: list[V]) -> Chronicle[K, V]:
        """A log of these keys, which must differ, and the value of each; the lists are not copied."""
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

    def append(self, key: K, value: V) -> Chronicle[K, V]:
        """The log with one more item; KeyError where `key` is not new."""
        length, keys = self._length, self._keys
        if len(keys) != length:
            return Chronicle.of(*self.columns()).append(key, value)
        if self._index.setdefault(key, length) != length:
            raise KeyError(key)
        keys.append(key)
        self._values.append(value)
        return Chronicle(keys, self._values, self._index, length + 1)
