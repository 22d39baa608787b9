"""Hypotheses found by a text, in their ids and in what was declared of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from cmbs.belief.kernel.attributes import Attributes
from cmbs.belief.kernel.survivors import Survivors

# So many ids are looked at for one page; a page that ends there says where the next begins.
MAX_IDS_SEARCHED = 100_000


class IdPage(NamedTuple):
    """Some ids, sorted; `next_after` is the last one looked at where others follow."""

    ids: list[str]
    next_after: str | None


class TextSearch:
    """Which ids have a text in them, or in a value of their attributes, in any case; the empty text is in all."""

    def __init__(self, text: str, attributes: Attributes) -> None:
        self._text = text.casefold()
        self._attributes = attributes

    def takes(self, hypothesis_id: str | None) -> bool:
        """Whether an id is one of those; None is none, unless all are."""
        if not self._text:
            return True
        if hypothesis_id is None:
            return False
        if self._text in hypothesis_id.casefold():
            return True
        return any(self._text in value.casefold() for value in self._values_of(hypothesis_id))

    def _values_of(self, hypothesis_id: str) -> Iterator[str]:
        if hypothesis_id in self._attributes:
            yield from map(_show_value, self._attributes.of(hypothesis_id).values())


def search_survivors(survivors: Survivors, search: TextSearch, after: str | None, limit: int) -> IdPage:
    """At most `limit` survivors that sort after `after` and that a search takes."""
    found: list[str] = []
    last: str | None = None
    for number, hypothesis_id in enumerate(survivors.iterate_after(after)):
        if len(found) == limit or number == MAX_IDS_SEARCHED:
            return IdPage(found, last)
        if search.takes(hypothesis_id):
            found.append(hypothesis_id)
        last = hypothesis_id
    return IdPage(found, None)


def _show_value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
