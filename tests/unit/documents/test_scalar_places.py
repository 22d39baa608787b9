"""Characters of a value are found in the document again, however the value was written."""

import json

import yaml
from hypothesis import given
from hypothesis import strategies as st

from cmbs.documents.findings import Place
from cmbs.documents.nodes import Fields, Scalar
from cmbs.documents.scalar_places import DocumentText
from cmbs.documents.text import read_document
from tests.support.subtests import for_each

# Blanks, quotes, escapes and characters outside of the basic plane are what the styles treat in their own ways.
TEXTS = st.text(st.sampled_from("ab\"'\\ \n\té\U0001f600/&|>#:"), min_size=1, max_size=30).filter(str.strip)


def value_of(text: str, name: str) -> Scalar:
    """The value of `k`."""
    node = read_document(text.encode(), name)
    assert isinstance(node, Fields)
    (value,) = (value for field, value in node.entries if field.text == "k")
    assert isinstance(value, Scalar)
    return value


def find(text: str, name: str, index: int) -> Place:
    """The place of a character of the value of `k`."""
    value = value_of(text, name)
    return DocumentText(text, is_json=name.endswith(".json")).locate(value.place, value.text, index)


@for_each(
    ("text", "wanted"),
    [
        ("k: abc X d", (1, 8)),
        ("k: abc\n   X d", (2, 4)),
        ("k: >\n  abc\n  X d\n", (3, 3)),
        ("k: >-   # why\n  abc\n\n  X d\n", (4, 3)),
        ("k: |2\n  abc\n    X d\n", (3, 5)),
        ("k: |\r\n  abc\r\n  X d\r\n", (3, 3)),
        ('k: "a\\"b\\x20\\u0020\\n X d"', (1, 22)),
        ('k: "abc \\\n  X d"', (2, 3)),
        ("k: 'a''b X d'", (1, 10)),
        ("k: &anchor !!str 'abc X'", (1, 23)),
        ("o: &o abc X d\nk: *o", (1, 11)),
    ],
)
def test_a_character_is_found_in_every_style(text: str, wanted: tuple[int, int]) -> None:
    assert find(text, "d.yaml", value_of(text, "d.yaml").text.index("X")) == Place(*wanted)


def test_escapes_of_json_count_as_the_characters_that_they_stand_for() -> None:
    text = '{\n "k": "a\\ud83d\\ude00\\/\\u00e9\\u2028\\t X"}'
    assert find(text, "d.json", len("a\U0001f600/é\u2028\t ")) == Place(2, 38)


def test_the_end_of_a_value_is_at_its_last_character_and_blanks_are_where_the_next_one_is() -> None:
    assert find("k: ab  c\nm: x", "d.yaml", 5) == Place(1, 8)
    assert find("k: ab  c\nm: x", "d.yaml", 2) == Place(1, 8)
    assert find("k: >", "d.yaml", 0) == Place(1, 4)


@given(TEXTS, st.data())
def test_every_visible_character_is_found_again(value: str, data: st.DataObject) -> None:
    visible = [index for index, each in enumerate(value) if each not in " \t\n\r"]
    index = data.draw(st.sampled_from(visible))
    style = data.draw(st.sampled_from(["json", '"', "'", "|", ">", None]))
    if style == "json":
        text, name = json.dumps({"k": value}, ensure_ascii=data.draw(st.booleans()), indent=1), "d.json"
    else:
        text, name = yaml.dump({"k": value}, default_style=style, allow_unicode=True, width=12), "d.yaml"
    place = find(text, name, index)
    found = text.splitlines(keepends=True)[place.line - 1][place.column - 1 :]
    assert found.startswith((value[index], "\\"))
    assert [find(text, name, each) for each in visible] == sorted(
        {find(text, name, each) for each in visible}, key=lambda each: (each.line, each.column)
    )
