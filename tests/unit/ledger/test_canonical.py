"""The canonical encoding against an independent RFC 8785 implementation, and the strict decoder for outside JSON."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.ledger import canonical
from cmbs.testing.strategies import belief as strategies
from tests.support.subtests import for_each

# What json.loads takes to be JSON text, in the smallest unit that can hold a key.
TOKENS = [
    '"a"',
    '"b"',
    '"\\u0061"',
    '"\\u0022:"',
    '"\\"\\u003a"',
    '"\\":"',
    '"a\\": "',
    '"{\\"a\\":1,\\"a\\":2}"',
    '""',
    "1",
    "null",
    "true",
]


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Text(str):
    __slots__ = ()


def nest(depth: int, leaf: Any = 1) -> Any:
    """`leaf` inside `depth` containers, arrays and objects by turns."""
    value = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


# --- encode -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-ENC-01", "BS-4.2-CANON-01")
@given(strategies.json_values())
@example({"\U00010000": 1, "\uffff": 2, "\ue000": 3})
@example({"": 1, "\x00": 2, "\u007f": 3, "\u2028": 4, '"': 5, "\\": 6, "/": 7})
@example([0.1, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, -0.0, 4.0, 123456789.0])
@example("".join(map(chr, range(0x20))))
@example({"a": {"\U0010ffff": {"\ufffd": [{"b": 0.5, "a": "\U0001f600"}]}}})
def test_any_i_json_value_is_encoded_as_rfc_8785_says(value: Any) -> None:
    once = canonical.encode(value)
    assert once == rfc8785.dumps(value)
    assert canonical.encode(canonical.decode(once)) == once


@pytest.mark.req("BS-4.2-CANON-01")
@given(st.dictionaries(strategies.ids(), strategies.json_scalars(), max_size=8), st.randoms(use_true_random=False))
def test_the_order_in_which_keys_arrive_leaves_no_trace(value: dict[str, Any], chance: random.Random) -> None:
    items = list(value.items())
    chance.shuffle(items)
    assert canonical.encode(dict(items)) == canonical.encode(value)


def test_keys_are_ordered_by_utf_16_units_and_not_by_code_points() -> None:
    # U+10000 is D800 DC00 in UTF-16, before U+E000, though its code point comes after.
    assert canonical.encode({"\ue000": 1, "\U00010000": 2}) == '{"\U00010000":2,"\ue000":1}'.encode()


def test_a_tuple_is_an_array() -> None:
    assert canonical.encode((1, ("a",), {"b": ()})) == b'[1,["a"],{"b":[]}]'


@for_each("number", [0, -1, 2**53 - 1, -(2**53 - 1), float(2**53 - 1), 1e21, -1e21, 1.5e300])
def test_numbers_that_are_exact_in_i_json_are_taken(number: float) -> None:
    assert canonical.decode(canonical.encode([number])) == [number]
    assert canonical.decode(str(number)) == number


@pytest.mark.req("LED-3-ENC-05")
@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ([2**53, -(2**53), 2**63, 2**64, 10**40, -(10**5000)], "not exact in I-JSON"),
        # Canonical JSON writes these as whole numbers.
        ([2.0**53, -(2.0**53), 1e16, 1e17, 999999999999999868928.0], "not exact in I-JSON"),
        ([float("nan"), float("inf"), float("-inf")], "finite"),
    ],
    ids=["integers", "floats", "not finite"],
)
def test_numbers_that_are_not_are_refused(numbers: list[float], reason: str) -> None:
    for number in numbers:
        with pytest.raises(InvalidRequest, match=reason):
            canonical.encode({"deep": [number]})


@pytest.mark.req("LED-3-ENC-05")
@for_each("unit", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
@for_each(
    "shape",
    [
        lambda text: text,
        lambda text: [text],
        lambda text: {text: 1},
        lambda text: {"a": text},
        # A float or a key beyond the basic plane takes the other way through the encoder.
        lambda text: [0.5, text],
        lambda text: {text: 0.5},
        lambda text: {"\U00010000": text},
        lambda text: {"\U00010000": 1, text: 1},
    ],
)
def test_a_lone_surrogate_is_refused_wherever_it_stands(unit: int, shape: Any) -> None:
    for text in (chr(unit), f"a{chr(unit)}", f"{chr(unit)}{chr(0xD800)}"):
        with pytest.raises(InvalidRequest, match="surrogate"):
            canonical.encode(shape(text))


@pytest.mark.req("LED-3-ENC-05")
@for_each(
    "value",
    [
        b"bytes",
        {1, 2},
        Decimal(1),
        datetime(2026, 1, 1, tzinfo=UTC),
        object(),
        Colour.RED,
        Level.LOW,
        Text("a"),
        {1: "a"},
        {None: "a"},
        {True: "a"},
        {("a",): 1},
        {Colour.RED: 1},
        {Text("a"): 1},
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_what_is_not_a_json_type_is_refused_at_any_place(value: Any) -> None:
    for shaped in (value, [value], {"k": value}, ["a", [0.5, value]]):
        with pytest.raises(InvalidRequest, match="is not a JSON type"):
            canonical.encode(shaped)


def test_depth_is_bounded_at_the_same_level_for_encoding_and_decoding() -> None:
    deepest, deeper = nest(canonical.MAX_DEPTH), nest(canonical.MAX_DEPTH + 1)
    assert canonical.decode(canonical.encode(deepest)) == deepest
    with pytest.raises(LimitExceeded) as encoding:
        canonical.encode(deeper)
    with pytest.raises(LimitExceeded) as decoding:
        canonical.decode(json.dumps(deeper))
    assert encoding.value.details == decoding.value.details
    said = {"limit": "json_depth", "maximum": canonical.MAX_DEPTH, "actual": canonical.MAX_DEPTH + 1}
    assert decoding.value.details.items() >= said.items()


def test_a_value_that_holds_itself_is_too_deep() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(LimitExceeded):
        canonical.encode(endless)


# --- decode -----------------------------------------------------------------------------------------------------------


@given(strategies.json_values(), st.sampled_from([None, 2]), st.booleans(), st.booleans())
def test_any_i_json_text_is_read_as_the_standard_library_reads_it(
    value: Any, indent: int | None, ascii_only: bool, as_text: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert canonical.decode(text if as_text else text.encode()) == json.loads(text)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON in which keys often repeat, white space is anywhere, and strings look like keys."""
    space = st.sampled_from(["", " ", "\n", "\t\r "])
    string = st.sampled_from([token for token in TOKENS if token.startswith('"')])

    def containers(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        member = st.builds("{}{}:{}{}".format, string, space, space, children)
        return st.builds("[{}]".format, st.lists(children, max_size=3).map(",".join)) | st.builds(
            "{{{}{}}}".format, space, st.lists(member, max_size=4).map(",".join)
        )

    return draw(st.recursive(st.sampled_from(TOKENS), containers, max_leaves=8))


class Repeated(Exception):
    """The reference reader found a key twice."""


def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise Repeated
    return dict(pairs)


@pytest.mark.req("BS-3.2-ERR-12")
@given(json_texts())
@example('{"a":1,"a":1}')
@example('[{"b":{"a":1,"\\u0061":2}}]')
@example('{"a":"\\":","b":{"c":1,"c":2}}')
@example('["\\":", {"a" \n: 1}]')
def test_a_key_is_refused_exactly_where_an_object_has_it_twice(text: str) -> None:
    try:
        wanted = json.loads(text, object_pairs_hook=refuse_repeats)
    except Repeated:
        with pytest.raises(InvalidRequest, match="duplicate key"):
            canonical.decode(text)
    else:
        assert canonical.decode(text) == wanted


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"outer":[{"k\\u00e9":1,"x":2,"k\xc3\xa9":3}]}', "ké"),
        (b'{"a":1,"b":{"c":1,"c":2},"a":3}', "c"),
        # What follows the object is not read.
        (b'[{"a":1,"b":2,"a":3}, this is not JSON', "a"),
    ],
)
def test_decoding_stops_at_the_first_object_with_a_repeated_key_and_names_the_key(text: bytes, key: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        canonical.decode(text)
    assert (refused.value.details["key"], refused.value.details["field"]) == (key, key)


@for_each("depth", [65, 900, 970, 1000, 200_000])
@for_each(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_text_that_is_too_deep_is_refused_however_deep_it_is(depth: int, opening: str, closing: str) -> None:
    deep = opening * depth + "1" + closing * depth
    with pytest.raises(LimitExceeded, match="json_depth"):
        canonical.decode(deep)
    # Under a key that is repeated, either is said.
    with pytest.raises((InvalidRequest, LimitExceeded)):
        canonical.decode('{"a":' + deep + ',"a":1}')


@pytest.mark.req("BS-3.2-ERR-13")
@for_each(
    "number",
    [
        "9007199254740992",
        "-9007199254740992",
        "1e16",
        "9007199254740993.0",
        "1" + "0" * 30,
        "1" * 5000,
        "1e400",
        "-1e400",
    ],
)
def test_numbers_outside_i_json_are_refused(number: str) -> None:
    for text in (number, f"[{number}]", f'{{"a":{{"b":{number}}}}}'):
        with pytest.raises(InvalidRequest):
            canonical.decode(text)


@for_each(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b'{"a":1,}',
        b"{'a':1}",
        b"{a:1}",
        b"01",
        b"1.",
        b".5",
        b"+1",
        b"0x10",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"undefined",
        b"True",
        b"// comment\n1",
        b"{} {}",
        b"{}x",
        b"null null",
        b'"\n"',
        b'"\\x41"',
        b'"open',
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xc0\xaf"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
        b'"\xc3"',
        '"é"'.encode("utf-16"),
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\\ud83dx"',
        '"\ud800"',
        '{"\ud800":1}',
        b'{"\\ud800":1,"\\ud800":2}',
    ],
)
def test_what_is_not_json_is_malformed(data: bytes | str) -> None:
    with pytest.raises(InvalidRequest, match="malformed JSON"):
        canonical.decode(data)


@given(st.binary(max_size=40) | st.text(st.sampled_from('{}[]":,\\u0aedtfn1-. \ud800'), max_size=24))
def test_whatever_bytes_arrive_are_read_or_refused(data: bytes | str) -> None:
    try:
        value = canonical.decode(data)
    except (InvalidRequest, LimitExceeded):
        return
    assert canonical.decode(canonical.encode(value)) == value


# --- canonical text ---------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-VERIFY-10")
@given(strategies.json_values(), st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_text_is_canonical_exactly_where_rfc_8785_would_write_it_so(
    value: Any, indent: int | None, ascii_only: bool, sort_keys: bool
) -> None:
    wanted = rfc8785.dumps(value)
    assert canonical.is_canonical(wanted)
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only, sort_keys=sort_keys).encode()
    assert canonical.is_canonical(text) == (text == wanted)
    assert canonical.canonicalize(text) == wanted


@pytest.mark.req("LED-3-VERIFY-10")
@for_each(
    ("text", "is_canonical"),
    [
        ('{"\U00010000":1,"\ue000":2}', True),
        ('{"\ue000":2,"\U00010000":1}', False),
        ("9007199254740991", True),
        ("1e2", False),
        ("100", True),
        ("-0", False),
        ("-0.0", False),
        ('"\\u001f"', True),
        ('"\\u001F"', False),
        ('"\\/"', False),
        ('"\x7f"', True),
        ("[" * 64 + "]" * 64, True),
    ],
)
def test_one_value_has_one_canonical_text(text: str, is_canonical: bool) -> None:
    assert canonical.is_canonical(text.encode()) == is_canonical


@pytest.mark.req("BS-3.2-ERR-12", "BS-4.2-CANON-01")
@for_each(
    "data",
    [
        b"",
        b"{",
        b'"\xff"',
        b"NaN",
        b"1" * 5000,
        b"9007199254740992",
        b'{"a":0.5,}',
        b'{"a":1,"a":"\\u0022:"}',
        b"[" * 65,
    ],
)
def test_text_that_cannot_be_decoded_is_refused_and_not_called_uncanonical(data: bytes) -> None:
    for judge in (canonical.is_canonical, canonical.canonicalize):
        with pytest.raises((InvalidRequest, LimitExceeded)):
            judge(data)
