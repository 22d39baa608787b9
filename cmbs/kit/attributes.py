"""One attribute of many entities as probes. An entity without data is kept by every answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from cmbs.documents.fields import is_decimal, read_number
from cmbs.kit.baseline import Baseline
from cmbs.kit.model import Constant, CutPoints, KitOutcome, KitProbe, NormalBand, Soundness, Tail, Window

# Up to so many different whole numbers are kinds of things, as legs are; more are a measurement, as weight is.
FEW_WHOLE_NUMBERS = 12

_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Attribute:
    """A column: what its cell says of each entity, and the values that each text of a cell stands for.

    An entity has no data where its text stands for no value; `is_split` where a text may stand for several.
    `in_every_case` is there where entities have cases: the entities by the value that all their cases with data have.
    """

    name: str
    entities: Sequence[str]
    texts: Sequence[str]
    values_of: Mapping[str, tuple[str, ...]]
    is_split: bool = False
    in_every_case: Mapping[str, frozenset[str]] | None = None

    @property
    def claim(self) -> Soundness:
        """How sound it is to rule out an entity of which the value is not told."""
        # A list may have left something out, and another case may differ; a single value contradicts every other.
        return Soundness.CLOSED_WORLD if self.is_split or self.in_every_case is not None else Soundness.SOUND

    @cached_property
    def numbers(self) -> dict[str, float | None]:
        """Every value, with the finite number that it is, if it is one."""
        return {value: read_number(value) for values in self.values_of.values() for value in values}

    @cached_property
    def values(self) -> list[str]:
        """Every value once, sorted, so that the order of the rows does not matter; numbers as numbers."""
        numbers = self.numbers
        if None in numbers.values():
            return sorted(numbers)
        return sorted(numbers, key=lambda value: (numbers[value], value))

    @cached_property
    def with_data(self) -> frozenset[str]:
        """The entities that the table says something of."""
        without = {text for text, values in self.values_of.items() if not values}
        known = frozenset(self.entities)
        return known.difference(*(self._groups[text] for text in without)) if without else known

    @cached_property
    def owners(self) -> dict[str, frozenset[str]]:
        """The entities of each value, by value in the order of `values`."""
        found: dict[str, list[str]] = {value: [] for value in self.values}
        for text, group in self._groups.items():
            for value in self.values_of[text]:
                found[value] += group
        return {value: frozenset(entities) for value, entities in found.items()}

    @cached_property
    def _groups(self) -> dict[str, list[str]]:
        """The entities of each text."""
        groups: dict[str, list[str]] = {text: [] for text in self.values_of}
        for entity, text in zip(self.entities, self.texts, strict=True):
            groups[text].append(entity)
        return groups

    def group_by(self, name_of: Callable[[str], str]) -> dict[str, frozenset[str]]:
        """The entities with data by the name that is given to their value."""
        found: dict[str, list[str]] = {}
        for text, group in self._groups.items():
            for value in self.values_of[text]:
                found.setdefault(name_of(value), []).extend(group)
        return {name: frozenset(entities) for name, entities in found.items()}


def is_measured(attribute: Attribute) -> bool:
    """Whether an attribute is a measurement: numbers all of them, and more than a few whole ones.

    What claims to be a number and is none (`NaN`, `inf`, `1e999`) counts, so that it is reported, not a word.
    """
    values = attribute.numbers
    claimed = (value for value, number in values.items() if number is None)
    if not all(is_decimal(value) or _NO_NUMBER.fullmatch(value) for value in claimed):
        return False
    numbers = [number for number in values.values() if number is not None]
    # 4 and 4.0 are one number, and as words they would exclude each other.
    plain = len(set(numbers)) == len(values)
    whole = all(number.is_integer() for number in numbers)
    return bool(numbers) and (not (whole and plain) or len(numbers) > FEW_WHOLE_NUMBERS)


def make_value_probe(attribute: Attribute, soundness: Soundness | None) -> KitProbe:
    """One probe with an outcome for each value."""
    claimed = soundness or attribute.claim
    known = attribute.with_data
    outcomes = tuple(KitOutcome(value, known - owners, claimed) for value, owners in attribute.owners.items())
    return KitProbe(attribute.name, f"{attribute.name}?", outcomes)


def make_yes_no_probes(attribute: Attribute, soundness: Soundness | None) -> Iterator[KitProbe]:
    """A probe for each value; of two values that exclude each other, one is enough."""
    owners_of, always_of = attribute.owners, attribute.in_every_case
    if len(owners_of) == 2 and not attribute.is_split:  # noqa: PLR2004
        yield make_value_probe(attribute, soundness)
        return
    known = attribute.with_data
    everything = len(attribute.entities)
    for value, owners in owners_of.items():
        # Where some of its cases have the value, an entity is consistent with both answers.
        always = owners if always_of is None else always_of.get(value, frozenset())
        denied = soundness or (Soundness.SOUND if always_of is None else attribute.claim)
        outcomes = (KitOutcome("yes", known - owners, soundness or attribute.claim), KitOutcome("no", always, denied))
        # A value that every entity has tells none apart.
        if len(owners) < everything or 0 < len(always) < everything:
            yield KitProbe(f"{attribute.name}={value}", f"{attribute.name}: {value}?", outcomes)


def make_interval_probe(attribute: Attribute, bands: int, soundness: Soundness | None) -> KitProbe:
    """One probe that reads numbers, with an outcome for each interval, in each about as many entities."""
    numbers = {value: number for value, number in attribute.numbers.items() if number is not None}
    present = sorted(numbers[value] for text in attribute.texts for value in attribute.values_of[text])
    cuts = _cuts(present, bands)
    names = _names(cuts)
    reading = CutPoints(cuts, names)
    inside = attribute.group_by(lambda value: reading.outcome_of(numbers[value]))
    # A measurement near a cut may fall on the other side.
    claimed = soundness or Soundness.STATISTICAL
    outcomes = tuple(KitOutcome(name, attribute.with_data - inside[name], claimed) for name in names)
    return KitProbe(attribute.name, f"{attribute.name}?", outcomes, reading)


@dataclass(frozen=True, slots=True)
class BaselineRule:
    """How measurements are compared with their baselines."""

    threshold: float
    constant: Constant
    window: Window | None


def make_baseline_probe(
    attribute: Attribute, baseline: Baseline, rule: BaselineRule, soundness: Soundness | None
) -> KitProbe:
    """One probe that reads numbers against a baseline: what is normal eliminates every entity that would move it.

    What is not normal eliminates nothing: more than one thing may move a measurement.
    """
    moving = {value: entities for value, entities in attribute.owners.items() if value != "normal"}
    moved = frozenset(entity for entities in moving.values() for entity in entities)
    # One of its cases was normal.
    moved -= attribute.owners.get("normal", frozenset())
    sides = set(moving)
    tail = Tail(sides.pop()) if sides in ({"high"}, {"low"}) else Tail.BOTH
    constant = rule.constant if baseline.mad == 0 else None
    reading = NormalBand("normal", "abnormal", baseline.median, baseline.mad, rule.threshold, tail, constant)
    outcomes = (
        KitOutcome("normal", moved, soundness or Soundness.STATISTICAL),
        KitOutcome("abnormal", frozenset(), Soundness.SOUND),
    )
    return KitProbe(attribute.name, f"{attribute.name}?", outcomes, reading, rule.window)


def _cuts(numbers: list[float], bands: int) -> tuple[float, ...]:
    """Cuts half way between neighbours that differ, nearest to where equal shares of the numbers end."""
    gaps = [place for place, (low, high) in enumerate(pairwise(numbers), 1) if low < high]
    wanted = [len(numbers) * part / bands for part in range(1, bands)]
    chosen = {min(gaps, key=lambda place: (abs(place - share), place)) for share in wanted}
    return tuple(_between(numbers[place - 1], numbers[place]) for place in sorted(chosen))


def _between(low: float, high: float) -> float:
    middle = low / 2 + high / 2
    # Between neighbouring floats there is nothing; a cut belongs to the interval above it.
    return middle if low < middle <= high else high


def _names(cuts: tuple[float, ...]) -> tuple[str, ...]:
    shown = [f"{cut:g}" if float(f"{cut:g}") == cut else repr(cut) for cut in cuts]
    return (f"below {shown[0]}", *(f"{low} to {high}" for low, high in pairwise(shown)), f"{shown[-1]} or more")
