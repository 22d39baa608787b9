"""The smallest change of facts that would have turned a decision.

A fact is a state key that an actor may write by proposal (`fact.*`, `goal.*`), or what the belief plane says of one
session. The search goes by numbers: no fact, one, two… Where something stands in the way, a change that helps must
touch a fact that this very thing reads, so that only those are tried; each with the values that its predicates tell
apart. Every answer was decided by `arbitrate` itself. It is exact where every value was covered, and says so where not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from cmbs.messages import Actor
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.arbitration.capabilities import token_line
from cmbs.substrate.kernel.arbitration.cases import find_case
from cmbs.substrate.kernel.arbitration.stages import begin_call, begin_delta
from cmbs.substrate.kernel.insight.bounds import MayGoOn, without_bound
from cmbs.substrate.kernel.insight.fact_domains import Alteration, FactDomains
from cmbs.substrate.kernel.model import (
    BeliefReading,
    CandidateDecision,
    Decision,
    Proposal,
    ReasonCode,
    ToolCall,
    Verdict,
)
from cmbs.substrate.kernel.policy.policy import Matching
from cmbs.substrate.kernel.policy.predicates import Predicate, probes_of
from cmbs.substrate.kernel.policy.references import EvaluationContext
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import FlipStatus

MAX_DECISIONS = 20_000
MAX_FACTS = 8
# All decisions of a search together ask no more than this: some seconds, however much a policy asks each time.
MAX_PROBES = 1_000_000


class Found(NamedTuple):
    """What the search came to. No change of `ruled_out` facts or fewer turns the decision, where that is known."""

    status: FlipStatus
    alterations: tuple[Alteration, ...] = ()
    decision: Decision | None = None
    ruled_out: int = 0
    decisions: int = 0


class Hypothetical(NamedTuple):
    """What was asked, and everything it was decided on."""

    space: Space
    proposal: Proposal
    actor: Actor
    now: str
    belief: Mapping[str, BeliefReading]


def smallest_flip(asked: Hypothetical, max_decisions: int = MAX_DECISIONS, may_go_on: MayGoOn = without_bound) -> Found:
    """The smallest change of facts under which an allowed proposal is not allowed, or any other is."""
    return _Search(asked, max_decisions, may_go_on).search()


class _Spent(Exception):
    """The budget is gone."""


_Chosen: TypeAlias = tuple[Alteration, ...]


class _Search:
    """One search, with one more fact each time."""

    def __init__(self, asked: Hypothetical, max_decisions: int, may_go_on: MayGoOn) -> None:
        self._asked = asked
        self._may_go_on = may_go_on
        self._spent = 0
        self._policy = asked.space.policy
        self._matchings = [self._matching(place) for place in range(len(asked.proposal.candidates))]
        self._commits = any(not isinstance(each, ToolCall) for each in asked.proposal.candidates)
        # What is asked about is decided once in any case.
        self._left = max(1, min(max_decisions, MAX_PROBES // self._probes()))
        self._case = find_case(asked.space, asked.proposal, asked.actor, asked.belief)
        self._domains = FactDomains(
            asked.space, asked.belief, self._predicates(), self._goals(), [*self._contexts()], self._case
        )
        # Whatever blocks for want of a case where it is no permission: denials, and invariants.
        self._denies = {each.key for matching in self._matchings for each in matching.denies}
        self._denies |= {each.key for each in self._policy.invariants}
        self._was_allowed = self._decide(()).verdict is Verdict.ALLOW
        self._seen: set[frozenset[tuple[str, int]]] = set()
        self._deeper = False
        self._exact = True

    def search(self) -> Found:
        """Every number of facts in turn, until one turns the decision or there is nothing left to try."""
        ruled_out = 0
        try:
            for number in range(1, MAX_FACTS + 1):
                self._seen.clear()
                self._deeper = False
                turned = self._turn((), frozenset(), number)
                if turned is not None:
                    status = FlipStatus.SMALLEST if ruled_out == number - 1 else FlipStatus.BOUND
                    return Found(status, *turned, ruled_out, self._spent)
                ruled_out = number if self._exact else ruled_out
                if not self._deeper:
                    status = FlipStatus.NONE if self._exact else FlipStatus.UNKNOWN
                    return Found(status, ruled_out=ruled_out, decisions=self._spent)
        except _Spent:
            pass
        return Found(FlipStatus.UNKNOWN, ruled_out=ruled_out, decisions=self._spent)

    def _turn(self, chosen: _Chosen, at: frozenset[tuple[str, int]], left: int) -> tuple[_Chosen, Decision] | None:
        """A change with `left` more facts that turns the decision, and to what; None where there is none."""
        decision = self._decide(chosen)
        if (decision.verdict is Verdict.ALLOW) is not self._was_allowed:
            return chosen, decision
        changed = {fact for fact, _ in at}
        levers = [fact for fact in self._levers(decision) if fact not in changed]
        if left == 0:
            self._deeper = self._deeper or bool(levers)
            return None
        for fact in levers:
            domain = self._domains.of(fact)
            self._exact = self._exact and domain.complete
            for place, alteration in enumerate(domain.alterations):
                here = at | {(fact, place)}
                if here in self._seen:
                    continue
                self._seen.add(here)
                turned = self._turn((*chosen, alteration), here, left - 1)
                if turned is not None:
                    return turned
        return None

    def _decide(self, chosen: _Chosen) -> Decision:
        # What is asked about is decided in any case.
        if self._spent >= self._left or (self._spent > 0 and not self._may_go_on()):
            raise _Spent
        self._spent += 1
        asked = self._asked
        state, belief = asked.space.state, dict(asked.belief)
        for each in chosen:
            if each.reading is not None:
                belief[each.reading.session_id] = each.reading
            elif each.text is None:
                state = state.delete(each.fact)
            else:
                state = state.set(each.fact, each.text)
        space = msgspec.structs.replace(asked.space, state=state)
        return arbitrate(space, asked.proposal, asked.actor, asked.now, belief).decision

    # --- what may help ---

    def _levers(self, decision: Decision) -> list[str]:
        """The facts of which one must change, for the decision to turn."""
        if self._was_allowed or not self._asked.proposal.atomic:
            # Any one may do: deltas that are judged together can be freed by what is held against another.
            return self._domains.facts
        against = [each for each in decision.candidates if each.reason_code is not ReasonCode.HELD_BACK]
        against = [each for each in against if each.reason_code is not ReasonCode.ALLOWED]
        sets: list[set[str]] = [self._levers_of(each) for each in against]
        # Every one of them has to be turned, so that it is enough to begin with the one of which there is least.
        least: set[str] = min(sets, key=len) if sets else set()
        return sorted(least)

    def _levers_of(self, against: CandidateDecision) -> set[str]:
        match against.reason_code:
            case ReasonCode.CONSTRAINT_DENIED | ReasonCode.INVARIANT_VIOLATED:
                # All of them have to give way.
                return min([self._domains.read_by(key) for key in against.matched], key=len)
            case ReasonCode.ALLOW_UNMET:
                return self._levers_of_allows(against.candidate)
            case ReasonCode.NO_CASE if not self._denies.intersection(against.matched):
                # No fact is a case, but a permission that reads none may be met.
                return self._levers_of_allows(against.candidate)
            case ReasonCode.EXCLUSIVE_GOALS:
                return min([self._goals_of(key) for key in against.matched], key=len)
            case _:
                # Nothing that is decided by facts.
                return set()

    def _levers_of_allows(self, candidate: int) -> set[str]:
        return set().union(*(self._domains.read_by(allow.key) for allow in self._matchings[candidate].allows))

    def _matching(self, place: int) -> Matching:
        candidate = self._asked.proposal.candidates[place]
        if not isinstance(candidate, ToolCall):
            return self._policy.matching(None)
        token = token_line(self._asked.space.capabilities, candidate.capability_token_id)
        return self._policy.matching(candidate.tool_id, token.permitting, token.denying)

    def _probes(self) -> int:
        """How much is asked at most to decide once."""
        predicates = [
            each.when
            for matching in self._matchings
            for each in (*matching.denies, *matching.allows, *matching.observing)
        ]
        if self._commits:
            predicates += [each.predicate for each in self._policy.invariants]
        return 1 + sum(len(probes_of(each.root)) for each in predicates if each is not None)

    def _predicates(self) -> dict[str, Predicate | None]:
        """The predicates, by key, of everything that may speak on the proposal; None for what always holds."""
        spoken = {each.key: each.when for matching in self._matchings for each in (*matching.denies, *matching.allows)}
        if self._commits:
            spoken |= {each.key: each.predicate for each in self._policy.invariants if each.predicate is not None}
        return dict(sorted(spoken.items()))

    def _contexts(self) -> Iterator[EvaluationContext]:
        """What the predicates of each candidate see, and those of the commit."""
        space, _, actor, _, belief = self._asked
        for place, candidate in enumerate(self._asked.proposal.candidates):
            if isinstance(candidate, ToolCall):
                yield begin_call(space, actor, belief, self._case, place, candidate).seen
            else:
                yield begin_delta(space, actor, belief, self._case, place, candidate).seen
        yield EvaluationContext(space.state, belief, None, case=self._case)

    def _goals(self) -> set[str]:
        """Goals that stand in a group with one that the proposal sets."""
        goals = {key for each in self._asked.proposal.candidates if not isinstance(each, ToolCall) for key in each.set}
        return {goal for key in goals for group in self._policy.groups_of(key) for goal in group.goals or ()}

    def _goals_of(self, key: str) -> set[str]:
        group = next(group for group in self._policy.groups if group.key == key)
        return set(group.goals or ())
