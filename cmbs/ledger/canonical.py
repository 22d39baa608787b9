"""One canonical encoding (RFC 8785) for everything that is hashed, and one strict door for JSON that comes in.

What goes in is I-JSON: numbers that a double holds exactly, strings of Unicode scalar values, no key twice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from typing import Any, NoReturn

import msgspec
import rfc8785

from cmbs.errors import InvalidRequest, LimitExceeded

MAX_DEPTH = 64
MAX_SAFE_INTEGER = 2**53 - 1
_EXPONENT_FROM = 1e21
_ONLY_TEXT = frozenset({str})

_ENCODER = msgspec.json.Encoder(order="sorted")
# Digits of a float or of a number that may be inexact, and characters beyond the basic multilingual plane.
# Looking back from one set of first characters lets the search skip what is between them.
_ODD = re.compile(rb"[-0-9\xf0-\xf4](?:(?<=[0-9])(?:[.eE]|[0-9]{15})|(?<=-)0|(?<=[\xf0-\xf4]))")
_AFTER_QUOTE = re.compile(rb'"[ \t\n\r]')
_KEY_TOKEN = re.compile(rb'"[ \t\n\r]*:')


def encode(value: Any, max_depth: int = MAX_DEPTH) -> bytes:
    """The RFC 8785 bytes of `value`; InvalidRequest where it is not I-JSON."""
    try:
        if _walk(value, MAX_DEPTH - max_depth)[1]:
            return _ENCODER.encode(value)
        return rfc8785.dumps(value)
    except (UnicodeEncodeError, rfc8785.CanonicalizationError) as exc:
        raise InvalidRequest("strings must be valid Unicode, without lone surrogates") from exc


# The RFC 8785 bytes of one of our own records: its fields are strings, whole numbers and `msgspec.Raw` that `encode`
# made, and msgspec's sorted form is then canonical.
encode_frame: Callable[[msgspec.Struct], bytes] = _ENCODER.encode


def decode(data: bytes | str) -> Any:
    """JSON from outside as plain data: strict syntax, I-JSON numbers, no duplicate keys, bounded depth."""
    try:
        value = msgspec.json.decode(data)
        raw = data if isinstance(data, bytes) else data.encode()
    except RecursionError as exc:
        raise LimitExceeded("json_depth", MAX_DEPTH, MAX_DEPTH + 1) from exc
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise InvalidRequest(f"malformed JSON: {exc}") from exc
    if _walk(value, 0)[0] != count_key_tokens(raw):
        refuse_duplicate_keys(raw)
    return value


def are_plain(texts: Collection[Any], longest: int) -> bool:
    """Whether these, one at least, are texts of ASCII, none longer than this.

    Asked of all of them together: mostly they are a handful, and to look at each is longer than the rest of it.
    """
    if set(map(type, texts)) != _ONLY_TEXT:
        return False
    together = "".join(texts)
    return together.isascii() and (len(together) <= longest or max(map(len, texts)) <= longest)


def count_key_tokens(data: bytes) -> int:
    """At least as many as there are keys in this JSON text.

    Every key is followed by a colon, and a string may hold such a pair of characters too. Where the decoded value has
    as many keys, none was dropped as a duplicate.
    """
    if _AFTER_QUOTE.search(data) is None:
        return data.count(b'":')
    return len(_KEY_TOKEN.findall(data))


def refuse_duplicate_keys(data: bytes) -> None:
    """The slow, exact look: InvalidRequest names a key that stands twice in one object."""
    try:
        json.loads(data, object_pairs_hook=_refuse_duplicates)
    except RecursionError as exc:
        raise LimitExceeded("json_depth", MAX_DEPTH, MAX_DEPTH + 1) from exc


def canonicalised(data: bytes) -> bytes:
    """JSON text from outside in canonical form; errors as those of `decode`."""
    # Written out, an escape can look like a key, and so hide that one was dropped.
    if _is_plain(data) and b"\\u" not in data:
        again = _again(data)
        # As many keys as before: none was dropped as a duplicate.
        if again == data or count_key_tokens(again) == count_key_tokens(data):
            return again
    return encode(decode(data))


def is_canonical(data: bytes) -> bool:
    """Whether these bytes are what `encode` gives for the value that they hold; errors as those of `decode`."""
    # Going round through the sorted encoder rules out odd spaces, escapes, orders and repeated keys.
    return (_again(data) if _is_plain(data) else encode(decode(data))) == data


def _is_plain(data: bytes) -> bool:
    """Whether this text has none of the things for which the sorted encoder is not canonical, or too lenient."""
    return _ODD.search(data) is None and data.count(b"{") + data.count(b"[") < MAX_DEPTH


def _again(data: bytes) -> bytes:
    try:
        return _ENCODER.encode(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidRequest(f"malformed JSON: {exc}") from exc


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise InvalidRequest(f"duplicate key `{key}` in a JSON object", {"key": key})
        seen.add(key)


def _walk(value: Any, depth: int) -> tuple[int, bool]:
    """Check that `value` is I-JSON; how many keys it has, and whether msgspec's sorted form is canonical for it.

    It is, but for two things: the digits of a float, and the order of keys beyond the basic multilingual plane.
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return 0, True
    if kind is int:
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise InvalidRequest(f"the number {_shown(value)} is not exact in I-JSON (beyond 2^53 - 1)")
        return 0, True
    if kind is float:
        if not math.isfinite(value):
            raise InvalidRequest("numbers must be finite")
        # RFC 8785 writes a whole float as digits alone, so it comes back as an integer, and must be one that is exact.
        if MAX_SAFE_INTEGER < abs(value) < _EXPONENT_FROM:
            raise InvalidRequest(f"the number {value!r} is not exact in I-JSON (beyond 2^53 - 1)")
        return 0, False
    if depth >= MAX_DEPTH:
        raise LimitExceeded("json_depth", MAX_DEPTH, depth + 1)
    if kind is dict:
        return _walk_object(value, depth)
    if kind is list or kind is tuple:
        return _walk_array(value, depth)
    return _refuse_type(value)


def _walk_object(value: dict[Any, Any], depth: int) -> tuple[int, bool]:
    keys, plain = len(value), True
    for key, item in value.items():
        if type(key) is not str:
            _refuse_type(key)
        if not key.isascii():
            plain = plain and max(key) <= "\uffff"
        below, below_plain = _walk(item, depth + 1)
        keys += below
        plain = plain and below_plain
    return keys, plain


def _walk_array(value: list[Any] | tuple[Any, ...], depth: int) -> tuple[int, bool]:
    keys, plain = 0, True
    for item in value:
        if type(item) is str:  # by far the most common item, and the only one of a list of ids
            continue
        below, below_plain = _walk(item, depth + 1)
        keys += below
        plain = plain and below_plain
    return keys, plain


def _refuse_type(value: object) -> NoReturn:
    raise InvalidRequest(f"`{type(value).__name__}` is not a JSON type")


def _shown(number: int) -> str:
    return str(number) if abs(number) < 10**30 else "given"
