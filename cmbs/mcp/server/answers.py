"""Answers that fit a context window: lists are cut where an answer would be too long, and say so."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]
# About 4,000 tokens of JSON, at three characters each.
MAX_ANSWER_BYTES = 12_000
_MAX_TEXT = 2_000


def fit(answer: Json) -> Json:
    """The answer, of which no more than so many bytes are left: the longest lists and texts are cut first.

    `left_out` says how many items of which list are missing.
    """
    left_out: dict[str, int] = {}
    answer = dict(answer)
    while len(msgspec.json.encode(answer)) > MAX_ANSWER_BYTES:
        sizes = {name: len(msgspec.json.encode(value)) for name, value in answer.items() if name != "left_out"}
        name = max(sizes, key=sizes.__getitem__)
        value = answer[name]
        if isinstance(value, list) and len(value) > 1:
            kept = value[: len(value) // 2]
            left_out[name] = left_out.get(name, 0) + len(value) - len(kept)
            answer[name] = kept
            answer["left_out"] = dict(left_out)
        else:
            answer[name] = _shorten(value)
    return answer


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"{text[:_MAX_TEXT]}…" if len(text) > _MAX_TEXT else text[: len(text) // 2]
