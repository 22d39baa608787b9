"""Documents in YAML and JSON: one tree with places for both, and findings with line and rule for any other text."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cmbs.documents import nodes, yaml_text
from cmbs.documents import text as text_module
from cmbs.documents.findings import Finding, InvalidDocument, Path, Place
from cmbs.documents.nodes import MAX_BYTES, MAX_DEPTH, Row, ScalarKind, classify_plain, find_place, to_data
from cmbs.documents.text import format_document, format_pieces, read_document
from cmbs.errors import InvalidRequest
from cmbs.testing.strategies.belief import ids
from tests.support.subtests import for_each

NAMES = ("d.yaml", "d.json")
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e15, 1e15)
DATA = st.recursive(
    st.none() | st.booleans() | NUMBERS | ids() | st.sampled_from(["yes", "1e5", "~", "0x1F", "null", "-1", "12:30"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ids(), inner, max_size=4),
    max_leaves=10,
)


def read(text: str | bytes, name: str = "d.yaml") -> Any:
    return to_data(read_document(text if isinstance(text, bytes) else text.encode(), name), name)


def refuse(text: str | bytes, name: str = "d.yaml") -> str:
    """The only finding, as `line:column rule`."""
    with pytest.raises(InvalidDocument) as caught:
        read(text, name)
    (finding,) = caught.value.findings
    assert str(caught.value) == finding.at(name)
    return f"{finding.place.line}:{finding.place.column} {finding.rule}" if finding.place else finding.rule


@given(DATA, st.sampled_from(NAMES))
def test_data_that_is_written_and_read_is_the_same_data(data: Any, name: str) -> None:
    text = format_document(data, name)
    assert read(text, name) == data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_text, "_LOADER", yaml.SafeLoader)
        assert read(text, name) == data


@given(st.dictionaries(ids(), DATA, min_size=1, max_size=3), st.lists(DATA, max_size=4), st.sampled_from(NAMES))
def test_a_document_that_is_written_piece_by_piece_is_read_as_one(head: Any, items: Any, name: str) -> None:
    rows = [Row(text for text in map(str, items))]
    lists = {"items": iter(items), "rows": [{"row": each} for each in rows], "none": []}
    with pytest.MonkeyPatch.context() as patch:
        # Few enough that a list takes several pieces.
        patch.setattr(text_module, "_VALUES_IN_A_PIECE", 2)
        text = "".join(format_pieces({f"head {field}": value for field, value in head.items()}, lists, name))
    expected = {f"head {field}": value for field, value in head.items()}
    assert read(text, name) == {**expected, "items": items, "rows": [{"row": rows[0]}], "none": []}


# What readers of YAML 1.1 take for something else than those of YAML 1.2 do, and what both take for no text.
OTHERWISE = ["yes", "off", "No", "12:30", "2026-01-01", "1_000", "<<", "0b11", "y", "=", "190:20:30"]
NO_TEXTS = ["True", "NULL", "0x1F", "0o17", "010", "+1", ".5", "5.", "1e5", "+1e5", ".inf", "-.INF", ".NaN", "~", ""]


@pytest.mark.req("KIT-17")
@given(
    ids() | st.sampled_from([*OTHERWISE, *NO_TEXTS, "\u2028", "a\x85b", "\ue0000\ue000", "a, b", "[x]", "# x", "- x"])
)
def test_a_text_is_written_so_that_readers_of_yaml_1_1_and_of_1_2_read_it_alike(text: str) -> None:
    for data in (text, {text: text}, [text], {"row": Row([text, text])}):
        written = format_document(data, "d.yaml")
        assert read(written) == data == yaml.safe_load(written)
        plain = [each for each in yaml.parse(written) if isinstance(each, yaml.ScalarEvent) and each.implicit[0]]
        assert all(classify_plain(each.value) is ScalarKind.TEXT for each in plain)


@pytest.mark.req("KIT-17")
def test_a_plain_word_is_what_the_core_schema_of_yaml_1_2_takes_it_for() -> None:
    assert read(f"[{', '.join(OTHERWISE)}]") == OTHERWISE
    assert read("[True, FALSE, Null, NULL]") == [True, False, None, None]
    for word in ("0x1F", "0o17", "010", "+1", ".5", "5.", ".inf", "-.INF", ".NaN"):
        assert refuse(f"- {word}") == "1:3 bad-number"
        assert read(f"- '{word}'") == [word]


@pytest.mark.req("KIT-17")
@for_each(
    ("text", "expected"),
    [
        ("%YAML 1.1\n---\na: no\n", "1:1 syntax"),
        ("a: b\x85c\n", "1:5 syntax"),
        ("a: b\u2028c\n", "1:5 syntax"),
        ("a: b\u2029c\n", "1:5 syntax"),
    ],
)
def test_what_yaml_1_2_would_read_otherwise_is_refused(text: str, expected: str) -> None:
    assert refuse(text) == expected
    assert read("%YAML 1.2\n---\na: no\n") == {"a": "no"}


def test_scalars_are_read() -> None:
    assert read("[true, false, null, ~, -0.5, 1e2, ]") == [True, False, None, None, -0.5, 100]
    assert read('a: &x "1"\nb: *x\nc: !!str 1\nd: ! 2\ne:\n') == {"a": "1", "b": "1", "c": "1", "d": "2", "e": None}
    assert read(r'["\ud83d\ude00\/", "\t"]', "d.json") == ["\U0001f600/", "\t"]
    assert read("just text") == "just text"


@for_each(("name", "text"), [("d", "a: 1"), ("d.JSON", "[1]"), ("d.txt", ' {"a": 1}'), ("d.yml", "{a: 1}")])
def test_the_ending_says_which_language_and_a_brace_where_it_does_not(name: str, text: str) -> None:
    assert read(b"\xef\xbb\xbf" + text.encode(), name) in ({"a": 1}, [1])


def test_every_value_has_its_place() -> None:
    texts = {"d.yaml": "a:\n  - b\n  - {c: d}\n", "d.json": '{"a":\n\t["b",\n{"c": "d"}]}'}
    paths: list[Path] = [(), ("a",), ("a", 1, "c"), ("a", 1, "absent"), ("a", 9), ("a", "b")]
    places = {
        name: [find_place(read_document(text.encode(), name), path) for path in paths] for name, text in texts.items()
    }
    assert places["d.yaml"] == [Place(1, 1), Place(2, 3), Place(3, 9), Place(3, 5), Place(2, 3), Place(2, 3)]
    assert places["d.json"] == [Place(1, 1), Place(2, 2), Place(3, 7), Place(3, 1), Place(2, 2), Place(2, 2)]


@pytest.mark.req("KIT-03")
@for_each(
    ("text", "expected"),
    [
        ("", "1:1 syntax"),
        ("# nothing\n", "1:1 syntax"),
        ("id: [\n", "2:1 syntax"),
        ("a: b: c\n", "1:5 syntax"),
        ("id: k\n---\nid: j\n", "2:1 syntax"),
        ("? {a: b}\n: c\n", "1:3 wrong-type"),
        ("a:\n  1: x\n", "2:3 wrong-type"),
        ("a: 1\na: 2\n", "2:1 duplicate-field"),
        ("a: *b\n", "1:4 alias"),
        ("a: &b [*b]\n", "1:8 alias"),
        ("a: !!python/name:os.system x\n", "1:4 tag"),
        ("a: !!set {b, c}\n", "1:4 tag"),
        ("a: ! [b]\n", "1:4 tag"),
        ("a: !!int 3\n", "1:4 tag"),
        ("a: 12345678901234567890\n", "1:4 bad-number"),
        (b"id: \xff\n", "1:5 not-unicode"),
        (b"\xff\xfei\0d\0", "1:1 not-unicode"),
        (b"id: k\nx: \x00\n", "2:4 syntax"),
        ("id: \u00e9\U0001f600\n\u00e9: \x07\n", "2:4 syntax"),
        ("id: \ufeff\n", "1:5 syntax"),
        (b" " * (MAX_BYTES + 1), "too-large"),
    ],
)
def test_what_is_no_yaml_is_refused_where_it_is_wrong(text: str | bytes, expected: str) -> None:
    assert refuse(text) == expected


@pytest.mark.req("KIT-03")
@for_each(
    ("text", "expected"),
    [
        ("", "1:1 syntax"),
        ("{\n 'id': 1}", "2:2 syntax"),
        ('{"id" 1}', "1:7 syntax"),
        ('{"id": NaN}', "1:8 syntax"),
        ("[-Infinity]", "1:2 syntax"),
        ('{"id": "k" "v": 1}', "1:12 syntax"),
        ('{"id": [1 2]}', "1:11 syntax"),
        ('{"id": "k"} x', "1:13 syntax"),
        ('{"id": "a\nb"}', "1:10 syntax"),
        ('{"id": "a', "1:8 syntax"),
        ('{"a": 1, "a": 2}', "1:10 duplicate-field"),
        ('{"a": 1, "\\u0061": 2}', "1:10 duplicate-field"),
        ('[\n"\\ud800"]', "2:1 not-unicode"),
        (f"[{'1' * 5000}]", "1:2 bad-number"),
    ],
)
def test_what_is_no_json_is_refused_where_it_is_wrong(text: str, expected: str) -> None:
    assert refuse(text, "d.json") == expected


@pytest.mark.req("KIT-03")
@for_each(("begin", "end"), [("[", "]"), ('{"a":', "}"), ("- ", "")])
@for_each("name", NAMES)
def test_a_text_nested_ten_thousand_deep_is_refused(begin: str, end: str, name: str) -> None:
    if begin == "- " and name == "d.json":
        assert refuse(begin * 10_000, name) == "1:1 syntax"
    else:
        text = f"{begin * 10_000}1{end * 10_000}"
        assert refuse(text, name) == f"1:{1 + MAX_DEPTH * len(begin)} too-deep"


@pytest.mark.req("KIT-03")
def test_aliases_of_aliases_count_for_what_they_stand_for() -> None:
    lines = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 11))
    assert refuse("a0: &a0 [x]\n" + "".join(lines)).startswith("7:")


def test_a_document_has_so_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_VALUES", 4)
    assert read("[1, 2, 3]") == [1, 2, 3]
    assert [refuse("[1, 2, 3, 4]", name) for name in NAMES] == ["1:11 too-large"] * 2


@given(
    st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(NAMES),
)
def test_any_bytes_are_read_or_refused(data: bytes, name: str) -> None:
    findings: tuple[Finding, ...] = ()
    try:
        read(data, name)
    except InvalidDocument as refusal:
        findings = refusal.findings
    assert all(finding.message for finding in findings)


def test_without_pyyaml_json_is_read_and_yaml_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "cmbs.documents.yaml_text")
    monkeypatch.delattr("cmbs.documents.yaml_text")
    assert read(format_document({"a": 1}, "d.json"), "d.json") == {"a": 1}
    with pytest.raises(InvalidRequest, match=r"YAML needs PyYAML: install it with `pip install 'cmbs\[kits\]'`"):
        read("a: 1")


def test_what_a_finding_repeats_is_short() -> None:
    with pytest.raises(InvalidDocument) as caught:
        read(json.dumps({"n" * 1_000: 1})[:-1] + f', "{"n" * 1_000}": 2}}', "d.json")
    assert len(str(caught.value)) < 100
