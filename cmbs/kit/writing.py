"""A kit as the data of a kit file: what `parse` reads back as the same kit."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from typing import Any, assert_never

from cmbs.documents.nodes import Row
from cmbs.documents.text import format_document, format_json
from cmbs.kit.model import CutPoints, Kit, KitHypothesis, KitOutcome, KitProbe, NormalBand, Reading, Soundness
from cmbs.kit.parse import FORMAT


def kit_data(kit: Kit) -> dict[str, Any]:
    """The kit as JSON-able data: the most frequent soundness once, and the shorter of `eliminates` and `keeps`."""
    counted = Counter(outcome.soundness for probe in kit.probes for outcome in probe.outcomes)
    usual = max(counted, key=lambda each: (counted[each], each), default=None)
    data: dict[str, Any] = {"format": FORMAT, "id": kit.kit_id, "version": kit.version}
    data |= {
        name: text
        for name, text in (("title", kit.title), ("description", kit.description), ("source", kit.source))
        if text
    }
    if usual is not None:
        data["soundness"] = usual.value
    data["hypotheses"] = [_hypothesis(each) for each in kit.hypotheses]
    data["probes"] = [_probe(kit, each, usual) for each in kit.probes]
    return data


def format_kit(kit: Kit, name: str) -> str:
    """The kit as a text that `parse_kit` reads under that name: JSON for `.json`, YAML for any other ending."""
    return format_document(kit_data(kit), name)


def content_version(kit: Kit) -> str:
    """A version that follows from everything else in the kit: another content is another version."""
    digest = hashlib.sha256(format_json(kit_data(replace(kit, version=""))).encode()).hexdigest()
    return f"sha256-{digest[:16]}"


def _hypothesis(hypothesis: KitHypothesis) -> str | dict[str, Any]:
    data: dict[str, Any] = {"id": hypothesis.id}
    if hypothesis.label:
        data["label"] = hypothesis.label
    if hypothesis.prior != 1.0:
        data["prior"] = hypothesis.prior
    if hypothesis.tags:
        data["tags"] = Row(hypothesis.tags)
    return data if len(data) > 1 else hypothesis.id


def _probe(kit: Kit, probe: KitProbe, usual: Soundness | None) -> dict[str, Any]:
    data: dict[str, Any] = {"id": probe.probe_id}
    if probe.prompt:
        data["prompt"] = probe.prompt
    if probe.reading is not None:
        data["reading"] = _reading(probe.reading)
    data["outcomes"] = [_outcome(kit, each, usual) for each in probe.outcomes]
    return data


def _outcome(kit: Kit, outcome: KitOutcome, usual: Soundness | None) -> dict[str, Any]:
    data: dict[str, Any] = {"id": outcome.outcome_id}
    if outcome.label:
        data["label"] = outcome.label
    if outcome.soundness is not usual:
        data["soundness"] = outcome.soundness.value
    if 2 * len(outcome.eliminates) <= len(kit.hypotheses):
        data["eliminates"] = Row(each.id for each in kit.hypotheses if each.id in outcome.eliminates)
    else:
        data["keeps"] = Row(each.id for each in kit.hypotheses if each.id not in outcome.eliminates)
    return data


def _reading(reading: Reading) -> dict[str, Any]:
    match reading:
        case NormalBand():
            return {
                "normal": reading.normal,
                "abnormal": reading.abnormal,
                "median": reading.median,
                "mad": reading.mad,
                "threshold": reading.threshold,
                "tail": reading.tail.value,
            }
        case CutPoints():
            return {"cuts": list(reading.cuts), "outcomes": Row(reading.outcomes)}
        case _:
            assert_never(reading)
