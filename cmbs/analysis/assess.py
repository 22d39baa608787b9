"""The whole analysis of a session: from its log, with its kit and the truth where they are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cmbs.analysis.appraisal import Study, moves_of
from cmbs.analysis.certificate import fewest
from cmbs.analysis.curves import compute_curves
from cmbs.analysis.findings import (
    Analysis,
    CertificateFinding,
    Choice,
    EventFinding,
    GainFinding,
    KitFinding,
    RedundancyFinding,
    RegretFinding,
    ResolutionFinding,
    SourceFinding,
    StrategyFinding,
    TruthFinding,
)
from cmbs.analysis.gain import gains
from cmbs.analysis.optimum import DEFAULT_STEPS, Method
from cmbs.analysis.table import Table, table_of
from cmbs.analysis.trajectory import Redundancy, Step, Trajectory, bits_of_counts, seconds_between
from cmbs.core import entropy
from cmbs.documents.findings import list_ids
from cmbs.errors import InvalidHypothesisId, InvalidRequest
from cmbs.kit.model import Kit

# How many classes of undecided survivors an analysis lists.
MAX_UNDECIDED = 100


class KitStudy:
    """A kit that sessions are held against, with what was found out about it so far. Not for several threads."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._whole: Table | None = None
        self._studies: dict[frozenset[str], Study] = {}
        self._curves: dict[tuple[frozenset[str], Method, int], list[StrategyFinding]] = {}

    def of(self, trajectory: Trajectory) -> Study:
        """The part of the kit that a session is about; InvalidRequest where the kit does not know all of it."""
        known = self._studies.get(trajectory.universe)
        if known is None:
            known = self._studies[trajectory.universe] = Study(self._table(trajectory))
        return known

    def curves(self, trajectory: Trajectory, regret: RegretFinding, steps: int) -> list[StrategyFinding]:
        """How fast strategies narrow down what a session is about, as far as its appraisal could see."""
        key = (trajectory.universe, regret.method, steps)
        known = self._curves.get(key)
        if known is None:
            table = self.of(trajectory).table
            known = self._curves[key] = compute_curves(table, regret.method, regret.reason, steps)
        return known

    def _table(self, trajectory: Trajectory) -> Table:
        unknown = sorted(trajectory.universe - self.kit.hypothesis_ids)
        if unknown:
            raise InvalidRequest(
                f"kit `{self.kit.kit_id}` does not know {list_ids(unknown)} of session `{trajectory.session_id}`",
                {"kit_id": self.kit.kit_id, "unknown": unknown[:100]},
            )
        if self._whole is None:
            self._whole = table_of(self.kit)
        is_whole = len(trajectory.universe) == len(self._whole.hypotheses)
        return self._whole if is_whole else self._whole.restrict(trajectory.universe)


def analyse(
    trajectory: Trajectory,
    study: KitStudy | None = None,
    truth: str | None = None,
    steps: int = DEFAULT_STEPS,
    *,
    strongest: Method = Method.EXACT,
) -> Analysis:
    """What a session's path was worth.

    `steps` bounds the work that goes into each of four things: the optimum, the best probe at each step, the curves
    of strategies, and the certificate. What then is not exact says so. Regret is against no stronger method than
    `strongest`, so that it can be compared with that of sessions for which a stronger one is not to be had. Raises
    InvalidRequest for a kit that does not know the session's hypotheses, and InvalidHypothesisId for a truth that
    the session does not have.
    """
    if truth is not None and truth not in trajectory.universe:
        raise InvalidHypothesisId([truth])
    if study is None:
        return _findings(trajectory, None, truth, steps)
    on_kit = _OnKit(study, trajectory, steps, strongest)
    return _findings(on_kit.trajectory, on_kit, truth, steps)


class _OnKit:
    """A trajectory on the table of its kit."""

    def __init__(self, study: KitStudy, trajectory: Trajectory, steps: int, strongest: Method) -> None:
        self.kit = study.kit
        found = study.of(trajectory)
        self.table = found.table
        self.moves = moves_of(self.kit, self.table, trajectory)
        self.appraisal = found.appraise(self.moves, steps, strongest)
        self._strategies = study.curves(trajectory, self.appraisal.regret, steps)
        self.trajectory = _with_predictable(trajectory, self.appraisal.certain)

    def is_resolved(self, number: int) -> bool:
        """Whether one class is left after so many moves."""
        return self.table.one_class(self.alive(number))

    def alive(self, number: int) -> int:
        """What is left after so many moves."""
        return self.moves[number - 1].after if number else self.table.everything

    def finding(self) -> KitFinding:
        """What the kit tells of the session."""
        table, alive = self.table, self.alive(len(self.moves))
        made = [choice for choice in self.appraisal.choices if choice is not None]
        classes = table.classes_in(alive)
        gain, expected = _total([choice.gain for choice in made]), math.fsum(choice.expected_gain for choice in made)
        best = _total([choice.best_gain for choice in made])
        ratios = [choice.value_ratio for choice in made if choice.value_ratio is not None]
        return KitFinding(
            kit_id=self.kit.kit_id,
            version=self.kit.version,
            deterministic=table.deterministic,
            classes=len(table.classes),
            classes_left=len(classes),
            residual_bits=table.residual_bits(table.everything),
            residual_bits_left=table.residual_bits(alive) if alive else 0.0,
            undecided=[[table.hypotheses[bit] for bit in each] for each in classes if len(each) > 1][:MAX_UNDECIDED],
            gain=gain,
            expected_gain=expected,
            luck=None if gain is None else gain - expected,
            shortfall=None if best is None else best - expected,
            value_ratio=math.fsum(ratios) / len(ratios) if ratios else None,
            unmatched=sum(move.probe is None for move in self.moves),
            remaining=[
                GainFinding(probe_id=gain.probe_id, expected_gain=gain.bits)
                for gain in gains(table, self.appraisal.belief)
            ],
            regret=self.appraisal.regret,
            strategies=self._strategies,
        )


def _with_predictable(trajectory: Trajectory, certain: Sequence[bool]) -> Trajectory:
    """The trajectory with what was certain beforehand told apart from what merely had no effect."""
    steps = tuple(
        replace(step, redundancy=Redundancy.PREDICTABLE)
        if step.redundancy is Redundancy.NO_EFFECT and foregone
        else step
        for step, foregone in zip(trajectory.steps, certain, strict=True)
    )
    return replace(trajectory, steps=steps)


def _findings(trajectory: Trajectory, on_kit: _OnKit | None, truth: str | None, steps: int) -> Analysis:
    choices: list[Choice | None] = [None] * len(trajectory.steps) if on_kit is None else on_kit.appraisal.choices
    bits = trajectory.bits
    resolution = _resolution(trajectory, on_kit)
    return Analysis(
        session_id=trajectory.session_id,
        universe_size=len(trajectory.universe),
        n_survivors=len(trajectory.survivors),
        events=trajectory.events,
        refusals=trajectory.refusals,
        eliminations=len(trajectory.steps),
        bits=bits,
        bits_left=entropy(len(trajectory.survivors)),
        efficiency=None if bits is None or not trajectory.steps else bits / len(trajectory.steps),
        redundancy=_redundancy(trajectory.steps),
        resolution=resolution,
        truth=None if truth is None else _truth(trajectory, truth, resolved=resolution.resolved),
        certificate=_certificate(trajectory.steps, steps),
        sources=_sources(trajectory.steps),
        kit=None if on_kit is None else on_kit.finding(),
        timeline=[_event(step, choice) for step, choice in zip(trajectory.steps, choices, strict=True)],
    )


def _event(step: Step, choice: Choice | None) -> EventFinding:
    return EventFinding(
        seq=step.seq,
        event_id=step.event_id,
        ts=step.ts,
        source_id=step.source_id,
        observation_id=step.observation_id,
        before=step.before,
        after=step.after,
        bits=step.bits,
        redundancy=step.redundancy,
        choice=choice,
    )


def _redundancy(steps: Sequence[Step]) -> RedundancyFinding:
    counts = {kind: sum(step.redundancy is kind for step in steps) for kind in Redundancy}
    total = sum(counts.values())
    return RedundancyFinding(
        duplicate=counts[Redundancy.DUPLICATE],
        recall_failure=counts[Redundancy.RECALL_FAILURE],
        cross_agent=counts[Redundancy.CROSS_AGENT],
        no_effect=counts[Redundancy.NO_EFFECT],
        predictable=counts[Redundancy.PREDICTABLE],
        total=total,
        share=total / len(steps) if steps else 0.0,
    )


def _resolution(trajectory: Trajectory, on_kit: _OnKit | None) -> ResolutionFinding:
    steps = trajectory.steps

    def is_resolved(number: int) -> bool:
        if on_kit is not None:
            return on_kit.is_resolved(number)
        return (steps[number - 1].after if number else len(trajectory.universe)) == 1

    if not is_resolved(len(steps)):
        return ResolutionFinding(resolved=False, seq=None, eliminations=None, seconds=None)
    # Survivors only become fewer, so it is resolved from some elimination on.
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_resolved(middle) else (middle + 1, high)
    seq, ts = (steps[low - 1].seq, steps[low - 1].ts) if low else (0, trajectory.started)
    return ResolutionFinding(resolved=True, seq=seq, eliminations=low, seconds=seconds_between(trajectory.started, ts))


def _truth(trajectory: Trajectory, truth: str, *, resolved: bool) -> TruthFinding:
    killer = trajectory.killer_of(truth)
    return TruthFinding(
        hypothesis_id=truth,
        survived=killer is None,
        found=resolved and killer is None,
        killed_by_event_id=None if killer is None else killer.event_id,
        killed_by_seq=None if killer is None else killer.seq,
        killed_by_source_id=None if killer is None else killer.source_id,
    )


def _certificate(steps: Sequence[Step], allowed: int) -> CertificateFinding:
    cover = fewest([step.asked for step in steps], allowed)
    return CertificateFinding(
        size=len(cover.chosen),
        event_ids=[steps[position].event_id for position in cover.chosen],
        exact=cover.exact,
        at_least=cover.at_least,
    )


def _sources(steps: Sequence[Step]) -> list[SourceFinding]:
    by_source: dict[str, list[Step]] = {}
    for step in steps:
        by_source.setdefault(step.source_id, []).append(step)
    return [
        SourceFinding(
            source_id=source_id,
            eliminations=len(own),
            redundant=sum(step.redundancy is not None for step in own),
            bits=_total([bits_of_counts(step.before, step.after) for step in own]),
        )
        for source_id, own in sorted(by_source.items())
    ]


def _total(terms: Sequence[float | None]) -> float | None:
    """The sum; None where a term is not a number."""
    known = [term for term in terms if term is not None]
    return math.fsum(known) if len(known) == len(terms) else None
