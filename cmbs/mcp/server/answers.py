"""Answers that fit a context window: lists and texts are cut where an answer would be too long, and it says so."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]
# About 4,000 tokens of JSON, at three characters each.
MAX_ANSWER_BYTES = 12_000
# Never cut: the ids that other tools are called with, and what is said to be missing.
_KEPT = ("handles", "left_out")
_CUT = "…"
# A shorter text stays as it is.
_MIN_CHARACTERS = 40


def fit(answer: Json) -> Json:
    """The answer, of which no more than so many bytes are left: the longest lists and texts are cut first.

    Every value keeps its type, so that the answer is still of its schema. `left_out` says how many items are missing,
    by the path of the list or object that they are missing of.
    """
    answer = dict(answer)
    left_out: dict[str, int] = {}
    while _size(answer) > MAX_ANSWER_BYTES:
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
