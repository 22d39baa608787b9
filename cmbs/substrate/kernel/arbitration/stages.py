"""The stages that one candidate goes through, each a function that finds something against it or nothing.

With a trace to fill, a stage also says what it looked at. It finds the same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.authority import proposable_by
from cmbs.substrate.kernel.arbitration.capabilities import Demand, Held, held, is_exhausted, use_fault
from cmbs.substrate.kernel.arbitration.conflicts import Finding
from cmbs.substrate.kernel.events import Mode
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Candidate,
    Failure,
    Proposal,
    ReasonCode,
    Stage,
    StateDelta,
    Tool,
    ToolCall,
    TraceStep,
)
from cmbs.substrate.kernel.policy.constraints import STRICTNESS, Constraint
from cmbs.substrate.kernel.policy.policy import Matching, Policy
from cmbs.substrate.kernel.policy.predicates import Asking
from cmbs.substrate.kernel.policy.references import MISSING, Facing, namespace_of
from cmbs.substrate.kernel.policy.schemas import SchemaFault, args_validator
from cmbs.substrate.kernel.state import ApprovalStatus, CallKey, Execution, GrantKey, Space

# Members of enumerations that every decision looks at: to look one up takes longer than to compare it.
_OBSERVE = Mode.OBSERVE
_ASK = Failure.ASK
_AGENT = ActorKind.AGENT
_CONSTRAINTS = Stage.CONSTRAINTS
_NO_DEMANDS: Mapping[str, Demand] = MappingProxyType({})
_NO_TWINS: Mapping[tuple[str | None, str], int] = MappingProxyType({})


class Hearing(msgspec.Struct):
    """Everything that one arbitration looks at. What candidates share is filled in once they are all known."""

    space: Space
    policy: Policy
    proposal: Proposal
    actor: Actor
    now: str
    belief: Mapping[str, BeliefReading]
    steps: list[TraceStep] | None
    # Whether later stages are gone through after one has found something.
    thorough: bool
    # The seq of an older snapshot that the proposal was made on; None where it is the current one.
    since: int | None
    # Whether the proposal claims to come from somebody else, or from a state that never was.
    forgery: ReasonCode | None
    # Places of candidates that cannot both be, what all calls ask of each token, and how many candidates are the same.
    clashes: frozenset[int] = frozenset()
    demands: Mapping[str, Demand] = _NO_DEMANDS
    twins: Mapping[tuple[str | None, str], int] = _NO_TWINS


class CallCase(msgspec.Struct):
    """A call of a tool on its way through the stages."""

    place: int
    call: ToolCall
    tool_id: str
    tool: Tool | None
    held: Held
    matching: Matching
    args: Any
    args_hash: str
    facing: Facing
    call_key: CallKey | None
    # The execution of this very call in the past.
    answered_by: str | None
    finding: Finding | None = None
    # Whether something was found that is kept up even where decisions are only observed.
    enforced: bool = False
    matched: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    # A call writes no key itself.
    written: tuple[str, ...] = ()


class DeltaCase(msgspec.Struct):
    """A state delta on its way through the stages. Deltas are not executed, so that none answers another."""

    place: int
    delta: StateDelta
    matching: Matching
    facing: Facing
    written: tuple[str, ...]
    # Of what is written; None among them stands for keys that are outside of all namespaces.
    namespaces: set[str | None]
    # Filled in where somebody asks for it.
    args_hash: str = ""
    finding: Finding | None = None
    enforced: bool = False
    matched: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    tool_id: str | None = None
    answered_by: str | None = None


Case: TypeAlias = CallCase | DeltaCase


def hearing_of(
    space: Space,
    proposal: Proposal,
    actor: Actor,
    now: str,
    belief: Mapping[str, BeliefReading],
    steps: list[TraceStep] | None,
) -> Hearing:
    """Begin to hear a proposal."""
    since = forgery = None
    if proposal.state_snapshot_id != space.snapshot_id:
        since = space.snapshots.get(proposal.state_snapshot_id)
        if since is None:
            forgery = ReasonCode.UNKNOWN_SNAPSHOT
    provenance = proposal.provenance
    if provenance.source != actor.id or (provenance.permissions and not _are_own(provenance.permissions, space, actor)):
        forgery = ReasonCode.FORGED_PROVENANCE
    thorough = steps is not None or space.mode is _OBSERVE
    return Hearing(space, space.policy, proposal, actor, now, belief, steps, thorough, since, forgery)


def _are_own(permissions: list[str], space: Space, actor: Actor) -> bool:
    # Only agents have tokens; somebody else of the same name has none.
    tokens = [space.capabilities.get(token_id) for token_id in permissions]
    return actor.kind is _AGENT and all(token is not None and token.agent_id == actor.id for token in tokens)


def call_case(hearing: Hearing, place: int, call: ToolCall) -> CallCase:
    """Take up a call."""
    space, tool_id = hearing.space, call.tool_id
    holding = held(space.capabilities, call.capability_token_id)
    args = _decoded(call.args)
    args_hash = hash_of_args(call)
    key, answered_by = None, None
    if call.idempotency_key is not None:
        key = CallKey(tool_id, call.idempotency_key)
        execution_id = space.calls.get(key)
        if execution_id is not None and _is_same(space.executions[execution_id], call, args_hash, hearing.actor):
            answered_by = execution_id
    return CallCase(
        place,
        call,
        tool_id,
        space.tools.get(tool_id),
        holding,
        hearing.policy.matching(tool_id, holding.permitting, holding.denying),
        args,
        args_hash,
        Facing(space.state, hearing.belief, hearing.actor.id, args, tool_id),
        key,
        answered_by,
    )


def _is_same(execution: Execution, call: ToolCall, args_hash: str, actor: Actor) -> bool:
    """Whether an execution is one of this very call: same args, same token, same agent."""
    intent = execution.intent
    return (
        intent.args_hash == args_hash
        and intent.capability_token_id == call.capability_token_id
        and execution.agent_id == actor.id
    )


def delta_case(hearing: Hearing, place: int, delta: StateDelta) -> DeltaCase:
    """Take up a delta."""
    facing = Facing(hearing.space.state, hearing.belief, hearing.actor.id, args_of_delta(delta))
    written = (*delta.set, *delta.unset)
    return DeltaCase(place, delta, hearing.policy.of_deltas, facing, written, set(map(namespace_of, written)))


def hash_of_case(case: Case) -> str:
    """What approvals of this candidate are bound to."""
    if not case.args_hash and isinstance(case, DeltaCase):
        case.args_hash = hash_of_args(case.delta)
    return case.args_hash


def args_of_delta(delta: StateDelta) -> dict[str, Any]:
    """What `$args` means for a delta."""
    return {"set": delta.set, "unset": sorted(set(delta.unset)) if delta.unset else []}


def hash_of_args(candidate: Candidate) -> str:
    """What approvals and intents are bound to: SHA-256, in hex, of canonical args, or of a delta's set and unset."""
    if isinstance(candidate, ToolCall):
        return sha256(candidate.args).hexdigest()
    return sha256(canonical.encode(args_of_delta(candidate))).hexdigest()


def _decoded(args: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MISSING


# --- shape, freshness, authority --------------------------------------------------------------------------------------


def call_shape(hearing: Hearing, case: CallCase) -> Finding | None:
    """Who it comes from, what state it is based on, and whether another candidate is the same call."""
    if hearing.forgery is not None:
        return Finding(Stage.SHAPE, hearing.forgery)
    if case.place in hearing.clashes:
        return Finding(Stage.SHAPE, ReasonCode.CONFLICTING_CANDIDATES)
    return None


def delta_shape(hearing: Hearing, case: DeltaCase) -> Finding | None:
    """The same for a delta: it writes something, in the namespaces, and nothing that another writes differently."""
    if hearing.forgery is not None:
        return Finding(Stage.SHAPE, hearing.forgery)
    if not case.written:
        return Finding(Stage.SHAPE, ReasonCode.NOTHING_PROPOSED)
    if None in case.namespaces:
        return Finding(Stage.SHAPE, ReasonCode.KEY_OUTSIDE_NAMESPACES)
    if case.place in hearing.clashes:
        return Finding(Stage.SHAPE, ReasonCode.CONFLICTING_CANDIDATES)
    return None


def freshness(hearing: Hearing, case: Case) -> Finding | None:
    """Whether what it writes, or what constraints read for it, is as it was when it was proposed."""
    since = hearing.since
    if since is None:
        return None
    changed = hearing.space.changed
    moved = {key for key in (*case.written, *case.matching.keys) if changed.get(key, -1) > since}
    if not moved:
        return None
    if hearing.steps is not None:
        hearing.steps += [TraceStep(Stage.FRESHNESS, False, case.place, reference=key) for key in sorted(moved)]
    return Finding(Stage.FRESHNESS, ReasonCode.STALE_SNAPSHOT, Failure.DEFER)


def call_authority(hearing: Hearing, case: CallCase) -> Finding | None:
    """A call writes no namespace; what it may do is asked of its capability."""
    del hearing, case
    return None


def delta_authority(hearing: Hearing, case: DeltaCase) -> Finding | None:
    """Whether this kind of actor may write every one of the keys."""
    if case.namespaces <= proposable_by(hearing.actor.kind):
        return None
    return Finding(Stage.AUTHORITY, ReasonCode.AUTHORITY_DENIED)


# --- tool and capability ----------------------------------------------------------------------------------------------


def tool_and_args(hearing: Hearing, case: CallCase) -> Finding | None:
    """Whether there is such a tool, and the args fit it."""
    del hearing  # a stage like any other
    tool = case.tool
    if tool is None:
        return Finding(Stage.TOOL, ReasonCode.UNKNOWN_TOOL)
    if tool.retired:
        return Finding(Stage.TOOL, ReasonCode.TOOL_RETIRED)
    try:
        fits = type(case.args) is dict and args_validator(tool).is_valid(case.args)
    except SchemaFault:
        fits = False
    return None if fits else Finding(Stage.TOOL, ReasonCode.ARGS_INVALID)


def idempotency(hearing: Hearing, case: CallCase) -> Finding | None:
    """Whether it has the key that a tool with effects asks for, and the key is not that of another call."""
    if case.call_key is None:
        if case.tool is not None and case.tool.writes:
            return Finding(Stage.TOOL, ReasonCode.IDEMPOTENCY_KEY_REQUIRED)
        return None
    if case.answered_by is None and case.call_key in hearing.space.calls:
        return Finding(Stage.TOOL, ReasonCode.IDEMPOTENCY_CONFLICT)
    return None


def capability(hearing: Hearing, case: CallCase) -> Finding | None:
    """Whether its token is good for it, and has enough left for all calls of the proposal."""
    if case.call.capability_token_id is None:
        return Finding(Stage.CAPABILITY, ReasonCode.CAPABILITY_REQUIRED)
    fault = use_fault(hearing.space, case.held, hearing.actor, case.call.tool_id, case.args, hearing.now)
    if fault is None:
        if not case.held.bounded or case.answered_by is not None:
            return None
        if not is_exhausted(hearing.space, case.held, hearing.demands):
            return None
        fault = ReasonCode.BUDGET_EXHAUSTED
    return Finding(Stage.CAPABILITY, fault)


# --- constraints ------------------------------------------------------------------------------------------------------


def constraints(hearing: Hearing, case: Case) -> Finding | None:
    """A matching deny wins; without a matching allow nothing is permitted; what cannot be read denies."""
    if hearing.steps is not None:
        _trace_constraints(case, hearing.steps)
    matching = case.matching
    if matching.malformed:
        return Finding(Stage.CONSTRAINTS, ReasonCode.MALFORMED_CONSTRAINT, matched=matching.malformed)
    if matching.denies:
        against = _denying(hearing, case)
        if against:
            return _finding(ReasonCode.CONSTRAINT_DENIED, against)
    facing = case.facing
    for allow in matching.allows:
        if allow.when is None or allow.when.holds(facing):
            case.matched = (allow.key,)
            return None
    for allow in matching.allows:
        if allow.on_fail is _ASK and _is_granted(hearing, case, allow):
            case.matched = (allow.key,)
            return None
    if not matching.allows:
        return Finding(Stage.CONSTRAINTS, ReasonCode.NO_ALLOW)
    return _finding(ReasonCode.ALLOW_UNMET, _deciding(matching.allows))


def _denying(hearing: Hearing, case: Case) -> list[Constraint]:
    """The denials that hold and are not lifted by an approval: of these the strictest, which come first."""
    against: list[Constraint] = []
    for deny in case.matching.denies:
        if against and deny.on_fail is not against[0].on_fail:
            break
        if deny.when is not None and not deny.when.holds(case.facing):
            continue
        if deny.on_fail is not _ASK or not _is_granted(hearing, case, deny):
            against.append(deny)
    return against


def _deciding(allows: tuple[Constraint, ...]) -> list[Constraint]:
    """Of permissions that are not given: those on the most specific subject, and of these the strictest."""
    kind = allows[0].subject.kind
    nearest = [allow for allow in allows if allow.subject.kind is kind]
    strictest = min((allow.on_fail for allow in nearest), key=STRICTNESS.__getitem__)
    return [allow for allow in nearest if allow.on_fail is strictest]


def _finding(reason_code: ReasonCode, against: list[Constraint]) -> Finding:
    """What constraints that agree on what happens come to; all of them are named, in the order of their keys."""
    failure = against[0].on_fail
    waits_for: tuple[str, ...] = ()
    if failure is Failure.DEFER:
        predicates = [each.when for each in against if each.when is not None]
        keys = {key for predicate in predicates for key in predicate.keys}
        sessions = {f"$belief.{session_id}" for predicate in predicates for session_id in predicate.session_ids}
        waits_for = tuple(sorted(keys | sessions))
    reason = next((each.reason for each in against if each.reason is not None), None)
    return Finding(Stage.CONSTRAINTS, reason_code, failure, tuple(each.key for each in against), reason, waits_for)


def _is_granted(hearing: Hearing, case: Case, constraint: Constraint) -> bool:
    """Whether a live approval covers this constraint for exactly this candidate, and for all others like it."""
    space = hearing.space
    if not space.grants:
        return False
    args_hash = hash_of_case(case)
    grant = GrantKey(hearing.actor.id, case.tool_id, args_hash, constraint.key, hearing.policy.policy_hash)
    approval_id = space.grants.get(grant)
    if approval_id is None:
        return False
    approval = space.approvals[approval_id]
    is_live = (
        approval.status is ApprovalStatus.APPROVED
        and approval.proposer.kind is hearing.actor.kind
        and (approval.good_until is None or hearing.now < approval.good_until)
        and approval.uses_left >= hearing.twins.get((case.tool_id, args_hash), 1)
    )
    if is_live and approval_id not in case.used:
        case.used = tuple(sorted((*case.used, approval_id)))
    return is_live


def _trace_constraints(case: Case, steps: list[TraceStep]) -> None:
    """Every constraint that may speak, every predicate in it, and what was found."""
    matching, place = case.matching, case.place
    steps += [TraceStep(_CONSTRAINTS, False, place, key, note="malformed") for key in matching.malformed]
    for constraints_of, effect in ((matching.denies, "deny"), (matching.allows, "allow")):
        for each in constraints_of:
            when = each.when
            holds = when is None or when.trace(case.facing, Asking(_CONSTRAINTS, place, each.key), steps)
            steps.append(TraceStep(_CONSTRAINTS, holds, place, each.key, None, None, None, None, effect))


# --- all of them ------------------------------------------------------------------------------------------------------

CallJudge: TypeAlias = Callable[[Hearing, CallCase], Finding | None]
DeltaJudge: TypeAlias = Callable[[Hearing, DeltaCase], Finding | None]

OF_CALLS: tuple[tuple[Stage, CallJudge], ...] = (
    (Stage.SHAPE, call_shape),
    (Stage.FRESHNESS, freshness),
    (Stage.AUTHORITY, call_authority),
    (Stage.TOOL, tool_and_args),
    (Stage.TOOL, idempotency),
    (Stage.CAPABILITY, capability),
    (Stage.CONSTRAINTS, constraints),
)
OF_DELTAS: tuple[tuple[Stage, DeltaJudge], ...] = (
    (Stage.SHAPE, delta_shape),
    (Stage.FRESHNESS, freshness),
    (Stage.AUTHORITY, delta_authority),
    (Stage.CONSTRAINTS, constraints),
)


def against_call(hearing: Hearing, case: CallCase) -> Finding | None:
    """What the first stage that finds something finds: the stages of `OF_CALLS`, without a look at each of them."""
    return (
        call_shape(hearing, case)
        or (None if hearing.since is None else freshness(hearing, case))
        or tool_and_args(hearing, case)
        or idempotency(hearing, case)
        or capability(hearing, case)
        or constraints(hearing, case)
    )


def against_delta(hearing: Hearing, case: DeltaCase) -> Finding | None:
    """The same for a delta: the stages of `OF_DELTAS`."""
    return (
        delta_shape(hearing, case)
        or (None if hearing.since is None else freshness(hearing, case))
        or delta_authority(hearing, case)
        or constraints(hearing, case)
    )
