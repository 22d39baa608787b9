"""A record of things that happened, in order, each under its own key: immutable to its holders, cheap to extend."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Chronicle(Generic[K, V]):
    """An append-only mapping of which older versions stay valid.

    Versions of one line share their storage: a version sees only its first `len` items, so extending the newest costs
    O(1). Extending an older one (after a failed write, or in a fork) copies what it sees and starts a line of its own.
    One thread at a time may extend the versions of a line; any number may read them meanwhile.
    Keys and values are two lists and not one of pairs: a long record is then far fewer objects to make and to visit.
    """

    __slots__ = ("_index", "_keys", "_length", "_values")

    def __init__(self) -> None:
        self._keys: list[K] = []
        self._values: list[V] = []
        self._index: dict[K, int] = {}
        self._length = 0

    @classmethod
    def of(cls, keys: list[K], values: list[V]) -> Chronicle[K, V]:
        """A record of these keys, which must differ, and what was recorded under each; the lists are taken over."""
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values are no record")
        whole: Chronicle[K, V] = cls()
        whole._keys, whole._values, whole._length = keys, values, len(keys)
        whole._index = dict(zip(keys, range(len(keys)), strict=True))
        if len(whole._index) != len(keys):
            raise ValueError("two items have the same key")
        return whole

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
        keys, values, index = self._keys, self._values, self._index
        if len(keys) != self._length:
            keys, values = self.columns()
            index = dict(zip(keys, range(self._length), strict=True))
        if index.setdefault(key, self._length) != self._length:
            raise KeyError(key)
        keys.append(key)
        values.append(value)
        longer: Chronicle[K, V] = Chronicle.__new__(Chronicle)
        longer._keys, longer._values, longer._index, longer._length = keys, values, index, self._length + 1
        return longer
