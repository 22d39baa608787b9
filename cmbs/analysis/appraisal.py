"""What the probes that were asked were worth: expected gain, value, luck and regret, one answer at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import NamedTuple

from cmbs.analysis.findings import Choice, RegretFinding
from cmbs.analysis.gain import Belief, Gain, Odds, after_answer, bits_between, compute_expected_gain, gains, odds_of
from cmbs.analysis.optimum import Method, OutOfSteps, Steps
from cmbs.analysis.prospects import Place, Prospects, after_asking, after_outside, prospects_of, start_of
from cmbs.analysis.table import Probe, Table
from cmbs.analysis.trajectory import Step, Trajectory
from cmbs.errors import InvalidRequest
from cmbs.kit.model import Kit, KitOutcome
from cmbs.kit.responses import outcome_for

_HYPOTHESES_PER_STEP = 64
TOO_MUCH_WORK = "the exact optimum takes more steps than were allowed"
_FAR_TOO_MUCH_WORK = "the exact optimum, and the greedy one, take more steps than were allowed"


class Move(NamedTuple):
    """An elimination on the table: what it left, and the probe that it answers, if it does.

    `outcome_id` is None where a probe was asked and there was no data.
    """

    before: int
    after: int
    probe: Probe | None
    outcome_id: str | None


class Appraisal(NamedTuple):
    """Each move's choice, None for what is no answer to a probe; the regret of all; and the belief at the end.

    `certain` says of each move whether it is an answer that was the only one possible.
    """

    choices: list[Choice | None]
    certain: list[bool]
    regret: RegretFinding
    belief: Belief


def moves_of(kit: Kit, table: Table, trajectory: Trajectory) -> list[Move]:
    """The steps of a session on the table of its kit.

    A step is taken for the answer to a probe only where the ledger shows just the effect that the kit gives the answer.
    """
    moves = []
    alive = table.everything
    for step in trajectory.steps:
        after = alive & ~table.mask_of(step.eliminated)
        moves.append(_move(kit, table, trajectory.universe, step, alive, after))
        alive = after
    return moves


def _move(kit: Kit, table: Table, universe: frozenset[str], step: Step, before: int, after: int) -> Move:
    probe_id = step.observation_id if step.probe is None else step.probe.probe_id
    known, probe = kit.probe(probe_id), table.probe(probe_id)
    outside = Move(before, after, None, None)
    if known is None or probe is None:
        return outside
    if step.probe is None:
        outcome = _only_outcome(known.outcomes, universe, step.asked)
        if outcome is None:
            return outside
    else:
        try:
            outcome = outcome_for(known, step.probe.response)
        except InvalidRequest:
            return outside
    left = before if outcome is None else before & (probe.consistent(outcome.outcome_id) or 0)
    if left != after:
        return outside
    return Move(before, after, probe, None if outcome is None else outcome.outcome_id)


def _only_outcome(outcomes: Iterable[KitOutcome], universe: frozenset[str], asked: frozenset[str]) -> KitOutcome | None:
    fitting = [each for each in outcomes if each.eliminates & universe == asked]
    return fitting[0] if len(fitting) == 1 else None


class Study:
    """A table with what was found out about it, so that many sessions over one kit need not find it out again each."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._prospects = prospects_of(table)
        self._best = _Best(table)
        # Steps that were not enough to see from the start to the end: no session needs to find that out again.
        self._too_few: dict[Method, int] = {}

    def appraise(self, moves: Sequence[Move], steps: int, strongest: Method = Method.EXACT) -> Appraisal:
        """Every choice of a path, against the strongest optimum that the steps allow, and none above `strongest`."""
        best = self._best.allow(steps)
        for method, shortcoming in ((Method.EXACT, ""), (Method.GREEDY, TOO_MUCH_WORK)):
            if method.rank >= strongest.rank and self._within(method, steps):
                with suppress(OutOfSteps):
                    tally = _Tally(self.table, self._prospects[method])
                    return self._appraise(moves, tally, best, (method, shortcoming))
        return self._appraise(moves, None, best, (Method.HUFFMAN, _FAR_TOO_MUCH_WORK))

    def _within(self, method: Method, steps: int) -> bool:
        if steps <= self._too_few.get(method, -1):
            return False
        try:
            self._prospects[method].allow(steps).probes_left(start_of(self.table))
        except OutOfSteps:
            self._too_few[method] = steps
            return False
        return True

    def _appraise(
        self, moves: Sequence[Move], tally: _Tally | None, best: _Best, against: tuple[Method, str]
    ) -> Appraisal:
        """Every choice; without a tally, where only a bound is known, no choice is said to have cost anything."""
        table = self.table
        place = start_of(table)
        choices: list[Choice | None] = []
        certain: list[bool] = []
        for move in moves:
            before = place
            if move.probe is None:
                place = after_outside(table, place, move.after)
                choices.append(None)
                certain.append(False)
                if tally is not None:
                    tally.count_event(place)
                continue
            odds = odds_of(table, before.belief, move.probe)
            certain.append(move.outcome_id is not None and len(odds.outcomes) == 1)
            if move.outcome_id is not None:
                place = place._replace(belief=after_answer(table, before.belief, move.probe, move.after))
            costs = (None, None) if tally is None else tally.count_answer(before, place, move.probe, odds)
            choices.append(_choice(table, before.belief, move.probe, move, best.of(before.belief), costs))
        asked = sum(choice is not None for choice in choices)
        finding = self._regret(asked, tally, against, place.belief)
        return Appraisal(choices, certain, finding, place.belief)

    def _regret(self, asked: int, tally: _Tally | None, against: tuple[Method, str], belief: Belief) -> RegretFinding:
        at_least = float(self._prospects[Method.HUFFMAN].probes_left(start_of(self.table)))
        return RegretFinding(
            method=against[0],
            reason=against[1],
            optimum=None if tally is None else float(tally.start),
            optimum_at_least=at_least,
            probes=asked,
            probes_left=None if tally is None else float(tally.left),
            regret=None if tally is None else float(tally.regret),
            luck=None if tally is None else float(tally.luck),
            outside=None if tally is None else float(tally.outside),
            beyond_at_most=None if tally is not None else asked + self._most_left(belief) - at_least,
        )

    def _most_left(self, belief: Belief) -> int:
        """No strategy asks more than this: each probe once, and where each tells classes apart, one less than those."""
        asked = sum(
            probe.probe_id not in belief.answered and probe.matters(belief.alive) for probe in self.table.probes
        )
        if not self.table.deterministic:
            return asked
        return min(asked, max(len(self.table.classes_in(belief.alive)) - 1, 0))


class _Tally:
    """Probes along a path: lost by choices, saved by answers, and saved by events that are no answers."""

    def __init__(self, table: Table, prospects: Prospects) -> None:
        """Begin at the start; OutOfSteps, here and below, where what is expected takes too long to find."""
        self._table = table
        self._prospects = prospects
        self.start = self.left = prospects.probes_left(start_of(table))
        self.regret = self.luck = self.outside = Fraction(0)

    def count_event(self, place: Place) -> None:
        """Count what an event saved that led to this place and is no answer."""
        now = self._prospects.probes_left(place)
        self.outside += self.left - now
        self.left = now

    def count_answer(self, before: Place, after: Place, probe: Probe, odds: Odds) -> tuple[float, float]:
        """Count a probe and its answer: what asking it lost, and what the answer saved."""
        expected = after_asking(self._table, self._prospects, before, probe, odds)
        now = self._prospects.probes_left(after)
        lost, saved = 1 + expected - self.left, expected - now
        self.regret, self.luck, self.left = self.regret + lost, self.luck + saved, now
        return float(lost), float(saved)


class _Best:
    """The best probe of a belief, as long as the steps for looking last."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._steps = Steps(0)
        self._effort = len(table.probes) * (1 + len(table.hypotheses) // _HYPOTHESES_PER_STEP)
        self._known: dict[tuple[int, Hashable], Gain] = {}

    def allow(self, steps: int) -> _Best:
        """The same, with so many steps for what is not known yet."""
        self._steps.left = steps
        return self

    def of(self, belief: Belief) -> Gain | None:
        """The first probe with the largest expected gain, one of 0 bits where none is left; None where not known."""
        # Where each hypothesis determines every answer, what was asked on the way here changes nothing.
        way = None if self._table.deterministic else (belief.weights, belief.answered)
        key = (belief.alive, way)
        if key not in self._known:
            try:
                self._steps.take(self._effort)
            except OutOfSteps:
                return None
            self._known[key] = next(iter(gains(self._table, belief)), Gain("", 0.0))
        return self._known[key]


def _choice(
    table: Table, belief: Belief, probe: Probe, move: Move, best: Gain | None, probes: tuple[float | None, float | None]
) -> Choice:
    gain = bits_between(table, move.before, move.after)
    expected = compute_expected_gain(table, belief, probe)
    worth = None if best is None or best.bits == 0 else best
    return Choice(
        probe_id=probe.probe_id,
        outcome_id=move.outcome_id,
        gain=gain,
        expected_gain=expected,
        luck=None if gain is None else gain - expected,
        best_gain=None if best is None else best.bits,
        best_probe_id=None if worth is None else worth.probe_id,
        value_ratio=None if worth is None else min(expected / worth.bits, 1.0),
        regret=probes[0],
        probe_luck=probes[1],
    )
