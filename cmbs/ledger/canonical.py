"""One canonical encoding (RFC 8785) for everything that is hashed, and one strict decoder for JSON from outside.

Both take I-JSON: numbers that a double holds exactly, strings of Unicode scalar values, no key twice in an object,
at most `MAX_DEPTH` levels.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
import rfc8785

from cmbs.errors import InvalidRequest, LimitExceeded

MAX_DEPTH = 64
MAX_SAFE_INTEGER = 2**53 - 1
_EXPONENT_FROM = 1e21
_MAX_QUOTED_NUMBER = 10**30

_ENCODER = msgspec.json.Encoder(order="sorted")

# The RFC 8785 bytes of one of our own records: its fields are strings, whole numbers and `msgspec.Raw` that `encode`
# made, and msgspec's sorted form is then canonical.
encode_frame: Callable[[msgspec.Struct], bytes] = _ENCODER.encode


def encode(value: Any, max_depth: int = MAX_DEPTH) -> bytes:
    """The RFC 8785 bytes of `value`; InvalidRequest where it is not I-JSON."""
    try:
        is_plain = _check(value, MAX_DEPTH - max_depth)
    except UnicodeEncodeError as exc:
        raise InvalidRequest("strings must be valid Unicode, without lone surrogates") from exc
    # rfc8785 is written in Python: a mebibyte of JSON takes it a third of a second, and msgspec milliseconds.
    return _ENCODER.encode(value) if is_plain else rfc8785.dumps(value)


def decode(data: bytes | str, max_depth: int = MAX_DEPTH) -> Any:
    """JSON from outside as plain data.

    A repeated key stops the decoder at the end of the object that holds it; what follows is not read.
    Raises LimitExceeded where the text is too deep, InvalidRequest where it is anything else but I-JSON.
    """
    try:
        value = _DECODER.decode(data if isinstance(data, str) else data.decode())
        _check(value, MAX_DEPTH - max_depth)
    except RecursionError as exc:
        raise LimitExceeded("json_depth", MAX_DEPTH, MAX_DEPTH + 1) from exc
    except ValueError as exc:  # syntax, UTF-8, a lone surrogate, an integer of too many digits
        raise InvalidRequest(f"malformed JSON: {exc}", {"accepted": "one JSON value in UTF-8"}) from exc
    return value


def canonicalize(data: bytes) -> bytes:
    """JSON text from outside in canonical form; errors as those of `decode`."""
    return encode(decode(data))


def is_canonical(data: bytes) -> bool:
    """Whether these bytes are what `encode` gives for the value that they hold; errors as those of `decode`."""
    return canonicalize(data) == data


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = next(key for key, count in counts.items() if count > 1)
        repeated.encode()  # a lone surrogate is malformed, and could not be quoted in an answer
        raise InvalidRequest(
            f"duplicate key `{repeated}` in a JSON object",
            {"key": repeated, "field": repeated, "found": "twice", "accepted": "once"},
        )
    return content


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_build_object, parse_constant=_refuse_constant)


def _check(value: Any, depth: int) -> bool:
    """Raise where `value` is not I-JSON; otherwise whether msgspec's sorted form of it is canonical.

    It is, but for two things: the digits of a float, and the order of keys beyond the basic multilingual plane.
    Types are compared exactly: a subclass, such as a member of an enumeration, may not be what it is equal to.
    """
    kind = type(value)
    if kind is str:
        value.encode()  # UnicodeEncodeError where it holds a lone surrogate
        return True
    if kind is int or kind is float:
        return _check_number(value)
    if value is None or kind is bool:
        return True
    if kind not in (dict, list, tuple):
        raise InvalidRequest(f"`{kind.__name__}` is not a JSON type")
    if depth >= MAX_DEPTH:
        raise LimitExceeded("json_depth", MAX_DEPTH, depth + 1)
    plain = True
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise InvalidRequest(f"`{type(key).__name__}` is not a JSON type")
            key.encode()
            plain = plain and (key.isascii() or max(key) <= "\uffff")
    for item in value.values() if kind is dict else value:
        plain = _check(item, depth + 1) and plain
    return plain


def _check_number(number: int | float) -> bool:  # noqa: PYI041 - an int is told from a float here
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidRequest("numbers must be finite", {"found": str(number), "accepted": "a finite number"})
    # RFC 8785 writes a whole float as digits alone, so it comes back as an integer, and must be one that is exact.
    if abs(number) > MAX_SAFE_INTEGER and (isinstance(number, int) or abs(number) < _EXPONENT_FROM):
        found = f"{number}" if abs(number) < _MAX_QUOTED_NUMBER else "a larger number"
        raise InvalidRequest(
            f"a number is not exact in I-JSON (beyond 2^53 - 1): {found}",
            {
                "found": found,
                "accepted": {"minimum": -MAX_SAFE_INTEGER, "maximum": MAX_SAFE_INTEGER},
                "next": "send a larger number as text, or in a larger unit where only a number will do",
            },
        )
    return isinstance(number, int)
