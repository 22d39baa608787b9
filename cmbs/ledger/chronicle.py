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
    """

    __slots__ = ("_index", "_items", "_length")

    def __init__(self) -> None:
        self._items: list[tuple[K, V]] = []
        self._index: dict[K, int] = {}
        self._length = 0

    @classmethod
    def of(cls, items: list[tuple[K, V]]) -> Chronicle[K, V]:
        """A record of these items, whose keys must differ; the list is taken over."""
        whole: Chronicle[K, V] = cls()
        whole._items = items
        whole._index = {key: position for position, (key, _) in enumerate(items)}
        whole._length = len(items)
        if len(whole._index) != len(items):
            raise ValueError("two items have the same key")
        return whole

    def __len__(self) -> int:
        return self._length

    def position(self, key: K) -> int | None:
        """Where `key` was recorded; None where it was not."""
        position = self._index.get(key)
        return None if position is None or position >= self._length else position

    def get(self, key: K) -> V | None:
        """What was recorded under `key`; None where nothing was."""
        position = self._index.get(key)
        return None if position is None or position >= self._length else self._items[position][1]

    def at(self, position: int) -> tuple[K, V]:
        """The item recorded at this position; IndexError beyond the end."""
        if not 0 <= position < self._length:
            raise IndexError(position)
        return self._items[position]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        items = self._items
        for position in range(self._length):
            yield items[position]

    def newest_first(self) -> Iterator[tuple[K, V]]:
        """The items, last one first."""
        items = self._items
        for position in range(self._length - 1, -1, -1):
            yield items[position]

    def extended(self, key: K, value: V) -> Chronicle[K, V]:
        """This record and one more item; `key` must be new."""
        if len(self._items) == self._length:
            items, index = self._items, self._index
        else:
            items = self._items[: self._length]
            index = {recorded: position for position, (recorded, _) in enumerate(items)}
        if index.setdefault(key, self._length) != self._length:
            raise KeyError(key)
        items.append((key, value))
        longer: Chronicle[K, V] = Chronicle.__new__(Chronicle)
        longer._items, longer._index, longer._length = items, index, self._length + 1
        return longer
