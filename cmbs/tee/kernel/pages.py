"""Pages of an answer: a list that is the same each time it is made, and where the next page of it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from cmbs.errors import InvalidGraph
from cmbs.spi.graph_search import MAX_PAGE_SIZE

DEFAULT_PAGE_SIZE = 100
_MAX_TOKEN_DIGITS = 12

T = TypeVar("T")


class Page(NamedTuple, Generic[T]):
    """Some of `total` items, from the place `start` on."""

    items: Sequence[T]
    start: int
    total: int

    def token_after(self, taken: int) -> str:
        """What asks for the items behind the first ones of this page; empty where there are none."""
        place = self.start + taken
        return str(place) if place < self.total else ""


def select_page(items: Sequence[T], size: int, token: str) -> Page[T]:
    """The page that a token of the page before asks for, an empty one for the first; a size of 0 is the default."""
    start = parse_place(token)
    return Page(items[start : start + choose_size(size)], start, len(items))


def choose_size(asked: int) -> int:
    """How many items a page has; 0 is the default."""
    if asked > MAX_PAGE_SIZE:
        raise InvalidGraph(
            f"`page_size` must be at most {MAX_PAGE_SIZE}, got `{asked}`",
            {"field": "page_size", "found": asked, "accepted": {"maximum": MAX_PAGE_SIZE}},
        )
    return asked or DEFAULT_PAGE_SIZE


def parse_place(token: str) -> int:
    """The place that a token names as a number; the empty one names the first."""
    if token and not (token.isascii() and token.isdecimal() and len(token) <= _MAX_TOKEN_DIGITS):
        raise refuse_token()
    return int(token or 0)


def refuse_token() -> InvalidGraph:
    """The error for a token that no page has given out."""
    return InvalidGraph(
        "`page_token` must be the `next_page_token` of the page before",
        {"field": "page_token", "next": "ask for the first page again"},
    )
