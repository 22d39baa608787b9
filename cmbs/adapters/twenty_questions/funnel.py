"""A game as it looks: a bar for what is left after each answer, one below the other, narrower and narrower."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

# With what stands beside it, a line of a terminal.
WIDTH = 30
# Survivors that are listed by name; more are only counted.
_MAX_NAMED = 6


def funnel_line(left: int, of: int, what: str) -> str:
    """What is left, as a bar in the middle of its line, the count, the bits, and what led there."""
    width = 0 if left == 0 else max(1, round(WIDTH * left / of))
    bar = ("█" * width).center(WIDTH)
    bits = f"{log2(left):4.1f} bits" if left else "   nothing"
    return f"  {bar}  {left:>{len(str(of))}} left {bits}  {what}".rstrip()


def name_survivors(labels: Sequence[str]) -> str:
    """The survivors by name, where they are few enough."""
    return f"it could be {_or(labels)}" if 1 < len(labels) <= _MAX_NAMED else ""


def _or(labels: Sequence[str]) -> str:
    return f"{', '.join(labels[:-1])} or {labels[-1]}"
