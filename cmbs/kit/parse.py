"""From a document to a kit: every field where it belongs, every id known, and each finding with its line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from cmbs.documents.fields import FieldReader, TooManyFindings
from cmbs.documents.findings import (
    MAX_FINDINGS,
    Finding,
    InvalidDocument,
    Path,
    Place,
    Rule,
    Severity,
    list_ids,
    sort_by_place,
)
from cmbs.documents.nodes import Fields, Items, Node, describe_kind, to_data
from cmbs.documents.text import read_document
from cmbs.errors import InvalidKit
from cmbs.kit.baseline import baseline_of
from cmbs.kit.model import (
    DEFAULT_THRESHOLD,
    NO_DATA,
    Constant,
    CutPoints,
    Gaps,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    NormalBand,
    Reading,
    Reduction,
    Soundness,
    Tail,
    Window,
)
from cmbs.kit.rules import KitRule, findings_of
from cmbs.kit.windows import MAX_WINDOW_SAMPLES

FORMAT = 1
MAX_HYPOTHESES = 100_000
MAX_PROBES = 10_000
MAX_OUTCOMES = 1_000
MAX_TAGS = 100
MAX_ATTRIBUTES = 64
MAX_ATTRIBUTE_NAME_LENGTH = 128
MAX_SAMPLES = 100_000
# Ids over all outcomes, each of which a kit holds in memory. A file names the shorter of what an outcome eliminates and
# what it keeps, and so has room for such a kit within its own limit of values, unless most outcomes eliminate half of
# the hypotheses: what makes a kit checks both.
MAX_ELIMINATIONS = 5_000_000

# The field that tells a kit over a causal graph from one that lists its hypotheses.
GRAPH = "graph"
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
HYPOTHESIS_FIELDS = {"id": True, "label": False, "prior": False, "tags": False, "attributes": False}
PROBE_FIELDS = {"id": True, "prompt": False, "soundness": False, "reading": False, "window": False, "outcomes": True}
OUTCOME_FIELDS = {"id": True, "label": False, "eliminates": False, "keeps": False, "soundness": False}
_BAND_FIELDS = {"threshold": False, "tail": False, "constant": False}
BASELINE_FIELDS = {"normal": True, "abnormal": True, "median": True, "mad": True} | _BAND_FIELDS
SAMPLED_FIELDS = {"normal": True, "abnormal": True, "samples": True} | _BAND_FIELDS
CUTS_FIELDS = {"cuts": True, "outcomes": True}
WINDOW_FIELDS = {"reduction": True, "k": False, "n": False, "counts": False, "gaps": False}


Declared = TypeVar("Declared")
Outcome = TypeVar("Outcome")
Read = TypeVar("Read")


class InvalidKitFile(InvalidDocument, InvalidKit):
    """A file that is no kit; every finding names its line, its column and the rule."""


@dataclass(frozen=True, slots=True)
class ParsedKit:
    """A kit that may be used, and the warnings about it."""

    kit: Kit
    warnings: tuple[Finding, ...]


def parse_kit(data: bytes, name: str) -> ParsedKit:
    """The kit in a file of this name, YAML or JSON by its ending; `InvalidKitFile` has everything that is wrong."""
    return parse_kit_node(read_kit_text(data, name), name)


def parse_kit_node(document: Node, name: str) -> ParsedKit:
    """As `parse_kit`, of a document that was read already."""
    reader = KitReader("the kit")
    kit = read_kit_node(reader, reader.read_kit, document, name)
    found = [replace(each, place=reader.places.get(each.path)) for each in findings_of(kit)]
    errors = [each for each in found if each.severity is Severity.ERROR]
    if errors:
        raise InvalidKitFile(name, sort_by_place(errors)[:MAX_FINDINGS])
    return ParsedKit(kit, tuple(sort_by_place(found)))


def read_kit_text(data: bytes, name: str) -> Node:
    """The document in a file; `InvalidKitFile` where it is none."""
    try:
        return read_document(data, name)
    except InvalidDocument as exc:
        raise InvalidKitFile(name, exc.findings) from exc


def read_kit_node(reader: KitReader, read: Callable[[Node], Read | None], document: Node, name: str) -> Read:
    """What a reader makes of a document; `InvalidKitFile` has everything that is wrong."""
    try:
        kit = read(document)
    except TooManyFindings:
        kit = None
    if kit is None:
        raise InvalidKitFile(name, sort_by_place(reader.findings))
    return kit


def find_field(document: Node, name: str) -> Node | None:
    """The value of a field of a document that is a mapping; None where there is none."""
    entries = document.entries if isinstance(document, Fields) else ()
    return next((value for field, value in entries if field.text == name), None)


class KitHead(NamedTuple):
    """What every kit begins with; `soundness` is that of every outcome that does not say."""

    kit_id: str | None
    version: str | None
    title: str
    description: str
    source: str
    soundness: Soundness | None


class ProbeParts(NamedTuple, Generic[Outcome]):
    """What every probe of a kit has."""

    fields: dict[str, Node]
    probe_id: str
    prompt: str
    outcomes: tuple[Outcome, ...]
    reading: Reading | None
    window: Window | None


class KitReader(FieldReader):
    """Reads the parts of kits, and gathers what is wrong with them."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._hypothesis_ids: frozenset[str] = frozenset()
        self._eliminations = 0

    def read_kit(self, document: Node) -> Kit | None:
        """A kit that lists its hypotheses."""
        over_graph = find_field(document, GRAPH)
        if over_graph is not None:
            message = "has its hypotheses from a causal graph, so that only a session over the graph can use it"
            self.refuse_value(Rule.UNKNOWN_FIELD, message, (), over_graph.place)
            return None
        fields = self.read_fields(document, (), KIT_FIELDS)
        if fields is None:
            return None
        head = self.read_head(fields)
        hypotheses = self.read_declared(
            fields["hypotheses"], ("hypotheses",), MAX_HYPOTHESES, self._read_hypothesis, ("hypothesis", "id")
        )
        if isinstance(fields["hypotheses"], Items) and not fields["hypotheses"].items:
            message = "is empty: a kit has at least one"
            self.refuse_value(Rule.MISSING_FIELD, message, ("hypotheses",), fields["hypotheses"].place)
        self._hypothesis_ids = frozenset(hypotheses)
        probes = self.read_declared(
            fields["probes"],
            ("probes",),
            MAX_PROBES,
            lambda node, path: self._read_probe(node, path, head.soundness),
            ("probe", "probe_id"),
        )
        if self.findings or head.kit_id is None or head.version is None:
            return None
        return Kit(
            head.kit_id,
            head.version,
            head.title,
            tuple(hypotheses.values()),
            tuple(probes.values()),
            head.description,
            head.source,
        )

    def read_head(self, fields: dict[str, Node]) -> KitHead:
        """What a kit says of itself."""
        number = self.read_number(fields.get("format"), ("format",))
        if number is not None and number != FORMAT:
            message = f"{number:g} is not known here; this reads {FORMAT}"
            self.refuse_value(Rule.UNKNOWN_WORD, message, ("format",), fields["format"].place)
        texts = {name: self.read_text(fields.get(name), (name,)) or "" for name in ("title", "description", "source")}
        kit_id = self.read_id(fields["id"], ("id",))
        version = self.read_id(fields["version"], ("version",))
        soundness = self.read_word(fields.get("soundness"), ("soundness",), Soundness)
        return KitHead(kit_id, version, texts["title"], texts["description"], texts["source"], soundness)

    def read_declared(
        self,
        node: Node,
        path: Path,
        limit: int,
        read: Callable[[Node, Path], Declared | None],
        names: tuple[str, str],
    ) -> dict[str, Declared]:
        """What a list declares, by id; an id declared twice is a finding. `names` are the noun and its id field."""
        noun, id_field = names
        found: dict[str, Declared] = {}
        for item_path, item in self.read_items(node, path, limit):
            each = read(item, item_path)
            if each is None:
                continue
            each_id: str = getattr(each, id_field)
            if each_id in found:
                self.refuse(KitRule.DUPLICATE_ID, f"{noun} `{each_id}` is declared twice", item_path, item.place)
            found.setdefault(each_id, each)
        return found

    def _read_hypothesis(self, node: Node, path: Path) -> KitHypothesis | None:
        if not isinstance(node, Fields):  # just the id
            self.places[path] = node.place
            hypothesis_id = self.read_id(node, path)
            return None if hypothesis_id is None else KitHypothesis(hypothesis_id)
        fields = self.read_fields(node, path, HYPOTHESIS_FIELDS)
        if fields is None:
            return None
        hypothesis_id = self.read_id(fields["id"], (*path, "id"))
        label = self.read_text(fields.get("label"), (*path, "label")) or ""
        prior = self.read_number(fields.get("prior"), (*path, "prior"))
        if prior is not None and prior <= 0:
            message = "must be above 0: leave out a hypothesis that cannot be true"
            self.refuse_value(Rule.BAD_NUMBER, message, (*path, "prior"), fields["prior"].place)
            return None
        tags = self._read_ids(fields.get("tags"), (*path, "tags"), MAX_TAGS)
        attributes = self._read_attributes(fields.get("attributes"), (*path, "attributes"))
        if hypothesis_id is None:
            return None
        return KitHypothesis(hypothesis_id, label, 1.0 if prior is None else prior, tuple(tags), attributes)

    def _read_attributes(self, node: Node | None, path: Path) -> dict[str, Any]:
        """Names and any values; what is wrong with a name or a number is a finding."""
        if node is None:
            return {}
        if not isinstance(node, Fields):
            message = f"must be a mapping of names and values, and is {describe_kind(node)}"
            self.refuse_value(Rule.WRONG_TYPE, message, path, node.place)
            return {}
        if len(node.entries) > MAX_ATTRIBUTES:
            message = f"has at most {MAX_ATTRIBUTES} names, and here are {len(node.entries)}"
            self.refuse_value(Rule.TOO_LARGE, message, path, node.place)
            return {}
        found: dict[str, Any] = {}
        for name, value in node.entries:
            if not 0 < len(name.text) <= MAX_ATTRIBUTE_NAME_LENGTH:
                message = f"has a name of {len(name.text)} characters; one has 1 to {MAX_ATTRIBUTE_NAME_LENGTH}"
                self.refuse_value(Rule.TOO_LARGE, message, path, name.place)
                continue
            try:
                found[name.text] = to_data(value, "")
            except InvalidDocument as exc:
                for each in exc.findings:
                    self.refuse(each.rule, each.message, (*path, name.text), each.place or value.place)
        return found

    def _read_probe(self, node: Node, path: Path, inherited: Soundness | None) -> KitProbe | None:
        parts = self.read_probe_parts(node, path, PROBE_FIELDS, inherited, self._read_outcome)
        return None if parts is None else KitProbe(*parts[1:])

    def read_probe_parts(
        self,
        node: Node,
        path: Path,
        known_fields: Mapping[str, bool],
        inherited: Soundness | None,
        read_outcome: Callable[[Node, Path, Soundness | None], Outcome | None],
    ) -> ProbeParts[Outcome] | None:
        """The parts of a probe; None where there is no id, or no outcome that could be read."""
        fields = self.read_fields(node, path, known_fields)
        if fields is None:
            return None
        probe_id = self.read_id(fields["id"], (*path, "id"))
        prompt = self.read_text(fields.get("prompt"), (*path, "prompt")) or ""
        soundness = self.read_word(fields.get("soundness"), (*path, "soundness"), Soundness) or inherited
        before = len(self.findings)
        listed, at = fields["outcomes"], (*path, "outcomes")
        outcomes = self.read_declared(
            listed,
            at,
            MAX_OUTCOMES,
            lambda node, path: read_outcome(node, path, soundness),
            ("outcome", "outcome_id"),
        )
        if isinstance(listed, Items) and not listed.items:
            self.refuse_value(Rule.MISSING_FIELD, "is empty: a probe has at least one", at, listed.place)
        # Where an outcome could not be read, it is not known which outcomes there are.
        known = frozenset(outcomes) if len(self.findings) == before else None
        reading = self._read_reading(fields.get("reading"), (*path, "reading"), known)
        window = self._read_window(fields.get("window"), (*path, "window"), fields.get("reading"), reading)
        if probe_id is None or not outcomes:
            return None
        return ProbeParts(fields, probe_id, prompt, tuple(outcomes.values()), reading, window)

    def _read_outcome(self, node: Node, path: Path, inherited: Soundness | None) -> KitOutcome | None:
        fields = self.read_fields(node, path, OUTCOME_FIELDS)
        if fields is None:
            return None
        outcome_id = self.read_outcome_id(fields, path)
        label = self.read_text(fields.get("label"), (*path, "label")) or ""
        eliminates = self._read_eliminates(node, fields, path)
        soundness = self.read_soundness(node, fields, path, inherited, eliminates=bool(eliminates))
        return None if outcome_id is None else KitOutcome(outcome_id, eliminates, soundness, label)

    def read_outcome_id(self, fields: dict[str, Node], path: Path) -> str | None:
        """The id of an outcome; the answer that every probe takes is a finding, and none."""
        outcome_id = self.read_id(fields["id"], (*path, "id"))
        if outcome_id != NO_DATA:
            return outcome_id
        message = f"`{NO_DATA}` is an answer to every probe and eliminates nothing; leave it out"
        self.refuse(KitRule.RESERVED_OUTCOME, message, path, fields["id"].place)
        return None

    def read_soundness(
        self, node: Node, fields: dict[str, Node], path: Path, inherited: Soundness | None, *, eliminates: bool
    ) -> Soundness:
        """How sound an outcome is; it is a finding where one eliminates and nothing says so."""
        soundness = self.read_word(fields.get("soundness"), (*path, "soundness"), Soundness) or inherited
        if soundness is None and eliminates and "soundness" not in fields:
            message = (
                "eliminates, and nothing says how sound that is: give it, its probe or the kit a `soundness` "
                f"({', '.join(Soundness)})"
            )
            self.refuse_value(KitRule.NO_SOUNDNESS, message, path, node.place)
        return soundness or Soundness.SOUND

    def _read_eliminates(self, node: Node, fields: dict[str, Node], path: Path) -> frozenset[str]:
        """What an outcome eliminates: what it says, or all but what it keeps; where both are given, they must agree."""
        gone = self._read_hypothesis_ids(fields.get("eliminates"), (*path, "eliminates"))
        kept = self._read_hypothesis_ids(fields.get("keeps"), (*path, "keeps"))
        if "keeps" in fields and "eliminates" in fields:
            self._compare(gone, kept, path, fields["keeps"].place)
        elif "keeps" in fields:
            gone = self._hypothesis_ids - kept
        elif "eliminates" not in fields:
            message = "lacks the field `eliminates` (or `keeps`); one that rules out nothing says `eliminates: []`"
            self.refuse_value(Rule.MISSING_FIELD, message, path, node.place)
        self._eliminations += len(gone)
        if self._eliminations > MAX_ELIMINATIONS:
            message = f"the outcomes of a kit eliminate at most {MAX_ELIMINATIONS:,} ids in all"
            self.refuse(Rule.TOO_LARGE, message, path, node.place)
            raise TooManyFindings
        return gone

    def _compare(self, gone: frozenset[str], kept: frozenset[str], path: Path, place: Place) -> None:
        both = sorted(gone & kept)
        if both:
            message = f"contradicts itself: it eliminates and keeps {list_ids(both)}"
            self.refuse_value(KitRule.ELIMINATES_AND_KEEPS, message, path, place)
        neither = sorted(self._hypothesis_ids - gone - kept)
        if neither:
            message = f"has both `eliminates` and `keeps`, and neither names {list_ids(neither)}"
            self.refuse_value(KitRule.ELIMINATES_AND_KEEPS, message, path, place)

    def _read_hypothesis_ids(self, node: Node | None, path: Path) -> frozenset[str]:
        ids = self._read_ids(node, path, MAX_HYPOTHESES)
        for each, place in ids.items():
            if each not in self._hypothesis_ids:
                self.refuse_value(KitRule.UNKNOWN_HYPOTHESIS, f"names `{each}`, which is no hypothesis", path, place)
        return frozenset(ids) & self._hypothesis_ids

    def _read_ids(self, node: Node | None, path: Path, limit: int) -> dict[str, Place]:
        """Ids in their order, each with its place; one that is there twice is a finding."""
        found: dict[str, Place] = {}
        for item_path, item in self.read_items(node, path, limit) if node is not None else ():
            each = self.read_id(item, item_path)
            if each is None:
                continue
            if each in found:
                self.refuse_value(KitRule.NAMED_TWICE, f"names `{each}` twice", path, item.place)
            found[each] = item.place
        return found

    def _read_reading(self, node: Node | None, path: Path, outcome_ids: frozenset[str] | None) -> Reading | None:
        if node is None:
            return None
        names = {name.text for name, _ in node.entries} if isinstance(node, Fields) else set()
        before = len(self.findings)
        try:
            reading = (
                self._read_cuts(node, path)
                if "cuts" in names
                else self._read_baseline(node, path, sampled="samples" in names)
            )
        except InvalidKit as exc:
            self.refuse(KitRule.BAD_READING, f"{self.describe(path)}: {exc}", path, node.place)
            return None
        if reading is None or outcome_ids is None or len(self.findings) > before:
            return None
        unknown = sorted(reading.outcome_ids() - outcome_ids)
        if unknown:
            message = f"names {list_ids(unknown)}, which the probe has not as outcomes"
            self.refuse_value(KitRule.UNKNOWN_OUTCOME, message, path, node.place)
            return None
        return reading

    def _read_cuts(self, node: Node, path: Path) -> CutPoints | None:
        fields = self.read_fields(node, path, CUTS_FIELDS)
        if fields is None:
            return None
        cuts = self._read_numbers(fields["cuts"], (*path, "cuts"), MAX_OUTCOMES)
        found = [
            self.read_id(item, item_path)
            for item_path, item in self.read_items(fields["outcomes"], (*path, "outcomes"), MAX_OUTCOMES)
        ]
        outcomes = [each for each in found if each is not None]
        return CutPoints(tuple(cuts), tuple(outcomes)) if cuts is not None and len(outcomes) == len(found) else None

    def _read_baseline(self, node: Node, path: Path, *, sampled: bool) -> NormalBand | None:
        fields = self.read_fields(node, path, SAMPLED_FIELDS if sampled else BASELINE_FIELDS)
        if fields is None:
            return None
        normal = self.read_id(fields["normal"], (*path, "normal"))
        abnormal = self.read_id(fields["abnormal"], (*path, "abnormal"))
        tail = self.read_word(fields.get("tail"), (*path, "tail"), Tail) or Tail.BOTH
        threshold = self.read_number(fields.get("threshold"), (*path, "threshold"))
        constant = self.read_word(fields.get("constant"), (*path, "constant"), Constant)
        if sampled:
            samples = self._read_numbers(fields["samples"], (*path, "samples"), MAX_SAMPLES)
            median, mad = (None, None) if samples is None else baseline_of(samples)
        else:
            median = self.read_number(fields["median"], (*path, "median"))
            mad = self.read_number(fields["mad"], (*path, "mad"))
        if normal is None or abnormal is None or median is None or mad is None:
            return None
        bound = DEFAULT_THRESHOLD if threshold is None else threshold
        return NormalBand(normal, abnormal, median, mad, bound, tail, constant)

    def _read_window(self, node: Node | None, path: Path, read: Node | None, reading: Reading | None) -> Window | None:
        """How a window is reduced; `read` is where the reading is, which was refused where `reading` is None."""
        fields = None if node is None else self.read_fields(node, path, WINDOW_FIELDS)
        if fields is None or node is None:
            return None
        before = len(self.findings)
        reduction = self.read_word(fields["reduction"], (*path, "reduction"), Reduction)
        k = self._read_count(fields.get("k"), (*path, "k"))
        n = self._read_count(fields.get("n"), (*path, "n"))
        counts = self.read_id(fields.get("counts"), (*path, "counts"))
        gaps = self.read_word(fields.get("gaps"), (*path, "gaps"), Gaps) or Gaps.REFUSED
        if read is None:
            message = "reduces samples, and the probe has no `reading` for them"
            self.refuse_value(Rule.MISSING_FIELD, message, path, node.place)
        if reduction is None or reading is None or len(self.findings) > before:
            return None
        try:
            window = Window(reduction, k, n, counts, gaps)
            if reduction is not Reduction.MEAN:
                window.resolve_counts(reading)
        except InvalidKit as exc:
            self.refuse(KitRule.BAD_WINDOW, f"{self.describe(path)}: {exc}", path, node.place)
            return None
        return window

    def _read_count(self, node: Node | None, path: Path) -> int | None:
        number = self.read_number(node, path)
        if number is None or node is None:
            return None
        if not (number.is_integer() and 1 <= number <= MAX_WINDOW_SAMPLES):
            message = f"must be a whole number from 1 to {MAX_WINDOW_SAMPLES:,}"
            self.refuse_value(Rule.BAD_NUMBER, message, path, node.place)
            return None
        return int(number)

    def _read_numbers(self, node: Node, path: Path, limit: int) -> list[float] | None:
        found = [self.read_number(item, item_path) for item_path, item in self.read_items(node, path, limit)]
        numbers = [each for each in found if each is not None]
        return numbers if len(numbers) == len(found) and isinstance(node, Items) else None
