"""One attribute of many entities as probes. An entity without data is kept by every answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from cmbs.documents.fields import is_decimal, read_number
from cmbs.kit.baseline import Baseline
from cmbs.kit.model import CutPoints, KitOutcome, KitProbe, NormalBand, Soundness, Tail

# Up to so many different whole numbers are kinds of things, as legs are; more are a measurement, as weight is.
FEW_WHOLE_NUMBERS = 12

_NO_NUMBER = re.compile(r"[-+]?(?:nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cell:
    """What a table says of one entity: no values where it has no data."""

    entity: str
    line: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column; `is_split` where a cell may list several values."""

    name: str
    cells: tuple[Cell, ...]
    is_split: bool = False

    def values(self) -> list[str]:
        """Every value once, sorted, so that the order of the rows does not matter; numbers as numbers."""
        found = {value for cell in self.cells for value in cell.values}
        numbers = {value: read_number(value) for value in found}
        if None in numbers.values():
            return sorted(found)
        return sorted(found, key=lambda value: (numbers[value], value))

    def with_data(self) -> frozenset[str]:
        """The entities that the table says something of."""
        return frozenset(cell.entity for cell in self.cells if cell.values)

    def owners(self) -> dict[str, frozenset[str]]:
        """The entities of each value, by value in the order of `values`."""
        found: dict[str, set[str]] = {value: set() for value in self.values()}
        for cell in self.cells:
            for value in cell.values:
                found[value].add(cell.entity)
        return {value: frozenset(entities) for value, entities in found.items()}


def is_measured(attribute: Attribute) -> bool:
    """Whether an attribute is a measurement: numbers all of them, and more than a few whole ones.

    What claims to be a number and is none (`NaN`, `inf`, `1e999`) counts, so that it is reported, not a word.
    """
    values = attribute.values()
    if not all(is_decimal(value) or _NO_NUMBER.fullmatch(value) for value in values):
        return False
    numbers = [number for number in map(read_number, values) if number is not None]
    # 4 and 4.0 are one number, and as words they would exclude each other.
    plain = len(set(numbers)) == len(values)
    whole = all(number.is_integer() for number in numbers)
    return bool(numbers) and (not (whole and plain) or len(numbers) > FEW_WHOLE_NUMBERS)


def make_value_probe(attribute: Attribute, soundness: Soundness | None) -> KitProbe:
    """One probe with an outcome for each value."""
    # A list may have left something out; a single value contradicts every other.
    claimed = soundness or (Soundness.CLOSED_WORLD if attribute.is_split else Soundness.SOUND)
    known = attribute.with_data()
    outcomes = tuple(KitOutcome(value, known - owners, claimed) for value, owners in attribute.owners().items())
    return KitProbe(attribute.name, f"{attribute.name}?", outcomes)


def make_yes_no_probes(attribute: Attribute, soundness: Soundness | None) -> Iterator[KitProbe]:
    """A probe for each value; of two values that exclude each other, one is enough."""
    owners_of = attribute.owners()
    if len(owners_of) == 2 and not attribute.is_split:  # noqa: PLR2004
        yield make_value_probe(attribute, soundness)
        return
    known = attribute.with_data()
    from_list = soundness or (Soundness.CLOSED_WORLD if attribute.is_split else Soundness.SOUND)
    for value, owners in owners_of.items():
        outcomes = (
            KitOutcome("yes", known - owners, from_list),
            KitOutcome("no", owners, soundness or Soundness.SOUND),
        )
        # A value that every entity has tells none apart.
        if len(owners) < len(attribute.cells):
            yield KitProbe(f"{attribute.name}={value}", f"{attribute.name}: {value}?", outcomes)


def make_interval_probe(attribute: Attribute, bands: int, soundness: Soundness | None) -> KitProbe:
    """One probe that reads numbers, with an outcome for each interval, in each about as many entities."""
    numbers = {cell.entity: number for cell in attribute.cells for number in map(read_number, cell.values)}
    present = sorted(number for number in numbers.values() if number is not None)
    cuts = _cuts(present, bands)
    names = _names(cuts)
    reading = CutPoints(cuts, names)
    where = {entity: reading.outcome_of(number) for entity, number in numbers.items() if number is not None}
    outcomes = tuple(
        KitOutcome(
            name,
            frozenset(entity for entity, band in where.items() if band != name),
            # A measurement near a cut may fall on the other side.
            soundness or Soundness.STATISTICAL,
        )
        for name in names
    )
    return KitProbe(attribute.name, f"{attribute.name}?", outcomes, reading)


def make_baseline_probe(
    attribute: Attribute, baseline: Baseline, threshold: float, soundness: Soundness | None
) -> KitProbe:
    """One probe that reads numbers against a baseline: what is normal eliminates every entity that would move it.

    What is not normal eliminates nothing: more than one thing may move a measurement. `InvalidKit` where the baseline
    has no spread.
    """
    moved = {cell.entity: value for cell in attribute.cells for value in cell.values if value != "normal"}
    sides = set(moved.values())
    tail = Tail(sides.pop()) if sides in ({"high"}, {"low"}) else Tail.BOTH
    reading = NormalBand("normal", "abnormal", baseline.median, baseline.mad, threshold, tail)
    outcomes = (
        KitOutcome("normal", frozenset(moved), soundness or Soundness.STATISTICAL),
        KitOutcome("abnormal", frozenset(), Soundness.SOUND),
    )
    return KitProbe(attribute.name, f"{attribute.name}?", outcomes, reading)


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
