"""The published JSON Schema is current, and agrees with the loader about everything that a schema can say."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from cmbs.kit import Kit
from cmbs.kit.parse import InvalidKitFile, parse_kit
from cmbs.kit.schema import kit_schema
from cmbs.kit.writing import format_kit
from cmbs.testing.strategies.kits import kits
from scripts.generate_kit_schema import TARGETS, schema_text
from tests.support.subtests import for_each

SCHEMA = jsonschema_rs.validator_for(kit_schema())
OUTCOMES = [{"id": "x", "eliminates": ["a"]}, {"id": "y", "keeps": ["a"]}]
GOOD: dict[str, Any] = {
    "format": 1,
    "id": "k",
    "version": "1",
    "title": "",
    "description": "",
    "source": "",
    "soundness": "sound",
    "hypotheses": ["a", {"id": "b", "label": "", "prior": 0.5, "tags": ["t"]}],
    "probes": [
        {"id": "p", "prompt": "", "soundness": "heuristic", "outcomes": OUTCOMES},
        {
            "id": "q",
            "reading": {"normal": "x", "abnormal": "y", "median": 1, "mad": 1, "tail": "low"},
            "window": {"reduction": "k-of-n", "k": 1, "n": 2, "counts": "y"},
            "outcomes": OUTCOMES,
        },
        {
            "id": "r",
            "reading": {"normal": "x", "abnormal": "y", "samples": [1, 2, 4], "threshold": 2},
            "outcomes": OUTCOMES,
        },
        {"id": "s", "reading": {"cuts": [1], "outcomes": ["x", "y"]}, "outcomes": OUTCOMES},
    ],
}


ABSENT = object()


def change(path: list[str | int], value: Any = ABSENT) -> dict[str, Any]:
    """The good kit with one value changed, or left out."""
    data: dict[str, Any] = json.loads(json.dumps(GOOD))
    parent: Any = data
    for step in path[:-1]:
        parent = parent[step]
    if value is ABSENT:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return data


@pytest.mark.req("KIT-13")
@pytest.mark.parametrize("target", TARGETS, ids=["api", "package"])
def test_the_published_schema_is_what_the_code_generates(target: Any) -> None:
    assert target.read_text("utf-8") == schema_text()


@pytest.mark.req("KIT-13")
def test_the_schema_is_a_schema() -> None:
    assert jsonschema_rs.meta.is_valid(kit_schema())


@pytest.mark.req("KIT-13")
@given(kits())
def test_every_kit_that_is_written_is_valid(kit: Kit) -> None:
    assert list(SCHEMA.iter_errors(json.loads(format_kit(kit, "k.json")))) == []


def test_a_kit_with_every_field_is_valid_and_is_read() -> None:
    assert SCHEMA.is_valid(GOOD)
    assert len(parse_kit(json.dumps(GOOD).encode(), "k.json").kit.probes) == 4


@pytest.mark.req("KIT-13")
@for_each(
    "data",
    [
        [],
        change(["id"]),
        change(["version"]),
        change(["hypotheses"]),
        change(["probes"]),
        change(["probes", 0, "outcomes"]),
        change(["probes", 0, "outcomes", 0, "eliminates"]),
        change(["probes", 1, "reading", "mad"]),
        change(["probes", 3, "reading", "outcomes"]),
        change(["format"], 2),
        change(["id"], 1),
        change(["id"], "a" * 1025),
        change(["title"], True),
        change(["soundness"], "certain"),
        change(["extra"], 1),
        change(["hypotheses"], []),
        change(["hypotheses", 0], None),
        change(["hypotheses", 1, "prior"], 0),
        change(["hypotheses", 1, "tags"], ["t", "t"]),
        change(["hypotheses", 1, "name"], "b"),
        change(["probes", 0, "outcomes"], []),
        change(["probes", 0, "outcomes", 0, "id"], "no-data"),
        change(["probes", 0, "outcomes", 0, "id"], False),
        change(["probes", 0, "outcomes", 0, "eliminates"], ["a", "a"]),
        change(["probes", 0, "outcomes", 0, "eliminates"], "a"),
        change(["probes", 1, "reading", "mad"], 0),
        change(["probes", 1, "reading", "constant"], "normal"),
        change(["probes", 1, "window", "reduction"]),
        change(["probes", 1, "window", "reduction"], "most"),
        change(["probes", 1, "window", "k"], 0),
        change(["probes", 1, "window", "n"], 1.5),
        change(["probes", 1, "reading", "tail"], "up"),
        change(["probes", 1, "reading", "cuts"], [1]),
        change(["probes", 2, "reading", "threshold"], -1),
        change(["probes", 2, "reading", "samples"], ["1"]),
        change(["probes", 3, "reading", "cuts"], []),
    ],
    ids=range(36),
)
def test_what_the_schema_refuses_the_loader_refuses(data: Any) -> None:
    assert not SCHEMA.is_valid(data)
    with pytest.raises(InvalidKitFile):
        parse_kit(json.dumps(data).encode(), "k.json")
