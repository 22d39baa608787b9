"""A bound on work that a caller may stop. Pure: who asks for the work says by a function whether it may go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

# Asked again and again; once it has said no, it is always no.
MayGoOn: TypeAlias = Callable[[], bool]


def without_bound() -> bool:
    """The work may go on for as long as it takes."""
    return True
