"""Answers that fit a context window: a page is as long as there is room for it, and what is cut says so.

A token is counted as four bytes of UTF-8 JSON. No answer has more than `MAX_TOKENS`, unless a caller asks for more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

Json = dict[str, Any]

BYTES_PER_TOKEN = 4
# Of an answer or a resource, unless `max_tokens` says more.
MAX_TOKENS = 4_000
# The most that `max_tokens` may say.
LARGEST_TOKENS = 1_000_000
MAX_LISTED = 1_000
# Never cut: the ids and calls to go on with, and what is said to be missing.
_KEPT = ("handles", "left_out", "more", "next", "warning")
# For these, beside a page.
_ROOM_OF_KEPT = 1_000
_CUT = "…"
# A shorter text stays as it is.
_MIN_CHARACTERS = 40
# Of a document that is not shown whole, a larger member is left out.
_MAX_MEMBER_TOKENS = 200

Handles = Annotated[Json, Meta(description="Ids to call other tools with.")]


class Answer(msgspec.Struct, kw_only=True):
    """What every answer may have. `more` is the call for what was left out, `next` the call that is advised."""

    handles: Handles = {}
    left_out: dict[str, int] = {}
    more: Json = {}
    next: Json = {}
    warning: str = ""


def count_tokens(value: Any) -> int:
    """How many tokens a value has as JSON, by the rule of this server."""
    return -(-len(msgspec.json.encode(value)) // BYTES_PER_TOKEN)


def name_call(tool: str, arguments: Json) -> Json:
    """A call of a tool, for a model to make."""
    return {"tool": tool, "arguments": arguments}


def name_page(tool: str, args: msgspec.Struct, cursor: str | None) -> Json:
    """`more`: the call of the same tool that gives the page after this one; nothing after the last."""
    return {} if cursor is None else {"more": name_call(tool, {**msgspec.to_builtins(args), "cursor": cursor})}


async def ask_for_page(ask: Callable[[int], Awaitable[Json]], limit: int, max_tokens: int) -> Json:
    """The longest page that fits, of at most `limit` items: what is too long is asked for again with fewer.

    So the cursor of a page is always that of its last item. A page of one item may still be too long.
    """
    room = max_tokens - _ROOM_OF_KEPT
    while True:
        page = await ask(limit)
        size = count_tokens(page)
        if size <= room or limit == 1:
            return page
        limit = max(1, min(limit - 1, limit * room // size))


def fit(answer: Json, max_tokens: int = MAX_TOKENS) -> Json:
    """The answer, of which no more than so many tokens are left: the longest lists and texts are cut first.

    Every value keeps its type, so that the answer is still of its schema. `left_out` says how many items are missing,
    by the path of the list or object that they are missing of.
    """
    answer = dict(answer)
    left_out: dict[str, int] = dict(answer.get("left_out", {}))
    while count_tokens(answer) > max_tokens:
        names = sorted((name for name in answer if name not in _KEPT), key=lambda name: -_size(answer[name]))
        for name in names:
            shorter = _shorten(answer[name], name, left_out)
            if shorter != answer[name]:
                answer[name] = shorter
                break
        else:
            break
        if left_out:
            answer["left_out"] = dict(left_out)
    return answer


def point_to_all(answer: Json, ask_for_all: Callable[[int], Json], max_tokens: int = MAX_TOKENS) -> Json:
    """The answer; where it has to be cut, `more` asks for all of it, with as many tokens as it has."""
    size = count_tokens(answer)
    return answer if size <= max_tokens else {**answer, "more": ask_for_all(size + _ROOM_OF_KEPT)}


def outline(document: Json, max_tokens: int, more: Callable[[int], Json]) -> Json:
    """A document, whole, or without its large members where it is too long: a part of a proof proves nothing.

    `more` gives what asks for all of it, with as many tokens as it has.
    """
    size = count_tokens(document)
    if size <= max_tokens:
        return document
    sizes = {name: count_tokens(value) for name, value in document.items()}
    small = {name: document[name] for name, tokens in sizes.items() if tokens <= _MAX_MEMBER_TOKENS}
    large = {name: tokens for name, tokens in sizes.items() if tokens > _MAX_MEMBER_TOKENS}
    return fit({**small, "whole": False, "n_tokens": size, "left_out_tokens": large, "more": more(size)}, max_tokens)


def _shorten(value: Any, where: str, left_out: dict[str, int]) -> Any:
    """About half of a value; the same value where there is nothing to cut."""
    if isinstance(value, str):
        text = value.removesuffix(_CUT)
        return value if len(text) < _MIN_CHARACTERS else text[: len(text) // 2] + _CUT
    if not value or not isinstance(value, (list, dict)):
        return value
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    position, (name, largest) = max(enumerate(items), key=lambda each: _size(each[1][1]))
    dominates = len(items) == 1 or 2 * _size(largest) > _size(value)
    shorter = _shorten(largest, f"{where}.{name}", left_out) if dominates else largest
    if shorter != largest:
        items[position] = (name, shorter)
    else:
        kept = len(items) // 2
        left_out[where] = left_out.get(where, 0) + len(items) - kept
        items = items[:kept]
    return dict(items) if isinstance(value, dict) else [each for _, each in items]


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
