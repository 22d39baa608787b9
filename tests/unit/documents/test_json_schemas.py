"""Schemas of types are the same in every version of Python."""

import msgspec

from cmbs.documents.json_schemas import describe_types


class Inner(msgspec.Struct):
    """First.

    One:
        indented further.
    """

    at: int


class Outer(msgspec.Struct):
    """A line.

    Another one.
    """

    inner: Inner


class Bare(msgspec.Struct):
    at: int


def test_descriptions_are_docstrings_without_the_indentation_of_the_code() -> None:
    schemas, components = describe_types([Outer, Bare], "#/{name}")
    assert [schema["$ref"] for schema in schemas] == ["#/Outer", "#/Bare"]
    assert components["Outer"]["description"] == "A line.\n\nAnother one."
    assert components["Inner"]["description"] == "First.\n\nOne:\n    indented further."
    assert "description" not in components["Bare"]
