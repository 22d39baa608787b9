"""From a document to a kit: every field where it belongs, every id known, and each finding with its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cmbs.errors import InvalidKit
from cmbs.kit.baseline import baseline_of
from cmbs.kit.document import Fields, Items, Node
from cmbs.kit.findings import Finding, InvalidKitFile, Path, Place, Rule, Severity, listed
from cmbs.kit.form import MAX_FINDINGS, Form, TooManyFindings, said
from cmbs.kit.model import (
    DEFAULT_THRESHOLD,
    NO_DATA,
    CutPoints,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    NormalBand,
    Reading,
    Soundness,
    Tail,
)
from cmbs.kit.rules import findings_of

FORMAT = 1
MAX_HYPOTHESES = 100_000
MAX_PROBES = 10_000
MAX_OUTCOMES = 1_000
MAX_TAGS = 100
MAX_SAMPLES = 100_000
# Ids over all outcomes, each of which a kit holds in memory.
MAX_ELIMINATIONS = 5_000_000

# Which fields there are, and whether they must be.
KIT_FIELDS = {
    "format": False,
    "id": True,
    "version": True,
    "title": False,
    "description": False,
    "source": False,
    "soundness": False,
    "hypotheses": True,
    "probes": True,
}
HYPOTHESIS_FIELDS = {"id": True, "label": False, "prior": False, "tags": False}
PROBE_FIELDS = {"id": True, "prompt": False, "soundness": False, "reading": False, "outcomes": True}
OUTCOME_FIELDS = {"id": True, "label": False, "eliminates": False, "keeps": False, "soundness": False}
BASELINE_FIELDS = {"normal": True, "abnormal": True, "median": True, "mad": True, "threshold": False, "tail": False}
SAMPLED_FIELDS = {"normal": True, "abnormal": True, "samples": True, "threshold": False, "tail": False}
CUTS_FIELDS = {"cuts": True, "outcomes": True}


@dataclass(frozen=True, slots=True)
class ParsedKit:
    """A kit that may be used, and the warnings about it."""

    kit: Kit
    warnings: tuple[Finding, ...]


def parse_document(document: Node, name: str) -> ParsedKit:
    """The kit in a document; `InvalidKitFile` has everything that is wrong."""
    parser = _Parser()
    try:
        kit = parser.kit(document)
    except TooManyFindings:
        kit = None
    if kit is None:
        raise InvalidKitFile(name, in_order(parser.form.findings))
    found = [replace(each, place=parser.place(each.path)) for each in findings_of(kit)]
    errors = [each for each in found if each.severity is Severity.ERROR]
    if errors:
        raise InvalidKitFile(name, in_order(errors)[:MAX_FINDINGS])
    return ParsedKit(kit, tuple(in_order(found)))


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings as a reader of the text meets them."""
    return sorted(findings, key=lambda each: (each.place.line, each.place.column) if each.place else (0, 0))


class _Parser:
    def __init__(self) -> None:
        self.form = Form()
        self._hypothesis_ids: frozenset[str] = frozenset()
        self._eliminations = 0

    def place(self, path: Path) -> Place | None:
        return self.form.places.get(path)

    def kit(self, document: Node) -> Kit | None:
        form = self.form
        fields = form.fields(document, (), KIT_FIELDS)
        if fields is None:
            return None
        self._format(fields.get("format"))
        texts = {name: form.text(fields.get(name), (name,)) or "" for name in ("title", "description", "source")}
        kit_id = form.id(fields["id"], ("id",))
        version = form.id(fields["version"], ("version",))
        soundness = form.word(fields.get("soundness"), ("soundness",), Soundness)
        hypotheses = self._hypotheses(fields["hypotheses"])
        probes = self._probes(fields["probes"], soundness)
        if form.findings or kit_id is None or version is None:
            return None
        return Kit(kit_id, version, texts["title"], hypotheses, probes, texts["description"], texts["source"])

    def _format(self, node: Node | None) -> None:
        number = self.form.number(node, ("format",))
        if node is not None and number is not None and number != FORMAT:
            self.form.refuse(
                Rule.UNKNOWN_WORD,
                f"`format` {number:g} is not known here; this reads {FORMAT}",
                ("format",),
                node.place,
            )

    def _hypotheses(self, node: Node) -> tuple[KitHypothesis, ...]:
        found: dict[str, KitHypothesis] = {}
        for path, item in self.form.items(node, ("hypotheses",), MAX_HYPOTHESES):
            hypothesis = self._hypothesis(item, path)
            if hypothesis is None:
                continue
            if hypothesis.id in found:
                self._twice(f"hypothesis `{hypothesis.id}`", path, item)
            found.setdefault(hypothesis.id, hypothesis)
        if isinstance(node, Items) and not node.items:
            self.form.refuse(
                Rule.MISSING_FIELD, "`hypotheses` is empty: a kit has at least one", ("hypotheses",), node.place
            )
        self._hypothesis_ids = frozenset(found)
        return tuple(found.values())

    def _hypothesis(self, node: Node, path: Path) -> KitHypothesis | None:
        form = self.form
        if not isinstance(node, Fields):  # just the id
            form.places[path] = node.place
            hypothesis_id = form.id(node, path)
            return None if hypothesis_id is None else KitHypothesis(hypothesis_id)
        fields = form.fields(node, path, HYPOTHESIS_FIELDS)
        if fields is None:
            return None
        hypothesis_id = form.id(fields["id"], (*path, "id"))
        label = form.text(fields.get("label"), (*path, "label")) or ""
        prior = form.number(fields.get("prior"), (*path, "prior"))
        if prior is not None and prior <= 0:
            form.refuse(
                Rule.BAD_NUMBER,
                f"{said((*path, 'prior'))} must be above 0: a hypothesis that cannot be true is none",
                path,
                fields["prior"].place,
            )
            return None
        tags = self._ids(fields.get("tags"), (*path, "tags"), MAX_TAGS)
        if hypothesis_id is None:
            return None
        return KitHypothesis(hypothesis_id, label, 1.0 if prior is None else prior, tuple(tags))

    def _probes(self, node: Node, soundness: Soundness | None) -> tuple[KitProbe, ...]:
        found: dict[str, KitProbe] = {}
        for path, item in self.form.items(node, ("probes",), MAX_PROBES):
            probe = self._probe(item, path, soundness)
            if probe is None:
                continue
            if probe.probe_id in found:
                self._twice(f"probe `{probe.probe_id}`", path, item)
            found.setdefault(probe.probe_id, probe)
        return tuple(found.values())

    def _probe(self, node: Node, path: Path, inherited: Soundness | None) -> KitProbe | None:
        form = self.form
        fields = form.fields(node, path, PROBE_FIELDS)
        if fields is None:
            return None
        probe_id = form.id(fields["id"], (*path, "id"))
        prompt = form.text(fields.get("prompt"), (*path, "prompt")) or ""
        soundness = form.word(fields.get("soundness"), (*path, "soundness"), Soundness) or inherited
        before = len(form.findings)
        outcomes = self._outcomes(fields["outcomes"], (*path, "outcomes"), soundness)
        # Of outcomes that are not all read, it is not known which there are.
        known = frozenset(outcomes) if len(form.findings) == before else None
        reading = self._reading(fields.get("reading"), (*path, "reading"), known)
        if probe_id is None or not outcomes:
            return None
        return KitProbe(probe_id, prompt, tuple(outcomes.values()), reading)

    def _outcomes(self, node: Node, path: Path, inherited: Soundness | None) -> dict[str, KitOutcome]:
        found: dict[str, KitOutcome] = {}
        for item_path, item in self.form.items(node, path, MAX_OUTCOMES):
            outcome = self._outcome(item, item_path, inherited)
            if outcome is None:
                continue
            if outcome.outcome_id in found:
                self._twice(f"outcome `{outcome.outcome_id}`", item_path, item)
            found.setdefault(outcome.outcome_id, outcome)
        if isinstance(node, Items) and not node.items:
            self.form.refuse(Rule.MISSING_FIELD, f"{said(path)} is empty: a probe has at least one", path, node.place)
        return found

    def _outcome(self, node: Node, path: Path, inherited: Soundness | None) -> KitOutcome | None:
        form = self.form
        fields = form.fields(node, path, OUTCOME_FIELDS)
        if fields is None:
            return None
        outcome_id = form.id(fields["id"], (*path, "id"))
        if outcome_id == NO_DATA:
            form.refuse(
                Rule.RESERVED_OUTCOME,
                f"`{NO_DATA}` is an answer to every probe and eliminates nothing; leave it out",
                path,
                fields["id"].place,
            )
        label = form.text(fields.get("label"), (*path, "label")) or ""
        eliminates = self._eliminates(node, fields, path)
        soundness = form.word(fields.get("soundness"), (*path, "soundness"), Soundness) or inherited
        if soundness is None and eliminates and "soundness" not in fields:
            form.refuse(
                Rule.NO_SOUNDNESS,
                f"{said(path)} eliminates, and nothing says how sound that is: give it, its probe or the kit a "
                f"`soundness` ({', '.join(Soundness)})",
                path,
                node.place,
            )
        if outcome_id is None or outcome_id == NO_DATA:
            return None
        return KitOutcome(outcome_id, eliminates, soundness or Soundness.SOUND, label)

    def _eliminates(self, node: Node, fields: dict[str, Node], path: Path) -> frozenset[str]:
        """What an outcome eliminates: what it says, or all but what it keeps; where both are given, they must agree."""
        gone = self._known(fields.get("eliminates"), (*path, "eliminates"))
        kept = self._known(fields.get("keeps"), (*path, "keeps"))
        match "eliminates" in fields, "keeps" in fields:
            case False, False:
                self.form.refuse(
                    Rule.MISSING_FIELD,
                    f"{said(path)} lacks the field `eliminates` (or `keeps`); one that rules out nothing says "
                    "`eliminates: []`",
                    path,
                    node.place,
                )
            case False, True:
                gone = self._hypothesis_ids - kept
            case True, True:
                self._compare(gone, kept, path, fields["keeps"].place)
            case _:
                pass
        self._eliminations += len(gone)
        if self._eliminations > MAX_ELIMINATIONS:
            self.form.refuse(
                Rule.TOO_LARGE,
                f"the outcomes of a kit eliminate at most {MAX_ELIMINATIONS:,} ids in all",
                path,
                node.place,
            )
            raise TooManyFindings
        return gone

    def _compare(self, gone: frozenset[str], kept: frozenset[str], path: Path, place: Place) -> None:
        both = sorted(gone & kept)
        if both:
            self.form.refuse(
                Rule.ELIMINATES_AND_KEEPS,
                f"{said(path)} contradicts itself: it eliminates and keeps {listed(both)}",
                path,
                place,
            )
        neither = sorted(self._hypothesis_ids - gone - kept)
        if neither:
            self.form.refuse(
                Rule.ELIMINATES_AND_KEEPS,
                f"{said(path)} has both `eliminates` and `keeps`, and neither names {listed(neither)}",
                path,
                place,
            )

    def _known(self, node: Node | None, path: Path) -> frozenset[str]:
        ids = self._ids(node, path, MAX_HYPOTHESES)
        unknown = [each for each in ids if each not in self._hypothesis_ids]
        for each in unknown:
            place = ids[each]
            self.form.refuse(
                Rule.UNKNOWN_HYPOTHESIS, f"{said(path)} names `{each}`, which is no hypothesis", path, place
            )
        return frozenset(ids) & self._hypothesis_ids

    def _ids(self, node: Node | None, path: Path, limit: int) -> dict[str, Place]:
        """Ids in their order, each with its place; one that is there twice is a finding."""
        found: dict[str, Place] = {}
        if node is None:
            return found
        for item_path, item in self.form.items(node, path, limit):
            each = self.form.id(item, item_path)
            if each is None:
                continue
            if each in found:
                self.form.refuse(Rule.NAMED_TWICE, f"{said(path)} names `{each}` twice", path, item.place)
            found[each] = item.place
        return found

    def _reading(self, node: Node | None, path: Path, outcome_ids: frozenset[str] | None) -> Reading | None:
        if node is None:
            return None
        names = {name.text for name, _ in node.entries} if isinstance(node, Fields) else set()
        before = len(self.form.findings)
        try:
            reading = (
                self._cuts(node, path) if "cuts" in names else self._baseline(node, path, sampled="samples" in names)
            )
        except InvalidKit as exc:
            self.form.refuse(Rule.BAD_READING, f"{said(path)}: {exc}", path, node.place)
            return None
        if reading is None or outcome_ids is None or len(self.form.findings) > before:
            return None
        unknown = sorted(reading.outcome_ids() - outcome_ids)
        if unknown:
            self.form.refuse(
                Rule.UNKNOWN_OUTCOME,
                f"{said(path)} names {listed(unknown)}, which the probe has not as outcomes",
                path,
                node.place,
            )
            return None
        return reading

    def _cuts(self, node: Node, path: Path) -> CutPoints | None:
        fields = self.form.fields(node, path, CUTS_FIELDS)
        if fields is None:
            return None
        cuts = self._numbers(fields["cuts"], (*path, "cuts"), MAX_OUTCOMES)
        found = [
            self.form.id(item, item_path)
            for item_path, item in self.form.items(fields["outcomes"], (*path, "outcomes"), MAX_OUTCOMES)
        ]
        outcomes = [each for each in found if each is not None]
        return CutPoints(tuple(cuts), tuple(outcomes)) if cuts is not None and len(outcomes) == len(found) else None

    def _baseline(self, node: Node, path: Path, *, sampled: bool) -> NormalBand | None:
        form = self.form
        fields = form.fields(node, path, SAMPLED_FIELDS if sampled else BASELINE_FIELDS)
        if fields is None:
            return None
        normal = form.id(fields["normal"], (*path, "normal"))
        abnormal = form.id(fields["abnormal"], (*path, "abnormal"))
        tail = form.word(fields.get("tail"), (*path, "tail"), Tail) or Tail.BOTH
        threshold = form.number(fields.get("threshold"), (*path, "threshold"))
        if sampled:
            samples = self._numbers(fields["samples"], (*path, "samples"), MAX_SAMPLES)
            median, mad = (None, None) if samples is None else baseline_of(samples)
        else:
            median = form.number(fields["median"], (*path, "median"))
            mad = form.number(fields["mad"], (*path, "mad"))
        if normal is None or abnormal is None or median is None or mad is None:
            return None
        return NormalBand(normal, abnormal, median, mad, DEFAULT_THRESHOLD if threshold is None else threshold, tail)

    def _numbers(self, node: Node, path: Path, limit: int) -> list[float] | None:
        found = [self.form.number(item, item_path) for item_path, item in self.form.items(node, path, limit)]
        numbers = [each for each in found if each is not None]
        return numbers if len(numbers) == len(found) and isinstance(node, Items) else None

    def _twice(self, what: str, path: Path, node: Node) -> None:
        self.form.refuse(Rule.DUPLICATE_ID, f"{what} is declared twice", path, node.place)
