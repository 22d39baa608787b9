"""The JSON Schema of kit files, from the same tables that the parser goes by.

A schema says what has which shape. That ids are known and outcomes do not contradict themselves, only the parser knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from cmbs.documents.fields import MAX_ID_LENGTH, MAX_TEXT_LENGTH
from cmbs.kit import parse, parse_graph
from cmbs.kit.graph_kit import Effect, NodeKind
from cmbs.kit.model import DEFAULT_THRESHOLD, NO_DATA, Constant, Gaps, Reduction, Soundness, Tail
from cmbs.kit.windows import MAX_WINDOW_SAMPLES

_ID = {"type": "string", "maxLength": MAX_ID_LENGTH}
_TEXT = {"type": "string", "maxLength": MAX_TEXT_LENGTH}
_NUMBER = {"type": "number"}
_POSITIVE = {"type": "number", "exclusiveMinimum": 0}
_NOT_NEGATIVE = {"type": "number", "minimum": 0}


def kit_schema() -> dict[str, Any]:
    """The schema, in draft 2020-12."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:cmbs:kit:{parse.FORMAT}",
        "title": "cmbs kit",
        "description": "A domain: hypotheses, probes, and what each outcome of a probe rules out.",
        "type": "object",
        "if": {"required": [parse.GRAPH]},
        "then": _ref("graphKit"),
        "else": _ref("kit"),
        "$defs": {
            "kit": _fields(parse.KIT_FIELDS, _kit()),
            "graphKit": _fields(parse_graph.GRAPH_KIT_FIELDS, _graph_kit()),
            "graph": _fields(parse_graph.GRAPH_FIELDS, _graph()),
            "graphProbe": _fields(parse_graph.GRAPH_PROBE_FIELDS, _graph_probe()),
            "graphOutcome": _fields(parse_graph.GRAPH_OUTCOME_FIELDS, _graph_outcome()),
            "nodeKinds": _list_of({"enum": [each.value for each in NodeKind]}, 100, "Types of nodes.")
            | {"minItems": 1},
            "ids": _list_of(_ID, parse.MAX_HYPOTHESES, "Ids of hypotheses.") | {"uniqueItems": True},
            "soundness": _words(Soundness, "What has to be true for an elimination never to hit the truth."),
            "hypothesis": _fields(parse.HYPOTHESIS_FIELDS, _hypothesis()),
            "probe": _fields(parse.PROBE_FIELDS, _probe()),
            "outcome": _fields(parse.OUTCOME_FIELDS, _outcome())
            | {"anyOf": [{"required": ["eliminates"]}, {"required": ["keeps"]}]},
            "baseline": _fields(parse.BASELINE_FIELDS, _band() | {"median": _NUMBER, "mad": _NOT_NEGATIVE})
            | {"anyOf": [{"properties": {"mad": _POSITIVE}}, {"required": ["constant"]}]},
            "sampledBaseline": _fields(
                parse.SAMPLED_FIELDS, _band() | {"samples": _list_of(_NUMBER, parse.MAX_SAMPLES, "What was measured.")}
            ),
            "cutPoints": _fields(parse.CUTS_FIELDS, _cuts()),
            "window": _fields(parse.WINDOW_FIELDS, _window()),
        },
    }


def _kit() -> dict[str, Any]:
    return {
        "format": {"const": parse.FORMAT, "description": "The version of this format."},
        "id": _ID | {"description": "The name of the hypothesis space."},
        "version": _ID | {"description": "A text; any change of what the kit means is a new one."},
        "title": _TEXT,
        "description": _TEXT,
        "source": _TEXT | {"description": "Where the knowledge is from, and under which licence."},
        "soundness": _ref("soundness", "Of every outcome that does not say."),
        "hypotheses": _list_of(
            {"anyOf": [_ID, _ref("hypothesis")]}, parse.MAX_HYPOTHESES, "What may be true; a text is just the id."
        )
        | {"minItems": 1},
        "probes": _list_of(_ref("probe"), parse.MAX_PROBES, "What can be found out."),
    }


def _graph_kit() -> dict[str, Any]:
    probes = _list_of(_ref("graphProbe"), parse_graph.MAX_GRAPH_PROBES, "What can be asked of each component.")
    shared = {name: rule for name, rule in _kit().items() if name != "hypotheses"}
    return shared | {"probes": probes, parse.GRAPH: _ref("graph", "Where the hypotheses come from.")}


def _graph() -> dict[str, Any]:
    return {
        "hypotheses": _ref("nodeKinds", "The types of nodes that may be the cause; all of them, if not said."),
        "assumption": _TEXT | {"minLength": 1, "description": "What has to be true for an elimination to be right."},
    }


def _graph_probe() -> dict[str, Any]:
    outcomes = _list_of(_ref("graphOutcome"), parse.MAX_OUTCOMES, "What the answer may be.") | {"minItems": 2}
    return _probe() | {
        "id": _ID | {"pattern": "^[^:]*$", "description": "The probe of one component is `id:component`."},
        "prompt": _TEXT | {"description": "The question; `{component}` stands for the component."},
        "components": _ref("nodeKinds", "The types of nodes that it can be asked of; all of them, if not said."),
        "outcomes": outcomes,
    }


def _graph_outcome() -> dict[str, Any]:
    shared = {name: rule for name, rule in _outcome().items() if name != "keeps"}
    word = _words(Effect, "`through`: the component, and what reaches no symptom but through it; or `nothing`.")
    return shared | {"eliminates": word}


def _hypothesis() -> dict[str, Any]:
    return {
        "id": _ID,
        "label": _TEXT | {"description": "What it is called among people."},
        "prior": _POSITIVE | {"default": 1, "description": "A weight, relative to those of the others."},
        "tags": _list_of(_ID, parse.MAX_TAGS, "For selecting among hypotheses.") | {"uniqueItems": True},
        "attributes": {
            "type": "object",
            "description": "Any values by name; a session over the kit declares them, and policies can refer to them.",
            "maxProperties": parse.MAX_ATTRIBUTES,
            "propertyNames": {"minLength": 1, "maxLength": parse.MAX_ATTRIBUTE_NAME_LENGTH},
        },
    }


def _probe() -> dict[str, Any]:
    return {
        "id": _ID,
        "prompt": _TEXT | {"description": "The probe as a question or an instruction."},
        "soundness": _ref("soundness", "Of every outcome of the probe that does not say."),
        "reading": {
            "description": "How a number becomes an outcome.",
            "oneOf": [_ref("baseline"), _ref("sampledBaseline"), _ref("cutPoints")],
        },
        "window": _ref("window", "How a window of samples becomes one verdict."),
        "outcomes": _list_of(_ref("outcome"), parse.MAX_OUTCOMES, "What the answer may be.") | {"minItems": 1},
    }


def _outcome() -> dict[str, Any]:
    return {
        "id": _ID | {"not": {"const": NO_DATA}, "description": "In YAML, true, false and numbers need quotes."},
        "label": _TEXT,
        "eliminates": _ref("ids", "What cannot be true after this answer."),
        "keeps": _ref("ids", "What can; everything else is eliminated."),
        "soundness": _ref("soundness"),
    }


def _band() -> dict[str, Any]:
    return {
        "normal": _ID | {"description": "The outcome of a number within the threshold."},
        "abnormal": _ID | {"description": "The outcome of any other number."},
        "threshold": _POSITIVE
        | {"default": DEFAULT_THRESHOLD, "description": "In robust z-scores: (number - median) / (1.4826 MAD)."},
        "tail": _words(Tail, "Which side is not normal.") | {"default": Tail.BOTH.value},
        "constant": _words(Constant, "What a number means where the MAD is 0; required there."),
    }


def _cuts() -> dict[str, Any]:
    return {
        "cuts": _list_of(_NUMBER, parse.MAX_OUTCOMES, "Rising; a cut belongs to the interval above it.")
        | {"minItems": 1},
        "outcomes": _list_of(_ID, parse.MAX_OUTCOMES, "One more than there are cuts, from the lowest interval up.")
        | {"minItems": 2},
    }


def _window() -> dict[str, Any]:
    count = {"type": "integer", "minimum": 1, "maximum": MAX_WINDOW_SAMPLES}
    return {
        "reduction": _words(Reduction, "One counted sample, the mean of all, or at least k counted samples."),
        "k": count | {"description": "For k-of-n: how many samples must read as the counted outcome."},
        "n": count | {"description": "How many samples a window has; any number, if not said."},
        "counts": _ID | {"description": "The outcome that samples are counted for; by default the abnormal one."},
        "gaps": _words(Gaps, "What a sample that was not measured (null) means; by default the window is refused."),
    }


def _fields(known: Mapping[str, bool], properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [name for name, required in known.items() if required],
        "properties": {name: properties[name] for name in known},
    }


def _list_of(item: Mapping[str, Any], limit: int, description: str) -> dict[str, Any]:
    return {"type": "array", "description": description, "maxItems": limit, "items": item}


def _words(words: type[StrEnum], description: str) -> dict[str, Any]:
    return {"description": description, "enum": [each.value for each in words]}


def _ref(name: str, description: str = "") -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"} | ({"description": description} if description else {})
