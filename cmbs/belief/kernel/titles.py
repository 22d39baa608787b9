"""Titles and labels, by which people find sessions and cases again: part of the first event, never changed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.ledger.canonical import encode

MAX_TITLE_LENGTH = 200
MAX_LABELS = 32
MAX_LABEL_VALUE_LENGTH = 200
# As schemas say it: names of labels, and one line that is not empty.
LABEL_NAME_PATTERN = "^[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$"
LINE_PATTERN = r"^ *[^ \x00-\x1f\x7f-\x9f\u2028\u2029][^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
_NAME = re.compile(LABEL_NAME_PATTERN)
# Control characters, separators of lines and paragraphs, and halves of characters.
_NOT_OF_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAME_RULE = "1 to 63 letters, digits, `.`, `_`, `/` or `-`, the first and the last a letter or a digit"


class Titles(NamedTuple):
    """A title and labels as an event records them: unset where there are none; labels are a canonical JSON object."""

    title: str | UnsetType = UNSET
    labels: msgspec.Raw | UnsetType = UNSET


NO_TITLES = Titles()


def build_titles(title: Any, labels: Any) -> Titles:
    """What a caller gave, or a clear error; None and nothing stand for none."""
    if title is not None:
        _check_text("title", title, MAX_TITLE_LENGTH, "title_length")
    if labels is None or labels == {}:
        return Titles(UNSET if title is None else title)
    if not isinstance(labels, dict):
        raise InvalidRequest(
            "`labels` must be an object of names and texts",
            {"field": "labels", "found": type(labels).__name__, "accepted": "an object of names and texts"},
        )
    if len(labels) > MAX_LABELS:
        raise LimitExceeded("labels", MAX_LABELS, len(labels), "labels")
    for name, value in labels.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise InvalidRequest(
                f"`{_shorten(name)}` is no name of a label",
                {"field": "labels", "found": _shorten(name), "accepted": _NAME_RULE},
            )
        _check_text(f"labels.{name}", value, MAX_LABEL_VALUE_LENGTH, "label_value_length")
    return Titles(UNSET if title is None else title, msgspec.Raw(encode(labels)))


def read_titles(title: str | UnsetType, labels: msgspec.Raw | UnsetType) -> tuple[str, dict[str, str]]:
    """What an event recorded: an empty title and no labels where there are none."""
    found = {} if isinstance(labels, UnsetType) else msgspec.json.decode(labels)
    return "" if isinstance(title, UnsetType) else title, found


def require_titles(title: str | UnsetType, labels: msgspec.Raw | UnsetType) -> None:
    """ValueError where an event records a title or labels that no request could have had."""
    try:
        asked = None if isinstance(labels, UnsetType) else msgspec.json.decode(labels)
        again = build_titles(None if isinstance(title, UnsetType) else title, asked)
    except (InvalidRequest, LimitExceeded, msgspec.DecodeError) as exc:
        raise ValueError(f"its title or its labels are none: {exc}") from exc
    if again != Titles(title, labels):
        raise ValueError("its labels are not as they are written")


def _check_text(field: str, value: Any, longest: int, limit: str) -> None:
    if not isinstance(value, str):
        raise InvalidRequest(
            f"`{field}` must be a text", {"field": field, "found": type(value).__name__, "accepted": "a text"}
        )
    if len(value) > longest:
        raise LimitExceeded(limit, longest, len(value), field)
    if not value.strip(" ") or _NOT_OF_A_LINE.search(value) is not None:
        raise InvalidRequest(
            f"`{field}` must be one line of text",
            {"field": field, "found": _shorten(value), "accepted": "one line that is not empty"},
        )


def _shorten(value: object) -> str:
    text = value if isinstance(value, str) else type(value).__name__
    return text if len(text) <= MAX_LABEL_VALUE_LENGTH else text[:MAX_LABEL_VALUE_LENGTH] + "…"
