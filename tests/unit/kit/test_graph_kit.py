"""Kits over a causal graph as documents."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import pytest
from jsonschema_rs import validator_for

from cmbs.documents.findings import InvalidDocument
from cmbs.errors import InvalidKit
from cmbs.kit.graph_kit import EVERY_KIND, Effect, GraphKit, GraphOutcome, NodeKind
from cmbs.kit.model import CutPoints, Kit, Reduction, Soundness, Window
from cmbs.kit.parse import InvalidKitFile, parse_kit
from cmbs.kit.parse_graph import parse_kit_document
from cmbs.kit.responses import outcome_for
from cmbs.kit.schema import kit_schema
from cmbs.tee.kernel.lattice import NodeType
from tests.support.subtests import for_each

KIT: dict[str, Any] = {
    "id": "components",
    "version": "1",
    "title": "Which component broke",
    "soundness": "closed-world",
    "graph": {"hypotheses": ["SERVICE"], "assumption": "a healthy component does not pass a fault on"},
    "probes": [
        {
            "id": "errors",
            "prompt": "What share of the answers of {component} are errors?",
            "components": ["SERVICE", "DEPENDENCY"],
            "reading": {"cuts": [0.01], "outcomes": ["healthy", "unhealthy"]},
            "window": {"reduction": "any", "counts": "unhealthy"},
            "outcomes": [
                {"id": "healthy", "label": "all is well", "eliminates": "through"},
                {"id": "unhealthy", "eliminates": "nothing", "soundness": "sound"},
            ],
        }
    ],
}


def parse(text: Any) -> Any:
    content = dedent(text).encode() if isinstance(text, str) else json.dumps(text).encode()
    return parse_kit_document(content, "kit.yaml" if isinstance(text, str) else "kit.json").kit


def refuse(**changes: Any) -> list[str]:
    """The rules that the kit breaks after changes to its fields, to those of its graph and of its probe."""
    kit = {name: changes.get(name, value) for name, value in KIT.items()}
    kit["graph"] = changes.get("whole_graph", {**KIT["graph"], **changes.get("of_graph", {})})
    kit["probes"] = changes.get("probes", [{**KIT["probes"][0], **changes.get("of_probe", {})}])
    kit = {name: value for name, value in kit.items() if value is not None}
    with pytest.raises(InvalidKitFile) as caught:
        parse(kit)
    return [each.rule for each in caught.value.findings]


@pytest.mark.req("GRAPH-KIT-02")
def test_a_kit_over_a_graph_is_read_whole() -> None:
    kit = parse(KIT)
    assert isinstance(kit, GraphKit)
    assert (kit.hypotheses, kit.assumption) == (
        frozenset({NodeKind.SERVICE}),
        "a healthy component does not pass a fault on",
    )
    (probe,) = kit.probes
    assert probe.components == {NodeKind.SERVICE, NodeKind.DEPENDENCY}
    assert probe.outcomes == (
        GraphOutcome("healthy", Effect.THROUGH, Soundness.CLOSED_WORLD, "all is well"),
        GraphOutcome("unhealthy", Effect.NOTHING, Soundness.SOUND),
    )
    assert (probe.reading, probe.window) == (
        CutPoints((0.01,), ("healthy", "unhealthy")),
        Window(Reduction.ANY, counts="unhealthy"),
    )
    assert (probe.outcome("healthy"), probe.outcome("ill")) == (probe.outcomes[0], None)


@pytest.mark.req("GRAPH-KIT-02")
def test_without_types_every_node_may_be_the_cause_and_be_asked() -> None:
    kit = parse(
        """
        id: k
        version: "1"
        graph: {assumption: none}
        probes:
          - id: health
            outcomes:
              - {id: ok, eliminates: through, soundness: heuristic}
              - {id: bad, eliminates: nothing}
        """
    )
    assert (kit.hypotheses, kit.probes[0].components) == (EVERY_KIND, EVERY_KIND)


@pytest.mark.req("GRAPH-KIT-02")
def test_a_probe_is_asked_of_a_component() -> None:
    kit = parse(KIT)
    named = kit.find_probe("errors:db:replica")
    assert named is not None
    probe, component = named
    assert component == "db:replica"
    expanded = probe.expand(component, frozenset({"db:replica", "disk"}))
    assert (expanded.probe_id, expanded.prompt) == (
        "errors:db:replica",
        "What share of the answers of db:replica are errors?",
    )
    read = outcome_for(expanded, [0.001, 0.0])
    assert read is not None
    assert (read.outcome_id, read.eliminates) == ("healthy", frozenset({"db:replica", "disk"}))
    assert outcome_for(expanded, [0.5]) == expanded.outcome("unhealthy")
    assert [kit.find_probe(each) for each in ("errors", "errors:", "load:db")] == [None, None, None]


@pytest.mark.req("GRAPH-KIT-02")
@for_each(
    ("changes", "rules"),
    [
        ({"whole_graph": ["SERVICE"]}, ["wrong-type"]),
        ({"whole_graph": {}}, ["missing-field"]),
        ({"of_graph": {"assumption": " "}}, ["missing-field"]),
        ({"of_graph": {"hypotheses": []}}, ["missing-field"]),
        ({"of_graph": {"hypotheses": ["service"]}}, ["unknown-word"]),
        ({"of_graph": {"hypothesis": ["SERVICE"]}}, ["unknown-field"]),
        ({"id": None}, ["missing-field"]),
        ({"soundness": None}, ["no-soundness"]),
        ({"probes": ["health"]}, ["wrong-type"]),
        ({"probes": KIT["probes"] * 2}, ["duplicate-id"]),
        ({"of_probe": {"id": "a:b"}}, ["bad-graph-probe"]),
        ({"of_probe": {"components": ["POD"]}}, ["unknown-word"]),
        ({"of_probe": {"outcomes": []}}, ["missing-field"]),
        ({"of_probe": {"outcomes": ["healthy", "unhealthy"]}}, ["wrong-type", "wrong-type"]),
        ({"of_probe": {"reading": {"cuts": [1], "outcomes": ["healthy", "ill"]}}}, ["unknown-outcome"]),
        (
            {"of_probe": {"outcomes": [{"id": "no-data", "eliminates": "all"}, {"id": "b", "keeps": []}]}},
            ["reserved-outcome", "unknown-word", "unknown-field", "missing-field"],
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(changes: dict[str, Any], rules: list[str]) -> None:
    assert sorted(refuse(**changes)) == sorted(rules)


@pytest.mark.req("GRAPH-KIT-02")
@pytest.mark.parametrize("effect", ["through", "nothing"])
def test_a_probe_can_rule_out_and_can_be_answered_otherwise(effect: str) -> None:
    outcomes = [{"id": name, "eliminates": effect} for name in ("a", "b")]
    changes = {"outcomes": outcomes, "reading": None, "window": None}
    probe = {name: value for name, value in (KIT["probes"][0] | changes).items() if value is not None}
    assert refuse(probes=[probe]) == ["bad-graph-probe"]


@pytest.mark.req("GRAPH-KIT-02")
def test_what_needs_a_table_says_that_the_kit_is_over_a_graph() -> None:
    with pytest.raises(InvalidKitFile, match="has its hypotheses from a causal graph"):
        parse_kit(json.dumps(KIT).encode(), "kit.json")
    with pytest.raises(InvalidDocument):
        parse_kit_document(b"{", "kit.json")
    with pytest.raises(InvalidKit, match="hypotheses"):
        parse({"id": "k", "version": "1", "probes": []})
    assert isinstance(parse({"id": "k", "version": "1", "hypotheses": ["a", "b"], "probes": []}), Kit)


@pytest.mark.req("GRAPH-KIT-02")
def test_the_schema_takes_what_is_taken_and_the_types_are_those_of_the_graph() -> None:
    validator = validator_for(kit_schema())
    validator.validate(KIT)
    for wrong in ({**KIT, "hypotheses": ["a"]}, {**KIT, "graph": {}}, {**KIT, "probes": [{"id": "a:b"}]}):
        assert not validator.is_valid(wrong)
    assert [each.value for each in NodeKind] == [each.name for each in NodeType]
