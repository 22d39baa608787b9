"""The known id that an unknown one was probably meant to be. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from difflib import get_close_matches

# How many known ids are compared with an unknown one: comparing takes some microseconds for each.
MAX_COMPARED = 2_000


def find_nearest(unknown: str, known: Sequence[str]) -> str | None:
    """The known id that is most like an unknown one; None where none is like it. `known` is sorted.

    Of many, only the nearest in their order are compared: those that begin alike.
    """
    place = bisect_left(known, unknown)
    first = max(0, min(place - MAX_COMPARED // 2, len(known) - MAX_COMPARED))
    found = get_close_matches(unknown, known[first : first + MAX_COMPARED], 1)
    return found[0] if found else None
