"""Hypotheses × probes as bit masks: which hypotheses are consistent with which outcome of which probe.

A set of hypotheses is an `int` whose bit i stands for the i-th hypothesis, so that what an outcome leaves is one `&`.
Weights are whole numbers: sums of them are exact, and equal cases stay equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from cmbs.errors import InvalidKit
from cmbs.kit.model import Kit

# Beyond so many bits, each step through a number costs more than its text does.
_WIDE = 512
_ONE = ord("1")


class Scale:
    """Weighs sets quickly: one count of bits for each binary digit of the weights, however many things weigh."""

    __slots__ = ("_planes",)

    def __init__(self, weights: Sequence[int]) -> None:
        digits = max(weights, default=0).bit_length()
        planes = (
            (digit, mask_from(position for position, weight in enumerate(weights) if weight >> digit & 1))
            for digit in range(digits)
        )
        self._planes = [(digit, plane) for digit, plane in planes if plane]

    def mass(self, mask: int) -> int:
        """The sum of the weights of what is in a set."""
        total = 0
        for digit, plane in self._planes:
            total += (plane & mask).bit_count() << digit
        return total


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a probe may answer, and the hypotheses that are consistent with it."""

    outcome_id: str
    consistent: int


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe as its outcomes."""

    probe_id: str
    outcomes: tuple[Outcome, ...]

    def consistent(self, outcome_id: str) -> int | None:
        """The hypotheses that an outcome leaves; None where the probe has no such outcome."""
        return next((each.consistent for each in self.outcomes if each.outcome_id == outcome_id), None)

    def parts(self, alive: int) -> list[int]:
        """What each outcome that can still occur would leave of `alive`, in the order of the outcomes."""
        return [left for each in self.outcomes if (left := each.consistent & alive)]

    def matters(self, alive: int) -> bool:
        """Whether an outcome that can still occur would rule anything out."""
        for outcome in self.outcomes:
            left = outcome.consistent & alive
            if left and left != alive:
                return True
        return False


@dataclass(frozen=True)
class Table:
    """Everything that is known of a domain before a session begins.

    Every hypothesis is consistent with at least one outcome of every probe: the probe answers something if it is true.
    """

    hypotheses: tuple[str, ...]
    weights: tuple[int, ...]
    probes: tuple[Probe, ...]

    def __post_init__(self) -> None:
        for probe in self.probes:
            answered = 0
            for outcome in probe.outcomes:
                answered |= outcome.consistent
            if answered != self.everything:
                unanswered = self.ids_of(self.everything & ~answered)[0]
                raise InvalidKit(f"every outcome of probe `{probe.probe_id}` eliminates hypothesis `{unanswered}`")

    @property
    def everything(self) -> int:
        """All hypotheses."""
        return (1 << len(self.hypotheses)) - 1

    @cached_property
    def uniform(self) -> bool:
        """Whether all hypotheses weigh 1."""
        return all(weight == 1 for weight in self.weights)

    @cached_property
    def deterministic(self) -> bool:
        """Whether each hypothesis determines every answer: it is consistent with exactly one outcome of each probe."""
        size = len(self.hypotheses)
        return all(sum(each.consistent.bit_count() for each in probe.outcomes) == size for probe in self.probes)

    @cached_property
    def _scale(self) -> Scale:
        return Scale(self.weights)

    @cached_property
    def ways(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """For each probe: in how many ways it may be answered, and under which hypotheses."""
        return {probe.probe_id: tuple(sorted(self._count_ways(probe))) for probe in self.probes}

    def _count_ways(self, probe: Probe) -> Iterator[tuple[int, int]]:
        # Sets by how many of the outcomes so far each hypothesis is consistent with; one more moves a set up.
        levels = [self.everything]
        for outcome in probe.outcomes:
            up = [level & outcome.consistent for level in levels]
            stay = [level & ~outcome.consistent for level in levels]
            levels = [one | other for one, other in zip([*stay, 0], [0, *up], strict=True)]
        return ((number, level) for number, level in enumerate(levels) if level)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {hypothesis_id: bit for bit, hypothesis_id in enumerate(self.hypotheses)}

    @cached_property
    def _probe_index(self) -> dict[str, Probe]:
        return {probe.probe_id: probe for probe in self.probes}

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The positions of hypotheses that no probe can tell apart; each is in one class. Ordered by first member.

        Not as sets: 100,000 sets of one hypothesis each would take the memory of as many hypotheses squared.
        """
        size = len(self.hypotheses)
        columns = [_column(each.consistent, size) for probe in self.probes for each in probe.outcomes]
        members: dict[tuple[str, ...], list[int]] = {}
        for bit, signature in enumerate(zip(*columns, strict=True) if columns else [()] * size):
            members.setdefault(signature, []).append(bit)
        return tuple(map(tuple, members.values()))

    @cached_property
    def class_of(self) -> tuple[int, ...]:
        """The number of the class that each hypothesis is in."""
        numbers = [0] * len(self.hypotheses)
        for number, members in enumerate(self.classes):
            for bit in members:
                numbers[bit] = number
        return tuple(numbers)

    def probe(self, probe_id: str) -> Probe | None:
        """The probe of that id; None where there is none."""
        return self._probe_index.get(probe_id)

    def bit(self, hypothesis_id: str) -> int:
        """The set of one hypothesis; empty for an id that the table does not have."""
        index = self._index.get(hypothesis_id)
        return 0 if index is None else 1 << index

    def mask_of(self, ids: Iterable[str]) -> int:
        """The ids as a set; those that the table does not have are left out."""
        find = self._index.get
        return mask_from([place for each in ids if (place := find(each)) is not None])

    def ids_of(self, mask: int) -> list[str]:
        """The ids of a set, in the order of the table."""
        return [self.hypotheses[bit] for bit in bits_of(mask)]

    def mass(self, mask: int) -> int:
        """What a set weighs."""
        return mask.bit_count() if self.uniform else self._scale.mass(mask)

    def classes_in(self, alive: int) -> list[list[int]]:
        """The classes of what is alive, as positions; one class left means that no probe can say more."""
        class_of = self.class_of
        found: dict[int, list[int]] = {}
        for bit in bits_of(alive):
            found.setdefault(class_of[bit], []).append(bit)
        return list(found.values())

    def one_class(self, alive: int) -> bool:
        """Whether one class is left, and no more than one."""
        bits = bits_of(alive)
        first = next(bits, None)
        return first is not None and all(self.class_of[bit] == self.class_of[first] for bit in bits)

    def residual_bits(self, alive: int) -> float:
        """The bits that stay undecided on average once every probe was answered: what is inside the classes."""
        total = self.mass(alive)
        weights = ([self.weights[bit] for bit in members] for members in self.classes_in(alive) if len(members) > 1)
        return math.fsum(sum(each) / total * self._entropy(each) for each in weights)

    def _entropy(self, weights: Sequence[int]) -> float:
        """The bits that it takes to decide among weights; log2 of their number where all are the same."""
        return math.log2(len(weights)) if self.uniform else entropy_of(weights)

    def restrict(self, ids: Iterable[str]) -> Table:
        """The same table of some of the hypotheses only, in the order of this one."""
        keep = list(bits_of(self.mask_of(ids)))
        return Table(
            tuple(self.hypotheses[bit] for bit in keep),
            tuple(self.weights[bit] for bit in keep),
            tuple(
                Probe(
                    probe.probe_id,
                    tuple(
                        Outcome(each.outcome_id, _pack(each.consistent, keep, len(self.hypotheses)))
                        for each in probe.outcomes
                    ),
                )
                for probe in self.probes
            ),
        )


def table_of(kit: Kit) -> Table:
    """The table of a kit; InvalidKit where a hypothesis makes every outcome of a probe impossible."""
    ids = tuple(each.id for each in kit.hypotheses)
    index = {hypothesis_id: bit for bit, hypothesis_id in enumerate(ids)}
    everything = (1 << len(ids)) - 1
    probes = tuple(
        Probe(
            probe.probe_id,
            tuple(
                Outcome(each.outcome_id, everything & ~mask_from(index[gone] for gone in each.eliminates))
                for each in probe.outcomes
            ),
        )
        for probe in kit.probes
    )
    return Table(ids, whole_weights([each.prior for each in kit.hypotheses]), probes)


def whole_weights(priors: Sequence[float]) -> tuple[int, ...]:
    """Priors as whole numbers in the same proportions: as they are written, so that 0.1 is a tenth and no more."""
    exact = [Fraction(repr(prior)) for prior in priors]
    denominator = math.lcm(*(each.denominator for each in exact))
    whole = [each.numerator * (denominator // each.denominator) for each in exact]
    divisor = math.gcd(*whole)
    return tuple(each // divisor for each in whole)


def bits_of(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, the lowest first."""
    if mask.bit_length() > _WIDE:
        text = f"{mask:b}"[::-1]
        position = text.find("1")
        while position >= 0:
            yield position
            position = text.find("1", position + 1)
        return
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_from(positions: Iterable[int]) -> int:
    """The set that has the bits at these positions."""
    chosen = list(positions)
    # As text: setting one place of it is quicker than setting a bit of a byte, and reading it back costs little.
    digits = bytearray(b"0") * (max(chosen, default=0) + 1)
    for position in chosen:
        digits[-1 - position] = _ONE
    return int(digits, 2)


def entropy_of(weights: Sequence[int]) -> float:
    """Shannon's entropy of weights, in bits. Equal weights in another order give the same float."""
    total = sum(weights)
    shares = [weight / total for weight in sorted(weights)]
    # A share that no float can tell from 0 adds nothing that one could tell from 0.
    return math.fsum(share * -math.log2(share) for share in shares if share)


def log2_ratio(greater: int, lesser: int) -> float:
    """log2 of one weight over another, which may be further apart than floats are."""
    try:
        return math.log2(greater / lesser)
    except OverflowError:
        return math.log2(greater) - math.log2(lesser)


def _column(mask: int, length: int) -> str:
    """A set as text: the n-th character tells whether it has the n-th bit."""
    return f"{mask:0{length}b}"[::-1]


def _pack(mask: int, keep: Sequence[int], length: int) -> int:
    column = _column(mask, length)
    return int("".join(column[bit] for bit in reversed(keep)) or "0", 2)
