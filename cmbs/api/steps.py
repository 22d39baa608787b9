"""Several calls to one result, described once for clients of both kinds."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from cmbs.api.call import Call
from cmbs.errors import CmbsError

T = TypeVar("T")

# Each call is yielded, and its result is sent back, or its error thrown.
Steps: TypeAlias = Generator[Call[Any], Any, T]


class Done(NamedTuple, Generic[T]):
    """The result of them all."""

    result: T


def advance(steps: Steps[T], outcome: Any) -> Call[Any] | Done[T]:
    """The next call after what came of the one before, or the end."""
    try:
        return steps.throw(outcome) if isinstance(outcome, CmbsError) else steps.send(outcome)
    except StopIteration as end:
        return Done(end.value)
