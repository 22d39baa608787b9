"""Refusals that a caller can act on: what was wrong, where, what was found, what is accepted, and what to do next.

A refusal is made when an answer is given, from what was decided; it is never recorded. The sentence is for a model or a
person, the fields are for a program. Errors carry the same names in their `details`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

import msgspec

MAX_FAULTS = 10
MAX_LISTED = 20
MAX_SHOWN_CHARACTERS = 256
# To compare texts takes the product of their lengths: beyond these bounds a suggestion is not worth its time.
_MAX_COMPARED = 1_000
_MAX_COMPARED_CHARACTERS = 128
_MAX_NEAREST = 3


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of several things that are wrong. `found` is absent where nothing was found or it may not be shown."""

    field: str
    message: str
    found: Any = None
    accepted: Any = None


class Refusal(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Why something was not done, and what can be done about it.

    `accepted` is a value, a list of values, or a rule such as `{"minimum": 3}`; absent where the reader may not learn
    it. `rules` are the keys of the constraints, groups and invariants that decided.
    """

    code: str
    message: str
    next: str
    field: str | None = None
    found: Any = None
    accepted: Any = None
    faults: tuple[Fault, ...] = ()
    candidate: int | None = None
    rules: tuple[str, ...] = ()
    approval_id: str | None = None
    # Until when it waits, or may be approved.
    until: str | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        return f"{self.message}; {self.next}"


def refuse_faults(code: str, faults: Sequence[Fault], next_step: str, **more: Any) -> Refusal:
    """A refusal for one or more faults: the first one is that of the refusal itself, and the sentence names a few."""
    listed = tuple(faults[:MAX_FAULTS])
    first = listed[0]
    left = len(faults) - _MAX_NEAREST
    told = "; ".join(each.message for each in listed[:_MAX_NEAREST]) + (f"; and {left} more" if left > 0 else "")
    return Refusal(
        code=code,
        message=told,
        next=next_step,
        field=first.field,
        found=first.found,
        accepted=first.accepted,
        faults=listed if len(listed) > 1 else (),
        **more,
    )


def find_nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are most like this one, the nearest first; few, and none where none is alike."""
    wanted = name[:_MAX_COMPARED_CHARACTERS]
    compared = sorted(each for each in islice(known, _MAX_COMPARED) if len(each) <= _MAX_COMPARED_CHARACTERS)
    return get_close_matches(wanted, compared, _MAX_NEAREST)


def quote(names: Iterable[str]) -> str:
    """Names in backticks with commas between them, each shortened, and not too many of them."""
    listed = list(names)
    left = len(listed) - MAX_LISTED
    told = ", ".join(f"`{shorten(each)}`" for each in listed[:MAX_LISTED])
    return told + (f" and {left} more" if left > 0 else "")


def shorten(text: str) -> str:
    """A text that fits into a sentence."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…"


def show_value(value: Any) -> Any:
    """A JSON value as a refusal shows it: itself where it is short, else the beginning of its text."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return value if len(text) <= MAX_SHOWN_CHARACTERS else shorten(text)
