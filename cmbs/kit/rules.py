"""What makes a kit good, beyond its shape: no outcome contradicts itself, and the probes tell the hypotheses apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cmbs.documents.findings import Finding, Path, Severity, list_ids
from cmbs.kit.model import Kit, KitProbe, Soundness


class KitRule(StrEnum):
    """What a kit may break beyond the rules of any document. docs/reference/kits.md has an example of each."""

    BAD_READING = "bad-reading"
    BAD_WINDOW = "bad-window"
    BAD_GRAPH_PROBE = "bad-graph-probe"
    DUPLICATE_ID = "duplicate-id"
    NAMED_TWICE = "named-twice"
    UNKNOWN_HYPOTHESIS = "unknown-hypothesis"
    UNKNOWN_OUTCOME = "unknown-outcome"
    RESERVED_OUTCOME = "reserved-outcome"
    NO_SOUNDNESS = "no-soundness"
    ELIMINATES_AND_KEEPS = "eliminates-and-keeps"
    ELIMINATES_EVERYTHING = "eliminates-everything"
    ELIMINATED_BY_EVERY_OUTCOME = "eliminated-by-every-outcome"
    INDISTINGUISHABLE = "indistinguishable"
    NEVER_MATTERS = "never-matters"
    REPEATS_PROBE = "repeats-probe"
    OUTCOMES_ALIKE = "outcomes-alike"


WARNINGS = frozenset({KitRule.INDISTINGUISHABLE, KitRule.NEVER_MATTERS, KitRule.REPEATS_PROBE, KitRule.OUTCOMES_ALIKE})


@dataclass(frozen=True, slots=True)
class KitSummary:
    """A kit in figures. `classes` are the sets of hypotheses that no probe tells apart, as ids in the kit's order.

    `residual_bits` is the entropy of the prior within the classes: what stays undecided on average when every probe has
    been answered, where all of them are deterministic. Where a hypothesis is consistent with several outcomes of a
    probe, its answers may tell less than they could, and more may stay.
    """

    hypotheses: int
    probes: int
    outcomes: int
    eliminations: int
    deterministic_probes: int
    classes: tuple[tuple[str, ...], ...]
    residual_bits: float
    soundness: dict[Soundness, int]


def summary_of(kit: Kit) -> KitSummary:
    """The figures of a kit."""
    outcomes = [outcome for probe in kit.probes for outcome in probe.outcomes]
    classes = classes_of(kit)
    shares = _shares(kit)
    return KitSummary(
        hypotheses=len(kit.hypotheses),
        probes=len(kit.probes),
        outcomes=len(outcomes),
        eliminations=sum(len(outcome.eliminates) for outcome in outcomes),
        deterministic_probes=sum(is_deterministic(kit, probe) for probe in kit.probes),
        classes=classes,
        residual_bits=math.fsum(_bits_within(members, shares) for members in classes if len(members) > 1),
        soundness=dict(Counter(outcome.soundness for outcome in outcomes if outcome.eliminates)),
    )


def classes_of(kit: Kit) -> tuple[tuple[str, ...], ...]:
    """The finest partition of the hypotheses that the probes can reach.

    Two hypotheses are told apart where some outcome eliminates one of them and not the other: an answer can then leave
    one alone. Only of deterministic probes is it sure that it will.
    """
    class_of = {hypothesis.id: 0 for hypothesis in kit.hypotheses}
    fresh = 1
    for probe in kit.probes:
        for outcome in probe.outcomes:
            # Members that leave a class together stay together, as a new class.
            renamed: dict[int, int] = {}
            for hypothesis_id in outcome.eliminates:
                old = class_of[hypothesis_id]
                if old not in renamed:
                    renamed[old] = fresh
                    fresh += 1
                class_of[hypothesis_id] = renamed[old]
    members: dict[int, list[str]] = {}
    for hypothesis_id, number in class_of.items():
        members.setdefault(number, []).append(hypothesis_id)
    return tuple(tuple(each) for each in members.values())


def is_deterministic(kit: Kit, probe: KitProbe) -> bool:
    """Whether every hypothesis is consistent with exactly one outcome of the probe."""
    others = len(probe.outcomes) - 1
    if sum(len(outcome.eliminates) for outcome in probe.outcomes) != others * len(kit.hypotheses):
        return False
    times = Counter(hypothesis_id for outcome in probe.outcomes for hypothesis_id in outcome.eliminates)
    return all(times[hypothesis.id] == others for hypothesis in kit.hypotheses)


def findings_of(kit: Kit) -> list[Finding]:
    """Everything wrong with a kit whose shape is right, errors first."""
    found = [finding for number, probe in enumerate(kit.probes) for finding in _check_probe(kit, number, probe)]
    found += _find_repeated_probes(kit)
    found += _find_indistinguishable(kit)
    return sorted(found, key=lambda finding: finding.severity)


def errors_of(kit: Kit) -> list[Finding]:
    """What keeps a kit whose shape is right from being used."""
    found = (finding for number, probe in enumerate(kit.probes) for finding in _check_probe(kit, number, probe))
    return [finding for finding in found if finding.severity is Severity.ERROR]


def _finding(rule: KitRule, message: str, path: Path) -> Finding:
    return Finding(rule, message, path, severity=Severity.WARNING if rule in WARNINGS else Severity.ERROR)


def _check_probe(kit: Kit, number: int, probe: KitProbe) -> Iterator[Finding]:
    path = ("probes", number)
    everything = len(kit.hypotheses)
    first: dict[frozenset[str], str] = {}
    for position, outcome in enumerate(probe.outcomes):
        where = (*path, "outcomes", position)
        what = f"outcome `{outcome.outcome_id}` of probe `{probe.probe_id}`"
        if len(outcome.eliminates) == everything:
            message = f"{what} eliminates every hypothesis, so that it can never be the answer"
            yield _finding(KitRule.ELIMINATES_EVERYTHING, message, where)
        other = first.setdefault(outcome.eliminates, outcome.outcome_id)
        if outcome.eliminates and other != outcome.outcome_id:
            yield _finding(KitRule.OUTCOMES_ALIKE, f"{what} eliminates the same as outcome `{other}`", where)
    # An outcome that eliminates everything is reported above; the others must leave every hypothesis an answer.
    possible = [outcome.eliminates for outcome in probe.outcomes if len(outcome.eliminates) < everything]
    without_answer = frozenset.intersection(*possible) if possible else frozenset()
    if without_answer:
        in_order = [each.id for each in kit.hypotheses if each.id in without_answer]
        message = f"every outcome of probe `{probe.probe_id}` eliminates {list_ids(in_order)}: no answer can be right"
        yield _finding(KitRule.ELIMINATED_BY_EVERY_OUTCOME, message, path)
    elif not any(outcome.eliminates for outcome in probe.outcomes):
        message = f"no outcome of probe `{probe.probe_id}` eliminates anything, so it never matters"
        yield _finding(KitRule.NEVER_MATTERS, message, path)


def _find_repeated_probes(kit: Kit) -> Iterator[Finding]:
    """Probes whose answer follows from another's. Only deterministic ones: an open world may answer two in two ways."""
    first: dict[frozenset[frozenset[str]], str] = {}
    for number, probe in enumerate(kit.probes):
        if not is_deterministic(kit, probe):
            continue
        partition = frozenset(outcome.eliminates for outcome in probe.outcomes)
        other = first.setdefault(partition, probe.probe_id)
        if other != probe.probe_id and any(partition):
            message = (
                f"probe `{probe.probe_id}` divides the hypotheses as `{other}` does: after either, the other never "
                "matters"
            )
            yield _finding(KitRule.REPEATS_PROBE, message, ("probes", number))


def _find_indistinguishable(kit: Kit) -> Iterator[Finding]:
    position = {hypothesis.id: number for number, hypothesis in enumerate(kit.hypotheses)}
    shares = _shares(kit)
    for members in classes_of(kit):
        if len(members) > 1:
            message = (
                f"no probe tells {len(members)} hypotheses apart: {list_ids(members)}; they leave "
                f"{_bits_within(members, shares):.3f} bits of the kit undecided"
            )
            yield _finding(KitRule.INDISTINGUISHABLE, message, ("hypotheses", position[members[0]]))


def _shares(kit: Kit) -> dict[str, float]:
    """The prior as probabilities."""
    largest = max(hypothesis.prior for hypothesis in kit.hypotheses)  # so that no sum overflows
    total = math.fsum(hypothesis.prior / largest for hypothesis in kit.hypotheses)
    return {hypothesis.id: hypothesis.prior / largest / total for hypothesis in kit.hypotheses}


def _bits_within(members: tuple[str, ...], shares: Mapping[str, float]) -> float:
    """What a class leaves undecided on average over the whole kit: p(class) H(prior within it)."""
    weights = [shares[each] for each in members]
    mass = math.fsum(weights)
    # The quotient of the two could overflow where their logarithms do not.
    return math.fsum(weight * (math.log2(mass) - math.log2(weight)) for weight in weights if weight)
