"""A policy's tests: what each was decided as, what was expected, and which constraints none of them touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from immutables import Map

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import InvalidRequest
from cmbs.ledger import canonical
from cmbs.ledger.instants import LAST, parse_instant
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.arbitration.stages import hash_of_args, hash_of_tool
from cmbs.substrate.kernel.decide import decide, evolve
from cmbs.substrate.kernel.events import Asked, CreateSpace, SpaceEvent
from cmbs.substrate.kernel.insight.bounds import MayGoOn, without_bound
from cmbs.substrate.kernel.insight.findings import Mismatch
from cmbs.substrate.kernel.insight.flips import Hypothetical
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Capability,
    Decision,
    IndependentReading,
    Proposal,
    Provenance,
    Stage,
    Tool,
    ToolCall,
)
from cmbs.substrate.kernel.policy.constraints import Malformed
from cmbs.substrate.kernel.policy.documents import (
    Expected,
    ExpectedCandidate,
    Given,
    GivenCase,
    IndependentSighting,
    PolicyTest,
    ProposalSketch,
    Sighting,
    actor_of,
    is_null,
    pairs_of,
)
from cmbs.substrate.kernel.policy.file import CompiledPolicy
from cmbs.substrate.kernel.policy.policy import POLICY_PREFIXES, Policy, compile_policy
from cmbs.substrate.kernel.policy.references import namespace_of
from cmbs.substrate.kernel.state import Approval, Case, GrantKey, Space
from cmbs.substrate.kernel.words import ApprovalStatus, CaseStatus

_OPERATOR = Actor(ActorKind.OPERATOR, "operator")
_SEEN_ID = "seen"
_SPOKEN = frozenset({Stage.CONSTRAINTS, Stage.CONFLICTS, Stage.INVARIANTS, None})


class PolicyTestResult(msgspec.Struct, frozen=True):
    """What came of one test."""

    name: str
    mismatches: list[Mismatch]
    decision: Decision

    @property
    def passed(self) -> bool:
        """Whether everything was as expected."""
        return not self.mismatches


class Coverage(msgspec.Struct, frozen=True):
    """How often each constraint, group and invariant was asked, and how often it held.

    Those in `one_sided` were asked and could have been either way, but always or never held.
    """

    asked: dict[str, int]
    held: dict[str, int]
    one_sided: list[str]

    @property
    def never_asked(self) -> list[str]:
        """Those that no test came to."""
        return sorted(key for key, number in self.asked.items() if not number)


class PolicyTestReport(msgspec.Struct, frozen=True):
    """What came of all tests of a policy."""

    results: list[PolicyTestResult]
    coverage: Coverage
    # False where the caller stopped it before every test was decided.
    complete: bool = True


def run_tests(compiled: CompiledPolicy, may_go_on: MayGoOn = without_bound) -> PolicyTestReport:
    """Decide every test of a policy file, or as many as the caller lets it."""
    policy = compile_policy(compiled.pairs)
    tools = {tool.tool_id: tool for tool in compiled.tools or ()}
    _refuse_twins([test.name for test in compiled.tests])
    results: list[PolicyTestResult] = []
    for test in compiled.tests:
        if not may_go_on():
            break
        if test.expect is None:
            raise InvalidRequest(f"test `{test.name}` says not what to `expect`")
        results.append(_result(test.name, test.expect, situation(compiled.given, test, policy, tools)))
    coverage = coverage_of(policy, [result.decision for result in results])
    return PolicyTestReport(results, coverage, complete=len(results) == len(compiled.tests))


def situation(given: Given, test: PolicyTest, policy: Policy, tools: Mapping[str, Tool]) -> Hypothetical:
    """Everything that a test is decided on; what it does not say is as `given` for all."""
    try:
        actor = actor_of(test.actor or given.actor)
        now = parse_instant(test.now or given.now, "now")
        state = {key: value for key, value in {**given.state, **test.state}.items() if not is_null(value)}
        space = _space(policy, pairs_of(state), tools, given.capabilities)
        space = msgspec.structs.replace(
            space,
            mode=test.mode or given.mode,
            revoked=Map(dict.fromkeys(test.revoked, 0)),
            spent=Map(test.spent),
        )
        proposal = _proposal(test.proposal, actor, now, space.snapshot_id)
        if test.seen:
            proposal = msgspec.structs.replace(proposal, state_snapshot_id=_SEEN_ID)
            space = _add_seen_snapshot(space, test.seen)
        said = {**given.belief, **test.belief}
        case = given.case if test.case is msgspec.UNSET else test.case
        if case is not None:
            said[case.case_id] = case.belief
            proposal = msgspec.structs.replace(proposal, case_id=case.case_id)
            space = msgspec.structs.replace(space, cases=Map({case.case_id: _case(case, actor, now)}))
        space = _with_approvals(space, proposal, actor, [key_of(name) for name in test.approved])
        belief = {session_id: _reading(session_id, each, actor.id) for session_id, each in said.items()}
    except InvalidRequest as exc:
        raise InvalidRequest(f"test `{test.name}`: {exc.message}") from exc
    return Hypothetical(space, proposal, actor, now, belief)


def key_of(name: str) -> str:
    """The key that is meant by a name in a test: that of a rule, unless it says itself that it is another."""
    return name if name.startswith(POLICY_PREFIXES) else f"constraint.{name}"


def coverage_of(policy: Policy, decisions: Sequence[Decision]) -> Coverage:
    """What these decisions came to of a policy, from their traces."""
    groups, invariants = (group.key for group in policy.groups), (each.key for each in policy.invariants)
    keys = [*policy.compiled, *groups, *invariants]
    asked, held = dict.fromkeys(keys, 0), dict.fromkeys(keys, 0)
    for decision in decisions:
        reached = {each.candidate for each in decision.candidates if each.stage in _SPOKEN}
        for step in decision.trace:
            # A step of its own for each constraint, group or invariant, after those of its predicates.
            if step.key in asked and step.op is None and (step.candidate is None or step.candidate in reached):
                asked[step.key] += 1
                held[step.key] += step.passed
    always = {key for key, (_, each) in policy.compiled.items() if isinstance(each, Malformed) or each.when is None}
    one_sided = [key for key in keys if asked[key] and held[key] in (0, asked[key]) and key not in always]
    return Coverage(asked, held, sorted(one_sided))


# --- what a test is decided on ----------------------------------------------------------------------------------------


def _space(
    policy: Policy, state: Mapping[str, str], tools: Mapping[str, Tool], capabilities: Iterable[Capability]
) -> Space:
    for key in state:
        if namespace_of(key) not in {"fact", "goal"}:
            raise InvalidRequest(f"`{key}` in the state is neither a fact.* nor a goal.* key")
    # An empty policy needs no check, and the one that is tested may be malformed: that is then what is decided on.
    event = decide(None, CreateSpace("tests"), _OPERATOR, Stamp("tests", LAST, None))
    if not isinstance(event, SpaceEvent):  # pragma: no cover - a first message repeats nothing
        raise TypeError(event)
    return msgspec.structs.replace(
        evolve(None, event),
        policy=policy,
        state=Map({**policy.pairs, **state}),
        tools=Map(tools),
        capabilities=Map({each.token_id: each for each in capabilities}),
    )


def _add_seen_snapshot(space: Space, seen: Mapping[str, Any]) -> Space:
    """The space with one more snapshot, of when these keys were otherwise."""
    since = space.head.seq
    return msgspec.structs.replace(
        space,
        snapshots=space.snapshots.set(_SEEN_ID, since),
        changed=space.changed.update(dict.fromkeys(seen, since + 1)),
    )


def _with_approvals(space: Space, proposal: Proposal, actor: Actor, constraints: Sequence[str]) -> Space:
    grants, approvals = {}, {}
    case_id = None if isinstance(proposal.case_id, msgspec.UnsetType) else proposal.case_id
    for place, candidate in enumerate(proposal.candidates if constraints else ()):
        tool_id = candidate.tool_id if isinstance(candidate, ToolCall) else None
        args_hash, tool_hash = hash_of_args(candidate), hash_of_tool(space, tool_id)
        for constraint in constraints:
            key = GrantKey(actor.id, tool_id, args_hash, constraint, space.policy.policy_hash, tool_hash, case_id)
            approval_id = f"{constraint} {place}"
            grants[key] = approval_id
            approvals[approval_id] = Approval(
                Asked(approval_id, place, args_hash, "", [constraint], LAST, tool_id, tool_hash, case_id),
                proposal.proposal_id,
                actor,
                space.policy.policy_hash,
                ApprovalStatus.APPROVED,
                _OPERATOR,
                len(proposal.candidates),
            )
    return msgspec.structs.replace(space, grants=Map(grants), approvals=Map(approvals))


def _proposal(said: ProposalSketch, actor: Actor, now: str, snapshot_id: str) -> Proposal:
    return Proposal(
        said.proposal_id,
        said.state_snapshot_id or snapshot_id,
        said.provenance or Provenance(actor.id, now),
        said.candidates,
        said.atomic,
    )


def _case(said: GivenCase, actor: Actor, now: str) -> Case:
    return Case(
        said.case_id,
        canonical.encode(said.attributes),
        frozenset([actor.id] if said.agents is None else said.agents),
        _OPERATOR,
        0,
        now,
        CaseStatus.CLOSED if said.closed else CaseStatus.OPEN,
    )


def _reading(session_id: str, said: Sighting, actor_id: str) -> BeliefReading:
    alone: IndependentReading | msgspec.UnsetType = msgspec.UNSET
    if said.independent is not None:
        number = _count_survivors(session_id, said.independent)
        attributes = _attributes(said.independent)
        alone = IndependentReading(actor_id, number, _survivors(said.independent), attributes)
    return BeliefReading(
        session_id,
        said.found,
        head_seq=0,
        head_event_hash="of the test",
        n_survivors=_count_survivors(session_id, said),
        terminated=said.terminated,
        active_obligation_id=said.active_obligation_id,
        survivors=_survivors(said),
        concluded=said.concluded,
        survivor_attributes=_attributes(said),
        independent=alone,
    )


def _attributes(said: Sighting | IndependentSighting) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.UNSET if said.survivor is None else msgspec.Raw(canonical.encode(said.survivor))


def _survivors(said: Sighting | IndependentSighting) -> list[str] | None:
    """The ids of those that are left; the one that a test says something of has one in any case."""
    if said.survivors is None and said.survivor is not None:
        return ["the survivor"]
    return said.survivors


def _count_survivors(session_id: str, said: Sighting | IndependentSighting) -> int:
    number, survivors = said.n_survivors, _survivors(said)
    if number is None:
        number = 0 if survivors is None else len(survivors)
    if survivors is not None and number != len(survivors):
        raise InvalidRequest(f"session `{session_id}` has {len(survivors)} survivors, and `n_survivors` is {number}")
    return number


def _refuse_twins(names: Sequence[str]) -> None:
    for name, number in Counter(names).items():
        if number > 1:
            raise InvalidRequest(f"{number} tests have the name `{name}`")


# --- what was expected ------------------------------------------------------------------------------------------------


def _result(name: str, expected: Expected, asked: Hypothetical) -> PolicyTestResult:
    decision = arbitrate(*asked).decision
    found = {
        "verdict": decision.verdict,
        "failure": decision.failure,
        "reason_code": decision.reason_code,
        "stage": decision.stage,
        "matched": sorted({key for each in decision.candidates for key in each.matched}),
        "waits_for": sorted({key for each in decision.candidates for key in each.waits_for}),
    }
    mismatches = _mismatches("", expected, found)
    if expected.candidates is not None:
        if len(expected.candidates) != len(decision.candidates):
            number = len(decision.candidates)
            mismatches.append(Mismatch("candidates", f"{len(expected.candidates)} of them", f"{number} of them"))
        for each, decided in zip(expected.candidates, decision.candidates, strict=False):
            mismatches += _mismatches(f"candidates[{decided.candidate}].", each, msgspec.structs.asdict(decided))
    return PolicyTestResult(name, mismatches, decision)


def _mismatches(at: str, expected: Any, found: Mapping[str, Any]) -> list[Mismatch]:
    mismatches = []
    for field in ExpectedCandidate.__struct_fields__:
        wanted = getattr(expected, field)
        if wanted is None:
            continue
        there = found[field]
        if isinstance(wanted, list):
            wanted = sorted(map(key_of, wanted) if field == "matched" else wanted)
            there = list(there)
        if wanted != there:
            mismatches.append(Mismatch(at + field, wanted, there))
    return mismatches
