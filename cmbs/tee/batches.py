"""Things in batches that fit a message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
# A tag, and a length of at most five bytes.
FRAME_BYTES = 6


def batches(
    things: Iterable[T], size_of: Callable[[T], int], *, max_bytes: int, max_items: int | None = None
) -> Iterator[list[T]]:
    """The things in lists of at most `max_bytes`, frames included, and `max_items`; a larger thing is alone in one."""
    batch: list[T] = []
    total = 0
    for thing in things:
        size = size_of(thing) + FRAME_BYTES
        if batch and (len(batch) == max_items or total + size > max_bytes):
            yield batch
            batch, total = [], 0
        batch.append(thing)
        total += size
    if batch:
        yield batch
