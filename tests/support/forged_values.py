"""Every small change of a piece of plain data: what an attacker may make of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Of a long list or object: how many of its members are changed from within.
_LOOKED_INTO = 3


def changes_of(value: Any) -> Iterator[Any]:
    """Values of about the same shape, each different from `value`."""
    match value:
        case bool():
            yield not value
        case None:
            yield from (0, "x", ["x"])
        case int():
            yield from (value + 1, value - 1)
        case str():
            yield from (value + "x", "")
        case bytes():
            yield from (value + b"x", bytes(len(value)), bytes(255 - byte for byte in value))
        case list():
            yield from _changes_of_list(value)
        case dict():
            yield from _changes_of_object(value)
        case _:
            raise TypeError(value)


def _changes_of_list(items: list[Any]) -> Iterator[Any]:
    yield [*items, *(items[-1:] or ["x"])]
    if items:
        yield items[1:]
        yield items[:-1]
        yield items[::-1]
        yield []
    for place in (*range(len(items))[:_LOOKED_INTO], *range(len(items))[_LOOKED_INTO:][-_LOOKED_INTO:]):
        for changed in changes_of(items[place]):
            yield [*items[:place], changed, *items[place + 1 :]]


def _changes_of_object(members: dict[str, Any]) -> Iterator[Any]:
    yield {**members, "x": next(iter(members.values()), "x")}
    if members:
        yield {}
    for name in [*members][:_LOOKED_INTO]:
        yield {key: value for key, value in members.items() if key != name}
        for changed in changes_of(members[name]):
            yield {**members, name: changed}
