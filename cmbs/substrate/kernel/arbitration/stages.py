"""The stages that one candidate goes through, each a function that finds something against it or nothing.

`CALL_STAGES` and `DELTA_STAGES` are the one list of the stages of a single candidate. `conflicts` and `invariants`
follow for all deltas of a proposal together, in `arbitrate._judge_commit`. Every stage runs and adds what it looked at
to the trace; the first that finds something decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from cmbs.ledger import canonical
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.authority import proposable_by
from cmbs.substrate.kernel.arbitration.capabilities import (
    UNBOUNDED,
    Demand,
    TokenLine,
    is_exhausted,
    token_line,
    use_fault,
)
from cmbs.substrate.kernel.arbitration.conflicts import Finding
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Candidate,
    Capability,
    Failure,
    Proposal,
    ReasonCode,
    Stage,
    StateDelta,
    Tool,
    ToolCall,
    TraceStep,
)
from cmbs.substrate.kernel.policy.constraints import STRICTNESS, Constraint, Effect
from cmbs.substrate.kernel.policy.policy import Matching
from cmbs.substrate.kernel.policy.predicates import Asking
from cmbs.substrate.kernel.policy.references import MISSING, CaseContext, CaseUse, EvaluationContext, namespace_of
from cmbs.substrate.kernel.policy.schemas import SchemaFault, compile_schema_text
from cmbs.substrate.kernel.state import CallKey, GrantKey, Space
from cmbs.substrate.kernel.steps import encode
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus

# How the note of a constraint in the trace begins, where it only observes.
_OBSERVED = "observed"


class ArbitrationContext(msgspec.Struct, frozen=True):
    """Everything that one arbitration looks at beside the candidate itself; `steps` is the trace, filled on the way."""

    space: Space
    actor: Actor
    now: str
    # The seq of an older snapshot that the proposal was made on; None where it is the current one.
    since: int | None
    # Why the provenance of the proposal is not believed: it names another actor, or a state that never was.
    forgery: ReasonCode | None
    # Places of candidates that exclude each other.
    clashes: frozenset[int]
    states: Sequence[CandidateState]
    # The case that the proposal names, whether it can be acted under or not.
    case_id: str | None
    steps: list[TraceStep]


class CallState(msgspec.Struct):
    """A call of a tool on its way through the stages. The fields with a default are what the stages find out."""

    place: int
    candidate: ToolCall
    tool: Tool | None
    token: TokenLine
    matching: Matching
    seen: EvaluationContext
    args_hash: str
    # The execution of this very call in the past.
    answered_by: str | None
    finding: Finding | None = None
    # Whether something was found that is enforced even where decisions are only observed.
    enforced: bool = False
    matched: tuple[str, ...] = ()
    used: tuple[str, ...] = ()


class DeltaState(msgspec.Struct):
    """A state delta on its way through the stages. Deltas are not executed, so that none answers another."""

    place: int
    candidate: StateDelta
    matching: Matching
    seen: EvaluationContext
    args_hash: str
    answered_by: None = None
    finding: Finding | None = None
    enforced: bool = False
    matched: tuple[str, ...] = ()
    used: tuple[str, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """The keys that it sets and unsets."""
        return (*self.candidate.set, *self.candidate.unset)


CandidateState: TypeAlias = CallState | DeltaState


def begin_call(
    space: Space,
    actor: Actor,
    belief: Mapping[str, BeliefReading],
    case: CaseContext | None,
    place: int,
    call: ToolCall,
) -> CallState:
    """A call before its first stage."""
    token = token_line(space.capabilities, call.capability_token_id)
    args_hash = hash_of_args(call)
    answered_by = None
    if call.idempotency_key is not None:
        execution_id = find_call(space, call.tool_id, call.idempotency_key, actor)
        if execution_id is not None:
            execution = space.executions[execution_id]
            known = (execution.intent.args_hash, execution.intent.capability_token_id)
            # The same args, the same token. What waits to be started answers nothing: it may never run.
            is_same = known == (args_hash, call.capability_token_id)
            answered_by = execution_id if is_same and execution.status is not ExecutionStatus.READY else None
    try:
        args = msgspec.json.decode(call.args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        args = MISSING
    tool = space.tools.get(call.tool_id)
    return CallState(
        place,
        call,
        tool,
        token,
        space.policy.matching(call.tool_id, token.permitting, token.denying),
        EvaluationContext(space.state, belief, actor, args, call.tool_id, case, None if tool is None else tool.writes),
        args_hash,
        answered_by,
    )


def begin_delta(
    space: Space,
    actor: Actor,
    belief: Mapping[str, BeliefReading],
    case: CaseContext | None,
    place: int,
    delta: StateDelta,
) -> DeltaState:
    """A delta before its first stage."""
    seen = EvaluationContext(space.state, belief, actor, args_of_delta(delta), case=case)
    return DeltaState(place, delta, space.policy.matching(None), seen, hash_of_args(delta))


def find_call(space: Space, tool_id: str, idempotency_key: str, actor: Actor) -> str | None:
    """The execution that this actor began under this key."""
    return space.calls.get(CallKey(tool_id, idempotency_key, (actor.kind, actor.id)))


def provenance_fault(space: Space, proposal: Proposal, actor: Actor) -> ReasonCode | None:
    """Why the provenance of a proposal is not believed. Only agents have tokens, whatever id another actor goes by."""
    provenance = proposal.provenance
    tokens = [space.capabilities.get(token_id) for token_id in provenance.permissions]
    if provenance.source != actor.id or (tokens and actor.kind is not ActorKind.AGENT):
        return ReasonCode.FORGED_PROVENANCE
    if any(token is None or token.agent_id != actor.id for token in tokens):
        return ReasonCode.FORGED_PROVENANCE
    if proposal.state_snapshot_id != space.snapshot_id and space.snapshots.get(proposal.state_snapshot_id) is None:
        return ReasonCode.UNKNOWN_SNAPSHOT
    return None


def args_of_delta(delta: StateDelta) -> dict[str, Any]:
    """What `$args` means for a delta."""
    return {"set": delta.set, "unset": sorted(set(delta.unset))}


def hash_of_args(candidate: Candidate) -> str:
    """What approvals and intents are bound to: the tagged hash, in hex, of args and what is forwarded, or of a delta's
    set and unset.
    """
    if isinstance(candidate, ToolCall):
        if isinstance(candidate.forwarded, msgspec.UnsetType):
            return hash_tagged(Domain.ARGS, bytes(candidate.args)).hex()
        return hash_tagged(Domain.FORWARDED, b"[%b,%b]" % (bytes(candidate.args), bytes(candidate.forwarded))).hex()
    return hash_tagged(Domain.DELTA, canonical.encode(args_of_delta(candidate))).hex()


def hash_of_tool(space: Space, tool_id: str | None) -> str | None:
    """What approvals of calls are bound to: the tagged hash, in hex, of the registered tool; None for no tool."""
    tool = None if tool_id is None else space.tools.get(tool_id)
    return None if tool is None else hash_tagged(Domain.TOOL, encode(tool)).hex()


# --- shape, freshness, authority --------------------------------------------------------------------------------------


def check_call_shape(context: ArbitrationContext, state: CallState) -> Finding | None:
    """Who it comes from, what state it is based on, and whether another candidate is the same call."""
    if context.forgery is not None:
        return Finding(Stage.SHAPE, context.forgery)
    if state.place in context.clashes:
        return Finding(Stage.SHAPE, ReasonCode.CONFLICTING_CANDIDATES)
    return None


def check_delta_shape(context: ArbitrationContext, state: DeltaState) -> Finding | None:
    """The same for a delta: it writes something, in the namespaces, and nothing that another writes differently."""
    if context.forgery is not None:
        return Finding(Stage.SHAPE, context.forgery)
    if not state.written:
        return Finding(Stage.SHAPE, ReasonCode.NOTHING_PROPOSED)
    if None in map(namespace_of, state.written):
        return Finding(Stage.SHAPE, ReasonCode.KEY_OUTSIDE_NAMESPACES)
    if state.place in context.clashes:
        return Finding(Stage.SHAPE, ReasonCode.CONFLICTING_CANDIDATES)
    return None


def check_freshness(context: ArbitrationContext, state: CandidateState) -> Finding | None:
    """Whether what it writes, or what constraints read for it, is as it was when it was proposed."""
    if context.since is None:
        return None
    written = state.written if isinstance(state, DeltaState) else ()
    changed = context.space.changed
    moved = {key for key in (*written, *state.matching.keys) if changed.get(key, -1) > context.since}
    if not moved:
        return None
    context.steps.extend(TraceStep(Stage.FRESHNESS, False, state.place, reference=key) for key in sorted(moved))
    return Finding(Stage.FRESHNESS, ReasonCode.STALE_SNAPSHOT, Failure.DEFER)


def check_call_authority(context: ArbitrationContext, state: CallState) -> Finding | None:  # noqa: ARG001
    """Whether this kind of actor makes calls at all; what a call may do is asked of its capability."""
    if context.actor.kind is ActorKind.EXECUTOR:
        return Finding(Stage.AUTHORITY, ReasonCode.AUTHORITY_DENIED)
    return None


def check_delta_authority(context: ArbitrationContext, state: DeltaState) -> Finding | None:
    """Whether this kind of actor may write every one of the keys."""
    if set(map(namespace_of, state.written)) <= proposable_by(context.actor.kind):
        return None
    return Finding(Stage.AUTHORITY, ReasonCode.AUTHORITY_DENIED)


# --- tool and capability ----------------------------------------------------------------------------------------------


def check_tool(context: ArbitrationContext, state: CallState) -> Finding | None:  # noqa: ARG001
    """Whether there is such a tool, and the args fit it."""
    tool, args = state.tool, state.seen.args
    if tool is None:
        return Finding(Stage.TOOL, ReasonCode.UNKNOWN_TOOL)
    if tool.retired:
        return Finding(Stage.TOOL, ReasonCode.TOOL_RETIRED)
    try:
        fits = isinstance(args, dict) and compile_schema_text(bytes(tool.args_schema)).is_valid(args)
    except SchemaFault:
        fits = False
    return None if fits else Finding(Stage.TOOL, ReasonCode.ARGS_INVALID)


def check_idempotency(context: ArbitrationContext, state: CallState) -> Finding | None:
    """Whether it has the key that a tool with effects asks for, and the key is not that of another call."""
    call = state.candidate
    if call.idempotency_key is None:
        if state.tool is not None and state.tool.writes:
            return Finding(Stage.TOOL, ReasonCode.IDEMPOTENCY_KEY_REQUIRED)
        return None
    known = find_call(context.space, call.tool_id, call.idempotency_key, context.actor)
    if state.answered_by is None and known is not None:
        return Finding(Stage.TOOL, ReasonCode.IDEMPOTENCY_CONFLICT)
    return None


def check_capability(context: ArbitrationContext, state: CallState) -> Finding | None:
    """Whether its token is good for it, and has enough left for all calls of the proposal."""
    call = state.candidate
    if call.capability_token_id is None:
        return Finding(Stage.CAPABILITY, ReasonCode.CAPABILITY_REQUIRED)
    fault = use_fault(context.space, state.token, context.actor, call.tool_id, state.seen.args, context.now)
    if fault is None and state.answered_by is None:
        for token in state.token.tokens:
            if token.budget != UNBOUNDED and is_exhausted(context.space, token, _demand(context, token)):
                fault = ReasonCode.BUDGET_EXHAUSTED
    return None if fault is None else Finding(Stage.CAPABILITY, fault)


def _demand(context: ArbitrationContext, token: Capability) -> Demand:
    """What all calls of the proposal that are to be run ask of a token."""
    calls = [each for each in context.states if isinstance(each, CallState) and each.answered_by is None]
    sizes = [len(bytes(each.candidate.args)) for each in calls if token in each.token.tokens]
    return Demand(len(sizes), sum(sizes))


# --- constraints ------------------------------------------------------------------------------------------------------


def check_constraints(context: ArbitrationContext, state: CandidateState) -> Finding | None:
    """A matching deny wins; without a matching allow nothing is permitted; what cannot be read denies.

    What reads a case that is not there, or belief that cannot be told, is against the candidate, whatever its
    predicates say: `_holds` sees to that.
    """
    matching, steps = state.matching, context.steps
    steps += [TraceStep(Stage.CONSTRAINTS, False, state.place, key, note="malformed") for key in matching.malformed]
    denies = [each for each in matching.denies if _holds(state, each, steps)]
    allows = [each for each in matching.allows if _holds(state, each, steps)]
    for each in matching.observing:
        _holds(state, each, steps)
    if matching.malformed:
        return Finding(Stage.CONSTRAINTS, ReasonCode.MALFORMED_CONSTRAINT, matched=matching.malformed)
    against: list[Constraint] = []
    used: set[str] = set()
    for deny in denies:
        approval_id = _live_approval(context, state, deny)
        if approval_id is None:
            against.append(deny)
        else:
            used.add(approval_id)
    if against:
        # The strictest come first.
        strictest = [each for each in against if each.on_fail is against[0].on_fail]
        return _no_case(state, against) or _finding(state, ReasonCode.CONSTRAINT_DENIED, strictest)
    if not matching.allows:
        return Finding(Stage.CONSTRAINTS, ReasonCode.NO_ALLOW)
    if not allows:
        # An approval stands in for the first permission that asks for one.
        approved = [(each, found) for each in matching.allows if (found := _live_approval(context, state, each))]
        if not approved:
            return _unmet(state, matching.allows)
        allows = [approved[0][0]]
        used.add(approved[0][1])
    state.matched = (allows[0].key,)
    state.used = tuple(sorted(used))
    return None


def _holds(state: CandidateState, constraint: Constraint, steps: list[TraceStep]) -> bool:
    """Whether a constraint applies; what each predicate in it found, and the constraint itself, go into the trace."""
    asking = Asking(Stage.CONSTRAINTS, state.place, constraint.key)
    holds = constraint.when is None or constraint.when.evaluate(state.seen, asking, steps)
    if constraint.when is not None and constraint.when.lacks(state.seen):
        holds = constraint.effect is Effect.DENY
    # Of one that observes: what it would have done, where it holds.
    note = f"{_OBSERVED} {constraint.effect.value}" if constraint.observes else constraint.effect.value
    steps.append(TraceStep(Stage.CONSTRAINTS, holds, state.place, constraint.key, note=note))
    return holds


def is_observation(step: TraceStep) -> bool:
    """Whether a step of a trace says what a constraint that only observes would have done."""
    return step.op is None and step.note is not None and step.note.startswith(_OBSERVED)


def _lacks_case(state: CandidateState, constraint: Constraint) -> bool:
    return constraint.when is not None and constraint.when.lacks_case(state.seen)


def _no_case(state: CandidateState, against: Sequence[Constraint]) -> Finding | None:
    """Blocked where one of them reads a case that is not there: nothing is asked or waited for that cannot come."""
    lacking = [each for each in against if _lacks_case(state, each)]
    if not lacking:
        return None
    reason = next((each.reason for each in lacking if each.reason is not None), None)
    keys = tuple(each.key for each in lacking)
    return Finding(Stage.CONSTRAINTS, ReasonCode.NO_CASE, matched=keys, reason=reason)


def _unmet(state: CandidateState, allows: tuple[Constraint, ...]) -> Finding:
    """Of permissions that are not given, those on the most specific subject decide, and of these the strictest."""
    nearest = [allow for allow in allows if allow.subject.kind is allows[0].subject.kind]
    strictest = min((allow.on_fail for allow in nearest), key=STRICTNESS.__getitem__)
    deciding = [allow for allow in nearest if allow.on_fail is strictest]
    return _no_case(state, nearest) or _finding(state, ReasonCode.ALLOW_UNMET, deciding)


def _finding(state: CandidateState, reason_code: ReasonCode, against: list[Constraint]) -> Finding:
    """What constraints that agree on what happens come to; all of them are named, in the order of their keys."""
    failure = against[0].on_fail
    waits_for: tuple[str, ...] = ()
    if failure is Failure.DEFER:
        predicates = [each.when for each in against if each.when is not None]
        keys = {key for predicate in predicates for key in predicate.keys}
        sessions = {session_id for predicate in predicates for session_id in predicate.session_ids}
        case, use = state.seen.case, max((predicate.case_use for predicate in predicates), default=CaseUse.NONE)
        if case is not None and use is not CaseUse.NONE:
            keys.add(f"$case.{case.case_id}")
            sessions |= {case.case_id} if use >= CaseUse.BELIEF else set()
        waits_for = tuple(sorted(keys.union(f"$belief.{session_id}" for session_id in sessions)))
    reason = next((each.reason for each in against if each.reason is not None), None)
    return Finding(Stage.CONSTRAINTS, reason_code, failure, tuple(each.key for each in against), reason, waits_for)


def _live_approval(context: ArbitrationContext, state: CandidateState, constraint: Constraint) -> str | None:
    """The approval that covers this constraint for exactly this candidate, and for all others like it."""
    space, tool_id = context.space, state.seen.tool_id
    if constraint.on_fail is not Failure.ASK or not space.grants or _lacks_case(state, constraint):
        return None
    policy_hash, case_id = space.policy.policy_hash, context.case_id
    tool_hash = hash_of_tool(space, tool_id)
    approval_id = space.grants.get(
        GrantKey(context.actor.id, tool_id, state.args_hash, constraint.key, policy_hash, tool_hash, case_id)
    )
    if approval_id is None:
        return None
    approval = space.approvals[approval_id]
    alike = [each for each in context.states if (each.seen.tool_id, each.args_hash) == (tool_id, state.args_hash)]
    is_live = (
        approval.status is ApprovalStatus.APPROVED
        and approval.proposer.kind is context.actor.kind
        and (approval.good_until is None or context.now < approval.good_until)
        and approval.uses_left >= len(alike)
    )
    return approval_id if is_live else None


# --- all of them ------------------------------------------------------------------------------------------------------

CALL_STAGES: tuple[tuple[Stage, Callable[[ArbitrationContext, CallState], Finding | None]], ...] = (
    (Stage.SHAPE, check_call_shape),
    (Stage.FRESHNESS, check_freshness),
    (Stage.AUTHORITY, check_call_authority),
    (Stage.TOOL, check_tool),
    (Stage.TOOL, check_idempotency),
    (Stage.CAPABILITY, check_capability),
    (Stage.CONSTRAINTS, check_constraints),
)
DELTA_STAGES: tuple[tuple[Stage, Callable[[ArbitrationContext, DeltaState], Finding | None]], ...] = (
    (Stage.SHAPE, check_delta_shape),
    (Stage.FRESHNESS, check_freshness),
    (Stage.AUTHORITY, check_delta_authority),
    (Stage.CONSTRAINTS, check_constraints),
)
