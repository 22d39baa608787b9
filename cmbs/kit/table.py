"""Entities and attributes as a kit: an entity is a hypothesis, an attribute a probe. No data eliminates nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cmbs.documents.csv_text import Table
from cmbs.documents.fields import MAX_ID_LENGTH, MAX_SHOWN, read_number, suggest
from cmbs.documents.findings import MAX_FINDINGS, Finding, Place, Rule
from cmbs.errors import InvalidKit
from cmbs.kit.attributes import (
    Attribute,
    BaselineRule,
    is_measured,
    make_baseline_probe,
    make_interval_probe,
    make_value_probe,
    make_yes_no_probes,
)
from cmbs.kit.baseline import Baseline, baseline_of
from cmbs.kit.model import DEFAULT_THRESHOLD, NO_DATA, Constant, Kit, KitHypothesis, KitProbe, Soundness, Tail, Window
from cmbs.kit.parse import MAX_ELIMINATIONS, MAX_PROBES, InvalidKitFile
from cmbs.kit.rules import KitRule
from cmbs.kit.writing import check_writable, content_version


class ValueProbes(StrEnum):
    """How an attribute with several values is asked for."""

    N_WAY = "n-way"
    YES_NO = "yes-no"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a table does not say of itself."""

    id_column: str
    drop: frozenset[str] = frozenset()
    label_column: str | None = None
    prior_column: str | None = None
    # Columns whose cells hold several values, and what divides them.
    split: frozenset[str] = frozenset()
    separator: str = ";"
    # Whether that holds of every column that has such a cell.
    split_all: bool = False
    # Whether rows of one id are cases of one entity, which then has what any of them has.
    group_by_id: bool = False
    # Columns asked value by value; all, where `probes` says so.
    yes_no: frozenset[str] = frozenset()
    probes: ValueProbes = ValueProbes.N_WAY
    numeric: frozenset[str] = frozenset()
    text: frozenset[str] = frozenset()
    # What stands in a cell for no data, besides nothing.
    no_data: frozenset[str] = frozenset()
    max_values: int = 64
    bands: int = 4
    threshold: float = DEFAULT_THRESHOLD
    # What a number means against a baseline without spread, and how windows of samples are reduced.
    constant: Constant = Constant.ABNORMAL
    window: Window | None = None
    soundness: Soundness | None = None


@dataclass(frozen=True, slots=True)
class TableKit:
    """A kit, and what became of columns that are no probe in it."""

    kit: Kit
    notes: tuple[str, ...]


def kit_from_table(
    table: Table,
    options: TableOptions,
    baselines: Mapping[str, Baseline] | None = None,
    *,
    kit_id: str,
    version: str | None = None,
    title: str = "",
) -> TableKit:
    """The kit of a table. A column with a baseline says which entities move that measurement away from normal.

    Without a `version`, the kit is versioned by its content: another table, or other options, is another version.
    `InvalidKitFile` also where no file can hold the kit: what is made here can be written, and read again.
    """
    maker = _Maker(table, options, baselines or {})
    maker.check_columns()
    hypotheses = maker.hypotheses()
    probes = maker.probes(tuple(each.id for each in hypotheses))
    if maker.findings:
        raise InvalidKitFile(table.name, maker.findings[:MAX_FINDINGS])
    kit = Kit(kit_id, version or "", title, hypotheses, tuple(probes))
    if version is None:
        kit = replace(kit, version=content_version(kit))
    check_writable(kit)
    return TableKit(kit, tuple(maker.notes))


class _Maker:
    def __init__(self, table: Table, options: TableOptions, baselines: Mapping[str, Baseline]) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self._table = table
        self._options = options
        self._baselines = baselines
        # The rows of each entity, in the order of the table.
        self._rows: dict[str, list[int]] = {}
        # What each text of a column stands for.
        self._values: dict[str, dict[str, tuple[str, ...]]] = {}

    def check_columns(self) -> None:
        """Every column that an option names is there: a misspelt `--drop` would leak what it was to hide."""
        options = self._options
        named = [options.id_column, options.label_column, options.prior_column, *sorted(self._baselines)]
        named += sorted(options.drop | options.split | options.yes_no | options.numeric | options.text)
        for name in dict.fromkeys(named):
            if name is not None and name not in self._table.columns:
                self._refuse(Rule.UNKNOWN_FIELD, f"no column `{name}`; {suggest(name, self._table.columns)}", 1)
        if not self._table.lines:
            self._refuse(Rule.MISSING_FIELD, "the table has no rows", 1)
        if self.findings:
            raise InvalidKitFile(self._table.name, self.findings)

    def hypotheses(self) -> tuple[KitHypothesis, ...]:
        """One for each row, or for all rows of one id."""
        lines = self._table.lines
        for row, entity in enumerate(self._table.texts(self._options.id_column)):
            line, earlier = lines[row], self._rows.setdefault(entity, [])
            if not entity:
                self._refuse(Rule.MISSING_FIELD, f"no id in column `{self._options.id_column}`", line)
            elif earlier and not self._options.group_by_id:
                message = f"`{entity}` is in line {lines[earlier[0]]} already; if rows are cases, group them by id"
                self._refuse(KitRule.DUPLICATE_ID, message, line)
            elif "\0" in entity:
                self._refuse(Rule.NUL, "an id must not have the character U+0000", line)
            elif len(entity) > MAX_ID_LENGTH:
                self._refuse(Rule.TOO_LARGE, f"an id has at most {MAX_ID_LENGTH:,} characters", line)
            earlier.append(row)
        if self.findings:
            raise InvalidKitFile(self._table.name, self.findings[:MAX_FINDINGS])
        labels, priors = self._cells(self._options.label_column), self._cells(self._options.prior_column)
        return tuple(
            KitHypothesis(
                entity,
                next((labels[row] for row in rows if labels[row]), ""),
                # Cases of one entity add up, where the table has weights.
                sum(self._prior(priors[row], lines[row]) for row in rows) if self._options.prior_column else 1.0,
            )
            for entity, rows in self._rows.items()
        )

    def probes(self, entities: Sequence[str]) -> list[KitProbe]:
        """What the columns ask."""
        used = {self._options.id_column, self._options.label_column, self._options.prior_column} | self._options.drop
        found: list[KitProbe] = []
        asked_by: dict[str, str] = {}
        eliminations = 0
        for column in self._table.columns:
            if column in used:
                continue
            for probe in self._probes_of(self._attribute(column, entities)):
                other = asked_by.setdefault(probe.probe_id, column)
                if other != column:
                    message = f"columns `{other}` and `{column}` both make the probe `{probe.probe_id}`; rename one"
                    self._refuse(KitRule.DUPLICATE_ID, message, 1)
                found.append(probe)
                eliminations += sum(len(outcome.eliminates) for outcome in probe.outcomes)
                if eliminations > MAX_ELIMINATIONS or len(found) > MAX_PROBES:
                    message = (
                        f"with column `{column}`, the kit has more than {MAX_PROBES:,} probes or {MAX_ELIMINATIONS:,} "
                        "eliminations: drop columns with many values"
                    )
                    raise InvalidKitFile(self._table.name, [Finding(Rule.TOO_LARGE, message)])
                texts = [probe.probe_id, *(outcome.outcome_id for outcome in probe.outcomes)]
                longest = max(map(len, texts))
                if longest > MAX_ID_LENGTH:
                    self._refuse(
                        Rule.TOO_LARGE,
                        f"column `{column[:MAX_SHOWN]}` has a value of more than {MAX_ID_LENGTH:,} characters",
                        1,
                    )
        return found

    def _attribute(self, column: str, entities: Sequence[str]) -> Attribute:
        options = self._options
        missing = options.no_data | {"", NO_DATA}
        separator = options.separator if options.split_all or column in options.split else None
        texts = self._table.texts(column)
        # Most cells of a column are like some other.
        values_of = {
            text: tuple(value for value in _values(text, separator) if value not in missing)
            for text in dict.fromkeys(texts)
        }
        self._values[column] = values_of
        is_split = column in options.split or (options.split_all and any(len(each) > 1 for each in values_of.values()))
        if not options.group_by_id:
            return Attribute(column, entities, texts, values_of, is_split)
        return self._join_cases(Attribute(column, entities, texts, values_of, is_split))

    def _join_cases(self, cases: Attribute) -> Attribute:
        """What the cases of each entity have together, and which values all of its cases with data have."""
        joined: dict[str, tuple[str, ...]] = {}
        always: dict[str, list[str]] = {}
        for entity, rows in self._rows.items():
            said = [values for row in rows if (values := cases.values_of[cases.texts[row]])]
            joined[entity] = tuple(dict.fromkeys(value for values in said for value in values))
            for value in joined[entity]:
                if all(value in values for values in said):
                    always.setdefault(value, []).append(entity)
        in_every_case = {value: frozenset(entities) for value, entities in always.items()}
        return Attribute(cases.name, cases.entities, tuple(self._rows), joined, cases.is_split, in_every_case)

    def _probes_of(self, attribute: Attribute) -> Iterator[KitProbe]:
        options = self._options
        values = attribute.numbers
        name = attribute.name
        if name in self._baselines:
            yield from self._compare_with_baseline(attribute)
        elif len(values) < 2:  # noqa: PLR2004 - one value tells no two entities apart
            self.notes.append(f"column `{name}` has {'one value' if values else 'no data'}, so it asks nothing")
        elif self._is_numeric(attribute):
            yield from self._cut_into_intervals(attribute)
        elif len(values) > options.max_values:
            self._refuse(
                Rule.TOO_LARGE,
                f"column `{name}` has {len(values):,} values, more than {options.max_values:,}: drop it, or allow more",
                1,
            )
        elif options.probes is ValueProbes.YES_NO or name in options.yes_no:
            yield from make_yes_no_probes(attribute, options.soundness)
        else:
            yield make_value_probe(attribute, options.soundness)

    def _is_numeric(self, attribute: Attribute) -> bool:
        if attribute.name in self._options.text or attribute.is_split:
            return False
        return attribute.name in self._options.numeric or is_measured(attribute)

    def _cut_into_intervals(self, attribute: Attribute) -> Iterator[KitProbe]:
        bad = self._find_cells(attribute, {value for value, number in attribute.numbers.items() if number is None})
        for line, value in bad:
            self._refuse(
                Rule.BAD_NUMBER,
                f"`{value[:MAX_SHOWN]}` in column `{attribute.name}` is no finite number; "
                "without data, leave the cell empty",
                line,
            )
        if bad:
            return
        if len(set(attribute.numbers.values())) == 1:
            self.notes.append(f"column `{attribute.name}` has one value, so it asks nothing")
        else:
            yield make_interval_probe(attribute, self._options.bands, self._options.soundness)

    def _compare_with_baseline(self, attribute: Attribute) -> Iterator[KitProbe]:
        words = {"normal", "abnormal", *(Tail.HIGH, Tail.LOW)}
        bad = self._find_cells(attribute, attribute.numbers.keys() - words)
        for line, value in bad:
            self._refuse(
                Rule.UNKNOWN_WORD,
                f"`{value[:MAX_SHOWN]}` in column `{attribute.name}`, which has a baseline: "
                "a cell says normal, abnormal, high, low or nothing",
                line,
            )
        if bad:
            return
        if all(values and "normal" not in values for values in map(attribute.values_of.__getitem__, attribute.texts)):
            # As with an alert that every fault raises: it could only be normal if nothing were wrong.
            self.notes.append(f"column `{attribute.name}` is moved by every entity, so it asks nothing")
            return
        try:
            baseline = self._baselines[attribute.name]
            rule = BaselineRule(self._options.threshold, self._options.constant, self._options.window)
            yield make_baseline_probe(attribute, baseline, rule, self._options.soundness)
            if baseline.mad == 0:
                meaning = (
                    "any deviation is abnormal" if rule.constant is Constant.ABNORMAL else "a number gives no verdict"
                )
                self.notes.append(f"column `{attribute.name}` has a constant baseline: {meaning}")
        except InvalidKit as exc:
            self.findings.append(Finding(KitRule.BAD_READING, f"column `{attribute.name}`: {exc}"))

    def _find_cells(self, attribute: Attribute, values: Collection[str]) -> list[tuple[int, str]]:
        """The cells that have one of these values, each with its line."""
        if not values:
            return []
        values_of = self._values[attribute.name]
        cells = self._table.column(attribute.name)
        return [(line, value) for line, text in cells for value in values_of[text] if value in values]

    def _cells(self, column: str | None) -> Sequence[str]:
        return self._table.texts(column) if column else [""] * len(self._table.lines)

    def _prior(self, text: str, line: int) -> float:
        if not text:
            return 1.0
        prior = read_number(text)
        if prior is None or prior <= 0:
            self._refuse(Rule.BAD_NUMBER, f"a prior is a finite number above 0, not `{text[:MAX_SHOWN]}`", line)
            return 1.0
        return prior

    def _refuse(self, rule: StrEnum, message: str, line: int) -> None:
        self.findings.append(Finding(rule, message, place=Place(line, 1)))


def baselines_from(samples: Table, columns: Collection[str]) -> dict[str, Baseline]:
    """The baseline of every column that is among `columns`: a row is a moment, a cell what was measured, or nothing."""
    found: dict[str, Baseline] = {}
    findings: list[Finding] = []
    for column in samples.columns:
        if column not in columns:
            continue
        cells = [(line, text, read_number(text)) for line, text in samples.column(column) if text]
        findings += [
            Finding(
                Rule.BAD_NUMBER,
                f"`{text[:MAX_SHOWN]}` in column `{column}` is no finite number; without data, leave the cell empty",
                place=Place(line, 1),
            )
            for line, text, number in cells
            if number is None
        ]
        if not cells:
            findings.append(Finding(Rule.MISSING_FIELD, f"column `{column}` has no samples"))
        elif not findings:
            found[column] = baseline_of([number for _, _, number in cells if number is not None])
    if not found and not findings:
        findings.append(Finding(Rule.MISSING_FIELD, "no column of the baseline is a column of the table"))
    if findings:
        raise InvalidKitFile(samples.name, findings[:MAX_FINDINGS])
    return found


def _values(cell: str, separator: str | None) -> Iterator[str]:
    if separator is None:
        yield cell
    else:
        yield from dict.fromkeys(part.strip() for part in cell.split(separator))
