"""A kit as the data of a kit file: what `parse` reads back as the same kit."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, assert_never

from cmbs.documents.fields import MAX_ID_LENGTH, MAX_SHOWN, MAX_TEXT_LENGTH
from cmbs.documents.findings import MAX_FINDINGS, Finding, Rule
from cmbs.documents.nodes import MAX_VALUES, Row, count_values
from cmbs.documents.text import format_pieces
from cmbs.kit.model import (
    CutPoints,
    Gaps,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    NormalBand,
    Reading,
    Soundness,
    Window,
)
from cmbs.kit.parse import (
    FORMAT,
    MAX_ELIMINATIONS,
    MAX_HYPOTHESES,
    MAX_OUTCOMES,
    MAX_PROBES,
    InvalidKitFile,
)
from cmbs.kit.rules import errors_of

# The names `hypotheses` and `probes`, and the lists themselves.
_VALUES_AROUND_LISTS = 4
# Gives the field of an outcome that names hypotheses, the shorter of the two, and the ids in it.
ListIds = Callable[[KitOutcome], tuple[str, Row]]


def kit_pieces(kit: Kit, name: str) -> Iterator[str]:
    """The kit, piece by piece, as a text that `parse_kit` reads under that name.

    It is JSON for `.json`, YAML for any other ending. It has the most frequent soundness once, and the shorter of
    `eliminates` and `keeps`.
    """
    usual = _usual_soundness(kit)
    ids = [each.id for each in kit.hypotheses]

    def list_ids(outcome: KitOutcome) -> tuple[str, Row]:
        gone = outcome.eliminates
        if 2 * len(gone) <= len(ids):
            return "eliminates", Row([each for each in ids if each in gone])
        return "keeps", Row([each for each in ids if each not in gone])

    lists = {
        "hypotheses": map(_hypothesis, kit.hypotheses),
        "probes": (_probe(each, usual, list_ids) for each in kit.probes),
    }
    return format_pieces(_head(kit, usual), lists, name)


def format_kit(kit: Kit, name: str) -> str:
    """The kit as one text."""
    return "".join(kit_pieces(kit, name))


def content_version(kit: Kit) -> str:
    """A version that follows from everything else in the kit: another content is another version."""
    digest = hashlib.sha256()
    for piece in kit_pieces(replace(kit, version=""), "kit.json"):
        digest.update(piece.encode())
    return f"sha256-{digest.hexdigest()[:16]}"


def check_writable(kit: Kit) -> None:
    """`InvalidKitFile` where the kit breaks a rule, or has more than a kit file can hold; bytes are not counted."""
    errors = errors_of(kit)
    errors += [Finding(Rule.TOO_LARGE, message) for message in _find_excess(kit)]
    if errors:
        raise InvalidKitFile(kit.kit_id[:MAX_SHOWN], errors[:MAX_FINDINGS])


def _find_excess(kit: Kit) -> Iterator[str]:
    outcomes = [outcome for probe in kit.probes for outcome in probe.outcomes]
    ids = [kit.kit_id, kit.version, *(each.id for each in kit.hypotheses), *(each.probe_id for each in kit.probes)]
    ids += [outcome.outcome_id for outcome in outcomes]
    texts = [kit.title, kit.description, kit.source, *(each.label for each in kit.hypotheses)]
    texts += [*(each.prompt for each in kit.probes), *(outcome.label for outcome in outcomes)]
    usual = _usual_soundness(kit)
    values = sum(count_values(_hypothesis(each)) for each in kit.hypotheses)
    values += sum(count_values(_probe(each, usual, _leave_out)) for each in kit.probes)
    values += sum(min(len(each.eliminates), len(kit.hypotheses) - len(each.eliminates)) for each in outcomes)
    for noun, found, maximum in (
        ("hypotheses", len(kit.hypotheses), MAX_HYPOTHESES),
        ("probes", len(kit.probes), MAX_PROBES),
        ("outcomes of a probe", max((len(each.outcomes) for each in kit.probes), default=0), MAX_OUTCOMES),
        ("eliminations", sum(len(each.eliminates) for each in outcomes), MAX_ELIMINATIONS),
        ("characters of an id", max(map(len, ids)), MAX_ID_LENGTH),
        ("characters of a text", max(map(len, texts)), MAX_TEXT_LENGTH),
        ("values", values + count_values(_head(kit, usual)) + _VALUES_AROUND_LISTS, MAX_VALUES),
    ):
        if found > maximum:
            yield f"a kit file has at most {maximum:,} {noun}, and here are {found:,}"


def _usual_soundness(kit: Kit) -> Soundness | None:
    counted = Counter(outcome.soundness for probe in kit.probes for outcome in probe.outcomes)
    return max(counted, key=lambda each: (counted[each], each), default=None)


def _head(kit: Kit, usual: Soundness | None) -> dict[str, Any]:
    texts = {"title": kit.title, "description": kit.description, "source": kit.source}
    data: dict[str, Any] = {"format": FORMAT, "id": kit.kit_id, "version": kit.version}
    data |= {name: text for name, text in texts.items() if text}
    return data if usual is None else data | {"soundness": usual.value}


def _hypothesis(hypothesis: KitHypothesis) -> str | dict[str, Any]:
    data: dict[str, Any] = {"id": hypothesis.id}
    if hypothesis.label:
        data["label"] = hypothesis.label
    if hypothesis.prior != 1.0:
        data["prior"] = hypothesis.prior
    if hypothesis.tags:
        data["tags"] = Row(hypothesis.tags)
    if hypothesis.attributes:
        data["attributes"] = dict(hypothesis.attributes)
    return data if len(data) > 1 else hypothesis.id


def _leave_out(outcome: KitOutcome) -> tuple[str, Row]:  # noqa: ARG001
    return "eliminates", Row()


def _probe(probe: KitProbe, usual: Soundness | None, list_ids: ListIds) -> dict[str, Any]:
    data: dict[str, Any] = {"id": probe.probe_id}
    if probe.prompt:
        data["prompt"] = probe.prompt
    if probe.reading is not None:
        data["reading"] = _reading(probe.reading)
    if probe.window is not None:
        data["window"] = _window(probe.window)
    data["outcomes"] = [_outcome(each, usual, list_ids) for each in probe.outcomes]
    return data


def _outcome(outcome: KitOutcome, usual: Soundness | None, list_ids: ListIds) -> dict[str, Any]:
    data: dict[str, Any] = {"id": outcome.outcome_id}
    if outcome.label:
        data["label"] = outcome.label
    if outcome.soundness is not usual:
        data["soundness"] = outcome.soundness.value
    field, ids = list_ids(outcome)
    data[field] = ids
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
                **({} if reading.constant is None else {"constant": reading.constant.value}),
            }
        case CutPoints():
            return {"cuts": list(reading.cuts), "outcomes": Row(reading.outcomes)}
        case _:
            assert_never(reading)


def _window(window: Window) -> dict[str, Any]:
    data: dict[str, Any] = {"reduction": window.reduction.value, "k": window.k, "n": window.n, "counts": window.counts}
    if window.gaps is not Gaps.REFUSED:
        data["gaps"] = window.gaps.value
    return {name: value for name, value in data.items() if value is not None}
